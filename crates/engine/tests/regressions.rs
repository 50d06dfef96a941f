//! Faults that torture has found, each in its smallest form.

use crate::ground::machine::run;
use base::time::MILLISECOND_NS;
use base::{Lsn, PageId, PartitionId, Random, TransactionId};
use entresol_engine::buffer::{Pins, Presence};
use entresol_engine::catalog::{Locking, Organization};
use entresol_engine::log::record::Body;
use entresol_engine::log::{Log, LogScan};
use entresol_engine::second_level::design::Pattern;
use entresol_engine::{
    Database, Direction, Error, Internals, Need, PartitionSpec, Settings, Transaction, buffer, checkpoint, log,
};
use executor::Executor;
use std::future::{Future, poll_fn};
use std::ops::Bound;
use std::pin::pin;
use std::task::Poll;
use virtual_driver::Media;

fn settings() -> Settings {
    Settings {
        buffer: buffer::Settings { frames: 64, page_size: 1024, cleaner: false, ..buffer::Settings::default() },
        log: log::Settings { capacity: 1 << 20, ..log::Settings::default() },
        checkpoint: checkpoint::Policy::OFF,
        ..Settings::default()
    }
}

/// A tree with these keys.
async fn tree(executor: &Executor, keys: &[&str]) -> (Database, PartitionId) {
    let database = Database::create(executor, settings()).await.expect("creates");
    let tree = database.create_partition(PartitionSpec::b_tree("tree")).await.expect("creates");
    let mut tx = database.begin().await.expect("begins");
    for key in keys {
        tx.put(tree, key.as_bytes(), &[1; 80]).await.expect("puts");
    }
    tx.commit().await.expect("commits");
    (database, tree)
}

async fn read(tx: &mut Transaction, tree: PartitionId, to: Bound<&str>, direction: Direction) -> usize {
    let mut cursor = tx.cursor(tree, Bound::Unbounded, to.map(str::as_bytes), direction);
    let mut records = 0;
    while tx.next(&mut cursor).await.expect("reads").is_some() {
        records += 1;
    }
    records
}

/// A task that inserts a key and commits.
fn inserter(
    executor: &Executor,
    database: &Database,
    tree: PartitionId,
    key: &'static str,
) -> executor::JoinHandle<()> {
    let database = database.clone();
    executor.spawn(async move {
        let mut tx = database.begin().await.expect("begins");
        tx.insert(tree, key.as_bytes(), b"phantom").await.expect("inserts");
        tx.commit().await.expect("commits");
    })
}

/// Polls a future `times` times and drops it; whether it was ready by then.
async fn poll_times(future: impl Future, mut times: u32) -> bool {
    let mut future = pin!(future);
    poll_fn(|context| {
        times -= 1;
        match future.as_mut().poll(context) {
            Poll::Ready(_) => Poll::Ready(true),
            Poll::Pending if times == 0 => Poll::Ready(false),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}

#[test]
fn a_long_value_that_was_abandoned_half_way_leaves_no_page_lost() {
    run(&Media::new(), async |executor| {
        let (database, tree) = tree(executor, &["a"]).await;
        for polls in 1..6 {
            let mut tx = database.begin().await.expect("begins");
            // The file has to grow for so long a value, which suspends the call.
            poll_times(tx.put(tree, b"long", &vec![7; 900_000]), polls).await;
            tx.put(tree, b"short", b"value").await.expect("puts");
            tx.commit().await.expect("commits");
        }
        let report = database.check(|_| ()).await.expect("checks");
        assert_eq!(report.findings, []);
    });
}

#[test]
fn a_commit_that_is_abandoned_frees_what_it_deleted() {
    run(&Media::new(), async |executor| {
        let (database, tree) = tree(executor, &["a"]).await;
        let mut tx = database.begin().await.expect("begins");
        tx.put(tree, b"long", &[7; 9_000]).await.expect("puts");
        tx.commit().await.expect("commits");
        let mut tx = database.begin().await.expect("begins");
        tx.delete(tree, b"long").await.expect("deletes");
        assert!(!poll_times(tx.commit(), 1).await, "the log takes its time");
        while database.active_transactions() > 0 {
            executor.sleep_ns(1_000).await;
        }
        assert_eq!(database.check(|_| ()).await.expect("checks").findings, []);
    });
}

#[test]
fn a_checkpoint_that_is_abandoned_leaves_the_next_one_possible() {
    run(&Media::new(), async |executor| {
        let (database, _) = tree(executor, &["a"]).await;
        for polls in 1..8 {
            poll_times(database.checkpoint(), polls).await;
        }
        database.checkpoint().await.expect("takes a checkpoint");
    });
}

#[test]
fn a_gap_stays_closed_when_the_record_above_it_is_rolled_back() {
    run(&Media::new(), async |executor| {
        let (database, tree) = tree(executor, &["a", "z"]).await;
        let mut inserting = database.begin().await.expect("begins");
        inserting.insert(tree, b"m", b"uncommitted").await.expect("inserts");
        let reading = {
            let database = database.clone();
            executor.spawn(async move {
                let mut tx = database.begin().await.expect("begins");
                assert_eq!(read(&mut tx, tree, Bound::Included("c"), Direction::Forward).await, 1);
                tx
            })
        };
        executor.sleep_ns(100_000).await;
        inserting.rollback().await.expect("rolls back");
        let tx = reading.join().await;
        let phantom = inserter(executor, &database, tree, "b");
        executor.sleep_ns(1_000_000).await;
        assert!(!phantom.is_finished(), "the insert waits for the reader");
        tx.commit().await.expect("commits");
        phantom.join().await;
    });
}

#[test]
fn a_backward_range_that_excludes_a_record_is_closed_below_it() {
    run(&Media::new(), async |executor| {
        let (database, tree) = tree(executor, &["a", "m", "z"]).await;
        let mut tx = database.begin().await.expect("begins");
        assert_eq!(read(&mut tx, tree, Bound::Excluded("m"), Direction::Backward).await, 1);
        let phantom = inserter(executor, &database, tree, "k");
        executor.sleep_ns(1_000_000).await;
        assert!(!phantom.is_finished(), "the insert waits for the reader");
        tx.commit().await.expect("commits");
        phantom.join().await;
    });
}

#[test]
fn a_gap_that_reaches_over_the_end_of_a_leaf_is_closed_with_the_leaf() {
    run(&Media::new(), async |executor| {
        let keys: Vec<String> = (0..60).map(|number| format!("key {:02}", number)).collect();
        let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
        let (database, tree) = tree(executor, &keys).await;
        let mut tx = database.begin().await.expect("begins");
        let mut cursor = tx.cursor(tree, Bound::Unbounded, Bound::Unbounded, Direction::Forward);
        // One record shown: exactly the first leaf is read, however many records it has.
        tx.next(&mut cursor).await.expect("reads").expect("is there");
        let database = &database;
        let phantoms: Vec<_> =
            ["key 00x", "key 05x", "key 07x", "key 08x"].map(|key| inserter(executor, database, tree, key)).into();
        executor.sleep_ns(1_000_000).await;
        let before = phantoms.iter().filter(|phantom| phantom.is_finished()).count();
        let mut shown = 1;
        while tx.next(&mut cursor).await.expect("reads").is_some() {
            shown += 1;
        }
        assert_eq!(shown, 60 + before, "what came in before the end of the leaf is shown or was kept out");
        tx.commit().await.expect("commits");
        for phantom in phantoms {
            phantom.join().await;
        }
    });
}

#[test]
fn one_damaged_copy_of_the_superblock_file_does_no_harm() {
    let media = Media::new();
    run(&media, async |executor| {
        let (database, _) = tree(executor, &["a"]).await;
        database.close().await.expect("closes");
    });
    for copy in 0..2 {
        for byte in [3, 9, 13, 26, 40] {
            let media = media.copy();
            media.flip_bit("disk", "entresol.home", copy * 65_536 + byte, 5).expect("flips");
            run(&media, async |executor| {
                let database = Database::open(executor, settings(), "here").await.expect("opens");
                database.partition("tree").expect("is known");
            });
        }
    }
}

#[test]
fn pages_that_an_earlier_opening_left_are_not_the_logs_beginning() {
    run(&Media::new(), async |executor| {
        let device = executor.device("disk").expect("exists");
        let settings = log::Settings { page_size: 512, capacity: 64 << 10, ..log::Settings::default() };
        let log = Log::create(executor, "disk", &settings).await.expect("creates");
        let mut ends = Vec::new();
        for number in 1..3 {
            let lsn = log.append(TransactionId(number), &Body::RolledBack, std::iter::empty());
            log.flush(lsn).await.expect("flushes");
            ends.push(log.end());
        }
        let from = ends[0];
        for (opening, records) in [(1, 1), (2, 0)] {
            let scan = LogScan::open(executor, device, &settings, from, Lsn::ZERO).await.expect("opens");
            let mut scan = scan.since_opening(opening);
            let mut found = 0;
            while scan.next().await.expect("reads").is_some() {
                found += 1;
            }
            assert_eq!(found, records, "opening {opening}");
        }
    });
}

#[test]
fn a_log_that_fills_up_without_a_checkpointer_is_given_up_in_time() {
    run(&Media::new(), async |executor| {
        let (database, tree) = tree(executor, &["a"]).await;
        let clients: Vec<_> = (0..20_u32)
            .map(|client| {
                let database = database.clone();
                executor.spawn(async move {
                    for round in 0..400_u32 {
                        let value = [round as u8; 80];
                        let key = client.to_be_bytes();
                        let put = database.transaction(async |tx| tx.put(tree, &key, &value).await);
                        put.await.expect("waits until there is room");
                    }
                })
            })
            .collect();
        for client in clients {
            client.join().await;
        }
        let log = database.log();
        assert!(log.end().0 > log.capacity() && database.statistics().checkpoints.get() > 0, "the log was full");
    });
}

#[test]
fn long_transactions_that_end_each_other_get_through() {
    run(&Media::new(), async |executor| {
        let keys: Vec<String> = (0..12).map(|number| format!("key {number:02}")).collect();
        let names: Vec<&str> = keys.iter().map(String::as_str).collect();
        let (database, tree) = tree(executor, &names).await;
        let clients: Vec<_> = (0..4_u64)
            .map(|client| {
                let (database, keys) = (database.clone(), keys.clone());
                executor.spawn(async move {
                    let mut random = Random::stream(client, "client");
                    let order: Vec<usize> = (0..30).map(|_| random.below(12) as usize).collect();
                    let work = async |tx: &mut Transaction| {
                        for key in &order {
                            tx.modify(tree, keys[*key].as_bytes(), |value| value[0] += 1).await?;
                            tx.executor().sleep_ns(1_000_000_000).await;
                        }
                        Ok::<_, Error>(())
                    };
                    database.transaction(work).await.expect("commits");
                })
            })
            .collect();
        for client in clients {
            client.join().await;
        }
        let deadlocks = database.statistics().deadlocks.get();
        assert!(deadlocks < 300, "{deadlocks} deadlocks before four transactions got through");
    });
}

#[test]
fn a_page_stays_until_those_who_waited_for_it_have_seen_it() {
    run(&Media::new(), async |executor| {
        let settings = Settings { multiprogramming_level: 4_096, ..settings() };
        let database = Database::create(executor, settings).await.expect("creates");
        let direct = Organization::Direct { objects: 20_000, blocking_factor: 10, record_size: 64 };
        let objects = PartitionSpec::new("objects", direct, Locking::None);
        let objects = database.create_partition(objects).await.expect("creates");
        let modify = |number: u64| {
            let database = database.clone();
            async move {
                database.transaction(async |tx| tx.modify_object(objects, number, |bytes| bytes[0] = 1).await).await
            }
        };
        for page in 0..2_000 {
            modify(10 * page).await.expect("writes every page once");
        }
        let before = database.buffer().space(objects).reads.get();
        let clients: Vec<_> = (0..2_000_u64)
            .map(|client| {
                let modified = modify(10 * (client * 7_919 % 2_000));
                executor.spawn(async move { modified.await.expect("commits") })
            })
            .collect();
        for client in clients {
            client.join().await;
        }
        let reads = database.buffer().space(objects).reads.get() - before;
        assert!(reads <= 2_000, "{reads} reads for 2,000 pages");
    });
}

#[test]
fn a_rollback_waits_for_frames_that_others_have() {
    run(&Media::new(), async |executor| {
        let keys: Vec<String> = (0..1_000).map(|number| format!("{number:04}")).collect();
        let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
        let (database, tree) = tree(executor, &keys).await;
        let mut changing = database.begin().await.expect("begins");
        changing.put(tree, b"0000", &[2; 80]).await.expect("puts");
        // The changed leaf has left by then.
        let mut reading = database.begin().await.expect("begins");
        for _ in 0..2 {
            let mut cursor = reading.cursor(tree, Bound::Included(b"0020"), Bound::Unbounded, Direction::Forward);
            while reading.next(&mut cursor).await.expect("reads").is_some() {}
        }
        reading.commit().await.expect("commits");
        let pool = || database.buffer().pool().borrow_mut();
        assert_eq!(pool().free_count(), 0, "every frame has a page");
        let frames = 0..pool().len() as u32;
        frames.clone().for_each(|frame| pool().pin(frame));
        drop(changing);
        executor.sleep_ns(100 * MILLISECOND_NS).await;
        frames.for_each(|frame| pool().unpin(frame));
        let mut tx = database.begin().await.expect("begins");
        let found = tx.get(tree, b"0000").await.expect("the lock is free in the end");
        assert_eq!(found, Some(vec![1; 80]), "it was taken back");
    });
}

#[test]
fn a_snapshot_shows_what_was_changed_and_then_deleted_behind_it() {
    let media = Media::new();
    run(&media, async |executor| {
        let (database, tree) = tree(executor, &["a", "b", "c"]).await;
        let set = database.create_partition(PartitionSpec::set("set")).await.expect("creates");
        database.transaction(async |tx| tx.put(set, b"b", b"old").await).await.expect("puts");
        let mut before = database.snapshot().await.expect("begins");
        for round in 0..3_u8 {
            // There is no read between the change and the deletion, so only what was before the change is kept.
            let change = async |tx: &mut Transaction| {
                tx.put(tree, b"b", &[round]).await?;
                tx.put(set, b"b", &[round]).await
            };
            database.transaction(change).await.expect("changes");
            let delete = async |tx: &mut Transaction| {
                Ok::<_, Error>(tx.delete(tree, b"b").await? && tx.delete(set, b"b").await?)
            };
            assert_eq!(database.transaction(delete).await, Ok(true));
        }
        let mut found = Vec::new();
        let mut cursor = before.cursor(tree, Bound::Unbounded, Bound::Unbounded, Direction::Backward);
        while let Some((key, value)) = before.next(&mut cursor).await.expect("reads") {
            found.push((key, value.len()));
        }
        assert_eq!(found, [(b"c".to_vec(), 80), (b"b".to_vec(), 80), (b"a".to_vec(), 80)]);
        found.clear();
        let keep = |key: &[u8], value: &[u8]| {
            found.push((key.to_vec(), value.len()));
            true
        };
        before.scan_set(set, keep).await.expect("reads");
        assert_eq!(found, [(b"b".to_vec(), 3)]);
        drop((before, cursor));
        let later = database.snapshot().await.expect("begins");
        drop(later);
        assert_eq!(database.versions().versions, 0);
    });
}

#[test]
fn more_pages_than_are_staged_at_once_are_forced() {
    let keys: Vec<String> = (0..400).map(|number| format!("{number:04}")).collect();
    run(&Media::new(), async |executor| {
        // Larger than what the device writes untorn.
        let buffer = buffer::Settings { frames: 128, page_size: 8192, ..settings().buffer };
        let log = log::Settings { capacity: 4 << 20, ..settings().log };
        let settings = Settings { force: true, buffer, log, ..settings() };
        let database = Database::create(executor, settings).await.expect("creates");
        let tree = database.create_partition(PartitionSpec::b_tree("tree")).await.expect("creates");
        let mut tx = database.begin().await.expect("begins");
        for key in &keys {
            tx.put(tree, key.as_bytes(), &[1; 900]).await.expect("puts");
        }
        tx.commit().await.expect("forces some forty pages");
    });
}

/// Opens a database of pages of 512 bytes whose tree has room in its file that no page has used yet.
async fn with_blank_pages(executor: &Executor, frames: usize) -> (Database, PartitionId) {
    let buffer = buffer::Settings { frames, page_size: 512, ..settings().buffer };
    let settings = Settings { buffer, ..settings() };
    let created = Database::create(executor, settings.clone()).await.expect("creates");
    let tree = created.create_partition(PartitionSpec::b_tree("tree")).await.expect("creates");
    created.transaction(async |tx| tx.put(tree, b"long", &[1; 30_000]).await).await.expect("puts");
    created.close().await.expect("closes");
    (Database::open(executor, settings, "here").await.expect("opens"), tree)
}

#[test]
fn long_values_that_are_built_at_once_keep_no_pages_from_each_other() {
    run(&Media::new(), async |executor| {
        let (database, tree) = with_blank_pages(executor, 34).await;
        let clients: Vec<_> = (0..3_u8)
            .map(|client| {
                let database = database.clone();
                executor.spawn(async move {
                    database.transaction(async |tx| tx.put(tree, &[client], &[client; 20_000]).await).await
                })
            })
            .collect();
        for client in clients {
            assert_eq!(client.join().await, Ok(()));
        }
    });
}

#[test]
fn a_blank_page_without_a_frame_for_its_allocator_page_is_refused() {
    run(&Media::new(), async |executor| {
        let (database, tree) = with_blank_pages(executor, 34).await;
        let (buffer, id) = (database.buffer(), |number| PageId::new(tree, number));
        assert_eq!(buffer.pool().borrow().presence(id(0)), Presence::Absent);
        let taken: Vec<u32> = {
            let mut pool = buffer.pool().borrow_mut();
            (1..pool.free_count()).map(|_| pool.take_free().expect("is free")).collect()
        };
        let mut pins = Pins::new(buffer);
        let (refused, _) = (buffer.resolve(Need::Page(id(1_000)), Pattern::Random, &mut pins).await, drop(pins));
        assert!(matches!(refused, Err(Error::BufferExhausted { .. })), "{refused:?}");
        taken.into_iter().for_each(|frame| buffer.pool().borrow_mut().give_free(frame));
        let mut pins = Pins::new(buffer);
        assert_eq!(buffer.resolve(Need::Page(id(1_000)), Pattern::Random, &mut pins).await, Ok(true));
    });
}
