//! Background checkpoints: of pages by the policy, of sets by the policy or on a clock of their own.

use super::paging::{CheckpointExtent, checkpoint_pages};
use super::relief::is_log_held;
use super::{Policy, checkpoint_sets, group, name_cache_table};
use crate::engine::{Core, Engine};
use base::{Instant, Lsn};
use executor::Executor;
use std::rc::Rc;

/// How often it is looked whether it is time, in nanoseconds.
pub(super) const POLL_NS: u64 = 20 * base::time::MILLISECOND_NS;

/// At most how long it rests after checkpoints that have failed one after the other, in nanoseconds. Each takes time that
/// transactions could use, and after a failed sync none succeeds until the database is opened again.
const REST_NS_MAX: u64 = base::time::SECOND_NS;

/// Starts the background tasks that the settings ask for.
pub(crate) fn start(engine: &Rc<Engine>) {
    let (end, checkpointer) = (engine.core.log.end(), &engine.checkpointer);
    checkpointer.last_begin.set(end);
    checkpointer.last_begun_at.set(engine.core.executor.now());
    checkpointer.last_success.set(end);
    let swept = engine.catalog.superblock.borrow().backup.as_ref().map(|backup| Lsn(backup.begin));
    checkpointer.swept.set(swept.unwrap_or(end));
    start_paging(engine);
    start_naming(engine);
    start_sweeping(engine);
}

/// Starts the task that has the superblock name a later block of the cache's table once many follow the one that it names. An
/// opening reads those, and pages that enter the cache unchanged ask for no checkpoint.
fn start_naming(engine: &Rc<Engine>) {
    let (weak, executor) = (Rc::downgrade(engine), engine.core.executor.clone());
    let growth = engine.core.buffer.table_growth();
    engine.core.executor.spawn_in(group(&executor), 0, async move {
        loop {
            growth.wait(&executor).await;
            let Some(engine) = weak.upgrade() else { return };
            // If it fails, the next checkpoint tells.
            let _tried = name_cache_table(&engine).await;
        }
    });
}

fn start_paging(engine: &Rc<Engine>) {
    if engine.checkpointer.policy == Policy::OFF {
        return;
    }
    let (weak, executor) = (Rc::downgrade(engine), engine.core.executor.clone());
    engine.core.executor.spawn_in(group(&executor), 0, async move {
        let (mut last, mut rest_ns) = (executor.now(), POLL_NS);
        loop {
            executor.sleep_ns(rest_ns).await;
            let Some(engine) = weak.upgrade() else { return };
            if engine.core.closing.get() {
                return;
            }
            let began = engine.checkpointer.last_success.get();
            let is_needed = || engine.core.log.is_crowded() && !is_log_held(&engine.core.log, &engine.transactions);
            let is_due = is_due(&engine.core, engine.checkpointer.policy, began, last);
            let has_failed = engine.checkpointer.has_restart_failed.get();
            if is_due || has_failed || is_put_off_due(&engine, last) || is_needed() {
                let extent = if has_failed { CheckpointExtent::Restart } else { CheckpointExtent::Old };
                let done = checkpoint_pages(&engine, extent).await;
                rest_ns = if done.is_ok() { POLL_NS } else { (2 * rest_ns).min(REST_NS_MAX) };
                last = executor.now();
            }
        }
    });
}

/// Starts the checkpoint server of the sets, once there are any, if the settings have it sweep by itself.
pub(super) fn start_sweeping(engine: &Rc<Engine>) {
    let checkpointer = &engine.checkpointer;
    let is_idle = checkpointer.policy == Policy::OFF && engine.checkpointer.sweep.interval_ns.is_none();
    if is_idle || engine.catalog.superblock.borrow().backup.is_none() || checkpointer.serves_sets.replace(true) {
        return;
    }
    let (weak, executor) = (Rc::downgrade(engine), engine.core.executor.clone());
    engine.core.executor.spawn_in(group(&executor), 0, async move {
        let (mut began, mut failed_ns) = (executor.now(), POLL_NS);
        loop {
            let Some(engine) = weak.upgrade() else { return };
            if engine.core.closing.get() {
                return;
            }
            let rest_ns = sweep_floor_ns(&engine, &executor, began);
            if rest_ns == 0 && wants_sweep(&engine, began) {
                began = executor.now();
                if checkpoint_sets(&engine).await.is_ok() {
                    failed_ns = POLL_NS;
                    continue;
                }
                failed_ns = (2 * failed_ns).min(REST_NS_MAX);
                drop(engine);
                executor.sleep_ns(failed_ns).await;
                continue;
            }
            drop(engine);
            executor.sleep_ns(if rest_ns == 0 { POLL_NS } else { rest_ns.min(POLL_NS) }).await;
        }
    });
}

/// Whether the policy asks for a checkpoint after one that began at `begin` in the log and ended at `last`.
fn is_due(core: &Core, policy: Policy, begin: Lsn, last: Instant) -> bool {
    let grown = core.log.end().0 - begin.0;
    policy.is_due(grown, core.executor.now().since_ns(last))
}

/// Whether it is time for what an opening has put off, be it that nothing was logged since.
fn is_put_off_due(engine: &Engine, last: Instant) -> bool {
    let interval_ns = engine.checkpointer.policy.interval_ns.filter(|_| engine.checkpointer.is_put_off.get());
    interval_ns.is_some_and(|ns| engine.core.executor.now().since_ns(last) >= ns)
}

/// How long the next sweep has still to wait after one that began at `began`, in nanoseconds: until the least time between
/// two has passed, unless the log is full.
fn sweep_floor_ns(engine: &Engine, executor: &Executor, began: Instant) -> u64 {
    let floor_ns = engine.checkpointer.sweep.interval_ns.unwrap_or(0);
    if holds_full_log(engine) { 0 } else { floor_ns.saturating_sub(executor.now().since_ns(began)) }
}

/// Whether there is something to sweep for.
fn wants_sweep(engine: &Engine, began: Instant) -> bool {
    let swept = engine.checkpointer.swept.get();
    match engine.checkpointer.sweep.interval_ns {
        Some(_) => engine.core.log.end() > swept,
        None => is_due(&engine.core, engine.checkpointer.policy, swept, began) || holds_full_log(engine),
    }
}

/// Whether the log is full and begins with what the sets need.
fn holds_full_log(engine: &Engine) -> bool {
    let superblock = engine.catalog.superblock.borrow();
    let sets_begin = superblock.backup.as_ref().map_or(u64::MAX, |backup| backup.begin);
    engine.core.log.is_full()
        && sets_begin <= superblock.redo_start().0
        && !is_log_held(&engine.core.log, &engine.transactions)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::{Locking, Organization};
    use crate::second_level::{self, CacheSettings, Design};
    use crate::tier_file::table::{BLOCK_BYTES, TABLE_FILE, block_number};
    use crate::{Database, Error, PartitionSpec, Result, Settings, Transaction, buffer, log};
    use base::PartitionId;
    use base::time::SECOND_NS;
    use driver::OpKind;
    use executor::Order;
    use virtual_driver::{ErrorAt, FaultPlan, Hardware, Media, Options, VirtualDriver};

    const PAGES: u64 = 100;

    /// A small cache whose table has few changes in a block, beside a device for the superblock file alone.
    fn with_cache() -> Settings {
        let cache = CacheSettings { table_ahead: 0, volatile: Some(false), ..CacheSettings::new("flash", 32) };
        let cache = CacheSettings { design: Design::named("clean-write").expect("it has this name"), ..cache };
        Settings {
            home_device: "home".into(),
            buffer: buffer::Settings { frames: 16, page_size: 1024, ..buffer::Settings::default() },
            hierarchy: second_level::Settings { cache: Some(cache), ..second_level::Settings::default() },
            checkpoint: Policy::OFF,
            ..Settings::default()
        }
    }

    fn machine(media: &Media, errors: Vec<ErrorAt>) -> Executor {
        let device = |name: &str| format!("[device.{name}]\nmedium.service = \"20 us\"\n");
        let hardware: String = ["disk", "home", "flash"].into_iter().map(device).collect();
        let hardware = Hardware::parse(&hardware, "test").expect("a description");
        let faults = Some(FaultPlan { errors, ..FaultPlan::default() });
        let driver = VirtualDriver::new(hardware, Options { faults, ..Options::default() }, media.clone());
        Executor::new(Box::new(driver), Order::FirstInFirstOut)
    }

    async fn with_objects(executor: &Executor) -> Result<(Database, PartitionId)> {
        let database = Database::create(executor, with_cache()).await?;
        let organization = Organization::Direct { objects: PAGES, blocking_factor: 1, record_size: 100 };
        let spec = PartitionSpec::new("objects", organization, Locking::Page);
        let objects = database.create_partition(PartitionSpec { device: "disk".into(), ..spec }).await?;
        for number in 0..PAGES {
            database.transaction(async |tx| tx.modify_object(objects, number, |bytes| bytes[0] = 1).await).await?;
        }
        database.checkpoint().await?;
        Ok((database, objects))
    }

    /// The number of the last block of the table.
    fn last_block(media: &Media) -> u64 {
        let mut bytes = vec![0; media.length("flash", TABLE_FILE).expect("it is there") as usize];
        media.read("flash", TABLE_FILE, 0, &mut bytes).expect("it can be read");
        bytes.chunks_exact(BLOCK_BYTES).filter_map(block_number).max().unwrap_or(0)
    }

    /// How many blocks of the table followed the one that the superblock names, at most, where this write of the superblock file since the
    /// opening fails. `None` if that is the opening's own.
    fn most_unnamed(media: &Media, failing: u64) -> Option<u64> {
        let executor = machine(media, vec![ErrorAt { kind: OpKind::Write, device: Some("home".into()), nth: failing }]);
        let most = executor.run(async {
            let database = Database::open(&executor, with_cache(), "here").await.ok()?;
            let objects = database.partition("objects").expect("it exists");
            let (mut most, mut latest) = (0, 0);
            for number in (0..PAGES).cycle().take(1_000) {
                let read = async |tx: &mut Transaction| tx.read_object(objects, number, |bytes| bytes[0]).await;
                database.transaction(read).await.ok()?;
                executor.sleep_ns(base::time::MILLISECOND_NS).await;
                let named = database.0.engine.catalog.superblock.borrow().cache_table.expect("it has a table").number;
                assert!(named >= latest, "an earlier block is named");
                latest = named;
                most = most.max(last_block(media) - named);
            }
            Some(most)
        });
        executor.stop();
        most.expect("the machine goes on")
    }

    #[test]
    fn a_block_of_the_table_that_could_not_be_named_is_named_with_the_next() {
        let media = Media::new();
        let executor = machine(&media, Vec::new());
        let made = executor.run(async { with_objects(&executor).await?.0.close().await });
        executor.stop();
        made.expect("the machine goes on").expect("is created");
        let most: Vec<u64> = (1..40).filter_map(|failing| most_unnamed(&media.copy(), failing)).collect();
        assert!(most.len() > 10 && most.iter().all(|blocks| (16..20).contains(blocks)), "{most:?}");
    }

    #[test]
    fn the_tasks_that_clean_pages_and_name_blocks_end_with_their_database() {
        let executor = machine(&Media::new(), Vec::new());
        let left = executor.run(async {
            let (database, _) = with_objects(&executor).await.expect("creates");
            let growth = database.0.engine.core.buffer.table_growth();
            let buffer = Rc::downgrade(&database.0.engine.core.buffer);
            database.clone().close().await.expect("closes");
            drop(database);
            executor.sleep_ns(SECOND_NS).await;
            (buffer.strong_count(), Rc::strong_count(&growth))
        });
        executor.stop();
        assert_eq!(left.expect("the machine goes on"), (0, 1));
    }

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
            let before = database.0.engine.checkpointer.failed.get();
            executor.sleep_ns(20 * SECOND_NS).await;
            Ok::<u64, Error>(database.0.engine.checkpointer.failed.get() - before)
        });
        executor.stop();
        let failed = failed.expect("the machine goes on").expect("it is created");
        assert!((10..=60).contains(&failed), "{failed} in twenty seconds");
    }
}
