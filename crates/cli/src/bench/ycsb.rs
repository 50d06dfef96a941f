//! YCSB's core workloads: load if need be, warm up, measure, report.

use super::session::{self, Run};
use super::terms::{self, ClosedOrOpen, Terms};
use super::{bank, positive_count};
use crate::Failure;
use crate::progress::Progress;
use crate::report::RunReport;
use crate::trace::Recording;
use base::units::grouped;
use clap::Args;
use entresol::{PartitionSpec, Store};
use std::net::SocketAddr;
use std::path::PathBuf;
use workload::ycsb::{self, Mix, USERTABLE, Ycsb};

/// YCSB's core workloads A to F: skewed reads, updates, insertions and scans
///
/// a: half updates, b: mostly reads, c: reads only, d: the latest are read most, e: scans,
/// f: reads and read-modify-writes. Records have 1,000 bytes.
#[derive(Args, Clone, Debug)]
#[command(
    verbatim_doc_comment,
    next_line_help = true,
    after_help = "Examples:\n  \
    entresol bench ycsb --workload a --records 1,000,000\n  \
    entresol bench ycsb --workload e --clients 16 --seconds 30\n  \
    entresol bench ycsb --workload c --hardware nvme-2026 --json\n  \
    entresol bench ycsb --workload b --join 127.0.0.1:7171 --clients 16"
)]
pub struct Arguments {
    /// Which one: a, b, c, d, e or f
    #[arg(long, value_name = "LETTER", default_value = "a", value_parser = mix)]
    pub workload: Mix,
    /// Directory of the database, created if missing
    #[arg(long, value_name = "DIR", default_value = "ycsb.data")]
    pub data: PathBuf,
    /// Records that are loaded [default: as loaded, or 100,000]
    #[arg(long, value_name = "N", value_parser = positive_count)]
    pub records: Option<u64>,
    #[command(flatten)]
    pub load: ClosedOrOpen,
    /// Joins a server ('node --serve') and runs on copies of its pages; one client by default
    #[arg(long, value_name = "ADDRESS", value_parser = crate::node::protection::address, conflicts_with_all = [
        "data", "records", "rate", "hardware", "like", "course", "cold",
    ])]
    pub join: Option<SocketAddr>,
    #[command(flatten)]
    pub joining: Box<crate::node::joining::Joining>,
    #[command(flatten)]
    pub terms: Terms,
}

fn mix(letter: &str) -> Result<Mix, String> {
    Mix::named(letter).ok_or_else(|| "not one of the workloads a to f".to_owned())
}

/// Loads the table if it is new, warms up, measures. What is referenced is recorded if `recording` is given.
pub fn run(arguments: &Arguments, recording: Option<&Recording>, progress: &Progress) -> Result<RunReport, Failure> {
    let terms = &arguments.terms;
    if arguments.join.is_some() {
        return Err("only 'entresol bench' joins a server".into());
    }
    terms::without_server(&arguments.joining)?;
    let configuration = terms.configuration(&arguments.data)?;
    let store = terms.open(terms.opening(&arguments.data, configuration), progress)?;
    let records = prepare(&store, arguments.records, progress)?;
    let warm = |page, pages| progress.step("reading", page, pages);
    if !terms.is_cold() {
        store.run(async |database| bank::warm(database, &[USERTABLE], warm).await)?;
    }
    let name = format!("ycsb {}, {} records", arguments.workload.letter(), grouped(records));
    let run =
        Run { name, plan: terms.plan(arguments.load.load()), course: terms.course, cold: terms.is_cold(), recording };
    let report = session::measure(&store, run, progress, async |database| {
        Ok(Ycsb::new(database.partition(USERTABLE)?, arguments.workload, records))
    })?;
    session::close(store)?;
    Ok(report)
}

/// Loads the table if there is none. Returns how many records it has, of which insertions may have added some.
pub fn prepare(store: &Store, records: Option<u64>, progress: &Progress) -> Result<u64, Failure> {
    if store.database().partition(USERTABLE).is_err() {
        let records = records.unwrap_or(100_000);
        progress.phase("loading", records);
        let spec = spec(store)?;
        store.run(async |database| ycsb::load(database, spec, records, |done| progress.advance_to(done)).await)?;
        return Ok(records);
    }
    let present = store.run(async |database| ycsb::records(database).await)?;
    match records {
        Some(asked) if asked > present => Err(format!(
            "the table has {} records, not {}; correct --records or name another --data",
            grouped(present),
            grouped(asked)
        )
        .into()),
        _ => Ok(present),
    }
}

fn spec(store: &Store) -> entresol::Result<PartitionSpec> {
    let configuration = store.configuration();
    configuration.partition_spec(USERTABLE, &configuration.partition(USERTABLE))
}
