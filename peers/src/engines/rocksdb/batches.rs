//! RocksDB's plain database: the application keeps row locks and commits write batches.

use super::row_locks::RowLocks;
use super::{Tables, bank_families, database_options, write_options};
use crate::bank::{MissingRow, Scale, Sums, Table, Transfer, key};
use crate::changed_rows::ChangedRows;
use crate::closed_loop::{ClosedLoop, Measured};
use crate::peer::{Durability, Engine, Grouping, Peer, PeerResult, Session};
use rocksdb::{DB, FlushOptions, IteratorMode, WriteBatch, WriteOptions};
use std::path::Path;
use std::sync::Arc;

/// An open database with the application's row locks.
pub struct RocksdbBatches {
    database: DB,
    durability: Durability,
    locks: RowLocks,
}

impl RocksdbBatches {
    /// Creates the database in an empty directory.
    pub fn create(directory: &Path, durability: Durability) -> PeerResult<Box<dyn Peer>> {
        let database = DB::open_cf_descriptors(&database_options(), directory, bank_families())?;
        Ok(Box::new(RocksdbBatches { database, durability, locks: RowLocks::new(Scale(0)) }))
    }

    fn tables(&self) -> Tables<'_> {
        Tables::find(|name| self.database.cf_handle(name))
    }
}

impl Peer for RocksdbBatches {
    fn load(&mut self, scale: Scale) -> PeerResult<()> {
        self.locks = RowLocks::new(scale);
        let tables = self.tables();
        tables.load(scale, |batch| self.database.write(batch))?;
        let families: Vec<_> = tables.all().collect();
        self.database.flush_cfs_opt(&families, &FlushOptions::default())?;
        tables.wait_for_compactions(|family, name| self.database.property_int_value_cf(family, name))?;
        Ok(())
    }

    fn run(&mut self, grouping: Grouping, clients: &Arc<ClosedLoop>) -> PeerResult<Measured> {
        clients.serve(self, grouping)
    }

    fn sums(&mut self) -> PeerResult<Sums> {
        self.tables().sums(|family| self.database.iterator_cf(family, IteratorMode::Start))
    }
}

impl Engine for RocksdbBatches {
    fn session(&self) -> PeerResult<Box<dyn Session + '_>> {
        Ok(Box::new(BatchSession {
            database: &self.database,
            locks: &self.locks,
            tables: self.tables(),
            options: write_options(self.durability),
            changed: ChangedRows::default(),
        }))
    }
}

struct BatchSession<'a> {
    database: &'a DB,
    locks: &'a RowLocks,
    tables: Tables<'a>,
    options: WriteOptions,
    changed: ChangedRows,
}

impl Session for BatchSession<'_> {
    fn commit(&mut self, transfers: &[Transfer], balances: &mut Vec<i64>) -> PeerResult<()> {
        self.changed.clear();
        let mut batch = WriteBatch::default();
        let _guards = self.locks.lock(transfers);
        for transfer in transfers {
            for (table, id) in transfer.rows() {
                let balance = self.changed.add(table, id, transfer.delta, || -> PeerResult<_> {
                    let family = &self.tables.tables[table as usize];
                    let old = self.database.get_pinned_cf(family, key(id))?.ok_or(MissingRow { table, id })?;
                    Ok(old.as_ref().try_into()?)
                })?;
                if table == Table::Account {
                    balances.push(balance);
                }
            }
            batch.put_cf(&self.tables.history, key(transfer.sequence), transfer.history_row());
        }
        for (table, id, row) in self.changed.iter() {
            batch.put_cf(&self.tables.tables[table as usize], key(id), row);
        }
        self.database.write_opt(batch, &self.options)?;
        Ok(())
    }
}
