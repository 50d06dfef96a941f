//! Machines with one database whose moments are kept for a time; their clocks go on, and each ends with a power cut.

use base::time::SECOND_NS;
use base::{Lsn, PartitionId, Random};
use devices::Hardware;
use entresol_engine::checkpoint::Policy;
use entresol_engine::{Database, Result, Settings, log, version};
use executor::{Executor, Order};
use virtual_driver::{FaultPlan, Media, Options, PowerCut, VirtualDriver};

pub const HOUR_NS: u64 = 3600 * SECOND_NS;

/// Runs `work` on a machine whose clock begins at `from_ns`, then takes its power away.
pub fn on<T>(media: &Media, from_ns: u64, work: impl AsyncFnOnce(&Executor) -> Result<T>) -> T {
    let options = Options { faults: Some(FaultPlan::default()), ..Options::default() };
    let driver = VirtualDriver::new(Hardware::ideal(), options, media.clone());
    let executor = Executor::new(Box::new(driver), Order::FirstInFirstOut);
    let done = executor.run(async {
        executor.sleep_ns(from_ns).await;
        work(&executor).await
    });
    executor.stop();
    media.power_cut(&mut Random::stream(from_ns, "cut"), &PowerCut::default());
    done.expect("the machine goes on").unwrap_or_else(|error| panic!("{error}"))
}

pub fn settings(retention_ns: u64, capacity: u64) -> Settings {
    let undo = version::UndoSettings { retention_ns, ..version::UndoSettings::default() };
    let checkpoint = Policy { log_bytes: Some(capacity / 8), interval_ns: None };
    let log = log::Settings { capacity, ..log::Settings::default() };
    Settings { undo, log, checkpoint, ..Settings::default() }
}

pub async fn open(executor: &Executor, settings: &Settings) -> Result<Database> {
    Database::open(executor, settings.clone(), "here").await
}

/// Puts a record, and returns the moment behind that.
pub async fn put(database: &Database, tree: PartitionId, key: u8, value: &[u8]) -> Result<Lsn> {
    database.transaction(async |tx| tx.put(tree, &[key], value).await).await?;
    Ok(database.snapshot().await?.moment())
}
