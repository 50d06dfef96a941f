//! What a server's memory would hold under an algorithm: page ids without their bytes.
//!
//! Of a large memory a sample is followed: the pages whose ids have a hash that leaves no remainder, in as many frames fewer (Waldspurger,
//! Park, Garthwaite, Ahmad: Efficient MRC construction with SHARDS, FAST 2015).

use crate::algorithm::{Fate, Frames, Noted, Placement, Recency, Source};
use base::PageId;
use foldhash::quality::FixedState;
use std::collections::BTreeMap;
use std::hash::BuildHasher;
use structures::replacement::{Hated, Replacement};

/// The most frames of a ghost.
const FRAMES_MAX: usize = 1024;
/// What remains of what was counted, behind a round.
const FADING: f64 = 0.8;

/// What was done, in the mean of one read.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Tally {
    /// Pages that were read.
    pub reads: f64,
    /// Those that another client would send.
    pub forwards: f64,
    /// Those that the disk would give.
    pub disk_reads: f64,
    /// Dirty pages that would make room for others.
    pub disk_writes: f64,
    /// Pages that would come back from clients.
    pub returns: f64,
}

impl Tally {
    /// With a share of another.
    pub fn plus(self, other: &Tally, share: f64) -> Tally {
        Tally {
            reads: self.reads + other.reads * share,
            forwards: self.forwards + other.forwards * share,
            disk_reads: self.disk_reads + other.disk_reads * share,
            disk_writes: self.disk_writes + other.disk_writes * share,
            returns: self.returns + other.returns * share,
        }
    }
}

/// A memory of page ids.
pub(super) struct Ghost {
    replacement: Box<dyn Replacement>,
    hated: Hated,
    frames: BTreeMap<PageId, u32>,
    slots: Vec<Slot>,
    capacity: usize,
    /// One page in this many is followed.
    one_in: u64,
    tally: Tally,
}

struct Slot {
    page: PageId,
    is_dirty: bool,
}

impl Ghost {
    /// An empty one of this memory.
    pub fn new(memory: Frames) -> Ghost {
        let one_in = memory.count.div_ceil(FRAMES_MAX).max(1);
        let capacity = (memory.count / one_in).max(1);
        Ghost {
            replacement: memory.replacement.build(capacity),
            hated: Hated::default(),
            frames: BTreeMap::new(),
            slots: Vec::new(),
            capacity,
            one_in: one_in as u64,
            tally: Tally::default(),
        }
    }

    /// What was counted.
    pub fn tally(&self) -> &Tally {
        &self.tally
    }

    /// What was counted weighs less from now on.
    pub fn fade(&mut self) {
        self.tally = Tally::default().plus(&self.tally, FADING);
    }

    /// Does what this algorithm would do.
    pub fn follow(&mut self, algorithm: &dyn Placement, noted: Noted<'_>) {
        match noted {
            Noted::Read(page, holders) if self.samples(page) => self.read(algorithm, page, holders),
            Noted::LastCopy(page) if self.samples(page) => self.leave(algorithm, page),
            Noted::Changed(page) if self.samples(page) => {
                let frame = self.take_in(page);
                self.slots[frame as usize].is_dirty = true;
            }
            Noted::Read(..) | Noted::LastCopy(_) | Noted::Changed(_) | Noted::Waited(..) => {}
        }
    }

    fn samples(&self, page: PageId) -> bool {
        self.one_in == 1 || FixedState::default().hash_one(page).is_multiple_of(self.one_in)
    }

    fn read(&mut self, algorithm: &dyn Placement, page: PageId, holders: &[crate::message::ClientId]) {
        self.tally.reads += 1.0;
        if !self.has(page) {
            match algorithm.source(holders, 0) {
                Source::Client(_) => return self.tally.forwards += 1.0,
                Source::Disk => self.tally.disk_reads += 1.0,
            }
        }
        let frame = self.take_in(page);
        if algorithm.after_sending() == Recency::Hated {
            self.hated.add(frame, self.replacement.latest(frame));
        }
    }

    fn leave(&mut self, algorithm: &dyn Placement, page: PageId) {
        match algorithm.on_last_copy(self.has(page)) {
            // None that it follows passes pages on.
            Fate::Dropped | Fate::PassedOn => return,
            Fate::KeptAtServer => {}
            Fate::Returned => self.tally.returns += 1.0,
        }
        self.take_in(page);
    }

    fn has(&self, page: PageId) -> bool {
        self.frames.contains_key(&page)
    }

    /// The page's frame, as used just now; another page makes room for it if need be.
    fn take_in(&mut self, page: PageId) -> u32 {
        if let Some(frame) = self.frames.get(&page) {
            self.replacement.touch(*frame);
            return *frame;
        }
        let frame = if self.slots.len() < self.capacity {
            self.slots.push(Slot { page, is_dirty: false });
            self.slots.len() as u32 - 1
        } else {
            let frame = self.make_room();
            self.slots[frame as usize] = Slot { page, is_dirty: false };
            frame
        };
        self.frames.insert(page, frame);
        self.replacement.insert(frame, page);
        frame
    }

    /// Empties a frame.
    fn make_room(&mut self) -> u32 {
        let mut victim = None;
        let mut take = |frame| {
            victim = Some(frame);
            false
        };
        let replacement = &self.replacement;
        if self.hated.visit(|frame| replacement.latest(frame), &mut take) {
            replacement.coldest(&mut take);
        }
        let frame = victim.expect("every frame holds a page");
        let slot = &self.slots[frame as usize];
        self.tally.disk_writes += f64::from(slot.is_dirty);
        self.frames.remove(&slot.page);
        if self.hated.includes(frame, self.replacement.latest(frame)) {
            self.replacement.remove(frame);
        } else {
            self.replacement.evict(frame);
        }
        self.hated.forget(frame);
        frame
    }
}
