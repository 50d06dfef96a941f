//! The superblock cannot be written while the cache is turned off: an opening may find it with the cache or without.

use crate::ground::cached::{cache, change, create, read, settings};
use driver::OpKind;
use entresol_engine::second_level::{CacheSettings, Design};
use entresol_engine::tier_file::WriteBufferSettings;
use entresol_engine::{Database, Error, Internals, Settings, Transaction, checkpoint, log};
use executor::{Executor, Order};
use virtual_driver::{ErrorAt, FaultPlan, Hardware, Media, Options, VirtualDriver};

const PAGES: u64 = 60;
const LOG_BYTES: u64 = 256 << 10;

/// Runs `work` on a machine with these media, of which this write of the superblock file fails, then lets it vanish.
fn on<T>(media: &Media, failing: Option<u64>, work: impl AsyncFnOnce(&Executor) -> T) -> T {
    let error = |nth| ErrorAt { kind: OpKind::Write, device: Some("flash".into()), nth };
    let faults = FaultPlan { errors: failing.map(error).into_iter().collect(), ..FaultPlan::default() };
    let options = Options { faults: Some(faults), ..Options::default() };
    let driver = VirtualDriver::new(Hardware::ideal(), options, media.clone());
    let executor = Executor::new(Box::new(driver), Order::FirstInFirstOut);
    let result = executor.run(work(&executor));
    executor.stop();
    result.expect("the machine goes on")
}

/// A write buffer beside the cache, a short log, and a device for the superblock file alone.
fn beside_write_buffer(cache: Option<CacheSettings>) -> Settings {
    let mut settings = settings(cache);
    let buffer = WriteBufferSettings { device: "nvem".to_owned(), pages: 8, log_bytes: 0, volatile: None };
    settings.hierarchy.write_buffer = Some(buffer);
    settings.log = log::Settings { capacity: LOG_BYTES, ..settings.log };
    settings.checkpoint = checkpoint::Policy { log_bytes: Some(LOG_BYTES / 4), interval_ns: None };
    Settings { home_device: "flash".into(), ..settings }
}

fn write_buffer_writes(database: &Database) -> u64 {
    database.tiers().into_iter().find(|tier| tier.name == "write-buffer").expect("there is one").writes
}

/// Changes everything again and again, for more than the log has room for. The last value.
async fn change_past_the_log(database: &Database, first: u8) -> u8 {
    let begin = database.log().end();
    let mut value = first;
    while database.log().end().0 < begin.0 + 3 * LOG_BYTES / 2 {
        change(database, 0..PAGES, value).await;
        value += 1;
    }
    value - 1
}

/// Turns the cache off, and perhaps another one on later. The last value, if it was that which has failed.
async fn fail_to_turn_off(database: &Database, again: Option<CacheSettings>) -> Option<u8> {
    // A checkpoint may come by the failing write before.
    let partition = database.partition("objects").expect("it exists");
    for number in 0..PAGES {
        let change = async |tx: &mut Transaction| tx.modify_object(partition, number, |bytes| bytes[0] = 2).await;
        database.transaction(change).await.ok()?;
    }
    let Err(error) = database.set_cache(None).await else { return None };
    assert!(matches!(&error, Error::Input(fault) if fault.message.contains("(injected)")), "{error}");
    assert_eq!(database.cache(), None);
    assert_eq!(database.tiers().len(), 1, "the write buffer alone");
    let before = write_buffer_writes(database);
    let mut value = change_past_the_log(database, 3).await;
    assert!(write_buffer_writes(database) > before, "the write buffer goes on");
    assert_eq!(read(database, 0..PAGES).await, [value; PAGES as usize]);
    if let Some(again) = again {
        database.set_cache(Some(again.clone())).await.expect("the next change succeeds");
        assert_eq!(database.cache(), Some(again));
        value = change_past_the_log(database, value + 1).await;
    }
    Some(value)
}

#[test]
fn a_database_goes_on_when_it_cannot_be_stated_that_its_cache_is_off() {
    for (name, table) in [("lazy-cleaning", true), ("lazy-cleaning", false), ("face", true), ("dual-write", true)] {
        let design = Design::named(name).expect("it has this name");
        let cache = |pages| CacheSettings { table: Some(table), ..cache(design, pages) };
        let mut hits = 0;
        for again in [None, Some(cache(64)), Some(cache(20))] {
            let media = Media::new();
            on(&media, None, async |executor| {
                let database = create(executor, beside_write_buffer(Some(cache(64))), PAGES).await;
                change(&database, 0..PAGES, 1).await;
            });
            for nth in 1..20 {
                let media = media.copy();
                let value = on(&media, Some(nth), async |executor| {
                    // The opening writes the superblock file, too.
                    let opened = Database::open(executor, beside_write_buffer(Some(cache(64))), "here").await;
                    fail_to_turn_off(&opened.ok()?, again.clone()).await
                });
                let Some(value) = value else { continue };
                hits += 1;
                for reopened in [Some(cache(64)), Some(cache(20)), None] {
                    on(&media.copy(), None, async |executor| {
                        let settings = beside_write_buffer(reopened.clone());
                        let opened = Database::open(executor, settings, "here").await;
                        let database = opened.unwrap_or_else(|error| panic!("{name}, {again:?}, {nth}: {error}"));
                        assert_eq!(read(&database, 0..PAGES).await, [value; PAGES as usize], "{name}, {again:?}");
                    });
                }
            }
        }
        assert!(hits >= 3, "{name}: {hits} changes of the cache have failed");
    }
}
