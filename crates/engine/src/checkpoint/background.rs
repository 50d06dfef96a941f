//! Checkpoints that nobody asks for: of pages by the policy, of sets by the policy or on a clock of their own.

use super::{Policy, group};
use crate::database::Database;
use base::{Instant, Lsn};
use executor::Executor;
use std::rc::Rc;

/// How often it is looked whether it is time, in nanoseconds.
pub(super) const POLL_NS: u64 = 20 * base::time::MILLISECOND_NS;

/// At most how long it rests after checkpoints that have failed one after the other, in nanoseconds. Each takes time that
/// transactions could use, and after a failed sync none succeeds until the database is opened again.
const REST_NS_MAX: u64 = base::time::SECOND_NS;

/// Starts the background tasks that the settings ask for.
pub fn start(database: &Database) {
    let (end, checkpointer) = (database.0.log.end(), &database.0.checkpointer);
    checkpointer.last_begin.set(end);
    let swept = database.0.contents.borrow().backup.as_ref().map(|backup| Lsn(backup.begin));
    checkpointer.swept.set(swept.unwrap_or(end));
    start_paging(database);
    start_sweeping(database);
}

fn start_paging(database: &Database) {
    if database.0.checkpointer.policy == Policy::OFF {
        return;
    }
    let (weak, executor) = (Rc::downgrade(&database.0), database.0.executor.clone());
    database.0.executor.spawn_in(group(&executor), 0, async move {
        let (mut last, mut rest_ns) = (executor.now(), POLL_NS);
        loop {
            executor.sleep_ns(rest_ns).await;
            let Some(inner) = weak.upgrade() else { return };
            if inner.closing.get() {
                return;
            }
            let database = Database(inner);
            let began = database.0.checkpointer.last_begin.get();
            let is_needed = || database.0.log.is_crowded() && !database.is_log_held();
            if database.is_due(began, last) || is_needed() {
                let done = database.checkpoint_pages(false).await;
                rest_ns = if done.is_ok() { POLL_NS } else { (2 * rest_ns).min(REST_NS_MAX) };
                last = executor.now();
            }
        }
    });
}

/// Starts the checkpoint server of the sets, once there are any, if the settings have it sweep by itself.
pub(super) fn start_sweeping(database: &Database) {
    let (inner, checkpointer) = (&*database.0, &database.0.checkpointer);
    let is_idle = checkpointer.policy == Policy::OFF && inner.settings.sweep.interval_ns.is_none();
    if is_idle || inner.contents.borrow().backup.is_none() || checkpointer.serves_sets.replace(true) {
        return;
    }
    let (weak, executor) = (Rc::downgrade(&database.0), inner.executor.clone());
    inner.executor.spawn_in(group(&executor), 0, async move {
        let (mut began, mut failed_ns) = (executor.now(), POLL_NS);
        loop {
            let Some(inner) = weak.upgrade() else { return };
            if inner.closing.get() {
                return;
            }
            let database = Database(inner);
            let rest_ns = database.sweep_floor_ns(&executor, began);
            if rest_ns == 0 && database.wants_sweep(began) {
                began = executor.now();
                if database.checkpoint_sets().await.is_ok() {
                    failed_ns = POLL_NS;
                    continue;
                }
                failed_ns = (2 * failed_ns).min(REST_NS_MAX);
                drop(database);
                executor.sleep_ns(failed_ns).await;
                continue;
            }
            drop(database);
            executor.sleep_ns(if rest_ns == 0 { POLL_NS } else { rest_ns.min(POLL_NS) }).await;
        }
    });
}

impl Database {
    /// Whether the policy asks for a checkpoint after one that began at `begin` in the log and ended at `last`.
    fn is_due(&self, begin: Lsn, last: Instant) -> bool {
        let policy = self.0.checkpointer.policy;
        let grown = self.0.log.end().0 - begin.0;
        let by_size = policy.log_bytes.is_some_and(|bytes| grown >= bytes);
        let by_time = policy.interval_ns.is_some_and(|ns| self.0.executor.now().since_ns(last) >= ns);
        by_size || (by_time && grown > 0)
    }

    /// How long the next sweep has still to wait after one that began at `began`, in nanoseconds: until the least time between
    /// two has passed, unless the log is full.
    fn sweep_floor_ns(&self, executor: &Executor, began: Instant) -> u64 {
        let floor_ns = self.0.settings.sweep.interval_ns.unwrap_or(0);
        if self.holds_full_log() { 0 } else { floor_ns.saturating_sub(executor.now().since_ns(began)) }
    }

    /// Whether there is something to sweep for.
    fn wants_sweep(&self, began: Instant) -> bool {
        let swept = self.0.checkpointer.swept.get();
        match self.0.settings.sweep.interval_ns {
            Some(_) => self.0.log.end() > swept,
            None => self.is_due(swept, began) || self.holds_full_log(),
        }
    }

    /// Whether the log is full and begins with what the sets need.
    fn holds_full_log(&self) -> bool {
        let contents = self.0.contents.borrow();
        let sets_begin = contents.backup.as_ref().map_or(u64::MAX, |backup| backup.begin);
        self.0.log.is_full() && sets_begin <= contents.redo_start().0 && !self.is_log_held()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Error, PartitionSpec, Settings, log};
    use base::time::SECOND_NS;
    use driver::OpKind;
    use executor::Order;
    use virtual_driver::{ErrorAt, FaultPlan, Hardware, Media, Options, VirtualDriver};

    #[test]
    fn checkpoints_that_fail_while_the_log_is_full_are_not_repeated_all_the_time() {
        let text = "[device.disk]\nmedium.service = \"20 us\"\n[device.data]\nmedium.service = \"20 us\"\n";
        let hardware = Hardware::parse(text, "test").expect("a description");
        // What belongs to the creation of the partition succeeds.
        let errors = (3..10_000).map(|nth| ErrorAt { kind: OpKind::Write, device: Some("data".into()), nth }).collect();
        let faults = Some(FaultPlan { errors, ..FaultPlan::default() });
        let driver = VirtualDriver::new(hardware, Options { faults, ..Options::default() }, Media::new());
        let executor = Executor::new(Box::new(driver), Order::FirstInFirstOut);
        let failed = executor.run(async {
            let log = log::Settings { capacity: 256 << 10, ..log::Settings::default() };
            let checkpoint = Policy { log_bytes: Some(64 << 10), interval_ns: None };
            let database = Database::create(&executor, Settings { log, checkpoint, ..Settings::default() }).await?;
            let spec = PartitionSpec { device: "data".into(), ..PartitionSpec::b_tree("rows") };
            let rows = database.create_partition(spec).await?;
            let put = async |key: u64| {
                database.transaction(async |tx| tx.put(rows, &key.to_be_bytes(), &[7; 200]).await).await
            };
            for key in 0.. {
                if put(key).await.is_err() {
                    break;
                }
            }
            executor.sleep_ns(20 * SECOND_NS).await;
            let before = database.0.checkpointer.failed.get();
            executor.sleep_ns(20 * SECOND_NS).await;
            Ok::<u64, Error>(database.0.checkpointer.failed.get() - before)
        });
        executor.stop();
        let failed = failed.expect("the machine goes on").expect("it is created");
        assert!((10..=60).contains(&failed), "{failed} in twenty seconds");
    }
}
