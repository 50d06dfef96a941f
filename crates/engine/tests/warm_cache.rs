//! A cache is warm after a restart by its table: an opening looks at no slot, and what a slot holds is verified when it is read.

use crate::ground::cached;
use crate::ground::machine::run;
use cached::{create, read};
use driver::{Access, Op, OpKind};
use entresol_engine::second_level::{self, CacheSettings, DESIGNS, Design};
use entresol_engine::{Database, Error, Internals, Settings};
use executor::{Executor, Order};
use virtual_driver::{ErrorAt, FaultPlan, Hardware, Media, Options, VirtualDriver};

const PAGES: u64 = 120;
const PAGE_SIZE: usize = 1024;
const SLOTS: u32 = 150;

fn design(name: &str) -> Design {
    Design::named(name).expect("it has this name")
}

fn settings(design: Design, table: bool) -> Settings {
    cached::settings(CacheSettings { table: Some(table), ..cached::cache(design, SLOTS) })
}

/// Gives every object this value.
async fn change(database: &Database, value: u8) {
    cached::change(database, 0..PAGES, value).await;
}

async fn assert_all(database: &Database, value: u8) {
    assert_eq!(read(database, 0..PAGES).await, [value; PAGES as usize]);
}

/// Fills the cache: everything was changed, then read.
async fn filled(executor: &Executor, settings: Settings, value: u8) -> Database {
    let database = create(executor, settings, PAGES).await;
    change(&database, 1).await;
    database.checkpoint().await.expect("succeeds");
    change(&database, value).await;
    database.checkpoint().await.expect("succeeds");
    assert_all(&database, value).await;
    assert_all(&database, value).await;
    executor.sleep_ns(1_000_000_000).await;
    database
}

fn home_reads(database: &Database) -> u64 {
    database.buffer().spaces().iter().map(|space| space.reads.get()).sum()
}

fn damaged(database: &Database) -> u64 {
    database.tiers()[0].damaged
}

/// Reads everything after a restart. How many reads the cache served, how many the pages' own device, and how many copies were
/// not what they should be.
fn reopened(media: &Media, settings: Settings, value: u8) -> (u64, u64, u64) {
    run(media, async |executor| {
        let database = Database::open(executor, settings, "here").await.expect("opens");
        let before = home_reads(&database);
        assert_all(&database, value).await;
        (database.tiers()[0].reads, home_reads(&database) - before, damaged(&database))
    })
}

async fn overwrite(executor: &Executor, name: &str, offset: u64, bytes: &[u8]) {
    let device = executor.device("nvem").expect("it exists");
    let (file, _) = executor.open(device, name, false).await.expect("opens");
    let mut buffer = executor.frame(bytes.len()).expect("memory");
    buffer.copy_from_slice(bytes);
    let (length, access) = (bytes.len() as u32, Access::Asynchronous);
    let op = Op::Write { file, offset, length, buffer, durable: true, access };
    executor.perform(op).await.result.expect("writes");
}

const CACHE_FILES: [&str; 2] = ["cache.tier", "cache-table.tier"];

fn contents(media: &Media, name: &str) -> Vec<u8> {
    let mut bytes = vec![0; media.length("nvem", name).expect("it is there") as usize];
    media.read("nvem", name, 0, &mut bytes).expect("it can be read");
    bytes
}

async fn remove_cache(executor: &Executor) {
    remove(executor, &CACHE_FILES).await;
}

async fn remove(executor: &Executor, names: &[&str]) {
    for name in names {
        let device = executor.device("nvem").expect("it exists");
        executor.perform(Op::Remove { device, name: (*name).into() }).await.result.expect("removes");
    }
}

/// Fewer slots than there are pages.
fn settings_of_few_slots(name: &str) -> Settings {
    let mut small = settings(design(name), true);
    small.hierarchy.cache.as_mut().expect("there is one").pages = 40;
    small
}

/// The bytes of a page in its own place.
fn page_at_home(media: &Media, page: u64) -> Vec<u8> {
    let mut bytes = vec![0; PAGE_SIZE];
    media.read("disk", "objects.pages", page * PAGE_SIZE as u64, &mut bytes).expect("it can be read");
    bytes
}

/// Whether the database can be opened and each page read: of one that redo has left damage shows when it is read.
fn opens(media: &Media, settings: &Settings) -> bool {
    run(media, async |executor| {
        let Ok(database) = Database::open(executor, settings.clone(), "here").await else { return false };
        read_each(&database, 0..PAGES).await.is_ok()
    })
}

/// Reads these objects up to the first error.
async fn read_each(database: &Database, numbers: std::ops::Range<u64>) -> Result<(), Error> {
    let objects = database.partition("objects")?;
    for number in numbers {
        database.transaction(async |tx| tx.read_object(objects, number, |bytes| bytes[0]).await).await?;
    }
    Ok(())
}

fn slots(media: &Media) -> Vec<u8> {
    let mut bytes = vec![0; SLOTS as usize * PAGE_SIZE];
    media.read("nvem", "cache.tier", 4096, &mut bytes).expect("it can be read");
    bytes
}

#[test]
fn every_design_is_warm_after_a_close_and_after_a_kill() {
    for design in DESIGNS.iter().copied().filter(|design| design.name() != "migrate-modified") {
        for is_closed in [true, false] {
            let media = Media::new();
            run(&media, async |executor| {
                let database = filled(executor, settings(design, true), 2).await;
                if is_closed {
                    database.close().await.expect("closes");
                }
            });
            let (served, home, damaged) = reopened(&media, settings(design, true), 2);
            let what = format!("{design:?}, closed: {is_closed}: {served} served, {home} read at home");
            assert!(served >= 60 && served + home >= PAGES - 20, "{what}");
            // A kill loses what had gathered for the table.
            let lost_max = if is_closed { 0 } else { u64::from(SLOTS) / 8 };
            assert!(damaged <= lost_max, "{what}, {damaged} are something else");
        }
    }
}

/// So no slot was looked at by the opening, and none is believed.
#[test]
fn slots_that_hold_something_else_are_found_when_they_are_read() {
    for design in DESIGNS.iter().copied().filter(|design| design.name() != "migrate-modified") {
        let media = Media::new();
        run(&media, async |executor| {
            filled(executor, settings(design, true), 2).await;
        });
        run(&media, async |executor| overwrite(executor, "cache.tier", 4096, &vec![0xee; 150 * PAGE_SIZE]).await);
        let (_, home, damaged) = reopened(&media, settings(design, true), 2);
        assert!(damaged >= 60 && home >= 60, "{design:?}: {damaged} damaged, {home} read at home");
    }
}

#[test]
fn an_older_version_in_a_slot_is_not_used_whether_the_database_was_closed_or_killed() {
    for name in ["clean-write", "dual-write", "lazy-cleaning", "tac", "rotating", "face"] {
        for is_closed in [true, false] {
            let media = Media::new();
            let older = run(&media, async |executor| {
                let database = filled(executor, settings(design(name), true), 2).await;
                let older = slots(&media);
                change(&database, 3).await;
                if is_closed {
                    assert_all(&database, 3).await;
                    database.close().await.expect("closes");
                }
                older
            });
            // The device has lost all writes since.
            run(&media, async |executor| overwrite(executor, "cache.tier", 4096, &older).await);
            reopened(&media, settings(design(name), true), 3);
        }
    }
}

#[test]
fn a_device_that_loses_writes_is_found_out_while_the_database_is_open() {
    let media = Media::new();
    run(&media, async |executor| {
        let database = filled(executor, settings(design("dual-write"), true), 2).await;
        let older = slots(&media);
        change(&database, 3).await;
        database.checkpoint().await.expect("succeeds");
        assert_all(&database, 3).await;
        overwrite(executor, "cache.tier", 4096, &older).await;
        assert_all(&database, 3).await;
        assert!(damaged(&database) > 20, "{:?}", database.tiers());
    });
}

#[test]
fn a_table_that_is_damaged_gone_or_new_is_replaced_by_a_look_at_the_slots() {
    for how in ["gone", "damaged", "new"] {
        let media = Media::new();
        run(&media, async |executor| {
            let database = filled(executor, settings(design("lazy-cleaning"), how != "new"), 2).await;
            if how != "new" {
                return;
            }
            database.close().await.expect("closes");
        });
        run(&media, async |executor| {
            let device = executor.device("nvem").expect("it exists");
            let name = "cache-table.tier".to_owned();
            match how {
                "gone" => _ = executor.perform(Op::Remove { device, name }).await.result.expect("removes"),
                "damaged" => overwrite(executor, &name, 4096, &[0xee; 4096]).await,
                _ => {}
            }
        });
        for _ in 0..2 {
            let (served, _, damaged) = reopened(&media, settings(design("lazy-cleaning"), true), 2);
            assert!(served >= 60 && damaged <= u64::from(SLOTS) / 8, "{how}: {served} served, {damaged} damaged");
        }
    }
}

/// With any bit of the table flipped the opening succeeds, and everything is as it was.
#[test]
fn no_bit_of_the_table_matters() {
    let media = Media::new();
    run(&media, async |executor| {
        filled(executor, settings(design("face"), true), 2).await;
    });
    let length = media.length("nvem", "cache-table.tier").expect("it is there");
    for offset in (0..length).step_by(1_023) {
        let media = media.copy();
        media.flip_bit("nvem", "cache-table.tier", offset, (offset % 8) as u8).expect("it is there");
        reopened(&media, settings(design("face"), true), 2);
    }
}

#[test]
fn a_cache_that_was_replaced_by_an_empty_one_costs_nothing_that_was_committed() {
    for design in DESIGNS {
        for name in ["cache.tier", "cache-table.tier"] {
            let media = Media::new();
            run(&media, async |executor| {
                let database = filled(executor, settings(*design, true), 2).await;
                change(&database, 3).await;
            });
            run(&media, async |executor| {
                let device = executor.device("nvem").expect("it exists");
                executor.perform(Op::Remove { device, name: name.into() }).await.result.expect("removes");
            });
            reopened(&media, settings(*design, true), 3);
            reopened(&media, settings(*design, true), 3);
        }
    }
}

/// A page that leaves the cache's partition does not come back with it.
#[test]
fn what_a_configuration_keeps_out_of_the_cache_is_forgotten_there() {
    let media = Media::new();
    run(&media, async |executor| {
        filled(executor, settings(design("lazy-cleaning"), true), 2).await.close().await.expect("closes");
    });
    let mut without = settings(design("lazy-cleaning"), true);
    let placement = second_level::Placement { cache: false, ..second_level::Placement::default() };
    without.hierarchy.placements.insert("objects".into(), placement);
    run(&media, async |executor| {
        let database = Database::open(executor, without, "here").await.expect("opens");
        change(&database, 3).await;
        database.close().await.expect("closes");
    });
    reopened(&media, settings(design("lazy-cleaning"), true), 3);
}

/// A power cut has torn a page on its way home. Redo has it from the cache, so the cache must not lose it before it is whole there.
#[test]
fn a_page_that_is_torn_at_home_survives_two_kills() {
    for name in ["lazy-cleaning", "face"] {
        let small = settings_of_few_slots(name);
        let media = Media::new();
        run(&media, async |executor| {
            let database = filled(executor, small.clone(), 2).await;
            change(&database, 3).await;
        });
        let mut torn = 0;
        for page in (70..PAGES).step_by(3) {
            let media = media.copy();
            media.flip_bit("disk", "objects.pages", page * PAGE_SIZE as u64 + 500, 3).expect("it is there");
            let is_open = run(&media, async |executor| {
                let Ok(database) = Database::open(executor, small.clone(), "here").await else { return false };
                // The page stays in main memory while others take all slots.
                cached::try_change(&database, (0..60).flat_map(|number| [page, number]), 3).await.is_ok()
            });
            // Otherwise no slot has a copy: nothing was on its way from there.
            if is_open {
                torn += 1;
                reopened(&media, small.clone(), 3);
            }
        }
        assert!(torn > 3, "{name}: {torn} torn pages");
    }
}

/// A page is torn in its own place, and its only whole copy is in a slot and older than where redo begins: the slot of the newer one
/// was not stated yet, and others have taken it. The first opening serves the page, takes no checkpoint and is killed, too. How the
/// pages fare that were torn so: how many there were; how many are whole in their own places by then, because redo beside the changes has had
/// them leave main memory; and what an opening says of them that is `reopened` so.
fn opened_after_two_kills(name: &str, reopened: &str) -> (u64, u64, Vec<Error>) {
    let small = settings_of_few_slots(name);
    let media = Media::new();
    run(&media, async |executor| {
        filled(executor, small.clone(), 2).await;
    });
    let (mut torn, mut mended, mut refused) = (0, 0, Vec::new());
    for page in (1..PAGES).step_by(7) {
        let media = media.copy();
        run(&media, async |executor| {
            let database = Database::open(executor, small.clone(), "here").await.expect("opens");
            cached::change(&database, [page], 3).await;
        });
        media.flip_bit("disk", "objects.pages", page * PAGE_SIZE as u64 + 500, 3).expect("it is there");
        let damaged = page_at_home(&media, page);
        let is_open = run(&media, async |executor| {
            let Ok(database) = Database::open(executor, small.clone(), "here").await else { return false };
            // The page stays in main memory while others are changed.
            cached::try_change(&database, [page, 23, page, 24], 3).await.is_ok()
        });
        if !is_open {
            continue;
        }
        torn += 1;
        mended += u64::from(page_at_home(&media, page) != damaged);
        let mut settings = small.clone();
        let cache = settings.hierarchy.cache.as_mut().expect("there is one");
        match reopened {
            "as before" => {}
            "with more slots" => cache.pages += 1,
            "without a table" => cache.table = Some(false),
            "without a cache" => settings.hierarchy.cache = None,
            "without the table's file" | "without the cache's files" => {
                let names = if reopened == "without the table's file" { &CACHE_FILES[1..] } else { &CACHE_FILES[..] };
                run(&media, async |executor| remove(executor, names).await);
            }
            _ => unreachable!("there is no such opening"),
        }
        for _ in 0..2 {
            let opened = run(&media, async |executor| {
                let database = Database::open(executor, settings.clone(), "here").await?;
                read_each(&database, 0..PAGES).await?;
                let values = read(&database, 0..PAGES).await;
                let is_changed = |number: u64| [page, 23, 24].contains(&number);
                assert!((0..PAGES).zip(values).all(|(number, value)| value == 2 + u8::from(is_changed(number))));
                Ok(())
            });
            refused.extend(opened.err());
        }
    }
    (torn, mended, refused)
}

#[test]
fn a_page_whose_only_whole_copy_is_older_than_redo_survives_two_kills_and_another_cache() {
    let openings = ["as before", "with more slots", "without a table", "without a cache", "without the table's file"];
    for name in ["lazy-cleaning", "face", "dual-write"] {
        for reopened in openings {
            let (torn, _, refused) = opened_after_two_kills(name, reopened);
            assert!(torn > 3 && refused.is_empty(), "{name}, {reopened}: {torn} torn pages, {refused:?}");
        }
    }
}

/// A page was changed and written to its own place since a slot got its copy; something damages it there.
#[test]
fn a_copy_behind_which_redo_does_not_go_on_is_not_taken_for_its_damaged_page() {
    let small = settings_of_few_slots("lazy-cleaning");
    let mut larger = small.clone();
    larger.hierarchy.cache.as_mut().expect("there is one").pages += 1;
    let media = Media::new();
    run(&media, async |executor| {
        filled(executor, small.clone(), 2).await;
    });
    let older = contents(&media, "cache.tier");
    for page in (1..PAGES).step_by(7) {
        let media = media.copy();
        run(&media, async |executor| {
            let database = Database::open(executor, small.clone(), "here").await.expect("opens");
            cached::change(&database, [page], 3).await;
            database.checkpoint().await.expect("succeeds");
            cached::change(&database, [page], 4).await;
        });
        media.flip_bit("disk", "objects.pages", page * PAGE_SIZE as u64 + 500, 3).expect("it is there");
        run(&media, async |executor| {
            overwrite(executor, "cache.tier", 0, &older).await;
            let before = page_at_home(&media, page);
            let opened = Database::open(executor, larger.clone(), "here").await.map(|_| ());
            assert!(matches!(opened, Err(Error::DamagedPage { .. })), "page {page}: {opened:?}");
            assert!(page_at_home(&media, page) == before, "page {page} was written over by an older one");
        });
    }
}

/// Opens the database where no slot of the cache can be read, and closes it at once if that succeeds.
fn open_without_slots(media: &Media, settings: &Settings) -> Result<(), Error> {
    // The first read is that of the header.
    let errors = (2..5_000).map(|nth| ErrorAt { kind: OpKind::Read, device: Some("nvem".into()), nth }).collect();
    let options = Options { faults: Some(FaultPlan { errors, ..FaultPlan::default() }), ..Options::default() };
    let driver = VirtualDriver::new(Hardware::ideal(), options, media.clone());
    let executor = Executor::new(Box::new(driver), Order::FirstInFirstOut);
    let opened = executor.run(async { Database::open(&executor, settings.clone(), "here").await.map(drop) });
    executor.stop();
    opened.expect("the machine goes on")
}

/// The whole copies of torn pages are in slots that cannot be read for one opening, of a cache that does not go on by its table.
#[test]
fn slots_that_cannot_be_read_for_one_opening_have_the_copies_of_torn_pages_afterwards() {
    for (name, is_larger) in [("lazy-cleaning", false), ("lazy-cleaning", true), ("face", false), ("face", true)] {
        let small = settings_of_few_slots(name);
        let mut other = small.clone();
        let cache = other.hierarchy.cache.as_mut().expect("there is one");
        (cache.table, cache.pages) = (Some(is_larger), cache.pages + u32::from(is_larger));
        let media = Media::new();
        run(&media, async |executor| {
            let database = filled(executor, small.clone(), 2).await;
            change(&database, 3).await;
        });
        let mut torn = 0;
        for page in (70..PAGES).step_by(3) {
            let media = media.copy();
            media.flip_bit("disk", "objects.pages", page * PAGE_SIZE as u64 + 500, 3).expect("it is there");
            if !opens(&media.copy(), &other) {
                continue;
            }
            torn += 1;
            let error = open_without_slots(&media, &other).expect_err("its only whole copy cannot be read");
            assert!(matches!(error, Error::DamagedPage { .. } | Error::TierMissing { .. }), "{error}");
            assert!(has_all(&media, other.clone(), 3), "{name}, larger: {is_larger}, page {page}");
        }
        assert!(torn > 3, "{name}, larger: {is_larger}: {torn} torn pages");
    }
}

#[test]
fn a_cache_that_is_taken_away_after_two_kills_is_named_because_of_a_torn_page() {
    for name in ["lazy-cleaning", "face", "dual-write"] {
        let (torn, mended, refused) = opened_after_two_kills(name, "without the cache's files");
        let is_named = |error: &Error| matches!(error, Error::TierMissing { .. });
        let are_named = refused.iter().all(is_named);
        // Both openings of each are refused.
        let are_all = 2 * (torn - mended) == refused.len() as u64 && (name == "face" || refused.len() > 3);
        assert!(torn > 3 && are_all && are_named, "{name}: {torn} torn pages, {mended} mended, {refused:?}");
    }
}

/// An opening that misses a cache, because it may have the whole copy of a torn page, leaves the database so that the next one finds
/// the cache when it is back.
#[test]
fn a_cache_that_was_away_for_one_opening_still_has_the_copies_of_torn_pages() {
    for name in ["lazy-cleaning", "face"] {
        let (refused, restored) = opened_without_a_cache_and_with_it(name);
        assert!(refused > 3 && restored == refused, "{name}: {restored} of {refused} torn pages are restored");
    }
}

#[cfg(feature = "canary")]
#[test]
fn a_missing_cache_that_is_forgotten_too_early_is_found() {
    use entresol_engine::canary::{Canary, plant};
    plant(Some(Canary::ForgottenCache));
    let (refused, restored) = opened_without_a_cache_and_with_it("lazy-cleaning");
    plant(None);
    assert!(restored < refused, "{restored} of {refused} torn pages are restored");
}

/// In how many cases a page was torn and an opening that missed the cache was refused; in how many of them the next one, which has
/// it again, has everything.
fn opened_without_a_cache_and_with_it(name: &str) -> (u64, u64) {
    let small = settings_of_few_slots(name);
    let mut without = small.clone();
    without.hierarchy.cache = None;
    let media = Media::new();
    run(&media, async |executor| {
        let database = filled(executor, small.clone(), 2).await;
        change(&database, 3).await;
    });
    let (mut refused, mut restored) = (0, 0);
    for (page, away) in (70..PAGES).step_by(3).zip([&small, &without].into_iter().cycle()) {
        let media = media.copy();
        media.flip_bit("disk", "objects.pages", page * PAGE_SIZE as u64 + 500, 3).expect("it is there");
        if !opens(&media.copy(), &small) {
            continue;
        }
        let files = CACHE_FILES.map(|name| (name, contents(&media, name)));
        run(&media, async |executor| remove_cache(executor).await);
        run(&media, async |executor| {
            let error = Database::open(executor, away.clone(), "here").await.map(|_| ()).expect_err("a page is torn");
            assert!(matches!(error, Error::TierMissing { .. }), "{error}");
            remove_cache(executor).await;
            for (name, bytes) in &files {
                let device = executor.device("nvem").expect("it exists");
                executor.open(device, name, true).await.expect("creates");
                overwrite(executor, name, 0, bytes).await;
            }
        });
        refused += 1;
        restored += u64::from(has_all(&media, small.clone(), 3));
    }
    (refused, restored)
}

/// Whether the database opens and everything has this value.
fn has_all(media: &Media, settings: Settings, value: u8) -> bool {
    run(media, async |executor| {
        let Ok(database) = Database::open(executor, settings, "here").await else { return false };
        read(&database, 0..PAGES).await == [value; PAGES as usize]
    })
}

/// Pages that were changed and written to their own places since the table was written are in the slots as they were before. While
/// the cache is busy redo must not go past it: the newer pages lack nothing, and the slots would serve again.
#[test]
fn an_older_version_in_a_slot_is_not_used_when_the_cache_is_busy_at_the_restart() {
    for design in DESIGNS {
        let mut settings = settings(*design, true);
        let cache = settings.hierarchy.cache.as_mut().expect("there is one");
        (cache.parameters.throttle, cache.device) = (0, "flash".into());
        let media = Media::new();
        let created = settings.clone();
        run(&media, async |executor| {
            let database = filled(executor, created, 2).await;
            cached::change(&database, 0..10, 3).await;
            read(&database, 20..80).await;
        });
        run(&media, async |executor| {
            let database = Database::open(executor, settings, "here").await.expect("opens");
            let numbers = (0..PAGES).chain(0..10);
            let expected: Vec<u8> = numbers.clone().map(|number| if number < 10 { 3 } else { 2 }).collect();
            assert_eq!(read(&database, numbers).await, expected, "{design:?}");
        });
    }
}
