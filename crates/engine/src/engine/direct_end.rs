//! Direct partitions whose blank end was cut off their files: page 0 states where the file ends, and changes behind that have it become
//! longer again.
//!
//! What is stated is never more than the file has for certain, and less does no harm: a page that was lost behind what is stated would read
//! as blank.

use super::Engine;
use crate::buffer::PageSpace;
use crate::{Need, Result};
use base::{PageId, PartitionId};
use std::collections::BTreeMap;
use structures::organization::direct;
use structures::page::{Change, Edit, OwnedEdit, PageKind, Pages};

/// Bytes of a record that replaces a page, beside that page.
const RECORD_SIZE: u64 = 128;

/// Has the file of a direct partition become as long as a change of this page needs, and page 0 state that, if the log has the room.
///
/// # Errors
/// The driver's, a damaged page 0, or that the file has lost pages.
#[cold]
pub(crate) async fn lengthen(engine: &Engine, page: PageId) -> Result<()> {
    let (core, first) = (&engine.core, PageId { number: 0, ..page });
    lengthen_unstated(engine, page).await?;
    core.complete(|| {
        let end = core.buffer.pool().borrow().capacity(page.partition);
        let has_room = engine.has_unpromised_log(core.log.bytes_for(core.page_size() as u64 + RECORD_SIZE));
        if has_room { state_end(engine, first, direct::statable_below(end)) } else { Ok(()) }
    })
    .await
}

/// The same, and page 0 stays as it is: other nodes may have copies of that.
///
/// # Errors
/// The driver's, a damaged page 0, or that the file has lost pages.
pub(crate) async fn lengthen_unstated(engine: &Engine, page: PageId) -> Result<()> {
    let buffer = &engine.core.buffer;
    check_length(engine, &*buffer.find_space(page.partition)?).await?;
    while page.number >= buffer.pool().borrow().capacity(page.partition) {
        buffer.grow(page.partition).await?;
    }
    Ok(())
}

/// Checks that the file of a direct partition has all pages that page 0 states: what is lost would be blank once it has another length.
///
/// # Errors
/// That it has lost them, and those of fetching page 0.
pub(crate) async fn check_length(engine: &Engine, space: &PageSpace) -> Result<()> {
    let (core, first) = (&engine.core, PageId::new(space.partition(), 0));
    let missing = core.complete(|| {
        let stated = direct::stated_end(core.buffer.pool().borrow().page(first)?).unwrap_or(u32::MAX);
        let end = space.capacity();
        Ok((end < stated.min(space.pages_max())).then_some(PageId { number: end, ..first }))
    });
    missing.await?.map_or(Ok(()), |page| Err(space.missing(page)))
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

/// How long the files of direct partitions have to be by what a restart redoes. They may be shorter where they were restored.
#[derive(Default)]
pub(crate) struct RedoneEnds(BTreeMap<PartitionId, RedoneEnd>);

#[derive(Default)]
struct RedoneEnd {
    /// Behind the last page that was changed, of those that the file does not hold.
    changed: u32,
    /// What page 0 states after all.
    stated: u32,
}

impl RedoneEnds {
    /// Notes an edit that was redone.
    pub(crate) fn note(&mut self, engine: &Engine, edit: &Edit<'_>) {
        let PageId { partition, number } = edit.page;
        if number >= engine.core.buffer.pool().borrow().capacity(partition) {
            let end = self.0.entry(partition).or_default();
            end.changed = end.changed.max(number.saturating_add(1));
        }
        if let Change::Format { kind: PageKind::Direct, level, count, .. } = edit.change
            && number == 0
        {
            self.0.entry(partition).or_default().stated = direct::end_of(level, count).unwrap_or(0);
        }
    }

    /// Has the files become as long.
    ///
    /// # Errors
    /// The driver's.
    pub(crate) async fn lengthen(self, engine: &Engine) -> Result<()> {
        let buffer = &engine.core.buffer;
        for (partition, RedoneEnd { changed, stated }) in self.0 {
            let space = buffer.find_space(partition)?;
            let end = changed.max(stated).min(space.pages_max());
            if space.is_direct() && end > space.capacity() {
                buffer.make_room(&space, end).await?;
            }
        }
        Ok(())
    }
}
