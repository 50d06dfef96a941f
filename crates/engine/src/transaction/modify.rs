//! Changing a b-tree record's value in place: in one synchronous step where all is in memory and no lock is in the way.

use super::Transaction;
use super::log_room::admit_change;
use super::update::update;
use crate::engine::{Core, Engine, Keyed, KeyedPartition, TransactionState};
use crate::locks::Ungranted;
use crate::{Error, Need, Result};
use base::{PageId, PartitionId};
use structures::difference::difference;
use structures::key_hash;
use structures::lock::{Mode, Resource};
use structures::organization::b_tree;
use structures::organization::b_tree::stored::{self, Stored, VERSION_SIZE};
use structures::page::{Change, Edit, Pages, slotted};
use structures::undo::Undo;

/// What came of changing a value without a wait.
enum AtOnce<R> {
    Done(R),
    /// The reference has to be waited for; the lock is not yet asked for.
    AwaitReference,
    AwaitLock(Resource, Ungranted),
}

impl Transaction {
    /// Changes the value of `key` in place: `change` sees its bytes and may alter them, not their number. Ready at once if
    /// all is in memory and no lock is in the way. Only the bytes that differ are logged.
    ///
    /// # Errors
    /// [`Error::NoRecord`], [`Error::TooLarge`] for a value that does not stand in the b-tree's leaf, beside its key (see
    /// [`PartitionSpec::b_tree`](crate::PartitionSpec::b_tree)), and as [`Transaction::get`].
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
        let found = match self.engine.catalog.find_keyed_to_change(partition)? {
            (found, Keyed::BTree) => found,
            (found, keyed) => return self.modify_other(found, keyed, partition, key, change).await,
        };
        let (hash, mut change) = (key_hash(key), Some(change));
        let leaf = prefetch_leaf(&self.engine.core, partition, key);
        match self.modify_at_once(found, partition, (key, hash, leaf), &mut change) {
            Ok(AtOnce::Done(answer)) => Ok(answer),
            delayed => self.modify_after(delayed, found, partition, (key, hash), change).await,
        }
    }

    /// As [`Transaction::modify`], in a partition that was looked up.
    pub(super) async fn modify_found<R>(
        &mut self,
        found: KeyedPartition,
        keyed: Keyed,
        partition: PartitionId,
        key: &[u8],
        change: impl FnOnce(&mut [u8]) -> R,
    ) -> Result<R> {
        if !matches!(keyed, Keyed::BTree) {
            return self.modify_other(found, keyed, partition, key, change).await;
        }
        let (hash, mut change) = (key_hash(key), Some(change));
        let leaf = prefetch_leaf(&self.engine.core, partition, key);
        let changed = self.modify_at_once(found, partition, (key, hash, leaf), &mut change);
        self.modify_after(changed, found, partition, (key, hash), change).await
    }

    /// As [`Transaction::modify`]; `leaf` is the leaf of the key in a b-tree, if it is known. Returns whether nothing was waited for.
    #[inline]
    pub(super) async fn modify_in_leaf(
        &mut self,
        (partition, key): (PartitionId, &[u8]),
        leaf: Option<PageId>,
        change: impl FnOnce(&mut [u8]),
    ) -> Result<bool> {
        let (found, keyed) = self.engine.catalog.find_keyed_to_change(partition)?;
        if !matches!(keyed, Keyed::BTree) {
            self.modify_other(found, keyed, partition, key, change).await?;
            return Ok(false);
        }
        let (hash, mut change) = (key_hash(key), Some(change));
        match self.modify_at_once(found, partition, (key, hash, leaf), &mut change) {
            Ok(AtOnce::Done(())) => Ok(true),
            delayed => self.modify_after(delayed, found, partition, (key, hash), change).await.map(|()| false),
        }
    }

    /// As [`Transaction::modify`], in a set, or a b-tree whose records have a type, that was looked up.
    async fn modify_other<R>(
        &mut self,
        found: KeyedPartition,
        keyed: Keyed,
        partition: PartitionId,
        key: &[u8],
        change: impl FnOnce(&mut [u8]) -> R,
    ) -> Result<R> {
        let hash = key_hash(key);
        if self.reference() {
            self.delayed_reference().await?;
        }
        if let Some(ungranted) = self.enter_found(found, partition, (key, hash), Mode::Exclusive)? {
            self.wait_to_enter(ungranted, (found, partition), (key, hash), Mode::Exclusive).await?;
        }
        match keyed {
            Keyed::TypedBTree(typed) => {
                self.mark_not_replayable()?;
                Box::pin(self.modify_typed(&typed, key, change)).await
            }
            Keyed::TypedSet(typed) => Box::pin(self.modify_typed(&typed, key, change)).await,
            _ => self.modify_in_set(partition, (key, hash), change).await,
        }
    }

    /// Gives the record of `key` in a b-tree, whose lock is held, a value as short and as long as the one that it has.
    pub(super) async fn patch_in_tree(&mut self, partition: PartitionId, key: &[u8], new: &[u8]) -> Result<()> {
        let (engine, state) = (&self.engine, &mut self.state);
        let mut change = Some(|value: &mut [u8]| value.copy_from_slice(new));
        let attempt = || {
            admit_change(engine, state)?;
            try_modify(engine, state, partition, (key, None), &mut change)
        };
        engine.core.resolve_access(partition, attempt).await?;
        self.trace_key_access(partition, key, true);
        Ok(())
    }

    /// The whole of it, if nothing has to be waited for.
    #[inline]
    fn modify_at_once<R>(
        &mut self,
        found: KeyedPartition,
        partition: PartitionId,
        (key, hash, leaf): (&[u8], u64, Option<PageId>),
        change: &mut Option<impl FnOnce(&mut [u8]) -> R>,
    ) -> Result<AtOnce<R>, Need> {
        if self.reference() {
            return Ok(AtOnce::AwaitReference);
        }
        if let Some((resource, ungranted)) = self.enter_found(found, partition, (key, hash), Mode::Exclusive)? {
            return Ok(AtOnce::AwaitLock(resource, ungranted));
        }
        self.mark_not_replayable()?;
        // Once it has logged something, the reference has asked for room in the log already.
        if !self.state.wrote {
            admit_change(&self.engine, &self.state)?;
        }
        self.engine.core.begin_reference();
        let answer = try_modify(&self.engine, &mut self.state, partition, (key, leaf), change)?;
        self.engine.core.count_reference(partition);
        self.trace_key_access(partition, key, true);
        Ok(AtOnce::Done(answer))
    }

    /// Waits for what [`Transaction::modify_at_once`] has met, and goes on with that.
    #[cold]
    async fn modify_after<R>(
        &mut self,
        delayed: Result<AtOnce<R>, Need>,
        found: KeyedPartition,
        partition: PartitionId,
        (key, hash): (&[u8], u64),
        mut change: Option<impl FnOnce(&mut [u8]) -> R>,
    ) -> Result<R> {
        let need = match delayed {
            Ok(AtOnce::Done(answer)) => return Ok(answer),
            Err(need) => Some(need),
            Ok(AtOnce::AwaitLock(resource, ungranted)) => {
                self.wait_to_enter((resource, ungranted), (found, partition), (key, hash), Mode::Exclusive).await?;
                None
            }
            Ok(AtOnce::AwaitReference) => {
                self.delayed_reference().await?;
                if let Some(ungranted) = self.enter_found(found, partition, (key, hash), Mode::Exclusive)? {
                    self.wait_to_enter(ungranted, (found, partition), (key, hash), Mode::Exclusive).await?;
                }
                None
            }
        };
        if need.is_none() {
            self.mark_not_replayable()?;
        }
        let (engine, state) = (&self.engine, &mut self.state);
        let attempt = || {
            admit_change(engine, state)?;
            try_modify(engine, state, partition, (key, None), &mut change)
        };
        let answer = match need {
            Some(need) => engine.core.resolve_access_after(need, partition, attempt).await?,
            None => engine.core.resolve_access(partition, attempt).await?,
        };
        self.trace_key_access(partition, key, true);
        Ok(answer)
    }
}

/// The leaf of `key` in a b-tree, if its parents are in memory: what is in memory of it comes nearer while the lock is asked for.
/// It stays the leaf until the caller waits for something.
#[inline]
fn prefetch_leaf(core: &Core, partition: PartitionId, key: &[u8]) -> Option<PageId> {
    b_tree::leaf_of(&*core.buffer.pool().borrow(), partition, key).ok()
}

/// Changes a value that is in memory and locked, and for whose change the log has room.
fn try_modify<R, F: FnOnce(&mut [u8]) -> R>(
    engine: &Engine,
    state: &mut TransactionState,
    partition: PartitionId,
    (key, leaf): (&[u8], Option<PageId>),
    change: &mut Option<F>,
) -> Result<R, Need> {
    let mut scratch = engine.core.scratch.borrow_mut();
    let (old, new) = &mut *scratch;
    let (place, answer, from, to) = {
        let pool = engine.core.pages_to_search();
        let (place, leaf) = match leaf {
            Some(leaf) => b_tree::find_in(&*pool, leaf, key)?,
            None => b_tree::find(&*pool, partition, key)?,
        };
        if !place.exact {
            return Err(Error::NoRecord(engine.catalog.describe(partition)?.name.clone()).into());
        }
        let stored = slotted::value(leaf, place.slot);
        if let Stored::Elsewhere(found, _) = stored::read(stored) {
            let limit = b_tree::value_len_max(engine.core.page_size(), key.len()) - VERSION_SIZE;
            let what = "for a change in place, a value";
            let partition = engine.catalog.describe(partition)?.name.clone();
            return Err(Error::TooLarge { what, found, limit, partition }.into());
        }
        pool.write_permission(place.page)?;
        engine.core.buffer.charge_value(place.page, place.slot, stored.len());
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
    update(engine, state, &undo, &[Edit { page: place.page, change }]);
    if engine.transactions.rules.force && !state.pages.contains(&place.page) {
        state.pages.push(place.page);
    }
    Ok(answer)
}
