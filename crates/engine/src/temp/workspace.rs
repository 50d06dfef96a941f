//! Memory in which rows are gathered and sorted: what becomes a run. Sorting and packing are computations that own it.
//!
//! Rows stand in one arena, encoded, in the order in which they came. They are sorted by entries of sixteen bytes, each with the
//! first bytes of a key and the place of its row, so that most comparisons touch entries alone (Nyberg, Barclay, Cvetanovic,
//! Gray and Lomet, AlphaSort, 1994), and copied once, when they are packed into clusters.

use super::cluster::Packer;
use super::row::{self, Row, Shape};
use crate::Result;
use driver::{Frame, prefetch};
use executor::Executor;

/// A row's place in the arena.
#[derive(Clone, Copy)]
struct RowPlace {
    prefix: u64,
    offset: u32,
    length: u32,
}

const ENTRY: usize = size_of::<RowPlace>();
/// The arena of a larger workspace would not be found with entries of sixteen bytes.
pub(super) const WORKSPACE_MAX: usize = 2 << 30;
/// How many rows ahead rows are prefetched into the processor's cache while rows are packed.
const AHEAD: usize = 8;
/// More of a row than this is fetched by the processor itself.
const FETCHED: usize = 256;

/// Rows as they come.
pub(super) struct Workspace {
    arena: Frame,
    used: usize,
    rows: usize,
    longest: usize,
    /// The most that the arena held in any of its uses: memory that is never given back before the end.
    touched: usize,
    /// The first row's key, as far as all keys have it in common.
    common: Vec<u8>,
}

impl Workspace {
    /// Memory of this many bytes, rows and entries together.
    ///
    /// # Errors
    /// The driver's, if there is none.
    pub fn new(executor: &Executor, bytes: usize) -> Result<Workspace> {
        assert!(bytes <= WORKSPACE_MAX, "entries find only so much");
        let arena = executor.untouched_frames(1, bytes)?.pop().expect("one frame was asked for");
        Ok(Workspace { arena, used: 0, rows: 0, longest: 0, touched: 0, common: Vec::new() })
    }

    /// Whether there is no row.
    pub fn is_empty(&self) -> bool {
        self.rows == 0
    }

    /// How many rows there are.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Bytes of rows.
    pub fn bytes(&self) -> usize {
        self.used
    }

    /// Bytes of the longest row.
    pub fn longest(&self) -> usize {
        self.longest
    }

    /// Adds a row, unless there is no room.
    #[inline]
    pub fn add(&mut self, row: Row<'_>) -> bool {
        let (head, length) = row::head(row);
        let total = length + row.key.len() + row.value.len();
        let end = self.used + total;
        if end.max(self.touched) + (self.rows + 1) * ENTRY > self.arena.len() {
            return false;
        }
        if self.rows == 0 {
            self.common.clear();
            self.common.extend_from_slice(row.key);
        } else if !row.key.starts_with(&self.common) {
            let same = row.key.iter().zip(&self.common).take_while(|(one, other)| one == other).count();
            self.common.truncate(same);
        }
        let (key, value) = (self.used + length, self.used + length + row.key.len());
        self.arena[self.used..key].copy_from_slice(&head[..length]);
        self.arena[key..value].copy_from_slice(row.key);
        self.arena[value..end].copy_from_slice(row.value);
        (self.used, self.rows, self.longest) = (end, self.rows + 1, self.longest.max(total));
        true
    }

    /// Sorts the rows. Long: a computation.
    pub fn sort(mut self) -> SortedWorkspace {
        self.touched = self.touched.max(self.used);
        let (bytes, skip) = (&self.arena[..self.used], self.common.len());
        let mut entries = Vec::with_capacity(self.rows);
        let mut offset = 0;
        while offset < bytes.len() {
            let shape = Shape::read(&bytes[offset..]).expect("the arena holds whole rows");
            let key = &bytes[offset..][shape.key()];
            let length = shape.total() as u32;
            entries.push(RowPlace { prefix: row::prefix(key, skip), offset: offset as u32, length });
            offset += shape.total();
        }
        let key = |entry: &RowPlace| {
            let row = &bytes[entry.offset as usize..];
            &row[Shape::read(row).expect("read above").key()]
        };
        entries.sort_unstable_by(|one, other| {
            one.prefix
                .cmp(&other.prefix)
                .then_with(|| key(one).cmp(key(other)))
                .then_with(|| one.offset.cmp(&other.offset))
        });
        SortedWorkspace { workspace: self, entries, next: 0, done: 0 }
    }
}

/// Rows in the order of their keys; those of equal keys as they came.
pub(super) struct SortedWorkspace {
    workspace: Workspace,
    entries: Vec<RowPlace>,
    /// Rows that were packed or read.
    next: usize,
    /// Bytes of the next row that were packed.
    done: usize,
}

impl SortedWorkspace {
    /// How many rows there are.
    pub fn rows(&self) -> usize {
        self.entries.len()
    }

    /// About how many clusters of this size they fill.
    pub fn clusters(&self, cluster_size: usize) -> usize {
        self.workspace.used.div_ceil(cluster_size)
    }

    /// Packs rows into clusters until frames or rows run out. Gives full clusters and the frames that are left; the last cluster
    /// is full when there is nothing more to put into it.
    pub fn pack(&mut self, packer: &mut Packer, frames: Vec<Frame>) -> (Vec<Frame>, Vec<Frame>) {
        let (mut full, mut frames) = (Vec::new(), frames);
        while let Some(entry) = self.entries.get(self.next) {
            if !packer.has_room() {
                full.extend(packer.take());
                let Some(frame) = frames.pop() else { return (full, frames) };
                packer.give(frame);
            }
            if let Some(ahead) = self.entries.get(self.next + AHEAD) {
                self.fetch(ahead);
            }
            let start = entry.offset as usize;
            let rest = &self.workspace.arena[start + self.done..start + entry.length as usize];
            let put = packer.put(rest, self.done == 0);
            if put == rest.len() {
                (self.next, self.done) = (self.next + 1, 0);
            } else {
                self.done += put;
            }
        }
        full.extend(packer.take());
        frames.extend(packer.give_back());
        (full, frames)
    }

    /// Whether all rows were packed.
    pub fn is_packed(&self) -> bool {
        self.next == self.entries.len()
    }

    /// Goes to the next row; false at the end.
    #[inline]
    pub fn advance(&mut self) -> bool {
        if self.next == self.entries.len() {
            return false;
        }
        if let Some(ahead) = self.entries.get(self.next + AHEAD) {
            self.fetch(ahead);
        }
        self.next += 1;
        true
    }

    /// The row that the last step went to.
    #[inline]
    pub fn row(&self) -> Row<'_> {
        let entry = &self.entries[self.next - 1];
        let bytes = &self.workspace.arena[entry.offset as usize..];
        row::decode(bytes, Shape::read(bytes).expect("the arena holds whole rows"))
    }

    /// Has a row brought into the processor's cache.
    #[inline]
    fn fetch(&self, entry: &RowPlace) {
        let (start, length) = (entry.offset as usize, (entry.length as usize).min(FETCHED));
        prefetch(&self.workspace.arena[start..start + length]);
    }

    /// The memory, for other rows.
    pub fn reuse(self) -> Workspace {
        Workspace { used: 0, rows: 0, longest: 0, ..self.workspace }
    }
}
