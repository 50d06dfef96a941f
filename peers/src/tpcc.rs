//! TPC-C on Entresol and beside it on other engines: one generator, one population, the consistency conditions of one program.
//!
//! The peers run the five transactions of `transactions.rs` on ordered tables of keys and rows; Entresol runs its own workload.

mod bench;
mod conditions;
mod engines;
mod peer;
mod report;
mod requests;
mod tables;
mod transactions;

use crate::peer::{Durability, Grouping};
use base::units::parse_size;
use bench::Settings;
use clap::Args;
use engines::{CONTENDERS, Contender};
use peer::Opening;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;
use workload::tpcc::Scale;

/// How TPC-C is run.
#[derive(Args)]
pub struct Arguments {
    /// When a transaction is acknowledged: once durable, or at once (then one client on one thread).
    #[arg(long, value_enum, default_value = "sync")]
    durability: Durability,
    /// Concurrent clients.
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u16).range(1..=4096))]
    clients: u16,
    /// How long each run is measured.
    #[arg(long, default_value_t = 10.0, value_parser = crate::seconds)]
    seconds: f64,
    /// How long each run goes on before it is measured.
    #[arg(long, default_value_t = 2.0, value_parser = crate::seconds)]
    warm_up: f64,
    /// Engines, separated by commas; all if left out.
    #[arg(long, value_delimiter = ',', value_parser = contender)]
    engines: Vec<&'static str>,
    /// Groupings, separated by commas; all that make sense if left out.
    #[arg(long, value_enum, value_delimiter = ',')]
    groupings: Vec<Grouping>,
    /// Warehouses, about 100 MB each.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    warehouses: u32,
    /// For trials: 1/FACTOR of the customers and items.
    #[arg(long, value_name = "FACTOR", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100))]
    shrink: u32,
    /// What each engine may cache; LMDB, which has no cache of its own, takes what the system gives.
    #[arg(long, default_value = "4 GiB", value_parser = bytes)]
    cache: usize,
    /// Where the databases lie while they are measured.
    #[arg(long, default_value = "data")]
    data: PathBuf,
    /// Runs of each engine and grouping; medians are reported.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..=100))]
    runs: u16,
    /// What all requests derive from.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// JSON instead of a table.
    #[arg(long)]
    json: bool,
}

fn bytes(text: &str) -> Result<usize, String> {
    match parse_size(text) {
        Ok(bytes) if bytes >= 16 << 20 => usize::try_from(bytes).map_err(|error| error.to_string()),
        Ok(_) => Err("at least 16 MiB is needed".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

fn contender(name: &str) -> Result<&'static str, String> {
    let names: Vec<_> = CONTENDERS.iter().map(|contender| contender.name).collect();
    let found = names.iter().find(|known| **known == name);
    found.copied().ok_or_else(|| format!("the engines are {}", names.join(", ")))
}

/// Runs all engines and prints what came out.
pub fn run(arguments: &Arguments) -> ExitCode {
    let durability = arguments.durability;
    let settings = Settings {
        opening: Opening { durability, cache_bytes: arguments.cache },
        clients: if durability == Durability::Off { 1 } else { usize::from(arguments.clients) },
        scale: Scale::warehouses(arguments.warehouses).shrunk(arguments.shrink),
        measured: Duration::from_secs_f64(arguments.seconds),
        warm_up: Duration::from_secs_f64(arguments.warm_up),
        runs: usize::from(arguments.runs),
        seed: arguments.seed,
        data: arguments.data.clone(),
        groupings: arguments.groupings.clone(),
    };
    let wanted = |contender: &&Contender| arguments.engines.is_empty() || arguments.engines.contains(&contender.name);
    let mut failed = false;
    let mut results = Vec::new();
    for contender in CONTENDERS.iter().filter(wanted).filter(|one| !settings.groupings_of(one).is_empty()) {
        match bench::run(contender, &settings, &|text| eprintln!("{text}")) {
            Ok(result) => results.push(result),
            Err(error) => {
                eprintln!("{error}");
                failed = true;
            }
        }
    }
    if arguments.json {
        println!("{:#}", report::json(&settings, &results));
    } else {
        println!("{}", report::table(&results));
    }
    if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}
