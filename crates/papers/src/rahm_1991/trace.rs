//! Section 4.6: a trace of a real application.

use crate::outcome::Trial;
use crate::{Claim, Estimate, Results, Verdict};

const MAIN: &str = "4-6-main-memory";
const SECOND: &str = "4-6-second-level";
const FORCE: &str = "4-6-force";

pub(super) fn claims(results: &Results) -> Vec<Claim> {
    vec![
        calibration(results).seen_in(MAIN).seen_in(SECOND),
        read_dominated(results).seen_in(SECOND),
        main_memory(results).seen_in(MAIN),
        disk_caches(results).seen_in(MAIN),
        nvem_cache(results).seen_in(MAIN),
        update_strategy(results).seen_in(FORCE).seen_in(MAIN),
    ]
}

fn calibration(results: &Results) -> Claim {
    let what = "Main buffer 2,000: hits in main memory; a second level of 2,000 adds 3.4 points in NVEM, 0.7 in disk caches; \
                main 1,000 and a volatile cache of 1,000: 0.6.";
    Claim::new("R-4.6a", what, "83.8 %; + 3.4; + 0.7; 0.6").judge(|claim| {
        let trial = results.trial(MAIN)?;
        let percent = |line: &str, path: &str| Some(trial.figure(line, 2_000.0, path)? * 100.0);
        let main = percent("main memory only", "hit_ratio_all")?;
        let second = |line: &str| percent(line, "hit_ratio_second_level_all");
        let (nvem, volatile, non_volatile) = (
            second("NVEM cache 2,000")?,
            second("volatile disk cache 2,000")?,
            second("non-volatile disk cache 2,000")?,
        );
        let equal =
            results.trial(SECOND)?.figure("volatile disk cache", 1_000.0, "hit_ratio_second_level_all")? * 100.0;
        let reason = "Within 1.0 point each, the mean of several traces.";
        let ours = format!(
            "{:.1} %; + {:.1}; + {:.1} and {:.1}; {:.1}",
            main.mean, nvem.mean, volatile.mean, non_volatile.mean, equal.mean
        );
        let all = [(main, 83.8), (nvem, 3.4), (volatile, 0.7), (non_volatile, 0.7), (equal, 0.6)];
        let verdict = Verdict::all(all.map(|(ours, paper)| ours.within(paper - 1.0..=paper + 1.0)));
        let why = "The traces are generated so that this comes out.";
        Some(claim.judged(ours, verdict, reason).calibrated(why).with_interval(main))
    })
}

fn read_dominated(results: &Results) -> Claim {
    let what = "For a read-dominated load volatile and non-volatile disk caches have the same hit ratios; NVEM is best when all \
                pages migrate.";
    Claim::new("R-4.6b", what, "equal; migrate-all best").judge(|claim| {
        let trial = results.trial(SECOND)?;
        let mut worst: Option<Estimate> = None;
        let (mut wrong, mut best) = (Vec::new(), Vec::new());
        for size in trial.places().filter(|size| *size > 0.0) {
            let above = |line: &str, other: &str| {
                Some(trial.difference([line, other], size, "hit_ratio_second_level_all")? * 100.0)
            };
            let difference = above("non-volatile disk cache", "volatile disk cache")?;
            if worst.is_none_or(|worst| difference.mean.abs() > worst.mean.abs()) {
                worst = Some(difference);
            }
            for mode in ["NVEM cache, modified pages migrate", "NVEM cache, unmodified pages migrate"] {
                let better = above(mode, "NVEM cache, all pages migrate")?;
                best.push(better.at_most(0.0));
                if best.last() == Some(&Verdict::Differs) {
                    wrong.push(format!("{mode}: by {:.2} points at {size} pages", better.mean));
                }
            }
        }
        let worst = worst?;
        let modes = match wrong.is_empty() {
            true => format!(
                "At no size is NVEM's hit ratio higher, beyond chance, when fewer pages migrate; {} of {} comparisons chance may \
                 have decided.",
                best.iter().filter(|verdict| **verdict == Verdict::Undecided).count(),
                best.len()
            ),
            false => format!("Better than when all pages migrate: {}.", wrong.join("; ")),
        };
        let reason =
            format!("The largest difference between the two kinds of disk caches is given, in points. {modes}");
        let verdict = Verdict::all(best.into_iter().chain([worst.within(-1.0..=1.0)]));
        Some(claim.judged(format!("{:+.2} points", worst.mean), verdict, reason).with_interval(worst))
    })
}

const ONLY: &str = "main memory only";
const VOLATILE: &str = "volatile disk cache 2,000";
const NON_VOLATILE: &str = "non-volatile disk cache 2,000";
const NVEM: &str = "NVEM cache 2,000";
const OTHERS: [&str; 5] = [VOLATILE, NON_VOLATILE, NVEM, "SSD", "NVEM"];

/// By how much the mean response time of the one is longer than the other's, in milliseconds.
fn longer(trial: &Trial, pair: [&str; 2], size: f64) -> Option<Estimate> {
    Some(trial.difference(pair, size, "response_us.mean")? * 1e-3)
}

/// The smallest and the largest main-memory buffer.
fn ends(trial: &Trial) -> Option<[f64; 2]> {
    let least = trial.places().min_by(f64::total_cmp)?;
    Some([least, trial.places().max_by(f64::total_cmp)?])
}

fn main_memory(results: &Results) -> Claim {
    let what = "A larger main-memory buffer helps most where there is no second level; with one, or wholly in SSD or NVEM, response \
                times are good with small buffers already.";
    Claim::new("R-4.6c", what, "figure 4.6").judge(|claim| {
        let trial = results.trial(MAIN)?;
        let [small, large] = ends(trial)?;
        let mut verdicts = Vec::new();
        let gain = |line: &str| Some(trial.response_ms(line, small)? - trial.response_ms(line, large)?);
        let ours = gain(ONLY)?;
        let mut parts = vec![format!("{ONLY} {}", ours.with_unit("ms"))];
        for line in OTHERS {
            // The traces are the same, so the difference of the two gains is that of two differences.
            let more = longer(trial, [ONLY, line], small)? - longer(trial, [ONLY, line], large)?;
            verdicts.push(more.at_least(0.0));
            parts.push(format!("{line} {}", gain(line)?.with_unit("ms")));
        }
        let reason = format!(
            "How much shorter the mean response time is with {large} than with {small} pages: {}. Locks that are waited for \
             behind the largest transaction, which differ from trace to trace, are most of the intervals.",
            parts.join(", ")
        );
        Some(claim.judged(ours.with_unit("ms"), Verdict::all(verdicts), reason).with_interval(ours))
    })
}

fn disk_caches(results: &Results) -> Claim {
    let what =
        "Non-volatile disk caches respond slightly better than volatile ones, only because of the faster log write.";
    Claim::new("R-4.6d", what, "figure 4.6").judge(|claim| {
        let trial = results.trial(MAIN)?;
        let [_, large] = ends(trial)?;
        let slower = longer(trial, [VOLATILE, NON_VOLATILE], large)?;
        let part = |part: &str| {
            Some(trial.difference([VOLATILE, NON_VOLATILE], large, &format!("composition_us.{part}"))? * 1e-3)
        };
        let (log, reads) = (part("commit_wait")?, part("read_wait")?);
        let of_all = slower / trial.response_ms(VOLATILE, large)?;
        let reason = format!(
            "With {large} pages a volatile disk cache takes {} more: {} of waiting for the log, {} for pages, the rest for CPU \
             and locks. Slightly is taken as less than a tenth; the log is the cause if its part lies above zero and is \
             larger than that of pages. A page that was changed and is replaced is written before another is read in its \
             place: the non-volatile cache takes that, too, {:.2} of them a transaction.",
            slower.with_unit("ms"),
            log.with_unit("ms"),
            reads.with_unit("ms"),
            trial.figure(VOLATILE, large, "io_per_transaction.disk.writes")?.mean,
        );
        let slightly = Verdict::all([slower.at_least(0.0), of_all.at_most(0.1)]);
        let verdict = Verdict::all([slightly, log.at_least(0.0), (log - reads).at_least(0.0)]);
        Some(claim.judged(slower.with_unit("ms"), verdict, reason).with_interval(slower))
    })
}

fn nvem_cache(results: &Results) -> Claim {
    let what = "An NVEM cache is more effective than disk caches at every size of the main-memory buffer.";
    Claim::new("R-4.6e", what, "figure 4.6").judge(|claim| {
        let trial = results.trial(MAIN)?;
        let (mut verdicts, mut parts, mut closest) = (Vec::new(), Vec::new(), None::<Estimate>);
        for size in trial.places() {
            let less = longer(trial, [NON_VOLATILE, NVEM], size)?;
            let hits = trial.difference([NVEM, NON_VOLATILE], size, "hit_ratio_second_level_all")? * 100.0;
            verdicts.extend([less.at_least(0.0), hits.at_least(0.0)]);
            parts.push(format!("{size} pages {} and {}", less.with_unit("ms"), hits.with_unit("points")));
            if closest.is_none_or(|closest| less.mean < closest.mean) {
                closest = Some(less);
            }
        }
        let closest = closest?;
        let reason = format!(
            "By how much it responds earlier than a non-volatile disk cache, and how many more hits it has: {}. The smallest gain \
             is given.",
            parts.join(", ")
        );
        Some(claim.judged(closest.with_unit("ms"), Verdict::all(verdicts), reason).with_interval(closest))
    })
}

fn update_strategy(results: &Results) -> Claim {
    let what = "With few updates FORCE is not significantly different from NOFORCE.";
    Claim::new("R-4.6f", what, "\"not significantly different\"").judge(|claim| {
        let (trial, main) = (results.trial(FORCE)?, results.trial(MAIN)?);
        let (mut verdicts, mut parts, mut farthest) = (Vec::new(), Vec::new(), None::<Estimate>);
        for line in &trial.experiment.lines {
            let before = main.at(line, 2_000.0)?;
            let more = trial.at(line, trial.places().next()?)?.above(before, "response_us.mean")?;
            let more = more / Estimate::exact(before.estimate("response_us.mean")?.mean) * 100.0;
            verdicts.push(more.within(-10.0..=10.0));
            parts.push(format!("{line} {:+.1} %", more.mean));
            if farthest.is_none_or(|farthest| more.mean.abs() > farthest.mean.abs()) {
                farthest = Some(more);
            }
        }
        let farthest = farthest?;
        let reason = format!(
            "How much longer FORCE takes, the same traces compared: {}. Taken as within 10 %; the farthest is given.",
            parts.join(", ")
        );
        let ours = format!("{:+.1} %", farthest.mean);
        Some(claim.judged(ours, Verdict::all(verdicts), reason).with_interval(farthest))
    })
}
