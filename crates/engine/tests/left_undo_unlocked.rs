//! What an opening has left to be undone of partitions without locks, which wait as a whole, and of memory-resident sets, of which nothing is
//! ever left.

use crate::ground::losers::{at_moment, create, cut, key, named, on, settings, under, undone};
use base::PartitionId;
use entresol_engine::catalog::{Locking, Organization};
use entresol_engine::{Database, Direction, Error, Internals, Isolation, PartitionSpec, Result, Transaction};
use executor::Executor;
use std::collections::BTreeMap;
use std::mem::forget;
use std::ops::Bound;
use std::time::Duration;
use virtual_driver::{FaultPlan, Media};

/// How many records each partition has.
const RECORDS: u32 = 300;
const LENGTH: usize = 100;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Objects,
    Tree,
    Heap,
}

const KINDS: [Kind; 3] = [Kind::Objects, Kind::Tree, Kind::Heap];

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Kind::Objects => "free-objects",
            Kind::Tree => "free-tree",
            Kind::Heap => "free-heap",
        }
    }

    fn of(self, database: &Database) -> PartitionId {
        named(database, self.name())
    }

    fn spec(self) -> PartitionSpec {
        let objects = u64::from(RECORDS);
        let organization = match self {
            Kind::Objects => Organization::Direct { objects, blocking_factor: 5, record_size: LENGTH as u32 },
            Kind::Tree => Organization::BTree,
            Kind::Heap => Organization::Append { blocking_factor: 0 },
        };
        PartitionSpec { device: "data".into(), ..PartitionSpec::new(self.name(), organization, Locking::None) }
    }

    async fn write(self, tx: &mut Transaction, partition: PartitionId, number: u32, version: u8) -> Result<()> {
        let value = [version; LENGTH];
        match self {
            Kind::Objects => {
                tx.modify_object(partition, u64::from(number), |object| object.copy_from_slice(&value)).await
            }
            Kind::Tree => tx.put(partition, &key(number), &value).await,
            Kind::Heap => tx.append(partition, &value).await.map(drop),
        }
    }
}

/// Records of version 1 in every partition, of which transactions that have not ended when the machine stops, one behind the other, have
/// given some another one.
async fn leave(executor: &Executor, losers: u32) {
    let database = create(executor, settings()).await;
    for kind in KINDS {
        let partition = database.create_partition(kind.spec()).await.expect("creates");
        let write = async |tx: &mut Transaction| {
            for number in 0..RECORDS {
                kind.write(tx, partition, number, 1).await?;
            }
            Ok::<_, Error>(())
        };
        database.transaction(write).await.expect("commits");
    }
    let mut begun = Vec::new();
    for _ in 0..losers {
        begun.push(database.begin().await.expect("begins"));
    }
    // One after the other on other pages, and of other transactions.
    for number in (0..RECORDS).map(|number| number * 67 % RECORDS).filter(|number| number % 4 > 0) {
        let tx = &mut begun[(number / 4 % losers) as usize];
        for kind in KINDS {
            kind.write(tx, kind.of(&database), number, 2).await.expect("changes");
        }
        if number % 4 == 2 {
            tx.delete(Kind::Tree.of(&database), &key(number)).await.expect("deletes");
        }
    }
    for number in RECORDS..RECORDS + 50 {
        let tx = &mut begun[(number % losers) as usize];
        Kind::Tree.write(tx, Kind::Tree.of(&database), number, 2).await.expect("inserts");
    }
    forget(begun);
    database.transaction(async |tx| tx.put(named(&database, "rows"), b"behind", b"1").await).await.expect("commits");
}

fn killed(losers: u32) -> Media {
    let media = Media::new();
    on(&media, async |executor| leave(executor, losers).await);
    media
}

/// The versions of all records there are, by partition and number.
type Versions = BTreeMap<(&'static str, u64), u8>;

fn version(value: &[u8]) -> u8 {
    assert!(value == [value[0]; LENGTH], "it is of two versions: {value:?}");
    value[0]
}

fn number_of(key: &[u8]) -> u64 {
    u64::from(u32::from_be_bytes(key.try_into().expect("a key of four bytes")))
}

async fn read_all(tx: &mut Transaction, database: &Database) -> Result<Versions> {
    let mut all = Versions::new();
    for kind in KINDS {
        let (partition, name) = (kind.of(database), kind.name());
        match kind {
            Kind::Objects => {
                for number in 0..u64::from(RECORDS) {
                    all.insert((name, number), tx.read_object(partition, number, version).await?);
                }
            }
            Kind::Tree => {
                let mut cursor = tx.cursor(partition, Bound::Unbounded, Bound::Unbounded, Direction::Forward);
                while let Some((key, value)) = tx.next(&mut cursor).await? {
                    all.insert((name, number_of(&key)), version(&value));
                }
            }
            Kind::Heap => {
                let mut count = 0;
                let keep = |_, record: &[u8]| {
                    all.insert((name, count), version(record));
                    count += 1;
                    true
                };
                tx.scan_appended(partition, keep).await?;
            }
        }
    }
    Ok(all)
}

/// What was committed: version 1 of all.
fn committed() -> Versions {
    let of_kind = |kind: Kind| (0..u64::from(RECORDS)).map(move |number| ((kind.name(), number), 1));
    KINDS.into_iter().flat_map(of_kind).collect()
}

fn compare(found: &Versions, wanted: &Versions, when: &str) {
    let differs = |(place, version): &(&(&str, u64), &u8)| wanted.get(place) != Some(version);
    assert_eq!(found.iter().find(differs), None, "{when}");
    assert_eq!(wanted.keys().find(|place| !found.contains_key(place)), None, "{when}");
}

async fn judge(database: &Database, wanted: &Versions) {
    let present = database.transaction(async |tx| read_all(tx, database).await).await.expect("reads");
    compare(&present, wanted, "at present");
    let mut tx = database.begin_at(Isolation::Snapshot).await.expect("begins");
    compare(&read_all(&mut tx, database).await.expect("reads"), wanted, "at this moment");
    tx.commit().await.expect("ends");
    let report = database.check(|_| {}).await.expect("checks");
    assert!(report.is_clean(), "{:?}", report.findings);
    assert_eq!(database.locks().check(), Ok(()));
}

/// Ways to use partitions without locks that have to wait, each with what it leaves there.
#[derive(Clone, Copy, Debug)]
enum Use {
    ReadAll,
    ReadAllAtMoment,
    Get,
    GetEach,
    GetAtMoment,
    Put,
    Delete,
    Insert,
    InsertEach,
    Modify,
    ReadObject,
    ReadObjectAtMoment,
    ModifyObject,
    Backward,
    Scan,
    ScanHeap,
}

const USES: [Use; 16] = [
    Use::ReadAll,
    Use::ReadAllAtMoment,
    Use::Get,
    Use::GetEach,
    Use::GetAtMoment,
    Use::Put,
    Use::Delete,
    Use::Insert,
    Use::InsertEach,
    Use::Modify,
    Use::ReadObject,
    Use::ReadObjectAtMoment,
    Use::ModifyObject,
    Use::Backward,
    Use::Scan,
    Use::ScanHeap,
];

/// Uses one, and says what is to be there behind that.
async fn try_out(database: &Database, way: Use) -> Result<Versions> {
    let [objects, tree, heap] = KINDS.map(|kind| kind.of(database));
    let mut wanted = committed();
    let in_tree = |number: u32| ("free-tree", u64::from(number));
    let isolation = match way {
        Use::ReadAllAtMoment | Use::GetAtMoment | Use::ReadObjectAtMoment => Isolation::Snapshot,
        _ => Isolation::Serializable,
    };
    let mut tx = database.begin_at(isolation).await?;
    match way {
        Use::ReadAll | Use::ReadAllAtMoment => compare(&read_all(&mut tx, database).await?, &wanted, "read"),
        Use::Get | Use::GetAtMoment => {
            assert_eq!(tx.get(tree, &key(2)).await?.as_deref().map(version), Some(1));
            assert_eq!(tx.get(tree, &key(RECORDS)).await?, None);
        }
        Use::GetEach => {
            let keys = [1, 2, RECORDS].map(key);
            let mut found = Vec::new();
            tx.get_each_with(tree, &keys, |_, value| found.push(value.map(version))).await?;
            assert_eq!(found, [Some(1), Some(1), None]);
        }
        Use::Put => {
            Kind::Tree.write(&mut tx, tree, 1, 3).await?;
            wanted.insert(in_tree(1), 3);
        }
        Use::Delete => {
            assert!(tx.delete(tree, &key(2)).await?, "it is not deleted twice");
            wanted.remove(&in_tree(2));
        }
        Use::Insert => {
            assert!(matches!(tx.insert(tree, &key(2), &[3; LENGTH]).await, Err(Error::Duplicate(_))));
            tx.insert(tree, &key(RECORDS), &[3; LENGTH]).await?;
            wanted.insert(in_tree(RECORDS), 3);
        }
        Use::InsertEach => {
            let there = [(key(2), [3; LENGTH])];
            assert!(matches!(tx.insert_each(tree, &there).await, Err(Error::Duplicate(_))));
            let records = [RECORDS, RECORDS + 1].map(|number| (key(number), [3; LENGTH]));
            tx.insert_each(tree, &records).await?;
            wanted.extend([RECORDS, RECORDS + 1].map(|number| (in_tree(number), 3)));
        }
        Use::Modify => {
            let was = tx.modify(tree, &key(2), |value| (version(value), value.fill(3)).0).await?;
            assert_eq!(was, 1);
            wanted.insert(in_tree(2), 3);
        }
        Use::ReadObject | Use::ReadObjectAtMoment => assert_eq!(tx.read_object(objects, 1, version).await?, 1),
        Use::ModifyObject => {
            let was = tx.modify_object(objects, 1, |object| (version(object), object.fill(3)).0).await?;
            assert_eq!(was, 1);
            wanted.insert(("free-objects", 1), 3);
        }
        Use::Backward => {
            let mut cursor = tx.cursor(tree, Bound::Unbounded, Bound::Unbounded, Direction::Backward);
            let last = tx.next(&mut cursor).await?.expect("there are some");
            assert_eq!((number_of(&last.0), version(&last.1)), (u64::from(RECORDS) - 1, 1));
        }
        Use::Scan => {
            let mut found = 0;
            let keep = |_: &[u8], value: &[u8]| {
                found += u64::from(version(value));
                true
            };
            tx.scan(tree, .., Direction::Forward).look(keep).await?;
            assert_eq!(found, u64::from(RECORDS));
        }
        Use::ScanHeap => {
            let mut found = 0;
            tx.scan_appended(heap, |_, record| (found += u64::from(version(record)), true).1).await?;
            assert_eq!(found, u64::from(RECORDS));
        }
    }
    tx.commit().await?;
    Ok(wanted)
}

/// Opens a database beside this number of transactions that are left, and uses it so at once.
fn use_at_once(losers: u32, way: Use) {
    let media = killed(losers);
    on(&media, async |executor| {
        let database = Database::open(executor, settings(), "here").await.expect("opens");
        let report = database.recovery();
        assert_eq!((report.unfinished, report.undos_left), (u64::from(losers), u64::from(losers)), "{report:?}");
        let rows = named(&database, "rows");
        let other = database.transaction(async |tx| tx.get(rows, &key(1)).await).await.expect("reads");
        assert!(other.is_some_and(|value| value[0] == 1));
        assert!(database.undoing().changes > 0, "others wait, too");
        let wanted = try_out(&database, way).await.unwrap_or_else(|error| panic!("{way:?}: {error}"));
        undone(executor, &database).await;
        judge(&database, &wanted).await;
    });
    cut(&media, 1);
    on(&media, async |executor| {
        let database = Database::open(executor, settings(), "here").await.expect("opens");
        assert_eq!(database.recovery().unfinished, 0);
    });
}

#[test]
fn partitions_without_locks_wait_as_a_whole_until_it_is_undone() {
    for way in USES {
        use_at_once(1, way);
        use_at_once(2, way);
    }
}

/// A task that waits for a partition is told, as of any lock.
#[test]
fn a_wait_for_a_partition_has_its_limit() {
    on(&killed(1), async |executor| {
        let database = Database::open(executor, settings(), "here").await.expect("opens");
        let objects = Kind::Objects.of(&database);
        let limited = async |tx: &mut Transaction| {
            tx.wait_at_most(Some(Duration::from_micros(1)));
            tx.read_object(objects, 0, version).await
        };
        let refused = database.transaction(limited).await.expect_err("it is to be undone");
        let Error::LockTimeout { resource, holders, .. } = &refused else { panic!("{refused}") };
        assert_eq!((resource.as_str(), holders.len()), ("partition 'free-objects'", 1));
        assert!(database.undoing().changes > 0, "it was waited for");
        undone(executor, &database).await;
        judge(&database, &committed()).await;
    });
}

/// Records that are added at the end meet nothing that is undone.
#[test]
fn records_are_added_to_a_heap_beside_it() {
    on(&killed(1), async |executor| {
        let database = Database::open(executor, settings(), "here").await.expect("opens");
        let heap = Kind::Heap.of(&database);
        let mut wanted = committed();
        for number in 0..10 {
            database.transaction(async |tx| Kind::Heap.write(tx, heap, 0, 3).await).await.expect("commits");
            wanted.insert(("free-heap", u64::from(RECORDS + number)), 3);
        }
        // Snapshots see what was committed there: versions are kept of what is added.
        let (mut snapshot, mut found) = (database.snapshot().await.expect("begins"), 0);
        let count = |_, record: &[u8]| {
            found += u64::from(version(record));
            true
        };
        snapshot.scan_appended(heap, count).await.expect("reads");
        assert_eq!(found, u64::from(RECORDS) + 30);
        drop(snapshot);
        assert!(database.undoing().changes > 0, "it was waited for");
        undone(executor, &database).await;
        judge(&database, &wanted).await;
    });
}

#[test]
fn a_machine_that_stops_at_any_point_of_it_goes_on_there() {
    let media = killed(2);
    let (mut at, mut cuts, mut is_whole) = (150, 0, false);
    while !is_whole {
        let media = media.copy();
        for life in 0..2 {
            let faults = FaultPlan { power_cut_at: Some(at + 57 * life), ..FaultPlan::default() };
            let ended = under(faults, &media, async |executor| {
                let database = Database::open(executor, settings(), "here").await.expect("opens");
                undone(executor, &database).await;
            });
            is_whole |= life == 0 && ended.is_ok();
            cuts += u64::from(ended.is_err());
            cut(&media, at + life);
        }
        on(&media, async |executor| {
            let database = Database::open(executor, settings(), "here").await.expect("opens");
            judge(&database, &committed()).await;
        });
        at += at / 6;
    }
    assert!(cuts > 5, "{cuts}");
}

/// What a transaction has changed of sets is logged with its commit: where it has not ended there is nothing to be undone, and nothing locked.
#[test]
fn sets_are_as_they_were_committed_at_once() {
    for has_more in [false, true] {
        let media = Media::new();
        let wanted = on(&media, async |executor| {
            let database = create(executor, settings()).await;
            let [rows, stock, arrivals] = ["rows", "stock", "arrivals"].map(|name| named(&database, name));
            let mut tx = database.begin().await.expect("begins");
            for number in 0..200 {
                tx.put(stock, &key(number), &[2; 40]).await.expect("puts");
                tx.append(arrivals, &[2; 60]).await.expect("appends");
                if number % 3 == 0 {
                    tx.delete(stock, &key(number)).await.expect("deletes");
                }
                if has_more {
                    tx.put(rows, &key(number), b"lost").await.expect("puts");
                }
            }
            forget(tx);
            database.transaction(async |tx| tx.put(stock, &key(900), b"kept").await).await.expect("commits");
            at_moment(&database).await
        });
        on(&media, async |executor| {
            let database = Database::open(executor, settings(), "here").await.expect("opens");
            let report = database.recovery();
            let left = u64::from(has_more);
            assert_eq!((report.unfinished, report.undos_left), (left, left), "{report:?}");
            let [stock, arrivals] = ["stock", "arrivals"].map(|name| named(&database, name));
            assert_eq!(database.undoing().transactions, left);
            let use_sets = async |tx: &mut Transaction| {
                tx.wait_at_most(Some(Duration::from_nanos(1)));
                for number in 0..200 {
                    let found = tx.get(stock, &key(number)).await?;
                    assert_eq!(
                        found.as_deref(),
                        wanted.get(&("stock".to_owned(), key(number).to_vec())).map(|v| &v[..])
                    );
                    tx.put(stock, &key(number), &[1; 40]).await?;
                }
                assert_eq!(tx.get(stock, &key(900)).await?.as_deref(), Some(&b"kept"[..]));
                tx.append(arrivals, &[3; 60]).await.map(drop)
            };
            database.transaction(use_sets).await.expect("nothing is locked");
            undone(executor, &database).await;
            assert!(database.check(|_| {}).await.expect("checks").is_clean());
        });
    }
}

#[cfg(feature = "canary")]
#[test]
fn each_use_of_a_partition_that_is_not_locked_again_is_noticed() {
    use entresol_engine::canary::{Canary, plant};
    plant(Some(Canary::UnlockedLoser));
    let is_found = |way: &Use| std::panic::catch_unwind(|| use_at_once(1, *way)).is_err();
    let unnoticed: Vec<_> = USES.iter().filter(|way| !is_found(way)).collect();
    plant(None);
    assert!(unnoticed.is_empty(), "{unnoticed:?}");
}
