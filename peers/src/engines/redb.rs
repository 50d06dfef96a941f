//! redb: a copy-on-write B-tree in Rust, one writer at a time, no log.

use crate::bank::{HISTORY, HISTORY_VALUE_BYTES, MissingRow, ROW_VALUE_BYTES, Scale, Sums, Table, Transfer};
use crate::bank::{add, balance, row};
use crate::closed_loop::{ClosedLoop, Measured};
use crate::engines::CACHE_BYTES;
use crate::peer::{Durability, Engine, Grouping, Peer, PeerResult, Session};
use redb::{Database, ReadableDatabase, ReadableTable, TableDefinition};
use std::path::Path;
use std::sync::Arc;

/// Rows of one transaction of the load.
const LOAD_ROWS: u64 = 100_000;

const HISTORY_ROWS: TableDefinition<u64, &[u8; HISTORY_VALUE_BYTES]> = TableDefinition::new(HISTORY);

const fn rows(table: Table) -> TableDefinition<'static, u64, &'static [u8; ROW_VALUE_BYTES]> {
    TableDefinition::new(table.name())
}

/// An open database.
pub struct Redb {
    database: Database,
    durability: redb::Durability,
}

impl Redb {
    /// Creates the database in an empty directory.
    pub fn create(directory: &Path, durability: Durability) -> PeerResult<Box<dyn Peer>> {
        let database = Database::builder().set_cache_size(CACHE_BYTES).create(directory.join("redb"))?;
        let durability = match durability {
            Durability::Sync => redb::Durability::Immediate,
            Durability::Off => redb::Durability::None,
        };
        Ok(Box::new(Redb { database, durability }))
    }
}

impl Peer for Redb {
    fn load(&mut self, scale: Scale) -> PeerResult<()> {
        for table in Table::ALL {
            let count = scale.rows(table);
            for first in (0..count).step_by(LOAD_ROWS as usize) {
                let transaction = self.database.begin_write()?;
                let mut open = transaction.open_table(rows(table))?;
                for id in first..count.min(first + LOAD_ROWS) {
                    open.insert(id, &row(id))?;
                }
                drop(open);
                transaction.commit()?;
            }
        }
        let transaction = self.database.begin_write()?;
        transaction.open_table(HISTORY_ROWS)?;
        transaction.commit()?;
        Ok(())
    }

    fn run(&mut self, grouping: Grouping, clients: &Arc<ClosedLoop>) -> PeerResult<Measured> {
        clients.serve(self, grouping)
    }

    fn sums(&mut self) -> PeerResult<Sums> {
        let transaction = self.database.begin_read()?;
        let mut sums = Sums::default();
        for table in Table::ALL {
            for entry in transaction.open_table(rows(table))?.iter()? {
                *sums.of_mut(table) += balance(entry?.1.value());
            }
        }
        for entry in transaction.open_table(HISTORY_ROWS)?.iter()? {
            sums.add_history(entry?.1.value());
        }
        Ok(sums)
    }
}

impl Engine for Redb {
    fn session(&self) -> PeerResult<Box<dyn Session + '_>> {
        Ok(Box::new(RedbSession { redb: self }))
    }
}

struct RedbSession<'a> {
    redb: &'a Redb,
}

impl Session for RedbSession<'_> {
    fn commit(&mut self, transfers: &[Transfer], balances: &mut Vec<i64>) -> PeerResult<()> {
        let mut transaction = self.redb.database.begin_write()?;
        transaction.set_durability(self.redb.durability)?;
        for table in Table::ALL {
            let mut open = transaction.open_table(rows(table))?;
            for transfer in transfers {
                let (_, id) = transfer.rows()[table as usize];
                let mut guard = open.get_mut(id)?.ok_or(MissingRow { table, id })?;
                let mut new = *guard.value();
                let balance = add(&mut new, transfer.delta);
                guard.insert(&new)?;
                if table == Table::Account {
                    balances.push(balance);
                }
            }
        }
        let mut history = transaction.open_table(HISTORY_ROWS)?;
        for transfer in transfers {
            history.insert(transfer.sequence, &transfer.history_row())?;
        }
        drop(history);
        transaction.commit()?;
        Ok(())
    }
}
