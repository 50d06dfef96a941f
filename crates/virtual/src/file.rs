use crate::fresh::Fresh;
use crate::medium::{Image, Medium, sectors};
use crate::unsynced::Unsynced;
use crate::{MediaDamage, PowerCut, Survival};
use base::Random;
use driver::{Fault, FaultKind};
use std::ops::Range;

/// One file of a described device.
#[derive(Clone, Debug)]
pub(crate) struct File {
    pub(crate) name: String,
    length: u64,
    /// The length that survives a power cut for certain.
    durable_length: u64,
    medium: Medium,
    unsynced: Unsynced,
    /// What reads of these extents are still given.
    stale: Vec<Stale>,
    /// Whatever was done to it that it should not show.
    damages: Vec<FileDamage>,
    /// What was never written, where that makes writes slower.
    fresh: Option<Fresh>,
    /// The unit that is never torn, in bytes.
    unit: usize,
    /// Writes of up to this many bytes are never torn.
    atomic: u32,
    /// Whether the file was removed: then it stays only as what open handles refer to.
    pub(crate) removed: bool,
}

/// What the next read of an extent is given in place of what was written.
#[derive(Clone, Debug)]
struct Stale {
    /// The damage's number.
    number: u64,
    offset: u64,
    bytes: Vec<u8>,
}

/// A damage: its number, where it is, and whether a read met it.
#[derive(Clone, Debug)]
struct FileDamage {
    number: u64,
    places: Vec<Range<u64>>,
    is_met: bool,
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
            damages: Vec::new(),
            fresh: None,
            unit: alignment.clamp(64, 512) as usize,
            atomic,
            removed: false,
        }
    }

    /// From now on it is known where nothing was ever written.
    pub(crate) fn track_fresh(&mut self) {
        self.fresh = Some(Fresh::default());
    }

    /// These bytes are there without having been written.
    pub(crate) fn note_fresh(&mut self, range: Range<u64>) {
        self.fresh.iter_mut().for_each(|fresh| fresh.add(range.clone()));
    }

    /// Whether a write of these bytes is the first one of some of them. From now on it is not.
    pub(crate) fn write_is_fresh(&mut self, range: Range<u64>) -> bool {
        let length = self.length;
        let Some(fresh) = &mut self.fresh else { return false };
        if range.start > length {
            fresh.add(length..range.start);
        }
        fresh.take(range.clone()) || range.end > length
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
        let touches = |stale: &Stale| stale.offset < end && offset < stale.offset + stale.bytes.len() as u64;
        let (given, kept): (Vec<Stale>, Vec<Stale>) = std::mem::take(&mut self.stale).into_iter().partition(touches);
        self.stale = kept;
        for Stale { number, offset: from, bytes } in &given {
            let (first, last) = (offset.max(*from), end.min(from + bytes.len() as u64));
            let old = &bytes[(first - from) as usize..(last - from) as usize];
            buffer[(first - offset) as usize..(last - offset) as usize].copy_from_slice(old);
            self.damages.iter_mut().filter(|damage| damage.number == *number).for_each(|damage| damage.is_met = true);
        }
        !given.is_empty()
    }

    /// The next read of any of these bytes is given what stands there now, whatever is written meanwhile.
    pub(crate) fn make_stale(&mut self, number: u64, offset: u64, length: usize) {
        let mut bytes = vec![0; length];
        self.medium.bytes.read(offset, &mut bytes);
        self.stale.push(Stale { number, offset, bytes });
        self.note_damage(number, offset..offset + length as u64);
    }

    fn note_damage(&mut self, number: u64, place: Range<u64>) {
        match self.damages.last_mut().filter(|latest| latest.number == number) {
            Some(latest) => latest.places.push(place),
            None => self.damages.push(FileDamage { number, places: vec![place], is_met: false }),
        }
    }

    /// A read takes place, whatever it is given.
    pub(crate) fn note_read(&mut self, offset: u64, length: u64) {
        for number in self.medium.damages(self.unit, offset, length) {
            let met = self.damages.iter_mut().filter(|damage| damage.number == number);
            met.for_each(|damage| damage.is_met = true);
        }
    }

    /// All that was damaged, be it mended since or not.
    pub(crate) fn damages(&self) -> impl Iterator<Item = MediaDamage> {
        self.damages.iter().map(|FileDamage { number, places, is_met }| {
            let is_present = self.stale.iter().any(|stale| stale.number == *number)
                || places.iter().any(|place| self.is_damaged(*number, place));
            MediaDamage {
                number: *number,
                places: places.clone(),
                is_met: *is_met,
                is_present,
                is_removed: self.removed,
            }
        })
    }

    /// Whether a damage shows in these bytes, or would if the power went now.
    fn is_damaged(&self, damage: u64, place: &Range<u64>) -> bool {
        let length = place.end - place.start;
        let mut shown = self.medium.damages(self.unit, place.start, length);
        let mut kept = self.unsynced.images(sectors(self.unit, place.start, length));
        shown.any(|number| number == damage) || kept.any(|image| image.damage_number() == Some(damage))
    }

    /// Everything is as if nothing had been damaged, but for what was written since.
    pub(crate) fn repair(&mut self) {
        self.stale.clear();
        for place in self.damages.iter().flat_map(|damage| damage.places.clone()).collect::<Vec<_>>() {
            self.change_images(sectors(self.unit, place.start, place.end - place.start), Image::repair);
        }
    }

    /// Changes sectors in whichever versions there are of them.
    fn change_images(&mut self, sectors: Range<u64>, mut change: impl FnMut(&mut Image)) {
        for number in sectors.clone() {
            let mut image = self.medium.image(self.unit, number);
            change(&mut image);
            self.medium.put(self.unit, number, &image);
        }
        self.unsynced.images_mut(sectors).for_each(change);
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
            self.fresh.iter_mut().for_each(|fresh| _ = fresh.take(length..u64::MAX));
        }
        (self.length, self.durable_length) = (length, length);
    }

    pub(crate) fn remove(&mut self) {
        (self.medium, self.unsynced) = (Medium::default(), Unsynced::default());
        self.stale.clear();
        (self.length, self.durable_length, self.removed) = (0, 0, true);
    }

    /// A bit of the medium flips.
    pub(crate) fn flip(&mut self, damage: u64, offset: u64, mask: u8) {
        let inside = (offset % self.unit as u64) as usize;
        let flip = |image: &mut Image| image.damage(damage, |bytes, _| bytes[inside] ^= mask);
        self.change_images(sectors(self.unit, offset, 1), flip);
        self.note_damage(damage, offset..offset + 1);
    }

    /// Sectors cannot be read any more.
    pub(crate) fn make_unreadable(&mut self, damage: u64, offset: u64, length: u64) {
        let unreadable = |image: &mut Image| image.damage(damage, |_, unreadable| *unreadable = true);
        self.change_images(sectors(self.unit, offset, length), unreadable);
        self.note_damage(damage, offset..offset + length);
    }

    /// A write that is acknowledged and changes nothing.
    pub(crate) fn lose(&mut self, damage: u64, offset: u64, data: &[u8], durable: bool) {
        self.unsynced.lose(&mut self.medium, self.unit, damage, (offset, data));
        let end = offset + data.len() as u64;
        self.extend(end);
        if durable {
            self.unsynced.make_durable(self.unit, offset, data.len() as u64);
            self.durable_length = self.durable_length.max(end);
        }
        self.note_damage(damage, offset..end);
    }

    /// Something is written where it does not belong.
    pub(crate) fn write_astray(&mut self, damage: u64, place: u64, data: &[u8], durable: bool) {
        let touched = sectors(self.unit, place, data.len() as u64);
        let before: Vec<Image> = touched.clone().map(|sector| self.medium.image(self.unit, sector)).collect();
        match durable {
            true => self.write_durably(place, data),
            false => self.write_unsynced(place, data),
        }
        for (sector, before) in touched.clone().zip(&before) {
            let mut image = self.medium.image(self.unit, sector);
            image.intend_as(damage, before);
            self.medium.put(self.unit, sector, &image);
        }
        for (sector, image) in self.unsynced.latest(touched.clone()) {
            image.intend_as(damage, &before[(sector - touched.start) as usize]);
        }
        self.note_damage(damage, place..place + data.len() as u64);
    }

    pub(crate) fn power_cut(&mut self, random: &mut Random, policy: &PowerCut, survival: &mut Survival) {
        let end = self.unsynced.power_cut(&mut self.medium, (self.unit, self.atomic), random, policy, survival);
        self.stale.clear();
        self.length = self.durable_length.max(end);
        self.durable_length = self.length;
        self.medium.truncate(self.unit, self.length);
    }
}
