//! Section 4.1: updates of one record, each committed (table 2), and what of the overall factors the log has (L-7).

use super::DEVICES;
use crate::{Cell, Claim, Estimate, Results, Row as Cells, Table, Verdict};

pub(super) const TRIAL: &str = "4-1-commit";
const CORES: f64 = 2.0;

/// A row of table 2: how many transactions at once, and on each device, the disk first, transactions per second and the
/// processors' load in percent.
struct CommitRow {
    n: f64,
    tps: [f64; 2],
    busy: [f64; 2],
}

const fn row(n: u32, disk: (f64, f64), flash: (f64, f64)) -> CommitRow {
    CommitRow { n: n as f64, tps: [disk.0, flash.0], busy: [disk.1, flash.1] }
}

/// Table 2. On the first row the machine's description was calibrated.
const TABLE: [CommitRow; 5] = [
    row(4, (178.0, 2.5), (2222.0, 28.0)),
    row(8, (358.0, 4.5), (4050.0, 47.0)),
    row(16, (711.0, 8.5), (6274.0, 77.0)),
    row(32, (1403.0, 20.0), (5953.0, 84.0)),
    row(64, (2737.0, 38.0), (5701.0, 84.0)),
];

/// How far a prediction may be off.
const TOLERANCE: f64 = 0.20;
/// How far the calibrated row may be off.
const CALIBRATED: f64 = 0.02;

pub(super) fn claims(results: &Results) -> Vec<Claim> {
    let mut claims = Vec::new();
    for device in 0..DEVICES.len() {
        claims.extend(TABLE.iter().map(|row| throughput(results, row, device)));
    }
    claims.extend([proportion(results), saturation(results), cpu(results)]);
    claims.push(factor(results, "throughput"));
    claims.push(
        factor(results, "response")
            .calibrated("It is the throughput's factor by definition: clients that never think."),
    );
    claims.into_iter().map(|claim| claim.seen_in(TRIAL)).collect()
}

/// Table 2.
pub(super) fn tables(results: &Results) -> Vec<Table> {
    let row = |row: &CommitRow| {
        let mut cells = Vec::new();
        for (number, device) in DEVICES.into_iter().enumerate() {
            let paper = row.tps[number];
            cells.push(Cell { tolerance: Some(paper * TOLERANCE), ..Cell::new(tps(results, device, row.n), paper) });
            let busy =
                results.trial(TRIAL).and_then(|trial| trial.figure(device, row.n, "utilization.cpu.utilization"));
            cells.push(Cell::new(busy.map(|busy| busy * 100.0), row.busy[number]));
        }
        Cells { name: format!("{} at once", row.n), cells }
    };
    let title = "Table 2: transactions per second and the processors' load in %, by the number of transactions at once. The first row \
                 was calibrated on; a throughput is coloured where it is more than 20 % off or may be.";
    let columns = ["disk, tps", "disk, CPU", "flash, tps", "flash, CPU"].map(str::to_owned).into();
    vec![Table {
        id: "L-2".to_owned(),
        title: title.to_owned(),
        columns,
        rows: TABLE.iter().map(row).collect(),
        places: 1,
    }]
}

pub(super) fn tps(results: &Results, device: &str, n: f64) -> Option<Estimate> {
    results.trial(TRIAL)?.figure(device, n, "throughput_per_s")
}

/// CPU time of a transaction that the last row of table 2 implies for flash, in microseconds.
const DEAR_US: f64 = TABLE[4].busy[1] / 100.0 * CORES / TABLE[4].tps[1] * 1e6;

/// Throughput on flash if a transaction takes that.
fn dear_tps(results: &Results, n: f64) -> Option<Estimate> {
    results.trial(TRIAL)?.figure("flash, CPU time as at 64", n, "throughput_per_s")
}

fn busy_percent(results: &Results, device: &str, n: f64) -> Option<Estimate> {
    Some(results.trial(TRIAL)?.figure(device, n, "utilization.cpu.utilization")? * 100.0)
}

fn throughput(results: &Results, row: &CommitRow, device: usize) -> Claim {
    let (name, paper) = (DEVICES[device], row.tps[device]);
    let is_first = row.n == TABLE[0].n;
    let how = if is_first { "the row that the forced write was calibrated on" } else { "predicted within 20 %" };
    let what = format!("{} transactions at once, the log on {name}: {how}.", row.n);
    Claim::new(&format!("L-2 {name} {}", row.n), &what, &format!("{paper} tps")).judge(|claim| {
        let (ours, busy) = (tps(results, name, row.n)?, busy_percent(results, name, row.n)?.mean);
        let off = ours.mean / paper - 1.0;
        let mut reason = format!(
            "{:+.1} %. The processors are busy for {busy:.1} % (the paper's for {} %); {:.0} us of CPU per transaction \
             (the paper's {:.0} us).",
            off * 100.0,
            row.busy[device],
            busy / 100.0 * CORES / ours.mean * 1e6,
            row.busy[device] / 100.0 * CORES / paper * 1e6,
        );
        if off > TOLERANCE {
            reason += &format!(
                " With more than 16 at once the paper's server spends more CPU on each and leaves 16 % of the processors idle, \
                 which no device explains; here a transaction costs the same at any number, and idle processors have nothing to \
                 do. At 100 % the paper's own price would allow {:.0} tps.",
                CORES / (row.busy[device] / 100.0 * CORES / paper)
            );
            if let Some(dear) = dear_tps(results, row.n) {
                reason += &format!(
                    " Run with the {DEAR_US:.0} us that table 2 implies at 64, {} at once do {} ({:+.1} %).",
                    row.n,
                    dear.with_unit("tps"),
                    (dear.mean / paper - 1.0) * 100.0
                );
            }
        }
        let tolerance = if is_first { CALIBRATED } else { TOLERANCE };
        let verdict = ours.within(paper * (1.0 - tolerance)..=paper * (1.0 + tolerance));
        let claim = claim.judged(ours.with_unit("tps"), verdict, reason).with_interval(ours);
        Some(if is_first { claim.calibrated("The forced write was calibrated on it.") } else { claim })
    })
}

fn proportion(results: &Results) -> Claim {
    let what = "On disk the throughput grows in proportion to the number of transactions at once.";
    Claim::new("L-2 proportion", what, "15.4 times from 4 to 64").judge(|claim| {
        let first = tps(results, "disk", TABLE[0].n)?;
        let (mut parts, mut verdicts) = (Vec::new(), Vec::new());
        for row in &TABLE[1..] {
            let (times, proportion) = (tps(results, "disk", row.n)? / first, row.n / TABLE[0].n);
            verdicts.push(times.within(0.9 * proportion..=1.1 * proportion));
            parts.push(format!("{:.2} at {}", times.mean, row.n));
        }
        let growth = tps(results, "disk", 64.0)? / first;
        let reason = format!("Within 10 % of proportion at each number: {} times that at 4.", parts.join(", "));
        Some(claim.judged(growth.with_unit("times"), Verdict::all(verdicts), reason).with_interval(growth))
    })
}

fn saturation(results: &Results) -> Claim {
    let what = "On flash the CPU is the limit from 32 on: no more throughput from 32 to 64.";
    Claim::new("L-2 saturation", what, "0.96 times from 32 to 64, CPUs busy for 84 %").judge(|claim| {
        let at = |n| tps(results, "flash", n);
        let (before, growth) = (at(32.0)? / at(16.0)?, at(64.0)? / at(32.0)?);
        let busy: Option<Vec<Estimate>> = [16.0, 32.0, 64.0].map(|n| busy_percent(results, "flash", n)).into_iter().collect();
        let busy = busy?;
        let verdict = Verdict::all([growth.at_most(1.05), busy[1].at_least(80.0)]);
        let dear = dear_tps(results, 64.0)? / dear_tps(results, 32.0)?;
        let reason = format!(
            "Taken as at most 5 % more, with processors that are busy for 80 % or more. From 16 to 32 it is {:.2} times (the \
             paper's 0.95); the processors are busy for {:.0}, {:.0} and {:.0} % at 16, 32 and 64. The paper's saturate at 84 %, \
             ours near 100 %. Run with the {DEAR_US:.0} us of CPU that table 2 implies at 64, it is {:.2} times from 32 to 64: they \
             saturate earlier then, but not at 84 %.",
            before.mean, busy[0].mean, busy[1].mean, busy[2].mean, dear.mean
        );
        Some(claim.judged(growth.with_unit("times"), verdict, reason).with_interval(growth))
    })
}

fn cpu(results: &Results) -> Claim {
    let what = "CPU time per transaction, at each number and on both devices (calibrated at 4).";
    Claim::new("L-2 CPU", what, "230 to 295 us").judge(|claim| {
        let (mut least, mut most, mut verdicts) = (f64::INFINITY, 0.0_f64, Vec::new());
        for device in DEVICES {
            for row in &TABLE {
                let us = results.trial(TRIAL)?.figure(device, row.n, "cpu_us_per_transaction")?;
                (least, most) = (least.min(us.mean), most.max(us.mean));
                verdicts.push(us.within(230.0..=295.0));
            }
        }
        let (ours, verdict) = (format!("{least:.0} to {most:.0} us"), Verdict::all(verdicts));
        let judged = claim.judged(ours, verdict, "Taken as within the paper's range.");
        Some(judged.calibrated("The CPU time of a transaction was calibrated on the first row."))
    })
}

/// L-7, for the log.
fn factor(results: &Results, what_of: &str) -> Claim {
    let what = format!("Moving the log from disk to flash brings more than ten times in {what_of}.");
    Claim::new(&format!("L-7 log, {what_of}"), &what, "more than 10 times (12.5 by table 2 at 4)").judge(|claim| {
        let trial = results.trial(TRIAL)?;
        let (mut all, mut parts) = (Vec::new(), Vec::new());
        for row in &TABLE {
            let times = match what_of {
                "throughput" => tps(results, "flash", row.n)? / tps(results, "disk", row.n)?,
                _ => trial.response_ms("disk", row.n)? / trial.response_ms("flash", row.n)?,
            };
            parts.push(format!("{:.1} at {} (the paper's {:.1})", times.mean, row.n, row.tps[1] / row.tps[0]));
            all.push(times);
        }
        // What was not calibrated decides.
        let best = all[1..].iter().copied().max_by(|one, other| one.mean.total_cmp(&other.mean))?;
        let reason = format!(
            "The most at a number that was not calibrated on decides: {}. The paper gives no response times; of clients that \
             never think, they are the number over the throughput.",
            parts.join(", ")
        );
        Some(claim.judged(best.with_unit("times"), best.at_least(10.0), reason).with_interval(best))
    })
}
