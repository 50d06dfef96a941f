//! A piece of the log, read together and decoded beside the engine's thread.

use crate::log::LogScan;
use crate::log::record::{Body, Record, parts};
use crate::{Error, Result};
use base::{Lsn, PageId, TransactionId};
use driver::Fault;
use executor::{Executor, JoinHandle};
use std::collections::BTreeSet;
use std::sync::Arc;
use structures::canary::{self, Canary};
use structures::set::{Malformed, ReplayItem, SortedChanges};

/// A batch ends with the record that makes it so long, in bytes.
const BATCH_BYTES: usize = 2 << 20;
/// About what it costs on described hardware to decode a record, in instructions, and 64 bytes of its changes of sets.
const RECORD_INSTRUCTIONS: u64 = 200;
const DECODE_INSTRUCTIONS: u64 = 200;

/// Records of the log, in their order.
#[derive(Default)]
pub(super) struct LogBatch {
    /// All of them, one behind the other.
    bytes: Vec<u8>,
    /// Start and end of each in the log, or of the one that it is in, and its end in `bytes`.
    records: Vec<(Lsn, Lsn, usize)>,
}

/// What a batch's records ask for.
pub(super) struct DecodedBatch {
    pub(super) batch: Arc<LogBatch>,
    /// Records that change pages.
    pub(super) pieces: Vec<PageChanges>,
    /// The numbers of those that say something of transactions which may not have ended when the batch does.
    pub(super) noted: Vec<usize>,
    /// The transactions that have, in order.
    pub(super) ended: Vec<TransactionId>,
    /// The highest number of a transaction.
    pub(super) last: TransactionId,
    /// The redo of sets.
    pub(super) sets: Vec<SetStep>,
}

/// Consecutive records that change pages, whose pages are fetched together.
#[derive(Default)]
pub(super) struct PageChanges {
    /// Their numbers.
    pub(super) records: Vec<usize>,
    pub(super) pages: BTreeSet<PageId>,
    /// The page of the last change.
    latest: Option<PageId>,
}

/// A part of the redo of sets that comes before the parts behind it.
pub(super) enum SetStep {
    /// Changes.
    Changes(SortedChanges),
    /// The procedure that the record of this number calls.
    Call(usize),
}

/// A change to be replayed.
#[derive(Clone, Copy)]
struct Choice {
    /// A piece ends with the record that gives it this number of pages.
    pages_max: usize,
    /// Pages have what was changed before.
    redo_start: Lsn,
    /// Where the sweep began whose backup was loaded.
    begin: Lsn,
    /// As planted: changes are replayed twice, changes that the backup has are replayed, calls are not.
    again: bool,
    blindly: bool,
    no_calls: bool,
}

impl LogBatch {
    /// The next records of the log; `None` at its end.
    pub(super) async fn read(scan: &mut LogScan) -> Result<Option<LogBatch>> {
        let mut batch = LogBatch::default();
        while batch.bytes.len() < BATCH_BYTES {
            let Some(entry) = scan.next().await? else { break };
            if batch.records.is_empty() {
                batch.bytes.reserve(BATCH_BYTES + BATCH_BYTES / 16);
            }
            for record in parts(entry.bytes) {
                batch.bytes.extend_from_slice(record);
                batch.records.push((entry.start, entry.end, batch.bytes.len()));
            }
        }
        Ok((!batch.records.is_empty()).then_some(batch))
    }

    /// How many records it has.
    pub(super) fn records(&self) -> usize {
        self.records.len()
    }

    /// The LSN of its last record.
    pub(super) fn end(&self) -> Option<Lsn> {
        self.records.last().map(|(_, end, _)| *end)
    }

    /// All records' bytes.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Where the record of this number begins and ends in the log, and what it says.
    ///
    /// # Errors
    /// [`Error::DamagedLog`].
    pub(super) fn record(&self, number: usize) -> Result<(Lsn, Lsn, Record<'_>)> {
        let (start, end, to) = self.records[number];
        let from = number.checked_sub(1).map_or(0, |before| self.records[before].2);
        let detail = "a record's bytes make no sense although its pages' checksums are right";
        let record = Record::decode(&self.bytes[from..to]).ok_or_else(|| damaged(start, detail))?;
        Ok((start, end, record))
    }

    /// Where the record before the one of this number ends in the log, if it is here.
    pub(super) fn end_before(&self, number: usize) -> Option<Lsn> {
        number.checked_sub(1).map(|before| self.records[before].1)
    }

    /// What is wrong with the log if these of its bytes are no change of a set.
    pub(super) fn damage(&self, Malformed(at): Malformed) -> Error {
        let number = self.records.partition_point(|(_, _, to)| *to <= at);
        damaged(self.records[number].0, "a commit's changes of sets make no sense")
    }

    /// Where the record with this change of a set begins in the log.
    pub(super) fn start_of(&self, change: ReplayItem) -> Lsn {
        let number = self.records.partition_point(|(_, _, to)| *to <= change.at());
        self.records[number].0
    }

    /// Begins to decode it beside the engine's thread, for pages that have what was changed before `redo_start`, and for sets whose
    /// backup's sweep began at `begin`.
    pub(super) fn decoded(
        self,
        executor: &Executor,
        (redo_start, begin): (Lsn, Lsn),
        pages_max: usize,
    ) -> JoinHandle<Result<Result<DecodedBatch>, Fault>> {
        let choice = Choice {
            pages_max,
            redo_start,
            begin,
            again: canary::is_planted(Canary::RepeatedAction),
            blindly: canary::is_planted(Canary::IgnoredInclusion),
            no_calls: canary::is_planted(Canary::SkippedCall),
        };
        let instructions =
            self.records.len() as u64 * RECORD_INSTRUCTIONS + self.bytes.len() as u64 / 64 * DECODE_INSTRUCTIONS;
        executor.begin_compute(instructions, move || self.decode(choice))
    }

    fn decode(self, choice: Choice) -> Result<DecodedBatch> {
        let (mut pieces, mut noted, mut ended) = (Vec::new(), Vec::new(), Vec::new());
        let (mut last, mut piece) = (TransactionId::default(), PageChanges::default());
        let (mut sets, mut sorted) = (Vec::new(), SortedChanges::default());
        for number in 0..self.records.len() {
            let (start, end, record) = self.record(number)?;
            last = last.max(record.transaction);
            match record.body {
                Body::Commit { chains: [], .. } | Body::SweptCommit { chains: [], .. } | Body::Call { .. }
                    if record.edits().next().is_none() =>
                {
                    ended.push(record.transaction);
                }
                _ => noted.push((number, record.transaction)),
            }
            // What the log has before is there for sets: the next sweep gives it up, while redo of pages may be left yet.
            let is_redone = start >= choice.redo_start;
            if is_redone && piece.add(number, &record) && piece.pages.len() >= choice.pages_max {
                pieces.push(std::mem::take(&mut piece));
            }
            if end <= choice.begin {
                continue;
            }
            match record.body {
                Body::Commit { changes, .. } => self.sort(&mut sorted, changes, &[], choice)?,
                Body::SweptCommit { changes, sweep, included, .. } => {
                    let is_there = sweep == choice.begin && !choice.blindly;
                    self.sort(&mut sorted, changes, if is_there { included } else { &[] }, choice)?;
                }
                Body::Call { sweep, .. } if (choice.blindly || sweep != Some(choice.begin)) && !choice.no_calls => {
                    sets.extend([SetStep::Changes(std::mem::take(&mut sorted)), SetStep::Call(number)]);
                }
                _ => {}
            }
        }
        sets.push(SetStep::Changes(sorted));
        pieces.push(piece);
        ended.sort_unstable();
        let goes_on = |(_, of): &(usize, TransactionId)| ended.binary_search(of).is_err();
        let noted = noted.into_iter().filter(goes_on).map(|(number, _)| number).collect();
        Ok(DecodedBatch { batch: Arc::new(self), pieces, noted, ended, last, sets })
    }

    /// Sorts a transaction's changes of sets but for those that the bits name.
    fn sort(&self, sorted: &mut SortedChanges, changes: &[u8], included: &[u8], choice: Choice) -> Result<()> {
        if changes.is_empty() {
            return Ok(());
        }
        let is_included =
            |position: usize| included.get(position / 8).is_some_and(|bits| bits >> (position % 8) & 1 == 1);
        // A decoded record's parts stand where its bytes do.
        let from = changes.as_ptr().addr() - self.bytes.as_ptr().addr();
        for _ in 0..=usize::from(choice.again) {
            sorted.add(&self.bytes, (from, from + changes.len()), is_included).map_err(|what| self.damage(what))?;
        }
        Ok(())
    }
}

impl PageChanges {
    /// Adds a record if it changes pages, and says whether it does.
    fn add(&mut self, number: usize, record: &Record<'_>) -> bool {
        let mut has_any = false;
        for (_, edit) in record.edits() {
            has_any = true;
            if self.latest.replace(edit.page) != Some(edit.page) {
                self.pages.insert(edit.page);
            }
        }
        if has_any {
            self.records.push(number);
        }
        has_any
    }
}

fn damaged(lsn: Lsn, detail: &str) -> Error {
    Error::DamagedLog { lsn, file: "log".into(), detail: detail.to_owned() }
}
