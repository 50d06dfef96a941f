//! The exclusive approach (Koltsidas and Viglas 2011, as Do et al. 2011 describe it in section 5): a page is in main memory or
//! in the cache. One that is read leaves the cache; whatever main memory replaces enters it, and what was changed stays
//! dirty there.
//!
//! A dirty page is in both for some time if it is written while it stays in main memory, or is read before it was cleaned: its
//! slot is needed until the page is changed, or has made room once it was cleaned.

use super::{CachePolicy, Contents, Decision, Leaving, Outdated, Reason};
use base::PageId;
use structures::canary::{self, Canary};

pub struct Exclusive;

impl CachePolicy for Exclusive {
    fn is_inclusive(&self) -> bool {
        canary::is_planted(Canary::BrokenPromise)
    }

    fn on_eviction(&mut self, leaving: &Leaving, contents: &Contents<'_>) -> Decision {
        let is_at_checkpoint = leaving.reason == Reason::Background && contents.is_checkpointing();
        if is_at_checkpoint { Decision::Skip } else { Decision::WriteBack }
    }

    fn on_update(&mut self, _: PageId) -> Outdated {
        Outdated::Freed
    }
}
