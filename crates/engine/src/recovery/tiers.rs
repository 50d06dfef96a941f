//! Opening the tiers: what they hold that is newer than on the pages' own devices goes there first.

use crate::Result;
use crate::buffer::{Buffer, PageSpace};
use crate::io::{device, salvage};
use crate::second_level::{Settings, Tiers};
use crate::tier_file::{HEADER_BYTES, Kind, TierFile, TierRecord, open_file, read_header};
use base::{Lsn, PageId};
use driver::{Access, DeviceId, FileId, Frame, Op};
use executor::Executor;
use std::collections::BTreeMap;
use std::rc::{Rc, Weak};
use structures::page::header;

/// How many pages are compared at once.
const AT_ONCE: usize = 32;

/// A sound copy in some slot.
#[derive(Clone, Copy)]
struct SlotCopy {
    tier: usize,
    slot: u32,
    sequence: u64,
    lsn: Lsn,
}

/// A tier that an earlier opening left.
struct EarlierTier {
    record: TierRecord,
    device: DeviceId,
    file: FileId,
}

/// What the tiers of an earlier opening held is on the pages' own devices.
pub struct Reconciled {
    found: Rc<Vec<EarlierTier>>,
    /// The copies that are the same there.
    current: Vec<(PageId, SlotCopy)>,
}

/// Brings up to date what stands on the pages' own devices. `records` is what the superblock file says of the tiers; log records
/// from before `redo_start` are not needed.
///
/// # Errors
/// [`Error::TierMissing`], or the driver's.
pub async fn reconcile(
    executor: &Executor,
    buffer: &Rc<Buffer>,
    records: &[TierRecord],
    redo_start: Lsn,
) -> Result<Reconciled> {
    let page_size = buffer.settings().page_size;
    let mut found = Vec::new();
    for record in records.iter().filter(|record| record.kind != Kind::LogBuffer) {
        found.extend(find(executor, record, page_size).await?);
    }
    let mut newest: BTreeMap<PageId, SlotCopy> = BTreeMap::new();
    for (tier, old) in found.iter().enumerate() {
        scan(executor, buffer, old, tier, &mut newest).await?;
    }
    let pages: Vec<(PageId, SlotCopy)> = newest.into_iter().collect();
    let mut current = Vec::new();
    let found = Rc::new(found);
    for batch in pages.chunks(AT_ONCE) {
        let tasks: Vec<_> = batch
            .iter()
            .map(|&(page, copy)| {
                let (executor, found) = (executor.clone(), Rc::clone(&found));
                let space = buffer.space(page.partition);
                executor
                    .clone()
                    .spawn(async move { bring_home(&executor, &found, &space, page, copy, redo_start).await })
            })
            .collect();
        for (task, (page, copy)) in tasks.into_iter().zip(batch) {
            if task.join().await? {
                current.push((*page, *copy));
            }
        }
    }
    Ok(Reconciled { found, current })
}

impl Reconciled {
    /// The tiers among those of before that go on as they are. The superblock file has to forget all others before new ones take
    /// their places.
    pub fn kept(&self, executor: &Executor, settings: &Settings) -> Vec<TierRecord> {
        let suits =
            |old: &&EarlierTier| wanted(executor, settings).iter().flatten().any(|wanted| wanted.suits(&old.record));
        self.found.iter().filter(suits).map(|old| TierRecord { in_use: true, ..old.record.clone() }).collect()
    }

    /// Opens the tiers that `settings` ask for: those kept, and new ones with this stamp. Returns them, if there are any, and
    /// what the superblock file is to say of them before they are used.
    ///
    /// # Errors
    /// [`Error::Setting`], or the driver's.
    pub async fn open(
        self,
        buffer: &Rc<Buffer>,
        executor: &Executor,
        (settings, force, stamp): (&Settings, bool, u64),
    ) -> Result<(Option<Tiers>, Vec<TierRecord>)> {
        if let Some(buffer) = &settings.write_buffer {
            buffer.check(executor.traits(device(executor, &buffer.device)?).durable)?;
        }
        let page_size = buffer.settings().page_size;
        let (mut records, mut files) = (Vec::new(), [None, None]);
        let mut adopted = None;
        for (place, wanted) in files.iter_mut().zip(wanted(executor, settings)) {
            let Some(WantedTier { kind, device: name, capacity, volatile }) = &wanted else { continue };
            let device = device(executor, name)?;
            let old = self.found.iter().position(|old| wanted.as_ref().is_some_and(|wanted| wanted.suits(&old.record)));
            let (kind, capacity, volatile) = (*kind, *capacity, *volatile);
            let (record, file) = match old {
                Some(number) => {
                    let old = &self.found[number];
                    let record = TierRecord { in_use: true, ..old.record.clone() };
                    adopted = adopted.or((kind == Kind::Cache).then_some(number));
                    let file = TierFile::adopt(executor, old.device, &record, old.file, page_size, volatile);
                    (record, file)
                }
                None => {
                    let record = TierRecord { kind, device: (*name).clone(), stamp, capacity, in_use: true };
                    let file = TierFile::create(executor, device, &record, page_size, volatile).await?;
                    (record, file)
                }
            };
            *place = Some(file);
            records.extend((!volatile).then_some(record));
        }
        if files.iter().all(Option::is_none) {
            return Ok((None, records));
        }
        let host: Weak<Buffer> = Rc::downgrade(buffer);
        let tiers = Tiers::new(executor, (settings, force), files, host);
        if let Some(cache) = adopted {
            let mut current = self.current;
            current.retain(|(page, copy)| copy.tier == cache && buffer.space(page.partition).placement().cache);
            current.sort_by_key(|(_, copy)| copy.lsn);
            tiers.adopt(current.into_iter().map(|(page, copy)| (copy.slot, page)));
        }
        Ok((Some(tiers), records))
    }
}

/// A tier that the settings ask for.
struct WantedTier<'a> {
    kind: Kind,
    device: &'a String,
    capacity: u64,
    volatile: bool,
}

impl WantedTier<'_> {
    /// Whether one of an earlier opening is the same.
    fn suits(&self, old: &TierRecord) -> bool {
        !self.volatile && (old.kind, &old.device, old.capacity) == (self.kind, self.device, self.capacity)
    }
}

/// The cache and the write buffer that the settings ask for.
fn wanted<'a>(executor: &Executor, settings: &'a Settings) -> [Option<WantedTier<'a>>; 2] {
    let loses = |name: &str| executor.device(name).is_none_or(|device| !executor.traits(device).durable);
    let cache = settings.cache.as_ref().map(|cache| WantedTier {
        kind: Kind::Cache,
        device: &cache.device,
        capacity: u64::from(cache.pages),
        volatile: cache.volatile.unwrap_or_else(|| loses(&cache.device)),
    });
    let write_buffer = settings.write_buffer.as_ref().filter(|buffer| buffer.pages > 0).map(|buffer| WantedTier {
        kind: Kind::WriteBuffer,
        device: &buffer.device,
        capacity: u64::from(buffer.pages),
        volatile: false,
    });
    [cache, write_buffer]
}

/// The file of a tier that the superblock file knows.
async fn find(executor: &Executor, record: &TierRecord, page_size: usize) -> Result<Option<EarlierTier>> {
    let missing = |detail: &str| if record.in_use { Err(record.missing(detail)) } else { Ok(None) };
    let Some(device) = executor.device(&record.device) else { return missing("there is no such device") };
    let Some((file, length)) = open_file(executor, device, record.kind, false).await? else {
        return missing(&format!("it holds no file '{}'", record.kind.file_name()));
    };
    let slots = record.capacity * page_size as u64;
    if let Err(detail) = read_header(executor, (file, length), record, (page_size, slots)).await? {
        return missing(&detail);
    }
    Ok(Some(EarlierTier { record: record.clone(), device, file }))
}

/// Notes the newest copy of each page.
async fn scan(
    executor: &Executor,
    buffer: &Buffer,
    found: &EarlierTier,
    tier: usize,
    newest: &mut BTreeMap<PageId, SlotCopy>,
) -> Result<()> {
    let page_size = buffer.settings().page_size;
    let pages_at_once = ((1 << 20) / page_size).max(1) as u64;
    let mut frame = executor.frames(1, pages_at_once as usize * page_size)?.pop();
    for first in (0..found.record.capacity).step_by(pages_at_once as usize) {
        let pages = pages_at_once.min(found.record.capacity - first) as usize;
        let offset = HEADER_BYTES + first * page_size as u64;
        let bytes = frame.take().expect("given back below");
        // A slot that cannot be read is as good as an empty one: the log has what is only there.
        let bytes = salvage::read(executor, found.file, (offset, pages * page_size), page_size, bytes).await?.frame;
        for (index, copy) in bytes.chunks(page_size).take(pages).enumerate() {
            let (id, slot) = (header::id(copy), first as u32 + index as u32);
            if header::verify(copy, id) != Ok(true) {
                continue;
            }
            if !buffer.is_attached(id.partition) {
                // Of a partition that was dropped, or whose creation was cut off.
                erase(executor, found.file, HEADER_BYTES + u64::from(slot) * page_size as u64, page_size).await?;
                continue;
            }
            let this = SlotCopy { tier, slot, sequence: header::sequence(copy), lsn: header::lsn(copy) };
            let entry = newest.entry(id).or_insert(this);
            if entry.sequence < this.sequence {
                *entry = this;
            }
        }
        frame = Some(bytes);
    }
    Ok(())
}

async fn write(executor: &Executor, file: FileId, offset: u64, buffer: Frame, length: usize) -> Result<()> {
    let (length, access) = (length as u32, Access::Asynchronous);
    executor.perform(Op::Write { file, offset, length, buffer, durable: true, access }).await.result?;
    Ok(())
}

async fn erase(executor: &Executor, file: FileId, offset: u64, page_size: usize) -> Result<()> {
    let zeros = executor.frame(page_size)?;
    write(executor, file, offset, zeros, page_size).await
}

/// Writes the copy to the page's own device if that is older. Returns whether both are the same version then.
async fn bring_home(
    executor: &Executor,
    found: &[EarlierTier],
    space: &PageSpace,
    page: PageId,
    copy: SlotCopy,
    redo_start: Lsn,
) -> Result<bool> {
    let page_size = space.page_size();
    if page.number >= space.capacity() {
        return Ok(false);
    }
    // What cannot be read may be what the power cut tore.
    let (bytes, fault) = space.salvage(executor, page).await?;
    let in_file = fault.is_none().then_some(bytes);
    let state = in_file.as_ref().map_or(Err(String::new()), |in_file| header::verify(in_file, page));
    match (state, in_file.as_ref().map_or(0, |in_file| header::sequence(in_file))) {
        // A page that was bulk-loaded again has the same number, and other contents.
        (Ok(true), present) if present >= copy.sequence => {
            return Ok(present == copy.sequence && in_file.is_some_and(|in_file| header::lsn(&in_file) == copy.lsn));
        }
        (Ok(false), _) if copy.sequence == 0 => return Ok(true),
        // A page that was torn on its way from the tier has a copy from after the point where redo begins: all that the
        // copy may lack is in the log. An older copy belongs to a page that something else has damaged; that is found and
        // reported; so is a page that its file has lost, which may have been newer.
        (state @ (Ok(false) | Err(_)), _) if copy.lsn <= redo_start => {
            if state.is_ok() {
                space.note_lost(page);
            }
            return Ok(false);
        }
        _ => {}
    }
    let from = &found[copy.tier];
    let offset = HEADER_BYTES + u64::from(copy.slot) * page_size as u64;
    let frame = match in_file {
        Some(frame) => frame,
        None => executor.frame(page_size)?,
    };
    let bytes = salvage::read(executor, from.file, (offset, page_size), page_size, frame).await?.frame;
    if header::verify(&bytes, page) != Ok(true) {
        return Ok(false);
    }
    space.restore(executor, page, bytes).await?;
    Ok(true)
}
