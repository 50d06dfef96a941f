//! Changes that consist of several, each of which may wait: one that is given up halfway takes its transaction along.

use super::Transaction;
use crate::engine::Engine;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use structures::canary::{self, Canary};
use structures::lock::Owner;
use structures::undo::UndoList;

/// A change under way. If it is dropped before its end, and something was changed, its transaction can only be rolled back.
pub(super) struct HalfChange {
    engine: Rc<Engine>,
    owner: Owner,
    undo: Rc<RefCell<UndoList>>,
    /// How many updates there were before.
    updates: usize,
    is_given_up: Rc<Cell<bool>>,
    is_whole: bool,
}

impl HalfChange {
    /// Begins a change of this transaction.
    pub(super) fn begin(transaction: &Transaction) -> HalfChange {
        let state = &transaction.state;
        HalfChange {
            engine: Rc::clone(&transaction.engine),
            owner: state.owner,
            undo: Rc::clone(&state.undo),
            updates: state.updates(),
            is_given_up: Rc::clone(&state.is_half_changed),
            is_whole: false,
        }
    }

    /// All of it was done, or nothing.
    pub(super) fn end(mut self) {
        self.is_whole = true;
    }
}

impl Drop for HalfChange {
    fn drop(&mut self) {
        if !self.is_whole && !canary::is_planted(Canary::ForgottenHalf) && self.undo.borrow().len() != self.updates {
            self.is_given_up.set(true);
            self.engine.core.locks.set_victim(self.owner);
        }
    }
}
