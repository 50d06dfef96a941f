//! Which frames leave next, and which are written before they must.

use super::Pool;
use base::{Lsn, PartitionId};
use structures::page::header;
use structures::replacement::Replacement;

impl Pool {
    /// Removes a clean, unpinned page from its frame, which was the next to leave.
    pub fn evict(&mut self, frame: u32) {
        // A policy that looks at pages in some order has not come to one that is hated.
        let is_hated = self.hated.includes(frame, self.replacement.latest(frame));
        self.remove_page(frame, if is_hated { <dyn Replacement>::remove } else { <dyn Replacement>::evict });
    }

    /// The same of one that was only among the next to leave.
    pub fn evict_early(&mut self, frame: u32) {
        self.remove_page(frame, <dyn Replacement>::evict_early);
    }

    /// The frame whose page should leave next: the coldest that may. With `clean_within`, a clean one among the coldest that
    /// many candidates is preferred over a dirty one. Dirty pages of `silent` partitions do not leave.
    pub fn victim(&self, clean_within: usize, silent: &[PartitionId]) -> Option<u32> {
        let mut first = None;
        let mut left = clean_within;
        self.coldest(&mut |frame| {
            let slot = &self.slots[frame as usize];
            if slot.pins > 0 || slot.writing || slot.dirty && silent.contains(&slot.page.partition) {
                return true;
            }
            if !slot.dirty {
                if first.is_none() || clean_within > 0 {
                    first = Some(frame);
                }
                return false;
            }
            first = first.or(Some(frame));
            left = left.saturating_sub(1);
            left > 0
        });
        first
    }

    /// Whether the frame's page may be written without a write of the log, which is durable up to `durable`.
    pub fn is_logged(&self, frame: u32, durable: Lsn) -> bool {
        !self.is_dirty(frame) || header::lsn(self.bytes(frame)) <= durable
    }

    /// The coldest frame of such a page that may leave, and is of no `silent` partition if it is dirty.
    pub fn logged_victim(&self, durable: Lsn, silent: &[PartitionId]) -> Option<u32> {
        let mut found = None;
        self.coldest(&mut |frame| {
            let slot = &self.slots[frame as usize];
            let may_leave = slot.pins == 0 && !slot.writing && !(slot.dirty && silent.contains(&slot.page.partition));
            if may_leave && self.is_logged(frame, durable) {
                found = Some(frame);
            }
            found.is_none()
        });
        found
    }

    /// Up to `limit` dirty frames among the coldest `within` that may be written back, and are of no `silent` partition.
    pub fn coldest_dirty(&self, within: usize, limit: usize, silent: &[PartitionId]) -> Vec<u32> {
        let mut found = Vec::new();
        let mut left = within;
        self.coldest(&mut |frame| {
            let slot = &self.slots[frame as usize];
            if slot.dirty && !slot.writing && !silent.contains(&slot.page.partition) {
                found.push(frame);
            }
            left = left.saturating_sub(1);
            left > 0 && found.len() < limit
        });
        found
    }
}
