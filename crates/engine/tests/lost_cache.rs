//! A cache whose device fails or does not answer is switched off while the database goes on.

use crate::ground::cut_machine::run_under;
use crate::ground::holding::holding;
use crate::ground::machine::run;
use base::Instant;
use base::time::{MICROSECOND_NS, MILLISECOND_NS, SECOND_NS};
use driver::OpKind;
use entresol_engine::catalog::{Locking, Organization};
use entresol_engine::second_level::{self, CacheSettings, DESIGNS, Design};
use entresol_engine::statistics::{Event, Listener};
use entresol_engine::{Database, Internals, PartitionSpec, Result, Settings, buffer, checkpoint, log};
use executor::{Executor, Order};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use virtual_driver::{ErrorAt, FaultPlan, Hardware, Media, Options, Slow, VirtualDriver};

const PAGES: u64 = 120;
const CACHE_FILE: &str = "cache.tier";
const SILENCE_NS_MAX: u64 = 80 * MILLISECOND_NS;

fn settings(design: Design) -> Settings {
    let new = CacheSettings::new("flash", 150);
    let cache = CacheSettings { design, volatile: Some(false), silence_ns_max: SILENCE_NS_MAX, ..new };
    Settings {
        buffer: buffer::Settings { frames: 20, page_size: 1024, cleaner: false, ..buffer::Settings::default() },
        log: log::Settings { capacity: 4 << 20, ..log::Settings::default() },
        hierarchy: second_level::Settings { cache: Some(cache), ..second_level::Settings::default() },
        checkpoint: checkpoint::Policy::OFF,
        ..Settings::default()
    }
}

async fn change(database: &Database, number: u64, value: u8) -> Result<()> {
    let partition = database.partition("objects")?;
    database.transaction(async |tx| tx.modify_object(partition, number, |bytes| bytes[0] = value).await).await
}

async fn read(database: &Database, number: u64) -> Result<u8> {
    let partition = database.partition("objects")?;
    database.transaction(async |tx| tx.read_object(partition, number, |bytes| bytes[0]).await).await
}

async fn filled(executor: &Executor, settings: Settings) -> Result<Database> {
    let database = Database::create(executor, settings).await?;
    let organization = Organization::Direct { objects: PAGES, blocking_factor: 1, record_size: 100 };
    database.create_partition(PartitionSpec::new("objects", organization, Locking::Page)).await?;
    for value in 1..3 {
        for number in 0..PAGES {
            change(&database, number, value).await?;
        }
    }
    Ok(database)
}

/// From half a second on the cache's device answers nothing, or its files fail.
fn on_a_bad_device<T>(media: &Media, work: impl AsyncFnOnce(&Executor) -> T) -> T {
    on_a_silent_device(media, Instant::from_ns(SECOND_NS / 2), work)
}

/// From this moment on the cache's device answers nothing.
fn on_a_silent_device<T>(media: &Media, from: Instant, work: impl AsyncFnOnce(&Executor) -> T) -> T {
    let slow = Slow { device: "flash".into(), from, until: Instant::NEVER, factor: Slow::HUNG };
    let faults = FaultPlan { slow: vec![slow], ..FaultPlan::default() };
    run_under(media, Hardware::ideal(), faults, work).expect("the machine goes on")
}

#[test]
fn a_cache_whose_device_never_answers_is_not_made_and_named() {
    for (volatile, table) in [(true, false), (false, true), (false, false)] {
        let mut settings = settings(Design::default());
        let cache = settings.hierarchy.cache.as_mut().expect("there is one");
        (cache.volatile, cache.table) = (Some(volatile), Some(table));
        let made = on_a_silent_device(&Media::new(), Instant::START, async |executor| {
            let created = Database::create(executor, settings.clone());
            executor.within(10 * SECOND_NS, created).await.map(|created| created.map(drop))
        });
        let Some(Err(error)) = made else { panic!("it waits for a cache: {made:?}") };
        let words = error.to_string();
        assert!(words.contains("the cache on device 'flash' was not made: it has not answered for"), "{words}");
    }
}

/// Whenever its device falls silent once the creation has begun: what that has left on others goes, and it waits for no more.
#[test]
fn what_is_left_of_a_creation_goes_where_devices_answer() {
    let devices = ["disk".to_owned(), "flash".to_owned()];
    let mut settings = settings(Design::default());
    settings.hierarchy.cache.as_mut().expect("there is one").volatile = Some(true);
    let mut refused = 0;
    for step in 1..200 {
        let media = Media::new();
        let made = on_a_silent_device(&media, Instant::from_ns(step * 5 * MICROSECOND_NS), async |executor| {
            let created = Database::create_or_nothing(executor, settings.clone(), &devices);
            executor.within(100 * SECOND_NS, created).await.map(|created| created.map(drop))
        });
        match made {
            // It waits for the names on the device.
            None if refused == 0 => {}
            None => panic!("it waits for the device"),
            Some(Ok(())) => break,
            Some(Err(error)) => {
                assert!(error.to_string().contains("the cache on device 'flash' was not made"), "{error}");
                assert_eq!(media.names("disk"), Vec::<String>::new());
                refused += 1;
            }
        }
    }
    assert!(refused > 0, "the device never fell silent in between");
}

/// Its table is small beside its slots, and has less time.
#[test]
fn a_cache_is_waited_for_as_long_as_what_is_created_takes() {
    let mut settings = settings(Design::default());
    let cache = settings.hierarchy.cache.as_mut().expect("there is one");
    (cache.pages, cache.table) = (40_000, Some(true));
    let waits = (1..200).filter_map(|step| {
        let silent_from = Instant::from_ns(step * 5 * MICROSECOND_NS);
        on_a_silent_device(&Media::new(), silent_from, async |executor| {
            let created = executor.within(100 * SECOND_NS, Database::create(executor, settings.clone())).await;
            created.expect("it waits for a cache").err().map(|_| executor.now().since_ns(silent_from))
        })
    });
    let waits: Vec<u64> = waits.collect();
    assert!(waits.iter().any(|wait_ns| *wait_ns > SECOND_NS), "for the slots: {waits:?}");
    assert!(waits.iter().any(|wait_ns| *wait_ns < SECOND_NS / 2), "for the table: {waits:?}");
}

/// Requests to its device last longer than a cache's may at work: a new cache has the time that its size takes.
#[test]
fn a_large_cache_on_a_slow_device_is_made() {
    let mut settings = settings(Design::default());
    let cache = settings.hierarchy.cache.as_mut().expect("there is one");
    (cache.pages, cache.volatile) = (40_000, Some(true));
    let devices = "[device.disk]\nmedium.service = \"20 us\"\n[device.flash]\nmedium.service = \"400 ms\"\n";
    let hardware = Hardware::parse(devices, "test").expect("a description");
    let driver = VirtualDriver::new(hardware, Options::default(), Media::new());
    let executor = Executor::new(Box::new(driver), Order::FirstInFirstOut);
    let created = executor.run(Database::create(&executor, settings)).expect("the machine goes on");
    assert_eq!(created.map(drop), Ok(()));
    executor.stop();
}

#[test]
fn a_device_that_never_answers_is_switched_off() {
    let switched_off = Cell::new(0);
    for design in DESIGNS {
        let media = Media::new();
        let only_there = on_a_bad_device(&media, async |executor| {
            let database = filled(executor, settings(*design)).await.expect("works");
            executor.sleep_ns(SECOND_NS).await;
            let mut only_there = 0;
            for number in 0..PAGES {
                match read(&database, number).await {
                    Ok(value) => assert_eq!(value, 2, "{design:?}, page {number}"),
                    Err(error) => {
                        let is_named = matches!(
                            &error,
                            entresol_engine::Error::DamagedPage { .. } | entresol_engine::Error::Input(_)
                        );
                        assert!(is_named, "{error}");
                        only_there += 1;
                    }
                }
            }
            // What some designs have there nothing asks for.
            if let Some(lost) = &database.tiers()[0].lost {
                assert!(lost.contains("'flash'") && lost.contains("80.00 ms"), "{lost}");
                switched_off.set(switched_off.get() + 1);
            }
            // What is in reach can be changed, and leaves main memory.
            for number in 0..PAGES {
                match change(&database, number, 3).await {
                    Ok(()) => {}
                    Err(_) if only_there > 0 => {}
                    Err(error) => panic!("{design:?}, page {number}: {error}"),
                }
            }
            if only_there == 0 {
                database.checkpoint().await.expect("succeeds without the cache");
            }
            database.buffer().tiers().expect("there is one").check().expect("consistent");
            match database.check(|_| ()).await {
                Ok(report) => assert!(report.is_clean(), "{design:?}: {:?}", report.findings),
                Err(error) => assert!(only_there > 0, "{design:?}: {error}"),
            }
            only_there
        });
        let stays_dirty = ["lazy-cleaning", "frequency", "rotating", "exclusive", "face"].contains(&design.name());
        assert!(only_there == 0 || stays_dirty, "{design:?} has {only_there} pages alone");
        // A restart has everything, from the log and the pages' own device.
        run(&media, async |executor| {
            let database = Database::open(executor, settings(*design), "here").await.expect("opens");
            for number in 0..PAGES {
                let value = read(&database, number).await.expect("is there");
                assert!(value == 3 || only_there > 0 && value == 2, "{design:?}, page {number}: {value}");
            }
            let report = database.check(|_| ()).await.expect("everything is in reach");
            assert!(report.is_clean(), "{design:?}: {:?}", report.findings);
        });
    }
    assert!(switched_off.get() >= 6, "{} of the caches were switched off", switched_off.get());
}

#[test]
fn an_opening_does_not_wait_for_a_device_that_never_answers() {
    for design in DESIGNS {
        for table in [true, false] {
            let mut settings = settings(*design);
            settings.hierarchy.cache.as_mut().expect("there is one").table = Some(table);
            let media = Media::new();
            run(&media, async |executor| _ = filled(executor, settings.clone()).await.expect("works"));
            // The device hangs from the start, or a little later.
            for micros in [0, 20, 60, 150, 400] {
                let (media, from) = (media.copy(), Instant::from_ns(micros * 1_000));
                on_a_silent_device(&media, from, async |executor| {
                    let opening = Database::open(executor, settings.clone(), "here");
                    let opened = executor.within(60 * SECOND_NS, opening).await;
                    let opened = opened.unwrap_or_else(|| panic!("{design:?}, {micros} us: the opening waits"));
                    match opened {
                        Ok(database) => {
                            let is_off = database.tiers().iter().all(|tier| tier.lost.is_some());
                            assert!(micros > 0 || is_off && database.cache().is_none(), "{design:?}");
                        }
                        // It was taken over before its device fell silent.
                        Err(error) if micros > 0 => {
                            assert!(error.to_string().contains("'flash'"), "{design:?}, {micros} us: {error}");
                        }
                        Err(error) => panic!("{design:?}: {error}"),
                    }
                });
                run(&media, async |executor| {
                    let database = Database::open(executor, settings.clone(), "here").await.expect("opens");
                    for number in 0..PAGES {
                        assert_eq!(read(&database, number).await.expect("is there"), 2, "{design:?}, page {number}");
                    }
                });
            }
        }
    }
}

#[test]
fn a_process_that_was_stopped_keeps_its_cache() {
    holding(Hardware::ideal(), &Media::new(), async |executor, holder| {
        let database = filled(executor, settings(Design::default())).await.expect("works");
        let served = || database.tiers()[0].reads;
        // A read of the cache is under way for half of the time that it may take.
        let now = executor.now();
        holder.hold(now.plus_ns(SILENCE_NS_MAX / 2), |op| matches!(op, driver::Op::Read { .. }));
        let (reading, before) = (database.clone(), served());
        let value = executor.spawn(async move { read(&reading, 0).await });
        executor.sleep_ns(SILENCE_NS_MAX / 8).await;
        assert!(holder.has_held() && served() == before + 1, "it is read from the cache");
        holder.pause(3_600 * SECOND_NS);
        assert_eq!(value.join().await, Ok(2));
        assert_eq!(database.tiers()[0].lost, None);
        // What does not answer when the process runs is still noticed.
        let never = executor.now().plus_ns(10 * SILENCE_NS_MAX);
        holder.hold(never, |op| matches!(op, driver::Op::Read { .. }));
        let _given_up = executor.within(5 * SILENCE_NS_MAX, read(&database, 1)).await;
        assert!(database.tiers()[0].lost.is_some(), "it is switched off");
    });
}

/// Hears of caches that an opening does without.
#[derive(Debug, Default)]
struct NotOpened(RefCell<Vec<(bool, String, String)>>);

impl Listener for NotOpened {
    fn slow_ns(&self) -> u64 {
        u64::MAX
    }

    fn hear(&self, event: &Event<'_>) {
        if let Event::CacheNotOpened { is_upper, device, error } = event {
            self.0.borrow_mut().push((*is_upper, (*device).to_owned(), error.to_string()));
        }
    }
}

/// All that can be asked of the cache's device fails.
fn on_a_failing_device<T>(media: &Media, work: impl AsyncFnOnce(&Executor) -> T) -> T {
    let kinds = [OpKind::Open, OpKind::Read, OpKind::Write, OpKind::Sync, OpKind::Resize];
    let error = |(nth, kind)| ErrorAt { kind, device: Some("flash".into()), nth };
    let errors = (1..200).flat_map(|nth| kinds.map(|kind| error((nth, kind)))).collect();
    let faults = FaultPlan { errors, ..FaultPlan::default() };
    run_under(media, Hardware::ideal(), faults, work).expect("the machine goes on")
}

/// Of any design, whether it goes on or is a new one, and an upper one.
#[test]
fn an_opening_does_without_a_cache_whose_device_is_bad() {
    for design in DESIGNS {
        for (goes_on, table, closed) in
            [(true, true, false), (true, false, true), (false, true, true), (false, false, false)]
        {
            let mut settings = settings(*design);
            let upper = CacheSettings { silence_ns_max: SILENCE_NS_MAX, ..CacheSettings::new("flash", 10) };
            let cache = settings.hierarchy.cache.as_mut().expect("there is one");
            (cache.table, settings.hierarchy.upper_cache) = (Some(table), Some(upper));
            let mut before = settings.clone();
            if !goes_on {
                before.hierarchy = second_level::Settings::default();
            }
            let media = Media::new();
            run(&media, async |executor| {
                let database = filled(executor, before).await.expect("works");
                if closed {
                    database.close().await.expect("closes");
                }
            });
            for hangs in [true, false] {
                let (media, when) = (media.copy(), format!("{design:?} {goes_on} {table} {closed} {hangs}"));
                let heard = Rc::new(NotOpened::default());
                let listening = Settings { listener: Some(Rc::clone(&heard) as Rc<dyn Listener>), ..settings.clone() };
                let work = async |executor: &Executor| {
                    let opening = Database::open(executor, listening, "here");
                    let database = executor.within(60 * SECOND_NS, opening).await.expect("it waits for a cache");
                    let database = database.unwrap_or_else(|error| panic!("{when}: {error}"));
                    assert!(database.cache().is_none() && database.upper_cache().is_none(), "{when}");
                    for number in 0..PAGES {
                        assert_eq!(read(&database, number).await, Ok(2), "{when}");
                        change(&database, number, 3).await.expect("there is no cache in its way");
                    }
                    if hangs {
                        let cache = settings.hierarchy.cache.clone();
                        let again = executor.within(60 * SECOND_NS, database.set_cache(cache)).await;
                        let refused = again.expect("it waits for a cache").expect_err("its device hangs");
                        assert!(refused.to_string().contains("'flash'"), "{refused}");
                    }
                    database.close().await.expect("closes");
                };
                match hangs {
                    true => on_a_silent_device(&media, Instant::START, work),
                    false => on_a_failing_device(&media, work),
                }
                let heard = heard.0.take();
                let told: Vec<bool> = heard.iter().map(|(is_upper, ..)| *is_upper).collect();
                assert!(told.contains(&true) && told.contains(&false) && told.len() == 2, "{when}: {heard:?}");
                assert!(heard.iter().all(|(_, device, why)| device == "flash" && why.contains("flash")), "{heard:?}");
                run(&media, async |executor| {
                    let database = Database::open(executor, settings.clone(), "here").await.expect("opens");
                    assert!(database.cache().is_some() && database.upper_cache().is_some(), "{when}");
                    for number in 0..PAGES {
                        assert_eq!(read(&database, number).await, Ok(3), "{when}");
                    }
                    let report = database.check(|_| ()).await.expect("everything is in reach");
                    assert!(report.is_clean(), "{when}: {:?}", report.findings);
                });
            }
        }
    }
}

/// A cache that is missing is replaced once redo has missed nothing, which writes to the database's own device.
#[test]
fn a_fault_of_the_home_device_is_not_told_of_as_one_of_the_cache() {
    let settings = settings(Design::default());
    let media = Media::new();
    run(&media, async |executor| _ = filled(executor, settings.clone()).await.expect("works"));
    media.remove("flash", CACHE_FILE);
    let opening = async |executor: &Executor| {
        let heard = Rc::new(NotOpened::default());
        let listener = Some(Rc::clone(&heard) as Rc<dyn Listener>);
        let opened = Database::open(executor, Settings { listener, ..settings.clone() }, "here").await;
        let cache = opened.map(|database| database.cache().is_some());
        (cache, heard.0.take())
    };
    let (mut refused, mut opened) = (0, 0);
    for kind in [OpKind::Write, OpKind::Sync] {
        for nth in 1..1_000 {
            let errors = vec![ErrorAt { kind, device: Some("disk".into()), nth }];
            let faults = FaultPlan { errors, ..FaultPlan::default() };
            let ended = run_under(&media.copy(), Hardware::ideal(), faults, opening).expect("the machine goes on");
            let (cache, heard) = ended;
            assert_eq!(heard, [], "{kind:?} {nth}: the cache's device is sound");
            match cache {
                Ok(has_cache) => {
                    assert!(has_cache, "{kind:?} {nth}");
                    opened += 1;
                }
                Err(_) => {
                    refused += 1;
                    opened = 0;
                }
            }
            // Behind the last one the device is asked for nothing more.
            if opened == 20 {
                break;
            }
        }
    }
    assert!(refused > 2, "{refused} of the openings have failed");
}

/// What an opening has asked for in vain may be carried out when the next one in the same process has made a cache of that name.
#[test]
fn a_creation_that_an_opening_has_given_up_takes_no_cache_away_from_the_next() {
    let hardware = "[device.disk]\nmedium.service = \"20 us\"\n\
                    [device.flash]\nmedium = { servers = 64, service = \"20 us\" }\nsync = \"20 us\"\n";
    let mut settings = settings(Design::named("lazy-cleaning").expect("it has this name"));
    settings.hierarchy.cache.as_mut().expect("there is one").table = Some(true);
    let missing = Media::new();
    run(&missing, async |executor| {
        let _killed = filled(executor, settings.clone()).await.expect("works");
        let device = executor.device("flash").expect("it exists");
        for name in executor.names(device).await.expect("lists") {
            executor.perform(driver::Op::Remove { device, name }).await.result.expect("removes");
        }
    });
    let opens = |executor: Executor| {
        let settings = settings.clone();
        async move { executor.within(60 * SECOND_NS, Database::open(&executor, settings, "here")).await.expect("waits") }
    };
    let mut hung = 0;
    for micros in (0..).step_by(40) {
        let from = Instant::from_ns(micros * MICROSECOND_NS);
        let until = from.plus_ns(SILENCE_NS_MAX / 2);
        let slow = Slow { device: "flash".into(), from, until, factor: 5e6 };
        let faults = FaultPlan { slow: vec![slow], ..FaultPlan::default() };
        let hardware = Hardware::parse(hardware, "test").expect("a description");
        let is_over = run_under(&missing.copy(), hardware, faults, async |executor| {
            let Ok(first) = opens(executor.clone()).await else { return false };
            let is_over = executor.now() < from;
            hung += u32::from(first.cache().is_none());
            first.close().await.expect("closes");
            let second = opens(executor.clone()).await.unwrap_or_else(|error| panic!("{micros} us, second: {error}"));
            change(&second, 7, 9).await.expect("there is no cache in its way");
            second.close().await.expect("closes");
            executor.sleep_ns(1_000 * SECOND_NS).await;
            let third = opens(executor.clone()).await.unwrap_or_else(|error| panic!("{micros} us, third: {error}"));
            assert!(third.cache().is_some(), "{micros} us: its device answers");
            for number in 0..PAGES {
                assert_eq!(read(&third, number).await, Ok(if number == 7 { 9 } else { 2 }), "{micros} us");
            }
            is_over
        });
        if is_over.expect("the machine goes on") {
            break;
        }
    }
    assert!(hung > 2, "{hung} openings were left without an answer");
}

/// The lower cache goes on, and writes there meanwhile.
#[test]
fn what_an_opening_could_not_create_is_created_beside_another_cache_at_work_on_its_device() {
    let mut settings = settings(Design::default());
    settings.hierarchy.cache.as_mut().expect("there is one").table = Some(true);
    let upper = CacheSettings { silence_ns_max: SILENCE_NS_MAX, ..CacheSettings::new("flash", 10) };
    let media = Media::new();
    run(&media, async |executor| _ = filled(executor, settings.clone()).await.expect("works"));
    settings.hierarchy.upper_cache = Some(upper.clone());
    let mut created = 0;
    for nth in 1..10 {
        let slow = Slow { device: "flash".into(), from: Instant::START, until: Instant::NEVER, factor: 200.0 };
        let errors = vec![ErrorAt { kind: OpKind::Resize, device: Some("flash".into()), nth }];
        let faults = FaultPlan { slow: vec![slow], errors, ..FaultPlan::default() };
        let ended = run_under(&media.copy(), Hardware::ideal(), faults, async |executor| {
            let database = Database::open(executor, settings.clone(), "here").await.expect("opens");
            if database.cache().is_none() || database.upper_cache().is_some() {
                return None;
            }
            let working = database.clone();
            executor.spawn(async move {
                for number in 0..PAGES {
                    change(&working, number, 3).await.expect("works");
                }
            });
            while executor
                .unanswered(0)
                .iter()
                .all(|request| request.device != "flash" || request.kind != OpKind::Write)
            {
                executor.sleep_ns(MICROSECOND_NS).await;
            }
            Some(database.set_upper_cache(Some(upper.clone())).await)
        });
        if let Some(changed) = ended.expect("the machine goes on") {
            assert_eq!(changed, Ok(()), "change of length {nth} has failed");
            created += 1;
        }
    }
    assert!(created > 0, "no opening did without the upper cache alone");
}
