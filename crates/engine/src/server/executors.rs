//! The transaction executors: one of priority, and those that stand by.
//!
//! All are tasks of one group that takes turns. To begin a transaction an executor ranks by its number, the priority executor
//! first; a standby executor "is deactivated once its transaction has completed" (section 2.4): it asks for the turn again and
//! gets it only if all before it are still blocked. A transaction in progress ranks first, on any executor: it holds locks.
//!
//! Nothing is interrupted, and no locks wait for new work.

use super::ServerState;
use super::requests::Request;
use crate::statistics::Event;
use crate::transaction::{Committing, EarlyCommit};
use crate::{Error, Result};
use base::time::MICROSECOND_NS;
use executor::{Executor, TaskId, WholeExecutor, catch_panic};
use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;
use structures::PrefetchDistance;

/// After this number of transactions the priority executor lets the other tasks run: the log has to be written meanwhile.
const STREAK_MAX: u32 = 16;

/// How many requests ahead data is prefetched: one runs longer than its first access waits, and with two of them under way at
/// most a dozen cache lines are.
const FAR: usize = 3;
const NEAR: usize = 1;

/// Executors that wait for work.
#[derive(Default)]
pub(super) struct Idle {
    /// In descending order of their numbers.
    waiting: RefCell<Vec<(u8, TaskId)>>,
    /// One was called and has not looked yet. Only then does it call the next.
    called: Cell<bool>,
}

impl Idle {
    /// Wakes the first of the idle executors, unless one is on its way.
    #[inline]
    pub fn call(&self, executor: &Executor) {
        if self.called.get() {
            return;
        }
        let first = self.waiting.borrow_mut().pop();
        if let Some((_, task)) = first {
            self.called.set(true);
            executor.wake(task);
        }
    }

    /// Calls all.
    pub fn call_all(&self, executor: &Executor) {
        for (_, task) in self.waiting.borrow_mut().drain(..) {
            executor.wake(task);
        }
    }

    /// Whether an executor waits that goes before `number`.
    fn has_before(&self, number: u8) -> bool {
        self.waiting.borrow().last().is_some_and(|(first, _)| *first < number)
    }

    /// Waits to be called.
    async fn wait(&self, executor: &Executor, number: u8) {
        let mut entered = false;
        poll_fn(|_| {
            let mut waiting = self.waiting.borrow_mut();
            let place = waiting.partition_point(|(other, _)| *other > number);
            if std::mem::replace(&mut entered, true) {
                let still = waiting.get(place).is_some_and(|(other, _)| *other == number);
                return if still { Poll::Pending } else { Poll::Ready(()) };
            }
            waiting.insert(place, (number, executor.current()));
            Poll::Pending
        })
        .await;
        self.called.set(false);
    }
}

/// A transaction executor.
pub(super) async fn serve(inner: Rc<ServerState>, number: u8) {
    let executor = inner.database.executor().whole();
    inner.serving.borrow_mut().push(executor.current());
    let mut streak = 0;
    loop {
        if number > 0 && executor.is_turn_wanted() {
            // Since the turn came here, one that goes before has been woken.
            executor.yield_now().await;
            continue;
        }
        if inner.is_given_up.get() {
            return;
        }
        let Some(request) = inner.next(number) else {
            if inner.is_over() {
                return;
            }
            inner.idle.wait(executor, number).await;
            streak = 0;
            continue;
        };
        executor.set_rank(0);
        inner.unless_given_up(inner.attend(request)).await;
        executor.set_rank(number);
        streak += 1;
        if number > 0 || streak == STREAK_MAX || executor.is_turn_wanted() {
            streak = 0;
            executor.yield_now().await;
        }
    }
}

/// The request that is answered now, or is to be by others.
fn taken(place: &mut Option<Request>) -> Request {
    place.take().expect("it is answered once")
}

impl ServerState {
    /// The next request for the executor `number`. If there are more, another executor is woken, in case this one blocks.
    fn next(&self, number: u8) -> Option<Request> {
        let executor = self.database.executor().whole();
        if self.idle.has_before(number) {
            // The work came after that executor had looked for it.
            if self.has_work() {
                self.idle.call(executor);
            }
            return None;
        }
        let request = match self.restarts.pop() {
            Some(request) => request,
            None => {
                let request = self.requests.pop(executor)?;
                self.prefetch();
                self.statistics.taken(executor.round_now(), request.submitted, self.requests.len());
                request
            }
        };
        if number > 0 {
            self.statistics.took_over();
        }
        if self.has_work() {
            self.idle.call(executor);
        }
        Some(request)
    }

    /// Asks for the memory that the requests which come next will need.
    #[inline]
    fn prefetch(&self) {
        for (ahead, distance) in [(NEAR, PrefetchDistance::Near), (FAR, PrefetchDistance::Far)] {
            self.requests.look_ahead(ahead, |request| {
                let found = &self.procedures[request.procedure.0 as usize].1;
                let hint = || found.prefetch_for(&request.parameters, || self.database.prefetcher(distance));
                // It is its program's code, and without effect on what its calls do.
                let _hinted = catch_unwind(AssertUnwindSafe(hint));
            });
        }
    }

    fn has_work(&self) -> bool {
        !self.requests.is_empty() || self.restarts.is_due()
    }

    /// Does this to its end, unless what is under way ends where it waits.
    async fn unless_given_up(&self, work: impl Future<Output = ()>) {
        let mut work = pin!(work);
        poll_fn(|context| if self.is_given_up.get() { Poll::Ready(()) } else { work.as_mut().poll(context) }).await;
    }

    /// Runs one transaction and answers, also if that panics: this executor goes on, and the transaction has been dropped.
    async fn attend(self: &Rc<Self>, request: Request) {
        let (name, _) = &self.procedures[request.procedure.0 as usize];
        let mut unanswered = Some(request);
        if let Err(panic) = catch_panic(self.run(&mut unanswered)).await {
            let error = self.database.panicked(name, panic);
            if let Some(request) = unanswered {
                self.respond(request, Err(error));
            }
        }
    }

    /// Runs one transaction to its end, its restart or its failure. It takes the request where it is answered, or is to be.
    async fn run(self: &Rc<Self>, place: &mut Option<Request>) {
        let request = place.as_mut().expect("it is to be answered");
        let (name, found) = &self.procedures[request.procedure.0 as usize];
        let mut transaction = match self.database.begin_aged(request.age).await {
            Ok(transaction) => transaction,
            Err(error) => return self.respond(taken(place), Err(error)),
        };
        let done = match found.enter(&mut transaction, name, &request.parameters).await {
            Ok(()) => {
                let done = catch_panic(found.body.run(&mut transaction, &request.parameters)).await;
                done.unwrap_or_else(|panic| Err(self.database.panicked(name, panic)))
            }
            Err(error) => Err(error),
        };
        let (done, is_refused) = match transaction.check_refused(done) {
            Ok(answer) => {
                transaction.pay_for_end().await;
                let room = transaction.make_room_for_commit().await;
                let is_refused = room.as_ref().is_err_and(Error::is_conflict);
                (room.map(|()| answer), is_refused)
            }
            failed => (failed, transaction.check_active().is_err()),
        };
        match done {
            Ok(answer) => match transaction.commit_early() {
                EarlyCommit::Logged(lsn) => self.release_at(lsn, taken(place), Ok(answer)),
                EarlyCommit::Unfinished(committing) => self.release_after(committing, taken(place), answer),
            },
            Err(error) => {
                request.age = Some(transaction.began());
                match transaction.rollback_early().await {
                    Err(failed) => self.respond(taken(place), Err(failed)),
                    Ok(_) if is_refused => self.put_back(taken(place)),
                    Ok(dependency) => self.release_at(dependency, taken(place), Err(error)),
                }
            }
        }
    }

    fn put_back(&self, mut request: Request) {
        let executor = self.database.executor().whole();
        request.restarts += 1;
        if let Some(began) = request.age {
            self.database.statistics().tell(&Event::Retry { began, tries: request.restarts, cause: None });
        }
        self.statistics.restarted();
        // Where steps take no time, a request that were tried again at once would let none pass for what is in its way.
        let at = executor.now().plus_ns(self.settings.retry_interval_ns.max(MICROSECOND_NS));
        self.restarts.add(executor, at, request);
    }

    /// Answers when the rest of the commit is done.
    #[cold]
    fn release_after(self: &Rc<Self>, committing: Committing, request: Request, answer: Vec<u8>) {
        let inner = Rc::clone(self);
        self.database.executor().whole().of_library().spawn(async move {
            let result = committing.await;
            inner.respond(request, result.map(|()| answer));
        });
    }

    /// Answers now.
    pub(super) fn respond(&self, request: Request, answer: Result<Vec<u8>, Error>) {
        let executor = self.database.executor().whole();
        let response_ns = executor.round_now().since_ns(request.submitted);
        self.statistics.answered(answer.is_ok(), request.restarts, response_ns);
        let Request { from, tag, parameters, submitted, .. } = request;
        from.deliver(executor, super::Response { tag, parameters, submitted, answer });
        self.end_one();
    }

    /// One request is answered, or was given up before it was in the queue.
    pub(super) fn end_one(&self) {
        self.unanswered.set(self.unanswered.get() - 1);
        if self.is_over() {
            self.done.wake_all(self.database.executor().whole());
        }
    }
}
