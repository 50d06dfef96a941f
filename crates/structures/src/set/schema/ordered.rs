//! Contents of fields as bytes that are ordered as the contents are: keys of secondary indexes.

use super::{FieldError, FieldType, FieldValue, RecordType};

const SIGN: u64 = 1 << 63;

/// Appends contents of this type in the form of [`RecordType::encode_ordered`].
fn encode(value: &FieldValue<'_>, kind: FieldType, out: &mut Vec<u8>) {
    let mut variable = |bytes: &[u8]| {
        // A zero is followed by 255, the end is two zeros.
        for byte in bytes {
            out.push(*byte);
            if *byte == 0 {
                out.push(0xff);
            }
        }
        out.extend_from_slice(&[0, 0]);
    };
    match *value {
        FieldValue::U8(value) => out.push(value),
        FieldValue::U16(value) => out.extend_from_slice(&value.to_be_bytes()),
        FieldValue::U32(value) => out.extend_from_slice(&value.to_be_bytes()),
        FieldValue::U64(value) => out.extend_from_slice(&value.to_be_bytes()),
        FieldValue::I64(value) => out.extend_from_slice(&(value as u64 ^ SIGN).to_be_bytes()),
        FieldValue::F64(value) => {
            // The order of IEEE 754's totalOrder: negative numbers are inverted.
            let bits = value.to_bits();
            let ordered = if bits & SIGN == 0 { bits | SIGN } else { !bits };
            out.extend_from_slice(&ordered.to_be_bytes());
        }
        FieldValue::Bytes(value) if matches!(kind, FieldType::Array(_)) => out.extend_from_slice(value),
        FieldValue::Bytes(value) => variable(value),
        FieldValue::Text(value) => variable(value.as_bytes()),
    }
}

impl RecordType {
    /// Appends a field's contents in a form whose bytes are ordered as the contents are, and that is no beginning of another,
    /// so that several fields in a row order by the first, then the second, and so on.
    ///
    /// # Errors
    /// [`FieldError::Unknown`], [`FieldError::Damaged`].
    pub fn encode_ordered(&self, record: &[u8], field: usize, out: &mut Vec<u8>) -> Result<(), FieldError> {
        encode(&self.decode(record, field)?, self.fields[field].kind, out);
        Ok(())
    }

    /// Appends given contents of these fields in the form of [`RecordType::encode_ordered`]; of as many as there are values.
    ///
    /// # Errors
    /// [`FieldError::Count`] if there are more values than fields, [`FieldError::Unknown`], [`FieldError::WrongType`],
    /// [`FieldError::WrongLength`].
    pub fn encode_bound(
        &self,
        fields: &[usize],
        values: &[FieldValue<'_>],
        out: &mut Vec<u8>,
    ) -> Result<(), FieldError> {
        if values.len() > fields.len() {
            return Err(FieldError::Count { expected: fields.len(), found: values.len() });
        }
        for (field, value) in fields.iter().zip(values) {
            self.check_value(*field, value)?;
            encode(value, self.fields[*field].kind, out);
        }
        Ok(())
    }
}
