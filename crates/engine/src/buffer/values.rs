//! What references to values are charged with: their bytes, and what is waited for because no cache holds them.
//!
//! A core's caches are taken for one, whose lines are KiB of pages: each belongs to one of its sets, which has the latest few of those that
//! were referred to. So of values that are all referred to as often, as many are distant as there are bytes beyond that cache, and fewer if
//! some are referred to more often than others.

use super::Buffer;
use base::PageId;
use driver::Work;
use std::cell::Cell;

/// How many bytes are near a core: what Debit-Credit took longer with 11 and with 118 MiB, and reads of values with 64, was in proportion to
/// what they had beyond this, on a processor with caches of 2 MiB and translations of 6 MiB for each core.
const NEAR: usize = 8 << 20;
const KIB: usize = 1 << 10;
/// How many KiB a set has: enough for those that are referred to often, some of which belong to the same one.
const WAYS: usize = 4;
const SETS: usize = NEAR / KIB / WAYS;

/// How far apart the KiB of two partitions are numbered: what they have in memory is in no order.
const PARTITION: u64 = 0x9E37_79B9_7F4A_7C15;

/// What is near.
pub(super) struct NearMemory {
    /// What the KiB of a set have in their numbers beside that of the set, the latest first.
    sets: Box<[Cell<[u16; WAYS]>; SETS]>,
    /// How many a page has.
    of_page: u32,
}

impl NearMemory {
    pub fn new(page_size: usize) -> NearMemory {
        NearMemory { sets: Box::new([const { Cell::new([0; WAYS]) }; SETS]), of_page: (page_size / KIB).max(1) as u32 }
    }

    /// Whether a value is near, which it is from now on. It is taken to lie where it would if all of its page were as long.
    #[inline]
    fn refer(&self, page: PageId, slot: u16, length: usize) -> bool {
        let within = (usize::from(slot) * length / KIB).min(self.of_page as usize - 1);
        let of_page = u64::from(page.number) * u64::from(self.of_page) + within as u64;
        let number = u64::from(page.partition.0).wrapping_mul(PARTITION).wrapping_add(of_page) as usize;
        let (set, line) = (&self.sets[number % SETS], (number / SETS) as u16);
        set.get()[0] == line || enter(set, line)
    }
}

/// Makes a line of a set the latest. Whether it was there.
fn enter(set: &Cell<[u16; WAYS]>, line: u16) -> bool {
    let mut lines = set.get();
    let found = lines.iter().position(|present| *present == line);
    lines[..=found.unwrap_or(WAYS - 1)].rotate_right(1);
    lines[0] = line;
    set.set(lines);
    found.is_some()
}

impl Buffer {
    /// A value of `length` bytes was read or shown where it lies, at this slot of a page, or written there, or is about to be deleted: this is
    /// charged; with no bytes, that it was looked for and is not there. Several that follow each other are charged together as if they were
    /// the page's first.
    #[inline]
    pub fn charge_value(&self, page: PageId, slot: u16, length: usize) {
        self.executor.charge_value(length);
        if !self.near.refer(page, slot, length) {
            self.executor.charge(Work::DistantValue);
        }
    }
}
