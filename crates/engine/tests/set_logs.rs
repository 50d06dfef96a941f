//! What the log has of sets: values, actions, procedures; over backups of every strategy that they go with.

use base::time::SECOND_NS;
use base::{PartitionId, Random};
use entresol_engine::catalog::{Locking, Organization};
use entresol_engine::checkpoint::{Strategy, SweepSettings};
use entresol_engine::set::Logging;
use entresol_engine::{
    Database, Error, Internals, PartitionSpec, Procedures, Result, Settings, Snapshot, Transaction, checkpoint, log,
    version,
};
use executor::{Executor, Order, WholeExecutor};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use virtual_driver::{Hardware, Media, Options, VirtualDriver};

/// Keys of the stock; every other one has a record from the beginning. Some are asked for more often.
const STOCK: u64 = 3_000;
const ASKED_FOR: u64 = 40;
const HOUR_NS: u64 = 3_600 * SECOND_NS;

/// Runs `work` on a new machine with these media whose devices take any time, then lets that machine vanish.
fn run<T>(media: &Media, work: impl AsyncFnOnce(&Executor) -> T) -> T {
    let options = Options { jitter: true, ..Options::default() };
    let driver = VirtualDriver::new(Hardware::ideal(), options, media.clone());
    let executor = Executor::new(Box::new(driver), Order::FirstInFirstOut);
    let result = executor.run(work(&executor));
    executor.stop();
    result.expect("the machine goes on")
}

/// Does this and that with the sets, as `seed` and what it reads decide; with the b-tree only if `paged`.
async fn work(tx: &mut Transaction, seed: u64, paged: bool) -> Result<Vec<u8>> {
    let random = &mut Random::stream(seed, "work");
    let [stock, orders, notes] = ["stock", "orders", "notes"].map(|name| tx.partition(name));
    let (stock, orders, notes) = (stock?, orders?, notes?);
    let (mut seen, adventurous) = (0_u64, random.chance(0.3));
    for _ in 0..random.between(1, 5) {
        let number = if random.chance(0.5) { STOCK / ASKED_FOR * random.below(ASKED_FOR) } else { random.below(STOCK) };
        // Odd ones come and go.
        let number = if adventurous { number | 1 } else { number & !1 };
        let key = number.to_be_bytes();
        match random.below(if paged { 7 } else { 6 }) {
            0 | 1 => match tx.add(stock, &key, 0..8, 1 + (seen % 100) as i64).await {
                Ok(sum) => seen = seen.wrapping_mul(31).wrapping_add(sum),
                Err(Error::NoRecord(_)) => seen += 7,
                Err(error) => return Err(error),
            },
            2 => seen = tx.get(stock, &key).await?.map_or(seen + 1, |value| seen ^ u64::from(value[0])),
            3 => {
                let mut value = vec![seen as u8; 8 + (seen % 300) as usize];
                value[..8].copy_from_slice(&seen.to_le_bytes());
                tx.put(stock, &key, &value).await?;
            }
            4 if adventurous => seen += u64::from(tx.delete(stock, &key).await?),
            4 | 5 => {
                let position = tx.append(orders, &seen.to_le_bytes()).await?;
                seen += u64::from(position.slot);
            }
            _ => {
                let note = tx.get(notes, &key[7..]).await?.map_or(0, |note| note[0]);
                seen += u64::from(note);
                tx.put(notes, &key[7..], &[seen as u8]).await?;
            }
        }
        if random.chance(0.2) {
            tx.executor().clone().sleep_ns(20_000).await;
        }
    }
    if seen.is_multiple_of(11) { Err(Error::RolledBack("so it is".into())) } else { Ok(seen.to_le_bytes().to_vec()) }
}

fn procedures() -> Procedures {
    let mut procedures = Procedures::new();
    for (name, paged) in [("sets", false), ("mixed", true)] {
        procedures.register(name, async move |tx, parameters| {
            let seed = parameters.try_into().map_err(|_| Error::Argument("eight bytes".into()))?;
            work(tx, u64::from_le_bytes(seed), paged).await
        });
    }
    procedures
}

fn settings(logging: Logging, sweep: SweepSettings) -> Settings {
    Settings {
        log: log::Settings { capacity: 4 << 20, ..log::Settings::default() },
        checkpoint: checkpoint::Policy::OFF,
        procedures: procedures(),
        logging,
        sweep,
        ..Settings::default()
    }
}

fn pairs() -> Vec<(Logging, Strategy)> {
    let all = Logging::ALL.into_iter().flat_map(|logging| Strategy::ALL.map(|strategy| (logging, strategy)));
    all.filter(|(logging, strategy)| strategy.check(*logging).is_ok()).collect()
}

async fn create(executor: &Executor, settings: Settings) -> Database {
    let database = Database::create(executor, settings).await.expect("creates");
    let set = |name, arrivals| {
        let organization = Organization::Set { arrivals, segment_size: 16 << 10, reserve_percent: 10 };
        PartitionSpec::new(name, organization, Locking::Record)
    };
    for spec in [set("stock", false), set("orders", true), PartitionSpec::b_tree("notes")] {
        database.create_partition(spec).await.expect("creates a partition");
    }
    let stock = database.partition("stock").expect("it exists");
    let records = (0..STOCK).step_by(2).map(|number| (number.to_be_bytes(), [1; 100]));
    database.load_set(stock, records, |_| {}).await.expect("loads");
    database
}

type Contents = Vec<BTreeMap<Vec<u8>, Vec<u8>>>;

async fn contents(database: &Database) -> Contents {
    let mut tx = database.begin().await.expect("begins");
    let mut all = Vec::new();
    for set in ["stock", "orders"] {
        let mut found = BTreeMap::new();
        let mut note = |key: &[u8], value: &[u8]| found.insert(key.to_vec(), value.to_vec()).is_none();
        tx.scan_set(database.partition(set).expect("it exists"), &mut note).await.expect("scans");
        all.push(found);
    }
    let notes: PartitionId = database.partition("notes").expect("it exists");
    let mut found = BTreeMap::new();
    for key in 0..=255_u8 {
        if let Some(note) = tx.get(notes, &[key]).await.expect("reads") {
            found.insert(vec![key], note);
        }
    }
    all.push(found);
    tx.rollback().await.expect("rolls back");
    all
}

/// One of several clients: calls procedures, and does the same without.
async fn client(database: Database, seed: u64) {
    let mut random = Random::stream(seed, "client");
    for _ in 0..40 {
        let seed = random.below(u64::MAX);
        let done = match random.below(10) {
            0 => database.transaction(async |tx| work(tx, seed, true).await).await,
            1 => database.transaction(async |tx| work(tx, seed, false).await).await,
            2 => database.call("mixed", &seed.to_le_bytes()).await,
            _ => database.call("sets", &seed.to_le_bytes()).await,
        };
        assert!(matches!(done, Ok(_) | Err(Error::RolledBack(_))), "{done:?}");
    }
}

/// Works while sweeps go on; if they spool, the machine stops in one. Returns what was there then.
async fn live(database: &Database, seed: u64) -> Contents {
    let executor = database.executor().whole().clone();
    let clients: Vec<_> = (0..4).map(|number| executor.spawn(client(database.clone(), seed << 8 | number))).collect();
    let mut sweeping = None;
    while !clients.iter().all(executor::JoinHandle::is_finished) {
        if sweeping.as_ref().is_none_or(executor::JoinHandle::is_finished) {
            let database = database.clone();
            sweeping = Some(executor.spawn(async move { database.checkpoint().await.expect("sweeps") }));
        }
        executor.sleep_ns(50_000).await;
    }
    if !database.settings().sweep.spool {
        // A segment that is being written itself would be missing from the scan.
        sweeping.expect("sweeps go on").join().await;
    }
    contents(database).await
}

#[test]
fn every_pair_recovers_what_was_committed_and_so_does_every_change_of_pairs() {
    let pairs = pairs();
    assert_eq!(pairs.len(), 6 + 5 + 3, "five of the paper's strategies and calc");
    for seed in 0..40_u64 {
        let (media, mut random) = (Media::new(), Random::stream(seed, "pairs"));
        let mut expected = None;
        for opening in 0..4_u64 {
            let (logging, strategy) = pairs[(seed + opening * random.below(pairs.len() as u64)) as usize % pairs.len()];
            let sweep = SweepSettings { strategy, spool: random.chance(0.5), ..SweepSettings::default() };
            let settings = Settings { whole_fields: (seed + opening) % 3 == 0, ..settings(logging, sweep) };
            expected = run(&media, async |executor| {
                let database = match &expected {
                    None => create(executor, settings).await,
                    Some(expected) => {
                        let database = Database::open(executor, settings, "test").await.expect("opens");
                        let found = contents(&database).await;
                        assert!(found == *expected, "seed {seed}, opening {opening}, {logging:?}, {strategy:?}");
                        assert!(database.check(|_| {}).await.expect("checks").is_clean());
                        database
                    }
                };
                Some(live(&database, seed << 8 | opening).await)
            });
        }
    }
}

/// What a snapshot shows of the sets.
async fn past_contents(past: &mut Snapshot, database: &Database) -> Contents {
    let mut all = Vec::new();
    for set in ["stock", "orders"] {
        let mut found = BTreeMap::new();
        let note = |key: &[u8], value: &[u8]| found.insert(key.to_vec(), value.to_vec()).is_none();
        past.scan_set(database.partition(set).expect("it exists"), note).await.expect("scans");
        all.push(found);
    }
    all
}

#[test]
fn moments_before_a_restart_are_read_whatever_the_log_has_of_sets() {
    let undo = version::UndoSettings { retention_ns: HOUR_NS, ..version::UndoSettings::default() };
    for (number, (logging, strategy)) in (0..).zip(pairs()) {
        let (media, mut random) = (Media::new(), Random::stream(number, "moments of sets"));
        let sweep = SweepSettings { strategy, ..SweepSettings::default() };
        let settings = Settings { undo: undo.clone(), ..settings(logging, sweep) };
        let moments = run(&media, async |executor| {
            let database = create(executor, settings.clone()).await;
            let begin = |seed| executor.spawn(client(database.clone(), number << 8 | seed));
            let (clients, mut sweeping, mut moments) = ([0, 1, 2, 3].map(begin), None, Vec::new());
            while !clients.iter().all(executor::JoinHandle::is_finished) {
                if sweeping.as_ref().is_none_or(executor::JoinHandle::is_finished) {
                    let database = database.clone();
                    sweeping = Some(executor.spawn(async move { database.checkpoint().await.expect("sweeps") }));
                }
                executor.sleep_ns(random.below(100_000)).await;
                let mut now = database.snapshot().await.expect("reads");
                moments.push((now.moment(), past_contents(&mut now, &database).await));
            }
            moments
        });
        assert!(moments.len() > 5, "{} moments with {logging:?} and {strategy:?}", moments.len());
        run(&media, async |executor| {
            let database = Database::open(executor, settings, "test").await.expect("opens");
            for (moment, expected) in moments {
                let mut past = database.as_of(moment).await.expect("is kept");
                let found = past_contents(&mut past, &database).await;
                assert!(found == expected, "{logging:?}, {strategy:?} as of {moment}");
            }
        });
    }
}

#[test]
fn a_log_of_whole_fields_is_longer_and_recovers_the_same() {
    let logged = |whole_fields| {
        let media = Media::new();
        let settings = Settings { whole_fields, ..settings(Logging::Values, SweepSettings::default()) };
        let (bytes, expected) = run(&media, async |executor| {
            let database = create(executor, settings.clone()).await;
            let stock = database.partition("stock").expect("it exists");
            let before = database.log().statistics().record_bytes;
            for number in (0..STOCK).step_by(2) {
                let add = async |tx: &mut Transaction| tx.add(stock, &number.to_be_bytes(), 0..8, 1).await;
                database.transaction(add).await.expect("commits");
            }
            // What does not change is not logged.
            let same = async |tx: &mut Transaction| tx.add(stock, &0_u64.to_be_bytes(), 0..8, 0).await;
            let end = database.log().end();
            database.transaction(same).await.expect("commits");
            assert_eq!(database.log().end(), end);
            (database.log().statistics().record_bytes - before, contents(&database).await)
        });
        run(&media, async |executor| {
            let database = Database::open(executor, settings, "test").await.expect("opens");
            assert!(database.recovery().records > 0 && contents(&database).await == expected);
        });
        (bytes, expected)
    };
    let (differing, whole) = (logged(false), logged(true));
    assert!(differing.1 == whole.1, "they did the same");
    // One byte of eight differs.
    assert_eq!(whole.0 - differing.0, 7 * STOCK / 2, "{} and {} bytes", differing.0, whole.0);
}

#[test]
fn pairs_that_cannot_recover_are_refused() {
    let refused = [
        (Logging::Actions, Strategy::Fuzzy, "exactly once"),
        (Logging::Procedures, Strategy::Fuzzy, "whole transactions"),
        (Logging::Procedures, Strategy::ActionBlackWhite, "whole transactions"),
        (Logging::Procedures, Strategy::ActionCopyOnUpdate, "whole transactions"),
    ];
    let media = Media::new();
    for (logging, strategy, why) in refused {
        let settings = settings(logging, SweepSettings { strategy, ..SweepSettings::default() });
        run(&media, async |executor| {
            let created = Database::create(executor, settings.clone()).await.err().expect("refused");
            let opened = Database::open(executor, settings, "test").await.err().expect("refused");
            assert!(created.to_string().contains(why) && opened == created, "{created}, {opened}");
        });
    }
}

#[test]
fn a_procedure_that_is_gone_or_another_one_is_named_and_nothing_is_lost() {
    let media = Media::new();
    let sweep = SweepSettings { strategy: Strategy::StableVersions, ..SweepSettings::default() };
    let settings = settings(Logging::Procedures, sweep);
    let expected = run(&media, async |executor| {
        let database = create(executor, settings.clone()).await;
        for seed in 0..50_u64 {
            let _rolled_back_by_itself = database.call("sets", &seed.to_le_bytes()).await;
        }
        contents(&database).await
    });
    let with = |body: fn(&mut Procedures)| {
        let mut procedures = Procedures::new();
        body(&mut procedures);
        Settings { procedures, ..settings.clone() }
    };
    let cases: [(Settings, &str); 4] = [
        (with(|_| ()), "registered are: none"),
        (
            with(|all| {
                all.register("sets", async |_, _| Err(Error::RolledBack("no".into())));
            }),
            "rolled back by the caller",
        ),
        (
            with(|all| {
                all.register("sets", async |tx, _| {
                    let notes = tx.partition("notes")?;
                    tx.put(notes, b"k", b"v").await.map(|()| Vec::new())
                });
            }),
            "it refers to pages",
        ),
        (
            with(|all| {
                all.register("sets", async |_, _| Ok(Vec::new()));
            }),
            "fewer arrivals",
        ),
    ];
    for (settings, words) in cases {
        run(&media, async |executor| {
            let error = Database::open(executor, settings, "test").await.err().expect("it cannot go on");
            assert!(matches!(&error, Error::NotRepeated { procedure, .. } if procedure == "sets"), "{error}");
            assert!(error.to_string().contains(words), "{error}");
        });
    }
    run(&media, async |executor| {
        let database = Database::open(executor, settings.clone(), "test").await.expect("opens");
        assert!(contents(&database).await == expected);
    });
}

#[test]
fn a_procedure_that_began_before_a_black_white_sweep_is_not_logged_as_such() {
    let (media, sweep) =
        (Media::new(), SweepSettings { strategy: Strategy::TransactionBlackWhite, ..SweepSettings::default() });
    let mut settings = settings(Logging::Procedures, sweep);
    let known = Rc::new(RefCell::new(None::<Database>));
    let opened = Rc::clone(&known);
    settings.procedures.register("copy", async move |tx, _| {
        let stock = tx.partition("stock")?;
        let value = tx.get(stock, &0_u64.to_be_bytes()).await?.expect("it was loaded");
        let database = known.borrow().clone().expect("it is open");
        let written = database.segments_written(stock).expect("a set");
        while database.segments_written(stock).expect("a set") == written {
            database.executor().sleep_ns(1_000).await;
        }
        tx.add(stock, &2_u64.to_be_bytes(), 0..8, i64::from(value[0])).await.map(|_| Vec::new())
    });
    let expected = run(&media, async |executor| {
        let database = create(executor, settings.clone()).await;
        opened.replace(Some(database.clone()));
        let (caller, sweeper) = (database.clone(), database.clone());
        let copying = executor.spawn(async move { caller.call("copy", b"").await });
        executor.sleep_ns(10_000).await;
        let sweeps = database.statistics().sweeps.get();
        let sweeping = executor.spawn(async move { sweeper.checkpoint().await });
        copying.join().await.expect("commits");
        assert!(database.statistics().sweeps.get() == sweeps && !sweeping.is_finished(), "it ends within the sweep");
        sweeping.join().await.expect("sweeps");
        opened.take();
        contents(&database).await
    });
    run(&media, async |executor| {
        let without = Settings { procedures: Procedures::new(), ..settings.clone() };
        let database = Database::open(executor, without, "test").await.expect("no procedure is in the log");
        assert!(database.recovery().records > 0 && contents(&database).await == expected);
    });
}
