//! Large transactions that had not ended when the machine stopped are undone behind the opening.
//!
//! 1. The restart locks again all that such a transaction has changed: its records are to others what they were before the crash, those of
//!    one that goes on. Who reads them in the present waits, who reads a moment gets what was committed, by way of its undo list.
//! 2. It stands in the table of active transactions, with its first record in the log: so checkpoints keep the log that undoing it takes,
//!    and the log keeps the room that was promised to it.
//! 3. They are undone one after the other, a few changes at a time; one whose device fails or is silent holds up no other. Each change is a
//!    logged compensation as in any rollback, so wherever this is cut off, by a crash or by closing the database, the next opening goes on there.
//!
//! A partition without locks is locked as a whole while something of it is left: its readers and writers wait, but for those who add records at
//! its end, which meet nothing that is undone. What was changed of memory-resident sets is in no log before the commit, and what nodes have
//! changed comes there with it: nothing of either is ever left.
//!
//! What the catalog does not have any more is not left but undone first, and what the log has no room for beside others.

use super::Transaction;
use super::rollback::{end_rollback, undo_beside};
use super::stall::{REST_NS_MAX, REST_NS_MIN, renew_stall, report_stall};
use crate::catalog::{Locking, Organization};
use crate::engine::{Active, Engine, KeyedPartition};
use crate::locks::Ungranted;
use crate::statistics::Event;
use crate::{Error, Result};
use base::time::SECOND_NS;
use base::{Instant, Lsn, PartitionId, TransactionId};
use driver::Work;
use executor::{Executor, Turn};
use std::pin::pin;
use std::rc::{Rc, Weak};
use structures::canary::{self, Canary};
use structures::key_hash;
use structures::lock::{Mode, Owner, Resource};
use structures::organization::append::{self, Position};
use structures::undo::{Undo, UndoList};

/// Others get their turn after this number of changes.
const STEP: usize = 32;
/// When these are not undone for longer than this, in nanoseconds, the next transaction has its turn.
const SILENT_NS: u64 = 2 * SECOND_NS;

/// A transaction that had not ended at the end of the log.
pub(crate) struct Loser {
    pub id: TransactionId,
    /// Where the log has its first record.
    pub first: Lsn,
    pub undo: UndoList,
    /// How many bytes of the log each of its changes has taken.
    pub sizes: Vec<u32>,
}

/// One that is undone behind the opening.
pub(crate) struct LeftLoser {
    state: Active,
    sizes: Vec<u32>,
}

/// What a change has to be locked by.
enum ChangeLock {
    Nothing,
    Record(Resource),
    /// The record was deleted: who reads ranges around its key has to find that.
    Deleted(Resource),
    /// The partition has no locks: all that it is used for meets this, which several transactions may have.
    Partition(Resource),
}

impl Loser {
    /// Bytes of its changes in the log.
    fn logged(&self) -> u64 {
        self.sizes.iter().map(|size| u64::from(*size)).sum()
    }
}

/// Of these transactions, how many have no room in the log beside new work while they are undone: those behind keep less of it. An opening
/// that has a record of `length` bytes to log waits for room only as long as there is none without the end of those that are left.
pub(crate) fn without_room(engine: &Engine, losers: &[Loser], length: u64) -> usize {
    let log = &engine.core.log;
    let beside = log.bytes_for(length).max(log.capacity() / 4);
    let fits = |losers: &[Loser]| {
        let kept = losers.iter().map(|loser| log.end().0 - loser.first.0).max().unwrap_or(0);
        let logged = losers.iter().map(Loser::logged).sum();
        kept + engine.core.rollback_room_when_grown(logged) + beside <= log.capacity()
    };
    (0..=losers.len()).find(|count| fits(&losers[*count..])).unwrap_or(losers.len())
}

/// Locks again what a transaction has changed, and enters it among the active ones.
///
/// # Errors
/// The transaction as it was, if it cannot be left: the log `has_room` for it, or something that it has changed cannot be locked.
pub(crate) fn leave(engine: &Engine, loser: Loser, has_room: bool) -> Result<LeftLoser, Loser> {
    if !has_room {
        return Err(loser);
    }
    let mut state = engine.transactions.registry.borrow_mut().resume(loser.id, loser.first);
    if !lock_again(engine, state.owner, &loser.undo) {
        engine.core.locks.release_all(state.owner, None);
        engine.transactions.registry.borrow_mut().end(state);
        return Err(loser);
    }
    engine.core.executor.charge_times(Work::LockPair, loser.undo.len() as u64);
    state.wrote = true;
    state.logged = loser.logged();
    engine.transactions.unfinished.set(engine.transactions.unfinished.get() + state.logged);
    engine.transactions.left.add(loser.undo.len());
    if engine.versions.is_kept() {
        engine.versions.keep_list(engine.records(), state.owner, &loser.undo);
    }
    *state.undo.borrow_mut() = loser.undo;
    Ok(LeftLoser { state, sizes: loser.sizes })
}

/// Locks all that undoing these changes will touch; false if that is not possible.
fn lock_again(engine: &Engine, owner: Owner, undo: &UndoList) -> bool {
    let locks = &engine.core.locks;
    for stored in undo.iter() {
        let undo = UndoList::decode(stored);
        let Some(lock) = lock_of(engine, &undo) else { return false };
        if canary::is_planted(Canary::UnlockedLoser) {
            continue;
        }
        let (resource, mode) = match lock {
            ChangeLock::Nothing => continue,
            ChangeLock::Record(resource) | ChangeLock::Deleted(resource) => (resource, Mode::Exclusive),
            ChangeLock::Partition(resource) => (resource, Mode::InsertIntention),
        };
        if locks.try_acquire(owner, resource, mode).is_none() {
            return false;
        }
        if let (ChangeLock::Deleted(_), Undo::Insert { partition, key, .. }) = (lock, undo) {
            locks.note_deleted(owner, partition, key);
        }
    }
    true
}

/// What a transaction holds that has made this change; `None` if nothing can keep others from what it has changed.
fn lock_of(engine: &Engine, undo: &Undo<'_>) -> Option<ChangeLock> {
    let partition = undo.partition();
    if !engine.core.buffer.is_attached(partition) {
        return None;
    }
    let (organization, locking) = {
        let partitions = engine.catalog.partitions.borrow();
        let found = partitions.get_or_hidden(partition)?;
        (found.organization, found.locking)
    };
    let is_tree = organization == Organization::BTree;
    let number = match *undo {
        Undo::Remove { key, .. }
        | Undo::Insert { key, .. }
        | Undo::Replace { key, .. }
        | Undo::PatchValue { key, .. }
            if is_tree =>
        {
            key_hash(key)
        }
        Undo::FreePage { .. } if is_tree => return Some(ChangeLock::Nothing),
        Undo::EraseAppended { page, slot } if matches!(organization, Organization::Append { .. }) => {
            append::number(Position { page, slot })
        }
        Undo::PatchPage { page, offset, bytes } => {
            engine.versions.object_of(engine.records(), (page, offset), bytes.len())?
        }
        _ => return None,
    };
    Some(match (locking, undo) {
        (Locking::None, _) => ChangeLock::Partition(Resource::partition(partition)),
        (Locking::Page, Undo::PatchPage { page, .. } | Undo::EraseAppended { page, .. }) => {
            ChangeLock::Record(Resource::page(*page))
        }
        (Locking::Page, _) => return None,
        (Locking::Record, Undo::Insert { .. }) => ChangeLock::Deleted(Resource::record(partition, number)),
        (Locking::Record, _) => ChangeLock::Record(Resource::record(partition, number)),
    })
}

impl Transaction {
    /// Notes that a partition without locks is looked at. Its records may show any commit up to the moment at which the answer is asked for.
    #[inline]
    pub(super) fn note_unlocked(&self) {
        self.state.saw_unlocked.set(!canary::is_planted(Canary::UnlockedSight));
    }

    /// Waits until what partitions without locks have shown is durable.
    pub(super) async fn confirm_unlocked(&self) -> Result<()> {
        if self.state.saw_unlocked.replace(false) {
            self.engine.core.confirm_reads(self.engine.versions.present()).await?;
        }
        Ok(())
    }

    /// Before a partition without locks is used: asks that nothing of it is left to be undone. Returns what has to be waited for.
    #[inline]
    pub(super) fn before_unlocked(&mut self, partition: PartitionId) -> Option<(Resource, Ungranted)> {
        self.note_unlocked();
        if self.engine.transactions.left.is_any() { self.request_unlocked(partition) } else { None }
    }

    #[cold]
    fn request_unlocked(&mut self, partition: PartitionId) -> Option<(Resource, Ungranted)> {
        let resource = Resource::partition(partition);
        Some((resource, self.request(resource, Mode::Shared)?))
    }

    /// Waits for it.
    pub(super) async fn await_unlocked(&mut self, partition: PartitionId) -> Result<()> {
        match self.before_unlocked(partition) {
            Some((resource, ungranted)) => self.wait_for_lock(resource, ungranted).await,
            None => Ok(()),
        }
    }

    /// The same before the past of a partition is read, if it is a b-tree without locks: no versions are kept of its records.
    pub(super) async fn await_unlocked_tree(&mut self, found: KeyedPartition, partition: PartitionId) -> Result<()> {
        if !found.is_set && !found.locks_records {
            self.await_unlocked(partition).await?;
        }
        Ok(())
    }

    /// Whether something of a partition without locks is left to be undone, which has to be waited for.
    #[inline]
    pub(super) fn has_left_undo(&self, partition: PartitionId) -> bool {
        self.note_unlocked();
        self.engine.transactions.left.is_any() && !self.try_lock(Resource::partition(partition), Mode::Shared)
    }
}

/// Begins to undo them beside everything else: one after the other, but none waits for one that fails or gets no answer.
pub(crate) fn begin_left_undo(engine: &Rc<Engine>, losers: Vec<LeftLoser>) {
    if losers.is_empty() {
        return;
    }
    engine.versions.stay_kept(true);
    let turn = Rc::new(Turn::new());
    for loser in losers {
        engine.transactions.left.begin_work();
        let (weak, executor, turn) = (Rc::downgrade(engine), engine.core.executor.clone(), Rc::clone(&turn));
        engine.core.executor.spawn(async move {
            let _ended = undo_left(&weak, loser, (&executor, &turn)).await;
            if let Some(engine) = weak.upgrade()
                && engine.transactions.left.end_work()
            {
                engine.versions.stay_kept(false);
            }
        });
    }
}

/// Undoes one, and ends it. `None` if it is stopped before: what it has locked stays so, and the next opening goes on.
async fn undo_left(
    weak: &Weak<Engine>,
    LeftLoser { mut state, mut sizes }: LeftLoser,
    (executor, turn): (&Executor, &Turn),
) -> Option<()> {
    let mut held = Some(turn.take(executor).await);
    let (began, changes) = (executor.now(), state.updates());
    let (mut rest_ns, mut is_stalled) = (REST_NS_MIN, false);
    while state.updates() > 0 {
        // While it fails, it is tried beside the others.
        if held.is_none() && !is_stalled {
            held = Some(turn.take(executor).await);
        }
        let engine = weak.upgrade()?;
        let closes = is_stalled && engine.core.closing.get();
        if engine.transactions.left.is_stopped() || closes {
            return None;
        }
        let done = {
            let mut step = pin!(undo_some(&engine, &mut state));
            match executor.within(SILENT_NS, step.as_mut()).await {
                Some(done) => done,
                None => {
                    held = None;
                    step.await
                }
            }
        };
        note_step(&engine, &mut state, &mut sizes);
        match done {
            Ok(()) if std::mem::take(&mut is_stalled) => {
                engine.transactions.registry.borrow_mut().end_stall(state.owner);
                rest_ns = REST_NS_MIN;
            }
            Ok(()) => {}
            Err(cause) => {
                held = None;
                is_stalled = tell_stall(&engine, state.owner, is_stalled, cause)?;
                drop(engine);
                executor.sleep_ns(rest_ns).await;
                rest_ns = (2 * rest_ns).min(REST_NS_MAX);
                continue;
            }
        }
        executor.pay_debt().await;
        executor.yield_now().await;
    }
    let engine = weak.upgrade()?;
    // What failed behind the last change is not tried again.
    if is_stalled {
        engine.transactions.registry.borrow_mut().end_stall(state.owner);
    }
    end(&engine, state, (began, changes)).await;
    Some(())
}

/// Undoes the next of its changes.
async fn undo_some(engine: &Engine, state: &mut Active) -> Result<()> {
    if engine.core.log.is_behind() {
        engine.core.log.catch_up().await?;
    }
    let remaining = state.updates().saturating_sub(STEP);
    undo_beside(&engine.core, state, remaining).await
}

/// What was undone takes no room in the log any more.
fn note_step(engine: &Engine, state: &mut Active, sizes: &mut Vec<u32>) {
    let undone = sizes.drain(state.updates()..);
    engine.transactions.left.note_undone(undone.len());
    let bytes: u64 = undone.map(u64::from).sum();
    state.logged -= bytes;
    engine.transactions.unfinished.set(engine.transactions.unfinished.get() - bytes);
}

/// Tells the tasks waiting for its locks, or for its log, why it fails. `None` if it is not tried again.
fn tell_stall(engine: &Engine, owner: Owner, was_stalled: bool, cause: Error) -> Option<bool> {
    match was_stalled {
        true => renew_stall(engine, owner, cause),
        false => report_stall(&engine.core, &engine.transactions, owner, cause),
    }
    (engine.core.log.failure().is_none() && !engine.core.closing.get()).then_some(true)
}

async fn end(engine: &Engine, state: Active, (began, changes): (Instant, usize)) {
    let (transaction, transactions) = (state.id, &engine.transactions);
    // It has not counted among those that may be active, and its end takes it out of them.
    transactions.active.set(transactions.active.get() + 1);
    end_rollback(engine, state).await;
    transactions.left.note_ended();
    let took_ns = engine.core.executor.now().since_ns(began);
    engine.core.statistics.tell(&Event::Undone { transaction, changes: changes as u64, took_ns });
}

#[cfg(test)]
mod tests {
    use crate::version::tests::on_a_machine;
    use crate::{Database, PartitionSpec, Settings};

    /// Others need as much for their own rollbacks as if nothing were undone beside them.
    #[test]
    fn what_is_undone_beside_an_update_takes_nothing_of_the_padding_that_it_bears() {
        let settings = Settings { undone_first_max: 0, ..Settings::default() };
        let key = |number: u32| number.to_be_bytes();
        let done = on_a_machine(async |executor| {
            let database = Database::create(executor, settings.clone()).await?;
            let rows = database.create_partition(PartitionSpec::b_tree("rows")).await?;
            let mut tx = database.begin().await?;
            for number in 0..500 {
                tx.put(rows, &key(number), b"lost").await?;
            }
            std::mem::forget(tx);
            database.log().flush(database.log().end()).await?;
            database.transaction(async |tx| tx.put(rows, b"behind", b"1").await).await?;
            let database = Database::open(executor, settings, "here").await?;
            let rows = database.partition("rows")?;
            let mut tx = database.begin().await?;
            tx.put(rows, b"first", b"1").await?;
            let (before, logged) = (database.undoing().changes, tx.state.logged);
            database.log().note_padding(700);
            while database.undoing().changes == before {
                executor.yield_now().await;
            }
            assert!(database.undoing().changes > 0, "it goes on");
            tx.put(rows, b"second", b"1").await?;
            assert!(tx.state.logged - logged > 700, "{} bytes", tx.state.logged - logged);
            tx.rollback().await
        });
        assert_eq!(done, Ok(()));
    }
}
