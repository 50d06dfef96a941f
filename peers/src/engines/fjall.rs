//! fjall: a log-structured merge tree in Rust. A commit holds the journal's lock through its sync, so there is no group
//! commit of its own.

use crate::bank::{HISTORY, MissingRow, Scale, Sums, Table, Transfer, balance, key, row};
use crate::changed_rows::ChangedRows;
use crate::closed_loop::{ClosedLoop, Measured};
use crate::engines::CACHE_BYTES;
use crate::peer::{Durability, Engine, Grouping, Peer, PeerResult, Session};
use fjall::config::CompressionPolicy;
use fjall::{Database, Keyspace, KeyspaceCreateOptions, PersistMode};
use std::path::Path;
use std::sync::Arc;

/// An open database with its four keyspaces.
pub struct Fjall {
    database: Database,
    tables: [Keyspace; 3],
    history: Keyspace,
    persist: Option<PersistMode>,
}

/// How every table is kept.
pub fn keyspace_options() -> KeyspaceCreateOptions {
    KeyspaceCreateOptions::default()
        .data_block_compression_policy(CompressionPolicy::disabled())
        .expect_point_read_hits(true)
}

/// What a commit does with the journal.
pub fn persist_mode(durability: Durability) -> Option<PersistMode> {
    match durability {
        Durability::Sync => Some(PersistMode::SyncData),
        Durability::Off => None,
    }
}

impl Fjall {
    /// Creates the database in an empty directory.
    pub fn create(directory: &Path, durability: Durability) -> PeerResult<Box<dyn Peer>> {
        let database = Database::builder(directory).cache_size(CACHE_BYTES as u64).open()?;
        let table = |table: Table| database.keyspace(table.name(), keyspace_options);
        let tables = [table(Table::Account)?, table(Table::Teller)?, table(Table::Branch)?];
        let history = database.keyspace(HISTORY, keyspace_options)?;
        Ok(Box::new(Fjall { database, tables, history, persist: persist_mode(durability) }))
    }
}

impl Peer for Fjall {
    fn load(&mut self, scale: Scale) -> PeerResult<()> {
        for table in Table::ALL {
            let mut ingestion = self.tables[table as usize].start_ingestion()?;
            for id in 0..scale.rows(table) {
                ingestion.write(key(id), row(id))?;
            }
            ingestion.finish()?;
        }
        self.database.persist(PersistMode::SyncAll)?;
        Ok(())
    }

    fn run(&mut self, grouping: Grouping, clients: &Arc<ClosedLoop>) -> PeerResult<Measured> {
        clients.serve(self, grouping)
    }

    fn sums(&mut self) -> PeerResult<Sums> {
        let mut sums = Sums::default();
        for table in Table::ALL {
            for entry in self.tables[table as usize].iter() {
                *sums.of_mut(table) += balance(&entry.value()?);
            }
        }
        for entry in self.history.iter() {
            sums.add_history(&entry.value()?);
        }
        Ok(sums)
    }
}

impl Engine for Fjall {
    fn session(&self) -> PeerResult<Box<dyn Session + '_>> {
        Ok(Box::new(FjallSession { fjall: self, changed: ChangedRows::default() }))
    }
}

struct FjallSession<'a> {
    fjall: &'a Fjall,
    changed: ChangedRows,
}

impl Session for FjallSession<'_> {
    fn commit(&mut self, transfers: &[Transfer], balances: &mut Vec<i64>) -> PeerResult<()> {
        let mut batch = self.fjall.database.batch().durability(self.fjall.persist);
        self.changed.clear();
        for transfer in transfers {
            for (table, id) in transfer.rows() {
                let balance = self.changed.add(table, id, transfer.delta, || -> PeerResult<_> {
                    let old = self.fjall.tables[table as usize].get(key(id))?.ok_or(MissingRow { table, id })?;
                    Ok(old.as_ref().try_into()?)
                })?;
                if table == Table::Account {
                    balances.push(balance);
                }
            }
            batch.insert(&self.fjall.history, key(transfer.sequence), transfer.history_row());
        }
        for (table, id, row) in self.changed.iter() {
            batch.insert(&self.fjall.tables[table as usize], key(id), *row);
        }
        batch.commit()?;
        Ok(())
    }
}
