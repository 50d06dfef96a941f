//! Memory of growing sets. The system fills new pages with zeros when they are first touched, which takes longer than all the
//! transactions that fill them afterwards; so the next region is touched ahead, beside the engine's thread.

use super::{Engine, SetStore};
use crate::Result;
use crate::io::memory::touched;
use base::PartitionId;
use driver::Frame;
use executor::{Executor, WaitQueue};
use std::cell::Cell;
use std::rc::Rc;

/// What is known of the next region.
#[derive(Default)]
pub(crate) struct Growth {
    /// The size of the frames that are being touched.
    under_way: Cell<Option<usize>>,
    ended: WaitQueue,
}

/// Gives a set one more segment, or waits for memory that is on its way: then the caller has to look again.
pub(crate) async fn add_segment(engine: &Rc<Engine>, partition: PartitionId) -> Result<()> {
    let size = engine.sets.sets.borrow().segment_size(partition);
    let spare = engine.sets.sets.borrow_mut().spare(size);
    let frame = match spare {
        Some(frame) => frame,
        None if engine.sets.growth.under_way.get() == Some(size) => {
            engine.sets.growth.ended.wait(&engine.core.executor).await;
            return Ok(());
        }
        None => first_of_region(&engine.core.executor, &engine.sets, partition, size)?,
    };
    engine.sets.sets.borrow_mut().add_segment(partition, frame);
    grow_ahead(engine, partition, size);
    Ok(())
}

/// A region that was not prepared; all but its first frame are kept.
fn first_of_region(executor: &Executor, sets: &SetStore, partition: PartitionId, size: usize) -> Result<Frame> {
    let mut sets = sets.sets.borrow_mut();
    let mut frames = executor.frames(sets.growth(partition), size)?;
    let first = frames.pop().expect("at least one was asked for");
    frames.into_iter().for_each(|frame| sets.reuse(frame));
    Ok(first)
}

/// Has the next region touched when half of the last one is used. A small set needs none; a region that cannot be allocated is
/// asked for again when it is needed, and then the failure is reported.
fn grow_ahead(engine: &Rc<Engine>, partition: PartitionId, size: usize) {
    let (count, left) = {
        let sets = engine.sets.sets.borrow();
        (sets.growth(partition), sets.spares(size))
    };
    if count == 1 || left > count / 2 || engine.sets.growth.under_way.get().is_some() {
        return;
    }
    let Ok(frames) = engine.core.executor.untouched_frames(count, size) else { return };
    engine.sets.growth.under_way.set(Some(size));
    let weak = Rc::downgrade(engine);
    // What a segment costs on described hardware is charged where it comes to be used.
    engine.core.executor.compute_then(
        0,
        move || touched(frames),
        move |touched| {
            let Some(engine) = weak.upgrade() else { return };
            let mut sets = engine.sets.sets.borrow_mut();
            touched.into_iter().flatten().for_each(|frame| sets.reuse(frame));
            engine.sets.growth.under_way.set(None);
            engine.sets.growth.ended.wake_all(&engine.core.executor);
        },
    );
}
