//! Bulk loads beside readers of moments.

use crate::engine::{Engine, Visit};
use crate::log::record::Body;
use base::{Lsn, PartitionId, TransactionId};
use std::rc::Rc;

/// A load in progress. Its records are visible to readers that begin after its end.
pub(crate) struct LoadInProgress {
    _visit: Visit,
    engine: Rc<Engine>,
    partition: PartitionId,
    /// Where the log was.
    began: Lsn,
}

impl LoadInProgress {
    /// A bulk load of a partition begins.
    pub(crate) fn new(engine: &Rc<Engine>, partition: PartitionId) -> LoadInProgress {
        engine.versions.begin_load(partition);
        let began = engine.core.log.end();
        engine.catalog.begin_load(began);
        LoadInProgress { _visit: Visit::new(engine), engine: Rc::clone(engine), partition, began }
    }
}

impl Drop for LoadInProgress {
    fn drop(&mut self) {
        // An empty record makes a moment of its own, which no commit shares.
        let engine = &self.engine;
        let ended = engine.core.log.says_time().then_some(Body::LoadEnded { partition: self.partition });
        let (_, end) = engine.core.log_and_apply(TransactionId::SYSTEM, &ended.unwrap_or(Body::System), &[]);
        engine.versions.end_load(self.partition, end);
        engine.catalog.end_load(self.began);
        // A reader at that moment waits until it is durable.
        engine.core.log.request(end);
    }
}
