//! Reading a table: from its end back, so that the first statement of a slot counts, and the cache is of use before the rest of its
//! table is read.

use super::{
    BLOCK_BYTES, HEAD_BYTES, HeldVersion, MAGIC, STAMP_AT, STATEMENT_BYTES, STATEMENTS, SlotTable, TABLE_FILE,
    TablePosition, blocks_for, decode,
};
use crate::io::salvage;
use crate::{Error, Result};
use driver::{DeviceId, FaultKind, FileId, Frame};
use executor::Executor;
use structures::checksum::checksum;

/// The most blocks that are read at once.
const AT_ONCE: u64 = 256;

/// What a slot holds; `None` if it is empty.
pub type Statement = (u32, Option<HeldVersion>);

/// What is left to read of a table.
pub struct TableReader {
    ring: Ring,
    slots: u32,
    /// The number of the block that is read next, and its checksum. 0: every block was read.
    next: (u64, u32),
    /// No block with a lower number is there.
    first: u64,
    /// A bit for each slot whose statement was read.
    is_stated: Vec<u64>,
    /// How many slots have none yet.
    left: u32,
}

/// Where blocks are read from.
struct Ring {
    file: FileId,
    stamp: u64,
    blocks: u64,
    frame: Option<Frame>,
}

/// A sound block of this table.
struct Block<'a> {
    number: u64,
    checksum: u32,
    previous: u32,
    statements: &'a [u8],
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn long(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

impl Block<'_> {
    /// Its number and checksum, and the slot behind its last statement.
    fn end(&self) -> (u64, u32, u32) {
        let last = self.statements.rchunks(STATEMENT_BYTES).next();
        (self.number, self.checksum, last.map_or(0, |last| decode(last).0.saturating_add(1)))
    }
}

impl Ring {
    fn place(&self, number: u64) -> u64 {
        number % self.blocks
    }

    /// Reads the blocks in `count` places from this one on. What cannot be read is as good as damaged.
    async fn read(&mut self, executor: &Executor, place: u64, count: u64) -> Result<&[u8]> {
        let frame = match self.frame.take() {
            Some(frame) => frame,
            None => executor.frame(AT_ONCE.min(self.blocks) as usize * BLOCK_BYTES)?,
        };
        let (offset, length) = (place * BLOCK_BYTES as u64, count as usize * BLOCK_BYTES);
        let read = salvage::read(executor, self.file, (offset, length), BLOCK_BYTES, frame).await?;
        Ok(&self.frame.insert(read.frame)[..length])
    }
}

/// The block in these bytes, if they are one of the table with this stamp.
fn parse(stamp: u64, bytes: &[u8]) -> Option<Block<'_>> {
    let (number, count) = (long(bytes, 16), word(bytes, 28) as usize);
    let is_ours = &bytes[4..8] == MAGIC && long(bytes, STAMP_AT) == stamp && count <= STATEMENTS && number > 0;
    if !is_ours || word(bytes, 0) != checksum(&bytes[4..]) {
        return None;
    }
    let statements = &bytes[HEAD_BYTES..HEAD_BYTES + count * STATEMENT_BYTES];
    Some(Block { number, checksum: word(bytes, 0), previous: word(bytes, 24), statements })
}

/// The number of the block of some table that these bytes are; `None` if they are none, or a damaged one.
pub fn block_number(bytes: &[u8]) -> Option<u64> {
    let block = bytes.get(..BLOCK_BYTES)?;
    parse(long(block, STAMP_AT), block).map(|block| block.number)
}

impl SlotTable {
    /// Opens the table of a cache of `slots` slots: finds where it ends. What it states is still to be read. Words for why that is
    /// not to be had. `opening` tells what is stated from now on from what others have stated.
    ///
    /// # Errors
    /// The driver's, but for [`FaultKind::Device`].
    pub async fn open(
        executor: &Executor,
        device: DeviceId,
        (slots, opening): (u32, u64),
        position: TablePosition,
    ) -> Result<std::result::Result<(SlotTable, TableReader), String>> {
        let (file, length) = match executor.open(device, TABLE_FILE, false).await {
            Ok(opened) => opened,
            Err(fault) if fault.kind == FaultKind::NotFound => return Ok(Err("there is none".to_owned())),
            Err(fault) => return Err(Error::Input(fault)),
        };
        let blocks = blocks_for(slots);
        if length < blocks * BLOCK_BYTES as u64 {
            return Ok(Err("it is too short".to_owned()));
        }
        let mut ring = Ring { file, stamp: position.stamp, blocks, frame: None };
        let Some((number, checksum, turn)) = find_end(executor, &mut ring, position.number).await? else {
            return Ok(Err(format!("its block {} is missing", position.number)));
        };
        let end = (number, checksum);
        let is_stated = vec![0; (slots as usize).div_ceil(64)];
        let first = (end.0 + 1).saturating_sub(blocks).max(1);
        let reader = TableReader { ring, slots, next: end, first, is_stated, left: slots };
        let table = SlotTable::of(file, (position.stamp, opening), slots, end);
        // Should every opening begin with the first slot, blocks would go round before the last slots are stated.
        table.turn.set(turn % slots.max(1));
        Ok(Ok((table, reader)))
    }
}

/// The last of the blocks that follow each other without a gap from the named one on, or from the one that has taken its place: any
/// other may be left from another life of the database. Its number and checksum, and the slot behind the last that it states in
/// turn; `None` if the named one is missing.
async fn find_end(executor: &Executor, ring: &mut Ring, named: u64) -> Result<Option<(u64, u32, u32)>> {
    let (stamp, place) = (ring.stamp, ring.place(named));
    let in_place = parse(stamp, ring.read(executor, place, 1).await?).map(|block| block.end());
    let mut end = match in_place.filter(|(number, ..)| *number >= named && ring.place(*number) == place) {
        Some(end) => end,
        None if named == 0 => (0, 0, 0),
        None => return Ok(None),
    };
    let limit = end.0 + ring.blocks;
    let mut at_once = 1;
    while end.0 + 1 < limit {
        let place = ring.place(end.0 + 1);
        let count = at_once.min(ring.blocks - place).min(limit - end.0 - 1);
        at_once = AT_ONCE.min(2 * at_once);
        for bytes in ring.read(executor, place, count).await?.chunks(BLOCK_BYTES) {
            match parse(stamp, bytes) {
                Some(block) if block.number == end.0 + 1 && (block.previous == end.1) => {
                    end = block.end();
                }
                _ => return Ok(Some(end)),
            }
        }
    }
    Ok(Some(end))
}

impl TableReader {
    /// The number of the block that is read next; 0 if there is none.
    pub fn next_number(&self) -> u64 {
        self.next.0
    }

    /// Reads at most `blocks_max` of the next blocks: what they state of slots of which no later block has stated anything. `None` if the
    /// slots of which nothing was stated are empty. Words for why it is unknown what they hold.
    ///
    /// # Errors
    /// The driver's, but for [`FaultKind::Device`].
    pub async fn read(
        &mut self,
        executor: &Executor,
        blocks_max: u64,
    ) -> Result<std::result::Result<Option<Vec<Statement>>, String>> {
        let last = self.next.0;
        if last == 0 || self.left == 0 {
            return Ok(Ok(None));
        }
        if last < self.first {
            return Ok(Err(format!("its block {last} is missing")));
        }
        let stamp = self.ring.stamp;
        // No piece goes over the end of the ring.
        let count = blocks_max.clamp(1, AT_ONCE).min(last - self.first + 1).min(self.ring.place(last) + 1);
        let place = self.ring.place(last) + 1 - count;
        let bytes = self.ring.read(executor, place, count).await?;
        let mut stated = Vec::new();
        for bytes in bytes.rchunks(BLOCK_BYTES) {
            let (number, checksum) = self.next;
            let Some(block) = parse(stamp, bytes).filter(|block| (block.number, block.checksum) == (number, checksum))
            else {
                self.first = number + 1;
                break;
            };
            for statement in block.statements.rchunks(STATEMENT_BYTES) {
                let (slot, held) = decode(statement);
                if slot < self.slots && mark(&mut self.is_stated, slot) {
                    self.left -= 1;
                    stated.push((slot, held));
                }
            }
            self.next = (number - 1, block.previous);
        }
        Ok(Ok(Some(stated)))
    }
}

/// Marks a slot as stated. False if it was.
fn mark(is_stated: &mut [u64], slot: u32) -> bool {
    let (word, bit) = (&mut is_stated[slot as usize / 64], 1 << (slot % 64));
    let is_new = *word & bit == 0;
    *word |= bit;
    is_new
}
