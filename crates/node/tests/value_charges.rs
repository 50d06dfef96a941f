//! What nodes, and the server for them, are charged with for values.

use crate::things::{ServedThings, stored};
use driver::Work;
use engine::set::FieldValue;
use engine::{Direction, Result};
use entresol_node::page_client::{PageClient, PageSnapshot, PageTransaction};
use executor::Executor;
use std::ops::Bound;

const LONG: usize = 9_000;

/// A value of 150 bytes: one piece, also with what is stored beside it.
const VALUE: [u8; 150] = [7; 150];

fn key(number: u32) -> [u8; 4] {
    number.to_be_bytes()
}

fn count(executor: &Executor) -> u64 {
    executor.work_counts()[Work::ValueCopy as usize]
}

/// Does something, and notes with how many pieces of values the node was charged for that.
struct Charges<'a> {
    executor: &'a Executor,
    client: &'a PageClient,
    noted: Vec<(&'static str, u64)>,
}

impl Charges<'_> {
    async fn note(&mut self, what: &'static str, access: impl AsyncFnOnce(&mut PageTransaction) -> Result<()>) {
        let mut tx = self.client.begin().await;
        let before = count(self.executor);
        access(&mut tx).await.expect(what);
        self.noted.push((what, count(self.executor) - before));
        tx.commit().await.expect("commits");
    }

    async fn note_past(&mut self, what: &'static str, read: impl AsyncFnOnce(&mut PageSnapshot) -> Result<()>) {
        let mut past = self.client.snapshot().await.expect("begins");
        let before = count(self.executor);
        read(&mut past).await.expect(what);
        self.noted.push((what, count(self.executor) - before));
    }
}

/// What the first of so many nodes is charged with for something.
fn charged(seed: u64, work: impl AsyncFnOnce(&mut Charges<'_>) -> Result<()> + 'static) -> Vec<(&'static str, u64)> {
    let mut served = ServedThings::new(seed, 1, None);
    let executor = served.nodes[0].clone();
    let noted = served.run(async move |client| {
        let mut charges = Charges { executor: &executor, client: &client, noted: Vec::new() };
        work(&mut charges).await.map(|()| charges.noted)
    });
    noted.expect("it is done")
}

#[test]
fn accesses_of_nodes_to_b_trees_are_charged_with_the_values_that_they_copy_or_show() {
    for seed in 0..8 {
        let charged = charged(seed, async |charges| {
            let notes = charges.client.partition("notes").await?.id();
            charges.note("insert", async |tx| tx.insert(notes, &key(1), &VALUE).await).await;
            charges.note("put", async |tx| tx.put(notes, &key(1), &VALUE).await).await;
            charges.note("get", async |tx| tx.get(notes, &key(1)).await.map(drop)).await;
            charges.note("no record", async |tx| tx.get(notes, &key(9)).await.map(drop)).await;
            charges.note("modify", async |tx| tx.modify(notes, &key(1), |value| value[0] = 1).await).await;
            charges.note("another", async |tx| tx.insert(notes, &key(2), &VALUE).await).await;
            charges.note("scan", async |tx| tx.scan(notes, Bound::Unbounded, |_, _| true).await).await;
            charges
                .note("down", async |tx| tx.scan_range(notes, .., Direction::Backward).take(9).await.map(drop))
                .await;
            charges.note_past("past get", async |past| past.get(notes, &key(1)).await.map(drop)).await;
            charges.note_past("past scan", async |past| past.scan(notes, Bound::Unbounded, |_, _| true).await).await;
            charges.note("delete", async |tx| tx.delete(notes, &key(1)).await.map(drop)).await;
            charges.note("no delete", async |tx| tx.delete(notes, &key(1)).await.map(drop)).await;
            Ok(())
        });
        let expected = [
            ("insert", 1),
            ("put", 1),
            ("get", 1),
            ("no record", 0),
            ("modify", 1),
            ("another", 1),
            ("scan", 2),
            ("down", 2),
            ("past get", 1),
            ("past scan", 2),
            ("delete", 1),
            ("no delete", 0),
        ];
        assert_eq!(charged, expected, "seed {seed}");
    }
}

#[test]
fn long_values_of_nodes_are_charged_with_all_of_their_bytes() {
    let charged = charged(2, async |charges| {
        let notes = charges.client.partition("notes").await?.id();
        charges.note("insert", async |tx| tx.insert(notes, &key(1), &[7; LONG]).await).await;
        charges.note("get", async |tx| tx.get(notes, &key(1)).await.map(drop)).await;
        charges.note_past("past get", async |past| past.get(notes, &key(1)).await.map(drop)).await;
        Ok(())
    });
    // Its pieces are counted page by page, and its leaf has what says where it begins.
    let pieces = (LONG / 256) as u64 + 1..(LONG / 256 + 8) as u64;
    assert!(charged.iter().all(|(_, charged)| pieces.contains(charged)), "{charged:?}");
}

#[test]
fn accesses_of_nodes_to_other_partitions_are_charged_with_the_values_that_they_copy_or_show() {
    for seed in 0..8 {
        let charged = charged(seed, async |charges| {
            let number = async |name: &str| charges.client.partition(name).await.map(|found| found.id());
            let (history, cells, stock) = (number("history").await?, number("cells").await?, number("stock").await?);
            let (arrivals, things) = (number("arrivals").await?, number("things").await?);
            charges.note("append", async |tx| tx.append(history, &VALUE).await.map(drop)).await;
            charges.note("scan appended", async |tx| tx.scan_appended(history, |_, _| true).await).await;
            charges.note_past("past appended", async |past| past.scan_appended(history, |_, _| true).await).await;
            charges.note("change object", async |tx| tx.modify_object(cells, 7, |bytes| bytes[0] = 1).await).await;
            charges.note("object", async |tx| tx.read_object(cells, 7, |_| ()).await).await;
            charges.note_past("past object", async |past| past.read_object(cells, 7, |_| ()).await).await;
            charges.note("set", async |tx| tx.insert(stock, &key(1), &VALUE).await).await;
            charges.note("get of set", async |tx| tx.get(stock, &key(1)).await.map(drop)).await;
            charges.note("modify set", async |tx| tx.modify(stock, &key(1), |value| value[0] = 1).await).await;
            charges.note("scan set", async |tx| tx.scan_set(stock, |_, _| true).await).await;
            charges.note_past("past of set", async |past| past.get(stock, &key(1)).await.map(drop)).await;
            charges.note_past("past set", async |past| past.scan_set(stock, |_, _| true).await).await;
            charges.note("delete in set", async |tx| tx.delete(stock, &key(1)).await.map(drop)).await;
            charges.note("arrival", async |tx| tx.append(arrivals, &VALUE).await.map(drop)).await;
            let by_group = charges.client.begin().await.secondary(things, "by_group").await?;
            charges.note("typed", async |tx| tx.insert(things, &key(1), &stored(1, 2, "pen")).await).await;
            charges.note("field", async |tx| tx.get_field(things, &key(1), 0, &mut Vec::new()).await.map(drop)).await;
            let all = (Bound::Unbounded, Bound::Unbounded);
            let range =
                async |tx: &mut PageTransaction| tx.range(things, by_group, all, Direction::Forward, |_, _| true).await;
            charges.note("range", range).await;
            charges.note("move", async |tx| tx.set_field(things, &key(1), 0, FieldValue::U32(2)).await).await;
            charges.note("typed delete", async |tx| tx.delete(things, &key(1)).await.map(drop)).await;
            Ok(())
        });
        let expected = [
            ("append", 1),
            ("scan appended", 1),
            ("past appended", 1),
            ("change object", 1),
            ("object", 1),
            ("past object", 1),
            ("set", 1),
            ("get of set", 1),
            // It is read and written.
            ("modify set", 2),
            ("scan set", 1),
            ("past of set", 1),
            ("past set", 1),
            // It is only marked.
            ("delete in set", 0),
            ("arrival", 1),
            // The record, and its two entries.
            ("typed", 3),
            ("field", 1),
            ("range", 2),
            // It is read twice and changed, and an entry moves.
            ("move", 3 + 2),
            // It is read before all that.
            ("typed delete", 4),
        ];
        assert_eq!(charged, expected, "seed {seed}");
    }
}

#[test]
fn a_server_is_charged_with_the_values_that_it_reads_for_nodes() {
    let mut served = ServedThings::new(1, 1, None);
    let server = served.server.clone();
    let charged = served.run(async move |client| {
        let stock = client.partition("stock").await?.id();
        let mut tx = client.begin().await;
        let before = count(&server);
        tx.insert(stock, &key(1), &VALUE).await?;
        let written = count(&server);
        tx.commit().await?;
        let committed = count(&server);
        let mut tx = client.begin().await;
        assert!(tx.get(stock, &key(1)).await?.is_some());
        let read = count(&server);
        tx.scan_set(stock, |_, _| true).await?;
        let shown = count(&server);
        tx.commit().await?;
        Ok::<_, engine::Error>([written - before, committed - written, read - committed, shown - read])
    });
    assert_eq!(charged, Ok([0, 1, 1, 1]));
}
