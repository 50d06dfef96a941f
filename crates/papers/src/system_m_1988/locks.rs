//! Section 4.2: spooling, and how rarely a lock is waited for (table 4.2); the volume of the log.

use super::{NOT_SPOOLING, SPOOLING, TRIAL, figure};
use crate::{Claim, Estimate, Results, Verdict};

/// The rows of table 4.2, with the share of lock requests that conflict while sweeps spool and while they do not, in percent.
const TABLE: [(&str, f64, f64); 5] = [
    ("ACBW/AOPER", 0.0004, 0.0227),
    ("ACBW/VALUE", 0.0007, 0.0285),
    ("ACCOU/AOPER", 0.0022, 0.0235),
    ("TCCOU/TOPER", 0.0010, 0.0276),
    ("TCBW/TOPER", 0.0013, 0.0402),
];

/// VALUE without whole fields.
const DIFFERENCES: &str = "FUZZY/VALUE, bytes that differ";

/// Conflicts are rare up to this, in percent.
const RARE: f64 = 0.1;
/// Many times.
const MANY: f64 = 10.0;

pub(super) fn claims(results: &Results) -> Vec<Claim> {
    [conflicts(results), cost(results), volume(results), log_server(results)].map(|claim| claim.seen_in(TRIAL)).into()
}

fn conflicts(results: &Results) -> Claim {
    let what = "Lock conflicts are rare with and without spooling, and many times rarer with it.";
    let paper = "0.0227 to 0.0402 % without, 0.0004 to 0.0022 % with spooling: 11 to 57 times";
    Claim::new("S-4.2", what, paper).judge(|claim| {
        let trial = results.trial(TRIAL)?;
        let (mut parts, mut verdicts, mut shares) = (Vec::new(), Vec::new(), Vec::new());
        for (name, with, without) in TABLE {
            let spooling = trial.figure(name, SPOOLING, "locks.conflicts")? * 100.0;
            let locking = trial.figure(name, NOT_SPOOLING, "locks.conflicts")? * 100.0;
            verdicts.extend([locking, spooling].map(|share| share.at_most(RARE)));
            verdicts.push((locking - spooling * MANY).at_least(0.0));
            shares.push((locking.mean, spooling.mean));
            parts.push(format!("{name} {:.4} and {:.4} % ({without} and {with})", locking.mean, spooling.mean));
        }
        let bounds = |of: fn(&(f64, f64)) -> f64| {
            let values = || shares.iter().map(of);
            (values().fold(f64::INFINITY, f64::min), values().fold(0.0, f64::max))
        };
        let ((low, high), (least, most)) = (bounds(|pair| pair.0), bounds(|pair| pair.1));
        let ours = format!("{low:.4} to {high:.4} % without, {least:.4} to {most:.4} % with spooling");
        let reason = format!(
            "Rare is taken as up to 0.1 %, many times as ten. Without and with spooling, the paper's in brackets: {}.",
            parts.join("; ")
        );
        Some(claim.judged(ours, Verdict::all(verdicts), reason))
    })
}

fn cost(results: &Results) -> Claim {
    let what = "Spooling costs a little throughput.";
    Claim::new("S-4.2 cost", what, "1 to 3 tps").judge(|claim| {
        let trial = results.trial(TRIAL)?;
        let mut losses = Vec::new();
        for (name, ..) in TABLE {
            let [with, without] = [SPOOLING, NOT_SPOOLING].map(|at| trial.figure(name, at, "throughput_per_s"));
            losses.push((name, without? - with?));
        }
        let parts: Vec<String> = losses.iter().map(|(name, loss)| format!("{name} {:.1}", loss.mean)).collect();
        losses.sort_by(|one: &(&str, Estimate), other| one.1.mean.total_cmp(&other.1.mean));
        let median = losses[losses.len() / 2].1;
        let reason = format!(
            "The median of five strategies counts (\"typically\"): {} tps. What a copy costs follows from the choice of 16 KiB \
             segments at 2.5 MB/s and their pace; a sweep that spools copies each segment it writes, one that copies on update \
             only those that were not changed.",
            parts.join(", ")
        );
        Some(claim.judged(format!("{:.1} tps", median.mean), median.within(1.0..=3.0), reason).with_interval(median))
    })
}

fn volume(results: &Results) -> Claim {
    let what = "The log volume per transaction falls from VALUE to AOPER to TOPER.";
    Claim::new("S-4", what, "VALUE > AOPER > TOPER").judge(|claim| {
        let (mut parts, mut verdicts) = (Vec::new(), Vec::new());
        for checkpoint in ["TCCOU", "TCBW"] {
            let mut bytes = Vec::new();
            for log in ["VALUE", "AOPER", "TOPER"] {
                bytes.push(figure(results, &format!("{checkpoint}/{log}"), "log_record_bytes_per_transaction")?);
            }
            verdicts.extend(bytes.windows(2).map(|pair| (pair[0] - pair[1]).at_least(0.0)));
            parts.push(format!("{checkpoint} {:.1}, {:.1}, {:.1} B", bytes[0].mean, bytes[1].mean, bytes[2].mean));
        }
        let [whole, differing] = ["FUZZY/VALUE", DIFFERENCES].map(|name| figure(results, name, "log_record_bytes_per_transaction"));
        let reason = format!(
            "Bytes of log records per true transaction, without headers and padding of pages. VALUE has the whole field, as \
             in System M; with only the bytes that differ FUZZY/VALUE would have {:.1} B in place of {:.1}. What is committed during a \
             black/white sweep says which of its changes the backup will have, which a value need not.",
            differing?.mean,
            whole?.mean
        );
        Some(claim.judged(parts.join("; "), Verdict::all(verdicts), reason))
    })
}

/// The CPU time of the log server with TCCOU by log, as a share of what it is with VALUE.
fn log_server(results: &Results) -> Claim {
    let what = "What the log server takes falls from VALUE to AOPER to TOPER as in table 4.1.";
    Claim::new("S-4 log server", what, "TCCOU 740, 525, 482 us: 71 and 65 %").judge(|claim| {
        let cpu = |log: &str| {
            let ours = figure(results, &format!("TCCOU/{log}"), "server.cpu_us_per_transaction.log")?;
            let paper = super::TABLE.iter().find(|row| row.name == format!("TCCOU/{log}"))?.cpu_us[2];
            Some((ours, paper))
        };
        let (value, aoper, toper) = (cpu("VALUE")?, cpu("AOPER")?, cpu("TOPER")?);
        let (mut verdicts, mut shares) = (Vec::new(), Vec::new());
        for log in [aoper, toper] {
            let (ours, paper) = (log.0 / value.0, log.1 / value.1);
            verdicts.push(ours.within(paper * 0.85..=paper * 1.15));
            shares.push(ours * 100.0);
        }
        let reason = format!(
            "{}, {} and {}. Each share within 15 % of the paper's. The log server writes a page whenever one is full, so its time \
             follows the bytes; those of a record of the log that are not values (its header, the sets' and fields' numbers, the key) \
             are the same in VALUE and AOPER here.",
            value.0.with_unit("us"),
            aoper.0.with_unit("us"),
            toper.0.with_unit("us")
        );
        let ours = format!("{:.0} and {:.0} %", shares[0].mean, shares[1].mean);
        Some(claim.judged(ours, Verdict::all(verdicts), reason))
    })
}
