//! What a unique index refuses, in words.

use super::{FieldValue, RecordType};
use std::fmt;

/// The most bytes that are shown of a key or of a field, and the most characters of text.
const BYTES_SHOWN: usize = 16;
const CHARACTERS_SHOWN: usize = 32;

/// Two records have, or would have, the same contents in the fields of a unique index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotUnique {
    /// The index.
    pub index: String,
    /// The contents with the names of their fields, shown short: `name "Ada", born 1815`.
    pub contents: String,
    /// The key of the record that has them.
    pub present: Vec<u8>,
    /// The key of the one that cannot have them, too; of two that an index to be built has found, the greater one.
    pub refused: Vec<u8>,
}

impl fmt::Display for NotUnique {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let NotUnique { index, contents, present, refused } = self;
        let (present, refused) = (short_hex(present), short_hex(refused));
        write!(
            f,
            "the record with key {refused} cannot have {contents}, as the one with key {present} has: the index '{index}' is unique"
        )
    }
}

/// The first bytes of a key, in hexadecimal digits.
pub fn short_hex(bytes: &[u8]) -> String {
    let shown = bytes.iter().take(BYTES_SHOWN).map(|byte| format!("{byte:02x}"));
    let rest = if bytes.len() > BYTES_SHOWN { "..." } else { "" };
    shown.chain([rest.to_owned()]).collect()
}

fn short(value: &FieldValue<'_>) -> String {
    match value {
        FieldValue::Bytes([]) => "of no bytes".to_owned(),
        FieldValue::Bytes(value) => short_hex(value),
        FieldValue::Text(value) => {
            let rest = if value.chars().nth(CHARACTERS_SHOWN).is_some() { "..." } else { "" };
            format!("{:?}{rest}", value.chars().take(CHARACTERS_SHOWN).collect::<String>())
        }
        number => number.digits().unwrap_or_default(),
    }
}

impl RecordType {
    /// The contents of these fields of a stored record with their names, shown short. Of a record of another type there is nothing to show.
    pub fn shown(&self, record: &[u8], fields: &[usize]) -> String {
        let shown = |field: &usize| {
            let value = self.decode(record, *field).ok()?;
            Some(format!("{} {}", self.fields[*field].name, short(&value)))
        };
        fields.iter().filter_map(shown).collect::<Vec<String>>().join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::set::FieldType;

    #[test]
    fn keys_and_contents_are_shown_short() {
        let kinds = [("name", FieldType::Text), ("tag", FieldType::Bytes), ("born", FieldType::U32)];
        let record = RecordType::new(kinds).expect("different names");
        let mut stored = Vec::new();
        let long = "é".repeat(33);
        let values = [FieldValue::Text(&long), FieldValue::Bytes(&[7; 17]), FieldValue::U32(1815)];
        record.encode(&values, &mut stored).expect("suits");
        let shown = format!("born 1815, name \"{}\"..., tag {}...", "é".repeat(32), "07".repeat(16));
        assert_eq!(record.shown(&stored, &[2, 0, 1]), shown);
        assert_eq!(short_hex(b"abc"), "616263");
        stored.clear();
        let values = [FieldValue::Text("a\"b"), FieldValue::Bytes(&[]), FieldValue::U32(0)];
        record.encode(&values, &mut stored).expect("suits");
        assert_eq!(record.shown(&stored, &[0, 1]), "name \"a\\\"b\", tag of no bytes");
        assert_eq!(record.shown(b"no record", &[0]), "");
    }
}
