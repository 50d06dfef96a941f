//! Fuzzy checkpoints: the log's beginning moves forward while transactions run.
//!
//! A checkpoint of pages writes back those that have been dirty for long, makes the files durable, and stores in the home file
//! from where redo has to begin: the oldest change that is not on the medium, or the first record of the oldest active
//! transaction. Memory-resident sets are swept by a server of their own, on a clock of its own. The log is given up as far as
//! neither of them needs it.

mod background;
mod pace;
mod pairs;
mod quiesce;
mod relief;
mod sweep;
mod sweeping;

pub use background::start;
pub(crate) use relief::Relief;
pub use sweep::{Settings as SweepSettings, Strategy};
pub(crate) use sweeping::Sweeping;

use crate::catalog::Partition;
use crate::database::Database;
use crate::home::Change;
use crate::home::Current;
use crate::statistics::add;
use crate::{Error, Result};
use base::Lsn;
use executor::{Executor, Group, Members, Turn};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use structures::canary::{self, Canary};

/// The name of the group of the checkpoint server's tasks.
pub const GROUP: &str = "checkpoint";

fn group(executor: &Executor) -> Group {
    executor.group(GROUP, Members::Free)
}

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
    /// The end of the log when the last sweep over sets began.
    swept: Cell<Lsn>,
    /// Who checkpoints pages.
    paging: Turn,
    /// What the next write of the home file says of partitions.
    changes: RefCell<Vec<Change>>,
    /// Who sweeps over sets.
    sweeping: Turn,
    /// Whether a bulk load has that turn.
    is_loading: Cell<bool>,
    /// How many wait for a sweep to end.
    urgent: Cell<u32>,
    /// Who writes the home file.
    turn: Turn,
    /// Whether the server that sweeps was started.
    serves_sets: Cell<bool>,
    /// Whether a write of the home file failed, and none has succeeded since.
    home_unsure: Cell<bool>,
    /// Checkpoints that are taken because somebody waits for room in the log.
    relief: relief::State,
    /// Why the last checkpoint of pages failed, and why the last sweep did.
    failures: [RefCell<Option<Error>>; 2],
    /// How often either has failed.
    failed: Cell<u64>,
}

const PAGES: usize = 0;
const SETS: usize = 1;

/// What the home file is to say anew.
#[derive(Default)]
struct News {
    /// Another copy of the sets' backup.
    backup: Option<Current>,
    /// A log device that was lost.
    lost_log: Option<u8>,
}

impl Checkpointer {
    /// A checkpointer that has yet to take its first checkpoint.
    pub fn new(policy: Policy) -> Checkpointer {
        Checkpointer {
            policy,
            last_begin: Cell::new(Lsn::ZERO),
            swept: Cell::new(Lsn::ZERO),
            paging: Turn::new(),
            changes: RefCell::default(),
            sweeping: Turn::new(),
            is_loading: Cell::new(false),
            urgent: Cell::new(0),
            turn: Turn::new(),
            serves_sets: Cell::new(false),
            home_unsure: Cell::new(false),
            relief: relief::State::default(),
            failures: Default::default(),
            failed: Cell::new(0),
        }
    }

    /// Why the last checkpoint of pages or the last sweep failed, if it did.
    pub fn failure(&self) -> Option<Error> {
        self.failures.iter().find_map(|failure| failure.borrow().clone())
    }
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
        self.refuse_while_repeating()?;
        let database = self.clone();
        let taken = async move { database.take_checkpoint(true).await };
        self.0.executor.spawn_in(group(&self.0.executor), 0, taken).join().await
    }

    /// Writes back what a restart has redone and undone in pages. The backup and the log that the sets came from serve them
    /// on: the first sweep after this is for all that the log holds of them.
    pub(crate) async fn checkpoint_restart(&self) -> Result<()> {
        let database = self.clone();
        let taken = async move { database.checkpoint_pages(true).await };
        self.0.executor.spawn_in(group(&self.0.executor), 0, taken).join().await
    }

    /// Notes how a checkpoint of pages or a sweep has ended. Whoever waits for the room that it was to make learns of a
    /// failure.
    fn note_end(&self, part: usize, result: &Result<()>) {
        let checkpointer = &self.0.checkpointer;
        checkpointer.failures[part].replace(result.clone().err());
        if result.is_err() {
            checkpointer.failed.set(checkpointer.failed.get() + 1);
            self.0.log.wake_for_room();
        }
    }

    /// Runs in a task of its own, so that no write of the home file is abandoned.
    async fn take_checkpoint(&self, full: bool) -> Result<()> {
        let pages = self.checkpoint_pages(full).await;
        let _hurry = self.hurry();
        let sets = self.checkpoint_sets().await;
        pages.and(sets)
    }

    async fn checkpoint_pages(&self, full: bool) -> Result<()> {
        let result = self.write_pages_back(full).await;
        self.note_end(PAGES, &result);
        result
    }

    async fn write_pages_back(&self, full: bool) -> Result<()> {
        let checkpointer = &self.0.checkpointer;
        let _turn = checkpointer.paging.take(&self.0.executor).await;
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
        {
            let _turn = checkpointer.turn.take(&self.0.executor).await;
            self.store_home(redo_start, News::default()).await?;
        }
        checkpointer.last_begin.set(begin);
        add(&self.0.statistics.checkpoints, 1);
        self.give_up_log().await
    }

    /// Brings the older copy of the sets' backup up to date and lets the home file name it. Nothing if there are no sets. If it
    /// fails, the other copy stays valid, and the next sweep writes what this one has not.
    pub(crate) async fn checkpoint_sets(&self) -> Result<()> {
        let result = self.write_backup().await;
        self.note_end(SETS, &result);
        result
    }

    async fn write_backup(&self) -> Result<()> {
        let checkpointer = &self.0.checkpointer;
        if self.0.contents.borrow().backup.is_none() {
            return Ok(());
        }
        let _turn = checkpointer.sweeping.take(&self.0.executor).await;
        self.write_backup_in_turn(false).await?;
        self.give_up_log().await
    }

    /// The same for whom it is the turn to sweep; also if nothing was logged, where `unlogged` says that sets have changed.
    async fn write_backup_in_turn(&self, unlogged: bool) -> Result<()> {
        let checkpointer = &self.0.checkpointer;
        if checkpointer.home_unsure.get() {
            // The home file may name the copy that this sweep is about to write.
            let _turn = checkpointer.turn.take(&self.0.executor).await;
            self.store_home(self.pages_begin(), News::default()).await?;
        }
        let began = self.0.executor.now();
        let backup = self.sweep(unlogged).await?;
        let begin = backup.as_ref().map(|backup| Lsn(backup.begin));
        {
            let _turn = checkpointer.turn.take(&self.0.executor).await;
            self.store_home(self.pages_begin(), News { backup, ..News::default() }).await?;
        }
        begin.into_iter().for_each(|begin| checkpointer.swept.set(begin));
        add(&self.0.statistics.sweep_ns, self.0.executor.now().since_ns(began));
        Ok(())
    }

    /// Where the recovery of pages begins, as the home file says.
    fn pages_begin(&self) -> Lsn {
        self.0.contents.borrow().redo_start()
    }

    /// Gives up the log as far as neither pages nor sets need it.
    pub(crate) async fn give_up_log(&self) -> Result<()> {
        let needed = self.0.contents.borrow().scan_start();
        self.0.log.drain_before(needed).await?;
        self.0.log.truncate(needed);
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
        let _paging = self.0.checkpointer.paging.take(&self.0.executor).await;
        let _turn = self.0.checkpointer.turn.take(&self.0.executor).await;
        let pending = self.0.buffer.tiers().map_or(0, |tiers| tiers.slots.borrow().pending_count());
        if pending > 0 || self.0.log.drain_before(Lsn::MAX).await.is_err() {
            return Ok(());
        }
        self.0.contents.borrow_mut().tiers.iter_mut().for_each(|record| record.in_use = false);
        self.store_home(self.pages_begin(), News::default()).await
    }

    /// States in the home file that one of two log devices was lost, after which the log goes on with the other one; where
    /// that cannot be stated, it fails.
    pub(crate) async fn state_lost_log_device(&self) {
        let _turn = self.0.checkpointer.turn.take(&self.0.executor).await;
        let log = &self.0.log;
        let Some(lost) = log.device_lost().await else { return };
        match self.store_home(self.pages_begin(), News { lost_log: Some(lost), ..News::default() }).await {
            Ok(()) => log.go_on_alone(),
            Err(error) => log.fail_unstated(&error.to_string()),
        }
    }

    /// States in the home file what becomes of partitions. If that fails, the next write of the home file states it.
    ///
    /// # Errors
    /// Those of a write of the home file: an opening may find one state or the other.
    pub(crate) async fn state_catalog(&self, changes: Vec<Change>) -> Result<()> {
        self.note_catalog(changes);
        let _turn = self.0.checkpointer.turn.take(&self.0.executor).await;
        self.store_home(self.pages_begin(), News::default()).await
    }

    /// The next write of the home file states what becomes of partitions.
    pub(crate) fn note_catalog(&self, changes: impl IntoIterator<Item = Change>) {
        self.0.checkpointer.changes.borrow_mut().extend(changes);
    }

    /// Makes a new partition one of the database's: durable first, then visible. Calls that the log has from `since` on find it.
    ///
    /// # Errors
    /// As [`Database::state_catalog`].
    pub(crate) async fn enter(&self, partition: Rc<Partition>, since: Lsn) -> Result<()> {
        self.state_catalog(vec![Change::Enter(partition.id), Change::Since(partition.id, since.0)]).await?;
        self.0.statistics.reserve(usize::from(partition.id) + 1);
        self.0.partitions.borrow_mut().insert(partition);
        background::start_sweeping(self);
        Ok(())
    }

    /// Writes the home file. Only one task does so at a time.
    async fn store_home(&self, redo_start: Lsn, news: News) -> Result<()> {
        let mut contents = self.0.contents.borrow().clone();
        contents.redo_start = redo_start.0;
        contents.log_durable = if self.0.settings.log.durable { self.0.log.durable().0 } else { redo_start.0 };
        contents.next_transaction = self.0.registry.borrow().next();
        contents.backup = news.backup.or(contents.backup);
        if let Some(second) = &mut contents.second_log {
            second.lost = news.lost_log.or(second.lost);
        }
        if contents.backup.is_none() && self.0.backup.has_files() {
            contents.backup = Some(Current::empty(self.0.log.end()));
        }
        if contents.scan_start() >= self.0.log.opened_at() {
            contents.log_epoch = self.0.log.epoch();
        }
        self.0.checkpointer.home_unsure.set(true);
        let mut home = self.0.home.take().expect("only one task writes the home file");
        home.change(self.0.checkpointer.changes.take());
        let result = home.write(&self.0.executor, &contents).await;
        self.0.home.replace(Some(home));
        result?;
        self.0.checkpointer.home_unsure.set(false);
        self.0.contents.replace(contents);
        Ok(())
    }
}
