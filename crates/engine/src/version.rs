//! Versions: what records were before the changes that a snapshot does not see (multiversion two-phase locking; Lee et al.
//! 2008, section 4: rollback segments).
//!
//! Records are changed where they are. While anybody reads at a moment of the past, every change keeps the *before image* of
//! its record beside its transaction; the commit moves it into *rollback segments*, append-only and in the order of commits,
//! and the record's *chain* leads from its present state backward through them. A reader takes the present state and goes
//! back along the chain until all that is left was committed by its moment. So it takes no locks, and nobody waits for it.
//!
//! A moment is a position of the log, a commit's time is that of its record: commits are ordered as they stand there. When
//! nobody reads at a moment, nothing is kept and nothing is paid. What transactions under way had changed before the first
//! reader came is found in their undo lists then.
//!
//! A version is kept at a commit only if a snapshot lies between that commit and the one before it (Böttcher, Leis, Neumann
//! and Kemper: Steam, VLDB 2019), unless all moments of a time are kept to travel to. So a record that is changed again and
//! again beside one long reader has one version. The oldest are given up, extent by extent, as soon as no snapshot needs
//! them.
//!
//! Recent versions stay in memory. When they take more than their share of it, the oldest extents are written to the *undo
//! space* on its device, and readers of the distant past read them there, version by version.
//!
//! Nothing here is logged or recovered: rollback goes by undo lists, and a restart has no readers. A partition whose records
//! change without locks keeps no versions: its readers see the present.

mod chain;
mod ghosts;
mod history;
mod keep;
mod moments;
mod pace;
mod read;
mod settings;
mod snapshot;
mod snapshots;
mod space;

#[cfg(test)]
mod tests;

pub(crate) use chain::Before;
pub(crate) use pace::{Pace, Readers};
pub(crate) use read::{Past, Viewing};
pub use settings::{FILE, Settings};
pub use snapshot::Snapshot;

use crate::Error;
use crate::lock::{Owner, Resource};
use crate::transaction::{Stored, read_stored};
use base::{Instant, Lsn, PartitionId};
use chain::{Link, Target, Version};
use foldhash::fast::FixedState;
use ghosts::Ghosts;
use hashbrown::HashMap;
use hashbrown::hash_map::Entry;
use history::{Found, History};
use moments::Moments;
use snapshots::Snapshots;

/// Heads of records are taken out that lead to what was given up when there are so many more than the last time, at least.
const HEADS_SWEPT_MIN: usize = 4096;

/// After so many commits without a new snapshot, changes are kept only for those that are there.
const LAZY_COMMITS: u32 = if cfg!(test) { 0 } else { 1024 };

/// What a reader sees: what was committed up to a moment, and what its own transaction has done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct View {
    pub at: Lsn,
    pub owner: Owner,
}

/// Which of a transaction's changes a version precedes, so that a rollback to a savepoint drops it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// The update of this number in the undo list.
    Update(usize),
    /// The change of sets of this number.
    OfSet(usize),
}

/// A version whose transaction has not ended.
#[derive(Debug)]
struct Private {
    /// `None` once it was dropped by a rollback.
    name: Option<Resource>,
    /// Where its stored form begins.
    start: usize,
    change: Change,
    /// The record's name among the ghosts, if it has been deleted since.
    ghost: Option<Vec<u8>>,
}

/// The versions of one transaction.
#[derive(Debug, Default)]
struct Own {
    versions: Vec<Private>,
    bytes: Vec<u8>,
    /// Changes of sets that versions have been kept of, or that need none.
    of_sets: usize,
    /// Whether a long value could not be kept.
    is_incomplete: bool,
}

impl Own {
    /// The owner's among all.
    fn of(all: &mut Vec<Own>, owner: Owner) -> &mut Own {
        let number = owner.0 as usize;
        if all.len() <= number {
            all.resize_with(number + 1, Own::default);
        }
        &mut all[number]
    }

    fn stored(&self, number: usize) -> &[u8] {
        let bytes = &self.bytes[self.versions[number].start..];
        &bytes[..chain::length(bytes).expect("a version begins there")]
    }
}

/// Whether what the link leads to has been given up, or is needed by nobody any more.
fn is_gone(history: &History, horizon: Lsn, link: Link) -> bool {
    match link.target() {
        Target::Extent(extent, _) => !history.has(extent),
        Target::Added => link.commit <= horizon,
        Target::Private(..) | Target::Nowhere => false,
    }
}

/// Whether a version says no more than what can stand in the link to it.
fn is_addition(version: &Version<'_>, below: Link) -> bool {
    version.before == Before::Added && below == Link::NOWHERE
}

/// All versions of a database.
#[derive(Default)]
pub(crate) struct Versions {
    settings: Settings,
    /// Bytes of an extent of rollback segments.
    extent_size: usize,
    snapshots: Snapshots,
    /// Transactions that read without locks; none keeps a snapshot between its calls if it reads what is committed.
    readers: usize,
    /// The latest version of each record that has any.
    heads: HashMap<Resource, Link, FixedState>,
    /// By owner.
    own: Vec<Own>,
    history: History,
    ghosts: Ghosts,
    /// What was committed after it can be taken back, as far as it is needed.
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
    /// So many heads were there after those of the given up were last taken out.
    swept: usize,
    /// Whether versions are on their way to the undo space.
    is_spilling: bool,
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
    /// Extents of versions that were given up, whoever reads them, because they took too much room.
    pub given_up: u64,
    /// Why the undo space could not be written when it last was to be.
    pub failure: Option<Error>,
}

impl Versions {
    /// No versions; extents have so many bytes. Nothing before `began` can be read.
    pub(crate) fn new(settings: Settings, extent_size: usize, began: Lsn) -> Versions {
        Versions { settings, extent_size, horizon: began, ..Versions::default() }
    }

    /// Whether somebody may read at a moment of the past.
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

    /// Whether changes are kept only for the snapshots that are there.
    pub(crate) fn is_lazy(&self) -> bool {
        self.is_lazy
    }

    fn own(&mut self, owner: Owner) -> &mut Own {
        Own::of(&mut self.own, owner)
    }

    /// Where the record's chain begins.
    fn head(&self, name: Resource) -> Link {
        self.heads.get(&name).copied().unwrap_or(Link::NOWHERE)
    }

    /// Has the record's chain begin with `link`.
    fn set_head(&mut self, name: Resource, link: Link) {
        if link.target() == Target::Nowhere {
            self.heads.remove(&name);
        } else {
            self.heads.insert(name, link);
        }
    }

    /// Keeps what a record was before a change of a transaction that holds its lock.
    fn keep(
        &mut self,
        (owner, change): (Owner, Change),
        name: Resource,
        (partition, key): (PartitionId, &[u8]),
        (before, ghost): (Before<'_>, Option<Vec<u8>>),
    ) {
        let own = Own::of(&mut self.own, owner);
        let is_patch = matches!(before, Before::Patch(..));
        let here = Link::private(owner, own.versions.len(), is_patch);
        let below = match self.heads.entry(name) {
            Entry::Vacant(head) => {
                head.insert(here);
                Link::NOWHERE
            }
            Entry::Occupied(mut head) => {
                let below = *head.get();
                if matches!(below.target(), Target::Extent(..) | Target::Added) && self.is_lazy {
                    // No snapshot lies behind the record's last commit. One that begins now looks into undo lists.
                    if self.snapshots.newest().is_none_or(|newest| newest < below.commit) {
                        return;
                    }
                }
                if let Target::Private(of, earlier) = below.target() {
                    debug_assert_eq!(of, owner, "two transactions change a record at a time");
                    let earlier = &mut own.versions[earlier];
                    if let (None, Some(name)) = (&earlier.ghost, &ghost) {
                        self.ghosts.add(partition, name);
                        earlier.ghost.clone_from(&ghost);
                    }
                    // What the record was before the transaction's first change is known, unless that left only a part of it.
                    if !below.is_patch() {
                        return;
                    }
                }
                head.insert(here);
                below
            }
        };
        if let Some(name) = &ghost {
            self.ghosts.add(partition, name);
        }
        let start = own.bytes.len();
        Version { below, partition, key, before }.encode(&mut own.bytes);
        own.versions.push(Private { name: Some(name), start, change, ghost });
    }

    /// Drops the versions of an owner's changes that `goes` says are taken back.
    fn drop_own(&mut self, owner: Owner, goes: impl Fn(Change) -> bool) {
        let count = self.own(owner).versions.len();
        for number in (0..count).rev() {
            let own = &mut self.own[owner.0 as usize];
            let private = &mut own.versions[number];
            if !goes(private.change) {
                continue;
            }
            let Some(name) = private.name.take() else { continue };
            let ghost = private.ghost.take();
            let stored = own.stored(number);
            let Version { below, partition, .. } = Version::decode(stored).expect("it was encoded");
            if let Some(name) = ghost {
                self.ghosts.remove(partition, &name);
            }
            if self.head(name).target() == Target::Private(owner, number) {
                self.set_head(name, below);
            }
        }
        let own = self.own(owner);
        while own.versions.last().is_some_and(|last| last.name.is_none()) {
            let last = own.versions.pop().expect("there is one");
            own.bytes.truncate(last.start);
        }
    }

    /// The first of an owner's versions that refers to a long value: its number, and the value's partition, length and first
    /// page. `is_tree` says which partitions are b-trees: only their values can be long ones.
    fn long_value(
        &self,
        owner: Owner,
        is_tree: impl Fn(PartitionId) -> bool,
    ) -> Option<(usize, PartitionId, usize, u32)> {
        let own = self.own.get(owner.0 as usize)?;
        own.versions.iter().enumerate().find_map(|(number, private)| {
            private.name?;
            let version = Version::decode(own.stored(number)).expect("it was encoded");
            let Before::Value(value) = version.before else { return None };
            match is_tree(version.partition).then(|| read_stored(value)) {
                Some(Stored::Elsewhere(length, first)) => Some((number, version.partition, length, first)),
                _ => None,
            }
        })
    }

    /// Gives one of an owner's versions another value.
    fn replace(&mut self, owner: Owner, number: usize, value: &[u8]) {
        let own = self.own(owner);
        let Some(version) = Version::decode(own.stored(number)) else { unreachable!("it was encoded") };
        let (start, mut bytes) = (own.bytes.len(), Vec::new());
        Version { before: Before::Value(value), ..version }.encode(&mut bytes);
        own.bytes.extend_from_slice(&bytes);
        own.versions[number].start = start;
    }

    /// A transaction has taken back its changes from these numbers on, of pages and of sets.
    pub(crate) fn roll_back_to(&mut self, owner: Owner, updates: usize, of_sets: usize) {
        self.drop_own(owner, |change| match change {
            Change::Update(number) => number >= updates,
            Change::OfSet(number) => number >= of_sets,
        });
        let own = self.own(owner);
        own.of_sets = own.of_sets.min(of_sets);
    }

    /// A transaction is committed by the record at `commit`: its versions go into the rollback segments, as far as a snapshot
    /// needs them.
    pub(crate) fn commit(&mut self, owner: Owner, commit: Lsn, now: Instant) {
        if self.keeps_all() {
            self.moments.note(now, commit);
        }
        self.latest = commit;
        self.commits += 1;
        self.is_lazy = self.commits > LAZY_COMMITS && self.readers == 0 && !self.keeps_all();
        let Some(own) = self.own.get_mut(owner.0 as usize).filter(|own| !own.versions.is_empty() || own.of_sets > 0)
        else {
            return;
        };
        let mut own = std::mem::take(own);
        let mut moved = std::mem::take(&mut self.moved);
        for number in 0..own.versions.len() {
            let link = self.commit_version(&mut own, number, &moved, commit);
            moved.push(link);
            let Some(name) = own.versions[number].name else { continue };
            let Entry::Occupied(mut head) = self.heads.entry(name) else { unreachable!("a version has a head") };
            if head.get().target() != Target::Private(owner, number) {
                continue;
            }
            if link == Link::NOWHERE {
                head.remove();
            } else {
                head.insert(link);
            }
        }
        moved.clear();
        self.moved = moved;
        if own.is_incomplete {
            self.horizon = commit;
        }
        own.versions.clear();
        own.bytes.clear();
        (own.of_sets, own.is_incomplete) = (0, false);
        self.own[owner.0 as usize] = own;
        self.purge(now);
    }

    /// Moves one version of a committed transaction, whose earlier ones are `moved`, and returns where it is now; if nobody
    /// needs it, where the chain goes on.
    fn commit_version(&mut self, own: &mut Own, number: usize, moved: &[Link], commit: Lsn) -> Link {
        let Private { name: Some(_), start, .. } = own.versions[number] else { return Link::NOWHERE };
        let ghost = own.versions[number].ghost.take();
        let length = own.stored(number).len();
        let stored = &mut own.bytes[start..start + length];
        let Version { below, partition, .. } = Version::decode(stored).expect("it was encoded");
        let below = self.present(match below.target() {
            Target::Private(_, earlier) => moved[earlier],
            _ => below,
        });
        chain::set_below(stored, below);
        let version = Version::decode(stored).expect("it was encoded");
        let is_patch = matches!(version.before, Before::Patch(..));
        if is_addition(&version, below) {
            let is_seen = self.keeps_all() || self.snapshots.any_between(Lsn::ZERO, commit);
            return if is_seen { Link::added(commit) } else { Link::NOWHERE };
        }
        let is_needed =
            self.keeps_all() || is_patch || below.is_patch() || self.snapshots.any_between(below.commit, commit);
        if !is_needed {
            if let Some(name) = &ghost {
                self.settle(below, partition, name);
            }
            return below;
        }
        let (extent, at) = self.history.add(stored, commit, self.extent_size);
        if let Some(name) = &ghost {
            self.settle(Link::extent(extent, at, commit, is_patch), partition, name);
        }
        Link::extent(extent, at, commit, is_patch)
    }

    /// Has the ghost of a deleted record stay as long as the latest version of it: a scan for which the record was there finds
    /// that by the ghost, also if the record was changed once more before it was deleted.
    fn settle(&mut self, latest: Link, partition: PartitionId, name: &[u8]) {
        let stays = match latest.target() {
            Target::Extent(extent, _) => self.history.haunt(extent, partition, name),
            Target::Private(..) | Target::Added | Target::Nowhere => false,
        };
        if !stays {
            self.ghosts.remove(partition, name);
        }
    }

    /// The link, or the end of the chain if what it leads to has been given up.
    fn present(&self, link: Link) -> Link {
        if is_gone(&self.history, self.horizon, link) { Link::NOWHERE } else { link }
    }

    /// Gives up what nobody needs any more, and what there is no room for.
    fn purge(&mut self, now: Instant) {
        let mut horizon = self.snapshots.oldest().unwrap_or(Lsn::MAX);
        if self.keeps_all() {
            let from = Instant::from_ns(now.ns().saturating_sub(self.settings.retention_ns));
            horizon = horizon.min(self.moments.forget_before(from).unwrap_or(Lsn::ZERO));
        }
        while self.give_up(horizon) {}
        while self.history.bytes() > self.settings.size && self.give_up(Lsn::MAX) {
            self.given_up += 1;
        }
        let is_full = (self.heads.len() * size_of::<(Resource, Link)>()) as u64 > self.settings.size;
        if is_full {
            self.horizon = self.latest;
            self.given_up += 1;
        }
        if is_full || self.heads.len() > 2 * self.swept + HEADS_SWEPT_MIN {
            let (history, horizon) = (&self.history, horizon.max(self.horizon));
            self.heads.retain(|_, link| !is_gone(history, horizon, *link));
            self.swept = self.heads.len();
        }
    }

    /// Gives up the oldest extent if all its changes were committed up to `horizon`.
    fn give_up(&mut self, horizon: Lsn) -> bool {
        let Some(extent) = self.history.take_oldest(horizon) else { return false };
        self.horizon = self.horizon.max(extent.last_commit);
        for (partition, name) in extent.ghosts {
            self.ghosts.remove(partition, &name);
        }
        true
    }

    /// Whether so much waits for its way to the undo space that transactions should wait, too.
    fn is_behind(&self) -> bool {
        self.is_spilling && self.history.memory_bytes() > 2 * self.settings.memory
    }

    /// Forgets everything: nobody reads at a moment of the past.
    fn clear(&mut self) {
        debug_assert!(!self.is_wanted(), "readers need versions");
        self.heads.clear();
        self.own.clear();
        self.ghosts = Ghosts::default();
        while self.history.take_oldest(Lsn::MAX).is_some() {}
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
    fn take_back(
        &self,
        view: View,
        name: Resource,
        record: (PartitionId, &[u8]),
        state: Option<Vec<u8>>,
    ) -> Result<Past, Error> {
        self.check(view)?;
        let mut past = Past { state, rest: self.head(name) };
        while self.step_back(view, record, &mut past) {}
        Ok(past)
    }

    /// Takes one change back, unless the view sees it, or it is not in memory.
    fn step_back(&self, view: View, record: (PartitionId, &[u8]), past: &mut Past) -> bool {
        let stored = match past.rest.target() {
            _ if Versions::has(view, past.rest) => None,
            Target::Private(owner, number) => Some(self.own[owner.0 as usize].stored(number)),
            Target::Extent(extent, at) => match self.history.find(extent, at) {
                Found::Here(stored) => Some(stored),
                Found::Away(_) => return false,
                Found::Gone => None,
            },
            Target::Added => {
                past.state = None;
                None
            }
            Target::Nowhere => None,
        };
        match stored {
            Some(stored) => past.put_back(record, &Version::decode(stored).expect("a link leads to a version")),
            None => past.rest = Link::NOWHERE,
        }
        stored.is_some()
    }

    /// Whether what the view sees is there still; the oldest moment of which that is so if it is not.
    pub(crate) fn check(&self, view: View) -> Result<(), Error> {
        if view.at < self.horizon { Err(Error::SnapshotTooOld { oldest: self.horizon }) } else { Ok(()) }
    }

    /// Whether the latest change of the record was committed after the view's moment, by another.
    pub(crate) fn is_changed_since(&self, view: View, name: Resource) -> bool {
        match self.head(name) {
            link if link.target() == Target::Nowhere => false,
            link => !Versions::has(view, link),
        }
    }

    /// Checks that every chain leads backward in time and comes to an end.
    ///
    /// # Panics
    /// If one does not.
    #[cfg(test)]
    fn verify(&self) {
        for head in self.heads.values() {
            let (mut link, mut last) = (*head, Lsn::MAX);
            loop {
                assert!(link.commit <= last, "a chain leads backward");
                last = link.commit;
                let stored = match link.target() {
                    Target::Private(owner, number) => self.own[owner.0 as usize].stored(number),
                    Target::Extent(extent, at) => match self.history.find(extent, at) {
                        Found::Here(stored) => stored,
                        Found::Away(_) | Found::Gone => break,
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

    /// What versions cost at present.
    pub(crate) fn report(&self) -> VersionReport {
        VersionReport {
            snapshots: self.snapshots.count(),
            oldest: self.snapshots.oldest(),
            versions: self.history.versions(),
            bytes: self.history.bytes(),
            memory_bytes: self.history.memory_bytes(),
            given_up: self.given_up,
            failure: self.failure.clone(),
        }
    }
}
