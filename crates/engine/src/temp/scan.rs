//! A range of a partition as a source of rows.

use super::row::{Row, Rows};
use crate::Result;
use crate::transaction::{Cursor, Transaction};

/// What a cursor shows, row by row.
///
/// ```
/// # mod ground { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/ground/database.rs")); }
/// # use ground::*;
/// # with_database(async |database| {
/// use entresol_engine::Direction;
/// use entresol_engine::temp::{Rows, Scan};
/// use std::ops::Bound;
///
/// let notes = database.create_partition(PartitionSpec::b_tree("notes")).await?;
/// let mut tx = database.begin().await?;
/// tx.put(notes, b"milk", b"two litres").await?;
/// let all = tx.cursor(notes, Bound::Unbounded, Bound::Unbounded, Direction::Forward);
/// let mut scan = Scan::new(&mut tx, all);
/// assert_eq!(scan.next().await?.map(|row| row.value), Some(&b"two litres"[..]));
/// assert_eq!(scan.next().await?, None);
/// # Ok(())
/// # });
/// ```
pub struct Scan<'a> {
    transaction: &'a mut Transaction,
    cursor: Cursor,
    row: Option<(Vec<u8>, Vec<u8>)>,
}

impl<'a> Scan<'a> {
    /// What `cursor` of this transaction shows.
    pub fn new(transaction: &'a mut Transaction, cursor: Cursor) -> Scan<'a> {
        Scan { transaction, cursor, row: None }
    }
}

impl Rows for Scan<'_> {
    async fn next(&mut self) -> Result<Option<Row<'_>>> {
        self.row = self.transaction.next(&mut self.cursor).await?;
        Ok(self.row.as_ref().map(|(key, value)| Row::new(key, value)))
    }
}

/// A scan's records by keys that are made of them; their own keys are the values.
pub(super) struct Keyed<'a, F> {
    scan: Scan<'a>,
    make: F,
    key: Vec<u8>,
}

impl<'a, F: FnMut(&[u8], &[u8]) -> Vec<u8>> Keyed<'a, F> {
    pub fn new(scan: Scan<'a>, make: F) -> Keyed<'a, F> {
        Keyed { scan, make, key: Vec::new() }
    }
}

impl<F: FnMut(&[u8], &[u8]) -> Vec<u8>> Rows for Keyed<'_, F> {
    async fn next(&mut self) -> Result<Option<Row<'_>>> {
        let Some(row) = self.scan.next().await? else { return Ok(None) };
        self.key = (self.make)(row.key, row.value);
        Ok(Some(Row::new(&self.key, row.key)))
    }
}
