//! The log's file comes into being as it is filled: no restart depends on how much of it is there, and a device without room for
//! more of it refuses work that has not begun.

use crate::ground::cut_machine::run_up_to;
use base::Random;
use base::time::SECOND_NS;
use driver::{Access, Halt, Op, OpKind};
use entresol_engine::catalog::{Locking, Organization};
use entresol_engine::{
    Database, Error, Internals, PartitionSpec, Result, SUPERBLOCK_FILE, Settings, Transaction, buffer, checkpoint, log,
};
use executor::{Executor, Order};
use std::cell::Cell;
use virtual_driver::{ErrorAt, FaultPlan, Hardware, Media, Options, PowerCut, VirtualDriver};

const SIZE: u64 = 1 << 20;
const FIRST: u64 = 64 << 10;
const KEYS: u32 = 100;

fn settings() -> Settings {
    Settings {
        buffer: buffer::Settings { frames: 64, page_size: 1024, ..buffer::Settings::default() },
        log: log::Settings { capacity: SIZE, first_extent: FIRST, ..log::Settings::default() },
        checkpoint: checkpoint::Policy { log_bytes: Some(SIZE / 4), interval_ns: None },
        ..Settings::default()
    }
}

/// Runs `work` on a machine whose power goes at this event, if at any, and whose disk has room for no more than `capacity` bytes.
fn run_with<T>(
    media: &Media,
    (power_cut_at, capacity): (Option<u64>, Option<u64>),
    work: impl AsyncFnOnce(&Executor) -> T,
) -> Result<T, Halt> {
    let mut hardware = Hardware::ideal();
    hardware.device_mut("disk").capacity = capacity;
    run_up_to(media, hardware, power_cut_at, work)
}

fn run<T>(media: &Media, work: impl AsyncFnOnce(&Executor) -> T) -> T {
    run_with(media, (None, None), work).expect("the machine goes on")
}

async fn length_of_log(executor: &Executor) -> u64 {
    let device = executor.device("disk").expect("described");
    executor.open(device, "log", false).await.expect("there is a log").1
}

/// Puts records of half a page under the numbers from `from` on, until one fails. Each that succeeds is noted in `put`.
async fn put_numbers(database: &Database, numbers: std::ops::Range<u32>, put: &Cell<u32>) -> Result<()> {
    let rows = database.partition("rows")?;
    for number in numbers {
        let value = [number as u8; 400];
        database.transaction(async |tx| tx.put(rows, &(number % KEYS).to_be_bytes(), &value).await).await?;
        put.set(number + 1);
    }
    Ok(())
}

/// All that was put is there: the last numbers, one for each key.
async fn verify(database: &Database, put: u32) {
    let rows = database.partition("rows").expect("was created");
    let mut tx = database.begin().await.expect("begins");
    for number in put.saturating_sub(KEYS)..put {
        let found = tx.get(rows, &(number % KEYS).to_be_bytes()).await.expect("reads").expect("was put");
        // What was on its way when the power went may be there, too.
        assert!(found == [number as u8; 400] || number + KEYS == put, "number {number} of {put}");
    }
    tx.rollback().await.expect("ends");
    assert!(database.check(|_| {}).await.expect("reads").is_clean());
}

async fn create(executor: &Executor) -> Result<Database> {
    let database = Database::create(executor, settings()).await?;
    database.create_partition(PartitionSpec::b_tree("rows")).await?;
    Ok(database)
}

#[test]
fn the_file_grows_as_it_is_filled_and_then_goes_round() {
    let media = Media::new();
    let put = Cell::new(0);
    run(&media, async |executor| {
        let database = create(executor).await.expect("creates");
        assert_eq!(length_of_log(executor).await, FIRST);
        put_numbers(&database, 0..60, &put).await.expect("there is room");
        let present = length_of_log(executor).await;
        assert!((FIRST + 1..SIZE).contains(&present) && database.log().extent() == present, "{present}");
        assert_eq!(database.log().capacity(), SIZE);
    });
    media.power_cut(&mut Random::stream(1, "cut"), &PowerCut { lost: 1.0, torn: 0.0 });
    run(&media, async |executor| {
        let database = Database::open(executor, settings(), "here").await.expect("opens");
        verify(&database, put.get()).await;
        put_numbers(&database, 60..1_000, &put).await.expect("there is room");
        assert!(database.log().end().0 > 2 * SIZE, "it goes round: {}", database.log().end());
        assert_eq!(length_of_log(executor).await, SIZE);
        verify(&database, put.get()).await;
        database.close().await.expect("closes");
    });
}

/// One life up to event `cut`, and the next opening.
/// Not as a deadlock's victims, which begin again, for ever.
#[test]
fn transactions_for_which_only_the_margin_is_left_are_refused_by_name() {
    for (size, reserve) in [(4 * FIRST, 0.25), (FIRST, 0.0)] {
        let mut hardware = Hardware::ideal();
        hardware.device_mut("flash").capacity = Some(FIRST);
        let done = run_up_to(&Media::new(), hardware, None, async |executor| {
            let log = log::Settings { capacity: size, first_extent: FIRST, reserve, ..log::Settings::default() };
            let buffer = buffer::Settings { frames: 64, page_size: 16 << 10, ..buffer::Settings::default() };
            let (log_device, checkpoint) = ("flash".to_owned(), checkpoint::Policy::OFF);
            let database =
                Database::create(executor, Settings { log, log_device, buffer, checkpoint, ..settings() }).await?;
            let organization = Organization::Direct { objects: 100, blocking_factor: 1, record_size: 100 };
            let rows = database.create_partition(PartitionSpec::new("rows", organization, Locking::Page)).await?;
            let mut refused = 0;
            for number in 0..300_u32 {
                let change =
                    async |tx: &mut Transaction| tx.modify_object(rows, 0, |bytes| bytes[0] = number as u8).await;
                let changed = executor.within(60 * SECOND_NS, database.transaction(change)).await;
                match changed.unwrap_or_else(|| panic!("number {number} waits for ever")) {
                    Err(Error::LogNotGrown { .. }) => refused += 1,
                    changed => changed?,
                }
            }
            database.close().await?;
            Ok::<_, Error>(refused)
        });
        let refused = done.expect("the machine goes on").expect("nothing else fails");
        assert_eq!(refused > 0, size > FIRST, "where the file is all there, a checkpoint makes room: {refused}");
    }
}

fn live_and_look(cut: u64, seed: u64) -> bool {
    let (media, put, is_created) = (Media::new(), Cell::new(0), Cell::new(false));
    let lived = run_with(&media, (Some(cut), None), async |executor| {
        let database = create(executor).await.expect("creates");
        is_created.set(true);
        put_numbers(&database, 0..300, &put).await.expect("there is room");
    });
    media.power_cut(&mut Random::stream(seed, "cut"), &PowerCut::default());
    if is_created.get() {
        run(&media, async |executor| {
            let database = Database::open(executor, settings(), "here").await.expect("opens");
            verify(&database, put.get()).await;
            put_numbers(&database, put.get()..put.get() + 40, &put).await.expect("there is room");
        });
        media.power_cut(&mut Random::stream(seed, "second cut"), &PowerCut::default());
        run(&media, async |executor| {
            let database = Database::open(executor, settings(), "here").await.expect("opens");
            verify(&database, put.get()).await;
        });
    }
    lived.is_ok()
}

#[test]
fn a_power_cut_at_any_moment_of_its_growth_loses_nothing() {
    let lived = (100..2_000).step_by(61).filter(|cut| live_and_look(*cut, *cut)).count();
    assert!(lived > 0, "the last of them come after the end");
}

/// A device that is nearly full from the first records on, and has room later.
fn fill_device() {
    let (media, put) = (Media::new(), Cell::new(0));
    run_with(&media, (None, Some(4 << 20)), async |executor| {
        let database = create(executor).await.expect("creates");
        // The pages have all the room that they will need.
        put_numbers(&database, 0..10, &put).await.expect("there is room");
        let device = executor.device("disk").expect("described");
        let (filler, _) = executor.open(device, "filler", true).await.expect("opens");
        // All that is left, but for what the pages need.
        let mut length = 0;
        while executor.perform(Op::Resize { file: filler, length: length + 4096, prewrite: false }).await.result.is_ok()
        {
            length += 4096;
        }
        executor
            .perform(Op::Resize { file: filler, length: length - (320 << 10), prewrite: false })
            .await
            .result
            .expect("shrinks");
        let refused = put_numbers(&database, 10..2_000, &put).await.expect_err("there is no room");
        assert!(matches!(&refused, Error::LogNotGrown { file, .. } if file == "log"), "{refused}");
        assert!(refused.to_string().contains("make room"), "{refused}");
        assert_eq!(database.log().failure(), None);
        let stopped = put.get();
        assert!(stopped > 10 && length_of_log(executor).await < SIZE);
        verify_reads(&database, stopped).await;
        // Again, and no other way.
        let refused = put_numbers(&database, stopped..stopped + 1, &put).await.expect_err("there is no room");
        assert!(matches!(refused, Error::LogNotGrown { .. }), "{refused}");
        executor.perform(Op::Resize { file: filler, length: 0, prewrite: false }).await.result.expect("shrinks");
        put_numbers(&database, stopped..stopped + 300, &put).await.expect("there is room");
        assert!(database.check(|_| {}).await.expect("reads").is_clean());
    })
    .expect("the machine goes on");
    media.power_cut(&mut Random::stream(3, "cut"), &PowerCut { lost: 1.0, torn: 0.0 });
    run(&media, async |executor| {
        let database = Database::open(executor, settings(), "here").await.expect("opens");
        verify(&database, put.get()).await;
    });
}

#[test]
fn a_full_device_refuses_what_has_not_begun_and_goes_on_when_there_is_room() {
    fill_device();
}

/// What a sync has once told that it lost a later one may not tell again.
#[test]
fn a_device_that_fails_while_the_file_grows_fails_the_log() {
    let on_flash = Settings { log_device: "flash".into(), ..settings() };
    let machine = |media: &Media, errors: Vec<ErrorAt>| {
        let mut hardware = Hardware::ideal();
        hardware.device_mut("flash");
        let options = Options { faults: Some(FaultPlan { errors, ..FaultPlan::default() }), ..Options::default() };
        Executor::new(Box::new(VirtualDriver::new(hardware, options, media.clone())), Order::FirstInFirstOut)
    };
    // The first step is that of the creation.
    for nth in 2..5 {
        let (media, put) = (Media::new(), Cell::new(0));
        let executor = machine(&media, vec![ErrorAt { kind: OpKind::Resize, device: Some("flash".into()), nth }]);
        let lived = executor.run(async {
            let database = Database::create(&executor, on_flash.clone()).await.expect("creates");
            database.create_partition(PartitionSpec::b_tree("rows")).await.expect("creates");
            let failed = put_numbers(&database, 0..2_000, &put).await.expect_err("the device fails");
            assert!(matches!(failed, Error::LogFailed(_)), "{failed}");
            assert!(matches!(database.log().failure(), Some(Error::LogFailed(_))));
        });
        lived.expect("the machine goes on");
        executor.stop();
        media.power_cut(&mut Random::stream(nth, "cut"), &PowerCut { lost: 1.0, torn: 0.0 });
        let executor = machine(&media, Vec::new());
        let lived = executor.run(async {
            let database = Database::open(&executor, on_flash.clone(), "here").await.expect("opens");
            verify(&database, put.get()).await;
            put_numbers(&database, put.get()..put.get() + 300, &put).await.expect("there is room");
        });
        lived.expect("the machine goes on");
        executor.stop();
    }
}

/// A transaction that has not ended keeps its room in the log for ever then: others are told what has happened, and are not run again and
/// again as victims of a deadlock.
#[test]
fn behind_a_log_that_has_failed_none_gives_up_for_one_that_cannot_end() {
    let mut hardware = Hardware::ideal();
    hardware.device_mut("flash");
    let error = ErrorAt { kind: OpKind::Resize, device: Some("flash".into()), nth: 3 };
    let options =
        Options { faults: Some(FaultPlan { errors: vec![error], ..FaultPlan::default() }), ..Options::default() };
    let driver = VirtualDriver::new(hardware, options, Media::new());
    let executor = Executor::new(Box::new(driver), Order::FirstInFirstOut);
    let lived = executor.run(async {
        let settings = Settings { log_device: "flash".into(), checkpoint: checkpoint::Policy::OFF, ..settings() };
        let database = Database::create(&executor, settings).await.expect("creates");
        let rows = database.create_partition(PartitionSpec::b_tree("rows")).await.expect("creates");
        let mut held = database.begin().await.expect("begins");
        for number in KEYS.. {
            if held.put(rows, &number.to_be_bytes(), &[1; 400]).await.is_err() {
                break;
            }
        }
        assert!(matches!(database.log().failure(), Some(Error::LogFailed(_))));
        let put = async |tx: &mut Transaction| tx.put(rows, &[1; 4], &[2; 400]).await;
        let told = executor.within(10 * SECOND_NS, database.transaction(put)).await;
        assert!(matches!(told, Some(Err(Error::LogFailed(_)))), "{told:?}");
    });
    lived.expect("the machine goes on");
    executor.stop();
}

/// One of two devices fails in a step, others wait to write the superblock file, and the power goes.
#[test]
fn a_checkpoint_between_the_loss_of_a_device_while_it_grows_and_its_statement_says_nothing_wrong() {
    let both = log::Second { device: "flash".into(), acknowledged: log::Acknowledged::Both };
    let log = log::Settings { second: Some(both), ..settings().log };
    let checkpoint = checkpoint::Policy { log_bytes: Some(8 << 10), interval_ns: None };
    let settings = Settings { log, checkpoint, ..settings() };
    let machine = |media: &Media, power_cut_at: Option<u64>, errors: Vec<ErrorAt>| {
        let mut hardware = Hardware::ideal();
        hardware.device_mut("flash");
        let options =
            Options { faults: Some(FaultPlan { power_cut_at, errors, ..FaultPlan::default() }), ..Options::default() };
        Executor::new(Box::new(VirtualDriver::new(hardware, options, media.clone())), Order::FirstInFirstOut)
    };
    let (mut before, mut alone) = (0, 0);
    for cut in 50..170 {
        let (media, put, is_created) = (Media::new(), Cell::new(0), Cell::new(false));
        let errors = vec![ErrorAt { kind: OpKind::Resize, device: Some("flash".into()), nth: 2 }];
        let executor = machine(&media, Some(cut), errors);
        let lived = executor.run(async {
            let database = Database::create(&executor, settings.clone()).await.expect("creates");
            database.create_partition(PartitionSpec::b_tree("rows")).await.expect("creates");
            is_created.set(true);
            for task in 0..3 {
                let database = database.clone();
                executor.spawn(async move {
                    for number in 0..20 {
                        database.checkpoint().await.expect("takes one");
                        let spec = PartitionSpec::b_tree(&format!("other-{task}-{number}"));
                        database.create_partition(spec).await.expect("creates");
                    }
                });
            }
            put_numbers(&database, 0..40, &put).await.expect("one device is enough");
        });
        executor.stop();
        assert_eq!(lived, Err(Halt::PowerCut));
        media.power_cut(&mut Random::stream(cut, "cut"), &PowerCut::default());
        if !is_created.get() {
            continue;
        }
        let executor = machine(&media, None, Vec::new());
        let opened = executor.run(async {
            let database = Database::open(&executor, settings.clone(), "here").await;
            let database = database.unwrap_or_else(|error| panic!("after event {cut}: {error}"));
            *(if database.log().extent() > FIRST { &mut alone } else { &mut before }) += 1;
            verify(&database, put.get()).await;
        });
        opened.expect("the machine goes on");
        executor.stop();
    }
    assert!(before > 5 && alone > 5, "{before} {alone}");
}

#[cfg(feature = "canary")]
#[test]
fn a_log_that_is_written_where_nothing_is_yet_is_caught() {
    use entresol_engine::canary::{Canary, plant};
    plant(Some(Canary::UnpreparedLog));
    let caught = std::panic::catch_unwind(fill_device);
    plant(None);
    assert!(caught.is_err());
}

/// Snapshots need no log.
async fn verify_reads(database: &Database, put: u32) {
    let rows = database.partition("rows").expect("was created");
    let mut snapshot = database.snapshot().await.expect("reads");
    let number = put - 1;
    let found = snapshot.get(rows, &(number % KEYS).to_be_bytes()).await.expect("reads");
    assert_eq!(found.as_deref(), Some(&[number as u8; 400][..]));
}

#[test]
fn a_file_that_was_cut_is_named() {
    let (media, put) = (Media::new(), Cell::new(0));
    run(&media, async |executor| {
        let database = create(executor).await.expect("creates");
        put_numbers(&database, 0..400, &put).await.expect("there is room");
        database.close().await.expect("closes");
        let device = executor.device("disk").expect("described");
        let (file, length) = executor.open(device, "log", false).await.expect("opens");
        assert!(length > 2 * FIRST);
        executor.perform(Op::Resize { file, length: FIRST, prewrite: false }).await.result.expect("shrinks");
        let error = Database::open(executor, settings(), "here").await.map(|_| ()).expect_err("it was cut");
        assert!(matches!(&error, Error::DamagedLog { file, .. } if file == "log"), "{error}");
    });
}

/// The superblock file as an earlier format with `cache_table` had it: the same without its last four entries.
async fn make_earlier(executor: &Executor, format: u32) {
    const CONTENTS: usize = 32;
    let device = executor.device("disk").expect("described");
    let (file, _) = executor.open(device, SUPERBLOCK_FILE, false).await.expect("opens");
    for offset in [0, 64 << 10] {
        let buffer = executor.frame(4096).expect("memory");
        let op = Op::Read { file, offset, length: 4096, buffer, access: Access::Asynchronous };
        let mut block = executor.perform(op).await.buffer.expect("comes back");
        let length = u32::from_le_bytes(block[12..16].try_into().expect("four bytes"));
        // Some, the origin 0, two sizes of three bytes and one, false and none; no archive, and no moments.
        let shape = [&[1_u8, 0][..], &varint(SIZE), &varint(SIZE), &[0, 0, 0, 0]].concat();
        let all = &block[CONTENTS..CONTENTS + length as usize];
        // Behind it which database this is, and up to where it was changed by itself: one and a number each.
        let length = (2..24).map(|behind| all.len() - behind - shape.len()).find(|at| all[*at..].starts_with(&shape));
        let length = length.expect("it is there") as u32;
        block[8..12].copy_from_slice(&format.to_le_bytes());
        block[12..16].copy_from_slice(&length.to_le_bytes());
        let sum = structures::checksum::checksum(&block[24..CONTENTS + length as usize]);
        block[16..20].copy_from_slice(&sum.to_le_bytes());
        let access = Access::Asynchronous;
        let op = Op::Write { file, offset, length: 4096, buffer: block, durable: true, access };
        executor.perform(op).await.result.expect("writes");
    }
}

fn varint(mut number: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    while number >= 128 {
        bytes.push(number as u8 | 128);
        number >>= 7;
    }
    bytes.push(number as u8);
    bytes
}

#[test]
fn databases_of_the_formats_before_open_and_become_one_of_this() {
    open_earlier(9);
    open_earlier(10);
}

fn open_earlier(format: u32) {
    let (media, put) = (Media::new(), Cell::new(0));
    let mut whole = settings();
    whole.log.first_extent = SIZE;
    run(&media, async |executor| {
        let database = Database::create(executor, whole.clone()).await.expect("creates");
        database.create_partition(PartitionSpec::b_tree("rows")).await.expect("creates");
        put_numbers(&database, 0..700, &put).await.expect("there is room");
        database.checkpoint().await.expect("takes one");
        put_numbers(&database, 700..720, &put).await.expect("there is room");
    });
    media.power_cut(&mut Random::stream(4, "cut"), &PowerCut { lost: 1.0, torn: 0.0 });
    run(&media, async |executor| {
        make_earlier(executor, format).await;
        // A release that asks for another size finds that of the file.
        let other = Settings { log: log::Settings { capacity: 4 * SIZE, ..settings().log }, ..settings() };
        let database = Database::open(executor, other, "here").await.expect("opens");
        assert_eq!((database.log().capacity(), database.log().extent()), (SIZE, SIZE));
        assert!(database.recovery().records > 0);
        verify(&database, put.get()).await;
        database.close().await.expect("closes");
        let database = Database::open(executor, settings(), "here").await.expect("opens");
        verify(&database, put.get()).await;
    });
}
