//! Backups that others wait for, and backups that are given up.

use crate::ground::backups::{names, on, on_hardware, restored};
use base::time::{MILLISECOND_NS, SECOND_NS};
use devices::Hardware;
use entresol_engine::catalog::{Locking, Organization};
use entresol_engine::checkpoint::Policy;
use entresol_engine::{
    BackupError, BackupReport, BackupSettings, Database, Error, PartitionSpec, Result, Settings, log,
};
use executor::{Executor, JoinHandle};
use std::cell::Cell;
use std::rc::Rc;
use virtual_driver::{FaultPlan, Media};

fn settings() -> Settings {
    Settings {
        log: log::Settings { capacity: 2 << 20, ..log::Settings::default() },
        checkpoint: Policy { log_bytes: Some(256 << 10), interval_ns: Some(20 * MILLISECOND_NS) },
        ..Settings::default()
    }
}

fn at(bytes_per_second: u64) -> BackupSettings {
    BackupSettings { target: "backup".into(), base: None, bytes_per_second: Some(bytes_per_second) }
}

fn begin_backup(database: &Database, settings: BackupSettings) -> JoinHandle<Result<BackupReport>> {
    let database = database.clone();
    database.executor().clone().spawn(async move { database.backup(&settings, |_| {}).await })
}

/// Runs `work` on a machine whose place for backups takes this many bytes a second.
fn on_slow<T>(rate: &str, work: impl AsyncFnOnce(&Executor) -> T) -> T {
    let hardware = format!(
        "[device.disk]\nmedium.service = \"20 us\"\n[device.backup]\n\
         medium = {{ servers = 1, service = \"20 us\", bandwidth = \"{rate}\" }}\n"
    );
    let hardware = Hardware::parse(&hardware, "test").expect("a description");
    on_hardware(hardware, FaultPlan::default(), &Media::new(), work)
}

/// The place takes the log more slowly than it grows, but never stands still.
#[test]
fn a_backup_to_a_slow_place_is_given_up_and_not_waited_for() {
    let (backup, waited_ns) = on_slow("8 MB/s", async |executor| {
        let database = Database::create(executor, settings()).await?;
        let tree = database.create_partition(PartitionSpec::b_tree("tree")).await?;
        let records = (0..200_000_u32).map(|number| (number.to_be_bytes(), [7; 100]));
        database.load_b_tree(tree, records, |_| {}).await?;
        let backup = begin_backup(&database, at(1 << 30));
        let mut waited_ns = 0;
        for number in 0..20_000_u32 {
            let began = executor.now();
            database.transaction(async |tx| tx.put(tree, &number.to_be_bytes(), &[8; 400]).await).await?;
            waited_ns += executor.now().since_ns(began).saturating_sub(20 * MILLISECOND_NS);
            if backup.is_finished() {
                break;
            }
        }
        let backup = backup.join().await;
        database.close().await?;
        Ok::<_, Error>((backup, waited_ns))
    })
    .expect("goes on");
    assert!(matches!(backup, Err(Error::Backup(BackupError::Overtaken { .. }))), "{backup:?}");
    assert!(waited_ns < 3 * SECOND_NS, "transactions have waited for {} ms", waited_ns / MILLISECOND_NS);
}

/// A sweep in the background waits for a slow backup of the sets; what has to sweep does not wait for that sweep.
#[test]
fn a_set_is_loaded_while_a_sweep_waits_for_a_backup() {
    on(&Media::new(), async |executor| {
        let database = Database::create(executor, settings()).await?;
        let organization = Organization::Set { arrivals: false, segment_size: 16 << 10, reserve_percent: 10 };
        let set = |name: &str| PartitionSpec::new(name, organization, Locking::Record);
        let (stock, loaded) =
            (database.create_partition(set("stock")).await?, database.create_partition(set("loaded")).await?);
        let records = (0..2_000_u32).map(|number| (number.to_be_bytes(), [7; 200]));
        database.load_set(stock, records.clone(), |_| {}).await?;
        let backup = begin_backup(&database, at(16 << 10));
        // Two sweeps at least, of which the second one has to wait.
        for number in 0..40_u32 {
            database.transaction(async |tx| tx.put(stock, &number.to_be_bytes(), &[8; 200]).await).await?;
            executor.sleep_ns(50 * MILLISECOND_NS).await;
        }
        assert!(!backup.is_finished());
        let done = executor.within(SECOND_NS, database.load_set(loaded, records, |_| {})).await;
        assert_eq!(done, Some(Ok(())));
        backup.join().await?;
        database.close().await?;
        let source = entresol_engine::RestoreSource { backup: "backup".into(), archive: None };
        let (database, _) = restored(executor, &settings(), &source).await?;
        let last = database.transaction(async |tx| tx.get(loaded, &1_999_u32.to_be_bytes()).await).await?;
        assert_eq!(last, Some(vec![7; 200]));
        database.close().await
    })
    .expect("works");
}

/// At whatever moment the caller goes.
#[test]
fn a_backup_whose_caller_has_gone_leaves_nothing() {
    let (mut given_up, mut ended) = (0, 0);
    for moment in 0..60 {
        on(&Media::new(), async |executor| {
            let database = Database::create(executor, settings()).await?;
            let tree = database.create_partition(PartitionSpec::b_tree("tree")).await?;
            let stop = Rc::new(Cell::new(false));
            let writing = {
                let (database, stop) = (database.clone(), Rc::clone(&stop));
                executor.spawn(async move {
                    for number in 0.. {
                        let write = async |tx: &mut entresol_engine::Transaction| {
                            tx.put(tree, &u32::to_be_bytes(number % 300), &[8; 200]).await
                        };
                        database.transaction(write).await?;
                        if stop.get() {
                            break;
                        }
                    }
                    Ok::<_, Error>(())
                })
            };
            executor.sleep_ns(20 * MILLISECOND_NS).await;
            let done = executor.within(moment * 50_000, database.backup(&at(1 << 30), |_| {})).await;
            executor.sleep_ns(50 * MILLISECOND_NS).await;
            if done.is_none() {
                given_up += 1;
                assert_eq!(names(executor, "backup").await, [""; 0], "{moment}");
                database.backup(&at(1 << 30), |_| {}).await?;
            } else {
                ended += 1;
            }
            stop.set(true);
            writing.join().await?;
            database.close().await
        })
        .expect("works");
    }
    assert!(given_up > 5 && ended > 5, "{given_up} given up, {ended} ended");
}
