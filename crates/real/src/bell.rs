use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::Thread;

const AWAKE: u32 = 0;
const WAITING: u32 = 1;
const NOTIFIED: u32 = 2;

/// Ends a wait of the driver's thread from any other thread. Costs a system call only while that thread waits.
pub(crate) struct Bell {
    state: AtomicU32,
    rung: AtomicBool,
    waker: Waker,
}

/// How a waiting thread is reached.
pub(crate) enum Waker {
    /// It waits in the ring, where a read of this eventfd is in flight.
    Eventfd(OwnedFd),
    /// It is parked.
    Thread(Thread),
}

impl Waker {
    /// A fresh eventfd.
    ///
    /// # Errors
    /// What the system says.
    #[allow(unsafe_code)]
    pub(crate) fn eventfd() -> std::io::Result<OwnedFd> {
        // SAFETY: the call takes no memory; a result that is not negative is a descriptor with no other owner.
        unsafe {
            let fd = libc::eventfd(0, libc::EFD_CLOEXEC);
            if fd < 0 { Err(std::io::Error::last_os_error()) } else { Ok(OwnedFd::from_raw_fd(fd)) }
        }
    }
}

impl Bell {
    pub(crate) fn new(waker: Waker) -> Bell {
        Bell { state: AtomicU32::new(AWAKE), rung: AtomicBool::new(false), waker }
    }

    /// The descriptor that a waiting ring must be reading, if this bell has one.
    pub(crate) fn eventfd(&self) -> Option<i32> {
        match &self.waker {
            Waker::Eventfd(fd) => Some(fd.as_raw_fd()),
            Waker::Thread(_) => None,
        }
    }

    /// Ends the present wait, or else keeps the next one from beginning.
    pub(crate) fn wake(&self) {
        if self.state.swap(NOTIFIED, Ordering::AcqRel) == WAITING {
            self.kick();
        }
    }

    /// Makes the wait end whether or not one is announced.
    #[allow(unsafe_code)]
    pub(crate) fn kick(&self) {
        match &self.waker {
            Waker::Thread(thread) => thread.unpark(),
            Waker::Eventfd(fd) => {
                let one = 1u64.to_ne_bytes();
                // SAFETY: the eight bytes outlive the call. It can only fail if 2^64 - 2 kicks are unread, and then the
                // descriptor is readable as it should be.
                unsafe { libc::write(fd.as_raw_fd(), one.as_ptr().cast(), one.len()) };
            }
        }
    }

    /// Announces a wait of the driver's thread. If this is false there is something to look at and it must not wait.
    pub(crate) fn announce(&self) -> bool {
        self.state.compare_exchange(AWAKE, WAITING, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// Whether the announced wait still has no reason to end.
    pub(crate) fn is_waiting(&self) -> bool {
        self.state.load(Ordering::Acquire) == WAITING
    }

    /// Ends an announced or refused wait: from here on wakers make no system call.
    pub(crate) fn withdraw(&self) {
        self.state.swap(AWAKE, Ordering::AcqRel);
    }

    /// Whether the doorbell rang since [`Bell::take_rung`].
    pub(crate) fn is_rung(&self) -> bool {
        self.rung.load(Ordering::Relaxed)
    }

    /// Whether the doorbell rang since this was last asked.
    pub(crate) fn take_rung(&self) -> bool {
        self.is_rung() && self.rung.swap(false, Ordering::AcqRel)
    }
}

/// The face of the bell that other threads get.
pub(crate) struct Doorbell {
    bell: Arc<Bell>,
}

impl Doorbell {
    pub(crate) fn new(bell: Arc<Bell>) -> Doorbell {
        Doorbell { bell }
    }
}

impl driver::Doorbell for Doorbell {
    fn ring(&self) {
        // A ring that has not been heard yet covers a second one.
        if !self.bell.rung.swap(true, Ordering::AcqRel) {
            self.bell.wake();
        }
    }
}
