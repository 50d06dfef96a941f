//! redb.

use crate::closed_loop::Measured;
use crate::peer::{Durability, Engine, Grouping, PeerResult, Session};
use crate::tpcc::peer::{Clients, Opening, Peer, load_in_parts};
use crate::tpcc::requests::{Answer, Request, Terminals};
use crate::tpcc::tables::{MissingRow, Record, Table, Tables, page};
use crate::tpcc::transactions;
use entresol::Direction;
use redb::{Database, ReadableTable, TableDefinition, WriteTransaction};
use std::path::Path;
use std::sync::Arc;
use workload::tpcc::Scale;

/// An open database.
pub struct Redb {
    database: Database,
    durability: redb::Durability,
}

impl Redb {
    /// Creates the database in an empty directory.
    pub fn create(directory: &Path, opening: Opening) -> PeerResult<Box<dyn Peer>> {
        let database = Database::builder().set_cache_size(opening.cache_bytes).create(directory.join("redb"))?;
        let durability = match opening.durability {
            Durability::Sync => redb::Durability::Immediate,
            Durability::Off => redb::Durability::None,
        };
        Ok(Box::new(Redb { database, durability }))
    }
}

impl Peer for Redb {
    fn load(&mut self, scale: &Scale) -> PeerResult<()> {
        load_in_parts(scale, |table, records| {
            let transaction = self.database.begin_write()?;
            let mut tables = RedbTables::new(&transaction);
            for (key, row) in records {
                tables.insert(table, &key, &row)?;
            }
            drop(tables);
            Ok(transaction.commit()?)
        })
    }

    fn run(&mut self, grouping: Grouping, clients: &Arc<Clients>) -> PeerResult<Measured> {
        clients.serve(self, grouping)
    }

    fn page(&mut self, table: Table, after: Option<&[u8]>, limit: usize) -> PeerResult<Vec<Record>> {
        let transaction = self.database.begin_write()?;
        let found = page(&mut RedbTables::new(&transaction), table, after, limit);
        transaction.abort()?;
        found
    }

    #[cfg(test)]
    fn execute(&mut self, requests: &[Request]) -> PeerResult<Vec<Answer>> {
        crate::tpcc::peer::execute(self, requests)
    }
}

impl Engine<Terminals> for Redb {
    fn session(&self) -> PeerResult<Box<dyn Session<Terminals> + '_>> {
        Ok(Box::new(self))
    }
}

impl Session<Terminals> for &Redb {
    fn commit(&mut self, requests: &[Request], answers: &mut Vec<Answer>) -> PeerResult<()> {
        let mut transaction = self.database.begin_write()?;
        transaction.set_durability(self.durability)?;
        transactions::run_all(&mut RedbTables::new(&transaction), requests, answers)?;
        Ok(transaction.commit()?)
    }
}

type Open<'a> = redb::Table<'a, &'static [u8], &'static [u8]>;

/// A table is opened when it is used first, at most once a transaction.
struct RedbTables<'a> {
    transaction: &'a WriteTransaction,
    open: [Option<Open<'a>>; Table::ALL.len()],
}

impl<'a> RedbTables<'a> {
    fn new(transaction: &'a WriteTransaction) -> RedbTables<'a> {
        RedbTables { transaction, open: [const { None }; Table::ALL.len()] }
    }

    fn open(&mut self, table: Table) -> PeerResult<&mut Open<'a>> {
        let open = &mut self.open[table as usize];
        if open.is_none() {
            *open = Some(self.transaction.open_table(TableDefinition::new(table.name()))?);
        }
        Ok(open.as_mut().expect("it has just been opened"))
    }
}

impl Tables for RedbTables<'_> {
    fn read<T>(&mut self, table: Table, key: &[u8], look: impl FnOnce(&[u8]) -> T) -> PeerResult<Option<T>> {
        Ok(self.open(table)?.get(key)?.map(|row| look(row.value())))
    }

    fn insert(&mut self, table: Table, key: &[u8], row: &[u8]) -> PeerResult<()> {
        self.open(table)?.insert(key, row)?;
        Ok(())
    }

    fn update(&mut self, table: Table, key: &[u8], row: &[u8]) -> PeerResult<()> {
        self.insert(table, key, row)
    }

    fn delete(&mut self, table: Table, key: &[u8]) -> PeerResult<()> {
        self.open(table)?.remove(key)?;
        Ok(())
    }

    fn scan(
        &mut self,
        table: Table,
        (lower, upper): (&[u8], &[u8]),
        direction: Direction,
        mut see: impl FnMut(&[u8], &[u8]) -> bool,
    ) -> PeerResult<()> {
        let mut range = self.open(table)?.range::<&[u8]>(lower..=upper)?;
        let mut step = || if direction == Direction::Forward { range.next() } else { range.next_back() };
        while let Some(record) = step() {
            let (key, row) = record?;
            if !see(key.value(), row.value()) {
                break;
            }
        }
        Ok(())
    }

    /// With one search in place of two.
    fn modify<T>(&mut self, table: Table, key: &[u8], change: impl FnOnce(&mut [u8]) -> T) -> PeerResult<T> {
        let mut guard = self.open(table)?.get_mut(key)?.ok_or_else(|| MissingRow::new(table, key))?;
        let mut room = [0; workload::tpcc::rows::customer::SIZE];
        let old = guard.value();
        let row = &mut room[..old.len()];
        row.copy_from_slice(old);
        let result = change(row);
        guard.insert(&*row)?;
        Ok(result)
    }
}
