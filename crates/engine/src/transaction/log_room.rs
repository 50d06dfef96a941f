//! Room in the log for what a transaction does, and for taking it back.
//!
//! Changes of pages are logged when they are made, so each makes sure that the log has room for it and for the rollback of
//! all that is unfinished. Changes of sets are logged with the commit, all at once, and their rollback logs nothing; so a
//! commit makes sure that its record leaves the room for others' rollbacks.
//!
//! A commit asks for its log space in the step in which it logs. It waits with its locks only for a checkpoint that
//! does not depend on the end of any transaction (`log_relief.rs`). Otherwise it is rolled back like the victim
//! of a deadlock, and its space is reserved before it is run again. A record that the log could never hold is refused
//! at once.

use super::Transaction;
use super::freeing::BYTES_OF_CHAIN;
use super::log_relief::{relieve, wait_for_claim};
use super::own_log::{LogWait, note_own_before};
use super::past_log;
use crate::engine::relief::ReliefOutcome;
use crate::engine::{Engine, TransactionState};
use crate::log::record;
use crate::mvcc::keep_long_values;
use crate::statistics::add;
use crate::{Error, Need, Result};
use structures::canary::{self, Canary};

/// What a commit record takes at most beside its lists, with the time before it.
pub(super) const COMMIT_SIZE: u64 = 72;

impl Transaction {
    /// Whether one more change has to wait for room in the log, or must not be made.
    #[inline]
    pub(super) fn lacks_log(&self) -> bool {
        let engine = &self.engine;
        engine.core.log.is_behind()
            || (self.state.wrote && self.free_log() < engine.core.rollback_room(engine.transactions.unfinished.get()))
    }

    /// Bytes of the log that are free and not promised to others.
    #[inline]
    fn free_log(&self) -> u64 {
        self.engine.core.log.free_beside(self.state.reserved)
    }

    /// Makes sure that the log has room for one more change.
    ///
    /// Room in the log is a resource that transactions hold (from their first record on) and wait for, so waiting for it in
    /// the middle of a transaction could be for ever. When no more is left than rolling all of them back may take, the
    /// oldest goes on, after a checkpoint if need be, which frees the log when it ends; others that hold log give up, as a
    /// deadlock's victims, and begin again when there is room.
    pub(super) async fn log_room(&self) -> Result<()> {
        let log = &self.engine.core.log;
        if log.is_behind() {
            log.catch_up().await?;
        }
        if self.lacks_log() { self.yield_log().await } else { Ok(()) }
    }

    async fn yield_log(&self) -> Result<()> {
        let engine = &self.engine;
        let has_room = || self.free_log() >= engine.core.rollback_room(engine.transactions.unfinished.get());
        engine.core.log.grow_until(has_room).await?;
        if has_room() && !engine.core.log.is_grown() {
            return Ok(());
        }
        if !engine.transactions.registry.borrow().is_oldest(self.state.owner) {
            if let Some(reason) = why_hopeless(engine) {
                return Err(reason);
            }
            note_own_before(engine, &self.state);
            add(&engine.core.statistics.deadlocks, 1);
            return Err(self.abort(Error::Deadlock));
        }
        // Others' log may still be there for pages that are not written yet.
        let relief = relieve(&self.engine, has_room).await?;
        if relief == ReliefOutcome::Room {
            return Ok(());
        }
        let logged = self.state.logged;
        if relief == ReliefOutcome::Spent && 2 * logged > engine.transactions.unfinished.get() {
            let needed = logged + engine.core.rollback_room_when_grown(logged);
            let capacity = engine.core.log.capacity();
            // Of the log that it keeps, others have no large part; and if it had all of the log, that would not be enough.
            let is_too_large =
                needed + engine.core.log.bytes_for(0) > capacity || self.state.reserved >= self.claim_max();
            if 2 * logged >= self.held_log() && is_too_large {
                return Err(Error::LogFull { needed, capacity });
            }
            // Others have filled the log behind its first record, or were promised it. Before it is run again it gets more than
            // it had.
            let promised = (needed + logged).max(2 * self.state.reserved);
            engine.transactions.registry.borrow_mut().refuse(self.state.began, promised);
            add(&engine.core.statistics.deadlocks, 1);
            return Err(self.abort(Error::LogCrowded { needed }));
        }
        add(&engine.core.statistics.deadlocks, 1);
        Err(self.abort(Error::Deadlock))
    }

    /// Bytes of the log since the transaction's first record, which stay for as long as it does.
    fn held_log(&self) -> u64 {
        let engine = &self.engine;
        let first = engine.transactions.registry.borrow().first_lsn_of(self.state.owner);
        first.map_or(0, |first| engine.core.log.end().0 - first.0)
    }

    /// Whether the commit has something to log.
    fn has_end_to_log(&self) -> bool {
        self.state.wrote || !self.engine.sets.sets.borrow().redo(self.state.owner).is_empty()
    }

    /// At most how long the commit's record is, in bytes.
    #[inline]
    pub(super) fn bytes_of_commit(&self) -> u64 {
        let engine = &self.engine;
        let sets = engine.sets.sets.borrow();
        let (redo, call) = (sets.redo(self.state.owner).len(), &self.state.call);
        let of_sets = match (self.engine.transactions.logs_call(&self.state), engine.sets.black_white_sweep.get()) {
            (false, None) => redo,
            (true, None) => call.stored_len(),
            // A sweep that goes on decides which of them it is.
            (_, Some(_)) => (redo + sets.changes(self.state.owner).div_ceil(8)).max(call.stored_len()),
        };
        COMMIT_SIZE + of_sets as u64 + BYTES_OF_CHAIN * self.state.chains.len() as u64
    }

    /// At most how many bytes the records take that come with it.
    #[inline]
    pub(super) fn bytes_of_past(&self) -> u64 {
        past_log::length(&self.engine, &self.engine.sets.sets.borrow(), &self.state) as u64
    }

    /// Of its log bytes, those for which room is kept behind its commit, because it has pages to free.
    #[inline]
    fn kept_behind_commit(&self) -> u64 {
        self.state.logged.min(BYTES_OF_CHAIN * self.state.chains.len() as u64)
    }

    /// Whether a commit record of `bytes` bytes leaves the log the room that the rollbacks of others may take, and for the
    /// `kept` bytes of its own.
    #[inline]
    fn may_log(&self, length: u64, kept: u64) -> bool {
        let engine = &self.engine;
        let unfinished = engine.transactions.unfinished.get() - self.state.logged + kept;
        length <= record::SIZE_MAX
            && self.free_log() >= engine.core.log.bytes_for(length) + engine.core.rollback_room(unfinished)
    }

    /// Makes sure that the log has room for the commit, which follows in the same step. It waits for a checkpoint if that is
    /// certain to make room or to fail.
    ///
    /// # Errors
    /// [`Error::RecordTooLong`]; [`Error::LogFull`] if the log is too small for the transaction; [`Error::LogCrowded`] if others keep room from it;
    /// [`Error::LogNotRelieved`] and [`Error::LogFailed`]. The transaction has to be rolled back.
    #[inline]
    pub(crate) async fn make_room_for_commit(&self) -> Result<()> {
        if self.may_commit_at_once() { Ok(()) } else { Box::pin(self.prepare_commit()).await }
    }

    /// Whether nothing has to be done before the commit.
    #[inline]
    pub(super) fn may_commit_at_once(&self) -> bool {
        self.state.chains.is_empty() && self.has_room_for_commit(0)
    }

    /// Has those long values copied that readers of the past need and the commit gives up, and waits for room for the commit.
    #[cold]
    pub(super) async fn prepare_commit(&self) -> Result<()> {
        self.state.user.set(Some(self.engine.core.executor.caller()));
        if self.state.chains.is_empty() {
            return self.await_commit().await;
        }
        loop {
            // Others may take the room during a copy, and readers may come while it waits for room.
            keep_long_values(&self.engine, self.state.owner).await;
            if canary::is_planted(Canary::UnadmittedFreeing) || self.has_room_for_commit(self.kept_behind_commit()) {
                return Ok(());
            }
            self.await_commit().await?;
        }
    }

    /// Whether the log has room for the commit as it is, and for the `kept` bytes of its own behind that.
    #[inline]
    fn has_room_for_commit(&self, kept: u64) -> bool {
        canary::is_planted(Canary::UnadmittedCommit)
            || self.may_log(self.bytes_of_commit() + self.bytes_of_past(), kept)
    }

    /// Waits for room for the commit.
    async fn await_commit(&self) -> Result<()> {
        if !self.has_end_to_log() {
            return Ok(());
        }
        let engine = &self.engine;
        let of_past = self.bytes_of_past();
        let found = self.bytes_of_commit() + of_past;
        if found > record::SIZE_MAX {
            return Err(Error::RecordTooLong { found, limit: record::SIZE_MAX });
        }
        let kept = self.kept_behind_commit();
        let (needed, capacity) = (engine.core.log.bytes_for(found) + 2 * kept, engine.core.log.capacity());
        let fits_alone =
            |bytes| bytes + engine.core.rollback_room_when_grown(0) + engine.core.log.bytes_for(0) <= capacity;
        if !fits_alone(needed + self.state.logged) {
            return Err(Error::LogFull { needed: needed + self.state.logged, capacity });
        }
        if fits_alone(needed + self.held_log())
            && relieve(&self.engine, || self.may_log(self.bytes_of_commit() + of_past, kept)).await?
                == ReliefOutcome::Room
        {
            return Ok(());
        }
        add(&engine.core.statistics.deadlocks, 1);
        // Three times: its changes of pages, and what taking them back may need.
        engine.transactions.registry.borrow_mut().refuse(self.state.began, needed + 3 * self.state.logged);
        Err(Error::LogCrowded { needed })
    }

    /// The most room that a transaction may be promised.
    fn claim_max(&self) -> u64 {
        let engine = &self.engine;
        engine.core.log.capacity() - engine.core.rollback_room_when_grown(0) - engine.core.log.bytes_for(0)
    }

    /// Before a transaction is run again that had no room in the log at its commit: gets it first. It holds nothing yet, so it
    /// may wait for as long as that takes.
    pub(super) async fn claim_log(&mut self, bytes: u64) -> Result<()> {
        let engine = &self.engine;
        let bytes = bytes.min(self.claim_max());
        let mut wait = LogWait::new(engine, self.state.owner);
        let turn = engine.transactions.log_claims.take_unless(&engine.core.executor, || wait.check());
        let _turn = turn.await?;
        let fits = || {
            engine.core.log.free_beside(0) >= bytes + engine.core.rollback_room(engine.transactions.unfinished.get())
        };
        wait_for_claim(&self.engine, self.state.owner, fits).await?;
        engine.core.log.reserve(bytes);
        engine.transactions.registry.borrow_mut().promise(self.state.owner);
        self.state.reserved = bytes;
        Ok(())
    }
}

/// In the same step as a change of a page: whether the log has the room that taking back all that is unfinished may need.
/// What [`Transaction::log_room`] found before may be gone, because others have made their changes since.
///
/// # Errors
/// [`Error::Deadlock`]: the transaction gives up, so that the oldest one can go on. [`Error::LogFailed`], [`Error::RollbackStalled`]:
/// that cannot.
#[inline]
pub(super) fn admit_change(engine: &Engine, state: &TransactionState) -> Result<(), Need> {
    let free = engine.core.log.free_beside(state.reserved);
    if free >= engine.core.rollback_room(engine.transactions.unfinished.get()) {
        Ok(())
    } else {
        refuse_change(engine, state)
    }
}

/// Why the oldest transaction does not end, if it does not: it makes no sense to give way to that.
fn why_hopeless(engine: &Engine) -> Option<Error> {
    let stalled = || engine.transactions.registry.borrow().oldest_stalled();
    engine.core.log.failure().or_else(|| stalled().map(|(_, cause)| Error::stalled(cause)))
}

#[cold]
fn refuse_change(engine: &Engine, state: &TransactionState) -> Result<(), Need> {
    if engine.transactions.registry.borrow().is_oldest(state.owner) {
        return Ok(());
    }
    if let Some(reason) = why_hopeless(engine) {
        return Err(reason.into());
    }
    note_own_before(engine, state);
    add(&engine.core.statistics.deadlocks, 1);
    Err(engine.abort(state, Error::Deadlock).into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Database;
    use crate::catalog::{Locking, Organization};
    use crate::engine::Call;
    use crate::second_level::{self, CacheSettings, DESIGNS};
    use crate::version::tests::on_a_machine;
    use crate::{PartitionSpec, Settings, buffer, log};
    use base::time::SECOND_NS;

    #[test]
    fn a_small_transaction_that_others_keep_the_log_from_is_not_called_too_large() {
        let log = log::Settings { capacity: 256 << 10, ..log::Settings::default() };
        let done = on_a_machine(async |executor| {
            let database = Database::create(executor, Settings { log, ..Settings::default() }).await?;
            let rows = database.create_partition(PartitionSpec::b_tree("rows")).await?;
            let mut tx = database.begin().await?;
            tx.put(rows, b"key", b"value").await?;
            let promised = database.log().free() - (8 << 10);
            database.log().reserve(promised);
            let refused = tx.put(rows, b"other", b"value").await;
            assert!(matches!(refused, Err(Error::LogCrowded { .. })), "{refused:?}");
            database.log().release(promised);
            tx.rollback().await?;
            database.transaction(async |tx| tx.put(rows, b"key", b"value").await).await
        });
        assert_eq!(done, Ok(()));
    }

    /// Its commit had copied a long value for a reader of the past, behind the versions of what it did later.
    #[test]
    fn a_refused_commit_that_has_copied_a_long_value_is_taken_back() {
        let log = log::Settings { capacity: 1 << 20, ..log::Settings::default() };
        let done = on_a_machine(async |executor| {
            let database = Database::create(executor, Settings { log, ..Settings::default() }).await?;
            let rows = database.create_partition(PartitionSpec::b_tree("rows")).await?;
            let stock = database.create_partition(PartitionSpec::set("stock")).await?;
            database.transaction(async |tx| tx.put(rows, b"long", &[1; 30_000]).await).await?;
            let earlier = database.snapshot().await?;
            let mut tx = database.begin().await?;
            assert!(tx.delete(rows, b"long").await?);
            tx.put(rows, b"key", b"value").await?;
            tx.put(stock, b"key", b"value").await?;
            let promised = database.log().free() - (8 << 10);
            database.log().reserve(promised);
            let refused = tx.commit().await;
            assert!(matches!(refused, Err(Error::LogCrowded { .. })), "{refused:?}");
            database.log().release(promised);
            let mut tx = database.begin().await?;
            assert_eq!(tx.get(rows, b"long").await?, Some(vec![1; 30_000]));
            assert_eq!((tx.get(rows, b"key").await?, tx.get(stock, b"key").await?), (None, None));
            drop(earlier);
            tx.commit().await
        });
        assert_eq!(done, Ok(()));
    }

    /// Pages that a cache alone has keep the log back, however little of it they need.
    #[test]
    fn a_claim_of_nearly_all_of_the_log_is_granted_with_every_cache() {
        for design in DESIGNS {
            let cache = CacheSettings { design: *design, volatile: Some(false), ..CacheSettings::new("flash", 150) };
            let settings = Settings {
                buffer: buffer::Settings { frames: 20, page_size: 1024, ..buffer::Settings::default() },
                log: log::Settings { capacity: 512 << 10, ..log::Settings::default() },
                hierarchy: second_level::Settings { cache: Some(cache), ..second_level::Settings::default() },
                ..Settings::default()
            };
            let done = on_a_machine(async |executor| {
                let database = Database::create(executor, settings).await?;
                let organization = Organization::Direct { objects: 100, blocking_factor: 1, record_size: 100 };
                let objects = PartitionSpec::new("objects", organization, Locking::Page);
                let objects = database.create_partition(objects).await?;
                for number in 0..100 {
                    let change =
                        async |tx: &mut Transaction| tx.modify_object(objects, number, |bytes| bytes[0] = 1).await;
                    database.transaction(change).await?;
                }
                let mut large = database.begin().await?;
                let claim = executor.spawn(async move {
                    large.claim_log(u64::MAX).await?;
                    large.rollback().await
                });
                executor.sleep_ns(60 * SECOND_NS).await;
                assert!(claim.is_finished(), "{design:?}: the claim waits for ever");
                claim.join().await
            });
            assert_eq!(done, Ok(()));
        }
    }

    #[test]
    fn a_call_whose_record_would_be_too_long_is_refused_before_its_commit() {
        let log = log::Settings { capacity: 64 << 30, ..log::Settings::default() };
        let done = on_a_machine(async |executor| {
            let database = Database::create(executor, Settings { log, ..Settings::default() }).await?;
            let set = database.create_partition(PartitionSpec::set("stock")).await?;
            for length in [record::SIZE_MAX as usize, 5 << 30] {
                let mut tx = database.begin().await?;
                tx.put(set, b"key", b"value").await?;
                // No memory is touched.
                tx.state.call = Call::with_parameters(vec![0; length]);
                let refused = tx.commit().await;
                let length = length as u64;
                assert!(
                    matches!(refused, Err(Error::RecordTooLong { found, .. }) if (length..length + 200).contains(&found)),
                    "{refused:?}"
                );
                assert_eq!(database.set_records(set), Some(0), "it was rolled back");
            }
            database.transaction(async |tx| tx.put(set, b"key", b"value").await).await
        });
        assert_eq!(done, Ok(()));
    }
}
