//! Dual-write (Do et al. 2011, section 2.3.2): what was changed in main memory goes to the cache and to its own place, be it
//! that it leaves main memory or that a checkpoint writes it (section 3.2).

use super::admission::Admission;
use super::{CachePolicy, Contents, Decision, Leaving, Outdated, Setting, check_written_through, lru_2};
use base::PageId;
use structures::canary::{self, Canary};
use structures::replacement::Replacement;

pub struct DualWrite {
    admission: Admission,
    throttle: u32,
}

impl DualWrite {
    pub fn new(setting: &Setting) -> DualWrite {
        DualWrite { admission: Admission::new(setting), throttle: setting.parameters.throttle }
    }
}

impl CachePolicy for DualWrite {
    fn is_inclusive(&self) -> bool {
        true
    }

    fn on_eviction(&mut self, leaving: &Leaving, contents: &Contents<'_>) -> Decision {
        match self.admission.takes(leaving.pattern, contents) {
            true if canary::is_planted(Canary::BrokenPromise) => Decision::WriteBack,
            true => Decision::WriteThrough,
            false => Decision::Skip,
        }
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

    fn throttle(&self) -> Option<u32> {
        Some(self.throttle)
    }

    fn check(&self, contents: &Contents<'_>) -> Result<(), String> {
        check_written_through(contents)
    }
}
