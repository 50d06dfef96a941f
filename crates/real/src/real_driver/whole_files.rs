//! Work on whole files, which threads do, and what the driver knows of a file from its opening to its removal.

use super::{RealDriver, not_open};
use crate::descriptors;
use crate::files::{Device, OpenFile, index_of};
use crate::flight::Flight;
use crate::job::Job;
use crate::mailbox::Opened;
use crate::mapped::Mapping;
use driver::{DeviceId, Fault, FileId, Output, Token};
use std::sync::Arc;

impl RealDriver {
    pub(super) fn begin_job(&mut self, token: Token, flight: Flight, job: Job) {
        let slot = self.flights.insert(token, flight);
        self.file_workers.push([(slot, job)]);
    }

    pub(super) fn begin_on_device(&mut self, token: Token, id: DeviceId, make: impl FnOnce(&Device) -> (Flight, Job)) {
        match self.device_of(id).map(make) {
            Ok((flight, job)) => self.begin_job(token, flight, job),
            Err(fault) => self.finish(token, Err(fault), None),
        }
    }

    pub(super) fn begin_open(&mut self, token: Token, device: DeviceId, name: String, create: bool) {
        if let Err(fault) = self.keep_locks() {
            return self.finish(token, Err(fault), None);
        }
        self.begin_on_device(token, device, |at| {
            let (place, direct) = (at.place.clone(), at.medium.buffered.is_none());
            let allocate = at.mapped.is_some();
            (Flight::Open(device, name.clone()), Job::Open { place, name, create, direct, allocate })
        });
    }

    /// Has the kernel keep the locks that were taken since, before there is a file that could be written.
    fn keep_locks(&mut self) -> Result<(), Fault> {
        while let Some(fd) = self.locks.descriptor(self.kept_locks) {
            self.mechanism.keep_lock(self.kept_locks as u32, fd)?;
            self.kept_locks += 1;
        }
        Ok(())
    }

    pub(super) fn begin_resize(&mut self, token: Token, (id, length): (FileId, u64), prewrite: bool) {
        let Some(open) = self.files.get(id) else { return self.finish(token, Err(not_open(id)), None) };
        let device = &self.devices[usize::from(open.device.0)];
        let path = device.place.path.join(&open.name);
        open.mapping.iter_mut().for_each(|mapping| mapping.begin_resize(length));
        let (file, prewrite) = (Arc::clone(&open.file), prewrite && !device.medium.memory);
        let job = Job::Resize { file, path, length, prewrite };
        self.files.hold(id);
        self.begin_job(token, Flight::Resize(id), job);
    }

    /// What else changes when work on a whole file has ended.
    pub(super) fn conclude(&mut self, flight: Flight, succeeded: bool) {
        let released = match flight {
            Flight::Resize(id) => self.files.release(id).map(|file| (id, file)),
            Flight::Remove(device, name) if succeeded => {
                self.files.find(device, &name).and_then(|id| self.files.mark_removed(id).map(|file| (id, file)))
            }
            _ => None,
        };
        if let Some((id, file)) = released {
            self.close(file, id);
        }
    }

    pub(super) fn enter_file(&mut self, device: DeviceId, name: String, opened: Opened) -> Result<Output, Fault> {
        let Opened { file, length, direct } = opened;
        if let Some(file) = self.files.open_again(device, &name, &file) {
            return Ok(Output::Opened { file, length });
        }
        let path = self.devices[usize::from(device.0)].place.path.join(&name);
        let mapped = self.devices[usize::from(device.0)].mapped;
        let mapping = mapped.map(|mode| Mapping::new(&file, length, mode, &path)).transpose()?;
        let buffered = &mut self.devices[usize::from(device.0)].medium.buffered;
        if !direct && buffered.is_none() {
            *buffered = Some(format!("direct I/O refused for '{name}'"));
        }
        let id = self.files.insert(device, name, file).map_err(|_| descriptors::table_is_full(&path))?;
        let place = index_of(id) as u32;
        let open = self.files.get(id).expect("just entered");
        open.mapping = mapping;
        open.registered = self.mechanism.register_file(place, open.fd()).then_some(place);
        Ok(Output::Opened { file: id, length })
    }

    /// Lets a removed file go, on a thread that may take its time.
    pub(super) fn close(&mut self, file: OpenFile, id: FileId) {
        if file.registered.is_some() {
            self.mechanism.forget_file(index_of(id) as u32);
        }
        self.file_workers.push([(u32::MAX, Job::Close { file: file.file })]);
    }
}
