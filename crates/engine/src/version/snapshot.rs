//! Reading the database as it was at one moment.

use crate::database::Database;
use crate::transaction::{Cursor, Direction, Transaction};
use crate::{Error, Result};
use base::{Instant, Lsn, PartitionId};
use std::ops::Bound;
use structures::organization::append::Position;
use structures::set::FieldValue;

/// The database as it was at one moment: all that was committed by then, and nothing else. Reading it takes no locks, waits
/// for nobody and keeps nobody waiting; as long as it is held, versions of what is changed are kept for it
/// ([`Database::versions`]).
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

impl Database {
    /// A snapshot of this moment. What it sees is durable: nothing of it can be lost any more.
    ///
    /// # Errors
    /// [`crate::Error::LogFailed`].
    pub async fn snapshot(&self) -> Result<Snapshot> {
        self.refuse_while_repeating()?;
        self.await_segments().await;
        let snapshot = Snapshot(self.begin_reading(self.present()));
        self.confirm(snapshot.moment()).await?;
        Ok(snapshot)
    }
}

impl Database {
    /// The database as it was at a position of the log, which may be any that [`Snapshot::moment`] gives.
    ///
    /// # Errors
    /// [`Error::SnapshotTooOld`] if that is longer ago than `[undo] retention` says, or before the database was opened, and no
    /// snapshot of that moment is held; [`Error::FutureMoment`] if it is still to come; [`Error::LogFailed`].
    ///
    /// ```
    /// # mod ground { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/ground/database.rs")); }
    /// # use ground::*;
    /// # let undo = entresol_engine::version::Settings { retention_ns: 60_000_000_000, ..Default::default() };
    /// # let settings = entresol_engine::Settings { undo, ..Default::default() };
    /// # with_database_of(settings, async |database| {
    /// # let notes = database.create_partition(PartitionSpec::b_tree("notes")).await?;
    /// database.transaction(async |tx| tx.put(notes, b"milk", b"two litres").await).await?;
    /// let bought = database.snapshot().await?.moment();
    /// database.transaction(async |tx| tx.delete(notes, b"milk").await).await?;
    /// let mut then = database.as_of(bought).await?;
    /// assert!(then.get(notes, b"milk").await?.is_some());
    /// # Ok(())
    /// # });
    /// ```
    pub async fn as_of(&self, moment: Lsn) -> Result<Snapshot> {
        self.refuse_while_repeating()?;
        if moment > self.log().end() {
            return Err(Error::FutureMoment { moment: moment.to_string(), now: self.log().end().to_string() });
        }
        self.await_segments().await;
        let oldest = self.0.versions.borrow().oldest_moment(self.present());
        if moment < oldest && !self.0.versions.borrow().snapshots.is_held(moment) {
            return Err(Error::SnapshotTooOld { oldest });
        }
        let snapshot = Snapshot(self.begin_reading(moment));
        self.confirm(moment).await?;
        Ok(snapshot)
    }

    /// The database as it was at a time of the executor's clock, to a hundredth of a second.
    ///
    /// # Errors
    /// As [`Database::as_of`].
    pub async fn as_of_time(&self, time: Instant) -> Result<Snapshot> {
        let now = self.executor().now();
        if time > now {
            return Err(Error::FutureMoment { moment: time.to_string(), now: now.to_string() });
        }
        let moment = self.0.versions.borrow().moment_at(time);
        match moment {
            Some(moment) => self.as_of(moment).await,
            None => Err(Error::SnapshotTooOld { oldest: self.0.versions.borrow().oldest_moment(self.present()) }),
        }
    }

    /// Waits until what was committed up to `moment` is durable.
    async fn confirm(&self, moment: Lsn) -> Result<()> {
        let moment = moment.min(self.present());
        if self.settings().log.durable && moment > self.log().durable() {
            self.log().wait_durable(moment).await?;
        }
        Ok(())
    }
}

impl Drop for Snapshot {
    fn drop(&mut self) {
        self.0.end_reading();
    }
}

impl Snapshot {
    /// The moment: the log position of the last commit that it sees.
    pub fn moment(&self) -> Lsn {
        self.0.moment()
    }

    /// The transaction that reads it.
    #[cfg(test)]
    pub(super) fn as_transaction(&mut self) -> &mut Transaction {
        &mut self.0
    }

    /// As [`Transaction::get`].
    ///
    /// # Errors
    /// As there, without [`crate::Error::Deadlock`].
    pub async fn get(&mut self, partition: PartitionId, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.0.get(partition, key).await
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

    /// As [`Transaction::next`].
    ///
    /// # Errors
    /// As there, without [`crate::Error::Deadlock`].
    pub async fn next(&mut self, cursor: &mut Cursor) -> Result<Option<(Vec<u8>, Vec<u8>)>> {
        self.0.next(cursor).await
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
        self.0.read_object(partition, number, look).await
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
        self.0.scan_appended(partition, look).await
    }

    /// Shows every record of a set to `look`, in no particular order, until that returns false.
    ///
    /// # Errors
    /// As [`Transaction::scan_set`].
    pub async fn scan_set(&mut self, partition: PartitionId, look: impl FnMut(&[u8], &[u8]) -> bool) -> Result<()> {
        self.0.scan_set(partition, look).await
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
        look: impl FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<()> {
        self.0.range(partition, secondary, bounds, look).await
    }
}
