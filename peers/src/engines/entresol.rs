//! Entresol: B-trees and an appended history, a write-ahead log with group commit, one engine thread.

use crate::bank::{HISTORY, HISTORY_VALUE_BYTES, Scale, Sums, Table, Transfer};
use crate::bank::{add, balance, key, row};
use crate::closed_loop::{ClosedLoop, Measured};
use crate::engines::CACHE_BYTES;
use crate::peer::{Durability, Engine, Grouping, Peer, PeerResult, Session};
use base::PartitionId;
use base::statistics::Histogram;
use entresol::configuration::Configuration;
use entresol::{
    Catalog, Database, DatabaseThread, Direction, Handle, Locking, Opening, Organization, PartitionSpec, Procedures,
    Store, Transaction,
};
use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;

/// The tables' partitions.
#[derive(Clone, Copy)]
struct Tables {
    balances: [PartitionId; 3],
    history: PartitionId,
}

impl Tables {
    fn of(catalog: &Catalog) -> entresol::Result<Tables> {
        let [account, teller, branch] = Table::ALL.map(|table| catalog.partition(table.name()));
        Ok(Tables { balances: [account?, teller?, branch?], history: catalog.partition(HISTORY)? })
    }

    /// Executes one transfer; returns the account's new balance.
    async fn transfer(&self, tx: &mut Transaction, transfer: &Transfer) -> entresol::Result<i64> {
        let mut account = 0;
        for (table, id) in transfer.rows() {
            let partition = self.balances[table as usize];
            let balance = tx.modify(partition, &key(id), |row| add(row, transfer.delta)).await?;
            if table == Table::Account {
                account = balance;
            }
        }
        let mut record = [0; 8 + HISTORY_VALUE_BYTES];
        record[..8].copy_from_slice(&key(transfer.sequence));
        record[8..].copy_from_slice(&transfer.history_row());
        tx.append(self.history, &record).await?;
        Ok(account)
    }
}

/// Where the rows are.
#[derive(Clone, Copy, PartialEq)]
enum Residence {
    Pages,
    /// Nothing is in pages, so they need no buffer to speak of.
    Sets,
}

fn opening(directory: &Path, durability: Durability, residence: Residence) -> PeerResult<Opening> {
    let durable = durability == Durability::Sync;
    let buffer = if residence == Residence::Pages { CACHE_BYTES } else { 64 << 20 };
    let text = format!("[buffer]\nsize = \"{buffer} B\"\n[log]\ndurable = {durable}\n");
    Ok(Opening::new(directory, Configuration::parse(&text)?))
}

async fn load(database: &Database, scale: Scale, residence: Residence) -> entresol::Result<()> {
    for table in Table::ALL {
        let rows = (0..scale.rows(table)).map(|id| (key(id), row(id)));
        match residence {
            Residence::Pages => {
                let partition = database.create_partition(PartitionSpec::b_tree(table.name())).await?;
                database.load_b_tree(partition, rows, |_| ()).await?;
            }
            Residence::Sets => {
                let partition = database.create_partition(PartitionSpec::set(table.name())).await?;
                database.load_set(partition, rows, |_| ()).await?;
            }
        }
    }
    let history = match residence {
        Residence::Pages => PartitionSpec::append(HISTORY),
        Residence::Sets => PartitionSpec::new(HISTORY, Organization::set(true), Locking::None),
    };
    database.create_partition(history).await?;
    database.checkpoint().await
}

async fn sums(database: &Database) -> entresol::Result<Sums> {
    let tables = Tables::of(database.catalog())?;
    let mut tx = database.begin().await?;
    let mut sums = Sums::default();
    for table in Table::ALL {
        let partition = tables.balances[table as usize];
        let sum = sums.of_mut(table);
        if database.set_records(partition).is_some() {
            tx.scan_set(partition, |_, row| {
                *sum += balance(row);
                true
            })
            .await?;
            continue;
        }
        let mut cursor = tx.cursor(partition, Bound::Unbounded, Bound::Unbounded, Direction::Forward).without_locks();
        while let Some((_, row)) = tx.next(&mut cursor).await? {
            *sum += balance(&row);
        }
    }
    let mut look = |row: &[u8]| {
        sums.add_history(&row[8..]);
        true
    };
    if database.set_records(tables.history).is_some() {
        tx.scan_set(tables.history, |_, row| look(row)).await?;
    } else {
        tx.scan_appended(tables.history, |_, row| look(row)).await?;
    }
    tx.commit().await?;
    Ok(sums)
}

/// A database on the calling thread; its clients are tasks there.
pub struct Tasks {
    store: Store,
    residence: Residence,
}

impl Tasks {
    /// Creates the database in an empty directory.
    pub fn create(directory: &Path, durability: Durability) -> PeerResult<Box<dyn Peer>> {
        Tasks::open(directory, durability, Residence::Pages)
    }

    /// The same with memory-resident sets.
    pub fn create_sets(directory: &Path, durability: Durability) -> PeerResult<Box<dyn Peer>> {
        Tasks::open(directory, durability, Residence::Sets)
    }

    fn open(directory: &Path, durability: Durability, residence: Residence) -> PeerResult<Box<dyn Peer>> {
        Ok(Box::new(Tasks { store: opening(directory, durability, residence)?.open()?, residence }))
    }

    /// Plays `count` clients, each a task with transactions of its own.
    fn play(&self, clients: &Arc<ClosedLoop>, count: usize) -> PeerResult<Histogram> {
        let histograms = self.store.run(async |database| {
            let tables = Tables::of(database.catalog())?;
            let tasks: Vec<_> = (0..count)
                .map(|number| database.executor().spawn(client(database.clone(), tables, Arc::clone(clients), number)))
                .collect();
            let mut all = Histogram::new();
            for task in tasks {
                all.merge(&task.join().await?);
            }
            Ok(all)
        })?;
        Ok(histograms)
    }
}

async fn client(
    database: Database,
    tables: Tables,
    clients: Arc<ClosedLoop>,
    number: usize,
) -> entresol::Result<Histogram> {
    let mut terminal = clients.terminal(number);
    let mut responses = Histogram::new();
    while clients.goes_on() {
        let transfer = clients.request(&mut terminal);
        database.transaction(async |tx| tables.transfer(tx, &transfer).await).await?;
        clients.answered(&transfer, &mut responses);
    }
    Ok(responses)
}

impl Peer for Tasks {
    fn load(&mut self, scale: Scale) -> PeerResult<()> {
        Ok(self.store.run(async |database| load(database, scale, self.residence).await)?)
    }

    fn run(&mut self, grouping: Grouping, clients: &Arc<ClosedLoop>) -> PeerResult<Measured> {
        let count = if grouping == Grouping::Single { 1 } else { clients.clients() };
        clients.time(|| self.play(clients, count))
    }

    fn sums(&mut self) -> PeerResult<Sums> {
        Ok(self.store.run(async |database| sums(database).await)?)
    }
}

/// A database on a thread of its own; its clients are threads that call a registered procedure.
pub struct Threads {
    thread: DatabaseThread,
}

impl Threads {
    /// Creates the database in an empty directory.
    pub fn create(directory: &Path, durability: Durability) -> PeerResult<Box<dyn Peer>> {
        let opening = opening(directory, durability, Residence::Pages)?.procedures(|| {
            let mut procedures = Procedures::new();
            procedures.register("transfer", async |tx, parameters| {
                let tables = Tables::of(tx.catalog())?;
                let transfer = Transfer::from_bytes(parameters);
                tables.transfer(tx, &transfer).await.map(|balance| balance.to_le_bytes().to_vec())
            });
            procedures
        });
        Ok(Box::new(Threads { thread: DatabaseThread::start(opening)? }))
    }
}

impl Peer for Threads {
    fn load(&mut self, scale: Scale) -> PeerResult<()> {
        Ok(self
            .thread
            .handle()
            .with_database(async move |database| load(database, scale, Residence::Pages).await)
            .wait()?)
    }

    fn run(&mut self, grouping: Grouping, clients: &Arc<ClosedLoop>) -> PeerResult<Measured> {
        clients.serve(self, grouping)
    }

    fn sums(&mut self) -> PeerResult<Sums> {
        Ok(self.thread.handle().with_database(async |database| sums(database).await).wait()?)
    }
}

impl Engine for Threads {
    fn session(&self) -> PeerResult<Box<dyn Session + '_>> {
        Ok(Box::new(Caller { handle: self.thread.handle() }))
    }
}

struct Caller {
    handle: Handle,
}

impl Session for Caller {
    fn commit(&mut self, transfers: &[Transfer], balances: &mut Vec<i64>) -> PeerResult<()> {
        for transfer in transfers {
            balances.push(balance(&self.handle.call("transfer", &transfer.to_bytes()).wait()?));
        }
        Ok(())
    }
}
