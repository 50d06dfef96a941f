//! What tells files from all others.

use super::Engine;
use crate::superblock::SuperblockFile;
use base::Lsn;
use executor::Executor;

/// Tells files made at this moment from all others: of other openings by where the database is, of other databases by chance. The
/// clock shows the same at the same step of each program's start.
pub(crate) fn stamp(executor: &Executor, position: Lsn, epoch: u32, generation: u64) -> u64 {
    let place = position.0.rotate_left(24) ^ u64::from(epoch).rotate_left(52);
    let mixed = executor.entropy() as u64 ^ executor.now().ns() ^ place ^ generation.rotate_left(40);
    mixed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1
}

/// Tells files made now by an open database from all others.
pub(crate) fn new_stamp(engine: &Engine) -> u64 {
    let superblock_file = engine.catalog.superblock_file.borrow();
    let generation = superblock_file.as_ref().map_or(0, SuperblockFile::generation);
    stamp(&engine.core.executor, engine.core.log.end(), engine.core.log.epoch(), generation)
}
