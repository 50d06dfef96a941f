//! What tests stand on: described hardware and a database on it.

use devices::Hardware;
use driver::Driver;
use engine::{Database, Settings, buffer, checkpoint, log};
use executor::{Executor, Order};
use virtual_driver::{Media, Options, VirtualDriver};

/// This number of frames of 1 KiB, everything else as simple as can be.
pub fn settings(frames: usize) -> Settings {
    Settings {
        buffer: buffer::Settings { frames, page_size: 1024, cleaner: false, ..buffer::Settings::default() },
        log: log::Settings { capacity: 64 << 20, ..log::Settings::default() },
        checkpoint: checkpoint::Policy { log_bytes: None, interval_ns: None },
        ..Settings::default()
    }
}

/// Runs `work` on a new database of this hardware.
pub fn on<T>(hardware: Hardware, frames: usize, work: impl AsyncFnOnce(Database) -> engine::Result<T>) -> T {
    with(hardware, settings(frames), work)
}

/// The same with these settings.
pub fn with<T>(hardware: Hardware, settings: Settings, work: impl AsyncFnOnce(Database) -> engine::Result<T>) -> T {
    let options = Options { seed: 1, ..Options::default() };
    let driver: Box<dyn Driver> = Box::new(VirtualDriver::new(hardware, options, Media::new()));
    let executor = Executor::new(driver, Order::FirstInFirstOut);
    let result = executor.run(async { work(Database::create(&executor, settings).await?).await });
    executor.stop();
    result.expect("the machine goes on").expect("the engine succeeds")
}
