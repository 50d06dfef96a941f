//! The workloads that run on either clock: what `entresol bench` runs on the one that is named, and what can be predicted.

use super::page_server::{self, PageServerReport};
use super::spill::SpillReport;
use super::terms::{Setup, Terms};
use super::{credit_card, debit_credit, join, page_stream, sort, synthetic, tpcc, trace, ycsb};
use crate::Failure;
use crate::node::joining::Joining;
use crate::progress::Progress;
use crate::report::RunReport;
use clap::Subcommand;
use std::net::SocketAddr;
use std::path::Path;

/// A workload with its parameters.
#[derive(Clone, Debug, Subcommand)]
pub enum OnEitherClock {
    CreditCard(credit_card::Arguments),
    DebitCredit(debit_credit::Arguments),
    Join(join::Arguments),
    PageServer(page_server::Arguments),
    PageStream(page_stream::Arguments),
    Sort(sort::Arguments),
    Synthetic(synthetic::Arguments),
    Tpcc(tpcc::Arguments),
    Trace(trace::Arguments),
    Ycsb(ycsb::Arguments),
}

/// What came of a run.
#[derive(Clone, Debug)]
pub enum Outcome {
    /// Of transactions.
    Transactions(Box<RunReport>),
    /// Of a sort or a join.
    Spill(Box<SpillReport>),
    /// Of a page server and its nodes.
    PageServer(Box<PageServerReport>),
}

impl Outcome {
    /// The report for programs.
    pub fn to_json(&self) -> String {
        match self {
            Outcome::Transactions(report) => report.to_json(),
            Outcome::Spill(report) => report.to_json(),
            Outcome::PageServer(report) => report.to_json(),
        }
    }

    /// The report for people, at most 100 columns wide.
    pub fn to_text(&self) -> String {
        match self {
            Outcome::Transactions(report) => report.to_text(),
            Outcome::Spill(report) => report.to_text(),
            Outcome::PageServer(report) => report.to_text(),
        }
    }
}

/// Does the same with the arguments of each workload.
macro_rules! with_arguments {
    ($workload:expr, $arguments:ident => $result:expr) => {
        match $workload {
            OnEitherClock::CreditCard($arguments) => $result,
            OnEitherClock::DebitCredit($arguments) => $result,
            OnEitherClock::Join($arguments) => $result,
            OnEitherClock::PageServer($arguments) => $result,
            OnEitherClock::PageStream($arguments) => $result,
            OnEitherClock::Sort($arguments) => $result,
            OnEitherClock::Synthetic($arguments) => $result,
            OnEitherClock::Tpcc($arguments) => $result,
            OnEitherClock::Trace($arguments) => $result,
            OnEitherClock::Ycsb($arguments) => $result,
        }
    };
}

impl OnEitherClock {
    /// What it is called.
    pub fn name(&self) -> &'static str {
        match self {
            OnEitherClock::CreditCard(_) => "credit-card",
            OnEitherClock::DebitCredit(_) => "debit-credit",
            OnEitherClock::Join(_) => "join",
            OnEitherClock::PageServer(_) => "page-server",
            OnEitherClock::PageStream(_) => "page-stream",
            OnEitherClock::Sort(_) => "sort",
            OnEitherClock::Synthetic(_) => "synthetic",
            OnEitherClock::Tpcc(_) => "tpcc",
            OnEitherClock::Trace(_) => "trace",
            OnEitherClock::Ycsb(_) => "ycsb",
        }
    }

    /// The server that it joins, if it is to run through a node, and how; the node's clients, and its terms.
    pub fn joins(&self) -> Option<(SocketAddr, &Joining, Option<u32>, &Terms)> {
        let (server, joining, clients, terms) = match self {
            OnEitherClock::DebitCredit(run) => (run.join, &run.joining, run.load.clients, &run.terms),
            OnEitherClock::Tpcc(run) => (run.join, &run.joining, run.load.clients, &run.terms),
            OnEitherClock::Ycsb(run) => (run.join, &run.joining, run.load.clients, &run.terms),
            _ => return None,
        };
        server.map(|server| (server, &**joining, clients, terms))
    }

    /// What it runs on.
    pub fn setup(&self) -> &Setup {
        with_arguments!(self, arguments => &arguments.terms.setup)
    }

    /// The same, to be changed.
    pub fn setup_mut(&mut self) -> &mut Setup {
        with_arguments!(self, arguments => &mut arguments.terms.setup)
    }

    /// Its directory.
    pub fn data(&self) -> &Path {
        with_arguments!(self, arguments => &arguments.data)
    }

    /// The terms of a run of transactions; `None` of a sort or a join.
    pub fn terms_mut(&mut self) -> Option<&mut Terms> {
        match self {
            OnEitherClock::CreditCard(arguments) => Some(&mut arguments.terms),
            OnEitherClock::DebitCredit(arguments) => Some(&mut arguments.terms),
            OnEitherClock::PageServer(arguments) => Some(&mut arguments.terms),
            OnEitherClock::PageStream(arguments) => Some(&mut arguments.terms),
            OnEitherClock::Synthetic(arguments) => Some(&mut arguments.terms),
            OnEitherClock::Tpcc(arguments) => Some(&mut arguments.terms),
            OnEitherClock::Trace(arguments) => Some(&mut arguments.terms),
            OnEitherClock::Ycsb(arguments) => Some(&mut arguments.terms),
            OnEitherClock::Join(_) | OnEitherClock::Sort(_) => None,
        }
    }

    /// Runs it on the clock that its setup names.
    pub fn run(&self, progress: &Progress) -> Result<Outcome, Failure> {
        let report = match self {
            OnEitherClock::CreditCard(arguments) => credit_card::run(arguments, progress)?,
            OnEitherClock::DebitCredit(arguments) => debit_credit::run(arguments, None, progress)?,
            OnEitherClock::Join(arguments) => return Ok(Outcome::Spill(Box::new(join::run(arguments, progress)?))),
            OnEitherClock::PageServer(arguments) => {
                return Ok(Outcome::PageServer(Box::new(page_server::run(arguments, progress)?)));
            }
            OnEitherClock::PageStream(arguments) => page_stream::run(arguments, None, progress)?,
            OnEitherClock::Sort(arguments) => return Ok(Outcome::Spill(Box::new(sort::run(arguments, progress)?))),
            OnEitherClock::Synthetic(arguments) => synthetic::run(arguments, None, progress)?,
            OnEitherClock::Tpcc(arguments) => tpcc::run(arguments, None, progress)?,
            OnEitherClock::Trace(arguments) => trace::run(arguments, progress)?,
            OnEitherClock::Ycsb(arguments) => ycsb::run(arguments, None, progress)?,
        };
        Ok(Outcome::Transactions(Box::new(report)))
    }
}
