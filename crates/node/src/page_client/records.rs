//! Records of partitions on copies of pages: the engine's own organizations, whose functions look at pages and say what they lack.
//!
//! A lock is a page's, or falls to one record's (`tree_records.rs`); and as all that is seen stays locked to the end, there are no phantoms.
//!
//! Records with a type, and their entries in indexes, are in `indexed.rs`; long values in `long_values.rs`; ranges in `ranges.rs`; records of
//! memory-resident sets, which have no pages, in `sets.rs`.

use super::indexed::Typed;
use super::view::{Intent, LockedPages};
use super::{PageTransaction, reading};
use crate::message::Described;
use base::{PageId, PartitionId};
use driver::Work;
use engine::catalog::Organization;
use engine::log::record::Body;
use engine::organization::append::{self, LIVE, Position};
use engine::organization::b_tree;
use engine::organization::b_tree::stored::{self, Stored, VALUE_LEN_MAX, VERSION_SIZE};
use engine::page::{Change, Edit, OwnedEdit, PageKind, Pages, header, slotted};
use engine::set::add_to;
use engine::undo::Undo;
use engine::{Direction, Error, Result};
use std::ops::{Bound, Range};
use std::rc::Rc;
use structures::Need;

impl PageTransaction {
    /// The value of `key`, if there is such a record.
    ///
    /// # Errors
    /// As [`PageTransaction::read`]; [`Error::NoPartition`], [`Error::WrongOrganization`].
    pub async fn get(&mut self, partition: PartitionId, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.pay_reference().await;
        let found = self.keyed(partition).await?;
        self.read_keyed(&found, key, Intent::Read).await
    }

    /// As [`PageTransaction::get`], for a record that will probably be changed: others may go on reading its page, but no other transaction
    /// gets it for update, so two such transactions do not deadlock when they come to change it.
    ///
    /// # Errors
    /// As [`PageTransaction::get`].
    pub async fn get_for_update(&mut self, partition: PartitionId, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.pay_reference().await;
        let found = self.keyed(partition).await?;
        self.read_keyed(&found, key, Intent::Change).await
    }

    /// Inserts a record or gives the present one this value. If it fails halfway, as when the node's buffer is too small for a long value, its
    /// transaction can only be rolled back: all that is called of it afterwards gets [`Error::Abandoned`].
    ///
    /// # Errors
    /// As [`PageTransaction::get`]; [`Error::TooLarge`] if key or value is beyond what a b-tree holds; [`Error::Field`] if the partition's
    /// records have a type of which it is none, or if another one has its place in a unique index.
    pub async fn put(&mut self, partition: PartitionId, key: &[u8], value: &[u8]) -> Result<()> {
        self.write_record(partition, key, value, true).await.map(drop)
    }

    /// Inserts a record; halfway as [`PageTransaction::put`].
    ///
    /// # Errors
    /// [`Error::Duplicate`] if there is one with this key, and as [`PageTransaction::put`].
    pub async fn insert(&mut self, partition: PartitionId, key: &[u8], value: &[u8]) -> Result<()> {
        if self.write_record(partition, key, value, false).await? {
            return Ok(());
        }
        Err(Error::Duplicate(self.keyed(partition).await?.name.clone()))
    }

    /// Writes a record; false if there is one already and it must not be replaced.
    async fn write_record(&mut self, partition: PartitionId, key: &[u8], value: &[u8], replace: bool) -> Result<bool> {
        self.pay_reference().await;
        let found = self.keyed(partition).await?;
        if !found.has_pages() {
            return self.write_in_set(&found, key, Some(value), replace).await;
        }
        match self.client.schema(&found)? {
            Some(schema) => Box::pin(self.write_indexed(&Typed { found, schema }, key, Some(value), replace)).await,
            None => {
                self.check_length(&found, key, value.len())?;
                let may_stay = replace && self.may_fall() && self.fits_leaf(key, value);
                if may_stay && self.overwrite(partition, key, value).await? {
                    return Ok(true);
                }
                self.write_in_tree(&found, key, value, replace).await
            }
        }
    }

    /// Writes a record of a b-tree that is within the limits; false if there is one already and it must not be replaced.
    pub(super) async fn write_in_tree(
        &mut self,
        found: &Described,
        key: &[u8],
        value: &[u8],
        replace: bool,
    ) -> Result<bool> {
        if self.fits_leaf(key, value) {
            let (mut stored, before) = (Vec::new(), self.work.borrow().records.len());
            stored::store_here(value, &mut stored);
            return match self.write_stored(found.id(), key, &stored, replace).await? {
                Written::Present => Ok(false),
                Written::Replaced(old) if stored::is_long(&old) => {
                    // Its pages are part of nothing until they are free.
                    self.wholly_since(before, async |tx| tx.free_value(found, &old).await).await?;
                    Ok(true)
                }
                Written::Replaced(_) | Written::Inserted => Ok(true),
            };
        }
        // Its leaf before pages of the value: who comes for the same record meets it there. And no value is built in vain.
        if self.find_to_change(found.id(), key).await?.is_some() && !replace {
            return Ok(false);
        }
        self.wholly(async |tx| {
            let stored = tx.store_elsewhere(found.id(), value).await?;
            if let Written::Replaced(old) = tx.write_stored(found.id(), key, &stored, true).await? {
                tx.free_value(found, &old).await?;
            }
            Ok(true)
        })
        .await
    }

    /// Writes a stored value.
    async fn write_stored(
        &mut self,
        partition: PartitionId,
        key: &[u8],
        stored: &[u8],
        replace: bool,
    ) -> Result<Written> {
        loop {
            let step = self.resolve(Intent::Change, |pages| plan_put(pages, partition, key, (stored, replace))).await?;
            match step {
                Step::Restructure(plan) => self.restructure(&plan),
                Step::Present => return Ok(Written::Present),
                Step::Place { place, old: None } => {
                    let change = Change::InsertSlot { slot: place.slot, key, value: stored };
                    let undo = Undo::Remove { partition, key }.stored();
                    self.apply(&Body::Update(&undo), &[Edit { page: place.page, change }]);
                    return Ok(Written::Inserted);
                }
                Step::Place { place, old: Some(old) } => {
                    let change = Change::ReplaceValue { slot: place.slot, value: stored };
                    let undo = Undo::Replace { partition, key, value: &old }.stored();
                    self.apply(&Body::Update(&undo), &[Edit { page: place.page, change }]);
                    return Ok(Written::Replaced(old));
                }
            }
        }
    }

    /// Where a record is, whose page the transaction may write from now on, and its stored value; `None` if there is none with this key.
    pub(super) async fn find_to_change(
        &mut self,
        partition: PartitionId,
        key: &[u8],
    ) -> Result<Option<(b_tree::Location, Vec<u8>)>> {
        self.resolve(Intent::Change, |pages| {
            let (place, leaf) = b_tree::find(pages.to_search(), partition, key)?;
            if !place.exact {
                pages.charge_value(place.page, place.slot, 0);
                return Ok(None);
            }
            pages.write_permission(place.page)?;
            let old = slotted::value(leaf, place.slot);
            pages.charge_value(place.page, place.slot, old.len());
            Ok(Some((place, old.to_vec())))
        })
        .await
    }

    /// Deletes a record; false if there is none with this key. Halfway as [`PageTransaction::put`].
    ///
    /// # Errors
    /// As [`PageTransaction::put`].
    pub async fn delete(&mut self, partition: PartitionId, key: &[u8]) -> Result<bool> {
        self.pay_reference().await;
        let found = self.keyed(partition).await?;
        if !found.has_pages() {
            return self.write_in_set(&found, key, None, true).await;
        }
        match self.client.schema(&found)? {
            Some(schema) => Box::pin(self.write_indexed(&Typed { found, schema }, key, None, true)).await,
            None => self.delete_in_tree(&found, key).await,
        }
    }

    /// Deletes a record of a b-tree; false if there is none with this key.
    pub(super) async fn delete_in_tree(&mut self, found: &Described, key: &[u8]) -> Result<bool> {
        let partition = found.id();
        let Some((place, old)) = self.find_to_change(partition, key).await? else { return Ok(false) };
        self.wholly(async |tx| {
            tx.remove(partition, key, place, &old);
            tx.free_value(found, &old).await?;
            tx.merge(partition, key).await
        })
        .await?;
        Ok(true)
    }

    /// Removes a record, whose page it may write.
    fn remove(&mut self, partition: PartitionId, key: &[u8], place: b_tree::Location, old: &[u8]) {
        let undo = Undo::Insert { partition, key, value: old }.stored();
        let change = Change::RemoveSlot { slot: place.slot };
        self.apply(&Body::Update(&undo), &[Edit { page: place.page, change }]);
    }

    /// Merges until no node on the way to `key` is too empty.
    async fn merge(&mut self, partition: PartitionId, key: &[u8]) -> Result<()> {
        loop {
            let plan = self.resolve(Intent::Change, |pages| {
                let plan = b_tree::merge(pages, partition, key)?;
                plan.iter().try_for_each(|plan| pages.permit(plan))?;
                Ok(plan)
            });
            match plan.await? {
                Some(plan) => self.restructure(&plan),
                None => return Ok(()),
            }
        }
    }

    /// Changes the value of `key` in place: `change` sees its bytes and may alter them, not their number. Halfway as
    /// [`PageTransaction::put`].
    ///
    /// # Errors
    /// As [`PageTransaction::put`]; [`Error::NoRecord`]; [`Error::TooLarge`] for a long value of a record without a type.
    pub async fn modify<R>(
        &mut self,
        partition: PartitionId,
        key: &[u8],
        change: impl FnOnce(&mut [u8]) -> R,
    ) -> Result<R> {
        self.pay_reference().await;
        let found = self.keyed(partition).await?;
        if !found.has_pages() {
            return self.modify_in_set(&found, key, change).await;
        }
        if let Some(schema) = self.client.schema(&found)? {
            let mut answer = None;
            let changed = |old: &[u8]| {
                let mut new = old.to_vec();
                answer = Some(change(&mut new));
                Ok(new)
            };
            Box::pin(self.replace_typed(&Typed { found, schema }, key, changed)).await?;
            return Ok(answer.expect("the record was changed"));
        }
        let page_size = self.client.settings.buffer.page_size;
        let changed = |old: Option<&[u8]>| {
            let old = old.ok_or_else(|| Error::NoRecord(found.name.clone()));
            let old = old.and_then(|old| refuse_long(&found, (key, old), page_size).map(|()| old));
            let changed = old.map(|old| {
                let mut new = old.to_vec();
                let answer = change(&mut new[VERSION_SIZE..]);
                (new, answer)
            });
            match changed {
                Ok((new, answer)) => (Some(new), Ok(answer)),
                Err(error) => (None, Err(error)),
            }
        };
        self.change_stored(partition, key, changed).await?
    }

    /// Adds to the little-endian integer of 1, 2, 4 or 8 bytes that is this part of the value of `key`, modulo its range, and returns it,
    /// without sign.
    ///
    /// # Errors
    /// As [`PageTransaction::modify`], and [`Error::TooLarge`] if the part is not within the value, [`Error::Argument`] if it has another
    /// length.
    pub async fn add(&mut self, partition: PartitionId, key: &[u8], part: Range<usize>, amount: i64) -> Result<u64> {
        if !matches!(part.len(), 1 | 2 | 4 | 8) {
            return Err(Error::Argument(format!("an integer has 1, 2, 4 or 8 bytes, not {}", part.len())));
        }
        let change = |value: &mut [u8]| {
            let length = value.len();
            value.get_mut(part.clone()).map(|part| add_to(part, amount)).ok_or(length)
        };
        let within = self.modify(partition, key, change).await?;
        let name = || self.client.known_name(partition);
        within.map_err(|limit| {
            let (what, found) = ("the end of a part of a value", part.end);
            Error::TooLarge { what, found, limit, partition: name() }
        })
    }

    /// Shows the records of a b-tree from a key on, in order, to `look`, which returns false to end the scan.
    ///
    /// # Errors
    /// As [`PageTransaction::get`].
    pub async fn scan(
        &mut self,
        partition: PartitionId,
        from: Bound<&[u8]>,
        look: impl FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<()> {
        let range = (from.map(<[u8]>::to_vec), Bound::Unbounded);
        self.scan_range(partition, range, Direction::Forward).look(look).await
    }

    /// Adds a record to an append partition and says where it is. Each node adds to pages of its own, so that nodes do not take turns
    /// for the last one: the order of positions is that in which records of one node have come. A set of arrivals gives each record the next
    /// number of all nodes, which its position is made of; of a transaction that is rolled back no record has the number.
    ///
    /// # Errors
    /// As [`PageTransaction::get`]; [`Error::TooLarge`] if it fits no page.
    pub async fn append(&mut self, partition: PartitionId, record: &[u8]) -> Result<Position> {
        self.pay_reference().await;
        let found = self.client.described(partition).await?;
        if !found.has_pages() {
            return self.append_to_set(&found, record).await;
        }
        let Organization::Append { blocking_factor } = found.organization else {
            return Err(found.wrong_organization("records are added to it by key or number"));
        };
        let limit = append::length_max(self.client.settings.buffer.page_size);
        if record.len() > limit {
            return Err(Error::TooLarge {
                what: "a record",
                found: record.len(),
                limit,
                partition: found.name.clone(),
            });
        }
        let mut stored = vec![LIVE];
        stored.extend_from_slice(record);
        let client = Rc::clone(&self.client);
        let own = || client.append_pages.borrow().get(&partition).copied();
        let plan = |pages: &LockedPages<'_>| plan_append(pages, (partition, own()), stored.len(), blocking_factor);
        loop {
            match self.resolve(Intent::Append, plan).await? {
                Err(plan) => {
                    let begun = plan.iter().find(|edit| edit.as_edit().change.is_format()).map(|edit| edit.page);
                    client.append_pages.borrow_mut().insert(partition, begun);
                    self.restructure(&plan);
                }
                Ok(Position { page, slot }) => {
                    let undo = Undo::EraseAppended { page, slot }.stored();
                    let change = Change::InsertSlot { slot, key: &[], value: &stored };
                    client.charge_value(page, slot, stored.len());
                    self.apply(&Body::Update(&undo), &[Edit { page, change }]);
                    client.append_pages.borrow_mut().insert(partition, Some(page));
                    return Ok(Position { page, slot });
                }
            }
        }
    }

    /// Shows every record of an append partition or a set of arrivals to `look`, in order; `look` returns false to end the scan. No other
    /// transaction adds a record to the set from then on until this one ends.
    ///
    /// # Errors
    /// As [`PageTransaction::get`].
    pub async fn scan_appended(
        &mut self,
        partition: PartitionId,
        look: impl FnMut(Position, &[u8]) -> bool,
    ) -> Result<()> {
        let found = self.client.described(partition).await?;
        if !found.has_pages() {
            return self.scan_arrivals(&found, look).await;
        }
        reading::scan_appended(self, partition, look).await
    }

    /// Marks a reference to a record, and pays for what was marked before.
    pub(super) async fn pay_reference(&self) {
        self.client.executor.charge(Work::ObjectReference);
        self.client.executor.pay_debt().await;
    }

    /// What the partition is, if it is a b-tree of users' records.
    pub(super) async fn tree(&self, partition: PartitionId) -> Result<Rc<Described>> {
        self.client.tree(partition).await
    }

    /// What the partition is, if it is one of users' records that have keys: a b-tree or a set.
    pub(super) async fn keyed(&self, partition: PartitionId) -> Result<Rc<Described>> {
        let found = self.client.described(partition).await?;
        if found.has_pages() { self.tree(partition).await } else { found.check_set(&[], None).map(|()| found) }
    }

    pub(super) fn check_length(&self, found: &Described, key: &[u8], length: usize) -> Result<()> {
        let refused = |what, found_length, limit| {
            Err(Error::TooLarge { what, found: found_length, limit, partition: found.name.clone() })
        };
        let key_max = b_tree::key_len_max(self.client.settings.buffer.page_size);
        if key.len() > key_max {
            return refused("a key", key.len(), key_max);
        }
        if length > VALUE_LEN_MAX { refused("a value", length, VALUE_LEN_MAX) } else { Ok(()) }
    }

    /// Makes the edits of a plan that is never undone: whatever becomes of the transaction, records are found all the same.
    pub(super) fn restructure(&mut self, plan: &[OwnedEdit]) {
        let edits: Vec<Edit<'_>> = plan.iter().map(OwnedEdit::as_edit).collect();
        self.apply(&Body::System, &edits);
    }
}

/// What is to be done next to write a record.
enum Step {
    /// These edits, and then it is tried again.
    Restructure(Vec<OwnedEdit>),
    /// It goes there, in the place of this stored value if there is one.
    Place { place: b_tree::Location, old: Option<Vec<u8>> },
    /// There is one, which must not be replaced.
    Present,
}

/// What came of writing a record.
enum Written {
    Inserted,
    /// It has taken the place of this stored value.
    Replaced(Vec<u8>),
    /// Nothing: there is one, which must not be replaced.
    Present,
}

fn plan_put(
    pages: &LockedPages<'_>,
    partition: PartitionId,
    key: &[u8],
    (stored, replace): (&[u8], bool),
) -> Result<Step, Need> {
    if !replace {
        let place = b_tree::find(pages, partition, key)?.0;
        if place.exact {
            pages.charge_value(place.page, place.slot, stored.len());
            return Ok(Step::Present);
        }
    }
    if let Some(plan) = b_tree::make_room(pages, partition, key, stored.len())? {
        pages.permit(&plan)?;
        return Ok(Step::Restructure(plan));
    }
    let (place, leaf) = b_tree::find(pages.to_search(), partition, key)?;
    pages.write_permission(place.page)?;
    let old = place.exact.then(|| slotted::value(leaf, place.slot).to_vec());
    pages.charge_value(place.page, place.slot, stored.len());
    Ok(Step::Place { place, old })
}

/// Where a record of `length` stored bytes goes, or what gives the partition a new tail first. It goes to the node's `own` page if that is one
/// of the partition's, to the tail if the node has added nothing yet.
fn plan_append(
    pages: &LockedPages<'_>,
    (partition, own): (PartitionId, Option<Option<PageId>>),
    length: usize,
    blocking_factor: u32,
) -> Result<std::result::Result<Position, Vec<OwnedEdit>>, Need> {
    let place_on = |page: PageId| -> std::result::Result<_, Need> {
        // The lock first: what is read without it may be full when it comes, and two that have read it are a deadlock.
        pages.write_permission(page)?;
        let is_in_use = header::kind(pages.page(page)?) == Some(PageKind::Append);
        let position = if is_in_use { append::next_position(pages, page, length)? } else { None };
        Ok(position.filter(|position| blocking_factor == 0 || u32::from(position.slot) < blocking_factor))
    };
    // The partition's first page is not looked at unless a new tail is needed: who has looked and waits for the node's own page would
    // be in the way of the transaction that has filled that up.
    if let Some(position) = own.flatten().map(place_on).transpose()?.flatten() {
        return Ok(Ok(position));
    }
    pages.write_permission(PageId::new(partition, 0))?;
    if own.is_none()
        && let Some(tail) = append::tail(pages, partition)?
        && let Some(position) = place_on(tail)?
    {
        return Ok(Ok(position));
    }
    let plan = append::new_tail(pages, partition)?;
    pages.permit(&plan)?;
    Ok(Err(plan))
}

/// A value of the record of this key that does not stand in its leaf is not changed in place.
fn refuse_long(found: &Described, (key, stored): (&[u8], &[u8]), page_size: usize) -> Result<()> {
    let Stored::Elsewhere(length, _) = stored::read(stored) else { return Ok(()) };
    let limit = b_tree::value_len_max(page_size, key.len()) - VERSION_SIZE;
    let what = "for a change in place, a value";
    Err(Error::TooLarge { what, found: length, limit, partition: found.name.clone() })
}
