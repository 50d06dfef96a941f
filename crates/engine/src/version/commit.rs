//! The commit of a transaction: its versions go into the rollback segments, as far as a snapshot needs them.

use super::chain::{self, Before, Link, Target, Version};
use super::own::{Own, Private};
use super::{Ghost, Versions};
use base::{Instant, Lsn};
use structures::lock::Owner;

/// Whether a version says no more than what can stand in the link to it.
fn is_addition(version: &Version<'_>, below: Link) -> bool {
    version.before == Before::Added && below == Link::NOWHERE
}

impl Versions {
    /// A transaction is committed by the record at `commit`: its versions go into the rollback segments, as far as a snapshot
    /// needs them.
    pub(crate) fn commit(&mut self, owner: Owner, commit: Lsn, now: Instant) {
        if self.keeps_all() {
            self.moments.note(now, commit);
        }
        self.latest = commit;
        self.commits += 1;
        self.is_lazy = self.commits > self.settings.lazy_commits && self.readers == 0 && !self.keeps_all();
        if self.own.get(owner).is_none_or(Own::is_untouched) {
            if self.keeps_all() && self.forget_moments(now) > self.horizon {
                self.purge(now);
            }
            return;
        }
        let mut own = std::mem::take(self.own.of(owner));
        let mut moved = std::mem::take(&mut self.moved);
        for number in 0..own.versions.len() {
            let link = self.commit_version(&mut own, number, &moved, (commit, now));
            moved.push(link);
            if let Some(record) = own.versions[number].record {
                self.replace_private(record, (owner, number), link);
            }
        }
        moved.clear();
        self.moved = moved;
        if own.is_incomplete {
            self.horizon = commit;
        }
        own.clear();
        *self.own.of(owner) = own;
        self.purge(now);
    }

    /// Moves one version of a committed transaction, whose earlier ones are `moved`, and returns where it is now; if no view
    /// needs it, where the chain goes on.
    fn commit_version(&mut self, own: &mut Own, number: usize, moved: &[Link], (commit, now): (Lsn, Instant)) -> Link {
        let Private { record: Some(_), start, part, .. } = own.versions[number] else { return Link::NOWHERE };
        let ghosts = std::mem::take(&mut own.versions[number].ghosts);
        let length = own.stored(number).len();
        let stored = &mut own.bytes[start..start + length];
        let Version { below, .. } = Version::decode(stored).expect("it was encoded");
        let below = self.unless_gone(match below.target() {
            Target::Private(_, earlier) => moved[earlier],
            _ => below,
        });
        chain::set_below(stored, below);
        let version = Version::decode(stored).expect("it was encoded");
        if is_addition(&version, below) {
            let is_seen = self.keeps_all() || self.snapshots.any_between(Lsn::ZERO, commit);
            return if is_seen { Link::added(commit) } else { Link::NOWHERE };
        }
        let is_needed = self.keeps_all() || !below.covers(part) || self.snapshots.any_between(below.commit, commit);
        if !is_needed {
            ghosts.iter().for_each(|ghost| self.keep_ghost(below, ghost));
            return below;
        }
        let (extent, at) = self.history.add(stored, (commit, now));
        let link = Link::extent(extent, at, commit, part);
        ghosts.iter().for_each(|ghost| self.keep_ghost(link, ghost));
        link
    }

    /// Has a ghost stay as long as the latest version of its record: a scan for which the record was there finds that by the
    /// ghost, also if the record was changed once more before.
    fn keep_ghost(&mut self, latest: Link, ghost: &Ghost) {
        let stays = match latest.target() {
            Target::Extent(extent, _) => self.history.add_ghost(extent, ghost),
            Target::Private(..) | Target::Added | Target::Nowhere => false,
        };
        if !stays {
            self.ghosts.remove(ghost);
        }
    }
}
