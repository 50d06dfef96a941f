//! That this process is asked to end (SIGINT, SIGTERM), for programs that end in order.

use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicBool, Ordering};

static IS_ASKED: AtomicBool = AtomicBool::new(false);

extern "C" fn note(_: libc::c_int) {
    IS_ASKED.store(true, Ordering::Relaxed);
}

/// From now on the first SIGINT or SIGTERM ends this process no more, but is noted; the second one ends it as ever.
#[allow(unsafe_code)]
pub fn note_end_requests() {
    let handler: extern "C" fn(libc::c_int) = note;
    for signal in [libc::SIGINT, libc::SIGTERM] {
        // SAFETY: all zeros are a valid `sigaction`: no flags, an empty mask.
        let mut action: libc::sigaction = unsafe { MaybeUninit::zeroed().assume_init() };
        action.sa_sigaction = handler as usize;
        action.sa_flags = libc::SA_RESETHAND | libc::SA_RESTART;
        // SAFETY: `action` lives through the call, and its handler does nothing but store into an atomic.
        let result = unsafe { libc::sigaction(signal, &action, std::ptr::null_mut()) };
        assert_eq!(result, 0, "these signals can be handled");
    }
}

/// Whether this process was asked to end since [`note_end_requests`].
pub fn is_end_requested() -> bool {
    IS_ASKED.load(Ordering::Relaxed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[allow(unsafe_code)]
    fn a_first_request_is_noted_and_ends_nothing() {
        note_end_requests();
        assert!(!is_end_requested());
        // SAFETY: the signal goes to this very thread, which handles it.
        assert_eq!(unsafe { libc::raise(libc::SIGTERM) }, 0);
        assert!(is_end_requested());
    }
}
