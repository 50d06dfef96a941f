//! An update of a transaction: logged and made in one step, with what takes it back.

use crate::engine::{Engine, Isolation, TransactionState};
use crate::log::record::Body;
use structures::page::Edit;
use structures::undo::Undo;

/// Logs a transaction's update as one record and makes its edits.
///
/// Part of its callers, with all that encodes and makes a change: there it is known which one it is.
#[inline(always)]
pub(super) fn update(engine: &Engine, state: &mut TransactionState, undo: &Undo<'_>, edits: &[Edit<'_>]) {
    if engine.versions.is_kept() {
        let is_serializable = state.isolation == Isolation::Serializable;
        engine.versions.keep_before(engine.records(), (state.owner, state.updates()), is_serializable, undo, edits);
    }
    let (start, end) = {
        let mut list = state.undo.borrow_mut();
        engine.core.log_and_apply(state.id, &Body::Update(list.push(undo)), edits)
    };
    let logged = end.0 - start.0 + engine.core.log.take_padding();
    let transactions = &engine.transactions;
    state.logged += logged;
    transactions.unfinished.set(transactions.unfinished.get() + logged);
    if state.wrote {
        return;
    }
    state.wrote = true;
    transactions.registry.borrow_mut().set_first_lsn(state.owner, start);
}
