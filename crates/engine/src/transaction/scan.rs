//! A range of a partition, record by record, and as a source of rows.

use super::cursor::Looked;
use super::{Cursor, Direction, KeyRange, Transaction};
use crate::Result;
use crate::temp::{self, JoinReport, JoinSettings, Joined, KeyValue, RecordStream, Row, Rows, Sorted};
use base::PartitionId;
use std::cell::Cell;

/// The records of a range in order ([`Transaction::scan`]), also as the rows of a sort or a join. It holds its transaction, so
/// that nothing is changed behind its back.
///
/// ```
/// # mod ground { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/ground/database.rs")); }
/// # use ground::*;
/// # with_database(async |database| {
/// use entresol_engine::Direction;
///
/// let notes = database.create_partition(PartitionSpec::b_tree("notes")).await?;
/// let mut tx = database.begin().await?;
/// tx.put(notes, b"milk", b"two litres").await?;
/// tx.put(notes, b"bread", b"one").await?;
/// let mut scan = tx.scan(notes, "c".., Direction::Forward);
/// assert_eq!(scan.next().await?, Some((b"milk".to_vec(), b"two litres".to_vec())));
/// assert_eq!(scan.next().await?, None);
/// let first = tx.scan(notes, .., Direction::Forward).take(1).await?;
/// assert_eq!(first, [(b"bread".to_vec(), b"one".to_vec())]);
/// // By value, in 8 MiB of memory.
/// let mut sorted = database.sort(tx.scan(notes, .., Direction::Forward), 8 << 20).await?;
/// # use entresol_engine::temp::Rows;
/// # assert!(sorted.next().await?.is_some());
/// # Ok(())
/// # });
/// ```
pub struct Scan<'a> {
    transaction: &'a mut Transaction,
    cursor: Cursor,
    row: Option<(Vec<u8>, Vec<u8>)>,
    /// Whether a snapshot is read, which ends with no answer of its own.
    is_of_snapshot: bool,
}

impl<'a> Scan<'a> {
    /// What `cursor` of this transaction shows.
    pub fn new(transaction: &'a mut Transaction, cursor: Cursor) -> Scan<'a> {
        Scan { transaction, cursor, row: None, is_of_snapshot: false }
    }

    /// What it shows is durable when it is shown.
    pub(super) fn of_snapshot(self) -> Scan<'a> {
        Scan { is_of_snapshot: true, ..self }
    }

    async fn confirm(&self) -> Result<()> {
        if self.is_of_snapshot { self.transaction.confirm_unlocked().await } else { Ok(()) }
    }

    /// The next record, key and value; `None` at the end of the range.
    ///
    /// # Errors
    /// Those of [`Transaction::next`].
    pub async fn next(&mut self) -> Result<Option<KeyValue>> {
        let record = self.transaction.next(&mut self.cursor).await?;
        self.confirm().await?;
        Ok(record)
    }

    /// The records as a stream, which holds the transaction as this does. It has the methods of the `futures` crates; an error ends it.
    pub fn into_stream(self) -> RecordStream<'a> {
        let mut scan = self;
        RecordStream::new(async move || scan.next().await)
    }

    /// The next `count` records, or those that are left.
    ///
    /// # Errors
    /// Those of [`Transaction::next`].
    pub async fn take(&mut self, count: usize) -> Result<Vec<KeyValue>> {
        let mut records = Vec::new();
        while records.len() < count {
            let Some(record) = self.next().await? else { break };
            records.push(record);
        }
        Ok(records)
    }

    /// Shows every record that is left to `look`, until that returns false.
    ///
    /// # Errors
    /// Those of [`Transaction::next`].
    pub async fn look(&mut self, mut look: impl FnMut(&[u8], &[u8]) -> bool) -> Result<()> {
        loop {
            match self.transaction.look_at_share(&mut self.cursor, &mut look).await? {
                Looked::Share => {}
                Looked::Enough => return self.confirm().await,
                Looked::Before => match self.next().await? {
                    Some((key, value)) if look(&key, &value) => {}
                    _ => return self.confirm().await,
                },
            }
        }
    }
}

impl Rows for Scan<'_> {
    async fn next(&mut self) -> Result<Option<Row<'_>>> {
        self.row = Scan::next(self).await?;
        Ok(self.row.as_ref().map(|(key, value)| Row::new(key, value)))
    }
}

/// Records of a transaction's cursors, each made into a row. Several share the transaction, and are read one after the other.
struct Made<'a, 't, F> {
    transaction: &'a Cell<Option<&'t mut Transaction>>,
    cursor: Cursor,
    make: F,
    row: (Vec<u8>, Vec<u8>),
}

impl<F: FnMut(&[u8], &[u8]) -> (Vec<u8>, Vec<u8>)> Rows for Made<'_, '_, F> {
    async fn next(&mut self) -> Result<Option<Row<'_>>> {
        let transaction = self.transaction.take().expect("an operator reads its inputs one after the other");
        let record = transaction.next(&mut self.cursor).await;
        self.transaction.set(Some(transaction));
        let Some((key, value)) = record? else { return Ok(None) };
        self.row = (self.make)(&key, &value);
        Ok(Some(Row::new(&self.row.0, &self.row.1)))
    }
}

impl Transaction {
    /// The records of a range of a b-tree, beginning at the end that `direction` comes from. At serializable level it locks the
    /// range that it has gone through, so that a repeated scan shows the same: one lock, however many records there are.
    pub fn scan(&mut self, partition: PartitionId, range: impl KeyRange, direction: Direction) -> Scan<'_> {
        let cursor = self.cursor_within(partition, range.into_bounds(), direction);
        Scan::new(self, cursor)
    }

    /// Sorts what a cursor shows, in `memory` bytes. `make` says what key and value a record has in the sort.
    ///
    /// ```
    /// # mod ground { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/ground/database.rs")); }
    /// # use ground::*;
    /// # with_database(async |database| {
    /// use entresol_engine::Direction;
    /// use entresol_engine::temp::Rows;
    /// use std::ops::Bound;
    ///
    /// let notes = database.create_partition(PartitionSpec::b_tree("notes")).await?;
    /// let mut tx = database.begin().await?;
    /// tx.put(notes, b"bread", b"3").await?;
    /// tx.put(notes, b"milk", b"2").await?;
    /// let all = tx.cursor(notes, Bound::Unbounded, Bound::Unbounded, Direction::Forward);
    /// // By amount, which is the value.
    /// let mut sorted = tx.sort(all, |key, value| (value.to_vec(), key.to_vec()), 8 << 20).await?;
    /// assert_eq!(sorted.next().await?.map(|row| row.value), Some(&b"milk"[..]));
    /// # Ok(())
    /// # });
    /// ```
    ///
    /// # Errors
    /// Those of [`Transaction::next`] and of [`crate::Database::sort`].
    pub async fn sort(
        &mut self,
        cursor: Cursor,
        make: impl FnMut(&[u8], &[u8]) -> (Vec<u8>, Vec<u8>),
        memory: u64,
    ) -> Result<Sorted> {
        let space = self.engine.temp.clone();
        let transaction = &Cell::new(Some(self));
        temp::sort(&space, Made { transaction, cursor, make, row: Default::default() }, memory).await
    }

    /// Joins what two cursors show. Each comes with what makes a record's key and value in the join.
    ///
    /// ```
    /// # mod ground { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/ground/database.rs")); }
    /// # use ground::*;
    /// # with_database(async |database| {
    /// use entresol_engine::Direction;
    /// use entresol_engine::temp::{JoinKind, JoinMethod, JoinSettings};
    /// use std::ops::Bound;
    ///
    /// let orders = database.create_partition(PartitionSpec::b_tree("orders")).await?;
    /// let prices = database.create_partition(PartitionSpec::b_tree("prices")).await?;
    /// let mut tx = database.begin().await?;
    /// tx.put(orders, b"1", b"milk").await?;
    /// tx.put(orders, b"2", b"milk").await?;
    /// tx.put(prices, b"milk", b"2 euros").await?;
    /// let all = |partition| tx.cursor(partition, Bound::Unbounded, Bound::Unbounded, Direction::Forward);
    /// // Orders have the article as their value, prices as their key.
    /// let left = (all(orders), |number: &[u8], article: &[u8]| (article.to_vec(), number.to_vec()));
    /// let right = (all(prices), |article: &[u8], price: &[u8]| (article.to_vec(), price.to_vec()));
    /// let settings = JoinSettings { method: JoinMethod::Hash, kind: JoinKind::Inner, memory: 16 << 20 };
    /// let mut bills = Vec::new();
    /// let take = async |answer: entresol_engine::temp::Joined<'_>| {
    ///     bills.push((answer.left.to_vec(), answer.right.map(<[u8]>::to_vec)));
    ///     Ok(())
    /// };
    /// tx.join(left, right, settings, take).await?;
    /// assert_eq!(bills.len(), 2);
    /// assert!(bills.iter().all(|(_, price)| price.as_deref() == Some(&b"2 euros"[..])));
    /// # Ok(())
    /// # });
    /// ```
    ///
    /// # Errors
    /// Those of [`Transaction::next`] and of [`crate::Database::join`].
    pub async fn join(
        &mut self,
        left: (Cursor, impl FnMut(&[u8], &[u8]) -> (Vec<u8>, Vec<u8>)),
        right: (Cursor, impl FnMut(&[u8], &[u8]) -> (Vec<u8>, Vec<u8>)),
        settings: JoinSettings,
        mut take: impl AsyncFnMut(Joined<'_>) -> Result<()>,
    ) -> Result<JoinReport> {
        let space = self.engine.temp.clone();
        let transaction = &Cell::new(Some(self));
        let left = Made { transaction, cursor: left.0, make: left.1, row: Default::default() };
        let right = Made { transaction, cursor: right.0, make: right.1, row: Default::default() };
        temp::join(&space, (left, right), settings, &mut take).await
    }
}
