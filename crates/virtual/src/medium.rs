use crate::sparse::Sparse;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// What stands in a file, and where that is damaged, what should.
#[derive(Clone, Debug, Default)]
pub(crate) struct Medium {
    pub(crate) bytes: Sparse,
    /// The numbers of sectors that cannot be read until they are written again.
    unreadable: BTreeSet<u64>,
    /// What damaged sectors should hold, by their numbers.
    intended: BTreeMap<u64, Intended>,
}

/// What a damaged sector should hold.
#[derive(Clone, Debug)]
struct Intended {
    /// The number of the damage that has last hit it.
    damage: u64,
    bytes: Box<[u8]>,
}

/// What a sector holds.
#[derive(Clone, Debug)]
pub(crate) struct Image {
    bytes: Box<[u8]>,
    unreadable: bool,
    /// What it should hold, if it is damaged.
    intended: Option<Intended>,
}

impl Medium {
    /// Writes; sectors that are written whole can be read again, and hold what they should.
    pub(crate) fn write(&mut self, unit: usize, offset: u64, data: &[u8]) {
        self.bytes.write(offset, data);
        let whole = offset.div_ceil(unit as u64)..(offset + data.len() as u64) / unit as u64;
        if !self.unreadable.is_empty() {
            self.unreadable.retain(|number| !whole.contains(number));
        }
        if !self.intended.is_empty() {
            self.intended.retain(|number, _| !whole.contains(number));
            for number in sectors(unit, offset, data.len() as u64) {
                if let Some(intended) = self.intended.get_mut(&number) {
                    overlay(&mut intended.bytes, number * unit as u64, offset, data);
                }
            }
        }
    }

    /// The first sector among these bytes that cannot be read.
    pub(crate) fn first_unreadable(&self, unit: usize, offset: u64, length: u64) -> Option<u64> {
        self.unreadable.range(sectors(unit, offset, length)).next().copied()
    }

    /// The numbers of the damages of the sectors that these bytes touch.
    pub(crate) fn damages(&self, unit: usize, offset: u64, length: u64) -> impl Iterator<Item = u64> {
        self.intended.range(sectors(unit, offset, length)).map(|(_, intended)| intended.damage)
    }

    /// Forgets everything from `length` on.
    pub(crate) fn truncate(&mut self, unit: usize, length: u64) {
        self.bytes.truncate(length);
        let beyond = length.div_ceil(unit as u64);
        self.unreadable.split_off(&beyond);
        self.intended.split_off(&beyond);
        if let Some(intended) = self.intended.get_mut(&(length / unit as u64)) {
            intended.bytes[(length % unit as u64) as usize..].fill(0);
        }
    }

    pub(crate) fn image(&self, unit: usize, number: u64) -> Image {
        let mut bytes = vec![0; unit].into_boxed_slice();
        self.bytes.read(number * unit as u64, &mut bytes);
        let intended = self.intended.get(&number).cloned();
        Image { bytes, unreadable: self.unreadable.contains(&number), intended }
    }

    pub(crate) fn put(&mut self, unit: usize, number: u64, image: &Image) {
        self.bytes.write(number * unit as u64, &image.bytes);
        match image.unreadable {
            true => self.unreadable.insert(number),
            false => self.unreadable.remove(&number),
        };
        match &image.intended {
            Some(intended) => self.intended.insert(number, intended.clone()),
            None => self.intended.remove(&number),
        };
    }
}

impl Image {
    /// The sector becomes damaged: what it holds, or should hold already, stays known.
    pub(crate) fn damage(&mut self, damage: u64, inflict: impl FnOnce(&mut [u8], &mut bool)) {
        self.intended_by(damage);
        inflict(&mut self.bytes, &mut self.unreadable);
    }

    /// Sector `number` should hold `data` from `offset` of its file on, and does not.
    pub(crate) fn intend(&mut self, damage: u64, number: u64, (offset, data): (u64, &[u8])) {
        let first = number * self.bytes.len() as u64;
        overlay(self.intended_by(damage), first, offset, data);
    }

    /// What it should hold, which this damage keeps it from.
    fn intended_by(&mut self, damage: u64) -> &mut [u8] {
        let intended = self.intended.get_or_insert_with(|| Intended { damage, bytes: self.bytes.clone() });
        intended.damage = damage;
        &mut intended.bytes
    }

    /// It should hold what it held, or should have held, before it was overwritten.
    pub(crate) fn intend_as(&mut self, damage: u64, before: &Image) {
        let bytes = before.intended.as_ref().map_or(&before.bytes, |intended| &intended.bytes).clone();
        self.intended = Some(Intended { damage, bytes });
    }

    /// The damage, if it is damaged.
    pub(crate) fn damage_number(&self) -> Option<u64> {
        self.intended.as_ref().map(|intended| intended.damage)
    }

    /// It holds what it should.
    pub(crate) fn repair(&mut self) {
        if let Some(intended) = self.intended.take() {
            (self.bytes, self.unreadable) = (intended.bytes, false);
        }
    }

    /// What lies behind the end of the file is blank.
    pub(crate) fn clear_from(&mut self, inside: usize) {
        self.bytes[inside..].fill(0);
        self.intended.iter_mut().for_each(|intended| intended.bytes[inside..].fill(0));
    }
}

/// The numbers of the sectors that these bytes touch.
pub(crate) fn sectors(unit: usize, offset: u64, length: u64) -> Range<u64> {
    let (first, end) = (offset / unit as u64, offset.saturating_add(length).div_ceil(unit as u64));
    first..end.max(first)
}

/// Copies what of `data`, which begins at `offset`, lies in the sector that begins at `first`.
fn overlay(sector: &mut [u8], first: u64, offset: u64, data: &[u8]) {
    let (from, to) = (offset.max(first), (offset + data.len() as u64).min(first + sector.len() as u64));
    if from < to {
        let (inside, taken) = ((from - first) as usize, (from - offset) as usize);
        let length = (to - from) as usize;
        sector[inside..inside + length].copy_from_slice(&data[taken..taken + length]);
    }
}
