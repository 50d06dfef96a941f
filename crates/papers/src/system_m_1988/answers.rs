//! The paper's questions, answered from the runs.

use super::stable_versions::PAIRS;
use super::{TABLE, figure};
use crate::{Answer, Results};

pub(super) fn answers(results: &Results) -> Vec<Answer> {
    Answer::all([
        ("Which checkpoints and logs go well together?", pairs(results)),
        ("What do consistent checkpoints cost?", consistency(results)),
        ("Does it pay to spool?", spooling(results)),
    ])
}

fn tps(results: &Results, name: &str) -> Option<f64> {
    Some(figure(results, name, "throughput_per_s")?.mean)
}

fn pairs(results: &Results) -> Option<String> {
    let mut all = Vec::new();
    for name in TABLE.iter().map(|row| row.name).chain(PAIRS) {
        all.push((name, tps(results, name)?));
    }
    all.sort_by(|one, other| other.1.total_cmp(&one.1));
    let list: Vec<String> = all.iter().map(|(name, tps)| format!("{name} {tps:.1}")).collect();
    Some(format!("Transactions per second on the VAX-11/785, the best first: {}.", list.join(", ")))
}

fn consistency(results: &Results) -> Option<String> {
    let fuzzy = tps(results, "FUZZY/VALUE")?;
    let loss = |name: &str| Some(format!("{name} {:.0} %", (1.0 - tps(results, name)? / fuzzy) * 100.0));
    let parts: Option<Vec<String>> =
        ["ACBW/VALUE", "ACCOU/VALUE", "TCCOU/VALUE", "TCBW/VALUE"].into_iter().map(loss).collect();
    Some(format!("Of the throughput with FUZZY/VALUE, with the same log: {}.", parts?.join(", ")))
}

fn spooling(results: &Results) -> Option<String> {
    let trial = results.trial(super::TRIAL)?;
    let with = trial.figure("ACBW/AOPER", super::SPOOLING, "throughput_per_s")?.mean;
    let without = tps(results, "ACBW/AOPER")?;
    let verdict = if with < without { "No" } else { "It does not matter" };
    Some(format!("{verdict}: ACBW/AOPER does {with:.1} transactions per second with and {without:.1} without it."))
}
