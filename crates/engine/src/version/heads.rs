//! The latest version of each record that has any.
//!
//! A hash index leads to entries in chunks that never move. So nothing stops for a table to grow, a record that is changed for
//! the first time costs one look at a bucket, which can be asked for ahead, and a transaction that has changed one finds its
//! entry again by its place.

use super::chain::{Link, Target};
use super::spares::Spares;
use crate::hash_index::Index;
use crate::lock::Resource;
use base::{Lsn, PartitionId};

/// Entries of a chunk: 64 KiB.
const CHUNK: usize = 2048;

/// The gone are looked for when there are so many more entries than after the last time, at least.
const SWEPT_MIN: usize = 4096;
/// So many entries are looked at together, at least.
const SWEPT_TOGETHER: usize = 64;
/// So many for each that has been added: a round ends, however many are added meanwhile.
const SWEPT_EACH: usize = 4;

/// One record's, on half a cache line.
#[derive(Clone, Copy)]
#[repr(align(32))]
pub(super) struct Entry {
    name: Resource,
    /// Leads nowhere in a free entry, which has the number of the next one as its commit.
    link: Link,
}

/// Where the entry of a record is that has one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place(u64);

/// Where the chains of all records begin that have one.
pub(super) struct Heads {
    /// To entries' numbers, plus 1.
    index: Index,
    chunks: Vec<Vec<Entry>>,
    /// Memory for more.
    spares: Spares<Entry>,
    /// Entries that were ever made.
    made: u64,
    /// The first free one, plus 1; they are linked.
    free: u64,
    /// So many were left by the last round that looked for the gone.
    swept: usize,
    /// Where the present one goes on; 0 if there is none.
    hand: u64,
    /// How many were added since it last went on.
    added: usize,
}

impl Default for Heads {
    fn default() -> Heads {
        let blank = Entry { name: Resource::partition(PartitionId(u16::MAX)), link: Link::NOWHERE };
        let (index, chunks, spares) = (Index::new(), Vec::new(), Spares::new(CHUNK, blank));
        Heads { index, chunks, spares, made: 0, free: 0, swept: 0, hand: 0, added: 0 }
    }
}

#[inline]
fn entry(chunks: &[Vec<Entry>], number: u64) -> &Entry {
    &chunks[number as usize / CHUNK][number as usize % CHUNK]
}

#[inline]
fn find(index: &Index, chunks: &[Vec<Entry>], name: Resource, hash: u64) -> Option<Place> {
    index.find(hash, |place| entry(chunks, place - 1).name == name).map(|place| Place(place - 1))
}

impl Heads {
    /// Memory for more.
    pub(super) fn spares(&mut self) -> &mut Spares<Entry> {
        &mut self.spares
    }

    /// How many records have a chain.
    pub(super) fn count(&self) -> usize {
        self.index.count()
    }

    /// About how many bytes they take.
    pub(super) fn bytes(&self) -> u64 {
        (self.count() * (size_of::<Entry>() + Index::ENTRY_BYTES)) as u64
    }

    /// Asks for what a look-up of the record waits for.
    #[inline]
    pub(super) fn prefetch(&self, name: Resource) {
        self.index.prefetch(name.hash_bits());
    }

    /// Where the record's chain begins.
    #[inline]
    pub(super) fn get(&self, name: Resource) -> Link {
        find(&self.index, &self.chunks, name, name.hash_bits()).map_or(Link::NOWHERE, |place| self.at(place))
    }

    /// Where the chain of the record at this place begins.
    #[inline]
    pub(super) fn at(&self, place: Place) -> Link {
        entry(&self.chunks, place.0).link
    }

    /// The record's place, and where its chain begins; if it has none, it has one that begins with `link` from now on.
    pub(super) fn find_or_add(&mut self, name: Resource, link: Link) -> (Place, Link) {
        debug_assert_ne!(link.target(), Target::Nowhere, "a chain begins somewhere");
        let hash = name.hash_bits();
        if let Some(place) = find(&self.index, &self.chunks, name, hash) {
            return (place, self.at(place));
        }
        let place = self.take(Entry { name, link });
        self.index.insert(hash, place.0 + 1);
        self.added += 1;
        (place, Link::NOWHERE)
    }

    /// A place for one more entry.
    fn take(&mut self, new: Entry) -> Place {
        if let Some(place) = self.free.checked_sub(1).map(Place) {
            let entry = self.entry_mut(place);
            let next = entry.link.commit;
            *entry = new;
            self.free = next.0;
            return place;
        }
        let (place, number) = (Place(self.made), self.made as usize / CHUNK);
        if number == self.chunks.len() {
            self.chunks.push(self.spares.take());
        }
        self.chunks[number].push(new);
        self.made += 1;
        place
    }

    fn entry_mut(&mut self, place: Place) -> &mut Entry {
        &mut self.chunks[place.0 as usize / CHUNK][place.0 as usize % CHUNK]
    }

    /// Has the chain of the record at this place begin with `link`; the record has none any more if that leads nowhere.
    pub(super) fn set(&mut self, place: Place, link: Link) {
        let next = self.free;
        let entry = self.entry_mut(place);
        debug_assert_ne!(entry.link.target(), Target::Nowhere, "no record has a free entry");
        if link.target() != Target::Nowhere {
            entry.link = link;
            return;
        }
        entry.link = Link::NOWHERE;
        entry.link.commit = Lsn(next);
        let hash = entry.name.hash_bits();
        self.free = place.0 + 1;
        let was_there = self.index.remove(hash, place.0 + 1);
        assert!(was_there, "the index leads to every entry");
    }

    /// Takes out some of those that `is_gone` says are of no use any more. They are looked for in rounds, each of which begins
    /// when there are twice as many entries as after the last, and in steps, so that nobody waits for a whole round.
    pub(super) fn sweep(&mut self, is_gone: impl FnMut(Link) -> bool) {
        let steps = SWEPT_TOGETHER + SWEPT_EACH * std::mem::take(&mut self.added);
        if self.hand > 0 || self.count() > 2 * self.swept + SWEPT_MIN {
            self.sweep_some(steps, is_gone);
        }
    }

    /// Takes out all those that `is_gone` says are of no use any more.
    pub(super) fn sweep_all(&mut self, is_gone: impl FnMut(Link) -> bool) {
        self.hand = 0;
        self.sweep_some(self.made as usize, is_gone);
    }

    fn sweep_some(&mut self, steps: usize, mut is_gone: impl FnMut(Link) -> bool) {
        let (from, to) = (self.hand, self.made.min(self.hand + steps as u64));
        // Backward, so that neighbours are used again one after the other.
        for place in (from..to).rev().map(Place) {
            let link = self.at(place);
            if link.target() != Target::Nowhere && is_gone(link) {
                self.set(place, Link::NOWHERE);
            }
        }
        self.hand = if to < self.made { to } else { 0 };
        if self.hand == 0 {
            self.swept = self.count();
        }
    }

    /// Takes all out. Some of the memory is kept.
    pub(super) fn clear(&mut self) {
        if self.made == 0 {
            return;
        }
        self.index.clear();
        self.chunks.drain(..).for_each(|chunk| self.spares.give_back(chunk));
        (self.made, self.free, self.hand) = (0, 0, 0);
        (self.swept, self.added) = (0, 0);
    }

    /// Where each chain begins.
    #[cfg(test)]
    pub(super) fn links(&self) -> impl Iterator<Item = Link> {
        self.chunks.iter().flatten().map(|entry| entry.link).filter(|link| link.target() != Target::Nowhere)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Random;
    use std::collections::BTreeMap;

    /// Record numbers as organizations give them: consecutive, of pages and slots, hashes.
    fn name(random: &mut Random, names: u64) -> (u16, u64) {
        let number = random.below(names);
        match random.below(3) {
            0 => (0, number),
            1 => (1, in_pages(number)),
            _ => (2, Random::stream(number, "name").word()),
        }
    }

    /// The number of a record in its page, as append partitions have it.
    fn in_pages(number: u64) -> u64 {
        ((number / 40) << 16) | (number % 40)
    }

    fn resource((partition, number): (u16, u64)) -> Resource {
        Resource::record(PartitionId(partition), number)
    }

    fn check(heads: &Heads, model: &BTreeMap<(u16, u64), Link>) {
        assert_eq!(heads.count(), model.len());
        assert_eq!(heads.links().count(), model.len());
        for (name, link) in model {
            assert_eq!(heads.get(resource(*name)), *link, "{name:?}");
        }
    }

    /// Random use, as of a table of (partition, number); `names` of each partition.
    fn history(seed: u64, names: u64, steps: u64) {
        let mut random = Random::stream(seed, "heads");
        let (mut heads, mut model) = (Heads::default(), BTreeMap::new());
        for step in 1..=steps {
            let (name, link) = (name(&mut random, names), Link::extent(0, step as usize, Lsn(step), false));
            assert_eq!(heads.get(resource(name)), model.get(&name).copied().unwrap_or(Link::NOWHERE));
            let (place, found) = heads.find_or_add(resource(name), link);
            assert_eq!(found, model.get(&name).copied().unwrap_or(Link::NOWHERE));
            model.entry(name).or_insert(link);
            match random.below(8) {
                0..3 => {
                    heads.set(place, link);
                    model.insert(name, link);
                }
                3..5 => {
                    heads.set(place, Link::NOWHERE);
                    model.remove(&name);
                }
                _ => assert_eq!(heads.at(place), model[&name]),
            }
            if random.chance(10.0 / steps as f64) {
                let horizon = Lsn(random.below(step));
                heads.sweep_all(|link| link.commit < horizon);
                model.retain(|_, link| link.commit >= horizon);
                check(&heads, &model);
            }
            if random.chance(3.0 / steps as f64) {
                heads.clear();
                model.clear();
            }
        }
        check(&heads, &model);
    }

    #[test]
    fn they_agree_with_a_model() {
        history(1, 4, 2_000);
        history(2, 300, 20_000);
        history(3, 100_000, 100_000);
    }

    #[test]
    fn a_round_finds_all_the_gone_and_none_begins_without_need() {
        let mut heads = Heads::default();
        let add = |heads: &mut Heads, number: u64| {
            let link = Link::extent(0, 0, Lsn(number), false);
            heads.find_or_add(Resource::record(PartitionId(0), number), link);
        };
        let mut looked = 0;
        for number in 0..SWEPT_MIN as u64 {
            add(&mut heads, number);
            heads.sweep(|_| panic!("there are few"));
        }
        for number in SWEPT_MIN as u64..100_000 {
            add(&mut heads, number);
            heads.sweep(|_| {
                looked += 1;
                false
            });
        }
        assert!((100_000..300_000).contains(&looked), "{looked} entries were looked at for 100000");
        // As many are added as go all the time: no more room is taken than for some rounds.
        for number in 100_000..1_000_000 {
            add(&mut heads, number);
            heads.sweep(|link| link.commit < Lsn(number - 10_000));
        }
        assert!(heads.made < 250_000, "{} entries were made", heads.made);
        heads.sweep_all(|link| link.commit < Lsn(990_000));
        assert_eq!(heads.count(), 10_000);
        assert!(heads.links().all(|link| link.commit >= Lsn(990_000)));
    }

    #[test]
    fn numbers_of_records_spread_over_buckets() {
        for numbers in [|number| number, in_pages, |number| number << 32] {
            let mut heads = Heads::default();
            for number in 0..200_000 {
                heads.find_or_add(Resource::record(PartitionId(3), numbers(number)), Link::added(Lsn(1)));
            }
            let (buckets, crowded) = heads.index.crowded();
            assert!(crowded * 4 < buckets, "{crowded} of {buckets} buckets overflow");
        }
    }
}
