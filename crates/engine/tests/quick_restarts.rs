//! A database whose cache is full serves from it within the first second after a restart, however much was to be redone of pages whose
//! own devices are slow, and whatever the size of the cache.

use base::Random;
use base::time::{MILLISECOND_NS, SECOND_NS};
use devices::Hardware;
use driver::OpKind;
use entresol_engine::catalog::{Locking, Organization};
use entresol_engine::second_level::{self, CacheSettings, Design};
use entresol_engine::statistics::{Event, Listener};
use entresol_engine::{Database, Internals, PartitionSpec, Result, Settings, Transaction, buffer, checkpoint, log};
use executor::{Executor, Order};
use std::cell::RefCell;
use std::rc::Rc;
use virtual_driver::{ErrorAt, FaultPlan, Media, Options, PowerCut, VirtualDriver};

pub const DESIGNS: [&str; 3] = ["face", "lazy-cleaning", "dual-write"];
/// Three thousand reads and writes a second of the volume, as network volumes give; log and cache are fast.
pub const SLOW: &str = "[device.disk]\nmedium.service = \"20 us\"\nmedium.servers = 64\n\
                    [device.volume]\nmedium = { servers = 8, service = \"2.6 ms\" }\n\
                    [device.flash]\nmedium = { servers = 16, service = \"42 us\" }\n\
                    transmission = { servers = 1, bandwidth = { read = \"1.3 GB/s\", write = \"1 GB/s\" } }\n\
                    [device.backup]\nmedium.service = \"20 us\"\n[device.next]\nmedium.service = \"20 us\"\n\
                    [device.mirror]\nmedium.service = \"20 us\"\n[device.archive]\nmedium.service = \"20 us\"\n";

/// How the database stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    Close,
    Kill,
    PowerCut,
}

pub fn run_with<T>(errors: Vec<ErrorAt>, media: &Media, work: impl AsyncFnOnce(&Executor) -> T) -> T {
    run_under(FaultPlan { errors, ..FaultPlan::default() }, media, work)
}

pub fn run_under<T>(faults: FaultPlan, media: &Media, work: impl AsyncFnOnce(&Executor) -> T) -> T {
    let hardware = Hardware::parse(SLOW, "test").expect("a description");
    let driver = VirtualDriver::new(hardware, Options { faults: Some(faults), ..Options::default() }, media.clone());
    let executor = Executor::new(Box::new(driver), Order::FirstInFirstOut);
    let result = executor.run(work(&executor));
    executor.stop();
    result.expect("the machine goes on")
}

pub fn run<T>(media: &Media, work: impl AsyncFnOnce(&Executor) -> T) -> T {
    run_with(Vec::new(), media, work)
}

pub fn settings(design: &str, slots: u32, checkpoint: checkpoint::Policy) -> Settings {
    let design = Design::named(design).expect("it has this name");
    let cache = CacheSettings { design, ..CacheSettings::new("flash", slots) };
    Settings {
        home_device: "disk".into(),
        log_device: "disk".into(),
        buffer: buffer::Settings { frames: slots as usize / 5, page_size: 4096, ..buffer::Settings::default() },
        log: log::Settings { capacity: 16 << 20, ..log::Settings::default() },
        hierarchy: second_level::Settings { cache: Some(cache), ..second_level::Settings::default() },
        checkpoint,
        ..Settings::default()
    }
}

pub async fn read(database: &Database, number: u64) -> Result<u8> {
    let partition = database.partition("objects").expect("it exists");
    database.transaction(async |tx| tx.read_object(partition, number, |bytes| bytes[0]).await).await
}

pub async fn change(database: &Database, number: u64, value: u8) -> Result<()> {
    let partition = database.partition("objects").expect("it exists");
    let write = async |tx: &mut Transaction| tx.modify_object(partition, number, |bytes| bytes[0] = value).await;
    database.transaction(write).await
}

fn hits(database: &Database) -> u64 {
    database.tiers()[0].reads
}

/// How many objects, each on a page of its own, a database with a cache of this many slots has.
pub fn objects(slots: u32) -> u64 {
    u64::from(slots) * 13 / 10
}

/// Fills the cache, and changes much since the last checkpoint. What the objects are then.
pub fn filled(media: &Media, (design, slots): (&str, u32), end: End) -> Vec<u8> {
    filled_in(media, (design, slots), end, |settings| settings)
}

/// The same with settings that are made of the usual ones.
pub fn filled_in(
    media: &Media,
    (design, slots): (&str, u32),
    end: End,
    with: impl FnOnce(Settings) -> Settings,
) -> Vec<u8> {
    let mut values = vec![1; objects(slots) as usize];
    run(media, async |executor| {
        let settings = with(settings(design, slots, checkpoint::Policy::OFF));
        let database = Database::create(executor, settings).await.expect("creates");
        let organization = Organization::Direct { objects: objects(slots), blocking_factor: 1, record_size: 100 };
        let spec = PartitionSpec::new("objects", organization, Locking::Page);
        database.create_partition(PartitionSpec { device: "volume".into(), ..spec }).await.expect("creates");
        for number in 0..objects(slots) {
            change(&database, number, 1).await.expect("changes");
        }
        database.checkpoint().await.expect("succeeds");
        let mut random = Random::stream(7, "restarts");
        for _ in 0..objects(slots) {
            read(&database, random.below(objects(slots))).await.expect("reads");
        }
        for count in 0..objects(slots) {
            let number = random.below(objects(slots));
            values[number as usize] = count as u8;
            change(&database, number, count as u8).await.expect("changes");
        }
        if end == End::Close {
            database.close().await.expect("closes");
        }
    });
    if end == End::PowerCut {
        media.power_cut(&mut Random::stream(5, "power cut"), &PowerCut { lost: 0.4, torn: 0.2 });
    }
    values
}

/// A checkpoint is due by what is to be redone.
const OFTEN: checkpoint::Policy = checkpoint::Policy { log_bytes: Some(32 << 10), interval_ns: None };

/// How long it takes from the beginning of the opening to the end of the first transaction that reads from the cache, in nanoseconds.
async fn first_hit_ns(executor: &Executor, settings: &Settings, values: &[u8]) -> (Database, u64) {
    let began = executor.now();
    let database = Database::open(executor, settings.clone(), "here").await.expect("opens");
    let mut random = Random::stream(3, "restarts");
    // What redo has read counts for nothing.
    let before = hits(&database);
    while hits(&database) == before {
        let number = random.below(values.len() as u64);
        assert_eq!(read(&database, number).await.expect("reads"), values[number as usize]);
    }
    (database, executor.now().since_ns(began))
}

pub async fn check_all(database: &Database, values: &[u8], what: &str) {
    for (number, value) in values.iter().enumerate() {
        let found = read(database, number as u64).await.unwrap_or_else(|error| panic!("{what}: {number}: {error}"));
        assert_eq!(found, *value, "{what}: {number}");
    }
}

#[test]
fn a_full_cache_serves_within_the_first_second_whatever_its_size() {
    for design in DESIGNS {
        for end in [End::Close, End::Kill, End::PowerCut] {
            let times = [500, 4_000].map(|slots| {
                let (media, what) = (Media::new(), format!("{design}, {slots} slots, {end:?}"));
                let values = filled(&media, (design, slots), end);
                let settings = settings(design, slots, OFTEN);
                let time = run(&media, async |executor| first_hit_ns(executor, &settings, &values).await.1);
                // Killed again before much was written back: the same is to be redone.
                let again = run(&media, async |executor| {
                    let (database, again) = first_hit_ns(executor, &settings, &values).await;
                    check_all(&database, &values, &what).await;
                    database.buffer().tiers().expect("there is a cache").check().expect("consistent");
                    again
                });
                run(&media, async |executor| {
                    let database = Database::open(executor, settings.clone(), "here").await.expect("opens");
                    check_all(&database, &values, &what).await;
                });
                time.max(again)
            });
            let [small, large] = times;
            assert!(large < SECOND_NS, "{design}, {end:?}: {times:?} ns");
            assert!(large < 2 * small + 100 * MILLISECOND_NS, "{design}, {end:?}: {times:?} ns");
        }
    }
}

fn failing(kind: OpKind, device: &str) -> Vec<ErrorAt> {
    (1..20_000).map(|nth| ErrorAt { kind, device: Some(device.into()), nth }).collect()
}

/// An opening does not wait for its checkpoint, so it does not fail with that; a listener is told, and the next opening redoes the
/// same.
#[test]
fn a_checkpoint_that_fails_behind_an_opening_is_told_and_tried_again() {
    const SLOTS: u32 = 2_000;
    for design in DESIGNS {
        let media = Media::new();
        let values = filled(&media, (design, SLOTS), End::Kill);
        let failures = Rc::new(RefCell::new(Vec::new()));
        let listener: Rc<dyn Listener> = Rc::new(Heard(Rc::clone(&failures)));
        let settings = settings(design, SLOTS, OFTEN);
        // What is changed need not leave.
        let buffer = buffer::Settings { frames: 2 * SLOTS as usize, ..settings.buffer };
        let settings = Settings { listener: Some(listener), buffer, ..settings };
        run_with(failing(OpKind::Write, "volume"), &media, async |executor| {
            let database = Database::open(executor, settings.clone(), "here").await.expect("opens");
            assert!(database.recovery().pages_left > 100, "{design}: {:?}", database.recovery());
            assert!(failures.borrow().is_empty(), "{design}: the opening has not waited for it");
            for number in 0..50 {
                assert_eq!(read(&database, number).await.expect("reads"), values[number as usize], "{design}");
            }
            executor.sleep_ns(20 * SECOND_NS).await;
            let told = failures.borrow().len();
            assert!(told > 1, "{design}: told {told} times");
            assert!(database.close().await.is_err(), "{design}");
        });
        run(&media, async |executor| {
            let database = Database::open(executor, settings.clone(), "here").await.expect("opens");
            check_all(&database, &values, design).await;
        });
    }
}

/// The errors of checkpoints.
#[derive(Debug)]
struct Heard(Rc<RefCell<Vec<String>>>);

impl Listener for Heard {
    fn slow_ns(&self) -> u64 {
        u64::MAX
    }

    fn hear(&self, event: &Event<'_>) {
        if let Event::Checkpoint { error: Some(error), .. } = event {
            self.0.borrow_mut().push(error.to_string());
        }
    }
}

/// Nothing is left when a database is closed, be it at once after it was opened.
#[test]
pub fn a_database_that_is_closed_at_once_has_redone_everything() {
    for design in DESIGNS {
        let media = Media::new();
        let values = filled(&media, (design, 500), End::Kill);
        let settings = settings(design, 500, OFTEN);
        run(&media, async |executor| {
            let database = Database::open(executor, settings.clone(), "here").await.expect("opens");
            assert!(database.recovery().pages_left > 100, "{design}: {:?}", database.recovery());
            database.close().await.expect("closes");
        });
        run(&media, async |executor| {
            let database = Database::open(executor, settings.clone(), "here").await.expect("opens");
            // FaCE's cache keeps what only it has, and the log what would make that anew.
            assert!(database.recovery().pages_left == 0 || design == "face", "{design}: {:?}", database.recovery());
            check_all(&database, &values, design).await;
        });
    }
}

/// Killed again and again while redo goes on behind the openings, at other moments, beside changes.
#[test]
fn kills_while_redo_goes_on_cost_nothing_that_was_committed() {
    for design in DESIGNS {
        let media = Media::new();
        let mut values = filled(&media, (design, 500), End::PowerCut);
        let settings = settings(design, 500, OFTEN);
        let mut random = Random::stream(11, design);
        for life in 0..12 {
            run(&media, async |executor| {
                let what = format!("{design}, life {life}");
                let database = Database::open(executor, settings.clone(), "here").await.expect("opens");
                for count in 0..random.below(60) {
                    let number = random.below(values.len() as u64);
                    assert_eq!(read(&database, number).await.expect("reads"), values[number as usize], "{what}");
                    values[number as usize] = count as u8;
                    change(&database, number, count as u8).await.expect("changes");
                }
                executor.sleep_ns(random.below(300) * MILLISECOND_NS).await;
            });
            media.power_cut(&mut Random::stream(life, "power cut"), &PowerCut { lost: 0.5, torn: 0.3 });
        }
        run(&media, async |executor| {
            let database = Database::open(executor, settings.clone(), "here").await.expect("opens");
            check_all(&database, &values, design).await;
            database.close().await.expect("closes");
        });
    }
}

/// Transactions that fill the log just behind an opening get room once redo is over.
#[test]
fn a_small_log_has_room_behind_an_opening() {
    for design in DESIGNS {
        let media = Media::new();
        let small =
            |settings: Settings| Settings { log: log::Settings { capacity: 1 << 20, ..settings.log }, ..settings };
        let mut values = filled_in(&media, (design, 500), End::Kill, small);
        let settings = small(settings(design, 500, OFTEN));
        run(&media, async |executor| {
            let database = Database::open(executor, settings.clone(), "here").await.expect("opens");
            for count in 0..4_000_u64 {
                let number = count * 7 % values.len() as u64;
                values[number as usize] = count as u8;
                change(&database, number, count as u8).await.expect("changes");
            }
            check_all(&database, &values, design).await;
        });
        run(&media, async |executor| {
            let database = Database::open(executor, settings.clone(), "here").await.expect("opens");
            check_all(&database, &values, design).await;
        });
    }
}
