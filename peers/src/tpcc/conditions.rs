//! The consistency conditions of clause 3.3.2 on any engine: Entresol's own, fed with pages of records.

use super::tables::{Record, Table};
use crate::peer::PeerResult;
use std::error::Error;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::vec::IntoIter;
use workload::tpcc::{Rows, Violation, violations};

/// What is wrong with the rows that `page` fetches: those of a table behind a key.
pub fn check(page: impl FnMut(Table, Option<&[u8]>) -> PeerResult<Vec<Record>>) -> PeerResult<Vec<Violation>> {
    let mut pages = Pages(page);
    match pin!(violations(&mut pages)).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(found) => found,
        Poll::Pending => unreachable!("pages of records never make the conditions wait"),
    }
}

struct Pages<P>(P);

struct Cursor {
    table: Table,
    records: IntoIter<Record>,
    /// The last key of the latest page; none before the first one.
    last: Option<Vec<u8>>,
}

impl<P: FnMut(Table, Option<&[u8]>) -> PeerResult<Vec<Record>>> Pages<P> {
    fn advance(&mut self, cursor: &mut Cursor) -> PeerResult<Option<Record>> {
        if cursor.records.as_slice().is_empty() {
            let records = (self.0)(cursor.table, cursor.last.as_deref())?;
            let Some((last, _)) = records.last() else { return Ok(None) };
            cursor.last = Some(last.clone());
            cursor.records = records.into_iter();
        }
        Ok(cursor.records.next())
    }
}

fn begin(table: Table) -> Cursor {
    Cursor { table, records: Vec::new().into_iter(), last: None }
}

impl<P: FnMut(Table, Option<&[u8]>) -> PeerResult<Vec<Record>>> Rows for Pages<P> {
    type Error = Box<dyn Error + Send + Sync>;
    type Cursor = Cursor;

    fn first(&mut self, tree: &str) -> PeerResult<Cursor> {
        Ok(begin(Table::named(tree)))
    }

    async fn next(&mut self, cursor: &mut Cursor) -> PeerResult<Option<Record>> {
        self.advance(cursor)
    }

    async fn history(&mut self, mut see: impl FnMut(&[u8])) -> PeerResult<()> {
        let mut cursor = begin(Table::History);
        while let Some((_, row)) = self.advance(&mut cursor)? {
            see(&row);
        }
        Ok(())
    }
}
