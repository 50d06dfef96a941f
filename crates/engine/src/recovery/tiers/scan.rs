//! Looking at every slot of a tier, and at the pages' own places.

use super::EarlierTier;
use crate::Result;
use crate::buffer::{Buffer, LOADED, PageSpace};
use crate::io::salvage::{self, Salvaged};
use crate::tier_file::HEADER_BYTES;
use crate::tier_file::table::PageVersion;
use base::{Lsn, PageId};
use driver::{Access, FaultKind, FileId, Frame, Op};
use executor::Executor;
use std::collections::BTreeMap;
use structures::page::header;

/// A sound copy in some slot.
#[derive(Clone, Copy)]
pub struct SlotCopy {
    /// Which of the tiers that were found has it.
    pub tier: usize,
    /// Its slot.
    pub slot: u32,
    /// Which version it is.
    pub version: PageVersion,
}

impl SlotCopy {
    /// Whether no other contents of its page have this version: loads past the log give all their pages one number, and a slot may have
    /// what one has left that failed.
    pub fn is_distinct(&self, space: &PageSpace) -> bool {
        self.version.sequence > LOADED || space.is_direct()
    }
}

/// How a look at all slots of a tier has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scanned {
    /// It was looked at all of them.
    Whole,
    /// Some could not be read.
    InPart,
    /// The tier's device does not answer.
    Silent,
}

/// Notes the newest copy of each page.
pub async fn scan(
    executor: &Executor,
    buffer: &Buffer,
    found: &EarlierTier,
    tier: usize,
    newest: &mut BTreeMap<PageId, SlotCopy>,
) -> Result<Scanned> {
    let page_size = buffer.settings().page_size;
    let mut scanned = Scanned::Whole;
    let pages_at_once = ((1 << 20) / page_size).max(1) as u64;
    let mut frame = executor.frames(1, pages_at_once as usize * page_size)?.pop();
    for first in (0..found.record.capacity).step_by(pages_at_once as usize) {
        let pages = pages_at_once.min(found.record.capacity - first) as usize;
        let offset = HEADER_BYTES + first * page_size as u64;
        let bytes = frame.take().expect("given back below");
        // A slot that cannot be read is as good as an empty one: the log has what is only there.
        let read = salvage::read(executor, found.file, (offset, pages * page_size), page_size, bytes);
        let Some(read) = found.limit.answered(executor, read).await else { return Ok(Scanned::Silent) };
        let Salvaged { frame: bytes, unreadable, .. } = read?;
        if !unreadable.is_empty() {
            scanned = Scanned::InPart;
        }
        for (index, copy) in bytes.chunks(page_size).take(pages).enumerate() {
            let (id, slot) = (header::id(copy), first as u32 + index as u32);
            if header::verify(copy, id) != Ok(true) {
                continue;
            }
            if !buffer.is_attached(id.partition) && buffer.tiers().is_some() {
                // Slots are in use by now, and their table says of which pages.
                continue;
            }
            if !buffer.is_attached(id.partition) {
                // Of a partition that was dropped, or whose creation was cut off.
                let offset = HEADER_BYTES + u64::from(slot) * page_size as u64;
                let erased = found.limit.answered(executor, erase(executor, found.file, offset, page_size)).await;
                match erased.transpose()? {
                    Some(()) => continue,
                    None => return Ok(Scanned::Silent),
                }
            }
            let this = SlotCopy { tier, slot, version: PageVersion::of(copy) };
            let entry = newest.entry(id).or_insert(this);
            if entry.version < this.version {
                *entry = this;
            }
        }
        frame = Some(bytes);
    }
    Ok(scanned)
}

/// Erases a slot, if its device can be written.
async fn erase(executor: &Executor, file: FileId, offset: u64, page_size: usize) -> Result<()> {
    let (buffer, length, access) = (executor.frame(page_size)?, page_size as u32, Access::Asynchronous);
    match executor.perform(Op::Write { file, offset, length, buffer, durable: true, access }).await.result {
        Err(fault) if fault.kind != FaultKind::Device => Err(fault.into()),
        // The partition's number is given to no other one.
        _ => Ok(()),
    }
}

/// How a page's own place compares with the copy in a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HomeState {
    /// It is the same version, by now.
    Same,
    /// It is another one, or none is there.
    Other,
    /// It is damaged, and only redo shows whether it goes on from the copy; or that could not be read again.
    Damaged,
}

impl HomeState {
    fn same_if(is_same: bool) -> HomeState {
        if is_same { HomeState::Same } else { HomeState::Other }
    }
}

/// Writes the copy to the page's own device if that is older. Returns how they compare then.
pub async fn bring_home(
    executor: &Executor,
    found: &[EarlierTier],
    space: &PageSpace,
    page: PageId,
    copy: SlotCopy,
    redo_start: Lsn,
) -> Result<HomeState> {
    let page_size = space.page_size();
    if page.number >= space.capacity() {
        return Ok(HomeState::Other);
    }
    // What cannot be read may be what the power cut tore.
    let (bytes, fault) = space.salvage(executor, page).await?;
    let in_file = fault.is_none().then_some(bytes);
    let state = in_file.as_ref().map_or(Err(String::new()), |in_file| header::verify(in_file, page));
    let is_damaged = state.is_err();
    let is_redone = copy.version.lsn > redo_start && copy.is_distinct(space);
    match (state, in_file.as_ref().map_or(0, |in_file| header::sequence(in_file))) {
        // A page that was bulk-loaded again has the same number, and other contents.
        (Ok(true), present) if present >= copy.version.sequence => {
            let is_same = present == copy.version.sequence
                && in_file.is_some_and(|in_file| header::lsn(&in_file) == copy.version.lsn);
            return Ok(HomeState::same_if(is_same));
        }
        (Ok(false), _) if copy.version.sequence == 0 => return Ok(HomeState::Same),
        // The page's own device had all that the tier has: this is of another time.
        _ if !found[copy.tier].record.in_use => return Ok(HomeState::Other),
        // A page that was torn on its way from the tier has a copy from after the point where redo begins: all that the
        // copy may lack is in the log. An older copy counts only if redo goes on where it ends; otherwise it belongs to a page that
        // something else has damaged, which is reported. So is a page that its file has lost, which may have been newer.
        (Err(_), _) if !is_redone => return Ok(HomeState::Damaged),
        (Ok(false), _) if !is_redone => {
            space.note_lost(page);
            return Ok(HomeState::Other);
        }
        _ => {}
    }
    let frame = match in_file {
        Some(frame) => frame,
        None => executor.frame(page_size)?,
    };
    match restore(executor, &found[copy.tier], space, (page, copy.slot), frame).await? {
        false if is_damaged => Ok(HomeState::Damaged),
        is_restored => Ok(HomeState::same_if(is_restored)),
    }
}

/// Writes the copy in a slot to its page's own place. Whether there still is a sound one.
///
/// # Errors
/// [`Error::TierMissing`](crate::Error::TierMissing) if the tier's device does not answer, or the driver's.
pub async fn restore(
    executor: &Executor,
    from: &EarlierTier,
    space: &PageSpace,
    (page, slot): (PageId, u32),
    frame: Frame,
) -> Result<bool> {
    let page_size = space.page_size();
    let offset = HEADER_BYTES + u64::from(slot) * page_size as u64;
    let read = salvage::read(executor, from.file, (offset, page_size), page_size, frame);
    let read = from.limit.answered(executor, read).await;
    let bytes = read.ok_or_else(|| from.record.missing(&from.limit.exceeded()))??.frame;
    if header::verify(&bytes, page) != Ok(true) {
        return Ok(false);
    }
    space.restore(executor, page, bytes).await?;
    Ok(true)
}
