//! Creating and dropping secondary indexes of b-trees and of sets while their records are used.
//!
//! An index is created so:
//!
//! 1. Its b-tree is made, or that of a set in memory (`set_index`). The catalog does not have it yet: a restart leaves nothing of it.
//! 2. From now on each change of a record changes its entry, too. Transactions that had begun before may be about to make one that does
//!    not; their ends are waited for.
//! 3. Entries are added to the records that have none, a few at a time: in a b-tree under the locks of these.
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
//! 4. Its pages leave memory, its file is removed, its name is free. That of a set leaves memory a few entries at a time.

use super::Database;
use super::building_index::BuildingGuard;
use super::catalog_change::CatalogChangeGuard;
use crate::catalog::{IndexInSet, IndexSpec, IndexTree, Locking, Organization, Partition, Schema, SecondaryIndex};
use crate::checkpoint::state_catalog;
use crate::engine::IndexBuild;
use crate::superblock::{self, CatalogChange, stored_index};
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
pub(super) struct Building {
    pub(super) base: PartitionId,
    /// Its b-tree, if its records are in one.
    tree: Option<Rc<Partition>>,
    pub(super) index: SecondaryIndex,
    /// Whether its records have had a type before.
    was_typed: bool,
    /// Whether the superblock file may have it, and perhaps say that its records have a type.
    is_stated: Cell<bool>,
    /// Calls of procedures may meet a type that a restart knows nothing of.
    change: CatalogChangeGuard,
    /// What others see of it.
    pub(super) build: BuildingGuard,
}

impl Building {
    pub(super) fn number(&self) -> usize {
        self.index.number().expect("it is one of its partition's")
    }
}

impl Database {
    /// Creates an ordered secondary index of a b-tree with record locks, or of a set, and fills it while others go on to change records. Returns
    /// its number ([`Database::secondary`]). It is durable when this returns; the creation goes on to its end even if its future is dropped. One that
    /// fails, is dropped meanwhile ([`Database::drop_index`]) or is cut off leaves nothing behind. If it is unique, others may be told so of
    /// their records before it is whole. How far it is [`Database::index_builds`] says.
    ///
    /// What the opening has left to be undone is waited for as long as that gets on.
    /// Transactions and snapshots that had begun before it are waited for, up to ten seconds; for a set once more, those that had begun
    /// before it had all records, and for a unique index those that change a record whose contents two have had. Where procedures are logged as calls, all sets
    /// are swept, and meanwhile the log has what calls change. For a b-tree memory is taken for a few records only; entries come in the
    /// order of the records, so the index should fit into the buffer. That of a set is in memory, and is built anew at each opening.
    ///
    /// # Errors
    /// [`Error::WrongOrganization`] if the partition is neither a b-tree with record locks nor a set, or its records have no type and
    /// [`IndexSpec::record`] says none; also for a unique index of a set that is not locked by record; [`Error::Setting`] while nodes use the
    /// database; [`Error::Field`] if the index has the name of another one or a field that the records do not have, or if it is
    /// unique and two records have the same contents ([`FieldError::NotUnique`] names both); [`Error::Unsuitable`] if a record is not of the type; [`Error::TooLarge`] if the contents of
    /// a record's fields are too long for a key; [`Error::StillUndoing`] or [`Error::RollbackStalled`] if what the opening has left does not
    /// get on; [`Error::PartitionInUse`] if another index is being built or others do not end; and those of
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
    /// let detail = "the record with key 33 cannot have name \"Ada\", as the one with key 31 has: the index 'by_name' is unique";
    /// assert_eq!(again.to_string(), format!("partition 'users': {detail}"));
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

    /// Drops an index. When this returns, it is gone for good. Changes of records are kept in it until the transactions have
    /// ended that had begun before; until then the partition gets no other index and cannot be dropped. Sets are swept as for
    /// [`Database::create_index`]. One that is being built is built no further: its creation fails.
    ///
    /// # Errors
    /// [`Error::NoPartition`], [`Error::Field`] if there is no such index, [`Error::PartitionInUse`] if others keep the sweep from going on for ten seconds, or what is left
    /// of one that was being built cannot be taken away for as long, as where its device is full; the log's or the driver's: the index stays then.
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
        // What is undone is not entered in an index that was not there when it was changed.
        self.await_undone().await?;
        let building = self.begin_index(base, spec).await?;
        match self.fill_and_enter(&building).await {
            Ok(number) => Ok(number),
            Err(error) => {
                self.take_index_back(building).await;
                Err(error)
            }
        }
    }

    /// Makes the b-tree of an index, or that of a set in memory, and has all changes of records from now on kept in it.
    async fn begin_index(&self, base: PartitionId, spec: IndexSpec) -> Result<Building> {
        let engine = &self.0.engine;
        self.await_leases().await?;
        let _turn = engine.catalog.creation.take(&engine.core.executor).await;
        engine.core.check_open()?;
        let found = engine.catalog.describe(base)?;
        self.check_unserved(&found, &format!("gets no index '{}'", spec.name))?;
        let (mut schema, mut index) = planned(&found, &spec)?;
        let mut tree = None;
        if found.set_settings().is_none() {
            let partition = self.plan_index(&found, &spec.name)?;
            if let Err(error) = self.build_index(&partition).await {
                self.detach(&partition).await;
                self.remove_files(&partition).await;
                return Err(error);
            }
            engine.core.statistics.reserve(usize::from(partition.id) + 1);
            tree = Some(partition);
        }
        let change = self.begin_catalog_change();
        match &tree {
            Some(partition) => {
                index.tree = Some(IndexTree { id: partition.id(), since: None });
                engine.catalog.partitions.borrow_mut().insert_hidden(Rc::clone(partition));
            }
            None => {
                let number = self.begin_in_set(&found, schema.definition(&index))?;
                index.in_set = Some(IndexInSet { number, since: None });
            }
        }
        schema.secondaries.push(index.clone());
        let building = Rc::new(found.with_indexes(&schema.record, schema.secondaries));
        engine.catalog.partitions.borrow_mut().replace(building);
        let (was_typed, is_stated) = (found.schema.is_some(), Cell::new(false));
        let build = BuildingGuard::new(engine, IndexBuild::new(base, &spec.name));
        Ok(Building { base, tree, index, was_typed, is_stated, change, build })
    }

    async fn fill_and_enter(&self, building: &Building) -> Result<usize> {
        let engine = &self.0.engine;
        let found = engine.catalog.describe(building.base)?;
        self.await_earlier(&found).await?;
        match &building.tree {
            Some(tree) => self.fill_tree(building, &found, tree.id()).await?,
            None => self.fill_in_set(building).await?,
        }
        let _turn = engine.catalog.creation.take(&engine.core.executor).await;
        engine.core.check_open()?;
        self.enter_index(building).await
    }

    async fn fill_tree(&self, building: &Building, found: &Partition, tree: PartitionId) -> Result<()> {
        let mut from = Bound::Unbounded;
        loop {
            building.build.check(&self.0.engine)?;
            let add = async |tx: &mut Transaction| tx.index_records(found, &building.index, tree, &from).await;
            let (count, last) = self.transaction(add).await?;
            building.build.add(count);
            let Some(last) = last else { return Ok(()) };
            from = Bound::Excluded(last);
        }
    }

    /// Makes an index one of the database's: durable first, then readable.
    async fn enter_index(&self, building: &Building) -> Result<usize> {
        let engine = &self.0.engine;
        let base = engine.catalog.describe(building.base)?;
        self.sweep_calls(&base).await?;
        let since = engine.versions.present();
        engine.core.log.flush(engine.core.log.end()).await?;
        building.build.check(engine)?;
        let found = engine.catalog.describe(building.base)?;
        let number = building.number();
        let entered = with_since(&found, number, Some(since))?;
        let mut changes = Vec::new();
        if let Some(tree) = &building.tree {
            changes.extend([CatalogChange::Enter(tree.id), CatalogChange::Since(tree.id, building.change.since().0)]);
        }
        if !building.was_typed {
            changes.push(CatalogChange::Type(building.base.0, found.typed()?.record.clone()));
        }
        changes.extend(stored_index(building.base, entered.typed()?.index(number).expect("it can be read")));
        building.is_stated.set(true);
        state_catalog(engine, changes).await?;
        engine.catalog.note_swept_change();
        // Another index may have gone meanwhile.
        let entered = with_since(&*engine.catalog.describe(building.base)?, number, Some(since))?;
        let mut partitions = engine.catalog.partitions.borrow_mut();
        match &building.tree {
            Some(tree) => partitions.show(tree),
            None => engine.sets.sets.borrow_mut().end_secondary(building.base, number),
        }
        partitions.replace(Rc::new(entered));
        building.build.note_entered();
        Ok(number)
    }

    /// Leaves nothing of an index that was not built. If the superblock file cannot be told so, it is told again beside others.
    async fn take_index_back(&self, building: Building) {
        let mut changes = Vec::new();
        match &building.tree {
            Some(tree) => changes.push(CatalogChange::Drop(tree.id)),
            None if building.is_stated.get() => changes.push(gone_from_set(building.base, building.number())),
            None => {}
        }
        if building.is_stated.get()
            && !building.was_typed
            && let Ok(base) = self.0.engine.catalog.describe(building.base)
        {
            let untyped = Partition { schema: None, ..(*base).clone() };
            changes.extend(superblock::begin(&untyped).into_iter().chain([CatalogChange::Enter(base.id)]));
        }
        if self.state_taken_back(&building, changes).await.is_ok() {
            return self.end_building(building).await;
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
            database.end_building(building).await;
        };
        drop(self.0.engine.core.executor.spawn(ending));
    }

    /// Takes away what changes of records leave alone.
    async fn end_building(&self, building: Building) {
        drop(building.change);
        match building.tree {
            Some(tree) => self.end_index(tree).await,
            None => self.end_in_set(building.base, building.index.number().expect("it was begun")),
        }
    }

    /// The same up to where changes of records leave it alone. It may have been entered after all: then they have to be kept in it until
    /// that is certain.
    async fn state_taken_back(&self, building: &Building, changes: Vec<CatalogChange>) -> Result<()> {
        let engine = &self.0.engine;
        let _turn = engine.catalog.creation.take(&engine.core.executor).await;
        engine.core.check_open()?;
        if building.tree.is_some() || building.is_stated.get() {
            state_catalog(engine, changes).await?;
        }
        self.leave_alone(building.base, building.number(), building.was_typed);
        Ok(())
    }

    async fn drop_index_undisturbed(&self, base: PartitionId, name: &str) -> Result<()> {
        let engine = &self.0.engine;
        if self.give_up_build(base, name).await? {
            return Ok(());
        }
        self.await_leases().await?;
        let turn = engine.catalog.creation.take(&engine.core.executor).await;
        engine.core.check_open()?;
        let found = engine.catalog.describe(base)?;
        let number = engine.catalog.secondary(base, name)?;
        self.check_unserved(&found, &format!("keeps its index '{name}'"))?;
        let index = found.typed()?.index(number).expect("it is there").clone();
        let (drops, keeps) = match index.tree {
            Some(tree) => (CatalogChange::Drop(tree.id.0), Some(CatalogChange::Enter(tree.id.0))),
            None => (gone_from_set(base, number), stored_index(base, &index)),
        };
        let change = self.begin_catalog_change();
        self.sweep_calls(&found).await?;
        if let Err(error) = state_catalog(engine, vec![drops]).await {
            // The next opening may find it or not; until it is certain that it does not, changes of records are kept in it.
            if state_catalog(engine, keeps.into_iter().collect()).await.is_err() {
                change.leave_undecided();
            }
            return Err(error);
        }
        engine.catalog.note_swept_change();
        let tree = index.tree.map(|tree| engine.catalog.partitions.borrow_mut().hide(tree.id)).transpose()?;
        self.close_to_readers(base, number);
        drop(turn);
        let is_over = self.await_earlier(&found).await.is_ok();
        let database = self.clone();
        let ending = async move {
            if is_over || database.outlast_earlier().await {
                database.leave_alone(base, number, true);
                drop(change);
                match tree {
                    Some(tree) => database.end_index(tree).await,
                    None => database.end_in_set(base, number),
                }
            }
        };
        if is_over {
            ending.await;
        } else {
            drop(engine.core.executor.spawn(ending));
        }
        Ok(())
    }

    /// From now on an index cannot be read, while changes of records are kept in it.
    fn close_to_readers(&self, base: PartitionId, number: usize) {
        let mut partitions = self.0.engine.catalog.partitions.borrow_mut();
        let Some(found) = partitions.get(base).cloned() else { return };
        if let Ok(closed) = with_since(&found, number, None) {
            partitions.replace(Rc::new(closed));
        }
    }

    /// From now on changes of records are not kept in an index any more.
    fn leave_alone(&self, base: PartitionId, number: usize, is_typed: bool) {
        let mut partitions = self.0.engine.catalog.partitions.borrow_mut();
        let Some(found) = partitions.get(base).cloned() else { return };
        let Some(schema) = &found.schema else { return };
        let others = |index: &&SecondaryIndex| index.number() != Some(number);
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

/// What a partition is whose index can be read from this position of the log on, or not at all.
fn with_since(found: &Partition, number: usize, since: Option<Lsn>) -> Result<Partition> {
    let schema = found.typed()?;
    let mut secondaries = schema.secondaries.clone();
    let meant = secondaries.iter_mut().filter(|index| index.number() == Some(number));
    meant.for_each(|index| index.set_since(since));
    Ok(found.with_indexes(&schema.record, secondaries))
}

/// That a set has no such index any more.
fn gone_from_set(base: PartitionId, number: usize) -> CatalogChange {
    CatalogChange::SetIndexGone(base.0, u16::try_from(number).expect("the number of an index of a set"))
}

/// What the records of a partition will be, and an index of them.
fn planned(found: &Partition, spec: &IndexSpec) -> Result<(Schema, SecondaryIndex)> {
    let is_possible = match found.organization {
        Organization::BTree => found.locking == Locking::Record,
        Organization::Set { .. } => true,
        _ => false,
    };
    if !is_possible || found.index_of.is_some() {
        return Err(found.wrong_organization("an index is created on a b-tree with record locks, or on a set"));
    }
    if found.set_settings().is_some() && spec.is_unique && found.locking != Locking::Record {
        return Err(found.wrong_organization("a set with a unique secondary index is locked by record"));
    }
    if found.has_unready_index() {
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
