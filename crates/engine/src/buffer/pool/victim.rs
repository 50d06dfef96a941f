//! Which frames leave next, and which are written before they must.

use super::Pool;
use base::Lsn;
use structures::page::header;

impl Pool {
    /// The frame whose page should leave next: the coldest that may. With `clean_within`, a clean one among the coldest that
    /// many candidates is preferred over a dirty one.
    pub fn victim(&self, clean_within: usize) -> Option<u32> {
        let mut first = None;
        let mut left = clean_within;
        self.replacement.coldest(&mut |frame| {
            let slot = &self.slots[frame as usize];
            if slot.pins > 0 || slot.writing {
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

    /// The coldest frame of such a page that may leave.
    pub fn logged_victim(&self, durable: Lsn) -> Option<u32> {
        let mut found = None;
        self.replacement.coldest(&mut |frame| {
            let slot = &self.slots[frame as usize];
            if slot.pins == 0 && !slot.writing && self.is_logged(frame, durable) {
                found = Some(frame);
            }
            found.is_none()
        });
        found
    }

    /// Up to `limit` dirty frames among the coldest `within` that may be written back.
    pub fn coldest_dirty(&self, within: usize, limit: usize) -> Vec<u32> {
        let mut found = Vec::new();
        let mut left = within;
        self.replacement.coldest(&mut |frame| {
            let slot = &self.slots[frame as usize];
            if slot.dirty && !slot.writing {
                found.push(frame);
            }
            left = left.saturating_sub(1);
            left > 0 && found.len() < limit
        });
        found
    }
}
