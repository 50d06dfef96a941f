//! Freeing the pages of long values that a committed transaction deleted.
//!
//! Each page is a step of its own in the log, and the log from the commit on stays until the last one is free: a restart goes on
//! there. There may be more steps than the log has room for. So steps leave rollbacks the room that they were promised. Where
//! no more is left, the pages that are not free yet are stated anew, in another commit record, the log before that is given
//! up, and the freeing goes on beside everything else.

use super::commit::Ending;
use super::log_relief::relieve;
use super::log_room::COMMIT_SIZE;
use super::stall;
use super::stall::{leave_active, report_stall};
use crate::engine::relief::ReliefOutcome;
use crate::engine::{EndingTask, Engine, TransactionState};
use crate::log::record::Body;
use crate::{Error, Need, Result};
use base::{Lsn, PageId, TransactionId};
use std::rc::Rc;
use structures::canary::{self, Canary};
use structures::organization::b_tree::stored;
use structures::page::Edit;

/// Bytes of a commit record for each long value whose pages are to be freed.
pub(super) const BYTES_OF_CHAIN: u64 = 8;

/// What is left of the long values that a transaction deleted.
#[derive(Debug, Default)]
pub(crate) struct Chains {
    /// Where the rest of each one begins, by its number in the latest commit record; 0 if there is none.
    rests: Vec<PageId>,
    /// Those before are free.
    freed: usize,
}

impl Chains {
    /// Those that begin at these pages.
    pub fn of(rests: impl IntoIterator<Item = PageId>) -> Chains {
        let mut chains = Chains { rests: rests.into_iter().collect(), freed: 0 };
        chains.pass_free();
        chains
    }

    /// Whether nothing is left.
    pub fn are_free(&self) -> bool {
        self.freed == self.rests.len()
    }

    /// The log bytes that are kept for stating them again: twice as many, as for a rollback, which is more than their part of
    /// that record takes.
    pub fn logged(&self) -> u64 {
        BYTES_OF_CHAIN * self.rests.len() as u64
    }

    /// As a commit record has them.
    pub fn packed(&self) -> Vec<u8> {
        self.rests.iter().flat_map(|page| page.packed().to_le_bytes()).collect()
    }

    /// The next page to be freed, and the number of its chain.
    fn first(&self) -> Option<(u32, PageId)> {
        self.rests.get(self.freed).map(|page| (self.freed as u32, *page))
    }

    /// That page is free, and its chain goes on with this one.
    fn go_on(&mut self, next: u32) {
        self.rests[self.freed].number = next;
        self.pass_free();
    }

    fn pass_free(&mut self) {
        while self.rests.get(self.freed).is_some_and(|page| page.number == 0) {
            self.freed += 1;
        }
    }

    /// What is left, to be stated anew.
    fn rest(&self) -> Chains {
        Chains::of(self.rests[self.freed..].iter().copied())
    }
}

impl Ending {
    /// Frees what the transaction deleted, which is committed whatever comes of this: beside everything else if the log lacks
    /// room, or if it fails.
    pub(super) async fn free(mut self) {
        match free_chains(&self.engine, &self.state, &mut self.chains).await {
            Ok(true) => {}
            Ok(false) => self.go_on_freeing(None),
            Err(cause) => self.go_on_freeing(Some(cause)),
        }
    }

    /// Goes on in the background. It counts no more among the transactions that may be active: its caller may hold what it waits
    /// for. If it fails, its part of the log is retained, and transactions that wait for room get the cause.
    fn go_on_freeing(mut self, cause: Option<Error>) {
        let engine = self.engine.clone();
        engine.core.locks.release_all(self.state.owner, self.lsn);
        leave_active(&engine.core.executor, &engine.transactions);
        self.is_beside = true;
        self.note_failure(cause);
        let (executor, ending) = (engine.core.executor.clone(), EndingTask::new(&engine));
        executor.clone().spawn(async move {
            let _ending = ending;
            let (mut rest_ns, mut has_failed) = (stall::REST_NS_MIN, false);
            // The next opening does the rest.
            while !engine.core.closing.get() {
                if canary::is_planted(Canary::EndlessFreeing) {
                    executor.sleep_ns(stall::REST_NS_MAX).await;
                    continue;
                }
                let lacks_room = !self.is_stalled;
                if !lacks_room || !self.wait_for_room(&mut has_failed).await {
                    self.rest(rest_ns, lacks_room).await;
                    rest_ns = (2 * rest_ns).min(stall::REST_NS_MAX);
                }
                if engine.core.closing.get() || engine.core.log.failure().is_some() {
                    break;
                }
                let left = self.chains.first();
                match free_chains(&engine, &self.state, &mut self.chains).await {
                    Ok(true) => break,
                    Ok(false) => self.note_failure(None),
                    Err(cause) => self.note_failure(Some(cause)),
                }
                if self.chains.first() != left && !self.is_stalled {
                    rest_ns = stall::REST_NS_MIN;
                }
            }
        });
    }

    /// Tells the tasks waiting for its log why it fails, or that it does not any more.
    fn note_failure(&mut self, cause: Option<Error>) {
        if self.is_stalled {
            self.engine.transactions.registry.borrow_mut().end_stall(self.state.owner);
        }
        self.is_stalled = cause.is_some();
        if let Some(cause) = cause {
            report_stall(&self.engine.core, &self.engine.transactions, self.state.owner, cause);
        }
    }

    /// Has the log make room, and says whether it has. Others that give way to this are told if it cannot, and could not before: one
    /// checkpoint may fail and the next succeed. Of a rollback that is stalled they are told in any case.
    async fn wait_for_room(&mut self, has_failed: &mut bool) -> bool {
        state_rest(&self.engine, &self.state, &mut self.chains);
        let fits = || self.engine.has_unpromised_log(0);
        let failure = match relieve(&self.engine, fits).await {
            Ok(outcome) => {
                let has_room = outcome == ReliefOutcome::Room;
                *has_failed &= !has_room;
                return has_room;
            }
            Err(Error::RollbackStalled { .. }) => return false,
            Err(failure) => failure,
        };
        if std::mem::replace(has_failed, true) {
            self.note_failure(Some(failure));
        }
        false
    }

    /// Waits for so long before it tries again. If it lacks only room, it looks for that meanwhile: the log that it keeps may
    /// be what others wait for.
    async fn rest(&mut self, rest_ns: u64, lacks_room: bool) {
        let (engine, executor) = (self.engine.clone(), self.engine.core.executor.clone());
        let until = executor.now().plus_ns(rest_ns);
        while executor.now() < until {
            executor.sleep_ns(stall::REST_NS_MIN).await;
            let mut may_go_on = || engine.has_unpromised_log(0) || state_rest(&engine, &self.state, &mut self.chains);
            if lacks_room && may_go_on() {
                return;
            }
        }
    }
}

/// What transactions that were committed had to free when the machine stopped, and from where on the log states it.
pub(crate) type LeftChains = Vec<(TransactionId, Lsn, Chains)>;

/// After a restart: goes on with what transactions that were committed had to free. What the log has no room for follows when
/// the database is open. However often a restart is cut off, the rest is stated anew only when that is worth its room.
///
/// # Errors
/// A damaged page, or the driver's. Opening again goes on where this stopped.
pub(crate) async fn free_after_restart(engine: &Rc<Engine>, left: LeftChains) -> Result<()> {
    // All are there before the first goes on: checkpoints, which it may ask for, give up the log that none of those needs.
    let endings: Vec<Ending> = left.into_iter().map(|left| resume(engine, left)).collect();
    for mut ending in endings {
        if !free_chains(engine, &ending.state, &mut ending.chains).await? {
            state_rest(engine, &ending.state, &mut ending.chains);
            ending.go_on_freeing(None);
        }
    }
    Ok(())
}

/// A transaction that was committed is there again with what it has left to free.
fn resume(engine: &Rc<Engine>, (id, stated, chains): (TransactionId, Lsn, Chains)) -> Ending {
    engine.transactions.active.set(engine.transactions.active.get() + 1);
    let mut state = engine.transactions.registry.borrow_mut().resume(id, stated);
    // It may have to state its rest again, beside new work. Others were promised more when it was committed.
    state.logged = chains.logged();
    engine.transactions.unfinished.set(engine.transactions.unfinished.get() + state.logged);
    let mut ending = Ending::new(Rc::clone(engine), state);
    ending.chains = chains;
    ending
}

/// Frees page after page, and says whether all are free: they are not if the log lacks room, or the database is closed. Called again, it goes on
/// where it stopped or failed.
async fn free_chains(engine: &Engine, state: &TransactionState, chains: &mut Chains) -> Result<bool> {
    while let Some((number, page)) = chains.first() {
        if engine.core.closing.get() {
            return Ok(false);
        }
        if engine.core.log.is_behind() {
            engine.core.log.catch_up().await?;
        }
        let step = async || engine.core.complete(|| free_page(engine, state.id, number, page)).await;
        let Some(next) = engine.core.persist(step).await? else { return Ok(false) };
        chains.go_on(next);
    }
    Ok(true)
}

/// Frees a page and returns the next one of its chain; nothing if the log has no room for that.
fn free_page(engine: &Engine, id: TransactionId, chain: u32, page: PageId) -> Result<Option<u32>, Need> {
    if !engine.has_unpromised_log(0) {
        return Ok(None);
    }
    let (next, edits) = {
        let pool = engine.core.buffer.pool().borrow();
        let next = stored::next(&*pool, page)?;
        (next, structures::organization::allocator::free(&*pool, page)?)
    };
    let edits: Vec<Edit<'_>> = edits.iter().map(|edit| edit.as_edit()).collect();
    engine.core.permit(&edits)?;
    engine.core.log_and_apply(id, &Body::ChainStep { chain, next }, &edits);
    Ok(Some(next))
}

/// States anew what is left to be freed, if the log before is worth that: it is not needed any more then. The transaction
/// cannot be rolled back, so the room that it was promised for that is there, beside that of others. Says whether it did.
fn state_rest(engine: &Engine, state: &TransactionState, chains: &mut Chains) -> bool {
    let rest = chains.rest();
    let (log, packed) = (&engine.core.log, rest.packed());
    let bytes = log.bytes_for(COMMIT_SIZE + packed.len() as u64);
    let (first, start) = (engine.transactions.registry.borrow().first_lsn_of(state.owner), log.end());
    let held = first.map_or(0, |first| start.0 - first.0);
    let promised = 2 * (engine.transactions.unfinished.get() - state.logged);
    if held < (2 * bytes).max(log.capacity() / 16) || log.free_beside(0) < bytes + promised {
        return false;
    }
    log.append(state.id, &Body::Commit { chains: &packed, changes: &[] }, std::iter::empty());
    engine.transactions.registry.borrow_mut().set_first_lsn(state.owner, start);
    *chains = rest;
    true
}
