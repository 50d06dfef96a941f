//! Reading the database as it was at one moment.

use super::isolation::begin_reading;
use super::{Cursor, Direction, KeyRange, Scan, Transaction};
use crate::Result;
use crate::catalog::EntryRange;
use crate::engine::Engine;
use crate::mvcc::SetPortion;
use crate::temp::{JoinReport, JoinSettings, Joined, Sorted};
use base::{Lsn, PartitionId};
use std::ops::Bound;
use std::rc::Rc;
use structures::organization::append::Position;
use structures::set::FieldValue;

/// The database as it was at one moment: all that was committed by then, and nothing else. Reading it takes no locks, waits for
/// no transaction and keeps none waiting; as long as it is held, versions of what is changed are kept for it
/// ([`crate::Database::versions`]). Of b-trees and objects without locks there are no versions: it shows their present, once that is durable.
///
/// ```
/// # mod ground { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/ground/database.rs")); }
/// # use ground::*;
/// # with_database(async |database| {
/// # let notes = database.create_partition(PartitionSpec::b_tree("notes")).await?;
/// database.transaction(async |tx| tx.put(notes, b"milk", b"two litres").await).await?;
/// let mut before = database.snapshot().await?;
/// database.transaction(async |tx| tx.delete(notes, b"milk").await).await?;
/// assert_eq!(before.get(notes, b"milk").await?.as_deref(), Some(&b"two litres"[..]));
/// assert_eq!(database.snapshot().await?.get(notes, b"milk").await?, None);
/// # Ok(())
/// # });
/// ```
pub struct Snapshot(Transaction);

impl Drop for Snapshot {
    fn drop(&mut self) {
        let reading = &self.0.engine.transactions.reading;
        reading.set(reading.get() - 1);
        self.0.end_reading();
    }
}

impl Snapshot {
    /// Begins to read as of `at`.
    pub(crate) fn begin(engine: &Rc<Engine>, at: Lsn) -> Snapshot {
        engine.transactions.reading.set(engine.transactions.reading.get() + 1);
        Snapshot(begin_reading(engine, at))
    }

    /// The moment: the log position of the last commit that it sees.
    pub fn moment(&self) -> Lsn {
        self.0.moment()
    }

    /// The transaction that reads it.
    #[cfg(test)]
    pub(crate) fn as_transaction(&mut self) -> &mut Transaction {
        &mut self.0
    }

    /// As [`Transaction::get`].
    ///
    /// # Errors
    /// As there, without [`crate::Error::Deadlock`].
    pub async fn get(&mut self, partition: PartitionId, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let found = self.0.get(partition, key).await?;
        self.0.confirm_unlocked().await?;
        Ok(found)
    }

    /// As [`Transaction::cursor`].
    ///
    /// ```
    /// # mod ground { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/ground/database.rs")); }
    /// # use ground::*;
    /// # use entresol_engine::Direction;
    /// # use std::ops::Bound;
    /// # with_database(async |database| {
    /// # let notes = database.create_partition(PartitionSpec::b_tree("notes")).await?;
    /// database.transaction(async |tx| tx.put(notes, b"milk", b"two litres").await).await?;
    /// let mut snapshot = database.snapshot().await?;
    /// database.transaction(async |tx| tx.put(notes, b"bread", b"one").await).await?;
    /// let mut cursor = snapshot.cursor(notes, Bound::Unbounded, Bound::Unbounded, Direction::Forward);
    /// assert_eq!(snapshot.next(&mut cursor).await?, Some((b"milk".to_vec(), b"two litres".to_vec())));
    /// assert_eq!(snapshot.next(&mut cursor).await?, None);
    /// # Ok(())
    /// # });
    /// ```
    pub fn cursor(
        &self,
        partition: PartitionId,
        lower: Bound<&[u8]>,
        upper: Bound<&[u8]>,
        direction: Direction,
    ) -> Cursor {
        self.0.cursor(partition, lower, upper, direction)
    }

    /// As [`Transaction::scan`], without locks.
    ///
    /// ```
    /// # mod ground { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/ground/database.rs")); }
    /// # use ground::*;
    /// # use entresol_engine::Direction;
    /// # with_database(async |database| {
    /// # let notes = database.create_partition(PartitionSpec::b_tree("notes")).await?;
    /// database.transaction(async |tx| tx.put(notes, b"milk", b"two litres").await).await?;
    /// let mut before = database.snapshot().await?;
    /// database.transaction(async |tx| tx.put(notes, b"bread", b"one").await).await?;
    /// assert_eq!(before.scan(notes, .., Direction::Backward).take(10).await?.len(), 1);
    /// # Ok(())
    /// # });
    /// ```
    pub fn scan(&mut self, partition: PartitionId, range: impl KeyRange, direction: Direction) -> Scan<'_> {
        self.0.scan(partition, range, direction).of_snapshot()
    }

    /// As [`Transaction::next`].
    ///
    /// # Errors
    /// As there, without [`crate::Error::Deadlock`].
    pub async fn next(&mut self, cursor: &mut Cursor) -> Result<Option<(Vec<u8>, Vec<u8>)>> {
        let found = self.0.next(cursor).await?;
        self.0.confirm_unlocked().await?;
        Ok(found)
    }

    /// As [`Transaction::sort`].
    ///
    /// # Errors
    /// As there, without [`crate::Error::Deadlock`].
    pub async fn sort(
        &mut self,
        cursor: Cursor,
        make: impl FnMut(&[u8], &[u8]) -> (Vec<u8>, Vec<u8>),
        memory: u64,
    ) -> Result<Sorted> {
        let found = self.0.sort(cursor, make, memory).await?;
        self.0.confirm_unlocked().await?;
        Ok(found)
    }

    /// As [`Transaction::join`], of two ranges as they were at one moment.
    ///
    /// # Errors
    /// As there, without [`crate::Error::Deadlock`].
    ///
    /// ```
    /// # mod ground { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/ground/database.rs")); }
    /// # use ground::*;
    /// # use entresol_engine::Direction;
    /// # use entresol_engine::temp::{JoinKind, JoinMethod, JoinSettings};
    /// # use std::ops::Bound;
    /// # with_database(async |database| {
    /// # let orders = database.create_partition(PartitionSpec::b_tree("orders")).await?;
    /// # let customers = database.create_partition(PartitionSpec::b_tree("customers")).await?;
    /// database.transaction(async |tx| tx.put(customers, b"ann", b"Ann").await).await?;
    /// database.transaction(async |tx| tx.put(orders, b"1", b"ann").await).await?;
    /// let mut now = database.snapshot().await?;
    /// database.transaction(async |tx| tx.put(orders, b"2", b"ann").await).await?;
    /// let all = |partition| now.cursor(partition, Bound::Unbounded, Bound::Unbounded, Direction::Forward);
    /// let left = (all(orders), |number: &[u8], customer: &[u8]| (customer.to_vec(), number.to_vec()));
    /// let right = (all(customers), |customer: &[u8], name: &[u8]| (customer.to_vec(), name.to_vec()));
    /// let settings = JoinSettings { method: JoinMethod::Hash, kind: JoinKind::Inner, memory: 16 << 20 };
    /// let mut found = Vec::new();
    /// let take = async |answer: entresol_engine::temp::Joined<'_>| {
    ///     found.push(answer.left.to_vec());
    ///     Ok(())
    /// };
    /// now.join(left, right, settings, take).await?;
    /// assert_eq!(found, [b"1"], "the other one came later");
    /// # Ok(())
    /// # });
    /// ```
    pub async fn join(
        &mut self,
        left: (Cursor, impl FnMut(&[u8], &[u8]) -> (Vec<u8>, Vec<u8>)),
        right: (Cursor, impl FnMut(&[u8], &[u8]) -> (Vec<u8>, Vec<u8>)),
        settings: JoinSettings,
        take: impl AsyncFnMut(Joined<'_>) -> Result<()>,
    ) -> Result<JoinReport> {
        let found = self.0.join(left, right, settings, take).await?;
        self.0.confirm_unlocked().await?;
        Ok(found)
    }

    /// As [`Transaction::read_object`].
    ///
    /// # Errors
    /// As there, without [`crate::Error::Deadlock`].
    pub async fn read_object<R>(
        &mut self,
        partition: PartitionId,
        number: u64,
        look: impl FnOnce(&[u8]) -> R,
    ) -> Result<R> {
        let found = self.0.read_object(partition, number, look).await?;
        self.0.confirm_unlocked().await?;
        Ok(found)
    }

    /// As [`Transaction::scan_appended`].
    ///
    /// # Errors
    /// As there, without [`crate::Error::Deadlock`].
    pub async fn scan_appended(
        &mut self,
        partition: PartitionId,
        look: impl FnMut(Position, &[u8]) -> bool,
    ) -> Result<()> {
        self.0.scan_appended(partition, look).await?;
        self.0.confirm_unlocked().await
    }

    /// Shows every record of a set to `look`, in no particular order, until that returns false.
    ///
    /// # Errors
    /// As [`Transaction::scan_set`].
    pub async fn scan_set(&mut self, partition: PartitionId, look: impl FnMut(&[u8], &[u8]) -> bool) -> Result<()> {
        self.0.scan_set(partition, look).await
    }

    /// Some records of a set from a position of its own order on, 0 at first, and from which on others follow: in the order of arrival, or in
    /// no particular one.
    ///
    /// # Errors
    /// As [`Transaction::scan_set`].
    pub(crate) async fn portion_of_set(
        &mut self,
        partition: PartitionId,
        from: u64,
    ) -> Result<(SetPortion, Option<u64>)> {
        self.0.portion_of_set(partition, from).await
    }

    /// Some records of a set that are within a range of an index, in its order: those behind the one with this contents and key, or the first; and
    /// whether none follow.
    ///
    /// # Errors
    /// As [`Snapshot::range`].
    pub(crate) async fn portion_of_index(
        &mut self,
        (partition, secondary): (PartitionId, usize),
        range: &EntryRange,
        behind: Option<(&[u8], &[u8])>,
    ) -> Result<(SetPortion, bool)> {
        self.0.portion_of_index((partition, secondary), range, behind).await
    }

    /// As [`Transaction::range`].
    ///
    /// # Errors
    /// As there, without [`crate::Error::Deadlock`].
    pub async fn range(
        &mut self,
        partition: PartitionId,
        secondary: usize,
        bounds: (Bound<&[FieldValue<'_>]>, Bound<&[FieldValue<'_>]>),
        direction: Direction,
        look: impl FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<()> {
        self.0.range(partition, secondary, bounds, direction, look).await?;
        self.0.confirm_unlocked().await
    }
}
