//! Partitions whose pages fail slowly, or again and again, beside others.

use crate::ground::cached::{self, cache, change, create, is_written, read};
use crate::ground::holding::{Holder, refusing};
use base::time::SECOND_NS;
use base::{PageId, PartitionId};
use driver::Op;
use entresol_engine::catalog::{Locking, Organization};
use entresol_engine::second_level::{CacheSettings, Design, Parameters};
use entresol_engine::{Database, Internals, PartitionSpec, Settings, Transaction, buffer, checkpoint, log};
use executor::Executor;
use std::cell::Cell;
use std::rc::Rc;
use virtual_driver::{Hardware, Media};

/// Pages are staged against tearing if it may `tear` them.
fn machine(tears: bool) -> Hardware {
    let mut hardware = Hardware::ideal();
    if tears {
        hardware.device_mut("disk").atomic_write = 512;
    }
    hardware
}

fn settings(has_cache: bool) -> Settings {
    let parameters = Parameters { dirty_max_percent: 100, ..Parameters::default() };
    let design = Design::named("lazy-cleaning").expect("it exists");
    let settings = cached::settings(has_cache.then(|| CacheSettings { parameters, ..cache(design, 1_000) }));
    let frames = if has_cache { 40 } else { 1_000 };
    Settings {
        buffer: buffer::Settings { frames, ..settings.buffer },
        log: log::Settings { capacity: 64 << 20, ..settings.log },
        ..settings
    }
}

async fn set(database: &Database, partition: PartitionId, numbers: std::ops::Range<u64>) {
    for number in numbers {
        let modify = async |tx: &mut Transaction| tx.modify_object(partition, number, |bytes| bytes[0] = 1).await;
        database.transaction(modify).await.expect("changes");
    }
}

/// Pages that are newer in main memory or the cache than in their own places.
fn newer(database: &Database, partition: PartitionId, numbers: std::ops::Range<u32>) -> usize {
    let dirty: Vec<PageId> = database.buffer().pool().borrow().dirty_pages().collect();
    let tiers = database.buffer().tiers();
    let is_newer = |page: &PageId| dirty.contains(page) || tiers.as_ref().is_some_and(|tiers| tiers.is_pending(*page));
    numbers.map(|number| PageId::new(partition, number)).filter(is_newer).count()
}

async fn with_failing(executor: &Executor, holder: &Holder, has_cache: bool) {
    let database = create(executor, settings(has_cache), 320).await;
    let organization = Organization::Direct { objects: 100, blocking_factor: 1, record_size: 100 };
    let spec = PartitionSpec::new("other", organization, Locking::Page);
    let other = database.create_partition(spec).await.expect("creates");
    database.checkpoint().await.expect("succeeds");
    let (objects, home) = (database.partition("objects").expect("it exists"), holder.file("objects.pages"));
    holder.refuse_after(5 * SECOND_NS, move |op| matches!(op, Op::Write { file, .. } if *file == home));
    set(&database, objects, 0..300).await;
    set(&database, other, 0..100).await;
    let checked = database.clone();
    let checkpoint = executor.spawn(async move { checked.checkpoint().await });
    executor.sleep_ns(25 * SECOND_NS).await;
    assert_eq!(newer(&database, other, 0..100), 0, "with a cache: {has_cache}");
    executor.sleep_ns(35 * SECOND_NS).await;
    assert!(checkpoint.is_finished(), "with a cache: {has_cache}");
    checkpoint.join().await.expect_err("they fail");
    assert_eq!(newer(&database, objects, 0..300), 300, "none came to its place");
    holder.refuse(|_| false);
    database.checkpoint().await.expect("the device works again");
    assert_eq!(read(&database, [299]).await, [1]);
}

/// They come first where pages are written. A checkpoint ends before all of them have failed.
#[test]
fn pages_that_fail_slowly_do_not_keep_others_waiting() {
    for (has_cache, tears) in [(false, false), (false, true), (true, false), (true, true)] {
        refusing(machine(tears), &Media::new(), async |executor, holder| {
            with_failing(executor, holder, has_cache).await;
        });
    }
}

/// How many writes of pages come to their own places while fifty of them change once in a second, for four minutes. One
/// more cannot be written, if that `is_refused`.
fn home_writes(is_refused: bool) -> u32 {
    let policy = checkpoint::Policy { log_bytes: Some(256 << 10), interval_ns: None };
    let settings = Settings { checkpoint: policy, ..settings(false) };
    refusing(machine(false), &Media::new(), async |executor, holder| {
        let database = create(executor, settings, 100).await;
        let (objects, home) = (database.partition("objects").expect("it exists"), holder.file("objects.pages"));
        let (page, count) = (PageId::new(objects, 90), Rc::new(Cell::new(0)));
        let counted = Rc::clone(&count);
        holder.refuse(move |op| {
            let fails = is_refused && is_written(op, home, page);
            counted.set(counted.get() + u32::from(!fails && matches!(op, Op::Write { file, .. } if *file == home)));
            fails
        });
        change(&database, [90], 1).await;
        for round in 0..240_u32 {
            change(&database, 0..50, round as u8).await;
            executor.sleep_ns(SECOND_NS).await;
        }
        count.get()
    })
}

/// What has failed is tried again soon, and others are written no more often for that.
#[test]
fn a_page_that_cannot_be_written_has_hot_pages_written_no_more_often() {
    let (before, beside) = (home_writes(false), home_writes(true));
    assert!(before > 100, "{before} writes");
    assert!(beside < 2 * before, "{beside} writes beside one that fails, {before} without");
}
