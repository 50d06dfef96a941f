//! What tests stand on: described hardware, a database on it, nobody who watches.

use crate::run::Watch;
use devices::Hardware;
use driver::Driver;
use engine::buffer::replacement::Policy;
use engine::lock::VictimPolicy;
use engine::{Database, Settings, buffer, checkpoint, log};
use executor::{Executor, Order};
use virtual_driver::{Media, Options, VirtualDriver};

/// Nobody looks at the clocks of a test.
pub struct Unwatched;

impl Watch for Unwatched {
    fn progress(&mut self, _: u64, _: u64) {}

    fn cpu_ns(&self) -> u64 {
        0
    }

    fn process_cpu_ns(&self) -> u64 {
        0
    }

    fn wall_ns(&self) -> u64 {
        0
    }
}

/// So many frames of 1 KiB, everything else as simple as can be.
pub fn settings(frames: usize) -> Settings {
    Settings {
        buffer: buffer::Settings { frames, page_size: 1024, replacement: Policy::Lru, cleaner: false },
        log: log::Settings { capacity: 64 << 20, ..log::Settings::default() },
        hierarchy: engine::hierarchy::Settings::default(),
        home_device: "disk".into(),
        log_device: "disk".into(),
        force: false,
        hold_locks: false,
        victim: VictimPolicy::Requester,
        checkpoint: checkpoint::Policy { log_bytes: None, interval_ns: None },
        multiprogramming_level: 64,
    }
}

/// Runs `work` on a new database of this hardware.
pub fn on<T>(hardware: Hardware, frames: usize, work: impl AsyncFnOnce(Database) -> engine::Result<T>) -> T {
    let options = Options { seed: 1, ..Options::default() };
    let driver: Box<dyn Driver> = Box::new(VirtualDriver::new(hardware, options, Media::new()));
    let executor = Executor::new(driver, Order::FirstInFirstOut);
    let result = executor.run(async { work(Database::create(&executor, settings(frames)).await?).await });
    executor.stop();
    result.expect("the machine goes on").expect("the engine succeeds")
}
