//! Damage to data at rest: bits that flip, sectors that become unreadable, in every stored copy.

use crate::configuration::{CACHE_DEVICE, LOG_DEVICES, SEGMENT_SIZE};
use crate::damage::Damage;
use crate::oracle::Oracle;
use crate::{Configuration, FaultKind, Step};
use base::{Lsn, Random};
use engine::PartitionSpec;
use engine::catalog::Organization;
use engine::log::{Acknowledged, page};
use engine::page::header;
use virtual_driver::Media;

/// The devices that partitions are on.
const DATA_DEVICES: [&str; 2] = ["disk", "flash"];

/// The write buffer of the log.
const LOG_BUFFER: &str = "log-buffer.tier";

/// Among how many pages one is looked for that was written.
const LOOKED_AT: u64 = 200;

/// A byte of something that is stored.
struct StoredByte {
    device: &'static str,
    file: String,
    offset: u64,
    /// Whether there is, for certain, another copy that serves.
    is_redundant: bool,
}

impl StoredByte {
    fn alone(device: &'static str, file: &str, offset: u64) -> StoredByte {
        StoredByte { device, file: file.to_owned(), offset, is_redundant: false }
    }
}

/// Flips a bit of what `step` wrote, if there is data in which a flip can be detected; returns what was damaged.
pub fn decay(
    (media, oracle): (&Media, &Oracle),
    configuration: &Configuration,
    step: Step,
    random: &mut Random,
) -> Option<Damage> {
    let page_size = configuration.settings.buffer.page_size;
    let place = match step {
        Step::SuperblockWrite => Some(superblock_copy(media, random)),
        Step::Staging => stored_page(media, ("disk", "double-write"), page_size, random)
            .map(|place| with_page_in_place(media, configuration, place)),
        Step::LogWrite => vouched_log_page(media, configuration, (false, oracle.log_copy_lost), random),
        Step::SegmentWrite => stored_in(media, (&DATA_DEVICES, ".backup-"), SEGMENT_SIZE as usize, random),
        _ => stored_in(media, (&DATA_DEVICES, ".pages"), page_size, random),
    };
    damage((media, page_size), place?, step, FaultKind::Decay, random)
}

/// Makes a sector unreadable, or flips a bit, of what `step` wrote, on any device and in any copy; returns what was damaged.
pub fn rot(
    (media, oracle): (&Media, &Oracle),
    configuration: &Configuration,
    step: Step,
    random: &mut Random,
) -> Option<Damage> {
    let is_unreadable = step.admits(FaultKind::Rot) && random.chance(0.6);
    let kind = if is_unreadable { FaultKind::Rot } else { FaultKind::Decay };
    let page_size = configuration.settings.buffer.page_size;
    let place = match step {
        Step::SuperblockWrite => Some(superblock_copy(media, random)),
        Step::Staging => stored_page(media, ("disk", "double-write"), page_size, random)
            .map(|place| with_page_in_place(media, configuration, place)),
        Step::LogWrite => {
            if random.chance(0.2) {
                let place = blank_log_page(media, configuration, random)?;
                return damage((media, page_size), place, step, kind, random);
            }
            let is_second = configuration.settings.log.second.is_some() && random.chance(0.7);
            let place = vouched_log_page(media, configuration, (is_second, oracle.log_copy_lost), random)?;
            // Where an acknowledgement needs only one of the two devices, an unreadable sector may hold data that is nowhere
            // else.
            let acknowledged = configuration.settings.log.second.as_ref().map(|second| second.acknowledged);
            let is_enough = kind == FaultKind::Decay || acknowledged == Some(Acknowledged::Both);
            Some(StoredByte { is_redundant: place.is_redundant && is_enough, ..place })
        }
        Step::TierWrite => {
            let cache = configuration.settings.hierarchy.cache.as_ref();
            let device = if cache.is_some_and(|cache| cache.device == CACHE_DEVICE) { CACHE_DEVICE } else { "nvem" };
            let place = stored_in(media, (&[device], ".tier"), page_size, random);
            // An opening names what it cannot read, whatever that was.
            let is_told = |place: &StoredByte| {
                kind == FaultKind::Rot || place.file != LOG_BUFFER || is_vouched(media, configuration, place)
            };
            let place = place.filter(is_told);
            place.map(|place| with_page_at_home(media, configuration, place))
        }
        Step::SegmentWrite => stored_in(media, (&DATA_DEVICES, ".backup-"), SEGMENT_SIZE as usize, random),
        _ => stored_in(media, (&DATA_DEVICES, ".pages"), page_size, random),
    };
    damage((media, page_size), place?, step, kind, random)
}

/// Blanks a page of a partition that was written; returns what was damaged. Partitions whose pages are found by number alone
/// are left out, because it cannot be told which of their pages were written.
pub fn hole(media: &Media, configuration: &Configuration, random: &mut Random) -> Option<Damage> {
    let page_size = configuration.settings.buffer.page_size;
    let is_suitable =
        |partition: &PartitionSpec| matches!(partition.organization, Organization::BTree | Organization::Append { .. });
    let partitions: Vec<PartitionSpec> = configuration.partitions().into_iter().filter(is_suitable).collect();
    let file = format!("{}.pages", random.choose(&partitions)?.name);
    let place = stored_page(media, ("disk", &file), page_size, random)?;
    let first = place.offset / page_size as u64 * page_size as u64;
    media.punch("disk", &file, first, page_size as u64).ok()?;
    let step = Step::PageWrite;
    let found = media.damages("disk", &file).pop();
    let (kind, page_size) = (FaultKind::Hole, page_size as u64);
    Some(Damage { kind, step, file, found, page_size, is_redundant: false, copy: None, is_exposed: false })
}

fn damage(
    (media, page_size): (&Media, usize),
    place: StoredByte,
    step: Step,
    kind: FaultKind,
    random: &mut Random,
) -> Option<Damage> {
    let StoredByte { device, file, offset, is_redundant } = place;
    match kind {
        FaultKind::Rot => media.make_unreadable(device, &file, offset, 1),
        _ => media.flip_bit(device, &file, offset, random.below(8) as u8),
    }
    .ok()?;
    let step = if file == LOG_BUFFER { Step::LogBuffer } else { step };
    let copy = superblock_copy_at(&file, offset);
    // A place with the same contents in both copies is redundant; if they differ, a write was under way.
    let found = media.damages(device, &file).pop();
    let page_size = page_size as u64;
    Some(Damage { kind, step, file, found, page_size, is_redundant, copy, is_exposed: true })
}

const SUPERBLOCK_FILE: &str = "entresol.home";
/// The size of an extent of one of its copies, in bytes.
pub const SUPERBLOCK_STRETCH: u64 = 65_536;

/// Which copy this byte belongs to, if the file is the superblock file, where extents of the two copies alternate.
pub fn superblock_copy_at(file: &str, offset: u64) -> Option<u64> {
    (file == SUPERBLOCK_FILE).then_some(offset / SUPERBLOCK_STRETCH % 2)
}

/// A byte of a copy of the superblock file: of the superblock, or of what is written of the catalog. The other copy of the region
/// serves if it is the same.
fn superblock_copy(media: &Media, random: &mut Random) -> StoredByte {
    let (copy, offset) = (random.below(2), random.below(200));
    let regions = media.length("disk", SUPERBLOCK_FILE).unwrap_or(0) / (2 * SUPERBLOCK_STRETCH);
    let region = if random.chance(0.5) { random.below(regions.max(1)) } else { 0 };
    let mut copies = [vec![0; SUPERBLOCK_STRETCH as usize], vec![0; SUPERBLOCK_STRETCH as usize]];
    let read = (2 * region..)
        .zip(&mut copies)
        .all(|(number, bytes)| media.read("disk", SUPERBLOCK_FILE, number * SUPERBLOCK_STRETCH, bytes).is_ok());
    let is_redundant = read && copies[0] == copies[1];
    let written = copies[copy as usize].iter().rposition(|byte| *byte != 0).unwrap_or(0) as u64;
    let offset = if region == 0 { offset } else { random.below(written + 1) };
    let at = (2 * region + copy) * SUPERBLOCK_STRETCH + offset;
    StoredByte { is_redundant, ..StoredByte::alone("disk", SUPERBLOCK_FILE, at) }
}

/// A place in the double-write area. It is redundant if the page is sound in its own place.
fn with_page_in_place(media: &Media, configuration: &Configuration, place: StoredByte) -> StoredByte {
    let is_redundant = pages(media, configuration, &place).is_some();
    StoredByte { is_redundant, ..place }
}

/// A place in a tier. It is redundant if the page is the same in its own place.
fn with_page_at_home(media: &Media, configuration: &Configuration, place: StoredByte) -> StoredByte {
    let is_redundant = pages(media, configuration, &place).is_some_and(|[copy, own]| copy == own);
    StoredByte { is_redundant, ..place }
}

/// The page that has a copy at this place, and that in its own place if it is sound.
fn pages(media: &Media, configuration: &Configuration, copy: &StoredByte) -> Option<[Vec<u8>; 2]> {
    let page_size = configuration.settings.buffer.page_size as u64;
    let read = |device, file: &str, number: u64| {
        let mut bytes = vec![0; page_size as usize];
        media.read(device, file, number * page_size, &mut bytes).ok().map(|()| bytes)
    };
    let bytes = read(copy.device, &copy.file, copy.offset / page_size)?;
    let id = header::id(&bytes);
    let partitions = configuration.partitions();
    let file = format!("{}.pages", partitions.get(usize::from(id.partition.0))?.name);
    let own = read("disk", &file, u64::from(id.number))?;
    (header::verify(&own, id) == Ok(true)).then_some([bytes, own])
}

/// A byte of some page, or segment, of this size that was written to a file with such a name on one of these devices.
fn stored_in(
    media: &Media,
    (devices, names): (&[&'static str], &str),
    size: usize,
    random: &mut Random,
) -> Option<StoredByte> {
    let on_device = |device: &&'static str| {
        let device = *device;
        media.names(device).into_iter().filter(|name| name.contains(names)).map(move |name| (device, name))
    };
    let found: Vec<(&str, String)> = devices.iter().flat_map(on_device).collect();
    random.choose(&found).and_then(|(device, name)| stored_page(media, (device, name), size, random))
}

/// A byte of some page that was written.
fn stored_page(
    media: &Media,
    (device, file): (&'static str, &str),
    size: usize,
    random: &mut Random,
) -> Option<StoredByte> {
    let pages = media.length(device, file)? / size as u64;
    let mut bytes = vec![0; size];
    let first = if pages > LOOKED_AT { random.below(pages - LOOKED_AT + 1) } else { 0 };
    let written: Vec<u64> = (first..pages.min(first + LOOKED_AT))
        .filter(|number| {
            let read = media.read(device, file, number * size as u64, &mut bytes);
            read.is_ok() && bytes.iter().any(|byte| *byte != 0)
        })
        .collect();
    let number = random.choose(&written)?;
    Some(StoredByte::alone(device, file, number * size as u64 + random.below(size as u64)))
}

/// A byte of the log's file behind all that was written there. What the page next to that was cannot be told.
fn blank_log_page(media: &Media, configuration: &Configuration, random: &mut Random) -> Option<StoredByte> {
    let device = LOG_DEVICES.into_iter().find(|device| media.length(device, "log").is_some())?;
    let size = configuration.settings.log.page_size as u64;
    let pages = media.length(device, "log")? / size;
    let mut bytes = vec![0; size as usize];
    let mut is_blank = |number: &u64| {
        let read = media.read(device, "log", number * size, &mut bytes);
        read.is_ok() && bytes.iter().all(|byte| *byte == 0)
    };
    // The file's front is left blank until the log has gone round: the first page that is written is the one behind it.
    let blank = (1..pages).rev().take_while(|number| is_blank(number)).count() as u64;
    let others = blank.checked_sub(1).filter(|others| *others > 0)?;
    let number = pages - 1 - random.below(others);
    Some(StoredByte { is_redundant: true, ..StoredByte::alone(device, "log", number * size + random.below(size)) })
}

/// A byte of a log page that a later page says is durable: its loss is no crash. The other device serves if it has the page and
/// does not count as lost.
fn vouched_log_page(
    media: &Media,
    configuration: &Configuration,
    (is_second, is_copy_lost): (bool, bool),
    random: &mut Random,
) -> Option<StoredByte> {
    let mut places = LOG_DEVICES.into_iter().filter(|device| media.length(device, "log").is_some());
    // Of two files one is being moved.
    let (device, None) = (places.next()?, places.next()) else { return None };
    let first = (device, "log");
    let second = ("second", "log-2");
    let ((device, file), other) = if is_second { (second, first) } else { (first, second) };
    let size = configuration.settings.log.page_size;
    let capacity = media.length(device, file)?;
    let pages = log_pages(media, (device, file), size)?;
    let (last, _) = pages.iter().max_by_key(|(header, _)| (header.epoch, header.position))?;
    let vouched: Vec<u64> = pages
        .iter()
        .filter(|(header, _)| Lsn(header.position) < last.durable && header.position + capacity > last.position)
        .map(|(_, offset)| *offset)
        .collect();
    // The latest are the likeliest to be needed.
    let recent = &vouched[vouched.len().saturating_sub(12)..];
    let offset = *random.choose(recent)?;
    let (mut bytes, mut twin) = (vec![0; size], vec![0; size]);
    media.read(device, file, offset, &mut bytes).ok()?;
    let is_redundant = !is_copy_lost && media.read(other.0, other.1, offset, &mut twin).is_ok() && twin == bytes;
    Some(StoredByte { is_redundant, ..StoredByte::alone(device, file, offset + random.below(size as u64)) })
}

/// The sound log pages of this size in a file, each with its offset; none if some cannot be read.
fn log_pages(media: &Media, (device, file): (&str, &str), size: usize) -> Option<Vec<(page::Header, u64)>> {
    let length = media.length(device, file).unwrap_or(0);
    let (mut bytes, mut pages) = (vec![0; size], Vec::new());
    for offset in (0..length).step_by(size) {
        media.read(device, file, offset, &mut bytes).ok()?;
        let position = u64::from_le_bytes(bytes[8..16].try_into().expect("eight bytes"));
        if let Ok(header) = page::verify(&bytes, position) {
            pages.push((header, offset));
        }
    }
    Some(pages)
}

/// Whether a flipped bit at this place of the log's write buffer is found out: a page that none says is durable may as well not have been
/// written.
fn is_vouched(media: &Media, configuration: &Configuration, place: &StoredByte) -> bool {
    let size = configuration.settings.log.page_size;
    let Some(buffered) = log_pages(media, (place.device, &place.file), size) else { return false };
    let own = LOG_DEVICES.iter().filter_map(|device| log_pages(media, (device, "log"), size));
    let headers = buffered.iter().copied().chain(own.flatten()).map(|(header, _)| header);
    let last = headers.max_by_key(|header| (header.epoch, header.position));
    let holds = |offset: u64| (offset..offset + size as u64).contains(&place.offset);
    let held = buffered.iter().find(|(_, offset)| holds(*offset));
    held.is_none_or(|(header, _)| last.is_some_and(|last| Lsn(header.position) < last.durable))
}
