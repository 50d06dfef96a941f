//! Redo of memory-resident sets: what was committed after the backup's sweep began is repeated, transaction by transaction in
//! the order of their commits.

use super::{Batch, decode};
use crate::log::record::Body;
use crate::set::{ApplyError, Sets};
use crate::transaction::grow_set;
use crate::{Error, Result};
use base::Lsn;
use executor::Executor;
use std::cell::RefCell;

/// Repeats what the batch's transactions have changed in sets.
pub(super) fn redo(executor: &Executor, sets: &RefCell<Sets>, batch: &Batch, begin: Lsn) -> Result<()> {
    let mut from = 0;
    for &(start, end, to) in &batch.records {
        let record = decode(&batch.bytes[from..to], start)?;
        from = to;
        let Body::Commit { changes, .. } = record.body else { continue };
        if end <= begin {
            continue;
        }
        let mut sets = sets.borrow_mut();
        loop {
            let detail = match sets.apply(changes) {
                Ok(()) => break,
                Err(ApplyError::NoSegment(partition)) => {
                    grow_set(executor, &mut sets, partition)?;
                    continue;
                }
                // A creation that was cut off before anybody could use it.
                Err(ApplyError::NoSet(_)) => break,
                Err(ApplyError::Malformed) => "a commit's changes of sets make no sense".to_owned(),
            };
            return Err(Error::DamagedLog { lsn: start, file: "log".into(), detail });
        }
    }
    Ok(())
}
