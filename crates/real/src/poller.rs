//! Sockets without io_uring: one thread that asks the kernel which of them are ready, for any number of them.
#![allow(unsafe_code)]

use crate::bell::Waker;
use crate::mailbox::{JobResult, Mailbox};
use crate::request::{Call, Request};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

/// The thread is started with the first request.
pub(crate) struct Poller {
    mailbox: Arc<Mailbox>,
    running: Option<(Arc<Watch>, JoinHandle<()>)>,
}

struct Watch {
    orders: Mutex<Orders>,
    /// Readable while there are orders.
    wake: OwnedFd,
    mailbox: Arc<Mailbox>,
}

#[derive(Default)]
struct Orders {
    begun: Vec<Request>,
    cancelled: Vec<u32>,
    is_over: bool,
}

impl Poller {
    pub(crate) fn new(mailbox: Arc<Mailbox>) -> Poller {
        Poller { mailbox, running: None }
    }

    /// Hands a request over. Its sockets must not block. What comes of it is in the mailbox.
    pub(crate) fn start(&mut self, request: Request) {
        match self.watch() {
            Ok(watch) => watch.order(|orders| orders.begun.push(request)),
            Err(error) => {
                let errno = error.raw_os_error().unwrap_or(libc::ENOMEM);
                self.mailbox.post(request.slot, JobResult::Transferred(-errno));
            }
        }
    }

    /// Asks that a request be given up; it completes all the same.
    pub(crate) fn cancel(&mut self, slot: u32) {
        if let Some((watch, _)) = &self.running {
            watch.order(|orders| orders.cancelled.push(slot));
        }
    }

    fn watch(&mut self) -> std::io::Result<&Watch> {
        if self.running.is_none() {
            let (orders, mailbox) = (Mutex::default(), Arc::clone(&self.mailbox));
            let watch = Arc::new(Watch { orders, wake: Waker::eventfd()?, mailbox });
            let own = Arc::clone(&watch);
            let thread = std::thread::Builder::new().name("entresol-network".to_owned()).spawn(move || own.serve())?;
            self.running = Some((watch, thread));
        }
        let (watch, _) = self.running.as_ref().expect("it was just started");
        Ok(watch)
    }

    /// Ends the thread, and forgets what it waits for.
    pub(crate) fn stop(&mut self) {
        if let Some((watch, thread)) = self.running.take() {
            watch.order(|orders| orders.is_over = true);
            // A panic inside the thread was reported where it happened.
            let _ = thread.join();
        }
    }
}

impl Drop for Poller {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Watch {
    fn lock(&self) -> MutexGuard<'_, Orders> {
        // Nothing panics under the lock.
        self.orders.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn order(&self, give: impl FnOnce(&mut Orders)) {
        give(&mut self.lock());
        let one = 1u64.to_ne_bytes();
        // SAFETY: the eight bytes outlive the call. It can only fail if 2^64 - 2 are unread, and then the descriptor is readable.
        unsafe { libc::write(self.wake.as_raw_fd(), one.as_ptr().cast(), one.len()) };
    }

    fn serve(&self) {
        let mut waiting: Vec<Request> = Vec::new();
        loop {
            let Orders { begun, cancelled, is_over } = std::mem::take(&mut *self.lock());
            if is_over {
                return;
            }
            waiting.extend(begun.into_iter().filter(|request| !self.attempt(request)));
            for slot in cancelled {
                if let Some(place) = waiting.iter().position(|request| request.slot == slot) {
                    waiting.swap_remove(place);
                    self.mailbox.post(slot, JobResult::Transferred(-libc::ECANCELED));
                }
            }
            let ready = self.poll(&waiting);
            let mut ready = ready.into_iter();
            waiting.retain(|request| !(ready.next() == Some(true) && self.attempt(request)));
        }
    }

    /// Tries a request; false if it has to wait.
    fn attempt(&self, request: &Request) -> bool {
        let result = request.perform();
        let result = match -result {
            libc::EAGAIN | libc::EINPROGRESS | libc::EALREADY => return false,
            libc::EISCONN if request.call == Call::Connect => 0,
            _ => result,
        };
        self.mailbox.post(request.slot, JobResult::Transferred(result));
        true
    }

    /// Waits for orders, or for any of these; says which of them are ready.
    fn poll(&self, waiting: &[Request]) -> Vec<bool> {
        let look = |request: &Request| libc::pollfd {
            fd: request.fd,
            events: if matches!(request.call, Call::Connect | Call::Send) { libc::POLLOUT } else { libc::POLLIN },
            revents: 0,
        };
        let wake = libc::pollfd { fd: self.wake.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        let mut looks: Vec<_> = std::iter::once(wake).chain(waiting.iter().map(look)).collect();
        // SAFETY: the array outlives the call and is as long as is said. A descriptor in it stays open until its request ends.
        unsafe { libc::poll(looks.as_mut_ptr(), looks.len() as libc::nfds_t, -1) };
        if looks[0].revents != 0 {
            let mut count = [0u8; 8];
            // SAFETY: the eight bytes outlive the call.
            unsafe { libc::read(self.wake.as_raw_fd(), count.as_mut_ptr().cast(), count.len()) };
        }
        looks[1..].iter().map(|look| look.revents != 0).collect()
    }
}
