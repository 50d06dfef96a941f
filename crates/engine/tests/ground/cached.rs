// A small database with a cache on `nvem`: objects, each on a page of its own. What is written is written because a test asks
// for it: no cleaner runs, and no checkpoint.

use base::PageId;
use driver::{FileId, Op};
use entresol_engine::catalog::{Locking, Organization};
use entresol_engine::second_level::design::{CachePolicy, Contents, Decision, Leaving};
use entresol_engine::second_level::{self, CacheSettings, Design};
use entresol_engine::{Database, Error, Internals, PartitionSpec, Settings, buffer, checkpoint, log};
use executor::Executor;
use std::collections::BTreeSet;
use structures::page::header;

/// A cache of `pages` pages that outlives a power cut.
pub fn cache(design: Design, pages: u32) -> CacheSettings {
    CacheSettings { design, volatile: Some(false), ..CacheSettings::new("nvem", pages) }
}

/// Twenty frames of 1 KiB, and this cache or none.
pub fn settings(cache: impl Into<Option<CacheSettings>>) -> Settings {
    Settings {
        buffer: buffer::Settings { frames: 20, page_size: 1024, cleaner: false, ..buffer::Settings::default() },
        log: log::Settings { capacity: 4 << 20, ..log::Settings::default() },
        hierarchy: second_level::Settings { cache: cache.into(), ..second_level::Settings::default() },
        checkpoint: checkpoint::Policy::OFF,
        ..Settings::default()
    }
}

/// A changed page stays when it enters for the first time, and goes past the cache later.
#[derive(Default)]
struct Once(BTreeSet<PageId>);

impl CachePolicy for Once {
    fn is_inclusive(&self) -> bool {
        true
    }

    fn on_eviction(&mut self, leaving: &Leaving, _: &Contents<'_>) -> Decision {
        let is_first = leaving.dirty && self.0.insert(leaving.page);
        if is_first { Decision::WriteBack } else { Decision::Skip }
    }
}

/// The design of that.
pub const ONCE: Design = Design::new("once", |_| Box::new(Once::default()));

/// A new database whose partition `objects` has this many of them.
pub async fn create(executor: &Executor, settings: Settings, objects: u64) -> Database {
    let database = Database::create(executor, settings).await.expect("creates");
    let organization = Organization::Direct { objects, blocking_factor: 1, record_size: 100 };
    database.create_partition(PartitionSpec::new("objects", organization, Locking::Page)).await.expect("creates");
    database
}

/// Whether this writes a page to its own place, by itself, or to a slot of a cache that begins as far from that file's beginning.
pub fn goes_home(op: &Op, page: PageId) -> bool {
    let at = u64::from(page.number) * 1024;
    matches!(op, Op::Write { offset, buffer, durable: false, .. } if *offset == at && header::id(buffer) == page)
}

/// Whether this writes a page in the file of its partition, be it with others.
pub fn is_written(op: &Op, home: FileId, page: PageId) -> bool {
    let at = u64::from(page.number) * 1024;
    let is_there = |begin: u64, length: u32| (begin..begin + u64::from(length)).contains(&at);
    matches!(op, Op::Write { file, offset, length, .. } if *file == home && is_there(*offset, *length))
}

/// Gives these objects this value, each in a transaction of its own.
pub async fn change(database: &Database, numbers: impl IntoIterator<Item = u64>, value: u8) {
    try_change(database, numbers, value).await.expect("changes");
}

/// The same up to the first error.
pub async fn try_change(database: &Database, numbers: impl IntoIterator<Item = u64>, value: u8) -> Result<(), Error> {
    let partition = database.partition("objects").expect("it exists");
    for number in numbers {
        let mut tx = database.begin().await?;
        tx.modify_object(partition, number, |bytes| bytes[0] = value).await?;
        tx.commit().await?;
    }
    Ok(())
}

/// The values of these objects, each read in a transaction of its own. The cache's table of slots is consistent after that.
pub async fn read(database: &Database, numbers: impl IntoIterator<Item = u64>) -> Vec<u8> {
    let partition = database.partition("objects").expect("it exists");
    let mut values = Vec::new();
    for number in numbers {
        let mut tx = database.begin().await.expect("begins");
        values.push(tx.read_object(partition, number, |bytes| bytes[0]).await.expect("reads"));
        tx.commit().await.expect("commits");
    }
    database.buffer().tiers().into_iter().for_each(|tiers| tiers.check().expect("consistent"));
    values
}
