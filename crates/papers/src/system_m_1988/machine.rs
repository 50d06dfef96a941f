//! The same on the machine on which the study is reproduced.

use super::stable_versions::PAIRS;
use super::{TABLE, only};
use crate::outcome::Trial;
use crate::{Claim, Estimate, Results, Verdict};
use base::units::grouped;

const TRIAL: &str = "this-machine";
const CRASHES: &str = "5-crashes";
/// What the paper finds best: "about as well as FUZZY".
const BEST: [&str; 3] = ["FUZZY/VALUE", "ACBW/AOPER", "TCCOU/TOPER"];

pub(super) fn claims(results: &Results) -> Vec<Claim> {
    let here =
        [best(results), worst(results), stable_versions(results), cpu(results)].map(|claim| claim.seen_in(TRIAL));
    here.into_iter().chain([crash(results).seen_in(CRASHES)]).collect()
}

/// The throughputs of the paper's pairs on this machine, the highest first.
fn throughputs(trial: &Trial) -> Option<Vec<(&'static str, Estimate)>> {
    let mut all = Vec::new();
    for row in &TABLE {
        all.push((row.name, only(trial, row.name, "throughput_per_s")?));
    }
    all.sort_by(|one, other| other.1.mean.total_cmp(&one.1.mean));
    Some(all)
}

fn of<'a>(all: &'a [(&'static str, Estimate)], name: &str) -> Option<&'a Estimate> {
    all.iter().find(|(other, _)| *other == name).map(|(_, tps)| tps)
}

/// What the rows had, and what it was spent on.
fn spent(trial: &Trial, all: &[(&'static str, Estimate)]) -> Option<String> {
    let mut parts = Vec::new();
    for (name, tps) in all {
        let cpu = only(trial, name, "cpu_us_per_transaction")?.mean;
        let transactions = only(trial, name, "transactions")?.mean;
        let waits = only(trial, name, "locks.waits")?.mean / transactions * 1e3;
        let takeovers = only(trial, name, "server.takeover_share")?.mean * 100.0;
        let half_width = tps.half_width.unwrap_or(0.0) / 1e3;
        parts.push(format!(
            "{name} {:.0} +- {half_width:.0}, {cpu:.1} us, {waits:.1}, {takeovers:.1} %",
            tps.mean / 1e3
        ));
    }
    Some(format!(
        "Thousands of transactions per second, CPU time of the engine's thread per transaction, waits for a lock or for a segment \
         that is being written per thousand transactions, and the share that a standby executor began: {}.",
        parts.join("; ")
    ))
}

/// The names of pairs in the order that was not expected, and of those that chance may have put in theirs.
fn unexpected(pairs: &[(String, Verdict)]) -> String {
    let list = |wanted: Verdict| {
        let found: Vec<&str> =
            pairs.iter().filter(|(_, verdict)| *verdict == wanted).map(|(pair, _)| pair.as_str()).collect();
        found.join(", ")
    };
    [("Reversed", Verdict::Differs), ("Within the intervals", Verdict::Undecided)]
        .map(|(what, wanted)| (what, list(wanted)))
        .into_iter()
        .filter(|(_, pairs)| !pairs.is_empty())
        .map(|(what, pairs)| format!("{what}: {pairs}. "))
        .collect()
}

fn best(results: &Results) -> Claim {
    let what = "On this machine, too, FUZZY/VALUE, ACBW/AOPER and TCCOU/TOPER are the three best.";
    Claim::new("S-2 best", what, "72.7, 73.1 and 72.6 tps of 41.6 to 73.1").judge(|claim| {
        let trial = results.trial(TRIAL)?;
        let all = throughputs(trial)?;
        let mut pairs = Vec::new();
        for name in BEST {
            let own = *of(&all, name)?;
            for (other, tps) in all.iter().filter(|(other, _)| !BEST.contains(other)) {
                pairs.push((format!("{name} before {other}"), (own - *tps).at_least(0.0)));
            }
        }
        let reason = format!("{}{}", unexpected(&pairs), spent(trial, &all)?);
        let ours = all[..3].iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
        Some(claim.judged(ours, Verdict::all(pairs.into_iter().map(|(_, verdict)| verdict)), reason))
    })
}

fn worst(results: &Results) -> Claim {
    let what = "TCBW is the worst with every log, with repeated restarts.";
    Claim::new("S-2 worst", what, "41.6 to 46.3 tps").judge(|claim| {
        let trial = results.trial(TRIAL)?;
        let all = throughputs(trial)?;
        let (mut parts, mut pairs, mut restarted, mut cpu) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let cpu_us = |name: &str| Some(only(trial, name, "cpu_us_per_transaction")?.mean);
        for log in ["VALUE", "AOPER", "TOPER"] {
            let name = format!("TCBW/{log}");
            let (own, restarts) = (*of(&all, &name)?, only(trial, &name, "server.restarts_per_transaction")?);
            for (other, tps) in all.iter().filter(|(other, _)| other.ends_with(log) && *other != name) {
                pairs.push((format!("{other} before {name}"), (*tps - own).at_least(0.0)));
            }
            restarted.push(restarts.at_least(0.01));
            let others = all.iter().filter(|(other, _)| other.ends_with(log) && *other != name);
            let most = others.filter_map(|(other, _)| cpu_us(other)).fold(0.0, f64::max);
            cpu.push(format!("{name} {:.1} us and {most:.1} at most", cpu_us(&name)?));
            parts.push(format!("{name} {:.0}/s, {:.3} restarts per transaction", own.mean, restarts.mean));
        }
        let reason = format!(
            "{}The lowest throughput among those with its log, and at least one restart in a hundred transactions. A sweep takes \
             a part of a second here and minutes there, and so does the wait of a transaction that would mix its colours. CPU time of \
             the engine's thread per transaction, and of the others with the same log: {}.",
            unexpected(&pairs),
            cpu.join("; ")
        );
        let verdict = Verdict::all(pairs.into_iter().map(|(_, verdict)| verdict).chain(restarted));
        Some(claim.judged(parts.join("; "), verdict, reason))
    })
}

/// CALC, which came after the paper, among its pairs.
fn stable_versions(results: &Results) -> Claim {
    let what = "On this machine CALC with the log that suits it best has a higher throughput than every pair of the five strategies.";
    Claim::new("CALC here", what, "not in the paper").judge(|claim| {
        let trial = results.trial(TRIAL)?;
        let (all, mut own) = (throughputs(trial)?, Vec::new());
        for name in PAIRS {
            own.push((name, only(trial, name, "throughput_per_s")?));
        }
        own.sort_by(|one, other| other.1.mean.total_cmp(&one.1.mean));
        let (name, most) = own[0];
        let pairs: Vec<(String, Verdict)> =
            all.iter().map(|(other, tps)| (format!("{name} before {other}"), (most - *tps).at_least(0.0))).collect();
        let reason = format!("{}{}", unexpected(&pairs), spent(trial, &own)?);
        let verdict = Verdict::all(pairs.into_iter().map(|(_, verdict)| verdict));
        Some(
            claim
                .judged(format!("{name} {}/s", grouped(most.mean.round() as u64)), verdict, reason)
                .with_interval(most),
        )
    })
}

/// What must survive, by the runs of torture.
fn crash(results: &Results) -> Claim {
    let what = "After a crash at any instant every pair recovers exactly the acknowledged transactions.";
    Claim::new("S-5", what, "by design").judge(|claim| {
        let trial = results.trial(CRASHES)?;
        let outcome = trial.outcomes.first().filter(|outcome| outcome.is_steady())?;
        let total = |path: &str| Some((outcome.estimate(path)?.mean * outcome.reports.len() as f64).round() as u64);
        let [seeds, runs, transactions, failures] =
            ["seeds", "runs", "transactions", "failures"].map(|name| total(&format!("torture.{name}")));
        let (mut pairs, mut stops, mut met) = (0, 0, 0);
        for pair in outcome.names("torture.stops") {
            pairs += 1;
            let steps = outcome.table(&format!("torture.stops.{pair}"));
            stops += steps.len();
            met += steps.iter().filter(|(_, count)| count.mean > 0.0).count();
        }
        let holds = failures? == 0 && pairs > 0;
        let ours = format!(
            "{} wrong in {} runs of {} seeds, {} transactions",
            grouped(failures?),
            grouped(runs?),
            grouped(seeds?),
            grouped(transactions?)
        );
        let reason = format!(
            "Seeds of `entresol torture`, of all {pairs} valid pairs, stopped inside sweeps (segment write), inside the writes of \
             the superblock, and inside recovery (segment read, log scan); {met} of {stops} such stops were \
             met this time.",
        );
        Some(claim.judged(ours, holds, reason))
    })
}

fn cpu(results: &Results) -> Claim {
    let what = "On today's machine recovery takes far less CPU per transaction.";
    Claim::new("S-6 today", what, "4 to 5 ms on the VAX").judge(|claim| {
        let trial = results.trial(TRIAL)?;
        let with = only(trial, "FUZZY/VALUE", "cpu_us_per_transaction")?;
        let without = only(trial, "neither", "cpu_us_per_transaction")?;
        let recovery = with - without;
        let reason = format!(
            "CPU time of the engine's thread: {} with FUZZY/VALUE, {} with neither durable commits nor sweeps. Far less is taken as a \
             hundredth.",
            with.with_unit("us"),
            without.with_unit("us"),
        );
        Some(claim.judged(recovery.with_unit("us"), recovery.at_most(40.0), reason).with_interval(recovery))
    })
}
