//! The files as they are on their devices, read from front to back.

use super::Examiner;
use crate::Result;
use crate::buffer::Buffer;
use crate::page_store::Transfer;
use base::PartitionId;
use driver::{Access, Frame};
use structures::organization::append;
use structures::page::{PageKind, header, slotted};

/// Bytes of one read.
const READ_SIZE: usize = 1 << 20;

/// How many pages of the partition's file may have been written.
pub fn page_count(buffer: &Buffer, partition: PartitionId) -> u32 {
    let space = buffer.space(partition);
    space.capacity().min(space.written())
}

impl Examiner<'_> {
    /// Verifies every page of the file. Of the partition's `count` pages those that hold records are of `kind`.
    pub(super) async fn check_medium(&mut self, count: u32, kind: PageKind, progress: &mut dyn FnMut(u64)) {
        let page_size = self.engine.core.page_size();
        let end = page_count(&self.engine.core.buffer, self.partition.id());
        let step = (READ_SIZE / page_size).min(end as usize).max(1);
        let capacity = self.engine.core.buffer.space(self.partition.id()).capacity();
        if count > capacity {
            self.report(capacity, format!("the file was cut off: it ends here, of {count} pages"));
        }
        let mut frame = None;
        for first in (0..end).step_by(step) {
            let pages = (end - first).min(step as u32);
            frame = self.read(first, pages as usize * page_size, step * page_size, frame).await.ok();
            match &frame {
                Some(frame) => {
                    let mut suspects = Vec::new();
                    for number in first..first + pages {
                        let start = (number - first) as usize * page_size;
                        let wrong = self.check_stored(number, &frame[start..start + page_size], count, kind);
                        suspects.extend((!wrong.is_empty()).then_some(number));
                    }
                    // A page that was being written while it was read is one version or the other by now.
                    for number in suspects {
                        self.check_singly(number..number + 1, page_size, count, kind).await;
                    }
                }
                None => self.check_singly(first..first + pages, page_size, count, kind).await,
            }
            self.report.pages += u64::from(pages);
            progress(self.report.pages);
        }
    }

    /// A piece of the file that cannot be read as a whole: page by page.
    async fn check_singly(&mut self, numbers: std::ops::Range<u32>, page_size: usize, count: u32, kind: PageKind) {
        for number in numbers {
            match self.read(number, page_size, page_size, None).await {
                Ok(frame) => {
                    let wrong = self.check_stored(number, &frame[..page_size], count, kind);
                    wrong.into_iter().for_each(|what| self.report(number, what));
                }
                Err(error) => self.report(number, format!("the device cannot read it: {error}")),
            }
        }
    }

    /// Reads a piece of the file into `frame`, or a new one of `size` bytes.
    async fn read(&self, first: u32, length: usize, size: usize, frame: Option<Frame>) -> Result<Frame> {
        let executor = &self.engine.core.executor;
        let space = self.engine.core.buffer.space(self.partition.id());
        let buffer = match frame {
            Some(frame) => frame,
            None => executor.frame(size)?,
        };
        let transfer = Transfer { first: self.id(first), buffer, length, access: Access::Asynchronous };
        let completion = space.store().read_now(executor, transfer).await;
        completion.result?;
        Ok(completion.buffer.expect("a read gives its buffer back"))
    }

    /// What is wrong with a page as its file has it.
    fn check_stored(&self, number: u32, page: &[u8], count: u32, kind: PageKind) -> Vec<String> {
        // A load that was cut off leaves pages behind that count for nothing, and may be torn. One that is about to be replaced may be
        // half so at this moment.
        if number >= count || self.is_dirty(number) {
            return Vec::new();
        }
        match header::verify(page, self.id(number)) {
            // A file may have another name than its partition, which was renamed or truncated.
            Err(what) => vec![format!("{what} (file '{}')", self.partition.file_name())],
            Ok(true) => check_kind(number, page, kind),
            // Objects that never changed are nowhere; every other page is written before it is used.
            Ok(false) if kind == PageKind::Direct => Vec::new(),
            Ok(false) => vec!["it is in use and was never written".to_owned()],
        }
    }
}

fn check_kind(number: u32, page: &[u8], kind: PageKind) -> Vec<String> {
    let found = header::kind(page);
    match kind {
        PageKind::Direct if found != Some(PageKind::Direct) => vec!["it holds no objects".to_owned()],
        PageKind::Append if number > 0 && found != Some(PageKind::Append) => {
            vec!["it holds no appended records".to_owned()]
        }
        PageKind::Append if number > 0 => check_appended(page),
        // What the pages of a tree are shows when it is followed.
        _ => Vec::new(),
    }
}

fn check_appended(page: &[u8]) -> Vec<String> {
    let mut wrong = slotted::inspect(page);
    if wrong.is_empty() {
        let odd = |slot: &u16| {
            let mark = slotted::value(page, *slot).first();
            mark != Some(&append::LIVE) && mark != Some(&append::ERASED)
        };
        let found = (0..slotted::count(page)).find(odd);
        wrong.extend(found.map(|slot| format!("the record of slot {slot} is neither live nor erased")));
    }
    wrong
}
