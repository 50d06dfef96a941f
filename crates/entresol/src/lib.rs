//! Entresol: a transactional storage engine for every floor of the storage hierarchy.
//!
//! A [`Store`] is a database on the calling thread, like an embedded library. A [`Server`] is a database on a thread of its
//! own, which any number of other threads reach through a [`Handle`].
//!
//! ```
//! # let directory = tempfile::tempdir().unwrap();
//! # let directory = directory.path();
//! # std::fs::write(directory.join("entresol.toml"), "[log]\nsize = \"4 MiB\"").unwrap();
//! let store = entresol::open(directory)?;
//! store.run(async |database| {
//!     let accounts = database.create_partition(entresol::PartitionSpec::b_tree("accounts")).await?;
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

mod assemble;
pub mod configuration;
mod error;
mod log_words;
mod message_server;
mod page_words;
mod reply;
mod server;
mod store;
mod warnings;

#[cfg(test)]
mod placements;

/// A position of the log, which names a moment; a time of the engine's clock.
pub use base::{Instant, Lsn};
/// The transaction server and its message servers; [`Store::transaction_server`] starts one.
pub use engine::server as servers;
pub use engine::{
    Catalog, Cursor, Database, Direction, Error, Isolation, PartitionSpec, PrefetchDistance, Prefetcher, Procedures,
    Registered, Result, Savepoint, Scan, Snapshot, Transaction, catalog, organization, second_level, set, statistics,
    temp, tier_file, version,
};
pub use error::OpenError;
pub use server::{Handle, Pending, Server};
pub use store::{Opening, Store};

use std::path::Path;

/// Opens the database in the directory `path` on this thread, creating it if there is none. Settings come from the file
/// `entresol.toml` in that directory, if there is one, or are the defaults.
///
/// # Errors
/// An [`OpenError`] that names the file and says what to do; the directory stays as it was.
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
