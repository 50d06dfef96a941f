//! What values are charged with, in partitions that caches hold and in one that they do not.

use crate::ground::machine::run;
use crate::ground::things::*;
use base::{PartitionId, Random};
use driver::Work;
use entresol_engine::catalog::{Locking, Organization};
use entresol_engine::set::FieldValue;
use entresol_engine::{
    Database, Direction, Error, PartitionSpec, Result, Settings, Snapshot, Transaction, buffer, checkpoint,
};
use executor::WholeExecutor;
use virtual_driver::Media;

const DRAWS: u64 = 10_000;
const BATCH: u64 = 50;

/// Runs `work` with a new database, which nothing but `work` uses.
fn with_database(work: impl AsyncFnOnce(&Database)) {
    run(&Media::new(), async |executor| {
        let buffer = buffer::Settings { frames: 5_000, ..buffer::Settings::default() };
        let settings = Settings { buffer, checkpoint: checkpoint::Policy::OFF, ..Settings::default() };
        work(&Database::create(executor, settings).await.expect("creates")).await;
    });
}

/// A b-tree of 1,000 bytes in each of this many records, all in memory.
async fn loaded(database: &Database, name: &str, records: u64) -> PartitionId {
    let partition = database.create_partition(PartitionSpec::b_tree(name)).await.expect("creates");
    let values = (0..records).map(|number| (number.to_be_bytes(), VALUE));
    database.load_b_tree(partition, values, |_| {}).await.expect("loads");
    database.warm(partition, |_| {}).await.expect("reads");
    partition
}

/// Calls `access` [`DRAWS`] times with records as `draw` says, after as many times which show what is near: how many pieces of values a
/// time is charged with, and the share of distant ones.
async fn charged(
    database: &Database,
    mut draw: impl FnMut(&mut Random) -> u64,
    access: impl AsyncFn(&mut Transaction, [u8; 8]) -> Result<()>,
) -> (u64, f64) {
    let counts =
        || [Work::ValueCopy, Work::DistantValue].map(|work| database.executor().whole().work_counts()[work as usize]);
    let (mut random, mut charged) = (Random::stream(1, "draws"), [[0; 2]; 2]);
    for charged in &mut charged {
        for _ in 0..DRAWS / BATCH {
            let numbers: Vec<u64> = (0..BATCH).map(|_| draw(&mut random)).collect();
            let all = async |tx: &mut Transaction| {
                for number in &numbers {
                    access(tx, number.to_be_bytes()).await?;
                }
                Ok::<_, Error>(())
            };
            database.transaction(all).await.expect("commits");
        }
        *charged = counts();
    }
    let [copies, distant] = [0, 1].map(|work| charged[1][work] - charged[0][work]);
    (copies / DRAWS, distant as f64 / DRAWS as f64)
}

#[test]
fn values_are_distant_by_how_much_caches_do_not_hold_of_those_that_are_referred_to() {
    with_database(async |database| {
        let (few, many) = (loaded(database, "few", 1_000).await, loaded(database, "many", 21_000).await);
        let get = |partition| {
            async move |tx: &mut Transaction, key: [u8; 8]| {
                tx.get(partition, &key).await.map(|found| assert!(found.is_some()))
            }
        };
        let modify = |partition| {
            async move |tx: &mut Transaction, key: [u8; 8]| tx.modify(partition, &key, |value| value[5] ^= 1).await
        };
        // A MiB.
        let few_of_all = |random: &mut Random| random.below(1_000);
        assert_eq!(charged(database, few_of_all, get(few)).await, (4, 0.0));
        assert_eq!(charged(database, few_of_all, modify(few)).await, (4, 0.0));
        // Some 24 MiB, of which 8 are near.
        let uniform = |random: &mut Random| random.below(21_000);
        let (copies, read) = charged(database, uniform, get(many)).await;
        assert!(copies == 4 && (0.6..0.72).contains(&read), "{copies} pieces, {read} of those read distant");
        let (copies, changed) = charged(database, uniform, modify(many)).await;
        assert!(copies == 4 && (0.6..0.72).contains(&changed), "{copies} pieces, {changed} of those changed distant");
        // What was read is near when it is changed next.
        let both = async |tx: &mut Transaction, key: [u8; 8]| {
            get(many)(tx, key).await?;
            modify(many)(tx, key).await
        };
        let (copies, distant) = charged(database, uniform, both).await;
        assert!(copies == 8 && (0.6..0.72).contains(&distant), "{copies} pieces, {distant} distant of two");
        // Nine times of ten it is one of a thousand that lie among the others.
        let mut random = Random::stream(2, "popular");
        let popular: Vec<u64> = (0..1_000).map(|_| uniform(&mut random)).collect();
        let skewed = |random: &mut Random| match random.chance(0.9) {
            true => popular[random.below(1_000) as usize],
            false => uniform(random),
        };
        let (_, distant) = charged(database, skewed, get(many)).await;
        assert!((0.05..0.1).contains(&distant), "{distant} of those read distant, where few are popular");
    });
}

const LONG: usize = 100_000;

/// A value of 1,000 bytes: four pieces, also with what is stored beside it.
const VALUE: [u8; 1_000] = [7; 1_000];

fn key(number: u32) -> [u8; 4] {
    number.to_be_bytes()
}

/// With how many pieces of values a transaction is charged that does this.
async fn pieces(database: &Database, access: impl AsyncFnMut(&mut Transaction) -> Result<()>) -> u64 {
    let count = || database.executor().whole().work_counts()[Work::ValueCopy as usize];
    let before = count();
    database.transaction(access).await.expect("commits");
    count() - before
}

/// With how many a snapshot is.
async fn pieces_past(database: &Database, read: impl AsyncFnOnce(&mut Snapshot) -> Result<()>) -> u64 {
    let mut snapshot = database.snapshot().await.expect("begins");
    let count = || database.executor().whole().work_counts()[Work::ValueCopy as usize];
    let before = count();
    read(&mut snapshot).await.expect("reads");
    count() - before
}

fn check<'a>(of: &str, charged: impl IntoIterator<Item = (&'a str, u64, u64)>) {
    for (access, charged, expected) in charged {
        assert_eq!(charged, expected, "{of}: {access}");
    }
}

#[test]
fn accesses_to_b_trees_are_charged_with_the_values_that_they_copy_or_show() {
    with_database(async |database| {
        let tree = database.create_partition(PartitionSpec::b_tree("tree")).await.expect("creates");
        let all = async |tx: &mut Transaction| tx.scan(tree, .., Direction::Forward).look(|_, _| true).await;
        let each = async |tx: &mut Transaction| tx.get_each_with(tree, &[key(1), key(2)], |_, _| ()).await;
        let charged = [
            ("insert", pieces(database, async |tx| tx.insert(tree, &key(1), &VALUE).await).await, 4),
            (
                "more",
                pieces(database, async |tx| tx.insert_each(tree, &[(key(2), VALUE), (key(3), VALUE)]).await).await,
                8,
            ),
            ("put", pieces(database, async |tx| tx.put(tree, &key(1), &VALUE).await).await, 4),
            ("get", pieces(database, async |tx| tx.get(tree, &key(1)).await.map(drop)).await, 4),
            ("no record", pieces(database, async |tx| tx.get(tree, &key(9)).await.map(drop)).await, 0),
            ("look", pieces(database, async |tx| tx.get_with(tree, &key(1), |_| ()).await).await, 4),
            ("each", pieces(database, each).await, 8),
            ("modify", pieces(database, async |tx| tx.modify(tree, &key(1), |value| value[0] = 1).await).await, 4),
            ("scan", pieces(database, all).await, 12),
            (
                "cursor",
                pieces(database, async |tx| tx.scan(tree, .., Direction::Backward).take(9).await.map(drop)).await,
                12,
            ),
            ("past get", pieces_past(database, async |past| past.get(tree, &key(1)).await.map(drop)).await, 4),
            (
                "past scan",
                pieces_past(database, async |past| past.scan(tree, .., Direction::Forward).look(|_, _| true).await)
                    .await,
                12,
            ),
            ("delete", pieces(database, async |tx| tx.delete(tree, &key(1)).await.map(drop)).await, 4),
            ("no delete", pieces(database, async |tx| tx.delete(tree, &key(1)).await.map(drop)).await, 0),
        ];
        check("b-trees", charged);
        // Its pieces are counted page by page, and its leaf has what says where it begins.
        let long = (LONG / 256) as u64..(LONG / 256 + 16) as u64;
        let written = pieces(database, async |tx| tx.insert(tree, &key(8), &[7; LONG]).await).await;
        let read = pieces(database, async |tx| tx.get(tree, &key(8)).await.map(drop)).await;
        assert!(long.contains(&written) && long.contains(&read), "{written} and {read}");
    });
}

#[test]
fn accesses_to_records_without_keys_are_charged_with_the_values_that_they_copy_or_show() {
    with_database(async |database| {
        let history = database.create_partition(PartitionSpec::append("history")).await.expect("creates");
        let organization = Organization::Direct { objects: 100, blocking_factor: 5, record_size: 1_000 };
        let objects = PartitionSpec::new("objects", organization, Locking::Record);
        let objects = database.create_partition(objects).await.expect("creates");
        let charged = [
            ("append", pieces(database, async |tx| tx.append(history, &VALUE).await.map(drop)).await, 4),
            ("another", pieces(database, async |tx| tx.append(history, &VALUE).await.map(drop)).await, 4),
            ("scan", pieces(database, async |tx| tx.scan_appended(history, |_, _| true).await).await, 8),
            ("past scan", pieces_past(database, async |past| past.scan_appended(history, |_, _| true).await).await, 8),
            ("change", pieces(database, async |tx| tx.modify_object(objects, 7, |bytes| bytes[0] = 1).await).await, 4),
            ("read", pieces(database, async |tx| tx.read_object(objects, 7, |_| ()).await).await, 4),
            ("past read", pieces_past(database, async |past| past.read_object(objects, 7, |_| ()).await).await, 4),
            ("objects", pieces(database, async |tx| tx.scan_objects(objects, 5..9, |_, _| ()).await).await, 16),
        ];
        check("pages", charged);
    });
}

#[test]
fn accesses_to_sets_are_charged_with_the_values_that_they_copy_or_show() {
    with_database(async |database| {
        let stock = database.create_partition(PartitionSpec::set("stock")).await.expect("creates");
        let organization = Organization::Set { arrivals: true, segment_size: 64 << 10, reserve_percent: 10 };
        let orders = PartitionSpec::new("orders", organization, Locking::Record);
        let orders = database.create_partition(orders).await.expect("creates");
        let charged = [
            ("insert", pieces(database, async |tx| tx.insert(stock, &key(1), &VALUE).await).await, 4),
            ("put", pieces(database, async |tx| tx.put(stock, &key(1), &VALUE).await).await, 4),
            ("get", pieces(database, async |tx| tx.get(stock, &key(1)).await.map(drop)).await, 4),
            ("no record", pieces(database, async |tx| tx.get(stock, &key(9)).await.map(drop)).await, 0),
            ("modify", pieces(database, async |tx| tx.modify(stock, &key(1), |value| value[0] = 1).await).await, 4),
            ("add", pieces(database, async |tx| tx.add(stock, &key(1), 0..8, 1).await.map(drop)).await, 1),
            ("past get", pieces_past(database, async |past| past.get(stock, &key(1)).await.map(drop)).await, 4),
            ("scan", pieces(database, async |tx| tx.scan_set(stock, |_, _| true).await).await, 4),
            ("past scan", pieces_past(database, async |past| past.scan_set(stock, |_, _| true).await).await, 4),
            ("append", pieces(database, async |tx| tx.append(orders, &VALUE).await.map(drop)).await, 4),
            ("arrivals", pieces(database, async |tx| tx.scan_appended(orders, |_, _| true).await).await, 4),
            // It is only marked.
            ("delete", pieces(database, async |tx| tx.delete(stock, &key(1)).await.map(drop)).await, 0),
        ];
        check("sets", charged);
    });
}

#[test]
fn accesses_by_fields_and_indexes_are_charged_with_records_and_entries() {
    with_database(async |database| {
        let value = stored(&thing(3, 7, &"n".repeat(500)));
        let organization = Organization::Set { arrivals: false, segment_size: 64 << 10, reserve_percent: 10 };
        let set = PartitionSpec::new("set", organization, Locking::Record).record(record());
        let set = set.secondary("by_group", &["group", "weight"]);
        // A record has three pieces, and so has one that is read before it is changed; its entry in a b-tree has one.
        for (spec, [inserted, read, moved, ranged, past, deleted]) in
            [(spec("tree"), [3 + 1, 3, 3 + 3 + 2 + 3, 3 + 1, 3 + 1, 3 + 1 + 3]), (set, [3, 3, 3 + 3, 3, 3, 0])]
        {
            let name = spec.name.clone();
            let things = database.create_partition(spec).await.expect("creates");
            let index = database.secondary(things, "by_group").expect("it exists");
            let range = async |tx: &mut Transaction| keys(tx, (things, index), ALL, Direction::Forward).await.map(drop);
            let past_range =
                async |past: &mut Snapshot| past.range(things, index, ALL, Direction::Forward, |_, _| true).await;
            let field = async |tx: &mut Transaction| {
                tx.get_field(things, &key(1), 0, &mut Vec::new()).await.map(|found| assert!(found.is_some()))
            };
            let move_entry = async |tx: &mut Transaction| tx.set_field(things, &key(1), 0, FieldValue::U32(4)).await;
            let charged = [
                ("insert", pieces(database, async |tx| tx.insert(things, &key(1), &value).await).await, inserted),
                ("field", pieces(database, field).await, read),
                ("move", pieces(database, move_entry).await, moved),
                ("range", pieces(database, range).await, ranged),
                ("past range", pieces_past(database, past_range).await, past),
                ("delete", pieces(database, async |tx| tx.delete(things, &key(1)).await.map(drop)).await, deleted),
            ];
            check(&name, charged);
        }
    });
}
