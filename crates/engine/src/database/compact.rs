//! Giving the room of free pages back to the file system, while transactions use the partition.
//!
//! 1. Nodes at the end of a b-tree's file move to free pages before, one by one, each in one record of the log: the node's new page, its
//!    parent, its page of before, which is free then. Long values that lie there are written anew by transactions of their own.
//! 2. Free pages at the end are cut off: page 0 counts them no longer. It keeps the highest sequence number among them, above which
//!    pages begin that are used there later on. So whatever copies of before there are, in backups, tiers and the log, none is newer.
//! 3. Checkpoints are taken until redo begins behind all that the log says of them, because a restart would look for them, and backups
//!    that may have begun before are waited for.
//! 4. Frames and slots that have them are emptied, and the file becomes shorter. A cut before that leaves it longer than it need be.
//!
//! A record in an append partition keeps its position, so only room behind the last page is given back there. Sets, and direct partitions: [`sets`], [`objects`].

mod objects;
mod sets;

use super::Database;
use super::drop::PATIENCE_NS;
use super::log_room::complete_logged;
use crate::catalog::{Locking, Organization, Partition};
use crate::checkpoint::checkpoint;
use crate::engine::{Core, Engine, NotedPartition, Visit};
use crate::{Error, Need, Result, Transaction};
use base::time::MILLISECOND_NS;
use base::{Lsn, PageId, PartitionId};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::rc::Rc;
use structures::canary::{self, Canary};
use structures::organization::allocator::{self, Cut};
use structures::organization::b_tree::stored::{self, Stored};
use structures::organization::b_tree::{self, ROOT, overflow};
use structures::page::{Edit, OwnedEdit, Pages, slotted};

/// After this number of rounds what transactions have freed meanwhile is left to the next compaction.
const ROUNDS: usize = 4;
/// How often it is looked whether the log and backups do without what is to be given back, in nanoseconds.
const LOOK_NS: u64 = 20 * MILLISECOND_NS;
/// After this number of pages that were cut off others have their turn.
const PER_PAUSE: u64 = 16;
/// At most how many bytes of log a step takes beside a page.
const STEP_SIZE: u64 = 1024;

/// What a compaction has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Compaction {
    /// Pages of b-trees, or records of sets, that were moved.
    pub moved: u64,
    /// Long values that were written anew.
    pub rewritten: u64,
    /// Bytes that the files are shorter by.
    pub given_back: u64,
    /// Bytes of main memory that a set's segments take no more.
    pub memory: u64,
}

/// The free list as it was walked: for each page the one before it and the one behind it, 0 if there is none.
#[derive(Default)]
struct FreePages {
    first: u32,
    before: BTreeMap<u32, u32>,
    next: BTreeMap<u32, u32>,
}

/// A tree that is compacted.
struct Compactor<'a> {
    database: &'a Database,
    partition: PartitionId,
    /// As many pages as it uses, which are to be the first ones.
    target: u32,
    free: FreePages,
    /// Free pages among those, the highest first.
    low: Vec<u32>,
}

impl Database {
    /// Gives the room that a partition does not use back to the file system, while transactions use it. It goes on to its end even if its
    /// future is dropped. A [`Compaction`] of zeros says that there was nothing to give back.
    ///
    /// - A b-tree's last pages, and those of its indexes, move to free ones before; then its file ends with the last one in use.
    /// - The file of an append partition ends behind its last page in use.
    /// - A set's records in its last segments move to room in those before. The memory of segments without records is free at once;
    ///   both copies of the backup are swept, and end with the segments that there are. No transaction is waited for.
    /// - The file of a direct partition ends with the last page of which an object was ever changed: the objects behind it are zeros,
    ///   without room of their own until one is changed. That change is refused if the device has no room by then, which none is
    ///   while the file is whole. Blank pages between others keep their room.
    ///
    /// Transactions, backups and bulk loads that began before pages of a b-tree were moved, or before the room behind an append partition
    /// is given back, are waited for, up to ten seconds; of sets and direct partitions, backups are. What long
    /// values have left that are kept for snapshots is not free yet, and those of a partition without locks stay where they are. While it
    /// goes on the partition is not dropped. What the opening has left to be undone is waited for as long as that gets on, but for sets. Once there is no record left, it cannot be bulk-loaded any more.
    ///
    /// # Errors
    /// [`Error::NoPartition`]; [`Error::Setting`] while nodes use the database, but for sets; [`Error::PartitionInUse`] if some of those have not ended in ten seconds: what was moved stays so, and another compaction goes on
    /// there; [`Error::StillUndoing`] or
    /// [`Error::RollbackStalled`] if what the opening has left does not get on; [`Error::LogCrowded`] if for ten seconds transactions keep the room in the log that a step needs; the log's or the driver's.
    ///
    /// ```
    /// # mod ground { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/ground/database.rs")); }
    /// # use ground::*;
    /// # with_database(async |database| {
    /// let notes = database.create_partition(PartitionSpec::b_tree("notes")).await?;
    /// database.transaction(async |tx| tx.put(notes, b"long", &[1; 3_000_000]).await).await?;
    /// database.transaction(async |tx| tx.delete(notes, b"long").await).await?;
    /// let before = database.size(notes).await?.file;
    /// let done = database.compact_partition(notes).await?;
    /// assert_eq!(database.size(notes).await?.file, before - done.given_back);
    /// # Ok(())
    /// # });
    /// ```
    pub async fn compact_partition(&self, partition: PartitionId) -> Result<Compaction> {
        let database = self.clone();
        self.0.engine.core.executor.spawn(async move { database.compact_undisturbed(partition).await }).join().await
    }

    async fn compact_undisturbed(&self, id: PartitionId) -> Result<Compaction> {
        let engine = &self.0.engine;
        let _turn = engine.catalog.compaction.take(&engine.core.executor).await;
        engine.core.check_open()?;
        let _visit = Visit::new(engine);
        let found = self.describe(id)?;
        let mut done = Compaction::default();
        if found.set_settings().is_none() {
            self.await_undone().await?;
        }
        if let Organization::Set { .. } = found.organization {
            return sets::compact_set(engine, &found).await;
        }
        self.await_leases().await?;
        let _moving = self.begin_moving(&found)?;
        match found.organization {
            Organization::BTree | Organization::Set { .. } => {}
            Organization::Append { .. } => {
                done.given_back = self.shrink(&found).await?;
                return Ok(done);
            }
            Organization::Direct { .. } => {
                done.given_back = objects::cut_blank_end(self, &found).await?;
                return Ok(done);
            }
        }
        let indexes = found.schema.iter().flat_map(|schema| &schema.secondaries);
        // One that is being made or dropped is left to the next compaction.
        let made = indexes.filter_map(|index| index.tree.filter(|tree| tree.since.is_some()));
        let trees: Vec<_> = made.map(|tree| tree.id).collect();
        for tree in std::iter::once(id).chain(trees) {
            let found = self.describe(tree)?;
            self.compact_tree(&found, &mut done).await?;
            done.given_back += self.shrink(&found).await?;
        }
        Ok(done)
    }

    async fn compact_tree(&self, found: &Partition, done: &mut Compaction) -> Result<()> {
        for _ in 0..ROUNDS {
            let mut compactor = Compactor::new(self, found.id()).await?;
            if compactor.free.first == 0 {
                break;
            }
            let (moved, mut rewritten) = (compactor.move_nodes().await?, 0);
            if found.index_of.is_none() && found.locking == Locking::Record {
                rewritten = compactor.rewrite_long_values().await?;
            }
            // Both have changed the list.
            compactor.free = FreePages::walk(self, found.id()).await?.1;
            let cut = compactor.cut().await?;
            (done.moved, done.rewritten) = (done.moved + moved, done.rewritten + rewritten);
            if moved + rewritten + cut == 0 {
                break;
            }
        }
        Ok(())
    }

    /// Makes the file of a partition as short as its pages allow. Returns by how many bytes.
    async fn shrink(&self, found: &Partition) -> Result<u64> {
        let engine = &self.0.engine;
        let (core, first) = (&engine.core, PageId::new(found.id(), 0));
        let space = core.buffer.find_space(found.id())?;
        let count = || Ok(allocator::read(core.buffer.pool().borrow().page(first)?).page_count);
        if core.complete(count).await? >= space.capacity() {
            return Ok(0);
        }
        self.await_others(found, core.log.end()).await?;
        let _shrinking = NotedPartition::new(&engine.catalog.shrinking, found.id());
        let _growth = space.keep_length(&core.executor).await;
        core.check_open()?;
        let before = space.capacity();
        // From the step on that knows how many pages there are, those that are used behind them wait for the file to grow.
        core.complete(|| count().map(|count| core.buffer.limit(&space, count))).await?;
        core.buffer.shorten(&space).await?;
        Ok(u64::from(before - space.capacity()) * space.page_size() as u64)
    }

    /// Waits until a restart reads the log behind a position only, and no backup is under way that may have begun before it, nor a bulk
    /// load, which writes behind the pages that its partition has.
    async fn await_others(&self, found: &Partition, behind: Lsn) -> Result<()> {
        let engine = &self.0.engine;
        let until = engine.core.executor.now().plus_ns(PATIENCE_NS);
        let scan_start = || engine.catalog.superblock.borrow().scan_start();
        let oldest = || engine.transactions.registry.borrow().first_lsn();
        loop {
            if canary::is_planted(Canary::EarlyShortening) {
                return Ok(());
            }
            engine.core.check_open()?;
            if scan_start() < behind && oldest().is_none_or(|first| first >= behind) {
                checkpoint(engine).await?;
            }
            let is_read_over = engine.catalog.backups.get() == 0 && engine.catalog.loading_since().is_none();
            if scan_start() >= behind && is_read_over {
                return Ok(());
            }
            if engine.core.executor.now() >= until {
                return Err(Error::PartitionInUse(found.name.clone()));
            }
            engine.core.executor.sleep_ns(LOOK_NS).await;
        }
    }
}

/// What a step of a move has come to.
enum MoveStep {
    /// There is nothing to move any more.
    Unneeded,
    /// The page that was to be taken is not where it was on the free list.
    Stale,
    /// This page is free, and first on the list.
    Moved(u32),
}

impl Compactor<'_> {
    async fn new(database: &Database, partition: PartitionId) -> Result<Compactor<'_>> {
        let (state, free) = FreePages::walk(database, partition).await?;
        let target = state.page_count.saturating_sub(state.free_count);
        let low = free.before.keys().rev().copied().filter(|page| *page < target).collect();
        Ok(Compactor { database, partition, target, free, low })
    }

    fn engine(&self) -> &Rc<Engine> {
        &self.database.0.engine
    }

    fn page(&self, number: u32) -> PageId {
        PageId::new(self.partition, number)
    }

    /// Moves nodes to free pages for as long as there are some before them. Returns how many.
    async fn move_nodes(&mut self) -> Result<u64> {
        let engine = Rc::clone(self.engine());
        let (core, partition) = (&engine.core, self.partition);
        let mut moved = 0;
        let height = core.complete(|| Ok(b_tree::height(&*core.buffer.pool().borrow(), partition)?)).await?;
        for level in 0..height {
            let mut next = Some(Vec::new());
            while let Some(key) = next {
                let find = || Ok(b_tree::node_at(&*core.buffer.pool().borrow(), partition, level, &key)?);
                let Some(at) = core.complete(find).await? else { break };
                if at.page.number >= self.target {
                    if self.low.is_empty() {
                        return Ok(moved);
                    }
                    moved += u64::from(self.move_node(level, &key).await?);
                    core.executor.yield_now().await;
                }
                next = at.next;
            }
        }
        Ok(moved)
    }

    /// Moves one node, if it is still there and one of the free pages is.
    async fn move_node(&mut self, level: u8, key: &[u8]) -> Result<bool> {
        let engine = Rc::clone(self.engine());
        let (core, partition, target) = (&engine.core, self.partition, self.target);
        let length = core.page_size() as u64 + STEP_SIZE;
        while let Some(low) = self.low.last().copied() {
            let (page, before) = (self.page(low), self.free.before(low));
            let mut step = MoveStep::Stale;
            let attempt = || {
                step = MoveStep::Stale;
                let pool = core.buffer.pool();
                let at = b_tree::node_at(&*pool.borrow(), partition, level, key)?;
                let Some(from) = at.map(|at| at.page.number).filter(|number| *number >= target) else {
                    step = MoveStep::Unneeded;
                    return Ok(());
                };
                let plan = allocator::bring_forward(&*pool.borrow(), page, before)?;
                let Some(edits) = plan else { return Ok(()) };
                log_step(core, &edits)?;
                let plan = b_tree::relocate(&*pool.borrow(), partition, level, key)?;
                let Some(edits) = plan else { return Ok(()) };
                log_step(core, &edits)?;
                step = MoveStep::Moved(from);
                Ok(())
            };
            complete_logged(&engine, length, attempt).await?;
            match step {
                MoveStep::Unneeded => return Ok(false),
                MoveStep::Stale => drop(self.low.pop()),
                MoveStep::Moved(from) => {
                    self.low.pop();
                    self.free.exchange(low, from);
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    /// Writes long values anew that have a page behind what is to be kept, as far as there are free pages before. Returns how many.
    async fn rewrite_long_values(&mut self) -> Result<u64> {
        let engine = Rc::clone(self.engine());
        let (core, partition) = (&engine.core, self.partition);
        let (mut rewritten, mut next) = (0, Some(Vec::new()));
        while let Some(key) = next {
            let leaf = || {
                let pool = core.buffer.pool().borrow();
                let range = b_tree::forward(&*pool, partition, Bound::Included(&key))?;
                Ok((long_values(pool.page(range.page)?), range.fence))
            };
            let (values, fence) = core.complete(leaf).await?;
            for LongValue { key, length, first } in values {
                if self.is_behind(first).await? && self.bring_forward_for(length).await? {
                    rewritten += u64::from(self.rewrite(&key).await?);
                }
            }
            core.executor.yield_now().await;
            next = fence;
        }
        Ok(rewritten)
    }

    /// Whether a long value has a page behind what is to be kept. One that is being changed is left to the next round.
    async fn is_behind(&self, first: u32) -> Result<bool> {
        let core = &self.engine().core;
        let (mut number, mut met) = (first, BTreeSet::new());
        while number != 0 && met.insert(number) {
            if number >= self.target {
                return Ok(true);
            }
            let page = self.page(number);
            let next = || Ok(overflow::read(core.buffer.pool().borrow().page(page)?).map(|(next, _)| next).ok());
            let Some(behind) = core.complete(next).await? else { return Ok(false) };
            number = behind;
        }
        Ok(false)
    }

    /// Has as many free pages come first on the list as a value of this length takes; false if not as many are known.
    async fn bring_forward_for(&mut self, length: usize) -> Result<bool> {
        let engine = Rc::clone(self.engine());
        let core = &engine.core;
        let mut wanted = length.div_ceil(overflow::capacity(core.page_size()));
        if self.low.len() < wanted {
            return Ok(false);
        }
        while wanted > 0
            && let Some(low) = self.low.pop()
        {
            let (page, before, mut is_there) = (self.page(low), self.free.before(low), false);
            let attempt = || {
                let plan = allocator::bring_forward(&*core.buffer.pool().borrow(), page, before)?;
                is_there = plan.is_some();
                plan.map_or(Ok(()), |edits| log_step(core, &edits))
            };
            complete_logged(&engine, STEP_SIZE, attempt).await?;
            if is_there {
                self.free.bring_forward(low);
                wanted -= 1;
            }
        }
        Ok(wanted == 0)
    }

    /// Writes a record's value anew as it is; false if others keep it, or it is gone.
    async fn rewrite(&self, key: &[u8]) -> Result<bool> {
        let partition = self.partition;
        let work = async |tx: &mut Transaction| {
            let Some(value) = tx.get_for_update(partition, key).await? else { return Ok(false) };
            tx.put(partition, key, &value).await?;
            Ok(true)
        };
        match self.database.transaction(work).await {
            Err(Error::LockTimeout { .. }) => Ok(false),
            rewritten => rewritten,
        }
    }

    /// Cuts free pages off the end. Returns how many.
    async fn cut(&mut self) -> Result<u64> {
        let engine = Rc::clone(self.engine());
        let (core, partition) = (&engine.core, self.partition);
        let mut count = 0;
        loop {
            let (free, mut cut) = (&self.free, None);
            let attempt = || {
                let plan =
                    allocator::cut(&*core.buffer.pool().borrow(), partition, ROOT + 1, |page| free.before(page))?;
                cut = None;
                if let Cut::Planned(last, edits) = plan {
                    log_step(core, &edits)?;
                    cut = Some(last);
                }
                Ok(())
            };
            complete_logged(&engine, STEP_SIZE, attempt).await?;
            let Some(last) = cut else { return Ok(count) };
            self.free.remove(last);
            count += 1;
            if count % PER_PAUSE == 0 {
                core.executor.yield_now().await;
            }
        }
    }
}

fn log_step(core: &Core, edits: &[OwnedEdit]) -> Result<(), Need> {
    if edits.is_empty() {
        return Ok(());
    }
    core.change(&edits.iter().map(OwnedEdit::as_edit).collect::<Vec<Edit<'_>>>())
}

/// A record whose value has pages of its own.
struct LongValue {
    key: Vec<u8>,
    length: usize,
    first: u32,
}

fn long_values(leaf: &[u8]) -> Vec<LongValue> {
    let found = |slot| match stored::read(slotted::value(leaf, slot)) {
        Stored::Here(_) => None,
        Stored::Elsewhere(length, first) => {
            let mut key = Vec::new();
            slotted::key_into(leaf, slot, &mut key);
            Some(LongValue { key, length, first })
        }
    };
    (0..slotted::count(leaf)).filter_map(found).collect()
}

impl FreePages {
    /// The list as it is now. What others put on it or take off it meanwhile is seen where it is used.
    async fn walk(database: &Database, partition: PartitionId) -> Result<(allocator::State, FreePages)> {
        let core = &database.0.engine.core;
        let first = PageId::new(partition, 0);
        let state = core.complete(|| Ok(allocator::read(core.buffer.pool().borrow().page(first)?))).await?;
        let mut free = FreePages { first: state.free_head, ..FreePages::default() };
        let (mut before, mut number) = (0, state.free_head);
        while number != 0 && !free.before.contains_key(&number) {
            let page = PageId::new(partition, number);
            let next = || Ok(allocator::next_if_free(core.buffer.pool().borrow().page(page)?));
            let Some(next) = core.complete(next).await? else { break };
            free.before.insert(number, before);
            free.next.insert(number, next);
            (before, number) = (number, next);
        }
        Ok((state, free))
    }

    fn before(&self, page: u32) -> u32 {
        self.before.get(&page).copied().unwrap_or(0)
    }

    fn remove(&mut self, page: u32) {
        let before = self.before.remove(&page).unwrap_or(0);
        let next = self.next.remove(&page).unwrap_or(0);
        if before == 0 {
            self.first = next;
        } else {
            self.next.insert(before, next);
        }
        if next != 0 {
            self.before.insert(next, before);
        }
    }

    fn push(&mut self, page: u32) {
        if self.first != 0 {
            self.before.insert(self.first, page);
        }
        self.before.insert(page, 0);
        self.next.insert(page, self.first);
        self.first = page;
    }

    fn bring_forward(&mut self, page: u32) {
        self.remove(page);
        self.push(page);
    }

    /// A page was taken off the list, and another one came first.
    fn exchange(&mut self, taken: u32, put: u32) {
        self.remove(taken);
        self.push(put);
    }
}
