//! Entresol: its own TPC-C workload, as `entresol bench tpcc` runs it, under this benchmark's clients and clocks.

use crate::closed_loop::Measured;
use crate::peer::{Durability, Grouping, PeerResult};
use crate::tpcc::peer::{Clients, Opening, Peer};
#[cfg(test)]
use crate::tpcc::requests::{Answer, Request};
use crate::tpcc::tables::{Record, Table};
use base::statistics::Histogram;
use entresol::configuration::Configuration;
use entresol::{Database, Direction, PartitionSpec, Store};
use std::ops::Bound;
use std::path::Path;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use workload::Workload;
use workload::tpcc::{self, HISTORY, Scale, Tables, Tpcc, Violation};

/// After this many transactions a client lets others have a turn, as those of `entresol bench` do.
const TURN: u64 = 64;

/// A database on the calling thread; its clients are tasks there.
pub struct Tasks {
    store: Store,
}

impl Tasks {
    /// Creates the database in an empty directory.
    pub fn create(directory: &Path, opening: Opening) -> PeerResult<Box<dyn Peer>> {
        let durable = opening.durability == Durability::Sync;
        let text = format!("[buffer]\nsize = \"{} B\"\n[log]\ndurable = {durable}\n", opening.cache_bytes);
        let opening = entresol::Opening::new(directory, Configuration::parse(&text)?);
        Ok(Box::new(Tasks { store: opening.open()? }))
    }

    fn play(&self, clients: &Arc<Clients>, count: usize) -> PeerResult<Histogram> {
        let responses = self.store.run(async |database| {
            let tables = Tables::of(database.catalog())?;
            let workload = Rc::new(Tpcc { tables, scale: clients.requests().scale });
            let client = |number| client(database.clone(), Rc::clone(&workload), Arc::clone(clients), number);
            let tasks: Vec<_> = (0..count).map(|number| database.executor().spawn(client(number))).collect();
            let mut all = Histogram::new();
            for task in tasks {
                all.merge(&task.join().await?);
            }
            Ok(all)
        })?;
        Ok(responses)
    }
}

async fn client(
    database: Database,
    workload: Rc<Tpcc>,
    clients: Arc<Clients>,
    number: usize,
) -> entresol::Result<Histogram> {
    let mut terminal = clients.terminal(number);
    let mut responses = Histogram::new();
    while clients.goes_on() {
        let request = clients.request(&mut terminal);
        pin!(database.transaction(async |tx| workload.run(tx, &request.input).await)).await?;
        clients.answered(&request, &mut responses);
        if responses.count().is_multiple_of(TURN) {
            database.executor().yield_now().await;
        }
    }
    Ok(responses)
}

impl Peer for Tasks {
    fn load(&mut self, scale: &Scale) -> PeerResult<()> {
        let spec =
            |name: &str| Ok(if name == HISTORY { PartitionSpec::append(name) } else { PartitionSpec::b_tree(name) });
        Ok(self.store.run(async |database| tpcc::load(database, scale, spec, |_| ()).await)?)
    }

    fn run(&mut self, grouping: Grouping, clients: &Arc<Clients>) -> PeerResult<Measured> {
        let count = if grouping == Grouping::Single { 1 } else { clients.clients() };
        clients.time(|| self.play(clients, count))
    }

    /// The keys of the history are the places of its rows.
    fn page(&mut self, table: Table, after: Option<&[u8]>, limit: usize) -> PeerResult<Vec<Record>> {
        let records = self.store.run(async |database| {
            let partition = database.partition(table.name())?;
            let mut tx = database.begin().await?;
            let mut records = Vec::new();
            if table == Table::History {
                let after = after.map(|key| u64::from_be_bytes(key.try_into().expect("a place of eight bytes")));
                let mut place = 0_u64;
                tx.scan_appended(partition, |_, row| {
                    if after.is_none_or(|after| place > after) {
                        records.push((place.to_be_bytes().to_vec(), row.to_vec()));
                    }
                    place += 1;
                    records.len() < limit
                })
                .await?;
            } else {
                let lower = after.map_or(Bound::Unbounded, Bound::Excluded);
                let mut cursor = tx.cursor(partition, lower, Bound::Unbounded, Direction::Forward).without_locks();
                while records.len() < limit
                    && let Some(record) = tx.next(&mut cursor).await?
                {
                    records.push(record);
                }
            }
            tx.commit().await?;
            Ok(records)
        })?;
        Ok(records)
    }

    #[cfg(test)]
    fn execute(&mut self, requests: &[Request]) -> PeerResult<Vec<Answer>> {
        self.store.run(async |database| {
            // The size is for drawing requests only.
            let workload = Tpcc { tables: Tables::of(database.catalog())?, scale: Scale::warehouses(1) };
            for request in requests {
                database.transaction(async |tx| workload.run(tx, &request.input).await).await?;
            }
            Ok(())
        })?;
        Ok(Vec::new())
    }

    fn violations(&mut self) -> PeerResult<Vec<Violation>> {
        let verify = async |database: &Database| {
            let tables = Tables::of(database.catalog())?;
            tpcc::verify(database, &tables).await
        };
        Ok(self.store.run(verify)?)
    }
}
