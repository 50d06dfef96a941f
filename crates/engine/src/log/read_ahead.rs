//! Reads the log's file sequentially with several large reads in flight. What was read is verified beside the engine's thread,
//! while the next pieces come.

use super::Circle;
use super::page::{self, Flaw, Header};
use crate::Result;
use crate::io::salvage::{self, Salvaged};
use driver::{Access, Completion, Fault, FaultKind, FileId, Frame, Op, Work};
use executor::{Executor, JoinHandle, WaitQueue};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::ops::Range;
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
    /// Where there are two copies: which of them has each page, by position.
    held: Vec<[bool; 2]>,
    /// A page of which both have the same version with other contents.
    conflict: Option<u64>,
}

impl Chunk {
    /// A chunk whose pages have been looked at.
    fn verified(Salvaged { frame, unreadable, .. }: Salvaged, position: u64, length: usize, page_size: usize) -> Chunk {
        let pages = frame[..length].chunks_exact(page_size).zip((position..).step_by(page_size));
        let mut pages: Vec<_> = pages.map(|(page, position)| page::verify(page, position)).collect();
        unreadable.into_iter().for_each(|page| pages[page] = Err(Flaw::Unreadable));
        Chunk { position, length, frame, pages, page_size, held: Vec::new(), conflict: None }
    }

    /// The same of whole pages that were read by other ways.
    pub fn read(frame: Frame, position: u64, length: usize, page_size: usize) -> Chunk {
        Chunk::verified(Salvaged { frame, unreadable: Vec::new(), fault: None }, position, length, page_size)
    }

    /// Of two copies of a chunk, of which one may be unreadable, every page that either has: the one that was written later.
    /// `tolerant`: what one copy cannot read and the other lacks was never acknowledged.
    fn merged(
        [first, second]: [Option<Salvaged>; 2],
        (position, length, page_size): (u64, usize, usize),
        tolerant: bool,
    ) -> Chunk {
        let verified = |copy| Chunk::verified(copy, position, length, page_size);
        let (mut chunk, other) = match (first.map(verified), second.map(verified)) {
            (Some(first), Some(second)) => (first, second),
            (one, other) => {
                let is_first = one.is_some();
                let mut chunk = one.or(other).expect("one copy at least was read");
                chunk.held =
                    chunk.pages.iter().map(|page| [page.is_ok() && is_first, page.is_ok() && !is_first]).collect();
                return chunk;
            }
        };
        for index in 0..chunk.pages.len() {
            let place = index * page_size..(index + 1) * page_size;
            let held = match (chunk.pages[index], other.pages[index]) {
                (Ok(one), Ok(two)) if one.epoch == two.epoch => {
                    if chunk.frame[place.clone()] != other.frame[place.clone()] {
                        chunk.conflict.get_or_insert(one.position);
                    }
                    [true, true]
                }
                (Ok(one), Ok(two)) => [one.epoch > two.epoch, one.epoch < two.epoch],
                (one, two) => [one.is_ok(), two.is_ok()],
            };
            // Of two pages that are none the one that says more: of a newer release, of another size. What cannot be read may
            // have been acknowledged, unless the other copy would have it then.
            let weight = |page: Result<Header, Flaw>| match page {
                Err(Flaw::Unreadable) if tolerant => 0,
                Err(Flaw::Missing) => 1,
                Err(Flaw::Elsewhere) => 2,
                Err(Flaw::Unreadable) => 3,
                Ok(_) | Err(Flaw::Newer(_) | Flaw::Size(_)) => 4,
            };
            let says_more = held == [false, false] && weight(other.pages[index]) > weight(chunk.pages[index]);
            if held == [false, true] || says_more {
                chunk.frame[place.clone()].copy_from_slice(&other.frame[place]);
                chunk.pages[index] = other.pages[index];
            }
            chunk.held.push(held);
        }
        chunk
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

/// What is read, and what is to have it.
#[derive(Clone)]
pub(super) struct Sources {
    /// The file, or both copies.
    pub read: Vec<FileId>,
    /// Copies that get what they lack: the file, and which of `read` it is, if it is one of them.
    pub repair: Vec<(FileId, Option<usize>)>,
    /// Whether a page that one copy cannot read is taken from the other. This is safe if commits waited for both copies.
    pub tolerant: bool,
}

/// Sequential reading from one log position to another.
pub(super) struct ReadAhead {
    executor: Executor,
    sources: Sources,
    /// Pages written where a copy lacked them.
    repaired: u64,
    page_size: usize,
    circle: Circle,
    read_size: usize,
    /// What is read next.
    next: u64,
    limit: u64,
    in_flight: VecDeque<(u64, usize, Vec<Rc<Pending>>)>,
    verified: VecDeque<JoinHandle<Result<Chunk, Fault>>>,
    spare: Vec<Frame>,
}

impl ReadAhead {
    /// Reads from position `next` to `limit`, both at page boundaries.
    pub fn new(
        executor: &Executor,
        sources: Sources,
        page_size: usize,
        circle: Circle,
        (next, limit): (u64, u64),
    ) -> ReadAhead {
        let read_size = (READ_SIZE / page_size).max(1) * page_size;
        let read_size = read_size.min(circle.size as usize).min((limit - next) as usize);
        let (in_flight, verified, spare) = (VecDeque::new(), VecDeque::new(), Vec::new());
        let executor = executor.clone();
        let repaired = 0;
        ReadAhead { executor, sources, repaired, page_size, circle, read_size, next, limit, in_flight, verified, spare }
    }

    /// The next chunk; `None` at the limit.
    ///
    /// # Errors
    /// The driver's [`crate::Error::Input`], [`crate::Error::DamagedLog`] if two copies contradict each other.
    pub async fn next(&mut self) -> Result<Option<Chunk>> {
        loop {
            while self.in_flight.len() < READS && self.next < self.limit {
                self.executor.charge(Work::InputOutput);
                self.executor.pay_debt().await;
                self.submit()?;
            }
            if self.verified.len() == VERIFIED || self.in_flight.is_empty() {
                break;
            }
            self.verify_first().await?;
        }
        let Some(first) = self.verified.pop_front() else { return Ok(None) };
        let chunk = first.join().await?;
        self.repair(&chunk).await?;
        Ok(Some(chunk))
    }

    /// Writes to each copy the pages of a chunk that it lacks.
    async fn repair(&mut self, chunk: &Chunk) -> Result<()> {
        if let Some(position) = chunk.conflict {
            let detail = "its two copies have different pages there; keep the one that is sound".to_owned();
            return Err(crate::Error::DamagedLog { lsn: base::Lsn(position), file: "log".to_owned(), detail });
        }
        for (file, source) in self.sources.repair.clone() {
            let lacks = |index: usize| {
                let has = source.is_some_and(|source| chunk.held.get(index).is_none_or(|held| held[source]));
                chunk.pages[index].is_ok() && !has
            };
            let mut from = 0;
            while let Some(first) = (from..chunk.pages.len()).find(|index| lacks(*index)) {
                let end = (first..chunk.pages.len()).find(|index| !lacks(*index)).unwrap_or(chunk.pages.len());
                self.write_pages(chunk, file, first..end).await?;
                self.repaired += (end - first) as u64;
                from = end;
            }
        }
        Ok(())
    }

    async fn write_pages(&self, chunk: &Chunk, file: FileId, pages: Range<usize>) -> Result<()> {
        let bytes = pages.start * self.page_size..pages.end * self.page_size;
        let (offset, length) = (self.circle.offset(chunk.position + bytes.start as u64), bytes.len() as u32);
        let mut buffer = self.executor.frame(bytes.len())?;
        buffer[..bytes.len()].copy_from_slice(&chunk.frame[bytes]);
        let op = Op::Write { file, offset, length, buffer, durable: true, access: Access::Asynchronous };
        self.executor.perform(op).await.result?;
        Ok(())
    }

    /// What is read, and what is to have it.
    pub fn sources(&self) -> &Sources {
        &self.sources
    }

    /// How many pages were written where a copy lacked them.
    pub fn repaired(&self) -> u64 {
        self.repaired
    }

    /// Waits for the first read and has it verified.
    async fn verify_first(&mut self) -> Result<()> {
        let Some((position, length, pending)) = self.in_flight.pop_front() else { return Ok(()) };
        let mut copies = [None, None];
        let (count, mut failures) = (pending.len(), Vec::new());
        for (index, pending) in pending.into_iter().enumerate() {
            let completion = loop {
                if let Some(completion) = pending.completion.borrow_mut().take() {
                    break completion;
                }
                pending.waiters.wait(&self.executor).await;
            };
            match completion.result {
                Ok(_) => {
                    let frame = completion.buffer.expect("a read gives its buffer back");
                    copies[index] = Some(Salvaged { frame, unreadable: Vec::new(), fault: None });
                }
                Err(fault) if fault.kind == FaultKind::Device => failures.push((index, completion.buffer)),
                Err(fault) => return Err(fault.into()),
            }
        }
        // Page by page where the other copy does not have it all.
        let is_bearable = self.sources.tolerant && copies.iter().any(Option::is_some);
        for (index, frame) in failures.into_iter().filter(|_| !is_bearable) {
            let file = self.sources.read[index];
            let place = (self.circle.offset(position), length);
            let frame = frame.expect("a read gives its buffer back");
            copies[index] = Some(salvage::read(&self.executor, file, place, self.page_size, frame).await?);
        }
        let (page_size, tolerant) = (self.page_size, self.sources.tolerant);
        let verified = move || match (count, copies) {
            (1, [copy, _]) => Chunk::verified(copy.expect("it was read"), position, length, page_size),
            (_, copies) => Chunk::merged(copies, (position, length, page_size), tolerant),
        };
        let instructions = (count * length) as u64 / 64 * VERIFY_INSTRUCTIONS;
        self.verified.push_back(self.executor.begin_compute(instructions, verified));
        Ok(())
    }

    fn submit(&mut self) -> Result<()> {
        let offset = self.circle.offset(self.next);
        let length = (self.read_size as u64).min(self.circle.left_from(self.next)).min(self.limit - self.next);
        let mut reads = Vec::with_capacity(self.sources.read.len());
        for file in self.sources.read.iter().copied() {
            let buffer = match self.spare.pop() {
                Some(frame) => frame,
                None => self.executor.frame(self.read_size)?,
            };
            let pending = Rc::new(Pending { completion: RefCell::new(None), waiters: WaitQueue::new() });
            reads.push(Rc::clone(&pending));
            let read = Op::Read { file, offset, length: length as u32, buffer, access: Access::Asynchronous };
            let executor = self.executor.clone();
            self.executor.submit(read, move |completion| {
                pending.completion.replace(Some(completion));
                pending.waiters.wake_all(&executor);
            });
        }
        self.in_flight.push_back((self.next, length as usize, reads));
        self.next += length;
        Ok(())
    }

    /// Gives a chunk's memory back for the next reads.
    pub fn recycle(&mut self, chunk: Chunk) {
        self.spare.push(chunk.frame);
    }
}
