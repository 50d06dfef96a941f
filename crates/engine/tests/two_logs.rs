//! A log on two devices: the loss of one while the database is open, its silence, its loss at an opening, and what is refused.

use base::Instant;
use base::time::{MICROSECOND_NS, MILLISECOND_NS, SECOND_NS};
use devices::Hardware;
use driver::{Op, OpKind};
use entresol_engine::checkpoint;
use entresol_engine::log::{self, Acknowledged, Second, SyncMethod};
use entresol_engine::tier_file::WriteBufferSettings;
use entresol_engine::{
    BackupSettings, Database, Error, Internals, PartitionSpec, RestoreSource, Result, Settings, Transaction, buffer,
};
use executor::{Executor, Order, WholeExecutor};
use std::cell::Cell;
use std::rc::Rc;
use virtual_driver::{ErrorAt, FaultPlan, Media, Options, PowerCut, Slow, VirtualDriver};

const RECORDS: u64 = 60;
/// How many backups follow each other.
const BACKUPS: u64 = 80;

/// Devices for everything else and for the log, those of these names.
fn hardware(logs: &[&str]) -> Hardware {
    let device = |name: &&str| format!("[device.{name}]\nmedium.service = \"20 us\"\n");
    Hardware::parse(&["disk"].iter().chain(logs).map(device).collect::<String>(), "test").expect("a description")
}

fn settings(acknowledged: Acknowledged) -> Settings {
    let second = Some(Second { device: "b".into(), acknowledged });
    Settings {
        buffer: buffer::Settings { frames: 200, page_size: 1024, ..buffer::Settings::default() },
        log: log::Settings { capacity: 1 << 20, second, ..log::Settings::default() },
        log_device: "a".into(),
        ..Settings::default()
    }
}

fn without(settings: &Settings, device: &str) -> Settings {
    Settings { log: log::Settings { without: Some(device.into()), ..settings.log.clone() }, ..settings.clone() }
}

/// Runs `work` on a machine over these media that stops afterwards, without the power.
fn on<T>(
    hardware: &Hardware,
    media: &Media,
    errors: Vec<ErrorAt>,
    work: impl AsyncFnOnce(&Executor) -> Result<T>,
) -> Result<T> {
    under(FaultPlan { errors, ..FaultPlan::default() }, hardware, media, work)
}

/// The same with whatever goes wrong.
fn under<T>(
    faults: FaultPlan,
    hardware: &Hardware,
    media: &Media,
    work: impl AsyncFnOnce(&Executor) -> Result<T>,
) -> Result<T> {
    in_order(Order::FirstInFirstOut, faults, (hardware, media), work)
}

/// The same with its tasks in this order.
fn in_order<T>(
    order: Order,
    faults: FaultPlan,
    (hardware, media): (&Hardware, &Media),
    work: impl AsyncFnOnce(&Executor) -> Result<T>,
) -> Result<T> {
    let faults = Some(faults);
    let driver = VirtualDriver::new(hardware.clone(), Options { faults, ..Options::default() }, media.clone());
    let executor = Executor::new(Box::new(driver), order);
    let result = executor.run(work(&executor)).expect("the machine goes on");
    executor.stop();
    media.power_cut(&mut base::Random::stream(1, "cut"), &PowerCut { lost: 1.0, torn: 0.0 });
    result
}

async fn fill(database: &Database) -> Result<()> {
    let records = database.create_partition(PartitionSpec::b_tree("records")).await?;
    for number in 0..RECORDS {
        database.transaction(async |tx| tx.put(records, &number.to_be_bytes(), &[7; 40]).await).await?;
        let second = database.second_log();
        if second.as_ref().is_some_and(|second| second.both) && database.log().lost_device().is_some() {
            assert!(second.is_some_and(|second| second.lost.is_some()), "acknowledged before the loss is stated");
        }
    }
    Ok(())
}

/// Opens the database and finds everything there; says which log device counts as lost.
fn opened(hardware: &Hardware, media: &Media, settings: Settings) -> Result<Option<u8>> {
    on(hardware, media, Vec::new(), async |executor| {
        let database = Database::open(executor, settings, "two logs").await?;
        let records = database.partition("records")?;
        for number in 0..RECORDS {
            let found = database.transaction(async |tx| tx.get(records, &number.to_be_bytes()).await).await?;
            assert!(found.is_some_and(|found| found == [7; 40]), "record {number} is lost");
        }
        Ok(database.second_log().and_then(|second| second.lost))
    })
}

fn created(media: &Media, settings: &Settings) {
    let filled = async |executor: &Executor| fill(&Database::create(executor, settings.clone()).await?).await;
    on(&hardware(&["a", "b"]), media, Vec::new(), filled).expect("filled");
}

#[test]
fn the_log_goes_on_with_the_other_device() {
    let hardware = hardware(&["a", "b"]);
    for acknowledged in [Acknowledged::Both, Acknowledged::First] {
        for (index, bad) in ["a", "b"].into_iter().enumerate() {
            let (media, settings) = (Media::new(), settings(acknowledged));
            let errors = vec![ErrorAt { kind: OpKind::Write, device: Some(bad.into()), nth: 30 }];
            let lost = on(&hardware, &media, errors, async |executor| {
                let database = Database::create(executor, settings.clone()).await?;
                fill(&database).await?;
                let why = database.log().lost_device().expect("one was lost");
                assert!(why.contains(&format!("'{bad}'")), "{why}");
                Ok(database.second_log().and_then(|second| second.lost))
            });
            assert_eq!(lost, Ok(Some(index as u8)), "{acknowledged:?} {bad}");
            // The next opening makes a new copy, on which everything is then.
            assert_eq!(opened(&hardware, &media, settings.clone()), Ok(None));
            if acknowledged == Acknowledged::Both {
                let other = ["b", "a"][index];
                assert_eq!(opened(&hardware, &media, without(&settings, other)), Ok(Some(1 - index as u8)));
            }
        }
    }
}

#[test]
fn both_devices_lost_is_the_end_of_commits() {
    let hardware = hardware(&["a", "b"]);
    let (media, settings) = (Media::new(), settings(Acknowledged::Both));
    let error = |device: &str, nth| ErrorAt { kind: OpKind::Write, device: Some(device.into()), nth };
    let result = on(&hardware, &media, vec![error("a", 30), error("b", 40)], async |executor| {
        fill(&Database::create(executor, settings.clone()).await?).await
    });
    assert!(matches!(&result, Err(Error::LogFailed(why)) if why.contains("log")), "{result:?}");
}

const SILENCE_NS_MAX: u64 = 80 * MILLISECOND_NS;

/// A device that answers nothing, or nothing in time, from 1 ms on: the database has been created then, and is being filled.
fn silent(device: &str, until: Instant, factor: f64) -> FaultPlan {
    let slow = vec![Slow { device: device.into(), from: Instant::from_ns(MILLISECOND_NS), until, factor }];
    FaultPlan { slow, ..FaultPlan::default() }
}

/// Fills the database in the time that it may take; otherwise a task waits for ever.
async fn filled_in_time(executor: &Executor, settings: Settings) -> Result<Database> {
    let database = Database::create(executor, settings).await?;
    let own = database.clone();
    let filling = executor.spawn(async move { fill(&own).await });
    let deadline = executor.now().plus_ns(SECOND_NS);
    while !filling.is_finished() {
        assert!(executor.now() < deadline, "a silent device keeps all commits waiting");
        executor.sleep_ns(MILLISECOND_NS).await;
    }
    filling.join().await?;
    Ok(database)
}

#[test]
fn a_device_that_never_answers_is_lost_after_its_time() {
    let hardware = hardware(&["a", "b"]);
    for acknowledged in [Acknowledged::Both, Acknowledged::First] {
        for (index, bad) in ["a", "b"].into_iter().enumerate() {
            for method in [SyncMethod::SyncWrite, SyncMethod::WriteThenSync] {
                let (media, mut settings) = (Media::new(), settings(acknowledged));
                // Too little for a task to go on beside a device that keeps it.
                settings.log.buffer_size_max = 8 << 10;
                settings.log.silence_ns_max = SILENCE_NS_MAX;
                settings.log.sync_method = Some(method);
                let faults = silent(bad, Instant::NEVER, Slow::HUNG);
                let lost = under(faults, &hardware, &media, async |executor| {
                    let database = filled_in_time(executor, settings.clone()).await?;
                    let why = database.log().lost_device().expect("one was lost");
                    assert!(why.contains(&format!("'{bad}'")) && why.contains("80.00 ms"), "{why}");
                    Ok(database.second_log().and_then(|second| second.lost))
                });
                assert_eq!(lost, Ok(Some(index as u8)), "{acknowledged:?} {bad}");
                assert_eq!(opened(&hardware, &media, settings), Ok(None));
            }
        }
    }
}

/// A backup reads the log from the device that still answers, whether commits have met the silence of the other one or only the backup does;
/// so does what archives the log.
#[test]
fn a_backup_reads_past_a_device_that_never_answers() {
    let hardware = hardware(&["a", "b", "backup", "archive"]);
    for acknowledged in [Acknowledged::Both, Acknowledged::First] {
        for (bad, is_busy) in [("a", false), ("a", true), ("b", false), ("b", true)] {
            let (media, mut settings) = (Media::new(), settings(acknowledged));
            settings.log.silence_ns_max = SILENCE_NS_MAX;
            settings.log.archive = Some("archive".into());
            settings.checkpoint = checkpoint::Policy::OFF;
            let from = Instant::from_ns(SECOND_NS);
            let slow = Slow { device: bad.into(), from, until: Instant::NEVER, factor: Slow::HUNG };
            let faults = FaultPlan { slow: vec![slow], ..FaultPlan::default() };
            let told = format!("{acknowledged:?} {bad}, busy: {is_busy}");
            let backed_up = under(faults, &hardware, &media, async |executor| {
                let database = Database::create(executor, settings.clone()).await?;
                fill(&database).await?;
                // A restart would read the log from here on.
                let records = database.partition("records")?;
                let mut open = database.begin().await?;
                open.put(records, b"open", &[9; 40]).await?;
                database.transaction(async |tx| tx.put(records, b"behind", &[9; 40]).await).await?;
                executor.sleep_ns(SECOND_NS).await;
                let (own, over) = (database.clone(), Rc::new(Cell::new(!is_busy)));
                let is_over = Rc::clone(&over);
                let writing = executor.spawn(async move {
                    while !is_over.get() {
                        own.transaction(async |tx| tx.put(records, b"beside", &[8; 40]).await).await?;
                        own.executor().sleep_ns(MILLISECOND_NS).await;
                    }
                    Ok::<_, Error>(())
                });
                let backup = BackupSettings { target: "backup".into(), base: None, bytes_per_second: None };
                let ended = executor.within(5 * SECOND_NS, database.backup(&backup, |_| {})).await;
                over.set(true);
                writing.join().await?;
                open.rollback().await?;
                ended.unwrap_or_else(|| panic!("{told}: it waits for a silent device")).map(drop)?;
                let log = Rc::clone(database.log());
                database.close().await?;
                let archive = log.archive().expect("it is archived");
                assert!(archive.failures() == 0 && archive.end() >= log.durable(), "{told}: {archive:?}");
                Ok(log.lost_device().is_some_and(|why| why.contains(&format!("'{bad}'"))))
            });
            // Nothing may have been read of the second one.
            assert!(
                backed_up.as_ref().is_ok_and(|is_lost| *is_lost || bad == "b" && !is_busy),
                "{told}: {backed_up:?}"
            );
            ["disk", "a", "b"].iter().for_each(|device| media.replace(device));
            let source = RestoreSource { backup: "backup".into(), ..RestoreSource::default() };
            let restored = on(&hardware, &media, Vec::new(), async |executor| {
                Database::restore(executor, &settings, &source, |_| {}).await
            });
            assert!(restored.is_ok(), "{told}: {restored:?}");
            settings.log.archive = None;
            assert_eq!(opened(&hardware, &media, settings), Ok(None), "{told}");
        }
    }
}

/// Takes backups, one in the place of the other, and finds each to have the log up to the page of its end.
async fn back_up_again_and_again(database: &Database) -> Result<()> {
    let executor = database.executor().whole();
    let (backup, place) = (BackupSettings::to("backup"), executor.device("backup").expect("a device"));
    for number in 0..BACKUPS {
        for name in executor.names(place).await? {
            executor.perform(Op::Remove { device: place, name }).await.result?;
        }
        executor.sleep_ns(number * 20 * MICROSECOND_NS).await;
        let ended = executor.within(5 * SECOND_NS, database.backup(&backup, |_| {})).await;
        let report = ended.expect("it does not wait for what is logged behind it")?;
        let (_, copied) = executor.open(place, "log", false).await?;
        assert_eq!(copied, report.log_bytes, "the copy ends with the page of the end");
    }
    Ok(())
}

/// Where the first device suffices, the other one may lag for as long as there is something to log. A backup waits until that one has
/// the log up to the backup's end, and copies no more.
#[test]
fn a_backup_ends_beside_commits_that_run_ahead_of_the_other_device() {
    let hardware = hardware(&["a", "b", "backup"]);
    let settings = settings(Acknowledged::First);
    let slow = Slow { device: "b".into(), from: Instant::from_ns(SECOND_NS), until: Instant::NEVER, factor: 1_000.0 };
    for seed in 1..=4 {
        let (media, slow) = (Media::new(), vec![slow.clone()]);
        let faults = FaultPlan { slow, ..FaultPlan::default() };
        let backed_up = in_order(Order::Seeded(seed), faults, (&hardware, &media), async |executor| {
            let database = Database::create(executor, settings.clone()).await?;
            fill(&database).await?;
            executor.sleep_ns(SECOND_NS).await;
            let (own, over) = (database.clone(), Rc::new(Cell::new(false)));
            let (is_over, records) = (Rc::clone(&over), database.partition("records")?);
            let writing = executor.spawn(async move {
                while !is_over.get() {
                    own.transaction(async |tx| tx.put(records, b"beside", &[8; 40]).await).await?;
                    own.executor().sleep_ns(200 * MICROSECOND_NS).await;
                }
                Ok::<_, Error>(())
            });
            back_up_again_and_again(&database).await?;
            over.set(true);
            writing.join().await?;
            assert_eq!(database.log().lost_device(), None);
            database.close().await
        });
        assert_eq!(backed_up, Ok(()));
        ["disk", "a", "b"].iter().for_each(|device| media.replace(device));
        let source = RestoreSource { backup: "backup".into(), ..RestoreSource::default() };
        let restored = on(&hardware, &media, Vec::new(), async |executor| {
            Database::restore(executor, &settings, &source, |_| {}).await.map(drop)
        });
        assert_eq!(restored, Ok(()));
        assert_eq!(opened(&hardware, &media, settings.clone()), Ok(None));
    }
}

/// Fills it, with a transaction that goes on: a restart would read the log from there on, and so does a backup.
async fn with_much_to_redo(database: &Database) -> Result<Transaction> {
    fill(database).await?;
    let records = database.partition("records")?;
    let mut open = database.begin().await?;
    open.put(records, b"open", &[9; 40]).await?;
    for number in 0..100 {
        database.transaction(async |tx| tx.put(records, &[b'+', number], &[9; 200]).await).await?;
    }
    Ok(open)
}

/// While one has rotten pages, the other one may be all that there is: a read that it leaves unanswered does not lose it.
#[test]
fn a_silent_device_that_alone_has_a_page_is_kept() {
    let hardware = hardware(&["a", "b", "backup"]);
    let (media, mut settings) = (Media::new(), settings(Acknowledged::Both));
    settings.log.silence_ns_max = SILENCE_NS_MAX;
    settings.checkpoint = checkpoint::Policy::OFF;
    let from = Instant::from_ns(SECOND_NS);
    let slow = Slow { device: "b".into(), from, until: from.plus_ns(3 * SECOND_NS), factor: Slow::HUNG };
    let faults = FaultPlan { slow: vec![slow], ..FaultPlan::default() };
    let refused = under(faults, &hardware, &media, async |executor| {
        let database = Database::create(executor, settings.clone()).await?;
        let _open = with_much_to_redo(&database).await?;
        executor.sleep_ns(SECOND_NS).await;
        let length = media.length("a", "log").expect("it is there");
        for sector in (0..length).step_by(512) {
            media.flip_bit("a", "log", sector + 100, 0)?;
        }
        let backup = BackupSettings { target: "backup".into(), base: None, bytes_per_second: None };
        let refused = database.backup(&backup, |_| {}).await;
        assert_eq!(database.log().lost_device(), None);
        Ok(refused.map(drop))
    });
    assert!(refused.as_ref().is_ok_and(Result::is_err), "{refused:?}");
    assert_eq!(opened(&hardware, &media, settings), Ok(None));
}

/// While one has rotten pages, a read of the other one that fails says nothing of the log: it is not damaged.
#[test]
fn a_read_that_fails_is_not_taken_for_damage() {
    let hardware = hardware(&["a", "b", "backup"]);
    let (media, mut settings) = (Media::new(), settings(Acknowledged::Both));
    settings.checkpoint = checkpoint::Policy::OFF;
    let refused = on(&hardware, &media, Vec::new(), async |executor| {
        let database = Database::create(executor, settings.clone()).await?;
        let _open = with_much_to_redo(&database).await?;
        let length = media.length("a", "log").expect("it is there");
        for sector in (0..length).step_by(512) {
            media.flip_bit("a", "log", sector + 100, 0)?;
        }
        media.make_unreadable("b", "log-2", 0, length)?;
        let backup = BackupSettings { target: "backup".into(), base: None, bytes_per_second: None };
        database.backup(&backup, |_| {}).await.map(drop)
    });
    let names_it = |fault: &driver::Fault| fault.message.contains("file 'log-2' on device 'b'");
    assert!(matches!(&refused, Err(Error::Input(fault)) if names_it(fault)), "{refused:?}");
}

#[test]
fn a_device_that_answers_late_is_kept() {
    let hardware = hardware(&["a", "b"]);
    for acknowledged in [Acknowledged::Both, Acknowledged::First] {
        let (media, mut settings) = (Media::new(), settings(acknowledged));
        settings.log.silence_ns_max = SILENCE_NS_MAX;
        // A request takes 60 ms in place of 20 us.
        let faults = silent("b", Instant::from_ns(2 * MILLISECOND_NS), 3_000.0);
        let kept = under(faults, &hardware, &media, async |executor| {
            let database = filled_in_time(executor, settings.clone()).await?;
            executor.sleep_ns(2 * SILENCE_NS_MAX).await;
            let slowest_ns = database.log().statistics().write_latency.max_ns();
            assert!(acknowledged == Acknowledged::First || slowest_ns > 50 * MILLISECOND_NS, "{slowest_ns} ns");
            Ok((database.log().lost_device(), database.second_log().and_then(|second| second.lost)))
        });
        assert_eq!(kept, Ok((None, None)), "{acknowledged:?}");
        assert_eq!(opened(&hardware, &media, settings), Ok(None));
    }
}

#[test]
fn a_missing_device_is_named_and_done_without_only_where_that_is_safe() {
    for (index, missing) in ["a", "b"].into_iter().enumerate() {
        let rest = hardware(&[["b", "a"][index]]);
        let names_it = |result: Result<Option<u8>>, why: &str| {
            assert!(matches!(&result, Err(Error::LogCopyMissing { device, .. }) if device == missing), "{result:?}");
            assert!(result.as_ref().is_err_and(|error| error.to_string().contains(why)), "{result:?}");
        };
        let undescribed = format!("[device.{missing}]");
        let (media, both) = (Media::new(), settings(Acknowledged::Both));
        created(&media, &both);
        names_it(opened(&rest, &media, both.clone()), &undescribed);
        let lost = Some(index as u8);
        assert_eq!(opened(&rest, &media, without(&both, missing)), Ok(lost));
        assert_eq!(opened(&rest, &media, without(&both, missing)), Ok(lost), "again");
        // Its file is there again, and old: it is made anew.
        assert_eq!(opened(&hardware(&["a", "b"]), &media, both.clone()), Ok(None));
        let (media, first) = (Media::new(), settings(Acknowledged::First));
        created(&media, &first);
        names_it(opened(&rest, &media, first.clone()), &undescribed);
        names_it(opened(&rest, &media, without(&first, missing)), "acknowledged when one device had them");
        assert_eq!(opened(&hardware(&["a", "b"]), &media, first), Ok(None));
    }
}

#[test]
fn a_second_device_comes_and_goes() {
    let hardware = hardware(&["a", "b"]);
    let (media, both) = (Media::new(), settings(Acknowledged::Both));
    let alone = Settings { log: log::Settings { second: None, ..both.log.clone() }, ..both.clone() };
    created(&media, &alone);
    assert_eq!(opened(&hardware, &media, both.clone()), Ok(None));
    assert!(media.names("b").contains(&"log-2".to_owned()));
    assert_eq!(opened(&hardware, &media, without(&both, "a")), Ok(Some(0)));
    // The first device was lost and two are not wanted: the second goes on alone.
    assert_eq!(opened(&hardware, &media, alone.clone()), Ok(Some(0)));
    assert_eq!(opened(&hardware, &media, both), Ok(None));
    assert_eq!(opened(&hardware, &media, alone), Ok(None));
    assert!(!media.names("b").contains(&"log-2".to_owned()), "it is removed");
}

#[test]
fn what_makes_no_sense_is_refused() {
    let both = settings(Acknowledged::Both);
    let mut buffered = both.clone();
    buffered.hierarchy.write_buffer =
        Some(WriteBufferSettings { device: "disk".into(), pages: 0, log_bytes: 4096, volatile: Some(false) });
    let same = Settings { log_device: "b".into(), ..both.clone() };
    for (settings, why) in [(buffered, "write buffer"), (same, "its first one, too")] {
        let result = on(&hardware(&["a", "b"]), &Media::new(), Vec::new(), async |executor| {
            Database::create(executor, settings).await.map(|_| ())
        });
        assert!(matches!(&result, Err(Error::Setting(text)) if text.contains(why)), "{result:?}");
    }
    let mut synchronous = hardware(&["a", "b"]);
    synchronous.device_mut("b").synchronous = true;
    let result = on(&synchronous, &Media::new(), Vec::new(), async |executor| {
        Database::create(executor, both.clone()).await.map(|_| ())
    });
    assert!(matches!(&result, Err(Error::Setting(text)) if text.contains("asynchronously")), "{result:?}");
    let media = Media::new();
    created(&media, &both);
    let result = opened(&hardware(&["a", "b"]), &media, without(&both, "disk"));
    assert!(matches!(&result, Err(Error::Setting(text)) if text.contains("no copy there")), "{result:?}");
}
