use crate::bell::Bell;
use driver::{Fault, Output};
use std::any::Any;
use std::fs::File;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// What a thread reports of the operation in a slot.
pub(crate) struct Answer {
    pub(crate) slot: u32,
    pub(crate) result: JobResult,
}

/// How an operation ended on its thread.
pub(crate) enum JobResult {
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
    answers: Mutex<Vec<Answer>>,
    filled: AtomicBool,
    bell: Arc<Bell>,
}

impl Mailbox {
    pub(crate) fn new(bell: Arc<Bell>) -> Mailbox {
        Mailbox { answers: Mutex::new(Vec::new()), filled: AtomicBool::new(false), bell }
    }

    /// Leaves a letter and wakes the driver's thread if it waits.
    pub(crate) fn post(&self, slot: u32, result: JobResult) {
        let mut answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        answers.push(Answer { slot, result });
        self.filled.store(true, Ordering::Release);
        drop(answers);
        self.bell.wake();
    }

    /// Exchanges an empty vector for all letters.
    pub(crate) fn collect(&self, into: &mut Vec<Answer>) {
        debug_assert!(into.is_empty(), "collected letters are read before the next are fetched");
        if self.filled.load(Ordering::Acquire) {
            let mut answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
            self.filled.store(false, Ordering::Relaxed);
            std::mem::swap(&mut *answers, into);
        }
    }
}
