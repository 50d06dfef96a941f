//! One node works and another is idle: with N-chance what leaves the memory of the first goes to that of the second.

use crate::counting::{Joined, PAGES, count, joined, sum};
use base::PageId;
use entresol_node::page_client::PageClient;
use entresol_node::page_server::ServerInternals;
use entresol_node::server::Found;
use std::cell::Cell;
use std::rc::Rc;

/// Half of the pages fit into a node's memory, and fewer into the server's.
const FRAMES: usize = PAGES as usize / 2;

/// Reads all pages, a transaction for each, so often. Returns how many of them came from the server's disk.
fn read_all(ground: &mut Joined, times: u32) -> u64 {
    let (client, counters) = (ground.clients[0].clone(), ground.counters);
    let from_disk = Rc::new(Cell::new(0));
    let counted = Rc::clone(&from_disk);
    ground.server.observe(Box::new(move |_, _, found| {
        counted.set(counted.get() + u64::from(matches!(found, Some(Found::Disk | Found::Refused))));
    }));
    let reading = ground.executors[1].spawn(async move {
        for number in (0..times).flat_map(|_| 0..PAGES as u32) {
            let mut transaction = client.begin().await;
            transaction.read(PageId::new(counters, number), |_| ()).await?;
            transaction.commit().await?;
        }
        Ok::<(), engine::Error>(())
    });
    ground.cluster.run(reading).expect("the machines go on").expect("all can be read");
    // What was offered last is on its way.
    ground.cluster.run_until(ground.cluster.now().plus_ns(1_000_000)).expect("they go on");
    ground.server.protocol().check().expect("the directory is right");
    from_disk.get()
}

#[test]
fn a_last_copy_goes_to_an_idle_node_and_is_read_from_there_and_not_from_disk() {
    let disk_reads = ["fwd", "n-chance"].map(|algorithm| {
        let mut ground = joined((3, algorithm), FRAMES, |settings| settings);
        read_all(&mut ground, 1);
        let reads = read_all(&mut ground, 4);
        let counts = ground.server.counts();
        assert_eq!(counts.passed_on > 0, algorithm == "n-chance");
        assert_eq!(ground.clients[1].copies() > 0, algorithm == "n-chance");
        assert!(ground.clients[1].copies() <= FRAMES);
        reads
    });
    let [without, with] = disk_reads;
    assert!(with * 4 < without, "{with} reads of the disk with an idle node's memory, {without} without");
}

#[test]
fn a_node_that_runs_a_transaction_takes_no_page() {
    let mut ground = joined((4, "n-chance"), FRAMES, |settings| settings);
    let client = ground.clients[1].clone();
    let beginning = ground.executors[2].spawn(async move { client.begin().await });
    let busy = ground.cluster.run(beginning).expect("the machines go on");
    read_all(&mut ground, 2);
    let counts = ground.server.counts();
    assert!(counts.offers > 0 && counts.passed_on == 0, "{counts:?}");
    assert_eq!(ground.clients[1].copies(), 0);
    drop(busy);
}

#[test]
fn pages_that_were_passed_on_are_called_back_and_read_as_they_are_now() {
    for seed in 0..6 {
        let mut ground = joined((10 + seed, "n-chance"), FRAMES, |settings| settings);
        let mut expected = 0;
        for round in 0..4 {
            read_all(&mut ground, 1);
            let (client, counters) = (ground.clients[0].clone(), ground.counters);
            let counting = ground.executors[1].spawn(async move { count(client, counters, seed + round, 20).await });
            expected += ground.cluster.run(counting).expect("the machines go on").0;
            let client: PageClient = ground.clients[1].clone();
            let summing = ground.executors[2].spawn(async move { sum(&client, counters).await });
            let found = ground.cluster.run(summing).expect("the machines go on").expect("all can be read");
            assert_eq!(found, expected, "seed {seed}, round {round}");
        }
        assert!(ground.server.counts().passed_on > 0, "seed {seed}");
    }
}
