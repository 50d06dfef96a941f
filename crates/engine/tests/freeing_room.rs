//! Freeing the pages of long values logs a step for each page, after the commit: however many there are, the log has room for
//! that and for what it has promised to others.

use crate::ground::machine::run;
use base::time::{MILLISECOND_NS, SECOND_NS};
use base::{PartitionId, Random};
use driver::Halt;
use entresol_engine::checkpoint::Policy;
use entresol_engine::{Database, Internals, PartitionSpec, Settings, Transaction, buffer, log};
use executor::{Executor, Order};
use std::cell::Cell;
use virtual_driver::{FaultPlan, Hardware, Media, Options, PowerCut, VirtualDriver};

const VALUES: u32 = 60;
const OPENINGS: u64 = 6;

fn settings() -> Settings {
    Settings {
        buffer: buffer::Settings { frames: 256, page_size: 1024, ..buffer::Settings::default() },
        log: log::Settings { capacity: 128 << 10, ..log::Settings::default() },
        checkpoint: Policy { log_bytes: Some(32 << 10), interval_ns: None },
        ..Settings::default()
    }
}

/// A tree of long values whose pages take far more of the log to be freed than it has.
async fn create(executor: &executor::Executor) -> Database {
    let database = Database::create(executor, settings()).await.expect("creates");
    for name in ["texts", "notes"] {
        database.create_partition(PartitionSpec::b_tree(name)).await.expect("creates a tree");
    }
    let texts = database.partition("texts").expect("it exists");
    for number in 0..VALUES {
        let put = async |tx: &mut Transaction| tx.put(texts, &number.to_be_bytes(), &[7; 30_000]).await;
        database.transaction(put).await.expect("puts");
    }
    database
}

async fn delete_all(database: &Database) {
    let texts = database.partition("texts").expect("it exists");
    let deleted = database.transaction(async |tx| {
        for number in 0..VALUES {
            tx.delete(texts, &number.to_be_bytes()).await?;
        }
        Ok::<_, entresol_engine::Error>(())
    });
    deleted.await.expect("commits");
}

/// Nothing of a deleted value is left, and others commit.
async fn verify(database: &Database) {
    let [texts, notes] = ["texts", "notes"].map(|name| database.partition(name).expect("it exists"));
    let found = database.transaction(async |tx| tx.get(texts, &7_u32.to_be_bytes()).await).await;
    assert_eq!(found, Ok(None));
    for number in 0..400_u32 {
        let put = async |tx: &mut Transaction| tx.put(notes, &number.to_be_bytes(), &[3; 200]).await;
        database.transaction(put).await.unwrap_or_else(|error| panic!("{number}: {error}"));
    }
    assert_eq!(database.log().failure(), None);
    let report = database.check(|_| ()).await.expect("reads");
    assert!(report.is_clean(), "{:?}", report.findings);
}

#[test]
fn many_long_values_are_freed_in_a_small_log() {
    let media = Media::new();
    run(&media, async |executor| {
        let database = create(executor).await;
        delete_all(&database).await;
        verify(&database).await;
    });
}

/// A transaction that has logged some changes and goes on.
async fn begin_and_change(database: &Database, notes: PartitionId) -> Transaction {
    let mut transaction = database.begin().await.expect("begins");
    for number in 0..20_u32 {
        transaction.put(notes, &number.to_be_bytes(), &[1; 200]).await.expect("puts");
    }
    transaction
}

#[test]
fn freeing_them_leaves_others_the_log_that_their_rollbacks_were_promised() {
    run(&Media::new(), async |executor| {
        let database = create(executor).await;
        let notes = database.partition("notes").expect("it exists");
        database.checkpoint().await.expect("checkpoints");
        // What this holds of the log stays until it ends, and it ends after the commit of the other one was acknowledged.
        let held = begin_and_change(&database, notes).await;
        delete_all(&database).await;
        executor.sleep_ns(SECOND_NS).await;
        held.rollback().await.expect("it was promised the room");
        executor.sleep_ns(SECOND_NS).await;
        verify(&database).await;
    });
}

/// Deletes all long values beside a transaction that holds the log and never ends, and goes on for so long.
async fn delete_beside_one_that_never_ends(executor: &Executor, wait_ns: u64) {
    let database = create(executor).await;
    let notes = database.partition("notes").expect("it exists");
    database.checkpoint().await.expect("checkpoints");
    let held = begin_and_change(&database, notes).await;
    delete_all(&database).await;
    executor.sleep_ns(wait_ns).await;
    std::mem::forget(held);
}

#[test]
fn a_restart_goes_on_freeing_them() {
    for wait_ns in [0, 10 * MILLISECOND_NS] {
        let media = Media::new();
        run(&media, async |executor| {
            delete_beside_one_that_never_ends(executor, wait_ns).await;
        });
        for _ in 0..2 {
            run(&media, async |executor| {
                let opened = Database::open(executor, settings(), "here").await;
                let database = opened.unwrap_or_else(|error| panic!("{wait_ns}: {error}"));
                verify(&database).await;
            });
        }
    }
}

/// An opening on a machine whose power goes at this event. Whether it came to its end before.
fn open_until(media: &Media, cut: u64, seed: u64) -> bool {
    let faults = Some(FaultPlan { power_cut_at: Some(cut), ..FaultPlan::default() });
    let options = Options { seed, faults, jitter: true, ..Options::default() };
    let driver = VirtualDriver::new(Hardware::ideal(), options, media.clone());
    let executor = Executor::new(Box::new(driver), Order::Seeded(seed));
    let opened = Cell::new(false);
    let ended = executor.run(async {
        let database = Database::open(&executor, settings(), "here").await;
        let database = database.unwrap_or_else(|error| panic!("opening {seed}: {error}"));
        opened.set(true);
        let log = database.log();
        assert!(log.used() <= log.capacity(), "opening {seed}: {} bytes of log", log.used());
    });
    assert!(ended.is_ok() || ended == Err(Halt::PowerCut), "{ended:?}");
    executor.stop();
    media.power_cut(&mut Random::stream(seed, "cut"), &PowerCut::default());
    opened.get()
}

/// The power goes again and again shortly before the end of an opening, each time when that leaves the most log to the next one.
#[test]
fn openings_that_are_cut_off_keep_none_of_the_room_for_it() {
    let mut media = Media::new();
    run(&media, async |executor| {
        delete_beside_one_that_never_ends(executor, 10 * MILLISECOND_NS).await;
    });
    let log_of = |media: &Media| {
        run(&media.copy(), async |executor| {
            let database = Database::open(executor, settings(), "here").await.expect("opens");
            database.recovery().log_bytes
        })
    };
    for seed in 0..OPENINGS {
        let (mut end, mut beyond) = (16, 1 << 12);
        while end < beyond {
            let middle = (end + beyond) / 2;
            let is_opened = open_until(&media.copy(), middle, seed);
            (end, beyond) = if is_opened { (end, middle) } else { (middle + 1, beyond) };
        }
        let cuts = (end - 12..end).map(|cut| {
            let copy = media.copy();
            assert!(!open_until(&copy, cut, seed), "opening {seed}: it ends with event {end}");
            (log_of(&copy), copy)
        });
        let (_, left) = cuts.max_by_key(|(log, _)| *log).expect("there are some");
        media = left;
    }
    run(&media, async |executor| {
        let database = Database::open(executor, settings(), "here").await.expect("opens");
        let verified = executor.spawn(async move { verify(&database).await });
        let deadline = executor.now().plus_ns(60 * SECOND_NS);
        while !verified.is_finished() {
            assert!(executor.now() < deadline, "no transaction gets room in the log any more");
            executor.sleep_ns(10 * MILLISECOND_NS).await;
        }
        verified.join().await;
    });
}
