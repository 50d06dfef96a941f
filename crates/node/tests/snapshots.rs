//! Snapshots at nodes: what they see while others write, that nothing waits for them, and how they end.

use crate::counting::{Joined, PAGES, joined, joined_as};
use base::time::{MILLISECOND_NS, SECOND_NS};
use base::{PageId, PartitionId, Random};
use driver::FaultKind;
use engine::canary::{self, Canary};
use engine::{Error, Result};
use entresol_node::client::SNAPSHOTS_MAX;
use entresol_node::page_client::{ClientSettings, PageClient, PageSnapshot};
use entresol_node::page_server::ServerInternals;
use executor::{Cluster, Executor, JoinHandle};

/// Fewer than there are pages, and more than snapshots keep.
const FRAMES: usize = 36;

fn value(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes[32..40].try_into().expect("eight bytes"))
}

/// Moves something from one page to another, transaction after transaction, so that the sum of all stays what it was.
async fn move_much(client: PageClient, executor: Executor, counters: PartitionId, seed: u64) {
    let mut random = Random::stream(seed, "moves");
    for _ in 0..60 {
        let [one, other] = [(); 2].map(|()| PageId::new(counters, random.below(PAGES) as u32));
        let is_rolled_back = random.chance(0.1);
        let moved = async {
            let mut transaction = client.begin().await;
            let (from, _) = transaction.read(one, value).await?;
            transaction.write(one, 32, &from.wrapping_sub(1).to_le_bytes()).await?;
            let (to, _) = transaction.read(other, value).await?;
            transaction.write(other, 32, &to.wrapping_add(1).to_le_bytes()).await?;
            if is_rolled_back { Ok(()) } else { transaction.commit().await }
        };
        match moved.await {
            Ok(()) | Err(Error::Deadlock) => executor.sleep_ns(random.below(4 * MILLISECOND_NS)).await,
            Err(error) => panic!("{error}"),
        }
    }
}

/// The sum of all pages as snapshots see them, which is 0, in any order and twice. The first that is not; and how many were read.
async fn sum_often(client: PageClient, executor: Executor, counters: PartitionId, seed: u64) -> Result<(u64, u64)> {
    let mut random = Random::stream(seed, "sums");
    let (mut read, mut last) = (0, base::Lsn::ZERO);
    for _ in 0..30 {
        let mut snapshot = client.snapshot().await?;
        assert!(snapshot.moment() >= last, "no time goes back");
        last = snapshot.moment();
        let mut sums = [0_u64; 2];
        for sum in &mut sums {
            let first = random.below(PAGES);
            for number in (0..PAGES).map(|number| (first + number) % PAGES) {
                if random.chance(0.2) {
                    executor.sleep_ns(random.below(MILLISECOND_NS)).await;
                }
                let found = if random.chance(0.5) {
                    snapshot.read(PageId::new(counters, number as u32), value).await?
                } else {
                    let object = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().expect("eight bytes"));
                    snapshot.read_object(counters, number, object).await?
                };
                *sum = sum.wrapping_add(found);
                read += 1;
            }
        }
        if sums != [0; 2] {
            return Ok((read, sums[0] | sums[1]));
        }
    }
    Ok((read, 0))
}

fn run_all<T: 'static>(cluster: &mut Cluster, tasks: Vec<JoinHandle<T>>) -> Vec<T> {
    tasks.into_iter().map(|task| cluster.run(task).expect("they go on")).collect()
}

/// What snapshots that are read while both nodes write see that no moment explains.
fn wrong_sum(seed: u64, algorithm: &str, (keeps_write_locks, commits_pages): (bool, bool)) -> Option<String> {
    let suit = |settings| ClientSettings { keeps_write_locks, commits_pages, ..settings };
    let Joined { mut cluster, executors, server, clients, counters } = joined((seed, algorithm), FRAMES, suit);
    let at = |node: usize| (clients[node].clone(), executors[node + 1].clone());
    let mut writers = Vec::new();
    let mut readers = Vec::new();
    for task in 0..6 {
        let (client, executor) = at(task % 2);
        writers.push(executor.clone().spawn(move_much(client, executor, counters, 100 * seed + task as u64)));
    }
    for task in 0..4 {
        let (client, executor) = at(task % 2);
        readers.push(executor.clone().spawn(sum_often(client, executor, counters, 100 * seed + task as u64)));
    }
    let found = run_all(&mut cluster, readers);
    run_all(&mut cluster, writers);
    cluster.run_until(cluster.now().plus_ns(SECOND_NS)).expect("they go on");
    let wrong = found.iter().find(|found| !matches!(found, Ok((read, 0)) if *read > 1_000));
    let wrong = wrong.map(|wrong| format!("{algorithm}: {wrong:?}"));
    let left = server.protocol().snapshots();
    let unclean = (left != (0, 0)).then(|| format!("{algorithm}: {left:?} are left"));
    drop((server, clients));
    executors.iter().for_each(Executor::stop);
    wrong.or(unclean)
}

#[test]
fn the_sum_that_transactions_keep_is_that_of_every_snapshot() {
    let kinds = [(true, true), (true, false), (false, true), (false, false)];
    let algorithms = ["cbl", "fwd", "fwd-s", "n-chance"].into_iter().zip(kinds).zip(1..);
    let wrong: Vec<_> = algorithms.filter_map(|((algorithm, kind), seed)| wrong_sum(seed, algorithm, kind)).collect();
    assert!(wrong.is_empty(), "{wrong:?}");
    canary::plant(Some(Canary::PresentForMoment));
    let found = wrong_sum(1, "fwd", (true, true));
    canary::plant(None);
    assert!(found.is_some(), "a snapshot that shows what is there now is found");
}

/// Between threads of one process a commit does not have the server read pages that it brings itself, but for snapshots.
#[test]
fn snapshots_that_begin_while_a_commit_waits_see_what_was_before_it() {
    for seed in 0..12 {
        let Joined { mut cluster, executors, server, clients, counters } =
            joined_as((seed, "fwd", false), FRAMES, |settings| settings);
        let writers = (0..6)
            .map(|task| {
                let (client, executor) = (clients[task % 2].clone(), executors[task % 2 + 1].clone());
                executor.clone().spawn(move_much(client, executor, counters, 100 * seed + task as u64))
            })
            .collect();
        let (client, executor) = (clients[0].clone(), executors[1].clone());
        let reader = executor.clone().spawn(async move {
            let mut random = Random::stream(seed, "glances");
            for _ in 0..60 {
                executor.sleep_ns(random.below(3 * MILLISECOND_NS)).await;
                let (mut snapshot, mut sum) = (client.snapshot().await?, 0_u64);
                for number in 0..PAGES as u32 {
                    sum = sum.wrapping_add(snapshot.read(PageId::new(counters, number), value).await?);
                }
                assert_eq!(sum, 0);
            }
            Ok::<(), Error>(())
        });
        let read = run_all(&mut cluster, vec![reader]);
        run_all(&mut cluster, writers);
        assert_eq!(read, [Ok(())], "of {seed}");
        drop((server, clients));
        executors.iter().for_each(Executor::stop);
    }
}

async fn set(client: &PageClient, page: PageId, value: u64) -> Result<()> {
    let mut transaction = client.begin().await;
    transaction.write(page, 32, &value.to_le_bytes()).await?;
    transaction.commit().await
}

#[test]
fn a_snapshot_waits_for_no_lock_and_no_writer_for_it() {
    let Joined { mut cluster, executors, server, clients, counters } = joined((3, "fwd"), FRAMES, |settings| settings);
    let page = PageId::new(counters, 7);
    let [writing, reading] = clients.clone();
    let executor = executors[1].clone();
    let course = executors[1].spawn(async move {
        set(&writing, page, 1).await?;
        let mut writer = writing.begin().await;
        writer.write(page, 32, &2_u64.to_le_bytes()).await?;
        // Both nodes see what is committed, though one has something else in its buffer.
        let (mut here, mut there) = (writing.snapshot().await?, reading.snapshot().await?);
        let began = executor.now();
        assert_eq!([here.read(page, value).await?, there.read(page, value).await?], [1, 1]);
        writer.commit().await?;
        assert!(executor.now().since_ns(began) < 200 * MILLISECOND_NS, "nothing has waited");
        assert_eq!([here.read(page, value).await?, there.read(page, value).await?], [1, 1]);
        let (mut here_now, mut there_now) = (writing.snapshot().await?, reading.snapshot().await?);
        assert_eq!([here_now.read(page, value).await?, there_now.read(page, value).await?], [2, 2]);
        assert!(here.moment() < here_now.moment());
        // What is open keeps its moment, whichever node writes next.
        set(&reading, page, 3).await?;
        let seen = [here.read(page, value).await?, there.read(page, value).await?];
        let seen_now = [here_now.read(page, value).await?, there_now.read(page, value).await?];
        Ok::<_, Error>((seen, seen_now))
    });
    let seen = cluster.run(course).expect("they go on");
    assert_eq!(seen, Ok(([1, 1], [2, 2])));
    cluster.run_until(cluster.now().plus_ns(SECOND_NS)).expect("they go on");
    assert_eq!(server.protocol().snapshots(), (0, 0), "all were dropped");
    server.protocol().check().expect("the directory is right");
}

#[test]
fn what_is_here_is_read_where_it_is() {
    let Joined { mut cluster, executors, server, clients, counters } = joined((4, "fwd"), 60, |settings| settings);
    let [client, _] = clients.clone();
    let course = executors[1].spawn(async move {
        let mut transaction = client.begin().await;
        for number in 0..20 {
            transaction.read(PageId::new(counters, number), value).await?;
        }
        transaction.commit().await?;
        let mut snapshot = client.snapshot().await?;
        for number in 0..20 {
            snapshot.read(PageId::new(counters, number), value).await?;
        }
        Ok::<(), Error>(())
    });
    cluster.run(course).expect("they go on").expect("they read");
    assert_eq!((server.counts().snapshots, server.counts().snapshot_reads), (1, 0));
}

async fn read_all(snapshot: &mut PageSnapshot, counters: PartitionId) -> Result<Vec<u64>> {
    let mut found = Vec::new();
    for number in 0..PAGES as u32 {
        found.push(snapshot.read(PageId::new(counters, number), value).await?);
    }
    Ok(found)
}

#[test]
fn what_takes_more_room_than_there_is_ends_the_oldest_snapshot_by_name() {
    let Joined { mut cluster, executors, server, clients, counters } = joined((5, "fwd"), FRAMES, |settings| settings);
    server.set_snapshot_room(8 << 10);
    let [writing, reading] = clients.clone();
    let course = executors[1].spawn(async move {
        let mut old = reading.snapshot().await?;
        for number in 0..4 {
            set(&writing, PageId::new(counters, number), 1).await?;
        }
        let mut middle = reading.snapshot().await?;
        for number in 4..9 {
            set(&writing, PageId::new(counters, number), 1).await?;
        }
        let too_old = read_all(&mut old, counters).await;
        let seen: u64 = read_all(&mut middle, counters).await?.into_iter().sum();
        let present: u64 = read_all(&mut reading.snapshot().await?, counters).await?.into_iter().sum();
        Ok::<_, Error>((too_old, seen, present))
    });
    let (too_old, seen, present) = cluster.run(course).expect("they go on").expect("they read");
    assert!(matches!(too_old, Err(Error::SnapshotTooOld { .. })), "{too_old:?}");
    assert_eq!((seen, present), (4, 9));
    assert_eq!(server.counts().snapshots_lost, 1);
    assert!(server.protocol().snapshots().1 <= 8 << 10);
}

#[test]
fn a_snapshot_ends_with_its_session_and_waits_while_its_node_has_many_of_them() {
    let Joined { mut cluster, executors, server, clients, counters } = joined((6, "fwd"), FRAMES, |settings| settings);
    let [client, other] = clients;
    let many = client.clone();
    let own = executors[1].clone();
    let course = executors[1].spawn(async move {
        let mut open = Vec::new();
        for _ in 0..SNAPSHOTS_MAX {
            open.push(many.snapshot().await?);
        }
        let waiting = own.clone().spawn(async move { many.snapshot().await });
        own.sleep_ns(SECOND_NS).await;
        assert!(!waiting.is_finished(), "one too many");
        open.truncate(1);
        own.sleep_ns(SECOND_NS).await;
        assert!(waiting.is_finished(), "others have ended");
        open.push(waiting.join().await?);
        Ok::<_, Error>(open)
    });
    let open = cluster.run(course).expect("they go on").expect("they begin");
    cluster.run_until(cluster.now().plus_ns(SECOND_NS)).expect("they go on");
    assert_eq!(server.protocol().snapshots().0, open.len());
    server.close();
    let reading = executors[1].spawn(async move {
        let mut ended = Vec::new();
        for mut snapshot in open {
            ended.push(read_all(&mut snapshot, counters).await);
        }
        ended
    });
    for ended in cluster.run(reading).expect("they go on") {
        assert!(matches!(&ended, Err(Error::Input(fault)) if fault.kind == FaultKind::Reset), "{ended:?}");
    }
    drop((client, other));
}

/// Others begin theirs as soon as they have ended one.
#[test]
fn a_snapshot_that_waits_is_passed_by_none() {
    let Joined { mut cluster, executors, clients, .. } = joined((6, "fwd"), FRAMES, |settings| settings);
    let own = executors[1].clone();
    for _ in 0..SNAPSHOTS_MAX {
        let (client, own) = (clients[0].clone(), own.clone());
        executors[1].spawn(async move {
            while let Ok(_snapshot) = client.snapshot().await {
                own.sleep_ns(20 * MILLISECOND_NS).await;
            }
        });
    }
    cluster.run_until(cluster.now().plus_ns(SECOND_NS)).expect("they go on");
    let client = clients[0].clone();
    let waiting = own.spawn(async move { client.snapshot().await.map(drop) });
    cluster.run_until(cluster.now().plus_ns(SECOND_NS)).expect("they go on");
    assert!(waiting.is_finished(), "they end all the time");
    executors.iter().for_each(Executor::stop);
}
