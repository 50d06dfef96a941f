use crate::medium::{Image, Medium, sectors};
use crate::{PowerCut, Survival};
use base::Random;
use std::collections::BTreeMap;
use std::ops::Range;

/// What a power cut may undo in one file: for each sector (the unit that is never torn) the durable bytes and every later
/// version that a completed or interrupted write gave it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Unsynced {
    sectors: BTreeMap<u64, Sector>,
    /// The extent of each write that may be undone, by its number.
    writes: BTreeMap<u64, Extent>,
    next: u64,
}

#[derive(Clone, Debug)]
struct Sector {
    durable: Image,
    versions: Vec<Version>,
}

#[derive(Clone, Debug)]
struct Version {
    /// The number of the write that gave it.
    write: u64,
    image: Image,
    /// Whether a failed sync has marked it clean: reads see it, no sync makes it durable.
    forgotten: bool,
}

#[derive(Clone, Copy, Debug)]
struct Extent {
    end: u64,
    length: u32,
}

/// What a power cut does with one write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WriteOutcome {
    Kept,
    Lost,
    Torn,
}

impl Sector {
    fn images(&mut self) -> impl Iterator<Item = &mut Image> {
        std::iter::once(&mut self.durable).chain(self.versions.iter_mut().map(|version| &mut version.image))
    }
}

impl Unsynced {
    /// The number of the next write: all writes so far have smaller ones.
    pub(crate) fn next(&self) -> u64 {
        self.next
    }

    /// Writes to `medium` what a power cut may undo. `unit` is the sector size.
    pub(crate) fn write(&mut self, medium: &mut Medium, unit: usize, offset: u64, data: &[u8]) {
        self.begin(offset, data.len());
        self.write_sectors(medium, unit, offset, data, |_| true);
    }

    /// Like [`Unsynced::write`], but of each sector only if the coin says so; of the whole if it is never torn.
    pub(crate) fn write_partly(
        &mut self,
        medium: &mut Medium,
        unit: usize,
        (offset, data): (u64, &[u8]),
        atomic: u32,
        random: &mut Random,
    ) {
        self.begin(offset, data.len());
        let whole = (data.len() as u64 <= u64::from(atomic)).then(|| random.chance(0.5));
        self.write_sectors(medium, unit, offset, data, |_| whole.unwrap_or_else(|| random.chance(0.5)));
    }

    /// Like [`Unsynced::write`], but no byte changes: what is kept or made durable is that the sectors should hold `data`.
    pub(crate) fn lose(&mut self, medium: &mut Medium, unit: usize, damage: u64, (offset, data): (u64, &[u8])) {
        self.begin(offset, data.len());
        for number in sectors(unit, offset, data.len() as u64) {
            let durable = medium.image(unit, number);
            let mut image = durable.clone();
            image.intend(damage, number, (offset, data));
            medium.put(unit, number, &image);
            self.add_version(number, durable, image);
        }
    }

    fn begin(&mut self, offset: u64, length: usize) {
        self.writes.insert(self.next, Extent { end: offset + length as u64, length: length as u32 });
        self.next += 1;
    }

    fn write_sectors(
        &mut self,
        medium: &mut Medium,
        unit: usize,
        offset: u64,
        data: &[u8],
        mut lands: impl FnMut(u64) -> bool,
    ) {
        let end = offset + data.len() as u64;
        let mut from = offset;
        while from < end {
            let number = from / unit as u64;
            let to = end.min((number + 1) * unit as u64);
            if lands(number) {
                let durable = medium.image(unit, number);
                medium.write(unit, from, &data[(from - offset) as usize..(to - offset) as usize]);
                self.add_version(number, durable, medium.image(unit, number));
            }
            from = to;
        }
    }

    /// The latest write gives a sector this image; `durable` is what it had before.
    fn add_version(&mut self, number: u64, durable: Image, image: Image) {
        let sector = self.sectors.entry(number).or_insert_with(|| Sector { durable, versions: Vec::new() });
        sector.versions.push(Version { write: self.next - 1, image, forgotten: false });
    }

    /// What the latest write to these sectors gave them, where that is not durable.
    pub(crate) fn latest(&mut self, sectors: Range<u64>) -> impl Iterator<Item = (u64, &mut Image)> {
        let found = self.sectors.range_mut(sectors);
        found.filter_map(|(number, sector)| sector.versions.last_mut().map(|version| (*number, &mut version.image)))
    }

    /// What stands at these bytes is durable.
    pub(crate) fn make_durable(&mut self, unit: usize, offset: u64, length: u64) {
        if self.sectors.is_empty() {
            return;
        }
        let (first, end) = (offset / unit as u64, (offset + length).div_ceil(unit as u64));
        let durable_sectors: Vec<u64> = self.sectors.range(first..end).map(|(number, _)| *number).collect();
        for number in durable_sectors {
            self.sectors.remove(&number);
        }
    }

    /// All writes numbered below `limit` are durable. Returns where the last of them ends.
    pub(crate) fn sync(&mut self, limit: u64) -> u64 {
        self.sectors.retain(|_, sector| {
            let due = sector.versions.partition_point(|version| version.write < limit);
            let synced = sector.versions[..due].iter().rposition(|version| !version.forgotten);
            if let Some(Version { image, .. }) = synced.and_then(|last| sector.versions.drain(..=last).next_back()) {
                sector.durable = image;
            }
            !sector.versions.is_empty()
        });
        self.end_writes(limit)
    }

    fn end_writes(&mut self, limit: u64) -> u64 {
        let later = self.writes.split_off(&limit);
        let ended = std::mem::replace(&mut self.writes, later);
        ended.values().map(|extent| extent.end).max().unwrap_or(0)
    }

    /// A sync of all writes numbered below `limit` failed, and no later one will try them again: what each wrote is durable, or
    /// gone, or (if `cached`) still seen by reads and never durable; each of its sectors by itself unless it is never torn.
    pub(crate) fn forget(
        &mut self,
        medium: &mut Medium,
        (unit, atomic): (usize, u32),
        limit: u64,
        cached: bool,
        random: &mut Random,
    ) {
        let mut draw = || random.below(if cached { 3 } else { 2 });
        let whole = self.writes.range(..limit).filter(|(_, extent)| extent.length <= atomic);
        let whole: BTreeMap<u64, u64> = whole.map(|(number, _)| (*number, draw())).collect();
        self.sectors.retain(|number, sector| {
            for version in std::mem::take(&mut sector.versions) {
                if version.write >= limit || version.forgotten {
                    sector.versions.push(version);
                    continue;
                }
                match whole.get(&version.write).copied().unwrap_or_else(&mut draw) {
                    0 => {
                        sector.durable = version.image;
                        sector.versions.clear();
                    }
                    1 => {}
                    _ => sector.versions.push(Version { forgotten: true, ..version }),
                }
            }
            let seen = sector.versions.last().map_or(&sector.durable, |version| &version.image);
            medium.put(unit, *number, seen);
            !sector.versions.is_empty()
        });
        self.end_writes(limit);
    }

    /// What failed syncs have marked clean is read from the medium again.
    pub(crate) fn drop_cache(&mut self, medium: &mut Medium, unit: usize) {
        self.sectors.retain(|number, sector| {
            let before = sector.versions.len();
            sector.versions.retain(|version| !version.forgotten);
            if sector.versions.len() < before {
                let seen = sector.versions.last().map_or(&sector.durable, |version| &version.image);
                medium.put(unit, *number, seen);
            }
            !sector.versions.is_empty()
        });
    }

    /// Everything from `length` on is gone for good.
    pub(crate) fn truncate(&mut self, unit: usize, length: u64) {
        self.sectors.split_off(&length.div_ceil(unit as u64));
        let inside = (length % unit as u64) as usize;
        if let Some(sector) = self.sectors.get_mut(&(length / unit as u64)) {
            sector.images().for_each(|image| image.clear_from(inside));
        }
        self.writes.values_mut().for_each(|extent| extent.end = extent.end.min(length));
    }

    /// The images of these sectors that a power cut, or a file that is opened anew, may bring back.
    pub(crate) fn images_mut(&mut self, sectors: Range<u64>) -> impl Iterator<Item = &mut Image> {
        self.sectors.range_mut(sectors).flat_map(|(_, sector)| sector.images())
    }

    /// The same, to be looked at.
    pub(crate) fn images(&self, sectors: Range<u64>) -> impl Iterator<Item = &Image> {
        let found = self.sectors.range(sectors).map(|(_, sector)| sector);
        found.flat_map(|Sector { durable, versions }| {
            std::iter::once(durable).chain(versions.iter().map(|version| &version.image))
        })
    }

    /// The power goes: every write is kept, lost or torn. Returns where the last surviving byte ends.
    pub(crate) fn power_cut(
        &mut self,
        medium: &mut Medium,
        (unit, atomic): (usize, u32),
        random: &mut Random,
        policy: &PowerCut,
        survival: &mut Survival,
    ) -> u64 {
        let Unsynced { sectors, writes, .. } =
            std::mem::replace(self, Unsynced { next: self.next, ..Unsynced::default() });
        let mut outcomes = BTreeMap::new();
        for sector in sectors.values() {
            for version in sector.versions.iter().filter(|version| !version.forgotten) {
                outcomes.entry(version.write).or_insert(WriteOutcome::Lost);
            }
        }
        for (number, outcome) in &mut outcomes {
            *outcome = draw(random, policy, writes[number].length <= atomic);
            match outcome {
                WriteOutcome::Kept => survival.kept += 1,
                WriteOutcome::Lost => survival.lost += 1,
                WriteOutcome::Torn => survival.torn += 1,
            }
        }
        let mut end = 0;
        for (number, sector) in sectors {
            let mut image = sector.durable;
            for Version { write, image: version, .. } in
                sector.versions.into_iter().filter(|version| !version.forgotten)
            {
                let survives = match outcomes[&write] {
                    WriteOutcome::Kept => true,
                    WriteOutcome::Lost => false,
                    WriteOutcome::Torn => random.chance(0.5),
                };
                if survives {
                    image = version;
                    end = end.max(writes[&write].end.min((number + 1) * unit as u64));
                }
            }
            medium.put(unit, number, &image);
        }
        end
    }
}

fn draw(random: &mut Random, policy: &PowerCut, atomic: bool) -> WriteOutcome {
    let chance = random.unit();
    match (chance < policy.lost, chance < policy.lost + policy.torn) {
        (true, _) => WriteOutcome::Lost,
        (false, true) if !atomic => WriteOutcome::Torn,
        (false, true) => *random.choose(&[WriteOutcome::Kept, WriteOutcome::Lost]).expect("two outcomes"),
        (false, false) => WriteOutcome::Kept,
    }
}
