//! What a stored record becomes when one of its fields changes.

use std::ops::Range;
use structures::set::{FieldError, FieldType, FieldValue, RecordType};

use super::Schema;

/// The sum of a stored integer and an amount, in the stored form; `None` beyond its range.
pub(crate) fn sum(kind: FieldType, bytes: &[u8], amount: i64) -> Option<FieldValue<'static>> {
    let mut word = [0; 8];
    word[..bytes.len()].copy_from_slice(bytes);
    let old = u64::from_le_bytes(word);
    if kind == FieldType::I64 {
        return old.cast_signed().checked_add(amount).map(FieldValue::I64);
    }
    let new = old.checked_add_signed(amount)?;
    Some(match kind {
        FieldType::U8 => FieldValue::U8(new.try_into().ok()?),
        FieldType::U16 => FieldValue::U16(new.try_into().ok()?),
        FieldType::U32 => FieldValue::U32(new.try_into().ok()?),
        _ => FieldValue::U64(new),
    })
}

/// The type and the place of an integer field.
pub(crate) fn integer(record: &RecordType, field: usize) -> Result<(FieldType, Range<usize>), FieldError> {
    let part = record.part(field)?;
    let chosen = &record.fields()[field];
    if matches!(chosen.kind, FieldType::F64 | FieldType::Array(_)) {
        return Err(FieldError::WrongKind { field: chosen.name.clone(), found: chosen.kind, wanted: "integer" });
    }
    Ok((chosen.kind, part))
}

impl Schema {
    /// A record with other contents of one field.
    ///
    /// # Errors
    /// [`FieldError::Unknown`], those of contents that do not suit the field, and [`FieldError::Damaged`] if it is no record of the type.
    pub fn with_field(&self, old: &[u8], field: usize, value: &FieldValue<'_>) -> Result<Vec<u8>, FieldError> {
        self.record.check_value(field, value)?;
        let mut new = Vec::with_capacity(old.len());
        match self.record.part(field) {
            Ok(part) => {
                new.extend_from_slice(old);
                self.record.write(field, value, self.place(&mut new, field, part)?)?;
            }
            Err(_) => self.record.replace(old, field, value, &mut new)?,
        }
        Ok(new)
    }

    /// A record with an amount added to one of its integer fields, and the sum.
    ///
    /// # Errors
    /// [`FieldError::Overflow`] if the sum is out of the field's range, and as [`Schema::with_field`].
    pub fn with_sum(
        &self,
        old: &[u8],
        field: usize,
        amount: i64,
    ) -> Result<(Vec<u8>, FieldValue<'static>), FieldError> {
        let (kind, part) = integer(&self.record, field)?;
        let overflow = || FieldError::Overflow { field: self.record.fields()[field].name.clone(), kind };
        let new = sum(kind, self.record.bytes(old, field)?, amount).ok_or_else(overflow)?;
        let mut value = old.to_vec();
        self.record.write(field, &new, self.place(&mut value, field, part)?)?;
        Ok((value, new))
    }

    /// The part of a stored record, which another node may have made too short.
    fn place<'a>(&self, value: &'a mut [u8], field: usize, part: Range<usize>) -> Result<&'a mut [u8], FieldError> {
        value.get_mut(part).ok_or_else(|| FieldError::Damaged(self.record.fields()[field].name.clone()))
    }
}
