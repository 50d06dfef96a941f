//! Pages that were never written. They are formatted and not read; but a page that an earlier opening has used is not one of them,
//! though its file may be blank there: cut off, or punched out by a tool that frees what it takes for unused.

use super::{Buffer, PageSpace, Presence};
use crate::second_level::design::Pattern;
use crate::{Error, Result};
use base::PageId;
use driver::Frame;
use std::rc::Rc;
use structures::canary::{self, Canary};
use structures::organization::{allocator, direct};
use structures::page::header;

/// The sequence number of pages that a bulk load has written, past the log. One that has failed leaves some beyond those in use.
pub const LOADED: u64 = 1;

impl Buffer {
    /// A page that was never written needs no read. False if another task formatted it meanwhile.
    pub(super) fn format_new(&self, frame: u32, id: PageId, space: &PageSpace) -> bool {
        let mut pool = self.pool.borrow_mut();
        if pool.presence(id) != Presence::Absent {
            pool.give_free(frame);
            drop(pool);
            self.note_free();
            return false;
        }
        let mut bytes = pool.begin_load(frame, id, Pattern::Random);
        space.format(&mut bytes, id);
        if !self.is_in_redo(id) {
            header::set_sequence(&mut bytes, pool.floor(id.partition));
        }
        let mut woken = Vec::new();
        pool.loaded(frame, bytes, &mut woken);
        debug_assert!(woken.is_empty(), "no task waits for what takes no time");
        self.redo_left(&mut pool, (frame, id));
        true
    }

    /// Begins a page anew that cannot be read: the caller goes on to make every change of it again.
    ///
    /// # Errors
    /// The driver's, or a buffer without a frame to spare.
    pub async fn make_anew(self: &Rc<Self>, id: PageId) -> Result<()> {
        let space = self.find_space(id.partition)?;
        let frame = self.frame_for(&space).await?;
        // Its partition may have been dropped meanwhile.
        if self.is_in_redo(id) {
            self.failures.forget(|page| page == id);
            self.format_new(frame.take(), id, &space);
        }
        Ok(())
    }

    /// Whether a page that its file does not hold may be one that was never written; `None` if page 0 would have to be read for
    /// that. During redo every page may be: what the log says of it shows whether it is. A direct partition's pages may be as
    /// far as its file goes, and which of them were written is not known, and so are those behind the end that page 0 states; those of
    /// any other partition are written before they are needed again, but for those that page 0 does not count yet.
    fn is_known_new(&self, id: PageId, space: &PageSpace) -> Option<bool> {
        if self.is_in_redo(id) || space.is_new() || canary::is_planted(Canary::MissingPageNew) {
            return Some(true);
        }
        if !space.is_direct() {
            return self.is_known_unused(id, space);
        }
        let first = PageId { number: 0, ..id };
        if id.number < space.capacity() || id == first {
            return Some(id.number < space.capacity() && !space.is_lost(id));
        }
        let pool = self.pool.borrow();
        let Presence::Resident(frame) = pool.presence(first) else { return None };
        Some(direct::stated_end(pool.bytes(frame)).is_some_and(|end| id.number >= end))
    }

    /// Whether page 0 does not count a page, so that nothing there matters; `None` if page 0 would have to be read for that.
    fn is_known_unused(&self, id: PageId, space: &PageSpace) -> Option<bool> {
        let first = PageId { number: 0, ..id };
        if self.is_in_redo(id) || space.is_direct() || id == first {
            return Some(false);
        }
        let pool = self.pool.borrow();
        let Presence::Resident(frame) = pool.presence(first) else { return None };
        Some(id.number >= allocator::read(pool.bytes(frame)).page_count)
    }

    /// Whether a page that its file does not hold may be one that was never written.
    ///
    /// # Errors
    /// Those of fetching page 0.
    pub(super) async fn is_new_page(self: &Rc<Self>, id: PageId, space: &PageSpace) -> Result<bool> {
        self.with_page_0(id, || self.is_known_new(id, space)).await
    }

    /// What `known` says once page 0 of the page's partition is here.
    async fn with_page_0(self: &Rc<Self>, id: PageId, known: impl Fn() -> Option<bool>) -> Result<bool> {
        loop {
            if let Some(known) = known() {
                return Ok(known);
            }
            let (frame, _) = Box::pin(self.fetch(PageId { number: 0, ..id }, Pattern::Random)).await?;
            let known = known();
            self.unpin(frame);
            if let Some(known) = known {
                return Ok(known);
            }
        }
    }

    /// A page was read that is blank, or for which there is this error instead. It is formatted if it is not in use. While page 0
    /// is fetched for it, its read does not count as under way: a search for page 0's frame would wait for it in vain.
    pub(super) fn finish_unused(
        self: &Rc<Self>,
        (frame, id): (u32, PageId),
        space: &Rc<PageSpace>,
        bytes: Frame,
        error: Option<Error>,
    ) {
        if let Some(tiers) = self.tiers().filter(|tiers| error.is_some() && !self.is_in_redo(id) && tiers.is_loading())
        {
            // A slot of which nothing is known yet may have it. Redo has a way of its own to ask.
            let (this, space) = (Rc::clone(self), Rc::clone(space));
            self.executor.spawn(async move {
                tiers.await_loading().await;
                this.finish_unused((frame, id), &space, bytes, error);
            });
            return;
        }
        let Err((mut bytes, error)) = self.read_copy_instead((frame, id), space, (bytes, error)) else { return };
        let is_blank = error.is_none();
        let known = move |this: &Buffer, space: &PageSpace| {
            if is_blank { this.is_known_new(id, space) } else { this.is_known_unused(id, space) }
        };
        let end = move |this: &Buffer, space: &PageSpace, known: Result<bool>| {
            let outcome = match known {
                Ok(true) => {
                    space.format(&mut bytes, id);
                    if !this.is_in_redo(id) && !space.is_direct() {
                        // Should what a load has left be read by a restart, what is logged from now on comes after it.
                        header::set_sequence(&mut bytes, this.pool.borrow().floor(id.partition).max(LOADED));
                    }
                    if is_blank && space.is_direct() {
                        header::seal(&mut bytes);
                        this.offer(frame, space, &bytes);
                    }
                    Ok(())
                }
                Ok(false) => Err(error.unwrap_or_else(|| space.missing(id))),
                Err(error) => Err(error),
            };
            this.end_load(frame, id, bytes, outcome);
        };
        match known(self, space) {
            Some(known) => end(self, space, Ok(known)),
            None => {
                let (this, space) = (Rc::clone(self), Rc::clone(space));
                self.in_flight.set(self.in_flight.get() - 1);
                self.wake_for_frames(0);
                self.executor.spawn(async move {
                    let known = this.with_page_0(id, || known(&this, &space)).await;
                    this.in_flight.set(this.in_flight.get() + 1);
                    end(&this, &space, known);
                });
            }
        }
    }
}
