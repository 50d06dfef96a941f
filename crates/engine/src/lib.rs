//! The store: pages, buffer, log, locks, organizations, checkpoints, recovery, transactions.
//!
//! The engine never names a driver. All that it does outside its own memory goes through the executor to whatever driver
//! that runs on.

mod backup;
pub mod buffer;
pub mod catalog;
pub mod check;
pub mod checkpoint;
pub mod database;
mod engine;
pub mod error;
mod io;
mod locks;
pub mod log;
mod mvcc;
mod online_backup;
pub mod page_store;
mod procedure;
mod recovery;
pub mod second_level;
pub mod server;
pub mod statistics;
mod superblock;
pub mod temp;
pub mod tier_file;
pub mod transaction;
pub mod version;

pub use database::{
    Asked, CommitFailure, Compaction, Database, Figures, HeldMoment, IndexProgress, Internals, KeptVersions, LockWait,
    Machine, PartitionFigures, PartitionSize, PartitionSpec, RESIDENCE_FILE, RecordedPartition, RecordedReference,
    RecordedReferences, Served, SetChange, Settings, Shipment, SilenceLimit, TierFigures, UNNUMBERED,
};
pub use engine::{Catalog, Isolation, UndoProgress};
pub use error::{AskedMoment, BackupError, Error, Need, Result};
pub use locks::Locks;
pub use mvcc::{FoundInSet, SetPortion};
pub use online_backup::{
    BackupProgress, BackupReport, BackupSettings, MANIFEST_FILE, RestoreArchive, RestoreReport, RestoreSource,
    RestoreTarget,
};
pub use procedure::{Prefetcher, Procedures, Registered};
pub use structures::{PrefetchDistance, canary, checksum, lock, organization, page, replacement, set, undo};
pub use superblock::{FORMAT, SUPERBLOCK_FILE};
pub use transaction::{Cursor, Direction, KeyRange, Savepoint, Scan, Snapshot, Transaction, arrival_position, prefix};
