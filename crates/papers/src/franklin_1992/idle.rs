//! Beyond the paper: one client works, and the memories of others that are idle serve it (N-chance; Dahlin, Wang, Anderson, Patterson,
//! OSDI 1994). Section 6 names the active placement of pages on idle nodes as future work.

use super::*;

pub(super) const TRIAL: &str = "idle-15-fast";
/// The algorithm that passes pages on, as its curve is named, and those that it is compared with.
const N_CHANCE: &str = "N-CHANCE";
const OTHERS: [&str; 2] = ["FWD", "FWD-S"];

pub(super) fn claims(results: &Results) -> Vec<Claim> {
    vec![saved_reads(results).seen_in(TRIAL), faster(results).seen_in(TRIAL), not_worse(results).seen_in(TRIAL)]
}

/// The means of all curves at this number of clients.
fn means(trial: &Trial, clients: f64, path: &str) -> Option<String> {
    let lines = OTHERS.iter().chain([&N_CHANCE]);
    let figures: Option<Vec<String>> =
        lines.map(|line| Some(format!("{line} {:.2}", trial.figure(line, clients, path)?.mean))).collect();
    Some(format!("at {clients}: {}", figures?.join(", ")))
}

fn saved_reads(results: &Results) -> Claim {
    let what =
        "One client works and others are idle: N-chance reads from disk less than half as often as FWD and FWD-S do.";
    Claim::new("N-1 reads", what, "not in the paper").judge(|claim| {
        let (trial, reads) = (results.trial(TRIAL)?, of("disk_reads_per_commit"));
        let (verdict, reason) = at_each(&places(trial, 4.0, 8.0)?, |clients| {
            let half = |line: &str| Some(over(trial, [N_CHANCE, line], clients, &reads)?.at_most(0.5));
            Some(Verdict::all([half("FWD")?, half("FWD-S")?]))
        })?;
        Some(claim.judged(means(trial, 8.0, &reads)?, verdict, reason))
    })
}

fn faster(results: &Results) -> Claim {
    let what = "One client works and others are idle: it has the highest throughput with N-chance.";
    Claim::new("N-2 throughput", what, "not in the paper").judge(|claim| {
        let trial = results.trial(TRIAL)?;
        let (verdict, reason) =
            at_each(&places(trial, 4.0, 8.0)?, |clients| is_highest(trial, N_CHANCE, &OTHERS, clients, TPS))?;
        Some(claim.judged(means(trial, 8.0, TPS)?, verdict, reason))
    })
}

fn not_worse(results: &Results) -> Claim {
    let what = "A client without others has no lower throughput with N-chance than with FWD.";
    Claim::new("N-3 alone", what, "not in the paper").judge(|claim| {
        let trial = results.trial(TRIAL)?;
        let ratio = over(trial, [N_CHANCE, "FWD"], 1.0, TPS)?;
        let reason = "At least 0.95 of it.";
        Some(claim.judged(ratio.with_unit("times"), ratio.at_least(0.95), reason).with_interval(ratio))
    })
}
