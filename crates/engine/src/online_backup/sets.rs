//! Copying the memory-resident sets: the complete copy of their own backup, which sweeps leave alone meanwhile.
//!
//! A sweep that would write over it waits, unless transactions need what the sweep makes room for: then it goes ahead, and
//! the copy that it has completed is copied instead, without rest.

use super::chunk::{PieceHead, PieceKind};
use super::manifest::BLOCK;
use super::run::BackupRun;
use crate::Result;
use crate::engine::CopyPin;
use crate::error::BackupError;
use crate::superblock::CurrentBackup;
use base::PartitionId;
use std::rc::Rc;

/// How often the sets are copied anew because a sweep could not wait.
const ATTEMPTS: u32 = 4;

/// Copies all sets, of one moment. Nothing if there are none.
pub(super) async fn copy_sets(run: &Rc<BackupRun>) -> Result<Option<CurrentBackup>> {
    let engine = &run.engine;
    for attempt in 0..ATTEMPTS {
        let Some(current) = engine.catalog.superblock.borrow().backup.clone() else { return Ok(None) };
        let pin = engine.sets.pin(current.copy);
        let sets: Vec<PartitionId> = current.segments.iter().map(|(id, _)| PartitionId(*id)).collect();
        for set in sets {
            if !pin.is_broken() {
                copy_set(run, set, (&current, &pin), attempt > 0).await?;
            }
        }
        if !pin.is_broken() {
            return Ok(Some(current));
        }
    }
    let (place, position) = (run.target.name.clone(), engine.core.log.oldest());
    Err(BackupError::Overtaken { place, position }.into())
}

async fn copy_set(
    run: &Rc<BackupRun>,
    set: PartitionId,
    (current, pin): (&CurrentBackup, &CopyPin),
    hurry: bool,
) -> Result<()> {
    let engine = &run.engine;
    let is_there = || engine.sets.backup.is_attached(set);
    if !is_there() {
        return Ok(());
    }
    let size = engine.sets.sets.borrow().segment_size(set);
    run.begin(set).await?;
    for segment in 0..current.segments_of(set) {
        if !hurry {
            run.wait(size as u64).await;
        }
        if !is_there() {
            return Ok(());
        }
        run.report();
        let read =
            engine.sets.backup.read(&engine.core.executor, (set, usize::from(current.copy)), segment, size).await;
        let image = match read {
            Ok(image) => image,
            // It was dropped, or what was written over meanwhile, or cut off, is no damage. A write that fails leaves a hole in
            // the backup, so that is excused by nothing.
            Err(_) if !is_there() || pin.is_broken() => return Ok(()),
            Err(error) => {
                let mut sets = engine.sets.sets.borrow_mut();
                // A compaction may have cut it off. If not, memory has what this lacks: a sweep over the copy writes it again before an
                // opening needs it.
                if segment < sets.segments(set) {
                    sets.mark_dirty(set, segment, usize::from(current.copy));
                }
                return Err(error);
            }
        };
        let mut piece = engine.core.executor.frame(BLOCK + size)?;
        piece[BLOCK..BLOCK + size].copy_from_slice(&image[..size]);
        run.append(piece, PieceHead { partition: set, kind: PieceKind::Segment(segment), length: size }).await?;
    }
    Ok(())
}
