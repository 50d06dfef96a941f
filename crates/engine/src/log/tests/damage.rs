use super::*;
use virtual_driver::PowerCut;

/// Commits `count` records of one page each, one after another.
async fn commit_pages(log: &Log, count: usize) -> Vec<(Lsn, Vec<u8>)> {
    let mut random = Random::stream(8, "pages");
    let mut model = Vec::new();
    for _ in 0..count {
        let size = random.between(100, 300) as usize;
        model.push(append(log, record_of(&mut random, size)));
        log.commit(log.end()).await.expect("durable");
    }
    model
}

fn prepared() -> (Site, Settings, Vec<(Lsn, Vec<u8>)>) {
    let site = Site::default();
    let settings = small_settings();
    let machine = site.machine();
    let model = machine.run(async {
        let log = machine.create(&settings).await;
        commit_pages(&log, 12).await
    });
    drop(machine);
    (site, settings, model)
}

fn scan(site: &Site, settings: &Settings, known_durable: Lsn) -> Result<Vec<Found>> {
    let machine = site.machine();
    machine.run(machine.scan(settings, Lsn::ZERO, known_durable)).map(|(found, _)| found)
}

fn damaged_at(result: Result<Vec<Found>>) -> Lsn {
    match result {
        Err(Error::DamagedLog { lsn, file, .. }) if file == "log" => lsn,
        other => panic!("not damage: {other:?}"),
    }
}

/// A flipped bit in any page but the last is damage, at that page. In the last page it cannot be told from a torn write,
/// unless the caller knows better.
#[test]
fn flipped_bits_are_damage_before_the_tail_and_the_tail_at_it() {
    let (site, settings, model) = prepared();
    let last = model.last().expect("some").0;
    let pages = last.0 / 512;
    let mut random = Random::stream(3, "bits");
    for page in 1..=pages {
        for _ in 0..8 {
            let (offset, bit) = (page * 512 + random.below(512), random.below(8) as u8);
            site.media.flip_bit(DEVICE, "log", offset, bit).expect("inside");
            let found = scan(&site, &settings, Lsn::ZERO);
            if page < pages {
                assert_eq!(damaged_at(found), Lsn(page * 512));
            } else {
                assert_same(&found.expect("a tail"), &model[..model.len() - 1]);
                assert_eq!(damaged_at(scan(&site, &settings, last)), Lsn(page * 512));
            }
            site.media.flip_bit(DEVICE, "log", offset, bit).expect("inside");
        }
    }
    assert_same(&scan(&site, &settings, last).expect("sound"), &model);
}

/// Several pages in a row are gone; a page far behind still tells.
#[test]
fn damage_is_found_across_a_gap() {
    let (site, settings, model) = prepared();
    for page in 3..=10 {
        site.media.flip_bit(DEVICE, "log", page * 512 + 20, 1).expect("inside");
    }
    assert_eq!(damaged_at(scan(&site, &settings, Lsn::ZERO)), Lsn(3 * 512));
    assert_eq!(model.len(), 12);
}

/// Writes that were in flight at a crash and left a gap are no damage: what stands behind the gap was never acknowledged.
#[test]
fn a_gap_of_writes_in_flight_is_the_tail() {
    let mut gaps = 0;
    for seed in 0..60 {
        let site = Site::default();
        let settings = Settings { group_commit: GroupCommit::None, ..small_settings() };
        let options = Options { seed, faults: Some(FaultPlan::default()), jitter: true, ..Options::default() };
        let machine = site.machine_with(options, Order::FirstInFirstOut);
        let (model, durable) = machine.run(async {
            let log = machine.create(&settings).await;
            let mut model = commit_pages(&log, 3).await;
            let mut random = Random::stream(seed, "flight");
            for _ in 0..6 {
                model.push(append(&log, record_of(&mut random, 100)));
                let (log, lsn) = (Rc::clone(&log), log.end());
                machine.executor.spawn(async move { log.commit(lsn).await });
                machine.executor.yield_now().await;
            }
            machine.executor.sleep_ns(random.below(9_000)).await;
            (model, log.durable())
        });
        // The driver learns of the cut by its end: what it has under way is neither completed nor kept.
        drop(machine);
        site.media.power_cut(&mut Random::stream(seed, "cut"), &PowerCut { lost: 0.5, torn: 0.2 });
        let machine = site.machine();
        machine.run(async {
            let (found, scan) = machine.scan(&settings, Lsn::ZERO, durable).await.expect("a tail");
            assert_same(&found, &model[..found.len()]);
            let tail = scan.tail.expect("at the end");
            let behind = site_has_page_behind(&site, tail);
            gaps += u64::from(behind);
            let log = scan.finish();
            let more = commit_pages(&log, 2).await;
            let (again, _) = machine.scan(&settings, Lsn::ZERO, log.durable()).await.expect("sound");
            assert_same(&again, &[&model[..found.len()], &more[..]].concat());
        });
    }
    assert!(gaps > 5, "{gaps} gaps");
}

fn site_has_page_behind(site: &Site, tail: u64) -> bool {
    let mut page = vec![0; 512];
    (1..8).any(|n| {
        let position = tail + n * 512;
        site.media.read(DEVICE, "log", position, &mut page).expect("there");
        page::verify(&page, position).is_ok()
    })
}

#[test]
fn pages_of_a_newer_release_are_named() {
    let (site, settings, _) = prepared();
    let machine = site.machine();
    let error = machine.run(async {
        let (file, _) = machine.executor.open(machine.device, "log", false).await.expect("there");
        let mut frame = Frame::allocate(1, 512).remove(0);
        page::begin(&mut frame, 5 * 512, 1);
        page::close(&mut frame, page::HEADER_SIZE);
        frame[6] = 9;
        page::seal(&mut frame, Lsn(512));
        let (offset, access) = (5 * 512, Access::Asynchronous);
        let write = Op::Write { file, offset, length: 512, buffer: frame, durable: true, access };
        machine.executor.perform(write).await.result.expect("written");
        machine.scan(&settings, Lsn::ZERO, Lsn::ZERO).await.map(|_| ()).expect_err("unreadable")
    });
    assert!(matches!(error, Error::NewerFormat { found: 9, .. }), "{error}");
}

#[test]
fn a_missing_or_foreign_file_is_an_error() {
    let site = Site::default();
    assert!(matches!(scan(&site, &small_settings(), Lsn::ZERO), Err(Error::Input(_))));
    let machine = site.machine();
    machine.run(async { machine.executor.open(machine.device, "log", true).await.map(|_| ()) }).expect("created");
    assert!(matches!(scan(&site, &small_settings(), Lsn::ZERO), Err(Error::Setting(_))));
}
