//! What the log keeps of a transaction's changes of sets, in the step of its commit.
//!
//! A transaction's changes of sets are gathered beside it and logged as one record with its commit. So rollback logs
//! nothing, recovery of sets has neither losers nor undo, and a sweep needs no write-ahead rule for its images, only
//! for the superblock that names them.
//!
//! There are three logs of sets: values, actions (System M's AOPER) and procedures (TOPER). Every commit record says
//! which it is, so they mix. A restart replays the records serially in their order, which is an order that two-phase
//! locking permits because locks are held until the commit record is in the log.

use super::past_log;
use crate::engine::{BlackWhiteSweep, Core, Engine, TransactionState};
use crate::log::record::{self, Body};
use base::Lsn;
use structures::set::Sets;

/// Appends the commit record of a transaction and returns its LSN. `chains` are as in [`Body::Commit`].
#[inline]
pub(super) fn append_commit(engine: &Engine, sets: &Sets, state: &TransactionState, chains: &[u8]) -> Lsn {
    engine.note_time();
    past_log::append(engine, sets, state);
    if let Some(black_white_sweep) = engine.sets.black_white_sweep.get() {
        return append_swept_commit(engine, sets, state, chains, black_white_sweep);
    }
    if engine.transactions.logs_call(state) {
        return append_call(&engine.core, state, None);
    }
    let commit = Body::Commit { chains, changes: sets.redo(state.owner) };
    engine.core.log.append(state.id, &commit, std::iter::empty())
}

/// The same during a black/white sweep, which has some of the changes in its backup and some not.
#[cold]
fn append_swept_commit(
    engine: &Engine,
    sets: &Sets,
    state: &TransactionState,
    chains: &[u8],
    black_white_sweep: BlackWhiteSweep,
) -> Lsn {
    // What it had read before the sweep began has no colour.
    let is_replayable = engine.transactions.logs_call(state) && state.id >= black_white_sweep.first;
    if let Some(included) = sets.is_replayable(state.owner).filter(|_| is_replayable) {
        return append_call(&engine.core, state, included.then_some(black_white_sweep.begin));
    }
    let included = included(sets, state);
    let commit = swept_commit(chains, sets.redo(state.owner), (black_white_sweep.begin, &included));
    engine.core.log.append(state.id, &commit, std::iter::empty())
}

/// The bits of the changes that the sweep has in its backup.
fn included(sets: &Sets, state: &TransactionState) -> Vec<u8> {
    let mut included = Vec::new();
    for (position, is_included) in sets.included(state.owner).enumerate() {
        if position % 8 == 0 {
            included.push(0);
        }
        *included.last_mut().expect("it was pushed") |= u8::from(is_included) << (position % 8);
    }
    while included.pop_if(|bits| *bits == 0).is_some() {}
    included
}

fn swept_commit<'a>(chains: &'a [u8], changes: &'a [u8], (sweep, included): (Lsn, &'a [u8])) -> Body<'a> {
    match included {
        [] => Body::Commit { chains, changes },
        included => Body::SweptCommit { chains, changes, sweep, included },
    }
}

/// The records that end a transaction of another node, whose changes of sets these are, in stored form.
pub(super) fn encode_commit(engine: &Engine, sets: &Sets, state: &TransactionState) -> Vec<u8> {
    let (mut out, changes) = (Vec::new(), sets.redo(state.owner));
    past_log::encode_sets(engine, sets, state, &mut out);
    match engine.sets.black_white_sweep.get() {
        None => record::encode(state.id, &Body::Commit { chains: &[], changes }, [], &mut out),
        Some(sweep) => {
            let included = included(sets, state);
            record::encode(state.id, &swept_commit(&[], changes, (sweep.begin, &included)), [], &mut out);
        }
    }
    out
}

fn append_call(core: &Core, state: &TransactionState, sweep: Option<Lsn>) -> Lsn {
    let mut scratch = core.scratch.borrow_mut();
    let call = &mut scratch.0;
    call.clear();
    state.call.encode(call);
    core.log.append(state.id, &Body::Call { sweep, call }, std::iter::empty())
}
