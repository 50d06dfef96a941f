//! Point reads from a database larger than its buffer: what the engine makes of a device.

use super::session::{self, Run};
use super::{bank, in_bytes, positive, size};
use crate::progress::Progress;
use crate::report::RunReport;
use crate::{Failure, opening};
use base::units::{Size, format_size};
use clap::Args;
use engine::Internals;
use entresol::Opening;
use entresol::configuration::Configuration;
use std::path::PathBuf;
use workload::debit_credit::ACCOUNT;
use workload::point_reads::PointReads;
use workload::{Length, Load, Plan};

/// Random reads of single accounts through a buffer smaller than the data
///
/// Scale 700 makes 8 GiB of accounts; peers/point-reads.sh sets the reads beside fio's.
#[derive(Args)]
#[command(
    verbatim_doc_comment,
    after_help = "Examples:\n  \
    entresol bench point-reads\n  \
    entresol bench point-reads --scale 700 --buffer 1GiB --outstanding 64 --json"
)]
pub struct Arguments {
    /// Directory of the database, created if missing
    #[arg(long, value_name = "DIR", default_value = "point-reads.data")]
    pub data: PathBuf,
    /// Branches, 11 MiB each [default: as loaded, or 10]
    #[arg(long, value_name = "BRANCHES", value_parser = clap::value_parser!(u32).range(1..=40_000))]
    pub scale: Option<u32>,
    /// Memory for pages [default: an eighth of the accounts]
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub buffer: Option<Size>,
    /// Reads under way at once
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pub outstanding: u32,
    /// How long to measure
    #[arg(long, value_name = "S", default_value_t = 10.0, value_parser = positive)]
    pub seconds: f64,
    /// Seed of all random numbers
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Configuration file (see 'entresol configuration')
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Prints the report as JSON
    #[arg(long)]
    pub json: bool,
}

/// Loads the database if it is new, warms up, measures.
pub fn run(arguments: &Arguments, progress: &Progress) -> Result<RunReport, Failure> {
    let mut configuration = Configuration::read(arguments.config.as_deref(), None)?;
    if configuration.hardware.is_some() {
        return Err("point reads are measured on this machine, but the configuration names hardware".into());
    }
    let store = opening::open(Opening::new(&arguments.data, configuration.clone()), progress)?;
    let scale = bank::prepare(&store, arguments.scale, progress)?;
    let account = store.database().partition(ACCOUNT)?;
    let page_size = store.database().settings().buffer.page_size as u64;
    let data = u64::from(store.database().buffer().space(account).written()) * page_size;
    store.close()?;
    configuration.buffer.size =
        arguments.buffer.map_or(data / 8, |size| in_bytes(size, &configuration)).max(64 * page_size);
    let buffer = format_size(configuration.buffer.size);
    let store = opening::watched(Opening::new(&arguments.data, configuration).nodes(1), progress).open()?;
    store.run(async |database| {
        bank::warm(database, &bank::WARMED, |page, pages| progress.step("reading", page, pages)).await
    })?;
    let measure = Length::Time((arguments.seconds * 1e9) as u64);
    let load = Load::Closed { clients: arguments.outstanding };
    let plan = Plan { load, warm_up: measure.share(5), measure, seed: arguments.seed };
    let (data, outstanding) = (format_size(data), arguments.outstanding);
    let name = format!("point reads, {data} of accounts, {buffer} of buffer, {outstanding} outstanding");
    let workload = PointReads { partition: account, records: scale.accounts() };
    let run = Run { name, plan, course: None, cold: true, recording: None };
    let report = session::measure(&store, run, progress, async |_| Ok(workload))?;
    session::close(store)?;
    Ok(report)
}
