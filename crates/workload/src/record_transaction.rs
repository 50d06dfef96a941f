//! What a transaction of an engine and one of a node are both asked for, so that a workload is written once and runs on either.

use base::PartitionId;
use engine::{Direction, KeyRange, Result, Savepoint, Transaction};
use executor::{Executor, WholeExecutor};
use node::page_client::{PageSavepoint, PageTransaction};

/// A transaction's calls on records. They do and fail as those of the same names of [`Transaction`] and of [`PageTransaction`].
#[allow(async_fn_in_trait, reason = "an engine and a node have one thread each, so futures need not be sent")]
pub trait RecordTransaction {
    /// A moment that it can go back to.
    type Mark;

    /// What it runs on.
    fn executor(&self) -> &Executor;

    /// Shows `look` the value of `key`.
    async fn get_with<R>(
        &mut self,
        partition: PartitionId,
        key: &[u8],
        look: impl FnOnce(Option<&[u8]>) -> R,
    ) -> Result<R>;

    /// The value of `key`, which will probably be changed.
    async fn get_for_update(&mut self, partition: PartitionId, key: &[u8]) -> Result<Option<Vec<u8>>>;

    /// Inserts a record or replaces it.
    async fn put(&mut self, partition: PartitionId, key: &[u8], value: &[u8]) -> Result<()>;

    /// Inserts a record.
    async fn insert(&mut self, partition: PartitionId, key: &[u8], value: &[u8]) -> Result<()>;

    /// Deletes a record; false if there is none.
    async fn delete(&mut self, partition: PartitionId, key: &[u8]) -> Result<bool>;

    /// Changes the value of `key` in place.
    async fn modify<R>(&mut self, partition: PartitionId, key: &[u8], change: impl FnOnce(&mut [u8]) -> R)
    -> Result<R>;

    /// Adds a record to an append partition.
    async fn append(&mut self, partition: PartitionId, record: &[u8]) -> Result<()>;

    /// Shows `look` the records of a range, until it returns false.
    async fn look_at_range(
        &mut self,
        partition: PartitionId,
        range: impl KeyRange,
        direction: Direction,
        look: impl FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<()>;

    /// Shows `look` the values of several keys, each with its position among them.
    async fn get_each_with<K: AsRef<[u8]>>(
        &mut self,
        partition: PartitionId,
        keys: &[K],
        look: impl FnMut(usize, Option<&[u8]>),
    ) -> Result<()>;

    /// Changes the values of several keys in place.
    async fn modify_each<K: AsRef<[u8]>>(
        &mut self,
        partition: PartitionId,
        keys: &[K],
        change: impl FnMut(usize, &mut [u8]),
    ) -> Result<()>;

    /// Inserts several records.
    async fn insert_each<K: AsRef<[u8]>, V: AsRef<[u8]>>(
        &mut self,
        partition: PartitionId,
        records: &[(K, V)],
    ) -> Result<()>;

    /// Marks this moment.
    fn savepoint(&self) -> Self::Mark;

    /// Takes back what was done since then.
    async fn rollback_to(&mut self, mark: Self::Mark) -> Result<()>;
}

/// Calls that both kinds of transactions have under the same names.
macro_rules! same_calls {
    ($transaction:ty) => {
        fn executor(&self) -> &Executor {
            <$transaction>::executor(self).whole()
        }

        async fn get_for_update(&mut self, partition: PartitionId, key: &[u8]) -> Result<Option<Vec<u8>>> {
            <$transaction>::get_for_update(self, partition, key).await
        }

        async fn put(&mut self, partition: PartitionId, key: &[u8], value: &[u8]) -> Result<()> {
            <$transaction>::put(self, partition, key, value).await
        }

        async fn insert(&mut self, partition: PartitionId, key: &[u8], value: &[u8]) -> Result<()> {
            <$transaction>::insert(self, partition, key, value).await
        }

        async fn delete(&mut self, partition: PartitionId, key: &[u8]) -> Result<bool> {
            <$transaction>::delete(self, partition, key).await
        }

        async fn modify<R>(
            &mut self,
            partition: PartitionId,
            key: &[u8],
            change: impl FnOnce(&mut [u8]) -> R,
        ) -> Result<R> {
            <$transaction>::modify(self, partition, key, change).await
        }

        async fn append(&mut self, partition: PartitionId, record: &[u8]) -> Result<()> {
            <$transaction>::append(self, partition, record).await.map(drop)
        }

        fn savepoint(&self) -> Self::Mark {
            <$transaction>::savepoint(self)
        }

        async fn rollback_to(&mut self, mark: Self::Mark) -> Result<()> {
            <$transaction>::rollback_to(self, mark).await
        }
    };
}

impl RecordTransaction for Transaction {
    type Mark = Savepoint;

    same_calls!(Transaction);

    async fn get_with<R>(
        &mut self,
        partition: PartitionId,
        key: &[u8],
        look: impl FnOnce(Option<&[u8]>) -> R,
    ) -> Result<R> {
        Transaction::get_with(self, partition, key, look).await
    }

    async fn look_at_range(
        &mut self,
        partition: PartitionId,
        range: impl KeyRange,
        direction: Direction,
        look: impl FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<()> {
        self.scan(partition, range, direction).look(look).await
    }

    async fn get_each_with<K: AsRef<[u8]>>(
        &mut self,
        partition: PartitionId,
        keys: &[K],
        look: impl FnMut(usize, Option<&[u8]>),
    ) -> Result<()> {
        Transaction::get_each_with(self, partition, keys, look).await
    }

    async fn modify_each<K: AsRef<[u8]>>(
        &mut self,
        partition: PartitionId,
        keys: &[K],
        change: impl FnMut(usize, &mut [u8]),
    ) -> Result<()> {
        Transaction::modify_each(self, partition, keys, change).await
    }

    async fn insert_each<K: AsRef<[u8]>, V: AsRef<[u8]>>(
        &mut self,
        partition: PartitionId,
        records: &[(K, V)],
    ) -> Result<()> {
        Transaction::insert_each(self, partition, records).await
    }
}

/// A node has no calls on several records at once: it makes one after the other.
impl RecordTransaction for PageTransaction {
    type Mark = PageSavepoint;

    same_calls!(PageTransaction);

    async fn get_with<R>(
        &mut self,
        partition: PartitionId,
        key: &[u8],
        look: impl FnOnce(Option<&[u8]>) -> R,
    ) -> Result<R> {
        Ok(look(self.get(partition, key).await?.as_deref()))
    }

    async fn look_at_range(
        &mut self,
        partition: PartitionId,
        range: impl KeyRange,
        direction: Direction,
        look: impl FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<()> {
        self.scan_range(partition, range, direction).look(look).await
    }

    async fn get_each_with<K: AsRef<[u8]>>(
        &mut self,
        partition: PartitionId,
        keys: &[K],
        mut look: impl FnMut(usize, Option<&[u8]>),
    ) -> Result<()> {
        for (position, key) in keys.iter().enumerate() {
            look(position, self.get(partition, key.as_ref()).await?.as_deref());
        }
        Ok(())
    }

    async fn modify_each<K: AsRef<[u8]>>(
        &mut self,
        partition: PartitionId,
        keys: &[K],
        mut change: impl FnMut(usize, &mut [u8]),
    ) -> Result<()> {
        for (position, key) in keys.iter().enumerate() {
            PageTransaction::modify(self, partition, key.as_ref(), |value| change(position, value)).await?;
        }
        Ok(())
    }

    async fn insert_each<K: AsRef<[u8]>, V: AsRef<[u8]>>(
        &mut self,
        partition: PartitionId,
        records: &[(K, V)],
    ) -> Result<()> {
        for (key, value) in records {
            PageTransaction::insert(self, partition, key.as_ref(), value.as_ref()).await?;
        }
        Ok(())
    }
}
