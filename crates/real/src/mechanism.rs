use crate::pool::Pool;
use crate::request::Request;
use crate::ring::Ring;
use std::os::fd::RawFd;
use std::time::Duration;

/// The only part in which the two backends differ: how a request gets to the kernel and how its end is learnt.
pub(crate) enum Mechanism {
    Ring(Box<Ring>),
    Pool(Pool),
}

impl Mechanism {
    #[inline]
    pub(crate) fn start(&mut self, request: Request) {
        match self {
            Mechanism::Ring(ring) => ring.start(&request),
            Mechanism::Pool(pool) => pool.start(request),
        }
    }

    /// Asks that a request be given up. True if it will not complete by itself any more.
    pub(crate) fn cancel(&mut self, slot: u32) -> bool {
        match self {
            Mechanism::Ring(ring) => ring.cancel(slot),
            Mechanism::Pool(pool) => pool.cancel(slot),
        }
    }

    /// Hands over what is queued and waits for something to happen, at most for `wait`; `None` is without limit. The pool's
    /// results come through the mailbox, the ring's are appended to `done`.
    pub(crate) fn wait(&mut self, wait: Option<Duration>, done: &mut Vec<(u32, i32)>) {
        match self {
            Mechanism::Ring(ring) => ring.wait(wait, done),
            Mechanism::Pool(pool) => pool.wait(wait),
        }
    }

    pub(crate) fn register_file(&mut self, place: u32, fd: RawFd) -> bool {
        match self {
            Mechanism::Ring(ring) => ring.register_file(place, fd),
            Mechanism::Pool(_) => false,
        }
    }

    pub(crate) fn forget_file(&mut self, place: u32) {
        if let Mechanism::Ring(ring) = self {
            ring.forget_file(place);
        }
    }

    /// Waits for everything in flight, at most for `patience`, and starts nothing more. False if requests may still be running.
    pub(crate) fn shut_down(&mut self, patience: Duration) -> bool {
        match self {
            Mechanism::Ring(ring) => ring.drain(patience),
            Mechanism::Pool(pool) => pool.stop_within(patience),
        }
    }
}
