//! Section 4.7: contention for locks.

use crate::outcome::Trial;
use crate::{Claim, Estimate, Outcome, Results, Verdict};

const TRIAL: &str = "4-7-contention";
const OPEN: &str = "4-7-open";
const DISK: &str = "disk, page locks";

/// What experiment 4-7-open changes, and how that is told.
const CHANGES: [(&str, &str); 5] = [
    ("MPL 24", "a multiprogramming level of 24 in place of 12"),
    ("MPL 48", "one of 48"),
    ("fixed disk service", "disks of fixed service"),
    (
        "no waits for replaced pages",
        "a write buffer, so that no transaction waits for replaced pages (at a level of 14)",
    ),
    ("ten references each", "ten references in every transaction (at a level of 28)"),
];

pub(super) fn claims(results: &Results) -> Vec<Claim> {
    vec![limits(results).seen_in(TRIAL).seen_in(OPEN)]
}

fn limits(results: &Results) -> Claim {
    let what = "Page locks limit the disk-based and the mixed allocation; all-NVEM reaches 700 TPS with negligible contention. \
                Object locks remove the limit in both.";
    Claim::new("R-4.8a", what, "disk about 120 TPS, mixed about 150").judge(|claim| {
        let trial = results.trial(TRIAL)?;
        let most = |line: &str| trial.throughput_max(line);
        let (disk, mixed) = (most(DISK)?, most("mixed, page locks")?);
        let (disk_objects, mixed_objects) = (most("disk, object locks")?, most("mixed, object locks")?);
        let nvem = trial.at("NVEM, page locks", 700.0)?;
        let waits = nvem.estimate("composition_us.lock_wait")? * 1e-3;
        let reason = format!(
            "The highest throughput of all runs with page locks: {} on disks, {} mixed; NVEM {} 700 TPS with {} of waiting for \
             locks per transaction. With object locks: {} on disks, {} mixed. 'About' is taken as within a fifth, negligible as below \
             3 ms, a limit as removed if the throughput doubles.{}",
            disk.with_unit("TPS"),
            mixed.with_unit("TPS"),
            if nvem.is_steady() { "serves" } else { "does not serve" },
            waits.with_unit("ms"),
            disk_objects.with_unit("TPS"),
            mixed_objects.with_unit("TPS"),
            explained(results),
        );
        let near = |ours: Estimate, paper: f64| ours.within(0.8 * paper..=1.2 * paper);
        let verdict = Verdict::all([
            near(disk, 120.0),
            near(mixed, 150.0),
            nvem.is_steady().into(),
            waits.at_most(3.0),
            (disk_objects / disk).at_least(2.0),
            (mixed_objects / mixed).at_least(2.0),
        ]);
        let ours = format!("{} and {}", disk.with_unit("TPS"), mixed.with_unit("TPS"));
        Some(claim.judged(ours, verdict, reason).with_interval(disk))
    })
}

/// Deadlock victims per transaction of the run on disks with the highest throughput.
fn victims(trial: &Trial) -> Option<f64> {
    let most = trial.throughput_max(DISK)?;
    let is_it = |run: &&Outcome| run.estimate("throughput_per_s").is_some_and(|figure| figure.mean == most.mean);
    let run = trial.places().filter_map(|rate| trial.at(DISK, rate)).find(is_it)?;
    Some((run.estimate("aborts")? / run.estimate("transactions")?).mean)
}

/// Why the limits are others than the paper's: what each thing that the paper leaves open does to them.
fn explained(results: &Results) -> String {
    let Some(trial) = results.trial(OPEN) else { return String::new() };
    let limits = CHANGES.iter().filter_map(|(name, told)| {
        let [disk, mixed] = ["disk", "mixed"].map(|kind| trial.throughput_max(&format!("{kind}, {name}")));
        Some(format!("{told} {:.0} and {:.0}", disk?.mean, mixed?.mean))
    });
    let limits: Vec<String> = limits.collect();
    let Some(victims) = results.trial(TRIAL).and_then(victims) else { return String::new() };
    format!(
        " What the limits become with one thing changed (TPS on disks and mixed): {}. So sizes decide. In an exponential law, \
         which the paper names, long transactions hold many locks through two disk accesses for each miss, and the limit is \
         below the paper's; with equal sizes it is above, and the paper's figures lie between. Deadlocks do not decide: of a \
         hundred transactions on disks {:.0} were victims where throughput is highest.",
        limits.join("; "),
        victims * 100.0,
    )
}
