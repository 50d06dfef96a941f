//! Lazy cleaning with admission by frequency (TinyLFU: Einziger, Friedman and Manes 2017). A page that main memory misses is
//! counted; once the cache was full a page enters only if it is missed more often than the page that would make room for it.
//! So the cache keeps what is worth its place, and pages that will not be missed again are not written to it. Nothing that was
//! read in sequence enters then: from a disk it is read in sequence again.

use super::lazy_cleaning::LazyCleaning;
use super::sketch::Sketch;
use super::{CachePolicy, Contents, Decision, DirtyMaximum, Leaving, Outdated, Pattern, Read, Setting};
use base::PageId;
use structures::replacement::Replacement;

pub struct Frequency {
    /// What becomes of pages that have entered.
    cleaning: LazyCleaning,
    misses: Sketch,
    fill_threshold_percent: u8,
}

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

    /// Whether the page is missed more often than the one that would make room.
    fn is_worth_a_place(&self, page: PageId, contents: &Contents<'_>) -> bool {
        let mut coldest = None;
        contents.coldest(&mut |candidate| {
            coldest = Some(candidate.page);
            false
        });
        coldest.is_none_or(|coldest| self.misses.estimate(page) > self.misses.estimate(coldest))
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
        let is_admitted = self.is_filling(contents)
            || leaving.pattern == Pattern::Random && self.is_worth_a_place(leaving.page, contents);
        if leaving.dirty && contents.is_checkpointing() || !is_admitted {
            return Decision::Skip;
        }
        Decision::WriteBack
    }

    fn on_update(&mut self, page: PageId) -> Outdated {
        self.cleaning.on_update(page)
    }

    fn order(&self, slots: usize) -> Box<dyn Replacement> {
        self.cleaning.order(slots)
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
}
