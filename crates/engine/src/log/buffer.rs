//! The log buffer: records are laid straight into the log pages that will be written.

use super::Circle;
use super::page::{self, HEADER_SIZE};
use driver::{Frame, Work};
use executor::Executor;

/// Whole log pages, closed and ready to be written.
pub(super) struct ClosedPages {
    /// Where they stand in the log.
    pub position: u64,
    /// How many bytes, a multiple of the page size.
    pub length: usize,
    /// Holds them at its front.
    pub frame: Frame,
}

impl ClosedPages {
    /// The log position behind the piece.
    pub fn end(&self) -> u64 {
        self.position + self.length as u64
    }
}

/// The frame that is being filled, and spare ones.
///
/// `at == page_end` says that no page is open: the next byte opens one. So a record that ends with its page leaves no empty
/// page behind.
pub(super) struct LogBuffer {
    executor: Executor,
    page_size: usize,
    frame_size: usize,
    circle: Circle,
    epoch: u32,
    frame: Frame,
    /// The log position of the frame's front.
    start: u64,
    /// The next byte in the frame.
    at: usize,
    /// The end of the open page in the frame.
    page_end: usize,
    /// Whether a record begins in the open page.
    page_has_first: bool,
    /// How much of the frame may be used: one write never crosses the end of the file.
    limit: usize,
    /// Frames that filled up, in order; the log takes them from here.
    full: Vec<ClosedPages>,
    spare: Vec<Frame>,
}

/// Frames kept for reuse at most.
const SPARE_MAX: usize = 64;

impl LogBuffer {
    /// An empty buffer whose next page stands at `start`: the first one of an opening, which is written alone.
    pub fn new(
        executor: &Executor,
        page_size: usize,
        frame_size: usize,
        circle: Circle,
        start: u64,
        epoch: u32,
    ) -> LogBuffer {
        let executor = executor.clone();
        let frame = allocate(&executor, frame_size);
        LogBuffer {
            executor,
            page_size,
            frame_size,
            circle,
            epoch,
            frame,
            start,
            at: 0,
            page_end: 0,
            page_has_first: false,
            limit: page_size,
            full: Vec::new(),
            spare: Vec::new(),
        }
    }

    fn limit_at(&self, start: u64) -> usize {
        self.circle.left_from(start).min(self.frame_size as u64) as usize
    }

    /// The number of the opening whose pages these are.
    pub fn epoch(&self) -> u32 {
        self.epoch
    }

    /// The log position of the first byte that has not been handed over for writing.
    pub fn start(&self) -> u64 {
        self.start
    }

    /// The log position behind the last record.
    #[inline]
    pub fn end(&self) -> u64 {
        self.start + self.at as u64
    }

    /// The log position at which the frame would end if it were cut now.
    pub fn cut_end(&self) -> u64 {
        self.start + self.page_end.max(self.at) as u64
    }

    /// Bytes that the open page has room for.
    pub fn page_room(&self) -> usize {
        self.page_end - self.at
    }

    /// Lays a record into the buffer and returns its end. Frames that fill up are left for [`LogBuffer::take_full`].
    #[inline]
    pub fn append(&mut self, record: &[u8]) -> u64 {
        if self.at == self.page_end {
            self.open_page();
        }
        if !self.page_has_first {
            self.page_has_first = true;
            let first = self.at + self.page_size - self.page_end;
            page::set_first(self.open_page_mut(), first);
        }
        if record.len() <= self.page_end - self.at {
            self.frame[self.at..self.at + record.len()].copy_from_slice(record);
            self.at += record.len();
        } else {
            self.append_spanning(record);
        }
        self.end()
    }

    fn append_spanning(&mut self, mut record: &[u8]) {
        loop {
            let (front, rest) = record.split_at(record.len().min(self.page_end - self.at));
            self.frame[self.at..self.at + front.len()].copy_from_slice(front);
            self.at += front.len();
            record = rest;
            if record.is_empty() {
                return;
            }
            self.open_page();
        }
    }

    fn open_page_mut(&mut self) -> &mut [u8] {
        &mut self.frame[self.page_end - self.page_size..self.page_end]
    }

    fn open_page(&mut self) {
        self.close_page();
        if self.at == self.limit {
            let piece = self.swap_frame();
            self.full.push(piece);
        }
        self.executor.charge(Work::LogPage);
        let position = self.start + self.at as u64;
        self.page_end = self.at + self.page_size;
        self.page_has_first = false;
        let epoch = self.epoch;
        page::begin(self.open_page_mut(), position, epoch);
        self.at += HEADER_SIZE;
    }

    /// Ends the open page, if there is one; `at` moves to its end.
    fn close_page(&mut self) {
        if self.page_end > 0 {
            let used = self.at + self.page_size - self.page_end;
            page::close(self.open_page_mut(), used);
            self.at = self.page_end;
        }
    }

    fn swap_frame(&mut self) -> ClosedPages {
        let next = self.spare.pop().unwrap_or_else(|| allocate(&self.executor, self.frame_size));
        let piece =
            ClosedPages { position: self.start, length: self.at, frame: std::mem::replace(&mut self.frame, next) };
        self.start = piece.end();
        self.limit = self.limit_at(self.start);
        self.at = 0;
        self.page_end = 0;
        piece
    }

    /// Closes the open page and hands over all that the frame holds, frames that filled up before excepted; `None` if there
    /// is nothing.
    pub fn cut(&mut self) -> Option<ClosedPages> {
        self.close_page();
        (self.at > 0).then(|| self.swap_frame())
    }

    /// Whether frames have filled up.
    #[inline]
    pub fn has_full(&self) -> bool {
        !self.full.is_empty()
    }

    /// Takes the frames that filled up, in order.
    pub fn take_full(&mut self) -> std::vec::Drain<'_, ClosedPages> {
        self.full.drain(..)
    }

    /// A frame of the buffer's size for the caller's own use.
    pub fn spare_frame(&mut self) -> Frame {
        self.spare.pop().unwrap_or_else(|| allocate(&self.executor, self.frame_size))
    }

    /// Gives a frame back for reuse.
    pub fn recycle(&mut self, frame: Frame) {
        if self.spare.len() < SPARE_MAX {
            self.spare.push(frame);
        }
    }
}

/// A frame from the driver, or from the heap if the driver has no more: appending never fails.
fn allocate(executor: &Executor, size: usize) -> Frame {
    let frames = executor.frames(1, size).unwrap_or_else(|_| Frame::allocate(1, size));
    frames.into_iter().next().expect("one frame was asked for")
}
