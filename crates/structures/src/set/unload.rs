//! Taking out what a bulk load has added.

use super::{Sets, layout};
use crate::key_hash;
use crate::lock::Owner;
use base::PartitionId;

impl Sets {
    /// Ends the load that `owner` was at: undoes what is not final, then deletes what is. What others were changing meanwhile,
    /// though they must not, is left to them.
    pub fn unload(&mut self, owner: Owner, partition: PartitionId) {
        self.roll_back(owner);
        let used: Vec<u64> = {
            let shadows = self.owners.iter().flat_map(|changes| &changes.shadows);
            shadows.filter(|shadow| shadow.set == partition.0).map(|shadow| shadow.place).collect()
        };
        for segment in 0..self.segments(partition) {
            let keys: Vec<Vec<u8>> = {
                let set = self.set(partition);
                let Some(bytes) = set.segments[segment as usize].bytes_here() else { continue };
                let first = u64::from(segment) << set.shift;
                let records = set.segments[segment as usize].items().filter(|(_, head)| !head.is_hole());
                let free = records.filter(|(at, _)| !used.contains(&(first | (*at as u64 / 8))));
                free.map(|(at, _)| layout::key(bytes, at).to_vec()).collect()
            };
            for key in keys {
                let _gone = self.delete(owner, partition, &key, key_hash(&key));
            }
            self.commit(owner);
        }
    }
}
