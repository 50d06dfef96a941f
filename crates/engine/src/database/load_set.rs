//! Bulk loading an empty set: records come into memory, past the log, then a sweep writes them, and the superblock file names its
//! backup. Up to that a restart finds the set empty; so whatever ends the load before takes everything out of memory again.
//!
//! If the superblock cannot be brought to say that it names the earlier backup, the log ends, because nothing
//! acknowledged may rest on either answer.

use super::Database;
use super::log_room::{has_log_beside, wait_for_log_beside};
use super::set_index::give_up_entries;
use crate::catalog::{Organization, Partition};
use crate::checkpoint::{SweepGuard, back_up_load, begin_sweeping_load, give_up_log};
use crate::engine::{Engine, Visit};
use crate::mvcc::LoadInProgress;
use crate::transaction::Transaction;
use crate::{Error, Result};
use base::{Lsn, PartitionId};
use std::rc::Rc;
use structures::canary::{self, Canary};
use structures::key_hash;

/// The number of records in a batch. Those before are then final in memory, and other tasks run.
const BATCH: u64 = 1_024;

/// A load that goes on. Dropped before its end it leaves an empty set.
struct SetLoad {
    database: Database,
    partition: PartitionId,
    transaction: Transaction,
    is_durable: bool,
    /// Ends when the set is as it will be; so does the next.
    loading: LoadInProgress,
    _sweeping: SweepGuard,
}

impl Drop for SetLoad {
    fn drop(&mut self) {
        let engine = &self.database.0.engine;
        if !self.is_durable && !canary::is_planted(Canary::HalfLoad) {
            let owner = self.transaction.owner();
            let indexes = engine.sets.sets.borrow_mut().unload(owner, self.partition);
            // The next load may begin before the transaction has ended, and would meet its versions.
            engine.versions.forget(owner, 0, 0);
            indexes.into_iter().for_each(|entries| give_up_entries(&engine.core.executor, entries));
        }
    }
}

impl SetLoad {
    /// Begins to load a partition once no sweep is under way; none is until the end.
    async fn begin(database: &Database, found: &Partition) -> Result<SetLoad> {
        let engine = &database.0.engine;
        // Sweeps make the room in the log that this may have to wait for.
        let transaction = database.begin().await?;
        let _sweeping = loop {
            wait_for_log_beside(engine, 0).await?;
            let sweeping = begin_sweeping_load(engine).await;
            // Other loads may have taken the room.
            if has_log_beside(engine, 0) {
                break sweeping;
            }
        };
        if engine.sets.sets.borrow().records(found.id()) > 0 {
            return Err(Error::NotEmpty(found.name.clone()));
        }
        let (database, partition, loading) = (database.clone(), found.id(), LoadInProgress::new(engine, found.id())?);
        Ok(SetLoad { database, partition, transaction, is_durable: false, loading, _sweeping })
    }

    /// Has the records written and named by the superblock file.
    async fn end(mut self) -> Result<()> {
        self.transaction.commit_unlogged();
        let database = self.database.clone();
        let engine = &database.0.engine;
        engine.core.check_open()?;
        let ending = EndingLoad::new(engine, self.partition).await?;
        back_up_load(engine).await?;
        engine.catalog.note_load(self.partition);
        ending.succeed();
        self.is_durable = true;
        let end = self.loading.end();
        drop(self);
        // By the calendar it is there from its acknowledgement on.
        let _stated = engine.core.log.flush(end).await;
        // The set is full whatever becomes of the log before it; later checkpoints give that up.
        let _later = give_up_log(&database.0.engine).await;
        Ok(())
    }
}

/// From the moment on at which the log says that a load has ended, if it says so, up to its end: meanwhile no backup ends, which would lack
/// the load and not what the log says of it. Dropped before it has succeeded it has the log say that it came to nothing.
struct EndingLoad<'a> {
    engine: &'a Engine,
    partition: PartitionId,
    /// The LSN of the record that says so.
    said: Option<Lsn>,
}

impl<'a> EndingLoad<'a> {
    async fn new(engine: &'a Engine, partition: PartitionId) -> Result<EndingLoad<'a>> {
        let ending = &engine.catalog.ending_loads;
        ending.set(ending.get() + 1);
        let said = engine.note_load(partition);
        let this = EndingLoad { engine, partition, said };
        if let Some(said) = said {
            engine.core.log.flush(said).await?;
        }
        Ok(this)
    }

    /// The superblock file names what was loaded.
    fn succeed(mut self) {
        self.said = None;
    }
}

impl Drop for EndingLoad<'_> {
    fn drop(&mut self) {
        if let Some(said) = self.said {
            self.engine.core.log.note_undone_load(self.partition, said);
        }
        let ending = &self.engine.catalog.ending_loads;
        ending.set(ending.get() - 1);
    }
}

impl Database {
    /// Fills an empty set with records, past the log, and writes its backup. No other transaction may use it meanwhile, except
    /// for readers of earlier moments, for which it stays empty. A load that fails or is cut off leaves an empty set; so does
    /// one whose future is dropped before the last record is there. `progress` is called with the number of records loaded.
    ///
    /// # Errors
    /// [`Error::NotEmpty`] if the set is not empty, [`Error::WrongOrganization`] for what is no set with keys of the caller's,
    /// those of an insert, and those of [`Database::checkpoint`]; [`Error::Setting`] while nodes use the database; [`Error::Field`] also if two records have the same contents in a unique
    /// index; before anything is loaded, [`Error::LogCrowded`] if for ten seconds transactions, one of the caller's own among them
    /// perhaps, keep the room in the log that its end needs.
    pub async fn load_set<K: AsRef<[u8]>, V: AsRef<[u8]>>(
        &self,
        partition: PartitionId,
        records: impl IntoIterator<Item = (K, V)>,
        mut progress: impl FnMut(u64),
    ) -> Result<()> {
        self.await_leases().await?;
        let _visit = Visit::new(&self.0.engine);
        let found = self.0.engine.catalog.describe(partition)?;
        self.check_unserved(&found, "is not loaded")?;
        let mut load = self.begin_set_load(&found).await?;
        // It may have got an index while the load waited to begin.
        let found = self.0.engine.catalog.describe(partition)?;
        for (loaded, (key, value)) in (1_u64..).zip(records) {
            if let Some(schema) = &found.schema {
                schema.record.verify(value.as_ref()).map_err(|error| found.field_error(error))?;
            }
            let key = key.as_ref();
            load.transaction.check_loaded(&found, key, value.as_ref())?;
            if !load.transaction.write_in_set(partition, (key, key_hash(key)), value.as_ref(), false).await? {
                return Err(Error::Duplicate(found.name.clone()));
            }
            if loaded % BATCH == 0 {
                load.transaction.commit_unlogged();
                progress(loaded);
                self.0.engine.core.executor.yield_now().await;
            }
        }
        // In a task of its own, so that no write of the superblock file is abandoned.
        self.0.engine.core.executor.spawn(load.end()).join().await
    }

    async fn begin_set_load(&self, found: &Rc<Partition>) -> Result<SetLoad> {
        match found.organization {
            Organization::Set { arrivals: false, .. } => SetLoad::begin(self, found).await,
            _ => Err(found.wrong_organization("only a set with keys of the caller's is loaded record by record")),
        }
    }
}
