//! The same on the machine on which the study is reproduced, whose disk behaves as the described devices.

use super::{DEVICES, commit, tpc_b};
use crate::outcome::Trial;
use crate::{Claim, Estimate, Results};
use base::units::grouped_decimal;

pub(super) const COMMITS: &str = "this-machine";
pub(super) const TPC_B: &str = "this-machine-tpc-b";
pub(super) const SNAPSHOTS: &str = "this-machine-snapshots";
pub(super) const SORT: &str = "this-machine-sort";
pub(super) const JOINS: &str = "this-machine-joins";
/// Users of table 3.
const USERS: f64 = 20.0;
/// Branches of the database here as there.
const BRANCHES: f64 = 36.0;

pub(super) fn claims(results: &Results) -> Vec<Claim> {
    vec![
        commits(results).seen_in(COMMITS),
        tpc_b(results).seen_in(TPC_B),
        bottleneck(results).seen_in(TPC_B),
        snapshots(results).seen_in(SNAPSHOTS),
        sort(results).seen_in(SORT),
        joins(results).seen_in(JOINS),
    ]
}

fn by_mean(one: &Estimate, other: &Estimate) -> std::cmp::Ordering {
    one.mean.total_cmp(&other.mean)
}

fn whole(estimate: Estimate) -> String {
    grouped_decimal(estimate.mean, 0)
}

fn tps(trial: &Trial, device: &str, clients: f64) -> Option<Estimate> {
    trial.figure(device, clients, "throughput_per_s")
}

/// How long a log write took on a device, and how long its description alone would have taken, in milliseconds.
fn write_ms(trial: &Trial, device: &str, clients: f64) -> Option<[f64; 2]> {
    let mean_ms = |station: String| {
        Some(trial.figure(device, clients, &format!("utilization.{station}.response_us_mean"))?.mean * 1e-3)
    };
    Some([mean_ms(device.to_owned())?, mean_ms(format!("{device}.medium"))?])
}

/// The same of the disk and of flash, in words.
fn writes(trial: &Trial, clients: f64) -> Option<String> {
    let [[disk, disk_described], [flash, flash_described]] =
        [write_ms(trial, DEVICES[0], clients)?, write_ms(trial, DEVICES[1], clients)?];
    Some(format!(
        "a log write {disk:.1} and {flash:.2} ms ({disk_described:.1} and {flash_described:.2} ms of it as described)"
    ))
}

fn commits(results: &Results) -> Claim {
    let what = "On this machine's clock, too, the log on flash brings more than ten times in throughput.";
    Claim::new("L-7 log, this machine", what, "more than 10 times").judge(|claim| {
        let trial = results.trial(COMMITS)?;
        let (mut best, mut parts) = (None::<Estimate>, Vec::new());
        for n in trial.places() {
            let [disk, flash] = DEVICES.map(|device| tps(trial, device, n));
            let described = DEVICES.map(|device| commit::tps(results, device, n));
            let (times, beside) = (flash? / disk?, (described[0], described[1]));
            let beside = match beside {
                (Some(disk), Some(flash)) => format!(" (virtually {} and {})", whole(disk), whole(flash)),
                _ => String::new(),
            };
            let (disk, flash) = (whole(disk?), whole(flash?));
            parts.push(format!("with {n} at once {disk} and {flash} tps{beside}, {}", writes(trial, n)?));
            best = Some(best.filter(|best| best.mean > times.mean).unwrap_or(times));
        }
        let best = best?;
        let reason = format!(
            "The devices' delays are real, the processors are this machine's: one thread that is many times as fast. On disk and \
             flash: {}. What a write takes beyond its description is this machine's own, the more the more others use its \
             processors and its disk.",
            parts.join("; ")
        );
        Some(claim.judged(best.with_unit("times"), best.at_least(10.0), reason).with_interval(best))
    })
}

/// L-3.
fn tpc_b(results: &Results) -> Claim {
    let what = "On this machine's clock, too, TPC-B with 20 users has 3.5 times the throughput with the log on flash, or more.";
    Claim::new("L-3 factor, this machine", what, "3.5 times").judge(|claim| {
        let trial = results.trial(TPC_B)?;
        let described = [0, 1].map(|device| tpc_b::tps(results, device).map_or_else(|| "-".to_owned(), whole));
        let [disk, flash] = DEVICES.map(|device| tps(trial, device, USERS).map(whole));
        let times = tps(trial, DEVICES[1], USERS)? / tps(trial, DEVICES[0], USERS)?;
        let cpu = trial.figure(DEVICES[1], USERS, "cpu_us_per_transaction")?;
        let reason = format!(
            "Processors that are faster leave more of the time to the devices, so the factor may be larger. On disk and flash: {} \
             and {} tps (virtually {}), {}. A transaction takes {} of CPU here.",
            disk?,
            flash?,
            described.join(" and "),
            writes(trial, USERS)?,
            cpu.with_unit("us"),
        );
        Some(claim.judged(times.with_unit("times"), times.at_least(3.5), reason).with_interval(times))
    })
}

/// L-4.
fn bottleneck(results: &Results) -> Claim {
    let what = "On this machine's clock, too, the log on flash leaves the processor as the bottleneck of TPC-B with many users.";
    Claim::new("L-4 flash, this machine", what, "processors saturated at 3,000 tps").judge(|claim| {
        let trial = results.trial(TPC_B)?;
        let most = trial.places().fold(0.0, f64::max);
        if most == USERS {
            return None;
        }
        let mut curves = Vec::new();
        for device in DEVICES {
            let along = trial.places().map(|users| Some(whole(tps(trial, device, users)?)));
            curves.push(format!("{} tps on {device}", along.collect::<Option<Vec<_>>>()?.join(", ")));
        }
        let users: Vec<String> = trial.places().map(|users| users.to_string()).collect();
        let us = trial.figure(DEVICES[1], most, "cpu_us_per_transaction")?;
        let busy = trial.at(DEVICES[1], most)?.derived(|figure| {
            Some(figure("cpu_us_per_transaction")? * figure("throughput_per_s")? * 1e-4)
        })?;
        let [took, described] = write_ms(trial, DEVICES[1], most)?;
        let reason = format!(
            "Taken as 90 % or more of one core. With {} users {}. The engine runs in one thread, so it uses one core however \
             many there are: curves for two and for four cores would be this one. At {us} a transaction that core would allow {} \
             tps; before that each of {BRANCHES} branches, locked until the commit is durable, can commit once in two log \
             writes, {} tps at {described:.2} ms each and {} at the {took:.2} ms that they took.",
            users.join(", "),
            curves.join("; "),
            grouped_decimal(1e6 / us.mean, 0),
            grouped_decimal(BRANCHES / (2.0 * described) * 1e3, 0),
            grouped_decimal(BRANCHES / (2.0 * took) * 1e3, 0),
            us = us.with_unit("us"),
        );
        Some(claim.judged(busy.with_unit("% of a core"), busy.at_least(90.0), reason).with_interval(busy))
    })
}

/// How many times as long it takes on disk, at each place of the abscissa, by this machine's clock; and the times of all runs
/// in words. `seconds` finds a time.
fn beside_virtual(
    trial: &Trial,
    seconds: impl Fn(&str, f64) -> Option<Estimate>,
) -> Option<(Vec<Estimate>, Vec<String>)> {
    let (mut ratios, mut parts) = (Vec::new(), Vec::new());
    for (x, label) in &trial.experiment.x.values {
        let at = |device: &str, clock: &str| seconds(&format!("{device}, {clock}"), *x);
        let [disk, flash] = DEVICES.map(|device| at(device, "this machine"));
        let [disk_virtual, flash_virtual] = DEVICES.map(|device| at(device, "virtual"));
        let (disk, flash) = (disk?, flash?);
        parts.push(format!(
            "{label}: {:.2} s on disk ({:.2} s virtually), {:.2} s on flash ({:.2} s)",
            disk.mean, disk_virtual?.mean, flash.mean, flash_virtual?.mean
        ));
        ratios.push(disk / flash);
    }
    Some((ratios, parts))
}

/// L-5.
fn snapshots(results: &Results) -> Claim {
    let what = "On this machine's clock, too, a snapshot that reads before images is read an order of magnitude faster from flash.";
    Claim::new("L-5 reading, this machine", what, "an order of magnitude").judge(|claim| {
        let trial = results.trial(SNAPSHOTS)?;
        let scan = |line: &str, age: f64| Some(trial.figure(line, age, "snapshots.scan_us")? * 1e-6);
        let (ratios, parts) = beside_virtual(trial, scan)?;
        let least = ratios.into_iter().min_by(by_mean)?;
        let mut rate = f64::INFINITY;
        for device in DEVICES {
            for age in trial.places() {
                rate = rate.min(tps(trial, &format!("{device}, this machine"), age)?.mean);
            }
        }
        let reason = format!(
            "At every age of the snapshot ten times or more. By age in seconds: {}. Each scan was compared as in section 5. Of 300 \
             updates per second at least {rate:.0} were done beside it.",
            parts.join("; ")
        );
        Some(claim.judged(least.with_unit("times at least"), least.at_least(10.0), reason).with_interval(least))
    })
}

fn spilled(results: &Results, trial: &str) -> Option<(Estimate, String)> {
    let trial = results.trial(trial)?;
    let (ratios, parts) = beside_virtual(trial, |line, x| trial.figure(line, x, "spill.seconds"))?;
    Some((ratios.into_iter().min_by(by_mean)?, parts.join("; ")))
}

/// L-6, for the sort.
fn sort(results: &Results) -> Claim {
    let what = "On this machine's clock, too, a sort takes less than half the time with temporary space on flash.";
    Claim::new("L-6 sort, this machine", what, "faster").judge(|claim| {
        let (least, times) = spilled(results, SORT)?;
        let reason = format!("The smallest of the factors counts. By size of clusters: {times}.");
        Some(claim.judged(least.with_unit("times"), least.at_least(2.0), reason).with_interval(least))
    })
}

/// L-6, for the joins.
fn joins(results: &Results) -> Claim {
    let what = "On this machine's clock, too, joins take less than half the time with temporary space on flash.";
    Claim::new("L-6 joins, this machine", what, "more than 2 times").judge(|claim| {
        let (least, times) = spilled(results, JOINS)?;
        let reason = format!("The smaller of both factors counts. {times}.");
        Some(claim.judged(least.with_unit("times"), least.at_least(2.0), reason).with_interval(least))
    })
}
