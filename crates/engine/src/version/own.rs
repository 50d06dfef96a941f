//! The versions of transactions that have not ended, by owner.

use super::chain;
use super::ghosts::Ghost;
use super::part::Part;
use structures::lock::{Owner, Resource};
use structures::reuse::empty_for_reuse;

/// Which of a transaction's changes a version precedes, so that a rollback to a savepoint drops it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OwnChange {
    /// The update of this number in the undo list.
    Update(usize),
    /// The change of sets of this number.
    OfSet(usize),
}

/// A version whose transaction has not ended.
#[derive(Debug)]
pub(super) struct Private {
    /// Its record; `None` once it was dropped by a rollback.
    pub(super) record: Option<Resource>,
    /// Where its stored form begins.
    pub(super) start: usize,
    /// The part of the record that it is, if it is not all of it.
    pub(super) part: Option<Part>,
    pub(super) change: OwnChange,
    /// What led scans to the record before and does not any more.
    pub(super) ghosts: Vec<Ghost>,
}

/// The versions of one transaction.
#[derive(Debug, Default)]
pub(super) struct Own {
    pub(super) versions: Vec<Private>,
    pub(super) bytes: Vec<u8>,
    /// Whether the stored form of one stands behind those of later ones.
    pub(super) is_moved: bool,
    /// Changes of sets that versions have been kept of, or that need none.
    pub(super) of_sets: usize,
    /// The first update that no view needed a version of when it was made, and for which none was asked since.
    pub(super) update_left_out: Option<usize>,
    /// The first such change of sets.
    pub(super) of_sets_left_out: Option<usize>,
    /// Whether a long value could not be kept.
    pub(super) is_incomplete: bool,
}

impl Own {
    pub(super) fn stored(&self, number: usize) -> &[u8] {
        let bytes = &self.bytes[self.versions[number].start..];
        &bytes[..chain::length(bytes).expect("a version begins there")]
    }

    /// Notes that no version of a change is kept.
    pub(super) fn leave_out(&mut self, change: OwnChange) {
        match change {
            OwnChange::Update(number) => drop(self.update_left_out.get_or_insert(number)),
            OwnChange::OfSet(number) => drop(self.of_sets_left_out.get_or_insert(number)),
        }
    }

    /// The changes from these numbers on, of pages and of sets, have been undone.
    pub(super) fn forget_from(&mut self, updates: usize, of_sets: usize) {
        self.of_sets = self.of_sets.min(of_sets);
        self.update_left_out = self.update_left_out.filter(|first| *first < updates);
        self.of_sets_left_out = self.of_sets_left_out.filter(|first| *first < of_sets);
    }

    /// Whether its transaction has changed nothing, as far as is known here.
    pub(super) fn is_untouched(&self) -> bool {
        self.versions.is_empty() && self.of_sets == 0 && self.update_left_out.is_none()
    }

    /// Forgets everything; its memory stays, unless it is much.
    pub(super) fn clear(&mut self) {
        let (mut versions, mut bytes) = (std::mem::take(&mut self.versions), std::mem::take(&mut self.bytes));
        empty_for_reuse(&mut versions);
        empty_for_reuse(&mut bytes);
        *self = Own { versions, bytes, ..Own::default() };
    }
}

/// Those of all transactions.
#[derive(Debug, Default)]
pub(super) struct Owners(Vec<Own>);

impl Owners {
    pub(super) fn get(&self, owner: Owner) -> Option<&Own> {
        self.0.get(owner.0 as usize)
    }

    pub(super) fn of(&mut self, owner: Owner) -> &mut Own {
        let number = owner.0 as usize;
        if self.0.len() <= number {
            self.0.resize_with(number + 1, Own::default);
        }
        &mut self.0[number]
    }

    /// What a link to a private version leads to.
    pub(super) fn stored(&self, owner: Owner, number: usize) -> &[u8] {
        self.0[owner.0 as usize].stored(number)
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// How many versions there are.
    #[cfg(test)]
    pub(super) fn versions(&self) -> usize {
        self.0.iter().map(|own| own.versions.len()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use structures::reuse::{KEPT_BYTES_MAX, capacity_bytes};

    #[test]
    fn the_memory_of_a_large_transaction_is_given_back() {
        let mut own = Own::default();
        let version =
            |start| Private { record: None, start, part: None, change: OwnChange::Update(0), ghosts: Vec::new() };
        own.versions.extend((0..100_000).map(version));
        own.bytes.resize(3 * KEPT_BYTES_MAX, 7);
        own.clear();
        assert_eq!(capacity_bytes(&own.versions) + capacity_bytes(&own.bytes), 0);
    }
}
