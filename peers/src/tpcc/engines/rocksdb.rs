//! RocksDB's pessimistic transactions (TransactionDB), on one thread at a time.

use crate::closed_loop::Measured;
use crate::engines::rocksdb::transactions::open;
use crate::engines::rocksdb::{Family, column_families, wait_for_compactions, write_options};
use crate::peer::{Durability, Engine, Grouping, PeerResult, Session};
use crate::tpcc::peer::{Clients, Opening, Peer, load_in_parts};
use crate::tpcc::requests::{Answer, Request, Terminals};
use crate::tpcc::tables::{Record, Table, Tables, page};
use crate::tpcc::transactions;
use entresol::Direction;
use rocksdb::{
    Direction as Way, IteratorMode, TransactionDB, TransactionOptions, WriteBatchWithTransaction, WriteOptions,
};
use std::path::Path;
use std::sync::Arc;
use workload::tpcc::Scale;

/// An open database.
pub struct Rocksdb {
    database: TransactionDB,
    durability: Durability,
}

impl Rocksdb {
    /// Creates the database in an empty directory.
    pub fn create(directory: &Path, opening: Opening) -> PeerResult<Box<dyn Peer>> {
        let families = column_families(Table::ALL.map(Table::name), opening.cache_bytes);
        Ok(Box::new(Rocksdb { database: open(directory, families)?, durability: opening.durability }))
    }

    fn families(&self) -> Vec<Family<'_>> {
        let find = |table: Table| self.database.cf_handle(table.name());
        Table::ALL.iter().map(|table| find(*table).expect("the database was created with all tables")).collect()
    }

    fn begin<'a>(&'a self, families: &'a [Family<'a>], write: &WriteOptions) -> RocksdbTables<'a> {
        RocksdbTables { transaction: self.database.transaction_opt(write, &TransactionOptions::default()), families }
    }
}

impl Peer for Rocksdb {
    fn load(&mut self, scale: &Scale) -> PeerResult<()> {
        let families = self.families();
        load_in_parts(scale, |table, records| {
            let mut batch = WriteBatchWithTransaction::<true>::default();
            for (key, row) in records {
                batch.put_cf(&families[table as usize], key, row);
            }
            Ok(self.database.write(batch)?)
        })?;
        for family in &families {
            self.database.flush_cf(family)?;
        }
        // The binding asks for the default column family only, but what is running is counted for the whole database.
        Ok(wait_for_compactions(|name| Ok(self.database.property_int_value(name)?.unwrap_or(0)))?)
    }

    fn run(&mut self, grouping: Grouping, clients: &Arc<Clients>) -> PeerResult<Measured> {
        clients.serve(self, grouping)
    }

    fn page(&mut self, table: Table, after: Option<&[u8]>, limit: usize) -> PeerResult<Vec<Record>> {
        let families = self.families();
        page(&mut self.begin(&families, &WriteOptions::default()), table, after, limit)
    }

    #[cfg(test)]
    fn execute(&mut self, requests: &[Request]) -> PeerResult<Vec<Answer>> {
        crate::tpcc::peer::execute(self, requests)
    }
}

impl Engine<Terminals> for Rocksdb {
    fn session(&self) -> PeerResult<Box<dyn Session<Terminals> + '_>> {
        Ok(Box::new(RocksdbSession { rocksdb: self, families: self.families(), write: write_options(self.durability) }))
    }
}

struct RocksdbSession<'a> {
    rocksdb: &'a Rocksdb,
    families: Vec<Family<'a>>,
    write: WriteOptions,
}

impl Session<Terminals> for RocksdbSession<'_> {
    fn commit(&mut self, requests: &[Request], answers: &mut Vec<Answer>) -> PeerResult<()> {
        let mut tables = self.rocksdb.begin(&self.families, &self.write);
        transactions::run_all(&mut tables, requests, answers)?;
        Ok(tables.transaction.commit()?)
    }
}

struct RocksdbTables<'a> {
    transaction: rocksdb::Transaction<'a, TransactionDB>,
    families: &'a [Family<'a>],
}

impl Tables for RocksdbTables<'_> {
    fn read<T>(&mut self, table: Table, key: &[u8], look: impl FnOnce(&[u8]) -> T) -> PeerResult<Option<T>> {
        Ok(self.transaction.get_pinned_cf(&self.families[table as usize], key)?.map(|row| look(&row)))
    }

    fn insert(&mut self, table: Table, key: &[u8], row: &[u8]) -> PeerResult<()> {
        Ok(self.transaction.put_cf(&self.families[table as usize], key, row)?)
    }

    fn update(&mut self, table: Table, key: &[u8], row: &[u8]) -> PeerResult<()> {
        self.insert(table, key, row)
    }

    fn delete(&mut self, table: Table, key: &[u8]) -> PeerResult<()> {
        Ok(self.transaction.delete_cf(&self.families[table as usize], key)?)
    }

    fn scan(
        &mut self,
        table: Table,
        (lower, upper): (&[u8], &[u8]),
        direction: Direction,
        mut see: impl FnMut(&[u8], &[u8]) -> bool,
    ) -> PeerResult<()> {
        let mode = match direction {
            Direction::Forward => IteratorMode::From(lower, Way::Forward),
            Direction::Backward => IteratorMode::From(upper, Way::Reverse),
        };
        for record in self.transaction.iterator_cf(&self.families[table as usize], mode) {
            let (key, row) = record?;
            let is_inside = lower <= &*key && &*key <= upper;
            if !is_inside || !see(&key, &row) {
                break;
            }
        }
        Ok(())
    }
}
