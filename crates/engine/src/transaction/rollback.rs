//! Rollback: the transaction's updates are taken back, latest first, each by a logged compensation that is never undone
//! itself. A restart goes on where a rollback was cut off, because each compensation says how many updates are left.

use super::Transaction;
use super::commit::retire;
use super::records::{make_room, merge};
use super::stall::stall;
use crate::engine::{Active, Core, EndingTask, Engine, TransactionState};
use crate::log::record::Body;
use crate::statistics::add;
use crate::{Error, Need, Result};
use base::{Lsn, PageId, PartitionId};
use driver::Work;
use executor::JoinHandle;
use std::cell::RefCell;
use std::rc::Rc;
use structures::canary::{self, Canary};
use structures::lock::Owner;
use structures::organization::b_tree::stored;
use structures::organization::{allocator, append, b_tree};
use structures::page::{Change, Edit, OwnedEdit, Pages, slotted};
use structures::undo::Undo;
use structures::undo::UndoList;

impl Transaction {
    /// Takes everything back and ends the transaction. When this returns, what it has read of others is durable, so that the
    /// reason for the rollback may be told.
    ///
    /// # Errors
    /// A damaged page or the driver's. The rollback is tried again until it succeeds; until then it keeps its locks and its
    /// part of the log, and tasks waiting for these get [`Error::RollbackStalled`]. Opening the database again completes it.
    /// [`Error::LogFailed`] if something that the transaction has read may be lost, or if the rollback needs the log: then it
    /// is not tried again, and waiting tasks get the same.
    ///
    /// ```
    /// # mod ground { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/ground/database.rs")); }
    /// # use ground::*;
    /// # with_database(async |database| {
    /// # let notes = database.create_partition(PartitionSpec::b_tree("notes")).await?;
    /// let mut tx = database.begin().await?;
    /// tx.put(notes, b"milk", b"two litres").await?;
    /// tx.rollback().await?;
    /// assert_eq!(database.transaction(async |tx| tx.get(notes, b"milk").await).await?, None);
    /// # Ok(())
    /// # });
    /// ```
    pub async fn rollback(mut self) -> Result<()> {
        let (engine, dependency) = (self.engine.clone(), self.dependency());
        // A reason to tell is there also where the rollback fails.
        let rolled_back = self.spawn_rollback().join().await;
        if !canary::is_planted(Canary::EarlyRefusal) {
            engine.core.confirm_reads(dependency).await?;
        }
        rolled_back
    }

    /// The same without waiting for what it has read: an answer that follows from that may leave when the log is durable up
    /// to the position returned.
    pub(crate) async fn rollback_early(mut self) -> Result<Lsn> {
        let dependency = self.dependency();
        self.spawn_rollback().join().await?;
        Ok(if canary::is_planted(Canary::EarlyRefusal) { Lsn::ZERO } else { dependency })
    }

    fn dependency(&self) -> Lsn {
        self.state.answer_depends_on(self.engine.versions.present())
    }

    /// The rollback goes on even if its caller does not wait for it.
    fn spawn_rollback(&mut self) -> JoinHandle<Result<()>> {
        self.ended = true;
        let (engine, state) = (self.engine.clone(), std::mem::take(&mut self.state));
        state.user.set(None);
        let executor = engine.core.executor.clone();
        let ending = EndingTask::new(&engine);
        executor.spawn(async move {
            let _ending = ending;
            roll_back(&engine, state).await
        })
    }
}

/// Forgets the versions of what was taken back, also where the rest is not: a later change would pass for one that has its version.
pub(super) struct ForgetUndone<'a> {
    pub engine: &'a Engine,
    pub owner: Owner,
    pub undo: Rc<RefCell<UndoList>>,
}

impl Drop for ForgetUndone<'_> {
    fn drop(&mut self) {
        let of_sets = self.engine.sets.sets.borrow().changes(self.owner);
        self.engine.versions.forget(self.owner, self.undo.borrow().len(), of_sets);
    }
}

impl Drop for Transaction {
    fn drop(&mut self) {
        if !self.ended {
            self.spawn_rollback();
        }
    }
}

async fn roll_back(engine: &Rc<Engine>, mut state: Active) -> Result<()> {
    engine.sets.sets.borrow_mut().roll_back(state.owner);
    // A load of a set, which takes no locks, may begin before all the rest is taken back.
    engine.versions.forget(state.owner, state.updates(), 0);
    // It asks for no room any more, and may last for as long as its device is away.
    if state.reserved > 0 {
        engine.core.log.release(std::mem::take(&mut state.reserved));
    }
    if let Err(error) = undo(&engine.core, &mut state, 0).await {
        if !canary::is_planted(Canary::AbandonedRollback) {
            stall(engine, state, error.clone());
        }
        return Err(error);
    }
    end_rollback(engine, state).await;
    Ok(())
}

pub(super) async fn end_rollback(engine: &Engine, state: Active) {
    if state.wrote {
        engine.core.log.append(state.id, &Body::RolledBack, std::iter::empty());
    }
    add(&engine.core.statistics.rollbacks, 1);
    if let Some(observer) = engine.core.statistics.observer() {
        observer.ended(state.id, false);
    }
    engine.core.executor.charge_times(Work::LockPair, engine.core.locks.held(state.owner) as u64);
    engine.core.executor.pay_debt().await;
    engine.versions.forget(state.owner, 0, 0);
    engine.core.locks.release_all(state.owner, None);
    retire(engine, state);
}

/// Takes back all but the first `remaining` updates.
pub(crate) async fn undo(core: &Core, state: &mut TransactionState, remaining: usize) -> Result<()> {
    // No update of others bears what this has left of pages.
    undo_each(core, state, remaining, || _ = core.log.take_padding()).await
}

/// The same beside others, who have to bear what their own updates have left of pages: it lasts as long as many of them.
pub(super) async fn undo_beside(core: &Core, state: &mut TransactionState, remaining: usize) -> Result<()> {
    undo_each(core, state, remaining, || {}).await
}

/// Takes back all but the first `remaining` updates, and does something behind the log of each.
async fn undo_each(core: &Core, state: &mut TransactionState, remaining: usize, behind: impl Fn()) -> Result<()> {
    loop {
        let left = state.updates();
        if left <= remaining {
            return Ok(());
        }
        let left = left - 1;
        let stored = state.undo.borrow().last().expect("there is at least one").to_vec();
        let undo = UndoList::decode(&stored);
        // A restart meets changes of what was dropped, or never came to be, meanwhile.
        let is_there = core.buffer.is_attached(undo.partition());
        if is_there {
            core.persist(async || core.complete(|| compensate(core, state, &undo, left as u32)).await).await?;
            behind();
        }
        state.undo.borrow_mut().truncate(left);
        state.chains.retain(|chain| chain.undo < left);
        state.loose = state.loose.filter(|chain| chain.undo < left);
        if let Undo::Remove { partition, key } = undo
            && is_there
        {
            core.persist(async || core.complete(|| merge(core, partition, key)).await).await?;
        }
    }
}

fn compensate(core: &Core, state: &TransactionState, undo: &Undo<'_>, remaining: u32) -> Result<(), Need> {
    let edits = |edits: &[Edit<'_>]| {
        core.permit(edits)?;
        core.log_and_apply(state.id, &Body::Compensation { remaining }, edits);
        Ok(())
    };
    match *undo {
        Undo::Remove { partition, key } => {
            let place = place_of(core, partition, key)?;
            edits(&[Edit { page: place.page, change: Change::RemoveSlot { slot: place.slot } }])
        }
        Undo::Insert { partition, key, value } => {
            make_room(core, partition, key, value.len())?;
            let place = b_tree::seek(&*core.buffer.pool().borrow(), partition, key)?;
            edits(&[Edit { page: place.page, change: Change::InsertSlot { slot: place.slot, key, value } }])
        }
        Undo::Replace { partition, key, value } => {
            make_room(core, partition, key, value.len())?;
            let place = place_of(core, partition, key)?;
            edits(&[Edit { page: place.page, change: Change::ReplaceValue { slot: place.slot, value } }])
        }
        Undo::PatchValue { partition, key, offset, bytes } => {
            let place = place_of(core, partition, key)?;
            let change = Change::PatchValue { slot: place.slot, offset, bytes };
            edits(&[Edit { page: place.page, change }])
        }
        Undo::PatchPage { page, offset, bytes } => {
            core.buffer.pool().borrow().page(page)?;
            edits(&[Edit { page, change: Change::Patch { offset, bytes } }])
        }
        Undo::EraseAppended { page, slot } => {
            core.buffer.pool().borrow().page(page)?;
            let change = Change::PatchValue { slot, offset: 0, bytes: &[append::ERASED] };
            edits(&[Edit { page, change }])
        }
        Undo::FreePage { page } => {
            let plan = plan_free(core, page)?;
            let plan: Vec<Edit<'_>> = plan.iter().map(OwnedEdit::as_edit).collect();
            edits(&plan)
        }
    }
}

fn plan_free(core: &Core, page: PageId) -> Result<Vec<OwnedEdit>, Need> {
    Ok(allocator::free(&*core.buffer.pool().borrow(), page)?)
}

/// The place of a record that the transaction's locks have kept where it is.
fn place_of(core: &Core, partition: PartitionId, key: &[u8]) -> Result<b_tree::Location, Need> {
    let pool = core.buffer.pool().borrow();
    let place = b_tree::seek(&*pool, partition, key)?;
    if place.exact {
        // Not by `page`: a use that only some builds count would have them replace other pages.
        let bytes = pool.bytes(pool.frame_in_use(place.page));
        debug_assert!(slotted::value(bytes, place.slot).len() >= stored::VERSION_SIZE);
        return Ok(place);
    }
    let file = core.buffer.space(partition).name().to_owned();
    let detail = "a record to be rolled back is missing".to_owned();
    Err(Error::DamagedPage { page: place.page, file, detail }.into())
}
