//! Restart: repeat history from the redo point, then take back what was not committed (ARIES, Mohan et al. 1992, without
//! its analysis pass: one scan redoes and collects the undo records of unfinished transactions).
//!
//! Redo compares page sequence numbers, so repeating it, or being cut off in it, changes nothing.

mod sets;

use crate::buffer::{Buffer, Pins, Presence};
use crate::canary::{self, Canary};
use crate::database::Database;
use crate::log::Scan;
use crate::log::record::{Body, Record};
use crate::page::{Edit, header};
use crate::statistics::RecoveryReport;
use crate::transaction::State;
use crate::undo::UndoList;
use crate::{Error, Need, Result};
use base::{Lsn, PageId, TransactionId};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

/// A transaction that had not ended at the end of the log.
#[derive(Default)]
struct Unfinished {
    undo: UndoList,
    /// For a committed one: the pages with which the chains go on that are still to be freed.
    chains: Option<Vec<PageId>>,
}

/// What the scan left to do.
#[derive(Default)]
pub struct Remainder {
    transactions: BTreeMap<TransactionId, Unfinished>,
    last: TransactionId,
    /// What the scan did.
    report: RecoveryReport,
}

/// Records read ahead of their redo, so that their pages are read together.
#[derive(Default)]
struct Batch {
    bytes: Vec<u8>,
    /// Start and end in the log, end in `bytes`.
    records: Vec<(Lsn, Lsn, usize)>,
    pages: BTreeSet<PageId>,
}

const BATCH_RECORDS: usize = 4096;

impl Batch {
    fn clear(&mut self) {
        self.bytes.clear();
        self.records.clear();
        self.pages.clear();
    }
}

/// Redoes the log from the scan's beginning to its end: changes of pages that these lack, changes of sets that were committed
/// after `sets_begin`. `database` has no log yet.
///
/// # Errors
/// [`Error::DamagedLog`], [`Error::DamagedPage`], [`Error::NotRepeated`], or the driver's.
pub async fn redo(database: &Database, sets_begin: Lsn, scan: &mut Scan) -> Result<Remainder> {
    let (executor, buffer) = (&database.0.executor, &database.0.buffer);
    let (began, from) = (executor.now(), scan.end());
    let mut remainder = Remainder::default();
    let mut batch = Batch::default();
    let pages_max = (buffer.settings().frames / 4).clamp(1, 1024);
    loop {
        batch.clear();
        while batch.records.len() < BATCH_RECORDS && batch.pages.len() < pages_max {
            let Some(entry) = scan.next().await? else { break };
            batch.bytes.extend_from_slice(entry.bytes);
            batch.records.push((entry.start, entry.end, batch.bytes.len()));
            let record = decode(entry.bytes, entry.start)?;
            batch.pages.extend(record.edits().map(|(_, edit)| edit.page).filter(|page| exists(buffer, *page)));
        }
        if batch.records.is_empty() {
            remainder.report.log_bytes = scan.end().0 - from.0;
            remainder.report.redo_ns = executor.now().since_ns(began);
            return Ok(remainder);
        }
        buffer.prefetch(batch.pages.iter().copied()).await?;
        redo_batch(buffer, &batch, &mut remainder).await?;
        sets::redo(database, &batch, sets_begin).await?;
    }
}

/// Whether the page's partition was completely created: the log may hold the beginnings of one that was not.
fn exists(buffer: &Buffer, page: PageId) -> bool {
    buffer.is_attached(page.partition)
}

fn decode(bytes: &[u8], lsn: Lsn) -> Result<Record<'_>> {
    let detail = || "a record's bytes make no sense although its pages' checksums are right".to_owned();
    Record::decode(bytes).ok_or_else(|| Error::DamagedLog { lsn, file: "log".into(), detail: detail() })
}

async fn redo_batch(buffer: &Rc<Buffer>, batch: &Batch, remainder: &mut Remainder) -> Result<()> {
    let mut from = 0;
    for &(start, end, to) in &batch.records {
        let record = decode(&batch.bytes[from..to], start)?;
        from = to;
        for (sequence, edit) in record.edits().filter(|(_, edit)| exists(buffer, edit.page)) {
            while let Err(need) = redo_edit(buffer, sequence, &edit, start, end) {
                let mut pins = Pins::new(buffer);
                buffer.satisfy(need, &mut pins).await?;
            }
        }
        remainder.note(&record);
    }
    Ok(())
}

/// Makes the edit if the page lacks it.
fn redo_edit(buffer: &Rc<Buffer>, sequence: u64, edit: &Edit<'_>, start: Lsn, end: Lsn) -> Result<(), Need> {
    let mut pool = buffer.pool().borrow_mut();
    let Presence::Resident(frame) = pool.presence(edit.page) else { return Err(Need::Page(edit.page)) };
    let present = header::sequence(pool.bytes(frame));
    if present >= sequence {
        return Ok(());
    }
    if present + 1 != sequence {
        let detail = format!("it has seen {present} changes, the log goes on with change {sequence}");
        return Err(Need::Fail(buffer.file(edit.page.partition).damaged(edit.page, detail)));
    }
    pool.edit(frame, &edit.change, start, end);
    Ok(())
}

impl Remainder {
    fn note(&mut self, record: &Record<'_>) {
        self.report.records += 1;
        let id = record.transaction;
        self.last = self.last.max(id);
        match record.body {
            Body::System => {}
            Body::Update(undo) => self.transactions.entry(id).or_default().undo.push_stored(undo),
            Body::Compensation { remaining } => {
                self.transactions.entry(id).or_default().undo.truncate(remaining as usize);
            }
            Body::Commit { chains, .. } | Body::SweptCommit { chains, .. } if !chains.is_empty() => {
                let word = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().expect("eight bytes"));
                let chains = chains.chunks_exact(8).map(|bytes| PageId::unpacked(word(bytes))).collect();
                self.transactions.entry(id).or_default().chains = Some(chains);
            }
            Body::ChainStep { chain, next } => {
                let unfinished = self.transactions.get_mut(&id);
                let chains = unfinished.and_then(|unfinished| unfinished.chains.as_mut());
                if let Some(page) = chains.and_then(|chains| chains.get_mut(chain as usize)) {
                    page.number = next;
                }
            }
            Body::Commit { .. } | Body::SweptCommit { .. } | Body::Call { .. } | Body::RolledBack => {
                self.transactions.remove(&id);
            }
        }
    }
}

/// Takes back what was not committed, completes what was, and takes a checkpoint.
///
/// # Errors
/// A damaged page, or the driver's. Opening again goes on where this stopped.
pub async fn finish(database: &Database, remainder: Remainder) -> Result<()> {
    let began = database.0.executor.now();
    let unfinished = remainder.transactions.len() as u64;
    database.0.registry.borrow_mut().skip(remainder.last);
    for (id, unfinished) in remainder.transactions {
        match unfinished.chains {
            Some(chains) => {
                for (chain, mut page) in chains.into_iter().enumerate() {
                    database.free_chain(id, chain as u32, &mut page).await?;
                }
            }
            None if canary::is_planted(Canary::SkippedUndo) => {}
            None => {
                let mut state = State::unfinished(id, unfinished.undo);
                database.undo(&mut state, 0).await?;
                database.0.log.append(id, &Body::RolledBack, std::iter::empty());
            }
        }
    }
    let undo_ns = database.0.executor.now().since_ns(began);
    database.0.recovery.set(RecoveryReport { unfinished, undo_ns, ..remainder.report });
    database.checkpoint_restart().await
}
