//! Nodes and their server while what is between them and they themselves fail: many quick seeds, and planted bugs.

use entresol_torture::cluster::{ClusterOptions, run_range, run_seed};

#[test]
fn whatever_fails_some_order_explains_what_all_nodes_were_shown() {
    let summary = run_range(0..40, ClusterOptions::QUICK, |_| {});
    let failures: Vec<String> = summary.failures.iter().map(ToString::to_string).collect();
    assert!(failures.is_empty(), "{}", failures.join("\n\n"));
    assert_eq!(summary.seeds, 40);
    assert!(summary.transactions > 5_000, "{summary:?}");
}

#[test]
fn a_seed_replays_exactly() {
    for seed in [2, 9] {
        let (first, second) = (run_seed(seed, ClusterOptions::QUICK), run_seed(seed, ClusterOptions::QUICK));
        assert_ne!(first.hash, 0);
        assert_eq!(first, second);
        assert_ne!(first.hash, run_seed(seed + 1, ClusterOptions::QUICK).hash);
    }
}
