//! Restart: replay the log from the redo point, then undo the uncommitted transactions (ARIES, Mohan et al. 1992, without its
//! analysis pass: one scan redoes and collects the undo records of unfinished transactions).
//!
//! Redo compares page sequence numbers, so running it twice, or interrupting it, changes nothing.
//!
//! The log is read and decoded ahead, in pieces that computations own, on every core; sets replay their changes there as well
//! ([`sets`]). The engine's thread distributes the work, collects the results, and redoes pages.

mod batch;
mod moments;
mod sets;
mod tiers;

pub(crate) use moments::{find_past, rebuild_moments};
pub(crate) use tiers::{
    CacheNotOpened, NewCache, StatedTiers, TornPages, are_same_slots, begin_upper_cache, create_cache,
    open_upper_cache, reconcile, unless_bad,
};

use crate::buffer::{Buffer, PageCopies, Pins, Presence, begins_page};
use crate::checkpoint::{checkpoint_restart, whole_catalog_length};
use crate::engine::{Catalog, Engine, RedoneEnds, TransactionState};
use crate::log::LogScan;
use crate::log::record::{Body, Record};
use crate::procedure::Procedures;
use crate::second_level::design::Pattern;
use crate::statistics::RecoveryReport;
use crate::transaction::{Chains, LeftLoser, Loser, free_after_restart, leave, undo, without_room};
use crate::{Error, Need, Result};
use base::{Lsn, PageId, PartitionId, TransactionId};
use batch::{DecodedBatch, LogBatch};
use driver::Work;
use sets::Lanes;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;
use structures::canary::{self, Canary};
use structures::page::{Edit, header};
use structures::undo::UndoList;

/// Batches that are decoded ahead of those that are redone.
const AHEAD: usize = 4;

/// A transaction that had not ended at the end of the log.
#[derive(Default)]
struct Unfinished {
    undo: UndoList,
    /// Where its first record begins, and how many bytes of the log each of its updates has taken.
    first: Lsn,
    sizes: Vec<u32>,
    /// For a committed one: the pages with which the chains go on that are still to be freed, and where the record begins that
    /// stated them last.
    chains: Option<(Lsn, Vec<PageId>)>,
    /// Which pages it has changed.
    pages: BTreeSet<PageId>,
}

impl Unfinished {
    /// One whose first record begins there.
    fn since(first: Lsn) -> Unfinished {
        Unfinished { first, ..Unfinished::default() }
    }
}

/// What the scan left to do.
#[derive(Default)]
pub struct Remainder {
    transactions: BTreeMap<TransactionId, Unfinished>,
    last: TransactionId,
    /// Bulk loads that the log says to have ended, and the LSN of the record which says so.
    loads: Vec<(PartitionId, Lsn)>,
    /// The LSN of the last record.
    end: Lsn,
    /// What the scan did.
    report: RecoveryReport,
}

/// Redoes the log from the scan's beginning to its end: changes of pages from where the superblock file has redo of them begin, changes of
/// sets that were committed after `sets_begin`. Whole copies of torn pages are in `torn`. The engine has no log yet.
///
/// # Errors
/// [`DamagedLog`](crate::Error::DamagedLog), [`DamagedPage`](crate::Error::DamagedPage),
/// [`NotRepeated`](crate::Error::NotRepeated), or the driver's.
pub async fn redo(
    engine: &Rc<Engine>,
    procedures: &Procedures,
    (sets_begin, torn): (Lsn, Rc<TornPages>),
    scan: &mut LogScan,
) -> Result<Remainder> {
    let (executor, buffer) = (&engine.core.executor, &engine.core.buffer);
    let (began, from) = (executor.now(), scan.end());
    let copies: Rc<dyn PageCopies> = Rc::<TornPages>::clone(&torn);
    buffer.begin_redo(copies);
    let redo_start = engine.catalog.superblock.borrow().redo_start();
    let (mut remainder, mut ends) = (Remainder::default(), RedoneEnds::default());
    let mut lanes = Lanes::new(engine, procedures);
    let mut ahead = VecDeque::new();
    let pages_max = (buffer.settings().frames / 4).clamp(1, 1024);
    loop {
        while ahead.len() < AHEAD
            && let Some(batch) = LogBatch::read(scan).await?
        {
            ahead.push_back(batch.decoded(executor, (redo_start, sets_begin), pages_max));
        }
        let Some(next) = ahead.pop_front() else { break };
        let decoded = next.join().await??;
        redo_pages(engine, &decoded, &torn, &mut ends).await?;
        remainder.note_all(&decoded)?;
        lanes.replay(decoded).await?;
    }
    lanes.end().await?;
    ends.lengthen(engine).await?;
    remainder.report.log_bytes = scan.end().0 - from.0;
    remainder.report.redo_ns = executor.now().since_ns(began);
    Ok(remainder)
}

/// Redoes what a batch's records say of pages, piece by piece. The log may hold changes of partitions that were dropped, or whose
/// creation was cut off: their numbers were given, and lead to nothing.
async fn redo_pages(engine: &Engine, decoded: &DecodedBatch, torn: &TornPages, ends: &mut RedoneEnds) -> Result<()> {
    let buffer = &engine.core.buffer;
    let exists = |page: PageId| buffer.is_attached(page.partition) || canary::is_planted(Canary::RedoneStranger);
    for piece in &decoded.pieces {
        if let Some(tiers) = buffer.tiers() {
            piece.pages.iter().for_each(|page| tiers.pass_over(*page));
        }
        let is_read = |page: &PageId| exists(*page) && !buffer.leaves_redo(*page);
        buffer.prefetch(piece.pages.iter().copied().filter(is_read), Pattern::Random).await?;
        for &number in &piece.records {
            let (start, end, record) = decoded.batch.record(number)?;
            let mut edits = record.edits();
            while let Some((sequence, edit, encoded)) = edits.next_encoded() {
                if !exists(edit.page) {
                    check_given(&engine.catalog, edit.page.partition, start)?;
                    continue;
                }
                ends.note(engine, &edit).await?;
                engine.core.executor.charge(Work::Redo);
                if buffer.leaves_redo(edit.page) {
                    buffer.leave_redo(edit.page, (start, end), encoded);
                    continue;
                }
                while let Err(need) = redo_edit(buffer, sequence, &edit, start, end) {
                    let mut pins = Pins::new(buffer);
                    match buffer.resolve(need, Pattern::Random, &mut pins).await {
                        Err(error) if begins_page(sequence, &edit) && error.is_unreadable() => {
                            buffer.make_anew(edit.page).await?;
                        }
                        Err(error) if error.is_unreadable() && canary::is_planted(Canary::PassedOver) => break,
                        Err(error) if error.is_unreadable() => {
                            torn.restore(buffer, (edit.page, sequence), error).await?;
                        }
                        fetched => drop(fetched?),
                    }
                }
            }
        }
        engine.core.executor.pay_debt().await;
    }
    Ok(())
}

/// Makes the edit if the page lacks it, whose log record is between `start` and `end`.
///
/// # Errors
/// The page, if it is not here; that it is damaged, if changes are missing before this one.
pub(crate) fn redo_edit(buffer: &Rc<Buffer>, sequence: u64, edit: &Edit<'_>, start: Lsn, end: Lsn) -> Result<(), Need> {
    let mut pool = buffer.pool().borrow_mut();
    let Presence::Resident(frame) = pool.presence(edit.page) else { return Err(Need::Page(edit.page)) };
    let present = header::sequence(pool.bytes(frame));
    if present >= sequence {
        return Ok(());
    }
    if begins_page(sequence, edit) {
        pool.renumber(frame, sequence - 1);
    } else if present + 1 != sequence {
        let detail = format!("it has seen {present} changes, the log goes on with change {sequence}");
        return Err(buffer.space(edit.page.partition).damaged(edit.page, detail).into());
    }
    pool.edit(frame, &edit.change, start, end);
    Ok(())
}

/// Tells a change of a partition that is no more from damage.
fn check_given(catalog: &Catalog, partition: PartitionId, lsn: Lsn) -> Result<()> {
    if catalog.partitions.borrow().was_given(partition) {
        return Ok(());
    }
    let detail = format!("a record changes partition {}, which was never created", partition.0);
    Err(Error::DamagedLog { lsn, file: "log".into(), detail })
}

impl Remainder {
    /// Notes what a batch says of transactions.
    fn note_all(&mut self, decoded: &DecodedBatch) -> Result<()> {
        for &number in &decoded.noted {
            let (start, end, record) = decoded.batch.record(number)?;
            let before = decoded.batch.end_before(number).unwrap_or(self.end);
            let before = if before == Lsn::ZERO { start } else { before.min(start) };
            // With what was left empty before it: undoing it may leave as much.
            self.note((start, end), u32::try_from(end.0 - before.0).unwrap_or(u32::MAX), &record);
        }
        self.end = decoded.batch.end().unwrap_or(self.end);
        self.report.records += decoded.batch.records() as u64;
        self.last = self.last.max(decoded.last);
        if !self.transactions.is_empty() {
            decoded.ended.iter().for_each(|id| drop(self.transactions.remove(id)));
        }
        Ok(())
    }

    fn note(&mut self, (start, end): (Lsn, Lsn), size: u32, record: &Record<'_>) {
        let id = record.transaction;
        match record.body {
            Body::System
            | Body::Time { .. }
            | Body::Catalog { .. }
            | Body::SetsBefore { .. }
            | Body::LongValue { .. }
            | Body::Shipment { .. } => {}
            Body::Loaded { partition } => self.loads.push((partition, end)),
            Body::LoadUndone { partition, loaded } => self.loads.retain(|load| *load != (partition, loaded)),
            Body::LoadEnded { partition } => self.loads.retain(|(of, _)| *of != partition),
            Body::Update(undo) => {
                let unfinished = self.transactions.entry(id).or_insert_with(|| Unfinished::since(start));
                unfinished.undo.push_stored(undo);
                unfinished.sizes.push(size);
                unfinished.pages.extend(record.edits().map(|(_, edit)| edit.page));
            }
            Body::Compensation { remaining } => {
                let unfinished = self.transactions.entry(id).or_insert_with(|| Unfinished::since(start));
                unfinished.undo.truncate(remaining as usize);
                unfinished.sizes.truncate(remaining as usize);
            }
            Body::Commit { chains, .. } | Body::SweptCommit { chains, .. } if !chains.is_empty() => {
                let word = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().expect("eight bytes"));
                let chains = chains.chunks_exact(8).map(|bytes| PageId::unpacked(word(bytes))).collect();
                self.transactions.entry(id).or_default().chains = Some((start, chains));
            }
            Body::ChainStep { chain, next } => {
                let unfinished = self.transactions.get_mut(&id);
                let chains = unfinished.and_then(|unfinished| unfinished.chains.as_mut());
                if let Some(page) = chains.and_then(|(_, chains)| chains.get_mut(chain as usize)) {
                    page.number = next;
                }
            }
            Body::Commit { .. } | Body::SweptCommit { .. } | Body::Call { .. } | Body::RolledBack => {
                self.transactions.remove(&id);
            }
        }
    }
}

/// Has the log say that these loads have ended, and one that is archived which of them were cut off, so that restores do without them: those of
/// sets that no backup of the sets has, and that of a tree whose last pages the log does not have.
fn say_ended_loads(engine: &Engine, loads: Vec<(PartitionId, Lsn)>, loaded: &[PartitionId], end: Lsn) {
    let mut ended: BTreeSet<PartitionId> = loaded.iter().copied().collect();
    ended.extend(loads.iter().map(|(id, _)| *id));
    let swept = engine.catalog.superblock.borrow().backup.as_ref().map(|backup| Lsn(backup.begin));
    for (id, loaded) in loads {
        let Ok(partition) = engine.catalog.describe(id) else { continue };
        let is_undone = match partition.set_settings() {
            Some(_) => swept.is_some_and(|swept| loaded > swept),
            None => loaded == end,
        };
        if is_undone {
            engine.core.log.note_undone_load(id, loaded);
        }
    }
    if engine.versions.keeps_moments() {
        engine.core.log.keep_moments();
    }
    for partition in ended {
        engine.note_time();
        let end = engine.core.log.append(TransactionId::SYSTEM, &Body::LoadEnded { partition }, std::iter::empty());
        if engine.versions.keeps_moments() {
            engine.versions.end_lost_load(partition, end);
        }
    }
}

/// Undoes what was not committed, but for what can be left of transactions with more than `first_max` changes, completes what was, and takes a
/// checkpoint. Loads of the partitions `loaded` have no end in the log, wherever they began. What is left is to be undone once the opening can
/// fail no more ([`begin_left_undo`](crate::transaction::begin_left_undo)).
///
/// # Errors
/// A damaged page, or the driver's. Opening again goes on where this stopped.
pub async fn finish(
    engine: &Rc<Engine>,
    remainder: Remainder,
    loaded: &[PartitionId],
    first_max: u64,
) -> Result<(RecoveryReport, Vec<LeftLoser>)> {
    let began = engine.core.executor.now();
    let unfinished = remainder.transactions.len() as u64;
    engine.transactions.registry.borrow_mut().skip(remainder.last);
    say_ended_loads(engine, remainder.loads, loaded, remainder.end);
    let (mut first, mut large, mut freeing) = (Vec::new(), Vec::new(), Vec::new());
    for (id, Unfinished { undo, first: first_lsn, sizes, chains, pages }) in remainder.transactions {
        match chains {
            Some((stated, chains)) => freeing.push((id, stated, chains)),
            None if canary::is_planted(Canary::SkippedUndo) => {}
            None if undo.len() as u64 > first_max => large.push(Loser { id, first: first_lsn, undo, sizes }),
            None => first.push((id, undo, pages)),
        }
    }
    read_changed(engine, first.iter().flat_map(|(.., pages)| pages)).await;
    for (id, list, _) in first {
        undo_at_once(engine, id, list).await?;
    }
    let left = leave_or_undo(engine, large).await?;
    // Rollbacks come first: they were promised the room that the log has left.
    let of_known_pages = |(id, stated, mut chains): (TransactionId, Lsn, Vec<PageId>)| {
        let is_gone = |page: &&mut PageId| !engine.core.buffer.is_attached(page.partition);
        chains.iter_mut().filter(is_gone).for_each(|page| page.number = 0);
        (id, stated, Chains::of(chains))
    };
    free_after_restart(engine, freeing.into_iter().map(of_known_pages).collect()).await?;
    let undo_ns = engine.core.executor.now().since_ns(began);
    begin_rest_of_redo(engine);
    checkpoint_restart(engine).await?;
    let undos_left = left.len() as u64;
    Ok((RecoveryReport { unfinished, undo_ns, undos_left, ..remainder.report }, left))
}

/// Leaves those transactions that can be left, and undoes the others.
async fn leave_or_undo(engine: &Rc<Engine>, mut large: Vec<Loser>) -> Result<Vec<LeftLoser>> {
    large.sort_by_key(|loser| loser.first);
    let without_room = without_room(engine, &large, whole_catalog_length(engine));
    let mut left = Vec::new();
    for (number, loser) in large.into_iter().enumerate() {
        let refused = match leave(engine, loser, number >= without_room) {
            Ok(loser) => {
                left.push(loser);
                continue;
            }
            Err(refused) => refused,
        };
        undo_at_once(engine, refused.id, refused.undo).await?;
    }
    engine.core.executor.pay_debt().await;
    Ok(left)
}

async fn undo_at_once(engine: &Engine, id: TransactionId, list: UndoList) -> Result<()> {
    let mut state = TransactionState::unfinished(id, list);
    undo(&engine.core, &mut state, 0).await?;
    engine.core.log.append(id, &Body::RolledBack, std::iter::empty());
    Ok(())
}

/// Reads the pages together that unfinished transactions have changed, as far as they were not read by redo, before these are undone one
/// after the other.
async fn read_changed(engine: &Engine, changed: impl Iterator<Item = &PageId>) {
    let buffer = &engine.core.buffer;
    let left: BTreeSet<PageId> = changed.copied().filter(|page| buffer.is_left(*page)).collect();
    let at_once = (buffer.settings().frames / 4).max(1);
    // What fails shows when it is undone.
    let _tried = buffer.prefetch(left.into_iter().take(at_once), Pattern::Random).await;
}

/// Starts to make what redo has left, beside everything else. What fails is tried again by the next checkpoint, which tells.
fn begin_rest_of_redo(engine: &Rc<Engine>) {
    let (weak, mut after) = (Rc::downgrade(engine), None);
    engine.core.executor.spawn(async move {
        while let Some(engine) = weak.upgrade().filter(|engine| !engine.core.closing.get()) {
            let Some((last, _tried)) = engine.core.buffer.redo_more(after).await else { return };
            after = Some(last);
        }
    });
}
