//! What section 4.5 suggests and does not measure: other disk caches, and caching at three levels.

use crate::outcome::Trial;
use crate::{Claim, Estimate, Results, Verdict};

const TRIAL: &str = "4-5-suggested";
const VOLATILE: &str = "volatile disk cache";
const WRITES: &str = "volatile, takes write misses";
const WRITES_ONLY: &str = "volatile, takes write misses only";
const NVEM: &str = "NVEM cache 500";
const THREE_VOLATILE: &str = "NVEM cache 500, volatile disk cache";
const THREE_WRITES: &str = "NVEM cache 500, volatile disk cache that takes write misses only";
const NVEM_1000: &str = "NVEM cache 1,000";
const EXTENDED: &str = "volatile extended memory 1,000, write buffers in disk caches";
const THREE_NON_VOLATILE: &str = "NVEM cache 500, non-volatile disk cache";

/// The buffer size at which they are compared.
const MAIN: f64 = 500.0;

pub(super) fn claims(results: &Results) -> Vec<Claim> {
    [disk_caches(results), three_levels(results), extended_memory(results)].map(|claim| claim.seen_in(TRIAL)).into()
}

/// Hits beyond main memory, in % of all references, and response time in milliseconds.
fn pair(trial: &Trial, line: &str) -> Option<(Estimate, Estimate)> {
    let hits = trial.figure(line, MAIN, "hit_ratio_second_level_all")? * 100.0;
    Some((hits, trial.response_ms(line, MAIN)?))
}

fn listed(trial: &Trial, lines: &[&str]) -> Option<String> {
    let one = |line: &&str| {
        let (hits, time) = pair(trial, line)?;
        Some(format!("{line} {:.1} % and {:.1} ms", hits.mean, time.mean))
    };
    Some(lines.iter().map(one).collect::<Option<Vec<_>>>()?.join("; "))
}

fn disk_caches(results: &Results) -> Claim {
    let what = "Suggested: a volatile disk cache does better if it also takes pages that are written and not in it, and better \
                still if it leaves out what was read for main memory.";
    Claim::new("R-4.x disk caches", what, "better; no figure").judge(|claim| {
        let trial = results.trial(TRIAL)?;
        let (base, writes, only) = (pair(trial, VOLATILE)?.0, pair(trial, WRITES)?.0, pair(trial, WRITES_ONLY)?.0);
        let gain = only - base;
        let reason = format!(
            "Hits in a disk cache of 1,000 pages beside a buffer of 500, and response time: {}. The gain of the last is given.",
            listed(trial, &[VOLATILE, WRITES, WRITES_ONLY])?
        );
        let verdict = Verdict::all([(writes - base).at_least(0.0), (only - writes).at_least(0.0)]);
        Some(claim.judged(format!("{:+.1} points", gain.mean), verdict, reason).with_interval(gain))
    })
}

fn three_levels(results: &Results) -> Claim {
    let what = "Predicted: a disk cache below an NVEM cache is as ineffective as beside a main memory that much larger; \
                non-volatility is no longer necessary for it.";
    Claim::new("R-4.x three levels", what, "little; no figure").judge(|claim| {
        let trial = results.trial(TRIAL)?;
        let (nvem, three) = (pair(trial, NVEM)?, pair(trial, THREE_VOLATILE)?);
        let non_volatile = pair(trial, THREE_NON_VOLATILE)?;
        let gain = three.0 - nvem.0;
        let reason = format!(
            "Hits beyond a buffer of 500 pages, and response time: {}. What the volatile disk cache adds is given; little is \
             taken as within 1.0 point, no longer necessary as a response time that is longer by 5 % at most.",
            listed(trial, &[NVEM, THREE_VOLATILE, THREE_WRITES, THREE_NON_VOLATILE])?
        );
        let verdict = Verdict::all([gain.within(-1.0..=1.0), (three.1 / non_volatile.1).at_most(1.05)]);
        Some(claim.judged(format!("{:+.1} points", gain.mean), verdict, reason).with_interval(gain))
    })
}

fn extended_memory(results: &Results) -> Claim {
    let what = "Predicted: a cache in volatile extended memory beside write buffers in the disk caches approaches an NVEM cache.";
    Claim::new("R-4.x extended memory", what, "\"approached\"; no figure").judge(|claim| {
        let trial = results.trial(TRIAL)?;
        let (nvem, volatile) = (pair(trial, NVEM_1000)?, pair(trial, EXTENDED)?);
        let (fewer, times) = (volatile.0 - nvem.0, volatile.1 / nvem.1);
        let more = |part: &str| {
            let path = format!("composition_us.{part}");
            Some(trial.difference([EXTENDED, NVEM_1000], MAIN, &path)?.mean * 1e-3)
        };
        let reason = format!(
            "Hits beyond a buffer of 500 pages, and response time: {}. Approached is taken as the same hits within 1.0 point and a \
             response time that is longer by up to 15 %. What a write to a disk cache takes longer than one to NVEM, 1.35 ms, is \
             paid for the log and before each changed page that is replaced makes room: {:.1} and {:.1} ms of the difference.",
            listed(trial, &[NVEM_1000, EXTENDED])?,
            more("commit_wait")?,
            more("read_wait")?,
        );
        let verdict = Verdict::all([fewer.within(-1.0..=1.0), times.at_most(1.15)]);
        Some(claim.judged(format!("{} times", times.with_unit("")), verdict, reason).with_interval(times))
    })
}
