//! Scans of what is not in memory: the pages ahead of them are read while they go on.

use crate::ground::cut_machine::run_up_to;
use devices::Hardware;
use entresol_engine::catalog::{Locking, Organization};
use entresol_engine::replacement::Policy;
use entresol_engine::second_level::{self, CacheSettings, Design};
use entresol_engine::{Database, Direction, Internals, PartitionSpec, Result, Settings, buffer, checkpoint, log};
use executor::Executor;
use std::ops::Bound;
use virtual_driver::Media;

const RECORDS: u32 = 4_000;
const READ_NS: u64 = 1_000_000;

fn hardware() -> Hardware {
    let text =
        "[device.disk]\nmedium.service = \"1 ms\"\nmedium.servers = 32\n[device.nvem]\nmedium.service = \"10 us\"\n";
    Hardware::parse(text, "test").expect("a description")
}

fn settings(frames: usize) -> Settings {
    Settings {
        buffer: buffer::Settings { frames, page_size: 1024, ..buffer::Settings::default() },
        log: log::Settings { capacity: 4 << 20, ..log::Settings::default() },
        log_device: "nvem".into(),
        checkpoint: checkpoint::Policy::OFF,
        ..Settings::default()
    }
}

fn key(number: u32) -> [u8; 4] {
    number.to_be_bytes()
}

fn value(number: u32) -> [u8; 100] {
    [number as u8; 100]
}

/// A closed database with a b-tree `tree` of some hundred leaves, and as many pages of an append partition.
fn filled() -> Media {
    let media = Media::default();
    on(&media, async |executor| {
        let database = Database::create(executor, settings(256)).await?;
        let tree = database.create_partition(PartitionSpec::b_tree("tree")).await?;
        database.load_b_tree(tree, (0..RECORDS).map(|number| (key(number), value(number))), |_| {}).await?;
        let organization = Organization::Append { blocking_factor: 0 };
        let history = database.create_partition(PartitionSpec::new("history", organization, Locking::Record)).await?;
        for first in (0..RECORDS).step_by(100) {
            let append = async |tx: &mut entresol_engine::Transaction| {
                for number in first..first + 100 {
                    tx.append(history, &value(number)).await?;
                }
                Ok::<_, entresol_engine::Error>(())
            };
            database.transaction(append).await?;
        }
        database.close().await
    })
    .expect("is filled");
    media
}

fn on<T>(media: &Media, work: impl AsyncFnOnce(&Executor) -> T) -> T {
    run_up_to(media, hardware(), None, work).expect("the machine goes on")
}

/// Opens it with this buffer, and says how long a look at it took and how many pages of the partition were read from the disk.
fn timed(media: &Media, frames: usize, name: &str, work: impl AsyncFnOnce(&Database) -> Result<()>) -> (u64, u64) {
    on(media, async |executor| {
        let database = Database::open(executor, settings(frames), "here").await?;
        let partition = database.partition(name)?;
        let began = executor.now();
        work(&database).await?;
        let took_ns = executor.now().since_ns(began);
        executor.sleep_ns(100 * READ_NS).await;
        let reads = database.buffer().space(partition).reads.get();
        database.close().await.map(|()| (took_ns, reads))
    })
    .expect("is read")
}

async fn go_through(database: &Database, direction: Direction, limit: usize) -> Result<()> {
    let tree = database.partition("tree")?;
    let mut tx = database.begin().await?;
    let mut cursor = tx.cursor(tree, Bound::Unbounded, Bound::Unbounded, direction);
    let mut found = Vec::new();
    while found.len() < limit
        && let Some((key, value)) = tx.next(&mut cursor).await?
    {
        found.push((key, value));
    }
    let mut expected: Vec<u32> = (0..RECORDS).collect();
    if direction == Direction::Backward {
        expected.reverse();
    }
    let expected = expected.into_iter().take(limit).map(|number| (key(number).to_vec(), value(number).to_vec()));
    assert!(found.into_iter().eq(expected));
    tx.commit().await
}

#[test]
fn a_scan_waits_for_a_few_of_its_pages_only() {
    let media = filled();
    for direction in [Direction::Forward, Direction::Backward] {
        let (took_ns, reads) =
            timed(&media, 512, "tree", async |database| go_through(database, direction, usize::MAX).await);
        assert!(reads > 400 && took_ns < reads * READ_NS / 10, "{direction:?}: {reads} reads in {took_ns} ns");
    }
    let snapshot = async |database: &Database| {
        let tree = database.partition("tree")?;
        let mut snapshot = database.snapshot().await?;
        let mut cursor = snapshot.cursor(tree, Bound::Unbounded, Bound::Unbounded, Direction::Forward);
        let mut count = 0;
        while snapshot.next(&mut cursor).await?.is_some() {
            count += 1;
        }
        assert_eq!(count, RECORDS);
        Ok(())
    };
    let (took_ns, reads) = timed(&media, 512, "tree", snapshot);
    assert!(reads > 400 && took_ns < reads * READ_NS / 10, "{reads} reads in {took_ns} ns");
    let (took_ns, reads) = timed(&media, 512, "history", async |database| scan_history(database).await);
    assert!(reads > 400 && took_ns < reads * READ_NS / 10, "{reads} reads in {took_ns} ns");
}

#[test]
fn a_check_waits_for_a_few_of_its_pages_only() {
    let media = filled();
    let check = async |database: &Database| {
        assert!(database.check(|_| {}).await?.findings.is_empty());
        Ok(())
    };
    let (took_ns, reads) = timed(&media, 512, "tree", check);
    assert!(reads > 400 && took_ns < reads * READ_NS / 4, "{reads} reads in {took_ns} ns");
}

#[test]
fn a_short_range_reads_no_page_in_vain_and_a_longer_one_few() {
    let media = filled();
    // Four records of the first leaf, whose parent and root are read, too.
    let (_, reads) = timed(&media, 512, "tree", async |database| go_through(database, Direction::Forward, 4).await);
    let (_, all) = timed(&media, 512, "tree", async |database| go_through(database, Direction::Forward, 100).await);
    assert!(reads <= 4, "{reads}");
    // Some 13 leaves.
    assert!(all <= reads + 2 * 13 + 2, "{all}");
}

#[test]
fn a_small_buffer_is_not_filled_with_what_comes_later() {
    let media = filled();
    for frames in [12, 40, 100] {
        let (_, reads) =
            timed(&media, frames, "tree", async |database| go_through(database, Direction::Forward, usize::MAX).await);
        // Each leaf once: what is read ahead is still there when the scan comes to it.
        let (_, once) =
            timed(&media, 1_000, "tree", async |database| go_through(database, Direction::Forward, usize::MAX).await);
        assert!(reads <= once + once / 20, "{frames} frames: {reads} reads, {once} with many");
    }
}

#[test]
fn many_scans_at_once_read_each_page_about_once() {
    let media = filled();
    const SCANS: u32 = 24;
    let scan_all = async |database: &Database| {
        let tree = database.partition("tree")?;
        let mut tasks = Vec::new();
        for number in 0..SCANS {
            let database = database.clone();
            let share = RECORDS / SCANS;
            tasks.push(database.executor().clone().spawn(async move {
                let mut tx = database.begin().await?;
                let (from, to) = (key(number * share), key((number + 1) * share));
                let mut cursor = tx.cursor(tree, Bound::Included(&from), Bound::Excluded(&to), Direction::Forward);
                while tx.next(&mut cursor).await?.is_some() {
                    database.executor().sleep_ns(READ_NS / 50).await;
                }
                tx.commit().await
            }));
        }
        for task in tasks {
            task.join().await?;
        }
        Ok(())
    };
    let (_, once) = timed(&media, 1_000, "tree", scan_all);
    let (_, reads) = timed(&media, 100, "tree", scan_all);
    assert!(reads <= once + once / 5, "{reads} reads, {once} with many frames");
}

/// It takes a page's coming for its first use, and would have pages leave that are read ahead before they are used.
#[test]
fn a_policy_that_counts_arrivals_keeps_what_is_used() {
    let media = filled();
    let counted = |frames| {
        let replacement = Policy::named("lru-2").expect("a policy");
        let settings = settings(frames);
        Settings { buffer: buffer::Settings { replacement, ..settings.buffer }, ..settings }
    };
    on(&media, async |executor| {
        let database = Database::open(executor, counted(256), "here").await?;
        let space = database.buffer().space(database.partition("tree")?);
        go_through(&database, Direction::Forward, usize::MAX).await?;
        let once = space.reads.get();
        go_through(&database, Direction::Forward, usize::MAX).await?;
        assert!(space.reads.get() <= 2 * once, "{} reads, then {}", once, space.reads.get() - once);
        database.close().await
    })
    .expect("is read");
}

#[test]
fn what_lies_between_pages_that_no_cache_has_is_read_with_them() {
    let media = filled();
    let cached = |frames| {
        let cache = CacheSettings { volatile: Some(false), ..CacheSettings::new("nvem", 400) };
        let cache = CacheSettings { design: Design::named("clean-write").expect("a design"), ..cache };
        let hierarchy = second_level::Settings { cache: Some(cache), ..second_level::Settings::default() };
        Settings { hierarchy, ..settings(frames) }
    };
    let entered = on(&media, async |executor| {
        let database = Database::open(executor, cached(40), "here").await?;
        let tree = database.partition("tree")?;
        // Records here and there: their leaves enter the cache when they leave the buffer.
        for _ in 0..3 {
            for number in (0..RECORDS).step_by(97) {
                let mut tx = database.begin().await?;
                tx.get(tree, &key(number)).await?;
                tx.commit().await?;
            }
        }
        let entered = database.tiers()[0].writes;
        database.close().await.map(|()| entered)
    });
    let entered = entered.expect("is read");
    assert!(entered > 30, "{entered} pages are in the cache");
    on(&media, async |executor| {
        let database = Database::open(executor, cached(256), "here").await?;
        let space = database.buffer().space(database.partition("tree")?);
        go_through(&database, Direction::Forward, usize::MAX).await?;
        let hits = space.cache_hits.get();
        assert!(hits < entered / 2, "{hits} pages of {entered} were read from the cache, one by one");
        database.close().await
    })
    .expect("is read");
}

#[test]
fn a_partition_can_go_while_its_pages_are_on_their_way() {
    let media = filled();
    on(&media, async |executor| {
        let database = Database::open(executor, settings(512), "here").await?;
        go_through(&database, Direction::Forward, 200).await?;
        database.drop_partition(database.partition("tree")?).await?;
        assert!(database.check(|_| {}).await?.findings.is_empty());
        database.close().await
    })
    .expect("is dropped");
}

async fn scan_history(database: &Database) -> Result<()> {
    let history = database.partition("history")?;
    let (mut tx, mut count) = (database.begin().await?, 0);
    let look = |_, _: &[u8]| {
        count += 1;
        true
    };
    tx.scan_appended(history, look).await?;
    assert_eq!(count, RECORDS);
    tx.commit().await
}

/// As they do for a program that shows a page of records and waits for its user.
#[test]
fn cursors_that_rest_leave_frames_ahead_to_a_scan() {
    let media = filled();
    let (alone_ns, _) = timed(&media, 512, "history", async |database| scan_history(database).await);
    let beside_ns = on(&media, async |executor| {
        let database = Database::open(executor, settings(512), "here").await?;
        let tree = database.partition("tree")?;
        let mut resting = Vec::new();
        for first in [0, RECORDS / 2] {
            let mut tx = database.begin().await?;
            let from = key(first);
            let mut cursor = tx.cursor(tree, Bound::Included(&from), Bound::Unbounded, Direction::Forward);
            for _ in 0..RECORDS / 2 - 600 {
                tx.next(&mut cursor).await?;
            }
            resting.push((tx, cursor));
        }
        executor.sleep_ns(300 * READ_NS).await;
        let began = executor.now();
        scan_history(&database).await?;
        let took_ns = executor.now().since_ns(began);
        for (mut tx, mut cursor) in resting {
            let mut left = 0;
            while left < 100 && tx.next(&mut cursor).await?.is_some() {
                left += 1;
            }
            assert_eq!(left, 100);
            tx.commit().await?;
        }
        assert_eq!(database.buffer().ahead_max(), 32, "those that have ended keep none");
        database.close().await.map(|()| took_ns)
    })
    .expect("is read");
    assert!(beside_ns < alone_ns + alone_ns / 4, "{beside_ns} ns, {alone_ns} ns alone");
}
