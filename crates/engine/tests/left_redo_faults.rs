//! Redo that an opening has left while devices fail or do not answer, and openings fail.

use crate::ground::holding::refusing;
use crate::left_redo::{SLOTS, left, much_filled, with_few_frames};
use crate::quick_restarts::{End, SLOW, change, check_all, filled, filled_in, objects, read, run, run_under, settings};
use base::Instant;
use base::time::SECOND_NS;
use devices::Hardware;
use driver::{Op, OpKind};
use entresol_engine::catalog::{Locking, Organization};
use entresol_engine::{Database, Error, Internals, PartitionSpec, Settings, Transaction, checkpoint, log};
use std::cell::Cell;
use std::rc::Rc;
use virtual_driver::{ErrorAt, FaultPlan, Media, Slow};

/// One of two log devices does not answer any more when the log is read for what memory had no room for.
#[test]
fn a_silent_log_device_keeps_no_reader_from_what_the_other_one_has() {
    let with_mirror = |settings: Settings| {
        let second = log::Second { device: "mirror".into(), acknowledged: log::Acknowledged::Both };
        let log = log::Settings { second: Some(second), silence_ns_max: SECOND_NS, ..settings.log };
        Settings { log, ..settings }
    };
    let settings = with_mirror(with_few_frames());
    let media = Media::new();
    let values = much_filled(&media, &settings, 1);
    let opened_ns = run(&media.copy(), async |executor| {
        Database::open(executor, settings.clone(), "here").await.expect("opens");
        executor.now().since_ns(Instant::START)
    });
    let hung = Slow {
        device: "mirror".into(),
        from: Instant::START.plus_ns(opened_ns),
        until: Instant::START.plus_ns(1_000_000 * SECOND_NS),
        factor: Slow::HUNG,
    };
    let faults = FaultPlan { slow: vec![hung], ..FaultPlan::default() };
    run_under(faults, &media, async |executor| {
        let database = Database::open(executor, settings.clone(), "here").await.expect("opens");
        let numbers = left(&database);
        assert!(numbers.len() > 100, "redo is left of {} pages", numbers.len());
        for number in numbers.into_iter().rev() {
            let value = executor.within(60 * SECOND_NS, read(&database, number)).await;
            assert_eq!(value.map(|value| value.expect("reads")), Some(values[number as usize]), "{number}");
        }
        executor.within(60 * SECOND_NS, database.checkpoint()).await.expect("it ends").expect("succeeds");
    });
}

/// The device of pages of which redo is left does not answer any more. Others come to their own places.
#[test]
fn a_silent_device_with_pages_of_which_redo_is_left_keeps_no_others_from_their_places() {
    let media = Media::new();
    filled(&media, ("lazy-cleaning", SLOTS), End::Kill);
    let settings = settings("lazy-cleaning", SLOTS, checkpoint::Policy::OFF);
    let opened_ns = run(&media.copy(), async |executor| {
        Database::open(executor, settings.clone(), "here").await.expect("opens");
        executor.now().since_ns(Instant::START)
    });
    let hung = Slow {
        device: "volume".into(),
        from: Instant::START.plus_ns(opened_ns),
        until: Instant::START.plus_ns(1_000_000 * SECOND_NS),
        factor: Slow::HUNG,
    };
    let faults = FaultPlan { slow: vec![hung], ..FaultPlan::default() };
    run_under(faults, &media, async |executor| {
        let database = Database::open(executor, settings.clone(), "here").await.expect("opens");
        assert!(left(&database).len() > 20, "redo is left");
        let organization = Organization::Direct { objects: 10, blocking_factor: 1, record_size: 100 };
        let spec = PartitionSpec::new("other", organization, Locking::Page);
        let other = database.create_partition(spec).await.expect("creates");
        for number in 0..10 {
            let modify = async |tx: &mut Transaction| tx.modify_object(other, number, |bytes| bytes[0] = 1).await;
            database.transaction(modify).await.expect("changes");
        }
        let checked = database.clone();
        executor.spawn(async move { checked.checkpoint().await });
        executor.sleep_ns(30 * SECOND_NS).await;
        assert!(!left(&database).is_empty(), "their device does not answer");
        let is_dirty = |page: &base::PageId| page.partition == other;
        let dirty = database.buffer().pool().borrow().dirty_pages().filter(is_dirty).count();
        assert_eq!(dirty, 0, "others are not written");
    });
}

/// Few pages are changed far more often than the buffer has room to keep where.
#[test]
fn what_is_left_of_few_pages_takes_no_more_than_the_buffer_has() {
    let settings = with_few_frames();
    let size = settings.buffer.frames * settings.buffer.page_size;
    let media = Media::new();
    let mut values = filled(&media, ("lazy-cleaning", SLOTS), End::Kill);
    run(&media, async |executor| {
        let database = Database::open(executor, settings.clone(), "here").await.expect("opens");
        let objects = database.partition("objects").expect("it exists");
        for round in 0..700_u32 {
            let fill = async |tx: &mut Transaction| {
                for number in 0..30 {
                    tx.modify_object(objects, number, |bytes| bytes[0] = round as u8).await?;
                }
                Ok::<(), Error>(())
            };
            database.transaction(fill).await.expect("changes");
        }
        values[..30].fill(699_u32 as u8);
    });
    run(&media, async |executor| {
        let database = Database::open(executor, settings.clone(), "here").await.expect("opens");
        assert!(database.recovery().pages_left > 30);
        let taken = database.recovery().left_bytes;
        assert!(taken < (size + size / 8) as u64, "{taken} bytes are taken where the buffer has {size}");
        check_all(&database, &values, "hot pages").await;
    });
}

/// Whatever is asked of the log's archive fails.
fn without_archive() -> FaultPlan {
    let kinds = [OpKind::Open, OpKind::List, OpKind::Read, OpKind::Write, OpKind::Sync];
    let error = |kind, nth| ErrorAt { kind, device: Some("archive".into()), nth };
    let errors = kinds.into_iter().flat_map(|kind| (1..300).map(move |nth| error(kind, nth))).collect();
    FaultPlan { errors, ..FaultPlan::default() }
}

/// An opening that fails leaves nothing behind that goes on to write.
#[test]
fn an_opening_that_fails_behind_its_redo_writes_nothing_afterwards() {
    let media = Media::new();
    let archived = |settings: Settings| {
        let log = log::Settings { capacity: 256 << 10, reserve: 0.1, archive: Some("archive".into()), ..settings.log };
        let checkpoint = checkpoint::Policy { log_bytes: Some(32 << 10), interval_ns: None };
        Settings { log, checkpoint, ..settings }
    };
    let mut values = filled_in(&media, ("lazy-cleaning", SLOTS), End::Close, archived);
    let settings = archived(settings("lazy-cleaning", SLOTS, checkpoint::Policy::OFF));
    run(&media, async |executor| {
        let database = Database::open(executor, settings.clone(), "here").await.expect("opens");
        // What the catalog says of them is longer than the log's reserve.
        for number in 0..400 {
            let organization = Organization::Append { blocking_factor: 0 };
            let spec = PartitionSpec::new(&format!("{number:0>64}"), organization, Locking::Page);
            database.create_partition(spec).await.expect("creates");
        }
        database.close().await.expect("closes");
    });
    run_under(without_archive(), &media, async |executor| {
        let database = Database::open(executor, settings.clone(), "here").await.expect("opens");
        for number in (0..objects(SLOTS)).cycle() {
            if let Err(error) = change(&database, number, 9).await {
                assert!(matches!(error, Error::LogNotArchived { .. }), "{error}");
                break;
            }
            values[number as usize] = 9;
        }
    });
    let written = || {
        ["entresol.home", "objects.pages"].map(|name| {
            let device = if name == "entresol.home" { "disk" } else { "volume" };
            let mut bytes = vec![0; media.length(device, name).expect("it is there") as usize];
            media.read(device, name, 0, &mut bytes).expect("can be read");
            bytes
        })
    };
    run_under(without_archive(), &media, async |executor| {
        let failed = Database::open(executor, settings.clone(), "here").await.map(drop);
        assert!(matches!(&failed, Err(Error::LogNotArchived { .. })), "{failed:?}");
        let before = written();
        executor.sleep_ns(10 * SECOND_NS).await;
        assert!(written() == before, "it goes on behind its failure");
    });
    run(&media, async |executor| {
        let database = Database::open(executor, settings.clone(), "here").await.expect("opens");
        check_all(&database, &values, "after a failed opening").await;
        database.close().await.expect("closes");
    });
}

/// A checkpoint cannot read what the log has for some pages, and writes the others. Their log is given up, and none of that is needed when
/// the rest is read after all.
#[test]
fn a_page_whose_redo_is_made_late_needs_no_log_from_before_its_own() {
    for design in ["tac", "lazy-cleaning"] {
        let settings = settings(design, SLOTS, checkpoint::Policy::OFF);
        let media = Media::new();
        let mut values = filled(&media, (design, SLOTS), End::Close);
        run(&media, async |executor| {
            let database = Database::open(executor, settings.clone(), "here").await.expect("opens");
            let objects = database.partition("objects").expect("it exists");
            for (number, value) in values.iter_mut().enumerate() {
                *value = number as u8;
                let value = *value;
                let fill = async |tx: &mut Transaction| {
                    for round in (0..8).rev() {
                        tx.modify_object(objects, number as u64, |bytes| bytes.fill(value.wrapping_add(round))).await?;
                    }
                    Ok::<(), Error>(())
                };
                database.transaction(fill).await.expect("changes");
            }
        });
        let hardware = Hardware::parse(SLOW, "test").expect("a description");
        refusing(hardware, &media, async |executor, holder| {
            let database = Database::open(executor, settings.clone(), "here").await.expect("opens");
            let written = Rc::new(Cell::new(None));
            let last = Rc::clone(&written);
            holder.refuse(move |op| {
                if let Op::Write { file, .. } = op {
                    last.set(Some(*file));
                }
                false
            });
            change(&database, 0, 0).await.expect("changes");
            let log = written.get().expect("what was committed is in the log");
            holder.refuse(move |op| matches!(op, Op::Read { file, .. } if *file == log));
            let before = database.log().oldest();
            database.checkpoint().await.expect_err("the log cannot be read");
            assert!(database.log().oldest() > before, "{design}: nothing was given up");
            holder.refuse(|_| false);
            let numbers = left(&database);
            assert!(numbers.len() > 100, "{design}: redo is left of {} pages", numbers.len());
            for number in numbers {
                assert_eq!(read(&database, number).await, Ok(values[number as usize]), "{design}, {number}");
                let (needed, kept) = (database.buffer().recovery_lsn(), database.log().oldest());
                assert!(needed >= Some(kept), "{design}, {number}: {needed:?} is needed, and {kept:?} is kept");
            }
        });
        run(&media, async |executor| {
            let database = Database::open(executor, settings.clone(), "here").await.expect("opens");
            check_all(&database, &values, design).await;
        });
    }
}

#[cfg(feature = "canary")]
mod planted {
    use super::*;
    use crate::ground::planting::is_found;
    use entresol_engine::canary::Canary;

    #[test]
    fn a_page_that_needs_log_which_is_given_up_is_found() {
        is_found(Canary::LongGoneRedo, a_page_whose_redo_is_made_late_needs_no_log_from_before_its_own);
    }
}
