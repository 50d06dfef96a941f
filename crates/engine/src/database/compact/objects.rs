//! Direct partitions. Every object is there by definition, zeros until it is changed, and keeps its place. So what can be given back is
//! the end of the file, behind the last page that was ever changed; a page between others would not be there when it is written, on
//! a device that is full by then.
//!
//! The medium is read from its end up to the first page that is not blank. What was written since is noted, and what has not been
//! written is known in main memory and the tiers. In one step the end is chosen among all these, page 0 states it, and no transaction
//! changes a page behind it any more; then the file becomes shorter. Those pages have never been in the log, a tier or the
//! double-write area, so no restart looks for them; a cut before the end leaves the file longer than it need be.

use super::super::Database;
use super::super::drop::PATIENCE_NS;
use super::super::log_room::complete_logged;
use super::{LOOK_NS, STEP_SIZE};
use crate::buffer::PageSpace;
use crate::catalog::Partition;
use crate::engine::{NotedPartition, check_length, state_end};
use crate::page_store::Transfer;
use crate::{Error, Result};
use base::PageId;
use executor::Executor;
use structures::canary::{self, Canary};
use structures::organization::direct;

/// How many pages are read at once.
const READ_PAGES: u32 = 64;

/// Cuts off the blank end of a direct partition's file. Returns by how many bytes it is shorter.
pub(super) async fn cut_blank_end(database: &Database, found: &Partition) -> Result<u64> {
    if found.assumed {
        // Its pages count as written, though nothing stored them.
        return Ok(0);
    }
    let engine = &database.0.engine;
    let (core, space) = (&engine.core, engine.core.buffer.find_space(found.id())?);
    let until = core.executor.now().plus_ns(PATIENCE_NS);
    while engine.catalog.backups.get() > 0 {
        if core.executor.now() >= until {
            return Err(Error::PartitionInUse(found.name.clone()));
        }
        core.executor.sleep_ns(LOOK_NS).await;
    }
    let _shrinking = NotedPartition::new(&engine.catalog.shrinking, found.id());
    let _growth = space.keep_length(&core.executor).await;
    core.check_open()?;
    check_length(engine, &space).await?;
    let before = space.capacity();
    let end_of_changes = || if canary::is_planted(Canary::CutChanges) { 0 } else { core.buffer.end_of_changes(&space) };
    space.forget_writes();
    // What is being written now may have ended when the end is chosen, and may not be there yet when it is read.
    let under_way = end_of_changes();
    let written = end_of_written(&core.executor, &space).await?;
    let choose = || {
        let end = direct::statable_above(written.max(under_way).max(end_of_changes()).max(1));
        if end < space.capacity() {
            state_end(engine, PageId::new(found.id(), 0), end)?;
            core.buffer.limit(&space, end);
        }
        Ok(())
    };
    complete_logged(engine, core.page_size() as u64 + STEP_SIZE, choose).await?;
    if space.capacity() < before {
        core.log.flush(core.log.end()).await?;
        core.buffer.shorten(&space).await?;
    }
    Ok(u64::from(before - space.capacity()) * space.page_size() as u64)
}

/// The medium has blank pages from this number on.
async fn end_of_written(executor: &Executor, space: &PageSpace) -> Result<u32> {
    let (size, mut end) = (space.page_size(), space.capacity());
    let mut buffer = executor.frame(READ_PAGES as usize * size)?;
    while end > 0 {
        let first = end.saturating_sub(READ_PAGES);
        let length = (end - first) as usize * size;
        let access = space.access(executor).await;
        let transfer = Transfer { first: PageId::new(space.partition(), first), buffer, length, access };
        let completion = space.store().read_now(executor, transfer).await;
        completion.result?;
        buffer = completion.buffer.expect("a read gives its buffer back");
        if let Some(last) = buffer[..length].iter().rposition(|byte| *byte != 0) {
            return Ok(first + (last / size) as u32 + 1);
        }
        end = first;
    }
    Ok(0)
}
