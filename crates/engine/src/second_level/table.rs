//! The cache's table, stated on the device while the cache is in use.
//!
//! Statements gather in memory and are written in groups, beside everything else; a kill costs the cache what had gathered.
//! One thing must wait for them: before the superblock says that redo begins later, every change of the slots up to then is
//! stated ([`Tiers::state_table`]). So a copy that the table names and no redo looks at is the newest version of its page.

use super::Tiers;
use super::slots::Slots;
use crate::tier_file::table::{
    BLOCK_BYTES, BLOCKS_AT_ONCE, CHANGES_MAX, PageVersion, SlotTable, Statement, TablePosition,
};
use base::Lsn;
use executor::{Executor, Turn, WaitQueue};
use std::cell::Cell;
use std::rc::Rc;
use structures::canary::{self, Canary};

/// How many blocks follow the one that the superblock names before it is to name a later one, at least.
const UNNAMED_MIN: u64 = 16;

/// How many blocks' worth of changes are written together, if nothing waits for them; at most an eighth of the slots.
const GROUP_BLOCKS: usize = 8;

/// The table of an open cache.
pub struct StatedTable {
    table: SlotTable,
    turn: Turn,
    /// Whether a write has begun that nothing waits for.
    is_writing: Cell<bool>,
    /// Whether a write has failed: what the file says is unknown since.
    is_failed: Cell<bool>,
    /// How many changes are written together.
    group: usize,
    /// The block that the superblock names.
    named: Cell<u64>,
    /// How many may follow that one before it is to name a later one.
    unnamed_max: u64,
}

/// Asks the checkpointer that the superblock name a later block of a cache's table.
#[derive(Default)]
pub struct TableGrowth {
    is_noted: Cell<bool>,
    noted: WaitQueue,
}

impl TableGrowth {
    /// Many blocks follow the one that the superblock names.
    pub fn note(&self, executor: &Executor) {
        self.is_noted.set(true);
        self.noted.wake_all(executor);
    }

    /// Returns once that was noted since the last call.
    pub async fn wait(&self, executor: &Executor) {
        while !self.is_noted.take() {
            self.noted.wait(executor).await;
        }
    }
}

impl StatedTable {
    /// A table of this number of slots. An opening reads `ahead` bytes of it at once; as much may follow what the superblock names.
    fn new(table: SlotTable, slots: u32, ahead: u64) -> StatedTable {
        StatedTable {
            turn: Turn::new(),
            is_writing: Cell::new(false),
            is_failed: Cell::new(false),
            group: (slots as usize / 8).clamp(1, GROUP_BLOCKS * CHANGES_MAX),
            named: Cell::new(table.position().number),
            unnamed_max: (ahead / BLOCK_BYTES as u64).max(UNNAMED_MIN),
            table,
        }
    }

    /// Whether an opening would have to read much behind the block that the superblock names.
    fn is_far_ahead(&self) -> bool {
        self.table.position().number - self.named.get() > self.unnamed_max
    }

    /// Whether a write has begun that nothing waits for.
    pub(super) fn is_writing(&self) -> bool {
        self.is_writing.get()
    }

    /// What the file says is not to be relied on.
    pub(super) fn fail(&self) {
        self.is_failed.set(true);
    }
}

impl Tiers {
    /// The cache has this table from now on, which states nothing yet.
    pub fn set_table(&self, table: SlotTable) {
        let mut slots = self.slots.borrow_mut();
        slots.note_changes();
        let capacity = slots.contents().capacity();
        slots.note_all_held();
        self.table.replace(Some(Rc::new(StatedTable::new(table, capacity, self.table_ahead.get()))));
    }

    /// The empty cache has this table from now on, of which these statements were read already; redo begins there. If the cache was not in
    /// use, pages' own devices have all that it has. Until redo is over, and what each slot holds is known, nothing enters the cache.
    pub fn begin_with_table(&self, table: SlotTable, first: Vec<Statement>, (redo_start, is_in_use): (Lsn, bool)) {
        self.slots.borrow_mut().note_changes();
        let capacity = self.slots.borrow().contents().capacity();
        self.table.replace(Some(Rc::new(StatedTable::new(table, capacity, self.table_ahead.get()))));
        self.is_taken_over.set(true);
        self.replaying_from.set(Some(redo_start));
        self.redoing_from.set(Some(redo_start));
        self.begin_loading((redo_start, is_in_use));
        self.adopt_statements(first);
    }

    /// Whether the superblock is to name a later block of the table.
    pub fn is_table_unnamed(&self) -> bool {
        self.table.borrow().as_ref().is_some_and(|table| table.is_far_ahead())
    }

    /// Starts to write what has gathered, if that is enough.
    pub(super) fn state_changes(self: &Rc<Self>) {
        let Some(table) = self.table.borrow().clone() else { return };
        let is_worth = self.slots.borrow().changed_count() >= table.group && !self.is_loading();
        if !is_worth || table.is_writing.replace(true) {
            return;
        }
        let this = Rc::clone(self);
        self.executor.spawn(async move {
            this.write_changes(&table).await;
            table.is_writing.set(false);
        });
    }

    /// Waits until the table states every change of the slots up to this call, and nothing that it stated before and an opening
    /// has not read. Where it ends then; `None` if there is no table,
    /// or what it says is unknown.
    pub async fn state_table(self: &Rc<Self>) -> Option<TablePosition> {
        let table = self.table.borrow().clone()?;
        let (this, written) = (Rc::clone(self), Rc::clone(&table));
        // Goes on to the end even if the caller is given up.
        let position = self.executor.spawn(async move { this.write_changes(&written).await }).join().await;
        position.filter(|_| self.is_table_sound())
    }

    /// Whether there is a table, and what it says is known.
    pub fn is_table_sound(&self) -> bool {
        self.table.borrow().as_ref().is_some_and(|table| !table.is_failed.get()) && !self.is_lost()
    }

    /// What tells the cache's table from others, if it has one.
    pub fn table_stamp(&self) -> Option<u64> {
        self.table.borrow().as_ref().map(|table| table.table.position().stamp)
    }

    /// The superblock names this position of a table.
    pub fn note_named(&self, position: TablePosition) {
        if let Some(table) = &*self.table.borrow()
            && table.table.position().stamp == position.stamp
        {
            table.named.set(position.number);
        }
    }

    /// Where the table ended when these changes were written, before others' were begun; `None` if they could not be written.
    async fn write_changes(self: &Rc<Self>, table: &Rc<StatedTable>) -> Option<TablePosition> {
        // A block states slots in turn, too.
        self.await_loading().await;
        let _turn = table.turn.take(&self.executor).await;
        let mut left = self.slots.borrow().changed_count();
        let is_wanted = || table.table.is_unsure() && !canary::is_planted(Canary::UnstatedSlot);
        while (left > 0 || is_wanted()) && !table.is_failed.get() && !self.is_lost() {
            let changed = self.slots.borrow_mut().take_changed(left.min(BLOCKS_AT_ONCE * CHANGES_MAX));
            left -= changed.len();
            let is_empty = |slot: &u32| self.slots.borrow().held(*slot).is_none();
            if canary::is_planted(Canary::UnstatedSlot) && changed.iter().any(is_empty) {
                continue;
            }
            let changed_blocks = changed.len().div_ceil(CHANGES_MAX).max(1) as u64;
            let (this, stating) = (Rc::clone(self), Rc::clone(table));
            let write = async move {
                let held = |slot: u32| this.slots.borrow().held(slot);
                stating.table.state(&this.executor, &changed, held).await
            };
            // Whatever the budget says.
            self.note_forced_write(changed_blocks * BLOCK_BYTES as u64);
            let is_stated = self.answered(write).await.is_ok_and(|stated| stated.is_ok());
            table.is_failed.set(!is_stated);
            if table.is_far_ahead()
                && let Some(host) = self.host_if_there()
            {
                host.table_has_grown();
            }
        }
        (!table.is_failed.get()).then(|| table.table.position())
    }

    /// Whether a slot's bytes are the version that it is known to hold.
    pub(super) fn is_version(slots: &Slots, slot: u32, bytes: &[u8]) -> bool {
        canary::is_planted(Canary::UncheckedVersion) || PageVersion::of(bytes) == slots.version(slot)
    }
}
