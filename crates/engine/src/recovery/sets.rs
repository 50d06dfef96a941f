//! Redo of memory-resident sets: what was committed after the backup's sweep began is repeated, transaction by transaction in
//! the order of their commits (Garcia-Molina and Salem, System M, 1988, section 4).
//!
//! Values may be repeated over any images. Actions and procedures are repeated exactly once over what a consistent sweep has
//! left; those that a black/white sweep has in its backup are left out, if it is that sweep's backup that was loaded: the one
//! of a sweep that did not end says nothing. Records of all kinds may follow one another, because each says what it is: those
//! that were logged while the backup was being swept suit that sweep, and after them the sets are as they were, whatever the
//! log repeats from then on. So an opening with another log or other sweeps may go on with the backup that it finds.

use super::{Batch, decode};
use crate::canary::{self, Canary};
use crate::database::Database;
use crate::log::record::{Body, Record};
use crate::set::ApplyError;
use crate::transaction::grow_set;
use crate::{Error, Result};
use base::Lsn;

/// Changes of so many records are looked up together before they are repeated one by one.
const AHEAD: usize = 64;

/// The changes of sets in the next [`AHEAD`] records from `number` on, which begins at `from`.
fn changes_ahead(batch: &Batch, number: usize, mut from: usize) -> impl Iterator<Item = &[u8]> {
    batch.records[number..].iter().take(AHEAD).filter_map(move |&(_, _, to)| {
        let bytes = &batch.bytes[std::mem::replace(&mut from, to)..to];
        match Record::decode(bytes)?.body {
            Body::Commit { changes, .. } | Body::SweptCommit { changes, .. } => Some(changes),
            _ => None,
        }
    })
}

/// Repeats what the batch's transactions have changed in the sets of `database`, which only repeats. Their backup was begun
/// at `begin`.
pub(super) async fn redo(database: &Database, batch: &Batch, begin: Lsn) -> Result<()> {
    let mut from = 0;
    for (number, &(start, end, to)) in batch.records.iter().enumerate() {
        if number % AHEAD == 0 {
            database.0.sets.borrow_mut().warm(changes_ahead(batch, number, from));
        }
        let record = decode(&batch.bytes[from..to], start)?;
        from = to;
        if end <= begin {
            continue;
        }
        match record.body {
            Body::Commit { changes, .. } => apply(database, start, changes, &[])?,
            Body::SweptCommit { changes, sweep, included, .. } => {
                let is_there = sweep == begin && !canary::is_planted(Canary::IgnoredInclusion);
                apply(database, start, changes, if is_there { included } else { &[] })?;
            }
            Body::Call { sweep, call } => {
                let is_there = sweep == Some(begin) && !canary::is_planted(Canary::IgnoredInclusion);
                if !is_there && !canary::is_planted(Canary::SkippedCall) {
                    database.repeat(start, call).await?;
                }
            }
            _ => {}
        }
    }
    Ok(())
}

/// Repeats a transaction's changes of sets but for those that the bits name.
fn apply(database: &Database, start: Lsn, changes: &[u8], included: &[u8]) -> Result<()> {
    let is_included = |position: usize| included.get(position / 8).is_some_and(|bits| bits >> (position % 8) & 1 == 1);
    let mut sets = database.0.sets.borrow_mut();
    let mut again = canary::is_planted(Canary::RepeatedAction);
    loop {
        let detail = match sets.apply_except(changes, is_included) {
            Ok(()) if std::mem::take(&mut again) => continue,
            Ok(()) => return Ok(()),
            Err(ApplyError::NoSegment(partition)) => {
                grow_set(&database.0.executor, &mut sets, partition)?;
                continue;
            }
            // A creation that was cut off before anybody could use it.
            Err(ApplyError::NoSet(_)) => return Ok(()),
            Err(ApplyError::Malformed) => "a commit's changes of sets make no sense".to_owned(),
        };
        return Err(Error::DamagedLog { lsn: start, file: "log".into(), detail });
    }
}
