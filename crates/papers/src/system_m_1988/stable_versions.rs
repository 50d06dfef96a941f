//! What came after the paper: CALC (Ren, Diamond, Abadi and Thomson, "Low-Overhead Asynchronous Checkpointing in Main-Memory
//! Database Systems", SIGMOD 2016), held against the paper's five strategies on the machine of table 4.1.

use super::throughput::TIE;
use super::{TABLE, TRIAL, figure};
use crate::{Claim, Estimate, Results, Verdict};

/// CALC with each log; its images are of whole transactions, so it goes with all three.
pub(super) const PAIRS: [&str; 3] = ["CALC/VALUE", "CALC/AOPER", "CALC/TOPER"];
const PAPER: &str = "not in the paper";

pub(super) fn claims(results: &Results) -> Vec<Claim> {
    [best_pair(results), same_log(results)].map(|claim| claim.seen_in(TRIAL)).into()
}

fn tps(results: &Results, name: &str) -> Option<Estimate> {
    figure(results, name, "throughput_per_s")
}

fn response_s(results: &Results, name: &str) -> Option<Estimate> {
    Some(figure(results, name, "response_us.mean")? * 1e-6)
}

/// The strategy's part of a pair's name, and the log's.
fn parts(name: &str) -> (&str, &str) {
    name.split_once('/').expect("a pair has two parts")
}

fn best_pair(results: &Results) -> Claim {
    let what = "CALC with the log that suits it best has a higher throughput and a shorter mean response than every pair of the \
                five strategies.";
    Claim::new("CALC", what, PAPER).judge(|claim| {
        let mut best: Option<(&str, Estimate)> = None;
        for name in PAIRS {
            let found = tps(results, name)?;
            if best.as_ref().is_none_or(|(_, most)| found.mean > most.mean) {
                best = Some((name, found));
            }
        }
        let (name, most) = best?;
        let response = response_s(results, name)?;
        let (mut verdicts, mut others) = (Vec::new(), Vec::new());
        for row in &TABLE {
            let (other, slower) = (tps(results, row.name)?, response_s(results, row.name)?);
            verdicts.extend([(most - other).at_least(0.0), (slower - response).at_least(0.0)]);
            others.push((row.name, other.mean, slower.mean));
        }
        others.sort_by(|one, other| other.1.total_cmp(&one.1));
        let list: Vec<String> =
            others[..3].iter().map(|(name, tps, seconds)| format!("{name} {tps:.1} tps, {seconds:.2} s")).collect();
        let reason = format!(
            "The 90 % intervals of the differences, of throughput and of response, decide. {name} answers in {:.2} s; the best three of the others: {}.",
            response.mean,
            list.join("; ")
        );
        Some(claim.judged(format!("{name} {:.1} tps", most.mean), Verdict::all(verdicts), reason).with_interval(most))
    })
}

fn same_log(results: &Results) -> Claim {
    let what =
        "With the same log, no strategy that is consistent has a higher throughput than CALC, up to ties of 2 %.";
    Claim::new("CALC, same log", what, PAPER).judge(|claim| {
        let (mut verdicts, mut ours, mut reason) = (Vec::new(), Vec::new(), Vec::new());
        for name in PAIRS {
            let (log, own) = (parts(name).1, tps(results, name)?);
            let mut best: Option<(&str, Estimate)> = None;
            for row in TABLE.iter().filter(|row| parts(row.name).1 == log) {
                let other = tps(results, row.name)?;
                if parts(row.name).0 == "FUZZY" {
                    reason.push(format!("FUZZY, which is not consistent, has {:.1} with {log}", other.mean));
                    continue;
                }
                verdicts.push((own * (1.0 + TIE) - other).at_least(0.0));
                if best.is_none_or(|(_, most)| other.mean > most.mean) {
                    best = Some((row.name, other));
                }
            }
            let (second, most) = best?;
            ours.push(format!("{name} {:.1}", own.mean));
            reason.push(format!("the best of the others with {log} is {second} {:.1}", most.mean));
        }
        Some(claim.judged(ours.join(", "), Verdict::all(verdicts), format!("In tps: {}.", reason.join("; "))))
    })
}
