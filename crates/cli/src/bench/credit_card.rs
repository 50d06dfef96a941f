//! The credit-card workload of System M: load if need be, warm up, measure, add everything up, report.

use super::cards;
use super::session::{self, Run};
use super::terms::{ServedLoad, Terms};
use crate::Failure;
use crate::progress::Progress;
use crate::report::RunReport;
use clap::Args;
use std::path::PathBuf;
use workload::credit_card::CreditCard;

/// Credit cards (System M): checks, purchases, payments on four memory-resident sets
#[derive(Args, Clone, Debug)]
#[command(after_help = "Examples:\n  \
    entresol bench credit-card --clients 64 --seconds 30\n  \
    entresol bench credit-card --server --full\n  \
    entresol bench credit-card --hardware vax-11-785 --full --seconds 60\n  \
    entresol bench credit-card --config entresol.toml --json")]
pub struct Arguments {
    /// Directory of the database, created if missing
    #[arg(long, value_name = "DIR", default_value = "credit-card.data")]
    pub data: PathBuf,
    /// Accounts, one of eight a store [default: as loaded, or 40,000]
    #[arg(long, value_name = "ACCOUNTS", value_parser = clap::value_parser!(u64).range(2..=4_000_000_000))]
    pub scale: Option<u64>,
    #[command(flatten)]
    pub load: ServedLoad,
    #[command(flatten)]
    pub terms: Terms,
}

/// Loads the database if it is new, warms up, measures, and checks that money adds up.
pub fn run(arguments: &Arguments, progress: &Progress) -> Result<RunReport, Failure> {
    let terms = &arguments.terms;
    let configuration = arguments.load.configured(terms.configuration(&arguments.data)?);
    let opening = terms.opening(&arguments.data, configuration);
    let opening = opening.procedures(workload::credit_card::procedures);
    let store = terms.open(opening, progress)?;
    let tables = cards::prepare(&store, arguments.scale, progress)?;
    let name = format!("credit-card, scale {}", tables.scale().accounts);
    let run = Run {
        name,
        plan: terms.plan(arguments.load.load()),
        course: terms.course,
        cold: terms.is_cold(),
        recording: None,
    };
    let sets = tables.clone();
    let report = session::measure(&store, run, progress, async |_| Ok(CreditCard(tables)))?;
    progress.phase("verifying", 0);
    cards::agreed(&store.run(async |database| cards::totals(database, &sets).await)?)?;
    session::close(store)?;
    Ok(report)
}
