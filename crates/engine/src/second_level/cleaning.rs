//! Cleaning: what only the cache has is written to its own place, pages that lie side by side by one operation.

use super::Tiers;
use super::destage::{CLEANED_AT_ONCE, Undestaged};
use super::host::{Host, SILENCE_NS};
use base::PageId;
use driver::{Fault, Frame};
use std::rc::Rc;

/// A copy that was read back from its slot.
struct ReadBack {
    slot: u32,
    page: PageId,
    bytes: Frame,
}

impl Tiers {
    /// Starts the cleaner if more pages are dirty than the design wants, unless it is at work.
    pub(super) fn clean_excess(self: &Rc<Self>) {
        let is_excess = self.dirty_max.get().is_some_and(|max| self.slots.borrow().dirty_count() > max.above as usize);
        if !is_excess || self.has_ended.get() || self.is_lost() || self.is_cleaning.replace(true) {
            return;
        }
        let this = Rc::clone(self);
        self.executor.spawn(async move {
            this.clean_down().await;
            this.is_cleaning.set(false);
        });
    }

    async fn clean_down(self: &Rc<Self>) {
        while !self.has_ended.get() {
            self.look_for_silence();
            if self.pages_being_cleaned() >= CLEANED_AT_ONCE {
                // Once their device counts as silent they are not waited for.
                self.executor.within(SILENCE_NS, self.await_fewer()).await;
                continue;
            }
            // The database may be gone: a restart does the rest.
            let (Some(host), Some(group)) = (self.host.upgrade(), self.next_group()) else { return };
            self.clean_group(host, group);
        }
    }

    /// The database ends: the cleaner begins nothing any more, and nothing enters.
    pub fn end(&self) {
        self.has_ended.set(true);
        self.is_closed.set(true);
    }

    async fn await_fewer(&self) {
        while self.pages_being_cleaned() >= CLEANED_AT_ONCE {
            self.destages_ended.wait(&self.executor).await;
        }
    }

    /// How many pages are on their way to devices that answer.
    fn pages_being_cleaned(&self) -> usize {
        let (slots, being_cleaned) = (self.slots.borrow(), self.being_cleaned.borrow());
        being_cleaned.iter().filter(|(partition, _)| !slots.is_silent(**partition)).map(|(_, pages)| pages).sum()
    }

    /// The slots that the cleaner writes next, if it is not done.
    fn next_group(&self) -> Option<Vec<u32>> {
        let slots = self.slots.borrow();
        let is_excess = self.dirty_max.get().is_some_and(|max| slots.dirty_count() > max.down_to as usize);
        if is_excess { slots.coldest_group(self.group_pages.get()) } else { None }
    }

    /// Starts to write the copies in these slots to their pages' own devices. They are dirty and idle, and their pages lie side
    /// by side.
    pub(super) fn clean_group(self: &Rc<Self>, host: Rc<dyn Host>, group: Vec<u32>) {
        for slot in &group {
            let is_first = self.slots.borrow_mut().begin_destage(*slot);
            assert!(is_first, "nothing is under way for an idle copy");
            self.failures.borrow_mut().remove(slot);
        }
        let partition = self.slots.borrow().page_of(group[0]).partition;
        *self.being_cleaned.borrow_mut().entry(partition).or_default() += group.len();
        let this = Rc::clone(self);
        self.executor.spawn(async move { this.write_group(host, group).await });
    }

    async fn write_group(self: &Rc<Self>, host: Rc<dyn Host>, group: Vec<u32>) {
        let pages: Vec<PageId> = group.iter().map(|slot| self.slots.borrow().page_of(*slot)).collect();
        let reads: Vec<_> = group
            .iter()
            .map(|&slot| {
                let (this, host) = (Rc::clone(self), Rc::clone(&host));
                self.executor.spawn(async move { this.read_back(&*host, slot).await })
            })
            .collect();
        let mut run: Vec<ReadBack> = Vec::new();
        for ((read, slot), page) in reads.into_iter().zip(group).zip(pages) {
            match read.join().await {
                Ok(bytes) => run.push(ReadBack { slot, page, bytes }),
                Err(failed) => {
                    // What cannot be read back parts those before it from those behind it.
                    self.write_run(&host, std::mem::take(&mut run)).await;
                    self.end_cleaning(&host, (slot, page), Err(failed));
                }
            }
        }
        self.write_run(&host, run).await;
    }

    /// Writes copies whose pages lie side by side.
    async fn write_run(self: &Rc<Self>, host: &Rc<dyn Host>, run: Vec<ReadBack>) {
        let unwritten = |fault| Undestaged::unwritten(fault, None);
        let page_size = run.first().map_or(0, |first| first.bytes.len());
        let together = if run.len() > 1 { self.group_copy(page_size) } else { None };
        let Some(mut bytes) = together else {
            for ReadBack { slot, page, bytes } in run {
                let completion = Rc::clone(host).write_pages(Rc::clone(self), page, bytes, page_size).await;
                host.return_copy(completion.buffer.expect("a write gives its buffer back"));
                self.end_cleaning(host, (slot, page), completion.result.map(|_| ()).map_err(unwritten));
            }
            return;
        };
        let (first, length) = (run[0].page, run.len() * page_size);
        let mut slots = Vec::new();
        for (copy, place) in run.into_iter().zip(bytes.chunks_mut(page_size)) {
            place.copy_from_slice(&copy.bytes);
            host.return_copy(copy.bytes);
            slots.push((copy.slot, copy.page));
        }
        let completion = Rc::clone(host).write_pages(Rc::clone(self), first, bytes, length).await;
        self.group_copies.borrow_mut().push(completion.buffer.expect("a write gives its buffer back"));
        let result: Result<(), Fault> = completion.result.map(|_| ());
        for slot in slots {
            self.end_cleaning(host, slot, result.clone().map_err(unwritten));
        }
    }

    /// Memory for the copies of a group; without any its pages are written one by one.
    fn group_copy(&self, page_size: usize) -> Option<Frame> {
        let spare = self.group_copies.borrow_mut().pop();
        let size = page_size * self.group_pages.get().max(CLEANED_AT_ONCE as u32) as usize;
        spare.or_else(|| self.executor.frame(size).ok())
    }

    fn end_cleaning(self: &Rc<Self>, host: &Rc<dyn Host>, (slot, page): (u32, PageId), result: Result<(), Undestaged>) {
        let mut being_cleaned = self.being_cleaned.borrow_mut();
        let of_partition = being_cleaned.get_mut(&page.partition).expect("its cleaning began");
        *of_partition -= 1;
        if *of_partition == 0 {
            being_cleaned.remove(&page.partition);
        }
        drop(being_cleaned);
        self.end_destage(&**host, slot, result.map(|()| None));
    }
}
