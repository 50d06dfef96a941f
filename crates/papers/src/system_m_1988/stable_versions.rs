//! What came after the paper: CALC (Ren, Diamond, Abadi and Thomson, "Low-Overhead Asynchronous Checkpointing in Main-Memory
//! Database Systems", SIGMOD 2016), held against the paper's five strategies on the machine of table 4.1.

use super::throughput::TIE;
use super::{TABLE, TRIAL, figure};
use crate::{Claim, Estimate, Results};

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
        let half = |estimate: &Estimate| estimate.half_width.unwrap_or(0.0);
        let (mut holds, mut others) = (true, Vec::new());
        for row in &TABLE {
            let (other, slower) = (tps(results, row.name)?, response_s(results, row.name)?);
            holds &= most.mean - half(&most) > other.mean + half(&other);
            holds &= response.mean + half(&response) < slower.mean - half(&slower);
            others.push((row.name, other.mean, slower.mean));
        }
        others.sort_by(|one, other| other.1.total_cmp(&one.1));
        let list: Vec<String> =
            others[..3].iter().map(|(name, tps, seconds)| format!("{name} {tps:.1} tps, {seconds:.2} s")).collect();
        let reason = format!(
            "The 90 % intervals must not meet, neither of throughput nor of response. {name} answers in {:.2} s; the best three of the others: {}.",
            response.mean,
            list.join("; ")
        );
        Some(claim.judged(format!("{name} {:.1} tps", most.mean), holds, reason).with_interval(most))
    })
}

fn same_log(results: &Results) -> Claim {
    let what =
        "With the same log, no strategy that is consistent has a higher throughput than CALC, up to ties of 2 %.";
    Claim::new("CALC, same log", what, PAPER).judge(|claim| {
        let (mut holds, mut ours, mut reason) = (true, Vec::new(), Vec::new());
        for name in PAIRS {
            let (log, own) = (parts(name).1, tps(results, name)?.mean);
            let mut best: Option<(&str, f64)> = None;
            for row in TABLE.iter().filter(|row| parts(row.name).1 == log) {
                let other = tps(results, row.name)?.mean;
                if parts(row.name).0 == "FUZZY" {
                    reason.push(format!("FUZZY, which is not consistent, has {other:.1} with {log}"));
                } else if best.is_none_or(|(_, most)| other > most) {
                    best = Some((row.name, other));
                }
            }
            let (second, most) = best?;
            holds &= own * (1.0 + TIE) >= most;
            ours.push(format!("{name} {own:.1}"));
            reason.push(format!("the best of the others with {log} is {second} {most:.1}"));
        }
        Some(claim.judged(ours.join(", "), holds, format!("In tps: {}.", reason.join("; "))))
    })
}
