//! A log that moves to another device or gets another size at an opening, with power cuts at every moment of that.

use crate::ground::cut_machine::{run_under, run_up_to};
use base::Random;
use driver::{Halt, Op, OpKind};
use entresol_engine::log::{Acknowledged, Second};
use entresol_engine::{Asked, Database, Error, Internals, PartitionSpec, Result, Settings, buffer, log};
use executor::Executor;
use virtual_driver::{ErrorAt, FaultPlan, Hardware, Media, PowerCut};

const SIZE: u64 = 256 << 10;

fn settings(asked: Asked) -> Settings {
    Settings {
        buffer: buffer::Settings { frames: 64, page_size: 1024, ..buffer::Settings::default() },
        log: log::Settings { capacity: SIZE, first_extent: 64 << 10, ..log::Settings::default() },
        asked,
        ..Settings::default()
    }
}

/// Runs `work` on a machine of two devices whose power goes at this event, if at any.
fn run_with<T>(media: &Media, power_cut_at: Option<u64>, work: impl AsyncFnOnce(&Executor) -> T) -> Result<T, Halt> {
    let mut hardware = Hardware::ideal();
    hardware.device_mut("flash");
    run_up_to(media, hardware, power_cut_at, work)
}

fn run<T>(media: &Media, work: impl AsyncFnOnce(&Executor) -> T) -> T {
    run_with(media, None, work).expect("the machine goes on")
}

/// Records in a b-tree and in a set, some of them only in the log.
fn create(media: &Media) {
    run(media, async |executor| {
        let database = Database::create(executor, settings(Asked::default())).await.expect("creates");
        database.create_partition(PartitionSpec::b_tree("rows")).await.expect("creates");
        database.create_partition(PartitionSpec::set("stock")).await.expect("creates");
        put(&database, 0..30).await;
        database.checkpoint().await.expect("takes one");
        put(&database, 30..50).await;
    });
    media.power_cut(&mut Random::stream(1, "cut"), &PowerCut { lost: 1.0, torn: 0.0 });
}

async fn put(database: &Database, numbers: std::ops::Range<u32>) {
    let parts = [database.partition("rows").expect("is there"), database.partition("stock").expect("is there")];
    for number in numbers {
        let key = number.to_be_bytes();
        let done = database.transaction(async |tx| {
            tx.put(parts[0], &key, &[number as u8; 300]).await?;
            tx.put(parts[1], &key, &key).await
        });
        done.await.expect("commits");
    }
}

async fn verify(database: &Database, count: u32) {
    let parts = [database.partition("rows").expect("is there"), database.partition("stock").expect("is there")];
    let mut tx = database.begin().await.expect("begins");
    for number in 0..count {
        let key = number.to_be_bytes();
        assert_eq!(tx.get(parts[0], &key).await.expect("reads"), Some(vec![number as u8; 300]), "{number}");
        assert_eq!(tx.get(parts[1], &key).await.expect("reads"), Some(key.to_vec()), "{number}");
    }
    tx.rollback().await.expect("ends");
    assert!(database.check(|_| {}).await.expect("reads").is_clean());
}

async fn length(executor: &Executor, device: &str) -> Option<u64> {
    let device = executor.device(device).expect("described");
    executor.open(device, "log", false).await.ok().map(|(_, length)| length)
}

fn to_flash(size: u64) -> Asked {
    Asked { log_device: Some("flash".into()), log_size: Some(size), ..Asked::default() }
}

#[test]
fn a_log_moves_and_gets_another_size_and_stays_there() {
    let media = Media::new();
    create(&media);
    run(&media, async |executor| {
        let database = Database::open(executor, settings(to_flash(4 * SIZE)), "here").await.expect("opens");
        assert_eq!(database.log().capacity(), 4 * SIZE);
        assert_eq!((length(executor, "disk").await, length(executor, "flash").await), (None, Some(64 << 10)));
        verify(&database, 50).await;
        put(&database, 50..900).await;
        assert!(database.log().end().0 > database.log().circle().origin + 4 * SIZE / 2);
    });
    media.power_cut(&mut Random::stream(2, "cut"), &PowerCut { lost: 1.0, torn: 0.0 });
    run(&media, async |executor| {
        let database = Database::open(executor, settings(Asked::default()), "here").await.expect("opens");
        assert_eq!(database.log().capacity(), 4 * SIZE, "what is not asked for stays");
        verify(&database, 900).await;
    });
    media.power_cut(&mut Random::stream(3, "cut"), &PowerCut::default());
    let smaller = Asked { log_size: Some(SIZE / 2 + 5), ..Asked::default() };
    run(&media, async |executor| {
        let database = Database::open(executor, settings(smaller.clone()), "here").await.expect("opens");
        assert_eq!(database.log().capacity(), SIZE / 2, "whole pages");
        put(&database, 900..1_900).await;
        verify(&database, 1_900).await;
        let circle = database.log().circle();
        assert!(database.log().end().0 > circle.origin + 2 * circle.size, "it goes round");
    });
    media.power_cut(&mut Random::stream(4, "cut"), &PowerCut::default());
    run(&media, async |executor| {
        let database = Database::open(executor, settings(smaller.clone()), "here").await.expect("opens");
        verify(&database, 1_900).await;
    });
}

#[test]
fn a_power_cut_at_any_moment_of_a_move_loses_nothing() {
    let (mut before, mut after) = (0, 0);
    for asked in [to_flash(2 * SIZE), Asked { log_size: Some(SIZE / 2), ..Asked::default() }] {
        for event in 1.. {
            let media = Media::new();
            create(&media);
            let moved = run_with(&media, Some(event * 5), async |executor| {
                let database = Database::open(executor, settings(asked.clone()), "here").await.expect("opens");
                put(&database, 50..53).await;
            });
            media.power_cut(&mut Random::stream(event, "cut"), &PowerCut::default());
            run(&media, async |executor| {
                let database = Database::open(executor, settings(Asked::default()), "here").await.expect("opens");
                let is_moved = database.log().circle().origin > 0;
                *(if is_moved { &mut after } else { &mut before }) += 1;
                verify(&database, if moved.is_ok() { 53 } else { 50 }).await;
                put(&database, 50..60).await;
                assert!(length(executor, "disk").await.is_none() || length(executor, "flash").await.is_none());
            });
            media.power_cut(&mut Random::stream(event, "again"), &PowerCut::default());
            run(&media, async |executor| {
                let database = Database::open(executor, settings(asked.clone()), "here").await.expect("opens");
                verify(&database, 60).await;
            });
            if moved.is_ok() {
                break;
            }
        }
    }
    assert!(before > 5 && after > 5, "{before} {after}");
}

#[test]
fn a_log_does_not_move_to_its_second_device() {
    let media = Media::new();
    create(&media);
    run(&media, async |executor| {
        let mut both = settings(to_flash(SIZE));
        both.log.second = Some(Second { device: "flash".into(), acknowledged: Acknowledged::Both });
        let refused = Database::open(executor, both, "here").await.map(drop);
        assert!(matches!(&refused, Err(Error::Setting(why)) if why.contains("its first one, too")), "{refused:?}");
        assert_eq!(length(executor, "flash").await, None, "it is where it was");
        let database = Database::open(executor, settings(Asked::default()), "here").await.expect("opens");
        verify(&database, 50).await;
    });
}

/// The device that the log is to move to has no room for it. The old file is as good as gone by then.
#[test]
fn a_log_that_cannot_be_made_where_it_was_asked_for_is_made_where_it_is_asked_for_next() {
    let run_short_of_room = |media: &Media, asked: Asked| {
        let mut hardware = Hardware::ideal();
        hardware.device_mut("flash").capacity = Some(8 << 10);
        let open = async |executor: &Executor| {
            let database = Database::open(executor, settings(asked), "here").await?;
            verify(&database, 50).await;
            put(&database, 50..60).await;
            assert_eq!(length(executor, "flash").await, None);
            Ok::<_, Error>(database.log().capacity())
        };
        run_up_to(media, hardware, None, open).expect("the machine goes on")
    };
    for (size, wanted) in [(None, 2 * SIZE), (Some(SIZE / 2), SIZE / 2)] {
        let media = Media::new();
        create(&media);
        for attempt in 0..2 {
            let refused = run_short_of_room(&media, to_flash(2 * SIZE)).expect_err("there is no room");
            assert!(refused.to_string().contains("make room for the log"), "{refused}");
            media.power_cut(&mut Random::stream(attempt, "cut"), &PowerCut::default());
        }
        let back = Asked { log_device: Some("disk".into()), log_size: size, ..Asked::default() };
        assert_eq!(run_short_of_room(&media, back), Ok(wanted));
        media.power_cut(&mut Random::stream(2, "cut"), &PowerCut::default());
        run(&media, async |executor| {
            let database = Database::open(executor, settings(to_flash(SIZE)), "here").await.expect("opens");
            verify(&database, 60).await;
            assert_eq!((length(executor, "disk").await, length(executor, "flash").await), (None, Some(64 << 10)));
        });
    }
}

/// What the device of before refuses to remove is removed later, and is not taken for another's where the log moves back.
#[test]
fn a_log_moves_back_to_a_device_that_did_not_remove_it() {
    let back = Asked { log_device: Some("disk".into()), ..Asked::default() };
    let mut left = 0;
    for nth in 1..10 {
        let media = Media::new();
        create(&media);
        let errors = vec![ErrorAt { kind: OpKind::Remove, device: Some("disk".into()), nth }];
        let faults = FaultPlan { errors, ..FaultPlan::default() };
        let is_left = run_under(&media, Hardware::ideal(), faults, async |executor| {
            let database = Database::open(executor, settings(to_flash(SIZE)), "here").await.ok()?;
            database.checkpoint().await.expect("takes one");
            Some(length(executor, "disk").await.is_some())
        });
        let Some(is_left) = is_left.expect("the machine goes on") else { continue };
        left += u32::from(is_left);
        for asked in [back.clone(), to_flash(SIZE)] {
            media.power_cut(&mut Random::stream(nth, "cut"), &PowerCut::default());
            run(&media, async |executor| {
                let device = asked.log_device.clone();
                let opened = Database::open(executor, settings(asked), "here").await;
                let database = opened.unwrap_or_else(|error| panic!("{nth}: {error}"));
                verify(&database, 50).await;
                let other = if device.as_deref() == Some("disk") { "flash" } else { "disk" };
                assert_eq!(length(executor, other).await, None);
            });
        }
    }
    assert_eq!(left, 1, "one of the files is that of the log");
}

/// Runs `work` on a machine of these devices whose power goes at this event, if at any.
fn run_on<T>(
    devices: &[&str],
    media: &Media,
    power_cut_at: Option<u64>,
    work: impl AsyncFnOnce(&Executor) -> T,
) -> Result<T, Halt> {
    let mut hardware = Hardware::ideal();
    hardware.devices.insert("other".into(), hardware.devices["flash"].clone());
    hardware.devices.retain(|name, _| devices.contains(&&name[..]));
    run_up_to(media, hardware, power_cut_at, work)
}

#[test]
fn a_log_on_two_devices_whose_move_is_cut_off_does_without_either() {
    let settings = |asked: Asked, without: Option<&str>| {
        let second = Some(Second { device: "other".into(), acknowledged: Acknowledged::Both });
        let base = settings(asked);
        let log = log::Settings { second, without: without.map(String::from), ..base.log.clone() };
        Settings { log_device: "flash".into(), log, ..base }
    };
    let all = ["disk", "flash", "other"];
    let mut cut_off = 0;
    for (event, lost) in (0..400).step_by(3).flat_map(|event| [(event, "flash"), (event, "other")]) {
        let media = Media::new();
        let created = run_on(&all, &media, None, async |executor| {
            let database = Database::create(executor, settings(Asked::default(), None)).await.expect("creates");
            database.create_partition(PartitionSpec::b_tree("rows")).await.expect("creates");
            database.create_partition(PartitionSpec::set("stock")).await.expect("creates");
            put(&database, 0..30).await;
        });
        created.expect("the machine goes on");
        media.power_cut(&mut Random::stream(event, "cut"), &PowerCut { lost: 1.0, torn: 0.0 });
        let asked = Asked { log_size: Some(2 * SIZE), ..Asked::default() };
        let moved = run_on(&all, &media, Some(event), async |executor| {
            Database::open(executor, settings(asked, None), "here").await.map(|_| ()).expect("opens");
        });
        cut_off += u64::from(moved.is_err());
        media.power_cut(&mut Random::stream(event, "cut"), &PowerCut { lost: 1.0, torn: 0.0 });
        let left: Vec<&str> = all.into_iter().filter(|device| *device != lost).collect();
        let alone = run_on(&left, &media, None, async |executor| {
            let database = Database::open(executor, settings(Asked::default(), Some(lost)), "here").await;
            let database = database.unwrap_or_else(|error| panic!("cut at {event}, without {lost}: {error}"));
            assert!(!database.log().is_duplexed());
            verify(&database, 30).await;
            put(&database, 30..40).await;
        });
        alone.expect("the machine goes on");
        media.power_cut(&mut Random::stream(event, "cut"), &PowerCut { lost: 1.0, torn: 0.0 });
        let together = run_on(&all, &media, None, async |executor| {
            let database = Database::open(executor, settings(Asked::default(), None), "here").await.expect("opens");
            assert!(database.log().is_duplexed());
            verify(&database, 40).await;
        });
        together.expect("the machine goes on");
    }
    assert!(cut_off > 60, "{cut_off} of the moves were cut off");
}

#[test]
fn what_cannot_be_followed_is_refused_by_its_name() {
    let media = Media::new();
    create(&media);
    run(&media, async |executor| {
        let refusals = [
            (Asked { page_size: Some(8192), ..Asked::default() }, "page_size in [buffer] is 8192 bytes"),
            (Asked { log_page_size: Some(512), ..Asked::default() }, "page_size in [log] is 512 bytes"),
            (Asked { log_device: Some("drum".into()), ..Asked::default() }, "drum"),
            (Asked { log_size: Some(9_000), ..Asked::default() }, "at least eight pages"),
        ];
        for (asked, why) in refusals {
            let error = Database::open(executor, settings(asked), "here").await.map(|_| ()).expect_err("is refused");
            assert!(error.to_string().contains(why), "{error}");
        }
        let flash = executor.device("flash").expect("described");
        executor.open(flash, "log", true).await.expect("a file of someone else");
        let error = Database::open(executor, settings(to_flash(SIZE)), "here").await.map(|_| ()).expect_err("refused");
        assert!(matches!(&error, Error::Setting(why) if why.contains("holds a file 'log'")), "{error}");
        executor.perform(Op::Remove { device: flash, name: "log".into() }).await.result.expect("removes");
        let same = Asked { page_size: Some(1024), log_page_size: Some(4096), log_size: Some(SIZE), ..to_flash(SIZE) };
        let database = Database::open(executor, settings(same), "here").await.expect("opens");
        verify(&database, 50).await;
    });
}
