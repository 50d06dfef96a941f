//! What is kept, and from when on: the hooks of changes, and the first reader.

use super::chain::Before;
use super::part::Part;
use super::{Ghost, OwnChange, Records, UndoLists, VersionStore};
use crate::catalog::{Locking, Organization};
use base::{Lsn, PageId, PartitionId};
use std::rc::Rc;
use structures::canary::{self, Canary};
use structures::key_hash;
use structures::lock::{Owner, Resource};
use structures::organization::allocator;
use structures::organization::append::{self, Position};
use structures::page::{self, Edit, Pages, slotted};
use structures::set::SetVersion;
use structures::undo::Undo;
use structures::undo::UndoList;

/// What a record was before a change.
pub(super) struct Image<'a> {
    pub before: Before<'a>,
    /// The part of it that the change is within, which is enough if no view needs all of it.
    pub part: Option<Part>,
    /// What led scans to the record before and does not any more.
    pub ghosts: Vec<Ghost>,
}

impl<'a> Image<'a> {
    fn of(before: Before<'a>) -> Image<'a> {
        let part = matches!(before, Before::Patch(..)).then_some(Part::UNKNOWN);
        Image { before, part, ghosts: Vec::new() }
    }
}

/// An object of a direct partition of which these bytes at this place of a page are a part: its number, where the part begins in it, and
/// whether that is all of it. `None` if there is no such object.
pub(super) fn object_at(records: Records<'_>, page: PageId, offset: u16, length: usize) -> Option<(u64, usize, bool)> {
    let partitions = records.partitions.borrow();
    let Organization::Direct { blocking_factor, record_size, .. } =
        partitions.get_or_hidden(page.partition)?.organization
    else {
        return None;
    };
    let (at, size) = (usize::from(offset).checked_sub(page::HEADER_SIZE)?, record_size as usize);
    let (slot, from) = (at / size, at % size);
    let is_one = slot < blocking_factor as usize && length > 0 && from + length <= size;
    is_one.then(|| (u64::from(page.number) * u64::from(blocking_factor) + slot as u64, from, length == size))
}

impl VersionStore {
    /// Keeps what a record was before an update that is about to be made.
    #[cold]
    pub(crate) fn keep_before(
        &self,
        records: Records<'_>,
        (owner, number): (Owner, usize),
        is_serializable: bool,
        undo: &Undo<'_>,
        edits: &[Edit<'_>],
    ) {
        if let Undo::EraseAppended { page, slot } = *undo
            && is_serializable
            && self.leave_addition_out(records, (owner, number), Position { page, slot })
        {
            return;
        }
        let Undo::PatchValue { partition, key, offset, bytes: changed } = *undo else {
            return self.keep_undo(records, owner, number, undo);
        };
        let [Edit { page, change: page::Change::PatchValue { slot, .. } }] = *edits else {
            unreachable!("a part of a value is changed by one edit")
        };
        let pool = records.buffer.pool().borrow();
        let bytes = pool.peek(page).expect("the plan of the change saw the page");
        let value = slotted::value(bytes, slot);
        let name = Resource::record(partition, key_hash(key));
        let from = usize::from(offset);
        let part =
            Part::around(from..from + changed.len()).filter(|part| part.within(value.len()).len() * 2 < value.len());
        let image = Image { part, ..Image::of(Before::Value(value)) };
        self.keep(records, (owner, OwnChange::Update(number)), name, (partition, key), image);
    }

    /// Keeps what an update has to put back: what the record was, or the part of it that has changed.
    pub(super) fn keep_undo(&self, records: Records<'_>, owner: Owner, number: usize, undo: &Undo<'_>) {
        let (partition, key, before, ghosts) = match *undo {
            Undo::Remove { partition, key } => (partition, key, Before::Absent, Vec::new()),
            Undo::Insert { partition, key, value } => {
                (partition, key, Before::Value(value), vec![Ghost::in_tree(partition, key)])
            }
            Undo::Replace { partition, key, value } => (partition, key, Before::Value(value), Vec::new()),
            Undo::PatchValue { partition, key, offset, bytes } => {
                (partition, key, Before::Patch(u32::from(offset), bytes), Vec::new())
            }
            Undo::PatchPage { page, offset, bytes } => {
                return self.keep_object(records, owner, number, (page, offset), bytes);
            }
            Undo::EraseAppended { page, slot } => {
                let record = append::number(Position { page, slot });
                let (name, key) = (Resource::record(page.partition, record), record.to_be_bytes());
                let change = (owner, OwnChange::Update(number));
                return self.keep(records, change, name, (page.partition, &key), Image::of(Before::Added));
            }
            Undo::FreePage { .. } => return,
        };
        let name = Resource::record(partition, key_hash(key));
        self.keep(
            records,
            (owner, OwnChange::Update(number)),
            name,
            (partition, key),
            Image { ghosts, ..Image::of(before) },
        );
    }

    /// Keeps what records were before the changes of a transaction that was found in the log.
    pub(crate) fn keep_list(&self, records: Records<'_>, owner: Owner, list: &UndoList) {
        for (number, stored) in list.iter().enumerate() {
            self.keep_undo(records, owner, number, &UndoList::decode(stored));
        }
    }

    /// The object of a direct partition of which these bytes at this place of a page are a part, if they are of one.
    pub(crate) fn object_of(&self, records: Records<'_>, (page, offset): (PageId, u16), length: usize) -> Option<u64> {
        object_at(records, page, offset, length).map(|(object, ..)| object)
    }

    /// Whether the addition of a record need not be kept one by one, because the record stands behind a fence. Sets a fence for
    /// the present snapshots if there is none.
    fn leave_addition_out(&self, records: Records<'_>, (owner, number): (Owner, usize), position: Position) -> bool {
        let (partition, mut versions) = (position.page.partition, self.versions.borrow_mut());
        let Some(newest) = versions.snapshots.newest().filter(|_| versions.is_lazy) else { return false };
        if let Some(first) = versions.fences.first_behind(partition, newest) {
            let is_behind = first <= append::number(position);
            if is_behind {
                versions.own.of(owner).leave_out(OwnChange::Update(number));
            }
            return is_behind;
        }
        // No record stands on a page that the partition does not have yet.
        let pages = {
            let pool = records.buffer.pool().borrow();
            pool.page(PageId::new(partition, 0)).map(|page| allocator::read(page).page_count)
        };
        if let Ok(pages) = pages {
            let begun = versions.latest;
            assert!(newest < begun, "a snapshot is older than the commits since it began");
            let first = Position { page: PageId::new(partition, pages), slot: 0 };
            versions.fences.set(partition, append::number(first), begun);
        }
        false
    }

    fn keep_object(
        &self,
        records: Records<'_>,
        owner: Owner,
        number: usize,
        (page, offset): (PageId, u16),
        bytes: &[u8],
    ) {
        let found = object_at(records, page, offset, bytes.len());
        let (object, from, is_whole) = found.expect("a change of a page is of an object, or of a part of one");
        let (name, key) = (Resource::record(page.partition, object), object.to_be_bytes());
        let before = if is_whole { Before::Value(bytes) } else { Before::Patch(from as u32, bytes) };
        let change = (owner, OwnChange::Update(number));
        self.keep(records, change, name, (page.partition, &key), Image::of(before));
    }

    fn keep(
        &self,
        records: Records<'_>,
        change: (Owner, OwnChange),
        name: Resource,
        record: (PartitionId, &[u8]),
        image: Image<'_>,
    ) {
        // Only the transaction that adds a record at the end of a partition can change it, so it needs no lock for that.
        let has_one_writer = {
            let partitions = records.partitions.borrow();
            let found = partitions.get_or_hidden(record.0).expect("what is changed exists");
            found.locking != Locking::None
                || matches!(found.organization, Organization::Append { .. } | Organization::Set { arrivals: true, .. })
        };
        if has_one_writer {
            self.versions.borrow_mut().keep(change, name, record, image);
        }
    }

    /// Keeps what records of sets were before the changes of a transaction that were not seen here yet.
    #[cold]
    pub(crate) fn keep_set_changes(&self, records: Records<'_>, owner: Owner) {
        let sets = records.sets.borrow();
        let (from, to) = (self.versions.borrow_mut().own.of(owner).of_sets, sets.changes(owner));
        for (number, version) in (from..to).zip(sets.versions_before(owner, from..to)) {
            let SetVersion { partition, key, before, deletes } = version;
            let change = (owner, OwnChange::OfSet(number));
            self.keep_set_record(records, change, (partition, &key), (before.as_deref(), deletes));
        }
        self.versions.borrow_mut().own.of(owner).of_sets = to;
    }

    /// Keeps what a record of a set was, and what leads scans to it that the sets do not have any more: its entries, and its key if it `is_gone`.
    pub(super) fn keep_set_record(
        &self,
        records: Records<'_>,
        change: (Owner, OwnChange),
        (partition, key): (PartitionId, &[u8]),
        (before, is_gone): (Option<&[u8]>, bool),
    ) {
        let sets = records.sets.borrow();
        let mut ghosts = Vec::new();
        if is_gone {
            ghosts.push(Ghost::in_set(partition, key));
        }
        if let Some(value) = before {
            let lost = |secondary, of: &[u8]| ghosts.push(Ghost::in_index((partition, secondary), (of, key)));
            sets.lost_entries(partition, key, value, lost);
        }
        let name = Resource::record(partition, key_hash(key));
        let image = Image { ghosts, ..Image::of(before.map_or(Before::Absent, Before::Value)) };
        self.keep(records, change, name, (partition, key), image);
    }

    /// From now on versions are kept for read views, including the changes that transactions under way have made.
    pub(crate) fn want(&self, records: Records<'_>, undo_lists: impl FnOnce() -> UndoLists) {
        let was_lazy = self.versions.borrow_mut().begin();
        let is_first = !self.is_kept.replace(true);
        if !is_first && !was_lazy {
            return;
        }
        for (owner, list) in undo_lists() {
            let first = {
                let mut versions = self.versions.borrow_mut();
                let own = versions.own.of(owner);
                let mut first_of_sets = None;
                if is_first {
                    (own.update_left_out, own.of_sets) = (Some(0), 0);
                } else if let Some(first) = own.of_sets_left_out.take() {
                    own.of_sets = first;
                    first_of_sets = Some(first);
                }
                let first = own.update_left_out.take();
                // A version kept since then of all of a record looks as if it covered a change before it that was left out.
                if !canary::is_planted(Canary::LateCover) && first.or(first_of_sets).is_some() {
                    versions.forget_own_from(owner, first.unwrap_or(usize::MAX), first_of_sets.unwrap_or(usize::MAX));
                }
                first
            };
            if let Some(first) = first {
                for (number, stored) in list.borrow().iter().enumerate().skip(first) {
                    self.keep_undo(records, owner, number, &UndoList::decode(stored));
                }
            }
            self.keep_set_changes(records, owner);
        }
    }

    /// From the opening on, if moments can be travelled to for a time: whether that is so.
    pub(crate) fn keep_moments(&self) -> bool {
        let (mut versions, present, now) = (self.versions.borrow_mut(), self.present(), self.now());
        let is_wanted = versions.keeps_all();
        if is_wanted && !self.is_rebuilt.get() {
            versions.horizon = present;
        }
        if is_wanted {
            versions.moments.note(now, present);
        }
        is_wanted
    }

    /// A view as of `at` is open from now on. [`VersionStore::want`] has to follow.
    pub(crate) fn enter_snapshot(&self, at: Lsn) {
        self.versions.borrow_mut().snapshots.enter(at);
    }

    /// The end of that.
    pub(crate) fn leave_snapshot(&self, at: Lsn) {
        self.versions.borrow_mut().snapshots.leave(at);
        self.relax();
    }

    /// A transaction reads without locks from now on. [`VersionStore::want`] has to follow.
    pub(crate) fn enter_reader(&self) {
        self.versions.borrow_mut().readers += 1;
    }

    /// The end of that.
    pub(crate) fn leave_reader(&self) {
        self.versions.borrow_mut().readers -= 1;
        self.relax();
    }

    /// Large transactions are under way that no reader may see: from the first reader on all is kept until they have ended.
    pub(crate) fn stay_kept(&self, stays: bool) {
        self.stays_kept.set(stays);
        if !stays {
            self.relax();
        }
    }

    fn relax(&self) {
        let mut versions = self.versions.borrow_mut();
        if versions.is_wanted() || self.stays_kept.get() {
            versions.purge(self.now());
        } else {
            versions.clear();
            self.is_kept.set(false);
        }
        drop(versions);
        self.tell_of_room();
    }

    /// A transaction is committed by the record at `commit`.
    #[inline]
    pub(crate) fn commit(self: &Rc<Self>, owner: Owner, commit: Lsn) {
        self.last_commit.set(commit);
        if self.is_kept.get() {
            self.versions.borrow_mut().commit(owner, commit, self.now());
            self.relieve_memory();
            self.tell_of_room();
        }
    }

    /// A transaction has undone its updates and its changes of sets from these numbers on.
    pub(crate) fn forget(&self, owner: Owner, updates: usize, of_sets: usize) {
        if self.is_kept.get() {
            self.versions.borrow_mut().roll_back_to(owner, updates, of_sets);
        }
    }
}
