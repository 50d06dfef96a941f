// A machine with a disk, a cache device and places for backups, and databases that are lost and restored there.

use base::Random;
use devices::Hardware;
use driver::Op;
use entresol_engine::{Database, RestoreReport, RestoreSource, Result, Settings};
use executor::{Executor, Order};
use virtual_driver::{FaultPlan, Media, Options, PowerCut, VirtualDriver};

/// The machine.
pub fn hardware() -> Hardware {
    let device = |name: &str| format!("[device.{name}]\nmedium.service = \"20 us\"\n");
    let text: String = ["disk", "flash", "backup", "archive", "next"].into_iter().map(device).collect();
    Hardware::parse(&text, "test").expect("a description")
}

/// Runs `work` on the machine with these media, then takes its power away.
pub fn on<T>(media: &Media, work: impl AsyncFnOnce(&Executor) -> T) -> T {
    under(FaultPlan::default(), media, work)
}

/// The same with whatever goes wrong.
pub fn under<T>(faults: FaultPlan, media: &Media, work: impl AsyncFnOnce(&Executor) -> T) -> T {
    on_hardware(hardware(), faults, media, work)
}

/// The same on another machine.
pub fn on_hardware<T>(
    hardware: Hardware,
    faults: FaultPlan,
    media: &Media,
    work: impl AsyncFnOnce(&Executor) -> T,
) -> T {
    let driver = VirtualDriver::new(hardware, Options { faults: Some(faults), ..Options::default() }, media.clone());
    let executor = Executor::new(Box::new(driver), Order::FirstInFirstOut);
    let result = executor.run(work(&executor));
    executor.stop();
    media.power_cut(&mut Random::stream(1, "cut"), &PowerCut { lost: 1.0, torn: 0.0 });
    result.expect("the machine goes on")
}

/// The names of a device's files.
pub async fn names(executor: &Executor, device: &str) -> Vec<String> {
    let device = executor.device(device).expect("the machine has it");
    executor.names(device).await.expect("lists")
}

/// Loses every file of these devices.
pub async fn lose(executor: &Executor, devices: &[&str]) {
    for name in devices {
        let device = executor.device(name).expect("the machine has it");
        for file in names(executor, name).await {
            executor.perform(Op::Remove { device, name: file }).await.result.expect("removes");
        }
    }
}

/// Loses the database and makes it anew from what there is of it elsewhere.
pub async fn restored(
    executor: &Executor,
    settings: &Settings,
    source: &RestoreSource,
) -> Result<(Database, RestoreReport)> {
    lose(executor, &["disk", "flash"]).await;
    let report = Database::restore(executor, settings, source, |_| {}).await?;
    let database = Database::open(executor, settings.clone(), "restored").await?;
    let checked = database.check(|_| {}).await?;
    assert!(checked.is_clean(), "{:?}", checked.findings);
    Ok((database, report))
}
