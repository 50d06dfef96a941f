//! What the upper cache writes changed pages to: the tiers below it, which take a page as one that leaves main memory, or else the
//! pages' own places.
//!
//! * The log has had what a page says since before it entered the upper cache. Until what is below has the page, it is pending there:
//!   it is read from nowhere else, no other write of it overtakes this one, and the log is kept for it.
//! * An older version in a tier is replaced by this one, or makes way before the page is written past the tier. Where redo begins of
//!   an older one that only the tier had, redo of this one begins.
//! * The upper cache is empty behind a power cut. So no slot of it has the whole copy of a page that is torn in its own place: what
//!   may be torn there is staged, as what main memory writes.

use super::Buffer;
use crate::second_level::design::{Leaving, Pattern, Reason};
use crate::second_level::{DirtyWrite, Host as _, Tiers};
use crate::{Error, Result};
use base::PageId;
use driver::{Completion, Frame, Output, Token};
use std::rc::Rc;
use structures::canary::{self, Canary};

impl Buffer {
    /// Writes pages that lie side by side, which the upper cache has alone, to what is below that, from the first `length` bytes of a
    /// frame.
    pub(super) async fn write_below(
        self: Rc<Self>,
        upper: Rc<Tiers>,
        first: PageId,
        (bytes, length): (Frame, usize),
    ) -> Completion {
        let Some(tiers) = self.tiers() else { return self.write_staged(first, (bytes, length)).await };
        let page_size = self.settings.page_size;
        // All memory first: once this has ended, nothing may be under way.
        let copies: Result<Vec<Frame>> = (0..length / page_size).map(|_| self.copy_buffer(1)).collect();
        let copies = match copies {
            Ok(copies) => copies,
            Err(error) => return ended(bytes, Err(error)),
        };
        let mut begun = Vec::new();
        for ((number, page), mut copy) in (first.number..).zip(bytes[..length].chunks(page_size)).zip(copies) {
            copy.copy_from_slice(page);
            let (this, levels) = (Rc::clone(&self), [Rc::clone(&upper), Rc::clone(&tiers)]);
            let id = PageId { number, ..first };
            begun.push(self.executor.spawn(async move { this.hand_down(levels, id, copy).await }));
        }
        let (mut declined, mut result) = (Vec::new(), Ok(()));
        for (number, page) in (first.number..).zip(begun) {
            match page.join().await {
                Ok(copy) => declined.extend(copy.map(|copy| (PageId { number, ..first }, copy))),
                Err(error) => result = result.and(Err(error)),
            }
        }
        if result.is_ok() && declined.len() * page_size == length {
            declined.into_iter().for_each(|(_, copy)| self.return_copy(copy));
            return self.write_staged(first, (bytes, length)).await;
        }
        for (page, copy) in declined {
            let completion = self.write_staged(page, (copy, page_size)).await;
            self.return_copy(completion.buffer.expect("a write gives its buffer back"));
            result = result.and(completion.result.map(drop).map_err(Error::Input));
        }
        ended(bytes, result)
    }

    /// Gives one page to the tiers below the upper cache. If they do not take it, its copy comes back, and no older version of it is in
    /// them any more.
    async fn hand_down(
        self: Rc<Self>,
        [upper, tiers]: [Rc<Tiers>; 2],
        page: PageId,
        copy: Frame,
    ) -> Result<Option<Frame>> {
        let (reason, pattern) = (Reason::Replacement, Pattern::Random);
        let leaving = Leaving { page, dirty: true, modified: true, reason, pattern };
        let admission = self.space(page.partition).admission();
        let copy = match tiers.write_dirty(&leaving, admission, copy).await {
            DirtyWrite::Entered(entry) => {
                tiers.enter_dirty(entry, upper.redo_start_of(page), true);
                return Ok(None);
            }
            DirtyWrite::Declined(copy) => copy,
        };
        if canary::is_planted(Canary::StaleBelow) {
            return Ok(Some(copy));
        }
        match tiers.make_way(page).await {
            Ok(older) => {
                older.into_iter().for_each(|lsn| upper.extend_redo(page, lsn));
                Ok(Some(copy))
            }
            Err(error) => {
                self.return_copy(copy);
                Err(error)
            }
        }
    }

    /// Writes pages that lie side by side to their own places, as many by one operation as are staged together.
    async fn write_staged(self: &Rc<Self>, first: PageId, (mut bytes, length): (Frame, usize)) -> Completion {
        let page_size = self.settings.page_size;
        let is_staged = self.is_staged(first.partition) && !canary::is_planted(Canary::NoDoubleWrite);
        let area = self.double_write.as_ref().filter(|_| is_staged);
        // A device that writes one page atomically promises nothing of a longer write.
        let at_once = area.map_or(1, |_| self.settings.batch) * page_size;
        let (mut page, mut left) = (first, length);
        while left > 0 {
            let part = left.min(at_once);
            let region = match area {
                None => None,
                Some(area) => {
                    if let Err(error) = area.check_room(pages(page, part / page_size)) {
                        return ended(bytes, Err(error));
                    }
                    self.await_devices(&[first.partition]).await;
                    match area.stage(self, part / page_size, bytes[..part].chunks(page_size)).await {
                        Ok(region) => Some((area, region)),
                        Err(error) => return ended(bytes, Err(error)),
                    }
                }
            };
            let completion = self.write_home(page, (bytes, part), area.is_some()).await;
            bytes = completion.buffer.expect("a write gives its buffer back");
            let result = completion.result.map(drop).map_err(Error::Input);
            if let Some((area, region)) = region {
                if result.is_err() {
                    pages(page, part / page_size).for_each(|page| area.fail(region, page));
                }
                area.finish(self, region, &result);
            }
            if result.is_err() {
                return ended(bytes, result);
            }
            left -= part;
            page.number += (part / page_size) as u32;
            bytes.copy_within(part..part + left, 0);
        }
        ended(bytes, Ok(()))
    }

    /// Writes pages that lie side by side to their own places by one operation. Unless they are staged they are durable there once this has
    /// succeeded, if they could be torn.
    pub(super) async fn write_home(&self, first: PageId, bytes: (Frame, usize), is_staged: bool) -> Completion {
        self.silence.begin(first.partition, self.executor.now());
        let (space, count) = (self.space(first.partition), bytes.1 / self.settings.page_size);
        let completion = space.write_pages(&self.executor, first, bytes, is_staged).await;
        self.silence.end(first.partition, self.executor.now());
        if let Some(area) = self.double_write.as_ref().filter(|_| !is_staged && completion.result.is_ok()) {
            area.release(&self.executor, pages(first, count));
        }
        completion
    }
}

/// These pages, which lie side by side.
pub(super) fn pages(first: PageId, count: usize) -> impl Iterator<Item = PageId> {
    (first.number..).take(count).map(move |number| PageId { number, ..first })
}

/// The end of a write from this memory.
fn ended(bytes: Frame, result: Result<()>) -> Completion {
    Completion {
        token: Token(0),
        result: result.map(|()| Output::Done).map_err(Error::into_fault),
        buffer: Some(bytes),
    }
}
