//! Range reads of b-trees, both ways. A cursor locks the range that it has gone through, so that a repeated read shows the same.
//! It reads a share of the range at a time: first a few records, since it may not be asked for more, then ever more of a leaf.

mod ahead;
mod look;

pub(super) use look::Looked;

use super::Transaction;
use crate::buffer::{AheadWindow, Pool};
use crate::engine::Engine;
use crate::mvcc::{ReadView, read_at, rest};
use crate::statistics::FoundIn;
use crate::version::{Reconstruction, View};
use crate::{Error, Need, Result};
use base::{PageId, PartitionId, TransactionId};
use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use std::rc::Rc;
use structures::canary::{self, Canary};
use structures::lock::{Mode, Resource};
use structures::organization::b_tree;
use structures::organization::b_tree::stored::{self, Stored};
use structures::page::{Pages, slotted};
use structures::undo::Undo;
use structures::undo::UndoList;

/// Which way a cursor goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From small keys to great ones.
    Forward,
    /// From great keys to small ones.
    Backward,
}

/// A position in a range of keys; [`Transaction::cursor`] shows its use. It shows what its own transaction has made of the
/// records before it, those included that are added there: to add records in the direction of a cursor's way may go on for ever.
#[derive(Clone, Debug)]
pub struct Cursor {
    transaction: TransactionId,
    partition: PartitionId,
    direction: Direction,
    locks: bool,
    /// Whether records are what is locked in its partition, as its latest call has found.
    locks_records: bool,
    /// What it sees, if it takes no locks for that.
    read_view: Option<Rc<ReadView>>,
    /// Whether it has begun to read.
    began: bool,
    /// Where reading goes on; `None` at the end.
    from: Option<Bound<Vec<u8>>>,
    /// Behind what has been shown.
    behind: Bound<Vec<u8>>,
    /// How often its transaction had gone back, and how many updates that had, when it was last looked at.
    changes: (u64, usize),
    /// Whether a record was taken out and not shown, or where reading goes on was not noted: its call has failed, or was given up.
    is_lost: bool,
    /// Whether the end of the range has been reported.
    ended: bool,
    /// Where the range ends, on the far side.
    to: Bound<Vec<u8>>,
    /// Records read and locked, not yet shown.
    ready: VecDeque<(Vec<u8>, Reconstruction)>,
    /// How many records of a leaf its next share has at most.
    share_max: usize,
    /// Whether its next share is of the same leaf as the one before.
    is_within_leaf: bool,
    /// How far it reads ahead.
    read_ahead: AheadWindow,
}

/// How many records the first share of a cursor has at most, and how many times more each next one.
const FIRST_SHARE: usize = 4;
const SHARE_GROWTH: usize = 4;

/// A share of a range, within one leaf: its records, and where to go on.
#[derive(Default)]
struct Share {
    records: VecDeque<(Vec<u8>, Reconstruction)>,
    from: Option<Bound<Vec<u8>>>,
    /// Whether more of the leaf is to come.
    is_within_leaf: bool,
}

/// Where the records of a share are, whose range is locked.
struct MetShare<'a> {
    page: PageId,
    leaf: &'a [u8],
    /// Its first record, and how many there are in the cursor's direction.
    first: u16,
    count: u16,
    direction: Direction,
    /// Where to go on, and whether that is in the same leaf.
    from: Option<Bound<Vec<u8>>>,
    is_within_leaf: bool,
}

impl<'a> MetShare<'a> {
    /// The slots of the records, in the cursor's direction.
    fn slots(&self) -> impl Iterator<Item = u16> {
        let (first, direction) = (self.first, self.direction);
        (0..self.count).map(move |index| slot_at(direction, first, index))
    }

    /// The stored value at a slot, and its key in `key`.
    fn record(&self, slot: u16, key: &mut Vec<u8>) -> &'a [u8] {
        slotted::key_into(self.leaf, slot, key);
        slotted::value(self.leaf, slot)
    }
}

/// The slot that is this number of records behind the first one.
fn slot_at(direction: Direction, first: u16, index: u16) -> u16 {
    match direction {
        Direction::Forward => first + index,
        Direction::Backward => first - index,
    }
}

impl Cursor {
    /// Reads without locks: shows what others have not committed, and a repeated read may show something else. For checks
    /// while nothing else runs, which would otherwise lock every record.
    pub fn without_locks(mut self) -> Cursor {
        self.locks = false;
        self
    }

    /// Whether it locks what it shows.
    pub(super) fn takes_locks(&self) -> bool {
        self.locks && self.locks_records
    }

    pub(super) fn partition(&self) -> PartitionId {
        self.partition
    }

    pub(super) fn direction(&self) -> Direction {
        self.direction
    }

    /// What it sees, if it takes no locks for that.
    pub(super) fn view(&self) -> Option<View> {
        self.read_view.as_ref().map(|read_view| read_view.view)
    }

    /// Whether a key lies in its direction from a bound on.
    fn lies_ahead(&self, bound: &Bound<Vec<u8>>, key: &[u8]) -> bool {
        match self.direction {
            Direction::Forward => is_after(key, bound),
            Direction::Backward => is_before(key, bound),
        }
    }

    /// Whether the key is of what has been read and not been shown.
    fn has_read(&self, key: &[u8]) -> bool {
        self.lies_ahead(&self.behind, key) && self.from.as_ref().is_none_or(|from| !self.lies_ahead(from, key))
    }

    /// Whether a key lies before the end of the range.
    fn is_within(&self, key: &[u8]) -> bool {
        match self.direction {
            Direction::Forward => is_before(key, &self.to),
            Direction::Backward => is_after(key, &self.to),
        }
    }

    /// Whether the range goes on in the leaf behind this fence.
    fn goes_on_at(&self, fence: &[u8]) -> bool {
        match (self.direction, &self.to) {
            (Direction::Forward, _) => self.is_within(fence),
            (Direction::Backward, Bound::Included(to) | Bound::Excluded(to)) => fence > to.as_slice(),
            (Direction::Backward, Bound::Unbounded) => true,
        }
    }

    /// The bounds of what is between two places, of which the first one comes first on its way.
    fn between<'b>(&self, first: Bound<&'b [u8]>, then: Bound<&'b [u8]>) -> (Bound<&'b [u8]>, Bound<&'b [u8]>) {
        match self.direction {
            Direction::Forward => (first, then),
            Direction::Backward => (then, first),
        }
    }

    /// Has everything that was not shown be read again.
    fn read_again(&mut self) {
        self.ready.clear();
        self.from = Some(self.behind.clone());
        self.is_within_leaf = false;
    }

    /// The record of this key is shown.
    fn pass(&mut self, key: &[u8]) {
        match &mut self.behind {
            Bound::Excluded(last) => {
                last.clear();
                last.extend_from_slice(key);
            }
            first => *first = Bound::Excluded(key.to_vec()),
        }
    }

    /// What its view sees of the share of a leaf that was just read.
    fn seen(&self, engine: &Engine, mut share: Share) -> Result<Share> {
        let Some(read_view) = &self.read_view else { return Ok(share) };
        let from = as_slice(self.from.as_ref().expect("the range is not at its end"));
        // What is before the next leaf; the range may end earlier.
        let (lower, upper) = self.between(from, share.from.as_ref().map_or(as_slice(&self.to), before));
        let ghosts = engine.versions.ghosts_within(read_view.view, self.partition, (lower, upper))?;
        if ghosts.is_empty() {
            for (key, past) in &mut share.records {
                *past =
                    engine.versions.reconstruct_in_memory(read_view.view, self.partition, key, past.state.take())?;
            }
            return Ok(share);
        }
        let mut records: BTreeMap<Vec<u8>, Option<Vec<u8>>> = ghosts.into_iter().map(|key| (key, None)).collect();
        records.extend(share.records.into_iter().map(|(key, past)| (key, past.state)));
        share.records = VecDeque::with_capacity(records.len());
        for (key, state) in records.into_iter().filter(|(key, _)| self.is_within(key)) {
            let past = engine.versions.reconstruct_in_memory(read_view.view, self.partition, &key, state)?;
            match self.direction {
                Direction::Forward => share.records.push_back((key, past)),
                Direction::Backward => share.records.push_front((key, past)),
            }
        }
        Ok(share)
    }
}

/// What a step through a leaf came to.
enum LeafStep {
    Read(Share),
    Blocked(Resource),
}

impl LeafStep {
    fn is_read(&self) -> bool {
        matches!(self, LeafStep::Read(_))
    }
}

pub(super) fn as_slice(bound: &Bound<Vec<u8>>) -> Bound<&[u8]> {
    match bound {
        Bound::Included(key) => Bound::Included(key),
        Bound::Excluded(key) => Bound::Excluded(key),
        Bound::Unbounded => Bound::Unbounded,
    }
}

/// The near side of where a range goes on: what is before it has been read.
fn before(next: &Bound<Vec<u8>>) -> Bound<&[u8]> {
    match next {
        Bound::Included(key) => Bound::Excluded(key),
        Bound::Excluded(key) => Bound::Included(key),
        Bound::Unbounded => Bound::Unbounded,
    }
}

impl Transaction {
    /// A cursor over the keys between `lower` and `upper`, beginning at the end that `direction` comes from.
    ///
    /// ```
    /// # mod ground { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/ground/database.rs")); }
    /// # use ground::*;
    /// # use entresol_engine::Direction;
    /// # with_database(async |database| {
    /// # let readings = database.create_partition(PartitionSpec::b_tree("readings")).await?;
    /// use std::ops::Bound;
    ///
    /// database
    ///     .transaction(async |tx| {
    ///         for hour in 0..24_u8 {
    ///             tx.put(readings, &[hour], &[hour + 10]).await?;
    ///         }
    ///         // The readings before noon, the latest first.
    ///         let mut morning = tx.cursor(readings, Bound::Unbounded, Bound::Excluded(&[12]), Direction::Backward);
    ///         let mut hours = Vec::new();
    ///         while let Some((key, _value)) = tx.next(&mut morning).await? {
    ///             hours.push(key[0]);
    ///         }
    ///         assert!(hours.iter().copied().eq((0..12).rev()));
    ///         Ok::<_, entresol_engine::Error>(())
    ///     })
    ///     .await?;
    /// # Ok(())
    /// # });
    /// ```
    pub fn cursor(
        &self,
        partition: PartitionId,
        lower: Bound<&[u8]>,
        upper: Bound<&[u8]>,
        direction: Direction,
    ) -> Cursor {
        let own = |bound: Bound<&[u8]>| bound.map(<[u8]>::to_vec);
        self.cursor_within(partition, (own(lower), own(upper)), direction)
    }

    pub(super) fn cursor_within(
        &self,
        partition: PartitionId,
        (lower, upper): (Bound<Vec<u8>>, Bound<Vec<u8>>),
        direction: Direction,
    ) -> Cursor {
        let (from, to) = match direction {
            Direction::Forward => (lower, upper),
            Direction::Backward => (upper, lower),
        };
        let read_view = self.read_view().map(Rc::new);
        Cursor {
            transaction: self.state.id,
            partition,
            direction,
            locks: read_view.is_none(),
            locks_records: false,
            read_view,
            began: false,
            behind: from.clone(),
            from: Some(from),
            changes: self.changes(),
            is_lost: false,
            ended: false,
            to,
            ready: VecDeque::new(),
            share_max: FIRST_SHARE,
            is_within_leaf: false,
            read_ahead: AheadWindow::default(),
        }
    }

    /// What tells a cursor whether its transaction has changed anything.
    fn changes(&self) -> (u64, usize) {
        (self.state.rollbacks.count(), self.state.updates())
    }

    /// Has a cursor read again what its transaction has changed since it was read.
    #[cold]
    fn read_again_if_changed(&self, cursor: &mut Cursor) {
        let (rollbacks, updates) = cursor.changes;
        cursor.changes = self.changes();
        let undo = self.state.undo.borrow();
        let is_outdated = cursor.changes.0 != rollbacks
            || undo.since(updates).any(|stored| match UndoList::decode(stored) {
                Undo::Remove { partition, key }
                | Undo::Insert { partition, key, .. }
                | Undo::Replace { partition, key, .. }
                | Undo::PatchValue { partition, key, .. } => partition == cursor.partition && cursor.has_read(key),
                Undo::PatchPage { .. } | Undo::EraseAppended { .. } | Undo::FreePage { .. } => false,
            });
        if is_outdated && !canary::is_planted(Canary::StaleCursor) {
            cursor.read_again();
        }
    }

    /// Begins a call that has the cursor go on; false if the end of its range was reported.
    fn resume(&mut self, cursor: &mut Cursor) -> Result<bool> {
        self.check_active()?;
        let found = self.engine.catalog.find_keyed(cursor.partition)?;
        if found.is_set {
            return Err(self
                .engine
                .catalog
                .describe(cursor.partition)?
                .wrong_organization("a set has no order; scan it"));
        }
        if cursor.transaction != self.state.id {
            return Err(Error::Argument(
                "a cursor goes with the transaction that has made it, and with no other".into(),
            ));
        }
        if let Some(view) = cursor.view() {
            self.engine.versions.check_emptied(cursor.partition, view.at)?;
        }
        cursor.locks_records = found.locks_records;
        self.mark_not_replayable()?;
        if cursor.ended {
            return Ok(false);
        }
        if cursor.changes != self.changes() {
            self.read_again_if_changed(cursor);
        }
        if std::mem::take(&mut cursor.is_lost) {
            cursor.read_again();
        }
        Ok(true)
    }

    /// The cursor's next record, key and value; `None` at the end of the range.
    ///
    /// # Errors
    /// [`crate::Error::Deadlock`], [`crate::Error::NoPartition`], [`crate::Error::WrongOrganization`], a damaged page, or
    /// the driver's. [`crate::Error::Argument`] if the cursor was made by another transaction.
    pub async fn next(&mut self, cursor: &mut Cursor) -> Result<Option<(Vec<u8>, Vec<u8>)>> {
        if !self.resume(cursor)? {
            return Ok(None);
        }
        let mut from = FoundIn::default();
        loop {
            if let Some((key, past)) = cursor.ready.pop_front() {
                cursor.is_lost = true;
                let value = self.resolve(cursor, &key, past).await?;
                cursor.is_lost = false;
                match value {
                    Some(value) => {
                        cursor.pass(&key);
                        return Ok(Some((key, value)));
                    }
                    None => continue,
                }
            }
            if cursor.from.is_none() {
                cursor.ended = true;
                return Ok(None);
            }
            if !cursor.locks && cursor.read_view.is_none() {
                self.note_unlocked();
            }
            let is_within_leaf = cursor.is_within_leaf;
            let is_first = self.refer_to_leaf(cursor).await?;
            let engine = self.engine.clone();
            let (step, missed) = if cursor.read_view.is_some() {
                self.read_past_leaf(cursor, &mut from, is_first).await?
            } else {
                let (place, read) = ((cursor.partition, &mut from), || self.read_leaf(cursor));
                engine.core.resolve_share(place, (is_within_leaf, is_first), LeafStep::is_read, read).await?
            };
            match step {
                LeafStep::Read(share) => {
                    if let Some((key, _)) = share.records.front().filter(|_| !is_within_leaf) {
                        self.trace_key_access(cursor.partition, key, false);
                    }
                    cursor.share_max = cursor.share_max.saturating_mul(SHARE_GROWTH);
                    cursor.ready = share.records;
                    cursor.from = share.from;
                    cursor.is_within_leaf = share.is_within_leaf;
                    if !is_within_leaf {
                        cursor.read_leaves_ahead(&engine.core.buffer, (is_first, missed));
                    }
                }
                LeafStep::Blocked(resource) => self.lock(resource, Mode::Shared).await?,
            }
        }
    }

    /// Before the next share: a reference, if it is of another leaf than the one before. Returns whether it is the cursor's first one.
    async fn refer_to_leaf(&self, cursor: &mut Cursor) -> Result<bool> {
        if !cursor.is_within_leaf && self.reference() {
            self.delayed_reference().await?;
        }
        Ok(!std::mem::replace(&mut cursor.began, true))
    }

    /// Reads what a view sees of the next leaf's share: no transaction waits for a long reader, so it yields first unless this
    /// is its first leaf.
    async fn read_past_leaf(
        &mut self,
        cursor: &Cursor,
        from: &mut FoundIn,
        is_first: bool,
    ) -> Result<(LeafStep, bool)> {
        let (engine, pace) = (self.engine.clone(), self.pace());
        if !is_first {
            rest(&engine, &pace).await;
        }
        let mut read = || match self.read_leaf(cursor)? {
            LeafStep::Read(share) => Ok(LeafStep::Read(cursor.seen(&engine, share)?)),
            blocked @ LeafStep::Blocked(_) => Ok(blocked),
        };
        let read = || engine.versions.step_of(&pace, &mut read);
        let place = (cursor.partition, from);
        engine.core.resolve_share(place, (cursor.is_within_leaf, is_first), LeafStep::is_read, read).await
    }

    /// The value of a record that was read; `None` if a view sees none there after all.
    async fn resolve(&self, cursor: &Cursor, key: &[u8], past: Reconstruction) -> Result<Option<Vec<u8>>> {
        let (engine, partition) = (&self.engine, cursor.partition);
        let stored = match &cursor.read_view {
            Some(read_view) => engine.versions.reconstruct(read_view.view, partition, key, past).await?,
            None => past.state,
        };
        let Some(mut stored) = stored else { return Ok(None) };
        match (stored::read(&stored), &cursor.read_view) {
            (Stored::Here(_), _) => {
                stored.drain(..stored::VERSION_SIZE);
                Ok(Some(stored))
            }
            (Stored::Elsewhere(length, first), None) => engine.core.fetch(partition, length, first).await.map(Some),
            (Stored::Elsewhere(..), Some(read_view)) => {
                read_at(engine, read_view.view, (partition, false), key, None).await
            }
        }
    }

    /// Reads the next share, locking as it goes; stops at the first lock that has to be waited for.
    fn read_leaf(&mut self, cursor: &Cursor) -> Result<LeafStep, Need> {
        let engine = self.engine.clone();
        let pool = engine.core.pages_to_search();
        let (mut records, mut bytes) = (VecDeque::new(), 0);
        let read = |key: &[u8], stored: &[u8]| {
            bytes += stored.len();
            records.push_back((key.to_vec(), Reconstruction::present(stored)));
        };
        let met = match self.meet_share(cursor, &pool, read)? {
            Ok(met) => met,
            Err(resource) => return Ok(LeafStep::Blocked(resource)),
        };
        engine.core.buffer.charge_value(met.page, 0, bytes);
        Ok(LeafStep::Read(Share { records, from: met.from, is_within_leaf: met.is_within_leaf }))
    }

    /// Finds the next share and locks it, or says what has to be waited for first. `meet` is shown each record once it is locked
    /// itself, but not yet what lies between.
    fn meet_share<'a>(
        &self,
        cursor: &Cursor,
        pool: &'a Pool,
        mut meet: impl FnMut(&[u8], &'a [u8]),
    ) -> Result<Result<MetShare<'a>, Resource>, Need> {
        if !cursor.locks_records && self.has_left_undo(cursor.partition) {
            return Ok(Err(Resource::partition(cursor.partition)));
        }
        let from = as_slice(cursor.from.as_ref().expect("the range is not at its end"));
        let direction = cursor.direction;
        let position = match direction {
            Direction::Forward => b_tree::forward(pool, cursor.partition, from)?,
            Direction::Backward => b_tree::backward(pool, cursor.partition, from)?,
        };
        let leaf = pool.page(position.page)?;
        let (first, rest) = match direction {
            Direction::Forward => (position.slot, slotted::count(leaf) - position.slot),
            Direction::Backward => (position.slot.saturating_sub(1), position.slot),
        };
        // The next leaf begins, or ends, at the fence.
        let next = position.fence.filter(|fence| cursor.goes_on_at(fence));
        let next = next.map(|fence| match direction {
            Direction::Forward => Bound::Included(fence),
            Direction::Backward => Bound::Excluded(fence),
        });
        let mut met =
            MetShare { page: position.page, leaf, first, count: 0, direction, from: next, is_within_leaf: false };
        let (mut key, mut last) = (Vec::new(), Vec::new());
        while met.count < rest {
            met.is_within_leaf = usize::from(met.count) >= cursor.share_max;
            if met.is_within_leaf {
                met.from = Some(Bound::Excluded(last.clone()));
                break;
            }
            let slot = slot_at(direction, first, met.count);
            slotted::key_into(leaf, slot, &mut key);
            if !cursor.is_within(&key) {
                met.from = None;
                break;
            }
            if let Some(record) = self.meet_record(cursor, &key) {
                let seen = cursor.between(from, Bound::Excluded(&key));
                let before = self.lock_seen(cursor, seen, Some(&last[..]).filter(|_| met.count > 0));
                return Ok(Err(before.unwrap_or(record)));
            }
            meet(&key, slotted::value(leaf, slot));
            std::mem::swap(&mut key, &mut last);
            met.count += 1;
        }
        let end = met.from.as_ref().map_or(as_slice(&cursor.to), before);
        let blocked = self.lock_seen(cursor, cursor.between(from, end), Some(&last[..]).filter(|_| met.count > 0));
        Ok(blocked.map_or(Ok(met), Err))
    }
}

fn is_before(key: &[u8], end: &Bound<Vec<u8>>) -> bool {
    match end {
        Bound::Included(end) => key <= end.as_slice(),
        Bound::Excluded(end) => key < end.as_slice(),
        Bound::Unbounded => true,
    }
}

fn is_after(key: &[u8], end: &Bound<Vec<u8>>) -> bool {
    match end {
        Bound::Included(end) => key >= end.as_slice(),
        Bound::Excluded(end) => key > end.as_slice(),
        Bound::Unbounded => true,
    }
}
