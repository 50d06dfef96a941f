//! Answers to other threads. The engine's thread pays for one wake a batch: a woken thread wakes two more.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::thread::Thread;
use std::time::{Duration, Instant};

/// Nothing panics while these locks are held, so a poisoned one still guards sound data.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Where one answer is put and waited for.
pub struct Slot<T> {
    state: Mutex<State<T>>,
    /// Whether an answer is there, or none will come: asked without the lock.
    is_over: AtomicBool,
}

enum State<T> {
    Empty,
    Awaited(Waiter),
    Full(T),
    /// No answer will come.
    Abandoned,
}

/// Who is told of an answer.
enum Waiter {
    Thread(Thread),
    Task(Waker),
}

impl<T> Slot<T> {
    /// An empty slot.
    pub fn new() -> Arc<Slot<T>> {
        Arc::new(Slot { state: Mutex::new(State::Empty), is_over: AtomicBool::new(false) })
    }

    /// Puts the answer in, or says that none will come. Returns the waiter to be told.
    fn end(&self, end: State<T>) -> Option<Waiter> {
        let mut state = lock(&self.state);
        if matches!(*state, State::Full(_)) {
            return None;
        }
        self.is_over.store(true, Ordering::Release);
        match std::mem::replace(&mut *state, end) {
            State::Awaited(waiter) => Some(waiter),
            _ => None,
        }
    }

    /// Takes the answer if it is there: `Some(None)` if none will come. Else `waiter` is told of it.
    fn take(&self, waiter: impl FnOnce() -> Option<Waiter>) -> Option<Option<T>> {
        let mut state = lock(&self.state);
        match std::mem::replace(&mut *state, State::Empty) {
            State::Full(answer) => Some(Some(answer)),
            State::Abandoned => Some(None),
            State::Empty | State::Awaited(_) => {
                if let Some(waiter) = waiter() {
                    *state = State::Awaited(waiter);
                }
                None
            }
        }
    }

    /// Waits for the answer, until `end` at most; `Some(None)` if none will come, `None` if the time is over.
    pub fn wait(&self, wakes: &Wakes, end: Option<Instant>) -> Option<Option<T>> {
        self.spin(wakes);
        loop {
            let found = self.take(|| Some(Waiter::Thread(std::thread::current())));
            if found.is_some() {
                return found;
            }
            match end {
                None => std::thread::park(),
                Some(end) => {
                    let left = remaining(end);
                    if left.is_zero() {
                        // From here on there is no waiter, unless the answer has come just now.
                        return self.take(|| None);
                    }
                    std::thread::park_timeout(left);
                }
            }
            wakes.pass_on();
        }
    }

    /// Looks for the answer for as long as going to sleep and being woken would take, unless other threads need the processor.
    fn spin(&self, wakes: &Wakes) {
        let waiting = &wakes.0.waiting;
        if waiting.fetch_add(1, Ordering::Relaxed) < wakes.0.spinning_max {
            for _ in 0..SPINS {
                if self.is_over.load(Ordering::Acquire) {
                    break;
                }
                std::hint::spin_loop();
            }
        }
        waiting.fetch_sub(1, Ordering::Relaxed);
    }

    /// Asks for the answer, of which the context's task is told.
    pub fn poll(&self, context: &Context<'_>) -> Poll<Option<T>> {
        match self.take(|| Some(Waiter::Task(context.waker().clone()))) {
            Some(found) => Poll::Ready(found),
            None => Poll::Pending,
        }
    }
}

#[allow(clippy::disallowed_methods, reason = "the caller's thread waits, on its own clock")]
fn remaining(end: Instant) -> Duration {
    end.saturating_duration_since(Instant::now())
}

/// The moment that is `limit` from now, if there is one.
#[allow(clippy::disallowed_methods, reason = "the caller's thread waits, on its own clock")]
pub fn end_of(limit: Duration) -> Option<Instant> {
    Instant::now().checked_add(limit)
}

/// The threads to be woken, shared by all wakers.
#[derive(Clone)]
pub struct Wakes(Arc<Sleepers>);

struct Sleepers {
    threads: Mutex<VecDeque<Thread>>,
    /// How many threads look for an answer before they go to sleep, and at most.
    waiting: AtomicUsize,
    spinning_max: usize,
}

/// How often a thread looks for its answer before it goes to sleep: some ten microseconds.
const SPINS: u32 = 300;

impl Wakes {
    /// None yet.
    pub fn new() -> Wakes {
        // One processor is the engine's.
        let spinning_max = std::thread::available_parallelism().map_or(0, |processors| processors.get() - 1);
        Wakes(Arc::new(Sleepers { threads: Mutex::default(), waiting: AtomicUsize::new(0), spinning_max }))
    }

    /// Tells the databases of a process apart.
    pub fn place(&self) -> usize {
        Arc::as_ptr(&self.0).addr()
    }

    /// Wakes one thread; it wakes others.
    pub fn begin(&self) {
        let first = lock(&self.0.threads).pop_front();
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

    /// Which slot it is, among those that exist.
    pub fn place(&self) -> usize {
        Arc::as_ptr(&self.slot).addr()
    }

    /// Answers. A thread is woken with the batch ([`Wakes::begin`]), a task at once.
    pub fn keep(self, answer: T) {
        match self.slot.end(State::Full(answer)) {
            Some(Waiter::Thread(thread)) => lock(&self.wakes.0.threads).push_back(thread),
            Some(Waiter::Task(waker)) => waker.wake(),
            None => {}
        }
    }
}

impl<T> Drop for Promise<T> {
    fn drop(&mut self) {
        match self.slot.end(State::Abandoned) {
            Some(Waiter::Thread(thread)) => thread.unpark(),
            Some(Waiter::Task(waker)) => waker.wake(),
            None => {}
        }
    }
}
