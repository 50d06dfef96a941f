//! Direct partitions whose blank end was cut off their files: page 0 states where the file ends, and changes behind that have it become
//! longer again.
//!
//! What is stated is never more than the file has for certain, and less does no harm: a page that was lost behind what is stated would read
//! as blank.

use super::Engine;
use crate::{Need, Result};
use base::PageId;
use structures::organization::direct;
use structures::page::{Change, Edit, OwnedEdit, PageKind, Pages};

/// Bytes of a record that replaces a page, beside that page.
const RECORD_SIZE: u64 = 128;

/// Has the file of a direct partition become as long as a change of this page needs, and page 0 state that, if the log has the room.
///
/// # Errors
/// The driver's, a damaged page 0, or that the file has lost the page.
#[cold]
pub(crate) async fn lengthen(engine: &Engine, page: PageId) -> Result<()> {
    let (core, first) = (&engine.core, PageId { number: 0, ..page });
    let space = core.buffer.find_space(page.partition)?;
    let stated = core.complete(|| Ok(direct::stated_end(core.buffer.pool().borrow().page(first)?))).await?;
    if page.number >= space.capacity() && stated.is_none_or(|end| page.number < end) {
        return Err(space.missing(page));
    }
    while page.number >= core.buffer.pool().borrow().capacity(page.partition) {
        core.buffer.grow(page.partition).await?;
    }
    core.complete(|| {
        let end = core.buffer.pool().borrow().capacity(page.partition);
        let has_room = engine.has_unpromised_log(core.log.bytes_for(core.page_size() as u64 + RECORD_SIZE));
        if has_room { state_end(engine, first, direct::statable_below(end)) } else { Ok(()) }
    })
    .await
}

/// Has page 0 state that the file ends there, which can be stated.
///
/// # Errors
/// What it needs; then nothing was logged.
pub(crate) fn state_end(engine: &Engine, first: PageId, end: u32) -> Result<(), Need> {
    let core = &engine.core;
    let change = {
        let pool = core.buffer.pool().borrow();
        let bytes = pool.page(first)?;
        if direct::stated_end(bytes) == Some(end) {
            return Ok(());
        }
        direct::state_end(bytes, end)
    };
    core.change(&[OwnedEdit { page: first, change }.as_edit()])
}

/// What a restart redoes of page 0: if the file was longer by then, all that was changed there is in the log behind this, and the file may be
/// one that was restored.
///
/// # Errors
/// The driver's.
pub(crate) async fn lengthen_as_stated(engine: &Engine, edit: &Edit<'_>) -> Result<()> {
    let Change::Format { kind: PageKind::Direct, level, count, .. } = edit.change else { return Ok(()) };
    let buffer = &engine.core.buffer;
    let space = buffer.find_space(edit.page.partition)?;
    match direct::end_of(level, count).map(|end| end.min(space.pages_max())) {
        Some(end) if edit.page.number == 0 && end > space.capacity() => buffer.make_room(&space, end).await,
        _ => Ok(()),
    }
}
