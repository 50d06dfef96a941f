//! Letting transactions come to their ends before a sweep, as System M does (section 3.3).

use crate::engine::Engine;
use base::time::{MICROSECOND_NS, SECOND_NS};

/// How often it is looked whether the last one has ended, in nanoseconds.
const LOOK_NS: u64 = 20 * MICROSECOND_NS;
/// How long a sweep waits for that at most, in nanoseconds. Its images hold committed state whether or not transactions are
/// under way, and one of these may itself wait for a checkpoint.
const PATIENCE_NS: u64 = SECOND_NS;

/// No transaction begins until this is dropped.
pub(super) struct Quiet<'a>(&'a Engine);

impl Drop for Quiet<'_> {
    fn drop(&mut self) {
        let engine = self.0;
        engine.transactions.admitted_max.set(engine.transactions.rules.multiprogramming_level);
        engine.transactions.admission.wake_all(&engine.core.executor);
    }
}

/// Lets no transaction begin, and waits until those that have changed something in sets have ended.
pub(super) async fn quiesce(engine: &Engine) -> Quiet<'_> {
    let executor = &engine.core.executor;
    engine.transactions.admitted_max.set(0);
    let quiet = Quiet(engine);
    let began = executor.now();
    let is_patient = || executor.now().since_ns(began) < PATIENCE_NS && !engine.checkpointer.relief.is_awaited();
    while !engine.sets.sets.borrow().is_unchanging() && is_patient() {
        executor.sleep_ns(LOOK_NS).await;
    }
    quiet
}
