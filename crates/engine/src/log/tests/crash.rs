use super::*;
use virtual_driver::{PowerCut, Slow};

/// What a run leaves behind for the next to check.
#[derive(Default)]
struct Ledger {
    /// Every record that may be in the log, in order.
    appended: Vec<(Lsn, Vec<u8>)>,
    /// The last record whose commit was acknowledged.
    acknowledged: Lsn,
    /// Where reading begins: the superblock.
    from: Lsn,
    created: bool,
}

impl Ledger {
    /// What ends here or before is as good as acknowledged.
    fn note_durable(&mut self, durable: Lsn) {
        let last = self.appended.iter().rev().map(|(end, _)| *end).find(|end| *end <= durable);
        self.acknowledged = self.acknowledged.max(last.unwrap_or(Lsn::ZERO));
    }
}

/// Clients append, commit and truncate until the power goes.
async fn work(machine: &Machine, log: Rc<Log>, ledger: Rc<RefCell<Ledger>>, seed: u64) {
    let waits = log.settings.durable || machine.believes_commits;
    for client in 0..6 {
        let (log, ledger) = (Rc::clone(&log), Rc::clone(&ledger));
        let executor = machine.executor.clone();
        machine.executor.spawn(async move {
            let mut random = Random::stream(seed ^ client, "client");
            loop {
                while log.is_crowded() {
                    truncate(&log, &ledger, &mut random);
                    log.request(log.end());
                    executor.sleep_ns(5_000).await;
                    if !log.settings.durable {
                        let Ok(()) = log.flush(log.end()).await else { return };
                        ledger.borrow_mut().note_durable(log.durable());
                    }
                }
                for _ in 0..random.between(1, 3) {
                    let size = if random.chance(0.1) { random.between(600, 3_000) } else { random.between(16, 200) };
                    let record = append(&log, record_of(&mut random, size as usize));
                    ledger.borrow_mut().appended.push(record);
                }
                let lsn = log.end();
                // Where commits do not wait nothing else would let time pass.
                if random.chance(0.1) {
                    executor.sleep_ns(random.below(40_000)).await;
                    continue;
                }
                if !waits && random.chance(0.02) {
                    let Ok(()) = log.flush(lsn).await else { return };
                    assert!(log.durable() >= lsn);
                } else if log.commit(lsn).await.is_err() {
                    return;
                }
                let mut ledger = ledger.borrow_mut();
                if waits {
                    ledger.acknowledged = ledger.acknowledged.max(lsn);
                } else {
                    ledger.note_durable(log.durable());
                }
            }
        });
    }
    std::future::pending::<()>().await;
}

fn truncate(log: &Log, ledger: &RefCell<Ledger>, random: &mut Random) {
    let mut ledger = ledger.borrow_mut();
    let boundaries: Vec<Lsn> =
        ledger.appended.iter().map(|(end, _)| *end).filter(|end| *end <= log.durable()).collect();
    let newer = &boundaries[boundaries.len() / 2..];
    if let Some(from) = random.choose(newer).copied().filter(|from| *from <= ledger.acknowledged) {
        ledger.from = from;
        ledger.appended.retain(|(end, _)| *end > from);
    }
    // Again and again: the slower of two devices may not have had it the last time.
    log.truncate(ledger.from);
}

/// The records found are the first of those appended and comprise the acknowledged ones; they are what counts from now on.
fn check(found: &[Found], ledger: &mut Ledger) -> Result<(), String> {
    let same =
        found.iter().zip(&ledger.appended).all(|(found, (end, bytes))| found.end == *end && found.bytes == *bytes);
    if !same || found.len() > ledger.appended.len() {
        return Err("the log holds what was never appended there".into());
    }
    let end = found.last().map_or(ledger.from, |last| last.end);
    if end < ledger.acknowledged {
        return Err(format!("{} was acknowledged, the log ends at {end}", ledger.acknowledged));
    }
    ledger.appended.truncate(found.len());
    Ok(())
}

/// One opening on a machine: recovers, works, loses its power at event `cut`.
fn live(site: &Site, settings: &Settings, ledger: &Rc<RefCell<Ledger>>, seed: u64, cut: u64) -> Result<(), String> {
    let mut random = Random::stream(seed, "slow");
    let device = (*random.choose(&[DEVICE, SECOND]).expect("two")).to_owned();
    let factor = random.between(2, 100) as f64;
    let slow = Slow { device, from: base::Instant::START, until: base::Instant::NEVER, factor };
    let slow = settings.second.is_some().then_some(slow).into_iter().collect();
    let faults = Some(FaultPlan { power_cut_at: Some(cut), slow, ..FaultPlan::default() });
    let options = Options { seed, faults, jitter: true, ..Options::default() };
    let machine = site.machine_with(options, Order::Seeded(seed));
    let outcome = RefCell::new(Ok(()));
    let halt = machine.executor.run(async {
        let log = if ledger.borrow().created {
            let from = ledger.borrow().from;
            let known = if machine.believes_commits { Lsn::ZERO } else { from };
            match machine.scan(settings, from, known).await {
                Err(error) => {
                    *outcome.borrow_mut() = Err(error.to_string());
                    return;
                }
                Ok((found, scan)) => {
                    *outcome.borrow_mut() = check(&found, &mut ledger.borrow_mut());
                    scan.finish()
                }
            }
        } else {
            let log = machine.create(settings).await;
            ledger.borrow_mut().created = true;
            log
        };
        if outcome.borrow().is_ok() {
            work(&machine, log, Rc::clone(ledger), seed).await;
        }
    });
    assert!(halt.is_ok() || halt == Err(Halt::PowerCut), "{halt:?} {settings:?}");
    drop(machine);
    site.media.power_cut(&mut Random::stream(seed, "power cut"), &PowerCut::default());
    outcome.into_inner()
}

/// Several runs on the same media.
fn openings(settings: &Settings, seed: u64) -> Result<u64, String> {
    openings_at(&Site::default(), settings, seed)
}

fn openings_at(site: &Site, settings: &Settings, seed: u64) -> Result<u64, String> {
    let ledger = Rc::new(RefCell::new(Ledger::default()));
    let mut random = Random::stream(seed, "cuts");
    for opening in 0..6 {
        let cut = if random.chance(0.3) { random.between(1, 12) } else { random.between(12, 900) };
        live(site, settings, &ledger, random.word(), cut).map_err(|error| format!("opening {opening}: {error}"))?;
    }
    let end = ledger.borrow().appended.last().map_or(Lsn::ZERO, |(end, _)| *end);
    Ok(end.0)
}

fn settings_of(seed: u64) -> Settings {
    let mut random = Random::stream(seed, "settings");
    let page_size = 128 << random.below(4);
    let policies = [
        GroupCommit::None,
        GroupCommit::Adaptive,
        GroupCommit::Paced,
        GroupCommit::Size { transactions: 3, delay_ns_max: 50_000 },
        GroupCommit::Delay { ns: 20_000 },
        GroupCommit::Page { delay_ns_max: 20_000 },
    ];
    Settings {
        page_size,
        capacity: 64 << 10,
        write_size_max: page_size * random.between(1, 8) as usize,
        writes_in_flight_max: Some(random.between(1, 5) as usize),
        group_commit: *random.choose(&policies).expect("some"),
        sync_method: Some(if random.chance(0.3) { SyncMethod::WriteThenSync } else { SyncMethod::SyncWrite }),
        // Half of the files grow while they are filled for the first time.
        first_extent: if random.chance(0.5) { 0 } else { 64 << 10 },
        ..Settings::default()
    }
}

#[test]
fn acknowledged_records_survive_power_cuts_in_order() {
    let mut laps = 0;
    for seed in 0..50 {
        let settings = settings_of(seed);
        match openings(&settings, seed) {
            Ok(end) => laps += end / settings.capacity,
            Err(error) => panic!("seed {seed}, {settings:?}: {error}"),
        }
    }
    assert!(laps > 15, "the crashes go around the file: {laps} laps");
}

fn on_two_devices(acknowledged: Acknowledged, seed: u64) -> Settings {
    Settings { second: Some(Second { device: SECOND.to_owned(), acknowledged }), ..settings_of(seed) }
}

/// The same on two devices, of which one is slow.
#[test]
fn two_devices_lose_nothing_that_one_or_both_acknowledged() {
    let mut laps = 0;
    for acknowledged in [Acknowledged::Both, Acknowledged::First] {
        for seed in 0..12 {
            let settings = on_two_devices(acknowledged, seed);
            let lived = openings(&settings, seed);
            laps += lived.unwrap_or_else(|error| panic!("seed {seed}, {settings:?}: {error}")) / settings.capacity;
        }
    }
    assert!(laps > 1, "the crashes go around the files: {laps} laps");
}

/// A restart that trusts one of the two devices alone is found out where the first acknowledges, and only there.
#[test]
fn trusting_one_of_two_devices_is_caught() {
    let caught = |acknowledged| {
        let site = || Site { trusts_second_alone: true, ..Site::default() };
        (0..8).filter(|seed| openings_at(&site(), &on_two_devices(acknowledged, *seed), *seed).is_err()).count()
    };
    assert!(caught(Acknowledged::First) > 1, "{} of 8", caught(Acknowledged::First));
    assert_eq!(caught(Acknowledged::Both), 0);
}

/// A log that acknowledges what is not durable is found out: the checks above are able to fail.
#[test]
fn acknowledging_too_early_is_caught() {
    let site = || Site { believes_commits: true, ..Site::default() };
    let is_caught = |seed: &u64| openings_at(&site(), &not_waiting(settings_of(*seed)), *seed).is_err();
    let caught = (0..16).filter(is_caught).count();
    assert!(caught > 12, "{caught} of 16");
}

fn not_waiting(settings: Settings) -> Settings {
    Settings { durable: false, ..settings }
}

/// Where commits do not wait, a power cut takes what was not synced: the end of the log alone.
#[test]
fn a_log_that_is_synced_later_loses_its_end_alone() {
    for seed in 0..50 {
        let alone = not_waiting(settings_of(seed));
        let (both, first) = (on_two_devices(Acknowledged::Both, seed), on_two_devices(Acknowledged::First, seed));
        for settings in [alone, not_waiting(both), not_waiting(first)] {
            openings(&settings, seed).unwrap_or_else(|error| panic!("seed {seed}, {settings:?}: {error}"));
        }
    }
}
