use crate::bell::{Bell, Waker};
use crate::fault::fault_of;
use crate::mailbox::Mailbox;
use crate::options::Backend;
use crate::pool::Pool;
use crate::request::{Call, Request};
use crate::ring::Ring;
use driver::{Fault, ThreadUse};
use std::os::fd::RawFd;
use std::sync::Arc;
use std::time::Duration;

/// The only part in which the two backends differ: how a request gets to the kernel and how its end is learnt.
pub(crate) enum Mechanism {
    Ring(Box<Ring>),
    Pool(Pool),
}

impl Mechanism {
    /// The mechanism with its bell and mailbox, and the reason why it is this one.
    ///
    /// # Errors
    /// The fault of io_uring that was asked for and is refused.
    pub(crate) fn open(
        backend: Backend,
        pool_threads: usize,
    ) -> Result<(Mechanism, Arc<Bell>, Arc<Mailbox>, String), Fault> {
        let ring = || {
            let bell = Arc::new(Bell::new(Waker::Eventfd(Waker::eventfd()?)));
            Ring::new(Arc::clone(&bell)).map(|ring| (ring, bell))
        };
        let reason = match backend {
            Backend::ThreadPool => "as asked for".to_owned(),
            Backend::Automatic | Backend::IoUring => match ring() {
                Ok((ring, bell)) => {
                    let mailbox = Arc::new(Mailbox::new(Arc::clone(&bell)));
                    let reason = if backend == Backend::IoUring { "as asked for" } else { "the kernel grants it" };
                    return Ok((Mechanism::Ring(Box::new(ring)), bell, mailbox, reason.to_owned()));
                }
                Err(error) if backend == Backend::IoUring => return Err(fault_of("setting up io_uring", &error)),
                Err(error) => format!("io_uring is refused: {error}"),
            },
        };
        let bell = Arc::new(Bell::new(Waker::Thread(std::thread::current())));
        let mailbox = Arc::new(Mailbox::new(Arc::clone(&bell)));
        let pool = Pool::new(pool_threads, Arc::clone(&bell), Arc::clone(&mailbox));
        Ok((Mechanism::Pool(pool), bell, mailbox, reason))
    }

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

    /// The same for such a request of a socket.
    pub(crate) fn cancel_exchange(&mut self, call: Call, slot: u32) -> bool {
        match self {
            Mechanism::Ring(ring) => ring.cancel_exchange(call, slot),
            Mechanism::Pool(pool) => {
                pool.cancel_exchange(slot);
                false
            }
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

    /// How often something was handed over, and how often its operations have interrupted the thread, where it can tell.
    pub(crate) fn used(&self) -> ThreadUse {
        match self {
            Mechanism::Ring(ring) => ring.used(),
            Mechanism::Pool(pool) => pool.used(),
        }
    }

    pub(crate) fn register_file(&mut self, place: u32, fd: RawFd) -> bool {
        match self {
            Mechanism::Ring(ring) => ring.register_file(place, fd),
            Mechanism::Pool(_) => false,
        }
    }

    /// Has the kernel keep the lock of a directory, the `number`th one, for as long as requests are under way. Of a pool it does so
    /// by itself: no process is gone while one of its threads is in a call.
    ///
    /// # Errors
    /// Those of [`Ring::keep_lock`].
    pub(crate) fn keep_lock(&mut self, number: u32, fd: RawFd) -> Result<(), Fault> {
        match self {
            Mechanism::Ring(ring) => ring.keep_lock(number, fd),
            Mechanism::Pool(_) => Ok(()),
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
