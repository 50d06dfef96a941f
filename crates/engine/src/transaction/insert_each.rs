//! Inserting several records of a b-tree: those that follow each other in the order of their keys are of the same leaf most of the
//! time, and only the first of them goes down the tree.

use super::Transaction;
use super::records::LockStep;
use crate::Result;
use crate::engine::Keyed;
use crate::statistics::FoundIn;
use base::{PageId, PartitionId};
use structures::key_hash;
use structures::lock::Mode;
use structures::organization::b_tree::stored;

impl Transaction {
    /// As [`Transaction::insert`] for each of these records, keys with values, in turn. Sooner done than one call after the other, if
    /// the keys ascend and are near to each other.
    ///
    /// # Errors
    /// As [`Transaction::insert`]; then the records before were inserted.
    ///
    /// ```
    /// # mod ground { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/ground/database.rs")); }
    /// # use ground::*;
    /// # with_database(async |database| {
    /// # let lines = database.create_partition(PartitionSpec::b_tree("lines")).await?;
    /// database
    ///     .transaction(async |tx| tx.insert_each(lines, &[(b"7/1", "milk"), (b"7/2", "bread")]).await)
    ///     .await?;
    /// assert_eq!(database.transaction(async |tx| tx.get(lines, b"7/2").await).await?.as_deref(), Some(&b"bread"[..]));
    /// # Ok(())
    /// # });
    /// ```
    pub async fn insert_each<K: AsRef<[u8]>, V: AsRef<[u8]>>(
        &mut self,
        partition: PartitionId,
        records: &[(K, V)],
    ) -> Result<()> {
        let (mut leaf, mut stored) = (None, Vec::new());
        for (key, value) in records {
            leaf = self.insert_near(partition, (key.as_ref(), leaf), value.as_ref(), &mut stored).await?;
        }
        Ok(())
    }

    /// As [`Transaction::insert`]. `near` is a leaf of a b-tree that probably is the key's, if one is known. Returns its leaf then, and
    /// uses `stored` for what it stores.
    #[inline]
    async fn insert_near(
        &mut self,
        partition: PartitionId,
        (key, mut near): (&[u8], Option<PageId>),
        value: &[u8],
        stored: &mut Vec<u8>,
    ) -> Result<Option<PageId>> {
        let (found, keyed) = self.engine.catalog.find_keyed_to_change(partition)?;
        if !matches!(keyed, Keyed::BTree) || !self.fits_leaf(key, value) {
            return self.insert(partition, key, value).await.map(|()| None);
        }
        if self.reference() {
            near = None;
            self.delayed_reference().await?;
        }
        let hash = key_hash(key);
        if let Some(ungranted) = self.enter_found(found, partition, (key, hash), Mode::Exclusive)? {
            near = None;
            self.wait_to_enter(ungranted, (found, partition), (key, hash), Mode::Exclusive).await?;
        }
        self.mark_not_replayable()?;
        self.give_up_loose();
        stored.clear();
        stored::store_here(value, stored);
        let (engine, tree, mut from) = (self.engine.clone(), (partition, found.locks_records), FoundIn::default());
        loop {
            // What an attempt lacks is waited for: the leaf is not known any more then.
            let write = || self.try_write(tree, (key, near.take()), stored, false);
            match engine.core.resolve_step(partition, &mut from, LockStep::is_done, write).await? {
                LockStep::Done(leaf) => {
                    self.trace_key_access(partition, key, leaf.is_some());
                    return if leaf.is_some() { Ok(leaf) } else { Err(self.duplicate(partition)) };
                }
                LockStep::Wait(resource, mode) => self.lock(resource, mode).await?,
            }
        }
    }
}
