//! Lazy cleaning (Do et al. 2011, section 2.3.3): what was changed in main memory goes to the cache only. A cleaner writes the
//! coldest of that to its own place once too much of the cache is dirty, pages that lie side by side together (section
//! 3.3.5). A checkpoint cleans everything, and nothing dirty enters meanwhile (section 3.2).

use super::admission::Admission;
use super::{CachePolicy, Contents, Decision, DirtyMaximum, Leaving, Outdated, Parameters, Setting, lru_2};
use base::PageId;
use structures::canary::{self, Canary};
use structures::replacement::Replacement;

pub struct LazyCleaning {
    admission: Admission,
    parameters: Parameters,
}

/// The cleaner goes on until this share of the cache below the threshold: 0.01 % (section 2.3.3).
const BELOW_THRESHOLD: u32 = 10_000;

impl LazyCleaning {
    pub fn new(setting: &Setting) -> LazyCleaning {
        LazyCleaning { admission: Admission::new(setting), parameters: setting.parameters }
    }

    /// How many pages of a cache for `capacity` may be dirty before the cleaner begins to work.
    fn threshold(&self, capacity: u32) -> u32 {
        (u64::from(capacity) * u64::from(self.parameters.dirty_max_percent) / 100) as u32
    }
}

impl CachePolicy for LazyCleaning {
    fn is_inclusive(&self) -> bool {
        true
    }

    fn on_eviction(&mut self, leaving: &Leaving, contents: &Contents<'_>) -> Decision {
        if leaving.dirty && contents.is_checkpointing() || !self.admission.takes(leaving.pattern, contents) {
            return Decision::Skip;
        }
        Decision::WriteBack
    }

    fn on_update(&mut self, _: PageId) -> Outdated {
        Outdated::Freed
    }

    fn order(&self, slots: usize) -> Box<dyn Replacement> {
        lru_2(slots)
    }

    fn is_used_when_it_leaves(&self) -> bool {
        false
    }

    fn dirty_max(&self, capacity: u32) -> Option<DirtyMaximum> {
        let above = if canary::is_planted(Canary::BrokenPromise) { capacity } else { self.threshold(capacity) };
        Some(DirtyMaximum { above, down_to: above.saturating_sub((capacity / BELOW_THRESHOLD).max(1)) })
    }

    fn group_pages(&self) -> u32 {
        self.parameters.group_pages
    }

    fn throttle(&self) -> Option<u32> {
        Some(self.parameters.throttle)
    }

    fn check(&self, contents: &Contents<'_>) -> Result<(), String> {
        let (dirty, threshold) = (contents.left_dirty().count(), self.threshold(contents.capacity()));
        match dirty > threshold as usize && contents.is_cleanable() {
            true => Err(format!("{dirty} pages of the cache are dirty, more than {threshold}, and none is cleaned")),
            false => Ok(()),
        }
    }
}
