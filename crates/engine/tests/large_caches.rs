//! A cache serves hits within the first second after a restart, whatever its size: what is not known yet of its slots is read beside
//! the work.

use crate::ground::holding::holding;
use base::Random;
use base::time::{MICROSECOND_NS, MILLISECOND_NS, SECOND_NS};
use devices::Hardware;
use driver::Op;
use entresol_engine::catalog::{Locking, Organization};
use entresol_engine::second_level::{self, CacheSettings, Design};
use entresol_engine::tier_file::table::{BLOCK_BYTES, block_number};
use entresol_engine::{Database, Internals, PartitionSpec, Settings, Transaction, buffer, checkpoint, log};
use executor::{Executor, Order};
use std::cell::Cell;
use std::rc::Rc;
use virtual_driver::{FaultPlan, Media, Options, PowerCut, VirtualDriver};

/// How the database stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Close,
    Kill,
    PowerCut,
}

fn run<T>(hardware: &str, media: &Media, work: impl AsyncFnOnce(&Executor) -> T) -> T {
    let hardware = Hardware::parse(hardware, "test").expect("a description");
    let driver = VirtualDriver::new(hardware, Options::default(), media.clone());
    let executor = Executor::new(Box::new(driver), Order::FirstInFirstOut);
    let result = executor.run(work(&executor));
    executor.stop();
    result.expect("the machine goes on")
}

fn settings(cache: CacheSettings, page_size: usize) -> Settings {
    Settings {
        home_device: "disk".into(),
        log_device: "disk".into(),
        buffer: buffer::Settings { frames: 64, page_size, ..buffer::Settings::default() },
        log: log::Settings { capacity: 64 << 20, ..log::Settings::default() },
        hierarchy: second_level::Settings { cache: Some(cache), ..second_level::Settings::default() },
        checkpoint: checkpoint::Policy::OFF,
        ..Settings::default()
    }
}

async fn create(executor: &Executor, settings: Settings, objects: u64) -> Database {
    let database = Database::create(executor, settings).await.expect("creates");
    let organization = Organization::Direct { objects, blocking_factor: 1, record_size: 100 };
    let spec = PartitionSpec::new("objects", organization, Locking::Page);
    let spec = PartitionSpec { device: "disk".into(), ..spec };
    database.create_partition(spec).await.expect("creates");
    database
}

async fn change(database: &Database, numbers: impl IntoIterator<Item = u64>, value: u8) {
    let partition = database.partition("objects").expect("it exists");
    for number in numbers {
        let write = async |tx: &mut Transaction| tx.modify_object(partition, number, |bytes| bytes[0] = value).await;
        database.transaction(write).await.expect("changes");
    }
}

async fn read(database: &Database, number: u64) -> u8 {
    let partition = database.partition("objects").expect("it exists");
    database.transaction(async |tx| tx.read_object(partition, number, |bytes| bytes[0]).await).await.expect("reads")
}

fn hits(database: &Database) -> u64 {
    database.tiers()[0].reads
}

const OBJECTS: u64 = 3_000;
const CHANGED_MEANWHILE: std::ops::Range<u64> = 100..140;
/// The cache is so slow to read that its table takes three seconds.
const SLOW: &str = "[device.disk]\nmedium.service = \"20 us\"\nmedium.servers = 64\n\
                    [device.flash]\nmedium.service = \"20 us\"\n\
                    transmission = { servers = 1, bandwidth = { read = \"80 kB/s\", write = \"1 GB/s\" } }\n";

/// Fills a cache until its table has gone round, and ends so. The values of the objects.
fn filled(media: &Media, settings: &Settings, end: End) -> Vec<u8> {
    run(SLOW.replace("80 kB/s", "1 GB/s").as_str(), media, async |executor| {
        let database = create(executor, settings.clone(), OBJECTS).await;
        for value in 1..4 {
            change(&database, 0..OBJECTS, value).await;
            database.checkpoint().await.expect("succeeds");
        }
        for number in 0..OBJECTS {
            read(&database, number).await;
        }
        database.checkpoint().await.expect("succeeds");
        change(&database, (0..OBJECTS).step_by(150), 9).await;
        if end == End::Close {
            database.close().await.expect("closes");
        }
    });
    if end == End::PowerCut {
        media.power_cut(&mut Random::stream(5, "power cut"), &PowerCut { lost: 0.4, torn: 0.2 });
    }
    (0..OBJECTS).map(|number| if number % 150 == 0 { 9 } else { 3 }).collect()
}

#[test]
fn the_first_hit_does_not_wait_for_the_table() {
    for name in ["clean-write", "lazy-cleaning", "face"] {
        for end in [End::Close, End::Kill, End::PowerCut] {
            let (media, what) = (Media::new(), format!("{name} after {end:?}"));
            let design = Design::named(name).expect("it has this name");
            let cache = CacheSettings { design, table_ahead: 4096, ..CacheSettings::new("flash", 4_000) };
            let settings = settings(cache, 1024);
            let values = filled(&media, &settings, end);
            run(SLOW, &media, async |executor| {
                let began = executor.now();
                let database = Database::open(executor, settings.clone(), "here").await.expect("opens");
                let mut random = Random::stream(1, &what);
                let opened_ns = executor.now().since_ns(began);
                while hits(&database) == 0 {
                    let number = random.below(OBJECTS);
                    assert_eq!(read(&database, number).await, values[number as usize], "{what}");
                }
                let first_ns = executor.now().since_ns(began);
                assert!(first_ns < SECOND_NS, "{what}: the first hit after {first_ns} ns, opened after {opened_ns}");
                let tiers = database.buffer().tiers().expect("there is a cache");
                assert!(tiers.is_loading(), "{what}: its table is loaded already");
                // What changes meanwhile is not served from where it was before.
                change(&database, CHANGED_MEANWHILE, 5).await;
                assert!(tiers.is_loading(), "{what}: its table is loaded after the changes");
                tiers.await_loading().await;
                let loaded_ns = executor.now().since_ns(began);
                assert!(loaded_ns > 3 * SECOND_NS / 2, "{what}: loaded after {loaded_ns} ns");
                for number in 0..OBJECTS {
                    let value = if CHANGED_MEANWHILE.contains(&number) { 5 } else { values[number as usize] };
                    assert_eq!(read(&database, number).await, value, "{what}");
                }
                assert!(hits(&database) > OBJECTS / 4, "{what}: {} hits", hits(&database));
                tiers.check().expect("consistent");
            });
            run(SLOW.replace("80 kB/s", "1 GB/s").as_str(), &media, async |executor| {
                let database = Database::open(executor, settings.clone(), "here").await.expect("opens");
                for number in 0..OBJECTS {
                    let value = if CHANGED_MEANWHILE.contains(&number) { 5 } else { values[number as usize] };
                    assert_eq!(read(&database, number).await, value, "{what}, once more");
                }
            });
        }
    }
}

/// A page that cannot be read from its own device is in a slot of which nothing is known yet.
#[test]
fn a_page_that_is_unreadable_in_its_place_is_served_while_the_table_is_loaded() {
    let media = Media::new();
    let design = Design::named("clean-write").expect("it has this name");
    let settings = settings(CacheSettings { design, table_ahead: 4096, ..CacheSettings::new("flash", 4_000) }, 1024);
    let values = filled(&media, &settings, End::Close);
    let unreadable: Vec<u64> = (1..OBJECTS).step_by(377).filter(|number| number % 150 != 0).collect();
    for number in &unreadable {
        media.make_unreadable("disk", "objects.pages", number * 1024, 1).expect("it is there");
    }
    run(SLOW, &media, async |executor| {
        let database = Database::open(executor, settings.clone(), "here").await.expect("opens");
        let tiers = database.buffer().tiers().expect("there is a cache");
        for number in unreadable {
            assert_eq!(read(&database, number).await, values[number as usize], "page {number}");
        }
        assert_eq!(tiers.lost_cache().map(|error| error.to_string()), None);
    });
}

/// What is read of pages that were changed while the table was loaded, once main memory has others.
fn changed_while_loading() -> Vec<u8> {
    let media = Media::new();
    let design = Design::named("clean-write").expect("it has this name");
    let settings = settings(CacheSettings { design, table_ahead: 4096, ..CacheSettings::new("flash", 4_000) }, 1024);
    filled(&media, &settings, End::Kill);
    run(SLOW, &media, async |executor| {
        let database = Database::open(executor, settings, "here").await.expect("opens");
        let tiers = database.buffer().tiers().expect("there is a cache");
        assert!(tiers.is_loading());
        change(&database, CHANGED_MEANWHILE, 5).await;
        // They leave main memory for their own places before it is known what all slots hold.
        for number in 0..80 {
            read(&database, 1_000 + number).await;
        }
        assert!(tiers.is_loading());
        tiers.await_loading().await;
        let mut values = Vec::new();
        for number in CHANGED_MEANWHILE {
            values.push(read(&database, number).await);
        }
        values
    })
}

#[test]
fn a_slot_that_becomes_known_after_its_page_has_changed_is_not_believed() {
    assert_eq!(changed_while_loading(), vec![5; CHANGED_MEANWHILE.count()]);
}

#[cfg(feature = "canary")]
#[test]
fn a_slot_that_is_believed_too_late_is_found() {
    use entresol_engine::canary::{Canary, plant};
    plant(Some(Canary::LateStatement));
    let values = changed_while_loading();
    plant(None);
    assert_ne!(values, vec![5; CHANGED_MEANWHILE.count()]);
}

/// A cache of a tebibyte on media that hold what was written: an opening takes neither time nor memory for slots that nothing is
/// known of.
#[test]
fn a_cache_of_a_tebibyte_serves_its_first_hit_within_a_second() {
    let hardware = "[device.disk]\nmedium.service = \"5 ms\"\nmedium.servers = 8\n\
                    [device.flash]\nmedium = { servers = 16, service = \"42 us\" }\n\
                    transmission = { servers = 1, bandwidth = { read = \"1.3 GB/s\", write = \"2.2 GB/s\" } }\n";
    for end in [End::Close, End::Kill, End::PowerCut] {
        let media = Media::new();
        let design = Design::named("lazy-cleaning").expect("it has this name");
        let settings = settings(CacheSettings { design, ..CacheSettings::new("flash", 1 << 27) }, 8192);
        run(hardware, &media, async |executor| {
            let database = create(executor, settings.clone(), 500).await;
            for value in 1..3 {
                change(&database, 0..500, value).await;
                database.checkpoint().await.expect("succeeds");
            }
            for number in 0..500 {
                read(&database, number).await;
            }
            database.checkpoint().await.expect("succeeds");
            change(&database, 0..100, 3).await;
            if end == End::Close {
                database.close().await.expect("closes");
            }
        });
        if end == End::PowerCut {
            media.power_cut(&mut Random::stream(5, "power cut"), &PowerCut { lost: 0.4, torn: 0.2 });
        }
        assert_eq!(media.length("flash", "cache.tier"), Some((1 << 40) + 8192));
        run(hardware, &media, async |executor| {
            let began = executor.now();
            let database = Database::open(executor, settings.clone(), "here").await.expect("opens");
            let mut number = 500;
            while hits(&database) == 0 {
                number -= 1;
                assert_eq!(read(&database, number).await, if number < 100 { 3 } else { 2 }, "{end:?}");
            }
            let first_ns = executor.now().since_ns(began);
            assert!(first_ns < SECOND_NS, "{end:?}: the first hit after {first_ns} ns");
        });
    }
}

/// How many blocks of its table an opening reads of a cache that pages have entered unchanged since the last checkpoint.
fn blocks_read_after_reads(slots: u32, objects: u64) -> u64 {
    let media = Media::new();
    let design = Design::named("clean-write").expect("it has this name");
    let settings = settings(CacheSettings { design, table_ahead: 4096, ..CacheSettings::new("flash", slots) }, 1024);
    run(SLOW.replace("80 kB/s", "1 GB/s").as_str(), &media, async |executor| {
        let database = create(executor, settings.clone(), objects).await;
        change(&database, 0..objects, 7).await;
        database.checkpoint().await.expect("succeeds");
        for number in (0..objects).chain(0..objects) {
            read(&database, number).await;
        }
    });
    run(SLOW, &media, async |executor| {
        let began = executor.now();
        let database = Database::open(executor, settings.clone(), "here").await.expect("opens");
        let opened_ns = executor.now().since_ns(began);
        for number in (0..objects).step_by(7) {
            assert_eq!(read(&database, number).await, 7);
        }
        assert!(hits(&database) > objects / 7 / 4, "{} hits", hits(&database));
        opened_ns * 80_000 / SECOND_NS / 4096
    })
}

#[test]
fn an_opening_reads_little_of_the_table_of_a_cache_that_was_read_into() {
    let blocks = blocks_read_after_reads(12_000, 18_000);
    assert!(blocks < 80, "{blocks} of 178 blocks, twice");
}

/// What an opening has read of the table it does not state anew: that would be as long again, and checkpoints would wait for it.
#[test]
fn an_opening_states_nothing_anew_that_it_has_read() {
    for end in [End::Close, End::PowerCut] {
        let media = Media::new();
        let design = Design::named("clean-write").expect("it has this name");
        let settings =
            settings(CacheSettings { design, table_ahead: 4096, ..CacheSettings::new("flash", 4_000) }, 1024);
        let values = filled(&media, &settings, end);
        let hardware = SLOW.replace("80 kB/s", "1 GB/s");
        for opening in 0..3 {
            run(&hardware, &media, async |executor| {
                let database = Database::open(executor, settings.clone(), "here").await.expect("opens");
                database.buffer().tiers().expect("there is a cache").await_loading().await;
                database.checkpoint().await.expect("succeeds");
                executor.sleep_ns(SECOND_NS).await;
                let written = database.tiers()[0].bytes_written;
                assert!(written <= 4 * BLOCK_BYTES as u64, "{end:?}, opening {opening}: {written} bytes");
            });
        }
        run(&hardware, &media, async |executor| {
            let database = Database::open(executor, settings.clone(), "here").await.expect("opens");
            for number in 0..OBJECTS {
                assert_eq!(read(&database, number).await, values[number as usize], "{end:?}");
            }
            assert!(hits(&database) > OBJECTS / 4, "{end:?}: {} hits", hits(&database));
        });
    }
}

/// How long the first hit takes behind a restart, and how many of a thousand reads in a row are hits then.
fn first_hit_and_hits(slots: u32, end: End) -> (u64, u64) {
    let objects = u64::from(slots) * 5 / 4;
    let media = Media::new();
    let design = Design::named("lazy-cleaning").expect("it has this name");
    let settings = settings(CacheSettings { design, table_ahead: 4096, ..CacheSettings::new("flash", slots) }, 1024);
    run(SLOW.replace("80 kB/s", "1 GB/s").as_str(), &media, async |executor| {
        let database = create(executor, settings.clone(), objects).await;
        change(&database, 0..objects, 7).await;
        database.checkpoint().await.expect("succeeds");
        let mut random = Random::stream(3, "reads");
        for _ in 0..2 * objects {
            read(&database, random.below(objects)).await;
        }
        change(&database, (0..objects).step_by(objects as usize / 100), 9).await;
        if end == End::Close {
            database.close().await.expect("closes");
        }
    });
    if end == End::PowerCut {
        media.power_cut(&mut Random::stream(5, "power cut"), &PowerCut { lost: 0.4, torn: 0.2 });
    }
    // The table of the large one takes more than a second.
    run(SLOW.replace("80 kB/s", "800 kB/s").as_str(), &media, async |executor| {
        let began = executor.now();
        let database = Database::open(executor, settings.clone(), "here").await.expect("opens");
        let mut random = Random::stream(4, "reads");
        while hits(&database) == 0 {
            let number = random.below(objects);
            let value = if number.is_multiple_of(objects / 100) { 9 } else { 7 };
            assert_eq!(read(&database, number).await, value, "{slots} slots, {end:?}");
        }
        let first_ns = executor.now().since_ns(began);
        for _ in 0..1_000 {
            read(&database, random.below(objects)).await;
        }
        (first_ns, hits(&database))
    })
}

#[test]
fn the_first_hit_comes_as_soon_in_a_cache_of_sixteen_times_the_size() {
    for end in [End::Close, End::Kill, End::PowerCut] {
        let [(small_ns, _), (large_ns, hits)] = [1_000, 16_000].map(|slots| first_hit_and_hits(slots, end));
        assert!(large_ns < SECOND_NS, "{end:?}: {small_ns} and {large_ns} ns");
        assert!(large_ns < 2 * small_ns + 100 * MILLISECOND_NS, "{end:?}: {small_ns} and {large_ns} ns");
        assert!(hits > 0, "{end:?}");
    }
}

/// Kills a database whose cache alone has much, and opens it with this policy of checkpoints. How many pages are read from their own device until it is open, and how
/// many are written.
fn transfers_of_an_opening(name: &str, checkpoint: checkpoint::Policy) -> (u64, u64) {
    const CHANGED: std::ops::Range<u64> = 300..2_300;
    const LAST: std::ops::Range<u64> = 2_500..2_520;
    let media = Media::new();
    let design = Design::named(name).expect("it has this name");
    let settings = settings(CacheSettings { design, table_ahead: 0, ..CacheSettings::new("flash", 4_000) }, 1024);
    let hardware = SLOW.replace("80 kB/s", "1 GB/s");
    run(&hardware, &media, async |executor| {
        let database = create(executor, settings.clone(), OBJECTS).await;
        change(&database, 0..OBJECTS, 1).await;
        database.checkpoint().await.expect("succeeds");
        change(&database, CHANGED, 2).await;
        // Pages that enter unchanged are stated behind those.
        for number in 0..300 {
            read(&database, number).await;
        }
        change(&database, LAST, 2).await;
    });
    let transfers = Rc::new(Cell::new((0, 0)));
    let seen = Rc::clone(&transfers);
    let settings = Settings { buffer: buffer::Settings { frames: 4096, ..settings.buffer }, checkpoint, ..settings };
    let hardware = Hardware::parse(&hardware, "test").expect("a description");
    holding(hardware, &media, async |executor, holder| {
        holder.hold(executor.now(), move |op| {
            let (reads, writes) = seen.get();
            // Whatever else is read or written is so in whole blocks.
            match op {
                Op::Read { length: 1024, .. } => seen.set((reads + 1, writes)),
                Op::Write { length, .. } if length % 4096 != 0 => seen.set((reads, writes + u64::from(length / 1024))),
                _ => {}
            }
            false
        });
        let database = Database::open(executor, settings.clone(), "here").await.expect("opens");
        let (reads, writes) = transfers.get();
        let from_cache = hits(&database);
        for number in 0..OBJECTS {
            let is_changed = CHANGED.contains(&number) || LAST.contains(&number);
            assert_eq!(read(&database, number).await, if is_changed { 2 } else { 1 }, "{name}: {number}");
        }
        assert!(hits(&database) > 1_500, "{name}: {} hits", hits(&database));
        (reads - from_cache, writes)
    })
}

#[test]
fn an_opening_waits_for_few_pages_own_devices() {
    for name in ["dual-write", "lazy-cleaning", "face", "frequency"] {
        let (reads, writes) = transfers_of_an_opening(name, checkpoint::Policy::OFF);
        assert!(reads < 600 && writes == 0, "{name}: {reads} reads, {writes} writes");
    }
}

#[test]
fn an_opening_puts_nothing_off_once_as_much_is_to_be_redone_as_between_checkpoints() {
    let often = checkpoint::Policy { log_bytes: Some(32 << 10), interval_ns: None };
    let (_, writes) = transfers_of_an_opening("dual-write", often);
    assert!(writes > 0, "each kill would leave more to be redone");
}

/// A checkpoint ends while more of the table is being written, whose last block is not on the medium yet.
#[test]
fn the_superblock_names_no_block_that_the_power_may_take() {
    let design = Design::named("clean-write").expect("it has this name");
    let settings = settings(CacheSettings { design, table_ahead: 0, ..CacheSettings::new("flash", 800) }, 1024);
    let hardware = SLOW.replace("80 kB/s", "1 GB/s");
    let made = Media::new();
    run(&hardware, &made, async |executor| {
        let database = create(executor, settings.clone(), 1_500).await;
        change(&database, 0..1_500, 7).await;
        database.close().await.expect("closes");
    });
    for cut in (2_000..40_000).step_by(311) {
        let media = made.copy();
        let faults = Some(FaultPlan { power_cut_at: Some(cut), ..FaultPlan::default() });
        let described = Hardware::parse(&hardware, "test").expect("a description");
        let driver = VirtualDriver::new(described, Options { faults, ..Options::default() }, media.clone());
        let executor = Executor::new(Box::new(driver), Order::FirstInFirstOut);
        let halted: Result<(), _> = executor.run(async {
            let database = Database::open(&executor, settings.clone(), "here").await.expect("opens");
            begin_reading(&executor, &database, 1_500);
            loop {
                change(&database, 0..3, 7).await;
                database.checkpoint().await.expect("succeeds");
            }
        });
        assert!(halted.is_err(), "the power goes");
        executor.stop();
        run(&hardware, &media, async |executor| {
            let database = Database::open(executor, settings.clone(), "here").await.expect("opens");
            assert!(database.buffer().tiers().is_some_and(|tiers| tiers.is_taken_over()), "cut at {cut}");
        });
    }
}

/// Eight readers of pages at random below this number, without end.
fn begin_reading(executor: &Executor, database: &Database, pages: u64) {
    for reader in 0..8 {
        let database = database.clone();
        executor.spawn(async move {
            let mut random = Random::stream(reader, "reader");
            loop {
                read(&database, random.below(pages)).await;
            }
        });
    }
}

/// Whether it is written to a cache's table, its last block being of this number or later.
fn states_block_from(op: &Op, number: u64) -> bool {
    let Op::Write { buffer, length, .. } = op else { return false };
    let last = buffer[..*length as usize].chunks_exact(BLOCK_BYTES).last();
    last.and_then(block_number).is_some_and(|last| last >= number)
}

/// How long others wait for a partition while the cache's device does not answer the write of this block of its table, which many
/// readers of pages ask for, or a checkpoint.
fn creation_beside_a_silent_table(number: u64, by_checkpoint: bool) -> u64 {
    let design = Design::named("clean-write").expect("it has this name");
    let settings = settings(CacheSettings { design, table_ahead: 0, ..CacheSettings::new("flash", 200) }, 1024);
    let hardware = Hardware::parse(&SLOW.replace("80 kB/s", "1 GB/s"), "test").expect("a description");
    holding(hardware, &Media::new(), async |executor, holder| {
        let database = create(executor, settings, 600).await;
        change(&database, 0..600, 7).await;
        database.checkpoint().await.expect("succeeds");
        holder.hold(executor.now().plus_ns(100 * SECOND_NS), move |op| states_block_from(op, number));
        begin_reading(executor, &database, 600);
        if by_checkpoint {
            let database = database.clone();
            executor.spawn(async move {
                loop {
                    change(&database, 0..1, 7).await;
                    database.checkpoint().await.expect("succeeds");
                }
            });
        }
        while !holder.has_held() {
            executor.sleep_ns(MICROSECOND_NS).await;
        }
        executor.sleep_ns(MILLISECOND_NS).await;
        let began = executor.now();
        database.create_partition(PartitionSpec::b_tree("other")).await.expect("creates");
        executor.now().since_ns(began)
    })
}

#[test]
fn a_cache_that_does_not_answer_keeps_others_from_no_write_of_the_superblock_file() {
    for by_checkpoint in [false, true] {
        let longest = (20..60).map(|number| creation_beside_a_silent_table(number, by_checkpoint)).max();
        let longest_ns = longest.expect("some were tried");
        assert!(longest_ns < SECOND_NS, "beside checkpoints: {by_checkpoint}: {longest_ns} ns");
    }
}

/// How much of the log each opening redoes of a database that is killed after each, when something was changed, and long before a
/// checkpoint is due by time; and how many checkpoints were taken.
fn redone_by_each_life(checkpoint: checkpoint::Policy, lives: u64) -> (Vec<u64>, u64) {
    let media = Media::new();
    let hardware = SLOW.replace("80 kB/s", "1 GB/s");
    let design = Design::named("lazy-cleaning").expect("it has this name");
    let settings = settings(CacheSettings { design, ..CacheSettings::new("flash", 400) }, 1024);
    let settings = Settings { log: log::Settings { capacity: LOG_BYTES, ..settings.log }, checkpoint, ..settings };
    run(&hardware, &media, async |executor| {
        create(executor, settings.clone(), 500).await.close().await.expect("closes");
    });
    let (mut redone, mut taken) = (Vec::new(), 0);
    for life in 0..lives {
        run(&hardware, &media, async |executor| {
            let database = Database::open(executor, settings.clone(), "here").await.expect("opens");
            assert_eq!(read(&database, 3).await, life as u8, "after {life} lives");
            change(&database, 0..8, life as u8 + 1).await;
            redone.push(database.recovery().log_bytes);
            taken += database.figures().checkpoints;
        });
    }
    (redone, taken)
}

const LOG_BYTES: u64 = 1 << 20;

/// An opening takes a checkpoint once the log has grown by what is between two.
#[test]
fn kills_faster_than_checkpoints_do_not_add_up() {
    let rarely = Some(10 * SECOND_NS);
    let by_both = checkpoint::Policy { log_bytes: Some(128 << 10), interval_ns: rarely };
    let (redone, taken) = redone_by_each_life(by_both, 60);
    let (first, most) = (redone[1], redone.iter().max().expect("there are some"));
    assert!(*most < (128 << 10) + 2 * first, "{redone:?}");
    assert!((2..30).contains(&taken), "{taken} checkpoints, {redone:?}");
    // Where no size is asked for, the log's bounds it.
    let (redone, taken) = redone_by_each_life(checkpoint::Policy { log_bytes: None, interval_ns: rarely }, 200);
    let most = redone.iter().max().expect("there are some");
    assert!((LOG_BYTES / 4..LOG_BYTES / 2 + 2 * first).contains(most), "{redone:?}");
    assert!((1..30).contains(&taken), "{taken} checkpoints, {redone:?}");
}
