//! What is kept, and from when on: the hooks of changes, and the first reader.

use super::chain::Before;
use super::part::Part;
use super::{Change, Ghost};
use crate::Database;
use crate::catalog::{Locking, Organization};
use crate::transaction::{Isolation, State, store_here};
use base::{Lsn, PageId, PartitionId};
use structures::key_hash;
use structures::lock::{Owner, Resource};
use structures::organization::append::{self, Position};
use structures::page::{self, Edit, slotted};
use structures::set::SetVersion;
use structures::undo::Undo;
use structures::undo::UndoList;

/// What a record was before a change.
pub(super) struct Image<'a> {
    pub before: Before<'a>,
    /// The part of it that the change is within, which is enough where nobody needs all of it.
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

impl Database {
    /// Keeps what a record was before an update that is about to be made.
    #[cold]
    pub(crate) fn keep_before(&self, state: &State, undo: &Undo<'_>, edits: &[Edit<'_>]) {
        let number = state.updates();
        if let Undo::EraseAppended { page, slot } = *undo
            && state.isolation() == Isolation::Serializable
            && self.leave_addition_out((state.owner, number), Position { page, slot })
        {
            return;
        }
        let Undo::PatchValue { partition, key, offset, bytes: changed } = *undo else {
            return self.keep_undo(state.owner, number, undo);
        };
        let [Edit { page, change: page::Change::PatchValue { slot, .. } }] = *edits else {
            unreachable!("a part of a value is changed by one edit")
        };
        let pool = self.0.buffer.pool().borrow();
        let bytes = pool.peek(page).expect("whoever planned the change saw the page");
        let value = slotted::value(bytes, slot);
        let name = Resource::record(partition, key_hash(key));
        let from = usize::from(offset);
        let part =
            Part::around(from..from + changed.len()).filter(|part| part.within(value.len()).len() * 2 < value.len());
        let image = Image { part, ..Image::of(Before::Value(value)) };
        self.keep((state.owner, Change::Update(number)), name, (partition, key), image);
    }

    /// Keeps what an update has to put back: what the record was, or the part of it that has changed.
    fn keep_undo(&self, owner: Owner, number: usize, undo: &Undo<'_>) {
        let (partition, key, before, ghosts) = match *undo {
            Undo::Remove { partition, key } => (partition, key, Before::Absent, Vec::new()),
            Undo::Insert { partition, key, value } => {
                (partition, key, Before::Value(value), vec![Ghost::in_tree(partition, key)])
            }
            Undo::Replace { partition, key, value } => (partition, key, Before::Value(value), Vec::new()),
            Undo::PatchValue { partition, key, offset, bytes } => {
                (partition, key, Before::Patch(u32::from(offset), bytes), Vec::new())
            }
            Undo::PatchPage { page, offset, bytes } => return self.keep_object(owner, number, (page, offset), bytes),
            Undo::EraseAppended { page, slot } => {
                let record = append::number(Position { page, slot });
                let (name, key) = (Resource::record(page.partition, record), record.to_be_bytes());
                let change = (owner, Change::Update(number));
                return self.keep(change, name, (page.partition, &key), Image::of(Before::Added));
            }
            Undo::FreePage { .. } => return,
        };
        let name = Resource::record(partition, key_hash(key));
        self.keep((owner, Change::Update(number)), name, (partition, key), Image { ghosts, ..Image::of(before) });
    }

    /// Whether nobody needs to be told one by one that a record was added, because it stands behind a fence. Sets one where
    /// there is none for the snapshots that are there.
    fn leave_addition_out(&self, (owner, number): (Owner, usize), position: Position) -> bool {
        let (partition, mut versions) = (position.page.partition, self.0.versions.borrow_mut());
        let Some(newest) = versions.snapshots.newest().filter(|_| versions.is_lazy) else { return false };
        if let Some(first) = versions.fences.first_behind(partition, newest) {
            let is_behind = first <= append::number(position);
            if is_behind {
                versions.own.of(owner).leave_out(Change::Update(number));
            }
            return is_behind;
        }
        // No record stands on a page that the partition does not have yet.
        if let Ok(pages) = self.append_page_count(partition) {
            let begun = versions.latest;
            assert!(newest < begun, "a snapshot is older than the commits since it began");
            let first = Position { page: PageId::new(partition, pages), slot: 0 };
            versions.fences.set(partition, append::number(first), begun);
        }
        false
    }

    fn keep_object(&self, owner: Owner, number: usize, (page, offset): (PageId, u16), bytes: &[u8]) {
        let found = self.0.partitions.borrow().get_or_hidden(page.partition).cloned();
        let found = found.expect("an update is of a partition that exists");
        let Organization::Direct { blocking_factor, record_size, .. } = found.organization else {
            unreachable!("only objects are changed by pages")
        };
        let slot = (usize::from(offset) - page::HEADER_SIZE) / record_size as usize;
        let object = u64::from(page.number) * u64::from(blocking_factor) + slot as u64;
        let (name, key) = (Resource::record(page.partition, object), object.to_be_bytes());
        self.keep((owner, Change::Update(number)), name, (page.partition, &key), Image::of(Before::Value(bytes)));
    }

    fn keep(&self, change: (Owner, Change), name: Resource, record: (PartitionId, &[u8]), image: Image<'_>) {
        // Nobody but who adds a record at the end of a partition can change it, so it needs no lock for that.
        let has_one_writer = {
            let partitions = self.0.partitions.borrow();
            let found = partitions.get_or_hidden(record.0).expect("what is changed exists");
            found.locking != Locking::None
                || matches!(found.organization, Organization::Append { .. } | Organization::Set { arrivals: true, .. })
        };
        if has_one_writer {
            self.0.versions.borrow_mut().keep(change, name, record, image);
        }
    }

    /// Keeps what records of sets were before the changes of a transaction that were not seen here yet.
    #[cold]
    pub(crate) fn keep_set_changes(&self, owner: Owner) {
        let sets = self.0.sets.borrow();
        let (from, to) = (self.0.versions.borrow_mut().own.of(owner).of_sets, sets.changes(owner));
        for (number, version) in (from..to).zip(sets.versions_before(owner, from..to)) {
            let SetVersion { partition, key, before, deletes } = version;
            let mut ghosts = Vec::new();
            if deletes {
                ghosts.push(Ghost::in_set(partition, &key));
            }
            if let Some(value) = &before {
                let lost = |secondary, of: &[u8]| ghosts.push(Ghost::in_index((partition, secondary), (of, &key)));
                sets.lost_entries(partition, &key, value, lost);
            }
            let name = Resource::record(partition, key_hash(&key));
            let before = before.as_deref().map_or(Before::Absent, Before::Value);
            let image = Image { ghosts, ..Image::of(before) };
            self.keep((owner, Change::OfSet(number)), name, (partition, &key), image);
        }
        self.0.versions.borrow_mut().own.of(owner).of_sets = to;
    }

    /// Somebody reads at moments of the past from now on: also what transactions have changed that are under way is kept.
    pub(super) fn want_versions(&self) {
        let was_lazy = self.0.versions.borrow_mut().begin();
        let is_first = !self.0.keeps_versions.replace(true);
        if !is_first && !was_lazy {
            return;
        }
        let lists = self.0.registry.borrow().undo_lists();
        for (owner, list) in lists {
            let first = {
                let mut versions = self.0.versions.borrow_mut();
                let own = versions.own.of(owner);
                if is_first {
                    (own.update_left_out, own.of_sets) = (Some(0), 0);
                } else if let Some(first) = own.of_sets_left_out.take() {
                    own.of_sets = first;
                }
                own.update_left_out.take()
            };
            if let Some(first) = first {
                for (number, stored) in list.borrow().iter().enumerate().skip(first) {
                    self.keep_undo(owner, number, &UndoList::decode(stored));
                }
            }
            self.keep_set_changes(owner);
        }
    }

    /// From the opening on, if moments can be travelled to for a time.
    pub(crate) fn keep_moments(&self) {
        if self.settings().undo.retention_ns > 0 {
            self.0.versions.borrow_mut().horizon = self.present();
            self.want_versions();
        }
    }

    /// Somebody reads as of `at` from now on.
    pub(crate) fn enter_snapshot(&self, at: Lsn) {
        self.0.versions.borrow_mut().snapshots.enter(at);
        self.want_versions();
    }

    /// The end of that.
    pub(crate) fn leave_snapshot(&self, at: Lsn) {
        self.0.versions.borrow_mut().snapshots.leave(at);
        self.relax_versions();
    }

    /// A transaction reads without locks from now on.
    pub(crate) fn enter_reader(&self) {
        self.0.versions.borrow_mut().readers += 1;
        self.want_versions();
    }

    /// The end of that.
    pub(crate) fn leave_reader(&self) {
        self.0.versions.borrow_mut().readers -= 1;
        self.relax_versions();
    }

    fn relax_versions(&self) {
        let mut versions = self.0.versions.borrow_mut();
        if versions.is_wanted() {
            versions.purge(self.0.executor.now());
        } else {
            versions.clear();
            self.0.keeps_versions.set(false);
        }
    }

    /// Before a commit that gives long values up: copies those that versions refer to, whose pages are freed soon.
    /// Where one cannot be read, the commit goes on, and snapshots from before it are given up.
    pub(crate) async fn keep_long_values(&self, owner: Owner) {
        let is_tree = |partition| {
            let partitions = self.0.partitions.borrow();
            partitions.get_or_hidden(partition).is_some_and(|found| found.organization == Organization::BTree)
        };
        while self.0.keeps_versions.get() {
            let referred = self.0.versions.borrow().long_value(owner, is_tree);
            let Some((number, partition, length, first)) = referred else { return };
            let fetched = self.fetch(partition, length, first).await;
            if self.0.versions.borrow().long_value(owner, is_tree) != referred {
                // The readers that it was for have gone meanwhile, and perhaps others have come.
                continue;
            }
            let Ok(value) = fetched else {
                self.0.versions.borrow_mut().own.of(owner).is_incomplete = true;
                return;
            };
            let mut stored = Vec::new();
            store_here(&value, &mut stored);
            self.0.versions.borrow_mut().replace(owner, number, &stored);
        }
    }

    /// A transaction is committed by the record at `commit`.
    #[inline]
    pub(crate) fn commit_versions(&self, state: &State, commit: Lsn) {
        // From here on there is nothing to take back, although the transaction has not left the tables.
        state.undo.borrow_mut().clear();
        self.0.last_commit.set(commit);
        if self.0.keeps_versions.get() {
            self.0.versions.borrow_mut().commit(state.owner, commit, self.0.executor.now());
            self.relieve_memory();
        }
    }

    /// A transaction has taken back its updates and its changes of sets from these numbers on.
    pub(crate) fn forget_versions(&self, state: &State, updates: usize, of_sets: usize) {
        if self.0.keeps_versions.get() {
            self.0.versions.borrow_mut().roll_back_to(state.owner, updates, of_sets);
        }
    }
}
