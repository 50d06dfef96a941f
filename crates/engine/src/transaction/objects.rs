//! Objects of a direct partition: reading and changing one by number.

use super::Transaction;
use super::log_room::admit_change;
use super::update::update;
use crate::catalog::{Locking, Organization};
use crate::engine::lengthen;
use crate::mvcc::object_at;
use crate::second_level::design::Pattern;
use crate::statistics::WaitKind;
use crate::{Error, Need, Result};
use base::{PageId, PartitionId};
use std::ops::Range;
use structures::lock::{Mode, Resource};
use structures::organization::direct::{self, Place};
use structures::page::{Change, Edit, Pages};
use structures::undo::Undo;

/// How many pages a scan reads ahead of itself at once.
const READ_AHEAD_PAGES: u32 = 64;

impl Transaction {
    /// Shows object `number` to `look`.
    ///
    /// # Errors
    /// [`Error::NoRecord`] if there is no such object, [`Error::Deadlock`], [`Error::NoPartition`],
    /// [`Error::WrongOrganization`], a damaged page, or the driver's.
    pub async fn read_object<R>(
        &mut self,
        partition: PartitionId,
        number: u64,
        look: impl FnOnce(&[u8]) -> R,
    ) -> Result<R> {
        if self.reference() {
            self.delayed_reference().await?;
        }
        let engine = self.engine.clone();
        if let Some(read_view) = self.read_view_of(partition)? {
            let (place, length, locking) = self.find_object(partition, number)?;
            if locking == Locking::None {
                self.await_unlocked(partition).await?;
            }
            let pace = self.pace_single().await;
            let seen = object_at(&engine, read_view.view, number, (place, length), pace).await?;
            self.trace_access(place.page, place.slot(length), false);
            return Ok(look(&seen));
        }
        let (place, length) = self.lock_object(partition, number, Mode::Shared).await?;
        let mut look = Some(look);
        let seen = engine
            .core
            .resolve_access(partition, || {
                let pool = engine.core.buffer.pool().borrow();
                let start = usize::from(place.offset);
                let object = &pool.page(place.page)?[start..start + length];
                engine.core.charge_value(&pool, partition, length);
                Ok(look.take().expect("an attempt succeeds once")(object))
            })
            .await?;
        self.trace_access(place.page, place.slot(length), false);
        Ok(seen)
    }

    /// Shows the objects with these numbers to `look`, in their order. Their pages are read ahead, many at a time, and count as read
    /// in sequence; a page that has left memory again before its turn is read once more.
    ///
    /// # Errors
    /// As [`Transaction::read_object`]; those of the last numbers, if there are no such objects, before any is shown.
    ///
    /// ```
    /// # mod ground { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/ground/database.rs")); }
    /// # use ground::*;
    /// # use entresol_engine::catalog::{Locking, Organization};
    /// # with_database(async |database| {
    /// let organization = Organization::Direct { objects: 1_000, blocking_factor: 10, record_size: 8 };
    /// let counters = database.create_partition(PartitionSpec::new("counters", organization, Locking::Record)).await?;
    /// database
    ///     .transaction(async |tx| {
    ///         tx.modify_object(counters, 500, |bytes| bytes[0] = 7).await?;
    ///         let mut sum = 0;
    ///         tx.scan_objects(counters, 250..750, |_, bytes| sum += u64::from(bytes[0])).await?;
    ///         assert_eq!(sum, 7);
    ///         let beyond = tx.scan_objects(counters, 900..1_001, |_, _| ()).await;
    ///         assert!(matches!(beyond, Err(Error::NoRecord(_))));
    ///         Ok::<_, entresol_engine::Error>(())
    ///     })
    ///     .await?;
    /// # Ok(())
    /// # });
    /// ```
    pub async fn scan_objects(
        &mut self,
        partition: PartitionId,
        numbers: Range<u64>,
        mut look: impl FnMut(u64, &[u8]),
    ) -> Result<()> {
        if numbers.is_empty() {
            return Ok(());
        }
        self.find_object(partition, numbers.end - 1)?;
        let mut next = numbers.start;
        while next < numbers.end {
            let first = self.find_object(partition, next)?.0.page;
            let last = self.find_object(partition, numbers.end - 1)?.0.page;
            let end = last.number.min(first.number + READ_AHEAD_PAGES - 1);
            self.read_ahead((first.number..=end).map(|number| PageId { number, ..first })).await?;
            while next < numbers.end && self.find_object(partition, next)?.0.page.number <= end {
                self.read_object(partition, next, |bytes| look(next, bytes)).await?;
                next += 1;
            }
        }
        Ok(())
    }

    /// Reads pages that are about to be used in sequence.
    async fn read_ahead(&self, pages: impl Iterator<Item = PageId>) -> Result<()> {
        let core = &self.engine.core;
        let began = core.executor.now();
        let result = core.buffer.prefetch(pages, Pattern::Sequential).await;
        core.statistics.add_wait(WaitKind::Read, &core.executor, began);
        result
    }

    /// Changes object `number` in place.
    ///
    /// # Errors
    /// As [`Transaction::read_object`].
    ///
    /// ```
    /// # mod ground { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/ground/database.rs")); }
    /// # use ground::*;
    /// # use entresol_engine::catalog::{Locking, Organization};
    /// # with_database(async |database| {
    /// let organization = Organization::Direct { objects: 1_000, blocking_factor: 100, record_size: 8 };
    /// let counters = database.create_partition(PartitionSpec::new("counters", organization, Locking::Record)).await?;
    /// database
    ///     .transaction(async |tx| {
    ///         tx.modify_object(counters, 999, |bytes| bytes[0] += 1).await?;
    ///         assert_eq!(tx.read_object(counters, 999, |bytes| bytes[0]).await?, 1);
    ///         let beyond = tx.read_object(counters, 1_000, |_| ()).await;
    ///         assert!(matches!(beyond, Err(Error::NoRecord(_))));
    ///         Ok::<_, entresol_engine::Error>(())
    ///     })
    ///     .await?;
    /// # Ok(())
    /// # });
    /// ```
    pub async fn modify_object<R>(
        &mut self,
        partition: PartitionId,
        number: u64,
        change: impl FnOnce(&mut [u8]) -> R,
    ) -> Result<R> {
        if self.reference() {
            self.delayed_reference().await?;
        }
        let (place, length) = self.lock_object(partition, number, Mode::Exclusive).await?;
        let engine = self.engine.clone();
        if place.page.number >= engine.core.buffer.pool().borrow().capacity(partition) {
            lengthen(&engine, place.page).await?;
        }
        let mut change = Some(change);
        let state = &mut self.state;
        let answer = engine
            .core
            .resolve_access(partition, || {
                admit_change(&engine, state)?;
                let mut scratch = engine.core.scratch.borrow_mut();
                let (old, new) = &mut *scratch;
                {
                    let pool = engine.core.buffer.pool().borrow();
                    let start = usize::from(place.offset);
                    let page = pool.page(place.page)?;
                    if place.page.number >= pool.capacity(partition) {
                        return Err(Need::Space(partition));
                    }
                    pool.write_permission(place.page)?;
                    engine.core.charge_value(&pool, partition, length);
                    old.clear();
                    old.extend_from_slice(&page[start..start + length]);
                }
                new.clear();
                new.extend_from_slice(old);
                let answer = change.take().expect("an attempt succeeds once")(new);
                let Place { page, offset } = place;
                let undo = Undo::PatchPage { page, offset, bytes: old };
                update(&engine, state, &undo, &[Edit { page, change: Change::Patch { offset, bytes: new } }]);
                Ok(answer)
            })
            .await?;
        self.note_page(place.page);
        self.trace_access(place.page, place.slot(length), true);
        Ok(answer)
    }

    /// Finds an object and locks it, or its page, as the partition's locking asks.
    async fn lock_object(&mut self, partition: PartitionId, number: u64, mode: Mode) -> Result<(Place, usize)> {
        let (place, length, locking) = self.find_object(partition, number)?;
        let record = Resource::record(partition, number);
        match locking {
            // What takes no locks meets no conflict.
            Locking::None => {
                self.await_unlocked(partition).await?;
                return Ok((place, length));
            }
            Locking::Page => self.lock(Resource::page(place.page), mode).await?,
            Locking::Record => self.lock(record, mode).await?,
        }
        self.check_conflict(partition, record, mode)?;
        Ok((place, length))
    }

    /// Where an object is, its length in bytes, and how the partition is locked.
    fn find_object(&self, partition: PartitionId, number: u64) -> Result<(Place, usize, Locking)> {
        self.mark_not_replayable()?;
        let found = self.engine.catalog.describe(partition)?;
        let Organization::Direct { objects, blocking_factor, record_size } = found.organization else {
            return Err(found.wrong_organization("its records have no numbers"));
        };
        if number >= objects {
            return Err(Error::NoRecord(found.name.clone()));
        }
        let place = direct::place(partition, number, blocking_factor, record_size);
        Ok((place, record_size as usize, found.locking))
    }
}
