//! `entresol trace stat`: the properties of a trace.

use super::read;
use crate::table::{table, wrapped};
use crate::{Failure, print};
use base::units::{grouped, grouped_decimal};
use clap::Args;
use serde_json::{Value, json};
use std::path::PathBuf;
use workload::trace::Trace;
use workload::trace::statistics::Statistics;

/// Prints a trace's types, partitions, reference matrix and LRU hit ratios
#[derive(Args)]
#[command(after_help = "Example:\n  entresol trace stat rahm.trace --json")]
pub struct Arguments {
    /// The trace
    file: PathBuf,
    /// Prints JSON
    #[arg(long)]
    json: bool,
}

/// Buffers whose hit ratios are shown, in pages.
const FRAMES: [usize; 10] = [100, 200, 500, 1_000, 2_000, 3_000, 4_000, 5_000, 10_000, 50_000];

pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    let trace = read(&arguments.file)?;
    let statistics = Statistics::of(&trace);
    print(&if arguments.json { to_json(&trace, &statistics)? } else { to_text(&trace, &statistics) })
}

fn percent(part: u64, all: u64) -> String {
    format!("{:.1} %", 100.0 * part as f64 / all.max(1) as f64)
}

fn to_text(trace: &Trace, statistics: &Statistics) -> String {
    let Statistics { transactions, references, writes, update_transactions, pages, largest, .. } = *statistics;
    let summary = wrapped(&format!(
        "{} transactions of {}, {} of them updates; {} references, {} of them writes, to {} pages; the largest \
         transaction has {}",
        grouped(transactions),
        match statistics.types.len() {
            1 => "one type".to_owned(),
            several => format!("{several} types"),
        },
        percent(update_transactions, transactions),
        grouped(references),
        percent(writes, references),
        grouped(pages),
        grouped(largest)
    ));
    let types = statistics.types.iter().map(|kind| {
        let mean = kind.references as f64 / kind.transactions.max(1) as f64;
        let mut parts: Vec<(f64, &str)> = kind
            .row
            .iter()
            .zip(trace.partitions())
            .filter(|(share, _)| **share >= 0.005)
            .map(|(share, partition)| (*share, partition.name.as_str()))
            .collect();
        parts.sort_by(|one, other| other.0.total_cmp(&one.0));
        let row: Vec<String> = parts.iter().map(|(share, name)| format!("{name} {:.0} %", 100.0 * share)).collect();
        vec![
            kind.name.clone(),
            row[..row.len().min(3)].join(", ") + if row.len() > 3 { ", ..." } else { "" },
            grouped(kind.transactions),
            grouped_decimal(mean, 1),
            percent(kind.writes, kind.references),
        ]
    });
    let types = table(&["type", "references go to", "transactions", "mean size", "writes"], 2, types);
    let partitions = statistics.partitions.iter().zip(trace.partitions()).map(|(seen, partition)| {
        vec![
            partition.name.clone(),
            grouped(partition.objects),
            grouped(partition.blocking_factor.into()),
            grouped(seen.references),
            percent(seen.writes, seen.references),
            grouped(seen.pages),
        ]
    });
    let header = ["partition", "objects", "on a page", "references", "writes", "pages referenced"];
    let partitions = table(&header, 1, partitions);
    let ratios = FRAMES.iter().map(|frames| {
        let distances = &statistics.distances;
        let share = format!("{:.2} %", 100.0 * distances.hit_ratio(*frames));
        vec![grouped(*frames as u64), grouped(distances.hits(*frames)), share]
    });
    let ratios = table(&["LRU buffer, pages", "hits", "share"], 0, ratios);
    [summary, types, partitions, ratios].join("\n\n")
}

fn to_json(trace: &Trace, statistics: &Statistics) -> Result<String, Failure> {
    let types: Vec<Value> = statistics
        .types
        .iter()
        .zip(trace.types())
        .map(|(kind, described)| {
            let named = trace.partitions().iter().zip(&kind.row);
            let row: serde_json::Map<String, Value> =
                named.map(|(partition, share)| (partition.name.clone(), json!(share))).collect();
            json!({
                "name": kind.name, "transactions": kind.transactions, "references": kind.references,
                "writes": kind.writes, "rate_per_s": described.rate_per_s, "reference_matrix": row,
            })
        })
        .collect();
    let partitions: Vec<Value> = statistics
        .partitions
        .iter()
        .zip(trace.partitions())
        .map(|(seen, partition)| {
            json!({
                "name": seen.name, "objects": partition.objects, "blocking_factor": partition.blocking_factor,
                "references": seen.references, "writes": seen.writes, "pages": seen.pages,
            })
        })
        .collect();
    let ratios = FRAMES.map(|frames| (frames.to_string(), json!(statistics.distances.hit_ratio(frames))));
    let hits = FRAMES.map(|frames| (frames.to_string(), json!(statistics.distances.hits(frames))));
    let report = json!({
        "transactions": statistics.transactions,
        "update_transactions": statistics.update_transactions,
        "references": statistics.references,
        "writes": statistics.writes,
        "pages": statistics.pages,
        "largest": statistics.largest,
        "types": types,
        "partitions": partitions,
        "lru_hits": serde_json::Map::from_iter(hits),
        "lru_hit_ratio": serde_json::Map::from_iter(ratios),
    });
    Ok(serde_json::to_string_pretty(&report)?)
}
