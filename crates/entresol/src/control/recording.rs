//! Telling another program what transactions reference, and being told.

use super::ask::Asked;
#[cfg(doc)]
use super::ask::ElsewhereError;
use super::message::{Answer, Ask, REFERENCES_AT_ONCE, ReferenceWords};
use super::{Line, TICK, answer_of_error, wait};
use crate::{OpenError, Opening};
use base::{PageId, PartitionId};
use engine::{Error, RecordedPartition, RecordedReference, RecordedReferences};
use std::os::unix::net::UnixStream;
use std::pin::pin;
use std::time::Duration;

/// No more is held for one who asks, whatever the number that is asked for: 256 MiB.
const REFERENCES_MAX: u64 = 16 << 20;

/// Has references recorded and tells them. The last answer; nothing if the client has gone, which ends the recording.
pub(super) fn record(stream: &UnixStream, (span_ns, references_max): (u64, u64), line: &Line) -> Option<Answer> {
    let handle = match line.handle(stream) {
        Ok(handle) => handle,
        Err(answer) => return answer,
    };
    let references_max = references_max.min(REFERENCES_MAX) as usize;
    let sender = handle.link.sender.clone();
    let record = async move |database: &engine::Database| {
        let mut recording = pin!(database.record_references(span_ns, references_max));
        loop {
            match database.executor().within(TICK.as_nanos() as u64, recording.as_mut()).await {
                Some(recorded) => return recorded,
                // A thread that closes waits for what is under way, and this would last as long as it was asked for.
                None if sender.is_closed() => return Err(Error::Closed),
                None => {}
            }
        }
    };
    let mut pending = handle.with_database(record);
    // Else what takes requests up for this one alone would wait for more.
    drop(handle);
    let recorded = loop {
        match wait(&mut pending) {
            Some(Ok(recorded)) => break recorded,
            Some(Err(error)) => return Some(answer_of_error(error)),
            None => {}
        }
        if let Some(answer) = line.is_over(stream) {
            pending.cancel();
            return answer;
        }
    };
    let partitions = recorded.partitions.into_iter().map(|partition| {
        let RecordedPartition { id, name, objects, blocking_factor, locks } = partition;
        Answer::Partition((id.0, name, objects, blocking_factor, locks))
    });
    let words = recorded.transactions.iter().flat_map(|references| {
        references.iter().enumerate().map(|(number, RecordedReference { page, slot, write })| {
            (number == 0, page.partition.0, page.number, *slot, *write)
        })
    });
    let words: Vec<ReferenceWords> = words.collect();
    let references = words.chunks(REFERENCES_AT_ONCE).map(|some| Answer::References(some.to_vec()));
    let is_told = partitions.chain(references).all(|answer| line.tell(stream, &answer));
    is_told.then_some(Answer::Recorded(recorded.is_full))
}

impl Opening {
    /// Has the program that has the database open, on this machine and by the same user, tell what its transactions reference that begin
    /// within this time: at most this number of references, for which it holds 16 bytes each (and 64 for each transaction), and at most 256
    /// MiB. Nothing if no program listens there. What [`Database::record_references`](crate::Database::record_references) says holds of it.
    ///
    /// # Errors
    /// [`Error::Closed`] if the database is closed meanwhile, or an [`ElsewhereError`].
    ///
    /// ```
    /// # let directory = tempfile::tempdir().unwrap();
    /// # let directory = directory.path().join("data");
    /// # std::fs::create_dir(&directory).unwrap();
    /// # std::fs::write(directory.join("entresol.toml"), "[log]\nsize = \"4 MiB\"").unwrap();
    /// use entresol::Opening;
    /// use std::time::Duration;
    ///
    /// let opening = Opening::in_directory(&directory)?;
    /// let second = Duration::from_millis(100);
    /// assert!(opening.record_elsewhere(second, 1 << 20)?.is_none(), "it is not open");
    ///
    /// let thread = entresol::start(&directory)?;
    /// // In another process:
    /// let recorded = opening.record_elsewhere(second, 1 << 20)?.expect("it is open");
    /// assert!(recorded.transactions.is_empty(), "nothing has happened");
    /// thread.close()?;
    /// # Ok::<(), entresol::OpenError>(())
    /// ```
    pub fn record_elsewhere(
        &self,
        span: Duration,
        references_max: u64,
    ) -> Result<Option<RecordedReferences>, OpenError> {
        let span_ns = u64::try_from(span.as_nanos()).unwrap_or(u64::MAX);
        let Some(mut asked) = Asked::begin(self, &Ask::Record(span_ns, references_max))? else { return Ok(None) };
        let mut recorded = RecordedReferences::default();
        loop {
            match asked.answer()? {
                Answer::Partition((id, name, objects, blocking_factor, locks)) => {
                    let id = PartitionId(id);
                    recorded.partitions.push(RecordedPartition { id, name, objects, blocking_factor, locks });
                }
                Answer::References(words) => {
                    for (begins, partition, number, slot, write) in words {
                        if begins || recorded.transactions.is_empty() {
                            recorded.transactions.push(Vec::new());
                        }
                        let page = PageId::new(PartitionId(partition), number);
                        let reference = RecordedReference { page, slot, write };
                        recorded.transactions.iter_mut().last().into_iter().for_each(|all| all.push(reference));
                    }
                }
                Answer::Recorded(is_full) => {
                    recorded.is_full = is_full;
                    return Ok(Some(recorded));
                }
                Answer::Failed(failure) => return Err(asked.failed(failure)),
                _ => return Err(asked.strange()),
            }
        }
    }
}
