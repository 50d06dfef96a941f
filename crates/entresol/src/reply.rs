//! Answers to other threads.
//!
//! To wake a thread is a system call, which takes as long as half a short transaction. So the engine's thread makes one for many
//! answers: it puts the slots of threads that sleep into a queue and wakes the first, and each thread that was woken wakes the
//! next when it has its answer, or the next two where there are processors for them. Few threads are ready to run at a time
//! then, so the scheduler has no reason to move them to the engine's processor.
//!
//! Some get there all the same, and what is woken there or from there tends to stay there and to take turns with the engine. So those
//! that slept elsewhere are woken first, and a thread that finds itself on the engine's processor leaves it to others to wake the next.
//!
//! No thread is forgotten: while the queue has slots, a thread that was woken has not passed that on yet. A slot is woken under its
//! lock and only if its answer is still there; the thread takes the answer under the same lock, sees that it was woken, and
//! passes on. One that left by itself meanwhile, because its time was over, is seen to have left, and the next is woken instead.
//!
//! While many answers are given, threads take [turns](turns) and hardly sleep.

// An example includes this file from elsewhere.
#[path = "reply/turns.rs"]
mod turns;

use engine::canary::{self, Canary};
use executor::{Executor, WaitQueue};
use real_driver::{allowed_processors, processor};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};
use std::thread::Thread;
use std::time::{Duration, Instant};
use turns::{TURNS_MAX, Turns};

/// Nothing panics while these locks are held, so a poisoned one still guards sound data.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Where one answer is put and waited for.
pub struct Slot<T> {
    state: Mutex<State<T>>,
    /// Whether an answer is there, or none will come: asked without the lock.
    is_over: AtomicBool,
    /// The processor on which its thread went to sleep.
    processor: AtomicU32,
}

enum State<T> {
    Empty,
    Awaited(Waiter),
    Full(T),
    /// The answer is there, and its thread sleeps.
    Asleep(T, Thread),
    /// The answer is there, and its thread was woken and is to wake others.
    Woken(T),
    /// No answer will come.
    Abandoned,
    /// It was taken, or it was told that none will come.
    Taken,
}

/// Who is told of an answer.
enum Waiter {
    Thread(Thread),
    Task(Waker),
}

/// What a slot had: its answer, or `None` if none will come.
struct Taken<T> {
    answer: Option<T>,
    was_woken: bool,
}

impl<T> Slot<T> {
    /// An empty slot.
    pub fn new() -> Arc<Slot<T>> {
        let (state, is_over, processor) = (Mutex::new(State::Empty), AtomicBool::new(false), AtomicU32::new(0));
        Arc::new(Slot { state, is_over, processor })
    }

    /// Puts the answer in. Returns whether its thread sleeps; a task is woken.
    fn fill(&self, answer: T) -> bool {
        let mut state = lock(&self.state);
        self.is_over.store(true, Ordering::Release);
        match std::mem::replace(&mut *state, State::Empty) {
            State::Awaited(Waiter::Thread(thread)) => {
                *state = State::Asleep(answer, thread);
                return true;
            }
            State::Awaited(Waiter::Task(waker)) => {
                *state = State::Full(answer);
                drop(state);
                waker.wake();
            }
            _ => *state = State::Full(answer),
        }
        false
    }

    /// Says that no answer will come.
    fn abandon(&self) {
        let before = {
            let mut state = lock(&self.state);
            self.is_over.store(true, Ordering::Release);
            std::mem::replace(&mut *state, State::Abandoned)
        };
        match before {
            State::Awaited(Waiter::Thread(thread)) => thread.unpark(),
            State::Awaited(Waiter::Task(waker)) => waker.wake(),
            _ => {}
        }
    }

    /// Takes the answer if it is there. Else `waiter` is told of it.
    fn take(&self, waiter: impl FnOnce() -> Option<Waiter>) -> Option<Taken<T>> {
        let mut state = lock(&self.state);
        let (answer, was_woken) = match std::mem::replace(&mut *state, State::Taken) {
            State::Full(answer) | State::Asleep(answer, _) => (Some(answer), false),
            State::Woken(answer) => (Some(answer), true),
            State::Abandoned => (None, false),
            State::Empty | State::Awaited(_) => {
                *state = waiter().map_or(State::Empty, State::Awaited);
                return None;
            }
            State::Taken => {
                drop(state);
                panic!("a request is asked for its answer again after it has given it");
            }
        };
        Some(Taken { answer, was_woken })
    }

    /// Waits for the answer, until `end` at most; `Some(None)` if none will come, `None` if the time is over.
    pub fn wait(&self, wakes: &Wakes, end: Option<Instant>) -> Option<Option<T>> {
        let waiting = &wakes.0.waiting;
        if waiting.fetch_add(1, Ordering::Relaxed) < wakes.0.processors {
            self.spin();
        }
        if end.is_none_or(|end| remaining(end) > TURNS_MAX) {
            wakes.0.turns.take(&self.is_over);
        }
        let taken = self.sleep(end);
        waiting.fetch_sub(1, Ordering::Relaxed);
        taken.map(|Taken { answer, was_woken }| {
            if was_woken {
                wakes.pass_on(processor());
            }
            answer
        })
    }

    fn sleep(&self, end: Option<Instant>) -> Option<Taken<T>> {
        loop {
            let taken = self.take(|| {
                self.processor.store(processor(), Ordering::Relaxed);
                Some(Waiter::Thread(std::thread::current()))
            });
            if taken.is_some() {
                return taken;
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
        }
    }

    /// Looks for the answer for as long as going to sleep and being woken would take.
    fn spin(&self) {
        for _ in 0..SPINS {
            if self.is_over.load(Ordering::Acquire) {
                break;
            }
            std::hint::spin_loop();
        }
    }

    /// Asks for the answer, of which a task is told with this waker.
    pub fn poll(&self, waker: impl FnOnce() -> Waker) -> Poll<Option<T>> {
        match self.take(|| Some(Waiter::Task(waker()))) {
            Some(taken) => Poll::Ready(taken.answer),
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

/// A slot of any answer whose thread sleeps.
trait Sleeper: Send + Sync {
    /// Wakes the thread, which passes that on; false if it has left.
    fn wake(&self) -> bool;

    /// The processor on which it went to sleep.
    fn processor(&self) -> u32;
}

impl<T: Send> Sleeper for Slot<T> {
    fn wake(&self) -> bool {
        let thread = {
            let mut state = lock(&self.state);
            match std::mem::replace(&mut *state, State::Empty) {
                State::Asleep(answer, thread) => {
                    *state = State::Woken(answer);
                    thread
                }
                other => {
                    *state = other;
                    return false;
                }
            }
        };
        thread.unpark();
        true
    }

    fn processor(&self) -> u32 {
        self.processor.load(Ordering::Relaxed)
    }
}

/// The threads to be woken, shared by all who wake them.
#[derive(Clone)]
pub struct Wakes(Arc<Sleepers>);

struct Sleepers {
    chain: Mutex<Chain>,
    /// How many threads wait for an answer.
    waiting: AtomicUsize,
    /// How many processors they have beside the engine's; as many may look for their answers for a while before they go to sleep.
    processors: usize,
    /// Over how many processors beside the engine's the system spreads threads that take turns. A control group may allow the time of fewer
    /// (`cpu.max`): then turns would find none to let run, and cost time that the engine needs.
    spread: usize,
    /// How many threads one that was woken wakes.
    fan: usize,
    turns: Turns,
}

#[derive(Default)]
struct Chain {
    /// Those that have an answer, first answered first.
    asleep: VecDeque<Arc<dyn Sleeper>>,
    /// How many threads were woken and have not passed on.
    awake: usize,
    /// Whether one has passed on since there were answers last.
    has_moved: bool,
    /// How many others were woken before the one that is the first.
    overtaken: u32,
}

/// Among how many those are woken first that did not sleep on the engine's processor, and how many are woken before another one at most.
const LOOK_AHEAD: usize = 16;
const OVERTAKEN_MAX: u32 = 64;

impl Chain {
    /// The next to be woken, who is counted as awake: the first, or one soon behind that did not sleep on the engine's processor.
    fn next(&mut self, engine: u32) -> Option<Arc<dyn Sleeper>> {
        let mut ahead = self.asleep.iter().take(LOOK_AHEAD);
        let elsewhere = ahead.position(|sleeper| sleeper.processor() != engine);
        let place = elsewhere.filter(|_| self.overtaken < OVERTAKEN_MAX).unwrap_or(0);
        self.overtaken = if place == 0 { 0 } else { self.overtaken + 1 };
        let next = self.asleep.remove(place);
        self.awake += usize::from(next.is_some());
        next
    }
}

/// How often a thread looks for its answer before it goes to sleep: some ten microseconds.
const SPINS: u32 = 300;

impl Wakes {
    /// No thread sleeps yet.
    pub fn new() -> Wakes {
        let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        Wakes::of(processors, allowed_processors().unwrap_or(processors))
    }

    #[cfg(test)]
    fn among(processors: usize) -> Wakes {
        Wakes::of(processors, processors)
    }

    /// They may use the time of this many processors, on any of `allowed`.
    fn of(processors: usize, allowed: usize) -> Wakes {
        // One is the engine's.
        let processors = processors.saturating_sub(1);
        let spread = if processors == 0 { 0 } else { allowed.saturating_sub(1) };
        let (chain, waiting, turns) = (Mutex::default(), AtomicUsize::new(0), Turns::new());
        Wakes(Arc::new(Sleepers { chain, waiting, processors, spread, fan: processors.clamp(1, 2), turns }))
    }

    /// Tells the databases of a process apart.
    pub fn place(&self) -> usize {
        Arc::as_ptr(&self.0).addr()
    }

    /// Requests come as often as this. Called by the engine's thread.
    fn note_gap(&self, gap_ns: u64) {
        self.0.turns.note_engine(processor());
        self.0.turns.note_gap(gap_ns, self.0.spread);
    }

    /// Has these woken, in their order. Wakes one itself unless others are at it; they may be kept from running, so also if none has
    /// passed on since this was called last.
    fn begin(&self, answered: &mut Vec<Arc<dyn Sleeper>>) {
        self.0.turns.note_engine(processor());
        let begins = {
            let mut chain = lock(&self.0.chain);
            chain.asleep.extend(answered.drain(..));
            let has_moved = std::mem::take(&mut chain.has_moved);
            chain.awake == 0 || !has_moved
        };
        if begins {
            self.wake(1);
        }
    }

    /// What a thread does that was woken, on this processor.
    fn pass_on(&self, here: u32) {
        if canary::is_planted(Canary::KeptWake) {
            return;
        }
        let are_others = {
            let mut chain = lock(&self.0.chain);
            chain.awake -= 1;
            chain.has_moved = true;
            chain.awake > 0
        };
        if are_others && here == self.0.turns.engine() {
            return;
        }
        self.wake(self.0.fan);
    }

    fn wake(&self, mut count: usize) {
        let engine = self.0.turns.engine();
        while count > 0 {
            let next = lock(&self.0.chain).next(engine);
            let Some(sleeper) = next else { return };
            if sleeper.wake() || canary::is_planted(Canary::BlindWake) {
                count -= 1;
            } else {
                lock(&self.0.chain).awake -= 1;
            }
        }
    }
}

/// The engine's end of a slot: abandoned if it is dropped without an answer.
pub struct Promise<T> {
    slot: Option<Arc<Slot<T>>>,
}

impl<T> Promise<T> {
    /// A promise to fill `slot`.
    pub fn new(slot: &Arc<Slot<T>>) -> Promise<T> {
        Promise { slot: Some(Arc::clone(slot)) }
    }

    /// Which slot it is, among those that exist.
    pub fn place(&self) -> usize {
        self.slot.as_ref().map_or(0, |slot| Arc::as_ptr(slot).addr())
    }
}

impl<T> Drop for Promise<T> {
    fn drop(&mut self) {
        if let Some(slot) = self.slot.take() {
            slot.abandon();
        }
    }
}

/// Answers on their way from the engine's thread to others, which are told of them once for all that there are in a round.
pub struct Answers {
    wakes: Wakes,
    asleep: RefCell<Vec<Arc<dyn Sleeper>>>,
    /// Told of every answer.
    given: WaitQueue,
}

impl Answers {
    /// None yet. A task wakes threads, which the first answer of a round wakes and which runs after those that give the others.
    pub fn new(executor: &Executor, wakes: &Wakes) -> Rc<Answers> {
        let answers = Rc::new(Answers { wakes: wakes.clone(), asleep: RefCell::default(), given: WaitQueue::new() });
        let (own, executor_of_task) = (Rc::clone(&answers), executor.clone());
        executor.spawn(async move {
            loop {
                own.given.wait(&executor_of_task).await;
                own.wake();
            }
        });
        answers
    }

    /// Keeps a promise.
    pub fn give<T: Send + 'static>(&self, mut promise: Promise<T>, answer: T) {
        let slot = promise.slot.take().expect("a promise is kept once");
        if slot.fill(answer) {
            self.asleep.borrow_mut().push(slot);
        }
    }

    /// Tells of what was given, and of requests that ended without an answer.
    pub fn tell(&self, executor: &Executor) {
        self.given.wake_all(executor);
    }

    /// Requests come as often as this, on average lately.
    pub fn note_gap(&self, gap_ns: u64) {
        self.wakes.note_gap(gap_ns);
    }

    /// Waits until there are answers.
    pub async fn wait(&self, executor: &Executor) {
        self.given.wait(executor).await;
    }

    /// Wakes the threads that have answers.
    pub fn wake(&self) {
        let mut asleep = self.asleep.borrow_mut();
        if !asleep.is_empty() {
            self.wakes.begin(&mut asleep);
        }
    }
}

impl Drop for Answers {
    /// Nothing wakes those any more who have answers, also where the engine's thread unwinds.
    fn drop(&mut self) {
        let asleep = self.asleep.get_mut();
        if !asleep.is_empty() {
            self.wakes.begin(asleep);
        }
    }
}

// An example includes this file from elsewhere.
#[cfg(test)]
#[path = "reply/tests.rs"]
mod tests;
