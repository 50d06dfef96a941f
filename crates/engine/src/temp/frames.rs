//! Frames of one operation's clusters: those in flight come back by themselves.

use crate::{Error, Result};
use driver::{Completion, Frame};
use executor::{Executor, WaitQueue};
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// A number of frames of a cluster each. Clones are handles to the same frames.
#[derive(Clone)]
pub(super) struct Frames(Rc<FramePool>);

struct FramePool {
    executor: Executor,
    free: RefCell<Vec<Frame>>,
    in_flight: Cell<usize>,
    /// The first failure of an operation that one of them was in.
    failure: RefCell<Option<Error>>,
    /// Tasks waiting for a frame, or for other events of the frames.
    waiters: WaitQueue,
}

/// A frame's way to a device and back.
pub(super) struct Departing(Rc<FramePool>);

impl Frames {
    /// `count` frames of `size` bytes.
    ///
    /// # Errors
    /// The driver's, if there is no memory for them.
    pub fn new(executor: &Executor, count: usize, size: usize) -> Result<Frames> {
        let free = RefCell::new(executor.frames(count, size)?);
        let (in_flight, failure, waiters) = (Cell::new(0), RefCell::default(), WaitQueue::new());
        Ok(Frames(Rc::new(FramePool { executor: executor.clone(), free, in_flight, failure, waiters })))
    }

    /// How many are free.
    pub fn free_count(&self) -> usize {
        self.0.free.borrow().len()
    }

    /// A frame, if one is free.
    pub fn try_take(&self) -> Option<Frame> {
        self.0.free.borrow_mut().pop()
    }

    /// Waits for a frame.
    ///
    /// # Errors
    /// The first failure of a read or write.
    pub async fn take(&self) -> Result<Frame> {
        loop {
            self.check()?;
            if let Some(frame) = self.try_take() {
                return Ok(frame);
            }
            self.changed().await;
        }
    }

    /// Takes a frame back.
    pub fn put(&self, frame: Frame) {
        self.0.free.borrow_mut().push(frame);
        self.0.waiters.wake_all(&self.0.executor);
    }

    /// Nothing has failed so far.
    ///
    /// # Errors
    /// The first failure of a read or write.
    pub fn check(&self) -> Result<()> {
        self.0.failure.borrow().clone().map_or(Ok(()), Err)
    }

    /// Waits until nothing is in flight: what was written can be read then.
    ///
    /// # Errors
    /// The first failure of a read or write.
    pub async fn landed(&self) -> Result<()> {
        while self.0.in_flight.get() > 0 {
            self.changed().await;
        }
        self.check()
    }

    /// How many are in flight.
    pub fn in_flight(&self) -> usize {
        self.0.in_flight.get()
    }

    /// Waits until a frame has come back or arrived. The caller looks again.
    pub async fn changed(&self) {
        self.0.waiters.wait(&self.0.executor).await;
    }

    /// Notifies the waiting tasks that something has arrived.
    pub fn announce(&self) {
        self.0.waiters.wake_all(&self.0.executor);
    }

    /// A frame is about to leave.
    pub fn departing(&self) -> Departing {
        self.0.in_flight.set(self.0.in_flight.get() + 1);
        Departing(Rc::clone(&self.0))
    }
}

impl Departing {
    /// The operation has ended: the frame is free again.
    pub fn arrive(self, completion: Completion) {
        let pool = Rc::clone(&self.0);
        self.deliver(completion, |frame| pool.free.borrow_mut().push(frame));
    }

    /// The operation has ended: the frame goes on to `arrived`, or is free again if it failed.
    pub fn deliver(self, completion: Completion, arrived: impl FnOnce(Frame)) {
        let pool = &*self.0;
        pool.in_flight.set(pool.in_flight.get() - 1);
        let frame = completion.buffer.expect("a transfer gives its buffer back");
        match completion.result {
            Ok(_) => arrived(frame),
            Err(fault) => {
                pool.free.borrow_mut().push(frame);
                pool.failure.borrow_mut().get_or_insert(fault.into());
            }
        }
        pool.waiters.wake_all(&pool.executor);
    }
}
