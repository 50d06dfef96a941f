//! Purge: discarding versions that no view needs any more, and those that there is no room for.

use super::Versions;
use super::chain::{Link, Target};
use super::fences::Fences;
use super::ghosts::Ghosts;
use super::history::History;
use base::{Instant, Lsn};

/// Whether the version that the link leads to has been discarded, or is needed by no view any more.
fn is_gone(history: &History, horizon: Lsn, link: Link) -> bool {
    match link.target() {
        Target::Extent(extent, _) => !history.has(extent),
        Target::Added => link.commit <= horizon,
        Target::Private(..) | Target::Nowhere => false,
    }
}

impl Versions {
    /// The link, or the end of the chain if what it leads to has been given up.
    pub(super) fn unless_gone(&self, link: Link) -> Link {
        if is_gone(&self.history, self.horizon, link) { Link::NOWHERE } else { link }
    }

    /// Discards the versions that no view needs any more, and those that there is no room for.
    pub(super) fn purge(&mut self, now: Instant) {
        let mut horizon = self.snapshots.oldest().unwrap_or(Lsn::MAX);
        if self.keeps_all() {
            horizon = horizon.min(self.forget_moments(now));
            // Additions, fences and loads are forgotten up to there, even while an extent still has versions from before it.
            self.horizon = self.horizon.max(horizon);
        }
        let refused = horizon.max(self.horizon);
        self.fences.forget_before(refused);
        self.loads.forget_before(refused);
        self.emptied.forget_before(refused);
        while self.give_up(horizon) {}
        while (self.history.bytes() > self.settings.size || self.history.has_too_many()) && self.give_up(Lsn::MAX) {
            self.given_up += 1;
        }
        let is_full = self.heads.bytes() > self.settings.size;
        if is_full {
            self.horizon = self.latest;
            self.given_up += 1;
        }
        let (history, horizon) = (&self.history, horizon.max(self.horizon));
        let is_gone = |link| is_gone(history, horizon, link);
        if is_full {
            self.heads.sweep_all(is_gone);
        } else {
            self.heads.sweep(is_gone);
        }
    }

    /// Forgets which moments were when that are longer ago than the retention, but for the last of them, which it returns.
    pub(super) fn forget_moments(&mut self, now: Instant) -> Lsn {
        // A clock that has not gone for that long yet, such as a virtual one, forgets nothing.
        let from = now.ns().checked_sub(self.settings.retention_ns).map(Instant::from_ns);
        from.and_then(|from| self.moments.forget_before(from)).unwrap_or(Lsn::ZERO)
    }

    /// Gives up the oldest extent if all its changes were committed up to `horizon`.
    pub(super) fn give_up(&mut self, horizon: Lsn) -> bool {
        let Some((last_commit, ghosts)) = self.history.take_oldest(horizon) else { return false };
        self.horizon = self.horizon.max(last_commit);
        ghosts.iter().for_each(|ghost| self.ghosts.remove(ghost));
        true
    }

    /// Forgets everything: there are no read views of the past.
    pub(super) fn clear(&mut self) {
        debug_assert!(!self.is_wanted(), "readers need versions");
        self.heads.clear();
        self.own.clear();
        self.ghosts = Ghosts::default();
        self.fences = Fences::default();
        self.loads.forget_before(Lsn::MAX);
        self.emptied.forget_before(Lsn::MAX);
        while self.history.take_oldest(Lsn::MAX).is_some() {}
    }
}
