//! An index built on the accounts of Debit-Credit beside its clients: how long it takes, and their rate meanwhile.
//! `cargo run --release -p entresol --example index_build [BRANCHES [DIR]]`; 50 branches are 5,000,000 accounts.

use base::time::SECOND_NS;
use base::units::{format_duration_ns, grouped};
use engine::catalog::Organization;
use entresol::configuration::Configuration;
use entresol::{Database, FieldType, IndexSpec, Opening, PartitionSpec, RecordType};
use std::cell::RefCell;
use std::rc::Rc;
use workload::debit_credit::{self, ACCOUNT, DebitCredit, HISTORY, Scale, Tables};
use workload::run::Unwatched;
use workload::{Length, Load, Plan};

const CLIENTS: u32 = 64;
/// Seconds of Debit-Credit alone, before and after each index.
const ALONE: u64 = 5;

/// Transactions per second in a second of Debit-Credit.
async fn rate(database: &Database, tables: &Tables, seed: u64) -> entresol::Result<f64> {
    let plan = Plan {
        load: Load::Closed { clients: CLIENTS },
        warm_up: Length::Time(0),
        measure: Length::Time(SECOND_NS),
        seed,
    };
    let per_s = |measured: workload::Measured| measured.transactions as f64 * 1e9 / measured.elapsed_ns as f64;
    workload::run::run(database, DebitCredit(tables.clone()), &plan, &mut Unwatched, per_s).await
}

fn mean(rates: &[f64]) -> u64 {
    (rates.iter().sum::<f64>() / rates.len().max(1) as f64) as u64
}

async fn build(database: &Database, tables: &Tables, spec: IndexSpec) -> entresol::Result<()> {
    let (name, accounts) = (spec.name.clone(), database.partition(ACCOUNT)?);
    let (mut before, mut meanwhile) = (Vec::new(), Vec::new());
    for second in 0..ALONE {
        before.push(rate(database, tables, second).await?);
    }
    let took = Rc::new(RefCell::new(None));
    let building = database.executor().spawn({
        let (database, took) = (database.clone(), Rc::clone(&took));
        async move {
            let began = database.executor().now();
            let built = database.create_index(accounts, spec).await;
            took.replace(Some(database.executor().now().since_ns(began)));
            built
        }
    });
    while took.borrow().is_none() {
        meanwhile.push(rate(database, tables, 100 + meanwhile.len() as u64).await?);
    }
    building.join().await?;
    let ns = took.borrow().unwrap_or_default();
    println!(
        "{name}: built in {}; {} transactions/s before, {} meanwhile",
        format_duration_ns(ns as f64),
        grouped(mean(&before)),
        grouped(mean(&meanwhile))
    );
    let mut after = Vec::new();
    for second in 0..ALONE {
        after.push(rate(database, tables, 200 + second).await?);
    }
    println!("{name}: {} transactions/s after", grouped(mean(&after)));
    database.drop_index(accounts, &name).await
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let branches: u64 = arguments.next().map_or(Ok(50), |number| number.parse())?;
    let directory = arguments.next().unwrap_or_else(|| "index-build.data".to_owned());
    let settings = "[log]\nsize = \"1 GiB\"\n[buffer]\nsize = \"2 GiB\"";
    let store = Opening::new(&directory, Configuration::parse(settings)?).open()?;
    let scale = Scale::tpc_b(branches);
    let fields = [("balance", FieldType::I64), ("district", FieldType::U32), ("filler", FieldType::Array(80))];
    let account = RecordType::new(fields)?;
    store.run(async |database| {
        let spec = |name: &str| -> entresol::Result<PartitionSpec> {
            Ok(match name {
                ACCOUNT => PartitionSpec::b_tree(name).record(account.clone()),
                HISTORY => PartitionSpec::append(name),
                _ => PartitionSpec::new(name, Organization::BTree, entresol::Locking::Record),
            })
        };
        debit_credit::load(database, &scale, spec, |_| {}).await?;
        let tables = Tables::of(database.catalog(), &scale)?;
        println!("{} accounts", grouped(scale.accounts()));
        // One that transactions do not change, and one in which each of them moves an entry.
        build(database, &tables, IndexSpec::new("by_district", &["district"])).await?;
        build(database, &tables, IndexSpec::new("by_balance", &["balance"])).await
    })?;
    store.close()?;
    Ok(std::fs::remove_dir_all(directory)?)
}
