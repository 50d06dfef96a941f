//! What the other crates of the house do with a database, and users of the library do not.

use super::{CommitFailure, Database, KeptVersions, Served, Settings, Shipment};
use crate::buffer::Buffer;
use crate::catalog::EntryRange;
use crate::locks::Locks;
use crate::log::{Log, Measured};
use crate::mvcc::SetPortion;
use crate::second_level::CacheContents;
use crate::superblock::SecondLog;
use crate::transaction::Snapshot;
use crate::{Error, Result};
use base::{Lsn, PageId, PartitionId};
use executor::Panic;
use std::rc::Rc;

/// A database seen from inside: its log, its buffer and its locks, and what a page server does for nodes. The library exports no such name, so
/// it is no part of what its users may rely on.
#[doc(hidden)]
pub trait Internals {
    /// The settings that it was opened with.
    fn settings(&self) -> &Settings;

    /// The log.
    fn log(&self) -> &Rc<Log>;

    /// The buffer.
    fn buffer(&self) -> &Rc<Buffer>;

    /// The locks.
    fn locks(&self) -> &Locks;

    /// What was measured of the log's device when the database was created, if anything was.
    fn log_measured(&self) -> Option<Measured>;

    /// The log's second device, if it has one: what the superblock file says.
    fn second_log(&self) -> Option<SecondLog>;

    /// What the second-level cache holds now; `None` without one. It looks at every frame of main memory, and at the copies that are newer
    /// than on their pages' own devices.
    fn cache_contents(&self) -> Option<CacheContents>;

    /// What the panic of a request's own code means for it: [`Panicked`](Error::Panicked).
    ///
    /// # Panics
    /// Goes on panicking if the panic has ended a change of pages halfway: then the engine must not go on. What is committed
    /// is safe.
    fn panicked(&self, what: &str, panic: Panic) -> Error;

    /// Contains panics of tasks that its users spawn ([`executor::Executor::contain_panics`]), but for those that have ended a change of
    /// pages halfway.
    fn contain_panics(&self);

    /// Has the file of a direct partition have room for a page of it, which may have been cut off: before another node changes its objects.
    ///
    /// # Errors
    /// [`Error::NoPartition`], and the driver's.
    fn make_room_for_objects(&self, page: PageId) -> impl Future<Output = Result<()>>;

    /// Tells this database from all others, also from the one of which it is a restored backup; the same in each opening.
    fn identity(&self) -> u64;

    /// Nodes use the database until this is dropped: it runs no transactions of its own, and its partitions keep their names, pages and indexes.
    ///
    /// # Errors
    /// [`crate::Error::PartitionInUse`] if an index is being built or dropped, or a partition is being compacted or loaded;
    /// [`crate::Error::Setting`] if nodes use it already, but for those of a server that was told to end; [`crate::Error::StillRunning`] if transactions of its own have not ended in ten
    /// seconds.
    fn serve_nodes(&self) -> impl Future<Output = Result<Served>>;

    /// Commits a transaction of another node.
    ///
    /// # Errors
    /// Whether anything was logged, and why it failed.
    fn commit_shipped(&self, shipment: &Shipment<'_>) -> impl Future<Output = Result<(), CommitFailure>>;

    /// The same, unless what its caller needs is not `at_hand` in the step in which it is logged: then it is false. `note` is told up to which
    /// position of the log it is described, before its pages are changed.
    ///
    /// # Errors
    /// As [`Internals::commit_shipped`].
    fn commit_shipped_noting(
        &self,
        shipment: &Shipment<'_>,
        at_hand: impl Fn() -> bool,
        note: impl FnOnce(Lsn),
    ) -> impl Future<Output = Result<bool, CommitFailure>>;

    /// Waits until the transactions of other nodes up to this position of the log are durable, if the log is.
    ///
    /// # Errors
    /// [`crate::Error::LogFailed`].
    fn confirm_shipped(&self, end: Lsn) -> impl Future<Output = Result<()>>;

    /// Takes a page that another node has dropped into the buffer, as used just now.
    ///
    /// # Errors
    /// [`crate::Error::Shipment`] if these are not the bytes of a page of this database, and those of a buffer without room.
    fn keep_shipped(&self, page: PageId, bytes: &[u8]) -> impl Future<Output = Result<()>>;

    /// From now on what is changed is kept as it was, for moments that are held at any time.
    fn keep_versions(&self) -> impl Future<Output = KeptVersions>;

    /// Waits for a moment at which no sweep is writing a segment itself.
    fn segments_returned(&self) -> impl Future<Output = ()>;

    /// The value of `key` in a set as it was changed last.
    ///
    /// # Errors
    /// [`crate::Error::NoPartition`]; [`crate::Error::WrongOrganization`] if it is no set.
    fn read_in_set(&self, partition: PartitionId, key: &[u8]) -> impl Future<Output = Result<Option<Vec<u8>>>>;

    /// The number for a record that is to be added to a set of arrivals.
    ///
    /// # Errors
    /// As [`Internals::read_in_set`].
    fn reserve_arrival(&self, partition: PartitionId) -> Result<u64>;

    /// Gives `take` records of a set that are within a range of an index, and whether none follow.
    ///
    /// # Errors
    /// As [`Internals::read_in_set`].
    fn portion_of_index<R>(
        &self,
        index: (PartitionId, usize),
        range: &EntryRange,
        behind: Option<(&[u8], &[u8])>,
        take: impl FnOnce(SetPortion, bool) -> R,
    ) -> impl Future<Output = Result<R>>;

    /// Gives `take` records of a set from a position on, and the position from which on others follow.
    ///
    /// # Errors
    /// As [`Internals::read_in_set`].
    fn portion_of_set<R>(
        &self,
        partition: PartitionId,
        from: u64,
        take: impl FnOnce(SetPortion, Option<u64>) -> R,
    ) -> impl Future<Output = Result<R>>;

    /// Some records of a set, as a snapshot has them, that are within a range of an index, in its order: those behind the one with this contents and
    /// key, or the first; and whether none follow.
    ///
    /// # Errors
    /// As [`Snapshot::range`].
    fn past_portion_of_index(
        &self,
        snapshot: &mut Snapshot,
        index: (PartitionId, usize),
        range: &EntryRange,
        behind: Option<(&[u8], &[u8])>,
    ) -> impl Future<Output = Result<(SetPortion, bool)>>;

    /// Some records of a set, as a snapshot has them, from a position of its own order on, 0 at first, and from which on others follow: in the
    /// order of arrival, or in no particular one.
    ///
    /// # Errors
    /// As [`Snapshot::scan_set`].
    fn past_portion_of_set(
        &self,
        snapshot: &mut Snapshot,
        partition: PartitionId,
        from: u64,
    ) -> impl Future<Output = Result<(SetPortion, Option<u64>)>>;

    /// What the indexes of a set order a record by as it is, and as it would be with this value.
    ///
    /// # Errors
    /// As [`Internals::read_in_set`]; [`crate::Error::Field`] if the value is no record of the set's type.
    fn moved_in_set(
        &self,
        partition: PartitionId,
        key: &[u8],
        new: Option<&[u8]>,
    ) -> impl Future<Output = Result<Vec<(usize, Vec<u8>)>>>;
}

impl Internals for Database {
    fn settings(&self) -> &Settings {
        Database::settings(self)
    }

    fn log(&self) -> &Rc<Log> {
        Database::log(self)
    }

    fn buffer(&self) -> &Rc<Buffer> {
        Database::buffer(self)
    }

    fn locks(&self) -> &Locks {
        &self.0.engine.core.locks
    }

    fn log_measured(&self) -> Option<Measured> {
        Database::log_measured(self)
    }

    fn second_log(&self) -> Option<SecondLog> {
        Database::second_log(self)
    }

    fn cache_contents(&self) -> Option<CacheContents> {
        Database::cache_contents(self)
    }

    fn panicked(&self, what: &str, panic: Panic) -> Error {
        Database::panicked(self, what, panic)
    }

    fn contain_panics(&self) {
        Database::contain_panics(self);
    }

    async fn make_room_for_objects(&self, page: PageId) -> Result<()> {
        Database::make_room_for_objects(self, page).await
    }

    fn identity(&self) -> u64 {
        self.0.engine.catalog.superblock.borrow().identity.expect("creation and opening see to it")
    }

    async fn serve_nodes(&self) -> Result<Served> {
        Database::serve_nodes(self).await
    }

    async fn commit_shipped(&self, shipment: &Shipment<'_>) -> Result<(), CommitFailure> {
        Database::commit_shipped_noting(self, shipment, || true, |_| {}).await.map(drop)
    }

    async fn commit_shipped_noting(
        &self,
        shipment: &Shipment<'_>,
        at_hand: impl Fn() -> bool,
        note: impl FnOnce(Lsn),
    ) -> Result<bool, CommitFailure> {
        Database::commit_shipped_noting(self, shipment, at_hand, note).await
    }

    async fn confirm_shipped(&self, end: Lsn) -> Result<()> {
        Database::confirm_shipped(self, end).await
    }

    async fn keep_shipped(&self, page: PageId, bytes: &[u8]) -> Result<()> {
        Database::keep_shipped(self, page, bytes).await
    }

    async fn keep_versions(&self) -> KeptVersions {
        Database::keep_versions(self).await
    }

    async fn segments_returned(&self) {
        Database::segments_returned(self).await;
    }

    async fn read_in_set(&self, partition: PartitionId, key: &[u8]) -> Result<Option<Vec<u8>>> {
        Database::read_in_set(self, partition, key).await
    }

    fn reserve_arrival(&self, partition: PartitionId) -> Result<u64> {
        Database::reserve_arrival(self, partition)
    }

    async fn portion_of_index<R>(
        &self,
        index: (PartitionId, usize),
        range: &EntryRange,
        behind: Option<(&[u8], &[u8])>,
        take: impl FnOnce(SetPortion, bool) -> R,
    ) -> Result<R> {
        Database::portion_of_index(self, index, range, behind, take).await
    }

    async fn portion_of_set<R>(
        &self,
        partition: PartitionId,
        from: u64,
        take: impl FnOnce(SetPortion, Option<u64>) -> R,
    ) -> Result<R> {
        Database::portion_of_set(self, partition, from, take).await
    }

    async fn past_portion_of_index(
        &self,
        snapshot: &mut Snapshot,
        index: (PartitionId, usize),
        range: &EntryRange,
        behind: Option<(&[u8], &[u8])>,
    ) -> Result<(SetPortion, bool)> {
        snapshot.portion_of_index(index, range, behind).await
    }

    async fn past_portion_of_set(
        &self,
        snapshot: &mut Snapshot,
        partition: PartitionId,
        from: u64,
    ) -> Result<(SetPortion, Option<u64>)> {
        snapshot.portion_of_set(partition, from).await
    }

    async fn moved_in_set(
        &self,
        partition: PartitionId,
        key: &[u8],
        new: Option<&[u8]>,
    ) -> Result<Vec<(usize, Vec<u8>)>> {
        Database::moved_in_set(self, partition, key, new).await
    }
}
