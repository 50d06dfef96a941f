//! The transactions that use a copy, as far as its client has said so.
//!
//! A client may have very many copies, and each may be called back and used by all of its transactions. What that takes of memory, and how
//! many are looked at for a deadlock, is bounded: see [`USED_TOGETHER_MAX`].

use crate::message::Transaction;
use std::cell::Cell;
use std::collections::BTreeSet;
use std::rc::Rc;

/// How many transactions the copies of a client may have as users together, beside one for each copy. Of more nothing is kept: a deadlock by way
/// of these is ended as late as a wait of one of them may last.
pub const USED_TOGETHER_MAX: usize = 1 << 16;

/// How many users a client's copies have together, beside one for each copy.
pub type Beside = Rc<Cell<usize>>;

/// Who uses a copy: none uses most.
#[derive(Debug, Default)]
pub struct Users(Option<Box<Named>>);

#[derive(Debug)]
struct Named {
    transactions: BTreeSet<Transaction>,
    beside: Beside,
}

impl Users {
    pub fn len(&self) -> usize {
        self.0.as_ref().map_or(0, |named| named.transactions.len())
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn iter(&self) -> impl Iterator<Item = Transaction> {
        self.0.iter().flat_map(|named| named.transactions.iter().copied())
    }

    /// One more uses it.
    pub fn insert(&mut self, transaction: Transaction, beside: &Beside) {
        let named =
            self.0.get_or_insert_with(|| Box::new(Named { transactions: BTreeSet::new(), beside: Rc::clone(beside) }));
        named.change(|transactions| transactions.extend([transaction]));
    }

    /// These use it, too, of which no more is kept than there may be.
    pub fn extend(&mut self, by: &[Transaction], beside: &Beside) {
        for transaction in by {
            if self.is_empty() || beside.get() < USED_TOGETHER_MAX {
                self.insert(*transaction, beside);
            }
        }
    }

    /// Those remain for which this is so.
    pub fn retain(&mut self, is_left: impl Fn(Transaction) -> bool) {
        if let Some(named) = &mut self.0 {
            named.change(|transactions| transactions.retain(|transaction| is_left(*transaction)));
        }
    }

    /// This one uses it no more.
    pub fn remove(&mut self, transaction: Transaction) {
        if let Some(named) = &mut self.0 {
            named.change(|transactions| {
                transactions.remove(&transaction);
            });
        }
    }

    /// None uses it, as far as is known.
    pub fn clear(&mut self) {
        self.0 = None;
    }
}

impl Named {
    fn weight(&self) -> usize {
        self.transactions.len().saturating_sub(1)
    }

    fn change(&mut self, change: impl FnOnce(&mut BTreeSet<Transaction>)) {
        let before = self.weight();
        change(&mut self.transactions);
        self.beside.set(self.beside.get() + self.weight() - before);
    }
}

impl Drop for Named {
    fn drop(&mut self) {
        self.beside.set(self.beside.get() - self.weight());
    }
}
