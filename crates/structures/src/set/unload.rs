//! Taking out what a bulk load has added.

use super::arrivals::Arrivals;
use super::memory::{Finder, Set};
use super::parts::Parts;
use super::secondary::DroppedIndex;
use super::{Sets, layout};
use crate::key_hash;
use crate::lock::Owner;
use base::PartitionId;
use std::collections::BTreeSet;

impl Sets {
    /// Ends the load that `owner` was at: undoes what is not final, then takes out what is, all records as one. What others were
    /// changing meanwhile, though they must not, is left to them: then records are taken out one by one. Returns the entries of
    /// indexes, which are to be given up.
    pub fn unload(&mut self, owner: Owner, partition: PartitionId) -> Vec<DroppedIndex> {
        self.roll_back(owner);
        let used: BTreeSet<u64> = {
            let shadows = self.owners.iter().flat_map(|changes| &changes.shadows);
            shadows.filter(|shadow| shadow.set == partition.0).map(|shadow| shadow.place).collect()
        };
        if used.is_empty() && self.capture.is_none() && !self.is_any_lent_of(partition) {
            return self.set_mut(partition).empty();
        }
        self.unload_beside(owner, partition, &used);
        Vec::new()
    }

    fn unload_beside(&mut self, owner: Owner, partition: PartitionId, used: &BTreeSet<u64>) {
        for segment in 0..self.segments(partition) {
            let keys: Vec<Vec<u8>> = {
                let set = self.set(partition);
                let Some(bytes) = set.segments[segment as usize].bytes_here() else { continue };
                let first = u64::from(segment) << set.shift;
                let records = set.segments[segment as usize].items().filter(|(_, head)| !head.is_hole());
                let free = records.filter(|(at, _)| !used.contains(&(first | (*at as u64 / 8))));
                free.map(|(at, _)| layout::key(bytes, at).to_vec()).collect()
            };
            #[cfg(test)]
            self.set(partition).looked_at.set(self.set(partition).looked_at.get() + keys.len());
            for key in keys {
                let _gone = self.delete(owner, partition, &key, key_hash(&key));
            }
            self.commit(owner);
        }
    }
}

impl Set {
    /// Takes all records out, of which no transaction has changed one.
    fn empty(&mut self) -> Vec<DroppedIndex> {
        self.finder = match self.finder {
            Finder::Keyed(_) => Finder::Keyed(Parts::new()),
            Finder::Arrival(_) => Finder::Arrival(Arrivals::default()),
        };
        for segment in 0..self.segments.len() {
            self.segments[segment].clear();
            self.update_room(segment);
        }
        self.secondaries.iter_mut().flatten().map(|secondary| secondary.take_entries()).collect()
    }
}
