//! A cluster: the unit of input and output of temporary space. It has a part of a run's rows, one encoded after the other; the
//! last may go on in the next cluster.
//!
//! ```text
//! 0  checksum (CRC-32C) of what follows    8  where the last row begins, counted from the rows; none: 2^32 - 1
//! 4  bytes of rows                        12  which cluster of its run this is       16  the run
//! ```
//!
//! Rows cross clusters, so that clusters are full and rows may be longer; a row that lies in two is put together beside
//! them.

use super::row::{self, HEAD_MAX, Shape};
use driver::Frame;
use structures::canary::{Canary, is_planted};
use structures::checksum::block_checksum;

/// Bytes before the rows.
pub(super) const HEADER: usize = 24;
const NONE: u32 = u32::MAX;

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

/// How many bytes of rows a cluster has; no more than fit, whatever it says.
pub(super) fn used(cluster: &[u8]) -> usize {
    (word(cluster, 4) as usize).min(cluster.len() - HEADER)
}

/// Whether this is cluster `number` of this run as it was written; if not, what is wrong.
pub(super) fn verify(cluster: &[u8], run: u64, number: u32) -> Result<(), String> {
    if is_planted(Canary::UnverifiedCluster) {
        return Ok(());
    }
    let used = word(cluster, 4) as usize;
    if used > cluster.len() - HEADER || block_checksum(&cluster[..HEADER + used]) != word(cluster, 0) {
        return Err("its checksum does not match".to_owned());
    }
    let found = u64::from_le_bytes(cluster[16..24].try_into().expect("eight bytes"));
    if (found, word(cluster, 12)) != (run, number) {
        return Err(format!("it is cluster {} of run {found}, not {number} of {run}", word(cluster, 12)));
    }
    Ok(())
}

/// About where the last row stands that begins in a cluster: its key as far as it is there, as [`row::prefix`] gives it. A
/// forecast may be wrong, so nothing is verified.
pub(super) fn last_key(cluster: &[u8]) -> Option<u64> {
    let rows = &cluster[HEADER..HEADER + used(cluster)];
    let last = rows.get(word(cluster, 8) as usize..)?;
    let shape = Shape::read(last)?;
    let end = shape.key().end.min(last.len());
    Some(row::prefix(last.get(shape.head..end)?, 0))
}

/// Cuts encoded rows into clusters of one run.
pub(super) struct Packer {
    run: u64,
    number: u32,
    frame: Option<Frame>,
    at: usize,
    last: u32,
    /// Whether the clusters go to the medium, and so need checksums.
    sealed: bool,
}

impl Packer {
    /// Of clusters that are written.
    pub fn new(run: u64) -> Packer {
        Packer { run, number: 0, frame: None, at: HEADER, last: NONE, sealed: true }
    }

    /// Of clusters that stay in memory.
    pub fn unsealed() -> Packer {
        Packer { sealed: false, ..Packer::new(0) }
    }

    /// Whether there is a cluster to put bytes into.
    pub fn has_room(&self) -> bool {
        self.frame.as_ref().is_some_and(|frame| self.at < frame.len())
    }

    /// Begins a cluster.
    ///
    /// # Panics
    /// If the one before was not taken.
    pub fn give(&mut self, frame: Frame) {
        assert!(self.frame.is_none() && frame.len() > HEADER, "one cluster after the other");
        (self.frame, self.at, self.last) = (Some(frame), HEADER, NONE);
    }

    /// Puts as many of these bytes into the present cluster as fit, and says how many. `starts`: a row begins with them.
    #[inline]
    pub fn put(&mut self, bytes: &[u8], starts: bool) -> usize {
        let Some(frame) = &mut self.frame else { return 0 };
        let length = bytes.len().min(frame.len() - self.at);
        if starts && length > 0 {
            self.last = (self.at - HEADER) as u32;
        }
        frame[self.at..self.at + length].copy_from_slice(&bytes[..length]);
        self.at += length;
        length
    }

    /// The present cluster, ended, unless it holds nothing.
    pub fn take(&mut self) -> Option<Frame> {
        if self.at == HEADER {
            return None;
        }
        let mut frame = self.frame.take()?;
        let used = (self.at - HEADER) as u32;
        for (at, word) in [(4, used), (8, self.last), (12, self.number)] {
            frame[at..at + 4].copy_from_slice(&word.to_le_bytes());
        }
        frame[16..24].copy_from_slice(&self.run.to_le_bytes());
        if self.sealed {
            let sum = block_checksum(&frame[..self.at]);
            frame[..4].copy_from_slice(&sum.to_le_bytes());
        }
        self.number += 1;
        self.at = HEADER;
        Some(frame)
    }

    /// The frame that holds nothing, if there is one.
    pub fn give_back(&mut self) -> Option<Frame> {
        debug_assert_eq!(self.at, HEADER, "what was put into a cluster is taken with it");
        self.frame.take()
    }
}

const _: () = assert!(HEAD_MAX < 128 - HEADER, "the head of a row fits the smallest cluster");
