//! Taking a partition out of the buffer, or its last pages.

use super::{Buffer, PageSpace};
use crate::Result;
use base::time::{MICROSECOND_NS, MILLISECOND_NS};
use base::{PageId, PartitionId};
use std::rc::Rc;

impl Buffer {
    /// Forgets a partition that is no longer used: its pages here and in the tiers, changed or not, and its file. Waits for the
    /// ends of transfers under way, which keep frames and slots whether they succeed or fail: for ever only where a device does
    /// not answer. Nothing else keeps any, because the tasks that had pages pinned have ended.
    pub async fn detach(self: &Rc<Self>, partition: PartitionId) {
        // Those that are on their way come without redo, and nothing uses them.
        self.forget_left(partition);
        let mut wait_ns = WAIT_NS[0];
        while self.is_attached(partition) && !self.discard(partition, 0) {
            // Another task writes or reads a page: that ends.
            self.executor.sleep_ns(wait_ns).await;
            wait_ns = (2 * wait_ns).min(WAIT_NS[1]);
        }
        let space = self.spaces.borrow_mut().get_mut(usize::from(partition.0)).and_then(Option::take);
        // A checkpoint under way may yet make it durable, which no longer matters.
        space.inspect(|space| space.note_dropped());
        self.pool.borrow_mut().set_capacity(partition, 0);
        self.failures.forget(|page| page.partition == partition);
    }

    /// From now on a partition has room for this number of pages, and those behind are not used any more. The caller has the turn to
    /// change that.
    pub(crate) fn limit(&self, space: &PageSpace, pages: u32) {
        space.limit(pages);
        self.pool.borrow_mut().set_capacity(space.partition(), space.capacity());
    }

    /// Pages of a partition from this number on are none that was changed, if its own device has none of them but blank ones, and no read of
    /// these was older than [`PageSpace::forget_writes`].
    pub(crate) fn end_of_changes(&self, space: &PageSpace) -> u32 {
        let partition = space.partition();
        let here = self.pool.borrow().end_of_changes(partition);
        let below = self.levels.borrow().from_top().map(|tiers| tiers.end_of_changes(partition)).max().unwrap_or(0);
        here.max(below).max(self.end_of_left(partition)).max(space.written_lately()).max(space.end_of_lost())
    }

    /// Makes room for at least this number of pages.
    ///
    /// # Errors
    /// The driver's.
    pub(crate) async fn make_room(&self, space: &PageSpace, pages: u32) -> Result<()> {
        space.reserve(&self.executor, pages).await?;
        self.pool.borrow_mut().set_capacity(space.partition(), space.capacity());
        Ok(())
    }

    /// Gives back what there is behind the room of a partition, whose pages here and in the tiers are forgotten. Waits for the ends of
    /// transfers under way as [`Buffer::detach`] does.
    ///
    /// # Errors
    /// The driver's: the file may be longer than it need be then.
    pub(crate) async fn shorten(self: &Rc<Self>, space: &PageSpace) -> Result<()> {
        // A checkpoint has made it, or the end of what is left was that of what is used.
        debug_assert!(
            self.end_of_left(space.partition()) <= space.capacity(),
            "redo is left of none of the pages cut off"
        );
        let mut wait_ns = WAIT_NS[0];
        while !self.discard(space.partition(), space.capacity()) {
            self.executor.sleep_ns(wait_ns).await;
            wait_ns = (2 * wait_ns).min(WAIT_NS[1]);
        }
        let is_behind = |page: PageId| page.partition == space.partition() && page.number >= space.capacity();
        self.failures.forget(is_behind);
        if self.is_ended.get() {
            // The next opening may have made it longer.
            return Ok(());
        }
        space.shorten(&self.executor).await
    }

    /// Empties the frames and slots of a partition's pages from `first` on that nothing keeps; whether all are empty.
    fn discard(self: &Rc<Self>, partition: PartitionId, first: u32) -> bool {
        let mut is_done = self.pool.borrow_mut().discard(partition, first);
        for tiers in self.levels().from_top() {
            is_done &= tiers.discard(partition, first);
        }
        if let Some(area) = self.double_write.as_ref().filter(|_| is_done) {
            area.forget(&self.executor, partition, first);
        }
        self.wake_all_for_frames();
        self.written.wake_all(&self.executor);
        is_done
    }
}

/// How often it is looked whether transfers have ended at first, and later, in nanoseconds.
const WAIT_NS: [u64; 2] = [100 * MICROSECOND_NS, 5 * MILLISECOND_NS];
