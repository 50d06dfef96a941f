//! Section 4.4: all pages are alike.

use super::*;

pub(super) const SMALL: &str = "uniform-5-slow";
pub(super) const LARGE: &str = "uniform-15-fast";

pub(super) fn claims(results: &Results) -> Vec<Claim> {
    vec![
        hints_best(results).seen_in(SMALL),
        matched(results).seen_in(SMALL),
        first_above(results).seen_in(LARGE),
        price_of_hints(results).seen_in(LARGE),
    ]
}

fn hints_best(results: &Results) -> Claim {
    let what = "UNIFORM, small buffers, slow network: FWD-H has the highest throughput before 25 clients.";
    Claim::new("F-11 best", what, "the highest").judge(|claim| {
        let trial = results.trial(SMALL)?;
        let (verdict, reason) =
            at_each(&places(trial, 2.0, 20.0)?, |clients| is_highest(trial, "FWD-H", &ALL, clients, TPS))?;
        Some(claim.judged(listed(trial, 10.0, TPS, 1.0)?, verdict, reason))
    })
}

fn matched(results: &Results) -> Claim {
    let what = "UNIFORM, small buffers, slow network: FWD matches FWD-H at 25 clients.";
    Claim::new("F-11 matched", what, "the same").judge(|claim| {
        let (verdict, ratio) = is_equal(results.trial(SMALL)?, &["FWD", "FWD-H"], 25.0, TPS, EQUAL)?;
        Some(
            claim
                .judged(ratio.with_unit("times"), verdict, "The higher is 1.05 times the lower at most.")
                .with_interval(ratio),
        )
    })
}

fn first_above(results: &Results) -> Claim {
    let what = "UNIFORM, large buffers, fast network: FWD-HS begins above FWD-H, and FWD-S above FWD.";
    Claim::new("F-11 begin", what, "above").judge(|claim| {
        let trial = results.trial(LARGE)?;
        let with_hints = above(trial, ["FWD-HS", "FWD-H"], 2.0, TPS)?;
        let without = above(trial, ["FWD-S", "FWD"], 2.0, TPS)?;
        let verdict = Verdict::all([with_hints.at_least(0.0), without.at_least(0.0)]);
        Some(claim.judged(listed(trial, 2.0, TPS, 1.0)?, verdict, "At 2 clients, beyond chance."))
    })
}

fn price_of_hints(results: &Results) -> Claim {
    let what = "UNIFORM, large buffers, fast network: once the whole database is in memory, FWD-H and FWD-HS are slightly below the others.";
    Claim::new("F-11 price", what, "slightly below").judge(|claim| {
        let trial = results.trial(LARGE)?;
        let (verdict, reason) = at_each(&places(trial, 20.0, 25.0)?, |clients| {
            let below = |line| is_lowest(trial, line, &["FWD", "FWD-S"], clients, TPS);
            Some(Verdict::all([below("FWD-H")?, below("FWD-HS")?]))
        })?;
        Some(claim.judged(listed(trial, 25.0, TPS, 1.0)?, verdict, reason))
    })
}
