//! Letting transactions come to their ends before a sweep, as System M does (section 3.3).

use crate::database::Database;
use base::time::{MICROSECOND_NS, SECOND_NS};

/// How often it is looked whether the last one has ended, in nanoseconds.
const LOOK_NS: u64 = 20 * MICROSECOND_NS;
/// How long a sweep waits for that at most, in nanoseconds. Its images hold committed state whether or not transactions are
/// under way, and one of these may itself wait for a checkpoint.
const PATIENCE_NS: u64 = SECOND_NS;

/// No transaction begins until this is dropped.
pub(super) struct Quiet<'a>(&'a Database);

impl Drop for Quiet<'_> {
    fn drop(&mut self) {
        let inner = &self.0.0;
        inner.admitted_max.set(inner.settings.multiprogramming_level);
        inner.admission.wake_all(&inner.executor);
    }
}

impl Database {
    /// Lets no transaction begin, and waits until those that have changed something in sets have ended.
    pub(super) async fn quiesce(&self) -> Quiet<'_> {
        let executor = &self.0.executor;
        self.0.admitted_max.set(0);
        let quiet = Quiet(self);
        let began = executor.now();
        let is_patient = || executor.now().since_ns(began) < PATIENCE_NS && !self.0.checkpointer.relief.is_awaited();
        while !self.0.sets.borrow().is_unchanging() && is_patient() {
            executor.sleep_ns(LOOK_NS).await;
        }
        quiet
    }
}
