//! How far the undoing is that an opening has left (`transaction/left_undo.rs`).

use std::cell::Cell;

/// What an opening has left to be undone behind it, as far as that is not done.
///
/// ```
/// # mod ground { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/ground/database.rs")); }
/// # use ground::*;
/// # use entresol_engine::UndoProgress;
/// # with_database(async |database| {
/// assert_eq!(database.undoing(), UndoProgress::default(), "it was just created");
/// # Ok(())
/// # });
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UndoProgress {
    /// Transactions that are not undone, or not wholly.
    pub transactions: u64,
    /// Their changes that are not undone.
    pub changes: u64,
}

/// The same with the tasks that undo.
#[derive(Default)]
pub(crate) struct LeftUndos {
    transactions: Cell<u64>,
    changes: Cell<u64>,
    at_work: Cell<usize>,
    is_stopped: Cell<bool>,
}

impl LeftUndos {
    /// What is left.
    pub fn progress(&self) -> UndoProgress {
        UndoProgress { transactions: self.transactions.get(), changes: self.changes.get() }
    }

    /// Whether anything is.
    #[inline]
    pub fn is_any(&self) -> bool {
        self.transactions.get() > 0
    }

    /// Whether what there is of it is left to the next opening.
    pub fn is_given_up(&self) -> bool {
        self.is_stopped.get() && self.is_any()
    }

    /// A transaction of this number of changes is left.
    pub fn add(&self, changes: usize) {
        self.transactions.set(self.transactions.get() + 1);
        self.changes.set(self.changes.get() + changes as u64);
    }

    /// This number of changes was undone.
    pub fn note_undone(&self, changes: usize) {
        self.changes.set(self.changes.get() - changes as u64);
    }

    /// A transaction of which nothing was left has ended.
    pub fn note_ended(&self) {
        self.transactions.set(self.transactions.get() - 1);
    }

    /// Whether any of the tasks goes on.
    pub fn is_at_work(&self) -> bool {
        self.at_work.get() > 0
    }

    /// A task begins.
    pub fn begin_work(&self) {
        self.at_work.set(self.at_work.get() + 1);
    }

    /// A task has ended. Whether it was the last.
    pub fn end_work(&self) -> bool {
        self.at_work.set(self.at_work.get() - 1);
        !self.is_at_work()
    }

    /// Has the tasks end: the next opening goes on.
    pub fn stop(&self) {
        self.is_stopped.set(true);
    }

    /// Whether they are to.
    pub fn is_stopped(&self) -> bool {
        self.is_stopped.get()
    }
}
