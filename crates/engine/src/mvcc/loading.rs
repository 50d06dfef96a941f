//! Bulk loads beside readers of moments.

use crate::engine::{Engine, Visit};
use crate::log::record::Body;
use crate::{Error, Result};
use base::{Lsn, PartitionId, TransactionId};
use std::rc::Rc;

/// A load in progress. Its records are visible to readers that begin after its end; one that is dropped before leaves nothing.
pub(crate) struct LoadInProgress {
    _visit: Visit,
    engine: Rc<Engine>,
    partition: PartitionId,
    has_ended: bool,
}

impl LoadInProgress {
    /// A bulk load of a partition begins.
    ///
    /// # Errors
    /// [`Error::PartitionInUse`] if another one of it is under way: both would write the same pages.
    pub(crate) fn new(engine: &Rc<Engine>, partition: PartitionId) -> Result<LoadInProgress> {
        if engine.catalog.is_loading(partition) {
            return Err(Error::PartitionInUse(engine.catalog.describe(partition)?.name.clone()));
        }
        engine.versions.begin_load(partition);
        engine.catalog.begin_load(partition, engine.core.log.end());
        Ok(LoadInProgress { _visit: Visit::new(engine), engine: Rc::clone(engine), partition, has_ended: false })
    }

    /// What was loaded is there from now on. Returns the end of the log's record of it, for which the log was to have room.
    pub(crate) fn end(&mut self) -> Lsn {
        let engine = &self.engine;
        engine.note_time();
        // An empty record makes a moment of its own, which no commit shares.
        let ended = engine.core.log.says_time().then_some(Body::LoadEnded { partition: self.partition });
        let (_, end) = engine.core.log_and_apply(TransactionId::SYSTEM, &ended.unwrap_or(Body::System), &[]);
        engine.versions.end_load(self.partition, end);
        // A reader at that moment waits until it is durable.
        engine.core.log.request(end);
        self.has_ended = true;
        end
    }
}

impl Drop for LoadInProgress {
    fn drop(&mut self) {
        if !self.has_ended {
            self.engine.versions.give_up_load(self.partition);
        }
        self.engine.catalog.end_load(self.partition);
    }
}
