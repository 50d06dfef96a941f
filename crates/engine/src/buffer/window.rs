//! How far a scan reads ahead: not at all before it has missed a second page, since most ranges are short, then twice as far each time
//! that it has come half of the way.

use super::{Buffer, ReservedFrames};
use base::PageId;
use std::rc::Rc;

/// The first pages that are read ahead.
const FIRST: usize = 2;

/// The pages that a scan has ahead of it, in frames that all scans together have an eighth of.
#[derive(Debug, Default)]
pub struct AheadWindow {
    /// The frames for the pages that it looks ahead at a time, while it does.
    frames: Option<ReservedFrames>,
    /// How far it looked the last time.
    window: usize,
    /// How many of those that it looked at it has not come to.
    left: usize,
}

impl Clone for AheadWindow {
    /// What goes on in two places reads ahead anew.
    fn clone(&self) -> AheadWindow {
        AheadWindow::default()
    }
}

impl AheadWindow {
    /// The scan has come to a page, its first one or not, which was missed or not. Returns how many pages behind this one ought to be
    /// here or on their way; 0 if nothing is to be done.
    #[inline]
    pub fn pass(&mut self, buffer: &Rc<Buffer>, (is_first, missed): (bool, bool)) -> usize {
        self.frames.iter().for_each(|frames| frames.note_use(buffer.executor.round_now()));
        if self.left > 0 {
            self.left -= 1;
            if 2 * self.left > self.window {
                return 0;
            }
        } else if is_first || !missed {
            return 0;
        }
        self.widen(buffer)
    }

    #[cold]
    fn widen(&mut self, buffer: &Rc<Buffer>) -> usize {
        self.frames = None;
        self.frames = buffer.reserve_ahead((2 * self.window).max(FIRST));
        self.window = self.frames.as_ref().map_or(0, ReservedFrames::count);
        self.window
    }

    /// These many pages were named for what [`AheadWindow::pass`] asked for, and these many of them had to be read. If none had, all is here,
    /// and there is nothing to look for before the next miss.
    fn note(&mut self, named: usize, begun: usize) {
        if begun > 0 {
            self.left = named;
        } else {
            self.end();
        }
    }

    /// There is nothing ahead of the scan.
    pub fn end(&mut self) {
        (self.left, self.frames) = (0, None);
    }

    /// Has the pages read that were named for what [`AheadWindow::pass`] asked for, in the order in which the scan comes to them.
    pub fn read(&mut self, buffer: &Rc<Buffer>, pages: Vec<PageId>) {
        self.read_with(pages, |pages| buffer.read_all_ahead(pages));
    }

    /// The same with another way to read them, which returns how many had to be read.
    pub fn read_with(&mut self, pages: Vec<PageId>, begin: impl FnOnce(Vec<PageId>) -> usize) {
        let named = pages.len();
        self.note(named, begin(pages));
    }

    /// A scan of pages as they are numbered, up to `end`, has come to this one, which was missed or not: has those behind it read, if it is
    /// time.
    pub fn go_on(&mut self, buffer: &Rc<Buffer>, page: (PageId, bool), end: u32) {
        self.go_on_with(buffer, page, end, |pages| buffer.read_all_ahead(pages));
    }

    /// The same with another way to read them, which returns how many had to be read.
    pub fn go_on_with(
        &mut self,
        buffer: &Rc<Buffer>,
        (page, missed): (PageId, bool),
        end: u32,
        begin: impl FnOnce(Vec<PageId>) -> usize,
    ) {
        let count = self.pass(buffer, (page.number == 1, missed));
        if count > 0 {
            let behind = (page.number + 1..end).take(count);
            self.read_with(behind.map(|number| PageId { number, ..page }).collect(), begin);
        }
    }
}
