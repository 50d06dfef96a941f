//! Debit-Credit: load if need be, warm up, measure, report.

use super::meter::Meter;
use super::summary::{self, Headline};
use super::{bank, positive, threads};
use crate::Failure;
use crate::progress::Progress;
use crate::report::{Clock, RunReport};
use crate::trace::Recording;
use clap::Args;
use entresol::Opening;
use entresol::configuration::{Configuration, FILE_NAME};
use std::path::PathBuf;
use workload::debit_credit::{DebitCredit, Tables};
use workload::trace::record::Recorded;
use workload::{Length, Load, Measured, Plan};

/// Debit-Credit (TPC-B): account, teller and branch change, the history grows
#[derive(Args)]
#[command(after_help = "Examples:\n  \
    entresol bench debit-credit --scale 50 --clients 64 --seconds 30\n  \
    entresol bench debit-credit --threads --clients 16\n  \
    entresol bench debit-credit --hardware rahm-1991 --rate 500\n  \
    entresol bench debit-credit --config entresol.toml --json")]
pub struct Arguments {
    /// Directory of the database, created if missing
    #[arg(long, value_name = "DIR", default_value = "debit-credit.data")]
    pub data: PathBuf,
    /// Branches of 100,000 accounts [default: as loaded, or 10, 500 on rahm-1991]
    #[arg(long, value_name = "BRANCHES", value_parser = clap::value_parser!(u32).range(1..=40_000))]
    pub scale: Option<u32>,
    /// Clients, each with one transaction at a time
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=65_536), conflicts_with = "rate")]
    pub clients: u32,
    /// Clients are threads that call the engine, not tasks within its thread
    #[arg(long, conflicts_with_all = ["hardware", "rate"])]
    pub threads: bool,
    /// In place of clients: transactions arrive so often, at random (Poisson)
    #[arg(long, value_name = "TPS", value_parser = positive)]
    pub rate: Option<f64>,
    /// How long to measure, on the run's own clock
    #[arg(long, value_name = "S", default_value_t = 10.0, value_parser = positive, conflicts_with = "transactions")]
    pub seconds: f64,
    /// How many transactions to measure, in place of a time
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub transactions: Option<u64>,
    /// Seed of all random numbers
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Configuration (see 'entresol configuration') [default: DIR/entresol.toml]
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Runs on described hardware: a name ('entresol devices list') or a file
    #[arg(long, value_name = "NAME")]
    pub hardware: Option<String>,
    /// Prints the report as JSON
    #[arg(long)]
    pub json: bool,
}

/// The configuration that the arguments name.
pub fn configuration(arguments: &Arguments) -> Result<Configuration, Failure> {
    Ok(match (&arguments.config, arguments.hardware.as_deref()) {
        (None, Some(hardware)) if let Some(base) = papers::base(hardware) => {
            Configuration::from_bytes(hardware, base.as_bytes(), None)?
        }
        (None, None) => {
            let inside = arguments.data.join(FILE_NAME);
            Configuration::read(inside.is_file().then_some(inside.as_path()), None)?
        }
        (file, hardware) => Configuration::read(file.as_deref(), hardware)?,
    })
}

/// Loads the database if it is new, warms up, measures. What is referenced is recorded if `recording` is given.
pub fn run(
    arguments: &Arguments,
    configuration: Configuration,
    recording: Option<&Recording>,
    progress: &Progress,
) -> Result<RunReport, Failure> {
    let opening = Opening::new(&arguments.data, configuration).seed(arguments.seed);
    if arguments.threads {
        return threads::run(opening, arguments.scale, &plan(arguments), progress);
    }
    progress.phase("opening", 0);
    let store = opening.open()?;
    progress.warn(&store.warnings());
    let scale = bank::prepare(&store, arguments.scale, progress)?;
    store.run(async |database| bank::warm(database, |page, pages| progress.step("reading", page, pages)).await)?;
    let plan = plan(arguments);
    let mut meter = Meter::new(progress, &plan, store.is_virtual());
    let workload = DebitCredit(Tables::of(store.database(), &scale)?);
    let workload = Recorded::new(store.database(), workload, recording.map(Recording::recorder));
    let load = match plan.load {
        Load::Closed { clients } => format!("{clients} clients"),
        Load::Open { rate_per_s } => format!("{rate_per_s} arrivals/s"),
    };
    let headline = Headline {
        workload: format!("debit-credit, scale {}, {load}", scale.branches),
        seed: plan.seed,
        clock: if store.is_virtual() { Clock::Virtual } else { Clock::Real },
    };
    let report = store.run(async |database| {
        let report = |measured: Measured| summary::report(database, headline, &measured);
        workload::run::run(database, workload, &plan, &mut meter, report).await
    })?;
    if let Some(recording) = recording {
        recording.finish(store.database());
    }
    if !store.is_virtual() {
        progress.phase("verifying", 0);
        bank::agreed(&store.run(async |database| bank::totals(database, &scale).await)?)?;
        store.close()?;
    }
    Ok(report)
}

fn plan(arguments: &Arguments) -> Plan {
    let load = match arguments.rate {
        Some(rate_per_s) => Load::Open { rate_per_s },
        None => Load::Closed { clients: arguments.clients },
    };
    let measure = match arguments.transactions {
        Some(count) => Length::Transactions(count),
        None => Length::Time((arguments.seconds * 1e9) as u64),
    };
    Plan { load, warm_up: measure.share(5), measure, seed: arguments.seed }
}
