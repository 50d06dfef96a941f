//! Section 4.6: a trace of a real application.

use crate::{Claim, Results, Verdict};

const MAIN: &str = "4-6-main-memory";
const SECOND: &str = "4-6-second-level";

pub(super) fn claims(results: &Results) -> Vec<Claim> {
    vec![calibration(results).seen_in(MAIN).seen_in(SECOND), read_dominated(results).seen_in(SECOND)]
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
        let mut worst: Option<crate::Estimate> = None;
        let mut wrong = Vec::new();
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
                if better.mean > better.half_width.unwrap_or(0.0) {
                    wrong.push(format!("{mode}: by {:.2} points at {size} pages", better.mean));
                }
            }
        }
        let worst = worst?;
        let modes = match wrong.is_empty() {
            true => "At no size is NVEM's hit ratio higher, beyond chance, when fewer pages migrate.".to_owned(),
            false => format!("Better than when all pages migrate: {}.", wrong.join("; ")),
        };
        let reason =
            format!("The largest difference between the two kinds of disk caches is given, in points. {modes}");
        let verdict = Verdict::all([worst.within(-1.0..=1.0), wrong.is_empty().into()]);
        Some(claim.judged(format!("{:+.2} points", worst.mean), verdict, reason).with_interval(worst))
    })
}
