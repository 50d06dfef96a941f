//! Calls of procedures by other threads, on their way to the engine's thread and there.

use crate::reply::Promise;
use crate::requests::Requests;
use engine::Result;
use executor::{Executor, WaitQueue};
use smallvec::SmallVec;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::{Rc, Weak};

/// How many bytes a call may have that is sent without an allocation: of most procedures, name and parameters.
const INLINE: usize = 96;

/// A procedure's name and parameters in one piece. What a thread allocates and another one frees takes both of them longer, and what
/// the engine has to fetch from somewhere else in another processor's cache keeps all requests waiting.
pub(crate) struct Call {
    bytes: SmallVec<[u8; INLINE]>,
    name_length: usize,
}

impl Call {
    pub fn new(name: &str, parameters: &[u8]) -> Call {
        let mut bytes = SmallVec::with_capacity(name.len() + parameters.len());
        bytes.extend_from_slice(name.as_bytes());
        bytes.extend_from_slice(parameters);
        Call { bytes, name_length: name.len() }
    }

    pub fn name(&self) -> &str {
        str::from_utf8(&self.bytes[..self.name_length]).expect("it was a string")
    }

    pub fn parameters(&self) -> &[u8] {
        &self.bytes[self.name_length..]
    }
}

/// How many tasks wait for calls at most.
const IDLE_MAX: usize = 256;

/// Calls that no task runs yet, and the tasks that wait for some. A task that has run a call waits for another: to allocate one that is as large
/// as these takes a tenth of a short transaction.
///
/// Each call wakes or begins a task, which takes one and lets other tasks have their turn before the next. So there is always one on its way
/// for each that waits.
#[derive(Default)]
pub(crate) struct Calls {
    waiting: RefCell<VecDeque<Entered>>,
    idle: WaitQueue,
}

/// A call that is among the requests under way. It does not hold these, for they hold it: it would keep its caller waiting for ever if the
/// engine's thread ended by a panic.
struct Entered {
    entry: usize,
    call: Call,
    promise: Promise<Result<Vec<u8>>>,
}

impl Requests {
    /// Runs a procedure. Its answer is the promise's.
    pub fn call(self: &Rc<Self>, call: Call, promise: Promise<Result<Vec<u8>>>) {
        let entry = self.enter(promise.place());
        self.calls.waiting.borrow_mut().push_back(Entered { entry, call, promise });
        if !self.calls.idle.wake_one(&self.executor) {
            self.executor.spawn(run_calls(Rc::downgrade(self), Rc::clone(&self.calls), self.executor.clone()));
        }
    }
}

/// What waits holds nothing of the database, so that it may be closed.
async fn run_calls(requests: Weak<Requests>, calls: Rc<Calls>, executor: Executor) {
    loop {
        // Not within the condition, which would keep the queue borrowed.
        let next = calls.waiting.borrow_mut().pop_front();
        if let (Some(Entered { entry, call, promise }), Some(requests)) = (next, requests.upgrade()) {
            let work = requests.database().call(call.name(), call.parameters());
            requests.job("a procedure", entry, promise, work).await;
        }
        if calls.idle.len() >= IDLE_MAX {
            return;
        }
        calls.idle.wait(&executor).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_call_is_what_was_sent(name in ".{0,40}", parameters in proptest::collection::vec(any::<u8>(), 0..200)) {
            let call = Call::new(&name, &parameters);
            prop_assert_eq!((call.name(), call.parameters()), (name.as_str(), parameters.as_slice()));
        }
    }
}
