//! Entresol: a transactional storage engine for every floor of the storage hierarchy.
//!
//! # The first ten minutes
//!
//! [`start`] opens a database on a thread of its own, or creates it. Every thread that has a [`Handle`] uses it; what it asks for
//! comes as a [`Pending`]. Programs without async wait for it:
//!
//! ```
//! # let directory = tempfile::tempdir().unwrap();
//! # let directory = directory.path();
//! # std::fs::write(directory.join("entresol.toml"), "[log]\nsize = \"4 MiB\"").unwrap();
//! use entresol::{Direction, Error, PartitionSpec};
//!
//! let thread = entresol::start(directory)?;
//! let accounts = thread.handle();
//! let balances = accounts.ensure_partition(PartitionSpec::b_tree("balances")).wait()?;
//! accounts.put(balances, b"alice", &[100]).wait()?;
//! accounts.put(balances, b"bob", &[50]).wait()?;
//!
//! // A transaction is a closure. It is rolled back if it fails, and run again if it was a deadlock's victim.
//! let transfer = accounts.transaction(async move |tx| {
//!     tx.modify(balances, b"alice", |balance| balance[0] -= 20).await?;
//!     tx.modify(balances, b"bob", |balance| balance[0] += 20).await?;
//!     Ok::<_, Error>(())
//! });
//! transfer.wait()?;
//! let all = accounts.page(balances, .., Direction::Forward, 10).wait()?;
//! assert_eq!(all, [(b"alice".to_vec(), vec![80]), (b"bob".to_vec(), vec![70])]);
//! thread.close()?;
//! # Ok::<(), entresol::OpenError>(())
//! ```
//!
//! In a program with async, of whatever runtime, the same is awaited: `accounts.get(balances, b"alice").await?`.
//!
//! # A database on the calling thread
//!
//! [`open`] gives a [`Store`], which runs on the thread that calls it and knows no other: the fastest way for a program that is
//! one thread, and the one for a described machine. Its transactions are awaited.
//!
//! ```
//! # let directory = tempfile::tempdir().unwrap();
//! # let directory = directory.path();
//! # std::fs::write(directory.join("entresol.toml"), "[log]\nsize = \"4 MiB\"").unwrap();
//! let store = entresol::open(directory)?;
//! store.run(async |database| {
//!     let accounts = database.ensure_partition(entresol::PartitionSpec::b_tree("accounts")).await?;
//!     database
//!         .transaction(async |tx| {
//!             tx.put(accounts, b"alice", b"100").await?;
//!             tx.put(accounts, b"bob", b"50").await
//!         })
//!         .await?;
//!     let alice = database.transaction(async |tx| tx.get(accounts, b"alice").await).await?;
//!     assert_eq!(alice.as_deref(), Some(&b"100"[..]));
//!     Ok(())
//! })?;
//! store.close()?;
//! # Ok::<(), entresol::OpenError>(())
//! ```
//!
//! A range is read with [`Transaction::scan`], also as a `Stream` of the `futures` crates ([`Scan::into_stream`]), in transactions and in
//! [snapshots](Snapshot::scan).
//!
//! # A database on several cores
//!
//! [`start_nodes`] has several engines run transactions, each on a thread of its own, on the pages of one database. What they can do,
//! and when that pays, is said of [`NodeThreads`].
//!
//! # A database for several processes
//!
//! A program that has a database open can serve its pages, so that nodes in other programs run transactions on copies of them: [`network`].
//!
//! # Looking in from outside
//!
//! [`Handle::figures`] gives what was counted, as numbers or as a text for monitoring. A program that has a subscriber of the `tracing`
//! crate when it opens a database gets events and spans of it ([`Opening::slow_after`]), all with the target `entresol`.

mod assemble;
mod calls;
pub mod configuration;
mod control;
mod database_thread;
mod error;
mod events;
mod existing;
mod handle;
mod log_words;
mod message_server;
pub mod network;
mod node_threads;
mod page_words;
mod pending;
mod reply;
mod requests;
mod residence;
mod restore;
mod spin;
mod store;
mod warnings;

#[cfg(doctest)]
mod insides;
#[cfg(test)]
mod placements;

/// What names a moment, a partition and a transaction.
pub use base::{Instant, Lsn, PageId, PartitionId, TransactionId};
/// Why a device or the machine could not do what was asked.
pub use driver::{Fault, FaultKind, Halt, OpKind};
/// Streams of records, sorts and joins.
pub use engine::temp::{JoinKind, JoinMethod, JoinReport, JoinSettings, Joined, RecordStream, Row, Rows, Sorted};
/// Databases, and what transactions do.
pub use engine::{
    AskedMoment, Compaction, Cursor, Database, Direction, Error, Figures, Isolation, KeyRange, LockWait,
    PartitionFigures, PartitionSize, PartitionSpec, Result, Savepoint, Scan, Snapshot, TierFigures, Transaction,
    lock::Mode, prefix,
};
/// Backups, and databases that are made from them.
pub use engine::{
    BackupError, BackupProgress, BackupReport, BackupSettings, RestoreArchive, RestoreReport, RestoreSource,
    RestoreTarget,
};
/// Registered procedures.
pub use engine::{Catalog, PrefetchDistance, Prefetcher, Procedures, Registered};
/// What was counted and found, what a restart did, the cache, and the transaction server.
pub use engine::{
    IndexProgress, RecordedPartition, RecordedReference, RecordedReferences, UndoProgress,
    check::{CheckReport, Finding, Progress},
    second_level::{CacheSettings, Design, Parameters, WriteBudget},
    server::TransactionServer,
    statistics::{Observer, RecoveryReport, Statistics},
    temp::{SortReport, TempStatistics},
    tier_file::TierReport,
    version::VersionReport,
};
/// How partitions are organized, the fields of records, and indexes.
pub use engine::{
    catalog::{IndexSpec, Locking, Organization, Partition},
    organization::append::Position,
    set::{Field, FieldError, FieldType, FieldValue, NotUnique, RecordType},
};
/// What a database runs on, and what its devices have left unanswered.
pub use executor::{JoinHandle, Unanswered, UserExecutor as Executor};

pub use control::{ElsewhereError, WaitsElsewhere};
pub use database_thread::DatabaseThread;
pub use error::OpenError;
pub use handle::Handle;
/// What a node runs, what it knows of partitions, and what is known of nodes.
pub use node::{
    message::Described,
    page_client::{
        PageClient as Node, PageScan as NodeScan, PageSnapshot as NodeSnapshot, PageTransaction as NodeTransaction,
    },
    survey,
};
pub use node_threads::{KeyRanges, NodeHandle, NodeThreads};
pub use pending::Pending;
pub use store::{Opening, Store};

use std::path::Path;

/// Opens the database in the directory `path` on this thread, creating it if there is none. Settings come from the file
/// `entresol.toml` in that directory, if there is one, or are the defaults.
///
/// # Errors
/// An [`OpenError`] that names the file and says what to do; the directory stays as it was. [`OpenError::SeveralNodes`] if the file says that there
/// are, which [`start_nodes`] starts.
///
/// ```
/// # let directory = tempfile::tempdir().unwrap();
/// # let directory = directory.path();
/// # std::fs::write(directory.join("entresol.toml"), "[log]\nsize = \"4 MiB\"").unwrap();
/// let store = entresol::open(directory)?;
/// assert!(store.database().partitions().is_empty());
/// store.close()?;
/// # Ok::<(), entresol::OpenError>(())
/// ```
pub fn open(path: impl AsRef<Path>) -> Result<Store, OpenError> {
    Opening::in_directory(path.as_ref())?.open()
}

/// Opens the database in the directory `path` on a thread of its own, creating it if there is none. Settings come from the file
/// `entresol.toml` in that directory, if there is one, or are the defaults.
///
/// # Errors
/// As [`DatabaseThread::start`].
///
/// ```
/// # let directory = tempfile::tempdir().unwrap();
/// # let directory = directory.path();
/// # std::fs::write(directory.join("entresol.toml"), "[log]\nsize = \"4 MiB\"").unwrap();
/// let thread = entresol::start(directory)?;
/// let notes = thread.handle().create_partition(entresol::PartitionSpec::b_tree("notes")).wait()?;
/// thread.close()?;
///
/// let thread = entresol::start(directory)?;
/// assert_eq!(thread.handle().partition("notes").wait()?, notes);
/// # Ok::<(), entresol::OpenError>(())
/// ```
pub fn start(path: impl AsRef<Path>) -> Result<DatabaseThread, OpenError> {
    DatabaseThread::start(Opening::in_directory(path.as_ref())?)
}

/// Opens the database in the directory `path` with several engines, each on a thread of its own, creating it if there is none: as many as
/// its file `entresol.toml` says under `[nodes]`, or else one. [`NodeThreads`] says what they can do.
///
/// # Errors
/// As [`NodeThreads::start`].
///
/// ```
/// # let directory = tempfile::tempdir().unwrap();
/// # let directory = directory.path();
/// // Names from "n" on are the second engine's.
/// let settings = "[nodes]\ncount = 2\nsplit_keys = { names = \"n\" }\nbuffer = \"1 MiB\"\n[log]\nsize = \"4 MiB\"";
/// std::fs::write(directory.join("entresol.toml"), settings).unwrap();
/// let threads = entresol::start_nodes(directory)?;
/// let handle = threads.handle();
/// let names = handle.ensure_partition(entresol::PartitionSpec::b_tree("names")).wait()?;
/// assert_eq!([&b"ann"[..], b"zoe"].map(|name| handle.node_at(names, name)), [Some(0), Some(1)]);
/// let both = [&b"ann"[..], b"zoe"].map(|name| {
///     handle.transaction_about(names, name, async move |tx| tx.put(names, name, b"is here").await)
/// });
/// for one in both {
///     one.wait()?;
/// }
/// threads.close()?;
///
/// // One engine finds what several have done; it is asked for where the configuration says otherwise.
/// let opening = || entresol::Opening::in_directory(directory);
/// assert!(matches!(opening()?.open(), Err(entresol::OpenError::SeveralNodes { count: 2 })));
/// let store = opening()?.nodes(1).open()?;
/// let zoe = store.run(async |database| database.transaction(async |tx| tx.get(names, b"zoe").await).await)?;
/// assert_eq!(zoe.as_deref(), Some(&b"is here"[..]));
/// store.close()?;
/// # Ok::<(), entresol::OpenError>(())
/// ```
pub fn start_nodes(path: impl AsRef<Path>) -> Result<NodeThreads, OpenError> {
    NodeThreads::start(Opening::in_directory(path.as_ref())?)
}
