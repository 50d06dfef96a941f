//! The engines that stand beside each other.

mod entresol;
pub mod fjall;
pub mod lmdb;
mod redb;
mod redis;
#[cfg(feature = "rocksdb")]
pub mod rocksdb;
pub mod sqlite;
#[cfg(test)]
mod tests;

use crate::peer::{Durability, Grouping, Peer, PeerResult};
use std::path::Path;

/// What every engine may cache; the whole database is smaller.
pub const CACHE_BYTES: usize = 4 << 30;

/// The name of our own engine among the contenders; tables show the others in relation to it.
pub const OURS: &str = "entresol";

/// An engine, or a way of using one.
pub struct Contender {
    /// Its name on the command line and in reports.
    pub name: &'static str,
    /// The engine's version.
    pub version: &'static str,
    /// What is compared, in a few words.
    pub about: &'static str,
    /// The groupings that make sense when commits are durable.
    pub groupings: &'static [Grouping],
    /// Creates a database in an empty directory.
    pub create: fn(&Path, Durability) -> PeerResult<Box<dyn Peer>>,
}

/// Engines with one writer at a time and one sync a commit profit from the application's grouping only.
const APPLICATION: &[Grouping] = &[Grouping::Queue, Grouping::Rounds];
#[cfg(feature = "rocksdb")]
const ALL: &[Grouping] = &[Grouping::Own, Grouping::Queue, Grouping::Rounds];

/// All contenders in the order of reports.
pub const CONTENDERS: &[Contender] = &[
    Contender {
        name: OURS,
        version: "0.1.0",
        about: "B-trees, one engine thread; clients are tasks on it",
        groupings: &[Grouping::Own],
        create: entresol::Tasks::create,
    },
    Contender {
        name: "entresol-threads",
        version: "0.1.0",
        about: "the same; clients are threads that call a procedure",
        groupings: &[Grouping::Own],
        create: entresol::Threads::create,
    },
    Contender {
        name: "entresol-sets",
        version: "0.1.0",
        about: "the first with memory-resident sets",
        groupings: &[Grouping::Own],
        create: entresol::Tasks::create_sets,
    },
    #[cfg(feature = "rocksdb")]
    Contender {
        name: "rocksdb-batches",
        version: "11.8.1 (rocksdb 0.25.0)",
        about: "write batches, row locks kept by the application",
        groupings: ALL,
        create: rocksdb::RocksdbBatches::create,
    },
    #[cfg(feature = "rocksdb")]
    Contender {
        name: "rocksdb-transactions",
        version: "11.8.1 (rocksdb 0.25.0)",
        about: "TransactionDB, pessimistic transactions",
        groupings: ALL,
        create: rocksdb::RocksdbTransactions::create,
    },
    Contender {
        name: "lmdb",
        version: "0.9.70 (heed 0.23.1)",
        about: "copy-on-write B-tree, one writer",
        groupings: APPLICATION,
        create: lmdb::Lmdb::create,
    },
    Contender {
        name: "lmdb-mapped",
        version: "0.9.70 (heed 0.23.1)",
        about: "the same, pages written through the memory map",
        groupings: APPLICATION,
        create: lmdb::Lmdb::create_mapped,
    },
    Contender {
        name: "redb",
        version: "4.5.0",
        about: "copy-on-write B-tree, one writer",
        groupings: APPLICATION,
        create: redb::Redb::create,
    },
    Contender {
        name: "fjall",
        version: "3.1.13",
        about: "log-structured merge tree, write batches",
        groupings: APPLICATION,
        create: fjall::Fjall::create,
    },
    Contender {
        name: "sqlite",
        version: "3.54.1 (rusqlite 0.41.1)",
        about: "SQL, write-ahead log, one writer",
        groupings: APPLICATION,
        create: sqlite::Sqlite::create,
    },
    Contender {
        name: "redis",
        version: "7 (redis 1.8.1)",
        about: "a server in memory, append-only file; a Lua function, pipelined clients",
        groupings: &[Grouping::Rounds, Grouping::Lanes],
        create: redis::Redis::create,
    },
];
