//! Devices and memory, as everything above uses them: finding a device by its name, paying for an access, reading around what
//! cannot be read.

pub mod memory;
pub mod salvage;

use crate::{Error, Result};
use driver::{Access, DeviceId, DeviceTraits, Work};
use executor::Executor;

/// The device of this name.
pub fn device(executor: &Executor, name: &str) -> Result<DeviceId> {
    executor.device(name).ok_or_else(|| Error::NoDevice(name.to_owned()))
}

/// What is wrong with a file on a device of this name if there is no such device.
pub fn undescribed(device: &str) -> String {
    format!("no section [device.{device}] describes it")
}

/// Charges one access to a device with these traits, pays what must be paid before it, and says how it is made.
pub async fn access(executor: &Executor, traits: &DeviceTraits) -> Access {
    if let Some(access) = access_at_once(executor, traits) {
        return access;
    }
    executor.charge(Work::InputOutput);
    executor.pay_debt().await;
    Access::Asynchronous
}

/// The same, if there is nothing to wait for; `None` if it was not charged.
pub fn access_at_once(executor: &Executor, traits: &DeviceTraits) -> Option<Access> {
    if traits.synchronous {
        executor.charge(Work::NvemAccess);
        return Some(Access::Synchronous { instructions: executor.take_debt() });
    }
    if executor.is_priced() {
        return None;
    }
    executor.charge(Work::InputOutput);
    Some(Access::Asynchronous)
}
