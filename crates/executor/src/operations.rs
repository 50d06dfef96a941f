//! Operations in flight: the waiting task of each, and what happens when it completes.

use crate::unanswered::Submission;
use crate::{Executor, Relay, TaskId};
use driver::{Completion, Op, Token};
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

pub(crate) type Handler = Box<dyn FnOnce(Completion)>;

pub(crate) enum State {
    Free {
        next: u32,
    },
    /// A task awaits it.
    Awaited(TaskId),
    /// It completed; the task has yet to fetch the result.
    Completed(Completion),
    /// The engine reacts synchronously.
    Handled(Handler),
    /// The future that awaited it was dropped; the completion, with its buffer, is dropped too. A socket that it opens is closed.
    Orphaned,
}

struct OperationSlot {
    generation: u32,
    state: State,
    submission: Submission,
}

/// The table of operations in flight.
pub(crate) struct Operations {
    slots: Vec<OperationSlot>,
    free: u32,
    in_flight: usize,
}

const NONE: u32 = u32::MAX;

impl Default for Operations {
    fn default() -> Operations {
        Operations { slots: Vec::new(), free: NONE, in_flight: 0 }
    }
}

impl Operations {
    pub fn insert(&mut self, state: State, submission: Submission) -> Token {
        self.in_flight += 1;
        if self.free == NONE {
            self.slots.push(OperationSlot { generation: 0, state, submission });
            return Token(self.slots.len() as u64 - 1);
        }
        let index = self.free;
        let slot = &mut self.slots[index as usize];
        let State::Free { next } = slot.state else { unreachable!("the free list holds free slots") };
        self.free = next;
        slot.state = state;
        slot.submission = submission;
        Token(u64::from(slot.generation) << 32 | u64::from(index))
    }

    /// How many operations the driver still owes completions for.
    pub fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// What the operations were submitted for that something waits for.
    pub fn awaited(&self) -> impl Iterator<Item = Submission> {
        let is_awaited = |slot: &&OperationSlot| matches!(slot.state, State::Awaited(_) | State::Handled(_));
        self.slots.iter().filter(is_awaited).map(|slot| slot.submission)
    }

    /// What the operations were submitted for that the driver owes completions for.
    pub fn submissions(&self) -> impl Iterator<Item = Submission> {
        let is_owed =
            |slot: &&OperationSlot| matches!(slot.state, State::Awaited(_) | State::Handled(_) | State::Orphaned);
        self.slots.iter().filter(is_owed).map(|slot| slot.submission)
    }

    fn slot(&mut self, token: Token) -> &mut OperationSlot {
        let slot = &mut self.slots[token.0 as u32 as usize];
        assert_eq!(u64::from(slot.generation), token.0 >> 32, "a driver completes each operation exactly once");
        slot
    }

    fn release(&mut self, token: Token) -> State {
        let next = self.free;
        let slot = self.slot(token);
        slot.generation = slot.generation.wrapping_add(1) & 0x7fff_ffff;
        let state = std::mem::replace(&mut slot.state, State::Free { next });
        self.free = token.0 as u32;
        state
    }

    /// Notes a completion. Returns the task to wake or the handler to run.
    pub fn complete(&mut self, completion: Completion) -> Reaction {
        self.in_flight -= 1;
        let token = completion.token;
        let slot = self.slot(token);
        match slot.state {
            State::Awaited(task) => {
                slot.state = State::Completed(completion);
                Reaction::Wake(task)
            }
            State::Handled(_) => {
                let State::Handled(handler) = self.release(token) else { unreachable!("matched above") };
                Reaction::Run(handler, completion)
            }
            State::Orphaned => {
                self.release(token);
                Reaction::Discard(completion)
            }
            State::Completed(_) | State::Free { .. } => panic!("a driver completes each operation exactly once"),
        }
    }

    fn fetch(&mut self, token: Token, task: TaskId) -> Option<Completion> {
        let slot = self.slot(token);
        match &mut slot.state {
            State::Completed(_) => match self.release(token) {
                State::Completed(completion) => Some(completion),
                _ => unreachable!("matched above"),
            },
            state => {
                *state = State::Awaited(task);
                None
            }
        }
    }

    /// No task awaits the operation any more. Returns its completion if it has ended.
    fn abandon(&mut self, token: Token) -> Option<Completion> {
        let slot = self.slot(token);
        if !matches!(slot.state, State::Completed(_)) {
            slot.state = State::Orphaned;
            return None;
        }
        match self.release(token) {
            State::Completed(completion) => Some(completion),
            _ => unreachable!("matched above"),
        }
    }

    pub fn drain(&mut self) -> Vec<State> {
        self.slots.iter_mut().map(|slot| std::mem::replace(&mut slot.state, State::Orphaned)).collect()
    }
}

pub(crate) enum Reaction {
    /// No task awaits this.
    Discard(Completion),
    Wake(TaskId),
    Run(Handler, Completion),
}

/// An operation that the current task awaits. Dropped early, it only orphans the operation.
pub struct Perform<'a> {
    executor: &'a Executor,
    state: Progress,
    relay: Relay,
}

enum Progress {
    New(Option<Op>),
    Submitted {
        token: Token,
        /// Whether it waits for a CPU, or for a device while it holds one.
        computing: bool,
    },
    Done,
}

impl<'a> Perform<'a> {
    pub(crate) fn new(executor: &'a Executor, op: Op) -> Perform<'a> {
        Perform { executor, state: Progress::New(Some(op)), relay: Relay::default() }
    }
}

impl Future for Perform<'_> {
    type Output = Completion;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Completion> {
        let this = &mut *self;
        let executor = this.executor;
        match &mut this.state {
            Progress::New(op) => {
                let op = op.take().expect("polled once before submission");
                let computing = op.holds_cpu();
                let token = executor.start(op, State::Awaited(executor.waiter(context, &mut this.relay)));
                this.state = Progress::Submitted { token, computing };
                if computing {
                    executor.keep_turn();
                }
                Poll::Pending
            }
            Progress::Submitted { token, computing } => {
                let task = executor.waiter(context, &mut this.relay);
                let fetched = executor.operations().fetch(*token, task);
                match fetched {
                    None => {
                        if *computing {
                            executor.keep_turn();
                        }
                        Poll::Pending
                    }
                    Some(completion) => {
                        this.state = Progress::Done;
                        Poll::Ready(completion)
                    }
                }
            }
            Progress::Done => panic!("polled after completion"),
        }
    }
}

impl Drop for Perform<'_> {
    fn drop(&mut self) {
        if let Progress::Submitted { token, .. } = self.state {
            let ended = self.executor.operations().abandon(token);
            match ended {
                Some(completion) => self.executor.close_unwanted(completion),
                None => self.executor.cancel(token),
            }
        }
    }
}
