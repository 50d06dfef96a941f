//! Creating and dropping secondary indexes of b-trees while their records are used.
//!
//! An index is created so:
//!
//! 1. Its b-tree is made. The catalog does not have it yet: a restart leaves nothing of it.
//! 2. From now on each change of a record changes its entry, too. Transactions that had begun before may be about to make one that does
//!    not; their ends are waited for.
//! 3. Entries are added to the records that have none, a few at a time, under the locks of these.
//! 4. The superblock file enters it. That is the moment: a cut before it leaves nothing of the index, one after it all of it. No call of
//!    a procedure that was logged before is repeated from here on (`catalog_change`).
//! 5. It is readable, for who does not read an earlier moment.
//!
//! One that fails in between, and one that is dropped, goes so:
//!
//! 1. The superblock file has it no longer, if it had it. It cannot be read any more.
//! 2. If it could be read, changes of records are kept in it until the transactions have ended that may have read it: the locks of its
//!    entries keep phantoms from them.
//! 3. From now on changes of records leave it alone. Transactions that had begun before may still take back what they had done to it; their ends
//!    are waited for, too, however long that takes: others go on.
//! 4. Its pages leave memory, its file is removed, its name is free.

use super::Database;
use super::catalog_change::CatalogChangeGuard;
use crate::catalog::{IndexSpec, IndexTree, Locking, Organization, Partition, Schema, SecondaryIndex};
use crate::checkpoint::state_catalog;
use crate::superblock::{self, CatalogChange, stored_indexes};
use crate::transaction::Transaction;
use crate::{Error, Result};
use base::time::{MILLISECOND_NS, SECOND_NS};
use base::{Lsn, PartitionId};
use std::cell::Cell;
use std::ops::Bound;
use std::rc::Rc;
use structures::set::FieldError;

/// How often it is looked whether those have ended that were waited for in vain, in nanoseconds.
pub(super) const LOOK_NS: u64 = 20 * MILLISECOND_NS;

/// An index that is being built.
struct Building {
    base: PartitionId,
    partition: Rc<Partition>,
    index: SecondaryIndex,
    /// Whether its records have had a type before.
    was_typed: bool,
    /// Whether the superblock file may say that they have one now.
    states_type: Cell<bool>,
    /// Calls of procedures may meet a type that a restart knows nothing of.
    change: CatalogChangeGuard,
}

impl Database {
    /// Creates an ordered secondary index of a b-tree with record locks and fills it while others go on to change records. Returns
    /// its number ([`Database::secondary`]). It is durable when this returns; the creation goes on to its end even if its future is dropped. One that
    /// fails or is cut off leaves nothing behind. If it is unique, others may be told so of their records before it is whole.
    ///
    /// Transactions and snapshots that had begun before it are waited for, up to ten seconds. Where procedures are logged as calls, all sets
    /// are swept, and meanwhile the log has what calls change. Memory is taken for a few records only; entries come in the
    /// order of the records, so the index should fit into the buffer.
    ///
    /// # Errors
    /// [`Error::WrongOrganization`] if the partition is no b-tree with record locks, or its records have no type and
    /// [`IndexSpec::record`] says none; [`Error::Field`] if the index has the name of another one or a field that the records do not have, or if it is
    /// unique and two records have the same contents; [`Error::Unsuitable`] if a record is not of the type; [`Error::TooLarge`] if the contents of
    /// a record's fields are too long for a key; [`Error::PartitionInUse`] if another index is being built or others do not end; and those of
    /// [`Database::create_partition`].
    ///
    /// ```
    /// # mod ground { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/ground/database.rs")); }
    /// # use ground::*;
    /// use entresol_engine::set::{FieldType, FieldValue, RecordType};
    /// use entresol_engine::{Direction, catalog::IndexSpec};
    /// use std::ops::Bound;
    /// # with_database(async |database| {
    /// let user = RecordType::new([("name", FieldType::Text), ("born", FieldType::U32)]).expect("different names");
    /// let users = database.create_partition(PartitionSpec::b_tree("users").record(user)).await?;
    /// let add = async |key: &[u8], name: &str, born| {
    ///     database
    ///         .transaction(async |tx| tx.insert_record(users, key, &[FieldValue::Text(name), FieldValue::U32(born)]).await)
    ///         .await
    /// };
    /// add(b"1", "Ada", 1815).await?;
    /// add(b"2", "Grace", 1906).await?;
    /// let by_name = database.create_index(users, IndexSpec::new("by_name", &["name"]).unique()).await?;
    /// let again = add(b"3", "Ada", 1990).await.expect_err("there is one");
    /// assert_eq!(again.to_string(), "partition 'users': another record has the same contents in the fields of the unique index 'by_name'");
    /// let mut found = Vec::new();
    /// let all = (Bound::Unbounded, Bound::Unbounded);
    /// let keep = |key: &[u8], _record: &[u8]| {
    ///     found.push(key[0]);
    ///     true
    /// };
    /// database.snapshot().await?.range(users, by_name, all, Direction::Backward, keep).await?;
    /// assert_eq!(found, *b"21");
    /// # Ok(())
    /// # });
    /// ```
    pub async fn create_index(&self, partition: PartitionId, spec: IndexSpec) -> Result<usize> {
        let database = self.clone();
        self.0
            .engine
            .core
            .executor
            .spawn(async move { database.create_index_undisturbed(partition, spec).await })
            .join()
            .await
    }

    /// Drops an index of a b-tree. When this returns, it is gone for good. Changes of records are kept in it until the transactions have
    /// ended that had begun before; until then the partition gets no other index and cannot be dropped. Sets are swept as for
    /// [`Database::create_index`].
    ///
    /// # Errors
    /// [`Error::NoPartition`], [`Error::Field`] if there is no such index, [`Error::WrongOrganization`] for one of a set, which has it for as long as it is
    /// there; [`Error::PartitionInUse`] if others keep the sweep from going on for ten seconds; the log's or the driver's: the index stays then.
    ///
    /// ```
    /// # mod ground { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/ground/database.rs")); }
    /// # use ground::*;
    /// # use entresol_engine::set::{FieldType, RecordType};
    /// # with_database(async |database| {
    /// # let user = RecordType::new([("name", FieldType::Text)]).expect("different names");
    /// let spec = PartitionSpec::b_tree("users").record(user).secondary("by_name", &["name"]);
    /// let users = database.create_partition(spec).await?;
    /// assert!(database.secondary(users, "by_name").is_ok());
    /// database.drop_index(users, "by_name").await?;
    /// assert!(database.secondary(users, "by_name").is_err());
    /// # Ok(())
    /// # });
    /// ```
    pub async fn drop_index(&self, partition: PartitionId, name: &str) -> Result<()> {
        let (database, name) = (self.clone(), name.to_owned());
        let dropping = async move { database.drop_index_undisturbed(partition, &name).await };
        self.0.engine.core.executor.spawn(dropping).join().await
    }

    async fn create_index_undisturbed(&self, base: PartitionId, spec: IndexSpec) -> Result<usize> {
        let building = self.begin_index(base, spec).await?;
        match self.fill_and_enter(&building).await {
            Ok(number) => Ok(number),
            Err(error) => {
                self.take_index_back(building).await;
                Err(error)
            }
        }
    }

    /// Makes the b-tree of an index, and has all changes of records from now on kept in it.
    async fn begin_index(&self, base: PartitionId, spec: IndexSpec) -> Result<Building> {
        let engine = &self.0.engine;
        let _turn = engine.catalog.creation.take(&engine.core.executor).await;
        engine.core.check_open()?;
        let found = engine.catalog.describe(base)?;
        let (mut schema, mut index) = planned(&found, &spec)?;
        let partition = self.plan_index(&found, &spec.name)?;
        if let Err(error) = self.build_index(&partition).await {
            self.detach(&partition).await;
            self.remove_files(&partition).await;
            return Err(error);
        }
        engine.core.statistics.reserve(usize::from(partition.id) + 1);
        let change = self.begin_catalog_change();
        index.tree = Some(IndexTree { id: partition.id(), since: None });
        schema.secondaries.push(index.clone());
        let mut partitions = engine.catalog.partitions.borrow_mut();
        partitions.insert_hidden(Rc::clone(&partition));
        partitions.replace(Rc::new(found.with_indexes(&schema.record, schema.secondaries)));
        let was_typed = found.schema.is_some();
        Ok(Building { base, partition, index, was_typed, states_type: Cell::new(false), change })
    }

    async fn fill_and_enter(&self, building: &Building) -> Result<usize> {
        let engine = &self.0.engine;
        let found = engine.catalog.describe(building.base)?;
        self.await_earlier(&found).await?;
        let (index, tree) = (&building.index, building.partition.id());
        let mut from = Bound::Unbounded;
        loop {
            engine.core.check_open()?;
            let add = async |tx: &mut Transaction| tx.index_records(&found, index, tree, &from).await;
            let Some(last) = self.transaction(add).await? else { break };
            from = Bound::Excluded(last);
        }
        let _turn = engine.catalog.creation.take(&engine.core.executor).await;
        engine.core.check_open()?;
        self.enter_index(building).await
    }

    /// Makes an index one of the database's: durable first, then readable.
    async fn enter_index(&self, building: &Building) -> Result<usize> {
        let engine = &self.0.engine;
        let base = engine.catalog.describe(building.base)?;
        self.sweep_calls(&base).await?;
        let (id, since) = (building.partition.id, engine.versions.present());
        engine.core.log.flush(engine.core.log.end()).await?;
        let found = engine.catalog.describe(building.base)?;
        let entered = readable(&found, building, since)?;
        let mut changes = vec![CatalogChange::Enter(id), CatalogChange::Since(id, building.change.since().0)];
        if !building.was_typed {
            building.states_type.set(true);
            changes.push(CatalogChange::Type(building.base.0, found.typed()?.record.clone()));
        }
        changes.extend(stored_indexes(&entered));
        state_catalog(engine, changes).await?;
        engine.catalog.note_swept_change();
        // Another index may have gone meanwhile.
        let entered = readable(&*engine.catalog.describe(building.base)?, building, since)?;
        let mut partitions = engine.catalog.partitions.borrow_mut();
        partitions.show(&building.partition);
        partitions.replace(Rc::new(entered));
        Ok(usize::from(id))
    }

    /// Leaves nothing of an index that was not built. If the superblock file cannot be told so, it is told again beside others.
    async fn take_index_back(&self, building: Building) {
        let mut changes = vec![CatalogChange::Drop(building.partition.id)];
        if building.states_type.get()
            && let Ok(base) = self.0.engine.catalog.describe(building.base)
        {
            let untyped = Partition { schema: None, ..(*base).clone() };
            changes.extend(superblock::begin(&untyped).into_iter().chain([CatalogChange::Enter(base.id)]));
        }
        if self.state_taken_back(&building, changes).await.is_ok() {
            drop(building.change);
            return self.end_index(building.partition).await;
        }
        let database = self.clone();
        let ending = async move {
            let mut wait_ns = LOOK_NS;
            // What it was to be told the next time tells it. A database that is closed leaves the rest to the next opening.
            while database.state_taken_back(&building, Vec::new()).await.is_err() {
                if database.0.engine.core.check_open().is_err() {
                    return;
                }
                database.0.engine.core.executor.sleep_ns(wait_ns).await;
                wait_ns = (2 * wait_ns).min(SECOND_NS);
            }
            drop(building.change);
            database.end_index(building.partition).await;
        };
        drop(self.0.engine.core.executor.spawn(ending));
    }

    /// The same up to where changes of records leave it alone. It may have been entered after all: then they have to be kept in it until
    /// that is certain.
    async fn state_taken_back(&self, building: &Building, changes: Vec<CatalogChange>) -> Result<()> {
        let engine = &self.0.engine;
        let _turn = engine.catalog.creation.take(&engine.core.executor).await;
        engine.core.check_open()?;
        state_catalog(engine, changes).await?;
        self.leave_alone(building.base, building.partition.id(), building.was_typed);
        Ok(())
    }

    async fn drop_index_undisturbed(&self, base: PartitionId, name: &str) -> Result<()> {
        let engine = &self.0.engine;
        let turn = engine.catalog.creation.take(&engine.core.executor).await;
        engine.core.check_open()?;
        let found = engine.catalog.describe(base)?;
        let number = engine.catalog.secondary(base, name)?;
        if found.organization != Organization::BTree {
            return Err(found.wrong_organization("a set keeps its secondary indexes for as long as it is there"));
        }
        let id = PartitionId(u16::try_from(number).expect("the number of a partition"));
        let change = self.begin_catalog_change();
        self.sweep_calls(&found).await?;
        if let Err(error) = state_catalog(engine, vec![CatalogChange::Drop(id.0)]).await {
            // The next opening may find it or not; until it is certain that it does not, changes of records are kept in it.
            if state_catalog(engine, vec![CatalogChange::Enter(id.0)]).await.is_err() {
                change.leave_undecided();
            }
            return Err(error);
        }
        engine.catalog.note_swept_change();
        let partition = engine.catalog.partitions.borrow_mut().hide(id)?;
        self.close_to_readers(base, id);
        drop(turn);
        if self.await_earlier(&partition).await.is_ok() {
            self.leave_alone(base, id, true);
            drop(change);
            self.end_index(partition).await;
            return Ok(());
        }
        let database = self.clone();
        let ending = async move {
            if database.outlast_earlier().await {
                database.leave_alone(base, id, true);
                drop(change);
                database.end_index(partition).await;
            }
        };
        drop(engine.core.executor.spawn(ending));
        Ok(())
    }

    /// From now on an index cannot be read, while changes of records are kept in it.
    fn close_to_readers(&self, base: PartitionId, tree: PartitionId) {
        let mut partitions = self.0.engine.catalog.partitions.borrow_mut();
        let Some(found) = partitions.get(base).cloned() else { return };
        let Some(schema) = &found.schema else { return };
        let mut secondaries = schema.secondaries.clone();
        for index in secondaries.iter_mut().filter(|index| index.tree.is_some_and(|other| other.id == tree)) {
            index.tree = Some(IndexTree { id: tree, since: None });
        }
        partitions.replace(Rc::new(found.with_indexes(&schema.record, secondaries)));
    }

    /// From now on changes of records are not kept in an index any more.
    fn leave_alone(&self, base: PartitionId, tree: PartitionId, is_typed: bool) {
        let mut partitions = self.0.engine.catalog.partitions.borrow_mut();
        let Some(found) = partitions.get(base).cloned() else { return };
        let Some(schema) = &found.schema else { return };
        let others = |index: &&SecondaryIndex| index.tree.is_none_or(|other| other.id != tree);
        let secondaries: Vec<SecondaryIndex> = schema.secondaries.iter().filter(others).cloned().collect();
        let mut left = found.with_indexes(&schema.record, secondaries);
        if !is_typed {
            left.schema = None;
        }
        partitions.replace(Rc::new(left));
    }

    /// Takes the b-tree of an index away that changes of records leave alone, once nothing of it is unfinished. If that takes long, it is done
    /// beside others.
    async fn end_index(&self, partition: Rc<Partition>) {
        if self.await_earlier(&partition).await.is_ok() {
            return self.end_index_in_turn(partition).await;
        }
        let database = self.clone();
        let ending = async move {
            if database.outlast_earlier().await {
                database.end_index_in_turn(partition).await;
            }
        };
        drop(self.0.engine.core.executor.spawn(ending));
    }

    /// Waits, however long it takes, until everything has ended that had begun before; false if the database is closed first. The next
    /// opening does the rest then.
    async fn outlast_earlier(&self) -> bool {
        let engine = &self.0.engine;
        let since = engine.transactions.registry.borrow().changes();
        while !engine.transactions.registry.borrow_mut().have_ended(since) {
            if engine.core.check_open().is_err() {
                return false;
            }
            engine.core.executor.sleep_ns(LOOK_NS).await;
        }
        true
    }

    async fn end_index_in_turn(&self, partition: Rc<Partition>) {
        let engine = &self.0.engine;
        let _turn = engine.catalog.creation.take(&engine.core.executor).await;
        if engine.core.check_open().is_ok() {
            self.end_drop(vec![partition], None).await;
        }
    }
}

/// What a partition is whose new index can be read from this position of the log on.
fn readable(found: &Partition, building: &Building, since: Lsn) -> Result<Partition> {
    let schema = found.typed()?;
    let mut secondaries = schema.secondaries.clone();
    for index in secondaries.iter_mut().filter(|index| index.name == building.index.name) {
        index.tree = Some(IndexTree { id: building.partition.id(), since: Some(since) });
    }
    Ok(found.with_indexes(&schema.record, secondaries))
}

/// What the records of a partition will be, and an index of them.
fn planned(found: &Partition, spec: &IndexSpec) -> Result<(Schema, SecondaryIndex)> {
    if found.organization != Organization::BTree || found.locking != Locking::Record || found.index_of.is_some() {
        return Err(found.wrong_organization("an index is created on a b-tree with record locks"));
    }
    if found.index_trees().any(|tree| tree.since.is_none()) {
        return Err(Error::PartitionInUse(found.name.clone()));
    }
    let schema = match (&found.schema, &spec.record) {
        (Some(schema), Some(record)) if schema.record != *record => {
            let detail = "its records have another type than the index is to have";
            return Err(found.wrong_organization(detail));
        }
        (Some(schema), _) => schema.clone(),
        (None, Some(record)) => Schema { record: record.clone(), secondaries: Vec::new() },
        (None, None) => {
            return Err(found.wrong_organization("its records have no fields; give the index their type"));
        }
    };
    let index = schema.plan(spec).map_err(|error: FieldError| found.field_error(error))?;
    Ok((schema, index))
}
