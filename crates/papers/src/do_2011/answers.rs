//! What the paper asks, answered by what came out.

use super::*;

pub(super) fn answers(results: &Results) -> Vec<Answer> {
    Answer::all([
        ("Which design is best for loads with many updates?", updates(results)),
        ("Which is best for loads that mostly read?", reads(results)),
        ("How long does an SSD take to be of use?", ramp_up(results)),
        ("What wears the SSD least?", wear(results)),
    ])
}

fn listed(trial: &Trial, x: f64) -> Option<String> {
    let mut speedups: Vec<(f64, &str)> = Vec::new();
    for line in trial.experiment.lines.iter().filter(|line| *line != NO_SSD) {
        speedups.push((speedup(trial, [line, NO_SSD], x)?.mean, line));
    }
    speedups.sort_by(|one, other| other.0.total_cmp(&one.0));
    Some(speedups.iter().map(|(times, line)| format!("{line} {times:.1}")).collect::<Vec<_>>().join(", "))
}

fn updates(results: &Results) -> Option<String> {
    let order = listed(results.trial(tpc_c::TRIAL)?, 2_000.0)?;
    Some(format!("Like TPC-C of 2,000 warehouses, times as fast as without an SSD: {order}."))
}

fn reads(results: &Results) -> Option<String> {
    let order = listed(results.trial(tpc_e::TRIAL)?, 20_000.0)?;
    Some(format!("Like TPC-E of 20,000 customers, times as fast as without an SSD: {order}."))
}

fn ramp_up(results: &Results) -> Option<String> {
    let trial = results.trial(tpc_e::COURSES[0])?;
    let mut parts = Vec::new();
    for line in ["DW", "LC", later::BEST] {
        let throughput = course(trial, line, TPS)?;
        let last = mean_between(&throughput, 9.0, 10.0)?;
        let half = throughput.iter().find(|(_, tps)| *tps >= last / 2.0).map(|(hour, _)| *hour)?;
        parts.push(format!("{line} {}", clock(half)));
    }
    Some(format!("Like TPC-E of 20,000 customers, until half of the last hour's throughput: {}.", parts.join(", ")))
}

fn wear(results: &Results) -> Option<String> {
    let trial = results.trial(tpc_c::TRIAL)?;
    let mut writes: Vec<(f64, &str)> = Vec::new();
    for line in trial.experiment.lines.iter().filter(|line| *line != NO_SSD) {
        writes.push((trial.figure(line, 2_000.0, "tiers.cache.writes_per_transaction")?.mean, line));
    }
    writes.sort_by(|one, other| one.0.total_cmp(&other.0));
    let order: Vec<String> = writes.iter().map(|(pages, line)| format!("{line} {pages:.2}")).collect();
    Some(format!("Like TPC-C of 2,000 warehouses, pages written to it for each transaction: {}.", order.join(", ")))
}
