//! Fuzzy checkpoints: the log's beginning moves forward while transactions run.
//!
//! A checkpoint writes back the pages that have been dirty for long, makes the files durable, and stores in the home file
//! from where redo has to begin: the oldest change that is not on the medium, or the first record of the oldest active
//! transaction. The log before that is given up.

mod sweep;

pub use sweep::{Settings as SweepSettings, Strategy};

use crate::Result;
use crate::backup::Current;
use crate::canary::{self, Canary};
use crate::catalog::Partition;
use crate::database::Database;
use crate::statistics::add;
use base::Lsn;
use executor::{Executor, Turn, WaitQueue};
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// The name of the group of the checkpoint server's tasks.
pub const GROUP: &str = "checkpoint";

/// When checkpoints are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// After so many bytes of log; `None` for never.
    pub log_bytes: Option<u64>,
    /// After so many nanoseconds; `None` for never.
    pub interval_ns: Option<u64>,
}

impl Policy {
    /// Only when asked, as when a database is closed.
    pub const OFF: Policy = Policy { log_bytes: None, interval_ns: None };
}

/// The checkpointer's memory between two checkpoints.
pub struct Checkpointer {
    policy: Policy,
    /// The end of the log when the last checkpoint began: pages dirty since before it are old.
    last_begin: Cell<Lsn>,
    /// Who writes the home file.
    turn: Turn,
    bell: WaitQueue,
    /// Whether a write of the home file failed, and none has succeeded since.
    home_unsure: Cell<bool>,
    /// Whether checkpoints are being taken because the log is full.
    relieving: Cell<bool>,
    /// Why the last one failed.
    failure: RefCell<Option<crate::Error>>,
}

/// What the home file is to say anew.
#[derive(Default)]
struct News<'a> {
    /// One more partition.
    partition: Option<&'a Partition>,
    /// Another copy of the sets' backup.
    backup: Option<Current>,
}

/// How often the checkpointer looks whether it is time, in nanoseconds.
const POLL_NS: u64 = 20 * base::time::MILLISECOND_NS;

impl Checkpointer {
    /// A checkpointer that has yet to take its first checkpoint.
    pub fn new(policy: Policy) -> Checkpointer {
        Checkpointer {
            policy,
            last_begin: Cell::new(Lsn::ZERO),
            turn: Turn::new(),
            bell: WaitQueue::new(),
            home_unsure: Cell::new(false),
            relieving: Cell::new(false),
            failure: RefCell::new(None),
        }
    }

    /// Lets the background task look at once.
    pub fn wake(&self, executor: &Executor) {
        self.bell.wake_all(executor);
    }

    /// Why the last background checkpoint failed, if it did.
    pub fn failure(&self) -> Option<crate::Error> {
        self.failure.borrow().clone()
    }
}

/// Starts the background task, if the policy has one.
pub fn start(database: &Database) {
    let policy = database.0.checkpointer.policy;
    database.0.checkpointer.last_begin.set(database.0.log.end());
    if policy == Policy::OFF {
        return;
    }
    let (weak, executor) = (Rc::downgrade(&database.0), database.0.executor.clone());
    let group = database.0.executor.group(GROUP, executor::Members::Free);
    database.0.executor.spawn_in(group, 0, async move {
        let mut last = executor.now();
        loop {
            executor.sleep_ns(POLL_NS).await;
            let Some(inner) = weak.upgrade() else { return };
            if inner.closing.get() {
                return;
            }
            let database = Database(inner);
            let grown = database.0.log.end().0 - database.0.checkpointer.last_begin.get().0;
            let by_size = policy.log_bytes.is_some_and(|bytes| grown >= bytes) || database.0.log.is_crowded();
            let by_time = policy.interval_ns.is_some_and(|ns| executor.now().since_ns(last) >= ns);
            if by_size || (by_time && grown > 0) {
                let result = database.take_checkpoint(false).await;
                database.0.checkpointer.failure.replace(result.err());
                last = executor.now();
            }
        }
    });
}

impl Database {
    /// Takes a checkpoint that writes back every page changed before this call.
    ///
    /// # Errors
    /// The driver's or the log's. The checkpoint before stays valid.
    ///
    /// ```
    /// # mod ground { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/ground/database.rs")); }
    /// # use ground::*;
    /// # with_database(async |database| {
    /// # let notes = database.create_partition(PartitionSpec::b_tree("notes")).await?;
    /// database.transaction(async |tx| tx.put(notes, b"milk", b"two litres").await).await?;
    /// assert_eq!(database.buffer().file(notes).writes.get(), 0, "the log suffices");
    /// database.checkpoint().await?;
    /// assert!(database.buffer().file(notes).writes.get() > 0, "a restart need not redo this");
    /// # Ok(())
    /// # });
    /// ```
    pub async fn checkpoint(&self) -> Result<()> {
        let database = self.clone();
        self.0.executor.spawn(async move { database.take_checkpoint(true).await }).join().await
    }

    /// Waits until the log has room for new work. Where checkpoints are taken only when asked, a full log asks for them, lest
    /// everybody wait for ever.
    #[cold]
    pub(crate) async fn wait_for_log(&self) -> Result<()> {
        while self.0.log.is_crowded() {
            if self.0.log.is_full() && self.0.checkpointer.policy == Policy::OFF {
                self.relieve_log();
            }
            self.0.log.wait_for_room().await?;
        }
        Ok(())
    }

    /// Starts to take checkpoints for as long as the log is full, unless that is under way.
    fn relieve_log(&self) {
        if self.0.checkpointer.relieving.replace(true) {
            return;
        }
        let database = self.clone();
        self.0.executor.spawn(async move {
            let inner = &*database.0;
            while inner.log.is_full() && !inner.closing.get() && inner.log.failure().is_none() {
                let result = database.take_checkpoint(true).await;
                inner.checkpointer.failure.replace(result.err());
                if inner.log.is_full() {
                    // Transactions that go on hold it, or the checkpoint failed.
                    inner.executor.sleep_ns(POLL_NS).await;
                }
            }
            inner.checkpointer.relieving.set(false);
        });
    }

    /// Runs in a task of its own, so that no write of the home file is abandoned.
    async fn take_checkpoint(&self, full: bool) -> Result<()> {
        let checkpointer = &self.0.checkpointer;
        let _turn = checkpointer.turn.take(&self.0.executor).await;
        let begin = self.0.log.end();
        // The second checkpoint after a change finds its page old: hot pages are written once in two checkpoints. A log
        // that is nearly full cannot wait for that.
        let everything = full || self.0.log.is_crowded();
        let old = if everything { begin } else { checkpointer.last_begin.get() };
        self.0.buffer.write_back_before(old).await?;
        let redo_start = self.redo_start();
        // A transaction that has ended by now holds nothing back, so the records with which it ended must be durable, too: a
        // restart that met neither its updates nor their compensations would leave the updates in place.
        let ended = self.0.log.end();
        self.0.buffer.sync().await?;
        self.0.log.flush(ended).await?;
        if checkpointer.home_unsure.get() {
            // The home file may name the copy of the backup that the next sweep would write.
            let before = self.0.contents.borrow().redo_start();
            self.store_home(before, News::default()).await?;
        }
        let backup = self.sweep().await?;
        self.store_home(redo_start, News { backup, ..News::default() }).await?;
        let needed = self.0.contents.borrow().scan_start();
        self.0.log.drain_before(needed).await?;
        self.0.log.truncate(needed);
        checkpointer.last_begin.set(begin);
        add(&self.0.statistics.checkpoints, 1);
        Ok(())
    }

    /// From where the log is needed if the machine stops now.
    fn redo_start(&self) -> Lsn {
        if canary::is_planted(Canary::EarlyTruncation) {
            return self.0.log.end();
        }
        let dirty = self.0.buffer.recovery_lsn();
        let active = self.0.registry.borrow().first_lsn();
        [dirty, active].into_iter().flatten().fold(self.0.log.end(), Lsn::min)
    }

    /// States in the home file that every tier could be lost without loss, if that is so.
    pub(crate) async fn retire_tiers(&self) -> Result<()> {
        if self.0.contents.borrow().tiers.is_empty() {
            return Ok(());
        }
        let _turn = self.0.checkpointer.turn.take(&self.0.executor).await;
        let pending = self.0.buffer.tiers().map_or(0, |tiers| tiers.slots.borrow().pending_count());
        if pending > 0 || self.0.log.drain_before(Lsn::MAX).await.is_err() {
            return Ok(());
        }
        self.0.contents.borrow_mut().tiers.iter_mut().for_each(|record| record.in_use = false);
        let redo_start = self.0.contents.borrow().redo_start();
        self.store_home(redo_start, News::default()).await
    }

    /// Makes a new partition one of the database's: durable first, then visible.
    pub(crate) async fn enter(&self, partition: Partition) -> Result<()> {
        let database = self.clone();
        self.0.executor.spawn(async move { database.enter_alone(partition).await }).join().await
    }

    async fn enter_alone(&self, partition: Partition) -> Result<()> {
        let _turn = self.0.checkpointer.turn.take(&self.0.executor).await;
        let redo_start = self.0.contents.borrow().redo_start();
        self.store_home(redo_start, News { partition: Some(&partition), ..News::default() }).await?;
        self.0.statistics.reserve(usize::from(partition.id) + 1);
        self.0.partitions.borrow_mut().push(Rc::new(partition));
        Ok(())
    }

    /// Writes the home file. Only one task does so at a time.
    async fn store_home(&self, redo_start: Lsn, news: News<'_>) -> Result<()> {
        let mut contents = self.0.contents.borrow().clone();
        contents.redo_start = redo_start.0;
        contents.log_durable = if self.0.settings.log.durable { self.0.log.durable().0 } else { redo_start.0 };
        contents.log_epoch = self.0.log.epoch();
        contents.next_transaction = self.0.registry.borrow().next();
        contents.partitions = self.partitions().iter().map(|partition| (**partition).clone()).collect();
        contents.partitions.extend(news.partition.cloned());
        contents.backup = news.backup.or(contents.backup);
        if contents.backup.is_none() && contents.partitions.iter().any(|found| found.set_settings().is_some()) {
            contents.backup = Some(Current::empty(self.0.log.end()));
        }
        self.0.checkpointer.home_unsure.set(true);
        let mut home = self.0.home.take().expect("only one task writes the home file");
        let result = home.write(&self.0.executor, &contents).await;
        self.0.home.replace(Some(home));
        result?;
        self.0.checkpointer.home_unsure.set(false);
        self.0.contents.replace(contents);
        Ok(())
    }
}
