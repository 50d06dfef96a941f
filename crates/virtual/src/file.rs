use crate::unsynced::{Medium, Unsynced};
use crate::{PowerCut, Survival};
use base::Random;
use driver::{Fault, FaultKind};

/// One file of a described device.
#[derive(Clone, Debug)]
pub(crate) struct File {
    pub(crate) name: String,
    length: u64,
    /// The length that survives a power cut for certain.
    durable_length: u64,
    medium: Medium,
    unsynced: Unsynced,
    /// The unit that is never torn, in bytes.
    unit: usize,
    /// Writes of up to this many bytes are never torn.
    atomic: u32,
    /// Whether the file was removed: then it stays only as what open handles refer to.
    pub(crate) removed: bool,
}

impl File {
    pub(crate) fn new(name: String, alignment: u32, atomic: u32) -> File {
        File {
            name,
            length: 0,
            durable_length: 0,
            medium: Medium::default(),
            unsynced: Unsynced::default(),
            unit: alignment.clamp(64, 512) as usize,
            atomic,
            removed: false,
        }
    }

    pub(crate) fn length(&self) -> u64 {
        self.length
    }

    #[inline]
    pub(crate) fn read(&self, offset: u64, buffer: &mut [u8]) {
        self.medium.bytes.read(offset, buffer);
    }

    /// Why these bytes cannot be read, if a sector among them cannot.
    pub(crate) fn unreadable(&self, device: &str, offset: u64, length: u64) -> Option<Fault> {
        let sector = self.medium.first_unreadable(self.unit, offset, length)?;
        let first = sector * self.unit as u64;
        let message = format!("the sector at byte {first} of file '{}' on device '{device}' is unreadable", self.name);
        Some(Fault::new(FaultKind::Device, message))
    }

    /// A write that no power cut undoes.
    #[inline]
    pub(crate) fn write_durably(&mut self, offset: u64, data: &[u8]) {
        self.medium.write(self.unit, offset, data);
        self.unsynced.settle(self.unit, offset, data.len() as u64);
        self.extend(offset + data.len() as u64);
        self.durable_length = self.durable_length.max(offset + data.len() as u64);
    }

    /// A write that a power cut may undo until it is synced.
    pub(crate) fn write_unsynced(&mut self, offset: u64, data: &[u8]) {
        self.unsynced.write(&mut self.medium, self.unit, offset, data);
        self.extend(offset + data.len() as u64);
    }

    /// A write that failed: some of it stands on the medium.
    pub(crate) fn write_partly(&mut self, offset: u64, data: &[u8], random: &mut Random) {
        self.unsynced.write_partly(&mut self.medium, self.unit, (offset, data), self.atomic, random);
        self.extend(offset + data.len() as u64);
    }

    /// The number that divides the writes so far from those to come.
    pub(crate) fn write_limit(&self) -> u64 {
        self.unsynced.next()
    }

    pub(crate) fn sync(&mut self, limit: u64) {
        self.durable_length = self.durable_length.max(self.unsynced.sync(limit));
    }

    pub(crate) fn extend(&mut self, end: u64) {
        self.length = self.length.max(end);
    }

    pub(crate) fn resize(&mut self, length: u64) {
        if length < self.length {
            self.medium.truncate(self.unit, length);
            self.unsynced.truncate(self.unit, length);
        }
        (self.length, self.durable_length) = (length, length);
    }

    pub(crate) fn remove(&mut self) {
        (self.medium, self.unsynced) = (Medium::default(), Unsynced::default());
        (self.length, self.durable_length, self.removed) = (0, 0, true);
    }

    pub(crate) fn flip(&mut self, offset: u64, mask: u8) {
        let mut byte = [0];
        self.medium.bytes.read(offset, &mut byte);
        self.medium.bytes.write(offset, &[byte[0] ^ mask]);
        self.unsynced.flip(self.unit, offset, mask);
    }

    pub(crate) fn make_unreadable(&mut self, offset: u64, length: u64) {
        let (first, end) = (offset / self.unit as u64, (offset + length).div_ceil(self.unit as u64));
        for number in first..end {
            self.medium.unreadable.insert(number);
            self.unsynced.make_unreadable(number);
        }
    }

    pub(crate) fn power_cut(&mut self, random: &mut Random, policy: &PowerCut, survival: &mut Survival) {
        let end = self.unsynced.power_cut(&mut self.medium, (self.unit, self.atomic), random, policy, survival);
        self.length = self.durable_length.max(end);
        self.durable_length = self.length;
        self.medium.truncate(self.unit, self.length);
    }
}
