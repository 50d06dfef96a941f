//! `entresol torture --cluster`: several nodes on one database while what is between them and they themselves fail.

use crate::Failure;
use crate::print;
use crate::progress::Progress;
use crate::table::{table, wrapped};
use base::units::grouped;
use std::ops::Range;
use torture::cluster::{ClusterEvent, ClusterFault, ClusterOptions, ClusterStep, ClusterSummary, run_range};

/// Enough seeds for every fault to hit every step that it can hit: a range at least as long fails if one does not.
const COMPLETE_FROM: u64 = 4_000;
/// Enough for every fault to hit something, for every step to be hit, and for every event.
const BROAD_FROM: u64 = 200;

/// Runs the seeds and prints what came of them.
pub fn run(seeds: Range<u64>, is_json: bool) -> Result<(), Failure> {
    let (first, count) = (seeds.start, seeds.end - seeds.start);
    let progress = Progress::start("torture");
    progress.phase("seeds", count);
    let summary = run_range(seeds, ClusterOptions::FULL, |outcome| {
        outcome.failure.iter().for_each(|failure| progress.tell(&wrapped(&failure.to_string())));
        progress.advance_to(outcome.seed + 1 - first);
    });
    progress.finish();
    print(&if is_json { to_json(&summary) } else { to_text(&summary) })?;
    if let Some(failure) = summary.failures.first() {
        let (seed, failed) = (failure.seed, summary.failures.len());
        let replay = format!("entresol torture --cluster --seeds {seed}..{}", seed + 1);
        return Err(format!("{failed} of {count} seeds failed; replay the first with '{replay}'").into());
    }
    let missing = match count {
        COMPLETE_FROM.. => summary.coverage.missing(),
        BROAD_FROM.. => summary.coverage.absent(),
        _ => Vec::new(),
    };
    if !missing.is_empty() {
        return Err(format!("some faults never happened: {}", missing.join(", ")).into());
    }
    Ok(())
}

fn to_text(summary: &ClusterSummary) -> String {
    let algorithms = summary.coverage.algorithms().map(|(name, seeds)| format!("{} with {name}", grouped(seeds)));
    let mut parts = vec![wrapped(&format!(
        "{} seeds ({}), {} transactions acknowledged; {} seeds failed",
        grouped(summary.seeds),
        algorithms.collect::<Vec<_>>().join(", "),
        grouped(summary.transactions),
        grouped(summary.failures.len() as u64),
    ))];
    let of_links = |fault: &ClusterFault| !is_of_programs(*fault);
    parts.push(hits(summary, &ClusterFault::ALL.into_iter().filter(of_links).collect::<Vec<_>>()));
    parts
        .push(hits(summary, &ClusterFault::ALL.into_iter().filter(|fault| is_of_programs(*fault)).collect::<Vec<_>>()));
    parts.push(events(summary));
    parts.extend(summary.failures.iter().take(5).map(|failure| wrapped(&failure.to_string())));
    parts.join("\n\n")
}

fn is_of_programs(fault: ClusterFault) -> bool {
    matches!(
        fault,
        ClusterFault::Kill
            | ClusterFault::PowerCut
            | ClusterFault::Left
            | ClusterFault::Grant
            | ClusterFault::Closed
            | ClusterFault::Paused
            | ClusterFault::LogFailed
    )
}

/// How often each step was hit by these faults.
fn hits(summary: &ClusterSummary, faults: &[ClusterFault]) -> String {
    let header: Vec<&str> = std::iter::once("step").chain(faults.iter().map(|fault| fault.name())).collect();
    let count = |step: ClusterStep, fault: ClusterFault| match summary.coverage.count(fault, step) {
        0 if !step.admits(fault) => "-".to_owned(),
        count => grouped(count),
    };
    let steps = ClusterStep::ALL.into_iter().filter(|step| faults.iter().any(|fault| step.admits(*fault)));
    let rows = steps.map(|step| {
        std::iter::once(step.name().to_owned()).chain(faults.iter().map(|fault| count(step, *fault))).collect()
    });
    table(&header, 1, rows)
}

/// How often each event was met, three to a line.
fn events(summary: &ClusterSummary) -> String {
    let columns = 3;
    let cell = |event: &ClusterEvent| [event.name().to_owned(), grouped(summary.coverage.events(*event))];
    let rows = ClusterEvent::ALL.chunks(columns).map(|events| {
        let mut row: Vec<String> = events.iter().flat_map(cell).collect();
        row.resize(2 * columns, String::new());
        row
    });
    table(&["event", "count"].repeat(columns), 1, rows)
}

fn to_json(summary: &ClusterSummary) -> String {
    let cells = ClusterStep::ALL.into_iter().flat_map(|step| ClusterFault::ALL.map(|fault| (step, fault)));
    let hits: Vec<_> = cells
        .map(|(step, fault)| {
            let count = summary.coverage.count(fault, step);
            serde_json::json!({"step": step.name(), "fault": fault.name(), "count": count})
        })
        .collect();
    let event =
        |event: &ClusterEvent| serde_json::json!({"event": event.name(), "count": summary.coverage.events(*event)});
    let failures: Vec<_> = summary
        .failures
        .iter()
        .map(|failure| serde_json::json!({"seed": failure.seed, "wrong": failure.wrong}))
        .collect();
    let algorithms: serde_json::Map<String, serde_json::Value> =
        summary.coverage.algorithms().map(|(name, seeds)| (name.to_owned(), seeds.into())).collect();
    let json = serde_json::json!({
        "seeds": summary.seeds, "transactions": summary.transactions, "algorithms": algorithms,
        "hits": hits, "events": ClusterEvent::ALL.iter().map(event).collect::<Vec<_>>(),
        "missing": summary.coverage.missing(), "failures": failures,
    });
    serde_json::to_string_pretty(&json).expect("a report holds nothing that JSON cannot")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_fits_and_names_every_step_fault_and_event() {
        let summary = run_range(0..2, ClusterOptions::QUICK, |_| ());
        let text = to_text(&summary);
        let steps = ClusterStep::ALL.map(ClusterStep::name);
        let faults = ClusterFault::ALL.map(ClusterFault::name);
        let names = steps.into_iter().chain(ClusterEvent::ALL.map(ClusterEvent::name));
        names.for_each(|name| assert!(text.contains(name), "{name}: {text}"));
        // A header of two words may take two lines.
        let words = faults.iter().flat_map(|name| name.split(' '));
        words.for_each(|word| assert!(text.contains(word), "{word}: {text}"));
        assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
        let json: serde_json::Value = serde_json::from_str(&to_json(&summary)).expect("valid JSON");
        assert_eq!(json["seeds"], 2);
        assert_eq!(json["hits"].as_array().map(Vec::len), Some(ClusterStep::ALL.len() * ClusterFault::ALL.len()));
    }
}
