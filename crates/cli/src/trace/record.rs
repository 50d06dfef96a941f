//! `entresol trace record`: a benchmark whose references are written down.

use super::write;
use crate::bench::{self, debit_credit, page_stream, synthetic, tpcc, ycsb};
use crate::{Failure, files, print};
use clap::{Args, Subcommand};
use entresol::Database;
use std::cell::RefCell;
use std::path::PathBuf;
use std::rc::Rc;
use workload::trace::record::Recorder;
use workload::trace::{Problem, Trace};

/// Runs a benchmark and writes down what the engine referenced, warm-up included
///
/// Transactions stand in the order of their beginnings; those that were rolled back are left out.
#[derive(Args)]
#[command(
    verbatim_doc_comment,
    after_help = "Example:\n  entresol trace record bank.trace debit-credit --hardware rahm-1991 --transactions 1000"
)]
pub struct Arguments {
    /// The new file
    out: PathBuf,
    /// Writes text, not binary
    #[arg(long)]
    text: bool,
    #[command(subcommand)]
    workload: RecordedWorkload,
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
    let recording = Recording::default();
    let (report, json) = match &arguments.workload {
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
