// The machine that the engine's tests stand on.

use driver::Halt;
use executor::{Executor, Order};
use virtual_driver::{Hardware, Media, Options, VirtualDriver};

/// Runs `work` on a new machine with these media, then lets that machine vanish.
pub fn run<T>(media: &Media, work: impl AsyncFnOnce(&Executor) -> T) -> T {
    let driver = VirtualDriver::new(Hardware::ideal(), Options::default(), media.clone());
    let executor = Executor::new(Box::new(driver), Order::FirstInFirstOut);
    let result: Result<T, Halt> = executor.run(work(&executor));
    executor.stop();
    result.expect("the machine goes on")
}
