use super::*;
use crate::bank::Scale;
use crate::bench::{self, Settings};
use std::time::Duration;

/// A short benchmark of every engine in every grouping; [`bench::run`] adds up the books after each run.
fn run_all(durability: Durability) {
    let directory = tempfile::tempdir().unwrap();
    let settings = Settings {
        durability,
        clients: 8,
        scale: Scale(1),
        measured: Duration::from_millis(200),
        warm_up: Duration::from_millis(20),
        runs: 2,
        seed: 7,
        data: directory.path().to_owned(),
        groupings: Vec::new(),
    };
    for contender in CONTENDERS {
        let result = bench::run(contender, &settings, &|_| ()).unwrap();
        assert_eq!(result.groupings.len(), settings.groupings_of(contender).len());
        for grouping in &result.groupings {
            assert!(grouping.median.throughput_per_s > 0.0, "{} {:?}", contender.name, grouping);
        }
        assert!(!directory.path().join(contender.name).exists(), "the directory is removed");
    }
}

#[test]
fn books_balance_with_durable_commits() {
    run_all(Durability::Sync);
}

#[test]
fn books_balance_without_durable_commits() {
    run_all(Durability::Off);
}

#[test]
fn an_occupied_directory_is_left_alone() {
    let directory = tempfile::tempdir().unwrap();
    let contender = &CONTENDERS[0];
    let precious = directory.path().join(contender.name).join("precious");
    std::fs::create_dir_all(&precious).unwrap();
    let settings = Settings {
        durability: Durability::Off,
        clients: 1,
        scale: Scale(1),
        measured: Duration::ZERO,
        warm_up: Duration::ZERO,
        runs: 1,
        seed: 1,
        data: directory.path().to_owned(),
        groupings: Vec::new(),
    };
    assert!(bench::run(contender, &settings, &|_| ()).is_err());
    assert!(precious.exists());
}
