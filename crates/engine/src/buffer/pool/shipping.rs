//! What passes between the pool and other nodes: pages that come with their bytes, hints about those that went, word of those
//! that leave.

use super::Pool;
use base::{Lsn, PageId};
use structures::page::header;

/// What is told of each page that makes room for another, with its bytes.
pub type Departure = Box<dyn Fn(PageId, &[u8])>;

impl Pool {
    /// From now on this is told of clean pages that make room for others.
    pub fn set_departure(&mut self, departure: Departure) {
        self.departure = Some(departure);
    }

    /// The page in a frame is the next to leave, unless it is referenced before. A page that stays for good stays all the same.
    pub fn hate(&mut self, frame: u32) {
        if frame < self.replaceable {
            self.hated.add(frame, self.replacement.latest(frame));
        }
    }

    /// A reference to the page in a frame.
    pub fn touch(&self, frame: u32) {
        if frame < self.replaceable {
            self.replacement.touch(frame);
        }
    }

    /// The page in a frame with its checksum, as it is sent to another node.
    pub fn sealed(&mut self, frame: u32) -> &[u8] {
        let bytes = self.bytes_mut(frame);
        header::seal(bytes);
        bytes
    }

    /// A newer version of a page has come from another node into its frame, and counts as used just now. `start` and `end` are the log
    /// positions between which its changes are described.
    pub(in crate::buffer) fn install(&mut self, frame: u32, bytes: &[u8], (start, end): (Lsn, Lsn)) {
        let page = self.bytes_mut(frame);
        page.copy_from_slice(bytes);
        header::set_lsn(page, end);
        self.note_change(frame, start);
        self.touch(frame);
    }

    /// Visits frames in the order in which they should leave, each once, until `visit` returns false.
    pub(super) fn coldest(&self, visit: &mut dyn FnMut(u32) -> bool) {
        let latest = |frame| self.replacement.latest(frame);
        if self.hated.visit(latest, visit) {
            self.replacement.coldest(&mut |frame| self.hated.includes(frame, latest(frame)) || visit(frame));
        }
    }
}
