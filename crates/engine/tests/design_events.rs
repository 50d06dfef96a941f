//! What a design of the second level learns of reads and updates, and what becomes of its answers.

use crate::ground::cached;
use crate::ground::machine::run;
use cached::{cache, change, read};
use entresol_engine::catalog::{Locking, Organization};
use entresol_engine::second_level::design::{CachePolicy, Contents, Decision, Leaving, Outdated, Pattern, Read};
use entresol_engine::second_level::{Design, Tiers};
use entresol_engine::{Database, Direction, Internals, PartitionSpec, Settings};
use std::cell::RefCell;
use std::ops::Bound;
use std::rc::Rc;
use virtual_driver::Media;

const PAGES: u64 = 60;
const PAGE_SIZE: u64 = 1024;
const RECORDS: u64 = 400;

thread_local! {
    /// What the design was told of reads from pages' own devices.
    static READS: RefCell<Vec<Read>> = const { RefCell::new(Vec::new()) };
    /// What it was told of pages that leave main memory.
    static LEAVING: RefCell<Vec<Leaving>> = const { RefCell::new(Vec::new()) };
}

/// Pages enter when they are read at random; what is changed leaves the cache, or stays dirty there.
struct AtRead {
    writes_back: bool,
}

impl CachePolicy for AtRead {
    fn is_inclusive(&self) -> bool {
        true
    }

    fn on_read(&mut self, read: &Read, _: &Contents<'_>) -> Decision {
        READS.with_borrow_mut(|reads| reads.push(*read));
        if read.pattern == Pattern::Random { Decision::WriteThrough } else { Decision::Skip }
    }

    fn on_eviction(&mut self, leaving: &Leaving, _: &Contents<'_>) -> Decision {
        LEAVING.with_borrow_mut(|pages| pages.push(*leaving));
        if leaving.dirty && self.writes_back { Decision::WriteBack } else { Decision::Skip }
    }

    fn on_update(&mut self, _: base::PageId) -> Outdated {
        Outdated::Freed
    }
}

const AT_READ: Design = Design::new("at-read", |_| Box::new(AtRead { writes_back: false }));
const BACK: Design = Design::new("back", |_| Box::new(AtRead { writes_back: true }));

fn settings(design: Design, pages: u32) -> Settings {
    cached::settings(cache(design, pages))
}

async fn create(executor: &executor::Executor, settings: Settings) -> Database {
    cached::create(executor, settings, PAGES).await
}

async fn assert_all(database: &Database, value: impl Fn(u64) -> u8) {
    let values: Vec<u8> = (0..PAGES).map(value).collect();
    assert_eq!(read(database, 0..PAGES).await, values);
}

fn tiers(database: &Database) -> Rc<Tiers> {
    let tiers = database.buffer().tiers().expect("there is a cache");
    tiers.check().expect("consistent");
    tiers
}

/// How many pages the cache has served, and how many were written into it.
fn served(database: &Database) -> (u64, u64) {
    let report = &database.tiers()[0];
    (report.reads, report.writes)
}

/// What the design was told of reads since this was asked before.
fn reads() -> Vec<Read> {
    READS.take()
}

#[test]
fn scans_behind_their_first_page_are_sequential_and_everything_else_is_random() {
    run(&Media::new(), async |executor| {
        let database = create(executor, settings(AT_READ, 200)).await;
        let notes = database.create_partition(PartitionSpec::b_tree("notes")).await.expect("creates");
        let organization = Organization::Append { blocking_factor: 0 };
        let spec = PartitionSpec::new("history", organization, Locking::Record);
        let history = database.create_partition(spec).await.expect("creates");
        for number in 0..RECORDS {
            let mut tx = database.begin().await.expect("begins");
            tx.put(notes, &number.to_be_bytes(), &[1; 80]).await.expect("puts");
            tx.append(history, &[2; 80]).await.expect("appends");
            tx.commit().await.expect("commits");
        }
        database.checkpoint().await.expect("writes everything");
        // Pages of the others leave main memory.
        assert_all(&database, |_| 0).await;
        reads();
        let mut tx = database.begin().await.expect("begins");
        for number in [3, 200, RECORDS - 1] {
            tx.get(notes, &number.to_be_bytes()).await.expect("reads").expect("it is there");
        }
        let found = reads();
        assert!(found.len() >= 3 && found.iter().all(|read| read.pattern == Pattern::Random), "{found:?}");
        assert_all(&database, |_| 0).await;
        reads();
        for direction in [Direction::Forward, Direction::Backward] {
            let mut cursor = tx.cursor(notes, Bound::Unbounded, Bound::Unbounded, direction);
            let mut count = 0;
            while tx.next(&mut cursor).await.expect("reads").is_some() {
                count += 1;
            }
            assert_eq!(count, RECORDS);
            let found = reads();
            let random = found.iter().filter(|read| read.pattern == Pattern::Random).count();
            assert!(found.len() > 20 && random <= 3, "{random} of {}", found.len());
            assert_all(&database, |_| 0).await;
            reads();
        }
        let mut count = 0;
        let look = |_, _: &[u8]| {
            count += 1;
            true
        };
        tx.scan_appended(history, look).await.expect("reads");
        assert_eq!(count, RECORDS);
        let found = reads();
        assert!(found.len() > 20, "{}", found.len());
        let is_sequential = |read: &Read| read.page.number == 0 || read.pattern == Pattern::Sequential;
        assert!(found.iter().all(is_sequential), "{found:?}");
        LEAVING.take();
        assert_all(&database, |_| 0).await;
        let left = LEAVING.take();
        let is_told = |leaving: &&Leaving| leaving.page.partition == history && leaving.page.number > 0;
        assert!(left.iter().filter(is_told).count() > 5, "{left:?}");
        assert!(left.iter().filter(is_told).all(|leaving| leaving.pattern == Pattern::Sequential), "{left:?}");
        tx.commit().await.expect("commits");
    });
}

#[test]
fn a_page_enters_when_it_is_read_and_leaves_when_it_is_changed() {
    run(&Media::new(), async |executor| {
        let database = create(executor, settings(AT_READ, 64)).await;
        change(&database, 0..PAGES, 1).await;
        database.checkpoint().await.expect("writes everything");
        assert_all(&database, |_| 1).await;
        let (before, entered) = served(&database);
        let read = reads().len() as u64;
        assert!((read - 1..=read).contains(&entered), "{entered} of {read}: the last may be under way");
        assert_all(&database, |_| 1).await;
        assert!(served(&database).0 >= before + PAGES - 20, "{:?}", served(&database));
        assert!(reads().len() <= 20, "what is in the cache is not read from its own device");
        // What is changed is read from its own device afterwards.
        change(&database, 0..30, 2).await;
        database.checkpoint().await.expect("writes everything");
        reads();
        assert_all(&database, |number| if number < 30 { 2 } else { 1 }).await;
        let again: Vec<u32> = reads().iter().map(|read| read.page.number).collect();
        assert!(again.len() >= 10 && again.iter().all(|number| *number < 30), "{again:?}");
        tiers(&database);
    });
}

#[test]
fn no_copy_of_what_was_changed_while_it_entered_is_shown() {
    for (design, pages) in [(AT_READ, 64), (AT_READ, 7), (BACK, 64), (BACK, 7)] {
        let media = Media::new();
        run(&media, async |executor| {
            let database = create(executor, settings(design, pages)).await;
            for round in 1..6 {
                // Each page is changed as soon as it was read.
                change(&database, 0..PAGES, round).await;
                assert_all(&database, |_| round).await;
                if round == 3 {
                    database.checkpoint().await.expect("writes everything");
                }
                tiers(&database);
            }
        });
        run(&media, async |executor| {
            let database = Database::open(executor, settings(design, pages), "here").await.expect("opens");
            assert_all(&database, |_| 5).await;
        });
    }
}

#[test]
fn a_change_in_main_memory_takes_over_what_the_log_keeps_for_a_dirty_copy() {
    let media = Media::new();
    run(&media, async |executor| {
        let database = create(executor, settings(BACK, 64)).await;
        change(&database, 0..PAGES, 1).await;
        let pending = tiers(&database).pending_count();
        let needed = database.buffer().recovery_lsn().expect("the log is needed");
        change(&database, 0..10, 2).await;
        assert!(tiers(&database).pending_count() <= pending, "their slots are free");
        assert_eq!(database.buffer().recovery_lsn(), Some(needed), "their own places lack the first change, too");
    });
    for slot in 0..64 {
        media.flip_bit("nvem", "cache.tier", 4096 + slot * PAGE_SIZE + 500, 3).expect("flips");
    }
    run(&media, async |executor| {
        let database = Database::open(executor, settings(BACK, 64), "here").await.expect("opens");
        assert_all(&database, |number| if number < 10 { 2 } else { 1 }).await;
    });
}
