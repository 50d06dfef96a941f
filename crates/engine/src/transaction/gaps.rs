//! Keeping phantoms out of ranges: locks on the gaps between records (next-key locking after Mohan, ARIES/KVL, VLDB 1990). An
//! insert passes the gap that it falls into, a delete holds both gaps that it joins, a range read holds the gaps it has seen.

use super::{Transaction, wake_owners};
use crate::engine::Core;
use crate::{Need, Result};
use base::PartitionId;
use structures::key_hash;
use structures::lock::{Attempt, Mode, Resource};
use structures::organization::b_tree;

impl Transaction {
    /// Lets an insert of `key` pass the gap that it falls into, or says what blocks it. If the transaction holds the gap,
    /// having read it, it holds both parts from now on.
    pub(super) fn pass_gap(&mut self, partition: PartitionId, key: &[u8]) -> Result<Option<(Resource, Mode)>, Need> {
        if !self.locks_records(partition)? {
            return Ok(None);
        }
        let gap = gap_above(&self.engine.core, partition, key)?;
        let Some(held) = self.pass(gap) else { return Ok(Some((gap, Mode::InsertIntention))) };
        if let Some(mode) = held {
            let below = Resource::gap(partition, key_hash(key));
            if self.engine.core.locks.borrow_mut().try_request(self.state.owner, below, mode) == Attempt::Denied {
                return Ok(Some((below, mode)));
            }
        }
        Ok(None)
    }

    /// Lets a record be added at the end of a partition; false if somebody has read up to the end, whom it has to wait for.
    #[inline]
    pub(super) fn pass_end(&self, partition: PartitionId) -> bool {
        let end = Resource::end_gap(partition);
        let is_free = !self.engine.core.locks.borrow().is_held(end);
        is_free || self.pass(end).is_some()
    }

    /// Passes a gap, and says in which mode the transaction held it before; `None` if somebody else keeps it out.
    fn pass(&self, gap: Resource) -> Option<Option<Mode>> {
        let mut locks = self.engine.core.locks.borrow_mut();
        let held = locks.holds(self.state.owner, gap);
        if locks.try_request(self.state.owner, gap, Mode::InsertIntention) == Attempt::Denied {
            return None;
        }
        if held.is_none() {
            // The record's own lock protects what was inserted; the gap's was for the moment of passing.
            let mut woken = Vec::new();
            locks.release(self.state.owner, gap, &mut woken);
            drop(locks);
            wake_owners(&self.engine, &woken);
        }
        Some(held)
    }

    /// Locks both gaps that a delete of `key` joins, and the record above, which could otherwise be taken back together with
    /// its gap. Returns what has to be waited for.
    pub(super) fn lock_joined_gaps(
        &mut self,
        partition: PartitionId,
        key: &[u8],
    ) -> Result<Option<(Resource, Mode)>, Need> {
        if !self.locks_records(partition)? {
            return Ok(None);
        }
        let engine = self.engine.clone();
        let mut wanted = vec![(Resource::gap(partition, key_hash(key)), Mode::Exclusive)];
        let (mut key, mut above) = (key.to_vec(), Vec::new());
        loop {
            if !b_tree::successor(&*engine.core.buffer.pool().borrow(), partition, &key, &mut above)? {
                wanted.push((Resource::end_gap(partition), Mode::Exclusive));
                break;
            }
            wanted.push((Resource::gap(partition, key_hash(&above)), Mode::Exclusive));
            if !self.may_vanish(partition, &above) {
                wanted.push((Resource::record(partition, key_hash(&above)), Mode::Shared));
                break;
            }
            std::mem::swap(&mut key, &mut above);
        }
        let mut locks = engine.core.locks.borrow_mut();
        let denied = |(resource, mode): &(Resource, Mode)| {
            locks.try_request(self.state.owner, *resource, *mode) == Attempt::Denied
        };
        Ok(wanted.into_iter().find(denied))
    }

    /// Whether the record may be one that this transaction has inserted and that a rollback to a savepoint would take away,
    /// so that the gap below it is no bound.
    pub(super) fn may_vanish(&self, partition: PartitionId, key: &[u8]) -> bool {
        let record = Resource::record(partition, key_hash(key));
        self.engine.core.locks.borrow().holds(self.state.owner, record) == Some(Mode::Exclusive)
    }
}

/// The gap between `key` and the record above it.
pub(super) fn gap_above(core: &Core, partition: PartitionId, key: &[u8]) -> Result<Resource, Need> {
    let mut above = Vec::new();
    let pool = core.buffer.pool().borrow();
    Ok(if b_tree::successor(&*pool, partition, key, &mut above)? {
        Resource::gap(partition, key_hash(&above))
    } else {
        Resource::end_gap(partition)
    })
}
