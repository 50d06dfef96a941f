// A machine of two devices, of which one fails at reads.

use base::Random;
use devices::Hardware;
use driver::OpKind;
use executor::{Executor, Order};
use virtual_driver::{ErrorAt, FaultPlan, Media, Options, PowerCut, VirtualDriver};

/// Runs `work` on a machine whose device `data` fails at these reads, then takes its power away.
pub fn on<T>(media: &Media, failing: std::ops::Range<u64>, work: impl AsyncFnOnce(&Executor) -> T) -> T {
    let device = |name: &str| format!("[device.{name}]\nmedium.service = \"20 us\"\n");
    let text: String = ["disk", "data"].into_iter().map(device).collect();
    let error = |nth| ErrorAt { kind: OpKind::Read, device: Some("data".into()), nth };
    let faults = Some(FaultPlan { errors: failing.map(error).collect(), ..FaultPlan::default() });
    let hardware = Hardware::parse(&text, "test").expect("a description");
    let driver = VirtualDriver::new(hardware, Options { faults, ..Options::default() }, media.clone());
    let executor = Executor::new(Box::new(driver), Order::FirstInFirstOut);
    let result = executor.run(work(&executor));
    executor.stop();
    media.power_cut(&mut Random::stream(1, "cut"), &PowerCut { lost: 1.0, torn: 0.0 });
    result.expect("the machine goes on")
}
