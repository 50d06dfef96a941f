//! Where pages were read that no reference has used yet: the first one that does is charged with it.

use super::Pool;
use crate::statistics::FoundIn;
use std::cell::Cell;

/// By frame that takes part in replacement: where its page came from, until a reference uses it. Pages that stay for good are never
/// missed.
pub(super) struct PageSources {
    from: Vec<Cell<FoundIn>>,
    /// How many of these pages were used by no reference yet.
    unused: Cell<usize>,
    /// The farthest of those that the present reference has used first.
    found: Cell<FoundIn>,
}

impl PageSources {
    pub(super) fn new(frames: usize) -> PageSources {
        let from = vec![Cell::new(FoundIn::Memory); frames];
        PageSources { from, unused: Cell::new(0), found: Cell::new(FoundIn::Memory) }
    }

    /// The page in a frame is used.
    #[inline]
    pub(super) fn note_use(&self, frame: u32) {
        if self.unused.get() > 0 {
            let found = self.forget(frame);
            self.found.set(self.found.get().max(found));
        }
    }

    /// The page in a frame is charged to no reference from now on. Returns where it came from, if it was to none yet.
    pub(super) fn forget(&self, frame: u32) -> FoundIn {
        let Some(from) = self.from.get(frame as usize) else { return FoundIn::Memory };
        let found = from.replace(FoundIn::Memory);
        self.unused.set(self.unused.get() - usize::from(found != FoundIn::Memory));
        found
    }
}

impl Pool {
    /// The page that is being read into a frame comes from there: the first reference that uses it is charged with that.
    pub fn note_source(&mut self, frame: u32, found: FoundIn) {
        self.sources.forget(frame);
        if let Some(from) = self.sources.from.get_mut(frame as usize) {
            *from.get_mut() = found;
            self.sources.unused.set(self.sources.unused.get() + usize::from(found != FoundIn::Memory));
        }
    }

    /// A reference begins: what others have used before it is charged to them, or to none.
    #[inline]
    pub fn begin_reference(&self) {
        self.sources.found.set(FoundIn::Memory);
    }

    /// The farthest place where pages came from that were used first since [`Pool::begin_reference`], or since this was asked.
    #[inline]
    pub fn take_found(&self) -> FoundIn {
        self.sources.found.take()
    }

    /// No page that is here is charged to a reference any more: what was read so far is counted nowhere, or was read for none.
    pub fn forget_sources(&mut self) {
        self.sources = PageSources::new(self.replaceable as usize);
    }
}
