//! Records one by one as a `Stream`, for who works with those of the `futures` crates.

use crate::{Error, Result};
use futures_core::{FusedStream, Stream};
use std::cell::Cell;
use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

/// A record: its key and its value.
pub(crate) type KeyValue = (Vec<u8>, Vec<u8>);

/// Records in the order of what they come from, a scan or a sort, as a stream: `Scan::into_stream`, [`Rows::into_stream`]. What
/// they come from is held as long as this is. It ends behind its last record, or behind the first error. It allocates when it is made, and
/// not for each record beside that itself.
///
/// [`Rows::into_stream`]: super::Rows::into_stream
///
/// ```
/// # mod ground { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/ground/database.rs")); }
/// # use ground::*;
/// # with_database(async |database| {
/// use entresol_engine::Direction;
/// use futures_util::{StreamExt, TryStreamExt};
///
/// let notes = database.create_partition(PartitionSpec::b_tree("notes")).await?;
/// let mut tx = database.begin().await?;
/// for name in ["bread", "figs", "milk"] {
///     tx.put(notes, name.as_bytes(), b"one").await?;
/// }
/// let names: Vec<String> = tx
///     .scan(notes, .., Direction::Backward)
///     .into_stream()
///     .take(2)
///     .map_ok(|(name, _)| String::from_utf8_lossy(&name).into_owned())
///     .try_collect()
///     .await?;
/// assert_eq!(names, ["milk", "figs"]);
/// # Ok(())
/// # });
/// ```
///
/// Nothing is changed behind its back by the transaction that it reads:
///
/// ```compile_fail,E0499
/// # async fn f(tx: &mut entresol_engine::Transaction, notes: base::PartitionId) -> entresol_engine::Result<()> {
/// use futures_util::StreamExt;
///
/// let mut records = tx.scan(notes, .., entresol_engine::Direction::Forward).into_stream();
/// while let Some(record) = records.next().await {
///     tx.delete(notes, &record?.0).await?;
/// }
/// # Ok(())
/// # }
/// ```
#[must_use = "a stream reads nothing unless it is polled"]
pub struct RecordStream<'a> {
    /// Where the next record is put.
    given: Rc<Cell<Option<KeyValue>>>,
    /// What reads; none any more at the end.
    reading: Option<Pin<Box<dyn Future<Output = Result<()>> + 'a>>>,
}

impl<'a> RecordStream<'a> {
    /// The records that `next` gives, until it gives none or fails.
    pub fn new(mut next: impl AsyncFnMut() -> Result<Option<KeyValue>> + 'a) -> RecordStream<'a> {
        let given = Rc::new(Cell::new(None));
        let place = Rc::clone(&given);
        let reading = async move {
            while let Some(record) = next().await? {
                place.set(Some(record));
                be_polled_again().await;
            }
            Ok(())
        };
        RecordStream { given, reading: Some(Box::pin(reading)) }
    }
}

/// Waits for the next poll, whatever brings it.
async fn be_polled_again() {
    let mut was_polled = false;
    poll_fn(|_| if std::mem::replace(&mut was_polled, true) { Poll::Ready(()) } else { Poll::Pending }).await;
}

impl Stream for RecordStream<'_> {
    type Item = Result<KeyValue, Error>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<KeyValue>>> {
        let Some(reading) = &mut self.reading else { return Poll::Ready(None) };
        if let Poll::Ready(end) = reading.as_mut().poll(context) {
            self.reading = None;
            return Poll::Ready(end.err().map(Err));
        }
        match self.given.take() {
            Some(record) => Poll::Ready(Some(Ok(record))),
            None => Poll::Pending,
        }
    }
}

impl FusedStream for RecordStream<'_> {
    fn is_terminated(&self) -> bool {
        self.reading.is_none()
    }
}

impl fmt::Debug for RecordStream<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("RecordStream")
    }
}
