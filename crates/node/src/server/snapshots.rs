//! Snapshots of clients: each sees all commits up to one moment, and waits for no lock and keeps no one from one.
//!
//! A commit counts from the step on in which it is logged and its pages are changed. A snapshot's moment is that of the last one before its
//! request comes, and the client is told of it when all up to there is durable. What pages were at that moment is in the server's memory or
//! on its disk, or is kept when a commit replaces it (`versions.rs`). No copy comes of such a read, so the directory knows nothing of it.

use super::versions::{AsOf, PageVersions};
use super::{Action, Memory, Misbehaviour, Server, misbehaved};
use crate::grants::{Access, Right};
use crate::message::{Answer, ClientId, PastAsk, SET_ASK_MAX, SetAnswer, SnapshotAnswer, SnapshotRequest};
use base::{Lsn, PageId, PartitionId};
use engine::set;
use std::collections::BTreeMap;
use std::rc::Rc;

/// Snapshots that one client may have open.
pub const SNAPSHOTS_MAX: usize = 256;
/// The room for earlier versions of pages, in bytes, unless another one is given.
const ROOM: usize = 64 << 20;

/// One snapshot of a client, which gives each number once.
pub(crate) type SnapshotId = (ClientId, u64);

/// The snapshots that are open, and what they see.
pub(super) struct Snapshots {
    open: BTreeMap<SnapshotId, Lsn>,
    versions: PageVersions,
    /// The last commit.
    applied: Lsn,
}

impl Snapshots {
    /// None; the last commit before all is at this moment.
    pub fn new(applied: Lsn) -> Snapshots {
        Snapshots { open: BTreeMap::new(), versions: PageVersions::new(ROOM), applied }
    }

    fn count(&self, client: ClientId) -> usize {
        self.open.range((client, 0)..=(client, u64::MAX)).count()
    }

    fn close(&mut self, snapshot: SnapshotId) {
        if let Some(moment) = self.open.remove(&snapshot) {
            self.versions.close(moment);
        }
    }

    /// A client is gone.
    pub fn close_all(&mut self, client: ClientId) {
        let theirs: Vec<SnapshotId> =
            self.open.range((client, 0)..=(client, u64::MAX)).map(|(snapshot, _)| *snapshot).collect();
        theirs.into_iter().for_each(|snapshot| self.close(snapshot));
    }
}

impl Server {
    /// What is open is a client's, and versions are kept for what is open alone.
    pub(super) fn check_snapshots(&self) -> Result<(), String> {
        let snapshots = &self.snapshots;
        let is_orphan = |(client, _): &SnapshotId| self.clients.get(client).is_none_or(|client| client.is_revoked);
        if let Some((client, number)) = snapshots.open.keys().copied().find(is_orphan) {
            return Err(format!("snapshot {number} is open of client {}, which is none", client.0));
        }
        if snapshots.open.is_empty() && snapshots.versions.used() > 0 {
            return Err(format!("{} bytes are kept for no snapshot", snapshots.versions.used()));
        }
        Ok(())
    }

    /// From now on earlier versions of pages have so much room, in bytes.
    pub fn set_snapshot_room(&mut self, room: usize) {
        self.snapshots.versions.set_room(room);
    }

    /// How many snapshots are open, and the bytes that earlier versions of pages take for them.
    pub fn snapshots(&self) -> (usize, usize) {
        (self.snapshots.open.len(), self.snapshots.versions.used())
    }

    /// A commit is logged, up to this position, and changes these pages in the same step. `before` gives the bytes of one as it was, if they
    /// are at hand.
    pub fn applied(
        &mut self,
        at: Lsn,
        pages: impl IntoIterator<Item = PageId>,
        before: impl Fn(PageId) -> Option<Rc<[u8]>>,
        actions: &mut Vec<Action>,
    ) {
        self.snapshots.applied = at;
        let mut lost = None;
        for page in pages {
            self.snapshots.versions.change(page, at, || before(page));
            // At once, so that a large commit takes no more than there is.
            lost = self.snapshots.versions.make_room().or(lost);
        }
        let Some(lost) = lost else { return };
        let is_lost = |(_, moment): &(&SnapshotId, &Lsn)| **moment <= lost;
        let over: Vec<SnapshotId> = self.snapshots.open.iter().filter(is_lost).map(|(snapshot, _)| *snapshot).collect();
        for snapshot in over {
            self.snapshots.open.remove(&snapshot);
            self.counts.snapshots_lost += 1;
            actions.push(self.too_old(snapshot));
        }
    }

    fn too_old(&self, (client, number): SnapshotId) -> Action {
        let oldest = self.snapshots.applied.0;
        Action::Send(client, Answer::Snapshot { number, said: SnapshotAnswer::TooOld { oldest } })
    }

    /// A client says something of a snapshot.
    pub(super) fn heed_snapshot(
        &mut self,
        snapshot: SnapshotId,
        request: SnapshotRequest,
        memory: &dyn Memory,
        actions: &mut Vec<Action>,
    ) -> Result<(), Misbehaviour> {
        let (client, number) = snapshot;
        match request {
            SnapshotRequest::Begin => {
                if self.snapshots.open.contains_key(&snapshot) || self.snapshots.count(client) == SNAPSHOTS_MAX {
                    return Err(misbehaved(
                        client,
                        "more snapshots than one may have, and not only",
                        PageId::default(),
                    ));
                }
                let moment = self.snapshots.applied;
                if self.access(client).is_none_or(Access::is_none) {
                    // It would see nothing: whatever it asks for is denied, and it costs others nothing.
                    let said = SnapshotAnswer::Begun { moment: moment.0 };
                    actions.push(Action::Send(client, Answer::Snapshot { number, said }));
                    return Ok(());
                }
                self.snapshots.open.insert(snapshot, moment);
                self.snapshots.versions.open(moment);
                self.counts.snapshots += 1;
                actions.push(Action::BeginSnapshot { client, number, moment });
            }
            SnapshotRequest::Read { page } if self.may(client, page, Right::Read) => {
                self.counts.snapshot_reads += 1;
                actions.push(Action::ReadSnapshot { client, number, page });
            }
            SnapshotRequest::Read { page } => {
                let reason = self.note_denial(client, page, Right::Read);
                let said = SnapshotAnswer::Failed { page, is_denied: true, reason };
                actions.push(Action::Send(client, Answer::Snapshot { number, said }));
            }
            SnapshotRequest::End => self.snapshots.close(snapshot),
            SnapshotRequest::Set { question, partition, ask } => {
                return self.ask_past(snapshot, question, (PartitionId(partition), ask), memory, actions);
            }
        }
        Ok(())
    }

    /// A client wants something of a set as it was.
    fn ask_past(
        &mut self,
        (client, number): SnapshotId,
        question: u64,
        (partition, ask): (PartitionId, PastAsk),
        memory: &dyn Memory,
        actions: &mut Vec<Action>,
    ) -> Result<(), Misbehaviour> {
        let page = PageId::new(partition, 0);
        if ask.length() > SET_ASK_MAX {
            return Err(misbehaved(client, "asked more than there is about the set that would have had", page));
        }
        if matches!(&ask, PastAsk::Record(key) if key.len() > set::KEY_MAX) {
            return Err(misbehaved(
                client,
                "a longer key than there is for a record of a set that would have been",
                page,
            ));
        }
        let refusal = if !self.may(client, page, Right::Read) {
            Some((true, self.note_denial(client, page, Right::Read)))
        } else if !memory.is_set(partition) {
            // Only sets answer such questions; of other pages just their earlier bytes are kept.
            Some((false, format!("partition {} is no set", partition.0)))
        } else {
            None
        };
        if let Some((is_denied, reason)) = refusal {
            let said = SnapshotAnswer::Set { question, said: SetAnswer::Failed { is_denied, reason } };
            actions.push(Action::Send(client, Answer::Snapshot { number, said }));
        } else if self.is_open((client, number)) {
            self.counts.snapshot_reads += 1;
            actions.push(Action::ReadPastOfSet { client, number, question, partition, ask });
        } else {
            actions.push(self.too_old((client, number)));
        }
        Ok(())
    }

    /// Whether a client's snapshot is open.
    pub fn is_open(&self, snapshot: (ClientId, u64)) -> bool {
        self.snapshots.open.contains_key(&snapshot)
    }

    /// What a page was at a snapshot's moment. If that is not known any more, or the snapshot is none, the client is told so and this is
    /// none.
    pub fn as_of(&mut self, snapshot: (ClientId, u64), page: PageId, actions: &mut Vec<Action>) -> Option<AsOf> {
        let moment = self.snapshots.open.get(&snapshot).copied();
        match moment.map(|moment| self.snapshots.versions.as_of(page, moment)) {
            Some(AsOf::Lost) | None => {
                self.counts.snapshots_lost += u64::from(moment.is_some());
                self.snapshots.close(snapshot);
                actions.push(self.too_old(snapshot));
                None
            }
            found => found,
        }
    }

    /// What a snapshot was to see is not known to be durable.
    pub fn undecided_snapshot(&mut self, snapshot: (ClientId, u64), reason: String, actions: &mut Vec<Action>) {
        self.snapshots.close(snapshot);
        let said = SnapshotAnswer::Undecided { reason };
        actions.push(Action::Send(snapshot.0, Answer::Snapshot { number: snapshot.1, said }));
    }
}
