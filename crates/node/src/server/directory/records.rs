//! Locks of records of pages, beside the copies and the write locks of the pages themselves.

use super::{Directory, Kind, PageEntry, Waiting, all_of};
use crate::message::{ClientId, Copy, RecordLock, Transaction};
use base::PageId;
use std::collections::{BTreeMap, BTreeSet};

type RecordOwner = (ClientId, Transaction);

/// Which transactions have locks of records of one page, and whether for a change: by record, and by transaction, of which there may be as many as
/// records.
#[derive(Default)]
pub struct RecordLocks {
    records: BTreeMap<u16, BTreeMap<RecordOwner, bool>>,
    owners: BTreeMap<RecordOwner, BTreeMap<u16, bool>>,
    /// How many of all are for a change.
    changes: usize,
}

/// The owners of all locks of records.
#[derive(Default)]
pub struct RecordOwners {
    pages: BTreeMap<RecordOwner, BTreeSet<PageId>>,
    /// How many locks each client's transactions have.
    counts: BTreeMap<ClientId, usize>,
    /// Those that wait for one of a record, and of which page.
    asked: BTreeMap<RecordOwner, PageId>,
}

/// Whether two that want this of the same page are in each other's way.
fn excludes(one: Kind, other: Kind) -> bool {
    match (one, other) {
        (Kind::Record { slot, writes }, Kind::Record { slot: others, writes: also }) => {
            slot == others && (writes || also)
        }
        _ => true,
    }
}

fn is_of_record(waiting: &Waiting) -> bool {
    matches!(waiting.kind, Kind::Record { .. })
}

impl RecordLocks {
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// Whether one is for a change.
    pub fn has_change(&self) -> bool {
        self.changes > 0
    }

    /// Whether the owner has this lock, or a greater one.
    pub fn has(&self, owner: RecordOwner, slot: u16, writes: bool) -> bool {
        self.owners.get(&owner).and_then(|own| own.get(&slot)).is_some_and(|held| *held >= writes)
    }

    /// Whether it has any.
    pub fn has_any(&self, owner: RecordOwner) -> bool {
        self.owners.contains_key(&owner)
    }

    /// Whether it has one for a change.
    fn has_change_of(&self, owner: RecordOwner) -> bool {
        self.owners.get(&owner).is_some_and(|own| own.values().any(|writes| *writes))
    }

    /// All that have one.
    pub fn owners(&self) -> impl Iterator<Item = RecordOwner> {
        self.owners.keys().copied()
    }

    /// Whether no other client's transactions have one.
    pub fn are_of(&self, client: ClientId) -> bool {
        let ends = [self.owners.first_key_value(), self.owners.last_key_value()];
        ends.into_iter().flatten().all(|(owner, _)| owner.0 == client)
    }

    fn count(&self) -> usize {
        self.owners.values().map(BTreeMap::len).sum()
    }

    /// Those whose locks are in the way of this one.
    pub fn blockers(&self, owner: RecordOwner, slot: u16, writes: bool) -> impl Iterator<Item = RecordOwner> {
        let owners = self.records.get(&slot).into_iter().flatten();
        owners.filter(move |(other, also)| **other != owner && (writes || **also)).map(|(other, _)| *other)
    }

    /// Those whose locks are in the way of a copy of the page, or of its write lock.
    pub fn blockers_of_page(&self, writes: bool) -> impl Iterator<Item = RecordOwner> {
        let owners = self.owners.iter();
        owners.filter(move |(_, own)| writes || own.values().any(|also| *also)).map(|(owner, _)| *owner)
    }

    /// Whether these can be entered together beside those that are there.
    pub fn admits(&self, client: ClientId, locks: &[RecordLock]) -> bool {
        let mut together = RecordLocks::default();
        locks.iter().all(|lock| {
            let owner = (client, lock.transaction);
            let is_free = |table: &RecordLocks| table.blockers(owner, lock.slot, lock.writes).next().is_none();
            let may_be = is_free(self) && is_free(&together);
            together.enter(owner, lock.slot, lock.writes);
            may_be
        })
    }

    /// Enters a lock. False if the owner has had one of that record before.
    fn enter(&mut self, owner: RecordOwner, slot: u16, writes: bool) -> bool {
        let before = self.owners.entry(owner).or_default().insert(slot, writes);
        let writes = writes || before == Some(true);
        if before == Some(true) {
            self.owners.entry(owner).or_default().insert(slot, true);
        }
        self.records.entry(slot).or_default().insert(owner, writes);
        self.changes += usize::from(writes && before != Some(true));
        before.is_none()
    }

    /// Strikes out the locks of an owner and returns them.
    fn end(&mut self, owner: RecordOwner) -> BTreeMap<u16, bool> {
        let ended = self.owners.remove(&owner).unwrap_or_default();
        for (slot, writes) in &ended {
            self.changes -= usize::from(*writes);
            if let Some(owners) = self.records.get_mut(slot) {
                owners.remove(&owner);
                if owners.is_empty() {
                    self.records.remove(slot);
                }
            }
        }
        ended
    }

    fn check(&self) -> Result<(), String> {
        let is_odd = |owners: &&BTreeMap<RecordOwner, bool>| owners.len() > 1 && owners.values().any(|writes| *writes);
        if let Some(owners) = self.records.values().find(is_odd) {
            return Err(format!("a record is changed by one of {owners:?}, and locked by others"));
        }
        let by_record =
            self.records.iter().flat_map(|(slot, owners)| owners.iter().map(|(of, how)| (*of, *slot, *how)));
        let by_record: BTreeSet<(RecordOwner, u16, bool)> = by_record.collect();
        let by_owner = self.owners.iter().flat_map(|(of, own)| own.iter().map(|(slot, how)| (*of, *slot, *how)));
        let changes = by_record.iter().filter(|(.., writes)| *writes).count();
        if !by_owner.eq(by_record.iter().copied()) || changes != self.changes {
            return Err(format!("{by_record:?} are locked, and {:?}, {} for a change", self.owners, self.changes));
        }
        Ok(())
    }
}

impl PageEntry {
    /// The requests that are looked at first: all of records up to one of the page, or that alone.
    pub fn leading(&self) -> impl Iterator<Item = &Waiting> {
        let count = self.queue.iter().take_while(|waiting| is_of_record(waiting)).count().max(1);
        self.queue.iter().take(count)
    }

    /// Where a request is to stand in the queue: last. One that has locks of records already is not kept from others of them by
    /// those that want the page, which wait for it; nor is one kept from writing a page by those that wait for its copy. Those of records are
    /// not passed for that: they may have locks that the one that writes waits for.
    pub(super) fn place_of(&self, waiting: &Waiting) -> usize {
        let is_holder = self.records.has_any((waiting.client, waiting.transaction));
        match waiting.kind {
            Kind::Record { .. } if is_holder => self.leading().filter(|ahead| is_of_record(ahead)).count(),
            Kind::Write if !self.queue.front().is_some_and(is_of_record) => {
                self.queue.iter().take_while(|ahead| ahead.kind == Kind::Write).count()
            }
            _ => self.queue.len(),
        }
    }

    /// The places of requests of records that can be granted, from the first on; of changes only if there `may_be_changes`.
    pub fn grantable_records(&self, may_be_changes: bool) -> Vec<usize> {
        if self.writer.is_some() {
            return Vec::new();
        }
        let may_be_changed = self.copies.is_empty() && !self.is_arriving && may_be_changes;
        // The records that requests ahead want, and whether for a change.
        let mut wanted: BTreeMap<u16, bool> = BTreeMap::new();
        let mut places = Vec::new();
        for (place, waiting) in self.leading().enumerate() {
            let Kind::Record { slot, writes } = waiting.kind else { break };
            let ahead = wanted.get(&slot).copied();
            let is_first = ahead.is_none_or(|ahead| !ahead && !writes);
            let owner = (waiting.client, waiting.transaction);
            let is_free = || self.records.blockers(owner, slot, writes).next().is_none();
            if is_first && (may_be_changed || !writes) && is_free() {
                places.push(place);
            }
            wanted.insert(slot, writes || ahead == Some(true));
        }
        places
    }

    /// The copies that requests would be, which locks of records keep from them and which have not heard that.
    pub fn tell_of_records(&mut self) -> Vec<(ClientId, Copy)> {
        if self.records.is_empty() {
            return Vec::new();
        }
        let untold =
            self.queue.iter_mut().filter(|waiting| matches!(waiting.kind, Kind::Read { .. }) && !waiting.is_told);
        let told = untold.map(|waiting| {
            waiting.is_told = true;
            (waiting.client, waiting.copy)
        });
        told.collect()
    }

    /// Whom a request of this kind waits for because of what they have of records, or want of them.
    pub fn waits_by_records(&self, place: usize, found: &mut Vec<RecordOwner>) {
        let own = self.queue[place];
        let owner = (own.client, own.transaction);
        match own.kind {
            Kind::Record { slot, writes } => found.extend(self.records.blockers(owner, slot, writes)),
            kind => found.extend(self.records.blockers_of_page(kind.writes()).filter(|other| *other != owner)),
        }
        let ahead = self.queue.range(..place).rev().filter(|other| is_of_record(other) || is_of_record(&own));
        for other in ahead.filter(|other| excludes(other.kind, own.kind)) {
            found.extend(Some((other.client, other.transaction)).filter(|other| *other != owner));
            let is_change_of = |wanted| matches!(other.kind, Kind::Record { slot, writes: true } if slot == wanted);
            // What is further ahead, and in the way of this one, is in the way of that one, too.
            if matches!(own.kind, Kind::Record { slot, .. } if is_change_of(slot)) {
                break;
            }
        }
    }

    pub(super) fn check_records(&self) -> Result<(), String> {
        if self.writer.is_some() && !self.records.is_empty() {
            return Err("its page has a writer, and others have locks of its records".to_owned());
        }
        if self.records.has_change() && !self.copies.is_empty() {
            return Err("one of its records is being changed, and there are copies of the page".to_owned());
        }
        self.records.check()
    }
}

impl Directory {
    /// A transaction has the lock of a record from now on.
    pub fn lock_record(&mut self, client: ClientId, page: PageId, lock: RecordLock) {
        let owner = (client, lock.transaction);
        let is_new = self.entry(page).records.enter(owner, lock.slot, lock.writes);
        self.owners.pages.entry(owner).or_default().insert(page);
        *self.owners.counts.entry(client).or_default() += usize::from(is_new);
    }

    /// A transaction has no locks of records any more. Returns the pages; [`Directory::tidy`] is left to the caller.
    pub fn unlock_records(&mut self, owner: RecordOwner) -> BTreeSet<PageId> {
        let pages = self.owners.pages.remove(&owner).unwrap_or_default();
        pages.iter().for_each(|page| drop(self.take_records(owner, *page)));
        pages
    }

    /// The same, but for those for changes of pages that are changed.
    pub fn unlock_unchanged(&mut self, owner: RecordOwner, is_changed: impl Fn(PageId) -> bool) -> BTreeSet<PageId> {
        let pages = self.owners.pages.remove(&owner).unwrap_or_default();
        for page in &pages {
            for (slot, writes) in self.take_records(owner, *page) {
                if writes && is_changed(*page) {
                    self.lock_record(owner.0, *page, RecordLock { slot, transaction: owner.1, writes });
                }
            }
        }
        pages
    }

    /// The locks of one transaction are those of another one of the same client from now on.
    pub fn pass_records(&mut self, from: RecordOwner, to: RecordOwner) {
        for page in self.owners.pages.remove(&from).unwrap_or_default() {
            for (slot, writes) in self.take_records(from, page) {
                self.lock_record(to.0, page, RecordLock { slot, transaction: to.1, writes });
            }
        }
    }

    /// Takes a transaction's locks of records of a page out of that, and out of what is counted.
    fn take_records(&mut self, owner: RecordOwner, page: PageId) -> BTreeMap<u16, bool> {
        let taken = self.entry(page).records.end(owner);
        if let Some(count) = self.owners.counts.get_mut(&owner.0) {
            *count -= taken.len();
            if *count == 0 {
                self.owners.counts.remove(&owner.0);
            }
        }
        taken
    }

    /// Whether a transaction has the lock of a record, for a change.
    pub fn changes_record(&self, owner: RecordOwner, page: PageId, slot: u16) -> bool {
        self.pages.get(&page).is_some_and(|entry| entry.records.has(owner, slot, true))
    }

    /// Whether a transaction has the lock of any record of a page, for a change.
    pub fn changes_records(&self, owner: RecordOwner, page: PageId) -> bool {
        self.has_records(owner, page) && self.pages.get(&page).is_some_and(|entry| entry.records.has_change_of(owner))
    }

    /// Whether a transaction has locks of records of a page.
    fn has_records(&self, owner: RecordOwner, page: PageId) -> bool {
        self.owners.pages.get(&owner).is_some_and(|pages| pages.contains(&page))
    }

    /// How many locks of records a client's transactions have.
    pub fn records_held(&self, client: ClientId) -> usize {
        self.owners.counts.get(&client).copied().unwrap_or(0)
    }

    /// The transactions of a client that have locks of records.
    pub fn record_owners(&self, client: ClientId) -> Vec<RecordOwner> {
        self.owners.pages.range(all_of(client)).map(|(owner, _)| *owner).collect()
    }

    /// The request of a transaction for a record, if it waits.
    pub fn waiting_record(&mut self, owner: RecordOwner, page: PageId, slot: u16) -> Option<&mut Waiting> {
        let is_it = |waiting: &&mut Waiting| {
            let is_of_it = matches!(waiting.kind, Kind::Record { slot: wanted, .. } if wanted == slot);
            (waiting.client, waiting.transaction) == owner && is_of_it
        };
        self.pages.get_mut(&page)?.queue.iter_mut().find(is_it)
    }

    /// A request is put into the queue of its page.
    pub(super) fn note_asked(&mut self, waiting: &Waiting) {
        if is_of_record(waiting) {
            self.owners.asked.insert((waiting.client, waiting.transaction), waiting.copy.page);
        }
    }

    /// A transaction waits for a page no more, nor for its records.
    pub(super) fn end_asking(&mut self, owner: RecordOwner, page: PageId) {
        if self.owners.asked.get(&owner) == Some(&page) {
            self.owners.asked.remove(&owner);
        }
    }

    /// The page of which a transaction may wait for a record.
    pub fn record_asked_of(&self, owner: RecordOwner) -> Option<PageId> {
        self.owners.asked.get(&owner).copied()
    }

    pub(super) fn check_records(&self) -> Result<(), String> {
        for (page, entry) in &self.pages {
            entry.check_records().map_err(|error| format!("{page}: {error}"))?;
            if let Some(owner) = entry.records.owners().find(|owner| !self.has_records(*owner, *page)) {
                return Err(format!("{owner:?} has a lock of a record of {page} that is not counted"));
            }
        }
        let counted: usize = self.owners.counts.values().sum();
        let held: usize = self.pages.values().map(|entry| entry.records.count()).sum();
        let is_idle = |owner: &&RecordOwner| !self.waits.contains_key(owner);
        if let Some(owner) = self.owners.asked.keys().find(is_idle) {
            return Err(format!("{owner:?} should wait for a record, and waits for nothing"));
        }
        if counted == held {
            Ok(())
        } else {
            Err(format!("{counted} locks of records are counted, and there are {held}"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::{Instant, PartitionId, Random};

    fn request(random: &mut Random) -> Waiting {
        let (client, transaction) = (ClientId(random.below(3) as u32), Transaction(random.below(4)));
        let kind = match random.below(12) {
            0 => Kind::Write,
            _ => Kind::Record { slot: random.below(5) as u16, writes: random.chance(0.4) },
        };
        let copy = Copy { page: PageId::new(PartitionId(1), 1), number: 0 };
        Waiting::new((client, transaction), (copy, kind), Instant::from_ns(0))
    }

    /// One after another: the first that may have its lock and has none before it that is in its way.
    fn granted_one_by_one(entry: &mut PageEntry, may_be_changes: bool) -> Vec<(RecordOwner, u16, bool)> {
        let mut granted = Vec::new();
        loop {
            let may_have = |place: usize| {
                let Waiting { client, transaction, kind, .. } = entry.queue[place];
                let Kind::Record { slot, writes } = kind else { return None };
                let owner = (client, transaction);
                let is_first = entry.queue.iter().take(place).all(|ahead| !excludes(ahead.kind, kind));
                let is_free = entry.records.blockers(owner, slot, writes).next().is_none();
                (is_first && is_free && (may_be_changes || !writes)).then_some((place, (owner, slot, writes)))
            };
            let Some((place, found)) = (0..entry.leading().count()).find_map(may_have) else { return granted };
            entry.queue.remove(place);
            entry.records.enter(found.0, found.1, found.2);
            granted.push(found);
        }
    }

    /// Whom each of them waits for that stand in the queue: all that are ahead and in its way.
    fn all_ahead(entry: &PageEntry, place: usize) -> BTreeSet<RecordOwner> {
        let own = entry.queue[place];
        let ahead = entry.queue.iter().take(place).filter(|other| is_of_record(other) || is_of_record(&own));
        let ahead = ahead.filter(|other| excludes(other.kind, own.kind));
        ahead.map(|other| (other.client, other.transaction)).collect()
    }

    fn reached(from: RecordOwner, next: &BTreeMap<RecordOwner, BTreeSet<RecordOwner>>) -> BTreeSet<RecordOwner> {
        let (mut open, mut found) = (vec![from], BTreeSet::new());
        while let Some(owner) = open.pop() {
            open.extend(next.get(&owner).into_iter().flatten().filter(|other| found.insert(**other)));
        }
        found
    }

    #[test]
    fn whom_a_request_waits_for_is_named_once_or_by_way_of_another_one() {
        let mut fewer = 0;
        for seed in 0..1_000 {
            let mut random = Random::stream(seed, "waits for records");
            let mut entry = PageEntry::default();
            for number in 0..random.below(24) {
                let mut asked = request(&mut random);
                asked.transaction = Transaction(number / 2);
                let slot_of = |kind: Kind| if let Kind::Record { slot, .. } = kind { Some(slot) } else { None };
                let name = |waiting: &Waiting| (waiting.client, waiting.transaction, slot_of(waiting.kind));
                let is_again = entry.queue.iter().any(|other| name(other) == name(&asked));
                if !is_again {
                    entry.queue.push_back(asked);
                }
            }
            let (mut all, mut some): (BTreeMap<_, BTreeSet<_>>, BTreeMap<_, BTreeSet<_>>) = Default::default();
            for (place, own) in entry.queue.iter().enumerate() {
                let owner = (own.client, own.transaction);
                let mut found = Vec::new();
                entry.waits_by_records(place, &mut found);
                let mut ahead = all_ahead(&entry, place);
                ahead.remove(&owner);
                fewer += usize::from(found.len() < ahead.len());
                all.entry(owner).or_default().extend(ahead);
                some.entry(owner).or_default().extend(found);
            }
            for owner in all.keys() {
                assert_eq!(reached(*owner, &some), reached(*owner, &all), "seed {seed}");
            }
        }
        assert!(fewer > 500, "{fewer}");
    }

    /// Many that want to change one record: each search for a deadlock goes through all of them.
    #[test]
    fn as_many_waits_are_looked_at_as_there_are_requests() {
        let mut entry = PageEntry::default();
        let mut random = Random::stream(1, "one record");
        for number in 0..1_000 {
            let kind = Kind::Record { slot: 1, writes: true };
            entry.queue.push_back(Waiting { transaction: Transaction(number), kind, ..request(&mut random) });
        }
        let mut found = Vec::new();
        (0..1_000).for_each(|place| entry.waits_by_records(place, &mut found));
        assert_eq!(found.len(), 999);
    }

    #[test]
    fn what_is_granted_together_is_what_would_be_granted_one_by_one() {
        let mut several = 0;
        for seed in 0..2_000 {
            let mut random = Random::stream(seed, "records that are granted");
            let mut entry = PageEntry::default();
            for _ in 0..random.below(4) {
                let slot = random.below(5) as u16;
                let owner = (ClientId(random.below(3) as u32), Transaction(random.below(4)));
                if entry.records.blockers(owner, slot, true).next().is_none() {
                    entry.records.enter(owner, slot, random.chance(0.5));
                }
            }
            for _ in 0..random.below(12) {
                let asked = request(&mut random);
                let is_same = |other: &Waiting| {
                    let owner = (other.client, other.transaction);
                    owner == (asked.client, asked.transaction)
                        && !matches!((other.kind, asked.kind),
                        (Kind::Record { slot, .. }, Kind::Record { slot: also, .. }) if slot != also)
                };
                if !entry.queue.iter().any(is_same) {
                    entry.queue.push_back(asked);
                }
            }
            let may_be_changes = random.chance(0.8);
            let together: Vec<_> = entry
                .grantable_records(may_be_changes)
                .into_iter()
                .map(|place| {
                    let Waiting { client, transaction, kind, .. } = entry.queue[place];
                    let Kind::Record { slot, writes } = kind else { panic!("it is of a record") };
                    ((client, transaction), slot, writes)
                })
                .collect();
            several += usize::from(together.len() > 1);
            assert_eq!(together, granted_one_by_one(&mut entry, may_be_changes), "seed {seed}");
        }
        assert!(several > 300, "{several}");
    }
}
