//! Caches on flash change at random beside clients, checkpoints, failing operations, a device that hangs, and power cuts.
//! Unlike torture: asynchronous devices with a volatile write cache, pages that may be torn, limits of silence, another device.

use crate::ground::machine::run;
use base::time::{MICROSECOND_NS, MILLISECOND_NS, SECOND_NS};
use base::{Instant, Random};
use driver::{Halt, OpKind};
use entresol_engine::catalog::{Locking, Organization};
use entresol_engine::second_level::{self, CacheSettings, DESIGNS, Parameters};
use entresol_engine::tier_file::WriteBufferSettings;
use entresol_engine::{Database, Internals, PartitionSpec, Settings, buffer, checkpoint, log};
use executor::{Executor, Order, WholeExecutor};
use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;
use virtual_driver::{ErrorAt, FaultPlan, Hardware, Media, Options, PowerCut, Slow, VirtualDriver};

const PAGES: u64 = 36;
const CLIENTS: u64 = 3;
/// How long an opening may take.
const OPENING_NS_MAX: u64 = 600 * SECOND_NS;
/// How many histories are drawn.
const SEEDS: u64 = 150;

/// By object: the last value that was acknowledged, and the last that was tried.
type Known = Rc<RefCell<Vec<(u32, u32)>>>;

fn one_of<T: Copy>(random: &mut Random, items: &[T]) -> T {
    *random.choose(items).expect("there are some")
}

fn draw_cache(random: &mut Random) -> Option<CacheSettings> {
    if random.chance(0.2) {
        return None;
    }
    let device = one_of(random, &["flash", "flash", "nvem"]);
    Some(CacheSettings {
        design: one_of(random, DESIGNS),
        volatile: Some(false),
        table: Some(random.chance(0.7)),
        silence_ns_max: one_of(random, &[80 * MILLISECOND_NS, SECOND_NS]),
        parameters: Parameters {
            fill_threshold_percent: one_of(random, &[0, 95]),
            dirty_max_percent: one_of(random, &[0, 50, 100]),
            group_pages: one_of(random, &[1, 3, 32]),
            throttle: one_of(random, &[0, 1, 100]),
        },
        ..CacheSettings::new(device, one_of(random, &[1, 5, 16, 48]))
    })
}

fn settings(random: &mut Random, seed: u64, cache: Option<CacheSettings>) -> Settings {
    let write_buffer = seed.is_multiple_of(3).then(|| WriteBufferSettings {
        device: "nvem".to_owned(),
        pages: 6,
        log_bytes: 0,
        volatile: None,
    });
    let page_size = if seed.is_multiple_of(2) { 8192 } else { 1024 };
    Settings {
        buffer: buffer::Settings {
            frames: 16,
            page_size,
            cleaner: random.chance(0.5),
            batch: one_of(random, &[4, 64]),
            ..buffer::Settings::default()
        },
        log: log::Settings { capacity: 1 << 20, ..log::Settings::default() },
        hierarchy: second_level::Settings { cache, write_buffer, ..second_level::Settings::default() },
        checkpoint: checkpoint::Policy { log_bytes: Some(100 << 10), interval_ns: Some(2 * MILLISECOND_NS) },
        force: seed.is_multiple_of(5),
        ..Settings::default()
    }
}

async fn at_most<F: Future>(mut polls: u64, future: F) -> Option<F::Output> {
    let mut future = pin!(future);
    poll_fn(|context| match future.as_mut().poll(context) {
        Poll::Ready(output) => Poll::Ready(Some(output)),
        Poll::Pending if polls == 0 => Poll::Ready(None),
        Poll::Pending => {
            polls -= 1;
            Poll::Pending
        }
    })
    .await
}

fn value(bytes: &[u8]) -> u32 {
    u32::from_le_bytes(bytes[..4].try_into().expect("four bytes"))
}

async fn client(database: Database, known: Known, first: u64, mut random: Random, over: Rc<Cell<bool>>, what: String) {
    let Ok(partition) = database.partition("objects") else { return };
    let executor = database.executor().whole().clone();
    while !over.get() {
        let number = first + CLIENTS * random.below(PAGES / CLIENTS);
        let (acked, tried) = known.borrow()[number as usize];
        if random.chance(0.5) {
            let read = database.transaction(async |tx| tx.read_object(partition, number, value).await).await;
            if let Ok(found) = read {
                assert!((acked..=tried).contains(&found), "{what}, object {number}: {found} not in {acked}..={tried}");
            }
        } else {
            let next = tried + 1;
            known.borrow_mut()[number as usize].1 = next;
            let changed = database
                .transaction(async |tx| {
                    tx.modify_object(partition, number, |bytes| {
                        let before = value(bytes);
                        bytes[..4].copy_from_slice(&next.to_le_bytes());
                        before
                    })
                    .await
                })
                .await;
            if let Ok(before) = changed {
                assert!(
                    (acked..=tried).contains(&before),
                    "{what}, object {number}: {before} not in {acked}..={tried}"
                );
                known.borrow_mut()[number as usize] = (next, next);
            }
        }
        // What fails, or is in memory, takes no time.
        executor.sleep_ns(random.between(1, 30) * MICROSECOND_NS).await;
    }
}

/// Works with an open database for a while. The cache at the end.
async fn work(database: &Database, random: &mut Random, known: &Known, what: &str, may_fail: bool) {
    let executor = database.executor().whole().clone();
    let over = Rc::new(Cell::new(false));
    let clients: Vec<_> = (0..CLIENTS)
        .map(|first| {
            let (database, known, over) = (database.clone(), Rc::clone(known), Rc::clone(&over));
            let random = Random::stream(random.word(), "client");
            executor.spawn(client(database, known, first, random, over, what.to_owned()))
        })
        .collect();
    let partition = database.partition("objects").expect("it exists");
    for _ in 0..random.between(3, 14) {
        executor.sleep_ns(random.below(3_000) * MICROSECOND_NS / 4).await;
        match random.below(8) {
            0 => _ = database.checkpoint().await,
            1 => database.admit_to_cache(partition, random.chance(0.6)).expect("it exists"),
            2 => {
                let mut cache = database.cache();
                if let Some(cache) = &mut cache {
                    cache.design = one_of(random, DESIGNS);
                }
                let changed = database.set_cache(cache).await;
                assert!(changed.is_ok() || may_fail, "{what}: {changed:?}");
            }
            3 => _ = at_most(random.below(6), database.set_cache(draw_cache(random))).await,
            _ => {
                let changed = database.set_cache(draw_cache(random)).await;
                assert!(changed.is_ok() || may_fail, "{what}: {changed:?}");
            }
        }
    }
    over.set(true);
    for client in clients {
        assert!(executor.within(120 * SECOND_NS, client.join()).await.is_some(), "{what}: a client waits for ever");
    }
    // What was given up ends, too.
    let end = database.set_cache(database.cache());
    assert!(executor.within(300 * SECOND_NS, end).await.is_some(), "{what}: the change waits for ever");
    database.buffer().tiers().into_iter().for_each(|tiers| tiers.check().expect("consistent"));
}

fn seed_holds(seed: u64) {
    let random = &mut Random::stream(seed, "flash");
    let media = Media::new();
    let known: Known = Rc::new(RefCell::new(vec![(0, 0); PAGES as usize]));
    let mut cache = draw_cache(random);
    let created = settings(random, seed, cache.clone());
    run(&media, async |executor| {
        let database = Database::create(executor, created).await.expect("creates");
        let organization = Organization::Direct { objects: PAGES, blocking_factor: 1, record_size: 900 };
        database.create_partition(PartitionSpec::new("objects", organization, Locking::Page)).await.expect("creates");
        database.close().await.expect("closes");
    });
    for life in 0..4 {
        let what = format!("seed {seed}, life {life}");
        let cut = if life == 3 { None } else { Some(random.exponential(6_000.0) as u64 + 50) };
        let mut errors = Vec::new();
        if life < 3 && random.chance(0.4) {
            for _ in 0..random.between(1, 12) {
                let kind = one_of(random, &[OpKind::Read, OpKind::Write, OpKind::Write]);
                let device = Some(one_of(random, &["flash", "flash", "flash", "flash", "nvem"]).to_owned());
                errors.push(ErrorAt { kind, device, nth: random.exponential(150.0) as u64 + 1 });
            }
        }
        let mut slow = Vec::new();
        if life < 3 && random.chance(0.3) {
            let from = Instant::from_ns(random.below(6_000) * MICROSECOND_NS);
            let (until, factor) = match random.chance(0.5) {
                true => (Instant::NEVER, Slow::HUNG),
                false => (from.plus_ns(random.below(3_000) * MICROSECOND_NS), random.between(10, 100_000) as f64),
            };
            slow.push(Slow { device: "flash".into(), from, until, factor });
        }
        let hangs = slow.iter().any(|slow| slow.until == Instant::NEVER);
        let may_fail = !errors.is_empty() || !slow.is_empty();
        let faults = Some(FaultPlan { power_cut_at: cut, errors, slow, ..FaultPlan::default() });
        let options = Options { seed: random.word(), faults, jitter: true, ..Options::default() };
        let order = Order::Seeded(random.word());
        let executor = Executor::new(Box::new(VirtualDriver::new(Hardware::ideal(), options, media.clone())), order);
        let opened = settings(random, seed, cache.clone());
        let mut acts = Random::stream(random.word(), "acts");
        let last = Rc::new(RefCell::new(cache.clone()));
        let result = catch_unwind(AssertUnwindSafe(|| {
            executor.run(async {
                let opening = executor.within(OPENING_NS_MAX, Database::open(&executor, opened, "here")).await;
                let database = match opening {
                    Some(Ok(database)) => database,
                    Some(Err(error)) => {
                        assert!(may_fail, "{what}: {error}");
                        return;
                    }
                    // An opening waits for every device that it needs.
                    None => {
                        assert!(hangs, "{what}: an opening waits for ever");
                        return;
                    }
                };
                let partition = database.partition("objects").expect("it exists");
                for number in 0..PAGES {
                    let read = database.transaction(async |tx| tx.read_object(partition, number, value).await).await;
                    match read {
                        Ok(found) => {
                            let (acked, tried) = known.borrow()[number as usize];
                            let is_right = (acked..=tried).contains(&found);
                            assert!(is_right, "{what}, object {number}: {found} not in {acked}..={tried}");
                            // What a recovery has shown stays.
                            known.borrow_mut()[number as usize].0 = found;
                        }
                        Err(error) => assert!(may_fail, "{what}: {error}"),
                    }
                }
                if life == 3 {
                    return;
                }
                work(&database, &mut acts, &known, &what, may_fail).await;
                last.replace(database.cache());
                if acts.chance(0.3) {
                    let closed = database.close().await;
                    assert!(closed.is_ok() || may_fail, "{what}: {closed:?}");
                }
            })
        }));
        let result = match result {
            Ok(result) => result,
            Err(panic) => {
                std::mem::forget(executor);
                resume_unwind(panic);
            }
        };
        executor.stop();
        match result {
            Ok(()) | Err(Halt::PowerCut) => {}
            Err(halt) => panic!("{what}: all tasks wait for ever: {halt:?}"),
        }
        if random.chance(0.7) {
            let policy = one_of(
                random,
                &[PowerCut::default(), PowerCut { lost: 1.0, torn: 0.0 }, PowerCut { lost: 0.1, torn: 0.9 }],
            );
            media.power_cut(&mut Random::stream(random.word(), "cut"), &policy);
        } else {
            media.process_end(&mut Random::stream(random.word(), "kill"));
        }
        cache = if random.chance(0.6) { last.take() } else { draw_cache(random) };
    }
}

#[test]
fn a_cache_on_flash_changes_at_random() {
    let failed: Vec<u64> = (0..SEEDS).filter(|seed| catch_unwind(|| seed_holds(*seed)).is_err()).collect();
    assert!(failed.is_empty(), "seeds {failed:?}");
}
