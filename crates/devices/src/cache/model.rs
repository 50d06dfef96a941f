//! What a controller does with a request by its cache.

use super::lru::{Lru, Page};
use super::{Cache, CacheKind};
use crate::unit::{Direction, Transfer};
use std::collections::BTreeMap;

/// What one file's requests met in a cache since its counters were last restarted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheCounts {
    /// Read requests.
    pub reads: u64,
    /// Those whose pages were all in the cache.
    pub read_hits: u64,
    /// Write requests.
    pub writes: u64,
    /// Those whose pages were all in the cache; none for a write buffer.
    pub write_hits: u64,
    /// Writes that ended in the cache, without waiting for the medium.
    pub absorbed: u64,
}

/// What a request needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// The medium, as without a cache.
    Medium,
    /// Nothing more.
    Done,
    /// Nothing more, but its bytes are to be written to the medium in the background.
    Destage,
}

/// The running model of a cache.
pub(crate) struct DiskCache {
    cache: Cache,
    pages: Lru,
    /// Pages of a write buffer that are taken.
    buffered: u64,
    /// Whether every completed write has left the volatile parts of the device, so that a sync finds nothing to do.
    syncs_nothing: bool,
    counts: BTreeMap<u32, CacheCounts>,
}

impl DiskCache {
    pub(crate) fn new(cache: &Cache, volatile_medium: bool) -> DiskCache {
        DiskCache {
            cache: cache.clone(),
            pages: Lru::new(cache.pages()),
            buffered: 0,
            syncs_nothing: cache.kind != CacheKind::Volatile && !volatile_medium,
            counts: BTreeMap::new(),
        }
    }

    pub(crate) fn description(&self) -> &Cache {
        &self.cache
    }

    /// The counts of each file, by its number.
    pub(crate) fn counts(&self) -> &BTreeMap<u32, CacheCounts> {
        &self.counts
    }

    pub(crate) fn restart(&mut self) {
        self.counts.clear();
    }

    /// A request has passed the controller.
    pub(crate) fn arrive(&mut self, transfer: &Transfer) -> Answer {
        let (hit, answer) = match transfer.direction {
            Direction::Sync => return if self.syncs_nothing { Answer::Done } else { Answer::Medium },
            Direction::Read => self.read(transfer),
            Direction::Write { .. } => self.write(transfer),
        };
        let counts = self.counts.entry(transfer.file).or_default();
        if transfer.direction == Direction::Read {
            counts.reads += 1;
            counts.read_hits += u64::from(hit);
        } else {
            counts.writes += 1;
            counts.write_hits += u64::from(hit);
            counts.absorbed += u64::from(answer == Answer::Destage);
        }
        answer
    }

    /// A read that needed the medium has ended there.
    pub(crate) fn end_read(&mut self, transfer: &Transfer) {
        if !self.cache.read_misses {
            return;
        }
        for page in self.pages_of(transfer) {
            if !self.pages.touch(page) {
                self.pages.insert(page);
            }
        }
    }

    /// A background write has ended.
    pub(crate) fn end_destage(&mut self, transfer: &Transfer) {
        if self.cache.kind == CacheKind::WriteBuffer {
            self.buffered -= self.count_of(transfer);
            return;
        }
        self.pages_of(transfer).for_each(|page| self.pages.end_write(page));
    }

    fn read(&mut self, transfer: &Transfer) -> (bool, Answer) {
        let hit =
            self.cache.kind != CacheKind::WriteBuffer && self.pages_of(transfer).all(|page| self.pages.contains(page));
        if !hit {
            return (false, Answer::Medium);
        }
        self.pages_of(transfer).for_each(|page| _ = self.pages.touch(page));
        (true, Answer::Done)
    }

    fn write(&mut self, transfer: &Transfer) -> (bool, Answer) {
        match self.cache.kind {
            CacheKind::WriteBuffer => (false, self.buffer(transfer)),
            CacheKind::Volatile => (self.refresh(transfer), Answer::Medium),
            CacheKind::NonVolatile => self.absorb(transfer),
        }
    }

    fn buffer(&mut self, transfer: &Transfer) -> Answer {
        let pages = self.count_of(transfer);
        if self.buffered + pages > self.cache.pages() {
            return Answer::Medium;
        }
        self.buffered += pages;
        Answer::Destage
    }

    /// A write that goes to the medium leaves its pages as they are, newer; true if all were there.
    fn refresh(&mut self, transfer: &Transfer) -> bool {
        let mut hit = true;
        for page in self.pages_of(transfer) {
            if !self.pages.touch(page) {
                hit = false;
                if self.cache.write_misses {
                    self.pages.insert(page);
                }
            }
        }
        hit
    }

    /// Takes a write if all its pages can be.
    fn absorb(&mut self, transfer: &Transfer) -> (bool, Answer) {
        let mut missing = 0;
        for page in self.pages_of(transfer) {
            // Pages that are there shall not be replaced by those that are not.
            match self.pages.touch(page) {
                true => self.pages.begin_write(page),
                false => missing += 1,
            }
        }
        let fits = missing <= self.pages.room();
        for page in self.pages_of(transfer) {
            match (fits, self.pages.contains(page)) {
                (false, true) => self.pages.end_write(page),
                (true, false) => {
                    self.pages.insert(page);
                    self.pages.begin_write(page);
                }
                _ => {}
            }
        }
        (missing == 0, if fits { Answer::Destage } else { Answer::Medium })
    }

    /// The pages that a transfer touches.
    fn pages_of(&self, transfer: &Transfer) -> impl Iterator<Item = Page> + use<> {
        let size = u64::from(self.cache.page_size);
        let (file, first) = (transfer.file, transfer.offset / size);
        (first..first.saturating_add(self.count_of(transfer))).map(move |page| (file, page))
    }

    fn count_of(&self, transfer: &Transfer) -> u64 {
        let size = u64::from(self.cache.page_size);
        (transfer.offset % size + u64::from(transfer.length)).div_ceil(size)
    }
}
