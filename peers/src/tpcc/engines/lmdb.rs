//! LMDB through heed.

use crate::closed_loop::Measured;
use crate::engines::lmdb::{Pages, environment};
use crate::peer::{Engine, Grouping, PeerResult, Session};
use crate::tpcc::peer::{Clients, Opening, Peer, load_in_parts};
use crate::tpcc::requests::{Answer, Request, Terminals};
use crate::tpcc::tables::{Record, Table, Tables, page};
use crate::tpcc::transactions;
use entresol::Direction;
use heed::types::Bytes;
use heed::{CommitOrAbort, Database, Env, PutFlags, RwTxn, WithTls};
use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;
use workload::tpcc::Scale;

type Rows = Database<'static, Bytes, Bytes>;

/// An open environment. LMDB has no cache of its own: what it may keep in memory is the system's decision.
pub struct Lmdb {
    env: Env<WithTls>,
    tables: Vec<Rows>,
}

impl Lmdb {
    /// Creates the environment in an empty directory; commits write their pages with system calls.
    pub fn create(directory: &Path, opening: Opening) -> PeerResult<Box<dyn Peer>> {
        Lmdb::open(directory, opening, Pages::Written)
    }

    /// Creates the environment in an empty directory; pages change in the mapped file.
    pub fn create_mapped(directory: &Path, opening: Opening) -> PeerResult<Box<dyn Peer>> {
        Lmdb::open(directory, opening, Pages::Mapped)
    }

    fn open(directory: &Path, opening: Opening, pages: Pages) -> PeerResult<Box<dyn Peer>> {
        let env = environment(directory, opening.durability, pages, Table::ALL.len() as u32)?;
        let create = |table: &Table| -> PeerResult<Rows> {
            let opened = env.create_databases_and_commit(env.write_txn()?, |opener, transaction| {
                let rows = opener.create_database(transaction, Some(table.name()))?;
                heed::Result::Ok(CommitOrAbort::<_, ()>::Commit((rows, ())))
            })?;
            Ok(opened.unwrap_commit().0)
        };
        let tables = Table::ALL.iter().map(create).collect::<PeerResult<Vec<_>>>()?;
        Ok(Box::new(Lmdb { env, tables }))
    }

    fn begin(&self) -> PeerResult<LmdbTables<'_>> {
        Ok(LmdbTables { transaction: self.env.write_txn()?, tables: &self.tables })
    }
}

impl Peer for Lmdb {
    fn load(&mut self, scale: &Scale) -> PeerResult<()> {
        load_in_parts(scale, |table, records| {
            let mut transaction = self.env.write_txn()?;
            for (key, row) in records {
                self.tables[table as usize].put_with_flags(&mut transaction, PutFlags::APPEND, &key, &row)?;
            }
            Ok(transaction.commit()?)
        })
    }

    fn run(&mut self, grouping: Grouping, clients: &Arc<Clients>) -> PeerResult<Measured> {
        clients.serve(self, grouping)
    }

    fn page(&mut self, table: Table, after: Option<&[u8]>, limit: usize) -> PeerResult<Vec<Record>> {
        page(&mut self.begin()?, table, after, limit)
    }

    #[cfg(test)]
    fn execute(&mut self, requests: &[Request]) -> PeerResult<Vec<Answer>> {
        crate::tpcc::peer::execute(self, requests)
    }
}

impl Engine<Terminals> for Lmdb {
    fn session(&self) -> PeerResult<Box<dyn Session<Terminals> + '_>> {
        Ok(Box::new(self))
    }
}

impl Session<Terminals> for &Lmdb {
    fn commit(&mut self, requests: &[Request], answers: &mut Vec<Answer>) -> PeerResult<()> {
        let mut tables = self.begin()?;
        transactions::run_all(&mut tables, requests, answers)?;
        Ok(tables.transaction.commit()?)
    }
}

struct LmdbTables<'a> {
    transaction: RwTxn<'a>,
    tables: &'a [Rows],
}

impl Tables for LmdbTables<'_> {
    fn read<T>(&mut self, table: Table, key: &[u8], look: impl FnOnce(&[u8]) -> T) -> PeerResult<Option<T>> {
        Ok(self.tables[table as usize].get(&self.transaction, key)?.map(look))
    }

    fn insert(&mut self, table: Table, key: &[u8], row: &[u8]) -> PeerResult<()> {
        Ok(self.tables[table as usize].put(&mut self.transaction, key, row)?)
    }

    fn update(&mut self, table: Table, key: &[u8], row: &[u8]) -> PeerResult<()> {
        self.insert(table, key, row)
    }

    fn delete(&mut self, table: Table, key: &[u8]) -> PeerResult<()> {
        self.tables[table as usize].delete(&mut self.transaction, key)?;
        Ok(())
    }

    fn scan(
        &mut self,
        table: Table,
        (lower, upper): (&[u8], &[u8]),
        direction: Direction,
        mut see: impl FnMut(&[u8], &[u8]) -> bool,
    ) -> PeerResult<()> {
        let (rows, range) = (&self.tables[table as usize], (Bound::Included(lower), Bound::Included(upper)));
        match direction {
            Direction::Forward => {
                for record in rows.range(&self.transaction, &range)? {
                    let (key, row) = record?;
                    if !see(key, row) {
                        break;
                    }
                }
            }
            Direction::Backward => {
                for record in rows.rev_range(&self.transaction, &range)? {
                    let (key, row) = record?;
                    if !see(key, row) {
                        break;
                    }
                }
            }
        }
        Ok(())
    }
}
