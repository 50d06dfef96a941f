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
    /// What reads of these extents are still given: offset and bytes.
    stale: Vec<(u64, Vec<u8>)>,
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
            stale: Vec::new(),
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

    /// What a read gives; true if that is not what was written last. An old version is given once.
    pub(crate) fn read_or_stale(&mut self, offset: u64, buffer: &mut [u8]) -> bool {
        self.medium.bytes.read(offset, buffer);
        if self.stale.is_empty() {
            return false;
        }
        let end = offset + buffer.len() as u64;
        let touches = |(from, bytes): &(u64, Vec<u8>)| *from < end && offset < from + bytes.len() as u64;
        let (given, kept) = std::mem::take(&mut self.stale).into_iter().partition(touches);
        self.stale = kept;
        for (from, bytes) in &given {
            let (first, last) = (offset.max(*from), end.min(from + bytes.len() as u64));
            let old = &bytes[(first - from) as usize..(last - from) as usize];
            buffer[(first - offset) as usize..(last - offset) as usize].copy_from_slice(old);
        }
        !Vec::is_empty(&given)
    }

    /// The next read of any of these bytes is given what stands there now, whatever is written meanwhile.
    pub(crate) fn make_stale(&mut self, offset: u64, length: usize) {
        let mut bytes = vec![0; length];
        self.medium.bytes.read(offset, &mut bytes);
        self.stale.push((offset, bytes));
    }

    /// Another place in the file for a write of this length, if there is one.
    pub(crate) fn elsewhere(&self, offset: u64, length: u64, random: &mut Random) -> Option<u64> {
        let places = self.length.checked_div(length)?;
        let other = (places > 1).then(|| random.below(places) * length)?;
        let is_apart = |place: u64| place + length <= offset || offset + length <= place;
        let neighbours = [other, offset.wrapping_add(length), offset.wrapping_sub(length)];
        neighbours.into_iter().find(|place| is_apart(*place) && place.saturating_add(length) <= self.length)
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
        self.unsynced.make_durable(self.unit, offset, data.len() as u64);
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

    /// A sync failed and what it was to make durable is given up; see [`Unsynced::forget`].
    pub(crate) fn forget(&mut self, limit: u64, cached: bool, random: &mut Random) {
        self.unsynced.forget(&mut self.medium, (self.unit, self.atomic), limit, cached, random);
    }

    /// The file is opened anew; see [`Unsynced::drop_cache`].
    pub(crate) fn drop_cache(&mut self) {
        self.unsynced.drop_cache(&mut self.medium, self.unit);
    }

    pub(crate) fn extend(&mut self, end: u64) {
        self.length = self.length.max(end);
    }

    pub(crate) fn resize(&mut self, length: u64) {
        if length < self.length {
            self.medium.truncate(self.unit, length);
            self.unsynced.truncate(self.unit, length);
            self.stale.clear();
        }
        (self.length, self.durable_length) = (length, length);
    }

    pub(crate) fn remove(&mut self) {
        (self.medium, self.unsynced) = (Medium::default(), Unsynced::default());
        self.stale.clear();
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
        self.stale.clear();
        self.length = self.durable_length.max(end);
        self.durable_length = self.length;
        self.medium.truncate(self.unit, self.length);
    }
}
