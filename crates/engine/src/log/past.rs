//! What the log's files have of the time before redo begins. A position's place in the file is used again only when the log has gone
//! round, so nothing need be kept for that: it is there until then.

use super::LogScan;
use super::read_ahead::Sources;
use super::record::{Body, Record};
use crate::{Error, Result};
use base::Lsn;

/// A search by time ends with a span of this length, in bytes.
const SPAN_MAX: u64 = 1 << 20;

/// The log from some page on, up to where it will go on.
pub(crate) struct PastLog {
    template: LogScan,
    files: Sources,
    /// The front of that page.
    pub from: Lsn,
    end: Lsn,
}

impl PastLog {
    /// Reads it from the front of a page on, with its end for the end of the log.
    pub fn scan(&self, from: Lsn) -> LogScan {
        self.template.again(&self.files, (from, self.end))
    }

    /// The front of the first page that the log will have.
    pub fn end(&self) -> Lsn {
        self.end
    }

    /// The front of the page behind the one with this position.
    pub fn page_behind(&self, position: Lsn) -> Lsn {
        let page_size = self.template.page_size();
        Lsn(position.0 - position.0 % page_size + page_size)
    }
}

impl LogScan {
    /// What the files have since `since` that will go on, but for what is not needed to read moments since a time by the calendar, in
    /// nanoseconds since 1970. To be called at the log's end.
    ///
    /// # Errors
    /// The driver's.
    pub(crate) async fn past(&self, since: Lsn, unix_ns: u64) -> Result<PastLog> {
        let (files, end) = (self.lasting(), Lsn(self.tail.expect("the log was read to its end")));
        let first = unless_damaged(self.first_left(since, &files).await)?.unwrap_or_else(|| self.oldest());
        let page_size = self.page_size();
        let (mut from, mut low, mut high) = (first, first, end.0);
        while high - low > SPAN_MAX {
            let middle = (low / page_size).midpoint(high / page_size) * page_size;
            // What comes first behind `high` is known to be too late.
            match unless_damaged(self.first_time(&files, (Lsn(middle), Lsn(high))).await)?.flatten() {
                Some((at_ns, oldest)) if at_ns <= unix_ns => {
                    low = middle;
                    from = from.max(oldest.0 - oldest.0 % page_size);
                }
                _ => high = middle,
            }
        }
        let from = Lsn(from);
        Ok(PastLog { template: self.again(&files, (from, end)), files, from, end })
    }

    /// The first that the log says of the time within a span that begins with a page, and where the records of those begin who commit from
    /// there on.
    async fn first_time(&self, files: &Sources, span: (Lsn, Lsn)) -> Result<Option<(u64, Lsn)>> {
        let mut scan = self.again(files, span);
        while let Some(entry) = scan.next().await? {
            let record = Record::decode_body(entry.bytes);
            if let Some(Record { body: Body::Time { unix_ns, oldest: Some(oldest) }, .. }) = record {
                return Ok(Some((unix_ns, oldest)));
            }
        }
        Ok(None)
    }
}

/// What was found, or nothing where a page cannot be read: it may be further back than what is needed.
fn unless_damaged<T>(found: Result<T>) -> Result<Option<T>> {
    match found {
        Err(Error::DamagedLog { .. }) => Ok(None),
        found => found.map(Some),
    }
}
