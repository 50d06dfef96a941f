//! Section 4.3: response times (table 4.3), a shorter request queue, a longer retry interval.

use super::{NOT_SPOOLING, TRIAL, figure};
use crate::{Claim, Estimate, Results, Verdict};

/// Mean response times of table 4.3 in seconds, that of TCBW excepted.
const TABLE: [(&str, f64); 4] =
    [("FUZZY/VALUE", 3.40), ("ACBW/AOPER", 3.86), ("ACCOU/AOPER", 4.09), ("TCCOU/TOPER", 3.93)];
const SLOW: (&str, f64) = ("TCBW/TOPER", 33.85);
const QUEUE: &str = "4-3-queue";
const RETRY: &str = "4-3-retry";

pub(super) fn claims(results: &Results) -> Vec<Claim> {
    let mut claims: Vec<Claim> = TABLE.iter().map(|(name, paper)| mean(results, name, *paper).seen_in(TRIAL)).collect();
    claims.extend([slow(results), undisturbed(results)].map(|claim| claim.seen_in(TRIAL)));
    claims.extend([queue(results).seen_in(QUEUE), retry(results).seen_in(RETRY)]);
    claims
}

fn seconds(results: &Results, name: &str, which: &str) -> Option<Estimate> {
    Some(figure(results, name, &format!("response_us.{which}"))? * 1e-6)
}

fn mean(results: &Results, name: &str, paper: f64) -> Claim {
    let what = format!("The mean response time of {name} with a full request queue.");
    Claim::new(&format!("S-4.3 {name}"), &what, &format!("{paper:.2} s")).judge(|claim| {
        let ours = seconds(results, name, "mean")?;
        let off = ours.mean / paper - 1.0;
        let reason = format!(
            "{:+.1} %, taken as the same within 10 %. The queue holds 246 requests here, the paper's 247 to 285 by Little's law.",
            off * 100.0
        );
        Some(claim.judged(ours.with_unit("s"), ours.within(0.9 * paper..=1.1 * paper), reason).with_interval(ours))
    })
}

fn slow(results: &Results) -> Claim {
    let what = "TCBW's mean response time is about ten times the others'.";
    Claim::new("S-3", what, &format!("{} s, 8 to 10 times", SLOW.1)).judge(|claim| {
        let ours = seconds(results, SLOW.0, "mean")?;
        let mut sum = Estimate::exact(0.0);
        for (name, _) in TABLE {
            sum = sum + seconds(results, name, "mean")?;
        }
        let times = ours / (sum * (1.0 / TABLE.len() as f64));
        let restarting = figure(results, SLOW.0, "server.restarting")?;
        let under_way = figure(results, SLOW.0, "throughput_per_s")?.mean * ours.mean;
        let reason = format!(
            "{:.1} times the mean of the other four rows of table 4.3; \"about ten\" is taken as 5 to 20. By Little's law {under_way:.0} \
             requests are under way (the paper's 1,567); at the ends of the batches {:.0} wait in the restart queue.",
            times.mean,
            restarting.mean
        );
        Some(claim.judged(ours.with_unit("s"), times.within(5.0..=20.0), reason).with_interval(ours))
    })
}

fn undisturbed(results: &Results) -> Claim {
    let what = "Under TCBW, transactions without a violation respond like those of the others.";
    Claim::new("S-3 others", what, "comparable").judge(|claim| {
        let ours = seconds_of_first_tries(results)?;
        let mut sum = Estimate::exact(0.0);
        for (name, _) in TABLE {
            sum = sum + seconds(results, name, "mean")?;
        }
        let times = ours / (sum * (1.0 / TABLE.len() as f64));
        let trial = results.trial(TRIAL)?;
        let outcome = trial.at(SLOW.0, NOT_SPOOLING)?;
        let shares = outcome.table("server.share_by_restarts");
        let parts: Vec<String> = (shares.iter())
            .filter_map(|(restarts, share)| {
                let mean = outcome.estimate(&format!("server.response_us_by_restarts.{restarts}"))? * 1e-6;
                Some(format!("{restarts}: {:.1} s ({:.0} %)", mean.mean, share.mean * 100.0))
            })
            .collect();
        let reason = format!(
            "The mean response time of those that are never restarted is {:.2} times that of the other four rows; comparable is \
             taken as up to twice, because the full queue takes longer to pass at TCBW's throughput. By number of restarts \
             (the last one: that number and more), with their share: {}.",
            times.mean,
            parts.join(", ")
        );
        Some(claim.judged(ours.with_unit("s"), times.at_most(2.0), reason).with_interval(ours))
    })
}

fn seconds_of_first_tries(results: &Results) -> Option<Estimate> {
    Some(figure(results, SLOW.0, "server.response_us_by_restarts.0")? * 1e-6)
}

fn queue(results: &Results) -> Claim {
    let what = "A shorter request queue lowers the response time at little or no loss of throughput.";
    Claim::new("S-4.3 queue", what, "\"we expect\"").judge(|claim| {
        let trial = results.trial(QUEUE)?;
        let longest = trial.places().fold(0.0, f64::max);
        let (mut parts, mut verdicts) = (Vec::new(), Vec::new());
        for line in &trial.experiment.lines {
            let response = |place: f64| Some(trial.figure(line, place, "response_us.mean")? * 1e-6);
            let full = trial.figure(line, longest, "throughput_per_s")?;
            let mut best: Option<(f64, Estimate)> = None;
            for place in trial.places().filter(|place| *place < longest) {
                let (tps, response) = (trial.figure(line, place, "throughput_per_s")?, response(place)?);
                let is_as_fast = (tps - full * 0.98).at_least(0.0) == Verdict::Holds;
                if is_as_fast && best.is_none_or(|(_, least)| response.mean < least.mean) {
                    best = Some((place, response));
                }
            }
            let at_full = response(longest)?;
            let (place, least) = best.unwrap_or((longest, at_full));
            verdicts.push((least / at_full).at_most(0.5));
            parts.push(format!("{line} {:.2} s with {place} requests, {:.2} s with {longest}", least.mean, at_full.mean));
        }
        let reason = format!(
            "The shortest queue whose throughput is within 2 % of the longest's, beyond chance; \"significantly\" is taken as half or \
             less. {}.",
            parts.join("; ")
        );
        Some(claim.judged(parts[0].clone(), Verdict::all(verdicts), reason))
    })
}

fn retry(results: &Results) -> Claim {
    let what = "A longer retry interval helps TCBW a little.";
    Claim::new("S-4.3 retry", what, "\"the improvement was small\"").judge(|claim| {
        let trial = results.trial(RETRY)?;
        let (mut parts, mut verdicts) = (Vec::new(), Vec::new());
        let best = figure(results, TABLE[0].0, "throughput_per_s")?;
        for line in &trial.experiment.lines {
            let mut tps = Vec::new();
            for place in trial.places() {
                let response = trial.figure(line, place, "response_us.mean")?.mean * 1e-6;
                let found = trial.figure(line, place, "throughput_per_s")?;
                tps.push(found);
                parts.push(format!("{line} {place} s: {:.1} tps, {response:.1} s", found.mean));
            }
            // Longer is better, and still worse than anything else.
            let (first, last) = (*tps.first()?, *tps.last()?);
            verdicts.extend([(last - first).at_least(0.0), (best - last).at_least(0.0)]);
        }
        let reason = format!(
            "Taken as: throughput rises with the interval and stays below FUZZY/VALUE's. {}.",
            parts.join("; ")
        );
        let last = parts.last()?.clone();
        Some(claim.judged(last, Verdict::all(verdicts), reason))
    })
}
