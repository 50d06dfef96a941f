//! The latest version of each record that has any.
//!
//! They stand in the buckets of a table that grows by one bucket at a time ([`Addressing`]). So nothing stops for it to grow,
//! and a look-up is one access to memory, which can be asked for ahead: in a large table each access waits for page tables
//! and for the line, so that it is not an entry but the wait for it that costs.
//!
//! ```text
//! a bucket's lines, of eight words: 7 numbers of records, link to an overflow bucket
//!                                   7 places (their complements; 0: free), 4 partitions
//!                                   7 commits, 3 partitions
//! ```
//!
//! A hash map that grows to half a million entries stops the thread for tens of milliseconds; this table grows in
//! steps, and expired entries leave it in steps. A record's first change since a snapshot costs one bucket, which is
//! prefetched before the lock is taken. A commit finds the entry again by name, because entries move when a bucket is
//! split. An index that led to entries elsewhere needed two accesses, and the wait for the second was a third of what a
//! long reader cost a transaction.
//!
//! First updater wins by this table: a change at snapshot level looks at one entry after it has its lock. The levels
//! below serializable lock and pass gaps for what they change, as all do, so serializable readers beside them stay
//! serializable.

use super::chain::{Link, Target};
use base::PartitionId;
use structures::hash_index::{Addressing, LINK, Split, lowest, which};
use structures::lines::{LINE_BYTES, Lines};
use structures::lock::Resource;

const NUMBERS: usize = 0;
const PLACES: usize = 1;
const COMMITS: usize = 2;
/// Lines of a bucket.
const LINES: usize = 3;
/// The word of four partitions, in [`PLACES`] and in [`COMMITS`].
const PARTITIONS: usize = 7;
const IN_WORD: usize = 4;

/// Unneeded entries are looked for when there are at least this many more entries than after the last time.
const SWEPT_MIN: usize = 4096;
/// How many buckets are examined together, at least.
const SWEPT_TOGETHER: usize = 16;

/// A bucket's number among those of its kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bucket {
    Primary(usize),
    Overflow(usize),
}

/// Where an entry is until the next one is added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct EntryPlace {
    bucket: Bucket,
    position: usize,
}

/// Where the chains of all records begin that have one.
pub(super) struct Heads {
    addressing: Addressing,
    buckets: Lines,
    overflow: Lines,
    /// The first unused overflow bucket, plus 1; they are linked.
    unused: u64,
    count: usize,
    /// The number of entries that the last round left.
    swept: usize,
    /// The bucket where the present one goes on; 0 if there is none.
    hand: usize,
    /// How many were added since it last went on.
    added: usize,
}

impl Default for Heads {
    fn default() -> Heads {
        let (addressing, mut buckets) = (Addressing::of(Addressing::BUCKETS_MIN), Lines::default());
        buckets.grow_to(LINES * Addressing::BUCKETS_MIN);
        let overflow = Lines::default();
        Heads { addressing, buckets, overflow, unused: 0, count: 0, swept: 0, hand: 0, added: 0 }
    }
}

impl Heads {
    /// How many records have a chain.
    #[cfg(test)]
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// About how many bytes they take.
    pub(super) fn bytes(&self) -> u64 {
        (self.count * Addressing::bytes_each(LINES * LINE_BYTES)) as u64
    }

    fn bucket_count(&self) -> usize {
        self.buckets.count() / LINES
    }

    #[inline]
    fn line(&self, bucket: Bucket, line: usize) -> &[u64; 8] {
        match bucket {
            Bucket::Primary(number) => self.buckets.line(number * LINES + line),
            Bucket::Overflow(number) => self.overflow.line(number * LINES + line),
        }
    }

    #[inline]
    fn line_mut(&mut self, bucket: Bucket, line: usize) -> &mut [u64; 8] {
        match bucket {
            Bucket::Primary(number) => self.buckets.line_mut(number * LINES + line),
            Bucket::Overflow(number) => self.overflow.line_mut(number * LINES + line),
        }
    }

    #[inline]
    fn next(&self, bucket: Bucket) -> Option<Bucket> {
        let link = self.line(bucket, NUMBERS)[LINK];
        (link != 0).then(|| Bucket::Overflow(link as usize - 1))
    }

    /// A bucket and those that it overflows into.
    #[cfg(test)]
    fn chain(&self, number: usize) -> impl Iterator<Item = Bucket> {
        std::iter::successors(Some(Bucket::Primary(number)), |bucket| self.next(*bucket))
    }

    /// The entries of a bucket.
    fn slots(&self, bucket: Bucket) -> impl Iterator<Item = EntryPlace> + use<> {
        let mut taken = which(self.line(bucket, PLACES), |place| place != 0);
        std::iter::from_fn(move || {
            let position = (taken != 0).then(|| lowest(taken))?;
            taken &= taken - 1;
            Some(EntryPlace { bucket, position })
        })
    }

    /// Asks for what a look-up of the record waits for.
    #[inline]
    pub(super) fn prefetch(&self, name: Resource) {
        let bucket = Bucket::Primary(self.addressing.bucket(name.hash_bits()));
        (0..LINES).for_each(|line| driver::prefetch(self.line(bucket, line)));
    }

    /// Where the record's entry is, if it has one.
    #[inline]
    pub(super) fn find(&self, name: Resource) -> Option<EntryPlace> {
        let (partition, number) = name.as_record();
        let mut bucket = Bucket::Primary(self.addressing.bucket(name.hash_bits()));
        loop {
            let mut candidates = which(self.line(bucket, NUMBERS), |found| found == number);
            while candidates != 0 {
                let slot = EntryPlace { bucket, position: lowest(candidates) };
                if self.line(bucket, PLACES)[slot.position] != 0 && self.partition(slot) == partition {
                    return Some(slot);
                }
                candidates &= candidates - 1;
            }
            bucket = self.next(bucket)?;
        }
    }

    #[inline]
    fn partition(&self, slot: EntryPlace) -> PartitionId {
        let (line, lane) = lane(slot);
        PartitionId((self.line(slot.bucket, line)[PARTITIONS] >> (16 * lane)) as u16)
    }

    fn name(&self, slot: EntryPlace) -> Resource {
        Resource::record(self.partition(slot), self.line(slot.bucket, NUMBERS)[slot.position])
    }

    /// Where the chain begins whose entry is here.
    #[inline]
    pub(super) fn at(&self, slot: EntryPlace) -> Link {
        let EntryPlace { bucket, position } = slot;
        Link::of_words([!self.line(bucket, PLACES)[position], self.line(bucket, COMMITS)[position]])
    }

    /// Where the record's chain begins.
    #[inline]
    pub(super) fn get(&self, name: Resource) -> Link {
        self.find(name).map_or(Link::NOWHERE, |slot| self.at(slot))
    }

    /// The record's entry, and where its chain begins; if it has none, it has one that begins with `link` from now on.
    pub(super) fn find_or_add(&mut self, name: Resource, link: Link) -> (EntryPlace, Link) {
        debug_assert_ne!(link.target(), Target::Nowhere, "a chain begins somewhere");
        if let Some(slot) = self.find(name) {
            return (slot, self.at(slot));
        }
        self.count += 1;
        self.added += 1;
        if Addressing::is_crowded(self.count, self.bucket_count()) {
            self.grow();
        }
        (self.put(self.addressing.bucket(name.hash_bits()), name, link), Link::NOWHERE)
    }

    /// Puts an entry into a bucket or its overflow.
    fn put(&mut self, bucket: usize, name: Resource, link: Link) -> EntryPlace {
        let mut bucket = Bucket::Primary(bucket);
        loop {
            let free = which(self.line(bucket, PLACES), |place| place == 0);
            if free != 0 {
                return self.write(EntryPlace { bucket, position: lowest(free) }, name, link);
            }
            match self.next(bucket) {
                Some(next) => bucket = next,
                None => break,
            }
        }
        let added = self.take_overflow();
        self.line_mut(bucket, NUMBERS)[LINK] = added as u64 + 1;
        self.write(EntryPlace { bucket: Bucket::Overflow(added), position: 0 }, name, link)
    }

    fn write(&mut self, slot: EntryPlace, name: Resource, link: Link) -> EntryPlace {
        let ((partition, number), (line, lane)) = (name.as_record(), lane(slot));
        self.line_mut(slot.bucket, NUMBERS)[slot.position] = number;
        let partitions = &mut self.line_mut(slot.bucket, line)[PARTITIONS];
        *partitions = *partitions & !(0xffff << (16 * lane)) | u64::from(partition.0) << (16 * lane);
        self.point(slot, link);
        slot
    }

    fn point(&mut self, EntryPlace { bucket, position }: EntryPlace, link: Link) {
        let [place, commit] = link.words();
        self.line_mut(bucket, PLACES)[position] = !place;
        self.line_mut(bucket, COMMITS)[position] = commit;
    }

    /// An empty overflow bucket.
    fn take_overflow(&mut self) -> usize {
        let Some(number) = self.unused.checked_sub(1).map(|number| number as usize) else {
            let number = self.overflow.count() / LINES;
            self.overflow.grow_to((number + 1) * LINES);
            return number;
        };
        let link = &mut self.line_mut(Bucket::Overflow(number), NUMBERS)[LINK];
        self.unused = std::mem::take(link);
        number
    }

    /// Has the chain whose entry is here begin with `link`; the record has none any more if that leads nowhere.
    pub(super) fn set(&mut self, slot: EntryPlace, link: Link) {
        debug_assert_ne!(self.at(slot).target(), Target::Nowhere, "this entry is free");
        self.point(slot, link);
        if link.target() == Target::Nowhere {
            self.count -= 1;
        }
    }

    /// Splits the next bucket.
    fn grow(&mut self) {
        let Split { from, to, bit } = self.addressing.split();
        self.buckets.grow_to((to + 1) * LINES);
        let mut bucket = Bucket::Primary(from);
        loop {
            let next = self.next(bucket);
            for slot in self.slots(bucket) {
                let (name, link) = (self.name(slot), self.at(slot));
                let goes = name.hash_bits() >> bit & 1 == 1;
                if goes || bucket != Bucket::Primary(from) {
                    self.line_mut(bucket, PLACES)[slot.position] = 0;
                    self.put(if goes { to } else { from }, name, link);
                }
            }
            let link = match bucket {
                Bucket::Primary(_) => 0,
                Bucket::Overflow(number) => std::mem::replace(&mut self.unused, number as u64 + 1),
            };
            self.line_mut(bucket, NUMBERS)[LINK] = link;
            match next {
                Some(next) => bucket = next,
                None => break,
            }
        }
    }

    /// Removes some of the entries that `is_gone` says are not needed any more. They are looked for in rounds, each of which
    /// begins when there are twice as many entries as after the last, and in steps, so that no task waits for a whole round.
    pub(super) fn sweep(&mut self, is_gone: impl FnMut(Link) -> bool) {
        let buckets = SWEPT_TOGETHER + std::mem::take(&mut self.added);
        if self.hand > 0 || self.count > 2 * self.swept + SWEPT_MIN {
            self.sweep_some(buckets, is_gone);
        }
    }

    /// Takes out all those that `is_gone` says are of no use any more.
    pub(super) fn sweep_all(&mut self, is_gone: impl FnMut(Link) -> bool) {
        self.hand = 0;
        self.sweep_some(self.bucket_count(), is_gone);
    }

    fn sweep_some(&mut self, buckets: usize, mut is_gone: impl FnMut(Link) -> bool) {
        let to = self.bucket_count().min(self.hand + buckets);
        for number in self.hand..to {
            let mut rest = Some(Bucket::Primary(number));
            while let Some(bucket) = rest {
                for slot in self.slots(bucket) {
                    if is_gone(self.at(slot)) {
                        self.set(slot, Link::NOWHERE);
                    }
                }
                rest = self.next(bucket);
            }
        }
        self.hand = if to < self.bucket_count() { to } else { 0 };
        if self.hand == 0 {
            self.swept = self.count;
        }
    }

    /// Takes all out. Some of the memory is kept.
    pub(super) fn clear(&mut self) {
        if self.count == 0 && self.bucket_count() == Addressing::BUCKETS_MIN {
            return;
        }
        self.buckets.clear();
        self.overflow.clear();
        self.buckets.grow_to(LINES * Addressing::BUCKETS_MIN);
        self.addressing = Addressing::of(Addressing::BUCKETS_MIN);
        (self.unused, self.count, self.hand) = (0, 0, 0);
        (self.swept, self.added) = (0, 0);
    }

    /// Where each chain begins.
    #[cfg(test)]
    pub(super) fn links(&self) -> impl Iterator<Item = Link> {
        let slots = |bucket| self.slots(bucket);
        (0..self.bucket_count()).flat_map(|number| self.chain(number)).flat_map(slots).map(|slot| self.at(slot))
    }
}

/// Where the partition of an entry is: the line, and which of its word's four.
#[inline]
fn lane(slot: EntryPlace) -> (usize, usize) {
    if slot.position < IN_WORD { (PLACES, slot.position) } else { (COMMITS, slot.position - IN_WORD) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::{Lsn, Random};
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
            let (name, link) = (name(&mut random, names), Link::extent(0, step as usize, Lsn(step), None));
            assert_eq!(heads.get(resource(name)), model.get(&name).copied().unwrap_or(Link::NOWHERE));
            let (slot, found) = heads.find_or_add(resource(name), link);
            assert_eq!(found, model.get(&name).copied().unwrap_or(Link::NOWHERE));
            model.entry(name).or_insert(link);
            match random.below(8) {
                0..3 => {
                    heads.set(slot, link);
                    model.insert(name, link);
                }
                3..5 => {
                    heads.set(slot, Link::NOWHERE);
                    model.remove(&name);
                }
                _ => assert_eq!(heads.at(slot), model[&name]),
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
            let link = Link::extent(0, 0, Lsn(number), None);
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
        assert!(heads.bucket_count() < 60_000, "there are {} buckets", heads.bucket_count());
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
            let buckets = heads.bucket_count();
            let crowded = (0..buckets).filter(|number| heads.chain(*number).count() > 1).count();
            assert!(crowded * 4 < buckets, "{crowded} of {buckets} buckets overflow");
        }
    }
}
