//! Records of partitions on copies of pages: the engine's own organizations, whose functions look at pages and say what they lack.
//!
//! A lock is a page's, so these need none of their own; and as all that is seen stays locked to the end, there are no phantoms.
//!
//! What is not here: memory-resident sets, which have no pages; records with a type or an index, which the server would have to keep
//! in order; writing long values, whose pages are freed only behind a commit. Each is refused in words.

use super::PageTransaction;
use super::view::{Intent, LockedPages};
use crate::message::Described;
use base::{PageId, PartitionId};
use driver::Work;
use engine::catalog::Organization;
use engine::log::record::Body;
use engine::organization::append::{self, LIVE, Position};
use engine::organization::b_tree::stored::{self, Stored, VERSION_SIZE};
use engine::organization::{allocator, b_tree};
use engine::page::{Change, Edit, OwnedEdit, PageKind, Pages, header, slotted};
use engine::undo::Undo;
use engine::{Error, Result};
use std::ops::Bound;
use std::rc::Rc;
use structures::Need;

impl PageTransaction {
    /// The value of `key`, if there is such a record.
    ///
    /// # Errors
    /// As [`PageTransaction::read`]; [`Error::NoPartition`], [`Error::WrongOrganization`].
    pub async fn get(&mut self, partition: PartitionId, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.pay_reference().await;
        self.tree(partition).await?;
        let found = self.resolve(Intent::Read, |pages| {
            let (place, leaf) = b_tree::find(pages, partition, key)?;
            Ok(place.exact.then(|| slotted::value(leaf, place.slot).to_vec()))
        });
        match found.await? {
            None => Ok(None),
            Some(stored) => self.value_of(partition, &stored).await.map(Some),
        }
    }

    /// Inserts a record or gives the present one this value.
    ///
    /// # Errors
    /// As [`PageTransaction::get`]; [`Error::TooLarge`] if the value does not fit a leaf, or takes the place of one that does not.
    pub async fn put(&mut self, partition: PartitionId, key: &[u8], value: &[u8]) -> Result<()> {
        self.pay_reference().await;
        let found = self.tree(partition).await?;
        self.check_length(&found, key, value.len())?;
        let mut stored = Vec::new();
        stored::store_here(value, &mut stored);
        loop {
            let step = self.resolve(Intent::Change, |pages| plan_put(pages, partition, key, &stored)).await?;
            match step {
                Step::Restructure(plan) => self.restructure(&plan),
                Step::Place { place, old: None } => {
                    let change = Change::InsertSlot { slot: place.slot, key, value: &stored };
                    let undo = Undo::Remove { partition, key }.stored();
                    self.apply(&Body::Update(&undo), &[Edit { page: place.page, change }]);
                    return Ok(());
                }
                Step::Place { place, old: Some(old) } => {
                    refuse_long(&found, &old)?;
                    let change = Change::ReplaceValue { slot: place.slot, value: &stored };
                    let undo = Undo::Replace { partition, key, value: &old }.stored();
                    self.apply(&Body::Update(&undo), &[Edit { page: place.page, change }]);
                    return Ok(());
                }
            }
        }
    }

    /// Where a record is, whose page the transaction may write from now on, and its stored value; `None` if there is none with this key.
    async fn find_to_change(
        &mut self,
        partition: PartitionId,
        key: &[u8],
    ) -> Result<Option<(b_tree::Location, Vec<u8>)>> {
        self.resolve(Intent::Change, |pages| {
            let (place, leaf) = b_tree::find(pages, partition, key)?;
            if !place.exact {
                return Ok(None);
            }
            pages.write_permission(place.page)?;
            Ok(Some((place, slotted::value(leaf, place.slot).to_vec())))
        })
        .await
    }

    /// Deletes a record; false if there is none with this key.
    ///
    /// # Errors
    /// As [`PageTransaction::put`].
    pub async fn delete(&mut self, partition: PartitionId, key: &[u8]) -> Result<bool> {
        self.pay_reference().await;
        let found = self.tree(partition).await?;
        let Some((place, old)) = self.find_to_change(partition, key).await? else { return Ok(false) };
        refuse_long(&found, &old)?;
        let undo = Undo::Insert { partition, key, value: &old }.stored();
        let change = Change::RemoveSlot { slot: place.slot };
        self.apply(&Body::Update(&undo), &[Edit { page: place.page, change }]);
        loop {
            let plan = self.resolve(Intent::Change, |pages| {
                let plan = b_tree::merge(pages, partition, key)?;
                plan.iter().try_for_each(|plan| pages.permit(plan))?;
                Ok(plan)
            });
            match plan.await? {
                Some(plan) => self.restructure(&plan),
                None => return Ok(true),
            }
        }
    }

    /// Changes the value of `key` in place: `change` sees its bytes and may alter them, not their number.
    ///
    /// # Errors
    /// As [`PageTransaction::put`]; [`Error::NoRecord`].
    pub async fn modify<R>(
        &mut self,
        partition: PartitionId,
        key: &[u8],
        change: impl FnOnce(&mut [u8]) -> R,
    ) -> Result<R> {
        self.pay_reference().await;
        let found = self.tree(partition).await?;
        let Some((place, old)) = self.find_to_change(partition, key).await? else {
            return Err(Error::NoRecord(found.name.clone()));
        };
        refuse_long(&found, &old)?;
        let mut new = old.clone();
        let answer = change(&mut new[VERSION_SIZE..]);
        if let Some((from, to)) = structures::difference::difference(&old, &new) {
            let offset = from as u16;
            let undo = Undo::PatchValue { partition, key, offset, bytes: &old[from..to] }.stored();
            let change = Change::PatchValue { slot: place.slot, offset, bytes: &new[from..to] };
            self.apply(&Body::Update(&undo), &[Edit { page: place.page, change }]);
        }
        Ok(answer)
    }

    /// Shows the records of a b-tree from a key on, in order, to `look`, which returns false to end the scan.
    ///
    /// # Errors
    /// As [`PageTransaction::get`].
    pub async fn scan(
        &mut self,
        partition: PartitionId,
        from: Bound<&[u8]>,
        mut look: impl FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<()> {
        self.tree(partition).await?;
        let mut from = from.map(<[u8]>::to_vec);
        loop {
            let leaf = self.resolve(Intent::Read, |pages| {
                let range = b_tree::forward(pages, partition, from.as_ref().map(Vec::as_slice))?;
                let page = pages.page(range.page)?;
                let records = (range.slot..slotted::count(page)).map(|slot| {
                    let mut key = Vec::new();
                    slotted::key_into(page, slot, &mut key);
                    (key, slotted::value(page, slot).to_vec())
                });
                Ok((records.collect::<Vec<_>>(), range.fence))
            });
            let (records, fence) = leaf.await?;
            for (key, stored) in records {
                let value = self.value_of(partition, &stored).await?;
                if !look(&key, &value) {
                    return Ok(());
                }
            }
            match fence {
                Some(fence) => from = Bound::Included(fence),
                None => return Ok(()),
            }
        }
    }

    /// Adds a record at the end of a partition and says where it is.
    ///
    /// # Errors
    /// As [`PageTransaction::get`]; [`Error::TooLarge`] if it fits no page.
    pub async fn append(&mut self, partition: PartitionId, record: &[u8]) -> Result<Position> {
        self.pay_reference().await;
        let found = self.client.described(partition).await?;
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
        loop {
            match self
                .resolve(Intent::Append, |pages| plan_append(pages, partition, stored.len(), blocking_factor))
                .await?
            {
                Err(plan) => self.restructure(&plan),
                Ok(Position { page, slot }) => {
                    let undo = Undo::EraseAppended { page, slot }.stored();
                    let change = Change::InsertSlot { slot, key: &[], value: &stored };
                    self.apply(&Body::Update(&undo), &[Edit { page, change }]);
                    return Ok(Position { page, slot });
                }
            }
        }
    }

    /// Shows every record of an append partition to `look`, in order; `look` returns false to end the scan.
    ///
    /// # Errors
    /// As [`PageTransaction::get`].
    pub async fn scan_appended(
        &mut self,
        partition: PartitionId,
        mut look: impl FnMut(Position, &[u8]) -> bool,
    ) -> Result<()> {
        let found = self.client.described(partition).await?;
        if !matches!(found.organization, Organization::Append { .. }) {
            return Err(found.wrong_organization("its records are found by key or number"));
        }
        let first = PageId::new(partition, 0);
        let count = self.resolve(Intent::Read, |pages| Ok(allocator::read(pages.page(first)?).page_count)).await?;
        for number in 1..count {
            let page = PageId::new(partition, number);
            let records = self.resolve(Intent::Read, |pages| {
                let bytes = pages.page(page)?;
                let count = if header::kind(bytes) == Some(PageKind::Append) { slotted::count(bytes) } else { 0 };
                Ok((0..count).map(|slot| slotted::value(bytes, slot).to_vec()).collect::<Vec<_>>())
            });
            for (record, slot) in records.await?.iter().zip(0..) {
                if record.first() == Some(&LIVE) && !look(Position { page, slot }, &record[1..]) {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// Marks a reference to a record, and pays for what was marked before.
    pub(super) async fn pay_reference(&self) {
        self.client.executor.charge(Work::ObjectReference);
        self.client.executor.pay_debt().await;
    }

    /// What the partition is, if it is a b-tree that a node may change.
    async fn tree(&self, partition: PartitionId) -> Result<Rc<Described>> {
        let found = self.client.described(partition).await?;
        match found.organization {
            Organization::BTree if found.is_plain => Ok(found),
            Organization::BTree => Err(found.wrong_organization("its records have a type, or it is an index")),
            _ => Err(found.wrong_organization("its records have no keys, or no pages")),
        }
    }

    fn check_length(&self, found: &Described, key: &[u8], length: usize) -> Result<()> {
        let page_size = self.client.settings.buffer.page_size;
        let refused = |what, found_length, limit| {
            Err(Error::TooLarge { what, found: found_length, limit, partition: found.name.clone() })
        };
        let key_max = b_tree::key_len_max(page_size);
        if key.len() > key_max {
            return refused("a key", key.len(), key_max);
        }
        let value_max = b_tree::value_len_max(page_size, key.len()) - VERSION_SIZE;
        if length > value_max { refused("a value that a node writes", length, value_max) } else { Ok(()) }
    }

    /// The value that is stored so, read from its pages if it is a long one.
    async fn value_of(&mut self, partition: PartitionId, stored: &[u8]) -> Result<Vec<u8>> {
        let (length, first) = match stored::read(stored) {
            Stored::Here(value) => return Ok(value.to_vec()),
            Stored::Elsewhere(length, first) => (length, first),
        };
        let (mut value, mut page) = (Vec::new(), PageId::new(partition, first));
        while page.number != 0 && value.len() < length {
            let (next, part) = self
                .resolve(Intent::Read, |pages| stored::part(pages, page).map(|(next, part)| (next, part.to_vec())))
                .await?;
            value.extend_from_slice(&part);
            page.number = next;
        }
        if value.len() == length {
            return Ok(value);
        }
        let detail = format!("its long value has {} bytes of {length}", value.len());
        Err(self.client.buffer.space(partition).damaged(PageId::new(partition, first), detail))
    }

    /// Makes the edits of a plan that is never undone: whatever becomes of the transaction, records are found all the same.
    fn restructure(&mut self, plan: &[OwnedEdit]) {
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
}

fn plan_put(pages: &LockedPages<'_>, partition: PartitionId, key: &[u8], stored: &[u8]) -> Result<Step, Need> {
    if let Some(plan) = b_tree::make_room(pages, partition, key, stored.len())? {
        pages.permit(&plan)?;
        return Ok(Step::Restructure(plan));
    }
    let (place, leaf) = b_tree::find(pages, partition, key)?;
    pages.write_permission(place.page)?;
    let old = place.exact.then(|| slotted::value(leaf, place.slot).to_vec());
    Ok(Step::Place { place, old })
}

/// Where a record of `length` stored bytes goes, or what gives the partition a new tail first.
fn plan_append(
    pages: &LockedPages<'_>,
    partition: PartitionId,
    length: usize,
    blocking_factor: u32,
) -> Result<std::result::Result<Position, Vec<OwnedEdit>>, Need> {
    if let Some(tail) = append::tail(pages, partition)? {
        // The lock first: what is read without it may be full when it comes, and two that have read it are a deadlock.
        pages.write_permission(tail)?;
        let position = append::next_position(pages, tail, length)?;
        let has_place = |position: &Position| blocking_factor == 0 || u32::from(position.slot) < blocking_factor;
        if let Some(position) = position.filter(has_place) {
            return Ok(Ok(position));
        }
    }
    let plan = append::new_tail(pages, partition)?;
    pages.permit(&plan)?;
    Ok(Err(plan))
}

fn refuse_long(found: &Described, stored: &[u8]) -> Result<()> {
    let Stored::Elsewhere(length, _) = stored::read(stored) else { return Ok(()) };
    let (what, limit) = ("a long value that a node would change", stored.len());
    Err(Error::TooLarge { what, found: length, limit, partition: found.name.clone() })
}
