//! What pages were before commits that snapshots are older than.
//!
//! A moment is a position of the server's log, and a snapshot sees all commits up to its own. As long as one is open, the last change of
//! each page is known that was changed since the oldest; and where a commit replaces a page that one of them sees, it is kept as it was.
//! Both take room, which is bounded: when it is used up the oldest moment can be read no longer, and all goes that only it needed. So what
//! is found is right, or is said to be lost.

use base::{Lsn, PageId};
use engine::canary::{self, Canary};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

/// More than what is known of a page takes, or an earlier version of one beside its bytes.
const ENTRY_SIZE: usize = 160;

/// What a page was at a moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AsOf {
    /// What it is.
    Present,
    /// This.
    Earlier(Rc<[u8]>),
    /// It is not known any more.
    Lost,
}

/// An earlier version of a page.
struct PageVersion {
    /// The change that has made it, or the beginning.
    from: Lsn,
    /// None if it was not at hand when it was replaced.
    bytes: Option<Rc<[u8]>>,
}

/// The versions of pages that open snapshots see and that are not the present ones.
pub(super) struct PageVersions {
    /// The moments of open snapshots, and how many see each.
    moments: BTreeMap<Lsn, usize>,
    /// The last changes of pages, of those since the oldest of these moments; and the same in their order.
    changes: BTreeMap<PageId, Lsn>,
    pages_by_change: BTreeSet<(Lsn, PageId)>,
    /// By page, and by the change that has replaced it; and the same in the order of changes.
    versions: BTreeMap<(PageId, Lsn), PageVersion>,
    pages_by_end: BTreeSet<(Lsn, PageId)>,
    used: usize,
    room: usize,
}

impl PageVersions {
    /// None, and so much room for them, in bytes.
    pub fn new(room: usize) -> PageVersions {
        PageVersions {
            moments: BTreeMap::new(),
            changes: BTreeMap::new(),
            pages_by_change: BTreeSet::new(),
            versions: BTreeMap::new(),
            pages_by_end: BTreeSet::new(),
            used: 0,
            room,
        }
    }

    /// From now on there is so much room, in bytes: what is there stays until the next change.
    pub fn set_room(&mut self, room: usize) {
        self.room = room;
    }

    /// The room that is used, in bytes.
    pub fn used(&self) -> usize {
        self.used
    }

    /// A snapshot of this moment is open from now on: no page was changed later.
    pub fn open(&mut self, moment: Lsn) {
        *self.moments.entry(moment).or_default() += 1;
    }

    /// One is open no longer.
    ///
    /// # Panics
    /// If none is.
    pub fn close(&mut self, moment: Lsn) {
        let count = self.moments.get_mut(&moment).expect("a snapshot of that moment is open");
        *count -= 1;
        if *count == 0 {
            self.forget(moment);
        }
    }

    /// A page is changed now, at a moment behind all before, from what it was; which is not given if it is not at hand.
    pub fn change(&mut self, page: PageId, at: Lsn, before: impl FnOnce() -> Option<Rc<[u8]>>) {
        if self.moments.is_empty() {
            return;
        }
        let from = self.changes.insert(page, at).unwrap_or(Lsn::ZERO);
        if !self.pages_by_change.remove(&(from, page)) {
            self.used += ENTRY_SIZE;
        }
        self.pages_by_change.insert((at, page));
        if self.moments.range(from..at).next().is_some() {
            let bytes = before();
            self.used += ENTRY_SIZE + bytes.as_ref().map_or(0, |bytes| bytes.len());
            self.versions.insert((page, at), PageVersion { from, bytes });
            self.pages_by_end.insert((at, page));
        }
    }

    /// Makes room if too much is used: the oldest moments can be read no longer. Returns the last of these.
    pub fn make_room(&mut self) -> Option<Lsn> {
        let mut lost = None;
        while self.used > self.room {
            let Some((moment, _)) = self.moments.first_key_value() else { break };
            let moment = *moment;
            self.forget(moment);
            lost = Some(moment);
        }
        lost
    }

    /// What a page was at the moment of an open snapshot.
    pub fn as_of(&self, page: PageId, moment: Lsn) -> AsOf {
        let is_present = self.changes.get(&page).is_none_or(|last| *last <= moment);
        if is_present || canary::is_planted(Canary::PresentForMoment) {
            return AsOf::Present;
        }
        let behind = (std::ops::Bound::Excluded((page, moment)), std::ops::Bound::Unbounded);
        let replaced = self.versions.range(behind).next().filter(|((other, _), _)| *other == page);
        match replaced {
            Some((_, PageVersion { from, bytes: Some(bytes) })) if *from <= moment => AsOf::Earlier(Rc::clone(bytes)),
            _ => AsOf::Lost,
        }
    }

    /// No snapshot of this moment is open any more: what only such ones see goes.
    fn forget(&mut self, moment: Lsn) {
        self.moments.remove(&moment);
        let earlier = self.moments.range(..moment).next_back().map(|(moment, _)| *moment);
        let later = self.moments.range(moment..).next().map(|(moment, _)| *moment);
        // Others see what was made before the one ahead of it, or replaced behind the one after it.
        let is_over = |end: &(Lsn, PageId)| later.is_none_or(|later| end.0 <= later);
        let replaced = self.pages_by_end.range((moment, PageId::default())..).take_while(|end| is_over(end));
        let is_only_its = |from: Lsn| from <= moment && earlier.is_none_or(|earlier| earlier < from);
        let unseen: Vec<(Lsn, PageId)> =
            replaced.filter(|(end, page)| is_only_its(self.versions[&(*page, *end)].from)).copied().collect();
        for (end, page) in unseen {
            self.pages_by_end.remove(&(end, page));
            let version = self.versions.remove(&(page, end)).expect("it is in both");
            self.used -= ENTRY_SIZE + version.bytes.map_or(0, |bytes| bytes.len());
        }
        if earlier.is_none() {
            self.forget_changes(later);
        }
    }

    /// Changes are not needed that are older than the oldest moment.
    fn forget_changes(&mut self, oldest: Option<Lsn>) {
        while let Some((at, page)) = self.pages_by_change.first().copied()
            && oldest.is_none_or(|oldest| at <= oldest)
        {
            self.pages_by_change.remove(&(at, page));
            self.changes.remove(&page);
            self.used -= ENTRY_SIZE;
        }
    }
}

#[cfg(test)]
mod tests;
