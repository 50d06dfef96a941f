//! Section 4.4: FORCE and NOFORCE.

use crate::outcome::Trial;
use crate::{Claim, Estimate, Results, Verdict};

const TRIAL: &str = "4-4-force";
const SINGLE: &str = "4-4-single-disk";
pub(super) const STORAGE: [&str; 3] = ["disk", "disk with write buffer", "NVEM"];

pub(super) fn claims(results: &Results) -> Vec<Claim> {
    vec![penalty(results).seen_in(TRIAL), single_disk(results).seen_in(SINGLE)]
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
        // Where FORCE is faster by more than both intervals, at every rate that both can serve.
        let (mut faster, mut never) = (Vec::new(), Vec::new());
        for storage in STORAGE {
            for rate in trial.places() {
                let Some((force, noforce)) = pair(results, storage, rate) else { continue };
                let gain = noforce - force;
                never.push(gain.at_most(0.0));
                if never.last() == Some(&Verdict::Differs) {
                    faster.push(format!("{storage} at {rate} TPS by {}", gain.with_unit("ms")));
                }
            }
        }
        let [disk, buffer, nvem] = STORAGE.map(|storage| pair(results, storage, 100.0));
        let (disk, buffer, nvem) = (disk?, buffer?, nvem?);
        let penalty = |pair: (Estimate, Estimate)| pair.0 - pair.1;
        let more = more_writes(trial);
        let farthest = *more.iter().max_by(|a, b| (a.mean - 2.0).abs().total_cmp(&(b.mean - 2.0).abs()))?;
        let shrinks = [buffer, nvem].map(|quick| (penalty(disk) - penalty(quick)).at_least(0.0));
        let close = [(penalty(buffer) / buffer.1).within(-0.15..=0.15), (buffer.0 - disk.1).at_most(0.0)];
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
        let about_two = more.iter().map(|more| more.within(1.5..=2.5));
        let verdict = Verdict::all(never.into_iter().chain(shrinks).chain(close).chain(about_two));
        let [first, last] = [more.first()?, more.last()?];
        reason += &format!(
            " Of the rates, the one whose additional writes are farthest from two is given; 'about two' is 1.5 to 2.5. At the lowest \
             rate there are {} more, at the highest {}: a page that another commit has written meanwhile with this one's change is clean \
             and not written again. That is HISTORY's last page, which twenty transactions share; the other two are always written. The paper \
             counts three forced writes for each.",
            first.with_unit(""),
            last.with_unit(""),
        );
        Some(claim.judged(format!("{} more writes", farthest.with_unit("")), verdict, reason).with_interval(farthest))
    })
}

/// How many more database writes a transaction has with FORCE on disk, at each rate that both can serve.
fn more_writes(trial: &Trial) -> Vec<Estimate> {
    let writes = |update: &str, rate| trial.figure(&format!("disk, {update}"), rate, "io_per_transaction.disk.writes");
    trial.places().filter_map(|rate| Some(writes("FORCE", rate)? - writes("NOFORCE", rate)?)).collect()
}

fn single_disk(results: &Results) -> Claim {
    let what = "With BRANCH and TELLER on a single disk FORCE is limited, with a write buffer as without.";
    Claim::new("R-4.3b", what, "under 70 TPS").judge(|claim| {
        let trial = results.trial(SINGLE)?;
        let (disk, buffer) = (trial.throughput_max("disk")?, trial.throughput_max("disk with write buffer")?);
        let reason = format!(
            "The highest throughput of all runs: {} on disk, {} with a write buffer.",
            disk.with_unit("TPS"),
            buffer.with_unit("TPS")
        );
        let most = if disk.mean > buffer.mean { disk } else { buffer };
        let verdict = Verdict::all([disk, buffer].map(|limit| limit.within(50.0..=70.0)));
        Some(claim.judged(most.with_unit("TPS"), verdict, reason).with_interval(most))
    })
}
