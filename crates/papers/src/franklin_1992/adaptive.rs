//! Beyond the paper: an algorithm that measures what disk and messages cost and moves towards the cheapest of the paper's. Section 6 names
//! that as future work.

use super::*;

/// The algorithm, as its curve is named.
const ADAPTIVE: &str = "ADAPTIVE";
/// What it reaches of the best of the paper's algorithms everywhere.
const EACH: f64 = 0.95;
/// And in the mean.
const MEAN: f64 = 0.98;

pub(super) fn claims(results: &Results) -> Vec<Claim> {
    let names = Franklin1992.experiments().iter().map(|(file, _)| file.trim_end_matches(".toml"));
    let names: Vec<&str> = names.filter(|name| *name != idle::TRIAL).collect();
    let mut claims: Vec<Claim> = names.iter().map(|name| near_the_best(results, name)).collect();
    claims.push(names.iter().fold(near_in_the_mean(results, &names), |claim, name| claim.seen_in(name)));
    claims
}

/// Its throughput over that of the best fixed algorithm, and which one that is.
fn over_best(trial: &Trial, clients: f64) -> Option<(Estimate, &'static str)> {
    let figures: Option<Vec<(f64, &str)>> =
        ALL.iter().map(|line| Some((trial.figure(line, clients, TPS)?.mean, *line))).collect();
    let (_, best) = figures?.into_iter().max_by(|(one, _), (other, _)| one.total_cmp(other))?;
    Some((over(trial, [ADAPTIVE, best], clients, TPS)?, best))
}

fn near_the_best(results: &Results, name: &str) -> Claim {
    let what = format!("The adaptive algorithm has at least {EACH} of the best one's throughput ({name}).");
    let claim = Claim::new(&format!("A-1 {name}"), &what, "not in the paper").seen_in(name);
    claim.judge(|claim| {
        let trial = results.trial(name)?;
        let places = places(trial, 1.0, 25.0)?;
        let (verdict, reason) = at_each(&places, |clients| Some(over_best(trial, clients)?.0.at_least(EACH)))?;
        let found = |clients: &f64| {
            let (ratio, best) = over_best(trial, *clients)?;
            Some(format!("{:.3} of {best} at {clients}", ratio.mean))
        };
        let found: Option<Vec<String>> = places.iter().map(found).collect();
        Some(claim.judged(found?.join(", "), verdict, reason))
    })
}

fn near_in_the_mean(results: &Results, names: &[&str]) -> Claim {
    let what = format!(
        "The adaptive algorithm has at least {MEAN} of the best one's throughput in the mean over all configurations and numbers of clients."
    );
    Claim::new("A-2 mean", &what, "not in the paper").judge(|claim| {
        let (mut sum, mut count) = (Estimate::exact(0.0), 0.0);
        for name in names {
            let trial = results.trial(name)?;
            for clients in places(trial, 1.0, 25.0)? {
                sum = sum + over_best(trial, clients)?.0;
                count += 1.0;
            }
        }
        let mean = sum * (1.0 / count);
        let reason = format!("The mean of {count} ratios.");
        Some(claim.judged(format!("{:.3}", mean.mean), mean.at_least(MEAN), reason).with_interval(mean))
    })
}
