//! The store: pages, buffer, log, locks, organizations, checkpoints, recovery, transactions.
//!
//! The engine never names a driver. All that it does outside its own memory goes through the executor to whatever driver
//! that runs on.

mod backup;
pub mod buffer;
pub mod canary;
pub mod catalog;
pub mod check;
pub mod checkpoint;
mod checksum;
pub mod database;
mod difference;
pub mod error;
mod hash_index;
pub mod hierarchy;
mod home;
mod lines;
pub mod lock;
pub mod log;
pub mod organization;
pub mod page;
mod procedure;
mod recovery;
mod salvage;
pub mod server;
pub mod set;
pub mod statistics;
pub mod temp;
pub mod transaction;
mod undo;
pub mod version;

pub use database::{Database, PartitionSpec, Settings};
pub use error::{Error, Need, Result};
pub use home::{FORMAT, HOME_FILE};
pub use procedure::{Foresight, Procedures, Registered};
pub use transaction::{Cursor, Direction, Isolation, Savepoint, Transaction};
pub use version::Snapshot;
