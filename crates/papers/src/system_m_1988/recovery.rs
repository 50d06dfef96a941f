//! Sections 2.3, 3 and 4.1: how long a restart takes by log, and the checkpoint interval floor.

use crate::outcome::Trial;
use crate::{Claim, Estimate, Results, Verdict};

const TRIAL: &str = "4-1-recovery";
const VALUE: &str = "TCCOU/VALUE";
const AOPER: &str = "TCCOU/AOPER";
const TOPER: &str = "TCCOU/TOPER";

pub(super) fn claims(results: &Results) -> Vec<Claim> {
    [values(results), procedures(results), floor(results)].map(|claim| claim.seen_in(TRIAL)).into()
}

/// The shortest and the longest interval floor, in seconds.
fn ends(trial: &Trial) -> Option<[f64; 2]> {
    let least = trial.places().min_by(f64::total_cmp)?;
    Some([least, trial.places().max_by(f64::total_cmp)?])
}

/// A figure of each log with sweeps back to back.
fn each(trial: &Trial, path: &str, factor: f64) -> Option<[Estimate; 3]> {
    let [shortest, _] = ends(trial)?;
    let [value, aoper, toper] = [VALUE, AOPER, TOPER].map(|line| trial.figure(line, shortest, path));
    Some([value? * factor, aoper? * factor, toper? * factor])
}

fn listed(figures: &[Estimate; 3], unit: &str) -> String {
    let [value, aoper, toper] = figures.map(|figure| figure.with_unit(unit));
    format!("VALUE {value}, AOPER {aoper}, TOPER {toper}")
}

fn values(results: &Results) -> Claim {
    let what = "A restart takes longer to read and repeat a log of values than one of actions, because it is larger.";
    Claim::new("S-7 values", what, "section 3; no figure").judge(|claim| {
        let trial = results.trial(TRIAL)?;
        let (redo, bytes) =
            (each(trial, "recovery.redo_seconds", 1.0)?, each(trial, "recovery.log_bytes", 1.0 / 1024.0)?);
        let (longer, larger) = (redo[0] - redo[1], bytes[0] - bytes[1]);
        let reason = format!(
            "With TCCOU and sweeps back to back. Reading and repeating: {}. Log read: {}.",
            listed(&redo, "s"),
            listed(&bytes, "KiB")
        );
        let verdict = Verdict::all([longer.at_least(0.0), larger.at_least(0.0)]);
        Some(claim.judged(format!("{} longer", longer.with_unit("s")), verdict, reason).with_interval(longer))
    })
}

fn procedures(results: &Results) -> Claim {
    let what = "With a log of transactions a restart may take longer, because they are run again.";
    Claim::new("S-7 transactions", what, "section 4.1; no figure").judge(|claim| {
        let trial = results.trial(TRIAL)?;
        let (redo, all) = (each(trial, "recovery.redo_seconds", 1.0)?, each(trial, "recovery.seconds", 1.0)?);
        let longer = redo[2] - redo[0];
        let reason = format!(
            "With TCCOU and sweeps back to back. Reading and repeating: {}. The whole restart: {}.",
            listed(&redo, "s"),
            listed(&all, "s")
        );
        Some(
            claim
                .judged(format!("{} longer", longer.with_unit("s")), longer.at_least(0.0), reason)
                .with_interval(longer),
        )
    })
}

fn floor(results: &Results) -> Claim {
    let what = "With a longer interval floor checkpoints cost less, and restarts have more log to repeat.";
    Claim::new("S-8", what, "section 2.3; no figure").judge(|claim| {
        let trial = results.trial(TRIAL)?;
        let [shortest, longest] = ends(trial)?;
        let (mut verdicts, mut parts, mut ours) = (Vec::new(), Vec::new(), None);
        for line in &trial.experiment.lines {
            let at = |path: &str| Some([trial.figure(line, shortest, path)?, trial.figure(line, longest, path)?]);
            let cpu = at("server.cpu_us_per_transaction.checkpoint")?;
            let log = at("recovery.log_bytes")?;
            let tps = at("throughput_per_s")?;
            verdicts.extend([(cpu[0] - cpu[1]).at_least(0.0), (log[1] - log[0]).at_least(0.0)]);
            parts.push(format!(
                "{line} {:.0} and {:.0} us, {:.0} and {:.0} KiB, {:.1} and {:.1} tps",
                cpu[0].mean,
                cpu[1].mean,
                log[0].mean / 1024.0,
                log[1].mean / 1024.0,
                tps[0].mean,
                tps[1].mean
            ));
            ours = ours.or(Some((cpu[0] - cpu[1], line)));
        }
        let (less, line) = ours?;
        let reason = format!(
            "With sweeps back to back and {longest} s apart, CPU time of the checkpoint server per transaction, log that a restart \
             reads, and throughput: {}. Given is what {line} saves.",
            parts.join("; ")
        );
        Some(claim.judged(less.with_unit("us"), Verdict::all(verdicts), reason).with_interval(less))
    })
}
