//! The table of a cache: which version of which page each slot holds, in a file beside the slots.
//!
//! The file is a ring of blocks. A block states some slots that have changed and, in what room is left, others in turn. So
//! each slot is stated anew while the ring goes round once, the file is written sequentially and never as a whole, and what
//! it takes is a hundredth of what the slots take.
//!
//! ```text
//!  0 CRC-32C of the bytes from 4 u32   4 magic "CTAB"   8 stamp u64   16 number u64   24 previous u32   28 count u32
//! 32 statements: slot u32, page u32, partition u16 (65535: the slot is empty), sequence 6 bytes, LSN u64
//! 4088 opening u64
//! ```
//!
//! Rules:
//! 1. Block `n`, counted from 1, stands at `n` modulo the number of blocks, and names the checksum of block `n - 1`: what a
//!    lost write or another life of the database has left in a place does not fit in.
//! 2. The latest statement of a slot counts. Blocks count up to a gap in their numbers behind the one which the superblock names,
//!    the last one at some moment since redo begins, or behind the one in its place; and before it down to another gap. What blocks
//!    behind that state is right whatever stood before it.
//! 3. What the table leaves out is missing from the cache, and that is all. What it states is verified when it is read.
//! 4. An opening that goes on with the table states a block before redo begins later, be it that nothing has changed. Blocks that it
//!    could not read do not follow that one when they can be read again, because it names the opening.

mod reader;

pub use reader::{Statement, TableReader, block_number};

use super::Kind;
use crate::Result;
use base::{Lsn, PageId, PartitionId};
use driver::{Access, DeviceId, FileId, Frame, Op};
use executor::Executor;
use serde::{Deserialize, Serialize};
use std::cell::{Cell, RefCell};
use structures::checksum::checksum;
use structures::page::header;

/// The name of the table's file, on the cache's device.
pub const TABLE_FILE: &str = "cache-table.tier";
/// The size of a block.
pub const BLOCK_BYTES: usize = 4096;
const HEAD_BYTES: usize = 32;
const STATEMENT_BYTES: usize = 24;
/// Where it has the table's stamp.
const STAMP_AT: usize = 8;
/// Where a block names the opening of the database that has stated it.
const OPENING_AT: usize = BLOCK_BYTES - 8;
const MAGIC: &[u8; 4] = b"CTAB";
/// How many statements a block has room for.
const STATEMENTS: usize = (OPENING_AT - HEAD_BYTES) / STATEMENT_BYTES;
/// The most statements of a block that are of slots which have changed: the others go round.
pub const CHANGES_MAX: usize = STATEMENTS / 2;
/// The most blocks that are written at once.
pub const BLOCKS_AT_ONCE: usize = 32;
/// Stands for an empty slot.
const EMPTY: u16 = u16::MAX;

/// A version of a page, by what tells it from all others of the page: loads past the log have their own positions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct PageVersion {
    /// The number of its changes.
    pub sequence: u64,
    /// The end of the log record of the latest.
    pub lsn: Lsn,
}

impl PageVersion {
    /// That of these bytes of a page.
    pub fn of(page: &[u8]) -> PageVersion {
        PageVersion { sequence: header::sequence(page), lsn: header::lsn(page) }
    }
}

/// What a slot holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeldVersion {
    /// The page.
    pub page: PageId,
    /// Which version of it.
    pub version: PageVersion,
}

/// What the superblock says of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TablePosition {
    /// Tells the table from any other in a file of that name.
    pub stamp: u64,
    /// The last block when the superblock was written, from 1; 0 before the first.
    pub number: u64,
}

impl TablePosition {
    /// Whether the other one is a later one of the same table.
    pub fn is_before(&self, other: &TablePosition) -> bool {
        self.stamp == other.stamp && self.number < other.number
    }
}

/// How many blocks the table of `slots` slots has: a round of statements of every slot, and a quarter more.
pub fn blocks_for(slots: u32) -> u64 {
    let round = u64::from(slots).div_ceil((STATEMENTS - CHANGES_MAX) as u64);
    round + (round / 4).max(16)
}

/// The table of an open cache.
pub struct SlotTable {
    file: FileId,
    stamp: u64,
    /// Tells what this opening of the database states from what others have stated.
    opening: u64,
    blocks: u64,
    slots: u32,
    /// The number of the last block and its checksum.
    last: Cell<(u64, u32)>,
    /// Whether blocks that this opening has not read may follow the last one.
    is_unsure: Cell<bool>,
    /// The slot that is stated next in turn.
    turn: Cell<u32>,
    frame: RefCell<Option<Frame>>,
}

impl SlotTable {
    /// Creates the file, in place of any of that name; every slot is empty.
    ///
    /// # Errors
    /// The driver's.
    pub async fn create(executor: &Executor, device: DeviceId, slots: u32, stamp: u64) -> Result<SlotTable> {
        executor.perform(Op::Remove { device, name: TABLE_FILE.to_owned() }).await.result?;
        let (file, _) = executor.open(device, TABLE_FILE, true).await?;
        let length = blocks_for(slots) * BLOCK_BYTES as u64;
        if let Err(fault) = executor.perform(Op::Resize { file, length, prewrite: true }).await.result {
            // As for the slots.
            let _tried = executor.perform(Op::Remove { device, name: TABLE_FILE.to_owned() }).await;
            return Err(super::too_large(fault, Kind::Cache, length));
        }
        let table = SlotTable::of(file, (stamp, stamp), slots, (0, 0));
        table.is_unsure.set(false);
        Ok(table)
    }

    fn of(file: FileId, (stamp, opening): (u64, u64), slots: u32, last: (u64, u32)) -> SlotTable {
        let (last, is_unsure, turn, frame) = (Cell::new(last), Cell::new(true), Cell::new(0), RefCell::default());
        SlotTable { file, stamp, opening, blocks: blocks_for(slots), slots, last, is_unsure, turn, frame }
    }

    /// Whether a block has to be stated before redo begins later, be it that no slot has changed.
    pub fn is_unsure(&self) -> bool {
        self.is_unsure.get()
    }

    /// What the superblock is to say of the table as it is now.
    pub fn position(&self) -> TablePosition {
        TablePosition { stamp: self.stamp, number: self.last.get().0 }
    }

    /// States durably what the slots in `changed` hold, and some of the others: at most [`BLOCKS_AT_ONCE`] times
    /// [`CHANGES_MAX`] at once; one block if none has changed. Calls must not overlap.
    ///
    /// # Errors
    /// The driver's: what the file says is unknown then, and this must not be called again.
    pub async fn state(
        &self,
        executor: &Executor,
        changed: &[u32],
        held: impl Fn(u32) -> Option<HeldVersion>,
    ) -> Result<()> {
        let spare = self.frame.take();
        let mut frame = match spare {
            Some(frame) => frame,
            None => executor.frame(BLOCKS_AT_ONCE * BLOCK_BYTES)?,
        };
        let first = self.last.get().0 + 1;
        let mut count = 0;
        let none = changed.is_empty().then_some(changed);
        for (changes, bytes) in changed.chunks(CHANGES_MAX).chain(none).zip(frame.chunks_mut(BLOCK_BYTES)) {
            self.fill(bytes, changes, &held);
            count += 1;
        }
        // The end of the ring parts them.
        let before_end = (self.blocks - first % self.blocks).min(count) as usize;
        let (offset, length) = (first % self.blocks * BLOCK_BYTES as u64, before_end * BLOCK_BYTES);
        frame = self.write(executor, offset, frame, length).await?;
        if before_end < count as usize {
            frame.copy_within(length..count as usize * BLOCK_BYTES, 0);
            frame = self.write(executor, 0, frame, count as usize * BLOCK_BYTES - length).await?;
        }
        self.frame.replace(Some(frame));
        self.is_unsure.set(false);
        Ok(())
    }

    async fn write(&self, executor: &Executor, offset: u64, buffer: Frame, length: usize) -> Result<Frame> {
        let (file, length, access) = (self.file, length as u32, Access::Asynchronous);
        let completion = executor.perform(Op::Write { file, offset, length, buffer, durable: true, access }).await;
        completion.result?;
        Ok(completion.buffer.expect("a write gives its buffer back"))
    }

    /// Makes the next block.
    fn fill(&self, bytes: &mut [u8], changes: &[u32], held: impl Fn(u32) -> Option<HeldVersion>) {
        let (number, previous) = self.last.get();
        let in_turn = (STATEMENTS - changes.len()).min(self.slots as usize);
        let from = self.turn.get();
        let turn = (0..in_turn as u32).map(|step| (u64::from(from) + u64::from(step)) % u64::from(self.slots));
        let stated = changes.iter().copied().chain(turn.map(|slot| slot as u32));
        bytes.fill(0);
        for (slot, place) in stated.zip(bytes[HEAD_BYTES..].chunks_exact_mut(STATEMENT_BYTES)) {
            encode(slot, held(slot), place);
        }
        self.turn.set(((u64::from(from) + in_turn as u64) % u64::from(self.slots)) as u32);
        bytes[4..8].copy_from_slice(MAGIC);
        bytes[STAMP_AT..STAMP_AT + 8].copy_from_slice(&self.stamp.to_le_bytes());
        bytes[16..24].copy_from_slice(&(number + 1).to_le_bytes());
        bytes[24..28].copy_from_slice(&previous.to_le_bytes());
        bytes[28..32].copy_from_slice(&((changes.len() + in_turn) as u32).to_le_bytes());
        bytes[OPENING_AT..].copy_from_slice(&self.opening.to_le_bytes());
        let sum = checksum(&bytes[4..]);
        bytes[..4].copy_from_slice(&sum.to_le_bytes());
        self.last.set((number + 1, sum));
    }
}

fn encode(slot: u32, held: Option<HeldVersion>, place: &mut [u8]) {
    place[..4].copy_from_slice(&slot.to_le_bytes());
    let Some(HeldVersion { page, version }) = held else {
        place[8..10].copy_from_slice(&EMPTY.to_le_bytes());
        return;
    };
    place[4..8].copy_from_slice(&page.number.to_le_bytes());
    place[8..10].copy_from_slice(&page.partition.0.to_le_bytes());
    place[10..16].copy_from_slice(&version.sequence.to_le_bytes()[..6]);
    place[16..24].copy_from_slice(&version.lsn.0.to_le_bytes());
}

fn decode(place: &[u8]) -> (u32, Option<HeldVersion>) {
    let number = |range: std::ops::Range<usize>| {
        let mut bytes = [0; 8];
        bytes[..range.len()].copy_from_slice(&place[range]);
        u64::from_le_bytes(bytes)
    };
    let partition = PartitionId(number(8..10) as u16);
    let page = PageId::new(partition, number(4..8) as u32);
    let version = PageVersion { sequence: number(10..16), lsn: Lsn(number(16..24)) };
    (number(0..4) as u32, (partition.0 != EMPTY).then_some(HeldVersion { page, version }))
}

#[cfg(test)]
mod tests;
