//! Writing copies from slots to their pages' own places.

use super::Tiers;
use super::host::{FAILURES_NS_MAX, Host, SILENCE_NS};
use super::slots::{DestageEnd, DirtyWanted, PendingDestage, Tier};
use crate::statistics::add;
use crate::{Error, Result};
use base::{Lsn, PageId, PartitionId};
use driver::{Fault, Frame, Op};
use std::collections::BTreeSet;
use std::rc::Rc;
use structures::canary::{self, Canary};
use structures::page::header;

/// How many copies that only the cache has are read back and written at once when a checkpoint, or the cleaner, needs them on
/// their own devices.
pub(super) const CLEANED_AT_ONCE: usize = 32;

/// Why a copy did not come to its page's own place.
pub(super) struct Undestaged {
    pub(super) error: Error,
    /// The copy, if memory holds it.
    pub(super) copy: Option<Frame>,
    /// How far it came.
    end: DestageEnd,
}

/// Partitions of which pages have failed, and for how long these were waited for.
#[derive(Default)]
struct FailingPartitions {
    partitions: BTreeSet<PartitionId>,
    ns: u64,
}

impl FailingPartitions {
    fn note(&mut self, partition: PartitionId, ns: u64) {
        self.partitions.insert(partition);
        self.ns += ns;
    }

    /// Whether no more of a partition's pages are tried.
    fn are_left(&self, partition: PartitionId) -> bool {
        self.ns >= FAILURES_NS_MAX && self.partitions.contains(&partition)
    }
}

impl Undestaged {
    /// Its slot could not be read.
    fn unreadable(error: Error) -> Undestaged {
        Undestaged { error, copy: None, end: DestageEnd::Unreadable }
    }

    /// There was no memory to read it into.
    fn without_memory(error: Error) -> Undestaged {
        Undestaged { error, copy: None, end: DestageEnd::NotBegun }
    }

    /// The write to its own place failed.
    pub(super) fn unwritten(fault: Fault, copy: Option<Frame>) -> Undestaged {
        Undestaged { error: Error::Input(fault), copy, end: DestageEnd::Failed }
    }
}

impl Tiers {
    /// Starts to write a slot's copy to its page's own device, and what is to follow it there.
    pub(super) fn start_destage(self: &Rc<Self>, slot: u32) {
        let (this, host, copy) = (Rc::clone(self), self.host(), self.take_copy(slot));
        self.failures.borrow_mut().remove(&slot);
        if canary::is_planted(Canary::EarlyReuse) {
            // The slot counts as written back while its write is still under way.
            self.end_destage(&*host, slot, Ok(None));
        }
        self.executor.spawn(async move {
            let result = this.destage(&host, slot, copy).await;
            match result {
                Ok(copy) if canary::is_planted(Canary::EarlyReuse) => host.return_copy(copy),
                Ok(copy) => this.end_destage(&*host, slot, Ok(Some(copy))),
                Err(failed) => this.end_destage(&*host, slot, Err(failed)),
            }
        });
    }

    /// Writes the copy, which is read back if memory holds none. Returns the memory.
    async fn destage(
        self: &Rc<Self>,
        host: &Rc<dyn Host>,
        slot: u32,
        copy: Option<Frame>,
    ) -> std::result::Result<Frame, Undestaged> {
        let was_kept = copy.is_some();
        let bytes = match copy {
            Some(bytes) => bytes,
            None => self.read_back(&**host, slot).await?,
        };
        let page = header::id(&bytes);
        let length = bytes.len();
        let completion = Rc::clone(host).write_pages(Rc::clone(self), page, bytes, length).await;
        let bytes = completion.buffer.expect("a write gives its buffer back");
        match completion.result {
            Ok(_) => Ok(bytes),
            Err(fault) if was_kept => Err(Undestaged::unwritten(fault, Some(bytes))),
            Err(fault) => {
                host.return_copy(bytes);
                Err(Undestaged::unwritten(fault, None))
            }
        }
    }

    /// Reads a copy that only its slot has; once more if that fails, for what cannot be read is given up.
    pub(super) async fn read_back(
        self: &Rc<Self>,
        host: &dyn Host,
        slot: u32,
    ) -> std::result::Result<Frame, Undestaged> {
        match self.read_back_once(host, slot).await {
            Err(Undestaged { end: DestageEnd::Unreadable, .. }) if !self.is_lost() => {
                self.read_back_once(host, slot).await
            }
            read => read,
        }
    }

    async fn read_back_once(self: &Rc<Self>, host: &dyn Host, slot: u32) -> std::result::Result<Frame, Undestaged> {
        let ((tier, number), page) = {
            let slots = self.slots.borrow();
            (slots.place(slot), slots.page_of(slot))
        };
        let file = self.file(tier);
        let access = file.access(&self.executor).await;
        let buffer = host.copy_buffer().map_err(Undestaged::without_memory)?;
        let (offset, length) = (file.offset(number), buffer.len() as u32);
        let (op, executor) = (Op::Read { file: file.file, offset, length, buffer, access }, self.executor.clone());
        let read = async move { executor.perform(op).await };
        file.begin();
        let completion = if tier == Tier::Cache { self.answered(read).await } else { Ok(read.await) };
        file.end();
        let completion = completion.map_err(Undestaged::unreadable)?;
        if tier == Tier::Cache {
            self.note_result(&completion, Some(slot));
        }
        let bytes = completion.buffer.expect("a read gives its buffer back");
        let result = match completion.result {
            Ok(_) => match header::verify(&bytes, page) {
                Ok(true) if Tiers::is_version(&self.slots.borrow(), slot, &bytes) => {
                    self.slots.borrow_mut().note_verified(slot);
                    return Ok(bytes);
                }
                Ok(true) => Err(format!("it holds change {} of it", header::sequence(&bytes))),
                Ok(false) => Err("it is blank".to_owned()),
                Err(detail) => Err(detail),
            },
            Err(fault) => Err(fault.to_string()),
        };
        host.return_copy(bytes);
        add(&file.statistics.damaged, 1);
        result.map_err(|detail| {
            let detail = format!(
                "only slot {number} has its latest changes, and {detail}; a restart makes them again from the log"
            );
            Undestaged::unreadable(Error::DamagedPage { page, file: file.kind.file_name().to_owned(), detail })
        })
    }

    pub(super) fn end_destage(
        self: &Rc<Self>,
        host: &dyn Host,
        slot: u32,
        result: std::result::Result<Option<Frame>, Undestaged>,
    ) {
        let (end, error, copy) = match result {
            Ok(copy) => (DestageEnd::Written, None, copy),
            Err(Undestaged { error, copy, end }) => (end, Some(error), copy),
        };
        if end == DestageEnd::Unreadable {
            self.note_read_in_vain(slot);
        }
        let next = self.slots.borrow_mut().destaged(slot, end);
        let is_given_up = error.is_some() && {
            let mut slots = self.slots.borrow_mut();
            let page = slots.page_of(slot);
            slots.is_unverified(slot) && slots.drop_unverified(page)
        };
        match error {
            _ if is_given_up => copy.into_iter().for_each(|copy| host.return_copy(copy)),
            // A newer one may have taken its place meanwhile: then it is needed no more.
            Some(error) if self.slots.borrow().is_pending(slot) => {
                self.failures.borrow_mut().insert(slot, error);
                self.copies.borrow_mut().extend(copy.map(|copy| (slot, copy)));
                let page = self.slots.borrow().page_of(slot);
                if end == DestageEnd::Unreadable {
                    host.write_anew(page, self.redo_start_of(page));
                }
            }
            _ => copy.into_iter().for_each(|copy| host.return_copy(copy)),
        }
        if self.is_lost() {
            self.slots.borrow_mut().vacate(slot);
        }
        if let Some(next) = next {
            self.start_destage(next);
        }
        self.destages_ended.wake_all(&self.executor);
        // A newer copy that had to wait for this one may be cleaned now.
        self.clean_excess();
        host.destage_ended();
    }

    /// A slot could not be read, or has not what was written there. Of what only the table of an earlier opening says that is no wonder.
    pub(super) fn note_read_in_vain(&self, slot: u32) {
        let mut slots = self.slots.borrow_mut();
        if !slots.is_unverified(slot) {
            slots.note_read_in_vain(slot);
        }
    }

    /// Waits until the page's own device has its newest copy. One that failed before is tried once more.
    ///
    /// # Errors
    /// The driver's; [`Error::DamagedPage`] for a copy that only its slot has and that cannot be read back.
    pub async fn await_destage(self: &Rc<Self>, page: PageId) -> Result<()> {
        let mut is_retried = false;
        loop {
            let pending_destage = self.slots.borrow().pending_destage(page);
            match pending_destage {
                None => return Ok(()),
                Some((slot, PendingDestage::Dirty)) => self.clean(slot),
                Some((slot, PendingDestage::Failed | PendingDestage::Unreadable)) if !is_retried => {
                    is_retried = true;
                    self.clean(slot);
                }
                Some((slot, PendingDestage::Failed | PendingDestage::Unreadable)) => {
                    let failures = self.failures.borrow();
                    return Err(failures.get(&slot).expect("what failed did so for some reason").clone());
                }
                Some((_, PendingDestage::UnderWay)) => self.destages_ended.wait(&self.executor).await,
            }
        }
    }

    /// The same for as long as the device may be expected to answer. False if it does not.
    ///
    /// # Errors
    /// As [`Tiers::await_destage`].
    pub(super) async fn await_answer(self: &Rc<Self>, page: PageId) -> Result<bool> {
        self.look_for_silence();
        if self.slots.borrow().is_silent(page.partition) {
            return Ok(false);
        }
        let destaged = self.executor.within(SILENCE_NS, self.await_destage(page)).await;
        destaged.transpose().map(|destaged| destaged.is_some())
    }

    /// Learns which devices do not answer. The cleaner goes on with what waited for one that answers again.
    pub(super) fn look_for_silence(self: &Rc<Self>) {
        let Some(host) = self.host_if_there() else { return };
        let are_others = self.slots.borrow_mut().set_silent(host.silent());
        if are_others {
            self.clean_excess();
        }
    }

    /// Has a copy that is dirty, or could not be written before, written to its page's own device.
    fn clean(self: &Rc<Self>, slot: u32) {
        let is_first = self.slots.borrow_mut().begin_destage(slot);
        if is_first {
            self.start_destage(slot);
        }
    }

    /// Waits until every page's own device has its changes from before `lsn`, and all that the cache alone has if this `cleans`
    /// and the design wants it at checkpoints. Otherwise dirty pages stay as they are, but for the old ones while the log `is_scarce`.
    ///
    /// # Errors
    /// As [`Tiers::await_destage`].
    pub async fn drain_before(self: &Rc<Self>, lsn: Lsn, cleans: bool, is_scarce: bool) -> Result<()> {
        // No design counts as persistent on a cache that begins empty at each opening.
        let dirty = match cleans && (self.is_upper() || self.policy.borrow().cleans_at_checkpoint()) {
            true => DirtyWanted::All,
            false if is_scarce => DirtyWanted::Old,
            false => DirtyWanted::None,
        };
        let pending = self.slots.borrow().pending_before(lsn, dirty);
        self.drain_pages(pending).await
    }

    /// Waits until the pages' own devices have them, pages that lie side by side together. A page that does not come there keeps no
    /// other one from it, unless its write below the upper cache has failed: then no more are begun, for each keeps room in the
    /// double-write area. Where failures go on for long, no more pages of their partitions are tried.
    ///
    /// # Errors
    /// The first of [`Tiers::await_destage`].
    pub(super) async fn drain_pages(self: &Rc<Self>, mut pages: Vec<PageId>) -> Result<()> {
        pages.sort_unstable();
        let group_pages = self.group_pages.get();
        let (mut result, mut failing) = (Ok(()), FailingPartitions::default());
        for pages in pages.chunks(CLEANED_AT_ONCE.max(group_pages as usize)) {
            let pages: Vec<PageId> = pages.iter().copied().filter(|page| !failing.are_left(page.partition)).collect();
            let groups = self.slots.borrow().groups(&pages, group_pages);
            groups.into_iter().for_each(|group| self.clean_group(self.host(), group));
            for page in &pages {
                if failing.are_left(page.partition) {
                    continue;
                }
                let began = self.executor.now();
                let destaged = self.await_destage(*page).await;
                if destaged.is_err() {
                    failing.note(page.partition, self.executor.now().since_ns(began));
                }
                result = result.and(destaged);
            }
            let has_failed =
                |page: &PageId| matches!(self.slots.borrow().pending_destage(*page), Some((_, PendingDestage::Failed)));
            if self.is_upper() && pages.iter().any(has_failed) {
                break;
            }
        }
        result
    }

    /// Empties the slot of a copy that could not be read, once the page's own device has that version.
    ///
    /// # Errors
    /// As [`Tiers::await_destage`].
    pub async fn drop_damaged(self: &Rc<Self>, page: PageId) -> Result<()> {
        if self.slots.borrow_mut().drop_unverified(page) {
            return Ok(());
        }
        self.await_destage(page).await?;
        self.slots.borrow_mut().forget(page);
        Ok(())
    }

    /// What is below has lost a version of a page. If this cache has a clean copy, it counts as newer than that below since `redo_start`.
    pub fn write_anew(&self, page: PageId, redo_start: Lsn) {
        self.slots.borrow_mut().write_anew(page, redo_start);
    }

    /// A newer version of the page is about to be written below: its copy, which has nothing under way, is out of date.
    pub fn forget(&self, page: PageId) {
        self.slots.borrow_mut().forget(page);
    }

    /// Where redo of a page begins that is on its way from here to what is below.
    pub fn redo_start_of(&self, page: PageId) -> Lsn {
        self.slots.borrow().redo_start_of(page)
    }

    /// Redo of a page that is on its way from here to what is below begins there already: what had an older version of it below has
    /// it no longer.
    pub fn extend_redo(&self, page: PageId, lsn: Lsn) {
        self.slots.borrow_mut().extend_redo(page, lsn);
    }

    /// Makes way for a version of a page that is about to be written to its own device: returns when no older version is in a
    /// slot, or on its way from one. Also where redo of a version begins that only its slot had, if that is so: the newer one
    /// has to count as changed since then until it is written.
    ///
    /// # Errors
    /// As [`Tiers::await_destage`]; the older version is where it was.
    pub async fn make_way(self: &Rc<Self>, page: PageId) -> Result<Option<Lsn>> {
        loop {
            let unneeded = self.slots.borrow().unneeded(page);
            if let Some(slot) = unneeded {
                if self.slots.borrow().follows(slot) {
                    self.destages_ended.wait(&self.executor).await;
                    continue;
                }
                self.forget_copy(slot);
                return Ok(Some(self.slots.borrow_mut().supersede(slot)));
            }
            match self.await_destage(page).await {
                // It could not even be read back: what was needed of it is lost.
                Err(_) if self.slots.borrow().unneeded(page).is_some() => continue,
                destaged => destaged?,
            }
            if !canary::is_planted(Canary::StaleCopy) {
                self.forget(page);
            }
            return Ok(None);
        }
    }
}
