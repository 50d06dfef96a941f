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
use std::collections::btree_map::Entry;
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
    /// What it stated before the first of these, which the file has unless it has lost pages: a restored one has them, too.
    stated_before: u32,
}

impl RedoneEnds {
    /// Notes an edit that is about to be redone. Nothing is redone behind pages that were lost: these would be blank in a longer file.
    ///
    /// # Errors
    /// That the file has lost pages, and those of fetching page 0.
    pub(crate) async fn note(&mut self, engine: &Engine, edit: &Edit<'_>) -> Result<()> {
        let capacity = engine.core.buffer.pool().borrow().capacity(edit.page.partition);
        let stated = match edit.change {
            Change::Format { kind: PageKind::Direct, level, count, .. } if edit.page.number == 0 => {
                Some(direct::end_of(level, count).unwrap_or(0))
            }
            _ => None,
        };
        if stated.is_none() && edit.page.number < capacity {
            return Ok(());
        }
        let space = engine.core.buffer.find_space(edit.page.partition)?;
        if space.is_direct() { self.note_end(engine, &space, (edit.page.number, stated)).await } else { Ok(()) }
    }

    async fn note_end(&mut self, engine: &Engine, space: &PageSpace, edit: (u32, Option<u32>)) -> Result<()> {
        let (number, stated) = edit;
        let end = match self.0.entry(space.partition()) {
            Entry::Occupied(end) => end.into_mut(),
            Entry::Vacant(end) => {
                let stated_before = stated_before(engine, space).await?;
                end.insert(RedoneEnd { stated_before, ..RedoneEnd::default() })
            }
        };
        end.stated = stated.unwrap_or(end.stated);
        let capacity = space.capacity();
        if number >= capacity {
            if capacity < end.stated_before {
                return Err(space.missing(PageId::new(space.partition(), capacity)));
            }
            end.changed = end.changed.max(number.saturating_add(1));
        }
        Ok(())
    }

    /// Has the files become as long.
    ///
    /// # Errors
    /// The driver's.
    pub(crate) async fn lengthen(self, engine: &Engine) -> Result<()> {
        let buffer = &engine.core.buffer;
        for (partition, RedoneEnd { changed, stated, .. }) in self.0 {
            let space = buffer.find_space(partition)?;
            let end = changed.max(stated).min(space.pages_max());
            if end > space.capacity() {
                buffer.make_room(&space, end).await?;
            }
        }
        Ok(())
    }
}

/// How many pages the file of a direct partition has for certain by what page 0 states before redo changes that; none if page 0 cannot be
/// read, which redo may mend.
async fn stated_before(engine: &Engine, space: &PageSpace) -> Result<u32> {
    let (core, first) = (&engine.core, PageId::new(space.partition(), 0));
    let found = core.complete(|| Ok(direct::stated_end(core.buffer.pool().borrow().page(first)?))).await;
    match found {
        Ok(stated) => Ok(stated.unwrap_or(u32::MAX).min(space.pages_max())),
        Err(error) if error.is_unreadable() => Ok(0),
        Err(error) => Err(error),
    }
}
