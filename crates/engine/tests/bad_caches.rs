//! A cache that is not what it should be: of another database, of an earlier time, too small, larger than its device, on a device
//! that holds partitions, without a byte to write. At an opening and by `Database::set_cache`.

use crate::ground::cached::{self, change, create, read, settings};
use crate::ground::machine::run;
use driver::{Access, FaultKind, Op};
use entresol_engine::second_level::{CacheSettings, DESIGNS, Design, WriteBudget};
use entresol_engine::tier_file::table::TABLE_FILE;
use entresol_engine::{Database, Error, Internals, Result, Settings};
use executor::{Executor, Order};
use virtual_driver::{Hardware, Media, Options, VirtualDriver};

const PAGES: u64 = 60;
const SLOTS: u32 = 64;
const CACHE_FILE: &str = "cache.tier";

fn cache(design: Design, table: bool) -> CacheSettings {
    CacheSettings { device: "flash".to_owned(), table: Some(table), ..cached::cache(design, SLOTS) }
}

fn lazy(table: bool) -> CacheSettings {
    cache(Design::named("lazy-cleaning").expect("it has this name"), table)
}

async fn open(executor: &Executor, settings: Settings) -> Result<Database> {
    Database::open(executor, settings, "here").await
}

/// A database whose objects have this value, most of them in the cache.
fn filled(media: &Media, cache: &CacheSettings, value: u8) {
    // On a machine of its own, at the same moment as all others.
    let options = Options { seed: u64::from(value), ..Options::default() };
    let driver = VirtualDriver::new(Hardware::ideal(), options, media.clone());
    let executor = Executor::new(Box::new(driver), Order::FirstInFirstOut);
    let filled = executor.run(async {
        let database = create(&executor, settings(cache.clone()), PAGES).await;
        for value in [value - 1, value] {
            change(&database, 0..PAGES, value).await;
            database.checkpoint().await.expect("succeeds");
        }
        assert_all(&database, value).await;
    });
    executor.stop();
    filled.expect("the machine goes on");
}

async fn assert_all(database: &Database, value: u8) {
    assert_eq!(read(database, 0..PAGES).await, [value; PAGES as usize]);
}

/// That a database opens with this cache, or none, and has this value, twice.
fn assert_opens(media: &Media, cache: impl Into<Option<CacheSettings>>, value: u8) {
    let cache = cache.into();
    for _ in 0..2 {
        run(media, async |executor| {
            let database = open(executor, settings(cache.clone())).await.expect("opens");
            assert_all(&database, value).await;
            assert_all(&database, value).await;
        });
    }
}

/// What is in a file of the cache's device.
fn bytes(media: &Media, file: &str) -> Vec<u8> {
    let mut bytes = vec![0; media.length("flash", file).expect("it is there") as usize];
    media.read("flash", file, 0, &mut bytes).expect("it can be read");
    bytes
}

/// Gives the cache's device a file with these bytes, in place of any of that name.
fn put(media: &Media, file: &str, bytes: &[u8]) {
    run(media, async |executor| {
        remove(executor, file).await;
        let device = executor.device("flash").expect("it exists");
        let (file, _) = executor.open(device, file, true).await.expect("opens");
        if bytes.is_empty() {
            return;
        }
        let mut buffer = executor.frame(bytes.len()).expect("memory");
        buffer.copy_from_slice(bytes);
        let (length, access) = (bytes.len() as u32, Access::Asynchronous);
        let op = Op::Write { file, offset: 0, length, buffer, durable: true, access };
        executor.perform(op).await.result.expect("writes");
    });
}

async fn remove(executor: &Executor, file: &str) {
    let device = executor.device("flash").expect("it exists");
    executor.perform(Op::Remove { device, name: file.to_owned() }).await.result.expect("removes");
}

/// That an opening names the cache's file and what to do, and alters nothing.
fn assert_refused(media: &Media, cache: &CacheSettings) {
    let before = bytes(media, CACHE_FILE);
    run(media, async |executor| {
        let error = open(executor, settings(cache.clone())).await.map(|_| ()).expect_err("it is another cache");
        assert!(matches!(&error, Error::ForeignTier { device, .. } if device == "flash"), "{error}");
        for word in
            ["'cache.tier'", "'flash'", "put the right file there", "remove it and open again", "no commit is lost"]
        {
            assert!(error.to_string().contains(word), "{error}");
        }
        assert!(!error.to_string().contains("backup"), "{error}");
    });
    assert!(bytes(media, CACHE_FILE) == before, "the file of the other stays as it is");
}

#[test]
fn the_cache_of_another_database_is_named_and_without_it_nothing_is_lost() {
    for table in [true, false] {
        let (ours, other) = (Media::new(), Media::new());
        filled(&ours, &lazy(table), 4);
        filled(&other, &lazy(table), 9);
        let (present, foreign) = (bytes(&ours, CACHE_FILE), bytes(&other, CACHE_FILE));
        assert!(foreign != present);
        put(&ours, CACHE_FILE, &foreign);
        for &design in DESIGNS {
            assert_refused(&ours, &cache(design, table));
        }
        // The right one is put in its place,
        let mended = ours.copy();
        put(&mended, CACHE_FILE, &present);
        assert_opens(&mended, lazy(table), 4);
        // or the other one is taken away.
        run(&ours, async |executor| remove(executor, CACHE_FILE).await);
        assert_opens(&ours, lazy(table), 4);
    }
}

#[test]
fn the_table_of_another_database_is_not_believed() {
    let (ours, other) = (Media::new(), Media::new());
    filled(&ours, &lazy(true), 4);
    filled(&other, &lazy(true), 9);
    put(&ours, TABLE_FILE, &bytes(&other, TABLE_FILE));
    assert_opens(&ours, lazy(true), 4);
}

#[test]
fn a_cache_of_an_older_generation_is_named_and_without_it_nothing_is_lost() {
    let media = Media::new();
    filled(&media, &lazy(true), 4);
    let older = bytes(&media, CACHE_FILE);
    // Two changes later a cache of the same size is another one.
    run(&media, async |executor| {
        let database = open(executor, settings(lazy(true))).await.expect("opens");
        database.set_cache(Some(CacheSettings { pages: 7, ..lazy(true) })).await.expect("changes");
        database.set_cache(Some(lazy(true))).await.expect("changes");
        change(&database, 0..PAGES, 5).await;
    });
    assert_opens(&media.copy(), lazy(true), 5);
    put(&media, CACHE_FILE, &older);
    assert_refused(&media, &lazy(true));
    run(&media, async |executor| remove(executor, CACHE_FILE).await);
    assert_opens(&media, lazy(true), 5);
}

/// The device was replaced by a copy of itself of an earlier time.
#[test]
fn what_a_cache_has_held_earlier_is_not_served() {
    for &design in DESIGNS {
        for table in [true, false] {
            let media = Media::new();
            filled(&media, &cache(design, table), 2);
            let files: &[&str] = if table { &[CACHE_FILE, TABLE_FILE] } else { &[CACHE_FILE] };
            let older: Vec<Vec<u8>> = files.iter().map(|file| bytes(&media, file)).collect();
            for is_checkpointed in [true, false] {
                let media = media.copy();
                run(&media, async |executor| {
                    let database = open(executor, settings(cache(design, table))).await.expect("opens");
                    change(&database, 0..PAGES, 3).await;
                    if is_checkpointed {
                        database.checkpoint().await.expect("succeeds");
                        change(&database, 0..PAGES, 4).await;
                        database.checkpoint().await.expect("succeeds");
                    }
                });
                files.iter().zip(&older).for_each(|(file, bytes)| put(&media, file, bytes));
                assert_opens(&media, cache(design, table), if is_checkpointed { 4 } else { 3 });
            }
        }
    }
}

#[test]
fn a_cache_whose_file_is_too_small_begins_empty() {
    for table in [true, false] {
        let media = Media::new();
        filled(&media, &lazy(table), 4);
        let whole = bytes(&media, CACHE_FILE);
        for length in [0, 512, 4096, 20_480] {
            let media = media.copy();
            put(&media, CACHE_FILE, &whole[..length]);
            assert_opens(&media, lazy(table), 4);
            assert_eq!(bytes(&media, CACHE_FILE).len(), whole.len(), "it was created anew");
        }
    }
}

/// That no cache by these settings can be had, at a creation, at an opening and while the database runs.
fn assert_setting_refused(wrong: &CacheSettings, words: &[&str]) {
    let assert_told = |error: Error| {
        let text = error.to_string();
        assert!(matches!(error, Error::Setting(_)) && words.iter().all(|word| text.contains(word)), "{text}");
    };
    let refused = run(&Media::new(), async |executor| Database::create(executor, settings(wrong.clone())).await.err());
    assert_told(refused.expect("no page could enter"));
    let media = Media::new();
    filled(&media, &lazy(true), 4);
    let refused = run(&media, async |executor| open(executor, settings(wrong.clone())).await.err());
    assert_told(refused.expect("no page could enter"));
    run(&media, async |executor| {
        let database = open(executor, settings(lazy(true))).await.expect("nothing was altered");
        assert_told(database.set_cache(Some(wrong.clone())).await.expect_err("no page could enter"));
        assert_eq!(database.cache(), Some(lazy(true)), "it stays");
        assert_all(&database, 4).await;
    });
}

#[test]
fn a_cache_of_no_page_is_refused_by_device() {
    assert_setting_refused(
        &CacheSettings { pages: 0, ..lazy(true) },
        &["the cache on device 'flash' has 0 pages", "1 to"],
    );
}

#[test]
fn a_budget_of_zero_is_refused_with_what_to_do() {
    let spent = WriteBudget { bytes_per_day: 0, burst_bytes: 1 << 20 };
    let words = ["a write budget of zero keeps every page out", "name a budget, or leave out the cache"];
    assert_setting_refused(&CacheSettings { write_budget: Some(spent), ..lazy(true) }, &words);
    let narrow = WriteBudget { bytes_per_day: 1 << 40, burst_bytes: 1_000 };
    let words = ["burst of 1000 bytes is less than a page of 1024"];
    assert_setting_refused(&CacheSettings { write_budget: Some(narrow), ..lazy(true) }, &words);
}

#[test]
fn an_opening_that_finds_no_room_for_a_larger_cache_names_setting_and_file() {
    let mut hardware = Hardware::ideal();
    hardware.device_mut("flash").capacity = Some(256 << 10);
    let media = Media::new();
    filled(&media, &lazy(true), 4);
    let driver = VirtualDriver::new(hardware, Options::default(), media.clone());
    let executor = Executor::new(Box::new(driver), Order::FirstInFirstOut);
    let large = CacheSettings { pages: 1_000, ..lazy(true) };
    let opened = executor.run(async { open(&executor, settings(large)).await.map(|_| ()) });
    executor.stop();
    let error = opened.expect("the machine goes on").expect_err("it has no room");
    let text = error.to_string();
    assert!(matches!(&error, Error::Input(fault) if fault.kind == FaultKind::NoSpace), "{text}");
    assert!(["[cache]", "cache.tier", "a smaller size"].iter().all(|word| text.contains(word)), "{text}");
    assert_opens(&media, lazy(true), 4);
}

/// That gains little, which a configuration is told, and harms nothing.
#[test]
fn a_cache_on_the_device_of_its_partitions_works() {
    for &design in DESIGNS {
        let media = Media::new();
        let beside = CacheSettings { device: "disk".to_owned(), ..cache(design, true) };
        filled(&media, &beside, 4);
        assert_opens(&media, beside.clone(), 4);
        run(&media, async |executor| {
            let database = open(executor, settings(None)).await.expect("opens");
            database.set_cache(Some(beside.clone())).await.expect("goes on");
            change(&database, 0..PAGES, 5).await;
            assert_all(&database, 5).await;
        });
        assert_opens(&media, beside, 5);
    }
}

/// That a cache which is turned on where these files lie begins empty, and serves nothing of them.
fn assert_begins_empty(media: &Media, cache: &CacheSettings, files: &[(&str, Vec<u8>)], value: u8) {
    files.iter().for_each(|(file, bytes)| put(media, file, bytes));
    run(media, async |executor| {
        let database = open(executor, settings(None)).await.expect("opens");
        database.set_cache(Some(cache.clone())).await.expect("goes on");
        let used =
            database.buffer().tiers().and_then(|tiers| tiers.cache_contents(std::iter::empty())).map(|it| it.used);
        assert_eq!(used, Some(0));
        assert_all(&database, value).await;
    });
    assert_opens(media, cache.clone(), value);
}

/// A database without a cache whose objects have this value.
fn without_cache(value: u8) -> Media {
    let media = Media::new();
    run(&media, async |executor| {
        let database = create(executor, settings(None), PAGES).await;
        change(&database, 0..PAGES, value).await;
    });
    media
}

/// The cache's files on a medium.
fn files(media: &Media, table: bool) -> Vec<(&'static str, Vec<u8>)> {
    let names: &[&str] = if table { &[CACHE_FILE, TABLE_FILE] } else { &[CACHE_FILE] };
    names.iter().map(|name| (*name, bytes(media, name))).collect()
}

/// The other database may be in use: what its cache has alone is in its log, but it is refused until the file is taken away.
#[test]
fn a_cache_is_not_made_where_another_database_has_one() {
    for table in [true, false] {
        let (other, media) = (Media::new(), without_cache(4));
        filled(&other, &lazy(table), 9);
        files(&other, table).iter().for_each(|(file, bytes)| put(&media, file, bytes));
        let before = files(&media, table);
        let check = |error: Error| {
            let is_named = matches!(error, Error::ForeignTier { database: Some(_), is_wanted: false, .. });
            assert!(is_named && error.to_string().contains("'cache.tier'"), "{error}");
            assert!(error.to_string().contains("remove the file if no database needs it"), "{error}");
        };
        run(&media, async |executor| {
            check(open(executor, settings(lazy(table))).await.map(|_| ()).expect_err("it is another's"));
            let database = open(executor, settings(None)).await.expect("opens");
            check(database.set_cache(Some(lazy(table))).await.expect_err("it is another's"));
            assert!(database.cache().is_none());
            assert_all(&database, 4).await;
        });
        assert!(files(&media, table) == before, "the files of the other stay as they are");
        run(&media, async |executor| remove(executor, CACHE_FILE).await);
        assert_opens(&media, lazy(table), 4);
    }
}

#[test]
fn a_file_of_an_earlier_release_is_not_replaced_unless_the_superblock_knows_it() {
    let media = Media::new();
    filled(&media, &lazy(true), 4);
    let mut unmarked = bytes(&media, CACHE_FILE);
    let second = unmarked.len() - 4096;
    [0, second].into_iter().for_each(|header| unmarked[header + 32..header + 44].fill(0));
    put(&media, CACHE_FILE, &unmarked);
    // The one that it knows is read, and replaced by another one.
    assert_opens(&media.copy(), CacheSettings { pages: 7, ..lazy(true) }, 4);
    assert_opens(&media, None, 4);
    run(&media, async |executor| {
        let error = open(executor, settings(lazy(true))).await.map(|_| ()).expect_err("whose it is is not known");
        assert!(matches!(error, Error::ForeignTier { database: None, is_wanted: false, .. }), "{error}");
    });
}

#[test]
fn a_cache_that_is_turned_on_where_an_older_generation_of_it_lies_begins_empty() {
    for table in [true, false] {
        let media = Media::new();
        filled(&media, &lazy(table), 4);
        let older = files(&media, table);
        run(&media, async |executor| {
            let database = open(executor, settings(lazy(table))).await.expect("opens");
            change(&database, 0..PAGES, 5).await;
            database.set_cache(None).await.expect("turns off");
            change(&database, 0..PAGES, 6).await;
        });
        assert_begins_empty(&media, &lazy(table), &older, 6);
    }
}

#[test]
fn a_cache_that_is_turned_on_where_a_smaller_file_lies_begins_empty() {
    for table in [true, false] {
        let other = Media::new();
        filled(&other, &lazy(table), 9);
        let whole = bytes(&other, CACHE_FILE);
        for length in [0, 512, 4096, 20_480] {
            let smaller = [(CACHE_FILE, whole[..length].to_vec())];
            let media = without_cache(4);
            assert_begins_empty(&media, &lazy(table), &smaller, 4);
            assert_eq!(bytes(&media, CACHE_FILE).len(), whole.len(), "it was created anew");
        }
    }
}

/// The other devices were put back from earlier, with the database closed or as it ran, and the cache was not.
fn put_back(cache: &CacheSettings, is_closed: bool, is_checkpointed: bool) -> Media {
    let media = Media::new();
    filled(&media, cache, 2);
    if is_closed {
        run(&media, async |executor| {
            open(executor, settings(cache.clone())).await.expect("opens").close().await.expect("closes");
        });
    }
    let earlier = media.copy();
    run(&media, async |executor| {
        let database = open(executor, settings(cache.clone())).await.expect("opens");
        change(&database, 0..PAGES, 3).await;
        if is_checkpointed {
            database.checkpoint().await.expect("succeeds");
            assert_all(&database, 3).await;
        }
        // Otherwise what the table states is written in groups.
        executor.sleep_ns(1_000_000_000).await;
    });
    files(&media, cache.table == Some(true)).into_iter().for_each(|(file, bytes)| put(&earlier, file, &bytes));
    earlier
}

#[test]
fn what_a_cache_has_held_later_is_not_served() {
    for &design in DESIGNS {
        for (table, is_closed) in [(true, true), (true, false), (false, true), (false, false)] {
            for is_checkpointed in [true, false] {
                let what = format!("{design:?}, table: {table}, closed: {is_closed}, checkpointed: {is_checkpointed}");
                let media = put_back(&cache(design, table), is_closed, is_checkpointed);
                run(&media, async |executor| {
                    let database = match open(executor, settings(cache(design, table))).await {
                        Ok(database) => database,
                        Err(error) => {
                            let is_named = matches!(error, Error::TierMissing { .. });
                            // These have what only the cache has also when the database is closed.
                            let is_pending = !is_closed || ["face", "frequency"].contains(&design.name());
                            assert!(is_named && is_pending, "{what}: {error}");
                            return;
                        }
                    };
                    assert_eq!(read(&database, 0..PAGES).await, [2; PAGES as usize], "{what}");
                });
            }
        }
    }
}
