//! The runs of candidates: one of each under the virtual clock, and a restart behind the longest.

use crate::Failure;
use crate::experiment::{Circumstances, Traces, load_trace, opening, run_under};
use crate::trace::Recording;
use base::Instant;
use papers::experiment::{Setting, Work};
use plan::{Candidate, Figures, Unfit};
use serde_json::{Value, json};
use std::path::Path;
use virtual_driver::Media;
use workload::trace::Trace;
use workload::trace::miss_ratio::MissRatioCurve;

/// Pages of a miss-ratio curve that are looked at.
const PAGES_MAX: usize = 16 * 1024;

/// Whether a trace is made, not read.
pub fn is_generated(name: &str) -> bool {
    name == crate::experiment::GENERATED
}

/// The traces that candidates replay.
pub fn traces<'a>(candidates: impl Iterator<Item = &'a Candidate>) -> Result<Traces, Failure> {
    let mut traces = Traces::new();
    for name in candidates.filter_map(Candidate::trace) {
        load_trace(&mut traces, name, 1)?;
    }
    Ok(traces)
}

/// Runs a candidate for this part of its length, which is this many times smaller than the database; with a restart behind it, if that is asked
/// for. It may show that the candidate cannot be.
pub fn run(
    candidate: &Candidate,
    divisor: u64,
    (restarts, miniature): (bool, u64),
    traces: &Traces,
) -> Result<Result<Figures, Unfit>, String> {
    let setting = candidate.part(divisor);
    let media = Media::new();
    let circumstances = Circumstances {
        media: restarts.then_some(&media),
        until_steady: !matches!(setting.work, Work::Trace { .. } | Work::Nodes { .. }),
        recording: None,
    };
    let run = run_under(circumstances, &setting, 0, traces)?;
    let report = run.reports.last().ok_or("the run has measured nothing")?;
    let report = &of_operation(report, &setting);
    let price = (candidate.machine.cost_per_month(), candidate.arrivals_per_s());
    let mut figures = Figures::of_report(report, price, run.saturated, &candidate.machine.places);
    if figures.transactions == 0 {
        return Err("the run has measured no transaction: it is too short for its load".to_owned());
    }
    let of_sets = report["segment_bytes"].as_u64().unwrap_or(0).saturating_mul(miniature);
    if let Some(unfit) = candidate.find_crowded(of_sets) {
        return Ok(Err(unfit));
    }
    if restarts {
        // A miniature has a part of the log to be repeated. A run that has started its machine again has left nothing of that.
        let known = report.pointer("/recovery/seconds").and_then(serde_json::Value::as_f64);
        let seconds = match known {
            Some(seconds) => seconds,
            None => restarted(&setting, &media).map_err(|failure| failure.to_string())?,
        };
        figures.recovery_s = Some(seconds * miniature as f64);
    }
    Ok(Ok(figures))
}

/// The report of a sort or a join as that of one transaction, whose response is the whole of it; of transactions as it is.
fn of_operation(report: &Value, setting: &Setting) -> Value {
    let mut report = report.clone();
    if let Some(seconds) = report.pointer("/spill/seconds").and_then(Value::as_f64) {
        let temp = &setting.configuration.temp;
        let spilled = report.pointer("/spill/spilled_bytes").and_then(Value::as_f64).unwrap_or(0.0);
        let per_s = |amount: f64| amount / seconds.max(1e-9);
        report["transactions"] = json!(1);
        report["throughput_per_s"] = json!(per_s(1.0));
        report["response_us"] = json!({"mean": seconds * 1e6, "p99": seconds * 1e6});
        report["written_bytes_per_s"] = json!({ temp.device.as_str(): per_s(spilled) });
    }
    report
}

/// How many seconds the crashed machine takes to open its database.
fn restarted(setting: &Setting, media: &Media) -> Result<f64, Failure> {
    let store = opening(Path::new("plan"), setting.configuration.clone(), setting.plan.seed).open_on(media)?;
    // A sort or a join has only temporary space.
    if store.database().partitions().is_empty() && !matches!(setting.work, Work::Spill { .. }) {
        return Err("the run has left no database that could be started again".into());
    }
    Ok(store.executor().now().since_ns(Instant::START) as f64 / 1e9)
}

/// The miss-ratio curve of the workload, with its references per transaction; `None` if there is nothing to be referenced.
pub fn curve(candidate: &Candidate, traces: &Traces) -> Option<(MissRatioCurve, f64)> {
    if let Some(name) = candidate.trace() {
        return of_trace(traces.iter().find(|((known, _), _)| known == name)?.1);
    }
    // A sort or a join has no pages of partitions; what nodes reference is in their memories and the server's.
    if matches!(candidate.setting.work, Work::Spill { .. } | Work::Nodes { .. }) {
        return None;
    }
    let recording = Recording::default();
    let circumstances = Circumstances { recording: Some(&recording), ..Circumstances::default() };
    // What cannot be recorded is not pruned: the run itself says what is wrong with it.
    run_under(circumstances, &candidate.setting, 0, traces).ok()?;
    of_trace(&recording.take()?.ok()?)
}

fn of_trace(trace: &Trace) -> Option<(MissRatioCurve, f64)> {
    let curve = MissRatioCurve::of_trace(trace, PAGES_MAX);
    let per_transaction = curve.references() as f64 / trace.len().max(1) as f64;
    (curve.references() > 0).then_some((curve, per_transaction))
}
