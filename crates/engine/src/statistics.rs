//! What the engine counts while it runs.

mod events;

pub use events::{Event, Listener, TransactionTime, Waits};
pub(crate) use events::{WaitKind, hear};

use crate::{Error, Result};
use base::{Lsn, PageId, TransactionId};
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// Where a reference has found its pages, from the nearest place to the farthest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum FoundIn {
    /// In main memory, where an earlier reference had used them already, or where they were made.
    #[default]
    Memory,
    /// In the cache above the second-level cache.
    UpperCache,
    /// In the second-level cache.
    Cache,
    /// In the write buffer.
    WriteBuffer,
    /// On their own device.
    Device,
}

/// References to one partition's objects, by the place where each has found its pages. Each counts once, so all of them together are
/// [`References::count`].
///
/// A page that is read is charged to the first reference that uses it, be it that this reference has waited for the read, or that it was
/// read ahead: by [`Transaction::prefetch`](crate::Transaction::prefetch), a call for several keys, or a scan. A reference that is the
/// first to use several pages counts at the farthest of their places. So pages may be read that no reference is charged with: the
/// inner pages of a tree beside its leaf, what maintenance and rollbacks read, and what was read ahead in vain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct References {
    /// Of those that found all their pages in main memory.
    pub hits: u64,
    /// Of those that the upper cache served.
    pub upper_cache_hits: u64,
    /// Of those that the second-level cache served.
    pub cache_hits: u64,
    /// Of those that the write buffer served.
    pub write_buffer_hits: u64,
    /// Of those for which a page was read from its own device.
    pub device_reads: u64,
}

impl References {
    /// All of them.
    pub fn count(&self) -> u64 {
        self.hits + self.misses()
    }

    /// Those that did not find all their pages in main memory.
    pub fn misses(&self) -> u64 {
        self.upper_cache_hits + self.cache_hits + self.write_buffer_hits + self.device_reads
    }

    /// The share of hits, 0 to 1; zero if there were no references.
    pub fn hit_ratio(&self) -> f64 {
        let all = self.count();
        if all == 0 { 0.0 } else { self.hits as f64 / all as f64 }
    }
}

/// How many times something was done, and how long it took in all.
#[derive(Clone, Debug, Default)]
pub struct Times {
    count: Cell<u64>,
    ns: Cell<u64>,
}

impl Times {
    /// It was done once more, within this number of nanoseconds.
    pub fn record(&self, ns: u64) {
        add(&self.count, 1);
        add(&self.ns, ns);
    }

    /// How many times it was done.
    pub fn count(&self) -> u64 {
        self.count.get()
    }

    /// The sum, in nanoseconds.
    pub fn sum_ns(&self) -> u64 {
        self.ns.get()
    }

    /// The mean in nanoseconds; `None` if it was never done.
    pub fn mean_ns(&self) -> Option<f64> {
        (self.count.get() > 0).then(|| self.ns.get() as f64 / self.count.get() as f64)
    }

    /// Forgets everything: the end of a warm-up.
    pub fn restart(&self) {
        self.count.set(0);
        self.ns.set(0);
    }
}

/// What the restart that opened a database had to do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecoveryReport {
    /// Log records read.
    pub records: u64,
    /// Bytes of log read, from the redo point to the end.
    pub log_bytes: u64,
    /// Transactions that had not ended.
    pub unfinished: u64,
    /// Bytes of the backup of memory-resident sets that were loaded.
    pub backup_bytes: u64,
    /// The time of loading them, index included, in nanoseconds.
    pub load_ns: u64,
    /// The time of reading the log and repeating history, in nanoseconds.
    pub redo_ns: u64,
    /// Pages whose changes were left to be made once they are read.
    pub pages_left: u64,
    /// About how many bytes of memory these changes took when the log was read to its end.
    pub left_bytes: u64,
    /// The time of taking back what was not committed, in nanoseconds; the checkpoint that ends a restart excluded, and what is undone
    /// behind the opening.
    pub undo_ns: u64,
    /// Unfinished transactions that are undone behind the opening.
    pub undos_left: u64,
    /// Bytes of log read once more to make moments before the opening readable, where `[undo] retention` asks for that.
    pub moments_log_bytes: u64,
    /// The time that has taken, in nanoseconds.
    pub moments_ns: u64,
    /// The oldest moment before the opening that could be read when it ended; `None` if none could be.
    pub oldest_moment: Option<Lsn>,
}

/// An observer of every reference, for a trace.
///
/// ```
/// # mod ground { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/ground/database.rs")); }
/// # use ground::*;
/// # use entresol_engine::statistics::Observer;
/// # use std::{cell::Cell, rc::Rc};
/// /// Counts what is changed.
/// #[derive(Default)]
/// struct Changes(Cell<u64>);
///
/// impl Observer for Changes {
///     fn reference(&self, _: base::TransactionId, _: base::PageId, _: u16, write: bool) {
///         self.0.set(self.0.get() + u64::from(write));
///     }
///
///     fn ended(&self, _: base::TransactionId, _: bool) {}
/// }
///
/// # with_database(async |database| {
/// # let notes = database.create_partition(PartitionSpec::b_tree("notes")).await?;
/// let changes = Rc::new(Changes::default());
/// database.statistics().observe(Rc::clone(&changes) as Rc<dyn Observer>)?;
/// assert!(database.statistics().observe(Rc::clone(&changes) as Rc<dyn Observer>).is_err(), "there is one");
/// database.transaction(async |tx| tx.put(notes, b"milk", b"two litres").await).await?;
/// database.transaction(async |tx| tx.get(notes, b"milk").await).await?;
/// assert_eq!(changes.0.get(), 1);
/// # Ok(())
/// # });
/// ```
pub trait Observer {
    /// The transaction has referenced the object in this slot of a page, or, in a b-tree, a record of this leaf.
    fn reference(&self, transaction: TransactionId, page: PageId, slot: u16, write: bool);

    /// The transaction has ended.
    fn ended(&self, transaction: TransactionId, committed: bool);
}

/// Sums over all transactions since the last restart. Times are in nanoseconds and cover what a transaction waits for; what
/// is left of its response is CPU time and the wait for a CPU.
#[derive(Default)]
pub struct Statistics {
    /// Transactions that committed.
    pub commits: Cell<u64>,
    /// Transactions that were rolled back.
    pub rollbacks: Cell<u64>,
    /// Rollbacks that ended a deadlock.
    pub deadlocks: Cell<u64>,
    /// Time in which transactions waited for locks.
    pub lock_wait_ns: Cell<u64>,
    /// Time in which they waited for pages to be read, writing victims back included.
    pub read_wait_ns: Cell<u64>,
    /// Time in which they waited for forced pages.
    pub write_wait_ns: Cell<u64>,
    /// Time in which they waited for the log.
    pub commit_wait_ns: Cell<u64>,
    /// Checkpoints completed. An opening that leaves its pages to a later one is told as an event and not counted.
    pub checkpoints: Cell<u64>,
    /// Sweeps over the memory-resident sets completed.
    pub sweeps: Cell<u64>,
    /// Segments that sweeps have written.
    pub segments_written: Cell<u64>,
    /// Time from the beginnings of sweeps until the superblock file named what they had written.
    pub sweep_ns: Cell<u64>,
    /// Rollbacks of transactions that would have mixed the colours of a black/white sweep.
    pub restarts_by_colour: Cell<u64>,
    /// Records whose entries were added to secondary indexes that were being built.
    pub indexed_records: Cell<u64>,
    /// References to records that had to wait because a sweep was writing their segment.
    pub segment_waits: Cell<u64>,
    /// Time in which they waited for that.
    pub segment_wait_ns: Cell<u64>,
    references: RefCell<Vec<References>>,
    is_observed: Cell<bool>,
    observer: RefCell<Option<Rc<dyn Observer>>>,
    listening: events::Listening,
}

/// Adds to a counter.
#[inline]
pub fn add(counter: &Cell<u64>, amount: u64) {
    counter.set(counter.get() + amount);
}

impl Statistics {
    /// Makes room for `partitions` partitions.
    pub fn reserve(&self, partitions: usize) {
        let mut references = self.references.borrow_mut();
        if references.len() < partitions {
            references.resize(partitions, References::default());
        }
    }

    /// Counts a reference to a partition's object.
    #[inline]
    pub fn count_reference(&self, partition: usize, found: FoundIn) {
        if found == FoundIn::Memory {
            self.references.borrow_mut()[partition].hits += 1;
        } else {
            self.count_miss(partition, found);
        }
    }

    #[cold]
    fn count_miss(&self, partition: usize, found: FoundIn) {
        let references = &mut self.references.borrow_mut()[partition];
        let counter = match found {
            FoundIn::Memory => &mut references.hits,
            FoundIn::UpperCache => &mut references.upper_cache_hits,
            FoundIn::Cache => &mut references.cache_hits,
            FoundIn::WriteBuffer => &mut references.write_buffer_hits,
            FoundIn::Device => &mut references.device_reads,
        };
        *counter += 1;
    }

    /// From now on `observer` hears of every reference; recovery and rollbacks make none.
    ///
    /// # Errors
    /// [`Error::Argument`] while another does.
    pub fn observe(&self, observer: Rc<dyn Observer>) -> Result<()> {
        if self.is_observed() {
            let words = "another observer hears of what transactions reference: one can at a time";
            return Err(Error::Argument(words.into()));
        }
        self.is_observed.set(true);
        self.observer.replace(Some(observer));
        Ok(())
    }

    /// Whether an observer hears of references.
    #[inline]
    pub fn is_observed(&self) -> bool {
        self.is_observed.get()
    }

    /// The observer hears of no more references.
    pub fn end_observation(&self) {
        self.is_observed.set(false);
        self.observer.take();
    }

    /// The observer, if there is one.
    #[inline]
    pub(crate) fn observer(&self) -> Option<Rc<dyn Observer>> {
        if self.is_observed() { self.observer.borrow().clone() } else { None }
    }

    /// The references to each partition, by number.
    pub fn references(&self) -> Vec<References> {
        self.references.borrow().clone()
    }

    /// Forgets everything: the end of a warm-up.
    pub fn restart(&self) {
        let counters = [
            &self.commits,
            &self.rollbacks,
            &self.deadlocks,
            &self.lock_wait_ns,
            &self.read_wait_ns,
            &self.write_wait_ns,
            &self.commit_wait_ns,
            &self.checkpoints,
            &self.sweeps,
            &self.segments_written,
            &self.sweep_ns,
            &self.restarts_by_colour,
            &self.indexed_records,
            &self.segment_waits,
            &self.segment_wait_ns,
        ];
        for counter in counters {
            counter.set(0);
        }
        self.references.borrow_mut().fill(References::default());
    }
}
