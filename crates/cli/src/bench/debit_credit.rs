//! Debit-Credit: load if need be, warm up, measure, report.

use super::session::{self, Run};
use super::terms::{self, ServedLoad, Terms};
use super::{bank, threads};
use crate::Failure;
use crate::node::protection::usage;
use crate::progress::Progress;
use crate::report::RunReport;
use crate::trace::Recording;
use clap::Args;
use entresol::Opening;
use entresol::configuration::Nodes;
use std::net::SocketAddr;
use std::path::PathBuf;
use workload::debit_credit::{DebitCredit, Tables};

/// Debit-Credit (TPC-B): account, teller and branch change, the history grows
#[derive(Args, Clone, Debug)]
#[command(
    next_line_help = true,
    after_help = "Examples:\n  \
    entresol bench debit-credit --scale 50 --clients 64 --seconds 30\n  \
    entresol bench debit-credit --threads --clients 16\n  \
    entresol bench debit-credit --nodes 2 --clients 64\n  \
    entresol bench debit-credit --server --full\n  \
    entresol bench debit-credit --hardware rahm-1991 --rate 500\n  \
    entresol bench debit-credit --config entresol.toml --json\n  \
    entresol bench debit-credit --join 127.0.0.1:7171 --clients 16 --seconds 30"
)]
pub struct Arguments {
    /// Directory of the database, created if missing
    #[arg(long, value_name = "DIR", default_value = "debit-credit.data")]
    pub data: PathBuf,
    /// Branches of 100,000 accounts [default: as loaded, or 10, 500 on rahm-1991]
    #[arg(long, value_name = "BRANCHES", value_parser = clap::value_parser!(u32).range(1..=40_000))]
    pub scale: Option<u32>,
    #[command(flatten)]
    pub load: ServedLoad,
    /// Clients are threads that call the engine (or nodes), not tasks within its thread
    #[arg(long, conflicts_with_all = ["hardware", "rate", "full", "course"])]
    pub threads: bool,
    /// N nodes beside a server share the database, also if N is 1 [default: as configured]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(Nodes::COUNT_MAX)), conflicts_with = "hardware")]
    pub nodes: Option<u32>,
    /// Joins a server ('node --serve') and runs on copies of its pages; one client by default
    #[arg(long, value_name = "ADDRESS", value_parser = crate::node::protection::address, conflicts_with_all = [
        "data", "scale", "rate", "server", "full", "threads", "nodes", "hardware", "like", "course", "cold",
    ])]
    pub join: Option<SocketAddr>,
    #[command(flatten)]
    pub joining: Box<crate::node::joining::Joining>,
    #[command(flatten)]
    pub terms: Terms,
}

impl Arguments {
    /// What is opened if nodes are asked for, or the configuration says that there are several, for a run that is theirs.
    pub fn on_nodes(&self) -> Result<Option<Opening>, Failure> {
        let configuration = self.terms.configuration(&self.data)?;
        if configuration.hardware.is_some() && self.nodes.is_some() {
            return Err(usage("--nodes are threads of this machine, and the configuration names hardware".to_owned()));
        }
        let count = self.nodes.unwrap_or(configuration.nodes.count);
        let are_meant = configuration.hardware.is_none() && (count > 1 || self.nodes.is_some());
        Ok(are_meant.then(|| self.terms.opening(&self.data, configuration).nodes(count)))
    }
}

/// Loads the database if it is new, warms up, measures. What is referenced is recorded if `recording` is given.
pub fn run(arguments: &Arguments, recording: Option<&Recording>, progress: &Progress) -> Result<RunReport, Failure> {
    let terms = &arguments.terms;
    if arguments.join.is_some() {
        return Err("only 'entresol bench' joins a server".into());
    }
    if arguments.nodes.is_some() {
        return Err("only 'entresol bench' runs on nodes".into());
    }
    terms::without_server(&arguments.joining)?;
    let configuration = arguments.load.configured(terms.configuration(&arguments.data)?);
    let scale = bank::scale(&configuration, arguments.scale);
    let opening = terms.opening(&arguments.data, configuration).procedures(move || bank::procedures(&scale));
    if arguments.threads {
        return threads::run(opening, arguments.scale, &terms.plan(arguments.load.load()), progress);
    }
    let store = terms.open(opening, progress)?;
    let scale = bank::prepare(&store, arguments.scale, progress)?;
    let warm = |page, pages| progress.step("reading", page, pages);
    if !terms.is_cold() {
        store.run(async |database| bank::warm(database, &bank::WARMED, warm).await)?;
    }
    let name = format!("debit-credit, scale {}", scale.branches);
    let run =
        Run { name, plan: terms.plan(arguments.load.load()), course: terms.course, cold: terms.is_cold(), recording };
    let report = session::measure(&store, run, progress, async |database| {
        Ok(DebitCredit(Tables::of(database.catalog(), &scale)?))
    })?;
    if !store.is_virtual() {
        progress.phase("verifying", 0);
        bank::agreed(&store.run(async |database| bank::totals(database, &scale).await)?)?;
    }
    session::close(store)?;
    Ok(report)
}
