//! Memory of growing sets. The system fills new pages with zeros when they are first touched, which takes longer than all the
//! transactions that fill them afterwards; so the next region is touched ahead, beside the engine's thread.

use super::Database;
use crate::Result;
use crate::io::memory::touched;
use base::PartitionId;
use driver::Frame;
use executor::WaitQueue;
use std::cell::Cell;
use std::rc::Rc;

/// What is known of the next region.
#[derive(Default)]
pub(crate) struct Growth {
    /// The size of the frames that are being touched.
    under_way: Cell<Option<usize>>,
    ended: WaitQueue,
}

impl Database {
    /// Gives a set one more segment, or waits for memory that is on its way: then whoever needs it has to look again.
    pub(crate) async fn add_segment(&self, partition: PartitionId) -> Result<()> {
        let inner = &*self.0;
        let size = inner.sets.borrow().segment_size(partition);
        let spare = inner.sets.borrow_mut().spare(size);
        let frame = match spare {
            Some(frame) => frame,
            None if inner.growth.under_way.get() == Some(size) => {
                inner.growth.ended.wait(&inner.executor).await;
                return Ok(());
            }
            None => self.first_of_region(partition, size)?,
        };
        inner.sets.borrow_mut().add_segment(partition, frame);
        self.grow_ahead(partition, size);
        Ok(())
    }

    /// A region that nobody has foreseen; all but its first frame are kept.
    fn first_of_region(&self, partition: PartitionId, size: usize) -> Result<Frame> {
        let mut sets = self.0.sets.borrow_mut();
        let mut frames = self.0.executor.frames(sets.growth(partition), size)?;
        let first = frames.pop().expect("at least one was asked for");
        frames.into_iter().for_each(|frame| sets.reuse(frame));
        Ok(first)
    }

    /// Has the next region touched when half of the last one is used. A small set needs none; a region that cannot be had
    /// is asked for again, and missed aloud, by whoever needs it.
    fn grow_ahead(&self, partition: PartitionId, size: usize) {
        let (count, left) = {
            let sets = self.0.sets.borrow();
            (sets.growth(partition), sets.spares(size))
        };
        if count == 1 || left > count / 2 || self.0.growth.under_way.get().is_some() {
            return;
        }
        let Ok(frames) = self.0.executor.untouched_frames(count, size) else { return };
        self.0.growth.under_way.set(Some(size));
        let inner = Rc::downgrade(&self.0);
        // What a segment costs on described hardware is charged where it comes to be used.
        self.0.executor.compute_then(
            0,
            move || touched(frames),
            move |touched| {
                let Some(inner) = inner.upgrade() else { return };
                let mut sets = inner.sets.borrow_mut();
                touched.into_iter().flatten().for_each(|frame| sets.reuse(frame));
                inner.growth.under_way.set(None);
                inner.growth.ended.wake_all(&inner.executor);
            },
        );
    }
}
