//! `entresol torture`: seeded crashes and faults under the virtual clock, and what must have survived them.

mod cluster;

use crate::progress::Progress;
use crate::table::{table, wrapped};
use crate::{Failure, print};
use base::units::grouped;
use clap::Args;
use std::ops::Range;
use torture::{BESIDE_BACKUPS, ClientEvent, FaultKind, Options, SeedKind, Step, Summary, cache_designs, met_by_caches};

/// Checks what survives seeded crashes and faults under the virtual clock
///
/// Each seed makes one run: a configuration, a workload, power cuts, torn writes, device
/// errors and flipped bits; then a restart, and a check that every acknowledged transaction
/// is there and no other half there. A seed that fails is printed at once, on standard error,
/// and with the result; it replays exactly.
///
/// With --isolation, transactions of each seed meet on a few records, and what they were
/// shown is searched for what their level of isolation forbids.
///
/// With --cluster, each seed is a server and its nodes. What is between them is cut, slow
/// or broken, their clocks differ, and they are killed; some order has to explain what all of
/// them were shown.
#[derive(Args)]
#[command(
    verbatim_doc_comment,
    after_help = "Examples:\n  entresol torture --seeds 0..1000\n  entresol torture --seeds 17..18\n  \
                  entresol torture --isolation --seeds 0..5000\n  entresol torture --cluster --seeds 0..4000"
)]
pub struct Arguments {
    /// The seeds to run, the last one excluded
    #[arg(long, value_name = "A..B", default_value = DEFAULT_SEEDS, value_parser = seeds)]
    pub seeds: Range<u64>,
    /// Looks for anomalies of isolation
    #[arg(long)]
    pub isolation: bool,
    /// Runs a server and several nodes
    #[arg(long, conflicts_with = "isolation")]
    pub cluster: bool,
    /// Prints the result as JSON
    #[arg(long)]
    pub json: bool,
}

/// Enough seeds for every kind of fault to meet every step that it can hit: a range at least as long fails if one does not.
const DEFAULT_SEEDS: &str = "0..8000";
const COMPLETE_FROM: u64 = 8_000;
/// How many failures are described; of all others the seeds are named.
const DESCRIBED_MAX: usize = 5;
/// Enough for every kind of fault to hit something and for every step to be hit.
const BROAD_FROM: u64 = 400;

fn seeds(text: &str) -> Result<Range<u64>, String> {
    let range = text.split_once("..").and_then(|(first, end)| Some(first.parse().ok()?..end.parse().ok()?));
    let range: Range<u64> = range.ok_or("not a range of whole numbers such as 0..100")?;
    if range.is_empty() {
        return Err(format!("no seed lies in {text}; the last one is excluded"));
    }
    Ok(range)
}

pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    let seeds = arguments.seeds.clone();
    if arguments.cluster {
        return cluster::run(seeds, arguments.json);
    }
    let count = seeds.end - seeds.start;
    let progress = Progress::start("torture");
    progress.phase("seeds", count);
    let first = seeds.start;
    let kind = if arguments.isolation { SeedKind::Isolation } else { SeedKind::Durability };
    let summary = torture::run_range(seeds, Options::FULL.of(kind), |outcome| {
        outcome.failure.iter().for_each(|failure| progress.tell(&wrapped(&failure.to_string())));
        progress.advance_to(outcome.seed + 1 - first);
    });
    progress.finish();
    print(&if arguments.json { to_json(&summary, kind) } else { to_text(&summary) })?;
    if let Some(failure) = summary.failures.first() {
        let seed = failure.seed;
        let isolation = if arguments.isolation { "--isolation " } else { "" };
        let replay = format!("entresol torture {isolation}--seeds {seed}..{}", seed + 1);
        return Err(
            format!("{} of {count} seeds failed; replay the first with '{replay}'", summary.failures.len()).into()
        );
    }
    let missing = match count {
        COMPLETE_FROM.. => summary.coverage.missing(kind),
        BROAD_FROM.. => summary.coverage.absent(kind),
        _ => Vec::new(),
    };
    if !missing.is_empty() {
        return Err(format!("some faults never happened: {}", missing.join(", ")).into());
    }
    Ok(())
}

fn to_text(summary: &Summary) -> String {
    let survival = summary.coverage.survival;
    let mut parts = vec![wrapped(&format!(
        "{} seeds, {} runs, {} transactions acknowledged; at power cuts {} unsynced writes were kept, {} lost, {} torn; \
         in {} seeds damage was found and named; {} seeds failed",
        grouped(summary.seeds),
        grouped(summary.runs),
        grouped(summary.transactions),
        grouped(survival.kept),
        grouped(survival.lost),
        grouped(survival.torn),
        grouped(summary.detected),
        grouped(summary.failures.len() as u64),
    ))];
    let seeds_at =
        |(levels, seeds): (&String, &u64)| format!("{} seeds of transactions that are {levels}", grouped(*seeds));
    parts.extend(
        (!summary.levels.is_empty())
            .then(|| wrapped(&summary.levels.iter().map(seeds_at).collect::<Vec<_>>().join("; "))),
    );
    parts.push(coverage(summary, &FaultKind::DISTURBANCES));
    parts.push(coverage(summary, &FaultKind::DAMAGE));
    parts.push(designs(summary));
    parts.push(stops(summary));
    parts.push(events(("event", &ClientEvent::ALL), |event| summary.coverage.events(event)));
    parts.push(events(("beside a backup", &BESIDE_BACKUPS), |event| summary.coverage.beside_backups(event)));
    parts.extend(summary.failures.iter().take(DESCRIBED_MAX).map(|failure| wrapped(&failure.to_string())));
    if summary.failures.len() > DESCRIBED_MAX {
        let seeds: Vec<String> = summary.failures.iter().map(|failure| failure.seed.to_string()).collect();
        parts.push(wrapped(&format!("All seeds that failed: {}", seeds.join(", "))));
    }
    parts.join("\n\n")
}

/// How often each step that these kinds of faults can hit was hit by them.
fn coverage(summary: &Summary, kinds: &[FaultKind]) -> String {
    let mut header = vec!["engine step"];
    header.extend(kinds.iter().map(|kind| kind.name()));
    let count = |step: &Step, kind: &FaultKind| match (summary.coverage.count(*kind, *step), step.admits(*kind)) {
        (0, false) => "-".to_owned(),
        (count, _) => grouped(count),
    };
    let steps = Step::ALL.iter().filter(|step| kinds.iter().any(|kind| step.admits(*kind)));
    let rows = steps.map(|step| {
        let mut row = vec![step.name().to_owned()];
        row.extend(kinds.iter().map(|kind| count(step, kind)));
        row
    });
    table(&header, 1, rows)
}

/// What caches of each design met.
fn designs(summary: &Summary) -> String {
    let header: Vec<&str> = std::iter::once("cache design").chain(met_by_caches()).collect();
    let rows = cache_designs().map(|design| {
        let count = |what| grouped(summary.coverage.met_by_design(design, what));
        std::iter::once(design.to_owned()).chain(met_by_caches().map(count)).collect()
    });
    table(&header, 1, rows)
}

/// How often a database with sets stopped at steps of its checkpoints and restarts.
fn stops(summary: &Summary) -> String {
    let mut rows: Vec<Vec<String>> = Vec::new();
    let mut header = vec!["log of sets", "sweep"];
    for ((logging, strategy), step, count) in summary.coverage.stops() {
        let pair = [format!("{logging:?}"), format!("{strategy:?}")];
        if rows.last().is_none_or(|row| row[..2] != pair) {
            rows.push(pair.to_vec());
        }
        if rows.len() == 1 {
            header.push(step.name());
        }
        rows.last_mut().expect("one was begun").push(grouped(count));
    }
    table(&header, 2, rows)
}

/// How often clients met what is no transaction, three to a line.
fn events((heading, events): (&str, &[ClientEvent]), count: impl Fn(ClientEvent) -> u64) -> String {
    let columns = 3;
    let cell = |event: &ClientEvent| [event.name().to_owned(), grouped(count(*event))];
    let rows = events.chunks(columns).map(|events| events.iter().flat_map(cell).collect());
    table(&[heading, "count"].repeat(columns), 1, rows)
}

fn to_json(summary: &Summary, kind: SeedKind) -> String {
    let hits: Vec<_> = Step::ALL
        .iter()
        .flat_map(|step| FaultKind::all().map(move |kind| (*step, kind)))
        .map(|(step, kind)| {
            serde_json::json!({"step": step.name(), "fault": kind.name(), "count": summary.coverage.count(kind, step)})
        })
        .collect();
    let failures: Vec<_> = summary
        .failures
        .iter()
        .map(|failure| serde_json::json!({"seed": failure.seed, "run": failure.run, "wrong": failure.wrong}))
        .collect();
    let acts: Vec<_> = ClientEvent::ALL
        .iter()
        .map(|event| serde_json::json!({"act": event.name(), "count": summary.coverage.events(*event)}))
        .collect();
    let beside_backups: Vec<_> = BESIDE_BACKUPS
        .iter()
        .map(|event| serde_json::json!({"act": event.name(), "count": summary.coverage.beside_backups(*event)}))
        .collect();
    let survival = summary.coverage.survival;
    let json = serde_json::json!({
        "seeds": summary.seeds, "runs": summary.runs, "transactions": summary.transactions,
        "acts": acts, "beside_backups": beside_backups, "detected": summary.detected, "missing": summary.coverage.missing(kind), "hits": hits, "failures": failures,
        "levels": summary.levels,
        "unsynced_writes": {"kept": survival.kept, "lost": survival.lost, "torn": survival.torn},
    });
    serde_json::to_string_pretty(&json).expect("a report holds nothing that JSON cannot")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_of_seeds() {
        assert_eq!(seeds("3..7"), Ok(3..7));
        for text in ["", "3", "3..", "..7", "7..3", "3..3", "-1..3", "3..=7", "a..b"] {
            assert!(seeds(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_report_fits_and_names_every_step() {
        let summary = torture::run_range(0..2, Options::QUICK, |_| ());
        let text = to_text(&summary);
        assert!(Step::ALL.iter().all(|step| text.contains(step.name())), "{text}");
        assert!(ClientEvent::ALL.iter().all(|event| text.contains(event.name())), "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
        let json: serde_json::Value =
            serde_json::from_str(&to_json(&summary, SeedKind::Durability)).expect("valid JSON");
        assert_eq!(json["seeds"], 2);
    }

    #[test]
    fn a_report_of_isolation_says_how_many_seeds_there_were_of_each_level() {
        let summary = torture::run_range(0..2, Options::QUICK.of(SeedKind::Isolation), |_| ());
        let text = to_text(&summary);
        assert!(text.contains("seeds of transactions that are "), "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
    }
}
