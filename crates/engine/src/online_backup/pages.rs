//! Copying the pages of a partition while transactions change them.
//!
//! Pages are read from their own places, past the buffer. Every change that is not there by now, because only memory or a tier has it,
//! is in the log behind where redo begins, which the backup has. What cannot be read or is being written at this moment is fetched as a
//! transaction would fetch it.

use super::chunk::{self, PAGES_MAX, PieceHead, PieceKind};
use super::manifest::BLOCK;
use super::run::BackupRun;
use crate::buffer::{PageSpace, Pins};
use crate::page_store::Transfer;
use crate::second_level::design::Pattern;
use crate::{Need, Result};
use base::{Lsn, PageId, PartitionId};
use driver::{FaultKind, Frame};
use executor::JoinHandle;
use std::collections::{BTreeSet, VecDeque};
use std::rc::Rc;
use structures::canary::{self, Canary};
use structures::page::header;

/// Bytes of pages that are read at once.
const PIECE: usize = 1 << 20;
/// Pieces on their way at once.
const DEPTH: usize = 4;
/// About what it costs on described hardware to verify 64 bytes, in instructions.
const VERIFY_INSTRUCTIONS: u64 = 40;

/// Consecutive pages of a partition on their way into the backup.
struct PageRange {
    space: Rc<PageSpace>,
    first: u32,
    count: u32,
}

/// What was read, sorted.
struct SortedPages {
    /// A piece of the backup's file in the making, with these pages.
    piece: Frame,
    numbers: Vec<u32>,
    /// Pages that were not sound.
    unsound: Vec<u32>,
}

/// Copies a partition's pages. If it is dropped meanwhile, what was copied is passed over by the backup's manifest.
pub(super) async fn copy_partition(run: &Rc<BackupRun>, partition: PartitionId) -> Result<()> {
    let buffer = &run.engine.core.buffer;
    let Ok(space) = buffer.find_space(partition) else { return Ok(()) };
    if run.pages_since(partition) == Lsn::ZERO {
        run.begin(partition).await?;
    }
    let per_piece = (PIECE / space.page_size()).clamp(1, PAGES_MAX) as u32;
    let (mut first, mut outcome) = (0, Ok(()));
    let mut under_way: VecDeque<JoinHandle<Result<()>>> = VecDeque::new();
    while outcome.is_ok() {
        let end = space.written().min(space.capacity());
        if first >= end {
            break;
        }
        let count = per_piece.min(end - first);
        if let Err(error) = run.engine.core.check_open() {
            outcome = Err(error);
            break;
        }
        run.wait(u64::from(count) * space.page_size() as u64).await;
        let (this, piece) = (Rc::clone(run), PageRange { space: Rc::clone(&space), first, count });
        under_way.push_back(run.engine.core.executor.spawn(async move { copy_piece(&this, piece).await }));
        if under_way.len() >= DEPTH {
            outcome = under_way.pop_front().expect("some are").join().await;
        }
        run.report();
        first += count;
    }
    for piece in under_way {
        outcome = outcome.and(piece.join().await);
    }
    outcome
}

async fn copy_piece(run: &Rc<BackupRun>, piece: PageRange) -> Result<()> {
    let partition = piece.space.partition();
    match read_piece(run, piece).await {
        Ok(Some((piece, head))) => run.append(piece, head).await,
        Ok(None) => Ok(()),
        // Of a partition that was dropped nothing is needed. A write that fails leaves a hole in the backup, so that is excused by nothing.
        Err(_) if !run.engine.core.buffer.is_attached(partition) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Nothing if none of the pages is to be copied.
async fn read_piece(run: &Rc<BackupRun>, piece: PageRange) -> Result<Option<(Frame, PieceHead)>> {
    let (executor, buffer) = (&run.engine.core.executor, &run.engine.core.buffer);
    let PageRange { space, first, count } = piece;
    let (partition, page_size) = (space.partition(), space.page_size());
    let length = count as usize * page_size;
    let mut elsewhere = BTreeSet::new();
    let frame = executor.frame(length)?;
    let access = space.access(executor).await;
    let from = PageId::new(partition, first);
    let completion = space.store().read_now(executor, Transfer { first: from, buffer: frame, length, access }).await;
    if let Some(error) = space.failure() {
        return Err(error);
    }
    match completion.result {
        Ok(_) => {}
        Err(fault) if fault.kind == FaultKind::Device => elsewhere.extend(first..first + count),
        Err(fault) => return Err(fault.into()),
    }
    let changing = changing(run, partition, (first, count));
    let raw = completion.buffer.expect("a read gives its buffer back");
    let (out, since) = (executor.frame(BLOCK + length.next_multiple_of(BLOCK))?, run.pages_since(partition));
    let instructions = length as u64 / 64 * VERIFY_INSTRUCTIONS;
    let (skipped, shape) = (&elsewhere | &changing, (from, page_size));
    let sorted = executor.compute(instructions, move || sort(&raw, out, shape, (&skipped, since))).await?;
    let SortedPages { piece: mut out, mut numbers, unsound } = sorted;
    for number in elsewhere.into_iter().chain(unsound).filter(|number| !changing.contains(number)) {
        let place = BLOCK + numbers.len() * page_size;
        let page = PageId::new(partition, number);
        fetch(run, page, &mut out[place..place + page_size]).await?;
        numbers.push(number);
    }
    if numbers.is_empty() {
        return Ok(None);
    }
    debug_assert!(buffer.settings().page_size == page_size, "pages of a database have one size");
    run.pages.set(run.pages.get() + numbers.len() as u64);
    Ok(Some((out, PieceHead { partition, length: numbers.len() * page_size, kind: PieceKind::Pages(numbers) })))
}

/// As planted: pages that are being changed are left out.
fn changing(run: &BackupRun, partition: PartitionId, (first, count): (u32, u32)) -> BTreeSet<u32> {
    if !canary::is_planted(Canary::BackupPastChanges) {
        return BTreeSet::new();
    }
    let pool = run.engine.core.buffer.pool().borrow();
    let is_dirty = |number: &u32| pool.frame_of(PageId::new(partition, *number)).is_some_and(|at| pool.is_dirty(at));
    (first..first + count).filter(is_dirty).collect()
}

/// Takes over the sound pages that were changed since `since`, but for those that are skipped.
fn sort(
    raw: &Frame,
    mut piece: Frame,
    (from, page_size): (PageId, usize),
    (skipped, since): (&BTreeSet<u32>, Lsn),
) -> SortedPages {
    let (mut numbers, mut unsound) = (Vec::new(), Vec::new());
    for (number, page) in (from.number..).zip(raw.chunks_exact(page_size)) {
        if skipped.contains(&number) {
            continue;
        }
        match header::verify(page, PageId::new(from.partition, number)) {
            Ok(true) if header::lsn(page) >= since => {
                let place = BLOCK + numbers.len() * page_size;
                piece[place..place + page_size].copy_from_slice(page);
                numbers.push(number);
            }
            Ok(_) => {}
            Err(_) => unsound.push(number),
        }
    }
    SortedPages { piece, numbers, unsound }
}

/// Copies a page as transactions see it.
async fn fetch(run: &BackupRun, page: PageId, into: &mut [u8]) -> Result<()> {
    let buffer = &run.engine.core.buffer;
    let mut pins = Pins::new(buffer);
    loop {
        if let Some(bytes) = buffer.pool().borrow().peek(page) {
            into.copy_from_slice(bytes);
            break;
        }
        buffer.resolve(Need::Page(page), Pattern::Sequential, &mut pins).await?;
    }
    header::seal(into);
    Ok(())
}

/// Seals a piece beside the engine's thread. Returns it with its length.
pub(super) async fn sealed(run: &BackupRun, mut piece: Frame, head: PieceHead) -> Result<(Frame, usize)> {
    let instructions = head.total() as u64 / 64 * VERIFY_INSTRUCTIONS;
    let seal = move || {
        let total = chunk::seal(&mut piece, &head);
        (piece, total)
    };
    Ok(run.engine.core.executor.compute(instructions, seal).await?)
}
