//! What a bulk load of a b-tree that failed or was given up leaves beyond the pages that are in use is never taken for, nor
//! put in the place of, what is written there later.

use base::time::{MILLISECOND_NS, SECOND_NS};
use base::{PageId, PartitionId, Random};
use devices::Hardware;
use driver::OpKind;
use entresol_engine::second_level::design::Pattern;
use entresol_engine::second_level::{self, CacheSettings};
use entresol_engine::{Database, Error, Internals, PartitionSpec, Settings, Transaction, buffer, checkpoint};
use executor::{Executor, Order};
use std::future::poll_fn;
use std::pin::pin;
use virtual_driver::{ErrorAt, FaultPlan, Media, Options, PowerCut, VirtualDriver};

const KEYS: u64 = 60;

fn settings() -> Settings {
    Settings {
        buffer: buffer::Settings { frames: 200, page_size: 1024, ..buffer::Settings::default() },
        checkpoint: checkpoint::Policy::OFF,
        ..Settings::default()
    }
}

/// Runs `work` on a machine whose device `data` does two things at once and takes a second for a load's write.
fn run<T>(media: &Media, faults: FaultPlan, work: impl AsyncFnOnce(&Executor) -> T) -> T {
    let text = "[device.disk]\nmedium.service = \"20 us\"\n\
                [device.data]\nmedium.service = \"20 us\"\nmedium.servers = 2\nmedium.bandwidth = \"1 MB/s\"\n";
    let hardware = Hardware::parse(text, "test").expect("a description");
    let options = Options { faults: Some(faults), ..Options::default() };
    let executor =
        Executor::new(Box::new(VirtualDriver::new(hardware, options, media.clone())), Order::FirstInFirstOut);
    let result = executor.run(work(&executor));
    executor.stop();
    result.expect("the machine goes on")
}

/// The same, and then takes its power away.
fn on<T>(media: &Media, faults: FaultPlan, work: impl AsyncFnOnce(&Executor) -> T) -> T {
    let result = run(media, faults, work);
    media.power_cut(&mut Random::stream(1, "cut"), &PowerCut { lost: 1.0, torn: 0.0 });
    result
}

fn error(kind: OpKind, nth: u64) -> FaultPlan {
    FaultPlan { errors: vec![ErrorAt { kind, device: Some("data".into()), nth }], ..FaultPlan::default() }
}

/// A database with a tree whose load has failed after its first write. Its device's first writes are the creation's.
async fn failed(executor: &Executor) -> (Database, PartitionId) {
    let database = Database::create(executor, settings()).await.expect("creates");
    let spec = PartitionSpec { device: "data".into(), ..PartitionSpec::b_tree("notes") };
    let notes = database.create_partition(spec).await.expect("creates");
    database.load_b_tree(notes, records(1), |_| {}).await.expect_err("its second write fails");
    (database, notes)
}

const FAILED: u64 = 2;

async fn open(executor: &Executor) -> (Database, PartitionId) {
    opened(executor, &settings()).await
}

async fn opened(executor: &Executor, settings: &Settings) -> (Database, PartitionId) {
    let database = Database::open(executor, settings.clone(), "test").await.expect("opens");
    let notes = database.partition("notes").expect("it exists");
    (database, notes)
}

/// More than one write takes.
fn records(value: u8) -> impl Iterator<Item = ([u8; 8], [u8; 100])> {
    (0..12_000_u64).map(move |number| (number.to_be_bytes(), [value; 100]))
}

/// Puts records until one fails. Returns how many did not.
async fn put(database: &Database, notes: PartitionId) -> u64 {
    for number in 0..KEYS {
        let put = database.transaction(async |tx| tx.put(notes, &number.to_be_bytes(), &[2; 100]).await);
        if put.await.is_err() {
            return number;
        }
    }
    KEYS
}

async fn assert_all(executor: &Executor, acknowledged: u64, what: &str) {
    let opened = Database::open(executor, settings(), "test").await;
    let database = opened.unwrap_or_else(|error| panic!("{what}: {error}"));
    let notes = database.partition("notes").expect("it exists");
    for number in 0..acknowledged {
        let found = database.transaction(async |tx| tx.get(notes, &number.to_be_bytes()).await).await;
        let found = found.unwrap_or_else(|error| panic!("{what}: record {number}: {error}"));
        assert_eq!(found.as_deref(), Some(&[2; 100][..]), "{what}: record {number}");
    }
    let report = database.check(|_| ()).await.expect("it can be read");
    assert!(report.findings.is_empty(), "{what}: {:?}", report.findings);
}

/// A database whose tree's load has failed; what it has written is durable.
fn prepared() -> Media {
    let media = Media::new();
    on(&media, error(OpKind::Write, FAILED), async |executor| {
        let (database, _) = failed(executor).await;
        database.close().await.expect("closes");
    });
    on(&media, FaultPlan::default(), async |executor| {
        let (database, _) = open(executor).await;
        database.close().await.expect("closes");
    });
    media
}

#[test]
fn a_loaded_page_that_cannot_be_read_once_is_not_taken_for_what_was_logged_there_later() {
    let mut ended = 0;
    for nth in 1..10 {
        let media = prepared();
        let acknowledged = on(&media, error(OpKind::Read, nth), async |executor| {
            let Ok(database) = Database::open(executor, settings(), "test").await else { return 0 };
            let notes = database.partition("notes").expect("it exists");
            put(&database, notes).await
        });
        ended += u32::from(acknowledged < KEYS);
        let what = format!("read {nth} failed");
        on(&media, FaultPlan::default(), async |executor| assert_all(executor, acknowledged, &what).await);
    }
    assert!(ended < 5, "{ended} ended for the sake of one read");
}

#[test]
fn pages_of_a_load_that_failed_are_used_again_although_the_power_takes_them_then() {
    let media = Media::new();
    let acknowledged = on(&media, error(OpKind::Write, FAILED), async |executor| {
        let (database, notes) = failed(executor).await;
        put(&database, notes).await
    });
    assert_eq!(acknowledged, KEYS);
    on(&media, FaultPlan::default(), async |executor| assert_all(executor, acknowledged, "lost").await);
}

/// Begins a load and gives it up while its write is under way.
async fn give_up_load(executor: &Executor, database: &Database, notes: PartitionId) {
    let mut load = pin!(database.load_b_tree(notes, records(1), |_| {}));
    let mut given_up = pin!(executor.sleep_ns(MILLISECOND_NS));
    poll_fn(|context| {
        assert!(load.as_mut().poll(context).is_pending(), "it waits for its write");
        given_up.as_mut().poll(context)
    })
    .await;
}

#[test]
fn a_load_that_is_given_up_writes_nothing_over_what_others_write_later() {
    let media = prepared();
    let acknowledged = run(&media, FaultPlan::default(), async |executor| {
        let (database, notes) = open(executor).await;
        database.warm(notes, |_| {}).await.expect("reads");
        give_up_load(executor, &database, notes).await;
        let acknowledged = put(&database, notes).await;
        database.checkpoint().await.expect("takes one");
        // The load's write ends.
        executor.sleep_ns(10 * SECOND_NS).await;
        database.close().await.expect("closes");
        acknowledged
    });
    assert_eq!(acknowledged, KEYS);
    on(&media, FaultPlan::default(), async |executor| assert_all(executor, acknowledged, "given up").await);
}

#[test]
fn a_load_is_seen_beside_pages_that_were_read_before_it() {
    let media = prepared();
    on(&media, FaultPlan::default(), async |executor| {
        let (database, notes) = open(executor).await;
        database.warm(notes, |_| {}).await.expect("reads");
        database.load_b_tree(notes, records(3), |_| {}).await.expect("loads");
        for number in (0..12_000_u64).step_by(100) {
            let found = database.transaction(async |tx| tx.get(notes, &number.to_be_bytes()).await).await;
            assert_eq!(found, Ok(Some(vec![3; 100])), "record {number}");
        }
    });
}

#[test]
fn a_cache_that_outlives_the_machine_has_nothing_of_what_was_loaded_before() {
    let media = prepared();
    let cache = CacheSettings { volatile: Some(false), ..CacheSettings::new("disk", 256) };
    let hierarchy = second_level::Settings { cache: Some(cache), ..second_level::Settings::default() };
    let frames = buffer::Settings { frames: 20, ..settings().buffer };
    let settings = Settings { hierarchy, buffer: frames, ..settings() };
    run(&media, FaultPlan::default(), async |executor| {
        let database = Database::open(executor, settings.clone(), "test").await.expect("opens");
        let notes = database.partition("notes").expect("it exists");
        for number in 0..3 {
            // As many pages at a time as there are frames: each time those before go to the cache.
            let pages = (0..20).map(|page| PageId::new(notes, 2 + 20 * number + page));
            database.buffer().prefetch(pages, Pattern::Random).await.expect("reads");
        }
        database.load_b_tree(notes, records(3), |_| {}).await.expect("loads");
    });
    run(&media, FaultPlan::default(), async |executor| {
        let database = Database::open(executor, settings, "test").await.expect("opens");
        let notes = database.partition("notes").expect("it exists");
        for number in 0..600_u64 {
            let found = database.transaction(async |tx| tx.get(notes, &number.to_be_bytes()).await).await;
            assert_eq!(found, Ok(Some(vec![3; 100])), "record {number}");
        }
    });
}

#[test]
fn a_cache_that_outlives_the_machine_has_nothing_of_a_load_that_was_killed_at_the_same_end_of_the_log() {
    let media = Media::new();
    let cache = CacheSettings { volatile: Some(false), ..CacheSettings::new("disk", 256) };
    let hierarchy = second_level::Settings { cache: Some(cache), ..second_level::Settings::default() };
    let frames = buffer::Settings { frames: 20, ..settings().buffer };
    let settings = Settings { hierarchy, buffer: frames, ..settings() };
    run(&media, FaultPlan::default(), async |executor| {
        let database = Database::create(executor, settings.clone()).await.expect("creates");
        let spec = PartitionSpec { device: "data".into(), ..PartitionSpec::b_tree("notes") };
        database.create_partition(spec).await.expect("creates");
        database.close().await.expect("closes");
    });
    run(&media, FaultPlan::default(), async |executor| {
        let (database, notes) = opened(executor, &settings).await;
        let loading = database.clone();
        executor.spawn(async move { loading.load_b_tree(notes, records(1), |_| {}).await });
        executor.sleep_ns(3 * SECOND_NS / 2).await;
        // Its second write is under way. Most of these pages, which the first has written, go to the cache.
        for number in 0..3 {
            let pages = (0..20).map(|page| PageId::new(notes, 2 + 20 * number + page));
            database.buffer().prefetch(pages, Pattern::Random).await.expect("reads");
        }
    });
    run(&media, FaultPlan::default(), async |executor| {
        let (database, notes) = opened(executor, &settings).await;
        database.load_b_tree(notes, records(3), |_| {}).await.expect("loads");
    });
    run(&media, FaultPlan::default(), async |executor| {
        let (database, notes) = opened(executor, &settings).await;
        for number in 0..600_u64 {
            let found = database.transaction(async |tx| tx.get(notes, &number.to_be_bytes()).await).await;
            assert_eq!(found, Ok(Some(vec![3; 100])), "record {number}");
        }
    });
}

/// All frames have pages that a device has to write first, slowly.
#[test]
fn a_page_for_which_a_frame_is_looked_for_when_a_load_begins_is_read_after_it() {
    let text = "[device.disk]\nmedium.service = \"20 us\"\n\
                [device.data]\nmedium.service = \"20 us\"\nmedium.servers = 2\nmedium.bandwidth = \"1 MB/s\"\n\
                [device.slow]\nmedium.service = \"50 ms\"\n";
    let hardware = Hardware::parse(text, "test").expect("a description");
    let options = Options { faults: Some(error(OpKind::Write, FAILED)), ..Options::default() };
    let executor = Executor::new(Box::new(VirtualDriver::new(hardware, options, Media::new())), Order::FirstInFirstOut);
    let buffer = buffer::Settings { frames: 40, cleaner: false, ..settings().buffer };
    let done = executor.run(async {
        let database = Database::create(&executor, Settings { buffer, ..settings() }).await.expect("creates");
        let spec = |name, device: &str| PartitionSpec { device: device.into(), ..PartitionSpec::b_tree(name) };
        let notes = database.create_partition(spec("notes", "data")).await.expect("creates");
        let filler = database.create_partition(spec("filler", "slow")).await.expect("creates");
        database.load_b_tree(notes, records(1), |_| {}).await.expect_err("its second write fails");
        for number in 0..200_u64 {
            let put = database.transaction(async |tx| tx.put(filler, &number.to_be_bytes(), &[1; 400]).await);
            put.await.expect("puts");
        }
        // What the load itself looks at is here.
        database
            .buffer()
            .prefetch([0, 1].map(|number| PageId::new(notes, number)), Pattern::Random)
            .await
            .expect("reads");
        let reading = {
            let database = database.clone();
            executor.spawn(async move { database.buffer().prefetch([PageId::new(notes, 2)], Pattern::Random).await })
        };
        executor.sleep_ns(5 * MILLISECOND_NS).await;
        assert!(!reading.is_finished(), "a page of the other tree has to be written first");
        database.load_b_tree(notes, records(3), |_| {}).await.expect("loads");
        reading.join().await.expect("reads");
        for number in 0..12_000_u64 {
            let found = database.transaction(async |tx| tx.get(notes, &number.to_be_bytes()).await).await;
            assert_eq!(found, Ok(Some(vec![3; 100])), "record {number}");
        }
    });
    executor.stop();
    done.expect("the machine goes on");
}

#[test]
fn a_tree_whose_load_was_given_up_is_dropped_or_loaded_while_the_write_of_that_goes_on() {
    for drops in [false, true] {
        let media = prepared();
        run(&media, FaultPlan::default(), async |executor| {
            let (database, notes) = open(executor).await;
            give_up_load(executor, &database, notes).await;
            let mut notes = notes;
            if drops {
                database.drop_partition(notes).await.expect("drops");
                let spec = PartitionSpec { device: "data".into(), ..PartitionSpec::b_tree("notes") };
                notes = database.create_partition(spec).await.expect("creates");
            }
            database.load_b_tree(notes, records(3), |_| {}).await.expect("loads");
            database.close().await.expect("closes");
        });
        on(&media, FaultPlan::default(), async |executor| {
            let (database, notes) = open(executor).await;
            for number in (0..12_000_u64).step_by(50) {
                let found = database.transaction(async |tx| tx.get(notes, &number.to_be_bytes()).await).await;
                assert_eq!(found, Ok(Some(vec![3; 100])), "{drops}, record {number}");
            }
        });
    }
}

/// A cache has what a load has left that failed; a second one has succeeded since, and perhaps some of its records were changed.
fn loaded_twice(settings: &Settings, is_changed: bool) -> Media {
    let media = Media::new();
    run(&media, error(OpKind::Write, FAILED), async |executor| {
        let database = Database::create(executor, settings.clone()).await.expect("creates");
        let spec = PartitionSpec { device: "data".into(), ..PartitionSpec::b_tree("notes") };
        let notes = database.create_partition(spec).await.expect("creates");
        database.load_b_tree(notes, records(1), |_| {}).await.expect_err("its second write fails");
        for number in 0..3 {
            let pages = (0..20).map(|page| PageId::new(notes, 2 + 20 * number + page));
            database.buffer().prefetch(pages, Pattern::Random).await.expect("reads");
        }
        database.load_b_tree(notes, records(3), |_| {}).await.expect("loads");
        for key in (0..if is_changed { 400_u64 } else { 0 }).step_by(50) {
            let put = async |tx: &mut Transaction| tx.put(notes, &key.to_be_bytes(), &[3; 100]).await;
            database.transaction(put).await.expect("changes");
        }
    });
    media
}

#[test]
fn a_damaged_page_of_a_load_is_named_and_not_taken_from_what_a_cache_has_of_one_that_failed() {
    let with_cache = |table: bool| {
        let cache = CacheSettings { volatile: Some(false), table: Some(table), ..CacheSettings::new("disk", 256) };
        let hierarchy = second_level::Settings { cache: Some(cache), ..second_level::Settings::default() };
        let frames = buffer::Settings { frames: 20, cleaner: false, ..settings().buffer };
        Settings { hierarchy, buffer: frames, ..settings() }
    };
    let openings = [[false, false], [true, false], [true, true]];
    for (tables, is_changed) in openings.into_iter().flat_map(|tables| [(tables, false), (tables, true)]) {
        let [before, after] = tables.map(with_cache);
        let made = loaded_twice(&before, is_changed);
        let mut named = 0;
        for page in (2..62).step_by(3) {
            let media = made.copy();
            media.flip_bit("data", "notes.pages", page * 1024 + 500, 3).expect("it is there");
            named += run(&media, FaultPlan::default(), async |executor| {
                let database = match Database::open(executor, after.clone(), "test").await {
                    Ok(database) => database,
                    Err(error) => {
                        assert!(matches!(error, Error::DamagedPage { .. }), "{error}");
                        return 1;
                    }
                };
                let notes = database.partition("notes").expect("it exists");
                let mut named = 0;
                for key in 0..600_u64 {
                    let get = async |tx: &mut Transaction| tx.get(notes, &key.to_be_bytes()).await;
                    match database.transaction(get).await {
                        Ok(found) => assert_eq!(found, Some(vec![3; 100]), "record {key}, page {page}, {tables:?}"),
                        Err(error) => {
                            assert!(matches!(error, Error::DamagedPage { .. }), "{error}");
                            named = 1;
                        }
                    }
                }
                named
            });
        }
        assert!(named > 12, "{tables:?}, changed: {is_changed}: {named} damaged pages are named");
    }
}
