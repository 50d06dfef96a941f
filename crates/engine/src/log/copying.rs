//! Copying the log's pages while it goes on, for backups.

use super::duplex::Duplex;
use super::page::{self, HEADER_SIZE};
use super::{Log, WriteBuffer};
use crate::{Error, Result};
use base::Lsn;
use driver::{Access, Fault, FileId, Frame, Op, Work};

/// About what it costs on described hardware to verify 64 bytes, in instructions.
const VERIFY_INSTRUCTIONS: u64 = 40;

impl Log {
    /// Before this each of the log's own devices that is not lost has whole pages, which are never written again before their
    /// space is given up. The front of a page.
    pub(crate) fn copyable(&self) -> Lsn {
        let buffered = self.write_buffer.get().and_then(WriteBuffer::oldest).unwrap_or(u64::MAX);
        let position = self.complete.get().0.min(buffered);
        Lsn(position - position % self.settings.page_size as u64)
    }

    /// The end of the page in which a record ends at `lsn`.
    pub(crate) fn page_end(&self, lsn: Lsn) -> Lsn {
        Lsn(lsn.0.next_multiple_of(self.settings.page_size as u64))
    }

    /// Waits until [`Log::copyable`] is beyond `lsn`.
    ///
    /// # Errors
    /// [`Error::LogFailed`].
    pub(crate) async fn make_copyable(&self, lsn: Lsn) -> Result<()> {
        self.flush(lsn).await?;
        self.complete_before(lsn).await;
        self.drain_before(lsn).await
    }

    /// Reads pages from `from`, the front of one, up to `to` or as many as `buffer` holds, and verifies them. Returns how many
    /// bytes they are. Of two devices one serves for the other, whether that has damaged pages, fails or does not answer.
    ///
    /// # Errors
    /// The driver's, also of a device that does not answer; [`Error::LogFailed`]; [`Error::DamagedLog`] if all that there is was read.
    pub(crate) async fn read_pages(&self, (from, to): (Lsn, Lsn), buffer: Frame) -> Result<(Frame, usize)> {
        let page_size = self.settings.page_size;
        let to_end = self.circle.left_from(from.0);
        let length = (to.0 - from.0).min(to_end).min((buffer.len() / page_size * page_size) as u64) as usize;
        let (size, mut spare, mut damaged) = (buffer.len(), Some(buffer), from);
        let (mut silent, mut unread) = (None, None);
        for (index, file) in self.copies() {
            let own = spare.take().map_or_else(|| self.executor.frame(size), Ok)?;
            match self.read_copy((index, file), (from, length), own).await? {
                CopyRead::Sound(frame) => {
                    // Not before: the silent one might be the only one that has these pages. Nor when the other is lost: a read
                    // is no reason to go on with none.
                    silent.filter(|_| self.lost_device().is_none()).inspect(|silent| self.side_is_silent(*silent));
                    return Ok((frame, length));
                }
                CopyRead::Damaged(frame, lsn) => (spare, damaged) = (Some(frame), lsn),
                CopyRead::Unread(frame, fault) => (spare, unread) = (Some(frame), Some(fault)),
                CopyRead::Unanswered => silent = Some(index),
            }
        }
        if silent.is_some() {
            return Err(self.failure().unwrap_or_else(|| self.silence_of("a device of the log").into()));
        }
        // What could not be read may be sound.
        unread.map_or(Ok(()), Err)?;
        let (file, detail) = (self.settings.file.clone(), "a page that was durable is not there".to_owned());
        Err(Error::DamagedLog { lsn: damaged, file, detail })
    }

    /// The files that have everything before [`Log::copyable`], and of which of two devices each is.
    fn copies(&self) -> Vec<(usize, FileId)> {
        self.duplex.as_ref().map_or_else(|| vec![(0, self.file)], Duplex::files)
    }

    /// Reads one copy and verifies it.
    async fn read_copy(
        &self,
        (index, file): (usize, FileId),
        (from, length): (Lsn, usize),
        buffer: Frame,
    ) -> Result<CopyRead> {
        let (offset, page_size) = (self.circle.offset(from.0), self.settings.page_size);
        self.executor.charge(Work::InputOutput);
        self.executor.pay_debt().await;
        let op = Op::Read { file, offset, length: length as u32, buffer, access: Access::Asynchronous };
        let Some(completion) = self.read_side(index, op).await else { return Ok(CopyRead::Unanswered) };
        let frame = completion.buffer.expect("a read gives its buffer back");
        if let Err(fault) = completion.result {
            return Ok(CopyRead::Unread(frame, fault));
        }
        let verify = move || match first_damaged(&frame[..length], from, page_size) {
            None => CopyRead::Sound(frame),
            Some(lsn) => CopyRead::Damaged(frame, lsn),
        };
        Ok(self.executor.compute(length as u64 / 64 * VERIFY_INSTRUCTIONS, verify).await?)
    }
}

/// What a read of one of the log's devices has brought.
enum CopyRead {
    Sound(Frame),
    /// Not what should be there, from this position on.
    Damaged(Frame, Lsn),
    Unread(Frame, Fault),
    /// The read was given up; its memory does not come back.
    Unanswered,
}

/// The position of the first of these pages that is not the one at its position.
pub(crate) fn first_damaged(pages: &[u8], from: Lsn, page_size: usize) -> Option<Lsn> {
    let positions = (from.0..).step_by(page_size);
    let mut pages = pages.chunks_exact(page_size).zip(positions);
    pages.find(|(page, position)| page::verify(page, *position).is_err()).map(|(_, position)| Lsn(position))
}

/// Ends the log with the record that ends at `end` in this page, or with the page: what follows it there is taken out.
pub(crate) fn cut_page(page: &mut [u8], position: u64, end: Lsn) {
    let used = (end.0 - position) as usize;
    debug_assert!((HEADER_SIZE..=page.len()).contains(&used), "the record ends in this page");
    page::cut(page, used);
}
