//! What the model's server does for snapshots, and what each page was at which moment.

use super::{ADDED, Pending, Place, World, version};
use base::{Lsn, PageId};
use entresol_node::message::{Answer, ClientId, Image, SnapshotAnswer, Transaction};
use entresol_node::server::AsOf;
use std::collections::BTreeMap;
use std::rc::Rc;

/// The versions of all pages, by the positions of the commits that have made them.
pub struct Moments {
    versions: BTreeMap<PageId, Vec<(u64, u64)>>,
    /// The last commit whose pages the server has, and the last that was acknowledged.
    applied: u64,
    acknowledged: u64,
}

/// Positions of the log, which are greater than all epochs.
const FIRST_POSITION: u64 = 1_000;

impl Moments {
    pub fn new(committed: &BTreeMap<PageId, u64>) -> Moments {
        let versions = committed.iter().map(|(page, version)| (*page, vec![(0, *version)])).collect();
        Moments { versions, applied: FIRST_POSITION, acknowledged: 0 }
    }

    fn as_of(&self, page: PageId, moment: u64) -> u64 {
        self.versions[&page].iter().rev().find(|(at, _)| *at <= moment).expect("it was there from the beginning").1
    }
}

impl World {
    /// The pages of a commit are changed at the server, whether or not it is durable.
    pub(super) fn apply_commit(&mut self, owner: (ClientId, Transaction), pages: Vec<Image>) {
        self.moments.applied += 1;
        let at = self.moments.applied;
        let before = |page| Some(Rc::from(self.moments.as_of(page, u64::MAX).to_le_bytes()));
        let mut actions = Vec::new();
        self.server.applied(Lsn(at), pages.iter().map(|image| image.page), before, &mut actions);
        for image in &pages {
            let (latest, found) = (self.moments.as_of(image.page, u64::MAX), version(&image.bytes));
            let next = if found & ADDED == 0 { found } else { latest + (found & !ADDED) };
            self.moments.versions.get_mut(&image.page).expect("it is known").push((at, next));
        }
        self.pending.push(Pending::Durable { at, owner, pages });
        self.perform(actions);
    }

    /// A commit is durable, and all before it are.
    pub(super) fn note_acknowledged(&mut self, at: u64) {
        self.moments.acknowledged = at;
    }

    /// Whether all before this commit is durable.
    pub(super) fn is_next_in_log(&self, at: u64) -> bool {
        let is_before = |pending: &Pending| matches!(pending, Pending::Durable { at: other, .. } if *other < at);
        !self.pending.iter().any(is_before)
    }

    /// The server is started again, with what is committed.
    pub(super) fn forget_moments(&mut self) {
        let applied = self.moments.applied;
        self.moments = Moments { applied, ..Moments::new(&self.committed) };
    }

    pub(super) fn tell_snapshot(&mut self, (client, number): (ClientId, u64), moment: Lsn) {
        self.send(client, Answer::Snapshot { number, said: SnapshotAnswer::Begun { moment: moment.0 } });
    }

    pub(super) fn read_as_of(&mut self, snapshot: (ClientId, u64), page: PageId) {
        let mut actions = Vec::new();
        let as_of = self.server.as_of(snapshot, page, &mut actions);
        self.perform(actions);
        let bytes = match as_of {
            None => return,
            Some(AsOf::Earlier(bytes)) => bytes.to_vec(),
            Some(AsOf::Present | AsOf::Lost) => self.moments.as_of(page, u64::MAX).to_le_bytes().to_vec(),
        };
        self.send(snapshot.0, Answer::Snapshot { number: snapshot.1, said: SnapshotAnswer::Page { page, bytes } });
    }

    pub(super) fn may_step_snapshot(&self, place: Place) -> bool {
        let node = &self.nodes[&place];
        self.connections[&place].is_open && !node.is_joining() && !node.is_done()
    }

    pub(super) fn step_snapshot(&mut self, place: Place) -> Result<(), String> {
        let (moments, node) = (&self.moments, self.nodes.get_mut(&place).expect("it is there"));
        let as_of = |page, moment| moments.as_of(page, moment);
        let said = node.step_snapshot(self.plan.pages, moments.acknowledged, &as_of, &mut self.of_snapshots)?;
        self.say(place, said);
        Ok(())
    }

    /// How many pages snapshots have read, and how many of them were too old.
    pub fn snapshot_counts(&self) -> (u64, u64) {
        let sum = |count: fn(&super::Node) -> u64| self.nodes.values().map(count).sum();
        (sum(|node| node.snapshot_reads), sum(|node| node.snapshots_lost))
    }
}
