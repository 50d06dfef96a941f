//! Keeping phantoms out of ranges: locks on the gaps between records (next-key locking after Mohan, ARIES/KVL, VLDB 1990). An
//! insert passes the gap that it falls into, a delete holds both gaps that it joins, a range read holds the gaps it has seen.

use super::Transaction;
use crate::engine::Core;
use crate::{Need, Result};
use base::PartitionId;
use structures::key_hash;
use structures::lock::{Mode, Resource};
use structures::organization::b_tree::{self, Location};

impl Transaction {
    /// Lets an insert of `key` at its place pass the gap that it falls into, or says what blocks it. If the transaction holds
    /// the gap, having read it, it holds both parts from now on.
    pub(super) fn pass_gap(&mut self, place: Location, key: &[u8]) -> Result<Option<(Resource, Mode)>, Need> {
        let partition = place.page.partition;
        let gap = gap_above(&self.engine.core, place)?;
        let (locks, owner) = (&self.engine.core.locks, self.state.owner);
        // The record's own lock protects what is inserted; the gap's is for the moment of passing.
        let Some(held) = locks.pass(owner, gap, Mode::InsertIntention) else {
            return Ok(Some((gap, Mode::InsertIntention)));
        };
        if let Some(mode) = held {
            let below = Resource::gap(partition, key_hash(key));
            if locks.try_acquire(owner, below, mode).is_none() {
                return Ok(Some((below, mode)));
            }
        }
        Ok(None)
    }

    /// Lets a record be added at the end of a partition; false if it has to wait for a transaction that has read up to the end.
    #[inline]
    pub(super) fn pass_end(&self, partition: PartitionId) -> bool {
        let end = Resource::end_gap(partition);
        let locks = &self.engine.core.locks;
        !locks.is_held(end) || locks.pass(self.state.owner, end, Mode::InsertIntention).is_some()
    }

    /// Locks both gaps that a delete of `key` at its place joins, and the record above, which could otherwise be taken back together with
    /// its gap. Returns what has to be waited for.
    pub(super) fn lock_joined_gaps(&mut self, place: Location, key: &[u8]) -> Result<Option<(Resource, Mode)>, Need> {
        let (engine, partition) = (self.engine.clone(), place.page.partition);
        let mut wanted = vec![(Resource::gap(partition, key_hash(key)), Mode::Exclusive)];
        let (mut key, mut above) = (Vec::new(), Vec::new());
        let mut is_above = b_tree::successor_of(&*engine.core.buffer.pool().borrow(), place, &mut above)?;
        loop {
            if !is_above {
                wanted.push((Resource::end_gap(partition), Mode::Exclusive));
                break;
            }
            wanted.push((Resource::gap(partition, key_hash(&above)), Mode::Exclusive));
            if !self.may_vanish(partition, &above) {
                wanted.push((Resource::record(partition, key_hash(&above)), Mode::Shared));
                break;
            }
            std::mem::swap(&mut key, &mut above);
            is_above = b_tree::successor(&*engine.core.buffer.pool().borrow(), partition, &key, &mut above)?;
        }
        let locks = &engine.core.locks;
        Ok(wanted.into_iter().find(|(resource, mode)| locks.try_acquire(self.state.owner, *resource, *mode).is_none()))
    }

    /// Whether the record may be one that this transaction has inserted and that a rollback to a savepoint would take away,
    /// so that the gap below it is no bound.
    pub(super) fn may_vanish(&self, partition: PartitionId, key: &[u8]) -> bool {
        let record = Resource::record(partition, key_hash(key));
        self.engine.core.locks.holds(self.state.owner, record) == Some(Mode::Exclusive)
    }
}

/// The gap between the key of this place and the record above it.
fn gap_above(core: &Core, place: Location) -> Result<Resource, Need> {
    let (partition, mut above) = (place.page.partition, Vec::new());
    let is_above = b_tree::successor_of(&*core.buffer.pool().borrow(), place, &mut above)?;
    Ok(if is_above { Resource::gap(partition, key_hash(&above)) } else { Resource::end_gap(partition) })
}
