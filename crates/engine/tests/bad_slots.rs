//! A slot of a cache that cannot be read, or a page that cannot be written to its own place, takes nothing from other pages.

use crate::ground::cached::{self, ONCE, cache, change, create, goes_home, read};
use crate::ground::cut_machine::run_under;
use crate::ground::holding::refusing;
use crate::ground::machine::run;
use base::time::SECOND_NS;
use base::{Instant, PageId};
use driver::{FileId, Op, OpKind};
use entresol_engine::catalog::{Locking, Organization};
use entresol_engine::second_level::{CacheSettings, DESIGNS, Design, Parameters};
use entresol_engine::{Database, Error, Internals, PartitionSpec, Settings};
use executor::Executor;
use std::cell::Cell;
use std::rc::Rc;
use structures::page::header;
use virtual_driver::{ErrorAt, FaultPlan, Hardware, Media, Slow};

const PAGES: u64 = 60;

/// A cache on `nvem` that may be dirty as a whole.
fn lazy() -> CacheSettings {
    let parameters = Parameters { dirty_max_percent: 100, ..Parameters::default() };
    CacheSettings { parameters, ..cache(Design::named("lazy-cleaning").expect("it has this name"), 80) }
}

async fn try_read(database: &Database, number: u64) -> Result<u8, Error> {
    let partition = database.partition("objects")?;
    database.transaction(async |tx| tx.read_object(partition, number, |bytes| bytes[0]).await).await
}

#[test]
fn a_slot_that_is_read_in_vain_again_and_again_does_not_switch_the_cache_off() {
    let media = Media::new();
    run(&media, async |executor| {
        let database = create(executor, cached::settings(lazy()), PAGES).await;
        change(&database, 0..PAGES, 1).await;
        media.make_unreadable("nvem", "cache.tier", 4096 + 5 * 1024, 1).expect("it is there");
        let mut bad = Vec::new();
        for number in 0..PAGES {
            if let Err(error) = try_read(&database, number).await {
                assert!(matches!(error, Error::DamagedPage { .. }), "{error}");
                bad.push(number);
            }
        }
        assert!((1..5).contains(&bad.len()), "{bad:?}");
        let tiers = database.buffer().tiers().expect("there is a cache");
        for _ in 0..20 {
            try_read(&database, bad[0]).await.expect_err("nothing has it but the log");
            database.checkpoint().await.expect_err("nothing has it but the log");
            assert_eq!(tiers.lost_cache(), None);
        }
        let served = database.tiers()[0].reads;
        for number in (0..PAGES).filter(|number| !bad.contains(number)) {
            assert_eq!(try_read(&database, number).await, Ok(1));
        }
        assert!(database.tiers()[0].reads > served + 20, "the cache serves");
    });
}

/// Of a cache with free slots, and of one that is full.
#[test]
fn a_slot_that_cannot_be_written_keeps_no_pages_from_the_cache() {
    for slots in [80, 30] {
        refusing(Hardware::ideal(), &Media::new(), async |executor, holder| {
            let settings = cached::settings(CacheSettings { pages: slots, ..lazy() });
            let database = create(executor, settings, PAGES).await;
            let tiers = database.buffer().tiers().expect("there is a cache");
            let cache = tiers.cache.as_ref().expect("it is one").file;
            holder.refuse(
                move |op| matches!(op, Op::Write { file, offset, .. } if *file == cache && *offset == 4096 + 7 * 1024),
            );
            for value in 1..5 {
                change(&database, 0..PAGES, value).await;
            }
            assert_eq!(tiers.lost_cache(), None);
            let declined = database.tiers()[0].fallbacks;
            assert!((1..5).contains(&declined), "{slots} slots: {declined} pages go past the cache");
            assert_eq!(read(&database, 0..PAGES).await, [4; PAGES as usize]);
        });
    }
}

/// Neither does a second one.
#[test]
fn two_slots_that_cannot_be_written_keep_no_pages_from_the_cache() {
    refusing(Hardware::ideal(), &Media::new(), async |executor, holder| {
        let settings = cached::settings(CacheSettings { pages: 30, ..lazy() });
        let database = create(executor, settings, PAGES).await;
        let tiers = database.buffer().tiers().expect("there is a cache");
        let cache = tiers.cache.as_ref().expect("it is one").file;
        let bad = [7, 11].map(|slot| 4096 + slot * 1024);
        holder.refuse(move |op| matches!(op, Op::Write { file, offset, .. } if *file == cache && bad.contains(offset)));
        for value in 1..5 {
            change(&database, 0..PAGES, value).await;
        }
        assert_eq!(tiers.lost_cache(), None);
        let declined = database.tiers()[0].fallbacks;
        assert!((1..10).contains(&declined), "{declined} pages go past the cache");
        assert_eq!(read(&database, 0..PAGES).await, [4; PAGES as usize]);
    });
}

/// The slot takes what is written there and gives nothing back. Of the page that was there main memory has what it is. No other one
/// gets lost there.
#[test]
fn a_slot_that_cannot_be_read_takes_no_further_page() {
    const SLOT: u64 = 4096 + 7 * 1024;
    let is_written = |op: &Op, cache: FileId| match op {
        Op::Write { file, offset, length, .. } => {
            *file == cache && (*offset..*offset + u64::from(*length)).contains(&SLOT)
        }
        _ => false,
    };
    let mut tried = 0;
    for design in DESIGNS.iter().copied() {
        let is_reached = refusing(Hardware::ideal(), &Media::new(), async |executor, holder| {
            let parameters = Parameters { dirty_max_percent: 100, group_pages: 4, ..Parameters::default() };
            let database =
                create(executor, cached::settings(CacheSettings { parameters, ..cache(design, 80) }), PAGES).await;
            let tiers = database.buffer().tiers().expect("there is a cache");
            let file = tiers.cache.as_ref().expect("it is one").file;
            let (there, writes) = (Rc::new(Cell::new(None)), Rc::new(Cell::new(0)));
            let told = Rc::clone(&there);
            holder.refuse(move |op| {
                if let Op::Write { offset, buffer, .. } = op
                    && is_written(op, file)
                {
                    told.set(Some(header::id(&buffer[(SLOT - *offset) as usize..])));
                }
                false
            });
            change(&database, 0..10, 1).await;
            read(&database, 20..PAGES).await;
            read(&database, 0..10).await;
            let is_there =
                |page: &PageId| tiers.is_pending(*page) && database.buffer().pool().borrow().frame_of(*page).is_some();
            let Some(page) = there.get().filter(is_there) else { return false };
            let told = Rc::clone(&writes);
            holder.refuse(move |op| {
                told.set(told.get() + u32::from(is_written(op, file)));
                matches!(op, Op::Read { file: of, offset: SLOT, .. } if *of == file)
            });
            tiers.await_destage(page).await.expect_err("it cannot be read back");
            database.checkpoint().await.expect("main memory has it");
            writes.set(0);
            for value in 2..6 {
                change(&database, 0..PAGES, value).await;
                assert_eq!(read(&database, 0..PAGES).await, [value; PAGES as usize], "{design:?}");
            }
            assert_eq!(writes.get(), 0, "{design:?}: the slot is written again");
            assert_eq!(database.tiers()[0].unusable, 1, "{design:?}");
            assert_eq!(tiers.lost_cache(), None);
            true
        });
        tried += u32::from(is_reached);
    }
    assert!(tried > 2, "{tried} designs let a changed page be in both");
}

/// Each slot that is read fails once in a while, and gives what is there when it is read again.
#[test]
fn slots_that_fail_to_be_read_now_and_then_go_on_serving() {
    for design in DESIGNS.iter().copied() {
        refusing(Hardware::ideal(), &Media::new(), async |executor, holder| {
            let parameters = Parameters { dirty_max_percent: 100, ..Parameters::default() };
            let database =
                create(executor, cached::settings(CacheSettings { parameters, ..cache(design, 30) }), PAGES).await;
            let tiers = database.buffer().tiers().expect("there is a cache");
            let file = tiers.cache.as_ref().expect("it is one").file;
            change(&database, 0..PAGES, 1).await;
            let count = Cell::new(0_u64);
            holder.refuse(move |op| {
                let is_read = matches!(op, Op::Read { file: of, .. } if *of == file);
                count.set(count.get() + u64::from(is_read));
                is_read && count.get().is_multiple_of(10)
            });
            for round in 0..40 {
                change(&database, (round % 7..PAGES).step_by(7), 1).await;
                assert_eq!(read(&database, 0..PAGES).await, [1; PAGES as usize], "{design:?}");
            }
            assert_eq!(tiers.lost_cache(), None);
            assert_eq!(database.tiers()[0].unusable, 0, "{design:?}");
        });
    }
}

/// There is no memory to read them into for a while: that is no fault of the slots.
#[test]
fn slots_that_memory_was_lacking_for_are_used_again() {
    refusing(Hardware::ideal(), &Media::new(), async |executor, holder| {
        let database = create(executor, cached::settings(CacheSettings { pages: 45, ..lazy() }), PAGES).await;
        change(&database, 0..PAGES, 1).await;
        let tiers = database.buffer().tiers().expect("there is a cache");
        let used = || database.cache_contents().expect("there is a cache").used;
        let (before, damaged) = (used(), database.tiers()[0].damaged);
        assert!(before > 35, "{before} slots are used");
        holder.starve(true);
        let error = database.checkpoint().await.expect_err("there is no memory for all of them at once");
        assert!(error.to_string().contains("no memory (injected)"), "{error}");
        assert!(tiers.pending_count() > 0, "some are where they were");
        holder.starve(false);
        database.checkpoint().await.expect("there is memory again");
        assert_eq!(tiers.pending_count(), 0);
        change(&database, 0..PAGES, 2).await;
        assert_eq!(read(&database, 0..PAGES).await, [2; PAGES as usize]);
        assert!(used() >= before, "{} of {before} slots are used", used());
        assert_eq!(database.tiers()[0].damaged, damaged);
    });
}

/// Its older version could not come to its own place, so that one may be torn, and cannot be read back from its slot any more.
#[test]
fn a_page_whose_slot_cannot_be_read_when_it_is_to_make_way_is_written() {
    let media = Media::new();
    refusing(Hardware::ideal(), &media, async |executor, holder| {
        let database = create(executor, cached::settings(cache(ONCE, 80)), PAGES).await;
        let tiers = database.buffer().tiers().expect("there is a cache");
        let file = tiers.cache.as_ref().expect("it is one").file;
        let page = PageId::new(database.partition("objects").expect("it exists"), 3);
        holder.refuse(move |op| goes_home(op, page) && !matches!(op, Op::Write { file: of, .. } if *of == file));
        change(&database, [3], 1).await;
        database.checkpoint().await.expect_err("its own place takes nothing");
        assert!(tiers.is_pending(page));
        change(&database, [3], 2).await;
        holder.refuse(move |op| matches!(op, Op::Read { file: of, .. } if *of == file));
        database.checkpoint().await.expect("main memory has it");
        assert_eq!((tiers.pending_count(), database.buffer().pool().borrow().dirty_pages().count()), (0, 0));
        assert_eq!(read(&database, 0..PAGES).await[3], 2);
    });
    run(&media, async |executor| {
        let database = Database::open(executor, cached::settings(cache(ONCE, 80)), "here").await.expect("opens");
        assert_eq!(read(&database, 0..PAGES).await[3], 2);
    });
}

/// Its cache is switched off because writes to it fail. What only that has is saved, but for the pages of one device, which hangs.
#[test]
fn pages_of_a_device_that_hangs_keep_no_others_from_being_saved_from_a_failing_cache() {
    let from = Instant::from_ns(SECOND_NS);
    let slow = Slow { device: "flash".into(), from, until: Instant::NEVER, factor: Slow::HUNG };
    let errors = (30..1_000).map(|nth| ErrorAt { kind: OpKind::Write, device: Some("nvem".into()), nth }).collect();
    let faults = FaultPlan { slow: vec![slow], errors, ..FaultPlan::default() };
    let work = async |executor: &Executor| {
        let settings = Settings { home_device: "disk".into(), log_device: "disk".into(), ..cached::settings(lazy()) };
        let database = create(executor, settings, PAGES).await;
        let organization = Organization::Direct { objects: 10, blocking_factor: 1, record_size: 100 };
        let spec = PartitionSpec { device: "flash".into(), ..PartitionSpec::new("stuck", organization, Locking::Page) };
        let stuck = database.create_partition(spec).await.expect("creates");
        executor.sleep_until(from).await;
        for number in 0..10 {
            let modify = async |tx: &mut entresol_engine::Transaction| {
                tx.modify_object(stuck, number, |bytes| bytes[0] = 1).await
            };
            database.transaction(modify).await.expect("works");
        }
        change(&database, 0..PAGES, 1).await;
        executor.sleep_ns(20 * SECOND_NS).await;
        let tiers = database.buffer().tiers().expect("there is a cache");
        assert!(tiers.is_lost(), "its writes fail");
        let objects = database.partition("objects").expect("it exists");
        let is_pending = |partition, number| tiers.is_pending(PageId::new(partition, number));
        let pending = |partition| (0..PAGES as u32).filter(|number| is_pending(partition, *number)).count();
        assert!(pending(stuck) > 5, "their device hangs");
        assert_eq!(pending(objects), 0, "their device answers");
        assert_eq!(read(&database, 0..PAGES).await, [1; PAGES as usize]);
    };
    run_under(&Media::new(), Hardware::ideal(), faults, work).expect("the machine goes on");
}

/// Ten pages come from the cache to their own places, and the writes of one of them fail: these writes of the device. Then all change
/// again, and go past the cache. How many are only in main memory at last, if one has failed both times.
fn failing_at(writes: [u64; 3]) -> Option<usize> {
    let error = |nth| ErrorAt { kind: OpKind::Write, device: Some("disk".into()), nth };
    let faults = FaultPlan { errors: writes.map(error).to_vec(), ..FaultPlan::default() };
    let work = async |executor: &Executor| {
        let settings = cached::settings(cache(ONCE, 80));
        let settings = Settings { home_device: "flash".into(), log_device: "flash".into(), ..settings };
        let database = create(executor, settings, PAGES).await;
        change(&database, 0..10, 1).await;
        read(&database, 20..PAGES).await;
        let first = database.checkpoint().await;
        let tiers = database.buffer().tiers().expect("there is a cache");
        if first.is_ok() || tiers.pending_count() != 1 {
            return None;
        }
        change(&database, 0..10, 2).await;
        database.checkpoint().await.err()?;
        Some(database.buffer().pool().borrow().dirty_pages().count())
    };
    run_under(&Media::new(), Hardware::ideal(), faults, work).expect("the machine goes on")
}

#[test]
fn a_page_whose_older_version_does_not_make_way_keeps_no_other_from_its_place() {
    let mut found = 0;
    for first in 1..40 {
        for again in first + 1..first + 12 {
            let left = failing_at([first, again, again + 1]);
            found += usize::from(left.is_some());
            assert!(left.is_none_or(|left| left == 1), "{left:?}, write {first}, then {again}");
        }
    }
    assert!(found > 0, "no page failed again and again");
}
