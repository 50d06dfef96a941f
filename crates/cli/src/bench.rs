//! `entresol bench`: a workload, a run, a report.

mod at_node;
mod bandwidth;
pub mod bank;
pub mod cards;
mod checkpoints;
mod credit_card;
pub mod debit_credit;
pub mod join;
pub mod meter;
mod nodes;
mod on_either_clock;
pub mod page_server;
pub mod page_stream;
mod point_reads;
pub mod ratio;
mod recovery;
mod session;
mod snapshot_reader;
pub mod sort;
pub mod spill;
pub mod summary;
pub mod synthetic;
pub mod terms;
pub mod threads;
pub mod tpcc;
mod trace;
mod update_commit;
pub mod ycsb;

pub use on_either_clock::{OnEitherClock, Outcome};

use crate::progress::Progress;
use crate::{Failure, print};
use base::units::{Size, UnitError};
use clap::{Args, Subcommand};
use entresol::configuration::Configuration;

/// Runs a workload and reports throughput, response time and where it went
#[derive(Args)]
#[command(arg_required_else_help = true, after_help = "Example:\n  entresol bench debit-credit --clients 64")]
pub struct Arguments {
    #[command(subcommand)]
    workload: Workload,
}

#[derive(Subcommand)]
enum Workload {
    Checkpoints(checkpoints::Arguments),
    #[command(flatten)]
    OnEitherClock(OnEitherClock),
    PointReads(point_reads::Arguments),
    Recovery(recovery::Arguments),
    SnapshotReader(snapshot_reader::Arguments),
    UpdateCommit(update_commit::Arguments),
}

/// A number above zero.
pub fn positive(text: &str) -> Result<f64, String> {
    let number = text.parse::<f64>().ok().filter(|number| *number > 0.0 && number.is_finite());
    number.ok_or_else(|| "not a number above zero".to_owned())
}

/// A size above zero, in bytes or in pages.
pub fn size(text: &str) -> Result<Size, String> {
    match text.parse().map_err(|error: UnitError| error.to_string())? {
        Size::Bytes(0) | Size::Pages(0) => Err("not a size above zero".to_owned()),
        size => Ok(size),
    }
}

/// How many bytes a size is in a database of this configuration.
pub fn in_bytes(size: Size, configuration: &Configuration) -> u64 {
    size.bytes(configuration.buffer.page_size.into()).unwrap_or(u64::MAX)
}

/// A count above zero, with separators if one likes.
pub fn positive_count(text: &str) -> Result<u64, String> {
    let digits: String = text.chars().filter(|c| *c != ',' && *c != '_').collect();
    digits.parse().ok().filter(|count| *count > 0).ok_or_else(|| "not a count above zero".to_owned())
}

pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    match &arguments.workload {
        Workload::Checkpoints(arguments) => {
            let report = watched("checkpoints", |progress| checkpoints::run(arguments, progress))?;
            print(&if arguments.json { report.to_json() } else { report.to_text() })
        }
        Workload::OnEitherClock(OnEitherClock::Synthetic(arguments)) if arguments.format => {
            print(workload::synthetic::Model::REFERENCE.trim_end())
        }
        Workload::OnEitherClock(workload) if let Some((server, joining, clients, terms)) = workload.joins() => {
            let report = watched(workload.name(), |progress| {
                let node = at_node::Node { server, joining, clients, terms, progress };
                match workload {
                    OnEitherClock::DebitCredit(_) => node.debit_credit(),
                    OnEitherClock::Tpcc(_) => node.tpcc(),
                    OnEitherClock::Ycsb(arguments) => node.ycsb(arguments.workload),
                    _ => unreachable!("no other workload joins a server"),
                }
            })?;
            print(&if terms.setup.json { report.to_json() } else { report.to_text() })
        }
        Workload::OnEitherClock(OnEitherClock::DebitCredit(arguments))
            if let Some(opening) = arguments.on_nodes()? =>
        {
            let report = watched("debit-credit", |progress| {
                let terms = (&arguments.terms, arguments.load.load(), arguments.threads);
                nodes::run(opening, arguments.scale, terms, progress)
            })?;
            print(&if arguments.terms.setup.json { report.to_json() } else { report.to_text() })
        }
        Workload::OnEitherClock(workload) => {
            let outcome = watched(workload.name(), |progress| workload.run(progress))?;
            print(&if workload.setup().json { outcome.to_json() } else { outcome.to_text() })
        }
        Workload::PointReads(arguments) => {
            let report = watched("point-reads", |progress| point_reads::run(arguments, progress))?;
            print(&if arguments.json { report.to_json() } else { report.to_text() })
        }
        Workload::Recovery(arguments) => {
            let report = watched("recovery", |progress| recovery::run(arguments, progress))?;
            print(&if arguments.json { report.to_json() } else { report.to_text() })
        }
        Workload::SnapshotReader(arguments) => {
            let report = watched("snapshot-reader", |progress| snapshot_reader::run(arguments, progress))?;
            print(&if arguments.setup.json { report.to_json() } else { report.to_text() })
        }
        Workload::UpdateCommit(arguments) => {
            let report = watched("update-commit", |progress| update_commit::run(arguments, progress))?;
            print(&if arguments.setup.json { report.to_json() } else { report.to_text() })
        }
    }
}

/// Runs a benchmark under a progress line.
pub fn watched<T>(name: &'static str, run: impl FnOnce(&Progress) -> Result<T, Failure>) -> Result<T, Failure> {
    let progress = Progress::start(name);
    let result = run(&progress);
    progress.finish();
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_above_zero() {
        assert_eq!(positive("2.5"), Ok(2.5));
        assert_eq!(size("1 GiB"), Ok(Size::Bytes(1 << 30)));
        assert_eq!(size("3pages").map(|size| in_bytes(size, &Configuration::default())), Ok(3 * 8192));
        assert!(size("0 pages").is_err());
        for text in ["0", "-1", "inf", "nan", "", "ten"] {
            assert!(positive(text).is_err() && size(text).is_err(), "{text}");
        }
    }
}
