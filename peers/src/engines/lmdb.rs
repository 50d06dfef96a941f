//! LMDB through heed. It has one writer at a time and no log: a commit writes every changed page, syncs, writes the meta page.

use crate::bank::{HISTORY, MissingRow, Row, Scale, Sums, Table, Transfer, add, balance, row};
use crate::closed_loop::{ClosedLoop, Measured};
use crate::peer::{Durability, Engine, Grouping, Peer, PeerResult, Session};
use heed::byteorder::BigEndian;
use heed::types::{Bytes, U64};
use heed::{CommitOrAbort, Database, Env, EnvFlags, EnvOpenOptions, PutFlags, WithTls};
use std::path::Path;
use std::sync::Arc;

/// The address space reserved for the file.
const MAP_BYTES: usize = 32 << 30;
/// Rows of one transaction of the load.
const LOAD_ROWS: u64 = 100_000;

type Rows = Database<'static, U64<BigEndian>, Bytes>;

/// How pages reach the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pages {
    /// A commit writes them with system calls.
    Written,
    /// They change in the mapped file. Without syncs a power cut may then leave a damaged database, not only an old one.
    Mapped,
}

/// Creates an environment of up to `databases` databases in an empty directory.
pub fn environment(
    directory: &Path,
    durability: Durability,
    pages: Pages,
    databases: u32,
) -> heed::Result<Env<WithTls>> {
    let flags = match (durability, pages) {
        (Durability::Sync, Pages::Written) => EnvFlags::empty(),
        (Durability::Off, Pages::Written) => EnvFlags::NO_SYNC,
        (Durability::Sync, Pages::Mapped) => EnvFlags::WRITE_MAP,
        (Durability::Off, Pages::Mapped) => EnvFlags::WRITE_MAP | EnvFlags::NO_SYNC | EnvFlags::MAP_ASYNC,
    };
    let mut options = EnvOpenOptions::new();
    options.map_size(MAP_BYTES).max_dbs(databases);
    // SAFETY: the benchmark created this directory for itself, so no other process maps or changes the file, and a run without
    // syncs promises nothing after a crash.
    #[allow(unsafe_code)]
    unsafe {
        options.flags(flags | EnvFlags::NO_READ_AHEAD).open(directory)
    }
}

/// An open environment with its four databases.
pub struct Lmdb {
    env: Env<WithTls>,
    tables: [Rows; 3],
    history: Rows,
}

impl Lmdb {
    /// Creates the environment in an empty directory; commits write their pages with system calls.
    pub fn create(directory: &Path, durability: Durability) -> PeerResult<Box<dyn Peer>> {
        Lmdb::open(directory, durability, Pages::Written)
    }

    /// Creates the environment in an empty directory; pages change in the mapped file.
    pub fn create_mapped(directory: &Path, durability: Durability) -> PeerResult<Box<dyn Peer>> {
        Lmdb::open(directory, durability, Pages::Mapped)
    }

    fn open(directory: &Path, durability: Durability, pages: Pages) -> PeerResult<Box<dyn Peer>> {
        let env = environment(directory, durability, pages, 4)?;
        let opened = env.create_databases_and_commit(env.write_txn()?, |opener, transaction| -> heed::Result<_> {
            let mut table = |name| opener.create_database(transaction, Some(name));
            let tables = [table(Table::Account.name())?, table(Table::Teller.name())?, table(Table::Branch.name())?];
            Ok(CommitOrAbort::<_, ()>::Commit((tables, table(HISTORY)?)))
        })?;
        let (tables, history) = opened.unwrap_commit();
        Ok(Box::new(Lmdb { env, tables, history }))
    }
}

impl Peer for Lmdb {
    fn load(&mut self, scale: Scale) -> PeerResult<()> {
        for table in Table::ALL {
            let rows = scale.rows(table);
            for first in (0..rows).step_by(LOAD_ROWS as usize) {
                let mut transaction = self.env.write_txn()?;
                for id in first..rows.min(first + LOAD_ROWS) {
                    self.tables[table as usize].put_with_flags(&mut transaction, PutFlags::APPEND, &id, &row(id))?;
                }
                transaction.commit()?;
            }
        }
        Ok(())
    }

    fn run(&mut self, grouping: Grouping, clients: &Arc<ClosedLoop>) -> PeerResult<Measured> {
        clients.serve(self, grouping)
    }

    fn sums(&mut self) -> PeerResult<Sums> {
        let transaction = self.env.read_txn()?;
        let mut sums = Sums::default();
        for table in Table::ALL {
            for entry in self.tables[table as usize].iter(&transaction)? {
                *sums.of_mut(table) += balance(entry?.1);
            }
        }
        for entry in self.history.iter(&transaction)? {
            sums.add_history(entry?.1);
        }
        Ok(sums)
    }
}

impl Engine for Lmdb {
    fn session(&self) -> PeerResult<Box<dyn Session + '_>> {
        Ok(Box::new(LmdbSession { lmdb: self }))
    }
}

struct LmdbSession<'a> {
    lmdb: &'a Lmdb,
}

impl Session for LmdbSession<'_> {
    fn commit(&mut self, transfers: &[Transfer], balances: &mut Vec<i64>) -> PeerResult<()> {
        let mut transaction = self.lmdb.env.write_txn()?;
        for transfer in transfers {
            for (table, id) in transfer.rows() {
                let rows = &self.lmdb.tables[table as usize];
                let old = rows.get(&transaction, &id)?.ok_or(MissingRow { table, id })?;
                let mut new: Row = old.try_into()?;
                let balance = add(&mut new, transfer.delta);
                rows.put(&mut transaction, &id, &new)?;
                if table == Table::Account {
                    balances.push(balance);
                }
            }
            // Requests of a queue may arrive in another order than they were numbered in, so this is no APPEND.
            self.lmdb.history.put(&mut transaction, &transfer.sequence, &transfer.history_row())?;
        }
        transaction.commit()?;
        Ok(())
    }
}
