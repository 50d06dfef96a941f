//! What the log knows of its archive: how far that has it, and what only an archive needs to be told.

use super::record::Body;
use super::{Log, page};
use crate::Error;
use base::{Lsn, PartitionId, TransactionId};
use std::cell::{Cell, RefCell};
use structures::canary::{self, Canary};

/// After this number of attempts that have failed one after the other transactions do not wait for the next one.
const ATTEMPTS: u64 = 4;

/// How far a log is archived, and what that has taken since the database was opened.
#[derive(Debug)]
pub struct LogArchive {
    history: Cell<u64>,
    end: Cell<Lsn>,
    /// Whether the archive was looked through: up to then the history may turn out to be another one.
    is_found: Cell<bool>,
    segments: Cell<u64>,
    bytes: Cell<u64>,
    failures: Cell<u64>,
    /// How many of them since the last success.
    in_a_row: Cell<u64>,
    failure: RefCell<Option<Error>>,
}

impl LogArchive {
    /// Tells the segments of this log from those of others.
    pub fn history(&self) -> u64 {
        self.history.get()
    }

    /// The archive has everything before this.
    pub fn end(&self) -> Lsn {
        self.end.get()
    }

    /// Segments written.
    pub fn segments(&self) -> u64 {
        self.segments.get()
    }

    /// Bytes of log in them.
    pub fn bytes(&self) -> u64 {
        self.bytes.get()
    }

    /// How many attempts have failed.
    pub fn failures(&self) -> u64 {
        self.failures.get()
    }

    /// Why the latest attempt has failed, if it has: it is repeated until one succeeds.
    pub fn failure(&self) -> Option<Error> {
        self.failure.borrow().clone()
    }

    /// The archive has a segment more, up to here.
    pub(crate) fn note_segment(&self, end: Lsn) {
        self.segments.set(self.segments.get() + 1);
        self.bytes.set(self.bytes.get() + end.0.saturating_sub(self.end.get().0));
        self.end.set(end);
    }

    /// What the archive has ends here, as was found.
    pub(crate) fn note_found(&self, history: u64, end: Lsn) {
        self.history.set(history);
        self.end.set(end);
        self.is_found.set(true);
    }

    /// The log begins another history here, which the superblock file does not say yet.
    pub(crate) fn renew(&self, history: u64, begin: Lsn) {
        self.history.set(history);
        self.end.set(begin);
    }

    /// Whether it was looked what the archive has.
    pub(crate) fn is_found(&self) -> bool {
        self.is_found.get()
    }

    /// The latest attempt has ended like this. Returns whether that is new.
    pub(crate) fn note_attempt(&self, failure: Option<Error>) -> bool {
        self.failures.set(self.failures.get() + u64::from(failure.is_some()));
        let is_failure = failure.is_some();
        self.in_a_row.set(if is_failure { self.in_a_row.get() + 1 } else { 0 });
        self.failure.replace(failure).is_some() != is_failure
    }
}

impl Log {
    /// From now on the log says when commits are made, and it is known how far the archive has it: up to `end` in any case.
    pub(crate) fn begin_archive(&self, history: u64, end: Lsn) {
        let archive = LogArchive {
            history: Cell::new(history),
            end: Cell::new(end),
            is_found: Cell::new(false),
            segments: Cell::new(0),
            bytes: Cell::new(0),
            failures: Cell::new(0),
            in_a_row: Cell::new(0),
            failure: RefCell::new(None),
        };
        assert!(self.archive.set(archive).is_ok(), "a log has one archive");
        self.time.is_said.set(true);
    }

    /// How far it is archived; nothing if it is not.
    pub fn archive(&self) -> Option<&LogArchive> {
        self.archive.get()
    }

    /// Says that the load came to nothing whose end the record of the LSN `loaded` has announced, if anyone is to know:
    /// restores from the archive would be without the load, and moments would be read as if its end had followed.
    pub(crate) fn note_undone_load(&self, partition: PartitionId, loaded: Lsn) {
        if self.says_time() && !canary::is_planted(Canary::UnsaidUndoing) {
            self.append(TransactionId::SYSTEM, &Body::LoadUndone { partition, loaded }, std::iter::empty());
        }
    }

    /// Why the log that could be given up cannot be archived, if it is that which keeps it, and several attempts have failed.
    pub(crate) fn archive_failure(&self) -> Option<Error> {
        let archive = self.archive.get().filter(|archive| archive.in_a_row.get() >= ATTEMPTS)?;
        let failure = archive.failure.borrow();
        failure.clone().filter(|_| self.holds.are_in_the_way_from(archive.end()))
    }

    /// A page that says nothing, for the position before the first one of a file that was made anew, which no page has: of the opening
    /// that `next` is of, the page behind it.
    pub(crate) fn empty_page(&self, position: Lsn, next: &[u8]) -> Option<Vec<u8>> {
        let header = page::verify(next, position.0 + next.len() as u64).ok()?;
        let mut made = vec![0; next.len()];
        page::begin(&mut made, position.0, header.epoch);
        page::close(&mut made, page::HEADER_SIZE);
        page::seal(&mut made, position);
        Some(made)
    }
}
