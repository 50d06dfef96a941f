//! Rows in memory that are found by the hashes of their keys: the build side of a hash join. Building and probing are
//! computations.

use super::row::{self, Row, Shape};
use driver::{Frame, prefetch};
use foldhash::fast::FixedState;
use std::hash::BuildHasher;
use std::sync::Arc;

/// About what a row takes in the table, beside itself: a node, and its share of the buckets.
pub(super) const ROW_SIZE: usize = size_of::<Node>() + 8;
/// Answers of one computation, at most: a key may have very many.
const MATCHES_MAX: usize = 1 << 14;
/// The bucket is prefetched into the processor's cache this number of probes ahead, its first node half as many ahead (Chen,
/// Ailamaki, Gibbons and Mowry, Improving Hash Join Performance through Prefetching, 2004).
const AHEAD: usize = 16;

const NONE: u32 = u32::MAX;

/// The hash of a key; another at every level of partitioning.
#[inline]
pub(super) fn hash(key: &[u8], level: u32) -> u64 {
    FixedState::with_seed(u64::from(level) + 0x6a6f_696e).hash_one(key)
}

/// Rows one after the other, each whole, in frames.
#[derive(Default)]
pub(super) struct Chunks(Vec<(Frame, usize)>);

impl Chunks {
    /// Bytes that can be added to the last frame.
    pub fn room(&self) -> usize {
        self.0.last().map_or(0, |(frame, used)| frame.len() - used)
    }

    /// Adds a frame.
    pub fn grow(&mut self, frame: Frame) {
        self.0.push((frame, 0));
    }

    /// Adds a row.
    ///
    /// # Panics
    /// If there is no room.
    #[inline]
    pub fn add(&mut self, row: Row<'_>) {
        let (head, length) = row::head(row);
        let (frame, used) = self.0.last_mut().expect("there is room");
        for part in [&head[..length], row.key, row.value] {
            frame[*used..*used + part.len()].copy_from_slice(part);
            *used += part.len();
        }
    }

    /// The rows, with the number of their frame and their place in it.
    pub fn iter(&self) -> impl Iterator<Item = (u32, u32, Row<'_>)> {
        self.0.iter().zip(0..).flat_map(|((frame, used), number)| {
            let mut at = 0;
            std::iter::from_fn(move || {
                let bytes = frame.get(at..*used).filter(|bytes| !bytes.is_empty())?;
                let shape = Shape::read(bytes)?;
                let place = at as u32;
                at += shape.total();
                Some((number, place, row::decode(bytes, shape)))
            })
        })
    }

    /// The frames.
    pub fn into_frames(self) -> impl Iterator<Item = Frame> {
        self.0.into_iter().map(|(frame, _)| frame)
    }

    /// Takes other rows in.
    pub fn extend(&mut self, other: Chunks) {
        self.0.extend(other.0);
    }

    #[inline]
    fn bytes(&self, node: &Node) -> &[u8] {
        &self.0[node.chunk as usize].0[node.offset as usize..]
    }
}

/// A row of the table.
struct Node {
    /// The upper half of its hash; the lower half says which bucket.
    hash: u32,
    /// The next one of its bucket.
    next: u32,
    chunk: u32,
    offset: u32,
}

/// Rows by their hashes, chained in buckets. It does not change once it is built.
pub(super) struct Table {
    chunks: Chunks,
    buckets: Vec<u32>,
    nodes: Vec<Node>,
}

impl Table {
    /// Of `rows` rows, hashed at this level. Long: a computation.
    pub fn build(chunks: Chunks, rows: usize, level: u32) -> Table {
        let mut buckets = vec![NONE; rows.next_power_of_two()];
        let mut nodes = Vec::with_capacity(rows);
        for (chunk, offset, row) in chunks.iter() {
            let hash = hash(row.key, level);
            let bucket = &mut buckets[hash as u32 as usize & (rows.next_power_of_two() - 1)];
            let next = std::mem::replace(bucket, nodes.len() as u32);
            nodes.push(Node { hash: (hash >> 32) as u32, next, chunk, offset });
        }
        Table { chunks, buckets, nodes }
    }

    /// The frames that its rows were in.
    pub fn into_frames(self) -> impl Iterator<Item = Frame> {
        self.chunks.into_frames()
    }

    #[inline]
    fn bucket(&self, hash: u64) -> usize {
        hash as u32 as usize & (self.buckets.len() - 1)
    }

    /// A row by its number.
    #[inline]
    pub fn row(&self, number: u32) -> Row<'_> {
        let bytes = self.chunks.bytes(&self.nodes[number as usize]);
        row::decode(bytes, Shape::read(bytes).expect("chunks hold whole rows"))
    }
}

/// Rows that are looked for.
#[derive(Default)]
pub(super) struct Probes {
    bytes: Vec<u8>,
    /// Hash and place of each.
    rows: Vec<(u64, u32)>,
    /// The next one to look for, where in its bucket to go on, and whether it was found.
    next: usize,
    node: Option<u32>,
    is_found: bool,
    /// The answers: a row that was looked for and one of the table, or none.
    pub matches: Vec<(u32, Option<u32>)>,
}

impl Probes {
    /// Adds a row.
    #[inline]
    pub fn add(&mut self, row: Row<'_>, hash: u64) {
        let (head, length) = row::head(row);
        self.rows.push((hash, self.bytes.len() as u32));
        self.bytes.extend_from_slice(&head[..length]);
        self.bytes.extend_from_slice(row.key);
        self.bytes.extend_from_slice(row.value);
    }

    /// Bytes of rows.
    pub fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// How many rows there are.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether all were looked for.
    pub fn is_done(&self) -> bool {
        self.next == self.rows.len()
    }

    /// Forgets them all.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.rows.clear();
        self.matches.clear();
        (self.next, self.node, self.is_found) = (0, None, false);
    }

    /// One of the rows.
    #[inline]
    pub fn row(&self, number: u32) -> Row<'_> {
        let bytes = &self.bytes[self.rows[number as usize].1 as usize..];
        row::decode(bytes, Shape::read(bytes).expect("whole rows were added"))
    }

    /// Finds answers in the table, until all rows were looked for or there are very many. `outer`: rows without a counterpart are
    /// answers, too. Long: a computation.
    pub fn look(&mut self, table: &Arc<Table>, outer: bool) {
        self.matches.clear();
        while let Some((hash, offset)) = self.rows.get(self.next).copied() {
            self.fetch(table);
            let bytes = &self.bytes[offset as usize..];
            let key = row::decode(bytes, Shape::read(bytes).expect("whole rows were added")).key;
            let mut number = self.node.take().unwrap_or_else(|| table.buckets[table.bucket(hash)]);
            while let Some(node) = table.nodes.get(number as usize) {
                if self.matches.len() >= MATCHES_MAX {
                    self.node = Some(number);
                    return;
                }
                if node.hash == (hash >> 32) as u32 && table.row(number).key == key {
                    self.matches.push((self.next as u32, Some(number)));
                    self.is_found = true;
                }
                number = node.next;
            }
            if outer && !self.is_found {
                self.matches.push((self.next as u32, None));
            }
            (self.next, self.is_found) = (self.next + 1, false);
        }
    }

    /// Has what the next rows will look at brought into the processor's cache.
    #[inline]
    fn fetch(&self, table: &Table) {
        if let Some((hash, _)) = self.rows.get(self.next + AHEAD) {
            let bucket = table.bucket(*hash);
            prefetch(&table.buckets[bucket..=bucket]);
        }
        let first = |ahead: usize| {
            let (hash, _) = self.rows.get(self.next + ahead)?;
            table.nodes.get(table.buckets[table.bucket(*hash)] as usize)
        };
        if let Some(node) = first(AHEAD / 2) {
            prefetch(std::slice::from_ref(node));
        }
        if let Some(node) = first(AHEAD / 4) {
            let bytes = table.chunks.bytes(node);
            prefetch(&bytes[..bytes.len().min(128)]);
        }
    }
}
