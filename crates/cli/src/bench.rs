//! `entresol bench`: a workload, a run, a report.

mod debit_credit;

use crate::progress::Progress;
use crate::{Failure, print};
use clap::{Args, Subcommand};
use std::path::PathBuf;

/// Runs a workload and reports throughput, response time and where it went
#[derive(Args)]
#[command(arg_required_else_help = true, after_help = "Example:\n  entresol bench debit-credit --clients 64")]
pub struct Arguments {
    #[command(subcommand)]
    workload: Workload,
}

#[derive(Subcommand)]
enum Workload {
    DebitCredit(DebitCredit),
}

/// Debit-Credit (TPC-B): account, teller and branch change, the history grows
#[derive(Args)]
#[command(after_help = "Examples:\n  \
    entresol bench debit-credit --scale 50 --clients 64 --seconds 30\n  \
    entresol bench debit-credit --hardware rahm-1991 --rate 500\n  \
    entresol bench debit-credit --config entresol.toml --json")]
pub struct DebitCredit {
    /// Directory of the database, created if missing
    #[arg(long, value_name = "DIR", default_value = "debit-credit.data")]
    pub data: PathBuf,
    /// Number of branches; each has 10 tellers and 100,000 accounts [default: 10; 500 on rahm-1991]
    #[arg(long, value_name = "BRANCHES", value_parser = clap::value_parser!(u32).range(1..=40_000))]
    pub scale: Option<u32>,
    /// Clients, each with one transaction at a time
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=65_536), conflicts_with = "rate")]
    pub clients: u32,
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
    /// Configuration file (see 'entresol configuration')
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Runs on described hardware: a name ('entresol devices list') or a file
    #[arg(long, value_name = "NAME")]
    pub hardware: Option<String>,
    /// Prints the report as JSON
    #[arg(long)]
    pub json: bool,
}

/// A number above zero.
pub fn positive(text: &str) -> Result<f64, String> {
    let number = text.parse::<f64>().ok().filter(|number| *number > 0.0 && number.is_finite());
    number.ok_or_else(|| "not a number above zero".to_owned())
}

pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    match &arguments.workload {
        Workload::DebitCredit(arguments) => {
            let configuration = debit_credit::configuration(arguments)?;
            let progress = Progress::start("debit-credit");
            let report = debit_credit::run(arguments, configuration, &progress)?;
            progress.finish();
            print(&if arguments.json { report.to_json() } else { report.to_text() })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_above_zero() {
        assert_eq!(positive("2.5"), Ok(2.5));
        for text in ["0", "-1", "inf", "nan", "", "ten"] {
            assert!(positive(text).is_err(), "{text}");
        }
    }
}
