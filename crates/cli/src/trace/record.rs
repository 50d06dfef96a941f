//! `entresol trace record`: the references of a benchmark, or of a database that another program has open, are written down.

use super::write;
use crate::bench::{self, debit_credit, page_stream, synthetic, tpcc, ycsb};
use crate::progress::Progress;
use crate::{Failure, files, print};
use base::units::grouped;
use clap::{Args, Subcommand};
use entresol::{Database, Opening};
use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;
use workload::trace::record::{Recorder, of_references};
use workload::trace::{Problem, Trace};

/// Writes down what a benchmark, or a database that is open, references
///
/// Of a benchmark the warm-up is included. A database that another program of the same user
/// has open is recorded by that program, which is asked by the socket entresol.socket in the
/// database's directory: its transactions that begin from then on and commit within --seconds.
/// It holds 16 bytes a reference and 64 a transaction until the end, for at most --references of
/// them, and is no slower before and after. 'entresol plan' takes such a trace as a workload.
///
/// Transactions stand in the order of their beginnings; those that were rolled back are left out.
#[derive(Args)]
#[command(
    verbatim_doc_comment,
    after_help = "Examples:\n  entresol trace record app.trace --data /var/lib/app/data --seconds 60\n  \
                  entresol trace record bank.trace debit-credit --hardware rahm-1991 --transactions 1000"
)]
pub struct Arguments {
    /// The new file
    out: PathBuf,
    /// Writes text, not binary
    #[arg(long)]
    text: bool,
    /// Directory of a database that another program has open
    #[arg(long, value_name = "DIR", requires = "seconds")]
    data: Option<PathBuf>,
    /// For how long that is recorded
    #[arg(long, value_name = "N", requires = "data", value_parser = clap::value_parser!(u64).range(1..=86_400))]
    seconds: Option<u64>,
    /// How many references are recorded of it at most
    #[arg(long, value_name = "N", default_value_t = 4_000_000, value_parser = clap::value_parser!(u64).range(1..=16_000_000))]
    references: u64,
    #[command(subcommand)]
    workload: Option<RecordedWorkload>,
}

#[derive(Subcommand)]
enum RecordedWorkload {
    DebitCredit(debit_credit::Arguments),
    PageStream(page_stream::Arguments),
    Synthetic(synthetic::Arguments),
    Tpcc(tpcc::Arguments),
    Ycsb(ycsb::Arguments),
}

/// The recording of one run.
#[derive(Default)]
pub struct Recording {
    recorder: Rc<Recorder>,
    trace: RefCell<Option<Result<Trace, Problem>>>,
}

impl Recording {
    /// What the run's workload is recorded by.
    pub fn recorder(&self) -> Rc<Recorder> {
        Rc::clone(&self.recorder)
    }

    /// What was recorded, if a run has ended.
    pub fn take(&self) -> Option<Result<Trace, Problem>> {
        self.trace.take()
    }

    /// The run has ended; its database is still open.
    pub fn finish(&self, database: &Database) {
        self.trace.replace(Some(self.recorder.trace(database)));
    }
}

pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    // What cannot be written is better known before the run than after it.
    files::must_not_exist(&arguments.out)?;
    let workload = match (&arguments.workload, &arguments.data, arguments.seconds) {
        (Some(workload), None, None) => workload,
        (None, Some(directory), Some(seconds)) => {
            return record_open(arguments, directory, Duration::from_secs(seconds));
        }
        (None, ..) => return Err("name a benchmark, or an open database with --data DIR and --seconds N".into()),
        _ => return Err("--data is for a database that another program has open: leave the benchmark out".into()),
    };
    let recording = Recording::default();
    let (report, json) = match workload {
        RecordedWorkload::DebitCredit(arguments) => {
            if arguments.threads {
                return Err("--threads cannot be recorded: its clients call a procedure; leave it out".into());
            }
            let run = |progress: &_| debit_credit::run(arguments, Some(&recording), progress);
            (bench::watched("debit-credit", run)?, arguments.terms.setup.json)
        }
        RecordedWorkload::PageStream(arguments) => {
            let run = |progress: &_| page_stream::run(arguments, Some(&recording), progress);
            (bench::watched("page-stream", run)?, arguments.terms.setup.json)
        }
        RecordedWorkload::Synthetic(arguments) => {
            let run = |progress: &_| synthetic::run(arguments, Some(&recording), progress);
            (bench::watched("synthetic", run)?, arguments.terms.setup.json)
        }
        RecordedWorkload::Tpcc(arguments) => {
            let run = |progress: &_| tpcc::run(arguments, Some(&recording), progress);
            (bench::watched("tpcc", run)?, arguments.terms.setup.json)
        }
        RecordedWorkload::Ycsb(arguments) => {
            let run = |progress: &_| ycsb::run(arguments, Some(&recording), progress);
            (bench::watched("ycsb", run)?, arguments.terms.setup.json)
        }
    };
    let trace = recording.trace.take().ok_or("the run has recorded nothing")??;
    write(&arguments.out, &trace, arguments.text)?;
    print(&if json { report.to_json() } else { report.to_text() })
}

/// Has the program that has a database open record what its transactions reference.
fn record_open(arguments: &Arguments, directory: &Path, span: Duration) -> Result<(), Failure> {
    let progress = Progress::start("trace record");
    progress.phase("recording", 0);
    let recorded = Opening::in_directory(directory)?.record_elsewhere(span, arguments.references)?;
    let place = directory.display();
    let recorded = recorded.ok_or_else(|| {
        format!("no program listens for others in '{place}': open the database in one whose configuration has no [driver] socket = false")
    })?;
    progress.finish();
    if recorded.transactions.is_empty() {
        return Err(format!(
            "no transaction began and committed in '{place}' within {} s: record for longer",
            span.as_secs()
        )
        .into());
    }
    write(&arguments.out, &of_references(&recorded)?, arguments.text)?;
    let references: usize = recorded.transactions.iter().map(Vec::len).sum();
    let counted = format!(
        "{} transactions, {} references",
        grouped(recorded.transactions.len() as u64),
        grouped(references as u64)
    );
    let ended = if recorded.is_full { "; it ended early, when it had as many references as it may" } else { "" };
    print(&format!("{counted}{ended}"))
}
