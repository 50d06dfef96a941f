//! Frames for pages that come from another node.
//!
//! A page that is not here comes into a frame only with its bytes. Until then the frame is no page's, and other tasks that want the page
//! wait: should it not come after all, what its own device has is what it is.

use super::spare::Spare;
use super::wanted::Fetching;
use super::{Buffer, Pins, Presence};
use crate::second_level::design::Pattern;
use crate::{Need, Result};
use base::{Lsn, PageId};
use std::rc::Rc;

/// Frames for the pages that come together. What did not come when this is dropped is as it was.
pub struct ArrivingPages<'a> {
    buffer: &'a Rc<Buffer>,
    /// Of those that are here.
    pins: Pins,
    /// Free frames for the others, and the turns to bring these.
    free: Vec<(Fetching, Spare<'a>)>,
}

impl Buffer {
    /// No pages yet that come.
    pub fn arriving(self: &Rc<Self>) -> ArrivingPages<'_> {
        ArrivingPages { buffer: self, pins: Pins::new(self), free: Vec::new() }
    }
}

impl ArrivingPages<'_> {
    /// Has pages here as they are, all of which stay.
    ///
    /// # Errors
    /// Those of reading them, or a buffer without a frame to spare.
    pub async fn fetch(&mut self, pages: &[PageId]) -> Result<()> {
        let absent: Vec<PageId> = pages.iter().copied().filter(|page| !self.pins.hold(*page)).collect();
        if absent.is_empty() {
            return Ok(());
        }
        self.buffer.prefetch(absent.iter().copied(), Pattern::Random).await?;
        for page in absent {
            self.buffer.resolve(Need::Page(page), Pattern::Random, &mut self.pins).await?;
        }
        Ok(())
    }

    /// Has a frame for a page that is to come: that in which it is, or a free one. Nothing else may change the page meanwhile.
    ///
    /// # Errors
    /// The driver's, or a buffer without a frame to spare.
    pub async fn make_place(&mut self, id: PageId) -> Result<()> {
        let buffer = self.buffer;
        loop {
            let presence = buffer.pool.borrow().presence(id);
            match presence {
                Presence::Resident(frame) => {
                    buffer.pool.borrow_mut().pin(frame);
                    self.pins.add(frame);
                    return Ok(());
                }
                Presence::Loading(frame) => {
                    if buffer.await_load(frame).await {
                        self.pins.add(frame);
                        return Ok(());
                    }
                }
                // What is left of redo is not to come over the page later.
                Presence::Absent if buffer.is_left(id) => {
                    let (frame, _) = buffer.fetch(id, Pattern::Random).await?;
                    self.pins.add(frame);
                    return Ok(());
                }
                Presence::Absent => match buffer.want(id, Pattern::Random) {
                    Some(turn) => {
                        let space = buffer.find_space(id.partition)?;
                        let frame = buffer.frame_for(&space).await?;
                        self.free.push((turn, frame));
                        return Ok(());
                    }
                    None => buffer.await_turn(id).await,
                },
            }
        }
    }

    /// A page has come for which there is a place. It is newer than on the medium if `logged` says between which log positions its
    /// changes are described; otherwise it is what it was, and one that is here stays.
    pub fn install(&mut self, page: PageId, bytes: &[u8], logged: Option<(Lsn, Lsn)>) {
        let mut pool = self.buffer.pool.borrow_mut();
        let place = self.free.iter().position(|(turn, _)| turn.page() == page);
        // The turn ends when the page is here.
        let _turn = place.map(|place| {
            let (turn, frame) = self.free.swap_remove(place);
            let frame = frame.take();
            let mut memory = pool.begin_load(frame, page, turn.pattern());
            memory.copy_from_slice(bytes);
            let mut woken = Vec::new();
            pool.loaded(frame, memory, &mut woken);
            debug_assert!(woken.is_empty(), "nothing reads a page while another task has the turn to bring it");
            turn
        });
        let frame = pool.frame_in_use(page);
        match logged {
            Some(logged) => pool.install(frame, bytes, logged),
            None => pool.touch(frame),
        }
    }
}
