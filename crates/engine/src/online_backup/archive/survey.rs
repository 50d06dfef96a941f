//! Looking through the log behind a backup: where a target is, and what the log says up to there that its redo needs to know before.

use crate::log::page::{self, HEADER_SIZE};
use crate::log::record::{Body, Record, parts};
use base::{Lsn, PartitionId};
use std::collections::BTreeMap;

/// Up to where an archived log is restored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RestoreTarget {
    /// As far as the archive has it.
    #[default]
    End,
    /// Up to the last commit whose record ends at this position or before it.
    Position(Lsn),
    /// Up to the last commit that was made at this time by the calendar or before it, to a millisecond.
    Time {
        /// Nanoseconds since the beginning of 1970 UTC.
        unix_ns: u64,
    },
}

/// What the log says of the catalog.
pub(in super::super) struct CatalogSaid {
    pub at: Lsn,
    /// Whether this is all that the catalog says.
    pub is_whole: bool,
    /// As the log has it.
    pub changes: Vec<u8>,
    /// Where a procedure was called before that is to be run again.
    pub call: Option<Lsn>,
}

/// A survey of the log up to a target.
pub(in super::super) struct LogSurvey {
    target: RestoreTarget,
    /// Calls behind this are run again.
    sets_begin: Lsn,
    backup_end: Lsn,
    /// The opening that the latest page is of.
    epoch: u32,
    is_aligned: bool,
    /// A record that began in an earlier page, and where.
    partial: (Vec<u8>, Lsn),
    /// The time that the log has said last.
    said_ns: Option<u64>,
    first_call: Option<Lsn>,
    /// Whether something behind the target was met.
    pub is_reached: bool,
    /// The end of the last record up to the target.
    pub end: Lsn,
    /// When the last commit up to the target was made, if it is behind the backup, in nanoseconds since 1970.
    pub committed_ns: Option<u64>,
    /// What was said of the catalog behind the backup.
    pub catalog: Vec<CatalogSaid>,
    /// The loads that have ended behind the backup: where that is said, up to where, and of which partition.
    pub loads: Vec<(Lsn, Lsn, PartitionId)>,
    /// How many pages of each partition are changed behind the backup, at least.
    pub pages: BTreeMap<PartitionId, u32>,
}

/// What makes no sense, and where.
pub(in super::super) type SurveyFlaw = (Lsn, &'static str);

impl LogSurvey {
    pub fn new(target: RestoreTarget, (sets_begin, backup_end): (Lsn, Lsn)) -> LogSurvey {
        LogSurvey {
            target,
            sets_begin,
            backup_end,
            epoch: 0,
            is_aligned: false,
            partial: (Vec::new(), Lsn::ZERO),
            said_ns: None,
            first_call: None,
            is_reached: false,
            end: backup_end,
            committed_ns: None,
            catalog: Vec::new(),
            loads: Vec::new(),
            pages: BTreeMap::new(),
        }
    }

    /// The time that the log has said last up to the target, in nanoseconds since 1970.
    pub fn said_ns(&self) -> Option<u64> {
        self.said_ns
    }

    /// Goes on with these sound pages, the first of which is at `position`, up to the target.
    pub fn add(&mut self, pages: &[u8], position: Lsn, page_size: usize) -> Result<(), SurveyFlaw> {
        for (page, position) in pages.chunks_exact(page_size).zip((position.0..).step_by(page_size)) {
            if !self.is_reached {
                self.add_page(page, position)?;
            }
        }
        Ok(())
    }

    fn add_page(&mut self, page: &[u8], position: u64) -> Result<(), SurveyFlaw> {
        let header = page::verify(page, position).map_err(|_| (Lsn(position), "it is no page of this log"))?;
        if header.epoch < self.epoch {
            return Err((Lsn(position), "it is of an earlier opening than the page before it"));
        }
        if header.epoch > self.epoch {
            // A record that a crash cut off is abandoned.
            self.partial.0.clear();
            self.is_aligned |= self.epoch > 0;
            self.epoch = header.epoch;
        }
        let mut at = HEADER_SIZE;
        if !self.is_aligned {
            at = if header.first == 0 { header.used } else { header.first };
            self.is_aligned = header.first != 0 || header.used < page.len();
        }
        while at < header.used && !self.is_reached {
            at += self.add_bytes(&page[at..header.used], position + at as u64)?;
        }
        if !self.partial.0.is_empty() && header.used < page.len() && !self.is_reached {
            return Err((self.partial.1, "a record ends before its length says"));
        }
        Ok(())
    }

    /// Goes on with the record that begins or goes on here. Returns how many of the bytes are of it.
    fn add_bytes(&mut self, bytes: &[u8], position: u64) -> Result<usize, SurveyFlaw> {
        let (mut partial, mut start) = std::mem::take(&mut self.partial);
        if partial.is_empty() {
            start = Lsn(position);
        }
        let head = 4_usize.saturating_sub(partial.len()).min(bytes.len());
        partial.extend_from_slice(&bytes[..head]);
        let mut taken = head;
        if let Some(length) = partial.first_chunk() {
            let length = u32::from_le_bytes(*length) as usize;
            if length < Record::FIXED_SIZE {
                return Err((start, "a record claims to be shorter than it can be"));
            }
            let more = (length - partial.len()).min(bytes.len() - taken);
            partial.extend_from_slice(&bytes[taken..taken + more]);
            taken += more;
            if partial.len() == length {
                parts(&partial).try_for_each(|record| self.note(start, Lsn(position + taken as u64), record))?;
                partial.clear();
            }
        }
        self.partial = (partial, start);
        Ok(taken)
    }

    fn note(&mut self, start: Lsn, end: Lsn, bytes: &[u8]) -> Result<(), SurveyFlaw> {
        let record = Record::decode(bytes).ok_or((start, "a record's bytes make no sense"))?;
        let is_call = matches!(record.body, Body::Call { .. });
        if end <= self.backup_end {
            if is_call && end > self.sets_begin {
                self.first_call.get_or_insert(start);
            }
            return Ok(());
        }
        self.is_reached = match (self.target, record.body) {
            (RestoreTarget::Position(position), _) => end > position,
            (RestoreTarget::Time { unix_ns }, Body::Time { unix_ns: found, .. }) => found > unix_ns,
            _ => false,
        };
        if self.is_reached {
            return Ok(());
        }
        if is_call {
            self.first_call.get_or_insert(start);
        }
        match record.body {
            Body::Time { unix_ns, .. } => self.said_ns = Some(unix_ns),
            Body::Catalog { is_whole, changes } => {
                self.catalog.push(CatalogSaid {
                    at: start,
                    is_whole,
                    changes: changes.to_vec(),
                    call: self.first_call,
                });
            }
            Body::Loaded { partition } => self.loads.push((start, end, partition)),
            Body::LoadUndone { partition, loaded } => {
                self.loads.retain(|(_, end, of)| (*end, *of) != (loaded, partition));
            }
            Body::Commit { .. } | Body::SweptCommit { .. } | Body::Call { .. } => self.committed_ns = self.said_ns,
            _ => {}
        }
        for (_, edit) in record.edits() {
            let pages = self.pages.entry(edit.page.partition).or_default();
            *pages = (*pages).max(edit.page.number.saturating_add(1));
        }
        self.end = end;
        Ok(())
    }
}
