//! How other threads and other runtimes reach a database.

use crate::calls::Call;
use crate::database_thread::{NodeGroup, Request};
use crate::pending::Pending;
use crate::reply::{Promise, Slot, Wakes};
use crate::requests::Requests;
use base::{Instant, Lsn, PartitionId};
use driver::Fault;
use engine::catalog::IndexSpec;
use engine::{
    BackupProgress, BackupReport, BackupSettings, Compaction, Database, Direction, Error, Figures, Isolation, KeyRange,
    LockWait, PartitionSize, PartitionSpec, Result, Snapshot, Transaction,
};
use executor::Sender;
use std::any::type_name;
use std::rc::Rc;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// Reaches the database of a [`DatabaseThread`](crate::DatabaseThread) from any thread and any runtime. What it is asked for is under way at
/// once and comes as a [`Pending`], to be awaited or waited for. Requests that are sent while the engine is busy are taken up together. A
/// thread that waits sleeps; while answers are given so often that it would hardly have time to, it lets others run and looks again.
///
/// A closure is sent to the engine's thread, so it takes what it captures along (`move`); its future stays there and need not be `Send`.
///
/// ```
/// # let directory = tempfile::tempdir().unwrap();
/// # let directory = directory.path();
/// # std::fs::write(directory.join("entresol.toml"), "[log]\nsize = \"4 MiB\"").unwrap();
/// use entresol::PartitionSpec;
///
/// let thread = entresol::start(directory)?;
/// let handle = thread.handle();
/// let notes = handle.create_partition(PartitionSpec::b_tree("notes")).wait()?;
/// let writer = std::thread::spawn({
///     let handle = handle.clone();
///     move || handle.transaction(async move |tx| tx.put(notes, b"milk", b"two litres").await).wait()
/// });
/// writer.join().expect("it does not panic")?;
/// assert_eq!(handle.get(notes, b"milk").wait()?.as_deref(), Some(&b"two litres"[..]));
/// thread.close()?;
/// # Ok::<(), entresol::OpenError>(())
/// ```
#[derive(Clone)]
pub struct Handle {
    pub(crate) link: Arc<Link>,
}

/// The way to the engine's thread and back, which handles and their requests share.
pub(crate) struct Link {
    pub sender: Sender<Request>,
    pub wakes: Wakes,
    /// Which node of a database it is, and of which group.
    pub node: Option<(u32, NodeGroup)>,
    /// Why the engine's thread has ended, if not at its closing.
    pub cause: Arc<OnceLock<Fault>>,
}

impl Link {
    /// The error of requests that are not answered any more.
    pub fn ended(&self) -> Error {
        match (self.cause.get(), self.node) {
            (Some(fault), _) => fault.clone().into(),
            (None, Some((node, _))) => Error::NodeEnded { node },
            (None, None) => Error::Closed,
        }
    }
}

impl Handle {
    /// Sends a request, which `begin` starts on the engine's thread.
    pub(crate) fn send<T: Send + 'static, E: Send + 'static>(
        &self,
        begin: impl FnOnce(&Rc<Requests>, Promise<Result<T, E>>) + Send + 'static,
    ) -> Pending<T, E> {
        let slot = Slot::new();
        let promise = Promise::new(&slot);
        self.link.sender.send(Request::Run(Box::new(move |requests| begin(requests, promise))));
        Pending { slot, link: Arc::clone(&self.link) }
    }

    /// Runs `work` as a transaction, again if it was a deadlock's victim, until it is committed.
    ///
    /// # Errors
    /// Those of [`Database::transaction`].
    ///
    /// ```
    /// # let directory = tempfile::tempdir().unwrap();
    /// # let directory = directory.path();
    /// # std::fs::write(directory.join("entresol.toml"), "[log]\nsize = \"4 MiB\"").unwrap();
    /// use entresol::{Error, PartitionSpec};
    ///
    /// #[derive(Debug)]
    /// enum ShopError {
    ///     SoldOut,
    ///     Storage(Error),
    /// }
    /// impl From<Error> for ShopError {
    ///     fn from(error: Error) -> ShopError {
    ///         ShopError::Storage(error)
    ///     }
    /// }
    ///
    /// let thread = entresol::start(directory)?;
    /// let handle = thread.handle();
    /// let stock = handle.create_partition(PartitionSpec::b_tree("stock")).wait()?;
    /// handle.put(stock, b"pens", &[1]).wait()?;
    /// let buy = || {
    ///     handle.transaction(async move |tx| {
    ///         let left = tx.get(stock, b"pens").await?.map_or(0, |count| count[0]);
    ///         let less = left.checked_sub(1).ok_or(ShopError::SoldOut)?;
    ///         Ok(tx.put(stock, b"pens", &[less]).await?)
    ///     })
    /// };
    /// assert!(buy().wait().is_ok());
    /// assert!(matches!(buy().wait(), Err(ShopError::SoldOut)));
    /// # thread.close()?;
    /// # Ok::<(), entresol::OpenError>(())
    /// ```
    pub fn transaction<T: Send + 'static, E: From<Error> + Send + 'static>(
        &self,
        work: impl AsyncFnMut(&mut Transaction) -> Result<T, E> + Send + 'static,
    ) -> Pending<T, E> {
        self.transaction_at(Isolation::Serializable, work)
    }

    /// As [`Handle::transaction`], at a level of isolation; one at snapshot level is run again, too, if it would have
    /// overwritten what its snapshot does not have.
    ///
    /// # Errors
    /// Those of [`Database::transaction_at`].
    ///
    /// ```
    /// # let directory = tempfile::tempdir().unwrap();
    /// # let directory = directory.path();
    /// # std::fs::write(directory.join("entresol.toml"), "[log]\nsize = \"4 MiB\"").unwrap();
    /// use entresol::{Isolation, PartitionSpec};
    ///
    /// let thread = entresol::start(directory)?;
    /// let handle = thread.handle();
    /// let visits = handle.create_partition(PartitionSpec::b_tree("visits")).wait()?;
    /// let visit = || {
    ///     handle.transaction_at(Isolation::Snapshot, async move |tx| {
    ///         let count = tx.get(visits, b"today").await?.map_or(0, |bytes| bytes[0]);
    ///         tx.put(visits, b"today", &[count + 1]).await
    ///     })
    /// };
    /// let at_once: Vec<_> = (0..4).map(|_| visit()).collect();
    /// for visit in at_once {
    ///     visit.wait()?;
    /// }
    /// assert_eq!(handle.get(visits, b"today").wait()?, Some(vec![4]), "no update is lost");
    /// # thread.close()?;
    /// # Ok::<(), entresol::OpenError>(())
    /// ```
    pub fn transaction_at<T: Send + 'static, E: From<Error> + Send + 'static, F>(
        &self,
        isolation: Isolation,
        work: F,
    ) -> Pending<T, E>
    where
        F: AsyncFnMut(&mut Transaction) -> Result<T, E> + Send + 'static,
    {
        self.send(move |requests, promise| {
            let database = requests.database().clone();
            requests.run(type_name::<F>(), promise, async move { database.transaction_at(isolation, work).await });
        })
    }

    /// Has `work` read the database as it is now, all at one moment, without locks.
    ///
    /// # Errors
    /// Those of [`Database::snapshot`] and of `work`.
    pub fn snapshot<T: Send + 'static, E: From<Error> + Send + 'static>(
        &self,
        work: impl AsyncFnOnce(&mut Snapshot) -> Result<T, E> + Send + 'static,
    ) -> Pending<T, E> {
        self.read(async |database| database.snapshot().await, work)
    }

    /// Has `work` read the database as it was at a position of the log, which may be any that [`Snapshot::moment`] gives.
    ///
    /// # Errors
    /// Those of [`Database::as_of`] and of `work`.
    ///
    /// ```
    /// # let directory = tempfile::tempdir().unwrap();
    /// # let directory = directory.path();
    /// # std::fs::write(directory.join("entresol.toml"), "[undo]\nretention = \"10 min\"\n[log]\nsize = \"4 MiB\"").unwrap();
    /// use entresol::{Error, PartitionSpec};
    ///
    /// let thread = entresol::start(directory)?;
    /// let handle = thread.handle();
    /// let notes = handle.create_partition(PartitionSpec::b_tree("notes")).wait()?;
    /// handle.put(notes, b"milk", b"two litres").wait()?;
    /// let bought = handle.snapshot(async |now| Ok::<_, Error>(now.moment())).wait()?;
    /// handle.delete(notes, b"milk").wait()?;
    /// let then = handle.as_of(bought, async move |then| then.get(notes, b"milk").await).wait()?;
    /// assert_eq!(then.as_deref(), Some(&b"two litres"[..]));
    /// # thread.close()?;
    /// # Ok::<(), entresol::OpenError>(())
    /// ```
    pub fn as_of<T: Send + 'static, E: From<Error> + Send + 'static>(
        &self,
        moment: Lsn,
        work: impl AsyncFnOnce(&mut Snapshot) -> Result<T, E> + Send + 'static,
    ) -> Pending<T, E> {
        self.read(async move |database| database.as_of(moment).await, work)
    }

    /// Has `work` read the database as it was at a time of the engine's clock ([`Executor::now`](crate::Executor::now)), to a hundredth of a second.
    ///
    /// # Errors
    /// Those of [`Database::as_of_time`] and of `work`.
    pub fn as_of_time<T: Send + 'static, E: From<Error> + Send + 'static>(
        &self,
        time: Instant,
        work: impl AsyncFnOnce(&mut Snapshot) -> Result<T, E> + Send + 'static,
    ) -> Pending<T, E> {
        self.read(async move |database| database.as_of_time(time).await, work)
    }

    /// Has `work` read the database as it was at a time by the calendar, in nanoseconds since the beginning of 1970 UTC, to a hundredth of a second.
    ///
    /// # Errors
    /// Those of [`Database::as_of_unix_ns`] and of `work`.
    pub fn as_of_unix_ns<T: Send + 'static, E: From<Error> + Send + 'static>(
        &self,
        unix_ns: u64,
        work: impl AsyncFnOnce(&mut Snapshot) -> Result<T, E> + Send + 'static,
    ) -> Pending<T, E> {
        self.read(async move |database| database.as_of_unix_ns(unix_ns).await, work)
    }

    /// Has `work` read the database as it was this long ago, by the calendar, to a hundredth of a second.
    ///
    /// # Errors
    /// Those of [`Database::as_of_age`] and of `work`.
    pub fn as_of_age<T: Send + 'static, E: From<Error> + Send + 'static>(
        &self,
        age: Duration,
        work: impl AsyncFnOnce(&mut Snapshot) -> Result<T, E> + Send + 'static,
    ) -> Pending<T, E> {
        let age_ns = u64::try_from(age.as_nanos()).unwrap_or(u64::MAX);
        self.read(async move |database| database.as_of_age(age_ns).await, work)
    }

    fn read<T: Send + 'static, E: From<Error> + Send + 'static, F>(
        &self,
        begin: impl AsyncFnOnce(&Database) -> Result<Snapshot> + Send + 'static,
        work: F,
    ) -> Pending<T, E>
    where
        F: AsyncFnOnce(&mut Snapshot) -> Result<T, E> + Send + 'static,
    {
        self.send(move |requests, promise| {
            let database = requests.database().clone();
            requests.run(type_name::<F>(), promise, async move { work(&mut begin(&database).await?).await });
        })
    }

    /// Runs `work` with the database: creating partitions, checkpoints, several transactions.
    ///
    /// # Errors
    /// Those of `work`.
    pub fn with_database<T: Send + 'static, F>(&self, work: F) -> Pending<T>
    where
        F: AsyncFnOnce(&Database) -> Result<T> + Send + 'static,
    {
        self.send(move |requests, promise| {
            let database = requests.database().clone();
            requests.run(type_name::<F>(), promise, async move { work(&database).await });
        })
    }

    /// Creates a partition.
    ///
    /// # Errors
    /// Those of [`Database::create_partition`].
    pub fn create_partition(&self, spec: PartitionSpec) -> Pending<PartitionId> {
        self.with_database(async move |database| database.create_partition(spec).await)
    }

    /// The partition of this description, which is created if it is not there; what a program calls at every start.
    ///
    /// # Errors
    /// Those of [`Database::ensure_partition`].
    ///
    /// ```
    /// # let directory = tempfile::tempdir().unwrap();
    /// # let directory = directory.path();
    /// # std::fs::write(directory.join("entresol.toml"), "[log]\nsize = \"4 MiB\"").unwrap();
    /// use entresol::PartitionSpec;
    ///
    /// let thread = entresol::start(directory)?;
    /// let notes = thread.handle().ensure_partition(PartitionSpec::b_tree("notes")).wait()?;
    /// assert_eq!(thread.handle().ensure_partition(PartitionSpec::b_tree("notes")).wait()?, notes);
    /// # thread.close()?;
    /// # Ok::<(), entresol::OpenError>(())
    /// ```
    pub fn ensure_partition(&self, spec: PartitionSpec) -> Pending<PartitionId> {
        self.with_database(async move |database| database.ensure_partition(spec).await)
    }

    /// Drops a partition.
    ///
    /// # Errors
    /// Those of [`Database::drop_partition`].
    pub fn drop_partition(&self, partition: PartitionId) -> Pending<()> {
        self.with_database(async move |database| database.drop_partition(partition).await)
    }

    /// The number of a partition's secondary index, by which [`Transaction::range`] reads it.
    ///
    /// # Errors
    /// Those of [`Database::secondary`].
    pub fn secondary(&self, partition: PartitionId, name: &str) -> Pending<usize> {
        let name = name.to_owned();
        self.with_database(async move |database| database.secondary(partition, &name))
    }

    /// Gives a partition another name.
    ///
    /// # Errors
    /// Those of [`Database::rename_partition`].
    ///
    /// ```
    /// # let directory = tempfile::tempdir().unwrap();
    /// # let directory = directory.path();
    /// # std::fs::write(directory.join("entresol.toml"), "[log]\nsize = \"4 MiB\"").unwrap();
    /// use entresol::{Error, PartitionSpec};
    ///
    /// let thread = entresol::start(directory)?;
    /// let handle = thread.handle();
    /// let orders = handle.create_partition(PartitionSpec::b_tree("orders")).wait()?;
    /// handle.put(orders, b"1", b"pens").wait()?;
    /// handle.rename_partition(orders, "orders_2024").wait()?;
    /// assert_eq!(handle.partition("orders_2024").wait()?, orders);
    /// // It has another number from then on.
    /// let empty = handle.truncate_partition(orders).wait()?;
    /// assert_eq!(handle.get(empty, b"1").wait()?, None);
    /// handle.drop_partition(empty).wait()?;
    /// assert!(matches!(handle.partition("orders_2024").wait(), Err(Error::NoPartition(_))));
    /// # thread.close()?;
    /// # Ok::<(), entresol::OpenError>(())
    /// ```
    pub fn rename_partition(&self, partition: PartitionId, name: &str) -> Pending<()> {
        let name = name.to_owned();
        self.with_database(async move |database| database.rename_partition(partition, &name).await)
    }

    /// Takes all records out of a partition and gives their space back. Gives the number that it has from then on.
    ///
    /// # Errors
    /// Those of [`Database::truncate_partition`].
    pub fn truncate_partition(&self, partition: PartitionId) -> Pending<PartitionId> {
        self.with_database(async move |database| database.truncate_partition(partition).await)
    }

    /// Gives the room of a partition's free pages back to the file system, while others use it.
    ///
    /// # Errors
    /// Those of [`Database::compact_partition`].
    pub fn compact_partition(&self, partition: PartitionId) -> Pending<Compaction> {
        self.with_database(async move |database| database.compact_partition(partition).await)
    }

    /// How much room a partition takes, in bytes.
    ///
    /// # Errors
    /// Those of [`Database::size`].
    pub fn size(&self, partition: PartitionId) -> Pending<PartitionSize> {
        self.with_database(async move |database| database.size(partition).await)
    }

    /// What the database has counted so far, in plain numbers; [`Figures::open_metrics`] makes a text of them for monitoring.
    ///
    /// # Errors
    /// [`Error::Closed`].
    ///
    /// ```
    /// # let directory = tempfile::tempdir().unwrap();
    /// # let directory = directory.path();
    /// # std::fs::write(directory.join("entresol.toml"), "[log]\nsize = \"4 MiB\"").unwrap();
    /// let thread = entresol::start(directory)?;
    /// let handle = thread.handle();
    /// let notes = handle.create_partition(entresol::PartitionSpec::b_tree("notes")).wait()?;
    /// handle.put(notes, b"milk", b"two litres").wait()?;
    /// let figures = handle.figures().wait()?;
    /// assert_eq!(figures.commits, 1);
    /// assert!(figures.open_metrics().ends_with("# EOF\n"));
    /// # thread.close()?;
    /// # Ok::<(), entresol::OpenError>(())
    /// ```
    pub fn figures(&self) -> Pending<Figures> {
        self.with_database(async |database| Ok(database.figures()))
    }

    /// Creates a secondary index of a b-tree or a set beside its users. Gives its number.
    ///
    /// # Errors
    /// Those of [`Database::create_index`].
    ///
    /// ```
    /// # let directory = tempfile::tempdir().unwrap();
    /// # let directory = directory.path();
    /// # std::fs::write(directory.join("entresol.toml"), "[log]\nsize = \"4 MiB\"").unwrap();
    /// use entresol::{Direction, Error, FieldType, FieldValue, IndexSpec, PartitionSpec, RecordType};
    /// use std::ops::Bound;
    ///
    /// let thread = entresol::start(directory)?;
    /// let handle = thread.handle();
    /// let order = RecordType::new([("customer", FieldType::U32), ("article", FieldType::Text)]).expect("different names");
    /// let orders = handle.create_partition(PartitionSpec::b_tree("orders").record(order)).wait()?;
    /// let by_customer = handle.create_index(orders, IndexSpec::new("by_customer", &["customer"])).wait()?;
    /// let of_seven = handle.transaction(async move |tx| {
    ///     for (number, customer, article) in [(1_u8, 7, "pens"), (2, 9, "ink"), (3, 7, "paper")] {
    ///         tx.insert_record(orders, &[number], &[FieldValue::U32(customer), FieldValue::Text(article)]).await?;
    ///     }
    ///     let mut found = Vec::new();
    ///     let seven = Bound::Included(&[FieldValue::U32(7)][..]);
    ///     let keep = |key: &[u8], _record: &[u8]| {
    ///         found.push(key[0]);
    ///         true
    ///     };
    ///     tx.range(orders, by_customer, (seven, seven), Direction::Backward, keep).await?;
    ///     Ok::<_, Error>(found)
    /// });
    /// assert_eq!(of_seven.wait()?, [3, 1]);
    /// # thread.close()?;
    /// # Ok::<(), entresol::OpenError>(())
    /// ```
    pub fn create_index(&self, partition: PartitionId, spec: IndexSpec) -> Pending<usize> {
        self.with_database(async move |database| database.create_index(partition, spec).await)
    }

    /// Drops a secondary index of a b-tree or a set, or ends its building.
    ///
    /// # Errors
    /// Those of [`Database::drop_index`].
    pub fn drop_index(&self, partition: PartitionId, name: &str) -> Pending<()> {
        let name = name.to_owned();
        self.with_database(async move |database| database.drop_index(partition, &name).await)
    }

    /// The partition of this name.
    ///
    /// # Errors
    /// [`Error::NoPartition`].
    pub fn partition(&self, name: &str) -> Pending<PartitionId> {
        let name = name.to_owned();
        self.with_database(async move |database| database.partition(&name))
    }

    /// The names of all partitions and their numbers.
    ///
    /// # Errors
    /// [`Error::Closed`].
    pub fn partitions(&self) -> Pending<Vec<(String, PartitionId)>> {
        self.with_database(async |database| {
            let all = database.partitions();
            Ok(all.iter().map(|partition| (partition.name.to_string(), PartitionId(partition.id))).collect())
        })
    }

    /// Takes a checkpoint.
    ///
    /// # Errors
    /// Those of [`Database::checkpoint`].
    pub fn checkpoint(&self) -> Pending<()> {
        self.with_database(async |database| database.checkpoint().await)
    }

    /// Copies the database into an empty directory, as of one moment, while others use it. `progress` is told, on the engine's thread, how far it is.
    ///
    /// # Errors
    /// Those of [`Database::backup`].
    pub fn backup(
        &self,
        settings: BackupSettings,
        progress: impl FnMut(BackupProgress) + Send + 'static,
    ) -> Pending<BackupReport> {
        self.with_database(async move |database| database.backup(&settings, progress).await)
    }

    /// Every transaction that waits for a lock now, the longest wait first, and who is in its way.
    ///
    /// # Errors
    /// [`Error::Closed`].
    ///
    /// ```
    /// # let directory = tempfile::tempdir().unwrap();
    /// # let directory = directory.path();
    /// # std::fs::write(directory.join("entresol.toml"), "[log]\nsize = \"4 MiB\"").unwrap();
    /// # use std::time::Duration;
    /// let thread = entresol::start(directory)?;
    /// let handle = thread.handle();
    /// let notes = handle.create_partition(entresol::PartitionSpec::b_tree("notes")).wait()?;
    /// let (release, released) = std::sync::mpsc::channel::<()>();
    /// let holder = handle.with_database(async move |database| {
    ///     let mut holder = database.begin().await?;
    ///     holder.put(notes, b"milk", b"two litres").await?;
    ///     while released.try_recv().is_err() {
    ///         database.executor().sleep_ns(1_000_000).await;
    ///     }
    ///     holder.commit().await
    /// });
    /// let waiting = handle.put(notes, b"milk", b"none");
    /// while handle.waits().wait()?.is_empty() {}
    /// let waits = handle.waits().wait()?;
    /// assert!(waits[0].resource.ends_with("of 'notes'") && waits[0].holders.len() == 1);
    /// release.send(()).unwrap();
    /// holder.wait()?;
    /// waiting.wait()?;
    /// # thread.close()?;
    /// # Ok::<(), entresol::OpenError>(())
    /// ```
    pub fn waits(&self) -> Pending<Vec<LockWait>> {
        self.with_database(async |database| Ok(database.waits()))
    }

    /// The value of `key`: a transaction by itself, as are [`Handle::put`] and [`Handle::delete`].
    ///
    /// # Errors
    /// Those of [`Transaction::get`].
    pub fn get(&self, partition: PartitionId, key: &[u8]) -> Pending<Option<Vec<u8>>> {
        let key = key.to_vec();
        self.transaction(async move |tx| tx.get(partition, &key).await)
    }

    /// Stores a value under `key`, in place of one that is there. How long they may be is said of the kinds of partitions
    /// ([`PartitionSpec::b_tree`]).
    ///
    /// # Errors
    /// Those of [`Transaction::put`].
    pub fn put(&self, partition: PartitionId, key: &[u8], value: &[u8]) -> Pending<()> {
        let (key, value) = (key.to_vec(), value.to_vec());
        self.transaction(async move |tx| tx.put(partition, &key, &value).await)
    }

    /// Deletes the record of `key`; false if there is none.
    ///
    /// # Errors
    /// Those of [`Transaction::delete`].
    pub fn delete(&self, partition: PartitionId, key: &[u8]) -> Pending<bool> {
        let key = key.to_vec();
        self.transaction(async move |tx| tx.delete(partition, &key).await)
    }

    /// The first `count` records of a range, from the end that `direction` comes from, as they are at one moment and without
    /// locks. The next page begins behind the last key.
    ///
    /// # Errors
    /// Those of [`crate::Scan::take`].
    ///
    /// ```
    /// # let directory = tempfile::tempdir().unwrap();
    /// # let directory = directory.path();
    /// # std::fs::write(directory.join("entresol.toml"), "[log]\nsize = \"4 MiB\"").unwrap();
    /// use entresol::{Direction, PartitionSpec, prefix};
    /// use std::ops::Bound;
    ///
    /// let thread = entresol::start(directory)?;
    /// let handle = thread.handle();
    /// let orders = handle.create_partition(PartitionSpec::b_tree("orders")).wait()?;
    /// for order in ["ann/1", "ann/2", "ann/3", "bob/1"] {
    ///     handle.put(orders, order.as_bytes(), b"open").wait()?;
    /// }
    /// let first = handle.page(orders, prefix("ann/"), Direction::Forward, 2).wait()?;
    /// let rest = (Bound::Excluded(first[1].0.clone()), Bound::Excluded(b"ann0".to_vec()));
    /// let second = handle.page(orders, rest, Direction::Forward, 2).wait()?;
    /// assert_eq!((first[1].0.as_slice(), second[0].0.as_slice(), second.len()), (&b"ann/2"[..], &b"ann/3"[..], 1));
    /// let latest = handle.page(orders, .., Direction::Backward, 1).wait()?;
    /// assert_eq!(latest[0].0, b"bob/1");
    /// # thread.close()?;
    /// # Ok::<(), entresol::OpenError>(())
    /// ```
    pub fn page(
        &self,
        partition: PartitionId,
        range: impl KeyRange,
        direction: Direction,
        count: usize,
    ) -> Pending<Vec<(Vec<u8>, Vec<u8>)>> {
        let bounds = range.into_bounds();
        self.snapshot(async move |now| now.scan(partition, bounds, direction).take(count).await)
    }

    /// Runs a registered procedure until it is committed.
    ///
    /// # Errors
    /// Those of [`Database::call`].
    pub fn call(&self, name: &str, parameters: &[u8]) -> Pending<Vec<u8>> {
        let slot = Slot::new();
        let promise = Promise::new(&slot);
        self.link.sender.send(Request::Call { call: Call::new(name, parameters), promise });
        Pending { slot, link: Arc::clone(&self.link) }
    }
}
