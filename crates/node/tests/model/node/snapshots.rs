//! Snapshots of a node of the model: one at a time, which reads pages beside the node's transactions.

use super::{Node, Said, page, version};
use base::{PageId, Random};
use entresol_node::client::{Sight, SnapshotState};

/// A snapshot that is open, or was asked for.
pub struct NodeSnapshot {
    number: u64,
    /// The last commit that was acknowledged before.
    floor: u64,
    /// The page that was asked for.
    awaited: Option<PageId>,
    /// How many it is still to read.
    reads: u64,
}

impl Node {
    /// The next step of its snapshot. `as_of` tells a page's version at a moment.
    pub fn step_snapshot(
        &mut self,
        pages: u64,
        acknowledged: u64,
        as_of: &dyn Fn(PageId, u64) -> u64,
        random: &mut Random,
    ) -> Result<Vec<Said>, String> {
        let Some(snapshot) = &self.snapshot else { return Ok(self.begin_snapshot(acknowledged, random)) };
        let moment = match self.protocol.snapshot_state(snapshot.number) {
            SnapshotState::Asked => return Ok(Vec::new()),
            SnapshotState::Open(moment) => moment.0,
            SnapshotState::Undecided(why) => return Err(format!("no log fails here: {why}")),
            SnapshotState::TooOld { .. } => {
                self.snapshots_lost += 1;
                return Ok(self.end_snapshot());
            }
            SnapshotState::Over => return Ok(self.end_snapshot()),
        };
        if moment < snapshot.floor {
            return Err(format!("a snapshot has moment {moment}, and {} was acknowledged before", snapshot.floor));
        }
        if snapshot.reads == 0 {
            return Ok(self.end_snapshot());
        }
        let wanted = snapshot.awaited.unwrap_or_else(|| page(random.below(pages)));
        let found = match self.protocol.sight(snapshot.number, wanted) {
            Sight::Here => self.memory[&wanted].version,
            Sight::Kept(bytes) => version(&bytes),
            Sight::Elsewhere if snapshot.awaited.is_some() => return Ok(Vec::new()),
            Sight::Elsewhere => {
                let message = self.protocol.read_as_of(snapshot.number, wanted);
                self.snapshot.as_mut().expect("it is open").awaited = Some(wanted);
                return Ok(vec![Said::Server(message)]);
            }
        };
        let expected = as_of(wanted, moment);
        if found != expected {
            let place = self.place;
            return Err(format!(
                "a snapshot of node {place} at {moment} reads version {found} of {wanted}, not {expected}"
            ));
        }
        let snapshot = self.snapshot.as_mut().expect("it is open");
        (snapshot.awaited, snapshot.reads) = (None, snapshot.reads - 1);
        self.snapshot_reads += 1;
        Ok(Vec::new())
    }

    fn begin_snapshot(&mut self, floor: u64, random: &mut Random) -> Vec<Said> {
        self.protocol.set_snapshot_room(random.below(4) as usize);
        let (number, message) = self.protocol.begin_snapshot().expect("there is no other one");
        self.snapshot = Some(NodeSnapshot { number, floor, awaited: None, reads: random.between(1, 12) });
        vec![Said::Server(message)]
    }

    fn end_snapshot(&mut self) -> Vec<Said> {
        let ended = self.snapshot.take().and_then(|snapshot| self.protocol.end_snapshot(snapshot.number));
        ended.into_iter().map(Said::Server).collect()
    }

    /// What is in the memory of a page is about to be changed, or to go.
    pub(super) fn keep_for_snapshot(&mut self, page: PageId) {
        if let Some(slot) = self.memory.get(&page).filter(|_| !self.writes.contains_key(&page)) {
            self.protocol.keep_for_snapshots(page, &slot.version.to_le_bytes());
        }
    }
}
