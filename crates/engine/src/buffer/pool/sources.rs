//! Where pages were read that no reference has used yet: the first one that does is charged with it.

use super::Pool;
use crate::statistics::FoundIn;
use base::PageId;
use std::cell::Cell;
use std::rc::Rc;
use structures::Need;

/// Where pages have come from that no reference has used yet. Their frames are marked, so that finding other pages costs nothing.
pub(super) struct PageSources {
    /// By frame that takes part in replacement: where its page came from, until a reference uses it. Pages that stay for good are never
    /// missed.
    from: Vec<Cell<FoundIn>>,
    /// The farthest of those that the present reference has used first.
    found: Rc<Cell<FoundIn>>,
}

impl PageSources {
    pub(super) fn new(frames: usize) -> PageSources {
        PageSources { from: vec![Cell::new(FoundIn::Memory); frames], found: Rc::default() }
    }

    /// Whether the page in a frame was used by no reference yet, and was read.
    pub(super) fn is_unused(&self, frame: u32) -> bool {
        self.from[frame as usize].get() != FoundIn::Memory
    }
}

impl Pool {
    /// The page that is being read into a frame comes from there: the first reference that uses it is charged with that.
    pub fn note_source(&mut self, frame: u32, found: FoundIn) {
        if let Some(from) = self.sources.from.get_mut(frame as usize) {
            *from.get_mut() = found;
        }
    }

    /// The page in a frame is charged to no reference from now on. Returns where it came from, if it was to none yet.
    pub(super) fn forget_source(&self, frame: u32) -> FoundIn {
        let Some(from) = self.sources.from.get(frame as usize) else { return FoundIn::Memory };
        if from.get() != FoundIn::Memory {
            self.frames.unmark(frame as usize);
        }
        from.replace(FoundIn::Memory)
    }

    /// A page that no reference has used yet, that stays for good, or that is not there.
    #[inline(never)]
    pub(super) fn page_apart(&self, id: PageId, frame: u32) -> Result<&[u8], Need> {
        let bytes = self.frame_bytes(frame).ok_or(Need::Page(id))?;
        if frame < self.replaceable {
            self.replacement.touch(frame);
            let found = self.forget_source(frame);
            self.sources.found.set(self.sources.found.get().max(found));
        }
        Ok(bytes)
    }

    /// The farthest place where pages came from that were used first since this was [`FoundIn::Memory`].
    pub fn found(&self) -> Rc<Cell<FoundIn>> {
        Rc::clone(&self.sources.found)
    }

    /// No page that is here is charged to a reference any more: what was read so far is counted nowhere, or was read for none.
    pub fn forget_sources(&self) {
        for frame in 0..self.replaceable {
            self.forget_source(frame);
        }
    }
}
