//! Clean-write (Do et al. 2011, section 2.3.1): what was changed in main memory goes to its own place only, so the cache never
//! has anything that its own device lacks.
//!
//! A page that was changed does not enter however it came to be clean: here dirty pages are written before they leave main
//! memory, which there is one step.

use super::admission::Admission;
use super::{CachePolicy, Contents, Decision, Leaving, Outdated, Setting, check_written_through, lru_2};
use base::PageId;
use structures::canary::{self, Canary};
use structures::replacement::Replacement;

pub struct CleanWrite {
    admission: Admission,
    throttle: u32,
}

impl CleanWrite {
    pub fn new(setting: &Setting) -> CleanWrite {
        CleanWrite { admission: Admission::new(setting), throttle: setting.parameters.throttle }
    }
}

impl CachePolicy for CleanWrite {
    fn is_inclusive(&self) -> bool {
        true
    }

    fn on_eviction(&mut self, leaving: &Leaving, contents: &Contents<'_>) -> Decision {
        if leaving.dirty && canary::is_planted(Canary::BrokenPromise) {
            return Decision::WriteBack;
        }
        let is_taken = !leaving.dirty && !leaving.modified && self.admission.takes(leaving.pattern, contents);
        if is_taken { Decision::WriteThrough } else { Decision::Skip }
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
