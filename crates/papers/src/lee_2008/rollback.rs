//! Section 5: snapshots read from rollback segments on either device (L-5), and what of the overall factors they have (L-7).

use super::DEVICES;
use crate::{Claim, Estimate, Results, Verdict};

pub(super) const TRIAL: &str = "5-snapshots";
/// Updates arrive so often in the experiment.
const RATE_PER_S: f64 = 300.0;

pub(super) fn claims(results: &Results) -> Vec<Claim> {
    let claims = [read(results), no_locks(results), time_travel(results), factor(results)];
    claims.map(|claim| claim.seen_in(TRIAL)).into()
}

/// How long it takes to read the table in a snapshot `age_s` seconds old.
fn scan_s(results: &Results, line: &str, age_s: f64) -> Option<Estimate> {
    Some(results.trial(TRIAL)?.figure(line, age_s, "snapshots.scan_us")? * 1e-6)
}

/// How many times as long with the rollback segments on disk, by the age of the snapshot in seconds.
fn ratios(results: &Results) -> Option<Vec<(f64, Estimate)>> {
    let ratio = |age: f64| Some((age, scan_s(results, "disk", age)? / scan_s(results, "flash", age)?));
    results.trial(TRIAL)?.places().map(ratio).collect()
}

fn by_mean(one: &Estimate, other: &Estimate) -> std::cmp::Ordering {
    one.mean.total_cmp(&other.mean)
}

fn read(results: &Results) -> Claim {
    let what = "A snapshot that reads before images from rollback segments is read an order of magnitude faster if they are on \
                flash: random reads.";
    Claim::new("L-5 reading", what, "an order of magnitude").judge(|claim| {
        let ratios = ratios(results)?;
        let least = ratios.iter().map(|(_, ratio)| *ratio).min_by(by_mean)?;
        let mut parts = Vec::new();
        for (age, ratio) in &ratios {
            let [disk, flash] = DEVICES.map(|device| scan_s(results, device, *age));
            let memory = scan_s(results, "flash, versions in memory", *age)?;
            parts.push(format!(
                "{age} s: {:.2} s on disk, {:.2} s on flash, {:.2} s with all versions in memory, {:.0} times",
                disk?.mean, flash?.mean, memory.mean, ratio.mean
            ));
        }
        let reason = format!(
            "At every age of the snapshot ten times or more, by the time to read the table. {}. A slow reader meets more before \
             images, because its snapshot grows older meanwhile.",
            parts.join("; ")
        );
        Some(claim.judged(least.with_unit("times at least"), least.at_least(10.0), reason).with_interval(least))
    })
}

fn no_locks(results: &Results) -> Claim {
    let what = "Readers of snapshots take no locks: no update waits for them.";
    Claim::new("L-5 locks", what, "non-blocking").judge(|claim| {
        let trial = results.trial(TRIAL)?;
        let (mut lock_us, mut slowest, mut response) =
            (Estimate::exact(0.0), Estimate::exact(f64::INFINITY), Vec::new());
        for device in DEVICES {
            for age in trial.places() {
                let waited = trial.figure(device, age, "composition_us.lock_wait")?;
                lock_us = if waited.mean > lock_us.mean { waited } else { lock_us };
                let tps = trial.figure(device, age, "throughput_per_s")?;
                slowest = if tps.mean < slowest.mean { tps } else { slowest };
            }
            let times: Option<Vec<f64>> = trial.places().map(|age| Some(trial.response_ms(device, age)?.mean)).collect();
            response.push(format!("{:.1} ms on {device}", times?.into_iter().fold(0.0, f64::max)));
        }
        let reason = format!(
            "Of {RATE_PER_S} updates per second at least 98 % are done, and they wait for locks, each other's, for less than \
             0.1 ms on average (at most {:.3} ms). What they do wait for, beside their commits, is room for before images, if \
             the rollback segments' device is busy with reads: mean response times are at most {}.",
            lock_us.mean * 1e-3,
            response.join(" and ")
        );
        let verdict = Verdict::all([slowest.at_least(0.98 * RATE_PER_S), lock_us.at_most(100.0)]);
        Some(claim.judged(slowest.with_unit("updates/s at least"), verdict, reason).with_interval(slowest))
    })
}

fn time_travel(results: &Results) -> Claim {
    let what = "The database can be read as of a time in the past.";
    Claim::new("L-5 time travel", what, "time travel queries").judge(|claim| {
        let trial = results.trial(TRIAL)?;
        let mut scans = 0.0;
        for outcome in &trial.outcomes {
            scans += outcome.estimate("snapshots.scans").filter(|_| outcome.is_steady())?.mean * outcome.reports.len() as f64;
        }
        let reason = "Of each scan 64 records were compared: as the snapshot showed them when it was young, when it was old, and \
                      as a new snapshot of its moment showed them then. A difference would have ended the run.";
        Some(claim.judged(format!("{scans:.0} scans, all as they were"), scans > 0.0, reason))
    })
}

fn factor(results: &Results) -> Claim {
    let what = "Moving the rollback segments from disk to flash brings more than ten times in throughput and response.";
    Claim::new("L-7 rollback segments", what, "more than 10 times").judge(|claim| {
        let best = ratios(results)?.into_iter().map(|(_, ratio)| ratio).max_by(by_mean)?;
        let reason = "The time to read a table in a snapshot, at the age at which it differs most. Records read per second of \
                      reading follow from it, so that throughput has the same factor.";
        Some(claim.judged(best.with_unit("times"), best.at_least(10.0), reason).with_interval(best))
    })
}
