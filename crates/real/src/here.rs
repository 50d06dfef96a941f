//! What the driver does with transfers on its own thread: copies to and from mappings, and the delays of descriptions.

use crate::files::index_of;
use crate::flight::Flight;
use crate::job::allocate_holes;
use crate::real_driver::RealDriver;
use crate::request::Call;
use devices::Direction;
use driver::{Driver, Fault, FileId, Output};
use std::time::Duration;

/// How long before its end a wait that holds the CPU stops sleeping: the kernel wakes late.
const SPIN_NS: u64 = 150_000;

impl RealDriver {
    /// Copies a transfer's bytes between its buffer and its file's mapping.
    pub(crate) fn copy_here(&mut self, slot: u32) {
        let transfer = self.flights.transfer(slot);
        let (call, end) = (transfer.call, transfer.offset + u64::from(transfer.length));
        let file = self.files.entered(transfer.file).expect("a transfer holds its file");
        let path = self.devices[usize::from(transfer.device.0)].place.path.join(&file.name);
        let mapping = file.mapping.as_mut().expect("only mapped files are copied");
        let writes = matches!(call, Call::Write | Call::WriteDurable);
        if writes && end > mapping.length() {
            let id = transfer.file;
            self.transfer_here(slot);
            self.follow_growth(id, end);
            return;
        }
        let mut buffer = transfer.buffer.take();
        let bytes = buffer.as_mut().map(|buffer| &mut buffer[..transfer.length as usize]).unwrap_or_default();
        let what = || transfer.attempt(&path.display().to_string());
        let result = match call {
            Call::Read => mapping.read(transfer.offset, bytes, what),
            Call::Write | Call::WriteDurable => mapping.write(transfer.offset, bytes, call == Call::WriteDurable, what),
            _ => mapping.sync(&file.file, what),
        };
        transfer.buffer = buffer;
        let now = self.now();
        let completion = self.end_transfer(slot, result.map(|()| Output::Done), now);
        self.ready.extend(completion);
    }

    /// Takes in that a write has made a mapped file longer, to `end` at least.
    fn follow_growth(&mut self, id: FileId, end: u64) {
        // A removed file may be gone already.
        let Some(file) = self.files.entered(id) else { return };
        let path = self.devices[usize::from(file.device.0)].place.path.join(&file.name);
        let Some(mapping) = &mut file.mapping else { return };
        // What cannot be mapped stays reachable for writes, and its reads say where the mapping ends.
        if allocate_holes(&file.file, end).is_ok() {
            let _ = mapping.follow(&file.file, &path);
        }
    }

    /// Takes in that a change of a file's length has ended.
    ///
    /// # Errors
    /// The fault that keeps the file from being mapped.
    pub(crate) fn follow_resize(&mut self, flight: &Flight) -> Result<(), Fault> {
        let Flight::Resize(id) = flight else { return Ok(()) };
        let file = self.files.entered(*id).expect("a change of length holds its file");
        let path = self.devices[usize::from(file.device.0)].place.path.join(&file.name);
        file.mapping.as_mut().map_or(Ok(()), |mapping| mapping.end_resize(&file.file, &path))
    }

    /// Hands what the operating system has been given to the descriptions: a device gets nothing before that, and what the thread pays for
    /// handing it over does not pass while the device works.
    pub(crate) fn delay_handed_over(&mut self) {
        let mut slots = std::mem::take(&mut self.undelayed);
        slots.drain(..).for_each(|slot| self.delay(slot));
        self.undelayed = slots;
    }

    /// Hands a transfer to its device's description.
    pub(crate) fn delay(&mut self, slot: u32) {
        let now = self.now();
        let transfer = self.flights.transfer(slot);
        let direction = match transfer.call {
            Call::Read => Direction::Read,
            Call::Write => Direction::Write { durable: false },
            Call::WriteDurable => Direction::Write { durable: true },
            _ => Direction::Sync,
        };
        let file = index_of(transfer.file) as u32;
        let (offset, length) = (transfer.offset, transfer.length);
        let described = devices::Transfer { direction, file, offset, length, fresh: false };
        let device = usize::from(transfer.device.0);
        let mut ended = Vec::new();
        let model = self.devices[device].model.as_mut().expect("only described devices delay");
        model.start(now, slot, described, &mut ended);
        ended.into_iter().for_each(|slot| self.release(slot));
    }

    /// Time has passed on described devices: what they have done completes.
    pub(crate) fn pass_described(&mut self) {
        let mut ended = Vec::new();
        for device in 0..self.devices.len() {
            if self.devices[device].model.is_some() {
                let now = self.now();
                let model = self.devices[device].model.as_mut().expect("just seen");
                model.advance(now, &mut ended);
            }
        }
        ended.into_iter().for_each(|slot| self.release(slot));
    }

    /// The description has a transfer done; it completes if the device has, too.
    fn release(&mut self, slot: u32) {
        let transfer = self.flights.transfer(slot);
        transfer.delayed = false;
        if let Some(outcome) = transfer.outcome.take() {
            let now = self.now();
            let completion = self.end_transfer(slot, outcome, now);
            self.ready.extend(completion);
        }
    }

    /// Waits, holding the CPU, until the description has this transfer done.
    #[allow(clippy::disallowed_methods, reason = "the CPU is held, so no task may run meanwhile")]
    pub(crate) fn hold(&mut self, slot: u32) {
        let device = self.flights.transfer(slot).device;
        while self.flights.is_transfer(slot) {
            let next = self.devices[usize::from(device.0)].model.as_ref().and_then(|model| model.next());
            let wait_ns = next.map_or(0, |next| next.since_ns(self.now()));
            if wait_ns > SPIN_NS {
                std::thread::sleep(Duration::from_nanos(wait_ns - SPIN_NS));
            } else {
                std::hint::spin_loop();
            }
            self.pass_described();
        }
    }
}
