use super::encoding::{CONTENTS, Decoded, Earlier, decode, encode, seal};
use super::*;
use crate::catalog::{Locking, Organization};
use base::Random;
use driver::{Halt, OpKind};
use executor::Order;
use std::collections::BTreeMap;
use virtual_driver::{ErrorAt, FaultPlan, Hardware, Injury, Media, Options, PowerCut, VirtualDriver};

fn superblock() -> Superblock {
    Superblock {
        page_size: 8192,
        log_page_size: 4096,
        log_device: "flash".into(),
        redo_start: 4711,
        log_durable: 5000,
        log_epoch: 3,
        next_transaction: 17,
        tiers: Vec::new(),
        backup: None,
        log_measured: None,
        second_log: None,
        cache_table: None,
        log_shape: None,
        archive: None,
        moments_since: None,
        identity: None,
        changed_alone: None,
    }
}

fn partition(id: u16) -> Partition {
    let (organization, locking) = (Organization::BTree, Locking::Record);
    Partition {
        name: format!("tree-{id}"),
        id,
        organization,
        locking,
        device: "disk".into(),
        assumed: false,
        schema: None,
        index_of: None,
        files: None,
    }
}

/// The body of a superblock of format 6.
fn earlier(partitions: Vec<Partition>) -> Vec<u8> {
    let Superblock { page_size, log_page_size, log_device, redo_start, log_durable, log_epoch, .. } = superblock();
    let earlier = Earlier {
        page_size,
        log_page_size,
        log_device,
        redo_start,
        log_durable,
        log_epoch,
        next_transaction: 17,
        partitions,
        tiers: Vec::new(),
        backup: None,
        schemas: Vec::new(),
        log_measured: None,
        second_log: None,
    };
    postcard::to_stdvec(&earlier).expect("plain contents can always be stored")
}

#[test]
fn earlier_formats_are_read_and_later_ones_named() {
    let body = earlier(vec![partition(0)]);
    for format in 1..7 {
        // Each format knew one thing more than the one before, and all these contents lack them.
        let known = &body[..body.len() - (6 - format) as usize];
        let found = Decoded::Earlier(superblock(), vec![partition(0)]);
        assert_eq!(decode(&seal(format, 9, known), "old"), Ok((9, found)), "format {format}");
    }
    let mut bytes = encode(9, &superblock(), Default::default()).expect("fits");
    assert_eq!(bytes.len() as u64, BLOCK, "however many partitions there are");
    let found = Decoded::Present(superblock(), Default::default());
    assert_eq!(decode(&bytes, "new"), Ok((9, found)));
    assert_eq!(decode(&seal(7, 9, &bytes[CONTENTS..]), "old").map(|found| found.0), Ok(9), "7 had all of it");
    let moments = Superblock { moments_since: Some(5), ..superblock() };
    let kept = encode(9, &moments, Default::default()).expect("fits");
    assert_eq!(decode(&kept, "new"), Ok((9, Decoded::Present(moments, Default::default()))));
    let before = decode(&seal(16, 9, &kept[CONTENTS..]), "old");
    assert_eq!(
        before,
        Ok((9, Decoded::Present(superblock(), Default::default()))),
        "the log of 16 lacks what sets were"
    );
    let named = Superblock { identity: Some(7), ..superblock() };
    let said = encode(9, &named, Default::default()).expect("fits");
    assert_eq!(decode(&said, "new"), Ok((9, Decoded::Present(named, Default::default()))));
    let before = decode(&seal(20, 9, &bytes[CONTENTS..bytes.len() - 1]), "old");
    assert_eq!(before, Ok((9, Decoded::Present(superblock(), Default::default()))), "20 did not say it");
    bytes[8] += 1;
    let newer = decode(&bytes, "newer").expect_err("not yet known");
    assert!(matches!(newer, Error::NewerFormat { found, supported: FORMAT, .. } if found == FORMAT + 1), "{newer}");
    let measured =
        crate::log::Measured { sync_write_ns: 100, write_then_sync_ns: 130, sync_faster: 1, together_ns: 200 };
    let found = Superblock { log_measured: Some(measured), ..superblock() };
    let bytes = encode(9, &found, Default::default()).expect("fits");
    assert_eq!(decode(&bytes, "new"), Ok((9, Decoded::Present(found, Default::default()))));
    assert!(bytes.len() > CONTENTS);
}

#[test]
fn a_log_that_no_file_can_hold_is_damage() {
    let shape =
        |origin, size, extent| LogShape { circle: Circle { origin, size }, extent, is_blank: false, retired: None };
    let read = |shape: LogShape| {
        let superblock = Superblock { log_shape: Some(shape), ..superblock() };
        decode(&encode(9, &superblock, Default::default()).expect("fits"), "here").is_ok()
    };
    assert!(read(shape(40_960, 65_536, 8192)));
    for (origin, size, extent) in [(0, 0, 0), (0, 65_536, 69_632), (0, 65_537, 8192), (1, 65_536, 8192), (0, 65_536, 1)]
    {
        assert!(!read(shape(origin, size, extent)), "{origin} {size} {extent}");
    }
}

fn run<T>(media: &Media, work: impl AsyncFnOnce(&Executor, DeviceId) -> T) -> T {
    let driver = VirtualDriver::new(Hardware::ideal(), Options::default(), media.clone());
    let executor = Executor::new(Box::new(driver), Order::FirstInFirstOut);
    let device = executor.device("disk").expect("the ideal machine has a disk");
    let result: Result<T, Halt> = executor.run(work(&executor, device));
    executor.stop();
    result.expect("the machine goes on")
}

fn names(superblock_file: &SuperblockFile) -> Vec<String> {
    superblock_file.partitions().iter().map(|partition| partition.name.clone()).collect()
}

#[test]
fn a_file_of_an_earlier_format_becomes_one_of_this() {
    let media = Media::new();
    run(&media, async |executor, device| {
        let (file, _) = executor.open(device, SUPERBLOCK_FILE, true).await.expect("creates");
        let mut mirror = Mirror::new(executor, file, 2 * REGION).expect("memory");
        executor.perform(Op::Resize { file, length: 2 * REGION, prewrite: true }).await.result.expect("room");
        let mut bytes = seal(6, 9, &earlier((0..300).map(partition).collect()));
        bytes.resize(REGION as usize, 0);
        for copy in COPIES {
            mirror.write(executor, copy, 0, &bytes).await.expect("writes");
        }
        let (mut superblock_file, superblock) = SuperblockFile::open(executor, device, "here").await.expect("opens");
        assert_eq!(names(&superblock_file).len(), 300);
        let number = superblock_file.partitions().give_number().expect("there are many");
        assert_eq!(number, 301, "a creation that was cut off may have had number 300");
        superblock_file.write(executor, &superblock).await.expect("writes");
        let (superblock_file, found) = SuperblockFile::open(executor, device, "here").await.expect("opens");
        assert_eq!((names(&superblock_file).len(), found), (300, superblock));
        assert_eq!(superblock_file.partitions().give_number(), Ok(301));
    });
}

#[test]
fn no_partition_is_known_from_beyond_the_logs_end_on() {
    let media = Media::new();
    run(&media, async |executor, device| {
        let mut file = SuperblockFile::create(executor, device, &superblock(), []).await.expect("creates");
        file.change([
            CatalogChange::Begin(Box::new(partition(1)), None),
            CatalogChange::Enter(1),
            CatalogChange::Since(1, 100),
        ]);
        file.write(executor, &superblock()).await.expect("writes");
        assert_eq!(file.since(1), Lsn(100));
        file.limit_since(Lsn(50));
        assert_eq!(file.since(1), Lsn(50));
    });
}

/// A random history of the catalog against a model, with openings in between, each of which finds a copy of anything damaged or
/// unreadable.
#[test]
fn the_catalog_is_what_was_written_last() {
    for seed in 0..20 {
        let mut random = Random::stream(seed, "catalog");
        let media = Media::new();
        run(&media, async |executor, device| {
            drop(SuperblockFile::create(executor, device, &superblock(), []).await.expect("creates"))
        });
        let (mut live, mut next, mut segments, mut images) = (Vec::<u16>::new(), 0_u16, Vec::new(), Vec::new());
        let mut renamed = BTreeMap::new();
        for _ in 0..12 {
            run(&media, async |executor, device| {
                let (mut superblock_file, mut superblock) =
                    SuperblockFile::open(executor, device, "here").await.expect("opens");
                let expected: Vec<Partition> =
                    live.iter().map(|id| renamed.get(id).cloned().unwrap_or(partition(*id))).collect();
                let found: Vec<Partition> =
                    superblock_file.partitions().iter().map(|found| (**found).clone()).collect();
                assert_eq!(found, expected);
                assert!(live.iter().all(|id| superblock_file.since(*id) == Lsn(7 * u64::from(*id))), "seed {seed}");
                assert_eq!(
                    u32::from(superblock_file.partitions().give_number().expect("there are many")),
                    u32::from(next)
                );
                assert_eq!(superblock.backup.as_ref().map_or(&[][..], |backup| &backup.segments), segments);
                assert_eq!(superblock.backup.as_ref().map_or(&[][..], |backup| &backup.images), images);
                for _ in 0..random.below(40) {
                    match random.below(5) {
                        0 | 1 => {
                            superblock_file.change([
                                CatalogChange::Begin(Box::new(partition(next)), None),
                                CatalogChange::Enter(next),
                            ]);
                            superblock_file.change([CatalogChange::Since(next, 7 * u64::from(next))]);
                            live.push(next);
                            next += 1;
                        }
                        2 if !live.is_empty() => {
                            let id = live.remove(random.below(live.len() as u64) as usize);
                            superblock_file.change([CatalogChange::Drop(id), CatalogChange::Gone(id)]);
                        }
                        3 if !live.is_empty() => {
                            let id = *random.choose(&live).expect("there are some");
                            let before = renamed.get(&id).cloned().unwrap_or(partition(id));
                            let changes = match random.below(3) {
                                0 => vec![CatalogChange::Rename(id, format!("name-{id}-{}", random.below(3)))],
                                1 => vec![CatalogChange::Rename(id, partition(id).name)],
                                // As where records have lost their type again.
                                _ => begin(&before).into_iter().chain([CatalogChange::Enter(id)]).collect(),
                            };
                            if let CatalogChange::Rename(_, name) = &changes[0] {
                                let files = Some(partition(id).name).filter(|stem| stem != name);
                                renamed.insert(id, Partition { name: name.clone(), files, ..partition(id) });
                            }
                            superblock_file.change(changes);
                        }
                        _ => {
                            let count = random.below(30_000);
                            segments = (0..count).map(|id| (id as u16, random.below(1 << 20) as u32)).collect();
                            let begin = Lsn(random.below(1 << 40));
                            images = live.iter().map(|id| (*id, random.below(1 << 20) as u32)).collect();
                            images.retain(|_| random.chance(0.9));
                            let (segments, images) = (segments.clone(), images.clone());
                            superblock.backup = Some(CurrentBackup { segments, images, ..CurrentBackup::empty(begin) });
                        }
                    }
                    if random.chance(0.7) {
                        superblock_file.write(executor, &superblock).await.expect("writes");
                    }
                }
                superblock_file.write(executor, &superblock).await.expect("writes");
            });
            let length = media.length("disk", SUPERBLOCK_FILE).expect("it is there");
            assert!(length < 16 << 20, "{length} bytes: what is written anew replaces what was");
            let copy = random.below(2);
            for _ in 0..random.below(20) {
                let place = random.below(length / (2 * REGION)) * 2 + copy;
                let at = place * REGION + random.below(REGION);
                if random.chance(0.5) {
                    media.flip_bit("disk", SUPERBLOCK_FILE, at, 3).expect("flips");
                } else {
                    media.make_unreadable("disk", SUPERBLOCK_FILE, at, 1).expect("exists");
                }
            }
        }
    }
}

fn enter(number: u16) -> [CatalogChange; 2] {
    [CatalogChange::Begin(Box::new(partition(number)), None), CatalogChange::Enter(number)]
}

/// Enters `entries` partitions, or as many as there are until the catalog is rewritten; returns how many it entered.
fn fill(media: &Media, entries: u16) -> u16 {
    run(media, async |executor, device| {
        let mut superblock_file = SuperblockFile::create(executor, device, &superblock(), []).await.expect("creates");
        for number in 0..entries {
            let start = superblock_file.journal.span.start;
            superblock_file.change(enter(number));
            superblock_file.write(executor, &superblock()).await.expect("writes");
            if superblock_file.journal.span.start != start {
                return number;
            }
        }
        entries
    })
}

/// Five partitions more on a machine with these faults; then the power goes. What was acknowledged is there afterwards, and at
/// most what was tried besides.
fn survives(prepared: &(u16, Media), faults: FaultPlan, seed: u64) -> bool {
    let (first, media) = (prepared.0, prepared.1.copy());
    let (acknowledged, tried) = (std::cell::Cell::new(first), std::cell::Cell::new(first));
    let driver =
        VirtualDriver::new(Hardware::ideal(), Options { faults: Some(faults), ..Options::default() }, media.clone());
    let executor = Executor::new(Box::new(driver), Order::FirstInFirstOut);
    let device = executor.device("disk").expect("the ideal machine has a disk");
    let ended = executor.run(async {
        let Ok((mut superblock_file, superblock)) = SuperblockFile::open(&executor, device, "here").await else {
            return;
        };
        for number in first..first + 5 {
            superblock_file.change(enter(number));
            tried.set(number + 1);
            if superblock_file.write(&executor, &superblock).await.is_ok() {
                acknowledged.set(number + 1);
            }
        }
    });
    executor.stop();
    media.power_cut(&mut Random::stream(seed, "home"), &PowerCut { lost: 0.2, torn: 0.6 });
    run(&media, async |executor, device| {
        let (superblock_file, _) =
            SuperblockFile::open(executor, device, "here").await.unwrap_or_else(|error| panic!("{seed}: {error}"));
        let found = names(&superblock_file).len();
        assert!((usize::from(acknowledged.get())..=usize::from(tried.get())).contains(&found), "{seed}: {found}");
    });
    ended.is_ok()
}

/// One copy of the superblock fails at every write, for long, while the catalog grows and is written anew: what the other copy
/// names is not overwritten.
#[test]
fn what_the_only_written_superblock_names_outlives_failures_however_many() {
    for halves in 1..4 {
        let media = Media::new();
        run(&media, async |executor, device| {
            let mut superblock_file =
                SuperblockFile::create(executor, device, &superblock(), []).await.expect("creates");
            let mut superblock = superblock();
            let mut state = |number: u32| {
                let segments: Vec<(u16, u32)> = (0..8_000).map(|id| (id, number << 16)).collect();
                superblock.backup = Some(CurrentBackup { segments, ..CurrentBackup::empty(Lsn(7)) });
                superblock.clone()
            };
            let mut number = 0;
            while superblock_file.journal.span.start <= REGION {
                number += 1;
                superblock_file.write(executor, &state(number)).await.expect("writes");
            }
            for _ in 0..halves {
                number += 1;
                let encoded = superblock_file.prepare(executor, &state(number)).await.expect("appends");
                superblock_file.write_next_copy(executor, &encoded).await.expect("writes");
                // The other one fails: what it holds is what it held.
                let stated = state(number);
                for later in 0..40 {
                    superblock_file.prepare(executor, &state(number + 1 + later)).await.expect("appends");
                    run(&media.copy(), async |executor, device| {
                        let opened = SuperblockFile::open(executor, device, "here").await;
                        let (_, found) =
                            opened.unwrap_or_else(|error| panic!("{halves}, {later} failures later: {error}"));
                        assert_eq!(found, stated, "{halves}, {later} failures later");
                    });
                }
                number += 40;
            }
        });
    }
}

/// Enters one partition after the other, while the writes with these numbers fail and one is acknowledged and lost. `reopened`
/// has the next opening go on after a failure.
fn outlives_a_lost_write(failing: &[u64], lost: u64, reopened: bool) {
    let media = Media::new();
    let at = |nth| ErrorAt { kind: OpKind::Write, device: None, nth };
    let injured = |failing: &[u64], lost: u64, work: &mut dyn FnMut(&Executor, DeviceId)| {
        let errors = failing.iter().map(|nth| at(*nth)).collect();
        let faults = FaultPlan { errors, injuries: vec![(at(lost), Injury::Lose)], ..FaultPlan::default() };
        let options = Options { faults: Some(faults), ..Options::default() };
        let driver = VirtualDriver::new(Hardware::ideal(), options, media.clone());
        let executor = Executor::new(Box::new(driver), Order::FirstInFirstOut);
        let device = executor.device("disk").expect("the ideal machine has a disk");
        work(&executor, device);
    };
    let mut entered = 0;
    let mut go_on = |executor: &Executor, superblock_file: &mut SuperblockFile| {
        while entered < 4 {
            superblock_file.change(enter(entered));
            entered += 1;
            let written = executor.run(superblock_file.write(executor, &superblock())).expect("the machine goes on");
            if reopened && written.is_err() {
                return;
            }
        }
    };
    injured(failing, if reopened { u64::MAX } else { lost }, &mut |executor, device| {
        let mut superblock_file = executor
            .run(SuperblockFile::create(executor, device, &superblock(), []))
            .expect("goes on")
            .expect("creates");
        go_on(executor, &mut superblock_file);
    });
    if reopened {
        injured(&[], lost, &mut |executor, device| {
            let (mut superblock_file, _) =
                executor.run(SuperblockFile::open(executor, device, "here")).expect("goes on").expect("opens");
            go_on(executor, &mut superblock_file);
        });
    }
    let found = run(&media, async |executor, device| {
        names(&SuperblockFile::open(executor, device, "here").await.expect("opens").0)
    });
    let expected: Vec<String> = (0..4).map(|number| format!("tree-{number}")).collect();
    let expected = if reopened { &expected[1..] } else { &expected[..] };
    assert_eq!(found, expected, "{failing:?} failed, {lost} was lost, reopened: {reopened}");
}

#[test]
fn what_an_append_has_left_that_failed_is_never_taken_for_a_later_one() {
    // Four writes create the file. The next entry is in one copy when the other one fails.
    for lost in 7..12 {
        outlives_a_lost_write(&[6], lost, false);
        outlives_a_lost_write(&[6, 8], lost + 2, false);
    }
    for lost in 1..5 {
        outlives_a_lost_write(&[6], lost, true);
    }
}

/// An opening of the superblock file in which one of its writes fails and one is acknowledged and lost.
fn live(media: &Media, (failing, lost): (u64, u64), work: impl AsyncFnOnce(&Executor, DeviceId)) {
    let at = |nth| ErrorAt { kind: OpKind::Write, device: None, nth };
    let faults =
        FaultPlan { errors: vec![at(failing)], injuries: vec![(at(lost), Injury::Lose)], ..FaultPlan::default() };
    let options = Options { faults: Some(faults), ..Options::default() };
    let driver = VirtualDriver::new(Hardware::ideal(), options, media.clone());
    let executor = Executor::new(Box::new(driver), Order::FirstInFirstOut);
    let device = executor.device("disk").expect("the ideal machine has a disk");
    executor.run(work(&executor, device)).expect("the machine goes on");
    executor.stop();
}

#[test]
fn what_several_openings_have_left_that_failed_is_never_taken_for_what_a_later_one_writes() {
    const NEVER: u64 = u64::MAX;
    let prepared = Media::new();
    // Where the catalog was first there is room again for all of it.
    let first = fill(&prepared, u16::MAX) + 1;
    for openings in 1..4 {
        for lost in 1..6 {
            let media = prepared.copy();
            for number in 0..openings {
                // One copy has it, or some of it.
                let failing = if number == 0 { 2 } else { 1 + u64::from(number) };
                live(&media, (failing, NEVER), async |executor, device| {
                    let (mut superblock_file, superblock) =
                        SuperblockFile::open(executor, device, "here").await.expect("opens");
                    superblock_file.change(enter(first + number));
                    superblock_file.write(executor, &superblock).await.expect_err("it fails");
                });
            }
            live(&media, (NEVER, lost), async |executor, device| {
                let (mut superblock_file, superblock) =
                    SuperblockFile::open(executor, device, "here").await.expect("opens");
                superblock_file.change(enter(first + openings));
                superblock_file.write(executor, &superblock).await.expect("writes, it seems");
            });
            run(&media, async |executor, device| {
                let (superblock_file, _) = SuperblockFile::open(executor, device, "here").await.expect("opens");
                let expected = (0..first).chain([first + openings]).map(|number| format!("tree-{number}"));
                assert_eq!(
                    names(&superblock_file),
                    expected.collect::<Vec<_>>(),
                    "after {openings} openings write {lost} was lost"
                );
            });
        }
    }
}

/// An append that fails, then no room to write the catalog anew, so that the next one goes where the failed one was; and one
/// of its writes is acknowledged and lost.
#[test]
fn what_an_append_has_left_is_not_taken_for_the_next_one_in_its_place() {
    const FIRST: u16 = 1_200;
    let prepared = Media::new();
    run(&prepared, async |executor, device| {
        let mut superblock_file = SuperblockFile::create(executor, device, &superblock(), []).await.expect("creates");
        superblock_file.change((0..FIRST).flat_map(enter));
        superblock_file.write(executor, &superblock()).await.expect("writes");
        let span = superblock_file.journal.span;
        assert!(span.length >= REGION / 2, "{span:?}: the same again needs a longer file");
    });
    for lost in 3..9 {
        let media = prepared.copy();
        let at = |kind, nth| ErrorAt { kind, device: None, nth };
        let injuries = vec![(at(OpKind::Resize, 1), Injury::NoSpace), (at(OpKind::Write, lost), Injury::Lose)];
        let faults = FaultPlan { errors: vec![at(OpKind::Write, 2)], injuries, ..FaultPlan::default() };
        let driver = VirtualDriver::new(
            Hardware::ideal(),
            Options { faults: Some(faults), ..Options::default() },
            media.clone(),
        );
        let executor = Executor::new(Box::new(driver), Order::FirstInFirstOut);
        let device = executor.device("disk").expect("the ideal machine has a disk");
        let ended = executor.run(async {
            let (mut superblock_file, superblock) =
                SuperblockFile::open(&executor, device, "here").await.expect("opens");
            let start = superblock_file.journal.span.start;
            superblock_file.change(enter(FIRST));
            superblock_file.write(&executor, &superblock).await.expect_err("it fails");
            superblock_file.change(enter(FIRST + 1));
            superblock_file.write(&executor, &superblock).await.expect("writes, it seems");
            assert_eq!(superblock_file.journal.span.start, start, "there is no room elsewhere");
        });
        assert_eq!(ended, Ok(()), "the machine goes on");
        executor.stop();
        run(&media, async |executor, device| {
            let (superblock_file, _) = SuperblockFile::open(executor, device, "here").await.expect("opens");
            let expected: Vec<String> = (0..FIRST + 2).map(|number| format!("tree-{number}")).collect();
            assert_eq!(names(&superblock_file), expected, "write {lost} was lost");
        });
    }
}

/// A superblock file whose catalog is written anew in two changes.
fn nearly_full() -> (u16, Media) {
    let media = Media::new();
    (fill(&media, fill(&Media::new(), u16::MAX) - 2), media)
}

#[test]
fn a_catalog_that_is_written_anew_is_whole_at_any_moment() {
    survives_all(&nearly_full());
}

fn survives_all(prepared: &(u16, Media)) {
    for event in 1.. {
        let faults = FaultPlan { power_cut_at: Some(event), ..FaultPlan::default() };
        if (0..4).fold(false, |_, seed| survives(prepared, faults.clone(), event * 4 + seed)) {
            break;
        }
    }
    for nth in 1..30 {
        let failing = |nth| ErrorAt { kind: driver::OpKind::Write, device: None, nth };
        for other in nth..nth + 4 {
            let errors = vec![failing(nth), failing(other)];
            survives(prepared, FaultPlan { errors, ..FaultPlan::default() }, nth);
        }
    }
}

#[cfg(feature = "canary")]
#[test]
fn a_catalog_that_is_written_over_what_counts_is_found() {
    let prepared = nearly_full();
    structures::canary::plant(Some(structures::canary::Canary::CatalogInPlace));
    let found = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| survives_all(&prepared)));
    structures::canary::plant(None);
    assert!(found.is_err(), "nothing notices it");
}
