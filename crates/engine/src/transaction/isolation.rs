//! What a transaction sees of others.
//!
//! Whoever changes a record locks it exclusively until its end, at every level; the levels differ in what reading takes.
//! Serializable transactions are strictly two-phase: they lock what they read, gaps of ranges included, so that the order of
//! their commits is a serial one. The others read versions and take no locks for that. One at snapshot level that would
//! change what was changed after its moment gives up (first updater wins), so that no update is lost; a serializable one
//! beside it sees it as a writer like any other, because its changes lock and pass gaps as all do.

use super::Transaction;
use crate::catalog::Locking;
use crate::database::Database;
use crate::version::{Pace, View, Viewing};
use crate::{Error, Result};
use base::{Lsn, PartitionId};
use std::rc::Rc;
use structures::canary::{self, Canary};
use structures::lock::{Mode, Resource};

/// What a transaction sees of others (Berenson, Bernstein, Gray, Melton, O'Neil and O'Neil: A Critique of ANSI SQL Isolation
/// Levels, SIGMOD 1995; Adya, Liskov and O'Neil, ICDE 2000).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Isolation {
    /// Each call sees what was committed when it began. A cursor is one call.
    ReadCommitted,
    /// All calls see what was committed when the transaction began, and what it has done itself. Of two that change the same
    /// record, the second gives up. One whose moment is too long ago ([`Error::SnapshotTooOld`]) can change no more than it
    /// can read, because nobody knows any more what was changed since then.
    Snapshot,
    /// As if transactions ran one after the other, in the order of their commits.
    #[default]
    Serializable,
}

impl Isolation {
    /// Every level, the weakest first.
    pub const ALL: [Isolation; 3] = [Isolation::ReadCommitted, Isolation::Snapshot, Isolation::Serializable];
}

impl Database {
    /// Begins a transaction at a level of isolation; [`Database::begin`] is for serializable ones.
    ///
    /// # Errors
    /// As [`Database::begin`].
    ///
    /// ```
    /// # mod ground { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/ground/database.rs")); }
    /// # use ground::*;
    /// # use entresol_engine::Isolation;
    /// # with_database(async |database| {
    /// # let notes = database.create_partition(PartitionSpec::b_tree("notes")).await?;
    /// database.transaction(async |tx| tx.put(notes, b"milk", b"two litres").await).await?;
    /// let (mut one, mut other) = (database.begin_at(Isolation::Snapshot).await?, database.begin_at(Isolation::Snapshot).await?);
    /// one.put(notes, b"milk", b"none").await?;
    /// assert_eq!(other.get(notes, b"milk").await?.as_deref(), Some(&b"two litres"[..]), "nobody waits for who writes");
    /// one.commit().await?;
    /// assert_eq!(other.get(notes, b"milk").await?.as_deref(), Some(&b"two litres"[..]));
    /// assert_eq!(other.put(notes, b"milk", b"three").await, Err(Error::WriteConflict("notes".into())));
    /// # other.rollback().await?;
    /// # Ok(())
    /// # });
    /// ```
    pub async fn begin_at(&self, isolation: Isolation) -> Result<Transaction> {
        let mut transaction = self.begin().await?;
        transaction.isolate(isolation).await?;
        Ok(transaction)
    }

    /// Before the first reader of the past: waits until every segment can be looked at.
    pub(crate) async fn await_segments(&self) {
        if !self.0.keeps_versions.get() || self.0.versions.borrow().is_lazy() {
            self.segments_returned().await;
        }
    }

    /// Begins to read as of `at`, outside the multiprogramming level: whoever only reads keeps nobody waiting.
    pub(crate) fn begin_reading(&self, at: Lsn) -> Transaction {
        let inner = &*self.0;
        inner.active.set(inner.active.get() + 1);
        let mut state = inner.registry.borrow_mut().begin(None);
        (state.isolation, state.at) = (Isolation::Snapshot, at);
        self.enter_snapshot(at);
        inner.readers.enter(&state.pace);
        Transaction { database: self.clone(), state, ended: false }
    }
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
        self.database.await_segments().await;
        // What it reads depends on more than the order of commits, in which procedures are repeated.
        self.depart()?;
        self.state.isolation = isolation;
        if isolation == Isolation::Snapshot {
            self.state.at = self.database.present();
            self.state.depend_on(self.state.at);
            self.database.enter_snapshot(self.state.at);
        } else {
            self.database.enter_reader();
        }
        Ok(())
    }

    /// How fast it reads the past.
    pub(crate) fn pace(&self) -> Rc<Pace> {
        Rc::clone(&self.state.pace)
    }

    /// Before a read of a single record of the past: of many, one now and then lets others go first, and counts for all since
    /// then. Who has locks does not rest: others may wait for them.
    pub(super) async fn pace_single(&self) -> Option<&Pace> {
        let pace = &*self.state.pace;
        if !pace.is_sample() || self.database.0.locks.borrow().held(self.state.owner) > 0 {
            return None;
        }
        self.database.pace(pace).await;
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
        self.database.release_locks(&state, None);
        self.database.retire(state);
    }

    /// What a call sees that takes no locks; `None` if calls do.
    #[inline]
    pub(super) fn viewing(&self) -> Option<Viewing> {
        if self.state.isolation == Isolation::Serializable { None } else { Some(self.viewing_past()) }
    }

    #[cold]
    fn viewing_past(&self) -> Viewing {
        let owner = self.state.owner;
        if self.state.isolation == Isolation::Snapshot && !canary::is_planted(Canary::MovingSnapshot) {
            return Viewing::of(View { at: self.state.at, owner });
        }
        let at = self.database.present();
        self.state.depend_on(at);
        Viewing::held(&self.database, View { at, owner })
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
        let found = self.database.describe(partition)?;
        if found.locking == Locking::None {
            return Ok(());
        }
        let is_changed = self.database.0.versions.borrow().is_changed_since(view, partition, record)?;
        if is_changed { Err(self.abort(Error::WriteConflict(found.name.clone()))) } else { Ok(()) }
    }

    /// The value of `key` that the view sees.
    #[cold]
    pub(super) async fn read_past(
        &mut self,
        viewing: Viewing,
        partition: PartitionId,
        key: &[u8],
    ) -> Result<Option<Vec<u8>>> {
        if self.reference() {
            self.delayed_reference().await?;
        }
        self.database.find_keyed(partition)?;
        let pace = self.pace_single().await;
        let found = self.database.read_at(viewing.view, partition, key, pace).await;
        self.tell_key(partition, key, false);
        found
    }
}

impl Database {
    /// The end of what a transaction has read without locks.
    #[cold]
    pub(super) fn end_views(&self, isolation: Isolation, at: Lsn) {
        match isolation {
            Isolation::Serializable => {}
            Isolation::Snapshot => self.leave_snapshot(at),
            Isolation::ReadCommitted => self.leave_reader(),
        }
    }
}
