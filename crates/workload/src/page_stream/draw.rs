//! Drawing transactions.

use super::Stream;
use base::Random;
use std::cell::Cell;
use std::ops::Range;

/// One transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Input {
    /// Its type: a position in [`Stream::types`].
    pub kind: usize,
    /// Its references, in order.
    pub steps: Vec<Step>,
}

/// A reference, or many of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Of a page, for reading.
    Read(u64),
    /// Of a page that is read and then changed.
    Update(u64),
    /// Of pages in sequence, for reading.
    Scan(Range<u64>),
}

/// How many transactions were drawn.
#[derive(Clone, Debug, Default)]
pub(super) struct StreamPlace(Cell<u64>);

impl StreamPlace {
    /// The number of the next transaction.
    pub fn next(&self) -> u64 {
        self.0.replace(self.0.get() + 1)
    }
}

/// Pages that a transaction visits.
const VISITS: u64 = 10;
/// TPC-C: the pages of a block are the numbers of nine bits. The more of them are set in the bitwise or of two uniform
/// numbers, as the benchmark makes its non-uniform ones (clause 2.1.6), the more popular is the page. Then 20 % of the
/// pages have 75 % of the accesses.
const TPC_C_BLOCK_PAGES: u64 = 1 << 9;
/// How much further a block's numbers begin than those of the block before: coprime to every block's size, and to any number
/// of disks in use.
const BETWEEN_BLOCKS: u64 = 0x9e37_79b1;
/// TPC-E: the ratio of reads to writes of its pages (Chen, Ailamaki, Athanassoulis, Gibbons, Johnson, Pandis and Stoica: TPC-E
/// vs. TPC-C, SIGMOD Record 39(3), 2010).
const TPC_E_READS_PER_WRITE: f64 = 9.7;
/// TPC-E: the share of the pages that the working set has, which "nearly fits" a cache of 140 GB beside a buffer of 20 GB at
/// 230 GB (Do et al. 2011, section 4.3).
const TPC_E_WORKING_SET: f64 = 2.0 / 3.0;
/// TPC-E: as for TPC-C, with three bits.
const TPC_E_BLOCK_PAGES: u64 = 1 << 3;
/// TPC-H: one of this number of queries does look-ups, one for each 480 pages; the others scan this part of the pages.
const TPC_H_QUERIES_PER_LOOK_UPS: u64 = 4;
const TPC_H_PAGES_PER_LOOK_UP: u64 = 480;
const TPC_H_PART: u64 = 8;
/// Pages of one transaction of a scan.
const SCAN_PAGES: u64 = 256;
/// The hot set is this part of the pages, and moves on after this number of visits for each page.
const HOT_PART: u64 = 10;
const VISITS_PER_PAGE: u64 = 4;

pub(super) fn transaction(stream: Stream, pages: u64, before: u64, random: &mut Random) -> Input {
    let visits = |visit: &mut dyn FnMut(u64) -> Step| Input { kind: 0, steps: (0..VISITS).map(visit).collect() };
    match stream {
        Stream::TpcC => visits(&mut |number| {
            let page = popular(pages, TPC_C_BLOCK_PAGES, random);
            if number % 2 == 1 { Step::Update(page) } else { Step::Read(page) }
        }),
        Stream::TpcE => visits(&mut |_| {
            let working_set = ((pages as f64 * TPC_E_WORKING_SET) as u64).max(1);
            let page = popular(working_set, TPC_E_BLOCK_PAGES, random);
            if random.chance(1.0 / TPC_E_READS_PER_WRITE) { Step::Update(page) } else { Step::Read(page) }
        }),
        Stream::TpcH => query(pages, random),
        Stream::Scan => {
            let start = before * SCAN_PAGES % pages;
            Input { kind: 0, steps: vec![Step::Scan(start..(start + SCAN_PAGES).min(pages))] }
        }
        Stream::Uniform => visits(&mut |_| Step::Read(random.below(pages))),
        Stream::WriteOnly => visits(&mut |_| Step::Update(random.below(pages))),
        Stream::MovingHotSet => {
            let width = (pages / HOT_PART).max(1);
            let start = before * VISITS / (VISITS_PER_PAGE * pages) % HOT_PART * width % pages;
            let hot = |random: &mut Random| (start + random.below(width)) % pages;
            visits(&mut |_| Step::Read(if random.chance(0.9) { hot(random) } else { random.below(pages) }))
        }
    }
}

/// A page of a block that is drawn uniformly; within a block those pages are popular whose numbers have many bits set, counted
/// from another page in each block, as the benchmark adds a constant to its numbers: else all popular pages would be on one of
/// several disks. All blocks have this size, a power of two; what reaches over the last page begins again at the first.
fn popular(pages: u64, block: u64, random: &mut Random) -> u64 {
    let number = random.below(pages.div_ceil(block));
    let from = number * BETWEEN_BLOCKS;
    (number * block + (from + (random.below(block) | random.below(block))) % block) % pages
}

fn query(pages: u64, random: &mut Random) -> Input {
    if random.below(TPC_H_QUERIES_PER_LOOK_UPS) == 0 {
        let look_ups = pages.div_ceil(TPC_H_PAGES_PER_LOOK_UP);
        return Input { kind: 1, steps: (0..look_ups).map(|_| Step::Read(random.below(pages))).collect() };
    }
    let length = (pages / TPC_H_PART).max(1);
    let start = random.below(pages - length + 1);
    Input { kind: 0, steps: vec![Step::Scan(start..start + length)] }
}
