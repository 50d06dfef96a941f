//! Which node requests about a key go to.

use super::KeyRanges;
use base::PartitionId;
use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};

/// The node of a key of a partition, the first of them 0, over and over.
pub(super) type NodeOf = dyn Fn(PartitionId, &[u8]) -> usize + Send + Sync;

/// What a program says of it.
#[derive(Clone)]
pub(super) enum Affinity {
    /// The same for all partitions.
    Ranges(Arc<KeyRanges>),
    Function(Arc<NodeOf>),
}

impl Affinity {
    /// Over and over if there are more places than nodes.
    pub fn place(&self, partition: PartitionId, key: &[u8]) -> usize {
        match self {
            Affinity::Ranges(ranges) => ranges.range_of(key),
            Affinity::Function(node_of) => node_of(partition, key),
        }
    }
}

/// What the configuration says of it, by names of partitions.
pub(super) struct Places {
    named: BTreeMap<String, KeyRanges>,
    /// Those of them that are there.
    known: RwLock<BTreeMap<PartitionId, KeyRanges>>,
}

impl Places {
    pub fn new(named: BTreeMap<String, KeyRanges>) -> Places {
        Places { named, known: RwLock::default() }
    }

    /// The partition of this name has this number.
    pub fn note(&self, name: &str, partition: PartitionId) {
        if let Some(ranges) = self.named.get(name) {
            self.known.write().unwrap_or_else(PoisonError::into_inner).insert(partition, ranges.clone());
        }
    }

    /// As [`Affinity::place`]; `None` if it says nothing of the partition.
    pub fn place(&self, partition: PartitionId, key: &[u8]) -> Option<usize> {
        if self.named.is_empty() {
            return None;
        }
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        known.get(&partition).map(|ranges| ranges.range_of(key))
    }
}
