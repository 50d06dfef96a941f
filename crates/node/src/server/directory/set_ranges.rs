//! Where in sets transactions have read, and where others are going to change them.
//!
//! What nodes change of sets is made when they commit, so the gaps between the entries that there are, which the engine locks for its own
//! transactions, say nothing of entries that are to come: another entry may part a gap before. So what is locked are the engine's ranges of keys
//! ([`KeyRanges`], as its scans of b-trees hold them), which no change moves. Who has read a range holds it. Who is going to change a
//! record marks where it and its entries stand and will stand, and waits for those that have read around a mark; who reads
//! around one of another's waits for that. Both last to the end of the transaction.
//!
//! A transaction that waits watches one of those in its way, and is looked at again when that one ends: what waits for others costs the end of
//! a transaction nothing.
//!
//! One that is going to change something marks it, unless others wait already that are to read there: then it stands behind them, so that none
//! of these waits for ever. One that they wait for does not.

use super::all_of;
use crate::message::{ClientId, RecordLock, SetEntry, Transaction};
use base::{PageId, PartitionId};
use engine::canary::{self, Canary};
use engine::lock::{KeyRanges, KeySpan, Mark, Owner};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

type RangeOwner = (ClientId, Transaction);

/// The order of a set's records themselves, among those of its indexes, which have their positions.
pub const RECORDS: u16 = u16::MAX;
/// What a range or a mark takes beside its bytes, about.
const RANGE_SIZE: usize = 64;

/// Where an entry stands among those of all orders of a set.
fn stand(order: u16, of: &[u8]) -> Vec<u8> {
    [&order.to_be_bytes(), of].concat()
}

/// Where a record stands.
pub fn stand_of_record(key: &[u8]) -> Vec<u8> {
    stand(RECORDS, key)
}

/// Where the entry of a record stands.
pub fn stand_of_entry(entry: &SetEntry) -> Vec<u8> {
    stand(entry.index, &entry.of)
}

/// A part of an index: up to its end if there is no upper bound.
pub fn span_of_index(index: u16, from: &[u8], to: Bound<&[u8]>) -> KeySpan {
    let to = match to {
        Bound::Included(to) => Bound::Included(stand(index, to)),
        Bound::Excluded(to) => Bound::Excluded(stand(index, to)),
        Bound::Unbounded => Bound::Excluded(stand(index.saturating_add(1), &[])),
    };
    KeySpan::new(Bound::Included(&stand(index, from)), to.as_ref().map(Vec::as_slice))
}

/// That of one record.
pub fn span_of_record(key: &[u8]) -> KeySpan {
    let stand = stand_of_record(key);
    KeySpan::new(Bound::Included(&stand), Bound::Included(&stand))
}

/// That of all records, also of those that there are not.
pub fn span_of_records() -> KeySpan {
    KeySpan::new(Bound::Included(&stand_of_record(&[])), Bound::Unbounded)
}

/// What is locked.
#[derive(Clone, Debug)]
pub enum RangeLock {
    Read(Vec<KeySpan>),
    Change(Vec<Vec<u8>>),
}

impl RangeLock {
    /// How many bytes it takes, about.
    fn length(&self) -> usize {
        match self {
            RangeLock::Read(spans) => spans.iter().map(KeySpan::length).sum(),
            RangeLock::Change(stands) => stands.iter().map(Vec::len).sum(),
        }
    }
}

/// What is done when it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RangePurpose {
    /// The question of this number is asked again.
    Question(u64),
    /// That of this number is answered: entries may come and go.
    Entries(u64),
    /// A record is asked for again.
    Record(PageId, RecordLock),
}

/// A lock that is waited for. Marks are there already, unless it stands behind others that are to read there.
#[derive(Debug)]
pub struct WaitingRange {
    pub owner: RangeOwner,
    pub purpose: RangePurpose,
    number: Owner,
    partition: PartitionId,
    lock: RangeLock,
    since: u64,
    length: usize,
    /// One that is in its way, or was until it ended; or the one that it stands behind.
    watches: Owner,
}

/// What has come of it that others have ended, or wait no more.
#[derive(Debug)]
pub enum Progress {
    /// A transaction has the lock that it has waited for.
    Granted(WaitingRange),
    /// One has marked what it is going to change, and waits: others may wait for that.
    Marked(RangeOwner),
}

/// The names by which a transaction, and those that are committed with it, hold ranges and marks, and how many bytes these take.
#[derive(Default)]
struct RangeHolder {
    numbers: Vec<Owner>,
    bytes: usize,
    /// Numbers of records that they are to add to sets.
    reserved: BTreeSet<(PartitionId, u64)>,
}

/// All of them.
#[derive(Default)]
pub struct SetRanges {
    ranges: KeyRanges,
    holders: BTreeMap<RangeOwner, RangeHolder>,
    /// The bytes of all of each client's.
    bytes: BTreeMap<ClientId, usize>,
    owners: BTreeMap<Owner, RangeOwner>,
    next: u32,
    /// A transaction waits for one lock at a time.
    waiting: BTreeMap<RangeOwner, WaitingRange>,
    /// What they are to read.
    wanted: KeyRanges,
    /// Who watches whom, and who has watched one that has ended.
    watchers: BTreeMap<Owner, BTreeSet<RangeOwner>>,
    to_recheck: BTreeSet<(u64, RangeOwner)>,
    /// Questions that are being answered, one of a transaction.
    asked: BTreeMap<RangeOwner, u64>,
    /// How many locks were looked at that were waited for.
    #[cfg(test)]
    pub looked_at: usize,
}

impl SetRanges {
    fn number_of(&mut self, owner: RangeOwner) -> Owner {
        if let Some(number) = self.holders.get(&owner).and_then(|holder| holder.numbers.first()) {
            return *number;
        }
        while self.owners.contains_key(&Owner(self.next)) {
            self.next = self.next.wrapping_add(1);
        }
        let number = Owner(self.next);
        self.next = self.next.wrapping_add(1);
        self.owners.insert(number, owner);
        self.holders.entry(owner).or_default().numbers.push(number);
        self.note_bytes(owner, 0);
        number
    }

    /// The names of those whose locks are in the way of this one, as often as they are.
    fn blockers<'a>(
        &'a self,
        number: Owner,
        partition: PartitionId,
        lock: &'a RangeLock,
    ) -> impl Iterator<Item = Owner> + 'a {
        let (spans, stands) = match lock {
            RangeLock::Read(spans) => (&spans[..], &[][..]),
            RangeLock::Change(stands) => (&[][..], &stands[..]),
        };
        let markers = spans.iter().flat_map(move |span| self.ranges.markers_within(number, partition, span));
        let readers = stands.iter().flat_map(move |stand| self.ranges.readers_around(number, partition, stand));
        let own = self.owners.get(&number);
        markers.chain(readers).filter(move |other| self.owners.get(other) != own)
    }

    fn first_blocker(&self, number: Owner, partition: PartitionId, lock: &RangeLock) -> Option<Owner> {
        self.blockers(number, partition, lock).next()
    }

    /// Those that wait to read where this one is to mark something, since before it asked, and not for it.
    fn readers_ahead<'a>(&'a self, asked: &'a WaitingRange) -> impl Iterator<Item = Owner> + 'a {
        let (number, partition) = (asked.number, asked.partition);
        let stands = match &asked.lock {
            RangeLock::Read(_) => &[][..],
            RangeLock::Change(stands) => &stands[..],
        };
        let unmarked = stands.iter().filter(move |stand| !self.ranges.is_marked_by(number, partition, stand));
        let readers = unmarked.flat_map(move |stand| {
            let readers = self.wanted.readers_around(number, partition, stand);
            readers.filter(move |reader| !self.ranges.holds(*reader, partition, stand))
        });
        readers.filter(move |reader| {
            let waiting = self.owners.get(reader).and_then(|owner| self.waiting.get(owner));
            waiting.is_some_and(|reading| reading.since < asked.since) && !self.has_mark_in_the_way(number, *reader)
        })
    }

    /// Whether one has marked something that another one waits to read.
    fn has_mark_in_the_way(&self, number: Owner, reader: Owner) -> bool {
        let is_wanted = |partition, key: &[u8]| {
            self.wanted.holds(reader, partition, key) && !self.ranges.holds(reader, partition, key)
        };
        self.ranges.marks_of(number).any(|(partition, key)| is_wanted(partition, key))
    }

    /// Asks for a lock, which is waited for since this time if others are in its way, in place of whatever the transaction has waited for. False
    /// if it is.
    pub fn lock(
        &mut self,
        owner: RangeOwner,
        partition: PartitionId,
        (lock, purpose): (RangeLock, RangePurpose),
        since: u64,
    ) -> bool {
        self.stop_waiting(owner);
        let (number, length) = (self.number_of(owner), lock.length());
        let asked = WaitingRange { owner, purpose, number, partition, lock, since, length, watches: number };
        self.admit(asked).is_some()
    }

    /// Marks what is to be changed if none waits ahead, and gives a transaction the lock that it asks for if none is in the way. Otherwise it
    /// waits.
    fn admit(&mut self, asked: WaitingRange) -> Option<WaitingRange> {
        let ahead = self.readers_ahead(&asked).next();
        if ahead.is_none() {
            self.mark(&asked);
        }
        let blocker = ahead.or_else(|| self.first_blocker(asked.number, asked.partition, &asked.lock));
        let Some(watches) = blocker else {
            self.hold(asked.owner, asked.partition, &asked.lock);
            return Some(asked);
        };
        self.watchers.entry(watches).or_default().insert(asked.owner);
        if let RangeLock::Read(spans) = &asked.lock {
            for span in spans {
                let _number = self.wanted.hold(asked.number, asked.partition, span.clone());
            }
        }
        self.waiting.insert(asked.owner, WaitingRange { watches, ..asked });
        None
    }

    fn mark(&mut self, asked: &WaitingRange) {
        let RangeLock::Change(stands) = &asked.lock else { return };
        for stand in stands {
            if !self.ranges.is_marked_by(asked.number, asked.partition, stand) {
                self.ranges.mark(asked.number, asked.partition, stand, Mark::Intended);
                self.note_bytes(asked.owner, stand.len());
            }
        }
    }

    /// A transaction waits for its lock no more: those that stand behind it are looked at.
    fn stop_waiting(&mut self, owner: RangeOwner) {
        if let Some(stopped) = self.take_waiting(owner) {
            self.note_to_recheck(stopped.number, true);
        }
    }

    /// Takes out what waits, as it is to be looked at.
    fn take_waiting(&mut self, owner: RangeOwner) -> Option<WaitingRange> {
        let taken = self.waiting.remove(&owner)?;
        self.to_recheck.remove(&(taken.since, owner));
        self.wanted.end(taken.number, None);
        if let Some(watchers) = self.watchers.get_mut(&taken.watches) {
            watchers.remove(&owner);
            if watchers.is_empty() {
                self.watchers.remove(&taken.watches);
            }
        }
        Some(taken)
    }

    /// Those that watch this one are to be looked at: all, or the ones that stand behind it alone.
    fn note_to_recheck(&mut self, number: Owner, only_behind: bool) {
        let Some(watchers) = self.watchers.get(&number) else { return };
        let waiting = watchers.iter().filter_map(|owner| self.waiting.get(owner));
        let meant = waiting.filter(|waiting| !only_behind || !self.is_marked(waiting));
        let meant: Vec<(u64, RangeOwner)> = meant.map(|waiting| (waiting.since, waiting.owner)).collect();
        self.to_recheck.extend(meant);
    }

    /// Whether what one is to change is marked.
    fn is_marked(&self, waiting: &WaitingRange) -> bool {
        match &waiting.lock {
            RangeLock::Read(_) => true,
            RangeLock::Change(stands) => {
                stands.iter().all(|stand| self.ranges.is_marked_by(waiting.number, waiting.partition, stand))
            }
        }
    }

    fn hold(&mut self, owner: RangeOwner, partition: PartitionId, lock: &RangeLock) {
        let RangeLock::Read(spans) = lock else { return };
        let number = self.number_of(owner);
        if canary::is_planted(Canary::UnlockedSetRange) {
            return;
        }
        // What is read again takes nothing more.
        for span in spans {
            if self.ranges.holds_all(number, partition, span) {
                continue;
            }
            self.note_bytes(owner, span.length());
            let _number = self.ranges.hold(number, partition, span.clone());
        }
    }

    fn note_bytes(&mut self, owner: RangeOwner, length: usize) {
        if let Some(holder) = self.holders.get_mut(&owner) {
            holder.bytes += length + RANGE_SIZE;
            *self.bytes.entry(owner.0).or_default() += length + RANGE_SIZE;
        }
    }

    /// Looks at those that have watched one that has ended, or that have stood behind one that waits no more, until something has come of it.
    /// Those that wait on watch another one.
    pub fn advance(&mut self) -> Option<Progress> {
        while let Some((_, owner)) = self.to_recheck.pop_first() {
            #[cfg(test)]
            {
                self.looked_at += 1;
            }
            let Some(waiting) = self.take_waiting(owner) else { continue };
            let (number, was_marked) = (waiting.number, self.is_marked(&waiting));
            if let Some(granted) = self.admit(waiting) {
                self.note_to_recheck(number, true);
                return Some(Progress::Granted(granted));
            }
            if !was_marked && self.waiting.get(&owner).is_some_and(|waiting| self.is_marked(waiting)) {
                return Some(Progress::Marked(owner));
            }
        }
        None
    }

    /// A transaction asks a question that is answered later, in place of what it has asked before.
    pub fn ask(&mut self, owner: RangeOwner, number: u64) {
        self.asked.insert(owner, number);
    }

    /// A question is answered. False if it is not waited for any more.
    pub fn answer(&mut self, owner: RangeOwner, number: u64) -> bool {
        let is_asked = self.asked.get(&owner) == Some(&number);
        if is_asked {
            self.asked.remove(&owner);
        }
        is_asked
    }

    /// A transaction waits for nothing any more.
    pub fn withdraw(&mut self, owner: RangeOwner) {
        self.stop_waiting(owner);
        self.asked.remove(&owner);
    }

    /// No transaction of a client does.
    pub fn withdraw_all(&mut self, client: ClientId) {
        let waiting: Vec<RangeOwner> = self.waiting.range(all_of(client)).map(|(owner, _)| *owner).collect();
        waiting.into_iter().for_each(|owner| self.stop_waiting(owner));
        let asked: Vec<RangeOwner> = self.asked.range(all_of(client)).map(|(owner, _)| *owner).collect();
        for owner in asked {
            self.asked.remove(&owner);
        }
    }

    /// A transaction has ended.
    pub fn end(&mut self, owner: RangeOwner) {
        self.withdraw(owner);
        let Some(ended) = self.holders.remove(&owner) else { return };
        for number in ended.numbers {
            self.owners.remove(&number);
            self.ranges.end(number, None);
            self.note_to_recheck(number, false);
            self.watchers.remove(&number);
        }
        if let Some(bytes) = self.bytes.get_mut(&owner.0) {
            *bytes -= ended.bytes;
            if *bytes == 0 {
                self.bytes.remove(&owner.0);
            }
        }
    }

    /// A transaction has only what it has marked any more, and not what it has read.
    pub fn end_reads(&mut self, owner: RangeOwner) {
        let numbers = self.holders.get(&owner).map(|holder| holder.numbers.clone()).unwrap_or_default();
        for number in numbers {
            let marks = self.ranges.marks_of(number).map(|(partition, stand)| (partition, stand.to_vec()));
            let marks: Vec<(PartitionId, Vec<u8>)> = marks.collect();
            self.ranges.end(number, None);
            marks.iter().for_each(|(partition, stand)| self.ranges.mark(number, *partition, stand, Mark::Intended));
            self.note_to_recheck(number, false);
        }
    }

    /// What one transaction has is another's of the same client from now on, and it waits for nothing any more.
    pub fn pass(&mut self, from: RangeOwner, to: RangeOwner) {
        // Nor does any of them wait for another one.
        self.withdraw(from);
        if from == to {
            return;
        }
        let Some(passed) = self.holders.remove(&from) else { return };
        for number in &passed.numbers {
            self.owners.insert(*number, to);
        }
        let holder = self.holders.entry(to).or_default();
        holder.numbers.extend(passed.numbers);
        holder.reserved.extend(passed.reserved);
        holder.bytes += passed.bytes;
    }

    /// Whether a transaction may change what stands there: it has marked it, and no other has read around it.
    pub fn may_change(&self, owner: RangeOwner, partition: PartitionId, stand: &[u8]) -> bool {
        let Some(holder) = self.holders.get(&owner) else { return false };
        let marks = |number: &&Owner| self.ranges.is_marked_by(**number, partition, stand);
        let Some(number) = holder.numbers.iter().find(marks) else { return false };
        self.ranges.readers_around(*number, partition, stand).all(|other| holder.numbers.contains(&other))
    }

    /// A transaction is to add a record of this number to a set.
    pub fn reserve(&mut self, owner: RangeOwner, partition: PartitionId, number: u64) {
        let holder = self.holders.entry(owner).or_default();
        holder.reserved.insert((partition, number));
        self.note_bytes(owner, 0);
    }

    /// Whether it is.
    pub fn has_reserved(&self, owner: RangeOwner, partition: PartitionId, number: u64) -> bool {
        self.holders.get(&owner).is_some_and(|holder| holder.reserved.contains(&(partition, number)))
    }

    /// The bytes that ranges and marks of a client's transactions take, about.
    pub fn bytes_of(&self, client: ClientId) -> usize {
        let waiting = self.waiting.range(all_of(client));
        self.bytes.get(&client).copied().unwrap_or(0) + waiting.map(|(_, waiting)| waiting.length).sum::<usize>()
    }

    /// How many questions a client has that are not answered.
    pub fn questions_of(&self, client: ClientId) -> usize {
        self.waiting.range(all_of(client)).count() + self.asked.range(all_of(client)).count()
    }

    /// The transactions of a client that have ranges or marks.
    pub fn owners_of(&self, client: ClientId) -> Vec<RangeOwner> {
        self.holders.range(all_of(client)).map(|(owner, _)| *owner).collect()
    }

    /// Whether a transaction has locks, or fewer than this number of its client's have.
    pub fn may_lock(&self, owner: RangeOwner, owners_max: usize) -> bool {
        self.holders.contains_key(&owner) || self.holders.range(all_of(owner.0)).nth(owners_max - 1).is_none()
    }

    /// Whom a transaction waits for, and since when.
    pub fn waits_for(&self, owner: RangeOwner, found: &mut Vec<RangeOwner>) -> Option<u64> {
        let own = self.waiting.get(&owner)?;
        let blockers = self.blockers(own.number, own.partition, &own.lock);
        let numbers: BTreeSet<Owner> = blockers.chain(self.readers_ahead(own)).collect();
        found.extend(numbers.iter().filter_map(|number| self.owners.get(number)));
        Some(own.since)
    }

    /// Every transaction that waits.
    pub fn waiting_owners(&self) -> impl Iterator<Item = RangeOwner> {
        self.waiting.keys().copied()
    }

    /// Whether a transaction waits.
    pub fn is_waiting(&self, owner: RangeOwner) -> bool {
        self.waiting.contains_key(&owner)
    }

    /// Whether one of a client's does.
    pub fn has_waits(&self, client: ClientId) -> bool {
        self.waiting.range(all_of(client)).next().is_some()
    }

    /// How many locks are waited for.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    pub(super) fn check(&self) -> Result<(), String> {
        if !self.ranges.is_sound() {
            return Err("ranges of sets do not agree with those who have read them".to_owned());
        }
        for waiting in self.waiting.values() {
            let is_watched = self.watchers.get(&waiting.watches).is_some_and(|all| all.contains(&waiting.owner));
            let blockers = self.blockers(waiting.number, waiting.partition, &waiting.lock);
            let mut blockers = blockers.chain(self.readers_ahead(waiting));
            if !is_watched || !blockers.any(|number| number == waiting.watches) {
                return Err(format!("{waiting:?} does not watch one that is in its way"));
            }
        }
        if self.watchers.values().map(BTreeSet::len).sum::<usize>() > self.waiting.len() || !self.to_recheck.is_empty()
        {
            return Err("one watches for a lock in a set that waits for none, or may have it".to_owned());
        }
        let held: BTreeSet<(Owner, RangeOwner)> = self
            .holders
            .iter()
            .flat_map(|(owner, holder)| holder.numbers.iter().map(|number| (*number, *owner)))
            .collect();
        let named: BTreeSet<(Owner, RangeOwner)> =
            self.owners.iter().map(|(number, owner)| (*number, *owner)).collect();
        let mut counted: BTreeMap<ClientId, usize> = BTreeMap::new();
        self.holders.iter().for_each(|(owner, holder)| *counted.entry(owner.0).or_default() += holder.bytes);
        if counted != self.bytes {
            return Err(format!("ranges of sets take {counted:?} bytes, {:?} are counted", self.bytes));
        }
        if held == named { Ok(()) } else { Err("ranges of sets are held under unknown names".to_owned()) }
    }
}
