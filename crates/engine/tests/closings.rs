//! Closings that are not waited for to their end, and what has ended when one has.

use crate::ground::flash_cache::{self, PAGE_SIZE, cache};
use crate::ground::holding::{holding, holding_in};
use crate::ground::machine::run;
use base::Instant;
use base::time::{MICROSECOND_NS, SECOND_NS};
use driver::Op;
use entresol_engine::catalog::{Locking, Organization};
use entresol_engine::page::header;
use entresol_engine::second_level::{self, CacheSettings, Parameters};
use entresol_engine::{Database, Direction, Error, Internals, PartitionSpec, Settings, Transaction, buffer, log};
use executor::Order;
use std::ops::Bound;
use virtual_driver::{Hardware, Media};

fn settings() -> Settings {
    let hierarchy = second_level::Settings { cache: Some(CacheSettings::new("flash", 100)), ..Default::default() };
    Settings { hierarchy, ..Settings::default() }
}

/// Whatever it was doing, another one does the rest.
#[test]
fn a_closing_that_was_given_up_is_ended_by_the_next_one() {
    let mut given_up = 0;
    for step in 1..200 {
        let media = Media::new();
        let is_given_up = run(&media, async |executor| {
            let database = Database::create(executor, settings()).await.expect("creates");
            let notes = database.create_partition(PartitionSpec::b_tree("notes")).await.expect("creates");
            database.transaction(async |tx| tx.put(notes, b"milk", b"two litres").await).await.expect("commits");
            let first = executor.within(step * MICROSECOND_NS, database.clone().close()).await;
            database.close().await.expect("closes");
            first.is_none()
        });
        given_up += u32::from(is_given_up);
        run(&media, async |executor| {
            let database = Database::open(executor, settings(), "notes").await.expect("opens");
            let notes = database.partition("notes").expect("is there");
            let milk = database.transaction(async |tx| tx.get(notes, b"milk").await).await.expect("reads");
            assert!(milk.is_some());
            database.close().await.expect("closes");
        });
        if !is_given_up {
            break;
        }
    }
    assert!(given_up > 5, "{given_up}");
}

const PAGES: u64 = 400;

/// A cache a quarter of which may be dirty, also behind a checkpoint, on a device that is faster than that of the pages.
fn hardly_dirty() -> Settings {
    let parameters = Parameters { dirty_max_percent: 25, group_pages: 1, ..Parameters::default() };
    let cache = CacheSettings { parameters, silence_ns_max: 0, ..cache("frequency", 480) };
    let log = log::Settings { capacity: 64 << 20, ..log::Settings::default() };
    Settings { log_device: "flash".into(), log, ..flash_cache::settings(Some(cache)) }
}

async fn change(database: &Database, value: u8) {
    let objects = database.partition("objects").expect("is there");
    for number in 0..PAGES {
        let change = async |tx: &mut Transaction| tx.modify_object(objects, number, |bytes| bytes[0] = value).await;
        database.transaction(change).await.expect("works");
    }
}

#[test]
fn a_transaction_that_was_dropped_has_been_taken_back_when_its_database_is_closed() {
    run(&Media::new(), async |executor| {
        let settings = Settings { hierarchy: second_level::Settings::default(), ..hardly_dirty() };
        let database = Database::create(executor, settings.clone()).await.expect("creates");
        let objects = Organization::Direct { objects: PAGES, blocking_factor: 1, record_size: 4000 };
        let objects = PartitionSpec::new("objects", objects, Locking::Page);
        let objects = database.create_partition(objects).await.expect("creates");
        let mut tx = database.begin().await.expect("begins");
        for number in 0..PAGES {
            tx.modify_object(objects, number, |bytes| bytes[0] = 1).await.expect("works");
        }
        drop(tx);
        database.close().await.expect("closes");
        let database = Database::open(executor, settings, "here").await.expect("opens");
        let recovery = database.recovery();
        assert_eq!((recovery.records, recovery.unfinished), (0, 0), "it has nothing to do");
    });
}

/// Whether a page is written to its own place.
fn is_of_page_in_place(op: &Op) -> bool {
    let Op::Write { offset, length, buffer, .. } = op else { return false };
    let Some(page) = buffer.get(..PAGE_SIZE).filter(|_| *length as usize >= PAGE_SIZE) else { return false };
    let id = header::id(page);
    header::verify(page, id) == Ok(true) && *offset == u64::from(id.number) * PAGE_SIZE as u64
}

/// What came late would be over what was written there when the database was open again.
#[test]
fn nothing_leaves_a_cache_for_its_own_place_when_its_database_is_closed() {
    let text =
        "[device.disk]\nmedium = { servers = 1, service = \"2 ms\" }\n[device.flash]\nmedium.service = \"10 us\"\n";
    let hardware = Hardware::parse(text, "test").expect("a description");
    holding(hardware, &Media::new(), async |executor, holder| {
        let database = Database::create(executor, hardly_dirty()).await?;
        let objects = Organization::Direct { objects: PAGES, blocking_factor: 1, record_size: 4000 };
        database.create_partition(PartitionSpec::new("objects", objects, Locking::Page)).await?;
        change(&database, 1).await;
        database.close().await?;
        holder.hold(Instant::NEVER, is_of_page_in_place);
        executor.sleep_ns(SECOND_NS).await;
        assert!(!holder.has_held(), "the cleaner goes on");
        Ok::<_, Error>(())
    })
    .expect("works");
}

/// What a scan has asked for ahead goes on beside everything else, also when the scan is no more: page by page, as frames are emptied for it.
#[test]
fn nothing_is_read_ahead_any_more_when_a_database_is_closed() {
    let mut reads = 0;
    for seed in 0..60 {
        let text = "[device.disk]\nmedium = { servers = 64, service = \"500 us\" }\n[device.flash]\nmedium.service = \"1 ms\"\n\
                    [device.nvem]\nmedium.service = \"10 us\"\n";
        let hardware = Hardware::parse(text, "test").expect("a description");
        reads += holding_in(Order::Seeded(seed), hardware, &Media::new(), async |executor, holder| {
            let cache = CacheSettings::new("flash", 2_000);
            let hierarchy = second_level::Settings { cache: Some(cache), ..second_level::Settings::default() };
            let buffer = buffer::Settings { frames: 256, page_size: 1024, ..buffer::Settings::default() };
            let settings = Settings { hierarchy, buffer, log_device: "nvem".into(), ..Settings::default() };
            let database = Database::create(executor, settings).await?;
            let notes = database.create_partition(PartitionSpec::b_tree("notes")).await?;
            let records = (0..8_000_u32).map(|number| (number.to_be_bytes(), [7; 100]));
            database.load_b_tree(notes, records, |_| {}).await?;
            let mut tx = database.begin().await?;
            let mut cursor = tx.cursor(notes, Bound::Unbounded, Bound::Unbounded, Direction::Forward);
            // About to ask for more, at one time or another.
            for _ in 0..4_000 + 13 * seed {
                tx.next(&mut cursor).await?;
            }
            drop((cursor, tx));
            let reads = database.buffer().space(notes).reads.get();
            database.close().await?;
            holder.hold(Instant::NEVER, |op| matches!(op, Op::Read { .. } | Op::Write { .. }));
            executor.sleep_ns(SECOND_NS).await;
            assert!(!holder.has_held(), "seed {seed}: it goes on");
            Ok::<_, Error>(reads)
        })
        .expect("works");
    }
    assert!(reads > 60 * 400, "{reads}");
}

/// What it writes late would be where the next opening writes.
#[test]
fn a_transaction_that_outlives_a_closing_takes_nothing_from_the_next_opening() {
    [false, true].into_iter().for_each(outlive);
}

/// The transaction has changed something before its database is closed, or changes it behind that.
fn outlive(has_changed: bool) {
    let media = Media::new();
    let committed = run(&media, async |executor| {
        let database = Database::create(executor, Settings::default()).await.expect("creates");
        let notes = database.create_partition(PartitionSpec::b_tree("notes")).await.expect("creates");
        let mut late = database.begin().await.expect("begins");
        if has_changed {
            late.put(notes, b"late", b"one").await.expect("works");
        }
        database.close().await.expect("closes");
        let database = Database::open(executor, Settings::default(), "here").await.expect("opens");
        database.transaction(async |tx| tx.put(notes, b"milk", b"two litres").await).await.expect("commits");
        if !has_changed {
            late.put(notes, b"late", b"one").await.expect("works");
        }
        late.commit().await
    });
    run(&media, async |executor| {
        let database = Database::open(executor, Settings::default(), "here").await.expect("opens");
        let notes = database.partition("notes").expect("is there");
        let (milk, late) = database
            .transaction(async |tx| Ok::<_, Error>((tx.get(notes, b"milk").await?, tx.get(notes, b"late").await?)))
            .await
            .expect("reads");
        assert!(milk.is_some(), "it was acknowledged, {has_changed}");
        assert!(late.is_none(), "it was not");
    });
    assert!(committed.is_err(), "its database was closed");
}

/// What a clone that outlives a closing writes would go into files which are another opening's.
#[test]
fn a_checkpoint_behind_a_closing_takes_nothing_from_the_next_opening() {
    let media = Media::new();
    run(&media, async |executor| {
        let database = Database::create(executor, Settings::default()).await.expect("creates");
        let closed = database.clone();
        database.close().await.expect("closes");
        let database = Database::open(executor, Settings::default(), "here").await.expect("opens");
        database.create_partition(PartitionSpec::b_tree("notes")).await.expect("creates");
        assert_eq!(closed.checkpoint().await, Err(Error::Closed));
        assert_eq!(closed.check(|_| {}).await.err(), Some(Error::Closed));
    });
    run(&media, async |executor| {
        let database = Database::open(executor, Settings::default(), "here").await.expect("opens");
        assert!(database.partition("notes").is_ok(), "its creation was acknowledged");
    });
}

#[test]
fn a_file_does_not_grow_for_a_transaction_that_outlives_a_closing() {
    let media = Media::new();
    run(&media, async |executor| {
        let database = Database::create(executor, Settings::default()).await.expect("creates");
        let notes = database.create_partition(PartitionSpec::b_tree("notes")).await.expect("creates");
        let mut late = database.begin().await.expect("begins");
        database.close().await.expect("closes");
        let database = Database::open(executor, Settings::default(), "here").await.expect("opens");
        for key in 0..1_000_u32 {
            let put = async |tx: &mut Transaction| tx.put(notes, &key.to_be_bytes(), &[1; 3000]).await;
            database.transaction(put).await.expect("commits");
        }
        database.checkpoint().await.expect("works");
        // It has 1 MiB of room, which is more than the file had when its database was closed.
        let mut number = 0_u32;
        let refused = loop {
            number += 1;
            if let Err(error) = late.put(notes, &(1_000_000 + number).to_be_bytes(), &[2; 3000]).await {
                break error;
            }
        };
        assert_eq!(refused, Error::Closed);
    });
    run(&media, async |executor| {
        let database = Database::open(executor, Settings::default(), "here").await.expect("opens");
        let notes = database.partition("notes").expect("is there");
        for key in 0..1_000_u32 {
            let found = database.transaction(async |tx| tx.get(notes, &key.to_be_bytes()).await).await;
            assert!(found.expect("reads").is_some(), "{key}");
        }
    });
}

/// A load writes past the buffer, and the pages that it writes to are the next opening's.
#[test]
fn a_load_ends_with_the_database() {
    let media = Media::new();
    holding(Hardware::ideal(), &media, async |executor, holder| {
        let database = Database::create(executor, Settings::default()).await.expect("creates");
        let notes = database.create_partition(PartitionSpec::b_tree("notes")).await.expect("creates");
        // Longer than a closing waits for its checkpoint.
        let is_of_load = |op: &Op| matches!(op, Op::Write { length, .. } if *length > 100 << 10);
        holder.hold(Instant::from_ns(2 * SECOND_NS), is_of_load);
        let load = {
            let (database, mut number) = (database.clone(), 0_u64);
            let records = std::iter::from_fn(move || {
                number += 1;
                (number <= 20_000).then(|| (number.to_be_bytes(), [3; 1000]))
            });
            executor.spawn(async move { database.load_b_tree(notes, records, |_| {}).await.map(drop) })
        };
        executor.sleep_ns(SECOND_NS).await;
        assert!(holder.has_held() && !load.is_finished());
        database.close().await.expect("closes");
        let database = Database::open(executor, Settings::default(), "here").await.expect("opens");
        let notes = database.partition("notes").expect("is there");
        for key in 0..2_000_u32 {
            let put = async |tx: &mut Transaction| tx.put(notes, &key.to_be_bytes(), &[1; 3000]).await;
            database.transaction(put).await.expect("commits");
        }
        assert_eq!(load.join().await, Err(Error::Closed));
        database.close().await.expect("closes");
        let database = Database::open(executor, Settings::default(), "here").await.expect("opens");
        let report = database.check(|_| {}).await.expect("reads");
        assert!(report.is_clean(), "{:?}", report.findings);
    });
}
