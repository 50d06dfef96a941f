//! Versions: what records were before the changes that a snapshot does not see (multiversion two-phase locking; Lee et al.
//! 2008, section 4: rollback segments).
//!
//! Records are changed in place. While there are read views of past moments, every change keeps the *before image* of its
//! record beside its transaction; the commit moves it into *rollback segments*, append-only and in the order of commits, and
//! the record's *version chain* leads from its present state backward through them. A reader takes the present state and goes
//! back along the chain until everything left was committed by its moment. So it takes no locks, and no transaction waits for
//! it.
//!
//! A moment is a position of the log, a commit's time is that of its record: commits are ordered by their place in the log.
//! Without read views, nothing is kept and nothing is paid. Changes that transactions under way had made before the first view
//! opened are then found in their undo lists.
//!
//! A version is kept at a commit only if a snapshot lies between that commit and the one before it (Böttcher, Leis, Neumann
//! and Kemper: Steam, VLDB 2019), unless all moments of a time are kept to travel to. So a record that is changed again and
//! again beside one long reader has one version. The oldest are given up, extent by extent, as soon as no snapshot needs
//! them.
//!
//! Recent versions stay in memory. When they take more than their share of it, or are older than settings allow there, the
//! oldest extents are written to the *undo space* on its device, and readers of the distant past read them there, version by version.
//!
//! Nothing here is logged or recovered: rollback goes by undo lists, and a restart has no readers. Where moments can be read for a
//! time, an opening makes the versions again from the undo records in the log (`version/rebuild.rs`). A partition whose records
//! change without locks keeps no versions: its readers see the present. One that is created or bulk-loaded after a moment is
//! empty for that moment's readers.
//!
//! Versions are kept beside the records and not in them: the present state of a record is where it always was. So
//! pages, segments, log and redo know nothing of versions, and every organization has them alike. While no snapshot is in use, a change costs one look at a flag.
//!
//! A small change of a record keeps only the words that it changes, as Oracle's undo does (`version/part.rs`).

mod chain;
mod commit;
mod emptied;
mod entries;
mod fences;
mod ghosts;
mod heads;
mod history;
mod keep;
mod loads;
mod moments;
mod own;
mod pace;
mod part;
mod purge;
mod rebuild;
mod reconstruction;
mod settings;
mod snapshots;
mod space;
mod spares;
mod store;

#[cfg(test)]
pub(crate) mod tests;

pub(crate) use chain::Before;
pub(crate) use entries::{IndexEntry, Rest};
pub(crate) use ghosts::Ghost;
pub(crate) use own::OwnChange;
pub(crate) use pace::{ReaderPace, Readers};
pub(crate) use reconstruction::Reconstruction;
pub use settings::{FILE, UndoSettings};
pub(crate) use store::{Records, UndoLists, VersionStore};

use crate::Error;
use crate::catalog::EntryRange;
use base::{Instant, Lsn, PartitionId};
use chain::{Link, Target, Version};
use emptied::Emptied;
use fences::Fences;
use ghosts::Ghosts;
use heads::Heads;
use history::{FoundVersion, History};
use keep::Image;
use loads::Loads;
use moments::Moments;
use own::{Owners, Private};
use snapshots::Snapshots;
use std::ops::Bound;
use structures::canary::{self, Canary};
use structures::key_hash;
use structures::lock::{Owner, Resource};
use structures::organization::b_tree::stored::{self, Stored};

/// What a reader sees: what was committed up to a moment, and what its own transaction has done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct View {
    pub at: Lsn,
    pub owner: Owner,
}

/// All versions of a database.
#[derive(Default)]
pub(crate) struct Versions {
    settings: UndoSettings,
    snapshots: Snapshots,
    /// Transactions that read without locks; none keeps a snapshot between its calls if it reads what is committed.
    readers: usize,
    /// The latest version of each record that has any.
    heads: Heads,
    /// By owner.
    own: Owners,
    history: History,
    ghosts: Ghosts,
    fences: Fences,
    loads: Loads,
    emptied: Emptied,
    /// What was committed after it can be undone, as far as it is needed.
    horizon: Lsn,
    moments: Moments,
    /// Where a commit has moved versions to, while it does: memory that is used again.
    moved: Vec<Link>,
    /// Whether a change is kept only if a snapshot that is there needs it, because none has begun for many commits; the next
    /// one to begin looks into the undo lists of transactions under way.
    is_lazy: bool,
    /// The last commit.
    latest: Lsn,
    /// Commits since a snapshot began.
    commits: u32,
    /// Whether versions are on their way to the undo space.
    is_spilling: bool,
    /// Whether memory for more is on its way.
    is_growing: bool,
    /// Whether a task waits until versions are old.
    is_aging: bool,
    /// Why they could not be written there.
    failure: Option<Error>,
    given_up: u64,
}

/// What versions cost at present.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct VersionReport {
    /// Snapshots in use.
    pub snapshots: usize,
    /// The moment of the oldest.
    pub oldest: Option<Lsn>,
    /// Versions of committed changes.
    pub versions: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Bytes of them that are in memory; the others are in the undo space.
    pub memory_bytes: u64,
    /// How long ago the oldest of those was committed, in nanoseconds; `None` if there are none.
    pub memory_age_ns: Option<u64>,
    /// Extents of versions that were discarded although readers may have needed them, because they took too much room.
    pub given_up: u64,
    /// Why the undo space could not be written when it last was to be.
    pub failure: Option<Error>,
}

impl Versions {
    /// No versions; extents have `extent_size` bytes. Nothing before `began` can be read.
    pub(crate) fn new(settings: UndoSettings, extent_size: usize, began: Lsn) -> Versions {
        Versions { settings, history: History::new(extent_size), horizon: began, ..Versions::default() }
    }

    /// Whether read views of the past may exist.
    fn is_wanted(&self) -> bool {
        self.keeps_all() || self.readers > 0 || self.snapshots.count() > 0
    }

    /// Whether all moments can be travelled to for a time, so that every version is kept.
    fn keeps_all(&self) -> bool {
        self.settings.retention_ns > 0
    }

    /// A reader begins. Whether changes of transactions under way may not have been kept.
    fn begin(&mut self) -> bool {
        self.commits = 0;
        std::mem::take(&mut self.is_lazy)
    }

    /// Prefetches the memory that a change or a read of this record will need soon.
    #[inline]
    pub(crate) fn prefetch(&self, name: Resource) {
        self.heads.prefetch(name);
    }

    /// Keeps what a record was before a change of a transaction that holds its lock.
    fn keep(
        &mut self,
        (owner, change): (Owner, OwnChange),
        name: Resource,
        (partition, key): (PartitionId, &[u8]),
        Image { before, mut part, ghosts }: Image<'_>,
    ) {
        let own = self.own.of(owner);
        let number = own.versions.len();
        let (head, below) = self.heads.find_or_add(name, Link::private(owner, number, part));
        if below.target() != Target::Nowhere {
            let is_committed = matches!(below.target(), Target::Extent(..) | Target::Added);
            // A reader that goes back behind both changes does not need the state between them.
            let is_covered = below.covers(part);
            if self.is_lazy && is_committed && is_covered {
                // No snapshot lies behind the record's last commit. One that begins now looks into undo lists.
                if self.snapshots.newest().is_none_or(|newest| newest < below.commit) {
                    own.leave_out(change);
                    if let Target::Extent(extent, _) = below.target()
                        && self.history.has(extent)
                    {
                        // A snapshot that sees an earlier state has to find the record.
                        let new = ghosts.into_iter().filter(|ghost| self.history.add_ghost(extent, ghost));
                        new.for_each(|ghost| self.ghosts.add(&ghost));
                    }
                    return;
                }
            }
            if let Target::Private(of, earlier) = below.target() {
                debug_assert_eq!(of, owner, "two transactions change a record at a time");
                let earlier = &mut own.versions[earlier];
                for ghost in &ghosts {
                    if !earlier.ghosts.contains(ghost) {
                        self.ghosts.add(ghost);
                        earlier.ghosts.push(ghost.clone());
                    }
                }
                if is_covered {
                    return;
                }
            }
            if !is_covered && matches!(before, Before::Value(_)) {
                // All of it covers whatever is changed next: changes here and there leave no long chain.
                part = None;
            }
            self.heads.set(head, Link::private(owner, number, part));
        }
        ghosts.iter().for_each(|ghost| self.ghosts.add(ghost));
        let start = own.bytes.len();
        Version { below, partition, key, before: before.narrowed(part) }.encode(&mut own.bytes);
        own.versions.push(Private { record: Some(name), start, part, change, ghosts });
    }

    /// Has a record's chain begin with `link` if it begins with this one of a transaction's own versions.
    fn replace_private(&mut self, record: Resource, (owner, number): (Owner, usize), link: Link) {
        let slot = self.heads.find(record).expect("a record has a chain as long as it has a version");
        if self.heads.at(slot).target() == Target::Private(owner, number) {
            self.heads.set(slot, link);
        }
    }

    /// Drops the versions of an owner's changes, from the version of this number on, for which `goes` says that they are undone.
    fn drop_own(&mut self, (owner, first): (Owner, usize), goes: impl Fn(OwnChange) -> bool) {
        let count = self.own.of(owner).versions.len();
        for number in (first..count).rev() {
            let own = self.own.of(owner);
            let private = &mut own.versions[number];
            if !goes(private.change) {
                continue;
            }
            let Some(record) = private.record.take() else { continue };
            let ghosts = std::mem::take(&mut private.ghosts);
            let Version { below, .. } = Version::decode(own.stored(number)).expect("it was encoded");
            ghosts.iter().for_each(|ghost| self.ghosts.remove(ghost));
            self.replace_private(record, (owner, number), below);
        }
        let own = self.own.of(owner);
        while own.versions.last().is_some_and(|last| last.record.is_none()) {
            let last = own.versions.pop().expect("there is one");
            if !own.is_moved || own.versions.is_empty() {
                own.bytes.truncate(last.start);
            }
        }
    }

    /// The first of an owner's versions, from this number on, that refers to a long value: its number, and the value's partition, length
    /// and first page. `is_tree` says which partitions are b-trees: only their values can be long ones.
    pub(crate) fn long_value(
        &self,
        (owner, from): (Owner, usize),
        is_tree: impl Fn(PartitionId) -> bool,
    ) -> Option<(usize, PartitionId, usize, u32)> {
        let own = self.own.get(owner)?;
        own.versions.iter().enumerate().skip(from).find_map(|(number, private)| {
            private.record?;
            let version = Version::decode(own.stored(number)).expect("it was encoded");
            let Before::Value(value) = version.before else { return None };
            match is_tree(version.partition).then(|| stored::read(value)) {
                Some(Stored::Elsewhere(length, first)) => Some((number, version.partition, length, first)),
                _ => None,
            }
        })
    }

    /// Notes that a long value could not be kept: readers from before the transaction's commit are given up then.
    pub(crate) fn note_incomplete(&mut self, owner: Owner) {
        self.own.of(owner).is_incomplete = true;
    }

    /// The first of an owner's versions, from number `from` on, that precedes its update of this number or a later one, and whether it
    /// is that of this one. Versions come in the order of the updates.
    pub(crate) fn own_version(&self, owner: Owner, from: usize, update: usize) -> (usize, bool) {
        let versions = self.own.get(owner).map_or(&[][..], |own| &own.versions);
        let update_of = |private: &Private| match private.change {
            OwnChange::Update(number) if private.record.is_some() => Some(number),
            _ => None,
        };
        let found =
            versions.iter().map(update_of).enumerate().skip(from).find(|(_, of)| of.is_some_and(|of| of >= update));
        found.map_or((versions.len(), false), |(number, of)| (number, of == Some(update)))
    }

    /// The whole value that one of an owner's versions has, if it has that.
    pub(crate) fn own_value(&self, owner: Owner, number: usize) -> Option<&[u8]> {
        match Version::decode(self.own.stored(owner, number)).expect("it was encoded").before {
            Before::Value(value) => Some(value),
            _ => None,
        }
    }

    /// Gives one of an owner's versions another value.
    pub(crate) fn replace(&mut self, owner: Owner, number: usize, value: &[u8]) {
        let own = self.own.of(owner);
        let Some(version) = Version::decode(own.stored(number)) else { unreachable!("it was encoded") };
        let (start, mut bytes) = (own.bytes.len(), Vec::new());
        Version { before: Before::Value(value), ..version }.encode(&mut bytes);
        own.bytes.extend_from_slice(&bytes);
        own.versions[number].start = start;
        own.is_moved = true;
    }

    /// A transaction has undone its changes from these numbers on, of pages and of sets.
    pub(crate) fn roll_back_to(&mut self, owner: Owner, updates: usize, of_sets: usize) {
        self.drop_own((owner, 0), |change| match change {
            OwnChange::Update(number) => number >= updates,
            OwnChange::OfSet(number) => number >= of_sets,
        });
        self.own.of(owner).forget_from(updates, of_sets);
    }

    /// Takes out the versions of a transaction's updates, and of its changes of sets, from these numbers on: they will be kept again.
    fn forget_own_from(&mut self, owner: Owner, updates: usize, of_sets: usize) {
        self.drop_own((owner, 0), |change| match change {
            OwnChange::Update(number) => number >= updates,
            OwnChange::OfSet(number) => number >= of_sets,
        });
    }

    /// As [`Versions::roll_back_to`], of a transaction that has changed no sets: it looks at no versions but those that go.
    fn roll_back_updates_to(&mut self, owner: Owner, updates: usize) {
        let stays = |private: &Private| matches!(private.change, OwnChange::Update(number) if number < updates);
        let first = self.own.of(owner).versions.partition_point(stays);
        self.drop_own((owner, first), |_| true);
        self.own.of(owner).forget_from(updates, 0);
    }

    /// Whether the view has the change that the version at `link` precedes.
    fn has(view: View, link: Link) -> bool {
        match link.target() {
            Target::Nowhere => true,
            Target::Private(owner, _) => owner == view.owner,
            Target::Extent(..) | Target::Added => link.commit <= view.at,
        }
    }

    /// Takes the present state of a record back to what the view sees of it, as far as memory goes.
    pub(crate) fn reconstruct_in_memory(
        &self,
        view: View,
        name: Resource,
        record: (PartitionId, &[u8]),
        state: Option<Vec<u8>>,
    ) -> Result<Reconstruction, Error> {
        self.check(view)?;
        // It may have become unknown since the call began.
        self.check_emptied(record.0, view.at)?;
        let rest = self.heads.get(name);
        let is_hidden = rest.target() == Target::Nowhere && self.fences.hides(view.at, record.0, record.1);
        let state = state.filter(|_| !is_hidden);
        let mut past = Reconstruction::new(state, rest, self.loads.first_after(record.0, view.at));
        while self.step_back(view, record, &mut past) {}
        Ok(past)
    }

    /// Takes one change back, unless the view sees it, or it is not in memory.
    fn step_back(&self, view: View, record: (PartitionId, &[u8]), past: &mut Reconstruction) -> bool {
        let stored = match past.rest.target() {
            _ if Versions::has(view, past.rest) => None,
            Target::Private(owner, number) => Some(self.own.stored(owner, number)),
            Target::Extent(extent, at) => match self.history.find(extent, at) {
                FoundVersion::Here(stored) => Some(stored),
                FoundVersion::Spilled(..) => return false,
                FoundVersion::Gone => None,
            },
            Target::Added => {
                past.state = None;
                None
            }
            Target::Nowhere => None,
        };
        match stored {
            Some(stored) => past.undo_change(record, &Version::decode(stored).expect("a link leads to a version")),
            None => past.rest = Link::NOWHERE,
        }
        stored.is_some()
    }

    /// Whether what the view sees is there still; the oldest moment of which that is so if it is not.
    pub(crate) fn check(&self, view: View) -> Result<(), Error> {
        if view.at < self.horizon { Err(Error::SnapshotTooOld { oldest: self.horizon, asked: None }) } else { Ok(()) }
    }

    /// Whether the latest change of a partition's record was committed after the view's moment, by another.
    ///
    /// # Errors
    /// [`Error::SnapshotTooOld`] if that is unknown, because versions since that moment have been discarded.
    pub(crate) fn is_changed_since(&self, view: View, partition: PartitionId, name: Resource) -> Result<bool, Error> {
        if !canary::is_planted(Canary::UncheckedHorizon) {
            self.check(view)?;
        }
        Ok(!Versions::has(view, self.heads.get(name)) || self.loads.first_after(partition, view.at) > view.at)
    }

    /// Whether a record that has these contents in an index of a set (the one that is `present`), or had them, was changed after the view's
    /// moment, by another.
    ///
    /// # Errors
    /// As [`Versions::is_changed_since`].
    pub(crate) fn is_place_changed_since(
        &self,
        view: View,
        (partition, secondary): (PartitionId, usize),
        of: &[u8],
        present: Option<&[u8]>,
    ) -> Result<bool, Error> {
        let EntryRange { from, to } = EntryRange::exactly(of);
        let names = (Bound::Included(&from[..]), to.as_deref().map_or(Bound::Unbounded, Bound::Excluded));
        let gone = self.ghosts.range((partition, 1 + secondary), names).map(|ghost| ghost.split().1);
        for key in gone.chain(present) {
            if self.is_changed_since(view, partition, Resource::record(partition, key_hash(key)))? {
                return Ok(true);
            }
        }
        self.check(view).map(|()| false)
    }

    /// Checks that every chain leads backward in time and comes to an end.
    ///
    /// # Panics
    /// If one does not.
    #[cfg(test)]
    fn verify(&self) {
        for head in self.heads.links() {
            let (mut link, mut last) = (head, Lsn::MAX);
            loop {
                assert!(link.commit <= last, "a chain leads backward");
                last = link.commit;
                let stored = match link.target() {
                    Target::Private(owner, number) => self.own.stored(owner, number),
                    Target::Extent(extent, at) => match self.history.find(extent, at) {
                        FoundVersion::Here(stored) => stored,
                        FoundVersion::Spilled(..) | FoundVersion::Gone => break,
                    },
                    Target::Nowhere | Target::Added => break,
                };
                link = Version::decode(stored).expect("a link leads to a version").below;
            }
        }
    }

    /// The oldest moment that a new snapshot may be of; `present` is the last commit.
    fn oldest_moment(&self, present: Lsn) -> Lsn {
        if self.keeps_all() { self.horizon } else { present }
    }

    /// The last commit by that time, if it is known; before the first commit the beginning.
    fn moment_at(&self, time: Instant) -> Option<Lsn> {
        self.moments.at(time)
    }

    /// From when on times lead to moments that can be read; `now` if that begins with the next commit.
    fn readable_since(&self, (present, now): (Lsn, Instant)) -> Instant {
        self.moments.since(self.oldest_moment(present)).filter(|_| self.keeps_all()).unwrap_or(now)
    }

    /// What versions cost at present.
    pub(crate) fn report(&self, now: Instant) -> VersionReport {
        VersionReport {
            snapshots: self.snapshots.count(),
            oldest: self.snapshots.oldest(),
            versions: self.history.versions(),
            bytes: self.history.bytes(),
            memory_bytes: self.history.memory_bytes(),
            memory_age_ns: self.history.memory_since().map(|since| now.since_ns(since)),
            given_up: self.given_up,
            failure: self.failure.clone(),
        }
    }
}
