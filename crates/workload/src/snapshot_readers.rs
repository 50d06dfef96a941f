//! Snapshot readers beside the other transactions: each takes a snapshot, lets it grow old, reads a whole partition in it, and
//! begins anew.

use base::{Instant, PartitionId};
use engine::{Database, Error, Result, Snapshot};
use executor::{WaitQueue, WholeExecutor};
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// How many there are, and how old their snapshots are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Readers {
    /// How many read at once.
    pub count: u32,
    /// How old a snapshot is when it begins to be read, in nanoseconds.
    pub age_ns: u64,
}

/// What readers did within some time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scans {
    /// Scans that ended.
    pub count: u64,
    /// How long one took on average, in nanoseconds; NaN if none ended.
    pub mean_ns: f64,
    /// Objects that were read, by those included that go on.
    pub objects: u64,
}

/// How many objects are read when the snapshot is young, when it is old, and once more as of its moment, and compared.
const COMPARED: u64 = 64;

/// Readers at work.
///
/// ```
/// # use engine::{Database, PartitionSpec, Settings, catalog::{Locking, Organization}};
/// # use executor::{Executor, Order};
/// # use virtual_driver::{Hardware, Media, Options, VirtualDriver};
/// use entresol_workload::snapshot_readers::{Readers, Reading};
///
/// # let driver = VirtualDriver::new(Hardware::ideal(), Options::default(), Media::new());
/// # let executor = Executor::new(Box::new(driver), Order::FirstInFirstOut);
/// # let done = executor.run(async {
/// # let database = Database::create(&executor, Settings::default()).await?;
/// # let organization = Organization::Direct { objects: 500, blocking_factor: 10, record_size: 8 };
/// # let account = database.create_partition(PartitionSpec::new("account", organization, Locking::Record)).await?;
/// let reading = Reading::begin(&database, Readers { count: 2, age_ns: 1_000_000 }, (account, 500));
/// for number in 0..500 {
///     database.transaction(async |tx| tx.modify_object(account, number, |bytes| bytes[0] = 7).await).await?;
/// }
/// executor.sleep_ns(50_000_000).await;
/// let scans = reading.scans(50_000_000);
/// assert!(scans.count > 0 && scans.objects >= 500 * scans.count);
/// reading.end().await?;
/// # Ok::<(), engine::Error>(())
/// # });
/// # executor.stop();
/// # done.expect("the machine goes on").expect("the readers agree");
/// ```
pub struct Reading(Rc<ReadingState>);

struct ReadingState {
    database: Database,
    readers: Readers,
    partition: PartitionId,
    objects: u64,
    running: Cell<u32>,
    finished: Cell<bool>,
    failure: RefCell<Option<Error>>,
    /// When each scan ended, and how long it took.
    ended: RefCell<Vec<(Instant, u64)>>,
    read: Cell<u64>,
    /// Told when a reader has left.
    left: WaitQueue,
}

impl Reading {
    /// Starts the readers of a direct partition with `objects` objects.
    pub fn begin(database: &Database, readers: Readers, (partition, objects): (PartitionId, u64)) -> Reading {
        let shared = Rc::new(ReadingState {
            database: database.clone(),
            readers,
            partition,
            objects,
            running: Cell::new(readers.count),
            finished: Cell::new(false),
            failure: RefCell::new(None),
            ended: RefCell::default(),
            read: Cell::new(0),
            left: WaitQueue::new(),
        });
        for _ in 0..readers.count {
            let shared = Rc::clone(&shared);
            database.executor().spawn(async move { shared.reader().await });
        }
        Reading(shared)
    }

    /// What was done in the last `elapsed_ns` nanoseconds; objects are counted since this was last asked for.
    pub fn scans(&self, elapsed_ns: u64) -> Scans {
        let now = self.0.database.executor().now();
        let mut ended = self.0.ended.borrow_mut();
        ended.retain(|(end, _)| now.since_ns(*end) <= elapsed_ns);
        let sum: f64 = ended.iter().map(|(_, took_ns)| *took_ns as f64).sum();
        Scans { count: ended.len() as u64, mean_ns: sum / ended.len() as f64, objects: self.0.read.replace(0) }
    }

    /// Has the readers stop, and waits for that.
    ///
    /// # Errors
    /// The first that a reader met.
    pub async fn end(self) -> Result<()> {
        self.0.finished.set(true);
        while self.0.running.get() > 0 {
            self.0.left.wait(self.0.database.executor().whole()).await;
        }
        self.0.failure.take().map_or(Ok(()), Err)
    }
}

impl ReadingState {
    async fn reader(&self) {
        let mut result = Ok(());
        while result.is_ok() && !self.finished.get() {
            result = self.scan().await;
        }
        if let Err(error) = result {
            self.failure.borrow_mut().get_or_insert(error);
        }
        self.running.set(self.running.get() - 1);
        self.left.wake_all(self.database.executor().whole());
    }

    /// One snapshot: young, then old.
    async fn scan(&self) -> Result<()> {
        let executor = self.database.executor().whole();
        let mut snapshot = self.database.snapshot().await?;
        let mut young = Vec::new();
        for number in 0..self.objects.min(COMPARED) {
            young.push(self.object(&mut snapshot, number).await?);
        }
        executor.sleep_ns(self.readers.age_ns).await;
        let began = executor.now();
        for number in 0..self.objects {
            let old = self.object(&mut snapshot, number).await?;
            self.read.set(self.read.get() + 1);
            differs_if(young.get(number as usize).is_some_and(|young| *young != old), number)?;
            if self.finished.get() {
                return Ok(());
            }
        }
        let now = executor.now();
        self.ended.borrow_mut().push((now, now.since_ns(began)));
        let mut again = self.database.as_of(snapshot.moment()).await?;
        for (number, young) in (0..).zip(&young) {
            differs_if(self.object(&mut again, number).await? != *young, number)?;
        }
        Ok(())
    }

    async fn object(&self, snapshot: &mut Snapshot, number: u64) -> Result<Vec<u8>> {
        snapshot.read_object(self.partition, number, <[u8]>::to_vec).await
    }
}

fn differs_if(differs: bool, number: u64) -> Result<()> {
    match differs {
        true => Err(Error::Inconsistent(format!("object {number} is not what it was when its snapshot was young"))),
        false => Ok(()),
    }
}
