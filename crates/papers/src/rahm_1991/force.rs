//! Section 4.4: FORCE and NOFORCE.

use crate::{Claim, Estimate, Results};

const TRIAL: &str = "4-4-force";
pub(super) const STORAGE: [&str; 3] = ["disk", "disk with write buffer", "NVEM"];

pub(super) fn claims(results: &Results) -> Vec<Claim> {
    vec![penalty(results), single_disk(results)]
}

/// FORCE's and NOFORCE's mean response time in milliseconds on a kind of storage, where both are steady.
pub(super) fn pair(results: &Results, storage: &str, rate: f64) -> Option<(Estimate, Estimate)> {
    let trial = results.trial(TRIAL)?;
    let time = |update: &str| trial.response_ms(&format!("{storage}, {update}"), rate);
    Some((time("FORCE")?, time("NOFORCE")?))
}

fn penalty(results: &Results) -> Claim {
    let what = "FORCE is never faster; the penalty is large on disk and shrinks with device speed; write-buffer FORCE is close \
                to write-buffer NOFORCE and better than disk NOFORCE. About two more database writes per transaction.";
    Claim::new("R-4.3a", what, "two more writes; penalty shrinks").judge(|claim| {
        let trial = results.trial(TRIAL)?;
        // Where FORCE is faster by more than both intervals, at moderate rates.
        let mut faster = Vec::new();
        for storage in STORAGE {
            for rate in trial.places().filter(|rate| *rate <= 500.0) {
                let (force, noforce) = pair(results, storage, rate)?;
                let gain = noforce - force;
                if gain.mean > gain.half_width.unwrap_or(0.0) {
                    faster.push(format!("{storage} at {rate} TPS by {}", gain.with_unit("ms")));
                }
            }
        }
        let [disk, buffer, nvem] = STORAGE.map(|storage| pair(results, storage, 100.0));
        let (disk, buffer, nvem) = (disk?, buffer?, nvem?);
        let penalty = |pair: (Estimate, Estimate)| pair.0 - pair.1;
        let writes = |update: &str| {
            trial.figure(&format!("disk, {update}"), 10.0, "io_per_transaction.disk.writes")
        };
        let more = writes("FORCE")? - writes("NOFORCE")?;
        let shrinks = penalty(disk).mean > penalty(buffer).mean.max(penalty(nvem).mean);
        let close = (penalty(buffer).mean / buffer.1.mean).abs() <= 0.15 && buffer.0.mean < disk.1.mean;
        let mut reason = format!(
            "At 100 TPS the penalty is {} on disk, {} with a write buffer, {} in NVEM; write-buffer FORCE takes {}, disk \
             NOFORCE {}.",
            penalty(disk).with_unit("ms"),
            penalty(buffer).with_unit("ms"),
            penalty(nvem).with_unit("ms"),
            buffer.0.with_unit("ms"),
            disk.1.with_unit("ms"),
        );
        if !faster.is_empty() {
            reason = format!(
                "{reason} FORCE is faster: {}. We force a transaction's pages side by side, after which a miss never waits for \
                 a replaced page to be written; if TPSIM writes them one after the other, which the paper does not say, FORCE \
                 costs it two more delays.",
                faster.join(", ")
            );
        }
        let holds = faster.is_empty() && shrinks && close && (1.5..=2.3).contains(&more.mean);
        Some(claim.judged(format!("{} more writes", more.with_unit("")), holds, reason).with_interval(more))
    })
}

fn single_disk(results: &Results) -> Claim {
    let what = "With BRANCH and TELLER on a single disk FORCE is limited, with a write buffer as without.";
    Claim::new("R-4.3b", what, "under 70 TPS").judge(|claim| {
        let trial = results.trial("4-4-single-disk")?;
        let (disk, buffer) = (trial.throughput_max("disk")?, trial.throughput_max("disk with write buffer")?);
        let reason = format!(
            "The highest throughput of all runs: {} on disk, {} with a write buffer.",
            disk.with_unit("TPS"),
            buffer.with_unit("TPS")
        );
        let most = if disk.mean > buffer.mean { disk } else { buffer };
        let holds = (50.0..70.0).contains(&disk.mean) && (50.0..70.0).contains(&buffer.mean);
        Some(claim.judged(most.with_unit("TPS"), holds, reason).with_interval(most))
    })
}
