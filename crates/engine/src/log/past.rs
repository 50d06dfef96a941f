//! What the log's files have of the time before redo begins. A position's place in the file is used again only when the log has gone
//! round, so nothing need be kept for that: it is there until then.

use super::LogScan;
use super::record::{Body, Record};
use crate::Result;
use base::Lsn;

/// A search by time ends with a span of this length, in bytes.
const SPAN_MAX: u64 = 1 << 20;

/// The log from some page on, up to where it will go on.
pub(crate) struct PastLog {
    template: LogScan,
    /// The front of that page.
    pub from: Lsn,
    end: Lsn,
}

impl PastLog {
    /// Reads it from the front of a page on, with its end for the end of the log.
    pub fn scan(&self, from: Lsn) -> LogScan {
        self.template.again((from, self.end))
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
    /// What the files have since `since`, but for what is not needed to read moments since a time by the calendar, in nanoseconds since 1970. To be called at
    /// the log's end.
    ///
    /// # Errors
    /// [`crate::Error::DamagedLog`] if a page cannot be read, or the driver's.
    pub(crate) async fn past(&self, since: Lsn, unix_ns: u64) -> Result<PastLog> {
        let (first, end) = (self.first_left(since).await?, Lsn(self.tail.expect("the log was read to its end")));
        let page_size = self.page_size();
        let (mut from, mut low, mut high) = (first, first, end.0);
        while high - low > SPAN_MAX {
            let middle = (low / page_size).midpoint(high / page_size) * page_size;
            match self.first_time((Lsn(middle), end)).await? {
                Some((at_ns, oldest)) if at_ns <= unix_ns => {
                    low = middle;
                    from = from.max(oldest.0 - oldest.0 % page_size);
                }
                _ => high = middle,
            }
        }
        Ok(PastLog { template: self.again((Lsn(from), end)), from: Lsn(from), end })
    }

    /// The first that the log says of the time within a span that begins with a page, and where the records of those begin who commit from there on.
    async fn first_time(&self, span: (Lsn, Lsn)) -> Result<Option<(u64, Lsn)>> {
        let mut scan = self.again(span);
        while let Some(entry) = scan.next().await? {
            let record = Record::decode_body(entry.bytes);
            if let Some(Record { body: Body::Time { unix_ns, oldest: Some(oldest) }, .. }) = record {
                return Ok(Some((unix_ns, oldest)));
            }
        }
        Ok(None)
    }
}
