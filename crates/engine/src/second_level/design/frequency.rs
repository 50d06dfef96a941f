//! Lazy cleaning with admission by frequency (TinyLFU: Einziger, Friedman and Manes 2017). A page that main memory misses is
//! counted. What was changed always enters, because cleaning writes it home in groups. Once the cache was full an unchanged page
//! enters only if it is missed more often than the page that would make room for it: of the clean ones that were not used for
//! longest, the one that is missed least. So the cache keeps what is worth its place, and pages that will not be missed again
//! are not written to it. Nothing that was read in sequence enters then: from a disk it is read in sequence again.
//!
//! The cache counts as persistent, as FaCE's does: a checkpoint cleans nothing.

use super::lazy_cleaning::LazyCleaning;
use super::sketch::Sketch;
use super::{CachePolicy, Candidate, Contents, Decision, DirtyMaximum, Leaving, Outdated, Pattern, Read, Setting};
use base::PageId;

pub struct Frequency {
    /// What becomes of pages that have entered.
    cleaning: LazyCleaning,
    misses: Sketch,
    fill_threshold_percent: u8,
}

/// Of how many clean pages the least missed one makes room.
const VICTIMS: usize = 8;
/// Among how many pages they are looked for.
const LOOKED_AT: usize = 256;

impl Frequency {
    pub fn new(setting: &Setting) -> Frequency {
        Frequency {
            cleaning: LazyCleaning::new(setting),
            misses: Sketch::default(),
            fill_threshold_percent: setting.parameters.fill_threshold_percent,
        }
    }

    /// Whether every page enters that may.
    fn is_filling(&self, contents: &Contents<'_>) -> bool {
        let [used, capacity] = [contents.used(), contents.capacity()].map(u64::from);
        used * 100 < capacity * u64::from(self.fill_threshold_percent)
    }

    /// The clean page that would make room, if there is one.
    fn least_missed(&self, contents: &Contents<'_>) -> Option<Candidate> {
        let (mut clean, mut looked_at) = (Vec::with_capacity(VICTIMS), 0);
        contents.coldest(&mut |candidate| {
            if !candidate.dirty {
                clean.push(candidate);
            }
            looked_at += 1;
            clean.len() < VICTIMS && looked_at < LOOKED_AT
        });
        clean.into_iter().min_by_key(|candidate| self.misses.estimate(candidate.page))
    }

    /// Whether the page is missed more often than the one that would make room.
    fn is_worth_a_place(&self, page: PageId, contents: &Contents<'_>) -> bool {
        let estimate = |page| self.misses.estimate(page);
        self.least_missed(contents).is_none_or(|victim| estimate(page) > estimate(victim.page))
    }
}

impl CachePolicy for Frequency {
    fn is_inclusive(&self) -> bool {
        true
    }

    fn on_read(&mut self, read: &Read, contents: &Contents<'_>) -> Decision {
        if read.pattern == Pattern::Random {
            self.misses.reserve(contents.capacity());
            self.misses.add(read.page);
        }
        Decision::Skip
    }

    fn on_hit(&mut self, read: &Read) {
        self.misses.add(read.page);
    }

    fn on_eviction(&mut self, leaving: &Leaving, contents: &Contents<'_>) -> Decision {
        let is_admitted = leaving.dirty
            || self.is_filling(contents)
            || leaving.pattern == Pattern::Random && self.is_worth_a_place(leaving.page, contents);
        if is_admitted { Decision::WriteBack } else { Decision::Skip }
    }

    fn on_update(&mut self, page: PageId) -> Outdated {
        self.cleaning.on_update(page)
    }

    fn cleans_at_checkpoint(&self) -> bool {
        false
    }

    fn victim(&mut self, contents: &Contents<'_>) -> Option<u32> {
        self.least_missed(contents).map(|victim| victim.slot).or_else(|| contents.coldest_clean())
    }

    fn is_used_when_it_leaves(&self) -> bool {
        self.cleaning.is_used_when_it_leaves()
    }

    fn dirty_max(&self, capacity: u32) -> Option<DirtyMaximum> {
        self.cleaning.dirty_max(capacity)
    }

    fn group_pages(&self) -> u32 {
        self.cleaning.group_pages()
    }

    fn throttle(&self) -> Option<u32> {
        self.cleaning.throttle()
    }

    fn check(&self, contents: &Contents<'_>) -> Result<(), String> {
        self.cleaning.check(contents)
    }
}
