//! The room in the log that rollbacks were promised: pages of the log that are written before they are full take none of it.

use base::time::{MILLISECOND_NS, SECOND_NS};
use base::{PartitionId, Random};
use devices::Hardware;
use entresol_engine::checkpoint::Policy;
use entresol_engine::{Database, Error, Internals, PartitionSpec, Result, Settings, Transaction, buffer, log};
use executor::{Executor, JoinHandle, Order};
use std::cell::Cell;
use std::rc::Rc;
use virtual_driver::{Media, Options, PowerCut, VirtualDriver};

const LOG: u64 = 256 << 10;
const ROWS: u32 = 400;
const BY_SIZE: Policy = Policy { log_bytes: Some(64 << 10), interval_ns: None };

fn settings(checkpoint: Policy, frames: usize) -> Settings {
    Settings {
        buffer: buffer::Settings { frames, page_size: 1024, ..buffer::Settings::default() },
        log: log::Settings { page_size: 4096, capacity: LOG, ..log::Settings::default() },
        log_device: "log".into(),
        checkpoint,
        ..Settings::default()
    }
}

/// Runs `work` on a machine whose log is fast and whose rows are slow to come; then the power goes.
fn on(media: &Media, work: impl AsyncFnOnce(&Executor)) {
    let device = |(name, us): (&str, u64)| format!("[device.{name}]\nmedium.service = \"{us} us\"\n");
    let text: String = [("disk", 20), ("log", 20), ("data", 2_000)].into_iter().map(device).collect();
    let hardware = Hardware::parse(&text, "test").expect("a description");
    let driver = VirtualDriver::new(hardware, Options::default(), media.clone());
    let executor = Executor::new(Box::new(driver), Order::FirstInFirstOut);
    executor.run(work(&executor)).expect("the machine goes on");
    executor.stop();
    media.power_cut(&mut Random::stream(1, "cut"), &PowerCut { lost: 1.0, torn: 0.0 });
}

async fn prepare(executor: &Executor, checkpoint: Policy, frames: usize) -> (Database, PartitionId, PartitionId) {
    let database = Database::create(executor, settings(checkpoint, frames)).await.expect("creates");
    let rows = PartitionSpec { device: "data".into(), ..PartitionSpec::b_tree("rows") };
    let rows = database.create_partition(rows).await.expect("creates");
    let notes = database.create_partition(PartitionSpec::b_tree("notes")).await.expect("creates");
    let records = (0..ROWS).map(|row| (row.to_be_bytes(), [1; 150]));
    database.load_b_tree(rows, records, |_| {}).await.expect("loads");
    (database, rows, notes)
}

async fn note(database: &Database, notes: PartitionId, number: u32) -> Result<()> {
    database.transaction(async |tx| tx.put(notes, &(number % 10).to_be_bytes(), &[2; 400]).await).await
}

/// Changes rows that lie on different pages.
async fn change(tx: &mut Transaction, rows: PartitionId, updates: u32) -> Result<()> {
    for number in 0..updates {
        let row = (number * 33 % ROWS).to_be_bytes();
        tx.modify(rows, &row, |value| value[..40].fill(3)).await?;
    }
    Ok(())
}

/// Writes notes, each by a client of its own, until some of them have to wait.
async fn fill(executor: &Executor, database: &Database, notes: PartitionId) -> Vec<JoinHandle<Result<()>>> {
    let mut waiting = Vec::new();
    for number in 0.. {
        let client = {
            let database = database.clone();
            executor.spawn(async move { note(&database, notes, number).await })
        };
        let deadline = executor.now().plus_ns(100 * MILLISECOND_NS);
        while !client.is_finished() && executor.now() < deadline {
            executor.sleep_ns(MILLISECOND_NS / 2).await;
        }
        if client.is_finished() {
            client.join().await.expect("there is room");
        } else {
            waiting.push(client);
        }
        if waiting.len() == 6 {
            break;
        }
    }
    waiting
}

async fn end(executor: &Executor, waiting: Vec<JoinHandle<Result<()>>>) {
    let deadline = executor.now().plus_ns(20 * SECOND_NS);
    for client in waiting {
        while !client.is_finished() {
            assert!(executor.now() < deadline, "a client waits for ever");
            executor.sleep_ns(MILLISECOND_NS).await;
        }
        client.join().await.expect("there is room again");
    }
}

/// A task waiting for room in the log demands none of it, nor do checkpoints that could make none.
#[test]
fn a_rollback_beside_a_full_log_takes_no_page_of_it_for_each_record() {
    for checkpoint in [Policy::OFF, BY_SIZE] {
        let media = Media::new();
        on(&media, async |executor| {
            let (database, rows, notes) = prepare(executor, checkpoint, 40).await;
            let mut large = database.begin().await.expect("begins");
            change(&mut large, rows, 130).await.expect("there is room");
            let waiting = fill(executor, &database, notes).await;
            large.rollback().await.expect("has the room that it was promised");
            end(executor, waiting).await;
            assert_eq!(database.log().failure(), None);
        });
        check_restart(&media, checkpoint, 40);
    }
}

/// With few frames, pages are written for nearly every page that is read, and each time a page of the log before it is full.
#[test]
fn a_transaction_that_writes_pages_of_the_log_before_they_are_full_is_refused_in_time() {
    let (mut rolled_back, mut refused) = (0, 0);
    for (frames, updates) in [(20, 60), (20, 130), (20, 300), (40, 130), (40, 300), (64, 300)] {
        for checkpoint in [Policy::OFF, BY_SIZE] {
            let media = Media::new();
            on(&media, async |executor| {
                let (database, rows, notes) = prepare(executor, checkpoint, frames).await;
                let mut large = database.begin().await.expect("begins");
                match change(&mut large, rows, updates).await {
                    Ok(()) => rolled_back += 1,
                    Err(Error::LogFull { .. }) => refused += 1,
                    Err(error) => panic!("{frames} {updates}: {error}"),
                }
                let waiting = fill(executor, &database, notes).await;
                large.rollback().await.unwrap_or_else(|error| panic!("{frames} {updates}: {error}"));
                end(executor, waiting).await;
            });
            check_restart(&media, checkpoint, frames);
        }
    }
    assert!(rolled_back > 2 && refused > 2, "{rolled_back} were rolled back whole, {refused} refused");
}

/// Commits of others have made a transaction's updates durable, so that none of its pages had to write the log before it was full.
/// Those that its rollback changes have to, because others read much meanwhile.
#[test]
fn a_rollback_beside_readers_has_the_room_that_it_was_promised() {
    for (frames, readers) in [(40, 2), (40, 8), (48, 8), (48, 30), (64, 30)] {
        for checkpoint in [Policy::OFF, BY_SIZE] {
            let media = Media::new();
            on(&media, async |executor| {
                let (database, rows, notes) = prepare(executor, checkpoint, frames).await;
                let others = PartitionSpec { device: "data".into(), ..PartitionSpec::b_tree("others") };
                let others = database.create_partition(others).await.expect("creates");
                let records = (0..4 * ROWS).map(|row| (row.to_be_bytes(), [1; 150]));
                database.load_b_tree(others, records, |_| {}).await.expect("loads");
                let mut large = database.begin().await.expect("begins");
                let mut reading = Vec::new();
                for _ in 0..readers {
                    reading.push(database.begin().await.expect("begins"));
                }
                let mut number = 0;
                while database.log().used() < 185 << 10 {
                    let row = (number * 33 % ROWS).to_be_bytes();
                    large.modify(rows, &row, |value| value[..40].fill(3)).await.expect("there is room");
                    let client = {
                        let database = database.clone();
                        executor.spawn(async move { note(&database, notes, number).await })
                    };
                    executor.sleep_ns(60 * MILLISECOND_NS).await;
                    assert!(client.is_finished(), "{frames} {readers}: it waits");
                    number += 1;
                }
                let waiting = fill(executor, &database, notes).await;
                let is_over = Rc::new(Cell::new(false));
                for (reader, mut tx) in (0..).zip(reading) {
                    let is_over = Rc::clone(&is_over);
                    executor.spawn(async move {
                        for step in 0.. {
                            let row: u32 = (step * 37 + reader * 131) % (4 * ROWS);
                            tx.get(others, &row.to_be_bytes()).await.expect("reads");
                            if is_over.get() {
                                break;
                            }
                        }
                    });
                }
                executor.sleep_ns(100 * MILLISECOND_NS).await;
                large.rollback().await.unwrap_or_else(|error| panic!("{frames} {readers}: {error}"));
                is_over.set(true);
                end(executor, waiting).await;
                assert_eq!(database.log().failure(), None, "{frames} {readers}");
            });
            check_restart(&media, checkpoint, frames);
        }
    }
}

fn check_restart(media: &Media, checkpoint: Policy, frames: usize) {
    on(media, async |executor| {
        let database = Database::open(executor, settings(checkpoint, frames), "test").await.expect("opens");
        let rows = database.partition("rows").expect("it exists");
        let mut tx = database.begin().await.expect("begins");
        for row in 0..ROWS {
            let found = tx.get(rows, &row.to_be_bytes()).await.expect("reads");
            assert_eq!(found.as_deref(), Some(&[1; 150][..]), "row {row}");
        }
        tx.commit().await.expect("ends");
    });
}
