//! Reads the log's file sequentially with several large reads in flight. What was read is verified beside the engine's thread,
//! while the next pieces come.

use super::page::{self, Flaw, Header};
use crate::Result;
use driver::{Access, Completion, Fault, FileId, Frame, Op, Work};
use executor::{Executor, JoinHandle, WaitQueue};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

/// Reads in flight.
const READS: usize = 3;
/// Pieces being verified.
const VERIFIED: usize = 2;
/// Bytes of one read.
const READ_SIZE: usize = 1 << 20;
/// About what it costs on described hardware to verify 64 bytes, in instructions.
const VERIFY_INSTRUCTIONS: u64 = 40;

/// A piece of the log as it stands in the file.
pub(super) struct Chunk {
    /// The log position of its front.
    pub position: u64,
    /// How many bytes were read.
    pub length: usize,
    /// Holds them at its front.
    pub frame: Frame,
    /// What its pages are.
    pages: Vec<Result<Header, Flaw>>,
    page_size: usize,
}

impl Chunk {
    /// A chunk whose pages have been looked at.
    fn verified(frame: Frame, position: u64, length: usize, page_size: usize) -> Chunk {
        let pages = frame[..length].chunks_exact(page_size).zip((position..).step_by(page_size));
        let pages = pages.map(|(page, position)| page::verify(page, position)).collect();
        Chunk { position, length, frame, pages, page_size }
    }

    /// The page at this log position, which lies in the chunk.
    pub fn page(&self, position: u64) -> Result<Header, Flaw> {
        self.pages[(position - self.position) as usize / self.page_size]
    }
}

struct Pending {
    completion: RefCell<Option<Completion>>,
    waiters: WaitQueue,
}

/// Sequential reading from one log position to another.
pub(super) struct ReadAhead {
    executor: Executor,
    file: FileId,
    page_size: usize,
    capacity: u64,
    read_size: usize,
    /// What is read next.
    next: u64,
    limit: u64,
    in_flight: VecDeque<(u64, usize, Rc<Pending>)>,
    verified: VecDeque<JoinHandle<Result<Chunk, Fault>>>,
    spare: Vec<Frame>,
}

impl ReadAhead {
    /// Reads from position `next` to `limit`, both at page boundaries.
    pub fn new(executor: &Executor, file: FileId, page_size: usize, capacity: u64, next: u64, limit: u64) -> ReadAhead {
        let read_size = (READ_SIZE / page_size).max(1) * page_size;
        let read_size = read_size.min(capacity as usize);
        let (in_flight, verified, spare) = (VecDeque::new(), VecDeque::new(), Vec::new());
        let executor = executor.clone();
        ReadAhead { executor, file, page_size, capacity, read_size, next, limit, in_flight, verified, spare }
    }

    /// The next chunk; `None` at the limit.
    ///
    /// # Errors
    /// The driver's [`crate::Error::Input`].
    pub async fn next(&mut self) -> Result<Option<Chunk>> {
        loop {
            while self.in_flight.len() < READS && self.next < self.limit {
                self.executor.charge(Work::InputOutput);
                self.executor.settle().await;
                self.submit()?;
            }
            if self.verified.len() == VERIFIED || self.in_flight.is_empty() {
                break;
            }
            self.verify_first().await?;
        }
        let Some(first) = self.verified.pop_front() else { return Ok(None) };
        Ok(Some(first.join().await?))
    }

    /// Waits for the first read and has it verified.
    async fn verify_first(&mut self) -> Result<()> {
        let Some((position, length, pending)) = self.in_flight.pop_front() else { return Ok(()) };
        let completion = loop {
            if let Some(completion) = pending.completion.borrow_mut().take() {
                break completion;
            }
            pending.waiters.wait(&self.executor).await;
        };
        completion.result?;
        let (frame, page_size) = (completion.buffer.expect("a read gives its buffer back"), self.page_size);
        let verified = move || Chunk::verified(frame, position, length, page_size);
        self.verified.push_back(self.executor.begin_compute(length as u64 / 64 * VERIFY_INSTRUCTIONS, verified));
        Ok(())
    }

    fn submit(&mut self) -> Result<()> {
        let frame = match self.spare.pop() {
            Some(frame) => frame,
            None => self.executor.frame(self.read_size)?,
        };
        let offset = self.next % self.capacity;
        let length = (self.read_size as u64).min(self.capacity - offset).min(self.limit - self.next);
        let pending = Rc::new(Pending { completion: RefCell::new(None), waiters: WaitQueue::new() });
        self.in_flight.push_back((self.next, length as usize, Rc::clone(&pending)));
        self.next += length;
        let (file, length) = (self.file, length as u32);
        let read = Op::Read { file, offset, length, buffer: frame, access: Access::Asynchronous };
        let executor = self.executor.clone();
        self.executor.submit(read, move |completion| {
            pending.completion.replace(Some(completion));
            pending.waiters.wake_all(&executor);
        });
        Ok(())
    }

    /// Gives a chunk's memory back for the next reads.
    pub fn recycle(&mut self, chunk: Chunk) {
        self.spare.push(chunk.frame);
    }
}
