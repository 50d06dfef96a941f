//! Records of an append partition: adding one, reading all.
//!
//! If pages take a fixed number of records, places at the end are given out before their page is in memory, so that as
//! many as eight pages may be on their way at once. A place that is given up leaves its page one record short.

use super::Transaction;
use super::log_room::admit_change;
use super::records::LockStep;
use super::update::update;
use crate::buffer::AheadWindow;
use crate::catalog::{Locking, Organization, Partition};
use crate::engine::Core;
use crate::mvcc::{ReadView, appended_in, rest};
use crate::statistics::FoundIn;
use crate::{Error, Need, Result};
use base::{PageId, PartitionId};
use std::rc::Rc;
use structures::lock::{Mode, Resource};
use structures::organization::append::{self, LIVE, Places, Position};
use structures::page::{Change, Edit, Pages};
use structures::undo::Undo;

impl Transaction {
    /// Adds a record at the end of the partition and says where it is.
    ///
    /// # Errors
    /// [`Error::TooLarge`] if it fits no page, [`Error::Deadlock`], [`Error::NoPartition`], [`Error::WrongOrganization`], a
    /// damaged page, or the driver's.
    ///
    /// ```
    /// # mod ground { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/ground/database.rs")); }
    /// # use ground::*;
    /// # with_database(async |database| {
    /// let history = database.create_partition(PartitionSpec::append("history")).await?;
    /// let mut amounts = Vec::new();
    /// database
    ///     .transaction(async |tx| {
    ///         for amount in [20_u8, 30, 50] {
    ///             tx.append(history, &[amount]).await?;
    ///         }
    ///         amounts.clear();
    ///         let all = |_position, record: &[u8]| {
    ///             amounts.push(record[0]);
    ///             true
    ///         };
    ///         tx.scan_appended(history, all).await
    ///     })
    ///     .await?;
    /// assert_eq!(amounts, [20, 30, 50]);
    /// # Ok(())
    /// # });
    /// ```
    pub async fn append(&mut self, partition: PartitionId, record: &[u8]) -> Result<Position> {
        if self.reference() {
            self.delayed_reference().await?;
        }
        let found = self.engine.catalog.describe(partition)?;
        if let Organization::Set { arrivals: true, .. } = found.organization {
            let counted = self.begin_arrival(partition)?;
            let number = match self.append_arrival(&found, None, record).await {
                Ok(number) => number,
                // A repeated call is given numbers for the records that were added, and for no others.
                Err(refused) => {
                    self.mark_not_replayable()?;
                    return Err(refused);
                }
            };
            self.end_arrival(partition, number, counted);
            return Ok(arrival_position(partition, number));
        }
        self.mark_not_replayable()?;
        let Organization::Append { blocking_factor } = found.organization else {
            return Err(found.wrong_organization("records are added to it by key or number"));
        };
        let limit = append::length_max(self.engine.core.page_size());
        if record.len() > limit {
            let partition = found.name.clone();
            return Err(Error::TooLarge { what: "a record", found: record.len(), limit, partition });
        }
        let (rules, mut place, mut from) = ((found.locking, blocking_factor), None, FoundIn::default());
        loop {
            self.engine.core.begin_reference();
            let step = match self.try_append(partition, record, rules, &mut place) {
                Ok(step) => step,
                Err(need) => {
                    let engine = self.engine.clone();
                    let attempt = || self.try_append(partition, record, rules, &mut place);
                    engine.core.resolve_step_after(need, &mut from, attempt).await?
                }
            };
            self.engine.core.end_step(partition, &mut from, step.is_done());
            match step {
                LockStep::Done(position) => {
                    self.trace_access(position.page, position.slot, true);
                    return Ok(position);
                }
                LockStep::Wait(resource, mode) => self.lock(resource, mode).await?,
            }
        }
    }

    /// Adds the record to the page where the next one goes, or says what must be locked first. `place` is that page, once it was
    /// given out.
    #[inline]
    fn try_append(
        &mut self,
        partition: PartitionId,
        record: &[u8],
        (locking, blocking_factor): (Locking, u32),
        place: &mut Option<PageId>,
    ) -> Result<LockStep<Position>, Need> {
        admit_change(&self.engine, &self.state)?;
        let position = end_of(&self.engine.core, partition, record.len() + 1, blocking_factor, place)?;
        if locking != Locking::None && !self.pass_end(partition) {
            return Ok(LockStep::Wait(Resource::end_gap(partition), Mode::InsertIntention));
        }
        let engine = &self.engine;
        let resource = match locking {
            Locking::None => None,
            Locking::Page => Some(Resource::page(position.page)),
            Locking::Record => Some(lock_name(position)),
        };
        if let Some(resource) = resource
            && engine.core.locks.try_acquire(self.state.owner, resource, Mode::Exclusive).is_none()
        {
            return Ok(LockStep::Wait(resource, Mode::Exclusive));
        }
        let mut scratch = engine.core.scratch.borrow_mut();
        let stored = &mut scratch.0;
        stored.clear();
        stored.push(LIVE);
        stored.extend_from_slice(record);
        let Position { page, slot } = position;
        engine.core.buffer.charge_value(page, slot, stored.len());
        let change = Change::InsertSlot { slot, key: &[], value: stored };
        update(&self.engine, &mut self.state, &Undo::EraseAppended { page, slot }, &[Edit { page, change }]);
        drop(scratch);
        self.note_page(page);
        Ok(LockStep::Done(position))
    }

    /// Shows every record of the partition to `look`, in order; `look` returns false to end the scan. Records that others have
    /// added and not yet committed are waited for if the partition is locked by record, and shown if it is not locked. Where
    /// there are locks, no other transaction adds a record until the end of a serializable transaction that has begun to scan.
    ///
    /// # Errors
    /// As [`Transaction::append`].
    pub async fn scan_appended(
        &mut self,
        partition: PartitionId,
        mut look: impl FnMut(Position, &[u8]) -> bool,
    ) -> Result<()> {
        self.check_active()?;
        let found = self.engine.catalog.describe(partition)?;
        if let Organization::Set { arrivals: true, .. } = found.organization {
            if self.read_view().is_none() {
                return self.scan_arrivals(&found, look).await;
            }
            // A view shows them in their order.
            let number = |key: &[u8]| u64::from_be_bytes(key.try_into().expect("the key of an arrival is its number"));
            return self
                .scan_set(partition, |key, record| look(arrival_position(partition, number(key)), record))
                .await;
        }
        if !matches!(found.organization, Organization::Append { .. }) {
            return Err(found.wrong_organization("use a cursor or object numbers"));
        }
        self.mark_not_replayable()?;
        let engine = self.engine.clone();
        let read_view = self.read_view_of(partition)?;
        match found.locking {
            _ if read_view.is_some() => {}
            Locking::None => self.await_unlocked(partition).await?,
            Locking::Page | Locking::Record => self.lock_end(partition).await?,
        }
        let count = engine.core.complete(|| engine.core.page_count(partition)).await?;
        if let Some(read_view) = read_view {
            return self.scan_appended_past(read_view, partition, count, look).await;
        }
        let (mut read_ahead, mut from) = (AheadWindow::default(), FoundIn::default());
        for number in 1..count {
            let (page, place) = (PageId::new(partition, number), (partition, &mut from));
            let share = || engine.core.appended_slots(page);
            let (slots, missed) = engine.core.resolve_share(place, (false, false), |_| true, share).await?;
            read_ahead.go_on(&engine.core.buffer, (page, missed), count);
            self.trace_access(page, 0, false);
            for slot in 0..slots {
                let position = Position { page, slot };
                match found.locking {
                    Locking::None => {}
                    Locking::Page => self.lock(Resource::page(page), Mode::Shared).await?,
                    Locking::Record => self.lock(lock_name(position), Mode::Shared).await?,
                }
                let record = engine.core.complete(|| engine.core.appended_at(position)).await?;
                if record.first() == Some(&LIVE) && !look(position, &record[1..]) {
                    return Ok(());
                }
            }
        }
        Ok(())
    }
}

impl Transaction {
    /// Adds a record to a set of arrivals, under this number if one was given out for it before, and returns its number.
    pub(super) async fn append_arrival(
        &mut self,
        found: &Rc<Partition>,
        number: Option<u64>,
        record: &[u8],
    ) -> Result<u64> {
        if found.schema.is_some() {
            return Box::pin(self.append_typed(found, number, record)).await;
        }
        self.append_to_set((found.id(), number), record, found.locking == Locking::Record).await
    }

    /// Shows the records of an append partition that the view sees.
    async fn scan_appended_past(
        &mut self,
        read_view: ReadView,
        partition: PartitionId,
        count: u32,
        mut look: impl FnMut(Position, &[u8]) -> bool,
    ) -> Result<()> {
        let (engine, pace) = (self.engine.clone(), self.pace());
        let mut read_ahead = AheadWindow::default();
        for number in 1..count {
            let page = PageId::new(partition, number);
            if number > 1 {
                rest(&engine, &pace).await;
            }
            let (seen, missed) = appended_in(&engine, read_view.view, page, &pace).await?;
            read_ahead.go_on(&engine.core.buffer, (page, missed), count);
            self.trace_access(page, 0, false);
            if seen.iter().any(|(position, record)| !look(*position, &record[1..])) {
                return Ok(());
            }
        }
        Ok(())
    }
}

/// The number of an arrival as a position; a set has no pages, so the number is split into that of a page and that of a slot.
pub fn arrival_position(partition: PartitionId, number: u64) -> Position {
    Position { page: PageId::new(partition, (number >> 16) as u32), slot: number as u16 }
}

fn lock_name(position: Position) -> Resource {
    Resource::record(position.page.partition, append::number(position))
}

/// Where a record of `length` stored bytes goes. Where pages take a fixed number of records, `place` is the page that was
/// given out for it, if one was.
fn end_of(
    core: &Core,
    partition: PartitionId,
    length: usize,
    blocking_factor: u32,
    place: &mut Option<PageId>,
) -> Result<Position, Need> {
    loop {
        let pool = core.buffer.pool().borrow();
        let tail = append::tail(&*pool, partition)?;
        let page = match blocking_factor {
            0 => tail,
            _ => give_place(core, &*pool, (partition, tail), blocking_factor, place)?,
        };
        if let Some(page) = page {
            // This one first: those before it are on their way already.
            pool.page(page)?;
        }
        let edits = match page {
            Some(page) if tail >= Some(page) => match append::next_position(&*pool, page, length)? {
                Some(position) => {
                    pool.write_permission(page)?;
                    return Ok(position);
                }
                None if blocking_factor > 0 => {
                    core.with_end(partition, |end| end.places.as_mut().expect("in use").close(page));
                    *place = None;
                    continue;
                }
                None => append::new_tail(&*pool, partition)?,
            },
            _ => append::new_tail(&*pool, partition)?,
        };
        drop(pool);
        let edits: Vec<Edit<'_>> = edits.iter().map(|edit| edit.as_edit()).collect();
        core.change(&edits)?;
        read_ahead(core, partition);
    }
}

/// Behind a new tail the next pages are read while records go there, so that a stream of them waits for none.
fn read_ahead(core: &Core, partition: PartitionId) {
    let buffer = &core.buffer;
    let tail = append::tail(&*buffer.pool().borrow(), partition);
    let Ok(Some(tail)) = tail else { return };
    let pages = core.with_end(partition, |end| end.read_ahead(tail));
    for page in pages.filter(|page| buffer.read_ahead(*page)) {
        core.with_end(partition, |end| end.note_read_ahead(page));
    }
}

/// The page that was given out for a record, or now is; `None` if the tail has to come nearer first.
#[inline]
fn give_place(
    core: &Core,
    pages: &impl Pages,
    (partition, tail): (PartitionId, Option<PageId>),
    blocking_factor: u32,
    place: &mut Option<PageId>,
) -> Result<Option<PageId>, Need> {
    if place.is_some() {
        return Ok(*place);
    }
    core.with_end(partition, |end| {
        let mut places = match end.places {
            Some(places) => places,
            None => Places::read(pages, partition)?,
        };
        if places.ahead(tail, blocking_factor) <= append::AHEAD_MAX {
            *place = Some(places.give(pages, partition, blocking_factor)?);
        }
        end.places = Some(places);
        Ok(*place)
    })
}
