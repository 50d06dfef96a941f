//! Reading a set of arrivals in the order of its records.
//!
//! Records come at the end, and none is changed or goes. So who has locked the end reads the same again; of each record it only makes sure
//! that it could have its lock, which who has added it keeps until its end.

use super::Transaction;
use super::appended::arrival_position;
use super::records::LockStep;
use crate::Result;
use crate::catalog::{Locking, Partition};
use crate::engine::set_returned;
use base::PartitionId;
use structures::key_hash;
use structures::lock::{Mode, Resource};
use structures::organization::append::Position;
use structures::set::Refusal;

/// Others run when a scan has come past this number of arrivals, a power of two.
const STEP_NUMBERS: u64 = 1_024;

impl Transaction {
    /// Shows the records of a set of arrivals to `look`, as they are now.
    pub(super) async fn scan_arrivals(
        &mut self,
        found: &Partition,
        mut look: impl FnMut(Position, &[u8]) -> bool,
    ) -> Result<()> {
        let (partition, locks_records) = (found.id(), found.locking == Locking::Record);
        self.mark_not_replayable()?;
        if locks_records {
            self.lock_end(partition).await?;
        } else {
            // All in one step.
            set_returned(&self.engine, partition).await;
            self.note_unlocked();
        }
        let mut next = 0;
        loop {
            match self.show_arrival((partition, locks_records), next, &mut look) {
                Err(refusal) => self.resolve_refusal(partition, refusal).await?,
                Ok(LockStep::Wait(resource, mode)) => self.lock(resource, mode).await?,
                Ok(LockStep::Done(None)) => return Ok(()),
                Ok(LockStep::Done(Some(number))) => {
                    next = number + 1;
                    if locks_records && next.is_multiple_of(STEP_NUMBERS) {
                        self.engine.core.executor.pay_debt().await;
                        self.engine.core.executor.yield_now().await;
                    }
                }
            }
        }
    }

    /// Shows the first record from this number on, unless its lock has to be waited for. Returns its number; none if it is the last one that is wanted.
    #[inline]
    fn show_arrival(
        &self,
        (partition, locks_records): (PartitionId, bool),
        from: u64,
        look: &mut impl FnMut(Position, &[u8]) -> bool,
    ) -> Result<LockStep<Option<u64>>, Refusal> {
        let sets = self.engine.sets.sets.borrow();
        let Some((number, value)) = sets.arrival_from(partition, from)? else { return Ok(LockStep::Done(None)) };
        if locks_records {
            let record = Resource::record(partition, key_hash(&number.to_be_bytes()));
            match self.engine.core.locks.admits(self.state.owner, record, Mode::Shared) {
                Some(dependency) => self.state.depend_on(dependency),
                None => return Ok(LockStep::Wait(record, Mode::Shared)),
            }
        }
        self.engine.core.executor.charge_value(value.len());
        Ok(LockStep::Done(look(arrival_position(partition, number), value).then_some(number)))
    }
}
