//! The log on a tier of its own: what is measured when it is created, and what that does to group commit.

use devices::Hardware;
use entresol_engine::log::SyncMethod;
use entresol_engine::{Database, Internals, PartitionSpec, Result, Settings, buffer, log};
use executor::{Executor, Order};
use virtual_driver::{Media, Options, VirtualDriver};

/// One device, described by these lines.
fn hardware(device: &str) -> Hardware {
    Hardware::parse(&format!("[device.disk]\n{device}"), "test").expect("a description")
}

fn settings() -> Settings {
    Settings {
        buffer: buffer::Settings { frames: 200, page_size: 1024, ..buffer::Settings::default() },
        log: log::Settings {
            capacity: 4 << 20,
            sync_method: None,
            writes_in_flight_max: None,
            ..log::Settings::default()
        },
        ..Settings::default()
    }
}

/// Runs `work` on a machine over these media that stops afterwards.
fn on<T>(hardware: &Hardware, media: &Media, work: impl AsyncFnOnce(&Executor) -> Result<T>) -> T {
    let driver = VirtualDriver::new(hardware.clone(), Options::default(), media.clone());
    let executor = Executor::new(Box::new(driver), Order::FirstInFirstOut);
    let result = executor.run(work(&executor)).expect("the machine goes on");
    executor.stop();
    result.unwrap_or_else(|error| panic!("{error}"))
}

const FLASH: &str = "medium = { servers = 16, service = \"50 us\" }\ndurable_write = \"50 us\"\nsync = \"80 us\"";
const DISK: &str = "medium = { servers = 1, service = \"4 ms\" }";
const DEAR_SYNC_WRITES: &str =
    "medium = { servers = 2, service = \"50 us\" }\ndurable_write = \"500 us\"\nsync = \"20 us\"";

#[test]
fn each_device_is_written_as_it_likes_and_that_lasts() {
    for (device, method, writes) in [
        (FLASH, SyncMethod::SyncWrite, 4),
        (DISK, SyncMethod::SyncWrite, 1),
        (DEAR_SYNC_WRITES, SyncMethod::WriteThenSync, 4),
    ] {
        let (hardware, media) = (hardware(device), Media::new());
        let look = |database: &Database| {
            let log = database.log();
            (database.log_measured().expect("measured"), log.settings().method(), log.writes_in_flight_max())
        };
        let created = on(&hardware, &media, async |executor| {
            let database = Database::create(executor, settings()).await?;
            let seen = look(&database);
            database.close().await.map(|()| seen)
        });
        assert_eq!((created.1, created.2), (method, writes), "{device}: {:?}", created.0);
        // Another device would be measured otherwise; what was chosen stays.
        let other = self::hardware(if device == DISK { FLASH } else { DISK });
        let opened =
            on(&other, &media, async |executor| Ok(look(&Database::open(executor, settings(), "measured").await?)));
        assert_eq!(opened, created);
        let said = Settings {
            log: log::Settings { sync_method: Some(SyncMethod::SyncWrite), ..settings().log },
            ..settings()
        };
        let opened = on(&other, &media, async |executor| Ok(look(&Database::open(executor, said, "said").await?)));
        assert_eq!((opened.1, opened.2), (SyncMethod::SyncWrite, writes));
    }
}

/// `clients` clients put and commit. Returns the commits and how long they took, in nanoseconds.
async fn commits_of(executor: &Executor, database: &Database, clients: u64) -> Result<(u64, u64)> {
    let records = database.create_partition(PartitionSpec::b_tree("records")).await?;
    executor.restart_statistics();
    let began = executor.now();
    const ROUNDS: u64 = 40;
    let clients: Vec<_> = (0..clients)
        .map(|client| {
            let database = database.clone();
            executor.spawn(async move {
                for round in 0..ROUNDS {
                    let put = async |tx: &mut entresol_engine::Transaction| {
                        tx.put(records, &client.to_be_bytes(), &round.to_be_bytes()).await
                    };
                    database.transaction(put).await?;
                }
                Ok::<u64, entresol_engine::Error>(ROUNDS)
            })
        })
        .collect();
    let mut commits = 0;
    for client in clients {
        commits += client.join().await?;
    }
    Ok((commits, executor.now().since_ns(began)))
}

/// Commits per second of `clients` clients on this device.
fn commits_per_s(device: &str, clients: u64) -> f64 {
    on(&hardware(device), &Media::new(), async |executor| {
        let database = Database::create(executor, settings()).await?;
        let (commits, took_ns) = commits_of(executor, &database, clients).await?;
        Ok(commits as f64 * 1e9 / took_ns as f64)
    })
}

#[test]
fn commits_share_writes_as_the_device_and_the_load_demand() {
    // Where computing takes no time, one write serves all clients: the rate grows as the clients do, on a device that serves
    // one write at a time as on one that serves many.
    for (device, write_s) in [(DISK, 4e-3), (FLASH, 100e-6)] {
        for clients in [1, 4, 64] {
            let (found, ideal) = (commits_per_s(device, clients), clients as f64 / write_s);
            assert!((0.85..=1.01).contains(&(found / ideal)), "{clients} clients: {found} of {ideal} on {device}");
        }
    }
}

#[test]
fn a_log_of_one_write_at_a_time_has_no_second_one_waiting() {
    // Submitting a write takes a while on processors that others want, too.
    let hardware = Hardware::named("lee-2008").expect("a description");
    let log =
        log::Settings { sync_method: Some(SyncMethod::SyncWrite), writes_in_flight_max: Some(1), ..settings().log };
    let settings = Settings { log, log_device: "flash".to_owned(), ..settings() };
    for clients in [4, 20, 100] {
        on(&hardware, &Media::new(), async |executor| {
            let database = Database::create(executor, settings.clone()).await?;
            commits_of(executor, &database, clients).await?;
            let stations = executor.stations();
            let flash = stations.iter().find(|station| station.name == "flash.medium").expect("the log's");
            assert!(flash.completed >= 40 && flash.utilization > 0.2, "{flash:?}");
            // A station without a queue serves its whole population.
            assert!((flash.population_mean - flash.utilization).abs() < 1e-9, "{clients} clients: {flash:?}");
            Ok(())
        });
    }
}

#[test]
fn what_is_measured_is_cheap() {
    let writes = on(&hardware(DISK), &Media::new(), async |executor| {
        executor.restart_statistics();
        Database::create(executor, settings()).await?;
        Ok(executor.stations().iter().map(|station| station.completed).max())
    });
    assert!(writes.is_some_and(|writes| writes < 100), "{writes:?}");
}
