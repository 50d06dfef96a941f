//! `entresol trace miss-ratio`: how much of a trace buffers of every size miss.

use super::read;
use crate::bench::positive_count;
use crate::experiment::{report_head, write_report};
use crate::table::{table, wrapped};
use crate::{Failure, print};
use base::units::{format_size, grouped};
use clap::Args;
use papers::Extent;
use papers::plot::{PairAxis, PairStyle, Pairs, pairs};
use papers::report;
use serde_json::{Value, json};
use std::path::PathBuf;
use workload::trace::miss_ratio::MissRatioCurve;

/// Prints the share of references that LRU buffers of every size miss
///
/// One pass over the trace, in bounded memory: only pages with small hashes are looked at
/// (SHARDS, Waldspurger et al. 2015). While all of them fit, the curve is exact.
#[derive(Args)]
#[command(
    verbatim_doc_comment,
    after_help = "Examples:\n  entresol trace miss-ratio rahm.trace\n  entresol trace miss-ratio rahm.trace --report curve --json"
)]
pub struct Arguments {
    /// The trace
    file: PathBuf,
    /// How many pages are looked at, at most
    #[arg(long, value_name = "N", default_value = "8,192", value_parser = positive_count)]
    pages_max: u64,
    /// Bytes of a page, to show sizes in bytes
    #[arg(long, value_name = "SIZE", default_value = "8 KiB", value_parser = page_size)]
    page_size: u64,
    /// Writes a page with the plot into this directory
    #[arg(long, value_name = "DIR")]
    report: Option<PathBuf>,
    /// Prints JSON
    #[arg(long)]
    json: bool,
}

/// The smallest buffer that is shown, in pages.
const LEAST: u64 = 16;

pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    let trace = read(&arguments.file)?;
    let pages_max = usize::try_from(arguments.pages_max).unwrap_or(usize::MAX).min(1 << 26);
    let curve = MissRatioCurve::of_trace(&trace, pages_max);
    let name = arguments.file.display().to_string();
    if let Some(directory) = &arguments.report {
        let head = report_head(Extent::Full);
        let body = plot(&name, &curve, arguments.page_size).unwrap_or_default();
        let page = report::other(&head, &format!("Misses of {name}"), &body, FOOTER);
        let file = write_report(directory, &page, &to_json(&curve))?;
        eprintln!("report: {}", file.display());
    }
    print(&if arguments.json {
        serde_json::to_string_pretty(&to_json(&curve))?
    } else {
        to_text(&curve, arguments.page_size)
    })
}

/// What a reader of the plot has to know.
const FOOTER: &str = "Made by Entresol. The share of references that an LRU buffer misses, by its size, if it is empty at first. Point \
    at a mark to read it.";

fn page_size(text: &str) -> Result<u64, String> {
    match base::units::parse_size(text) {
        Ok(0) => Err("not a size above zero".to_owned()),
        size => size.map_err(|error| error.to_string()),
    }
}

fn plot(name: &str, curve: &MissRatioCurve, page_size: u64) -> Option<String> {
    let point = |(pages, ratio): (u64, f64)| {
        let tip = format!(
            "{} pages ({}): {:.1} %",
            grouped(pages),
            format_size(pages.saturating_mul(page_size)),
            100.0 * ratio
        );
        ([pages as f64, 100.0 * ratio], tip)
    };
    let points = curve.doubling(LEAST).into_iter().map(point).collect();
    let line = Pairs { name: name.to_owned(), style: PairStyle::Line, points };
    let axis = |name: &str, is_logarithmic| PairAxis { name: name.to_owned(), is_logarithmic, limit: None };
    let axes = [axis("buffer (pages)", true), axis("misses (%)", false)];
    pairs("Miss ratio by size of the buffer", [&axes[0], &axes[1]], &[line])
}

fn to_text(curve: &MissRatioCurve, page_size: u64) -> String {
    let how = if curve.rate() < 1.0 {
        format!("estimated from {:.2} % of the pages", 100.0 * curve.rate())
    } else {
        "exact".to_owned()
    };
    let summary =
        wrapped(&format!("{} references to {} pages; {how}", grouped(curve.references()), grouped(curve.pages())));
    let rows = curve.doubling(LEAST).into_iter().map(|(pages, ratio)| {
        let bar = "#".repeat((ratio * 40.0).round() as usize);
        let repeated = 100.0 * curve.repeated_miss_ratio(pages);
        vec![
            bar,
            grouped(pages),
            format_size(pages.saturating_mul(page_size)),
            format!("{:.2} %", 100.0 * ratio),
            format!("{repeated:.2} %"),
        ]
    });
    let header = ["misses", "LRU buffer, pages", "bytes", "misses", "without first ones"];
    format!("{summary}\n\n{}", table(&header, 1, rows))
}

fn to_json(curve: &MissRatioCurve) -> Value {
    let point = |(pages, ratio): (u64, f64)| json!({ "pages": pages, "miss_ratio": ratio, "repeated_miss_ratio": curve.repeated_miss_ratio(pages) });
    json!({
        "references": curve.references(),
        "pages": curve.pages(),
        "sampled": curve.rate(),
        "curve": curve.doubling(LEAST).into_iter().map(point).collect::<Vec<_>>(),
    })
}
