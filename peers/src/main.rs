//! Debit-Credit (TPC-B) and TPC-C on Entresol and beside it on other storage engines, on one machine and with one generator.

mod bank;
mod bench;
mod changed_rows;
mod closed_loop;
mod cpu;
mod engines;
mod gets;
mod peer;
mod report;
mod tpcc;
#[cfg(feature = "rocksdb")]
mod update_commit;

use bank::Scale;
use bench::Settings;
use clap::{Args, Parser, Subcommand};
use engines::{CONTENDERS, Contender};
use peer::{Durability, Grouping};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

#[derive(Parser)]
#[command(about = "Benchmarks beside other storage engines")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// TPC-B: accounts, tellers, branches, history; clients without think time.
    DebitCredit(DebitCredit),
    /// TPC-C: five types of transactions on nine tables; clients without keying and thinking times.
    Tpcc(tpcc::Arguments),
    /// One record read at a time by 1 to 64 threads, everything in memory: Entresol through a handle, RocksDB, SQLite.
    Gets(Gets),
    /// Lists the engines.
    Engines,
    /// One record updated, then a commit, on RocksDB with synced writes: what update-commit.py sets beside Entresol.
    #[cfg(feature = "rocksdb")]
    UpdateCommit(UpdateCommit),
}

/// As `entresol bench update-commit` has them.
#[cfg(feature = "rocksdb")]
#[derive(Args)]
struct UpdateCommit {
    /// Numbers of threads, one run for each.
    #[arg(long, value_delimiter = ',', default_value = "1,4,16,64", value_parser = clap::value_parser!(u16).range(1..=4096))]
    clients: Vec<u16>,
    /// How long each run is measured.
    #[arg(long, default_value_t = 2.0, value_parser = seconds)]
    seconds: f64,
    /// How many records.
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(4096..))]
    records: u64,
    /// Bytes of a record.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u16).range(8..))]
    record_size: u16,
    /// A missing directory for the database, which is removed in the end.
    #[arg(long, default_value = "data")]
    data: PathBuf,
    /// What all keys derive from.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

#[derive(Args)]
struct Gets {
    /// Numbers of threads, one run for each.
    #[arg(long, value_delimiter = ',', default_value = "1,2,8,64", value_parser = clap::value_parser!(u16).range(1..=4096))]
    threads: Vec<u16>,
    /// How long each run is measured.
    #[arg(long, default_value_t = 1.0, value_parser = seconds)]
    seconds: f64,
    /// Rounds in which all engines take turns; medians are reported.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..=100))]
    rounds: u16,
    /// How many records.
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    records: u64,
    /// Bytes of a record.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u16).range(1..=1024))]
    record_size: u16,
    /// A missing directory for the databases, which is removed in the end.
    #[arg(long, default_value = "data")]
    data: PathBuf,
    /// What all keys derive from.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// JSON instead of a table.
    #[arg(long)]
    json: bool,
}

#[derive(Args)]
struct DebitCredit {
    /// When a transaction is acknowledged: once durable, or at once (then one client on one thread).
    #[arg(long, value_enum, default_value = "sync")]
    durability: Durability,
    /// Concurrent clients.
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u16).range(1..=4096))]
    clients: u16,
    /// How long each run is measured.
    #[arg(long, default_value_t = 10.0, value_parser = seconds)]
    seconds: f64,
    /// How long each run goes on before it is measured.
    #[arg(long, default_value_t = 2.0, value_parser = seconds)]
    warm_up: f64,
    /// Engines, separated by commas; all if left out.
    #[arg(long, value_delimiter = ',', value_parser = contender)]
    engines: Vec<&'static str>,
    /// Groupings, separated by commas; all that make sense if left out.
    #[arg(long, value_enum, value_delimiter = ',')]
    groupings: Vec<Grouping>,
    /// Branches; each has 10 tellers and 100,000 accounts.
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u64).range(1..=1_000))]
    scale: u64,
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

fn seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.0..=86_400.0).contains(&seconds) => Ok(seconds),
        _ => Err("a number of seconds from 0 to 86400 is needed".to_owned()),
    }
}

fn contender(name: &str) -> Result<&'static str, String> {
    let names: Vec<_> = CONTENDERS.iter().map(|contender| contender.name).collect();
    let found = names.iter().find(|known| **known == name);
    found.copied().ok_or_else(|| format!("the engines are {}", names.join(", ")))
}

fn main() -> ExitCode {
    match Arguments::parse().command {
        Command::Engines => {
            for contender in CONTENDERS {
                println!("{:22} {:26} {}", contender.name, contender.version, contender.about);
            }
            ExitCode::SUCCESS
        }
        Command::DebitCredit(arguments) => debit_credit(&arguments),
        Command::Gets(arguments) => gets(arguments),
        Command::Tpcc(arguments) => tpcc::run(&arguments),
        #[cfg(feature = "rocksdb")]
        Command::UpdateCommit(arguments) => update_commit(arguments),
    }
}

fn gets(arguments: Gets) -> ExitCode {
    let Gets { threads, seconds, rounds, records, record_size, data, seed, json } = arguments;
    if data.exists() {
        eprintln!("{} exists; remove it or choose another --data", data.display());
        return ExitCode::FAILURE;
    }
    let (measured, rounds) = (Duration::from_secs_f64(seconds), rounds.into());
    let plan = gets::Plan { threads, measured, rounds, records, record_size: record_size.into(), seed };
    let result = gets::run(&data, &plan);
    if let Err(error) = std::fs::remove_dir_all(&data) {
        eprintln!("{}: {error}", data.display());
    }
    match result {
        Ok((_, report)) if json => println!("{report:#}"),
        Ok((table, _)) => println!("{table}"),
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

#[cfg(feature = "rocksdb")]
fn update_commit(arguments: UpdateCommit) -> ExitCode {
    let UpdateCommit { clients, seconds, records, record_size, data, seed } = arguments;
    if data.exists() {
        eprintln!("{} exists; remove it or choose another --data", data.display());
        return ExitCode::FAILURE;
    }
    let measured = Duration::from_secs_f64(seconds);
    let plan = update_commit::Plan { clients, measured, records, record_size: record_size.into(), seed };
    let result = update_commit::run(&data, &plan);
    if let Err(error) = std::fs::remove_dir_all(&data) {
        eprintln!("{}: {error}", data.display());
    }
    match result {
        Ok(results) => {
            println!("{}", serde_json::Value::Array(results));
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("rocksdb: {error}");
            ExitCode::FAILURE
        }
    }
}

fn debit_credit(arguments: &DebitCredit) -> ExitCode {
    let settings = Settings {
        durability: arguments.durability,
        clients: if arguments.durability == Durability::Off { 1 } else { usize::from(arguments.clients) },
        scale: Scale(arguments.scale),
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
