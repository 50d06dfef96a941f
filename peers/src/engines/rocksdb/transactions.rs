//! RocksDB's pessimistic transactions (TransactionDB): locks are RocksDB's own.

use super::{Tables, bank_families, database_options, write_options};
use crate::bank::{MissingRow, Row, Scale, Sums, Table, Transfer, add, key};
use crate::closed_loop::{ClosedLoop, Measured};
use crate::peer::{Durability, Engine, Grouping, Peer, PeerResult, Session};
use rocksdb::{
    ColumnFamilyDescriptor, IteratorMode, TransactionDB, TransactionDBOptions, TransactionOptions, WriteOptions,
};
use std::path::Path;
use std::sync::Arc;

/// How long a transaction waits for a lock. All take their locks in the same order, so no wait is endless.
const LOCK_WAIT_MS_MAX: i64 = 60_000;
/// Independent parts of a column family's lock table.
const LOCK_STRIPES: usize = 256;

/// Creates a transactional database of these column families.
pub fn open(directory: &Path, families: Vec<ColumnFamilyDescriptor>) -> Result<TransactionDB, rocksdb::Error> {
    let mut options = TransactionDBOptions::new();
    options.set_txn_lock_timeout(LOCK_WAIT_MS_MAX);
    options.set_default_lock_timeout(LOCK_WAIT_MS_MAX);
    options.set_num_stripes(LOCK_STRIPES);
    TransactionDB::open_cf_descriptors(&database_options(), &options, directory, families)
}

/// An open transactional database.
pub struct RocksdbTransactions {
    database: TransactionDB,
    durability: Durability,
}

impl RocksdbTransactions {
    /// Creates the database in an empty directory.
    pub fn create(directory: &Path, durability: Durability) -> PeerResult<Box<dyn Peer>> {
        let database = open(directory, bank_families())?;
        Ok(Box::new(RocksdbTransactions { database, durability }))
    }

    fn tables(&self) -> Tables<'_> {
        Tables::find(|name| self.database.cf_handle(name))
    }
}

impl Peer for RocksdbTransactions {
    fn load(&mut self, scale: Scale) -> PeerResult<()> {
        let tables = self.tables();
        tables.load(scale, |batch| self.database.write(batch))?;
        for family in tables.all() {
            self.database.flush_cf(family)?;
        }
        // The binding asks for the default column family only, but what is running is counted for the whole database.
        tables.wait_for_compactions(|_, name| self.database.property_int_value(name))?;
        Ok(())
    }

    fn run(&mut self, grouping: Grouping, clients: &Arc<ClosedLoop>) -> PeerResult<Measured> {
        clients.serve(self, grouping)
    }

    fn sums(&mut self) -> PeerResult<Sums> {
        self.tables().sums(|family| self.database.iterator_cf(family, IteratorMode::Start))
    }
}

impl Engine for RocksdbTransactions {
    fn session(&self) -> PeerResult<Box<dyn Session + '_>> {
        Ok(Box::new(TransactionSession {
            database: &self.database,
            tables: self.tables(),
            write: write_options(self.durability),
            transaction: TransactionOptions::default(),
        }))
    }
}

struct TransactionSession<'a> {
    database: &'a TransactionDB,
    tables: Tables<'a>,
    write: WriteOptions,
    transaction: TransactionOptions,
}

impl Session for TransactionSession<'_> {
    fn commit(&mut self, transfers: &[Transfer], balances: &mut Vec<i64>) -> PeerResult<()> {
        let transaction = self.database.transaction_opt(&self.write, &self.transaction);
        for transfer in transfers {
            for (table, id) in transfer.rows() {
                let family = &self.tables.tables[table as usize];
                let old = transaction.get_pinned_for_update_cf(family, key(id), true)?;
                let mut row: Row = old.ok_or(MissingRow { table, id })?.as_ref().try_into()?;
                let balance = add(&mut row, transfer.delta);
                transaction.put_cf(family, key(id), row)?;
                if table == Table::Account {
                    balances.push(balance);
                }
            }
            transaction.put_cf(&self.tables.history, key(transfer.sequence), transfer.history_row())?;
        }
        transaction.commit()?;
        Ok(())
    }
}
