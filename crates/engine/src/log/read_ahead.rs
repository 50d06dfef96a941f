//! Reads the log's file sequentially with several large reads in flight.

use crate::Result;
use driver::{Access, Completion, FileId, Frame, Op, Work};
use executor::{Executor, WaitQueue};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

/// Reads in flight.
const READS: usize = 3;
/// Bytes of one read.
const READ_SIZE: usize = 1 << 20;

/// A piece of the log as it stands in the file.
pub(super) struct Chunk {
    /// The log position of its front.
    pub position: u64,
    /// How many bytes were read.
    pub length: usize,
    /// Holds them at its front.
    pub frame: Frame,
}

struct Pending {
    completion: RefCell<Option<Completion>>,
    waiters: WaitQueue,
}

/// Sequential reading from one log position to another.
pub(super) struct ReadAhead {
    executor: Executor,
    file: FileId,
    capacity: u64,
    read_size: usize,
    /// What is read next.
    next: u64,
    limit: u64,
    in_flight: VecDeque<(u64, usize, Rc<Pending>)>,
    spare: Vec<Frame>,
}

impl ReadAhead {
    /// Reads from position `next` to `limit`, both at page boundaries.
    pub fn new(executor: &Executor, file: FileId, page_size: usize, capacity: u64, next: u64, limit: u64) -> ReadAhead {
        let read_size = (READ_SIZE / page_size).max(1) * page_size;
        let read_size = read_size.min(capacity as usize);
        let (in_flight, spare) = (VecDeque::new(), Vec::new());
        ReadAhead { executor: executor.clone(), file, capacity, read_size, next, limit, in_flight, spare }
    }

    /// The next chunk; `None` at the limit.
    ///
    /// # Errors
    /// The driver's [`crate::Error::Input`].
    pub async fn next(&mut self) -> Result<Option<Chunk>> {
        while self.in_flight.len() < READS && self.next < self.limit {
            self.executor.charge(Work::InputOutput);
            self.executor.settle().await;
            self.submit()?;
        }
        let Some((position, length, pending)) = self.in_flight.pop_front() else { return Ok(None) };
        let completion = loop {
            if let Some(completion) = pending.completion.borrow_mut().take() {
                break completion;
            }
            pending.waiters.wait(&self.executor).await;
        };
        completion.result?;
        let frame = completion.buffer.expect("a read gives its buffer back");
        Ok(Some(Chunk { position, length, frame }))
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
