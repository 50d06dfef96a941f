//! Typed records: reading and changing single fields.

use super::PageTransaction;
use super::view::Intent;
use base::PartitionId;
use engine::set::FieldValue;
use engine::{Error, Result};

impl PageTransaction {
    /// Copies the contents of a field of the record of `key` into `buffer`; `None` if there is no such record.
    ///
    /// # Errors
    /// [`Error::WrongOrganization`] if the partition's records have no type, [`Error::Field`], and as [`PageTransaction::get`].
    pub async fn get_field<'a>(
        &mut self,
        partition: PartitionId,
        key: &[u8],
        field: usize,
        buffer: &'a mut Vec<u8>,
    ) -> Result<Option<FieldValue<'a>>> {
        self.pay_reference().await;
        let typed = self.typed(partition).await?;
        let Some(value) = self.read_keyed(&typed.found, key, Intent::Read).await? else { return Ok(None) };
        let record = &typed.schema.record;
        let bytes = record.bytes(&value, field).map_err(|error| typed.field_error(error))?;
        buffer.clear();
        buffer.extend_from_slice(bytes);
        record.contents(field, buffer).map(Some).map_err(|error| typed.field_error(error))
    }

    /// Gives a field of the record of `key` other contents; halfway as [`PageTransaction::put`].
    ///
    /// # Errors
    /// [`Error::NoRecord`], and as [`PageTransaction::get_field`].
    pub async fn set_field(
        &mut self,
        partition: PartitionId,
        key: &[u8],
        field: usize,
        value: FieldValue<'_>,
    ) -> Result<()> {
        self.pay_reference().await;
        let typed = self.typed(partition).await?;
        let schema = typed.schema.clone();
        self.replace_typed(&typed, key, |old| schema.with_field(old, field, &value)).await
    }

    /// Adds to an integer field of the record of `key` and returns the sum; halfway as [`PageTransaction::put`].
    ///
    /// # Errors
    /// [`Error::Field`] if the sum is out of the field's range (nothing was changed then), and as [`PageTransaction::set_field`].
    pub async fn add_to_field(
        &mut self,
        partition: PartitionId,
        key: &[u8],
        field: usize,
        amount: i64,
    ) -> Result<FieldValue<'static>> {
        self.pay_reference().await;
        let typed = self.typed(partition).await?;
        let (schema, mut sum) = (typed.schema.clone(), None);
        let added = |old: &[u8]| {
            let (value, new) = schema.with_sum(old, field, amount)?;
            sum = Some(new);
            Ok(value)
        };
        self.replace_typed(&typed, key, added).await?;
        Ok(sum.expect("the record was changed"))
    }

    /// Inserts a record with these contents; halfway as [`PageTransaction::put`].
    ///
    /// # Errors
    /// [`Error::Duplicate`], [`Error::Field`], and as [`PageTransaction::get_field`].
    pub async fn insert_record(&mut self, partition: PartitionId, key: &[u8], values: &[FieldValue<'_>]) -> Result<()> {
        self.pay_reference().await;
        let typed = self.typed(partition).await?;
        let mut value = Vec::new();
        typed.schema.record.encode(values, &mut value).map_err(|error| typed.field_error(error))?;
        if self.write_indexed(&typed, key, Some(&value), false).await? {
            return Ok(());
        }
        Err(Error::Duplicate(typed.found.name.clone()))
    }
}
