//! What an executor says of the machine below its driver.

use super::Executor;
#[cfg(doc)]
use driver::Driver;
use driver::{CacheReport, DeviceId, DeviceTraits, Doorbell, EventCount, Fault, Frame, StationReport, ThreadUse};
use std::path::Path;
use std::sync::Arc;

impl Executor {
    /// The device of this name.
    pub fn device(&self, name: &str) -> Option<DeviceId> {
        let device = self.0.driver.borrow().device(name);
        if let Some(device) = device {
            self.0.names.borrow_mut().set_device(device, name);
        }
        device
    }

    /// A directory of this machine as one more device; see [`Driver::attach`](driver::Driver::attach).
    ///
    /// # Errors
    /// The driver's.
    pub fn attach(&self, directory: &Path) -> Result<DeviceId, Fault> {
        let device = self.0.driver.borrow_mut().attach(directory)?;
        self.0.names.borrow_mut().set_device(device, &directory.display().to_string());
        Ok(device)
    }

    /// Removes a directory that attaching it has created, if it is empty; see
    /// [`Driver::remove_attached`](driver::Driver::remove_attached).
    pub fn remove_attached(&self, device: DeviceId) {
        self.0.driver.borrow_mut().remove_attached(device);
    }

    /// What is known of a device.
    pub fn traits(&self, device: DeviceId) -> DeviceTraits {
        self.0.driver.borrow().traits(device)
    }

    /// The driver's doorbell.
    pub fn doorbell(&self) -> Arc<dyn Doorbell> {
        self.0.driver.borrow().doorbell()
    }

    /// Whether the network is a described one; see [`Driver::has_described_network`](driver::Driver::has_described_network).
    pub fn has_described_network(&self) -> bool {
        self.0.driver.borrow().has_described_network()
    }

    /// One line about the driver.
    pub fn description(&self) -> String {
        self.0.driver.borrow().description()
    }

    /// Load and queueing of every station.
    pub fn stations(&self) -> Vec<StationReport> {
        self.0.driver.borrow().stations()
    }

    /// The caches inside devices; see [`driver::Driver::caches`].
    pub fn caches(&self) -> Vec<CacheReport> {
        self.0.driver.borrow().caches()
    }

    /// The simulation's events by sort; see [`driver::Driver::events`].
    pub fn events(&self) -> Vec<EventCount> {
        self.0.driver.borrow().events()
    }

    /// What the thread asked of its operating system; see [`driver::Driver::thread_use`].
    pub fn thread_use(&self) -> ThreadUse {
        self.0.driver.borrow().thread_use()
    }

    /// Forgets what stations and groups did so far.
    pub fn restart_statistics(&self) {
        self.0.groups.borrow_mut().restart(self.now());
        self.0.driver.borrow_mut().restart_statistics();
    }

    /// 128 random bits that cannot be guessed; see [`Driver::entropy`].
    pub fn entropy(&self) -> u128 {
        self.0.driver.borrow_mut().entropy()
    }

    /// Memory for I/O; see [`Driver::frames`].
    ///
    /// # Errors
    /// The driver's [`Fault`].
    pub fn frames(&self, count: usize, size: usize) -> Result<Vec<Frame>, Fault> {
        self.0.driver.borrow_mut().frames(count, size)
    }

    /// The same memory before its first use; see [`Driver::untouched_frames`].
    ///
    /// # Errors
    /// As [`Executor::frames`].
    pub fn untouched_frames(&self, count: usize, size: usize) -> Result<Vec<Frame>, Fault> {
        self.0.driver.borrow_mut().untouched_frames(count, size)
    }

    /// One frame of memory for I/O.
    ///
    /// # Errors
    /// As [`Executor::frames`].
    pub fn frame(&self, size: usize) -> Result<Frame, Fault> {
        Ok(self.frames(1, size)?.pop().expect("one frame was asked for"))
    }
}
