//! What operations do to the contents of devices, apart from the time they take.

use crate::faults::Faults;
use crate::media::{Contents, Interrupted, not_found};
use crate::{Injury, Media};
use devices::{Device, Hardware};
use driver::{DeviceId, DeviceTraits, Fault, FaultKind, FileId, Frame, Op, OpKind, Output};

/// An open file: where it lies.
#[derive(Clone, Copy)]
pub(crate) struct Opened {
    pub(crate) device: DeviceId,
    /// The file's place in the media.
    pub(crate) file: usize,
}

/// The described devices with their contents and the files that one driver has open.
pub(crate) struct Disks {
    pub(crate) media: Media,
    devices: Vec<(String, Device)>,
    open: Vec<Opened>,
    discard: Vec<String>,
}

type Outcome = Result<Output, Fault>;

impl Disks {
    pub(crate) fn new(hardware: Hardware, media: Media, discard: Vec<String>) -> Disks {
        let devices: Vec<_> = hardware.devices.into_iter().collect();
        for (name, device) in &devices {
            media.0.borrow_mut().register(name, device.volatile);
        }
        Disks { media, devices, open: Vec::new(), discard }
    }

    pub(crate) fn device(&self, name: &str) -> Option<DeviceId> {
        self.devices.iter().position(|(known, _)| known == name).map(|index| DeviceId(index as u16))
    }

    pub(crate) fn name(&self, device: DeviceId) -> Option<&str> {
        self.devices.get(usize::from(device.0)).map(|(name, _)| name.as_str())
    }

    /// The name of a file by its place in the media.
    pub(crate) fn file_name(&self, file: u32) -> String {
        self.media.0.borrow().files.get(file as usize).map_or_else(String::new, |file| file.name.clone())
    }

    pub(crate) fn traits(&self, device: DeviceId) -> DeviceTraits {
        let (_, device) = &self.devices[usize::from(device.0)];
        DeviceTraits {
            atomic_write: device.atomic_write,
            untorn_on_request: 0,
            alignment: device.alignment,
            synchronous: device.synchronous,
            durable: !device.volatile,
        }
    }

    pub(crate) fn opened(&self, file: FileId) -> Option<Opened> {
        self.open.get(file.0 as usize).copied()
    }

    /// Which writes a sync submitted now concerns.
    pub(crate) fn write_limit(&self, file: FileId) -> u64 {
        self.opened(file).map_or(0, |opened| self.media.0.borrow().files[opened.file].write_limit())
    }

    /// The operation happens. `limit` is a sync's, from its submission; without `faults` nothing is kept that could be undone.
    pub(crate) fn perform(
        &mut self,
        op: Op,
        limit: u64,
        cancelled: bool,
        faults: Option<&mut Faults>,
    ) -> (Outcome, Option<Frame>) {
        match op {
            Op::Read { file, offset, length, mut buffer, .. } => {
                let result = self.read(file, offset, &mut buffer[..length as usize], cancelled, faults);
                (result, Some(buffer))
            }
            Op::Write { file, offset, length, buffer, durable, .. } => {
                let result = self.write(file, (offset, &buffer[..length as usize]), durable, cancelled, faults);
                (result, Some(buffer))
            }
            Op::Sync { file } => (self.sync(file, limit, cancelled, faults), None),
            Op::Open { device, name, create } => (self.open(device, name, create, faults), None),
            Op::Resize { file, length, prewrite } => (self.resize(file, (length, prewrite), faults), None),
            Op::Remove { device, name } => {
                let removed = self.undamaged(device, &name, OpKind::Remove, faults).map(|known| {
                    self.media.0.borrow_mut().remove(known, &name);
                    Output::Done
                });
                (removed, None)
            }
            Op::List { device } => {
                let known = self.undamaged(device, "", OpKind::List, faults);
                (known.map(|known| Output::Names(self.media.0.borrow().names(known))), None)
            }
            Op::Cpu { .. } => (Ok(Output::Done), None),
            Op::Listen { .. }
            | Op::Accept { .. }
            | Op::Connect { .. }
            | Op::Send { .. }
            | Op::Receive { .. }
            | Op::Shutdown { .. }
            | Op::Close { .. } => unreachable!("no device is concerned"),
            Op::Compute { run, .. } => {
                run();
                (Ok(Output::Done), None)
            }
        }
    }

    /// The power goes while this operation is under way: what it may have done is left to [`Media::power_cut`].
    pub(crate) fn interrupt(&mut self, op: Op) {
        let mut contents = self.media.0.borrow_mut();
        match op {
            Op::Write { file, offset, length, buffer, .. } => {
                if let Some(opened) = self.opened(file)
                    && !self.discards(&contents, opened)
                {
                    let file = &mut contents.files[opened.file];
                    if !file.removed {
                        file.write_unsynced(offset, &buffer[..length as usize]);
                    }
                }
            }
            Op::Resize { file, length, .. } => {
                if let Some(Opened { device, file }) = self.opened(file) {
                    let device = self.devices[usize::from(device.0)].0.clone();
                    contents.interrupted.push(Interrupted::Resize { device, file, length });
                }
            }
            Op::Open { device, name, create: true } => {
                if let Some((device, description)) = self.devices.get(usize::from(device.0)).cloned() {
                    let description = Box::new(description);
                    contents.interrupted.push(Interrupted::Create { device, name, description });
                }
            }
            Op::Remove { device, name } => {
                if let Some((device, _)) = self.devices.get(usize::from(device.0)).cloned() {
                    contents.interrupted.push(Interrupted::Remove { device, name });
                }
            }
            _ => {}
        }
    }

    fn known(&self, device: DeviceId) -> Result<&str, Fault> {
        self.name(device).ok_or_else(|| Fault::new(FaultKind::NotFound, format!("there is no device {}", device.0)))
    }

    /// The device's name, unless the operation on this name there fails.
    fn undamaged(
        &self,
        device: DeviceId,
        name: &str,
        kind: OpKind,
        faults: Option<&mut Faults>,
    ) -> Result<&str, Fault> {
        let known = self.known(device)?;
        match faults.and_then(|faults| faults.injury(kind, known)) {
            Some(injury) => Err(refusal(injury, format!("{kind:?} of '{name}' on device '{known}'"))),
            None => Ok(known),
        }
    }

    fn discards(&self, contents: &Contents, opened: Opened) -> bool {
        let name = &contents.files[opened.file].name;
        self.discard.iter().any(|prefix| name.starts_with(prefix.as_str()))
    }

    /// The open file, or why it cannot be used; also for transfers that its device would refuse.
    fn usable(&self, contents: &Contents, file: FileId, offset: u64, length: usize) -> Result<Opened, Fault> {
        let opened = self.opened(file);
        let opened = opened.ok_or_else(|| Fault::new(FaultKind::NotFound, format!("file {} is not open", file.0)))?;
        let (device, description) = &self.devices[usize::from(opened.device.0)];
        let file = &contents.files[opened.file];
        if file.removed {
            return Err(not_found(device, &file.name));
        }
        let alignment = u64::from(description.alignment);
        if !offset.is_multiple_of(alignment) || !(length as u64).is_multiple_of(alignment) {
            let extent = format!("{length} bytes at {offset} of file '{}'", file.name);
            let message = format!("{extent} are not aligned to the {alignment} bytes of device '{device}'");
            return Err(Fault::new(FaultKind::Unsupported, message));
        }
        Ok(opened)
    }

    fn failure(&self, contents: &Contents, opened: Opened, kind: OpKind, injury: Option<Injury>) -> Fault {
        let device = &self.devices[usize::from(opened.device.0)].0;
        let what = format!("{kind:?} of file '{}' on device '{device}'", contents.files[opened.file].name);
        match injury {
            Some(injury) => refusal(injury, what),
            None => Fault::new(FaultKind::Cancelled, format!("{what} was cancelled")),
        }
    }

    /// What the plan does to an operation that was not cancelled.
    fn injury(
        &self,
        opened: Opened,
        kind: OpKind,
        cancelled: bool,
        faults: &mut Option<&mut Faults>,
    ) -> Option<Injury> {
        let device = &self.devices[usize::from(opened.device.0)].0;
        faults.as_mut().filter(|_| !cancelled)?.injury(kind, device)
    }

    fn read(
        &self,
        file: FileId,
        offset: u64,
        buffer: &mut [u8],
        cancelled: bool,
        mut faults: Option<&mut Faults>,
    ) -> Outcome {
        let contents = &mut *self.media.0.borrow_mut();
        let opened = self.usable(contents, file, offset, buffer.len())?;
        let injury = self.injury(opened, OpKind::Read, cancelled, &mut faults);
        if cancelled || injury.is_some() {
            return Err(self.failure(contents, opened, OpKind::Read, injury));
        }
        let file = &mut contents.files[opened.file];
        let end = offset.saturating_add(buffer.len() as u64);
        if end > file.length() {
            let message =
                format!("a read to byte {end} of file '{}' ends beyond its {} bytes", file.name, file.length());
            return Err(Fault::new(FaultKind::EndOfFile, message));
        }
        let device = &self.devices[usize::from(opened.device.0)].0;
        file.note_read(offset, buffer.len() as u64);
        if let Some(fault) = file.unreadable(device, offset, buffer.len() as u64) {
            return Err(fault);
        }
        let is_stale = file.read_or_stale(offset, buffer);
        if let Some(faults) = faults {
            faults.injected.stale_reads += u64::from(is_stale);
        }
        Ok(Output::Done)
    }

    fn write(
        &self,
        file: FileId,
        (offset, data): (u64, &[u8]),
        durable: bool,
        cancelled: bool,
        mut faults: Option<&mut Faults>,
    ) -> Outcome {
        let contents = &mut *self.media.0.borrow_mut();
        let opened = self.usable(contents, file, offset, data.len())?;
        let (device, description) = &self.devices[usize::from(opened.device.0)];
        let end = offset.saturating_add(data.len() as u64);
        if end > contents.files[opened.file].length() {
            contents.reserve(device, opened.file, end, description.capacity)?;
        }
        let injury = self.injury(opened, OpKind::Write, cancelled, &mut faults);
        let fails = cancelled || matches!(injury, Some(Injury::Fail | Injury::NoSpace));
        let discards = !self.discard.is_empty() && self.discards(contents, opened);
        let number = contents.new_damage();
        let file = &mut contents.files[opened.file];
        let durable = durable || faults.is_none() || description.keeps_completed_writes();
        match (&mut faults, injury) {
            _ if discards => file.extend(end),
            (_, Some(Injury::NoSpace)) => {}
            (Some(faults), _) if fails => file.write_partly(offset, data, &mut faults.random),
            (_, Some(Injury::Lose)) => file.lose(number, offset, data, durable),
            (Some(faults), Some(Injury::Misdirect)) => {
                if let Some(place) = file.elsewhere(offset, data.len() as u64, &mut faults.random) {
                    file.write_astray(number, place, data, durable);
                }
                file.lose(number, offset, data, durable);
            }
            (_, injury) => {
                if injury == Some(Injury::Stale) {
                    file.make_stale(number, offset, data.len());
                }
                match durable {
                    true => file.write_durably(offset, data),
                    false => file.write_unsynced(offset, data),
                }
            }
        }
        let flip = faults.filter(|_| !discards).and_then(|faults| faults.flips(device, data.len() as u32));
        if let Some((byte, mask)) = flip {
            file.flip(number, offset + byte, mask);
        }
        if fails {
            return Err(self.failure(contents, opened, OpKind::Write, injury));
        }
        Ok(Output::Done)
    }

    fn sync(&self, file: FileId, limit: u64, cancelled: bool, mut faults: Option<&mut Faults>) -> Outcome {
        let contents = &mut *self.media.0.borrow_mut();
        let opened = self.usable(contents, file, 0, 0)?;
        let injury = self.injury(opened, OpKind::Sync, cancelled, &mut faults);
        if let (Some(Injury::Forget { cached }), Some(faults)) = (injury, faults) {
            contents.files[opened.file].forget(limit, cached, &mut faults.random);
        }
        if cancelled || injury.is_some() {
            return Err(self.failure(contents, opened, OpKind::Sync, injury));
        }
        contents.files[opened.file].sync(limit);
        Ok(Output::Done)
    }

    fn open(&mut self, device: DeviceId, name: String, create: bool, mut faults: Option<&mut Faults>) -> Outcome {
        self.undamaged(device, &name, OpKind::Open, faults.as_deref_mut())?;
        let (known, description) = &self.devices[usize::from(device.0)];
        let contents = &mut *self.media.0.borrow_mut();
        let file = match contents.find(known, &name) {
            Some(file) => {
                if faults.is_none_or(|faults| !faults.keeps_cache()) {
                    contents.files[file].drop_cache();
                }
                file
            }
            None if create => contents.create(known, &name, description),
            None => return Err(not_found(known, &name)),
        };
        self.open.push(Opened { device, file });
        Ok(Output::Opened { file: FileId(self.open.len() as u32 - 1), length: contents.files[file].length() })
    }

    fn resize(&self, file: FileId, (length, prewrite): (u64, bool), mut faults: Option<&mut Faults>) -> Outcome {
        let contents = &mut *self.media.0.borrow_mut();
        let opened = self.usable(contents, file, 0, 0)?;
        if let Some(injury) = self.injury(opened, OpKind::Resize, false, &mut faults) {
            return Err(self.failure(contents, opened, OpKind::Resize, Some(injury)));
        }
        let (device, description) = &self.devices[usize::from(opened.device.0)];
        contents.reserve(device, opened.file, length, description.capacity)?;
        let file = &mut contents.files[opened.file];
        if !prewrite && length > file.length() {
            file.note_fresh(file.length()..length);
        }
        file.resize(length);
        Ok(Output::Done)
    }
}

/// The fault of an operation that this injury keeps from succeeding.
fn refusal(injury: Injury, what: String) -> Fault {
    match injury {
        Injury::NoSpace => Fault::new(FaultKind::NoSpace, format!("{what} found no room (injected)")),
        _ => Fault::new(FaultKind::Device, format!("{what} failed (injected)")),
    }
}
