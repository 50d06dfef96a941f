//! B-tree records: reading, inserting, changing, deleting one by key.
//!
//! Locks are named by key, so they are taken before the tree is searched. Phantoms are kept out in `gaps.rs`.

use super::Transaction;
use super::keyed::Keyed;
use super::long_value::{self, Stored, VERSION_SIZE};
use crate::database::Database;
use crate::{Error, Need, Result};
use base::{PageId, PartitionId};
use structures::Foresight;
use structures::canary::{self, Canary};
use structures::difference::difference;
use structures::key_hash;
use structures::lock::{Mode, Outcome, Resource};
use structures::organization::b_tree;
use structures::page::{Change, Edit, Pages, slotted};
use structures::undo::Undo;

/// What a look into a leaf found.
enum Found {
    Nothing,
    Here(Vec<u8>),
    Elsewhere(usize, u32),
}

/// What a reference to a record has to wait for.
pub(super) enum Obstacle {
    /// The reference itself; the lock is not yet asked for.
    Reference,
    /// The lock, which was not granted at once.
    Lock(Resource, Outcome),
}

/// What became of a synchronous step that may meet a lock.
pub(super) enum Passage<T> {
    Done(T),
    /// This must be locked in this mode first; then the step is tried again.
    Blocked(Resource, Mode),
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
    ///         Ok(())
    ///     })
    ///     .await?;
    /// # Ok(())
    /// # });
    /// ```
    pub async fn get(&mut self, partition: PartitionId, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.read(partition, key, Mode::Shared).await
    }

    /// As [`Transaction::get`], for a record that will probably be changed: others may go on reading it, but nobody else
    /// gets it for update, so two such transactions do not deadlock when they come to change it.
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
            && let Some(viewing) = self.viewing()
        {
            return self.read_past(viewing, partition, key).await;
        }
        let hash = key_hash(key);
        if let Some(obstacle) = self.enter(partition, hash, mode)? {
            self.overcome(obstacle, partition, hash, mode).await?;
        }
        let database = self.database.clone();
        if database.is_set(partition) {
            return self.look_in_set(partition, (key, hash), |value| value.map(<[u8]>::to_vec)).await;
        }
        self.depart()?;
        let found = database.refer(partition, || database.find(partition, key)).await?;
        self.tell_key(partition, key, false);
        match found {
            Found::Nothing => Ok(None),
            Found::Here(value) => Ok(Some(value)),
            Found::Elsewhere(length, first) => self.database.fetch(partition, length, first).await.map(Some),
        }
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
    ///         tx.look(texts, b"poem", |text| text.map(|text| text.iter().filter(|byte| **byte == b'\n').count())).await
    ///     })
    ///     .await?;
    /// assert_eq!(lines, Some(3));
    /// # Ok(())
    /// # });
    /// ```
    pub async fn look<R>(
        &mut self,
        partition: PartitionId,
        key: &[u8],
        look: impl FnOnce(Option<&[u8]>) -> R,
    ) -> Result<R> {
        if let Some(viewing) = self.viewing() {
            let value = self.read_past(viewing, partition, key).await?;
            return Ok(look(value.as_deref()));
        }
        let hash = key_hash(key);
        if let Some(obstacle) = self.enter(partition, hash, Mode::Shared)? {
            self.overcome(obstacle, partition, hash, Mode::Shared).await?;
        }
        if self.database.is_set(partition) {
            return self.look_in_set(partition, (key, hash), look).await;
        }
        self.depart()?;
        let mut look = Some(look);
        let database = self.database.clone();
        let seen = database.refer(partition, || database.look(partition, key, &mut look)).await?;
        self.tell_key(partition, key, false);
        match seen {
            Ok(answer) => Ok(answer),
            Err((length, first)) => {
                let value = self.database.fetch(partition, length, first).await?;
                Ok(look.take().expect("a long value was not shown yet")(Some(&value)))
            }
        }
    }

    /// Inserts a record.
    ///
    /// # Errors
    /// [`Error::Duplicate`] if there is one with this key, [`Error::TooLarge`], and as [`Transaction::get`].
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
        Err(Error::Duplicate(self.database.describe(partition)?.name.clone()))
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
        if let Some(obstacle) = self.enter(partition, hash, Mode::Exclusive)? {
            self.overcome(obstacle, partition, hash, Mode::Exclusive).await?;
        }
        let database = self.database.clone();
        match database.keyed(partition) {
            Keyed::BTree => self.depart()?,
            Keyed::Set => return self.write_in_set(partition, (key, hash), value, replace).await,
            Keyed::TypedSet => {
                let found = database.describe(partition)?;
                return Box::pin(self.write_typed(&found, key, Some(value), replace)).await;
            }
        }
        if !replace && !matches!(database.complete(|| database.find(partition, key)).await?, Found::Nothing) {
            return Ok(false);
        }
        let mut stored = Vec::new();
        self.store(partition, key, value, &mut stored).await?;
        loop {
            let step = database.refer(partition, || self.try_write(partition, key, &stored)).await?;
            match step {
                Passage::Done(()) => {
                    self.tell_key(partition, key, true);
                    return Ok(true);
                }
                Passage::Blocked(resource, mode) => self.lock(resource, mode).await?,
            }
        }
    }

    fn try_write(&mut self, partition: PartitionId, key: &[u8], stored: &[u8]) -> Result<Passage<()>, Need> {
        let database = self.database.clone();
        database.admit_change(&self.state)?;
        database.make_room(partition, key, stored.len())?;
        let (place, old) = {
            let pool = database.0.buffer.pool().borrow();
            let (place, leaf) = b_tree::find(&*pool, partition, key)?;
            (place, place.exact.then(|| slotted::value(leaf, place.slot).to_vec()))
        };
        let Some(old) = old else {
            if let Some((resource, mode)) = self.pass_gap(partition, key)? {
                return Ok(Passage::Blocked(resource, mode));
            }
            let change = Change::InsertSlot { slot: place.slot, key, value: stored };
            let undo = Undo::Remove { partition, key };
            database.update(&mut self.state, &undo, &[Edit { page: place.page, change }]);
            self.attach_loose();
            self.note_page(place.page);
            return Ok(Passage::Done(()));
        };
        self.give_up_chain(partition, &old);
        let change = Change::ReplaceValue { slot: place.slot, value: stored };
        let undo = Undo::Replace { partition, key, value: &old };
        database.update(&mut self.state, &undo, &[Edit { page: place.page, change }]);
        self.attach_loose();
        self.note_page(place.page);
        Ok(Passage::Done(()))
    }

    /// Changes the value of `key` in place: `change` sees its bytes and may alter them, not their number. Ready at once if
    /// all is in memory and nobody is in the way. Only the bytes that differ are logged.
    ///
    /// # Errors
    /// [`Error::NoRecord`], [`Error::TooLarge`] for a long value, and as [`Transaction::get`].
    ///
    /// ```
    /// # mod ground { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/ground/database.rs")); }
    /// # use ground::*;
    /// # with_database(async |database| {
    /// # let visits = database.create_partition(PartitionSpec::b_tree("visits")).await?;
    /// # database.transaction(async |tx| tx.put(visits, b"home", &41_u64.to_le_bytes()).await).await?;
    /// let count = database
    ///     .transaction(async |tx| {
    ///         tx.modify(visits, b"home", |bytes| {
    ///             let count = u64::from_le_bytes((&*bytes).try_into().expect("eight bytes")) + 1;
    ///             bytes.copy_from_slice(&count.to_le_bytes());
    ///             count
    ///         })
    ///         .await
    ///     })
    ///     .await?;
    /// assert_eq!(count, 42);
    /// # Ok(())
    /// # });
    /// ```
    #[inline]
    pub async fn modify<R>(
        &mut self,
        partition: PartitionId,
        key: &[u8],
        change: impl FnOnce(&mut [u8]) -> R,
    ) -> Result<R> {
        let keyed = self.database.keyed(partition);
        let mut leaf = if let Keyed::BTree = keyed { self.database.approach(partition, key) } else { None };
        let hash = key_hash(key);
        if let Some(obstacle) = self.enter(partition, hash, Mode::Exclusive)? {
            self.overcome(obstacle, partition, hash, Mode::Exclusive).await?;
            leaf = None;
        }
        match keyed {
            Keyed::BTree => self.depart()?,
            Keyed::Set => return self.modify_in_set(partition, (key, hash), change).await,
            Keyed::TypedSet => return Box::pin(self.modify_typed(partition, key, change)).await,
        }
        let mut change = Some(change);
        let (database, state) = (&self.database, &mut self.state);
        let attempt = || database.try_modify(state, partition, (key, leaf.take()), &mut change);
        let answer = database.refer(partition, attempt).await?;
        self.tell_key(partition, key, true);
        Ok(answer)
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
    ///         Ok(())
    ///     })
    ///     .await?;
    /// # Ok(())
    /// # });
    /// ```
    pub async fn delete(&mut self, partition: PartitionId, key: &[u8]) -> Result<bool> {
        let hash = key_hash(key);
        if let Some(obstacle) = self.enter(partition, hash, Mode::Exclusive)? {
            self.overcome(obstacle, partition, hash, Mode::Exclusive).await?;
        }
        let database = self.database.clone();
        match database.keyed(partition) {
            Keyed::BTree => self.depart()?,
            Keyed::Set => return self.delete_in_set(partition, (key, hash)).await,
            Keyed::TypedSet => {
                let found = database.describe(partition)?;
                return Box::pin(self.write_typed(&found, key, None, true)).await;
            }
        }
        let deleted = loop {
            let step = database.refer(partition, || self.try_delete(partition, key)).await?;
            match step {
                Passage::Done(deleted) => break deleted,
                Passage::Blocked(resource, mode) => self.lock(resource, mode).await?,
            }
        };
        self.tell_key(partition, key, deleted);
        if deleted {
            database.complete(|| database.merge(partition, key)).await?;
        }
        Ok(deleted)
    }

    fn try_delete(&mut self, partition: PartitionId, key: &[u8]) -> Result<Passage<bool>, Need> {
        let database = self.database.clone();
        database.admit_change(&self.state)?;
        let (place, old) = {
            let pool = database.0.buffer.pool().borrow();
            let (place, leaf) = b_tree::find(&*pool, partition, key)?;
            if !place.exact {
                return Ok(Passage::Done(false));
            }
            (place, slotted::value(leaf, place.slot).to_vec())
        };
        if let Some((resource, mode)) = self.lock_joined_gaps(partition, key)? {
            return Ok(Passage::Blocked(resource, mode));
        }
        self.give_up_chain(partition, &old);
        let undo = Undo::Insert { partition, key, value: &old };
        let change = Change::RemoveSlot { slot: place.slot };
        database.update(&mut self.state, &undo, &[Edit { page: place.page, change }]);
        self.note_page(place.page);
        Ok(Passage::Done(true))
    }

    /// Refers to the record of the key with this hash and locks it as the partition's locking asks. Returns what is in the way,
    /// if anything.
    #[inline]
    pub(super) fn enter(&mut self, partition: PartitionId, hash: u64, mode: Mode) -> Result<Option<Obstacle>> {
        if self.reference() {
            return Ok(Some(Obstacle::Reference));
        }
        if !self.database.check_keyed(partition)? || mode == Mode::Shared && canary::is_planted(Canary::UnlockedRead) {
            return Ok(None);
        }
        let resource = Resource::record(partition, hash);
        self.database.approach_record(resource, partition, hash);
        match self.request(resource, mode) {
            Outcome::Granted => {
                self.check_conflict(partition, resource, mode)?;
                Ok(None)
            }
            denied => Ok(Some(Obstacle::Lock(resource, denied))),
        }
    }

    /// Waits for what [`Transaction::enter`] has met, and goes on with that.
    #[cold]
    pub(super) async fn overcome(
        &mut self,
        obstacle: Obstacle,
        partition: PartitionId,
        hash: u64,
        mode: Mode,
    ) -> Result<()> {
        match obstacle {
            Obstacle::Lock(resource, denied) => {
                self.wait_for_lock(resource, denied).await?;
                self.check_conflict(partition, resource, mode)
            }
            Obstacle::Reference => {
                self.delayed_reference().await?;
                if self.database.check_keyed(partition)? {
                    let record = Resource::record(partition, hash);
                    self.lock(record, mode).await?;
                    self.check_conflict(partition, record, mode)?;
                }
                Ok(())
            }
        }
    }

    /// Refers to the record of the key with this hash and locks it to change it.
    pub(super) async fn lock_record_exclusively(&mut self, partition: PartitionId, hash: u64) -> Result<()> {
        match self.enter(partition, hash, Mode::Exclusive)? {
            Some(obstacle) => self.overcome(obstacle, partition, hash, Mode::Exclusive).await,
            None => Ok(()),
        }
    }

    /// Remembers a changed page, if it will be forced.
    pub(super) fn note_page(&mut self, page: PageId) {
        if self.database.settings().force && !self.state.pages.contains(&page) {
            self.state.pages.push(page);
        }
    }
}

impl Database {
    /// The leaf of `key` in a b-tree, if its parents are in memory: what is in memory of it comes nearer while the lock is asked for.
    /// It stays the leaf until the caller waits for something.
    #[inline]
    fn approach(&self, partition: PartitionId, key: &[u8]) -> Option<PageId> {
        b_tree::leaf_of(&*self.0.buffer.pool().borrow(), partition, key).ok()
    }

    /// Asks for the memory of a record that is about to be locked, and of its latest version.
    #[inline]
    fn approach_record(&self, name: Resource, partition: PartitionId, hash: u64) {
        self.0.sets.borrow().foresee(partition, hash, Foresight::Far);
        if self.0.keeps_versions.get() {
            self.0.versions.borrow().foresee(name);
        }
    }

    fn find(&self, partition: PartitionId, key: &[u8]) -> Result<Found, Need> {
        let pool = self.0.buffer.pool().borrow();
        let (place, leaf) = b_tree::find(&*pool, partition, key)?;
        if !place.exact {
            return Ok(Found::Nothing);
        }
        Ok(match long_value::read(slotted::value(leaf, place.slot)) {
            Stored::Here(value) => Found::Here(value.to_vec()),
            Stored::Elsewhere(length, first) => Found::Elsewhere(length, first),
        })
    }

    fn look<R, F: FnOnce(Option<&[u8]>) -> R>(
        &self,
        partition: PartitionId,
        key: &[u8],
        look: &mut Option<F>,
    ) -> Result<Result<R, (usize, u32)>, Need> {
        let pool = self.0.buffer.pool().borrow();
        let (place, leaf) = b_tree::find(&*pool, partition, key)?;
        let mut show = |value: Option<&[u8]>| look.take().expect("an attempt succeeds once")(value);
        if !place.exact {
            return Ok(Ok(show(None)));
        }
        Ok(match long_value::read(slotted::value(leaf, place.slot)) {
            Stored::Here(value) => Ok(show(Some(value))),
            Stored::Elsewhere(length, first) => Err((length, first)),
        })
    }

    fn try_modify<R, F: FnOnce(&mut [u8]) -> R>(
        &self,
        state: &mut super::State,
        partition: PartitionId,
        (key, leaf): (&[u8], Option<PageId>),
        change: &mut Option<F>,
    ) -> Result<R, Need> {
        self.admit_change(state)?;
        let mut scratch = self.0.scratch.borrow_mut();
        let (old, new) = &mut *scratch;
        let (place, answer, from, to) = {
            let pool = self.0.buffer.pool().borrow();
            let (place, leaf) = match leaf {
                Some(leaf) => b_tree::find_in(&*pool, leaf, key)?,
                None => b_tree::find(&*pool, partition, key)?,
            };
            if !place.exact {
                return Err(Need::Fail(Error::NoRecord(self.describe(partition)?.name.clone())));
            }
            let stored = slotted::value(leaf, place.slot);
            if let Stored::Elsewhere(found, _) = long_value::read(stored) {
                let (what, limit) = ("a value to be changed in place", stored.len());
                let partition = self.describe(partition)?.name.clone();
                return Err(Need::Fail(Error::TooLarge { what, found, limit, partition }));
            }
            new.clear();
            new.extend_from_slice(stored);
            let answer = change.take().expect("an attempt succeeds once")(&mut new[VERSION_SIZE..]);
            let Some((from, to)) = difference(stored, new) else { return Ok(answer) };
            old.clear();
            old.extend_from_slice(&stored[from..to]);
            (place, answer, from, to)
        };
        let offset = from as u16;
        let undo = Undo::PatchValue { partition, key, offset, bytes: old };
        let change = Change::PatchValue { slot: place.slot, offset, bytes: &new[from..to] };
        self.update(state, &undo, &[Edit { page: place.page, change }]);
        if self.0.settings.force && !state.pages.contains(&place.page) {
            state.pages.push(place.page);
        }
        Ok(answer)
    }

    /// Restructures until the leaf of `key` has room for a stored value of `length` bytes.
    pub(super) fn make_room(&self, partition: PartitionId, key: &[u8], length: usize) -> Result<(), Need> {
        loop {
            let step = {
                let pool = self.0.buffer.pool().borrow();
                let Some(step) = b_tree::make_room(&*pool, partition, key, length)? else { return Ok(()) };
                bring_pages(&*pool, &step)?;
                step
            };
            let edits: Vec<Edit<'_>> = step.iter().map(|edit| edit.as_edit()).collect();
            self.change(&edits);
        }
    }

    /// Merges until no node on the way to `key` is too empty.
    pub(super) fn merge(&self, partition: PartitionId, key: &[u8]) -> Result<(), Need> {
        loop {
            let step = {
                let pool = self.0.buffer.pool().borrow();
                let Some(step) = b_tree::merge(&*pool, partition, key)? else { return Ok(()) };
                bring_pages(&*pool, &step)?;
                step
            };
            let edits: Vec<Edit<'_>> = step.iter().map(|edit| edit.as_edit()).collect();
            self.change(&edits);
        }
    }
}

/// Asks for the pages of a plan that are not in the buffer: new ones.
fn bring_pages(pages: &impl Pages, plan: &[structures::page::OwnedEdit]) -> Result<(), structures::Need> {
    plan.iter().try_for_each(|edit| pages.page(edit.page).map(|_| ()))
}
