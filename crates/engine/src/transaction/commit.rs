//! The end of a transaction.
//!
//! A transaction is committed when its commit record is durable. Locks are released earlier, when that record stands in the log
//! buffer (early lock release), unless the settings say otherwise: a transaction that reads its updates then has a later commit
//! record, or, if it only reads, waits until this one is durable.

use super::Transaction;
use super::freeing::Chains;
use super::isolation::end_views;
use super::set_log::append_commit;
use crate::engine::{Active, Core, EndingTask, Engine, Isolation};
use crate::statistics::{WaitKind, add};
use crate::{Error, Result};
use base::Lsn;
use driver::Work;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use structures::canary::{self, Canary};
use structures::set::Sets;

impl Transaction {
    /// Commits. When this returns, the updates survive whatever happens (unless the log's settings do without durability).
    ///
    /// # Errors
    /// [`crate::Error::LogFailed`]: whether the transaction is committed shows when the database is opened again. The
    /// error of a forced write, under FORCE. [`crate::Error::Aborted`] if one of its calls has failed with
    /// [`crate::Error::Deadlock`], [`crate::Error::WriteConflict`] or [`crate::Error::MixedColours`]: it is rolled back then.
    ///
    /// Rolled back are those that the log has no room for: with [`crate::Error::LogFull`] if it is too small for them,
    /// [`crate::Error::LogCrowded`] if others keep them from it and they may be run again, and
    /// [`crate::Error::LogNotRelieved`] if the checkpoint failed that was to make room.
    ///
    /// ```
    /// # mod ground { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/ground/database.rs")); }
    /// # use ground::*;
    /// # with_database(async |database| {
    /// # let notes = database.create_partition(PartitionSpec::b_tree("notes")).await?;
    /// let mut tx = database.begin().await?;
    /// tx.put(notes, b"milk", b"two litres").await?;
    /// tx.commit().await?;
    /// let log = database.log();
    /// assert_eq!(log.durable(), log.end(), "it survives a power cut");
    /// # Ok(())
    /// # });
    /// ```
    pub async fn commit(self) -> Result<()> {
        if let Err(aborted) = self.check_active() {
            return Box::pin(self.refuse_commit(aborted)).await;
        }
        self.charge_end();
        if self.engine.core.executor.owes() {
            self.engine.core.executor.pay_debt().await;
        }
        if !self.may_commit_at_once()
            && let Err(refused) = Box::pin(self.prepare_commit()).await
        {
            return Box::pin(self.refuse_commit(refused)).await;
        }
        let mut ending = self.decide();
        if ending.only_read() {
            return ending.finish_reading().await;
        }
        let lsn = ending.append();
        if !ending.chains.are_free() {
            return Box::pin(ending.finish_and_free(lsn)).await;
        }
        ending.finish_update(lsn).await
    }

    /// Rolls back what may not be committed.
    #[cold]
    async fn refuse_commit(self, refused: Error) -> Result<()> {
        self.rollback().await?;
        Err(refused)
    }

    /// Commits without waiting until that is durable: its locks are released, and its answer may leave when the log is durable
    /// up to a position, unless the end takes more than that. [`Transaction::pay_for_end`] comes before, and then, in the same
    /// step, [`Transaction::make_room_for_commit`]; it is logged in that step in any case.
    pub(crate) fn commit_early(self) -> EarlyCommit {
        let mut ending = self.decide();
        if ending.only_read() {
            ending.engine.sets.sets.borrow_mut().commit(ending.state.owner);
            return EarlyCommit::Logged(ending.dependency());
        }
        let lsn = ending.append();
        let rules = ending.engine.transactions.rules;
        let takes_more = rules.force || rules.hold_locks || !ending.chains.are_free();
        if takes_more || canary::is_planted(Canary::CommitBeforeSync) {
            return EarlyCommit::Unfinished(Box::pin(async move {
                if ending.chains.are_free() {
                    ending.finish_update(lsn).await
                } else {
                    ending.finish_and_free(lsn).await
                }
            }));
        }
        ending.engine.core.log.begin_commit(lsn);
        ending.is_demanded = true;
        EarlyCommit::Logged(lsn)
    }

    /// Charges the end of the transaction, and pays.
    #[inline]
    pub(crate) async fn pay_for_end(&self) {
        self.charge_end();
        if self.engine.core.executor.owes() {
            self.engine.core.executor.pay_debt().await;
        }
    }

    /// Charges it without paying.
    #[inline]
    fn charge_end(&self) {
        let engine = &self.engine;
        engine.core.executor.charge(Work::EndTransaction);
        engine.core.executor.charge_times(Work::LockPair, engine.core.locks.held(self.state.owner) as u64);
        let changes = self.state.updates() + engine.sets.sets.borrow().changes(self.state.owner);
        if changes > 0 {
            // A procedure that is logged as such has no record for each change.
            let of_changes = if self.engine.transactions.logs_call(&self.state) { 0 } else { changes as u64 };
            engine.core.executor.charge_times(Work::LogRecord, 2 + of_changes);
        }
    }

    /// From here on the transaction leaves the tables, whatever becomes of its commit.
    pub(super) fn decide(mut self) -> Ending {
        self.give_up_loose();
        self.ended = true;
        let mut state = std::mem::take(&mut self.state);
        state.is_decided = true;
        state.user.set(None);
        let statistics = &self.engine.core.statistics;
        add(&statistics.commits, 1);
        if let Some(observer) = statistics.observer() {
            observer.ended(state.id, true);
        }
        Ending::new(self.engine.clone(), state)
    }
}

/// What is left of a commit whose record is in the log's buffer.
pub(crate) enum EarlyCommit {
    /// Its answer may leave when the log is durable up to here.
    Logged(Lsn),
    /// More than that has to be waited for: pages to force or to free, or locks that are held until then.
    Unfinished(Committing),
}

/// The rest of a commit.
pub type Committing = Pin<Box<dyn Future<Output = Result<()>>>>;

impl Transaction {
    /// Ends a procedure that was run again for a restart: what it has done is committed, and logged already. Words if it
    /// has not done that.
    pub(crate) fn end_replay(mut self) -> Result<(), String> {
        if self.state.call.numbers_left() > 0 {
            return Err("it adds fewer arrivals than when it was logged".to_owned());
        }
        self.check_active().map_err(|error| error.to_string())?;
        self.ended = true;
        let (engine, state) = (self.engine.clone(), std::mem::take(&mut self.state));
        engine.sets.sets.borrow_mut().commit(state.owner);
        engine.core.locks.release_all(state.owner, None);
        retire(&engine, state);
        Ok(())
    }
}

/// A transaction whose outcome is decided. It leaves the tables even if its commit is not waited for.
pub(super) struct Ending {
    pub(super) engine: Rc<Engine>,
    pub(super) state: Active,
    /// Its commit record, once it has one. Transactions that get its locks depend on that, however it ends.
    pub(super) lsn: Option<Lsn>,
    /// Whether the log was asked to make that durable.
    pub(super) is_demanded: bool,
    /// The pages that it has to free: until that is done, the log from its beginning is needed.
    pub(super) chains: Chains,
    /// Whether that goes on beside everything else.
    pub(super) is_beside: bool,
    /// Whether that fails, and others have been told so.
    pub(super) is_stalled: bool,
}

impl Drop for Ending {
    fn drop(&mut self) {
        let state = std::mem::take(&mut self.state);
        if let Some(lsn) = self.lsn.filter(|_| !self.is_demanded) {
            // Abandoned before that: transactions that have read its updates wait for it.
            self.engine.core.log.request(lsn);
        }
        if self.engine.core.locks.held(state.owner) > 0 {
            self.engine.core.locks.release_all(state.owner, self.lsn);
        }
        if !self.chains.are_free() {
            self.engine.transactions.registry.borrow_mut().retain_log(state.owner);
        }
        if self.is_stalled {
            self.engine.transactions.registry.borrow_mut().end_stall(state.owner);
        }
        if self.is_beside {
            self.engine.transactions.active.set(self.engine.transactions.active.get() + 1);
        }
        retire(&self.engine, state);
    }
}

impl Ending {
    pub(super) fn new(engine: Rc<Engine>, state: Active) -> Ending {
        let (lsn, chains) = (None, Chains::default());
        Ending { engine, state, lsn, is_demanded: false, chains, is_beside: false, is_stalled: false }
    }

    /// Whether there is nothing to log.
    fn only_read(&self) -> bool {
        !self.state.wrote && self.engine.sets.sets.borrow().redo(self.state.owner).is_empty()
    }

    /// The rest of a commit that has nothing to log.
    async fn finish_reading(&mut self) -> Result<()> {
        self.engine.sets.sets.borrow_mut().commit(self.state.owner);
        self.engine.core.locks.release_all(self.state.owner, None);
        self.engine.core.confirm_reads(self.dependency()).await
    }

    /// Up to where the log must be durable before it may be told what was read.
    fn dependency(&self) -> Lsn {
        self.state.answer_depends_on(self.engine.versions.present())
    }

    /// The rest of a commit that has pages to free. They are freed also when its caller has gone, and when a forced write fails.
    async fn finish_and_free(mut self, lsn: Lsn) -> Result<()> {
        let (executor, ending) = (self.engine.core.executor.clone(), EndingTask::new(&self.engine));
        let committed = async move {
            let _ending = ending;
            let committed = self.finish_update(lsn).await;
            if self.engine.core.log.failure().is_none() {
                self.free().await;
            }
            committed
        };
        executor.spawn(committed).join().await
    }

    /// The rest of a commit that has its record, but for pages to free.
    async fn finish_update(&mut self, lsn: Lsn) -> Result<()> {
        let engine = &self.engine;
        // The pages of the log that the record has filled, and what it made a sweep save.
        if engine.core.executor.owes() {
            engine.core.executor.pay_debt().await;
        }
        self.is_demanded = true;
        if !engine.core.is_durable() {
            if engine.core.log.demand_commit(lsn)? {
                engine.core.log.write_own().await;
            }
            return Ok(());
        }
        if canary::is_planted(Canary::CommitBeforeSync) {
            engine.core.log.request(lsn);
            return Ok(());
        }
        let began = engine.core.executor.now();
        engine.core.log.commit(lsn).await?;
        engine.core.statistics.add_wait(WaitKind::Log, &engine.core.executor, began);
        if engine.transactions.rules.force {
            let durable = engine.core.executor.now();
            engine.core.buffer.force(&self.state.pages).await?;
            engine.core.statistics.add_wait(WaitKind::Write, &engine.core.executor, durable);
        }
        Ok(())
    }

    /// Appends the commit record. Releases the locks unless they are held until it is durable.
    fn append(&mut self) -> Lsn {
        let (engine, state) = (&self.engine, &self.state);
        self.chains = Chains::of(state.chains.iter().map(|chain| chain.first));
        let lsn = {
            let mut sets = engine.sets.sets.borrow_mut();
            let lsn = append_commit(engine, &sets, state, &self.chains.packed());
            sets.commit(state.owner);
            // From here on there is nothing to take back, although the transaction has not left the tables.
            state.undo.borrow_mut().clear();
            engine.versions.commit(state.owner, lsn);
            if sets.is_capturing() {
                charge_copies(&engine.core, &mut sets);
            }
            lsn
        };
        self.lsn = Some(lsn);
        if !engine.transactions.rules.hold_locks {
            engine.core.locks.release_all(state.owner, Some(lsn));
        }
        if self.chains.are_free() {
            engine.transactions.registry.borrow_mut().clear_first_lsn(state.owner);
        } else {
            self.keep_room_for_freeing();
        }
        lsn
    }

    /// It cannot be rolled back any more. Of the room for that it keeps what stating anew takes that is still to be freed: two
    /// that kept all of it would wait for each other. And for what it was promised beyond that it would wait itself.
    #[cold]
    fn keep_room_for_freeing(&mut self) {
        if canary::is_planted(Canary::KeptRollbackRoom) {
            return;
        }
        let (core, unfinished) = (&self.engine.core, &self.engine.transactions.unfinished);
        let logged = self.state.logged;
        self.state.logged = logged.min(self.chains.logged());
        unfinished.set(unfinished.get() - logged + self.state.logged);
        if self.state.reserved > 0 {
            core.log.release(std::mem::take(&mut self.state.reserved));
        }
    }
}

/// Charges what a commit has saved of segments for the sweep in progress.
#[cold]
pub(super) fn charge_copies(core: &Core, sets: &mut Sets) {
    let (segments, kib) = sets.take_copied();
    core.executor.charge_times(Work::SegmentAllocation, segments);
    core.executor.charge_times(Work::SegmentCopy, kib);
}

/// Removes an ended transaction and admits the next one.
pub(super) fn retire(engine: &Engine, state: Active) {
    remove(engine, state);
    engine.transactions.admission.wake_one(&engine.core.executor);
}

/// Removes an ended transaction. One that has only read a snapshot makes no room for others.
pub(super) fn remove(engine: &Engine, state: Active) {
    engine.core.locks.retire(state.owner);
    engine.transactions.unfinished.set(engine.transactions.unfinished.get() - state.logged);
    if state.reserved > 0 {
        engine.core.log.release(state.reserved);
    }
    if let Some((task, began)) = state.watched {
        let ended = (state.id, state.is_decided);
        engine.core.statistics.end_transaction(ended, (task, began), engine.core.executor.now());
    }
    let (isolation, at) = (state.isolation, state.at);
    if isolation != Isolation::Serializable {
        engine.versions.readers.leave(&state.pace);
    }
    engine.transactions.registry.borrow_mut().end(state);
    if isolation != Isolation::Serializable {
        end_views(&engine.versions, isolation, at);
    }
    engine.transactions.active.set(engine.transactions.active.get() - 1);
}
