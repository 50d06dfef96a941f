//! What a transaction sees of others.
//!
//! A transaction that changes a record locks it exclusively until its end, at every level; the levels differ in what reading
//! takes. Serializable transactions are strictly two-phase: they lock what they read, ranges as a whole, so that the
//! order of their commits is a serial one. The others read versions and take no locks for that. One at snapshot level that
//! would change what was changed after its moment gives up (first updater wins), so that no update is lost; a serializable one
//! beside it sees it as a writer like any other, because its changes take locks and wait for readers of ranges as all do.

use super::Transaction;
use super::commit::remove;
use crate::engine::{Engine, Isolation, KeyedPartition, segments_returned};
use crate::mvcc::{ReadView, enter_reader, enter_snapshot, read_at, rest};
use crate::version::{ReaderPace, VersionStore, View};
use crate::{Error, Result};
use base::{Lsn, PartitionId};
use std::rc::Rc;
use structures::canary::{self, Canary};
use structures::lock::{Mode, Resource};

/// Before the first reader of the past: waits until every segment can be looked at.
pub(crate) async fn await_segments(engine: &Engine) {
    if !engine.versions.is_kept() || engine.versions.is_lazy() {
        segments_returned(&engine.core.executor, &engine.sets).await;
    }
}

/// Begins to read as of `at`, outside the multiprogramming level: a read-only transaction keeps no other waiting.
pub(crate) fn begin_reading(engine: &Rc<Engine>, at: Lsn) -> Transaction {
    engine.transactions.active.set(engine.transactions.active.get() + 1);
    let mut state = engine.transactions.registry.borrow_mut().begin(None);
    engine.transactions.registry.borrow_mut().give_to_snapshot(state.owner);
    (state.isolation, state.at) = (Isolation::Snapshot, at);
    state.user.set(Some(engine.core.executor.caller()));
    enter_snapshot(engine, at);
    engine.versions.readers.enter(&state.pace);
    Transaction { engine: Rc::clone(engine), state, ended: false }
}

impl Transaction {
    /// The transaction's level.
    pub fn isolation(&self) -> Isolation {
        self.state.isolation
    }

    /// Gives a transaction that has just begun its level.
    pub(crate) async fn isolate(&mut self, isolation: Isolation) -> Result<()> {
        if isolation == Isolation::Serializable {
            return Ok(());
        }
        await_segments(&self.engine).await;
        // What it reads depends on more than the order of commits, in which procedures are repeated.
        self.mark_not_replayable()?;
        self.state.isolation = isolation;
        if isolation == Isolation::Snapshot {
            self.state.at = self.engine.versions.present();
            self.state.depend_on(self.state.at);
            enter_snapshot(&self.engine, self.state.at);
        } else {
            enter_reader(&self.engine);
        }
        Ok(())
    }

    /// How fast it reads the past.
    pub(crate) fn pace(&self) -> Rc<ReaderPace> {
        Rc::clone(&self.state.pace)
    }

    /// Before a read of a single record of the past: one in a number of reads yields, and counts for all since the last. A
    /// transaction with locks does not pause: others may wait for them.
    pub(super) async fn pace_single(&self) -> Option<&ReaderPace> {
        let pace = &*self.state.pace;
        if !pace.is_sample() || self.engine.core.locks.held(self.state.owner) > 0 {
            return None;
        }
        rest(&self.engine, pace).await;
        Some(pace)
    }

    /// The moment that a snapshot is of.
    pub(crate) fn moment(&self) -> Lsn {
        self.state.at
    }

    /// Ends a transaction that has only read a snapshot.
    pub(crate) fn end_reading(&mut self) {
        self.ended = true;
        let state = std::mem::take(&mut self.state);
        self.engine.core.locks.release_all(state.owner, None);
        remove(&self.engine, state);
    }

    /// Gives back the locks of a transaction that has only read, which goes on.
    pub(crate) fn give_locks_back(&mut self) {
        self.engine.core.locks.release_all(self.state.owner, None);
    }

    /// What a call sees that takes no locks; `None` if calls do.
    #[inline]
    pub(super) fn read_view(&self) -> Option<ReadView> {
        if self.state.isolation == Isolation::Serializable { None } else { Some(self.read_view_of_past()) }
    }

    /// The same for a partition.
    ///
    /// # Errors
    /// [`Error::SnapshotTooOld`] if all of its records were taken away since.
    #[inline]
    pub(super) fn read_view_of(&self, partition: PartitionId) -> Result<Option<ReadView>> {
        let read_view = self.read_view();
        if let Some(read_view) = &read_view {
            self.engine.versions.check_emptied(partition, read_view.view.at)?;
        }
        Ok(read_view)
    }

    #[cold]
    fn read_view_of_past(&self) -> ReadView {
        let owner = self.state.owner;
        if self.state.isolation == Isolation::Snapshot && !canary::is_planted(Canary::MovingSnapshot) {
            return ReadView::of(View { at: self.state.at, owner });
        }
        let at = self.engine.versions.present();
        self.state.depend_on(at);
        ReadView::held(&self.engine, View { at, owner })
    }

    /// Whether a lock that was just granted is for a change of what was changed since the transaction's moment.
    #[inline]
    pub(super) fn check_conflict(&self, partition: PartitionId, record: Resource, mode: Mode) -> Result<()> {
        if self.state.isolation == Isolation::Snapshot { self.check_snapshot(partition, record, mode) } else { Ok(()) }
    }

    #[cold]
    fn check_snapshot(&self, partition: PartitionId, record: Resource, mode: Mode) -> Result<()> {
        if mode == Mode::Shared || canary::is_planted(Canary::LostUpdate) {
            return Ok(());
        }
        let view = View { at: self.state.at, owner: self.state.owner };
        if !self.engine.versions.versions().borrow().is_changed_since(view, partition, record)? {
            return Ok(());
        }
        let name = self.engine.catalog.describe(partition)?.name.clone();
        Err(self.abort(Error::WriteConflict(name)))
    }

    /// The value of `key` that the view sees.
    #[cold]
    pub(super) async fn read_past(
        &mut self,
        read_view: ReadView,
        partition: PartitionId,
        key: &[u8],
    ) -> Result<Option<Vec<u8>>> {
        if self.reference() {
            self.delayed_reference().await?;
        }
        let found = self.engine.catalog.find_keyed(partition)?;
        self.read_found_past(read_view, (found, partition), key).await
    }

    /// As [`Transaction::read_past`], after the reference, in a partition that was looked up.
    #[cold]
    pub(super) async fn read_found_past(
        &mut self,
        read_view: ReadView,
        (found, partition): (KeyedPartition, PartitionId),
        key: &[u8],
    ) -> Result<Option<Vec<u8>>> {
        self.await_unlocked_tree(found, partition).await?;
        let pace = self.pace_single().await;
        let found = read_at(&self.engine, read_view.view, (partition, found.is_set), key, pace).await;
        self.trace_key_access(partition, key, false);
        found
    }
}

/// The end of what a transaction has read without locks.
#[cold]
pub(super) fn end_views(versions: &VersionStore, isolation: Isolation, at: Lsn) {
    match isolation {
        Isolation::Serializable => {}
        Isolation::Snapshot => versions.leave_snapshot(at),
        Isolation::ReadCommitted => versions.leave_reader(),
    }
}
