//! Rows: byte strings with a key that orders them, and how they stand in memory and on the medium.

use super::RecordStream;
use crate::Result;
use base::varint;
use std::future::Future;
use std::ops::Range;

/// A row: a key, whose bytes order it, and a value. Both may be empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Row<'a> {
    /// What rows are ordered, joined and compared by, byte by byte.
    pub key: &'a [u8],
    /// What the row says of it.
    pub value: &'a [u8],
}

impl<'a> Row<'a> {
    /// A row of this key and value.
    pub fn new(key: &'a [u8], value: &'a [u8]) -> Row<'a> {
        Row { key, value }
    }
}

/// A source of rows that are asked for one by one: a scan, a sort, whatever a program makes. A row is lent until the next one
/// is asked for.
///
/// ```
/// use entresol_engine::temp::{Row, Rows};
/// use entresol_engine::Result;
///
/// /// The numbers below a limit, the last first.
/// struct Countdown(u32, [u8; 4]);
///
/// impl Rows for Countdown {
///     async fn next(&mut self) -> Result<Option<Row<'_>>> {
///         let Some(left) = self.0.checked_sub(1) else { return Ok(None) };
///         (self.0, self.1) = (left, left.to_be_bytes());
///         Ok(Some(Row::new(&self.1, b"")))
///     }
/// }
/// ```
pub trait Rows {
    /// The next row; `None` at the end, and again whenever asked after it.
    ///
    /// # Errors
    /// Those of whatever the rows come from.
    fn next(&mut self) -> impl Future<Output = Result<Option<Row<'_>>>>;

    /// The rows as a stream, each as its key and its value.
    ///
    /// ```
    /// # mod ground { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/ground/database.rs")); }
    /// # use ground::*;
    /// # with_database(async |database| {
    /// use entresol_engine::temp::{Iterated, Rows};
    /// use futures_util::TryStreamExt;
    ///
    /// let words = Iterated::new([("two", "2"), ("one", "1")].into_iter());
    /// let sorted = database.sort(words, 8 << 20).await?;
    /// let rows: Vec<_> = sorted.into_stream().try_collect().await?;
    /// assert_eq!(rows, [(b"one".to_vec(), b"1".to_vec()), (b"two".to_vec(), b"2".to_vec())]);
    /// # Ok(())
    /// # });
    /// ```
    fn into_stream<'a>(mut self) -> RecordStream<'a>
    where
        Self: Sized + 'a,
    {
        RecordStream::new(async move || {
            let row = self.next().await?;
            Ok(row.map(|row| (row.key.to_vec(), row.value.to_vec())))
        })
    }
}

impl<R: Rows> Rows for &mut R {
    fn next(&mut self) -> impl Future<Output = Result<Option<Row<'_>>>> {
        (**self).next()
    }
}

/// The rows that an iterator gives as pairs of key and value.
///
/// ```
/// # use entresol_engine::temp::Iterated;
/// let words = Iterated::new([("one", "1"), ("two", "2")].into_iter());
/// # let _ = words;
/// ```
pub struct Iterated<I, K, V> {
    rows: I,
    present: Option<(K, V)>,
}

impl<K: AsRef<[u8]>, V: AsRef<[u8]>, I: Iterator<Item = (K, V)>> Iterated<I, K, V> {
    /// The rows of this iterator.
    pub fn new(rows: I) -> Iterated<I, K, V> {
        Iterated { rows, present: None }
    }
}

impl<K: AsRef<[u8]>, V: AsRef<[u8]>, I: Iterator<Item = (K, V)>> Rows for Iterated<I, K, V> {
    async fn next(&mut self) -> Result<Option<Row<'_>>> {
        self.present = self.rows.next();
        Ok(self.present.as_ref().map(|(key, value)| Row::new(key.as_ref(), value.as_ref())))
    }
}

/// The most bytes that the head of an encoded row takes: two lengths.
pub(super) const HEAD_MAX: usize = 10;

/// The lengths that the head of an encoded row states.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Shape {
    pub head: usize,
    pub key: usize,
    pub value: usize,
}

impl Shape {
    /// Bytes of the whole row.
    pub fn total(self) -> usize {
        self.head + self.key + self.value
    }

    /// Where the key lies in the row.
    pub fn key(self) -> Range<usize> {
        self.head..self.head + self.key
    }

    /// Reads the head of the row that begins here; `None` if the bytes end within it or it is none.
    #[inline]
    pub fn read(bytes: &[u8]) -> Option<Shape> {
        if let [key @ 0..0x80, value @ 0..0x80, ..] = *bytes {
            return Some(Shape { head: 2, key: key.into(), value: value.into() });
        }
        let mut rest = bytes;
        let key = u32::try_from(varint::take(&mut rest)?).ok()?;
        let value = u32::try_from(varint::take(&mut rest)?).ok()?;
        Some(Shape { head: bytes.len() - rest.len(), key: key as usize, value: value as usize })
    }
}

/// The head of an encoded row: its bytes and how many there are.
#[inline]
pub(super) fn head(row: Row<'_>) -> ([u8; HEAD_MAX], usize) {
    let mut bytes = [0; HEAD_MAX];
    let key = varint::write(row.key.len() as u64, &mut bytes);
    let value = varint::write(row.value.len() as u64, &mut bytes[key..]);
    (bytes, key + value)
}

/// The row that stands here, encoded and whole.
#[inline]
pub(super) fn decode(bytes: &[u8], shape: Shape) -> Row<'_> {
    let (key, value) = bytes[shape.head..shape.total()].split_at(shape.key);
    Row { key, value }
}

/// The first eight bytes of a key from `skip` on, as a number that orders as they do. A key that ends before has zeros: equal
/// numbers leave the order open.
#[inline]
pub(super) fn prefix(key: &[u8], skip: usize) -> u64 {
    let key = &key[skip.min(key.len())..];
    match key.first_chunk::<8>() {
        Some(first) => u64::from_be_bytes(*first),
        None => {
            let mut bytes = [0; 8];
            bytes[..key.len()].copy_from_slice(key);
            u64::from_be_bytes(bytes)
        }
    }
}
