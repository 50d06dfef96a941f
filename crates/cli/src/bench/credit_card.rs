//! The credit-card workload of System M: load if need be, warm up, measure, add everything up, report.

use super::session::{self, Run};
use super::terms::Terms;
use super::{cards, positive};
use crate::progress::Progress;
use crate::report::RunReport;
use crate::{Failure, opening};
use clap::Args;
use std::path::PathBuf;
use workload::credit_card::CreditCard;
use workload::{Load, Plan};

/// Credit cards (System M): checks, purchases and payments on four memory-resident sets
#[derive(Args)]
#[command(after_help = "Examples:\n  \
    entresol bench credit-card --clients 64 --seconds 30\n  \
    entresol bench credit-card --hardware vax-11-785 --seconds 60\n  \
    entresol bench credit-card --config entresol.toml --json")]
pub struct Arguments {
    /// Directory of the database, created if missing
    #[arg(long, value_name = "DIR", default_value = "credit-card.data")]
    pub data: PathBuf,
    /// Accounts; as many customers, and stores one for eight [default: as loaded, or 40,000]
    #[arg(long, value_name = "ACCOUNTS", value_parser = clap::value_parser!(u64).range(2..=4_000_000_000))]
    pub scale: Option<u64>,
    /// Clients, each with one transaction at a time
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=65_536), conflicts_with = "rate")]
    pub clients: u32,
    /// In place of clients: transactions arrive so often, at random (Poisson)
    #[arg(long, value_name = "TPS", value_parser = positive)]
    pub rate: Option<f64>,
    #[command(flatten)]
    pub terms: Terms,
}

/// Loads the database if it is new, warms up, measures, and checks that money adds up.
pub fn run(arguments: &Arguments, progress: &Progress) -> Result<RunReport, Failure> {
    let terms = &arguments.terms;
    let opening = terms.opening(&arguments.data, terms.configuration(&arguments.data)?);
    let opening = opening.procedures(workload::credit_card::procedures);
    let store = opening::open(opening, progress)?;
    let tables = cards::prepare(&store, arguments.scale, progress)?;
    let name = format!("credit-card, scale {}", tables.scale().accounts);
    let run = Run { name, plan: plan(arguments), recording: None };
    let sets = tables.clone();
    let report = session::measure(&store, run, progress, async |_| Ok(CreditCard(tables)))?;
    progress.phase("verifying", 0);
    cards::agreed(&store.run(async |database| cards::totals(database, &sets).await)?)?;
    session::close(store)?;
    Ok(report)
}

fn plan(arguments: &Arguments) -> Plan {
    let load = match arguments.rate {
        Some(rate_per_s) => Load::Open { rate_per_s },
        None => Load::Closed { clients: arguments.clients },
    };
    let measure = arguments.terms.measure();
    Plan { load, warm_up: measure.share(5), measure, seed: arguments.terms.seed }
}
