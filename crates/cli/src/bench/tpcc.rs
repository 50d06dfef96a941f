//! TPC-C: load if need be, warm up, measure, check the consistency conditions, report.

use super::bank;
use super::session::{self, Run};
use super::terms::{self, ClosedOrOpen, Terms};
use crate::Failure;
use crate::progress::Progress;
use crate::report::RunReport;
use crate::trace::Recording;
use base::units::grouped_decimal;
use clap::Args;
use entresol::configuration::{LockGranule, Organization, Partition};
use entresol::{PartitionSpec, Store};
use std::net::SocketAddr;
use std::path::PathBuf;
use workload::tpcc::{self, HISTORY, Scale, TREES, Tables, Tpcc, Violation};

/// TPC-C: orders of a wholesale supplier, five types of transactions on nine tables
///
/// Clients neither think nor type. Each transaction draws its home warehouse.
/// After a run on this machine the benchmark's consistency conditions are checked,
/// but for one through a node, whose server others use.
#[derive(Args, Clone, Debug)]
#[command(
    verbatim_doc_comment,
    next_line_help = true,
    after_help = "Examples:\n  \
    entresol bench tpcc --warehouses 10 --clients 32 --seconds 30\n  \
    entresol bench tpcc --hardware nvme-2026 --warehouses 2 --rate 500\n  \
    entresol bench tpcc --config entresol.toml --json\n  \
    entresol bench tpcc --join 127.0.0.1:7171 --clients 16"
)]
pub struct Arguments {
    /// Directory of the database, created if missing
    #[arg(long, value_name = "DIR", default_value = "tpcc.data")]
    pub data: PathBuf,
    /// Warehouses, about 100 MiB each [default: as loaded, or 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub warehouses: Option<u32>,
    /// For trials: loads 1/FACTOR of the customers and items
    #[arg(long, value_name = "FACTOR", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub shrink: u32,
    #[command(flatten)]
    pub load: ClosedOrOpen,
    /// Joins a server ('node --serve') and runs on copies of its pages; one client by default
    #[arg(long, value_name = "ADDRESS", value_parser = crate::node::protection::address, conflicts_with_all = [
        "data", "warehouses", "shrink", "rate", "hardware", "like", "course", "cold",
    ])]
    pub join: Option<SocketAddr>,
    #[command(flatten)]
    pub joining: Box<crate::node::joining::Joining>,
    #[command(flatten)]
    pub terms: Terms,
}

/// Loads the database if it is new, warms up, measures. What is referenced is recorded if `recording` is given.
pub fn run(arguments: &Arguments, recording: Option<&Recording>, progress: &Progress) -> Result<RunReport, Failure> {
    let terms = &arguments.terms;
    if arguments.join.is_some() {
        return Err("only 'entresol bench' joins a server".into());
    }
    terms::without_server(&arguments.joining)?;
    let configuration = terms.configuration(&arguments.data)?;
    let store = terms.open(terms.opening(&arguments.data, configuration), progress)?;
    let scale = prepare(&store, (arguments.warehouses, arguments.shrink), progress)?;
    let warm = |page, pages| progress.step("reading", page, pages);
    if !terms.is_cold() {
        store.run(async |database| bank::warm(database, &TREES, warm).await)?;
    }
    let is_whole = scale == Scale::warehouses(scale.warehouses);
    let name = format!("tpcc, warehouses {}{}", scale.warehouses, if is_whole { "" } else { " (shrunk)" });
    let run =
        Run { name, plan: terms.plan(arguments.load.load()), course: terms.course, cold: terms.is_cold(), recording };
    let mut report = session::measure(&store, run, progress, async |database| {
        Ok(Tpcc { tables: Tables::of(database.catalog())?, scale })
    })?;
    if !store.is_virtual() {
        progress.phase("verifying", 0);
        consistent(&store.run(async |database| {
            let tables = Tables::of(database.catalog())?;
            tpcc::verify(database, &tables).await
        })?)?;
        report.notes.push("the consistency conditions of TPC-C were checked after the run, and all hold".to_owned());
    }
    report.notes.extend(new_orders(&report));
    session::close(store)?;
    Ok(report)
}

/// The rate by which TPC-C is compared, and what is rolled back by its rule, of a run that has any.
fn new_orders(report: &RunReport) -> Option<String> {
    let found = report.types.iter().find(|of_type| of_type.name == "new-order")?;
    let per_minute = grouped_decimal(found.transactions as f64 * 60.0 / report.seconds.max(1e-9), 0);
    Some(format!(
        "{per_minute} New-Orders a minute. One of a hundred names an item that does not exist: by rule it is undone, to a savepoint at \
         its beginning, and commits nothing; such are among the transactions, and not among those that were rolled back and tried again"
    ))
}

fn consistent(violations: &[Violation]) -> Result<(), Failure> {
    let Some(first) = violations.first() else { return Ok(()) };
    Err(format!("a defect of this program, found {} times: {first}", violations.len()).into())
}

/// Loads the database if it is empty, with this part of the customers and items. Without a number of warehouses an existing
/// one is taken as large as it is.
pub fn prepare(store: &Store, (warehouses, shrink): (Option<u32>, u32), progress: &Progress) -> Result<Scale, Failure> {
    if !tpcc::exists(store.database()) {
        let scale = Scale::warehouses(warehouses.unwrap_or(1)).shrunk(shrink);
        progress.phase("loading", scale.records());
        let spec = |name: &str| spec(store, name);
        store.run(async |database| tpcc::load(database, &scale, spec, |done| progress.advance_to(done)).await)?;
        return Ok(scale);
    }
    let scale = store.run(async |database| tpcc::scale(database).await)?;
    match warehouses {
        Some(asked) if asked != scale.warehouses => Err(format!(
            "the database has {} warehouses, not {asked}; correct --warehouses or name another --data",
            scale.warehouses
        )
        .into()),
        _ => Ok(scale),
    }
}

fn spec(store: &Store, name: &str) -> entresol::Result<PartitionSpec> {
    let configuration = store.configuration();
    let base = configuration.partition(name);
    let partition = match name {
        HISTORY => Partition { organization: Organization::Append, locks: LockGranule::None, ..base },
        _ => base,
    };
    configuration.partition_spec(name, &partition)
}
