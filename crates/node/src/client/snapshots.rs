//! Snapshots of a node, which see what was committed when they began, and lock nothing.
//!
//! A copy that was here when the server was asked for a snapshot is what the snapshot sees: who changes the page has the copy called back
//! first, and that is said behind the request. So it is read where it is, until it goes or is changed here; its bytes may be kept before
//! that. Where locks fall to those of records no copy stays, and none is given out while a record is being changed: so that holds there, too.
//! What came later, and what is not here, the server is asked for as it was. Those pages are the snapshots' own: they are no copies,
//! and are kept as long as there is room.

use super::{Client, Held, Place};
use crate::message::{PastAsk, Request, SetAnswer, SnapshotAnswer, SnapshotRequest, ToServer};
use base::{Lsn, PageId, PartitionId};
use engine::canary::{self, Canary};
use engine::lock::Mode;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;

/// Snapshots that a node may have open.
pub const SNAPSHOTS_MAX: usize = 64;
/// Pages that are kept for them, unless another number is given.
const KEPT_MAX: usize = 64;

/// How it stands with a snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SnapshotState {
    /// The server has not answered.
    Asked,
    /// It sees all commits up to this moment.
    Open(Lsn),
    /// What it sees is not known any more.
    TooOld {
        /// The oldest moment of which all was known.
        oldest: Lsn,
    },
    /// What it would see may not be durable: why, in words.
    Undecided(String),
    /// It has ended with its session.
    Over,
}

/// Where a page is as a snapshot sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sight {
    /// In the memory.
    Here,
    /// This.
    Kept(Rc<[u8]>),
    /// At the server.
    Elsewhere,
}

struct OpenSnapshot {
    state: SnapshotState,
    /// Copies that are older than this are what it sees.
    asked: u64,
    kept: BTreeMap<PageId, Rc<[u8]>>,
    /// The page that was asked for last, and what has come of that.
    wanted: Option<(PageId, Wanted)>,
    /// Pages that were asked for ahead and have not come.
    ahead: BTreeSet<PageId>,
    /// The number of what was asked of a set last, and the answer.
    question: (u64, Option<SetAnswer>),
}

/// What has come of a page that was asked for.
enum Wanted {
    Nothing,
    /// Its bytes, which are kept until another one is asked for.
    Bytes(Rc<[u8]>),
    /// It cannot be had: why, and whether that is for want of a grant.
    Failure(bool, String),
}

/// The snapshots of a node.
pub(super) struct ClientSnapshots {
    open: BTreeMap<u64, OpenSnapshot>,
    next: u64,
    /// How many were asked for.
    now: u64,
    /// What is kept, in the order in which it came.
    order: VecDeque<(u64, PageId)>,
    kept_max: usize,
}

impl Default for ClientSnapshots {
    fn default() -> ClientSnapshots {
        ClientSnapshots { open: BTreeMap::new(), next: 0, now: 0, order: VecDeque::new(), kept_max: KEPT_MAX }
    }
}

impl ClientSnapshots {
    /// The number of those that were asked for so far: what comes now is not older than the last of them.
    pub fn now(&self) -> u64 {
        self.now
    }

    /// The session is over, and they with it.
    pub fn end_session(&mut self) {
        self.order.clear();
        for snapshot in self.open.values_mut() {
            (snapshot.kept, snapshot.wanted, snapshot.ahead) = Default::default();
            if matches!(snapshot.state, SnapshotState::Asked | SnapshotState::Open(_)) {
                snapshot.state = SnapshotState::Over;
            }
        }
    }

    fn keep(&mut self, number: u64, page: PageId, bytes: Rc<[u8]>) {
        let Some(snapshot) = self.open.get_mut(&number) else { return };
        if snapshot.kept.insert(page, bytes).is_none() {
            self.order.push_back((number, page));
        }
        while self.order.len() > self.kept_max {
            let (oldest, page) = self.order.pop_front().expect("there is more than nothing");
            self.open.get_mut(&oldest).and_then(|snapshot| snapshot.kept.remove(&page));
        }
    }
}

impl Client {
    /// From now on this number of pages is kept for all snapshots together.
    pub fn set_snapshot_room(&mut self, pages: usize) {
        self.snapshots.kept_max = pages;
    }

    /// A snapshot is to begin. Returns its number, and what to say; none if too many are open.
    pub fn begin_snapshot(&mut self) -> Option<(u64, ToServer)> {
        let snapshots = &mut self.snapshots;
        if snapshots.open.len() >= SNAPSHOTS_MAX {
            return None;
        }
        let number = snapshots.next;
        (snapshots.next, snapshots.now) = (number + 1, snapshots.now + 1);
        let (state, asked) = (SnapshotState::Asked, snapshots.now);
        let (kept, wanted, ahead, question) = Default::default();
        snapshots.open.insert(number, OpenSnapshot { state, asked, kept, wanted, ahead, question });
        Some((number, self.message(Request::Snapshot { number, request: SnapshotRequest::Begin })))
    }

    /// How it stands with one that was begun and has not ended.
    pub fn snapshot_state(&self, number: u64) -> SnapshotState {
        self.snapshots.open.get(&number).map_or(SnapshotState::Over, |snapshot| snapshot.state.clone())
    }

    /// Whether there are as many as may be.
    pub fn has_all_snapshots(&self) -> bool {
        self.snapshots.open.len() >= SNAPSHOTS_MAX
    }

    /// Whether there are some.
    pub fn has_snapshots(&self) -> bool {
        !self.snapshots.open.is_empty()
    }

    /// The server has said something of one.
    pub fn hear_of_snapshot(&mut self, number: u64, said: SnapshotAnswer) {
        let Some(snapshot) = self.snapshots.open.get_mut(&number) else { return };
        match said {
            SnapshotAnswer::Begun { moment } if snapshot.state == SnapshotState::Asked => {
                snapshot.state = SnapshotState::Open(Lsn(moment));
            }
            SnapshotAnswer::Begun { .. } => {}
            SnapshotAnswer::Page { page, bytes } => {
                snapshot.ahead.remove(&page);
                let bytes: Rc<[u8]> = bytes.into();
                if let Some((_, wanted)) = snapshot.wanted.as_mut().filter(|(wanted, _)| *wanted == page) {
                    *wanted = Wanted::Bytes(Rc::clone(&bytes));
                }
                self.snapshots.keep(number, page, bytes);
            }
            SnapshotAnswer::Failed { page, is_denied, reason } => {
                snapshot.ahead.remove(&page);
                if let Some((_, wanted)) = snapshot.wanted.as_mut().filter(|(wanted, _)| *wanted == page) {
                    *wanted = Wanted::Failure(is_denied, reason);
                }
            }
            SnapshotAnswer::Set { question, said } => {
                if snapshot.question.0 == question {
                    snapshot.question.1 = Some(said);
                }
            }
            SnapshotAnswer::TooOld { oldest } => snapshot.state = SnapshotState::TooOld { oldest: Lsn(oldest) },
            SnapshotAnswer::Undecided { reason } => snapshot.state = SnapshotState::Undecided(reason),
        }
    }

    /// Where a page is as one sees it.
    pub fn sight(&self, number: u64, page: PageId) -> Sight {
        let Some(snapshot) = self.snapshots.open.get(&number) else { return Sight::Elsewhere };
        let wanted = match &snapshot.wanted {
            Some((wanted, Wanted::Bytes(bytes))) if *wanted == page => Some(bytes),
            _ => None,
        };
        match snapshot.kept.get(&page).or(wanted) {
            Some(kept) => Sight::Kept(Rc::clone(kept)),
            None if self.is_since(page, snapshot.asked) && !self.is_written_here(page) => Sight::Here,
            None => Sight::Elsewhere,
        }
    }

    /// What to say for a page that is elsewhere.
    pub fn read_as_of(&mut self, number: u64, page: PageId) -> ToServer {
        if let Some(snapshot) = self.snapshots.open.get_mut(&number) {
            snapshot.wanted = Some((page, Wanted::Nothing));
        }
        self.message(Request::Snapshot { number, request: SnapshotRequest::Read { page } })
    }

    /// What to say for a page that will probably be looked at: it is kept when it comes. None if it is here, or on its way so.
    pub fn read_ahead_as_of(&mut self, number: u64, page: PageId) -> Option<ToServer> {
        if self.sight(number, page) != Sight::Elsewhere || !self.snapshots.open.get_mut(&number)?.ahead.insert(page) {
            return None;
        }
        Some(self.message(Request::Snapshot { number, request: SnapshotRequest::Read { page } }))
    }

    /// A page that is elsewhere is looked at. Whether it is on its way because it was asked for ahead, and need not be asked for.
    pub fn awaits_ahead(&mut self, number: u64, page: PageId) -> bool {
        let Some(snapshot) = self.snapshots.open.get_mut(&number) else { return false };
        let is_coming = snapshot.ahead.contains(&page);
        if is_coming {
            snapshot.wanted = Some((page, Wanted::Nothing));
        }
        is_coming
    }

    /// What to say for something of a set.
    pub fn ask_past(&mut self, number: u64, partition: PartitionId, ask: PastAsk) -> ToServer {
        let mut question = 0;
        if let Some(snapshot) = self.snapshots.open.get_mut(&number) {
            question = snapshot.question.0 + 1;
            snapshot.question = (question, None);
        }
        let request = SnapshotRequest::Set { question, partition: partition.0, ask };
        self.message(Request::Snapshot { number, request })
    }

    /// The answer to what was asked last, told once.
    pub fn take_past(&mut self, number: u64) -> Option<SetAnswer> {
        self.snapshots.open.get_mut(&number)?.question.1.take()
    }

    /// Why the page cannot be had that was asked for last, and whether that is for want of a grant.
    pub fn snapshot_failure(&self, number: u64, page: PageId) -> Option<(bool, String)> {
        match self.snapshots.open.get(&number)?.wanted.as_ref()? {
            (wanted, Wanted::Failure(is_denied, reason)) if *wanted == page => Some((*is_denied, reason.clone())),
            _ => None,
        }
    }

    /// A page that is here is about to be changed or to go, if none of the node's transactions has changed it yet: it is kept for the
    /// snapshots that see it.
    pub fn keep_for_snapshots(&mut self, page: PageId, bytes: &[u8]) {
        let sees = |number: &u64| {
            let snapshot = &self.snapshots.open[number];
            !snapshot.kept.contains_key(&page) && self.is_since(page, snapshot.asked)
        };
        let seeing: Vec<u64> = self.snapshots.open.keys().copied().filter(sees).collect();
        if seeing.is_empty() {
            return;
        }
        let bytes: Rc<[u8]> = bytes.into();
        seeing.into_iter().for_each(|number| self.snapshots.keep(number, page, Rc::clone(&bytes)));
    }

    /// One has ended. What to say, if the server may know of it.
    pub fn end_snapshot(&mut self, number: u64) -> Option<ToServer> {
        let ended = self.snapshots.open.remove(&number)?;
        self.snapshots.order.retain(|(other, _)| *other != number);
        let is_known = matches!(ended.state, SnapshotState::Asked | SnapshotState::Open(_));
        is_known.then(|| self.message(Request::Snapshot { number, request: SnapshotRequest::End }))
    }

    /// Whether what is in the memory of a page, but for what a transaction that runs has changed, was committed and answered before this
    /// snapshot was asked for.
    fn is_since(&self, page: PageId, asked: u64) -> bool {
        let is_old = |held: &Held| held.since < asked || canary::is_planted(Canary::YoungCopies);
        let is_here = |held: &Held| held.place == Place::Resident && is_old(held) && !held.is_spoiled;
        self.copies.get(&page).is_some_and(is_here) && !self.commits.has_changed(page)
    }

    /// Whether a transaction that runs may have changed the page.
    fn is_written_here(&self, page: PageId) -> bool {
        self.uses.keys().any(|transaction| self.lock_of(*transaction, page) == Some(Mode::Exclusive))
    }
}
