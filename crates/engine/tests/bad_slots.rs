//! A slot of a cache that cannot be read, or a page that cannot be written to its own place, takes nothing from other pages.

use crate::ground::cached::{self, ONCE, cache, change, create, read};
use crate::ground::cut_machine::run_under;
use crate::ground::holding::refusing;
use crate::ground::machine::run;
use base::time::SECOND_NS;
use base::{Instant, PageId};
use driver::{Op, OpKind};
use entresol_engine::catalog::{Locking, Organization};
use entresol_engine::second_level::{CacheSettings, Design, Parameters};
use entresol_engine::{Database, Error, Internals, PartitionSpec, Settings};
use executor::Executor;
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
