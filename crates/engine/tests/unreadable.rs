//! Sectors that cannot be read until they are written again: where another copy exists, or the contents are not needed, work
//! goes on.

use crate::ground::machine::run;
use base::PartitionId;
use devices::Hardware;
use driver::OpKind;
use entresol_engine::catalog::{Locking, Organization};
use entresol_engine::log::{self, Acknowledged, Second};
use entresol_engine::second_level::{self, CacheSettings};
use entresol_engine::tier_file::WriteBufferSettings;
use entresol_engine::{Database, Error, Internals, PartitionSpec, Result, Settings, buffer, checkpoint};
use executor::{Executor, Order};
use virtual_driver::{ErrorAt, FaultPlan, Media, Options, VirtualDriver};

const PAGE: u64 = 8192;
const LOG_PAGE: u64 = 4096;
const LOG: u64 = 1 << 20;
const RECORDS: u64 = 40;

fn settings() -> Settings {
    Settings {
        buffer: buffer::Settings { frames: 200, cleaner: false, ..buffer::Settings::default() },
        log: log::Settings { capacity: LOG, page_size: LOG_PAGE as usize, ..log::Settings::default() },
        checkpoint: checkpoint::Policy::OFF,
        ..Settings::default()
    }
}

async fn put(database: &Database, notes: PartitionId, value: u8) {
    for number in 0..RECORDS {
        let put = database.transaction(async |tx| tx.put(notes, &number.to_be_bytes(), &[value; 100]).await);
        put.await.expect("commits");
    }
}

async fn assert_all(database: &Database, value: u8) {
    let notes = database.partition("notes").expect("it exists");
    for number in 0..RECORDS {
        let found = database.transaction(async |tx| tx.get(notes, &number.to_be_bytes()).await).await.expect("reads");
        assert_eq!(found, Some(vec![value; 100]), "record {number}");
    }
    let report = database.check(|_| ()).await.expect("it can be read");
    assert!(report.findings.is_empty(), "{:?}", report.findings);
}

/// A database of which every record was written twice, and its pages after either time; no checkpoint was taken after the
/// first, if `checkpointed` says that one was then. Returns where the log ends.
fn crashed(media: &Media, settings: Settings, checkpointed: bool) -> u64 {
    run(media, async |executor| {
        let database = Database::create(executor, settings).await.expect("creates");
        let notes = database.create_partition(PartitionSpec::b_tree("notes")).await.expect("creates");
        put(&database, notes, 1).await;
        if checkpointed {
            database.checkpoint().await.expect("takes one");
        }
        put(&database, notes, 2).await;
        database.buffer().write_back_before(database.log().end(), true).await.expect("writes");
        database.log().end().0
    })
}

fn assert_opens(media: &Media, settings: &Settings, what: &str) {
    for _ in 0..2 {
        run(media, async |executor| {
            let opened = Database::open(executor, settings.clone(), "here").await;
            let database = opened.unwrap_or_else(|error| panic!("{what}: {error}"));
            assert_all(&database, 2).await;
            database.close().await.unwrap_or_else(|error| panic!("{what}: {error}"));
        });
    }
}

fn make_unreadable(media: &Media, file: &str, from: u64, to: u64) {
    media.make_unreadable("disk", file, from, to - from).expect("there is such a file");
}

#[test]
fn the_double_write_area_is_not_needed_by_pages_that_are_whole() {
    let media = Media::new();
    crashed(&media, settings(), true);
    let length = media.length("disk", "double-write").expect("it exists");
    make_unreadable(&media, "double-write", 0, length);
    assert_opens(&media, &settings(), "double-write");
}

#[test]
fn a_page_that_cannot_be_read_comes_from_the_double_write_area_and_is_healed() {
    let media = Media::new();
    crashed(&media, settings(), true);
    // Page 1 is the root. Of the area, some other region has failed, too.
    make_unreadable(&media, "notes.pages", PAGE + 512, PAGE + 1024);
    make_unreadable(&media, "double-write", 40 * PAGE, 41 * PAGE);
    assert_opens(&media, &settings(), "the root");
}

#[test]
fn copies_of_which_two_reads_fail_in_a_row_are_not_taken_for_lost() {
    // The area is read page by page.
    let settings = || {
        let settings = settings();
        Settings { buffer: buffer::Settings { batch: 1, ..settings.buffer }, ..settings }
    };
    for first in 1..=40 {
        let media = Media::new();
        crashed(&media, settings(), true);
        media.flip_bit("disk", "notes.pages", PAGE + 600, 3).expect("there is such a file");
        let errors = [first, first + 1].map(|nth| ErrorAt { kind: OpKind::Read, device: None, nth }).into();
        let faults = Some(FaultPlan { errors, ..FaultPlan::default() });
        let driver = VirtualDriver::new(Hardware::ideal(), Options { faults, ..Options::default() }, media.clone());
        let executor = Executor::new(Box::new(driver), Order::FirstInFirstOut);
        let halt = executor.run(async {
            // It may refuse to open, and says why: then the next one has what this one had.
            let database = match Database::open(&executor, settings(), "here").await {
                Err(Error::Input(_)) => return,
                opened => opened.unwrap_or_else(|error| panic!("without reads {first} and the next: {error}")),
            };
            let others = database.create_partition(PartitionSpec::b_tree("others")).await.expect("creates");
            put(&database, others, 3).await;
            database.buffer().write_back_before(database.log().end(), true).await.expect("writes");
        });
        executor.stop();
        halt.expect("the machine goes on");
        assert_opens(&media, &settings(), &format!("after reads {first} and the next"));
    }
}

#[test]
fn a_page_of_which_the_log_has_everything_is_made_again() {
    let media = Media::new();
    crashed(&media, settings(), false);
    let length = media.length("disk", "double-write").expect("it exists");
    make_unreadable(&media, "double-write", 0, length);
    make_unreadable(&media, "notes.pages", 0, 2 * PAGE);
    assert_opens(&media, &settings(), "every page");
}

#[test]
fn the_log_beyond_its_end_is_not_needed() {
    let media = Media::new();
    let end = crashed(&media, settings(), true);
    let tail = end.next_multiple_of(LOG_PAGE);
    make_unreadable(&media, "log", tail + LOG_PAGE, tail + 3 * LOG_PAGE);
    make_unreadable(&media, "log", LOG / 2, LOG);
    assert_opens(&media, &settings(), "the rest of the log");
}

#[test]
fn where_a_commit_may_have_been_nothing_is_passed_over() {
    let cases =
        [(0, "nothing tells whether"), (-1, "nothing tells whether"), (-20, "says that the log was durable up to")];
    for (page, why) in cases {
        let media = Media::new();
        let end = crashed(&media, settings(), true);
        let at = end.next_multiple_of(LOG_PAGE).strict_add_signed(page * LOG_PAGE as i64);
        make_unreadable(&media, "log", at, at + 512);
        let opened = run(&media, async |executor| Database::open(executor, settings(), "here").await.map(|_| ()));
        match opened {
            Err(Error::DamagedLog { lsn, detail, .. }) => {
                assert_eq!(lsn.0, at, "page {page}");
                assert!(detail.contains(why), "{detail}");
            }
            other => panic!("page {page}: {other:?}"),
        }
    }
}

#[test]
fn two_copies_of_the_log_stand_in_for_each_other() {
    let description = "[device.disk]\nmedium.service = \"20 us\"\n[device.b]\nmedium.service = \"20 us\"\n";
    let hardware = Hardware::parse(description, "test").expect("a description");
    let on = |media: &Media, work: &dyn AsyncWork| {
        let driver = VirtualDriver::new(hardware.clone(), Options::default(), media.clone());
        let executor = Executor::new(Box::new(driver), Order::FirstInFirstOut);
        let result = executor.run(work.run(&executor)).expect("the machine goes on");
        executor.stop();
        result
    };
    for acknowledged in [Acknowledged::Both, Acknowledged::First] {
        let second = Some(Second { device: "b".into(), acknowledged });
        let settings = Settings { log: log::Settings { second, ..settings().log }, ..settings() };
        let media = Media::new();
        on(&media, &Create(settings.clone())).expect("creates");
        // Of one copy the odd pages, of the other the even ones, as far as both have the log.
        for page in 1..40 {
            let (device, file) = if page % 2 == 0 { ("disk", "log") } else { ("b", "log-2") };
            media.make_unreadable(device, file, page * LOG_PAGE, LOG_PAGE).expect("it exists");
        }
        for _ in 0..2 {
            on(&media, &Open(settings.clone())).unwrap_or_else(|error| panic!("{acknowledged:?}: {error}"));
        }
    }
}

/// Work on a machine of two disks.
trait AsyncWork {
    fn run<'a>(&'a self, executor: &'a Executor) -> std::pin::Pin<Box<dyn Future<Output = Result<()>> + 'a>>;
}

struct Create(Settings);
impl AsyncWork for Create {
    fn run<'a>(&'a self, executor: &'a Executor) -> std::pin::Pin<Box<dyn Future<Output = Result<()>> + 'a>> {
        Box::pin(async move {
            let database = Database::create(executor, self.0.clone()).await?;
            let notes = database.create_partition(PartitionSpec::b_tree("notes")).await?;
            put(&database, notes, 1).await;
            put(&database, notes, 2).await;
            Ok(())
        })
    }
}

struct Open(Settings);
impl AsyncWork for Open {
    fn run<'a>(&'a self, executor: &'a Executor) -> std::pin::Pin<Box<dyn Future<Output = Result<()>> + 'a>> {
        Box::pin(async move {
            let database = Database::open(executor, self.0.clone(), "here").await?;
            assert_all(&database, 2).await;
            Ok(())
        })
    }
}

fn tiers() -> second_level::Settings {
    let device = || "disk".to_owned();
    let cache = CacheSettings { volatile: Some(false), ..CacheSettings::new(device(), 64) };
    let write_buffer = WriteBufferSettings { device: device(), pages: 8, log_bytes: 64 << 10, volatile: None };
    second_level::Settings { cache: Some(cache), write_buffer: Some(write_buffer), ..second_level::Settings::default() }
}

#[test]
fn the_header_of_a_tier_has_a_copy() {
    let settings = Settings { hierarchy: tiers(), ..settings() };
    for file in ["cache.tier", "write-buffer.tier", "log-buffer.tier"] {
        let media = Media::new();
        crashed(&media, settings.clone(), true);
        make_unreadable(&media, file, 0, 512);
        assert_opens(&media, &settings, file);
        let length = media.length("disk", file).expect("it exists");
        make_unreadable(&media, file, length - 4096, length);
        assert_opens(&media, &settings, file);
        let media = Media::new();
        crashed(&media, settings.clone(), true);
        make_unreadable(&media, file, 0, 4096);
        make_unreadable(&media, file, length - 4096, length);
        if file == "cache.tier" {
            // The log has what only the cache had.
            assert_opens(&media, &settings, file);
            continue;
        }
        let opened = run(&media, async |executor| Database::open(executor, settings.clone(), "here").await.map(|_| ()));
        let Err(error @ Error::TierMissing { .. }) = opened else { panic!("{file}: {opened:?}") };
        let text = error.to_string();
        let is_helpful = text.contains(file) && text.contains("cannot be read") && text.contains("restore");
        assert!(is_helpful, "{text}");
    }
}

#[test]
fn a_flipped_bit_of_a_tiers_header_is_healed_by_its_copy() {
    let settings = Settings { hierarchy: tiers(), ..settings() };
    for file in ["cache.tier", "write-buffer.tier", "log-buffer.tier"] {
        let media = Media::new();
        crashed(&media, settings.clone(), true);
        let length = media.length("disk", file).expect("it exists");
        for at in [9, 30, length - 4096 + 17, 2] {
            media.flip_bit("disk", file, at, 3).expect("it exists");
            assert_opens(&media, &settings, file);
        }
    }
}

#[test]
fn pages_of_the_log_and_of_its_write_buffer_stand_in_for_each_other_where_that_is_certain() {
    let settings = Settings { hierarchy: tiers(), ..settings() };
    let media = Media::new();
    let end = crashed(&media, settings.clone(), true).next_multiple_of(LOG_PAGE);
    make_unreadable(&media, "log", end - 4 * LOG_PAGE, end);
    assert_opens(&media, &settings, "the log's end");
    let media = Media::new();
    crashed(&media, settings.clone(), true);
    make_unreadable(&media, "log-buffer.tier", 4096 + LOG_PAGE, 4096 + 2 * LOG_PAGE);
    // It may have held a commit that is nowhere else.
    let opened = run(&media, async |executor| Database::open(executor, settings.clone(), "here").await.map(|_| ()));
    let Err(error @ Error::TierMissing { .. }) = opened else { panic!("{opened:?}") };
    assert!(error.to_string().contains("byte 8192 of its file 'log-buffer.tier'"), "{error}");
}

#[test]
fn slots_of_a_cache_are_copies() {
    let cache = CacheSettings { volatile: Some(false), ..CacheSettings::new("disk", 64) };
    let hierarchy = second_level::Settings { cache: Some(cache), ..second_level::Settings::default() };
    let frames = buffer::Settings { frames: 10, cleaner: false, ..buffer::Settings::default() };
    let settings = Settings { hierarchy, buffer: frames, ..settings() };
    let media = Media::new();
    run(&media, async |executor| {
        let database = Database::create(executor, settings.clone()).await.expect("creates");
        let organization = Organization::Direct { objects: 60, blocking_factor: 1, record_size: 100 };
        let spec = PartitionSpec::new("objects", organization, Locking::Page);
        let objects = database.create_partition(spec).await.expect("creates");
        let notes = database.create_partition(PartitionSpec::b_tree("notes")).await.expect("creates");
        put(&database, notes, 2).await;
        for number in 0..60 {
            let modified = database
                .transaction(async |tx| tx.modify_object(objects, number, |bytes| bytes[0] = number as u8).await);
            modified.await.expect("commits");
        }
    });
    let length = media.length("disk", "cache.tier").expect("it exists");
    for slot in (0..60).step_by(3) {
        let at = length - LOG_PAGE - (64 - slot) * PAGE;
        make_unreadable(&media, "cache.tier", at, at + 512);
    }
    assert_opens(&media, &settings, "slots");
    run(&media, async |executor| {
        let database = Database::open(executor, settings.clone(), "here").await.expect("opens");
        let objects = database.partition("objects").expect("it exists");
        for number in 0..60_u64 {
            let read = database.transaction(async |tx| tx.modify_object(objects, number, |bytes| bytes[0]).await).await;
            assert_eq!(read, Ok(number as u8));
        }
    });
}

#[test]
fn the_copy_of_a_set_that_the_restart_needs_is_named_and_the_other_is_not_needed() {
    for (copies, is_needed) in [(1, false), (2, true)] {
        let media = Media::new();
        run(&media, async |executor| {
            let database = Database::create(executor, settings()).await.expect("creates");
            let organization = Organization::Set { arrivals: false, segment_size: 16 << 10, reserve_percent: 10 };
            let spec = PartitionSpec::new("notes", organization, Locking::Record);
            let notes = database.create_partition(spec).await.expect("creates");
            put(&database, notes, 2).await;
            database.checkpoint().await.expect("one copy");
            put(&database, notes, 2).await;
            database.checkpoint().await.expect("the other copy");
        });
        // The second checkpoint wrote the copy that the superblock file does not name before it: number 0.
        for copy in (0..2).rev().take(copies) {
            let file = format!("notes.backup-{copy}");
            make_unreadable(&media, &file, 0, 512);
        }
        if !is_needed {
            assert_opens(&media, &settings(), "the older copy");
            continue;
        }
        let opened = run(&media, async |executor| Database::open(executor, settings(), "here").await.map(|_| ()));
        assert!(matches!(&opened, Err(Error::DamagedBackup { segment: 0, .. })), "{opened:?}");
    }
}
