//! Objects of direct partitions, which are found by their numbers: by way of a copy of their page, or by locks of their own while several
//! nodes want objects of the page (see [`crate::client::Granule`]). What comes by a lock of its own is kept with its transaction, and what that
//! changes of it is a log record without a number. Records of b-trees share this, and are in `tree_records.rs`.

use super::reading::Spot;
use super::transaction::WorkDone;
use super::{ClientNode, PageTransaction, RollbackCause};
use crate::client::{Fallen, Granule, RecordAccess, WriteLock};
use crate::leaf_records;
use crate::message::{Copy, RecordLock};
use base::{PageId, PartitionId, TransactionId};
use driver::{Fault, FaultKind, Work};
use engine::buffer::Pins;
use engine::catalog::Organization;
use engine::lock::Mode;
use engine::log::record::{self, Body};
use engine::page::{Change, Edit, Pages};
use engine::second_level::design::Pattern;
use engine::undo::Undo;
use engine::{Error, Need, Result, UNNUMBERED};
use std::rc::Rc;

impl Spot {
    fn part(self) -> std::ops::Range<usize> {
        usize::from(self.offset)..usize::from(self.offset) + self.length
    }
}

impl PageTransaction {
    /// Shows object `number` of a direct partition to `look`.
    ///
    /// # Errors
    /// As [`PageTransaction::get`]; [`Error::NoRecord`] if there are not as many.
    pub async fn read_object<R>(
        &mut self,
        partition: PartitionId,
        number: u64,
        look: impl FnOnce(&[u8]) -> R,
    ) -> Result<R> {
        let spot = self.spot_of(partition, number).await?;
        loop {
            if self.granule(spot.page) == Granule::Record {
                return self.object(spot, false).await.map(|bytes| look(&bytes));
            }
            if self.bring_for_records(spot.page, Mode::Shared).await? {
                let seen = self.with_page(spot.page, |page| look(&page[spot.part()]));
                self.note_record(spot.page, (spot.slot, false));
                return Ok(seen);
            }
        }
    }

    /// Changes object `number` of a direct partition in place.
    ///
    /// # Errors
    /// As [`PageTransaction::read_object`].
    pub async fn modify_object<R>(
        &mut self,
        partition: PartitionId,
        number: u64,
        change: impl FnOnce(&mut [u8]) -> R,
    ) -> Result<R> {
        let spot = self.spot_of(partition, number).await?;
        loop {
            if self.granule(spot.page) == Granule::Record {
                let old = self.object(spot, true).await?;
                let mut new = old.clone();
                let answer = change(&mut new);
                self.update_record(spot, &old, new);
                return Ok(answer);
            }
            if self.lock_for_records(spot.page).await? {
                let old = self.with_page(spot.page, |page| page[spot.part()].to_vec());
                let mut new = old.clone();
                let answer = change(&mut new);
                self.update_page(spot, &old, &new);
                self.note_record(spot.page, (spot.slot, true));
                return Ok(answer);
            }
        }
    }

    async fn spot_of(&self, partition: PartitionId, number: u64) -> Result<Spot> {
        self.pay_reference().await;
        let spot = self.client.spot_of(partition, number).await?;
        self.check().await?;
        Ok(spot)
    }

    pub(super) fn granule(&self, page: PageId) -> Granule {
        self.client.protocol.borrow_mut().granule(self.transaction, page)
    }

    pub(super) fn with_page<T>(&self, page: PageId, look: impl FnOnce(&[u8]) -> T) -> T {
        let pool = self.client.buffer.pool().borrow();
        look(pool.page(page).expect("it has been brought here"))
    }

    /// It has read or changed a record by way of its page, which may fall to that now.
    pub(super) fn note_record(&self, page: PageId, record: (u16, bool)) {
        self.client.protocol.borrow_mut().note_record(self.transaction, page, record);
        self.client.advance();
    }

    /// Has a page here, locked among the transactions of the node, for one that does with records of it: so in the step that follows.
    /// False if it is to come to these in another way by now.
    pub(super) async fn bring_for_records(&mut self, page: PageId, mode: Mode) -> Result<bool> {
        self.check().await?;
        let client = Rc::clone(&self.client);
        client.executor.charge(Work::LockPair);
        let transaction = self.transaction;
        let is_obsolete = || client.protocol.borrow_mut().granule(transaction, page) == Granule::Record;
        if !self.lock_in_node_unless(page, mode, is_obsolete).await? {
            return Ok(false);
        }
        let (mut wait, mut is_first) = (None, true);
        loop {
            if is_obsolete() {
                return Ok(false);
            }
            let told = client.protocol.borrow_mut().enter(transaction, page);
            told.iter().for_each(|told| client.say(told));
            let is_here = client.buffer.pool().borrow().frame_of(page).is_some();
            if std::mem::take(&mut is_first) {
                client.waits.look(is_here);
            }
            if is_here {
                self.see(page)?;
                return Ok(true);
            }
            let waiting = self.await_page(page, mode);
            let mut pins = Pins::new(&client.buffer);
            let needed = client.buffer.resolve(Need::Page(page), Pattern::Random, &mut pins);
            let fetched = self.unless_doomed(needed, &mut wait, || page.to_string()).await;
            // It may fall from now on, and then leaves.
            drop(pins);
            drop(waiting);
            self.check().await?;
            match fetched? {
                Err(Error::Input(fault)) if fault.kind == FaultKind::Cancelled => {}
                fetched => fetched.map(drop)?,
            }
        }
    }

    /// The same, with the page's write lock.
    pub(super) async fn lock_for_records(&mut self, page: PageId) -> Result<bool> {
        if !self.bring_for_records(page, Mode::Exclusive).await? {
            return Ok(false);
        }
        let mut wait = None;
        loop {
            if !self.client.protocol.borrow().is_resident(page) {
                return Ok(false);
            }
            self.pin(page);
            let asked = self.client.protocol.borrow_mut().write(self.transaction, page);
            match asked {
                WriteLock::Held => return Ok(true),
                WriteLock::Ask(message) => {
                    self.client.executor.charge(Work::LockPair);
                    self.client.say(&message);
                }
                WriteLock::Wait => {}
            }
            self.rest(&mut wait, || page.to_string()).await?;
            self.check().await?;
        }
    }

    /// Changes an object on its page, which is here and locked.
    fn update_page(&mut self, spot: Spot, old: &[u8], new: &[u8]) {
        // The locks are looked up for the object, and again for the change of its page.
        self.client.executor.charge(Work::LockPair);
        let Some((from, to)) = structures::difference::difference(old, new) else { return };
        self.client.executor.charge_times(Work::LockPair, 2);
        let (page, offset) = (spot.page, spot.offset + from as u16);
        let undo = Undo::PatchPage { page, offset, bytes: &old[from..to] }.stored();
        let change = Change::Patch { offset, bytes: &new[from..to] };
        self.apply(&Body::Update(&undo), &[Edit { page, change }]);
    }

    /// An object by a lock of its own.
    async fn object(&mut self, spot: Spot, writes: bool) -> Result<Vec<u8>> {
        self.record((spot.page, spot.slot), writes, |bytes| bytes.len() == spot.length).await
    }

    /// What has this number on a page, by a lock of its own, if it is sound.
    pub(super) async fn record(
        &mut self,
        key: (PageId, u16),
        writes: bool,
        is_sound: impl Fn(&[u8]) -> bool,
    ) -> Result<Vec<u8>> {
        let mut wait = None;
        loop {
            self.check().await?;
            if let Some(found) = self.try_record(key, writes, &is_sound) {
                return found;
            }
            self.rest(&mut wait, || format!("record {} of {}", key.1, key.0)).await?;
        }
    }

    /// The same, if it is here or cannot be had. Otherwise it is asked for.
    fn try_record(
        &mut self,
        key: (PageId, u16),
        writes: bool,
        is_sound: impl Fn(&[u8]) -> bool,
    ) -> Option<Result<Vec<u8>>> {
        let (page, slot) = key;
        let mut work = self.work.borrow_mut();
        if let Some(cause) = work.lacking.remove(&key) {
            return Some(Err(cause.into()));
        }
        let access = self.client.protocol.borrow_mut().access_record(self.transaction, page, (slot, writes));
        match access {
            RecordAccess::Held => Some(match work.objects.get(&key) {
                Some(bytes) if is_sound(bytes) => Ok(bytes.clone()),
                _ => {
                    let words = format!("the server has sent record {slot} of {page} damaged");
                    Err(Fault::new(FaultKind::Device, words).into())
                }
            }),
            RecordAccess::Ask(message) => {
                self.client.executor.charge(Work::LockPair);
                self.client.say(&message);
                work.sets.forget_asking();
                None
            }
            RecordAccess::Wait => None,
        }
    }

    /// Changes an object of which it has the lock.
    fn update_record(&mut self, spot: Spot, old: &[u8], new: Vec<u8>) {
        let Some((from, to)) = structures::difference::difference(old, &new) else { return };
        let (page, offset) = (spot.page, spot.offset + from as u16);
        let undo = Undo::PatchPage { page, offset, bytes: &old[from..to] };
        let edit = Edit { page, change: Change::Patch { offset, bytes: &new[from..to] } };
        self.apply_alone((&undo, &edit), (usize::from(offset), &old[from..to]));
        self.work.borrow_mut().objects.insert((page, spot.slot), new);
    }

    /// Notes the record of a change of a record of which it has the lock: a part of its page becomes another one, which was this.
    pub(super) fn apply_alone(&mut self, (undo, edit): (&Undo<'_>, &Edit<'_>), (offset, old): (usize, &[u8])) {
        self.client.executor.charge(Work::LogRecord);
        let (undo, mut work) = (undo.stored(), self.work.borrow_mut());
        record::encode(TransactionId::SYSTEM, &Body::Update(&undo), [(UNNUMBERED, edit)], &mut work.records);
        work.updated.insert(edit.page);
        work.savepoints.note_part(edit.page, offset, old);
    }
}

impl WorkDone {
    /// What it has changed of a page, it has changed of records.
    fn unnumber(&mut self, page: PageId) {
        self.updated.insert(page);
        self.records =
            record::renumbered(&self.records, |_, of, sequence| if of == page { UNNUMBERED } else { sequence });
    }
}

impl ClientNode {
    /// A page falls: its transactions keep the records that they have read and changed of it, and it leaves the buffer.
    pub(super) fn take_apart(&self, Fallen { page, is_here, locks }: Fallen) {
        if !is_here {
            return;
        }
        let mut pool = self.buffer.pool().borrow_mut();
        for RecordLock { slot, transaction, .. } in &locks {
            let works = self.works.borrow();
            let Some(work) = works.get(transaction) else { continue };
            let bytes = pool.page(page).expect("it has not left yet");
            let kept = self.part_of_page(bytes, (page, *slot));
            work.borrow_mut().objects.insert((page, *slot), kept);
        }
        for work in self.works.borrow().values() {
            let mut work = work.borrow_mut();
            pool.peek(page).into_iter().for_each(|bytes| work.savepoints.note_fall(page, bytes));
            if work.changed.remove(&page).is_some() {
                work.unnumber(page);
                self.changing.borrow_mut().remove(&page);
            }
            work.pinned.remove(&page).into_iter().for_each(|frame| pool.unpin(frame));
        }
        drop(pool);
        self.discard(page);
    }

    /// What has this number on a page.
    fn part_of_page(&self, bytes: &[u8], (page, number): (PageId, u16)) -> Vec<u8> {
        if self.has_leaves(page.partition) {
            return leaf_records::pick(bytes, number);
        }
        let length = self.object_length(page.partition);
        let start = engine::page::HEADER_SIZE + usize::from(number) * length;
        bytes[start..start + length].to_vec()
    }

    /// Whether the partition is known as a b-tree.
    pub(super) fn has_leaves(&self, partition: PartitionId) -> bool {
        self.catalog.borrow().organization(partition) == Some(Organization::BTree)
    }

    pub(super) fn object_length(&self, partition: PartitionId) -> usize {
        match self.catalog.borrow().organization(partition) {
            Some(Organization::Direct { record_size, .. }) => record_size as usize,
            _ => 0,
        }
    }

    /// A page does not come, for others have locks of its records.
    pub(super) fn do_with_records(&self, copy: Copy) {
        let (was_waited_for, forgets, answer) = self.protocol.borrow_mut().by_records(copy);
        self.forget(forgets);
        answer.inspect(|answer| self.say(answer));
        if was_waited_for {
            self.reads.fail(copy.page, Fault::new(FaultKind::Cancelled, "others have locks of records of the page"));
        }
        self.advance();
    }

    /// A transaction has the lock of an object, which has come.
    pub(super) fn take_record(&self, (page, lock): (PageId, RecordLock), is_alone: bool, bytes: Vec<u8>) {
        if self.protocol.borrow_mut().record_granted(page, lock, is_alone) {
            self.with_work(lock.transaction, |work| {
                work.lacking.remove(&(page, lock.slot));
                work.objects.insert((page, lock.slot), bytes);
            });
        }
    }

    /// A transaction does not get an object.
    pub(super) fn lack_record(&self, (page, lock): (PageId, RecordLock), cause: Fault) {
        if !self.protocol.borrow_mut().record_refused(page, lock) {
            return;
        }
        if cause.kind == FaultKind::Denied {
            self.condemn(lock.transaction, RollbackCause::Denied(cause.message));
        } else {
            self.lack_set_place((page, lock), &cause);
            self.with_work(lock.transaction, |work| drop(work.lacking.insert((page, lock.slot), cause)));
        }
    }

    /// A transaction has asked for a record of what is no leaf any more.
    pub(super) fn lack_leaf(&self, (page, lock): (PageId, RecordLock)) {
        if self.protocol.borrow_mut().has_no_leaf(page, lock) {
            self.condemn(lock.transaction, RollbackCause::Victim);
        }
    }
}
