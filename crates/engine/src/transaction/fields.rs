//! Typed records: reading and changing single fields (System M, section 2.6). The caller always gets copies.

use super::Transaction;
use crate::catalog::{Partition, Schema, integer, sum};
use crate::engine::KeyedPartition;
use crate::{Error, Result};
use base::PartitionId;
use std::ops::Range;
use std::rc::Rc;
use structures::key_hash;
use structures::set::{FieldError, FieldValue, Refusal, Sets};

impl Transaction {
    /// Copies the contents of a field of the record of `key` into `buffer`; `None` if there is no such record.
    ///
    /// # Errors
    /// [`Error::WrongOrganization`] if the partition's records have no type, [`Error::Field`], and as [`Transaction::get`].
    pub async fn get_field<'a>(
        &mut self,
        partition: PartitionId,
        key: &[u8],
        field: usize,
        buffer: &'a mut Vec<u8>,
    ) -> Result<Option<FieldValue<'a>>> {
        let found = self.engine.catalog.describe(partition)?;
        let record = &found.typed()?.record;
        buffer.clear();
        let mut copy = |value: Option<&[u8]>| match value {
            Some(value) => record.bytes(value, field).map(|bytes| buffer.extend_from_slice(bytes)).map(|()| true),
            None => Ok(false),
        };
        let read_view = self.read_view_of(partition)?;
        if self.reference() {
            self.delayed_reference().await?;
        }
        let keyed = KeyedPartition::of(&found)?;
        let is_there = match read_view {
            Some(read_view) => copy(self.read_found_past(read_view, (keyed, partition), key).await?.as_deref()),
            None => self.get_found_with(keyed, partition, key, copy).await?,
        };
        let contents = match is_there {
            Ok(true) => record.contents(field, buffer).map(Some),
            Ok(false) => Ok(None),
            Err(error) => Err(error),
        };
        contents.map_err(|error| found.field_error(error))
    }

    /// Gives a field of the record of `key` other contents.
    ///
    /// # Errors
    /// [`Error::NoRecord`], and as [`Transaction::get_field`].
    pub async fn set_field(
        &mut self,
        partition: PartitionId,
        key: &[u8],
        field: usize,
        value: FieldValue<'_>,
    ) -> Result<()> {
        let found = self.engine.catalog.describe(partition)?;
        let Schema { record, .. } = found.typed()?;
        record.check_value(field, &value).map_err(|error| found.field_error(error))?;
        let hash = key_hash(key);
        self.lock_record_exclusively(&found, (key, hash)).await?;
        let part = record.part(field).ok();
        if let Some(part) = part.clone().filter(|part| !self.is_replaced(&found, part)) {
            let write = |sets: &mut Sets, owner| {
                sets.modify_part(owner, partition, key, hash, part.clone(), |bytes| record.write(field, &value, bytes))
            };
            let written = self.in_set(partition, write).await?;
            self.engine.core.executor.charge_value(part.len());
            return written.map_err(|error| found.field_error(error));
        }
        let schema = found.typed()?;
        self.replace_typed(&found, key, |old| schema.with_field(old, field, &value)).await
    }

    /// Adds to an integer field of the record of `key` and returns the sum. If actions are logged, the log gets the amount.
    ///
    /// # Errors
    /// [`Error::Field`] if the sum is out of the field's range (nothing was changed then), and as [`Transaction::set_field`].
    pub async fn add_to_field(
        &mut self,
        partition: PartitionId,
        key: &[u8],
        field: usize,
        amount: i64,
    ) -> Result<FieldValue<'static>> {
        let found = self.engine.catalog.describe(partition)?;
        let schema = found.typed()?;
        let record = &schema.record;
        let (kind, part) = integer(record, field).map_err(|error| found.field_error(error))?;
        let overflow = || FieldError::Overflow { field: record.fields()[field].name.clone(), kind };
        let hash = key_hash(key);
        self.lock_record_exclusively(&found, (key, hash)).await?;
        if self.is_replaced(&found, &part) {
            let mut answer = None;
            let added = |old: &[u8]| {
                let (value, new) = schema.with_sum(old, field, amount)?;
                answer = Some(new);
                Ok(value)
            };
            self.replace_typed(&found, key, added).await?;
            return Ok(answer.expect("the record was changed"));
        }
        let add = |sets: &mut Sets, owner| {
            let Some(value) = sets.get(owner, partition, key, hash)? else { return Err(Refusal::Missing) };
            let Some(new) = sum(kind, &value[part.clone()], amount) else { return Ok(None) };
            sets.add(owner, partition, key, hash, part.clone(), amount).map(|_| Some(new))
        };
        let added = self.in_set(partition, add).await?;
        self.engine.core.executor.charge_value(part.len());
        added.ok_or_else(|| found.field_error(overflow()))
    }

    /// Inserts a record with these contents.
    ///
    /// # Errors
    /// [`Error::Duplicate`], [`Error::Field`], and as [`Transaction::get_field`].
    pub async fn insert_record(&mut self, partition: PartitionId, key: &[u8], values: &[FieldValue<'_>]) -> Result<()> {
        let found = self.engine.catalog.describe(partition)?;
        let mut value = Vec::new();
        found.typed()?.record.encode(values, &mut value).map_err(|error| found.field_error(error))?;
        self.lock_record_exclusively(&found, (key, key_hash(key))).await?;
        let is_new = self.write_any_typed(&found, key, Some(&value), false).await?;
        if is_new { Ok(()) } else { Err(Error::Duplicate(found.name.clone())) }
    }

    /// Whether a record gets a new value where this part of it changes: if a secondary index may change then, and in b-trees, which
    /// see by themselves what has changed.
    fn is_replaced(&self, found: &Partition, part: &Range<usize>) -> bool {
        found.set_settings().is_none() || self.engine.sets.sets.borrow().is_indexed(found.id(), part)
    }

    /// Gives the record of `key`, which is locked exclusively, a value, or deletes it, as [`Transaction::write_typed`].
    async fn write_any_typed(
        &mut self,
        found: &Rc<Partition>,
        key: &[u8],
        value: Option<&[u8]>,
        replace: bool,
    ) -> Result<bool> {
        if found.set_settings().is_some() {
            return self.write_typed(found, key, value, replace).await;
        }
        self.mark_not_replayable()?;
        Box::pin(self.write_indexed(found, key, value, replace)).await
    }

    /// Changes a record of the type, whose lock is held, in place.
    pub(super) async fn modify_typed<R>(
        &mut self,
        found: &Rc<Partition>,
        key: &[u8],
        change: impl FnOnce(&mut [u8]) -> R,
    ) -> Result<R> {
        let mut answer = None;
        let changed = |old: &[u8]| {
            let mut new = old.to_vec();
            answer = Some(change(&mut new));
            Ok(new)
        };
        self.replace_typed(found, key, changed).await?;
        Ok(answer.expect("the record was changed"))
    }

    /// Gives the record of `key`, which is locked exclusively, the value that `change` makes of its present one.
    async fn replace_typed(
        &mut self,
        found: &Rc<Partition>,
        key: &[u8],
        change: impl FnOnce(&[u8]) -> Result<Vec<u8>, FieldError>,
    ) -> Result<()> {
        let mut change = Some(change);
        let mut make = |old: &[u8]| change.take().expect("changed once")(old);
        let made = if found.set_settings().is_some() {
            self.get_in_set_with(found.id(), (key, key_hash(key)), |old| old.map(make)).await?
        } else {
            self.read_in_tree(found.id(), key).await?.map(|old| make(&old))
        };
        let new = made.ok_or_else(|| Error::NoRecord(found.name.clone()))?;
        let new = new.map_err(|error| found.field_error(error))?;
        self.write_any_typed(found, key, Some(&new), true).await.map(|_| ())
    }
}
