//! The caches against the study's rules, written down plainly.

use super::model::{Answer, DiskCache};
use super::{Cache, CacheKind, CacheSize};
use crate::unit::{Direction, Transfer};
use base::Random;

const PAGE: u64 = 4096;

/// Pages from the least to the most recently used, each with the number of its writes under way.
struct Naive {
    cache: Cache,
    pages: Vec<(u64, u32)>,
    buffered: usize,
}

impl Naive {
    fn has(&self, page: u64) -> bool {
        self.pages.iter().any(|(known, _)| *known == page)
    }

    fn use_again(&mut self, page: u64) {
        let at = self.pages.iter().position(|(known, _)| *known == page).expect("a hit");
        let entry = self.pages.remove(at);
        self.pages.push(entry);
    }

    /// Takes a page in place of the oldest unmodified one if the cache is full; false if there is none.
    fn take(&mut self, page: u64) -> bool {
        if self.pages.len() as u64 == self.cache.pages() {
            let Some(victim) = self.pages.iter().position(|(_, writes)| *writes == 0) else { return false };
            self.pages.remove(victim);
        }
        self.pages.push((page, 0));
        true
    }

    fn writes_of(&mut self, page: u64) -> &mut u32 {
        &mut self.pages.iter_mut().find(|(known, _)| *known == page).expect("in the cache").1
    }

    fn read(&mut self, pages: &[u64]) -> Answer {
        if self.cache.kind == CacheKind::WriteBuffer || !pages.iter().all(|page| self.has(*page)) {
            return Answer::Medium;
        }
        pages.iter().for_each(|page| self.use_again(*page));
        Answer::Done
    }

    fn end_read(&mut self, pages: &[u64]) {
        for page in pages.iter().filter(|_| self.cache.read_misses).copied().collect::<Vec<_>>() {
            if self.has(page) { self.use_again(page) } else { _ = self.take(page) }
        }
    }

    fn write(&mut self, pages: &[u64]) -> Answer {
        match self.cache.kind {
            CacheKind::WriteBuffer if self.buffered + pages.len() <= self.cache.pages() as usize => {
                self.buffered += pages.len();
                return Answer::Destage;
            }
            CacheKind::WriteBuffer => return Answer::Medium,
            CacheKind::Volatile => {
                for page in pages.iter().copied() {
                    if self.has(page) {
                        self.use_again(page);
                    } else if self.cache.write_misses {
                        self.take(page);
                    }
                }
                return Answer::Medium;
            }
            CacheKind::NonVolatile => {}
        }
        let (hits, misses): (Vec<u64>, Vec<u64>) = pages.iter().partition(|page| self.has(**page));
        hits.iter().for_each(|page| self.use_again(*page));
        let replaceable = self.pages.iter().filter(|(page, writes)| *writes == 0 && !hits.contains(page)).count();
        let free = self.cache.pages() as usize - self.pages.len();
        if misses.len() > replaceable + free {
            return Answer::Medium;
        }
        for page in &hits {
            *self.writes_of(*page) += 1;
        }
        for page in &misses {
            assert!(self.take(*page));
            *self.writes_of(*page) += 1;
        }
        Answer::Destage
    }

    fn end_destage(&mut self, pages: &[u64]) {
        if self.cache.kind == CacheKind::WriteBuffer {
            self.buffered -= pages.len();
        } else {
            pages.iter().for_each(|page| *self.writes_of(*page) -= 1);
        }
    }
}

/// A transfer of neighbouring pages and their numbers.
fn draw(random: &mut Random, direction: Direction) -> (Transfer, Vec<u64>) {
    let first = if random.chance(0.5) { random.below(8) } else { random.below(40) };
    let count = if random.chance(0.8) { 1 } else { random.between(2, 4) };
    let transfer = Transfer { direction, file: 3, offset: first * PAGE, length: (count * PAGE) as u32, fresh: false };
    (transfer, (first..first + count).collect())
}

fn agrees(cache: &Cache, seed: u64) {
    let mut random = Random::stream(seed, "caches");
    let mut model = DiskCache::new(cache, false);
    let mut naive = Naive { cache: cache.clone(), pages: Vec::new(), buffered: 0 };
    let mut reads: Vec<(Transfer, Vec<u64>)> = Vec::new();
    let mut writes: Vec<(Transfer, Vec<u64>)> = Vec::new();
    let (mut hits, mut absorbed) = (0, 0);
    for _ in 0..3_000 {
        match random.below(4) {
            0 => {
                let (transfer, pages) = draw(&mut random, Direction::Read);
                let answer = model.arrive(&transfer);
                assert_eq!(answer, naive.read(&pages), "{cache:?}: reading {pages:?}");
                match answer {
                    Answer::Medium => reads.push((transfer, pages)),
                    _ => hits += 1,
                }
            }
            1 => {
                let (transfer, pages) = draw(&mut random, Direction::Write { durable: true });
                let answer = model.arrive(&transfer);
                assert_eq!(answer, naive.write(&pages), "{cache:?}: writing {pages:?}");
                if answer == Answer::Destage {
                    absorbed += 1;
                    writes.push((transfer, pages));
                }
            }
            2 if !reads.is_empty() => {
                let (transfer, pages) = reads.remove(random.below(reads.len() as u64) as usize);
                model.end_read(&transfer);
                naive.end_read(&pages);
            }
            3 if !writes.is_empty() => {
                let (transfer, pages) = writes.remove(random.below(writes.len() as u64) as usize);
                model.end_destage(&transfer);
                naive.end_destage(&pages);
            }
            _ => {}
        }
    }
    let counts = model.counts()[&3];
    assert_eq!((counts.read_hits, counts.absorbed), (hits, absorbed));
    assert!(counts.reads > 500 && counts.writes > 500, "{counts:?}");
    let caches_reads = cache.kind != CacheKind::WriteBuffer && (cache.read_misses || cache.write_misses);
    assert_eq!(hits > 0, caches_reads, "{cache:?}");
    assert_eq!(absorbed > 0, cache.kind != CacheKind::Volatile);
    assert!(cache.kind == CacheKind::Volatile || absorbed < counts.writes, "the cache was full at times");
}

#[test]
fn every_kind_keeps_the_rules_of_the_study() {
    for (_, kind) in CacheKind::WORDS {
        for pages in [1, 5, 12] {
            for seed in 0..6 {
                agrees(&Cache::new(kind, CacheSize::Pages(pages)), seed);
            }
        }
    }
    let volatile = Cache::new(CacheKind::Volatile, CacheSize::Pages(12));
    let non_volatile = Cache::new(CacheKind::NonVolatile, CacheSize::Bytes(12 * PAGE));
    agrees(&Cache { write_misses: true, ..volatile.clone() }, 7);
    agrees(&Cache { write_misses: true, read_misses: false, ..volatile }, 8);
    agrees(&Cache { read_misses: false, ..non_volatile }, 9);
}

#[test]
fn a_page_that_awaits_its_write_is_not_replaced() {
    let mut cache = DiskCache::new(&Cache::new(CacheKind::NonVolatile, CacheSize::Pages(2)), false);
    let write = |page| Transfer {
        direction: Direction::Write { durable: true },
        file: 0,
        offset: page * PAGE,
        length: 4096,
        fresh: false,
    };
    let read = |page| Transfer { direction: Direction::Read, ..write(page) };
    assert_eq!(cache.arrive(&write(1)), Answer::Destage);
    assert_eq!(cache.arrive(&write(2)), Answer::Destage);
    assert_eq!(cache.arrive(&write(3)), Answer::Medium, "both pages await their writes");
    assert_eq!(cache.arrive(&write(1)), Answer::Destage, "a write hit needs no room");
    cache.end_destage(&write(1));
    assert_eq!(cache.arrive(&write(3)), Answer::Medium, "the second write of page 1 is under way");
    cache.end_destage(&write(1));
    assert_eq!(cache.arrive(&write(3)), Answer::Destage);
    assert_eq!(cache.arrive(&read(1)), Answer::Medium, "it made room, though used after page 2");
    assert_eq!(cache.arrive(&read(2)), Answer::Done);
}
