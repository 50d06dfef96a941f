//! Three levels under main memory: an upper cache, a cache, and the pages' own device.

use crate::ground::cached;
use crate::ground::machine::run;
use base::{Instant, Random};
use cached::{change, read};
use entresol_engine::second_level::{self, CacheSettings, DESIGNS, Design, Parameters};
use entresol_engine::tier_file::TierReport;
use entresol_engine::{Database, Error, Internals, Settings};
use executor::{Executor, Order};
use virtual_driver::{FaultPlan, Hardware, Media, Options, Slow, VirtualDriver};

const PAGES: u64 = 60;
const UPPER: u32 = 15;

fn named(name: &str) -> Design {
    Design::named(name).expect("it has this name")
}

fn upper(design: Design) -> CacheSettings {
    CacheSettings { design, ..CacheSettings::new("nvem", UPPER) }
}

/// Twenty frames, an upper cache of fifteen pages on `nvem`, and below it one of forty on `flash`.
fn settings(above: Design, below: Design) -> Settings {
    let below = CacheSettings { design: below, volatile: Some(false), ..CacheSettings::new("flash", 40) };
    let mut settings = cached::settings(below);
    settings.hierarchy.upper_cache = Some(upper(above));
    settings
}

async fn create(executor: &Executor, settings: Settings) -> Database {
    cached::create(executor, settings, PAGES).await
}

fn report(database: &Database, name: &str) -> TierReport {
    database.tiers().into_iter().find(|tier| tier.name == name).expect("it was asked for")
}

fn check(database: &Database) {
    database.buffer().levels().check().expect("consistent");
}

#[test]
fn each_level_serves_what_those_above_have_not() {
    run(&Media::new(), async |executor| {
        let database = create(executor, settings(named("migrate-all"), named("lazy-cleaning"))).await;
        for _ in 0..3 {
            change(&database, 0..PAGES, 1).await;
        }
        database.buffer().restart_statistics();
        let objects = database.partition("objects").expect("it exists");
        for round in 0..3 {
            // Back and forth, so that what has left last is used first.
            let numbers: Vec<u64> = if round % 2 == 0 { (0..PAGES).rev().collect() } else { (0..PAGES).collect() };
            assert_eq!(read(&database, numbers).await, [1; PAGES as usize]);
        }
        let [above, below] = ["upper-cache", "cache"].map(|name| report(&database, name));
        assert_eq!([above.device.as_str(), below.device.as_str()], ["nvem", "flash"]);
        assert!(above.volatile && !below.volatile);
        assert!(above.reads > 20 && below.reads > 20, "{above:?} {below:?}");
        let space = database.buffer().space(objects);
        assert_eq!([above.reads, below.reads], [space.upper_cache_hits.get(), space.cache_hits.get()]);
        let figures = database.figures();
        assert_eq!(figures.partitions[0].upper_cache_hits, above.reads);
        let metrics = figures.open_metrics();
        for (tier, device, reads) in [("upper-cache", "nvem", above.reads), ("cache", "flash", below.reads)] {
            let line = format!("entresol_tier_reads_total{{tier=\"{tier}\",device=\"{device}\"}} {reads}\n");
            assert!(metrics.contains(&line), "{line} of {metrics}");
        }
        check(&database);
    });
}

/// Time passes here as on described devices, each slower than the one above it.
#[test]
fn two_caches_take_less_time_than_either_alone() {
    const HARDWARE: &str = "[device.disk]\nmedium.service = \"2 ms\"\n[device.flash]\nmedium.service = \"200 us\"\n\
                            [device.nvem]\nmedium.service = \"2 us\"\nsynchronous = true\n";
    let took_ns = |has_upper: bool, has_cache: bool| {
        let hardware = Hardware::parse(HARDWARE, "test").expect("a description");
        let driver = VirtualDriver::new(hardware, Options::default(), Media::new());
        let executor = Executor::new(Box::new(driver), Order::FirstInFirstOut);
        let took_ns = executor.run(async {
            let both = settings(named("migrate-all"), named("lazy-cleaning"));
            let second_level::Settings { upper_cache, cache, .. } = both.hierarchy.clone();
            let cache = cache.map(|cache| CacheSettings { pages: 120, ..cache });
            let upper_cache = upper_cache.filter(|_| has_upper);
            let (upper_cache, cache) = if has_cache { (upper_cache, cache) } else { (None, upper_cache) };
            let hierarchy = second_level::Settings { upper_cache, cache, ..second_level::Settings::default() };
            let database = cached::create(&executor, Settings { hierarchy, ..both }, 150).await;
            change(&database, 0..150, 1).await;
            database.checkpoint().await.expect("succeeds");
            let mut random = Random::stream(1, "reads");
            // Lower numbers most often.
            let mut draw = || (0..3).map(|_| random.below(150)).min().expect("there are three");
            for _ in 0..2_000 {
                read(&database, [draw()]).await;
            }
            let began = executor.now();
            for _ in 0..2_000 {
                read(&database, [draw()]).await;
            }
            executor.now().since_ns(began)
        });
        executor.stop();
        took_ns.expect("the machine goes on")
    };
    let [none, above, below, both] =
        [(false, false), (true, false), (false, true), (true, true)].map(|(upper, cache)| took_ns(upper, cache));
    assert!(above < none && below < none, "{none} {above} {below} {both} ns");
    assert!(both < above && both < below - below / 20, "{none} {above} {below} {both} ns");
}

#[derive(Default)]
struct Values(Vec<u8>);

impl Values {
    async fn assert(&self, database: &Database, numbers: impl IntoIterator<Item = u64> + Clone, words: &str) {
        let expected: Vec<u8> = numbers.clone().into_iter().map(|number| self.0[number as usize]).collect();
        assert_eq!(read(database, numbers).await, expected, "{words}");
        check(database);
    }
}

/// Changes, reads, checkpoints and changes of either cache at random; then the machine vanishes.
async fn work(database: &Database, values: &mut Values, random: &mut Random, words: &str) {
    for _ in 0..40 {
        let from = random.below(PAGES);
        let numbers = from..(from + random.below(12)).min(PAGES);
        match random.below(20) {
            0 => database.checkpoint().await.expect("succeeds"),
            1 if random.chance(0.5) => {
                let cache = database.cache().map(|cache| CacheSettings { pages: 80 - cache.pages, ..cache });
                database.set_cache(cache).await.expect("changes");
            }
            2 => {
                let pages = random.between(1, 30) as u32;
                let upper = database.upper_cache().map(|upper| CacheSettings { pages, ..upper });
                database.set_upper_cache(upper).await.expect("changes");
            }
            3..10 => {
                let value = random.below(256) as u8;
                change(database, numbers.clone(), value).await;
                numbers.for_each(|number| values.0[number as usize] = value);
            }
            _ => values.assert(database, numbers, words).await,
        }
    }
}

/// A database that is worked on, stopped, opened and worked on again, once without the cache below.
fn work_and_stop(above: Design, below: Design, seed: u64) {
    let (media, words) = (Media::new(), format!("{above:?} above {below:?}"));
    let (mut values, mut random) = (Values(vec![0; PAGES as usize]), Random::stream(seed, &words));
    run(&media, async |executor| {
        let database = create(executor, settings(above, below)).await;
        work(&database, &mut values, &mut random, &words).await;
    });
    run(&media, async |executor| {
        let database = Database::open(executor, settings(above, below), "here").await.expect("opens");
        work(&database, &mut values, &mut random, &words).await;
        database.set_cache(None).await.expect("turns off");
        work(&database, &mut values, &mut random, &words).await;
    });
    run(&media, async |executor| {
        let database = Database::open(executor, settings(above, below), "here").await.expect("opens");
        values.assert(&database, (0..PAGES).rev(), &words).await;
        database.close().await.expect("closes");
    });
}

#[test]
fn no_level_serves_an_older_version_by_any_two_designs() {
    for &above in DESIGNS {
        DESIGNS.iter().for_each(|below| work_and_stop(above, *below, 1));
    }
}

#[cfg(feature = "canary")]
#[test]
fn an_upper_cache_that_keeps_what_was_changed_is_found() {
    use entresol_engine::canary::{Canary, plant};
    // Other designs have no copy of what is in main memory, or take what was changed themselves.
    let above = named("clean-write");
    plant(Some(Canary::StaleAbove));
    let work = |seed| std::panic::catch_unwind(|| work_and_stop(above, named("lazy-cleaning"), seed));
    let found = (1..=20).find(|seed| work(*seed).is_err());
    plant(None);
    assert!(found.is_some(), "nothing notices it");
}

/// The copy below may be the only one of the newest version.
#[test]
fn a_damaged_copy_above_is_read_from_below() {
    let media = Media::new();
    run(&media, async |executor| {
        let below = CacheSettings {
            parameters: Parameters { dirty_max_percent: 100, ..Parameters::default() },
            volatile: Some(false),
            design: named("lazy-cleaning"),
            ..CacheSettings::new("flash", 64)
        };
        let mut settings = cached::settings(below);
        settings.hierarchy.upper_cache = Some(upper(named("dual-write")));
        let database = create(executor, settings).await;
        change(&database, 0..PAGES, 7).await;
        let objects = database.partition("objects").expect("it exists");
        let home = database.buffer().space(objects).reads.get();
        read(&database, 0..PAGES).await;
        assert!(report(&database, "upper-cache").writes > 10);
        for slot in 0..u64::from(UPPER) {
            media.flip_bit("nvem", "upper-cache.tier", 4096 + slot * 1024 + 500, 3).expect("flips");
        }
        for _ in 0..2 {
            assert_eq!(read(&database, (0..PAGES).rev()).await, [7; PAGES as usize]);
        }
        assert!(report(&database, "upper-cache").damaged > 0, "some were found");
        assert_eq!(database.buffer().space(objects).reads.get(), home, "the cache has them all");
        check(&database);
    });
}

#[test]
fn an_opening_begins_with_an_empty_upper_cache() {
    let media = Media::new();
    let both = || settings(named("dual-write"), named("clean-write"));
    run(&media, async |executor| {
        let database = create(executor, both()).await;
        for value in 1..4 {
            change(&database, 0..PAGES, value).await;
        }
        // Not a clean end: its slots hold sound pages.
    });
    let length = media.length("nvem", "upper-cache.tier").expect("it is there");
    let mut before = vec![0; length as usize];
    media.read("nvem", "upper-cache.tier", 0, &mut before).expect("reads");
    assert!(before[4096..].chunks(1024).filter(|slot| slot.iter().any(|byte| *byte != 0)).count() > 5);
    run(&media, async |executor| {
        let database = Database::open(executor, both(), "here").await.expect("opens");
        change(&database, 0..PAGES, 9).await;
        database.checkpoint().await.expect("succeeds");
    });
    run(&media, async |executor| {
        let database = Database::open(executor, both(), "here").await.expect("opens");
        assert_eq!(report(&database, "upper-cache").reads, 0);
        assert_eq!(read(&database, 0..PAGES).await, [9; PAGES as usize]);
    });
}

/// What is dropped, and what is written past the buffer, is forgotten on both levels.
#[test]
fn a_dropped_partition_leaves_nothing_on_either_level() {
    run(&Media::new(), async |executor| {
        let database = create(executor, settings(named("dual-write"), named("lazy-cleaning"))).await;
        change(&database, 0..PAGES, 3).await;
        read(&database, 0..PAGES).await;
        let objects = database.partition("objects").expect("it exists");
        database.drop_partition(objects).await.expect("drops");
        for level in database.buffer().levels().from_top() {
            assert_eq!(level.cache_contents(std::iter::empty()).map(|contents| contents.used), Some(0));
        }
        check(&database);
    });
}

/// Runs `work` on a machine with these faults of the upper cache's device.
fn with_faults<T>(faults: FaultPlan, work: impl AsyncFnOnce(&Executor) -> T) -> T {
    let options = Options { faults: Some(faults), ..Options::default() };
    let hardware = Hardware::ideal();
    let driver = VirtualDriver::new(hardware, options, Media::new());
    let executor = Executor::new(Box::new(driver), Order::FirstInFirstOut);
    let result = executor.run(work(&executor));
    executor.stop();
    result.expect("the machine goes on")
}

#[test]
fn an_upper_cache_whose_device_does_not_answer_is_switched_off() {
    let from = Instant::from_ns(base::time::SECOND_NS / 2);
    let slow = Slow { device: "flash".into(), from, until: Instant::NEVER, factor: Slow::HUNG };
    with_faults(FaultPlan { slow: vec![slow], ..FaultPlan::default() }, async |executor| {
        let mut settings =
            cached::settings(CacheSettings { design: named("dual-write"), ..CacheSettings::new("nvem", 40) });
        let silence_ns_max = 80 * base::time::MILLISECOND_NS;
        settings.hierarchy.upper_cache =
            Some(CacheSettings { silence_ns_max, design: named("dual-write"), ..CacheSettings::new("flash", UPPER) });
        let database = create(executor, settings).await;
        change(&database, 0..PAGES, 1).await;
        read(&database, 0..PAGES).await;
        assert!(executor.now() < from && report(&database, "upper-cache").writes > 0);
        executor.sleep_until(from).await;
        for value in 2..5 {
            change(&database, 0..PAGES, value).await;
            assert_eq!(read(&database, 0..PAGES).await, [value; PAGES as usize]);
        }
        let lost = report(&database, "upper-cache").lost.expect("it was switched off");
        assert!(lost.contains("the upper cache on device 'flash' was switched off"), "{lost}");
        assert_eq!(report(&database, "cache").lost, None);
        let elsewhere = CacheSettings { design: named("dual-write"), ..CacheSettings::new("nvem", UPPER) };
        database.set_upper_cache(Some(elsewhere)).await.expect("another one takes its place");
        read(&database, 0..PAGES).await;
        assert!(report(&database, "upper-cache").writes > 0);
        database.close().await.expect("closes");
    });
}

#[test]
fn upper_caches_that_cannot_be_had_are_refused() {
    let refused = |change: fn(&mut second_level::Settings)| {
        run(&Media::new(), async |executor| {
            let mut settings = settings(Design::default(), Design::default());
            change(&mut settings.hierarchy);
            match Database::create(executor, settings).await.map(drop) {
                Err(Error::Setting(why)) => why,
                other => panic!("{other:?}"),
            }
        })
    };
    assert!(refused(|all| all.cache = None).contains("stands above a cache, and there is none"));
    assert!(refused(|all| of(all).volatile = Some(false)).contains("it begins empty"));
    assert!(refused(|all| of(all).table = Some(true)).contains("it begins empty"));
    assert!(refused(|all| of(all).pages = 0).contains("has 0 pages"));
}

fn of(hierarchy: &mut second_level::Settings) -> &mut CacheSettings {
    hierarchy.upper_cache.as_mut().expect("there is one")
}
