//! Fuzzy checkpoints: the log's beginning moves forward while transactions run.
//!
//! A checkpoint of pages writes back those that have been dirty for long, makes the files durable, and stores in the superblock file
//! from where redo has to begin: the oldest change that is not on the medium, or the first record of the oldest active
//! transaction. Memory-resident sets are swept by a server of their own, on a clock of its own. The log is given up as far as
//! neither of them needs it.

mod background;
mod own_transaction;
mod pace;
mod paging;
mod quiesce;
mod relief;
mod sweep;
mod sweeping;

pub use crate::engine::{Policy, Strategy, SweepSettings};
pub(crate) use background::start;
pub(crate) use relief::start as start_relief;
pub(crate) use sweeping::{SweepGuard, back_up_load, back_up_moved, begin_sweeping_load, hold_sweeps, sweep_since};

use crate::Result;
use crate::catalog::{Partition, Partitions};
use crate::engine::{Catalog, Engine, new_stamp};
use crate::log::record::Body;
use crate::statistics::{Event, add};
use crate::superblock::{self, ArchivedLog, CatalogChange, CurrentBackup, LogShape, SuperblockFile};
use crate::tier_file::TierRecord;
use crate::tier_file::table::TablePosition;
use base::time::MILLISECOND_NS;
use base::{Instant, Lsn, TransactionId};
use executor::{Executor, Group, Holding, Members};
use paging::{CheckpointExtent, checkpoint_and_redo, checkpoint_pages};
use std::rc::Rc;
use structures::canary::{self, Canary};
use sweeping::hurry;

/// The name of the group of the checkpoint server's tasks.
pub const GROUP: &str = "checkpoint";

fn group(executor: &Executor) -> Group {
    executor.group(GROUP, Members::Free)
}

/// How long an opening waits for its checkpoint while a cache could serve, in nanoseconds.
const RESTART_NS_MAX: u64 = 100 * MILLISECOND_NS;

const PAGES: usize = 0;
const SETS: usize = 1;

/// What the superblock file is to say anew.
#[derive(Default)]
struct SuperblockChange {
    /// Another copy of the sets' backup.
    backup: Option<CurrentBackup>,
    /// A log device that was lost.
    lost_log: Option<u8>,
    /// What is to be said of the cache's table.
    cache_table: Option<Option<TablePosition>>,
}

/// Takes a checkpoint that writes back every page changed before this call.
///
/// # Errors
/// The driver's or the log's; [`Error::OwnCheckpoint`]. The checkpoint before stays valid, or redo begins later, as far as pages
/// were written.
pub(crate) async fn checkpoint(engine: &Rc<Engine>) -> Result<()> {
    let taken = {
        let engine = Rc::clone(engine);
        async move { take_checkpoint(&engine, CheckpointExtent::All).await }
    };
    let taken = engine.core.executor.spawn_in(group(&engine.core.executor), 0, taken).join();
    own_transaction::unless_awaited(engine, taken).await
}

/// Writes back what a restart has redone and undone in pages. The backup and the log that the sets came from serve them
/// on: the first sweep after this is for all that the log holds of them.
///
/// An opening behind a cache that it takes over waits for it no longer than [`RESTART_NS_MAX`]: the pages' own devices may be slow, and the
/// cache serves meanwhile. The checkpoint goes on then; if it fails, that is told as of any other one, and the next one tries again. So it
/// is if a page cannot be read whose redo was left, however soon that shows.
///
/// # Errors
/// Those of a checkpoint that has failed by then.
pub(crate) async fn checkpoint_restart(engine: &Rc<Engine>) -> Result<()> {
    let executor = &engine.core.executor;
    let taken = {
        let engine = Rc::clone(engine);
        async move { checkpoint_and_redo(&engine, CheckpointExtent::Restart).await.map(drop) }
    };
    let taken = executor.spawn_in(group(executor), 0, taken).join();
    match engine.core.buffer.tiers().is_some_and(|tiers| tiers.is_taken_over()) {
        true => executor.within(RESTART_NS_MAX, taken).await.unwrap_or(Ok(())),
        false => taken.await,
    }
}

/// Waits for the checkpoint of an opening that has failed behind it: another opening may follow, and what this one writes is not to come
/// after that.
pub(crate) async fn end_restart(engine: &Engine) {
    drop(engine.checkpointer.paging.take(&engine.core.executor).await);
}

/// Notes how a checkpoint of pages or a sweep has ended. Tasks waiting for the room that it was to make learn of a failure.
fn note_end(engine: &Engine, part: usize, began: Instant, result: &Result<()>) {
    let took_ns = engine.core.executor.now().since_ns(began);
    let error = result.as_ref().err();
    // Where there are no sets nothing was done.
    if part == PAGES || engine.catalog.superblock.borrow().backup.is_some() {
        engine.core.statistics.tell(&Event::Checkpoint { of_sets: part == SETS, took_ns, error });
    }
    let checkpointer = &engine.checkpointer;
    checkpointer.failures[part].replace(result.clone().err());
    if result.is_err() {
        checkpointer.failed.set(checkpointer.failed.get() + 1);
        engine.core.log.wake_for_room();
    }
}

/// Runs in a task of its own, so that no write of the superblock file is abandoned.
async fn take_checkpoint(engine: &Rc<Engine>, extent: CheckpointExtent) -> Result<()> {
    let pages = checkpoint_pages(engine, extent).await;
    let _hurry = hurry(&engine.checkpointer);
    let sets = checkpoint_sets(engine).await;
    pages.and(sets)
}

/// Brings the older copy of the sets' backup up to date and lets the superblock file name it. Nothing if there are no sets. If it
/// fails, the other copy stays valid, and the next sweep writes what this one has not.
pub(crate) async fn checkpoint_sets(engine: &Rc<Engine>) -> Result<()> {
    let began = engine.core.executor.now();
    let result = write_backup(engine).await;
    note_end(engine, SETS, began, &result);
    result
}

async fn write_backup(engine: &Rc<Engine>) -> Result<()> {
    let checkpointer = &engine.checkpointer;
    if engine.catalog.superblock.borrow().backup.is_none() {
        return Ok(());
    }
    let _turn = loop {
        await_pins(engine).await;
        let turn = checkpointer.sweeping.take(&engine.core.executor).await;
        // Others, who cannot wait, have had their turn before.
        if !must_await_pins(engine) {
            break turn;
        }
    };
    write_backup_in_turn(engine, false).await?;
    give_up_log(engine).await
}

/// The same for the task whose turn it is to sweep; also if nothing was logged, where `unlogged` says that sets have changed.
async fn write_backup_in_turn(engine: &Rc<Engine>, unlogged: bool) -> Result<()> {
    let checkpointer = &engine.checkpointer;
    engine.core.statistics.tell(&Event::CheckpointBegun { of_sets: true });
    if checkpointer.superblock_unsure.get() {
        // The superblock file may name the copy that this sweep is about to write.
        let _turn = checkpointer.turn.take(&engine.core.executor).await;
        write_superblock(engine, pages_begin(&engine.catalog), SuperblockChange::default()).await?;
    }
    break_pins(engine);
    let began = engine.core.executor.now();
    let backup = sweep::sweep(engine, unlogged).await?;
    let begin = backup.as_ref().map(|backup| Lsn(backup.begin));
    {
        let _turn = checkpointer.turn.take(&engine.core.executor).await;
        write_superblock(
            engine,
            pages_begin(&engine.catalog),
            SuperblockChange { backup, ..SuperblockChange::default() },
        )
        .await?;
    }
    begin.into_iter().for_each(|begin| checkpointer.swept.set(begin));
    add(&engine.core.statistics.sweep_ns, engine.core.executor.now().since_ns(began));
    Ok(())
}

/// Waits, before the turn to sweep, while a backup reads the copy that the sweep would write over; not if something waits for the sweep.
async fn await_pins(engine: &Engine) {
    while must_await_pins(engine) {
        engine.core.executor.sleep_ns(background::POLL_NS).await;
    }
}

/// Whether a backup reads the copy that the next sweep would write over, and the sweep can wait.
fn must_await_pins(engine: &Engine) -> bool {
    let (checkpointer, core) = (&engine.checkpointer, &engine.core);
    let cannot_wait = checkpointer.urgent.get() > 0 || core.log.is_full() || core.closing.get();
    let may_wait = !cannot_wait && !canary::is_planted(Canary::UnpinnedCopy);
    may_wait && next_copy(engine).is_some_and(|copy| engine.sets.is_pinned(copy))
}

/// A backup that reads the copy that is about to be written learns of that.
fn break_pins(engine: &Engine) {
    if let Some(copy) = next_copy(engine).filter(|_| !canary::is_planted(Canary::UnpinnedCopy)) {
        engine.sets.break_pins(copy);
    }
}

/// Which copy of the sets' backup the next sweep writes over, if there are sets.
fn next_copy(engine: &Engine) -> Option<u8> {
    engine.catalog.superblock.borrow().backup.as_ref().map(|backup| 1 - backup.copy)
}

/// Where the recovery of pages begins, as the superblock file says.
fn pages_begin(catalog: &Catalog) -> Lsn {
    catalog.superblock.borrow().redo_start()
}

/// Gives up the log as far as neither pages nor sets need it.
pub(crate) async fn give_up_log(engine: &Engine) -> Result<()> {
    let needed = engine.catalog.superblock.borrow().scan_start();
    engine.core.log.drain_before(needed).await?;
    engine.core.log.truncate(needed);
    Ok(())
}

/// From where the log is needed if the machine stops now.
fn redo_start(engine: &Engine) -> Lsn {
    if canary::is_planted(Canary::EarlyTruncation) {
        return engine.core.log.end();
    }
    let dirty = engine.core.buffer.recovery_lsn();
    let active = engine.transactions.registry.borrow().first_lsn();
    [dirty, active].into_iter().flatten().fold(engine.core.log.end(), Lsn::min)
}

/// Has the cache's table state what slots hold by now, then takes the turn to write the superblock file: others do not wait for that
/// while a table is loaded, or its device does not answer. What the superblock is to say of the table. An earlier block than before
/// must not be named: an opening would not notice that a block between the two is lost.
async fn state_table_then_take_turn(engine: &Engine) -> (Holding<'_>, Option<TablePosition>) {
    let Engine { core, checkpointer, catalog, .. } = engine;
    loop {
        let tiers = core.buffer.tiers();
        let stated = match &tiers {
            Some(tiers) => tiers.state_table().await,
            None => None,
        };
        let turn = checkpointer.turn.take(&core.executor).await;
        if tiers.as_ref().map(Rc::as_ptr) == core.buffer.tiers().as_ref().map(Rc::as_ptr) {
            // What it says may be unknown by now, and a write of the superblock file may have gone by that.
            let stated = stated.filter(|_| tiers.is_some_and(|tiers| tiers.is_table_sound()));
            let named = catalog.superblock.borrow().cache_table;
            let is_later = |named: &TablePosition| stated.is_some_and(|stated| stated.is_before(named));
            return (turn, named.filter(is_later).or(stated).or_else(|| empty_table(engine)));
        }
    }
}

/// What the superblock is to say of the table of a cache that was switched off: that it is another one, which states nothing. So the next
/// opening looks at no slots. The log has what only they had, and what a power cut may have torn is looked for in them all the same.
fn empty_table(engine: &Engine) -> Option<TablePosition> {
    let table = engine.core.buffer.tiers().filter(|tiers| tiers.is_lost())?.table_stamp()?;
    let named = engine.catalog.superblock.borrow().cache_table;
    let is_empty = |named: &TablePosition| named.number == 0 && named.stamp != table;
    Some(named.filter(is_empty).unwrap_or_else(|| TablePosition { stamp: new_stamp(engine), number: 0 }))
}

/// What has left the cache up to now does not come back with the next opening, although no redo would come by it: a load past the
/// log has written it anew.
///
/// # Errors
/// Those of a write of the superblock file.
pub(crate) async fn state_cache_table(engine: &Rc<Engine>) -> Result<()> {
    if engine.catalog.superblock.borrow().cache_table.is_none() {
        return Ok(());
    }
    let this = Rc::clone(engine);
    // In a task of its own, because a load may be dropped, and the write of the superblock file must not be.
    let stated = async move {
        let (_turn, table) = state_table_then_take_turn(&this).await;
        let change = SuperblockChange { cache_table: Some(table), ..SuperblockChange::default() };
        write_superblock(&this, pages_begin(&this.catalog), change).await
    };
    engine.core.executor.spawn(stated).join().await
}

/// Has the superblock name a later block of the cache's table if many follow the one that it names. Not while the database is
/// closed: that has taken its last checkpoint by then, and nothing is to follow it.
///
/// # Errors
/// Those of a write of the superblock file.
pub(crate) async fn name_cache_table(engine: &Engine) -> Result<()> {
    let is_wanted = || {
        let is_unnamed = engine.core.buffer.tiers().is_some_and(|tiers| tiers.is_table_unnamed());
        is_unnamed && !engine.core.closing.get() && engine.catalog.superblock.borrow().cache_table.is_some()
    };
    if !is_wanted() {
        return Ok(());
    }
    let (_turn, table) = state_table_then_take_turn(engine).await;
    if !is_wanted() {
        return Ok(());
    }
    let change = SuperblockChange { cache_table: Some(table), ..SuperblockChange::default() };
    write_superblock(engine, pages_begin(&engine.catalog), change).await
}

/// States in the superblock file which tiers there are, and where the cache's table is. The caller has the turn to write that. If
/// it fails, the next write of the superblock file states it.
///
/// # Errors
/// Those of a write of the superblock file: an opening may find one state or the other.
pub(crate) async fn state_tiers(
    engine: &Engine,
    (records, table): (Vec<TierRecord>, Option<TablePosition>),
) -> Result<()> {
    engine.catalog.superblock.borrow_mut().tiers = records;
    // Until that has succeeded an opening may believe the table of before, so loads past the log go on to state what has become of it.
    let change = SuperblockChange { cache_table: Some(table), ..SuperblockChange::default() };
    write_superblock(engine, pages_begin(&engine.catalog), change).await
}

/// States in the superblock file that every tier could be lost without loss, if that is so.
pub(crate) async fn retire_tiers(engine: &Engine) -> Result<()> {
    if engine.catalog.superblock.borrow().tiers.is_empty() {
        return Ok(());
    }
    let _paging = engine.checkpointer.paging.take(&engine.core.executor).await;
    let _turn = engine.checkpointer.turn.take(&engine.core.executor).await;
    let pending = engine.core.buffer.levels().pending_count();
    if pending > 0 || engine.core.log.drain_before(Lsn::MAX).await.is_err() {
        return Ok(());
    }
    engine.catalog.superblock.borrow_mut().tiers.iter_mut().for_each(|record| record.in_use = false);
    write_superblock(engine, pages_begin(&engine.catalog), SuperblockChange::default()).await
}

/// States in the superblock file that one of two log devices was lost, after which the log goes on with the other one; where
/// that cannot be stated, it fails.
pub(crate) async fn state_lost_log_device(engine: &Engine) {
    let _turn = engine.checkpointer.turn.take(&engine.core.executor).await;
    let log = &engine.core.log;
    let Some(lost) = log.device_lost().await else { return };
    match write_superblock(
        engine,
        pages_begin(&engine.catalog),
        SuperblockChange { lost_log: Some(lost), ..SuperblockChange::default() },
    )
    .await
    {
        Ok(()) => log.go_on_alone(),
        Err(error) => log.fail_unstated(&error.to_string()),
    }
}

/// States in the superblock file what becomes of partitions. If that fails, the next write of the superblock file states it.
///
/// # Errors
/// Those of a write of the superblock file, before which the log may fail: an opening may find one state or the other.
pub(crate) async fn state_catalog(engine: &Engine, changes: Vec<CatalogChange>) -> Result<()> {
    if !engine.core.is_durable() {
        // What was committed before is not to be lost without the change.
        engine.core.log.flush(engine.core.log.end()).await?;
    }
    engine.catalog.note_change(changes);
    let _turn = engine.checkpointer.turn.take(&engine.core.executor).await;
    write_superblock(engine, pages_begin(&engine.catalog), SuperblockChange::default()).await
}

/// Makes new partitions some of the database's: durable first, then visible. `changes` say so.
///
/// # Errors
/// As [`state_catalog`].
pub(crate) async fn enter_partitions(
    engine: &Rc<Engine>,
    entered: Vec<Rc<Partition>>,
    changes: Vec<CatalogChange>,
) -> Result<()> {
    enter(engine, (entered, changes), Partitions::insert).await
}

/// The same where they take the names of hidden ones.
///
/// # Errors
/// As [`state_catalog`].
pub(crate) async fn replace_partitions(
    engine: &Rc<Engine>,
    entered: Vec<Rc<Partition>>,
    changes: Vec<CatalogChange>,
) -> Result<()> {
    enter(engine, (entered, changes), Partitions::insert_successor).await
}

async fn enter(
    engine: &Rc<Engine>,
    (entered, changes): (Vec<Rc<Partition>>, Vec<CatalogChange>),
    insert: fn(&mut Partitions, Rc<Partition>),
) -> Result<()> {
    state_catalog(engine, changes).await?;
    for partition in entered {
        engine.core.statistics.reserve(usize::from(partition.id) + 1);
        insert(&mut engine.catalog.partitions.borrow_mut(), partition);
    }
    background::start_sweeping(engine);
    Ok(())
}

/// Writes the superblock file. Only one task does so at a time, and none behind the end of the log: the file may be another opening's
/// by then.
async fn write_superblock(engine: &Engine, redo_start: Lsn, change: SuperblockChange) -> Result<()> {
    if let Some(failure) = engine.core.log.failure() {
        return Err(failure);
    }
    // The log before may have been given up and written over: an opening that began there would find it damaged.
    let before = engine.checkpointer.redo_start.get();
    assert!(
        redo_start >= before,
        "redo is to begin at {redo_start}, before {before}, where the last checkpoint has it begin"
    );
    let changes = engine.catalog.take_changes();
    if !changes.is_empty() {
        engine.core.log.note_own_change();
    }
    let mut superblock = engine.catalog.superblock.borrow().clone();
    superblock.redo_start = redo_start.0;
    superblock.changed_alone = engine.core.log.known_changed_alone();
    superblock.log_durable = engine.core.log.durable().0;
    superblock.next_transaction = engine.transactions.registry.borrow().next();
    superblock.backup = change.backup.or(superblock.backup);
    superblock.cache_table = change.cache_table.unwrap_or(superblock.cache_table);
    let retired = superblock.log_shape.and_then(|shape| shape.retired);
    superblock.log_shape = Some(LogShape { retired, ..LogShape::of(&engine.core.log) });
    superblock.archive = engine.core.log.archive().map(ArchivedLog::of);
    if let Some(second) = &mut superblock.second_log {
        second.lost = change.lost_log.or(second.lost);
    }
    if superblock.backup.is_none() && engine.sets.backup.has_files() {
        superblock.backup = Some(CurrentBackup::empty(engine.core.log.end()));
    }
    if superblock.scan_start() >= engine.core.log.opened_at() {
        superblock.log_epoch = engine.core.log.epoch();
    }
    engine.checkpointer.superblock_unsure.set(true);
    let mut superblock_file = engine.catalog.superblock_file.take().expect("only one task writes the superblock file");
    superblock_file.change(changes);
    let result = superblock_file.write(&engine.core.executor, &superblock).await;
    engine.catalog.superblock_file.replace(Some(superblock_file));
    result?;
    engine.checkpointer.superblock_unsure.set(false);
    if let (Some(position), Some(tiers)) = (superblock.cache_table, engine.core.buffer.tiers()) {
        tiers.note_named(position);
    }
    engine.catalog.superblock.replace(superblock);
    log_catalog(engine, &engine.catalog.take_unlogged(), false);
    Ok(())
}

/// Has a log that is archived say what the superblock file says of partitions: before anything else that is true because of that.
fn log_catalog(engine: &Engine, changes: &[CatalogChange], is_whole: bool) {
    let log = &engine.core.log;
    if log.archive().is_some() && !changes.is_empty() {
        let changes = &superblock::stored_changes(changes);
        engine.note_time();
        log.append(TransactionId::SYSTEM, &Body::Catalog { is_whole, changes }, std::iter::empty());
    }
}

/// The same of all that it says, which an opening may have changed, and the one before it may not have logged. The caller has seen to
/// room for [`whole_catalog_length`].
pub(crate) fn log_whole_catalog(engine: &Engine) {
    log_catalog(engine, &whole_catalog(engine), true);
}

/// How many bytes of records that is, at most: nothing where the log is not archived.
pub(crate) fn whole_catalog_length(engine: &Engine) -> u64 {
    let all = engine.core.log.archive().map(|_| whole_catalog(engine)).unwrap_or_default();
    catalog_length(&all)
}

/// The same for these changes.
pub(crate) fn catalog_length(changes: &[CatalogChange]) -> u64 {
    if changes.is_empty() { 0 } else { CATALOG_SIZE + superblock::stored_changes(changes).len() as u64 }
}

/// What the record of a catalog takes at most beside what that says, with the time before it.
const CATALOG_SIZE: u64 = 64;

fn whole_catalog(engine: &Engine) -> Vec<CatalogChange> {
    let superblock_file = engine.catalog.superblock_file.borrow();
    superblock_file.as_ref().map(SuperblockFile::catalog).unwrap_or_default()
}

/// States how far the log is archived.
///
/// # Errors
/// Those of a write of the superblock file.
pub(crate) async fn state_archive(engine: &Engine) -> Result<()> {
    let _turn = engine.checkpointer.turn.take(&engine.core.executor).await;
    write_superblock(engine, pages_begin(&engine.catalog), SuperblockChange::default()).await
}
