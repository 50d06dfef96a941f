//! The process that is tortured: opens a database, shows what it holds, and changes it until it is killed. What it says on its
//! standard output is kept whatever happens to it.

use crate::description::{Backend, Description, EXTRA_RECORDS, KINDS, NOTES};
use base::Random;
use driver::FaultKind;
use engine::catalog::{Locking, Organization};
use entresol::configuration::Configuration;
use entresol::{Database, Direction, Error, OpenError, Opening, PartitionSpec, Result, Store, Transaction};
use std::cell::Cell;
use std::fmt::Display;
use std::ops::Bound;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;
use torture::ledger::Transfer;

/// The arguments on the process's command line.
#[derive(Clone, Debug)]
pub struct Orders {
    /// The way to the kernel.
    pub backend: Backend,
    /// The directory that holds its database and devices.
    pub directory: String,
    /// The database's name there.
    pub name: String,
    /// Draws how the database is configured.
    pub seed: u64,
    /// Which process of this database it is.
    pub opening: u64,
    /// Whether the database is known to be there.
    pub existing: bool,
    /// Whether it only looks, and closes the database.
    pub looks: bool,
}

const ROW: usize = 60;
/// How many partitions a process creates by the way.
const EXTRAS_MAX: u64 = 3;

/// Runs as ordered, until killed if it does not only look.
pub fn run(orders: &Orders) {
    let directory = Path::new(&orders.directory);
    let description = Description::draw(orders.seed, orders.backend, directory, &orders.name);
    let configuration = Configuration::parse(&description.configuration).expect("a configuration is drawn well");
    let opening = || Opening::new(directory.join(&orders.name), configuration.clone());
    let open = || if orders.existing { opening().open_existing() } else { opening().open() };
    let store = match patiently(open) {
        Ok(store) => store,
        Err(error) => return say("unopened", &kind(&error), &error),
    };
    println!("opened");
    if let Err(error) = work(&store, orders, description) {
        say("error", &kind(&error), &error);
    }
    if orders.looks {
        match store.close() {
            Ok(()) => println!("closed"),
            Err(error) => say("error", &kind(&error), &error),
        }
    } else {
        // A database that can do no more is left to the kill.
        loop {
            std::thread::park();
        }
    }
}

/// How often an opening is tried that meets another process.
const TRIES: u32 = 100;

/// Opens the database once the process before this one is gone with all that it had under way.
#[allow(clippy::disallowed_methods, reason = "a database that is closed has no executor to wait with")]
fn patiently(open: impl Fn() -> std::result::Result<Store, OpenError>) -> std::result::Result<Store, OpenError> {
    let is_busy = |error: &OpenError| matches!(error, OpenError::Machine(fault) if fault.kind == FaultKind::Busy);
    for _ in 1..TRIES {
        match open() {
            Err(error) if is_busy(&error) => std::thread::sleep(Duration::from_millis(10)),
            opened => return opened,
        }
    }
    open()
}

fn say(what: &str, kind: &str, message: &dyn Display) {
    println!("{what} {kind} {}", message.to_string().replace('\n', " "));
}

fn kind(error: &OpenError) -> String {
    match error {
        OpenError::Engine(error) => engine_kind(error),
        OpenError::Machine(fault) => format!("{:?}", fault.kind),
        other => variant(&format!("{other:?}")),
    }
}

/// The sort of an error: the system's, or the name of its variant.
fn engine_kind(error: &Error) -> String {
    match error {
        Error::Input(fault) => format!("{:?}", fault.kind),
        Error::LogNotRelieved { cause } => format!("LogNotRelieved/{}", engine_kind(cause)),
        other => variant(&format!("{other:?}")),
    }
}

fn variant(debug: &str) -> String {
    debug.split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default().to_owned()
}

fn work(store: &Store, orders: &Orders, description: Description) -> std::result::Result<(), OpenError> {
    store.run(async |database| {
        load(database, &description).await?;
        println!("loaded");
        look(database, &description).await?;
        println!("looked");
        if !orders.looks {
            change(database, orders, &description).await;
        }
        Ok(())
    })
}

fn key(number: u64) -> [u8; 8] {
    number.to_be_bytes()
}

fn balance(row: &[u8]) -> i64 {
    row.first_chunk().map_or(0, |word| i64::from_le_bytes(*word))
}

fn add(row: &mut [u8], delta: i64) {
    let sum = balance(row) + delta;
    row[..8].copy_from_slice(&sum.to_le_bytes());
}

/// Creates and fills what is missing of the partitions: a b-tree, objects by number, a set; notes and history.
async fn load(database: &Database, description: &Description) -> Result<()> {
    let [accounts, tellers, branches] = description.rows;
    let objects = Organization::Direct { objects: tellers, blocking_factor: 5, record_size: ROW as u32 };
    let missing = [
        PartitionSpec::b_tree("account"),
        PartitionSpec::new("teller", objects, Locking::Record),
        PartitionSpec::set("branch"),
        PartitionSpec::b_tree("notes"),
        PartitionSpec::append("history"),
    ];
    for spec in missing {
        if database.partition(&spec.name).is_err() {
            database.create_partition(spec).await?;
        }
    }
    for (name, count) in [("account", accounts), ("branch", branches)] {
        let partition = database.partition(name)?;
        let mut tx = database.begin().await?;
        if tx.get(partition, &key(count - 1)).await?.is_none() {
            for number in 0..count {
                tx.put(partition, &key(number), &[0; ROW]).await?;
            }
        }
        tx.commit().await?;
    }
    Ok(())
}

/// Says what the database holds, and what a check finds.
async fn look(database: &Database, description: &Description) -> Result<()> {
    let mut tx = database.begin().await?;
    let partition = |name| database.partition(name);
    let mut history = Vec::new();
    let entry = |_, record: &[u8]| {
        history.push(hexadecimal(record));
        true
    };
    tx.scan_appended(partition("history")?, entry).await?;
    history.iter().for_each(|record| println!("history {record}"));
    for (kind, (name, count)) in KINDS.into_iter().zip(description.rows).enumerate() {
        for number in 0..count {
            let balance = match name {
                "teller" => tx.read_object(partition(name)?, number, balance).await?,
                _ => tx.get(partition(name)?, &key(number)).await?.map_or(i64::MIN, |row| balance(&row)),
            };
            if balance != 0 {
                println!("row {kind} {number} {balance}");
            }
        }
    }
    let mut cursor = tx.cursor(partition("notes")?, Bound::Unbounded, Bound::Unbounded, Direction::Forward);
    while let Some((_, value)) = tx.next(&mut cursor).await? {
        // A note is of one transaction: as long as its number says, and full of it.
        let id = value.first_chunk().map_or(0, |word| u64::from_le_bytes(*word));
        let is_whole = value == note(id);
        println!("note {id} {is_whole}");
    }
    look_at_extras(database, &mut tx).await?;
    tx.commit().await?;
    for finding in database.check(|_| ()).await?.findings {
        println!("finding {}", finding.to_string().replace('\n', " "));
    }
    Ok(())
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// What a transaction leaves in the notes: long values among them.
fn note(id: u64) -> Vec<u8> {
    let mut value = id.to_le_bytes().to_vec();
    let length = if id.is_multiple_of(7) { id % 9_000 } else { id % 300 };
    value.resize(8 + length as usize, id as u8);
    value
}

/// Says of each partition that was created by the way how many of its records are whole.
async fn look_at_extras(database: &Database, tx: &mut Transaction) -> Result<()> {
    for partition in database.partitions().iter().filter(|partition| partition.name.starts_with("extra-")) {
        let mut whole = 0;
        for number in 0..EXTRA_RECORDS {
            whole += u64::from(tx.get(partition.id(), &key(number)).await? == Some(note(number)));
        }
        println!("extra {} {whole}", partition.name);
    }
    Ok(())
}

/// Creates partitions beside the clients, b-trees and sets, and fills each in one transaction.
async fn create_extras(database: &Database, opening: u64) -> Result<()> {
    for number in 0..EXTRAS_MAX {
        database.executor().sleep_ns(30_000_000).await;
        let name = format!("extra-{opening}-{number}");
        let spec = if number % 2 == 0 { PartitionSpec::b_tree(&name) } else { PartitionSpec::set(&name) };
        println!("creating {name}");
        let partition = database.create_partition(spec).await?;
        println!("created {name}");
        let mut tx = database.begin().await?;
        for number in 0..EXTRA_RECORDS {
            tx.put(partition, &key(number), &note(number)).await?;
        }
        println!("filling {name}");
        tx.commit().await?;
        println!("filled {name}");
    }
    Ok(())
}

/// Has clients change the database for ever.
async fn change(database: &Database, orders: &Orders, description: &Description) {
    let next = Rc::new(Cell::new(orders.opening << 32 | 1));
    let (beside, opening) = (database.clone(), orders.opening);
    let extras = database.executor().spawn(async move { create_extras(&beside, opening).await });
    let clients: Vec<_> = (0..description.clients)
        .map(|client| {
            let (database, next, rows) = (database.clone(), Rc::clone(&next), description.rows);
            let random = Random::stream(orders.seed ^ orders.opening, &format!("client {client}"));
            database.executor().clone().spawn(async move { client_of(&database, &next, rows, random).await })
        })
        .collect();
    if let Err(error) = extras.join().await {
        say("error", &engine_kind(&error), &error);
    }
    for client in clients {
        client.join().await;
    }
}

/// The number of errors other than conflicts after which a client gives up.
const ERRORS_MAX: u64 = 5;

async fn client_of(database: &Database, next: &Cell<u64>, rows: [u64; 3], mut random: Random) {
    let mut errors = 0;
    while errors < ERRORS_MAX {
        let id = next.get();
        next.set(id + 1);
        let transfer = Transfer {
            account: random.below(rows[0]),
            teller: random.below(rows[1]),
            branch: random.below(rows[2]),
            delta: random.between(1, 200) as i64 - 100,
        };
        match attempt(database, id, transfer, &mut random).await {
            Ok(()) => {}
            Err(error) if error.is_conflict() => {}
            Err(error) => {
                errors += 1;
                say("failed", &format!("{id} {}", engine_kind(&error)), &error);
                database.executor().sleep_ns(1_000_000).await;
            }
        }
    }
}

async fn attempt(database: &Database, id: u64, transfer: Transfer, random: &mut Random) -> Result<()> {
    let mut tx = database.begin().await?;
    match changes(database, &mut tx, id, transfer).await {
        Ok(()) if random.chance(0.1) => tx.rollback().await,
        Ok(()) => {
            let Transfer { account, teller, branch, delta } = transfer;
            println!("try {id} {account} {teller} {branch} {delta}");
            tx.commit().await?;
            println!("done {id}");
            Ok(())
        }
        Err(error) => {
            tx.rollback().await?;
            Err(error)
        }
    }
}

async fn changes(database: &Database, tx: &mut Transaction, id: u64, transfer: Transfer) -> Result<()> {
    let partition = |name| database.partition(name);
    let delta = transfer.delta;
    tx.modify(partition("account")?, &key(transfer.account), |row| add(row, delta)).await?;
    tx.modify_object(partition("teller")?, transfer.teller, |row| add(row, delta)).await?;
    tx.modify(partition("branch")?, &key(transfer.branch), |row| add(row, delta)).await?;
    let (notes, number) = (partition("notes")?, key(id % NOTES));
    match id % 5 {
        0 => drop(tx.delete(notes, &number).await?),
        _ => tx.put(notes, &number, &note(id)).await?,
    }
    tx.append(partition("history")?, &transfer.encode(id, Transfer::LENGTH + (id % 60) as usize)).await?;
    Ok(())
}
