//! The engines that run TPC-C.

mod entresol;
mod fjall;
mod lmdb;
mod redb;
#[cfg(feature = "rocksdb")]
mod rocksdb;
mod sqlite;
#[cfg(test)]
mod tests;

use super::peer::{Opening, Peer};
use crate::engines::{self, OURS};
use crate::peer::{Grouping, PeerResult};
use std::path::Path;

/// An engine, or a way of using one.
pub struct Contender {
    /// Its name on the command line and in reports, which is also that of one of [`engines::CONTENDERS`].
    pub name: &'static str,
    /// The groupings that make sense when commits are durable.
    pub groupings: &'static [Grouping],
    /// Creates a database in an empty directory.
    pub create: fn(&Path, Opening) -> PeerResult<Box<dyn Peer>>,
}

impl Contender {
    /// The engine's version.
    ///
    /// # Panics
    /// If it is no contender of Debit-Credit.
    pub fn version(&self) -> &'static str {
        let found = engines::CONTENDERS.iter().find(|contender| contender.name == self.name);
        found.expect("every engine runs Debit-Credit too").version
    }
}

/// One transaction of the engine at a time: the peers' own concurrency is not asked for.
const APPLICATION: &[Grouping] = &[Grouping::Queue, Grouping::Rounds];

/// All contenders in the order of reports.
pub const CONTENDERS: &[Contender] = &[
    Contender { name: OURS, groupings: &[Grouping::Own], create: entresol::Tasks::create },
    #[cfg(feature = "rocksdb")]
    Contender { name: "rocksdb-transactions", groupings: APPLICATION, create: rocksdb::Rocksdb::create },
    Contender { name: "lmdb", groupings: APPLICATION, create: lmdb::Lmdb::create },
    Contender { name: "lmdb-mapped", groupings: APPLICATION, create: lmdb::Lmdb::create_mapped },
    Contender { name: "redb", groupings: APPLICATION, create: redb::Redb::create },
    Contender { name: "fjall", groupings: APPLICATION, create: fjall::Fjall::create },
    Contender { name: "sqlite", groupings: APPLICATION, create: sqlite::Sqlite::create },
];
