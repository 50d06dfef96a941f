//! The moments of the open read views.

use base::Lsn;
use std::collections::BTreeMap;

/// The snapshots in use: how many there are of each moment. A snapshot sees what was committed up to its log position.
#[derive(Debug, Default)]
pub(super) struct Snapshots {
    at: BTreeMap<Lsn, usize>,
}

impl Snapshots {
    pub(super) fn enter(&mut self, at: Lsn) {
        *self.at.entry(at).or_default() += 1;
    }

    pub(super) fn leave(&mut self, at: Lsn) {
        let count = self.at.get_mut(&at).expect("a snapshot leaves once");
        *count -= 1;
        if *count == 0 {
            self.at.remove(&at);
        }
    }

    /// Whether one is of this moment.
    pub(super) fn is_held(&self, at: Lsn) -> bool {
        self.at.contains_key(&at)
    }

    /// How many are in use.
    pub(super) fn count(&self) -> usize {
        self.at.values().sum()
    }

    pub(super) fn newest(&self) -> Option<Lsn> {
        self.at.last_key_value().map(|(at, _)| *at)
    }

    pub(super) fn oldest(&self) -> Option<Lsn> {
        self.at.first_key_value().map(|(at, _)| *at)
    }

    /// Whether one sees what was committed at `from`, and not what was at `to`.
    pub(super) fn any_between(&self, from: Lsn, to: Lsn) -> bool {
        self.at.range(from..to).next().is_some()
    }
}
