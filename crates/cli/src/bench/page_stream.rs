//! Streams of references to pages: create the partition if need be, warm up, measure, report.

use super::positive_count;
use super::session::{self, Run};
use super::terms::{self, ClosedOrOpen, Terms};
use crate::Failure;
use crate::progress::Progress;
use crate::report::RunReport;
use crate::trace::Recording;
use base::units::grouped;
use clap::Args;
use engine::catalog::Locking;
use std::path::PathBuf;
use workload::page_stream::{self, PAGES, PageStream, Stream};

/// References to pages with the skew of TPC-C, TPC-E or TPC-H, or with none
///
/// tpc-c: 75 % to 20 % of the pages, a write for every two reads; tpc-e: 9.7 reads a
/// write; tpc-h: scans and look-ups; scan, uniform, write-only, moving-hot-set: in which
/// a cache gains least. Any number of pages; nothing of a benchmark but its pattern.
#[derive(Args, Clone, Debug)]
#[command(
    verbatim_doc_comment,
    after_help = "Examples:\n  \
    entresol bench page-stream --stream tpc-c --pages 1,000,000\n  \
    entresol bench page-stream --stream tpc-h --clients 4 --seconds 30\n  \
    entresol bench page-stream --stream tpc-e --hardware do-2011 --json"
)]
pub struct Arguments {
    /// Which one; --help describes them
    #[arg(long, value_name = "NAME", default_value = "tpc-c", value_parser = stream)]
    pub stream: Stream,
    /// Pages that are referenced
    #[arg(long, value_name = "N", default_value = "100,000", value_parser = positive_count)]
    pub pages: u64,
    /// Directory of the database, created if missing
    #[arg(long, value_name = "DIR", default_value = "pages.data")]
    pub data: PathBuf,
    #[command(flatten)]
    pub load: ClosedOrOpen,
    #[command(flatten)]
    pub terms: Terms,
}

fn stream(name: &str) -> Result<Stream, String> {
    Stream::named(name).ok_or_else(|| format!("the streams are {}", Stream::names().join(", ")))
}

/// Runs the stream; what it references is recorded if `recording` is given.
pub fn run(arguments: &Arguments, recording: Option<&Recording>, progress: &Progress) -> Result<RunReport, Failure> {
    let Arguments { stream, pages, terms, .. } = arguments;
    let mut configuration = terms.configuration(&arguments.data)?;
    terms::place(&mut configuration, PAGES, page_stream::organization(*pages), Some(Locking::None));
    let store = terms.open(terms.opening(&arguments.data, configuration), progress)?;
    let name = format!("references like {}, {} pages", stream.name(), grouped(*pages));
    let run =
        Run { name, plan: terms.plan(arguments.load.load()), course: terms.course, cold: terms.is_cold(), recording };
    let report = session::measure(&store, run, progress, async |database| {
        PageStream::prepare(database, *stream, *pages, || terms::placed(&store, PAGES)).await
    })?;
    session::close(store)?;
    Ok(report)
}
