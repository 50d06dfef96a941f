//! B-tree records: reading, inserting, deleting one by key; changing one in place is in `modify.rs`.
//!
//! Locks are named by key, so they are taken before the tree is searched. Phantoms are kept out in `read_ranges.rs`.

use super::Transaction;
use super::get_each::{Shown, show};
use super::log_room::admit_change;
use super::read_ranges::BeforeLock;
use super::update::update;
use crate::catalog::Partition;
use crate::engine::{Core, Keyed, KeyedPartition};
use crate::locks::Ungranted;
use crate::statistics::FoundIn;
use crate::{Error, Need, Result};
use base::{PageId, PartitionId};
use std::rc::Rc;
use structures::PrefetchDistance;
use structures::canary::{self, Canary};
use structures::key_hash;
use structures::lock::{Mode, Resource};
use structures::organization::b_tree;
use structures::organization::b_tree::stored::{self, Stored};
use structures::page::{Change, Edit, Pages, slotted};
use structures::undo::Undo;

/// What a look into a leaf found.
enum FoundRecord {
    Nothing,
    Here(Vec<u8>),
    Elsewhere(usize, u32),
}

/// What an operation found that has asked for a record's lock.
pub(super) struct Entered {
    pub found: KeyedPartition,
    /// The lock, if it was not granted at once.
    pub ungranted: Option<(Resource, Ungranted)>,
}

/// A record was deleted.
struct Deleted {
    /// Whether a node on the way to it may have to be merged.
    is_underfull: bool,
}

/// What became of a synchronous step that may meet a lock.
pub(super) enum LockStep<T> {
    Done(T),
    /// This must be locked in this mode first; then the step is tried again.
    Wait(Resource, Mode),
}

impl<T> LockStep<T> {
    pub(super) fn is_done(&self) -> bool {
        matches!(self, LockStep::Done(_))
    }
}

impl Transaction {
    /// The value of `key`, if there is such a record.
    ///
    /// # Errors
    /// [`Error::Deadlock`], [`Error::NoPartition`], [`Error::WrongOrganization`], a damaged page, or the driver's.
    ///
    /// ```
    /// # mod ground { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/ground/database.rs")); }
    /// # use ground::*;
    /// # with_database(async |database| {
    /// # let notes = database.create_partition(PartitionSpec::b_tree("notes")).await?;
    /// database
    ///     .transaction(async |tx| {
    ///         assert_eq!(tx.get(notes, b"milk").await?, None);
    ///         tx.put(notes, b"milk", b"two litres").await?;
    ///         assert_eq!(tx.get(notes, b"milk").await?.as_deref(), Some(&b"two litres"[..]));
    ///         Ok::<_, entresol_engine::Error>(())
    ///     })
    ///     .await?;
    /// # Ok(())
    /// # });
    /// ```
    pub async fn get(&mut self, partition: PartitionId, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.read(partition, key, Mode::Shared).await
    }

    /// As [`Transaction::get`], for a record that will probably be changed: others may go on reading it, but no other
    /// transaction gets it for update, so two such transactions do not deadlock when they come to change it.
    ///
    /// # Errors
    /// As [`Transaction::get`].
    ///
    /// ```
    /// # mod ground { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/ground/database.rs")); }
    /// # use ground::*;
    /// # with_database(async |database| {
    /// # let lists = database.create_partition(PartitionSpec::b_tree("lists")).await?;
    /// database
    ///     .transaction(async |tx| {
    ///         let mut shopping = tx.get_for_update(lists, b"shopping").await?.unwrap_or_default();
    ///         shopping.extend(b"milk\n");
    ///         tx.put(lists, b"shopping", &shopping).await
    ///     })
    ///     .await?;
    /// # assert_eq!(database.transaction(async |tx| tx.get(lists, b"shopping").await).await?, Some(b"milk\n".to_vec()));
    /// # Ok(())
    /// # });
    /// ```
    pub async fn get_for_update(&mut self, partition: PartitionId, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.read(partition, key, Mode::Update).await
    }

    async fn read(&mut self, partition: PartitionId, key: &[u8], mode: Mode) -> Result<Option<Vec<u8>>> {
        if mode == Mode::Shared
            && let Some(read_view) = self.read_view_of(partition)?
        {
            return self.read_past(read_view, partition, key).await;
        }
        let hash = key_hash(key);
        if self.reference() {
            self.delayed_reference().await?;
        }
        let Entered { found, ungranted } = self.enter(partition, (key, hash), mode)?;
        if let Some(ungranted) = ungranted {
            self.wait_to_enter(ungranted, (found, partition), (key, hash), mode).await?;
        }
        if found.is_set {
            return self.get_in_set_with(partition, (key, hash), |value| value.map(<[u8]>::to_vec)).await;
        }
        self.mark_not_replayable()?;
        let found = self.read_in_tree(partition, key).await?;
        self.trace_key_access(partition, key, false);
        Ok(found)
    }

    /// Shows the value of `key` to `look` without copying it, unless it is a long one.
    ///
    /// # Errors
    /// As [`Transaction::get`].
    ///
    /// ```
    /// # mod ground { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/ground/database.rs")); }
    /// # use ground::*;
    /// # with_database(async |database| {
    /// # let texts = database.create_partition(PartitionSpec::b_tree("texts")).await?;
    /// # database.transaction(async |tx| tx.put(texts, b"poem", b"one\ntwo\nthree\n").await).await?;
    /// let lines = database
    ///     .transaction(async |tx| {
    ///         tx.get_with(texts, b"poem", |text| text.map(|text| text.iter().filter(|byte| **byte == b'\n').count())).await
    ///     })
    ///     .await?;
    /// assert_eq!(lines, Some(3));
    /// # Ok(())
    /// # });
    /// ```
    pub async fn get_with<R>(
        &mut self,
        partition: PartitionId,
        key: &[u8],
        look: impl FnOnce(Option<&[u8]>) -> R,
    ) -> Result<R> {
        if let Some(read_view) = self.read_view_of(partition)? {
            let value = self.read_past(read_view, partition, key).await?;
            return Ok(look(value.as_deref()));
        }
        if self.reference() {
            self.delayed_reference().await?;
        }
        let found = self.engine.catalog.find_keyed(partition)?;
        self.get_found_with(found, partition, key, look).await
    }

    /// As [`Transaction::get_with`], after the reference, in a partition that was looked up.
    #[inline]
    pub(super) async fn get_found_with<R>(
        &mut self,
        found: KeyedPartition,
        partition: PartitionId,
        key: &[u8],
        look: impl FnOnce(Option<&[u8]>) -> R,
    ) -> Result<R> {
        let hash = key_hash(key);
        if let Some(ungranted) = self.enter_found(found, partition, (key, hash), Mode::Shared)? {
            self.wait_to_enter(ungranted, (found, partition), (key, hash), Mode::Shared).await?;
        }
        if found.is_set {
            return self.get_in_set_with(partition, (key, hash), look).await;
        }
        self.mark_not_replayable()?;
        let mut look = Some(look);
        let engine = self.engine.clone();
        let seen =
            engine.core.resolve_access(partition, || show(&engine.core, partition, (key, None), &mut look)).await?;
        self.trace_key_access(partition, key, false);
        match seen {
            Shown::Here(answer) => Ok(answer),
            Shown::Elsewhere(length, first) => {
                let value = self.engine.core.fetch(partition, length, first).await?;
                Ok(look.take().expect("a long value was not shown yet")(Some(&value)))
            }
        }
    }

    /// Inserts a record.
    ///
    /// # Errors
    /// [`Error::Duplicate`] if there is one with this key, [`Error::TooLarge`] if key or value is beyond what the partition takes (see
    /// [`PartitionSpec::b_tree`](crate::PartitionSpec::b_tree) and [`PartitionSpec::set`](crate::PartitionSpec::set)), and as [`Transaction::get`].
    ///
    /// ```
    /// # mod ground { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/ground/database.rs")); }
    /// # use ground::*;
    /// # with_database(async |database| {
    /// # let users = database.create_partition(PartitionSpec::b_tree("users")).await?;
    /// database.transaction(async |tx| tx.insert(users, b"alice", b"since 1991").await).await?;
    /// let second = database.transaction(async |tx| tx.insert(users, b"alice", b"since 2026").await).await;
    /// assert_eq!(second, Err(Error::Duplicate("users".into())));
    /// # Ok(())
    /// # });
    /// ```
    pub async fn insert(&mut self, partition: PartitionId, key: &[u8], value: &[u8]) -> Result<()> {
        if self.write(partition, key, value, false).await? {
            return Ok(());
        }
        Err(self.duplicate(partition))
    }

    /// The error of a record that there is already.
    #[cold]
    pub(super) fn duplicate(&self, partition: PartitionId) -> Error {
        self.engine.catalog.describe(partition).map_or_else(|error| error, |found| Error::Duplicate(found.name.clone()))
    }

    /// Inserts a record or gives the present one this value.
    ///
    /// # Errors
    /// As [`Transaction::insert`], but for duplicates.
    ///
    /// ```
    /// # mod ground { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/ground/database.rs")); }
    /// # use ground::*;
    /// # with_database(async |database| {
    /// # let files = database.create_partition(PartitionSpec::b_tree("files")).await?;
    /// let picture = vec![7; 1 << 20];
    /// database
    ///     .transaction(async |tx| {
    ///         tx.put(files, b"picture", b"to come").await?;
    ///         tx.put(files, b"picture", &picture).await
    ///     })
    ///     .await?;
    /// assert_eq!(database.transaction(async |tx| tx.get(files, b"picture").await).await?, Some(picture));
    /// # Ok(())
    /// # });
    /// ```
    pub async fn put(&mut self, partition: PartitionId, key: &[u8], value: &[u8]) -> Result<()> {
        self.write(partition, key, value, true).await.map(|_| ())
    }

    /// Writes a record; false if there is one already and it must not be replaced.
    async fn write(&mut self, partition: PartitionId, key: &[u8], value: &[u8], replace: bool) -> Result<bool> {
        let hash = key_hash(key);
        if self.reference() {
            self.delayed_reference().await?;
        }
        let (found, keyed) = self.engine.catalog.find_keyed_to_change(partition)?;
        if let Some(ungranted) = self.enter_found(found, partition, (key, hash), Mode::Exclusive)? {
            self.wait_to_enter(ungranted, (found, partition), (key, hash), Mode::Exclusive).await?;
        }
        match keyed {
            Keyed::BTree => self.mark_not_replayable()?,
            Keyed::TypedBTree(typed) => {
                self.mark_not_replayable()?;
                return Box::pin(self.write_indexed(&typed, key, Some(value), replace)).await;
            }
            Keyed::Set => return self.write_in_set(partition, (key, hash), value, replace).await,
            Keyed::TypedSet(typed) => return Box::pin(self.write_typed(&typed, key, Some(value), replace)).await,
        }
        self.write_in_tree((partition, found.locks_records), key, value, replace).await
    }

    /// Writes a record of a b-tree, whose lock is held; false if there is one already and it must not be replaced.
    pub(super) async fn write_in_tree(
        &mut self,
        (partition, locks_records): (PartitionId, bool),
        key: &[u8],
        value: &[u8],
        replace: bool,
    ) -> Result<bool> {
        let engine = self.engine.clone();
        // A long value is not built in vain.
        if !replace
            && !self.fits_leaf(key, value)
            && !matches!(engine.core.complete(|| find(&engine.core, partition, key)).await?, FoundRecord::Nothing)
        {
            return Ok(false);
        }
        let mut stored = Vec::new();
        self.store(partition, key, value, &mut stored).await?;
        let mut found = FoundIn::default();
        loop {
            let write = || self.try_write((partition, locks_records), (key, None), &stored, replace);
            match engine.core.resolve_step(partition, &mut found, LockStep::is_done, write).await? {
                LockStep::Done(leaf) => {
                    self.trace_key_access(partition, key, leaf.is_some());
                    return Ok(leaf.is_some());
                }
                LockStep::Wait(resource, mode) => self.lock(resource, mode).await?,
            }
        }
    }

    /// Writes a stored value that is within the limits, and returns the leaf that has it; none if there is one already and it must not
    /// be replaced. One descent finds the place, the value that is there, and whether the leaf has room; or `near` is the leaf, if a
    /// search has named that since the tree was last changed.
    pub(super) fn try_write(
        &mut self,
        (partition, locks_records): (PartitionId, bool),
        (key, near): (&[u8], Option<PageId>),
        stored: &[u8],
        replace: bool,
    ) -> Result<LockStep<Option<PageId>>, Need> {
        let engine = self.engine.clone();
        let descend = |near| -> Result<_, Need> {
            let pool = engine.core.pages_to_search();
            let (place, leaf) = b_tree::find_near(&*pool, partition, key, near)?;
            let old = place.exact.then(|| slotted::value(leaf, place.slot).to_vec());
            engine.core.buffer.charge_value(place.page, place.slot, stored.len());
            Ok((place, old, b_tree::has_room(leaf, &place, key.len(), stored.len())))
        };
        let (mut place, mut old, mut has_room) = descend(near)?;
        if old.is_some() && !replace {
            return Ok(LockStep::Done(None));
        }
        admit_change(&engine, &self.state)?;
        if !has_room {
            make_room(&engine.core, partition, key, stored.len())?;
            (place, old, has_room) = descend(None)?;
            debug_assert!(has_room, "room was made");
        }
        engine.core.buffer.pool().borrow().write_permission(place.page)?;
        let Some(old) = old else {
            if locks_records && let Some((resource, mode)) = self.meet_readers(partition, key) {
                return Ok(LockStep::Wait(resource, mode));
            }
            let change = Change::InsertSlot { slot: place.slot, key, value: stored };
            let undo = Undo::Remove { partition, key };
            update(&engine, &mut self.state, &undo, &[Edit { page: place.page, change }]);
            self.attach_loose();
            self.note_page(place.page);
            return Ok(LockStep::Done(Some(place.page)));
        };
        self.give_up_chain(partition, &old);
        let change = Change::ReplaceValue { slot: place.slot, value: stored };
        let undo = Undo::Replace { partition, key, value: &old };
        update(&engine, &mut self.state, &undo, &[Edit { page: place.page, change }]);
        self.attach_loose();
        self.note_page(place.page);
        Ok(LockStep::Done(Some(place.page)))
    }

    /// Deletes a record; false if there is none with this key.
    ///
    /// # Errors
    /// As [`Transaction::get`].
    ///
    /// ```
    /// # mod ground { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/ground/database.rs")); }
    /// # use ground::*;
    /// # with_database(async |database| {
    /// # let notes = database.create_partition(PartitionSpec::b_tree("notes")).await?;
    /// database
    ///     .transaction(async |tx| {
    ///         tx.put(notes, b"milk", b"two litres").await?;
    ///         assert!(tx.delete(notes, b"milk").await?);
    ///         assert!(!tx.delete(notes, b"milk").await?, "there is none any more");
    ///         Ok::<_, entresol_engine::Error>(())
    ///     })
    ///     .await?;
    /// # Ok(())
    /// # });
    /// ```
    pub async fn delete(&mut self, partition: PartitionId, key: &[u8]) -> Result<bool> {
        let hash = key_hash(key);
        if self.reference() {
            self.delayed_reference().await?;
        }
        let (found, keyed) = self.engine.catalog.find_keyed_to_change(partition)?;
        if let Some(ungranted) = self.enter_found(found, partition, (key, hash), Mode::Exclusive)? {
            self.wait_to_enter(ungranted, (found, partition), (key, hash), Mode::Exclusive).await?;
        }
        match keyed {
            Keyed::BTree => self.mark_not_replayable()?,
            Keyed::TypedBTree(typed) => {
                self.mark_not_replayable()?;
                return Box::pin(self.write_indexed(&typed, key, None, true)).await;
            }
            Keyed::Set => return self.delete_in_set(partition, (key, hash)).await,
            Keyed::TypedSet(typed) => return Box::pin(self.write_typed(&typed, key, None, true)).await,
        }
        self.delete_in_tree((partition, found.locks_records), key).await
    }

    /// Deletes a record of a b-tree, whose lock is held; false if there is none with this key.
    pub(super) async fn delete_in_tree(
        &mut self,
        (partition, locks_records): (PartitionId, bool),
        key: &[u8],
    ) -> Result<bool> {
        let engine = self.engine.clone();
        let delete = || self.try_delete((partition, locks_records), key);
        let deleted = engine.core.resolve_access(partition, delete).await?;
        self.trace_key_access(partition, key, deleted.is_some());
        if let Some(Deleted { is_underfull: true }) = deleted {
            engine.core.complete(|| merge(&engine.core, partition, key)).await?;
        }
        Ok(deleted.is_some())
    }

    /// Deletes a record, if there is one with this key. One descent finds its place and whether a merge is due.
    fn try_delete(
        &mut self,
        (partition, locks_records): (PartitionId, bool),
        key: &[u8],
    ) -> Result<Option<Deleted>, Need> {
        let engine = self.engine.clone();
        admit_change(&engine, &self.state)?;
        let (place, old, has_underfull_parent) = {
            let pool = engine.core.pages_to_search();
            let (place, leaf, has_underfull_parent) = b_tree::find_to_remove(&*pool, partition, key)?;
            if !place.exact {
                engine.core.buffer.charge_value(place.page, place.slot, 0);
                return Ok(None);
            }
            pool.write_permission(place.page)?;
            let old = slotted::value(leaf, place.slot);
            engine.core.buffer.charge_value(place.page, place.slot, old.len());
            (place, old.to_vec(), has_underfull_parent)
        };
        if locks_records {
            engine.core.locks.note_deleted(self.state.owner, partition, key);
        }
        self.give_up_chain(partition, &old);
        let undo = Undo::Insert { partition, key, value: &old };
        let change = Change::RemoveSlot { slot: place.slot };
        update(&engine, &mut self.state, &undo, &[Edit { page: place.page, change }]);
        self.note_page(place.page);
        let pool = engine.core.buffer.pool().borrow();
        let leaf = pool.peek(place.page).expect("it was just changed");
        let is_underfull = has_underfull_parent || b_tree::is_underfull(leaf, place.page.number == b_tree::ROOT);
        Ok(Some(Deleted { is_underfull }))
    }

    /// The value of `key` in a b-tree, whose lock is held.
    pub(super) async fn read_in_tree(&self, partition: PartitionId, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let core = &self.engine.core;
        match core.resolve_access(partition, || find(core, partition, key)).await? {
            FoundRecord::Nothing => Ok(None),
            FoundRecord::Here(value) => Ok(Some(value)),
            FoundRecord::Elsewhere(length, first) => core.fetch(partition, length, first).await.map(Some),
        }
    }

    /// Looks the partition up and asks for the lock of a record, as the partition's locking asks. The reference comes before.
    #[inline]
    pub(super) fn enter(&mut self, partition: PartitionId, (key, hash): (&[u8], u64), mode: Mode) -> Result<Entered> {
        let found = self.engine.catalog.find_keyed(partition)?;
        let ungranted = self.enter_found(found, partition, (key, hash), mode)?;
        Ok(Entered { found, ungranted })
    }

    /// As [`Transaction::enter`], in a partition that was looked up. Returns the lock that is not granted at once: the record's, or
    /// one that comes before.
    ///
    /// Part of its callers: a sixth of what a free lock costs would be the call.
    #[inline(always)]
    pub(super) fn enter_found(
        &mut self,
        found: KeyedPartition,
        partition: PartitionId,
        (key, hash): (&[u8], u64),
        mode: Mode,
    ) -> Result<Option<(Resource, Ungranted)>> {
        if !found.locks_records {
            return Ok(self.before_unlocked(partition));
        }
        if mode == Mode::Shared && canary::is_planted(Canary::UnlockedRead) {
            return Ok(None);
        }
        if found.is_set {
            self.engine.sets.sets.borrow().prefetch(partition, hash, PrefetchDistance::Far);
        } else if self.engine.core.locks.are_ranges_held() {
            match self.before_lock(partition, key, mode) {
                BeforeLock::Nothing => {}
                BeforeLock::Covered => return Ok(None),
                BeforeLock::Blocked(resource, ungranted) => return Ok(Some((resource, ungranted))),
            }
        }
        let resource = Resource::record(partition, hash);
        if self.engine.versions.is_kept() {
            self.engine.versions.versions().borrow().prefetch(resource);
        }
        if let Some(ungranted) = self.request(resource, mode) {
            return Ok(Some((resource, ungranted)));
        }
        self.check_conflict(partition, resource, mode)?;
        Ok(None)
    }

    /// Waits for the lock that [`Transaction::enter`] was not granted at once.
    #[cold]
    pub(super) async fn wait_to_enter(
        &mut self,
        (mut resource, mut ungranted): (Resource, Ungranted),
        (found, partition): (KeyedPartition, PartitionId),
        (key, hash): (&[u8], u64),
        mode: Mode,
    ) -> Result<()> {
        loop {
            self.wait_for_lock(resource, ungranted).await?;
            if resource == Resource::record(partition, hash) {
                return self.check_conflict(partition, resource, mode);
            }
            match self.enter_found(found, partition, (key, hash), mode)? {
                None => return Ok(()),
                Some(next) => (resource, ungranted) = next,
            }
        }
    }

    /// Refers to a record and locks it to change it.
    pub(super) async fn lock_record_exclusively(
        &mut self,
        found: &Rc<Partition>,
        (key, hash): (&[u8], u64),
    ) -> Result<()> {
        if self.reference() {
            self.delayed_reference().await?;
        }
        let partition = found.id();
        let keyed = KeyedPartition::of(found)?;
        match self.enter_found(keyed, partition, (key, hash), Mode::Exclusive)? {
            Some(ungranted) => self.wait_to_enter(ungranted, (keyed, partition), (key, hash), Mode::Exclusive).await,
            None => Ok(()),
        }
    }

    /// Remembers a changed page, if it will be forced.
    pub(super) fn note_page(&mut self, page: PageId) {
        if self.engine.transactions.rules.force && !self.state.pages.contains(&page) {
            self.state.pages.push(page);
        }
    }
}

fn find(core: &Core, partition: PartitionId, key: &[u8]) -> Result<FoundRecord, Need> {
    let pool = core.pages_to_search();
    let (place, leaf) = b_tree::find(&*pool, partition, key)?;
    let stored = place.exact.then(|| slotted::value(leaf, place.slot));
    core.buffer.charge_value(place.page, place.slot, stored.map_or(0, <[u8]>::len));
    let Some(stored) = stored else { return Ok(FoundRecord::Nothing) };
    Ok(match stored::read(stored) {
        Stored::Here(value) => FoundRecord::Here(value.to_vec()),
        Stored::Elsewhere(length, first) => FoundRecord::Elsewhere(length, first),
    })
}

/// Restructures until the leaf of `key` has room for a stored value of `length` bytes.
pub(super) fn make_room(core: &Core, partition: PartitionId, key: &[u8], length: usize) -> Result<(), Need> {
    loop {
        let step = {
            let pool = core.buffer.pool().borrow();
            let Some(step) = b_tree::make_room(&*pool, partition, key, length)? else { return Ok(()) };
            require_pages(&*pool, &step)?;
            step
        };
        let edits: Vec<Edit<'_>> = step.iter().map(|edit| edit.as_edit()).collect();
        core.change(&edits)?;
    }
}

/// Merges until no node on the way to `key` is too empty.
pub(super) fn merge(core: &Core, partition: PartitionId, key: &[u8]) -> Result<(), Need> {
    loop {
        let step = {
            let pool = core.buffer.pool().borrow();
            let Some(step) = b_tree::merge(&*pool, partition, key)? else { return Ok(()) };
            require_pages(&*pool, &step)?;
            step
        };
        let edits: Vec<Edit<'_>> = step.iter().map(|edit| edit.as_edit()).collect();
        core.change(&edits)?;
    }
}

/// Asks for the pages of a plan that are not in the buffer: new ones.
fn require_pages(pages: &impl Pages, plan: &[structures::page::OwnedEdit]) -> Result<(), structures::Need> {
    plan.iter().try_for_each(|edit| pages.page(edit.page).map(|_| ()))
}
