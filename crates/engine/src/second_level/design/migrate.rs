//! Pages migrate when main memory replaces them, by whether they were changed there (Rahm 1991, section 3.2). A changed page
//! is written to its own place as soon as it has its slot. Under NOFORCE a page is in main memory or in the cache; under
//! FORCE pages also enter when their transaction ends, and are in both.

use super::{CachePolicy, Contents, Decision, Leaving, Reason, Setting, check_written_through};
use structures::canary::{self, Canary};

pub struct Migrate {
    /// Whether unmodified and modified pages enter.
    admitted: [bool; 2],
    force: bool,
}

impl Migrate {
    pub fn new(admitted: [bool; 2], setting: &Setting) -> Migrate {
        Migrate { admitted, force: setting.force }
    }
}

impl CachePolicy for Migrate {
    fn is_inclusive(&self) -> bool {
        self.force
    }

    fn on_eviction(&mut self, leaving: &Leaving, _: &Contents<'_>) -> Decision {
        let is_admitted = leaving.reason != Reason::Background && self.admitted[usize::from(leaving.modified)];
        match is_admitted {
            true if canary::is_planted(Canary::BrokenPromise) => Decision::WriteBack,
            true => Decision::WriteThrough,
            false => Decision::Skip,
        }
    }

    fn check(&self, contents: &Contents<'_>) -> Result<(), String> {
        check_written_through(contents)
    }
}
