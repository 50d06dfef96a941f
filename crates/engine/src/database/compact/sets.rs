//! Sets: records of the last segments move to room in those before, step by step between sweeps, and the memory of segments without records
//! is free at once. Then each copy of the backup is swept, which ends with the segments that there are. Nothing is logged, no
//! transaction is waited for, and none waits but for the steps. A cut before the end leaves files that are longer than they need be.

use super::super::drop::PATIENCE_NS;
use super::super::log_room::{has_log_beside, wait_for_log_beside};
use super::{Compaction, LOOK_NS};
use crate::catalog::Partition;
use crate::checkpoint::{back_up_moved, hold_sweeps};
use crate::engine::{Engine, SetStore};
use crate::{Error, Result};
use base::PartitionId;
use std::rc::Rc;
use structures::canary::{self, Canary};
use structures::set::Vacated;

/// After this number of records that were moved others have their turn.
const STEP_RECORDS: u64 = 256;
/// After this number of steps sweeps may have theirs.
const STEPS: u32 = 64;

/// While this exists, no insert goes to the segment that is being emptied.
struct Vacating<'a>(&'a SetStore, PartitionId);

impl Drop for Vacating<'_> {
    fn drop(&mut self) {
        self.0.sets.borrow_mut().end_vacating(self.1);
    }
}

/// Compacts a set.
pub(super) async fn compact_set(engine: &Rc<Engine>, found: &Partition) -> Result<Compaction> {
    let (id, backup) = (found.id(), &engine.sets.backup);
    let (size, before) = (engine.sets.sets.borrow().segment_size(id) as u64, backup.file_bytes(id));
    let mut done = Compaction::default();
    {
        let _vacating = Vacating(&engine.sets, id);
        while !vacate(engine, id, &mut done).await? {}
    }
    engine.sets.sets.borrow_mut().drop_spares(size as usize);
    let copies = 2 * size * u64::from(engine.sets.sets.borrow().segments(id));
    if before <= copies {
        return Ok(done);
    }
    backup.cut_at_next_sweep(id);
    if canary::is_planted(Canary::CutBackup) {
        for copy in 0..2 {
            let segments = (copies / 2 / size) as u32;
            backup.reserve(&engine.core.executor, (id, copy), (segments, size as usize)).await?;
        }
    }
    for _ in 0..2 {
        sweep(engine, found).await?;
    }
    done.given_back = before.saturating_sub(backup.file_bytes(id));
    Ok(done)
}

/// Takes some steps while no sweep goes on. Whether there are no more.
async fn vacate(engine: &Rc<Engine>, id: PartitionId, done: &mut Compaction) -> Result<bool> {
    let _sweeping = hold_sweeps(engine).await;
    let mut segments = engine.sets.sets.borrow().segments(id);
    for _ in 0..STEPS {
        engine.core.check_open()?;
        {
            let mut sets = engine.sets.sets.borrow_mut();
            // Where transactions add segments meanwhile there is no room to give back.
            let now = sets.segments(id);
            if now > segments {
                return Ok(true);
            }
            segments = now;
            match sets.vacate(id, STEP_RECORDS) {
                Vacated::Full => return Ok(true),
                Vacated::Moved(records) => done.moved += records,
                Vacated::Gone(records) => {
                    done.moved += records;
                    done.memory += sets.segment_size(id) as u64;
                }
            }
        }
        engine.core.executor.yield_now().await;
    }
    Ok(false)
}

/// Sweeps once, unless a backup reads what would be written for as long as there is patience.
async fn sweep(engine: &Rc<Engine>, found: &Partition) -> Result<()> {
    let executor = &engine.core.executor;
    let until = executor.now().plus_ns(PATIENCE_NS);
    loop {
        wait_for_log_beside(engine, 0).await?;
        engine.core.check_open()?;
        let left_ns = until.since_ns(executor.now());
        if back_up_moved(engine, left_ns, || has_log_beside(engine, 0)).await? {
            return Ok(());
        }
        if executor.now() >= until {
            return Err(Error::PartitionInUse(found.name.clone()));
        }
        executor.sleep_ns(LOOK_NS).await;
    }
}
