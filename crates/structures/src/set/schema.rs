//! Typed records: named fields in a value, as the catalogue of a set describes them (System M, section 2.6).
//!
//! ```text
//! fixed fields, one after another, little-endian, without padding
//! for each variable field: where its bytes end, u16, counted from the first variable byte
//! the bytes of the variable fields
//! ```
//!
//! So a fixed field of every record is at the same offset, and can be changed where it is.

mod ordered;
mod unique;

pub use unique::{NotUnique, short_hex};

use serde::{Deserialize, Serialize};
use std::fmt;
use std::ops::Range;
use std::str::FromStr;
use thiserror::Error;

/// The most bytes of all fixed fields, and of all variable ones.
const LENGTH_MAX: usize = u16::MAX as usize;

/// What a field holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FieldType {
    /// A byte.
    U8,
    /// 16 bits without sign.
    U16,
    /// 32 bits without sign.
    U32,
    /// 64 bits without sign.
    U64,
    /// 64 bits with sign.
    I64,
    /// A floating-point number of 64 bits.
    F64,
    /// A number of bytes.
    Array(u16),
    /// Any number of bytes.
    Bytes,
    /// Text in UTF-8.
    Text,
}

impl FieldType {
    /// How types are written.
    pub const WORDS: &str = "u8, u16, u32, u64, i64, f64, bytes(LENGTH), bytes, text";

    /// The size of a fixed field in bytes; `None` of a variable one.
    fn size(self) -> Option<usize> {
        match self {
            FieldType::U8 => Some(1),
            FieldType::U16 => Some(2),
            FieldType::U32 => Some(4),
            FieldType::U64 | FieldType::I64 | FieldType::F64 => Some(8),
            FieldType::Array(length) => Some(usize::from(length)),
            FieldType::Bytes | FieldType::Text => None,
        }
    }
}

impl fmt::Display for FieldType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FieldType::U8 => f.write_str("u8"),
            FieldType::U16 => f.write_str("u16"),
            FieldType::U32 => f.write_str("u32"),
            FieldType::U64 => f.write_str("u64"),
            FieldType::I64 => f.write_str("i64"),
            FieldType::F64 => f.write_str("f64"),
            FieldType::Array(length) => write!(f, "bytes({length})"),
            FieldType::Bytes => f.write_str("bytes"),
            FieldType::Text => f.write_str("text"),
        }
    }
}

impl FromStr for FieldType {
    type Err = String;

    fn from_str(word: &str) -> Result<FieldType, String> {
        let fixed = || word.strip_prefix("bytes(")?.strip_suffix(')')?.parse().ok().map(FieldType::Array);
        Ok(match word {
            "u8" => FieldType::U8,
            "u16" => FieldType::U16,
            "u32" => FieldType::U32,
            "u64" => FieldType::U64,
            "i64" => FieldType::I64,
            "f64" => FieldType::F64,
            "bytes" => FieldType::Bytes,
            "text" => FieldType::Text,
            _ => return fixed().ok_or_else(|| format!("'{word}' is no type of a field: {}", FieldType::WORDS)),
        })
    }
}

/// A field's contents.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum FieldValue<'a> {
    /// Of a [`FieldType::U8`].
    U8(u8),
    /// Of a [`FieldType::U16`].
    U16(u16),
    /// Of a [`FieldType::U32`].
    U32(u32),
    /// Of a [`FieldType::U64`].
    U64(u64),
    /// Of a [`FieldType::I64`].
    I64(i64),
    /// Of a [`FieldType::F64`].
    F64(f64),
    /// Of a [`FieldType::Array`] or [`FieldType::Bytes`].
    Bytes(&'a [u8]),
    /// Of a [`FieldType::Text`].
    Text(&'a str),
}

impl FieldValue<'_> {
    /// The digits of a number; `None` for text and bytes.
    pub fn digits(&self) -> Option<String> {
        Some(match self {
            FieldValue::U8(value) => value.to_string(),
            FieldValue::U16(value) => value.to_string(),
            FieldValue::U32(value) => value.to_string(),
            FieldValue::U64(value) => value.to_string(),
            FieldValue::I64(value) => value.to_string(),
            FieldValue::F64(value) => value.to_string(),
            FieldValue::Bytes(_) | FieldValue::Text(_) => return None,
        })
    }

    /// What it is, in the words of [`FieldType`].
    fn kind(&self) -> &'static str {
        match self {
            FieldValue::U8(_) => "u8",
            FieldValue::U16(_) => "u16",
            FieldValue::U32(_) => "u32",
            FieldValue::U64(_) => "u64",
            FieldValue::I64(_) => "i64",
            FieldValue::F64(_) => "f64",
            FieldValue::Bytes(_) => "bytes",
            FieldValue::Text(_) => "text",
        }
    }

    fn is_of(&self, kind: FieldType) -> bool {
        matches!(
            (self, kind),
            (FieldValue::U8(_), FieldType::U8)
                | (FieldValue::U16(_), FieldType::U16)
                | (FieldValue::U32(_), FieldType::U32)
                | (FieldValue::U64(_), FieldType::U64)
                | (FieldValue::I64(_), FieldType::I64)
                | (FieldValue::F64(_), FieldType::F64)
                | (FieldValue::Bytes(_), FieldType::Array(_) | FieldType::Bytes)
                | (FieldValue::Text(_), FieldType::Text)
        )
    }

    /// Shows its bytes as they are stored.
    fn with_bytes<R>(&self, look: impl FnOnce(&[u8]) -> R) -> R {
        match *self {
            FieldValue::U8(value) => look(&[value]),
            FieldValue::U16(value) => look(&value.to_le_bytes()),
            FieldValue::U32(value) => look(&value.to_le_bytes()),
            FieldValue::U64(value) => look(&value.to_le_bytes()),
            FieldValue::I64(value) => look(&value.to_le_bytes()),
            FieldValue::F64(value) => look(&value.to_bits().to_le_bytes()),
            FieldValue::Bytes(value) => look(value),
            FieldValue::Text(value) => look(value.as_bytes()),
        }
    }
}

/// Why a record type or a record was not accepted.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum FieldError {
    /// Two fields have one name.
    #[error("there are two fields '{0}'; names are given once")]
    Twice(String),
    /// The fixed fields are too long together.
    #[error("with field '{field}' the fixed fields have {found} bytes, over the limit of {LENGTH_MAX}")]
    FixedTooLong {
        /// The field that is too much.
        field: String,
        /// Bytes up to it.
        found: usize,
    },
    /// There is no such field.
    #[error("there is no field '{0}'")]
    Unknown(String),
    /// A record has another number of fields than its type.
    #[error("the record type has {expected} fields, not {found}")]
    Count {
        /// Fields of the type.
        expected: usize,
        /// Fields given.
        found: usize,
    },
    /// A value does not suit its field.
    #[error("field '{field}' holds {expected}, not {found}")]
    WrongType {
        /// The field.
        field: String,
        /// What it holds.
        expected: FieldType,
        /// What was given.
        found: &'static str,
    },
    /// A value of fixed length has another length.
    #[error("field '{field}' holds {expected} bytes, not {found}")]
    WrongLength {
        /// The field.
        field: String,
        /// Its length.
        expected: usize,
        /// The length given.
        found: usize,
    },
    /// The variable fields are too long together.
    #[error("with field '{field}' the variable fields have {found} bytes, over the limit of {LENGTH_MAX}")]
    TooLong {
        /// The field that is too much.
        field: String,
        /// Bytes up to it.
        found: usize,
    },
    /// The operation is one of the other kind of fields.
    #[error("field '{field}' holds {found}; only {wanted} fields can be treated so")]
    WrongKind {
        /// The field.
        field: String,
        /// What it holds.
        found: FieldType,
        /// "fixed" or "variable".
        wanted: &'static str,
    },
    /// A stored record is not one of this type.
    #[error("the record is not of this type: field '{0}' is cut off or no text")]
    Damaged(String),
    /// A stored record is longer than its fields.
    #[error("the record is not of this type: {0} bytes follow its last field")]
    Surplus(usize),
    /// A sum is beyond what a field holds.
    #[error("field '{field}' holds {kind}, and the sum is out of its range")]
    Overflow {
        /// The field.
        field: String,
        /// What it holds.
        kind: FieldType,
    },
    /// There is no such secondary index.
    #[error("there is no secondary index '{0}'")]
    NoSecondary(String),
    /// Two secondary indexes have one name.
    #[error("there are two secondary indexes '{0}'; names are given once")]
    SecondaryTwice(String),
    /// Another record has the same contents in the fields of a unique index.
    #[error("{0}")]
    NotUnique(Box<NotUnique>),
    /// A secondary index was dropped before it was built.
    #[error("the secondary index '{0}' was dropped while it was being built")]
    SecondaryDropped(String),
    /// A secondary index orders by nothing.
    #[error("the secondary index '{0}' names no field")]
    SecondaryEmpty(String),
}

/// A named field.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Field {
    /// Its name.
    pub name: String,
    /// What it holds.
    pub kind: FieldType,
}

/// The type of a set's records. Fields are told by their position in the order in which they were named.
///
/// ```
/// use entresol_structures::set::{FieldType, FieldValue, RecordType};
///
/// let store = RecordType::new([("number", FieldType::U32), ("name", FieldType::Text), ("sales", FieldType::U64)])?;
/// let mut record = Vec::new();
/// store.encode(&[FieldValue::U32(7), FieldValue::Text("Corner"), FieldValue::U64(0)], &mut record)?;
/// let sales = store.field("sales")?;
/// store.write(sales, &FieldValue::U64(12), &mut record[store.part(sales)?])?;
/// assert_eq!(store.decode(&record, sales)?, FieldValue::U64(12));
/// assert_eq!(store.field("town").unwrap_err().to_string(), "there is no field 'town'");
/// # Ok::<(), entresol_structures::set::FieldError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Vec<Field>", into = "Vec<Field>")]
pub struct RecordType {
    fields: Vec<Field>,
    /// For a fixed field its offset, for a variable one its position among the variable ones.
    places: Vec<usize>,
    fixed_size: usize,
    variable_count: usize,
}

impl TryFrom<Vec<Field>> for RecordType {
    type Error = FieldError;

    fn try_from(fields: Vec<Field>) -> Result<RecordType, FieldError> {
        let (mut places, mut fixed_size, mut variable_count) = (Vec::new(), 0, 0);
        for (number, field) in fields.iter().enumerate() {
            if fields[..number].iter().any(|other| other.name == field.name) {
                return Err(FieldError::Twice(field.name.clone()));
            }
            let Some(size) = field.kind.size() else {
                places.push(variable_count);
                variable_count += 1;
                continue;
            };
            places.push(fixed_size);
            fixed_size += size;
            if fixed_size > LENGTH_MAX {
                return Err(FieldError::FixedTooLong { field: field.name.clone(), found: fixed_size });
            }
        }
        Ok(RecordType { fields, places, fixed_size, variable_count })
    }
}

impl From<RecordType> for Vec<Field> {
    fn from(record_type: RecordType) -> Vec<Field> {
        record_type.fields
    }
}

impl RecordType {
    /// The type with these fields.
    ///
    /// # Errors
    /// [`FieldError::Twice`], [`FieldError::FixedTooLong`].
    pub fn new<'a>(fields: impl IntoIterator<Item = (&'a str, FieldType)>) -> Result<RecordType, FieldError> {
        let named = |(name, kind): (&str, FieldType)| Field { name: name.to_owned(), kind };
        fields.into_iter().map(named).collect::<Vec<Field>>().try_into()
    }

    /// Its fields.
    pub fn fields(&self) -> &[Field] {
        &self.fields
    }

    /// The position of the field of this name.
    ///
    /// # Errors
    /// [`FieldError::Unknown`].
    pub fn field(&self, name: &str) -> Result<usize, FieldError> {
        let found = self.fields.iter().position(|field| field.name == name);
        found.ok_or_else(|| FieldError::Unknown(name.to_owned()))
    }

    fn get(&self, field: usize) -> Result<&Field, FieldError> {
        self.fields.get(field).ok_or_else(|| FieldError::Unknown(format!("number {field}")))
    }

    fn check(&self, field: &Field, value: &FieldValue<'_>) -> Result<(), FieldError> {
        let name = || field.name.clone();
        if !value.is_of(field.kind) {
            return Err(FieldError::WrongType { field: name(), expected: field.kind, found: value.kind() });
        }
        let found = value.with_bytes(<[u8]>::len);
        match field.kind.size() {
            Some(expected) if expected != found => Err(FieldError::WrongLength { field: name(), expected, found }),
            _ => Ok(()),
        }
    }

    /// Appends the stored form of a record with these contents.
    ///
    /// # Errors
    /// [`FieldError::Count`], [`FieldError::WrongType`], [`FieldError::WrongLength`], [`FieldError::TooLong`]; then `out` is as
    /// before.
    pub fn encode(&self, values: &[FieldValue<'_>], out: &mut Vec<u8>) -> Result<(), FieldError> {
        let (expected, found) = (self.fields.len(), values.len());
        if expected != found {
            return Err(FieldError::Count { expected, found });
        }
        let start = out.len();
        let done = self.encode_fields(values, out);
        if done.is_err() {
            out.truncate(start);
        }
        done
    }

    fn encode_fields(&self, values: &[FieldValue<'_>], out: &mut Vec<u8>) -> Result<(), FieldError> {
        let fields = || self.fields.iter().zip(values);
        for (field, value) in fields() {
            self.check(field, value)?;
            if field.kind.size().is_some() {
                value.with_bytes(|bytes| out.extend_from_slice(bytes));
            }
        }
        let variable = || fields().filter(|(field, _)| field.kind.size().is_none());
        let mut end = 0;
        for (field, value) in variable() {
            end += value.with_bytes(<[u8]>::len);
            let Ok(stored) = u16::try_from(end) else {
                return Err(FieldError::TooLong { field: field.name.clone(), found: end });
            };
            out.extend_from_slice(&stored.to_le_bytes());
        }
        variable().for_each(|(_, value)| value.with_bytes(|bytes| out.extend_from_slice(bytes)));
        Ok(())
    }

    /// Where a field is in a stored record.
    fn range(&self, record: &[u8], number: usize) -> Result<Range<usize>, FieldError> {
        let (field, place) = (self.get(number)?, self.places.get(number).copied().unwrap_or_default());
        if let Some(size) = field.kind.size() {
            return Ok(place..place + size);
        }
        let end_of = |place: usize| -> Option<usize> {
            let at = self.fixed_size + 2 * place;
            Some(usize::from(u16::from_le_bytes(record.get(at..at + 2)?.try_into().ok()?)))
        };
        let first = self.fixed_size + 2 * self.variable_count;
        let from = if place == 0 { Some(0) } else { end_of(place - 1) };
        let bounds = from.zip(end_of(place)).filter(|(from, to)| from <= to);
        let (from, to) = bounds.ok_or_else(|| FieldError::Damaged(field.name.clone()))?;
        Ok(first + from..first + to)
    }

    /// The contents of a field of a stored record.
    ///
    /// # Errors
    /// [`FieldError::Unknown`], [`FieldError::Damaged`].
    pub fn decode<'a>(&self, record: &'a [u8], field: usize) -> Result<FieldValue<'a>, FieldError> {
        self.contents(field, self.bytes(record, field)?)
    }

    /// The bytes of a field of a stored record.
    ///
    /// # Errors
    /// [`FieldError::Unknown`], [`FieldError::Damaged`].
    pub fn bytes<'a>(&self, record: &'a [u8], field: usize) -> Result<&'a [u8], FieldError> {
        let damaged = || FieldError::Damaged(self.fields[field].name.clone());
        record.get(self.range(record, field)?).ok_or_else(damaged)
    }

    /// What the bytes of a field mean.
    ///
    /// # Errors
    /// [`FieldError::Unknown`], [`FieldError::Damaged`].
    pub fn contents<'a>(&self, field: usize, bytes: &'a [u8]) -> Result<FieldValue<'a>, FieldError> {
        let Field { name, kind } = self.get(field)?;
        let damaged = || FieldError::Damaged(name.clone());
        if kind.size().is_some_and(|size| size != bytes.len()) {
            return Err(damaged());
        }
        let mut word = [0; 8];
        if !matches!(kind, FieldType::Array(_) | FieldType::Bytes | FieldType::Text) {
            word[..bytes.len()].copy_from_slice(bytes);
        }
        let number = u64::from_le_bytes(word);
        Ok(match kind {
            FieldType::U8 => FieldValue::U8(number as u8),
            FieldType::U16 => FieldValue::U16(number as u16),
            FieldType::U32 => FieldValue::U32(number as u32),
            FieldType::U64 => FieldValue::U64(number),
            FieldType::I64 => FieldValue::I64(number as i64),
            FieldType::F64 => FieldValue::F64(f64::from_bits(number)),
            FieldType::Array(_) | FieldType::Bytes => FieldValue::Bytes(bytes),
            FieldType::Text => FieldValue::Text(std::str::from_utf8(bytes).map_err(|_| damaged())?),
        })
    }

    /// Checks that a value is a record of this type.
    ///
    /// # Errors
    /// [`FieldError::Damaged`], [`FieldError::Surplus`].
    pub fn verify(&self, record: &[u8]) -> Result<(), FieldError> {
        let mut end = self.fixed_size + 2 * self.variable_count;
        for field in 0..self.fields.len() {
            self.decode(record, field)?;
            end = end.max(self.range(record, field)?.end);
        }
        match record.len().checked_sub(end) {
            Some(0) => Ok(()),
            Some(surplus) => Err(FieldError::Surplus(surplus)),
            None => Err(FieldError::Damaged(self.fields.last().map_or_else(String::new, |field| field.name.clone()))),
        }
    }

    /// Checks that a field can hold this.
    ///
    /// # Errors
    /// [`FieldError::Unknown`], [`FieldError::WrongType`], [`FieldError::WrongLength`].
    pub fn check_value(&self, field: usize, value: &FieldValue<'_>) -> Result<(), FieldError> {
        self.check(self.get(field)?, value)
    }

    /// Bytes of the fixed fields, with which every record begins.
    pub fn fixed_size(&self) -> usize {
        self.fixed_size
    }

    /// Where a fixed field is in every record: the part for [`Sets::modify_part`](super::Sets::modify_part).
    ///
    /// # Errors
    /// [`FieldError::Unknown`], [`FieldError::WrongKind`].
    pub fn part(&self, field: usize) -> Result<Range<usize>, FieldError> {
        let Field { name, kind } = self.get(field)?;
        match kind.size() {
            Some(size) => Ok(self.places[field]..self.places[field] + size),
            None => Err(FieldError::WrongKind { field: name.clone(), found: *kind, wanted: "fixed" }),
        }
    }

    /// Writes the contents of a fixed field into its part of a record.
    ///
    /// # Errors
    /// [`FieldError::Unknown`], [`FieldError::WrongKind`], [`FieldError::WrongType`], and [`FieldError::WrongLength`] of the
    /// value or the part.
    pub fn write(&self, field: usize, value: &FieldValue<'_>, part: &mut [u8]) -> Result<(), FieldError> {
        let (expected, found) = (self.part(field)?.len(), part.len());
        self.check(&self.fields[field], value)?;
        if expected != found {
            return Err(FieldError::WrongLength { field: self.fields[field].name.clone(), expected, found });
        }
        value.with_bytes(|bytes| part.copy_from_slice(bytes));
        Ok(())
    }

    /// Appends the stored form of `record` with other contents of one variable field.
    ///
    /// # Errors
    /// [`FieldError::Unknown`], [`FieldError::WrongKind`], [`FieldError::WrongType`], [`FieldError::TooLong`],
    /// [`FieldError::Damaged`]; then `out` is as before.
    pub fn replace(
        &self,
        record: &[u8],
        field: usize,
        value: &FieldValue<'_>,
        out: &mut Vec<u8>,
    ) -> Result<(), FieldError> {
        let Field { name, kind } = self.get(field)?;
        if kind.size().is_some() {
            return Err(FieldError::WrongKind { field: name.clone(), found: *kind, wanted: "variable" });
        }
        let mut values = Vec::with_capacity(self.fields.len());
        for number in 0..self.fields.len() {
            values.push(if number == field { *value } else { self.decode(record, number)? });
        }
        self.encode(&values, out)
    }
}

#[cfg(test)]
mod tests;
