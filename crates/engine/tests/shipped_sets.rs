//! Transactions of another node that change memory-resident sets beside pages: both are there after a restart or neither, whatever sweeps
//! have in their backups, and what is refused leaves nothing.

use crate::ground::shipments::*;
use base::time::{MICROSECOND_NS, SECOND_NS};
use base::{Lsn, PageId, PartitionId, Random};
use entresol_engine::catalog::{Locking, Organization};
use entresol_engine::checkpoint::{Strategy, SweepSettings};
use entresol_engine::set::{FieldType, FieldValue, Logging, RecordType};
use entresol_engine::{
    Database, Direction, Error, Internals, PartitionSpec, Result, SetChange, Settings, Shipment, version,
};
use executor::{Executor, Order};
use std::collections::BTreeMap;
use std::ops::Bound;
use virtual_driver::{Hardware, Media, Options, PowerCut, VirtualDriver};

type Records = BTreeMap<Vec<u8>, Vec<u8>>;

/// What is there: a number on each of some pages, the records of a set, those of one with an index, and those of one that numbers them.
#[derive(Clone, Default, PartialEq, Debug)]
struct Model {
    pages: [u8; 4],
    stock: Records,
    offers: Records,
    arrivals: Records,
}

fn record() -> RecordType {
    RecordType::new([("group", FieldType::U32)]).expect("sound")
}

fn offer(group: u32) -> Vec<u8> {
    let mut value = Vec::new();
    record().encode(&[FieldValue::U32(group)], &mut value).expect("it suits");
    value
}

fn group(value: &[u8]) -> u32 {
    match record().decode(value, 0) {
        Ok(FieldValue::U32(group)) => group,
        other => panic!("{other:?}"),
    }
}

/// The partitions of the model.
async fn create(database: &Database) -> Result<()> {
    create_pages(database, "pages").await?;
    database.create_partition(PartitionSpec::set("stock")).await?;
    let offers = PartitionSpec::set("offers").record(record()).secondary("by_group", &["group"]);
    database.create_partition(offers).await?;
    let arrivals = PartitionSpec::new("arrivals", Organization::set(true), Locking::Record);
    database.create_partition(arrivals).await.map(drop)
}

fn shipping_settings(seed: u64) -> Settings {
    let strategy = Strategy::ALL[seed as usize % Strategy::ALL.len()];
    let kinds = match strategy {
        Strategy::Fuzzy => 1,
        Strategy::ActionBlackWhite | Strategy::ActionCopyOnUpdate => 2,
        _ => 3,
    };
    let logging = Logging::ALL[seed as usize / 6 % kinds];
    let sweep = SweepSettings { strategy, spool: seed.is_multiple_of(3), ..SweepSettings::default() };
    let retention_ns = if seed.is_multiple_of(4) { 60 * SECOND_NS } else { 0 };
    let undo = version::UndoSettings { retention_ns, ..version::UndoSettings::default() };
    Settings { sweep, logging, undo, ..settings() }
}

fn on_machine<T>(media: &Media, seed: u64, work: impl AsyncFnOnce(&Executor) -> T) -> T {
    let options = Options { jitter: true, seed, ..Options::default() };
    let driver = VirtualDriver::new(Hardware::ideal(), options, media.clone());
    let executor = Executor::new(Box::new(driver), Order::Seeded(seed));
    let result = executor.run(work(&executor));
    executor.stop();
    result.expect("the machine goes on")
}

async fn find(database: &Database) -> Result<(PartitionId, PartitionId)> {
    Ok((database.partition("pages")?, database.partition("stock")?))
}

async fn look(database: &Database) -> Result<Model> {
    let (pages, stock) = find(database).await?;
    let mut model = Model::default();
    for (number, value) in model.pages.iter_mut().enumerate() {
        *value = self::value(database, PageId::new(pages, number as u32)).await?;
    }
    let mut tx = database.begin().await?;
    let (offers, arrivals) = (database.partition("offers")?, database.partition("arrivals")?);
    for (set, found) in [(stock, &mut model.stock), (offers, &mut model.offers), (arrivals, &mut model.arrivals)] {
        tx.scan_set(set, |key, value| {
            found.insert(key.to_vec(), value.to_vec());
            true
        })
        .await?;
    }
    let (by_group, mut indexed) = (database.secondary(offers, "by_group")?, Vec::new());
    let look = |key: &[u8], value: &[u8]| {
        indexed.push((value.to_vec(), key.to_vec()));
        true
    };
    tx.range(offers, by_group, (Bound::Unbounded, Bound::Unbounded), Direction::Forward, look).await?;
    let mut expected: Vec<_> = model.offers.iter().map(|(key, value)| (value.clone(), key.clone())).collect();
    expected.sort_by_key(|(value, key)| (group(value), key.clone()));
    assert_eq!(indexed, expected, "the index has them in the order of their groups");
    tx.rollback().await?;
    Ok(model)
}

/// What one commit changes.
struct Drawn {
    page: Option<(u32, u8)>,
    changes: Vec<(Vec<u8>, Option<Vec<u8>>)>,
    offers: Vec<(Vec<u8>, Option<Vec<u8>>)>,
    arrivals: Vec<(u64, Vec<u8>)>,
}

impl Drawn {
    fn new(random: &mut Random) -> Drawn {
        let page = random.chance(0.7).then(|| (random.below(4) as u32, random.between(1, 250) as u8));
        let count = random.between(u64::from(page.is_none()), 5);
        let change = |_| {
            let key = random.below(40).to_be_bytes()[6..].to_vec();
            let value = random.chance(0.7).then(|| vec![random.word() as u8; random.below(200) as usize]);
            (key, value)
        };
        let changes = (0..count).map(change).collect();
        let offered = random.below(4);
        let offer_of = |_| {
            let key = random.below(20).to_be_bytes()[6..].to_vec();
            (key, random.chance(0.7).then(|| offer(random.below(300) as u32)))
        };
        let offers = (0..offered).map(offer_of).collect();
        Drawn { page, changes, offers, arrivals: Vec::new() }
    }

    /// Records that are added, some of them under numbers that were given out before those of others that are there.
    fn arrive(mut self, random: &mut Random, database: &Database, held: &mut Vec<u64>) -> Drawn {
        let arrivals = database.partition("arrivals").expect("it is there");
        for _ in 0..random.below(3) {
            held.push(database.reserve_arrival(arrivals).expect("it numbers its records"));
        }
        while !held.is_empty() && random.chance(0.5) {
            let number = held.swap_remove(random.below(held.len() as u64) as usize);
            self.arrivals.push((number, vec![random.word() as u8; random.below(100) as usize]));
        }
        self
    }

    fn apply(&self, model: &mut Model) {
        if let Some((number, value)) = self.page {
            model.pages[number as usize] = value;
        }
        for (key, value) in &self.changes {
            match value {
                Some(value) => drop(model.stock.insert(key.clone(), value.clone())),
                None => drop(model.stock.remove(key)),
            }
        }
        for (key, value) in &self.offers {
            match value {
                Some(value) => drop(model.offers.insert(key.clone(), value.clone())),
                None => drop(model.offers.remove(key)),
            }
        }
        for (number, value) in &self.arrivals {
            assert_eq!(model.arrivals.insert(number.to_be_bytes().to_vec(), value.clone()), None);
        }
    }

    async fn commit(&self, database: &Database) -> Result<()> {
        let (pages, stock) = find(database).await?;
        let (mut records, mut redone) = (Vec::new(), Vec::new());
        if let Some((number, value)) = self.page {
            let page = PageId::new(pages, number);
            let mut copy = contents(database, page).await?;
            patch(&mut copy, 32, &[value], &mut records);
            redone.push(page);
        }
        let (offers, arrivals) = (database.partition("offers")?, database.partition("arrivals")?);
        let numbered: Vec<_> = self.arrivals.iter().map(|(number, value)| (number.to_be_bytes(), value)).collect();
        let changes = self.changes.iter().map(|(key, value)| (stock, &key[..], value.as_deref()));
        let changes = changes.chain(self.offers.iter().map(|(key, value)| (offers, &key[..], value.as_deref())));
        let changes = changes.chain(numbered.iter().map(|(key, value)| (arrivals, &key[..], Some(&value[..]))));
        let sets: Vec<SetChange<'_>> =
            changes.map(|(partition, key, value)| SetChange { partition, key, value }).collect();
        let shipment = Shipment { records: &records, images: &[], redone: &redone, sets: &sets };
        database.commit_shipped(&shipment).await.map_err(cause)
    }
}

/// Commits this and that, with sweeps beside it, until the machine is gone in a commit. What is there then is what was committed, and of the
/// last one all or nothing.
fn run_seed(seed: u64) {
    let settings = shipping_settings(seed);
    let (media, mut random) = (Media::new(), Random::stream(seed, "shipped sets"));
    let mut model = Model::default();
    for session in 0..3 {
        let (before, after) = on_machine(&media, seed, async |executor| {
            let database = if session == 0 {
                let database = Database::create(executor, settings.clone()).await.expect("the medium is empty");
                create(&database).await.expect("there is room");
                database
            } else {
                Database::open(executor, settings.clone(), "stocks").await.expect("it is opened")
            };
            let mut held = Vec::new();
            for _ in 0..random.between(5, 25) {
                if random.chance(0.3) {
                    let database = database.clone();
                    executor.spawn(async move { drop(database.checkpoint().await) });
                    executor.sleep_ns(random.below(300 * MICROSECOND_NS)).await;
                }
                let drawn = Drawn::new(&mut random).arrive(&mut random, &database, &mut held);
                drawn.commit(&database).await.expect("it is sound");
                drawn.apply(&mut model);
            }
            assert_eq!(look(&database).await.expect("all is there"), model, "seed {seed}");
            let drawn = Drawn::new(&mut random).arrive(&mut random, &database, &mut held);
            let before = model.clone();
            drawn.apply(&mut model);
            let ended = executor.within(random.below(60 * MICROSECOND_NS), drawn.commit(&database)).await;
            if ended.is_some() { (model.clone(), model.clone()) } else { (before, model.clone()) }
        });
        media.power_cut(&mut random, &PowerCut::default());
        let found = on_machine(&media, seed + 1, async |executor| {
            let database = Database::open(executor, settings.clone(), "stocks").await?;
            let found = look(&database).await?;
            assert!(database.check(|_| {}).await?.is_clean());
            database.close().await.map(|()| found)
        });
        model = found.expect("it is opened");
        assert!(model == before || model == after, "seed {seed}: {model:?} is neither {before:?} nor {after:?}");
    }
}

#[test]
fn pages_and_sets_of_a_commit_are_there_together_or_not_at_all() {
    (0..60).for_each(run_seed);
}

async fn as_of(database: &Database, moment: Lsn) -> Result<Records> {
    let (_, stock) = find(database).await?;
    let (mut past, mut found) = (database.as_of(moment).await?, Records::new());
    past.scan_set(stock, |key, value| {
        found.insert(key.to_vec(), value.to_vec());
        true
    })
    .await?;
    Ok(found)
}

#[test]
fn sets_are_read_as_they_were_before_commits_of_nodes_also_after_an_opening() {
    for seed in 0..12 {
        let undo = version::UndoSettings { retention_ns: 3_600 * SECOND_NS, ..version::UndoSettings::default() };
        let settings = Settings { undo, ..shipping_settings(seed) };
        let (media, mut random) = (Media::new(), Random::stream(seed, "moments of sets"));
        let moments = on_machine(&media, seed, async |executor| {
            let database = Database::create(executor, settings.clone()).await?;
            create(&database).await?;
            let (mut model, mut moments) = (Model::default(), Vec::new());
            for _ in 0..30 {
                let drawn = Drawn::new(&mut random);
                drawn.commit(&database).await?;
                drawn.apply(&mut model);
                moments.push((database.snapshot().await?.moment(), model.stock.clone()));
            }
            for (moment, expected) in &moments {
                assert_eq!(&as_of(&database, *moment).await?, expected, "seed {seed}");
            }
            Ok::<_, Error>(moments)
        });
        let again = on_machine(&media, seed, async |executor| {
            let database = Database::open(executor, settings.clone(), "stocks").await?;
            for (moment, expected) in moments.as_ref().expect("they are kept") {
                assert_eq!(&as_of(&database, *moment).await?, expected, "seed {seed}");
            }
            Ok::<_, Error>(())
        });
        again.expect("the log has them");
    }
}

#[test]
fn what_is_refused_changes_no_set() {
    whole(async |executor| {
        let (database, pages) = with_pages(executor).await?;
        let record = RecordType::new([("count", FieldType::U32)]).expect("sound");
        let mut sound = Vec::new();
        record.encode(&[FieldValue::U32(7)], &mut sound).expect("it suits");
        let typed = database.create_partition(PartitionSpec::set("typed").record(record)).await?;
        let stock = database.create_partition(PartitionSpec::set("stock")).await?;
        let arrivals =
            database.create_partition(PartitionSpec::new("arrivals", Organization::set(true), Locking::Record)).await?;
        let tree = database.create_partition(PartitionSpec::b_tree("tree")).await?;
        let change = |partition, value| SetChange { partition, key: b"key", value };
        let long = vec![7; 70_000];
        let ship = async |sets: &[SetChange<'_>]| {
            let (records, copy) = changed(PageId::new(pages, 3), 9);
            let images = [(PageId::new(pages, 3), &copy[..])];
            let shipment = Shipment { records: &records, images: &images, redone: &[], sets };
            database.commit_shipped(&shipment).await.map_err(cause)
        };
        let first = change(stock, Some(&b"value"[..]));
        for other in [tree, pages, arrivals] {
            let refused = ship(&[first, change(other, None)]).await;
            assert!(matches!(refused, Err(Error::Shipment(_))), "{refused:?}");
        }
        // No number was given out yet.
        let zero = SetChange { partition: arrivals, key: &[0; 8], value: Some(b"value") };
        for odd in [zero, SetChange { key: b"key", ..zero }, SetChange { key: &[255; 8], ..zero }] {
            let refused = ship(&[first, odd]).await;
            assert!(matches!(refused, Err(Error::Shipment(_))), "{refused:?}");
        }
        assert_eq!(database.reserve_arrival(arrivals)?, 0);
        assert!(database.reserve_arrival(stock).is_err());
        assert!(matches!(ship(&[first, zero, zero]).await, Err(Error::Duplicate(_))));
        assert_eq!((database.read_in_set(stock, b"key").await?, database.set_records(arrivals)), (None, Some(0)));
        assert!(matches!(ship(&[first, change(PartitionId(77), None)]).await, Err(Error::NoPartition(_))));
        let too_long = SetChange { partition: stock, key: &long, value: Some(b"value") };
        assert!(matches!(ship(&[first, too_long]).await, Err(Error::TooLarge { .. })));
        assert!(matches!(ship(&[first, change(typed, Some(&b"odd"[..]))]).await, Err(Error::Field { .. })));
        assert_eq!(database.read_in_set(stock, b"key").await?, None);
        ship(&[first, change(typed, Some(&sound)), change(stock, None), change(stock, Some(&b"last"[..]))]).await?;
        assert_eq!(database.read_in_set(stock, b"key").await?.as_deref(), Some(&b"last"[..]));
        assert_eq!(database.read_in_set(typed, b"key").await?, Some(sound));
        assert!(database.read_in_set(tree, b"key").await.is_err());
        assert_eq!(value(&database, PageId::new(pages, 3)).await?, 9);
        Ok::<_, Error>(())
    })
    .expect("all is as it should be");
}
