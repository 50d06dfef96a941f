//! Writing dirty pages back: copy, make the log durable, stage against tearing, write in place.

use super::Buffer;
use crate::canary::{self, Canary};
use crate::page::header;
use crate::{Error, Result};
use base::{Lsn, PageId};
use driver::{Frame, Op};
use executor::WaitQueue;
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// A page copy on its way to the medium.
struct Copy {
    frame: u32,
    page: PageId,
    bytes: Frame,
}

/// What the writes of one batch share.
struct Batch {
    left: Cell<usize>,
    error: RefCell<Option<Error>>,
    finished: WaitQueue,
}

impl Buffer {
    /// Writes these frames' pages back; frames that are clean or being written are left out. Goes on to the end even if the
    /// caller is abandoned.
    ///
    /// # Errors
    /// The first error; pages that were not written stay dirty.
    pub async fn write_back(self: &Rc<Self>, frames: Vec<u32>) -> Result<()> {
        let copies = self.copy_out(&frames)?;
        if copies.is_empty() {
            // Somebody else writes these pages; that their write ends is what the caller waits for.
            if frames.iter().any(|frame| self.pool.borrow().is_writing(*frame)) {
                self.freed.wait(&self.executor).await;
            }
            return Ok(());
        }
        self.in_flight.set(self.in_flight.get() + copies.len());
        let this = Rc::clone(self);
        self.executor.spawn(async move { this.write_copies(copies).await }).join().await
    }

    fn copy_out(&self, frames: &[u32]) -> Result<Vec<Copy>> {
        let mut pool = self.pool.borrow_mut();
        let mut copies = Vec::with_capacity(frames.len());
        for &frame in frames {
            if !pool.is_dirty(frame) || pool.is_writing(frame) {
                continue;
            }
            let spare = self.copies.borrow_mut().pop();
            let mut bytes = match spare {
                Some(bytes) => bytes,
                None => self.more_copies()?,
            };
            let page = pool.begin_write(frame, &mut bytes);
            copies.push(Copy { frame, page, bytes });
        }
        Ok(copies)
    }

    fn more_copies(&self) -> Result<Frame> {
        let mut frames = self.executor.frames(16, self.settings.page_size)?;
        let first = frames.pop().expect("sixteen were asked for");
        self.copies.borrow_mut().append(&mut frames);
        Ok(first)
    }

    async fn write_copies(self: Rc<Self>, copies: Vec<Copy>) -> Result<()> {
        let lsn = copies.iter().map(|copy| header::lsn(&copy.bytes)).max().unwrap_or(Lsn::ZERO);
        if let Some(log) = self.log.get()
            && let Err(error) = log.flush(lsn).await
        {
            return self.give_up(copies, error);
        }
        let tearable = !canary::is_planted(Canary::NoDoubleWrite)
            && copies.iter().any(|copy| self.file(copy.page.partition).may_tear());
        let region = match &self.double_write {
            Some(area) if tearable => {
                let pages = copies.iter().map(|copy| &copy.bytes[..]);
                match area.stage(&self, pages).await {
                    Ok(region) => Some(region),
                    Err(error) => return self.give_up(copies, error),
                }
            }
            _ => None,
        };
        let result = self.write_in_place(copies).await;
        if let (Some(area), Some(region)) = (&self.double_write, region) {
            area.finish(&self.executor, region, &result);
        }
        result
    }

    fn give_up(&self, copies: Vec<Copy>, error: Error) -> Result<()> {
        for copy in copies {
            self.end_write(copy.frame, copy.bytes, false);
        }
        Err(error)
    }

    async fn write_in_place(self: &Rc<Self>, copies: Vec<Copy>) -> Result<()> {
        let batch =
            Rc::new(Batch { left: Cell::new(copies.len()), error: RefCell::new(None), finished: WaitQueue::new() });
        for copy in copies {
            let file = self.file(copy.page.partition);
            let access = file.access(&self.executor).await;
            file.note_write(copy.page);
            let (offset, length) = (file.offset(copy.page), self.settings.page_size as u32);
            let op = Op::Write { file: file.file, offset, length, buffer: copy.bytes, durable: false, access };
            let (this, batch) = (Rc::clone(self), Rc::clone(&batch));
            self.executor.submit(op, move |completion| {
                let bytes = completion.buffer.expect("a write gives its buffer back");
                file.note_written();
                this.end_write(copy.frame, bytes, completion.result.is_ok());
                if let Err(fault) = completion.result {
                    batch.error.borrow_mut().get_or_insert(Error::Input(fault));
                }
                batch.left.set(batch.left.get() - 1);
                batch.finished.wake_all(&this.executor);
            });
        }
        while batch.left.get() > 0 {
            batch.finished.wait(&self.executor).await;
        }
        batch.error.take().map_or(Ok(()), Err)
    }

    fn end_write(&self, frame: u32, bytes: Frame, written: bool) {
        self.copies.borrow_mut().push(bytes);
        self.pool.borrow_mut().end_write(frame, written);
        self.in_flight.set(self.in_flight.get() - 1);
        self.freed.wake_all(&self.executor);
    }

    /// Writes every page back whose changes begin before `lsn`, in the order of the files.
    ///
    /// # Errors
    /// The first error.
    pub async fn write_back_before(self: &Rc<Self>, lsn: Lsn) -> Result<()> {
        let old = self.pool.borrow().dirty_before(lsn);
        for frames in old.chunks(self.batch_size()) {
            self.write_back(frames.to_vec()).await?;
        }
        while self.pool.borrow().recovery_lsn().is_some_and(|oldest| oldest < lsn) {
            let old = self.pool.borrow().dirty_before(lsn);
            if old.is_empty() {
                // The last of them are being written by others.
                self.freed.wait(&self.executor).await;
            } else {
                self.write_back(old.into_iter().take(self.batch_size()).collect()).await?;
            }
        }
        Ok(())
    }

    /// Writes these pages back as they are now (FORCE): all that can be at once, then those of which an older copy was being
    /// written.
    ///
    /// # Errors
    /// The first error.
    pub async fn force(self: &Rc<Self>, pages: &[PageId]) -> Result<()> {
        let resident = |page: &PageId| self.pool.borrow().frame_of(*page);
        let (older, ready): (Vec<u32>, Vec<u32>) =
            pages.iter().filter_map(resident).partition(|frame| self.pool.borrow().is_writing(*frame));
        self.write_back(ready).await?;
        for frame in older {
            while self.pool.borrow().is_writing(frame) {
                self.freed.wait(&self.executor).await;
            }
            self.write_back(vec![frame]).await?;
        }
        Ok(())
    }

    /// How many pages are written together.
    pub fn batch_size(&self) -> usize {
        self.double_write.as_ref().map_or(32, |area| area.pages_per_region())
    }

    /// Makes everything durable that was written before this call.
    ///
    /// # Errors
    /// The driver's. After it the buffer reads nothing any more: pages that left it may be older on the medium than they
    /// were.
    pub async fn sync(&self) -> Result<()> {
        if let Some(error) = &*self.broken.borrow() {
            // The next sync might succeed although writes of before were dropped.
            return Err(error.clone());
        }
        for file in self.files() {
            if let Err(error) = file.sync(&self.executor).await {
                self.broken.borrow_mut().get_or_insert(error.clone());
                return Err(error);
            }
        }
        Ok(())
    }
}
