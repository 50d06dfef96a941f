//! Devices that do not answer writes. Their dirty pages stay where they are, and misses of other devices take other frames.

use crate::second_level::SILENCE_NS;
use base::{Instant, PartitionId};
use std::cell::RefCell;
use std::collections::BTreeMap;

/// The writes under way to each partition.
#[derive(Default)]
pub(super) struct Silence(RefCell<BTreeMap<PartitionId, Writes>>);

struct Writes {
    under_way: u32,
    /// When the last of them ended, or the first began.
    latest: Instant,
}

impl Silence {
    /// A write begins.
    pub fn begin(&self, partition: PartitionId, now: Instant) {
        let mut writes = self.0.borrow_mut();
        writes.entry(partition).or_insert(Writes { under_way: 0, latest: now }).under_way += 1;
    }

    /// A write has ended.
    pub fn end(&self, partition: PartitionId, now: Instant) {
        let mut writes = self.0.borrow_mut();
        let of_partition = writes.get_mut(&partition).expect("it has begun");
        (of_partition.under_way, of_partition.latest) = (of_partition.under_way - 1, now);
        if of_partition.under_way == 0 {
            writes.remove(&partition);
        }
    }

    /// The partitions whose devices are silent.
    pub fn silent(&self, now: Instant) -> Vec<PartitionId> {
        let writes = self.0.borrow();
        let is_silent = |writes: &Writes| now.since_ns(writes.latest) >= SILENCE_NS;
        writes.iter().filter(|(_, writes)| is_silent(writes)).map(|(partition, _)| *partition).collect()
    }
}
