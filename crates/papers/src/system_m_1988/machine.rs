//! The same on the machine on which the study is reproduced.

use super::{TABLE, only};
use crate::outcome::Trial;
use crate::{Claim, Results};
use base::units::grouped;

const TRIAL: &str = "this-machine";
const CRASHES: &str = "5-crashes";
/// What the paper finds best: "about as well as FUZZY".
const BEST: [&str; 3] = ["FUZZY/VALUE", "ACBW/AOPER", "TCCOU/TOPER"];

pub(super) fn claims(results: &Results) -> Vec<Claim> {
    let here = [best(results), worst(results), cpu(results)].map(|claim| claim.seen_in(TRIAL));
    here.into_iter().chain([crash(results).seen_in(CRASHES)]).collect()
}

/// The throughputs on this machine, the highest first.
fn throughputs(trial: &Trial) -> Option<Vec<(&'static str, f64)>> {
    let mut all = Vec::new();
    for row in &TABLE {
        all.push((row.name, only(trial, row.name, "throughput_per_s")?.mean));
    }
    all.sort_by(|one, other| other.1.total_cmp(&one.1));
    Some(all)
}

fn best(results: &Results) -> Claim {
    let what = "On this machine, too, FUZZY/VALUE, ACBW/AOPER and TCCOU/TOPER are the three best.";
    Claim::new("S-2 best", what, "72.7, 73.1 and 72.6 tps of 41.6 to 73.1").judge(|claim| {
        let all = throughputs(results.trial(TRIAL)?)?;
        let holds = all[..3].iter().all(|(name, _)| BEST.contains(name));
        let list: Vec<String> = all.iter().map(|(name, tps)| format!("{name} {:.0}", tps / 1e3)).collect();
        let reason = format!(
            "In thousands of transactions per second: {}. What sweeps cost is small beside what a commit waits for the disk \
             here, so the order of the better ones is within the noise of the machine.",
            list.join(", ")
        );
        let ours = all[..3].iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
        Some(claim.judged(ours, holds, reason))
    })
}

fn worst(results: &Results) -> Claim {
    let what = "TCBW is the worst with every log, with repeated restarts.";
    Claim::new("S-2 worst", what, "41.6 to 46.3 tps").judge(|claim| {
        let trial = results.trial(TRIAL)?;
        let all = throughputs(trial)?;
        let (mut parts, mut holds) = (Vec::new(), true);
        for log in ["VALUE", "AOPER", "TOPER"] {
            let name = format!("TCBW/{log}");
            let last = all.iter().rfind(|(other, _)| other.ends_with(log))?;
            let restarts = only(trial, &name, "server.restarts_per_transaction")?.mean;
            holds &= last.0 == name && restarts > 0.01;
            let tps = all.iter().find(|(other, _)| *other == name)?.1;
            parts.push(format!("{name} {:.0}/s, {restarts:.3} restarts per transaction", tps));
        }
        let reason = "The lowest throughput among those with its log, and at least one restart in a hundred transactions. A sweep \
                      takes milliseconds here and minutes there, and so does the wait of a transaction that would mix its colours.";
        Some(claim.judged(parts.join("; "), holds, reason))
    })
}

/// What must survive, by the runs of torture.
fn crash(results: &Results) -> Claim {
    let what = "After a crash at any instant every pair recovers exactly the acknowledged transactions.";
    Claim::new("S-5", what, "by design").judge(|claim| {
        let trial = results.trial(CRASHES)?;
        let outcome = trial.outcomes.first().filter(|outcome| outcome.is_steady())?;
        let total = |path: &str| Some((outcome.estimate(path)?.mean * outcome.reports.len() as f64).round() as u64);
        let [seeds, lives, transactions, failures] =
            ["seeds", "lives", "transactions", "failures"].map(|name| total(&format!("torture.{name}")));
        let (mut pairs, mut stops, mut met) = (0, 0, 0);
        for pair in outcome.names("torture.stops") {
            pairs += 1;
            let steps = outcome.table(&format!("torture.stops.{pair}"));
            stops += steps.len();
            met += steps.iter().filter(|(_, count)| count.mean > 0.0).count();
        }
        let holds = failures? == 0 && pairs > 0;
        let ours = format!(
            "{} wrong in {} lives of {} seeds, {} transactions",
            grouped(failures?),
            grouped(lives?),
            grouped(seeds?),
            grouped(transactions?)
        );
        let reason = format!(
            "Seeds of `entresol torture`, of all {pairs} valid pairs, stopped inside sweeps (segment write), inside the writes of \
             the home block, and inside recovery (segment read, log scan); {met} of {stops} such stops were \
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
