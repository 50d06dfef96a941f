//! Messages on their way out: a queue for each channel, emptied by a task of its own, so that what is decided in one synchronous step
//! leaves in that order.

use crate::channel::Channel;
use crate::message;
use executor::{Executor, WaitQueue};
use serde::Serialize;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::Poll;

/// The most bytes that wait for one peer. One that takes nothing is given up.
const BYTES_MAX: usize = 64 << 20;

/// What a node has sent.
#[derive(Default)]
pub struct Traffic {
    /// Messages.
    pub messages: Cell<u64>,
    /// Their bytes.
    pub bytes: Cell<u64>,
}

impl Traffic {
    /// Forgets it.
    pub fn restart(&self) {
        self.messages.set(0);
        self.bytes.set(0);
    }
}

/// The queue of one channel.
pub struct Outbox {
    frames: RefCell<VecDeque<Vec<u8>>>,
    waiting: Cell<usize>,
    is_closed: Cell<bool>,
    bell: WaitQueue,
    end: WaitQueue,
    executor: Executor,
    traffic: Rc<Traffic>,
    size_min: usize,
}

impl Outbox {
    /// A queue whose messages have at least `size_min` bytes and are counted in `traffic`, and the task that empties it.
    pub fn new(executor: &Executor, channel: Rc<dyn Channel>, traffic: &Rc<Traffic>, size_min: usize) -> Rc<Outbox> {
        let outbox = Rc::new(Outbox {
            frames: RefCell::default(),
            waiting: Cell::new(0),
            is_closed: Cell::new(false),
            bell: WaitQueue::new(),
            end: WaitQueue::new(),
            executor: executor.clone(),
            traffic: Rc::clone(traffic),
            size_min,
        });
        executor.spawn(empty(Rc::clone(&outbox), channel));
        outbox
    }

    /// Puts a message behind all others. One to a channel that is closed is lost.
    pub fn push(&self, message: &impl Serialize) {
        if self.is_closed.get() {
            return;
        }
        let mut frame = Vec::new();
        message::encode(message, self.size_min, &mut frame);
        self.waiting.set(self.waiting.get() + frame.len());
        self.traffic.messages.set(self.traffic.messages.get() + 1);
        self.traffic.bytes.set(self.traffic.bytes.get() + frame.len() as u64);
        self.frames.borrow_mut().push_back(frame);
        if self.waiting.get() > BYTES_MAX {
            return self.close();
        }
        self.bell.wake_all(&self.executor);
    }

    /// Nothing is sent behind what was put here, and the peer is told so.
    pub fn close(&self) {
        self.is_closed.set(true);
        self.bell.wake_all(&self.executor);
        self.end.wake_all(&self.executor);
    }

    /// What `heard` gives; `None` once nothing is sent any more, for then nothing is to be heard. `ended` is one [`Outbox::ended`]
    /// for all that is heard.
    pub async fn unless_ended<T>(
        ended: &mut Pin<&mut impl Future<Output = ()>>,
        heard: impl Future<Output = T>,
    ) -> Option<T> {
        let mut heard = pin!(heard);
        poll_fn(|context| match heard.as_mut().poll(context) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            Poll::Pending => ended.as_mut().poll(context).map(|()| None),
        })
        .await
    }

    /// Waits until nothing is sent any more.
    pub async fn ended(&self) {
        while !self.is_closed.get() {
            self.end.wait(&self.executor).await;
        }
    }

    /// Whether nothing is sent any more: it was closed, or the channel is gone.
    pub fn is_closed(&self) -> bool {
        self.is_closed.get()
    }
}

async fn empty(outbox: Rc<Outbox>, channel: Rc<dyn Channel>) {
    loop {
        let next = outbox.frames.borrow_mut().pop_front();
        match next {
            Some(frame) => {
                outbox.waiting.set(outbox.waiting.get() - frame.len());
                if channel.send(&frame).await.is_err() {
                    return outbox.close();
                }
            }
            None if outbox.is_closed.get() => {
                // The peer ends then, too. If it cannot be told, it learns in other ways.
                let _told = channel.shutdown().await;
                return;
            }
            None => outbox.bell.wait(&outbox.executor).await,
        }
    }
}
