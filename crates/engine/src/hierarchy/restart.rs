//! Opening the tiers: what they hold that is newer than on the pages' own devices goes there first.

use super::Settings;
use super::header::{HEADER_BYTES, Kind, Record, open_file, read_header};
use super::tiers::{TierFile, Tiers};
use crate::buffer::{Buffer, DataFile};
use crate::database::device;
use crate::page::header;
use crate::{Error, Result};
use base::{Lsn, PageId};
use driver::{Access, DeviceId, FaultKind, FileId, Frame, Op};
use executor::Executor;
use std::collections::BTreeMap;
use std::rc::Rc;

/// How many pages are compared at once.
const AT_ONCE: usize = 32;

/// A sound copy in some slot.
#[derive(Clone, Copy)]
struct Copy {
    tier: usize,
    slot: u32,
    sequence: u64,
    lsn: Lsn,
}

/// A tier that an earlier opening left.
struct Found {
    record: Record,
    device: DeviceId,
    file: FileId,
}

/// Brings up to date what stands on the pages' own devices, and opens the tiers that `settings` ask for. Returns them, if
/// there are any, and what the home file is to say of them before they are used. `records` is what it said so far; log
/// records from before `redo_start` are not needed.
///
/// # Errors
/// [`Error::TierMissing`], [`Error::Setting`], or the driver's.
pub async fn reconcile(
    executor: &Executor,
    buffer: &Rc<Buffer>,
    records: &[Record],
    redo_start: Lsn,
    (settings, force, stamp): (&Settings, bool, u64),
) -> Result<(Option<Tiers>, Vec<Record>)> {
    let page_size = buffer.settings().page_size;
    let mut found = Vec::new();
    for record in records.iter().filter(|record| record.kind != Kind::LogBuffer) {
        found.extend(find(executor, record, page_size).await?);
    }
    let mut newest: BTreeMap<PageId, Copy> = BTreeMap::new();
    for (tier, old) in found.iter().enumerate() {
        scan(executor, buffer, old, tier, &mut newest).await?;
    }
    let pages: Vec<(PageId, Copy)> = newest.into_iter().collect();
    let mut current = Vec::new();
    let found = Rc::new(found);
    for batch in pages.chunks(AT_ONCE) {
        let tasks: Vec<_> = batch
            .iter()
            .map(|&(page, copy)| {
                let (executor, found) = (executor.clone(), Rc::clone(&found));
                let file = buffer.file(page.partition);
                executor
                    .clone()
                    .spawn(async move { bring_home(&executor, &found, &file, page, copy, redo_start).await })
            })
            .collect();
        for (task, (page, copy)) in tasks.into_iter().zip(batch) {
            if task.join().await? {
                current.push((*page, *copy));
            }
        }
    }
    let (tiers, new) = open(executor, &found, settings, page_size, force, stamp).await?;
    if let Some(tiers) = &tiers
        && tiers.cache.as_ref().is_some_and(|cache| !cache.volatile && kept(&found, &new, Kind::Cache).is_some())
    {
        current.sort_by_key(|(_, copy)| copy.lsn);
        let cached = |page: &PageId| buffer.file(page.partition).placement().cache;
        let mut slots = tiers.slots.borrow_mut();
        slots.adopt(
            current
                .into_iter()
                .filter(|(page, copy)| found[copy.tier].record.kind == Kind::Cache && cached(page))
                .map(|(page, copy)| (copy.slot, page)),
        );
    }
    Ok((tiers, new))
}

/// The file of a tier that the home file knows.
async fn find(executor: &Executor, record: &Record, page_size: usize) -> Result<Option<Found>> {
    let missing = |detail: &str| if record.in_use { Err(record.missing(detail)) } else { Ok(None) };
    let Some(device) = executor.device(&record.device) else { return missing("there is no such device") };
    let Some((file, length)) = open_file(executor, device, record.kind, false).await? else {
        return missing(&format!("it holds no file '{}'", record.kind.file_name()));
    };
    let whole = length >= HEADER_BYTES + record.capacity * page_size as u64;
    if !whole || !read_header(executor, file, record, page_size).await? {
        return missing(&format!("its file '{}' is another tier's", record.kind.file_name()));
    }
    Ok(Some(Found { record: record.clone(), device, file }))
}

/// Notes the newest copy of each page.
async fn scan(
    executor: &Executor,
    buffer: &Buffer,
    found: &Found,
    tier: usize,
    newest: &mut BTreeMap<PageId, Copy>,
) -> Result<()> {
    let page_size = buffer.settings().page_size;
    let pages_at_once = ((1 << 20) / page_size).max(1) as u64;
    let mut frame = executor.frames(1, pages_at_once as usize * page_size)?.pop();
    for first in (0..found.record.capacity).step_by(pages_at_once as usize) {
        let pages = pages_at_once.min(found.record.capacity - first) as usize;
        let offset = HEADER_BYTES + first * page_size as u64;
        let bytes = read(executor, found.file, (offset, pages * page_size), frame.take()).await?;
        for (index, copy) in bytes.chunks(page_size).take(pages).enumerate() {
            let (id, slot) = (header::id(copy), first as u32 + index as u32);
            if header::verify(copy, id) != Ok(true) {
                continue;
            }
            if !buffer.is_attached(id.partition) {
                // Of a partition whose creation was cut off: another may get its number.
                erase(executor, found.file, HEADER_BYTES + u64::from(slot) * page_size as u64, page_size).await?;
                continue;
            }
            let this = Copy { tier, slot, sequence: header::sequence(copy), lsn: header::lsn(copy) };
            let entry = newest.entry(id).or_insert(this);
            if entry.sequence < this.sequence {
                *entry = this;
            }
        }
        frame = Some(bytes);
    }
    Ok(())
}

async fn read(
    executor: &Executor,
    file: FileId,
    (offset, length): (u64, usize),
    frame: Option<Frame>,
) -> Result<Frame> {
    let buffer = match frame {
        Some(frame) => frame,
        None => executor.frames(1, length)?.pop().expect("one was asked for"),
    };
    let op = Op::Read { file, offset, length: length as u32, buffer, access: Access::Asynchronous };
    let completion = executor.perform(op).await;
    completion.result?;
    Ok(completion.buffer.expect("a read gives its buffer back"))
}

async fn write(executor: &Executor, file: FileId, offset: u64, buffer: Frame, length: usize) -> Result<()> {
    let (length, access) = (length as u32, Access::Asynchronous);
    executor.perform(Op::Write { file, offset, length, buffer, durable: true, access }).await.result?;
    Ok(())
}

async fn erase(executor: &Executor, file: FileId, offset: u64, page_size: usize) -> Result<()> {
    let zeros = executor.frames(1, page_size)?.pop().expect("one was asked for");
    write(executor, file, offset, zeros, page_size).await
}

/// Writes the copy to the page's own device if that is older. Returns whether both are the same version then.
async fn bring_home(
    executor: &Executor,
    found: &[Found],
    file: &DataFile,
    page: PageId,
    copy: Copy,
    redo_start: Lsn,
) -> Result<bool> {
    let page_size = file.page_size();
    if page.number >= file.capacity() {
        return Ok(false);
    }
    let home = match read(executor, file.file, (file.offset(page), page_size), None).await {
        Ok(bytes) => bytes,
        // The page shows its trouble to whoever uses it.
        Err(Error::Input(fault)) if fault.kind == FaultKind::Device => return Ok(false),
        Err(error) => return Err(error),
    };
    match header::verify(&home, page) {
        Ok(true) if header::sequence(&home) >= copy.sequence => return Ok(header::sequence(&home) == copy.sequence),
        Ok(false) if copy.sequence == 0 => return Ok(true),
        // A page that was torn on its way from the tier has a copy that the log does not make superfluous. An older copy
        // belongs to a page that something else has damaged: that is found and reported.
        Err(_) if copy.lsn <= redo_start => return Ok(false),
        _ => {}
    }
    let from = &found[copy.tier];
    let offset = HEADER_BYTES + u64::from(copy.slot) * page_size as u64;
    let bytes = read(executor, from.file, (offset, page_size), Some(home)).await?;
    if header::verify(&bytes, page) != Ok(true) {
        return Ok(false);
    }
    write(executor, file.file, file.offset(page), bytes, page_size).await?;
    Ok(true)
}

/// The old tier that goes on as one of the new.
fn kept<'a>(found: &'a [Found], new: &[Record], kind: Kind) -> Option<&'a Found> {
    let record = new.iter().find(|record| record.kind == kind)?;
    found.iter().find(|old| old.record.stamp == record.stamp && old.record.kind == kind)
}

/// Opens the tiers that the settings ask for: those found if they suit, else new ones.
async fn open(
    executor: &Executor,
    found: &[Found],
    settings: &Settings,
    page_size: usize,
    force: bool,
    stamp: u64,
) -> Result<(Option<Tiers>, Vec<Record>)> {
    let cache = settings.cache.as_ref().map(|cache| (Kind::Cache, &cache.device, cache.pages, cache.volatile));
    let write_buffer = settings.write_buffer.as_ref().filter(|buffer| buffer.pages > 0);
    let write_buffer = write_buffer.map(|buffer| (Kind::WriteBuffer, &buffer.device, buffer.pages, Some(false)));
    if let Some(buffer) = &settings.write_buffer {
        buffer.check(executor.traits(device(executor, &buffer.device)?).durable)?;
    }
    let mut records = Vec::new();
    let mut files = [None, None];
    for (place, wanted) in files.iter_mut().zip([cache, write_buffer]) {
        let Some((kind, name, pages, volatile)) = wanted else { continue };
        let device = device(executor, name)?;
        let volatile = volatile.unwrap_or(!executor.traits(device).durable);
        let suits = |old: &&Found| {
            let same = (old.record.kind, &old.record.device, old.record.capacity) == (kind, name, u64::from(pages));
            same && !volatile
        };
        let capacity = u64::from(pages);
        let fresh = Record { kind, device: name.clone(), stamp, capacity, in_use: true };
        let (record, file) = match found.iter().find(suits) {
            Some(old) => {
                let record = Record { in_use: true, ..old.record.clone() };
                let file = TierFile::adopt(executor, old.device, &record, old.file, page_size, volatile);
                (record, file)
            }
            None => {
                let file = TierFile::create(executor, device, &fresh, page_size, volatile).await?;
                (fresh, file)
            }
        };
        *place = Some(file);
        if !volatile {
            records.push(record);
        }
    }
    let any = files.iter().any(Option::is_some);
    Ok((any.then(|| Tiers::new(settings, files, force)), records))
}
