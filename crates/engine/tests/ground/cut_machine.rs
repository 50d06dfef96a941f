// A machine whose power may go.

use driver::Halt;
use executor::{Executor, Order};
use virtual_driver::{FaultPlan, Hardware, Media, Options, VirtualDriver};

/// Runs `work` on this machine with these media until the power goes, if it does, at this event.
pub fn run_up_to<T>(
    media: &Media,
    hardware: Hardware,
    power_cut_at: Option<u64>,
    work: impl AsyncFnOnce(&Executor) -> T,
) -> Result<T, Halt> {
    run_under(media, hardware, FaultPlan { power_cut_at, ..FaultPlan::default() }, work)
}

/// The same with these faults.
pub fn run_under<T>(
    media: &Media,
    hardware: Hardware,
    faults: FaultPlan,
    work: impl AsyncFnOnce(&Executor) -> T,
) -> Result<T, Halt> {
    let driver = VirtualDriver::new(hardware, Options { faults: Some(faults), ..Options::default() }, media.clone());
    let executor = Executor::new(Box::new(driver), Order::FirstInFirstOut);
    let result = executor.run(work(&executor));
    executor.stop();
    result
}
