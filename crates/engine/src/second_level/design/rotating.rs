//! The rotating design (Holloway 2009, as Do et al. 2011 describe it in section 5): a pointer goes round the slots, each page that
//! enters is written where it stands, and what is there leaves. So the device is written sequentially, and no attention is
//! paid to what is used. What was changed stays dirty in the cache.

use super::{CachePolicy, Contents, Decision, Leaving, Occupant, Outdated, Reason};
use base::PageId;
use structures::canary::{self, Canary};

#[derive(Default)]
pub struct Rotating {
    /// The slot that is written next.
    next: u32,
}

impl CachePolicy for Rotating {
    fn is_inclusive(&self) -> bool {
        true
    }

    fn on_eviction(&mut self, leaving: &Leaving, contents: &Contents<'_>) -> Decision {
        let is_at_checkpoint = leaving.reason == Reason::Background && contents.is_checkpointing();
        if is_at_checkpoint { Decision::Skip } else { Decision::WriteBack }
    }

    fn on_update(&mut self, _: PageId) -> Outdated {
        Outdated::Freed
    }

    fn is_circular(&self) -> bool {
        true
    }

    fn resume_behind(&mut self, slot: u32) {
        self.next = slot + 1;
    }

    /// The slot at the pointer; slots that are read or written just now are passed over. The pointer stays at a dirty page, which
    /// is asked for again once it is clean.
    fn victim(&mut self, contents: &Contents<'_>) -> Option<u32> {
        let capacity = contents.capacity();
        let next = if self.next < capacity { self.next } else { 0 };
        let slots = (next..capacity).chain(0..next);
        let (slot, is_dirty) = slots.into_iter().find_map(|slot| match contents.occupant(slot) {
            Occupant::None => Some((slot, false)),
            Occupant::Idle(candidate) => Some((slot, candidate.dirty)),
            Occupant::Busy => None,
        })?;
        let step = if canary::is_planted(Canary::BrokenPromise) { 2 } else { 1 };
        self.next = if is_dirty { slot } else { (slot + step) % capacity };
        Some(slot)
    }
}
