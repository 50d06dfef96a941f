//! fjall. Write batches cannot be read, so transactions of its single-writer database are used: they see their own changes.

use crate::closed_loop::Measured;
use crate::engines::fjall::{keyspace_options, persist_mode};
use crate::peer::{Engine, Grouping, PeerResult, Session};
use crate::tpcc::peer::{Clients, Opening, Peer, contents};
use crate::tpcc::requests::{Answer, Request, Terminals};
use crate::tpcc::tables::{Record, Table, Tables, page};
use crate::tpcc::transactions;
use entresol::Direction;
use fjall::{PersistMode, Readable, SingleWriterTxDatabase, SingleWriterTxKeyspace, SingleWriterWriteTx};
use std::path::Path;
use std::sync::Arc;
use workload::tpcc::Scale;

/// An open database with its keyspaces.
pub struct Fjall {
    database: SingleWriterTxDatabase,
    tables: Vec<SingleWriterTxKeyspace>,
    persist: Option<PersistMode>,
}

impl Fjall {
    /// Creates the database in an empty directory.
    pub fn create(directory: &Path, opening: Opening) -> PeerResult<Box<dyn Peer>> {
        let database = SingleWriterTxDatabase::builder(directory).cache_size(opening.cache_bytes as u64).open()?;
        let tables: fjall::Result<Vec<_>> =
            Table::ALL.iter().map(|table| database.keyspace(table.name(), keyspace_options)).collect();
        Ok(Box::new(Fjall { database, tables: tables?, persist: persist_mode(opening.durability) }))
    }

    fn begin(&self) -> FjallTables<'_> {
        let transaction = self.database.write_tx().durability(self.persist);
        FjallTables { transaction, tables: &self.tables }
    }
}

impl Peer for Fjall {
    fn load(&mut self, scale: &Scale) -> PeerResult<()> {
        for table in Table::ALL {
            let mut ingestion = self.tables[table as usize].inner().start_ingestion()?;
            for (key, row) in contents(scale, table) {
                ingestion.write(key, row)?;
            }
            ingestion.finish()?;
        }
        Ok(self.database.persist(PersistMode::SyncAll)?)
    }

    fn run(&mut self, grouping: Grouping, clients: &Arc<Clients>) -> PeerResult<Measured> {
        clients.serve(self, grouping)
    }

    fn page(&mut self, table: Table, after: Option<&[u8]>, limit: usize) -> PeerResult<Vec<Record>> {
        page(&mut self.begin(), table, after, limit)
    }

    #[cfg(test)]
    fn execute(&mut self, requests: &[Request]) -> PeerResult<Vec<Answer>> {
        crate::tpcc::peer::execute(self, requests)
    }
}

impl Engine<Terminals> for Fjall {
    fn session(&self) -> PeerResult<Box<dyn Session<Terminals> + '_>> {
        Ok(Box::new(self))
    }
}

impl Session<Terminals> for &Fjall {
    fn commit(&mut self, requests: &[Request], answers: &mut Vec<Answer>) -> PeerResult<()> {
        let mut tables = self.begin();
        transactions::run_all(&mut tables, requests, answers)?;
        Ok(tables.transaction.commit()?)
    }
}

struct FjallTables<'a> {
    transaction: SingleWriterWriteTx<'a>,
    tables: &'a [SingleWriterTxKeyspace],
}

impl Tables for FjallTables<'_> {
    fn read<T>(&mut self, table: Table, key: &[u8], look: impl FnOnce(&[u8]) -> T) -> PeerResult<Option<T>> {
        Ok(self.transaction.get(&self.tables[table as usize], key)?.map(|row| look(&row)))
    }

    fn insert(&mut self, table: Table, key: &[u8], row: &[u8]) -> PeerResult<()> {
        self.transaction.insert(&self.tables[table as usize], key, row);
        Ok(())
    }

    fn update(&mut self, table: Table, key: &[u8], row: &[u8]) -> PeerResult<()> {
        self.insert(table, key, row)
    }

    fn delete(&mut self, table: Table, key: &[u8]) -> PeerResult<()> {
        self.transaction.remove(&self.tables[table as usize], key);
        Ok(())
    }

    fn scan(
        &mut self,
        table: Table,
        (lower, upper): (&[u8], &[u8]),
        direction: Direction,
        mut see: impl FnMut(&[u8], &[u8]) -> bool,
    ) -> PeerResult<()> {
        let mut range = self.transaction.range(&self.tables[table as usize], lower..=upper);
        let mut step = || if direction == Direction::Forward { range.next() } else { range.next_back() };
        while let Some(record) = step() {
            let (key, row) = record.into_inner()?;
            if !see(&key, &row) {
                break;
            }
        }
        Ok(())
    }
}
