use base::Random;
use std::collections::{BTreeMap, BTreeSet};

/// A directory: what its names mean now, and what they mean after a power cut.
#[derive(Clone, Debug, Default)]
pub(crate) struct Directory {
    entries: BTreeMap<String, u64>,
    durable: BTreeMap<String, u64>,
    /// What was done since the directory was synced, in this order.
    changes: Vec<Change>,
}

/// One step: a name goes, a name comes, or both at once.
#[derive(Clone, Debug)]
struct Change {
    removed: Option<String>,
    added: Option<(String, u64)>,
}

impl Change {
    fn apply(self, entries: &mut BTreeMap<String, u64>) {
        if let Some(name) = self.removed {
            entries.remove(&name);
        }
        entries.extend(self.added);
    }
}

impl Directory {
    pub(crate) fn find(&self, name: &str) -> Option<u64> {
        self.entries.get(name).copied()
    }

    pub(crate) fn entries(&self) -> &BTreeMap<String, u64> {
        &self.entries
    }

    pub(crate) fn change(&mut self, removed: Option<&str>, added: Option<(&str, u64)>) {
        let added = added.map(|(name, number)| (name.to_owned(), number));
        let change = Change { removed: removed.map(str::to_owned), added };
        change.clone().apply(&mut self.entries);
        self.changes.push(change);
    }

    pub(crate) fn sync(&mut self) {
        self.changes.clear();
        self.durable.clone_from(&self.entries);
    }

    /// The power goes: each change that was not synced is kept or lost. Returns how many were lost.
    pub(crate) fn power_cut(&mut self, random: &mut Random) -> u64 {
        let mut lost = 0;
        for change in std::mem::take(&mut self.changes) {
            if random.chance(0.5) {
                change.apply(&mut self.durable);
            } else {
                lost += 1;
            }
        }
        self.entries.clone_from(&self.durable);
        lost
    }

    /// Every inode that the directory names, or may name after a power cut.
    pub(crate) fn mentions(&self) -> BTreeSet<u64> {
        let added = self.changes.iter().filter_map(|change| change.added.as_ref()).map(|(_, number)| number);
        self.entries.values().chain(self.durable.values()).chain(added).copied().collect()
    }
}
