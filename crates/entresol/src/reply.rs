//! Answers to other threads. The engine's thread pays for one wake a batch: a woken thread wakes two more.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::Thread;

/// Nothing panics while these locks are held, so a poisoned one still guards sound data.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Where one answer is put and waited for.
pub struct Slot<T> {
    state: Mutex<State<T>>,
}

enum State<T> {
    Empty,
    Awaited(Thread),
    Full(T),
    /// No answer will come.
    Abandoned,
}

impl<T> Slot<T> {
    /// An empty slot.
    pub fn new() -> Arc<Slot<T>> {
        Arc::new(Slot { state: Mutex::new(State::Empty) })
    }

    /// Puts the answer in. Returns the thread to wake, if one waits.
    pub fn fill(&self, answer: T) -> Option<Thread> {
        match std::mem::replace(&mut *lock(&self.state), State::Full(answer)) {
            State::Awaited(thread) => Some(thread),
            _ => None,
        }
    }

    /// Says that no answer will come. Returns the thread to wake.
    fn abandon(&self) -> Option<Thread> {
        let mut state = lock(&self.state);
        match &*state {
            State::Full(_) => None,
            _ => match std::mem::replace(&mut *state, State::Abandoned) {
                State::Awaited(thread) => Some(thread),
                _ => None,
            },
        }
    }

    /// Waits for the answer; `None` if none will come.
    pub fn wait(&self, wakes: &Wakes) -> Option<T> {
        loop {
            {
                let mut state = lock(&self.state);
                match std::mem::replace(&mut *state, State::Empty) {
                    State::Full(answer) => return Some(answer),
                    State::Abandoned => return None,
                    _ => *state = State::Awaited(std::thread::current()),
                }
            }
            std::thread::park();
            wakes.pass_on();
        }
    }
}

/// The threads to be woken, shared by all wakers.
#[derive(Clone, Default)]
pub struct Wakes(Arc<Mutex<VecDeque<Thread>>>);

impl Wakes {
    /// Adds a thread.
    pub fn add(&self, thread: Thread) {
        lock(&self.0).push_back(thread);
    }

    /// Wakes one thread; it wakes others.
    pub fn begin(&self) {
        let first = lock(&self.0).pop_front();
        if let Some(thread) = first {
            thread.unpark();
        }
    }

    /// Wakes two threads: called by every thread that was woken.
    fn pass_on(&self) {
        for _ in 0..2 {
            self.begin();
        }
    }
}

/// The engine's end of a slot: abandoned if it is dropped without an answer.
pub struct Promise<T> {
    slot: Arc<Slot<T>>,
    wakes: Wakes,
}

impl<T> Promise<T> {
    /// A promise to fill `slot`.
    pub fn new(slot: &Arc<Slot<T>>, wakes: &Wakes) -> Promise<T> {
        Promise { slot: Arc::clone(slot), wakes: wakes.clone() }
    }

    /// Answers. The thread is woken with the batch ([`Wakes::begin`]).
    pub fn keep(self, answer: T) {
        if let Some(thread) = self.slot.fill(answer) {
            self.wakes.add(thread);
        }
    }
}

impl<T> Drop for Promise<T> {
    fn drop(&mut self) {
        if let Some(thread) = self.slot.abandon() {
            thread.unpark();
        }
    }
}
