use crate::bell::Bell;
use driver::{Fault, Output};
use std::any::Any;
use std::fs::File;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// What a thread reports of the operation in a slot.
pub(crate) struct Letter {
    pub(crate) slot: u32,
    pub(crate) news: News,
}

/// How an operation ended on its thread.
pub(crate) enum News {
    /// A transfer's attempt: bytes, or the negated error number.
    Transferred(i32),
    /// A file is open.
    Opened(Opened),
    /// Anything else came to its end.
    Ended(Result<Output, Fault>),
    /// A computation panicked; the panic goes on in the driver's thread.
    Panicked(Box<dyn Any + Send>),
}

/// A file as the opening thread found it.
pub(crate) struct Opened {
    pub(crate) file: File,
    pub(crate) length: u64,
    pub(crate) direct: bool,
}

/// Where threads leave news for the driver's thread.
pub(crate) struct Mailbox {
    letters: Mutex<Vec<Letter>>,
    filled: AtomicBool,
    bell: Arc<Bell>,
}

impl Mailbox {
    pub(crate) fn new(bell: Arc<Bell>) -> Mailbox {
        Mailbox { letters: Mutex::new(Vec::new()), filled: AtomicBool::new(false), bell }
    }

    /// Leaves a letter and wakes the driver's thread if it waits.
    pub(crate) fn post(&self, slot: u32, news: News) {
        let mut letters = self.letters.lock().unwrap_or_else(PoisonError::into_inner);
        letters.push(Letter { slot, news });
        self.filled.store(true, Ordering::Release);
        drop(letters);
        self.bell.wake();
    }

    /// Exchanges an empty vector for all letters.
    pub(crate) fn collect(&self, into: &mut Vec<Letter>) {
        debug_assert!(into.is_empty(), "collected letters are read before the next are fetched");
        if self.filled.load(Ordering::Acquire) {
            let mut letters = self.letters.lock().unwrap_or_else(PoisonError::into_inner);
            self.filled.store(false, Ordering::Relaxed);
            std::mem::swap(&mut *letters, into);
        }
    }
}
