//! Reading and changing several records of a b-tree: the descents of a group go side by side, so that what one needs of memory
//! comes while the others go on, and each record is referred to in the leaf that its descent came to.

use super::Transaction;
use crate::engine::{Core, Keyed};
use crate::{Need, Result};
use base::{PageId, PartitionId};
use structures::key_hash;
use structures::lock::Mode;
use structures::organization::b_tree;
use structures::organization::b_tree::GROUP_MAX;
use structures::organization::b_tree::stored::{self, Stored};
use structures::page::slotted;

/// What was shown of a record.
pub(super) enum Shown<R> {
    /// Its value, if there is one: this is the answer.
    Here(R),
    /// Nothing yet: its value is a long one of this length that begins there.
    Elsewhere(usize, u32),
}

/// The leaves of a group of keys, where they are known. A wait for anything makes them unknown: other tasks may change the tree.
type Leaves = [Option<PageId>; GROUP_MAX];
const UNKNOWN: Leaves = [None; GROUP_MAX];

impl Transaction {
    /// As [`Transaction::get_with`] for each of these keys in turn, with [`Transaction::prefetch`]: `look` gets the position of the
    /// key among them, and the value. Sooner done than one call after the other, since memory is waited for side by side.
    ///
    /// # Errors
    /// As [`Transaction::get`]; then the records before were shown.
    ///
    /// ```
    /// # mod ground { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/ground/database.rs")); }
    /// # use ground::*;
    /// # with_database(async |database| {
    /// # let prices = database.create_partition(PartitionSpec::b_tree("prices")).await?;
    /// # database.transaction(async |tx| {
    /// #     tx.put(prices, b"milk", &[2]).await?;
    /// #     tx.put(prices, b"bread", &[3]).await
    /// # }).await?;
    /// let sum = database
    ///     .transaction(async |tx| {
    ///         let mut sum = 0;
    ///         let add = |_: usize, price: Option<&[u8]>| sum += price.map_or(0, |price| price[0]);
    ///         tx.get_each_with(prices, &["milk", "bread"], add).await?;
    ///         Ok::<_, entresol_engine::Error>(sum)
    ///     })
    ///     .await?;
    /// assert_eq!(sum, 5);
    /// # Ok(())
    /// # });
    /// ```
    pub async fn get_each_with<K: AsRef<[u8]>>(
        &mut self,
        partition: PartitionId,
        keys: &[K],
        mut look: impl FnMut(usize, Option<&[u8]>),
    ) -> Result<()> {
        if self.read_view_of(partition)?.is_some() || self.engine.catalog.find_keyed(partition)?.is_set {
            self.prefetch(partition, keys).await;
            for (position, key) in keys.iter().enumerate() {
                self.get_with(partition, key.as_ref(), |value| look(position, value)).await?;
            }
            return Ok(());
        }
        let mut leaves = UNKNOWN;
        for (position, key) in keys.iter().enumerate() {
            if position.is_multiple_of(GROUP_MAX) {
                leaves = self.leaves_of(partition, &keys[position..]).await;
            }
            let (leaf, look) = (leaves[position % GROUP_MAX], |value: Option<&[u8]>| look(position, value));
            if !self.get_in_leaf_with((partition, key.as_ref()), leaf, look).await? {
                leaves = UNKNOWN;
            }
        }
        Ok(())
    }

    /// As [`Transaction::get_with`], at a level that locks what it reads; `leaf` is the leaf of the key in a b-tree, if it is known.
    /// Returns whether nothing was waited for.
    #[inline]
    async fn get_in_leaf_with(
        &mut self,
        (partition, key): (PartitionId, &[u8]),
        mut leaf: Option<PageId>,
        look: impl FnOnce(Option<&[u8]>),
    ) -> Result<bool> {
        let mut has_waited = false;
        if self.reference() {
            (leaf, has_waited) = (None, true);
            self.delayed_reference().await?;
        }
        let (found, hash) = (self.engine.catalog.find_keyed(partition)?, key_hash(key));
        if let Some(ungranted) = self.enter_found(found, partition, (key, hash), Mode::Shared)? {
            (leaf, has_waited) = (None, true);
            self.wait_to_enter(ungranted, (found, partition), (key, hash), Mode::Shared).await?;
        }
        self.mark_not_replayable()?;
        let (engine, mut look) = (self.engine.clone(), Some(look));
        let core = &engine.core;
        core.begin_reference();
        let seen = match show(core, partition, (key, leaf), &mut look) {
            Ok(seen) => {
                core.count_reference(partition);
                seen
            }
            Err(need) => {
                has_waited = true;
                let attempt = || show(core, partition, (key, None), &mut look);
                core.resolve_access_after(need, partition, attempt).await?
            }
        };
        self.trace_key_access(partition, key, false);
        let Shown::Elsewhere(length, first) = seen else { return Ok(!has_waited) };
        let value = core.fetch(partition, length, first).await?;
        look.take().expect("a long value was not shown yet")(Some(&value));
        Ok(false)
    }

    /// As [`Transaction::modify`] for each of these keys in turn, with [`Transaction::prefetch`]: `change` gets the position of the
    /// key among them, and the value.
    ///
    /// # Errors
    /// As [`Transaction::modify`]; then the records before were changed.
    ///
    /// ```
    /// # mod ground { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/ground/database.rs")); }
    /// # use ground::*;
    /// # with_database(async |database| {
    /// # let stock = database.create_partition(PartitionSpec::b_tree("stock")).await?;
    /// # database.transaction(async |tx| {
    /// #     tx.put(stock, b"milk", &[20]).await?;
    /// #     tx.put(stock, b"bread", &[30]).await
    /// # }).await?;
    /// let quantities = [2, 1];
    /// database
    ///     .transaction(async |tx| {
    ///         let take = |position: usize, left: &mut [u8]| left[0] -= quantities[position];
    ///         tx.modify_each(stock, &["milk", "bread"], take).await
    ///     })
    ///     .await?;
    /// # let left = database.transaction(async |tx| tx.get(stock, b"milk").await).await?;
    /// assert_eq!(left, Some(vec![18]));
    /// # Ok(())
    /// # });
    /// ```
    pub async fn modify_each<K: AsRef<[u8]>>(
        &mut self,
        partition: PartitionId,
        keys: &[K],
        mut change: impl FnMut(usize, &mut [u8]),
    ) -> Result<()> {
        if !matches!(self.engine.catalog.find_keyed_to_change(partition)?.1, Keyed::BTree) {
            self.prefetch(partition, keys).await;
            for (position, key) in keys.iter().enumerate() {
                self.modify(partition, key.as_ref(), |value| change(position, value)).await?;
            }
            return Ok(());
        }
        let mut leaves = UNKNOWN;
        for (position, key) in keys.iter().enumerate() {
            if position.is_multiple_of(GROUP_MAX) {
                leaves = self.leaves_of(partition, &keys[position..]).await;
            }
            let (leaf, change) = (leaves[position % GROUP_MAX], |value: &mut [u8]| change(position, value));
            if !self.modify_in_leaf((partition, key.as_ref()), leaf, change).await? {
                leaves = UNKNOWN;
            }
        }
        Ok(())
    }

    /// Has the first group of these keys come near, and reads what lacks of it and of what follows. Returns the group's leaves.
    #[inline]
    async fn leaves_of<K: AsRef<[u8]>>(&self, partition: PartitionId, keys: &[K]) -> Leaves {
        let group = &keys[..keys.len().min(GROUP_MAX)];
        let mut absent = Vec::new();
        let leaves = b_tree::leaves_of(&*self.engine.core.buffer.pool().borrow(), partition, group, &mut absent);
        if absent.is_empty() {
            return leaves;
        }
        self.read_absent(partition, keys, absent).await;
        UNKNOWN
    }
}

/// Shows a record that is in memory, in its leaf if that is known.
pub(super) fn show<R, F: FnOnce(Option<&[u8]>) -> R>(
    core: &Core,
    partition: PartitionId,
    (key, leaf): (&[u8], Option<PageId>),
    look: &mut Option<F>,
) -> Result<Shown<R>, Need> {
    let pool = core.pages_to_search();
    let (place, leaf) = match leaf {
        Some(leaf) => b_tree::find_in(&*pool, leaf, key)?,
        None => b_tree::find(&*pool, partition, key)?,
    };
    let mut answer = |value: Option<&[u8]>| look.take().expect("an attempt succeeds once")(value);
    let stored = place.exact.then(|| slotted::value(leaf, place.slot));
    core.buffer.charge_value(place.page, place.slot, stored.map_or(0, <[u8]>::len));
    let Some(stored) = stored else { return Ok(Shown::Here(answer(None))) };
    Ok(match stored::read(stored) {
        Stored::Here(value) => Shown::Here(answer(Some(value))),
        Stored::Elsewhere(length, first) => Shown::Elsewhere(length, first),
    })
}
