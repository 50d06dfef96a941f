//! Bringing the records near that a transaction is about to refer to, all at once.

use super::Transaction;
use crate::second_level::design::Pattern;
use crate::statistics::WaitKind;
use base::{PageId, PartitionId};
use structures::organization::b_tree;
use structures::{PrefetchDistance, key_hash};

/// How often pages of a tree are read ahead, one level each time.
const LEVELS_MAX: usize = 8;
/// Which share of the buffer's frames is read into at once, at most: what comes must not drive out what has come.
const FRAMES_SHARE: usize = 8;

impl Transaction {
    /// Brings the records of these keys near that are about to be referred to, all at once: pages that are not in the buffer are
    /// read side by side, and what is in memory comes into the processor's cache. One record after the other, each would wait
    /// for its own. A hint: it takes no locks, and changes no answer. A page that cannot be read is an error once it is used; one
    /// that was read here is charged to the first reference that uses it (see [`References`](crate::statistics::References)).
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
    /// let basket = ["milk", "bread"];
    /// let mut tx = database.begin().await?;
    /// tx.prefetch(prices, &basket).await;
    /// let mut sum = 0;
    /// for article in basket {
    ///     sum += tx.get(prices, article.as_bytes()).await?.map_or(0, |price| price[0]);
    /// }
    /// tx.commit().await?;
    /// assert_eq!(sum, 5);
    /// # Ok(())
    /// # });
    /// ```
    pub async fn prefetch<K: AsRef<[u8]>>(&self, partition: PartitionId, keys: &[K]) {
        let Ok(found) = self.engine.catalog.find_keyed(partition) else { return };
        if found.is_set {
            return self.prefetch_in_set(partition, keys);
        }
        let mut absent = Vec::new();
        b_tree::prefetch(&*self.engine.core.buffer.pool().borrow(), partition, keys, &mut absent);
        if !absent.is_empty() {
            self.read_absent(partition, keys, absent).await;
        }
    }

    /// Reads the pages that lead to these keys, level by level.
    #[cold]
    pub(super) async fn read_absent<K: AsRef<[u8]>>(
        &self,
        partition: PartitionId,
        keys: &[K],
        mut absent: Vec<PageId>,
    ) {
        let core = &self.engine.core;
        let (began, pages_max) = (core.executor.now(), core.buffer.settings().frames / FRAMES_SHARE);
        for _ in 0..LEVELS_MAX {
            absent.sort_unstable();
            absent.dedup();
            absent.truncate(pages_max);
            if absent.is_empty() || core.buffer.prefetch(absent.drain(..), Pattern::Random).await.is_err() {
                break;
            }
            b_tree::prefetch(&*core.buffer.pool().borrow(), partition, keys, &mut absent);
        }
        core.statistics.add_wait(WaitKind::Read, &core.executor, began);
    }

    fn prefetch_in_set<K: AsRef<[u8]>>(&self, partition: PartitionId, keys: &[K]) {
        let sets = self.engine.sets.sets.borrow();
        for distance in [PrefetchDistance::Far, PrefetchDistance::Near] {
            keys.iter().for_each(|key| sets.prefetch(partition, key_hash(key.as_ref()), distance));
        }
    }
}
