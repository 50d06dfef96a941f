//! How other threads reach a database whose engine runs only while its caller has it run something.

use crate::OpenError;
use crate::database_thread::{note_cause, receive};
use crate::handle::{Handle, Link};
use crate::reply::Wakes;
use crate::requests::{Host, Requests};
use driver::Fault;
use engine::{Database, Error};
use executor::{JoinHandle, WholeExecutor, mailbox};
use std::cell::RefCell;
use std::future::poll_fn;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Context, Poll, Waker};

/// Where threads ask for a handle. As long as none does, the engine has no mailbox to look into.
#[derive(Default)]
pub(crate) struct Door {
    waiting: Mutex<Waiting>,
    /// Why the engine has ended, if not at its closing.
    cause: Arc<OnceLock<Fault>>,
}

#[derive(Default)]
struct Waiting {
    askers: Vec<Sender<Handle>>,
    /// Wakes the task that answers.
    waker: Option<Waker>,
    is_closed: bool,
}

impl Door {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        // Nothing panics while it is held.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks for a handle, which comes when the engine runs, or never if it is closed.
    pub fn knock(&self) -> Receiver<Handle> {
        let (sender, receiver) = channel();
        let mut waiting = self.lock();
        if !waiting.is_closed {
            waiting.askers.push(sender);
        }
        waiting.waker.take().into_iter().for_each(Waker::wake);
        receiver
    }

    /// Has those who have asked hear why the engine has ended.
    pub fn note_cause(&self, error: &OpenError) {
        note_cause(error, &self.cause);
    }

    /// The error of those who get no answer any more.
    pub fn ended(&self) -> Error {
        self.cause.get().map_or(Error::Closed, |fault| fault.clone().into())
    }

    /// Gives no more handles.
    pub fn close(&self) {
        let mut waiting = self.lock();
        waiting.is_closed = true;
        waiting.waker.take().into_iter().for_each(Waker::wake);
    }

    /// Those who have asked; nothing once it is closed.
    fn poll(&self, context: &Context<'_>) -> Poll<Option<Vec<Sender<Handle>>>> {
        let mut waiting = self.lock();
        if waiting.is_closed {
            waiting.askers.clear();
            return Poll::Ready(None);
        }
        if waiting.askers.is_empty() {
            waiting.waker = Some(context.waker().clone());
            return Poll::Pending;
        }
        Poll::Ready(Some(std::mem::take(&mut waiting.askers)))
    }

    /// Gives handles until it is closed, and waits then until what was asked by them has ended.
    pub async fn answer(&self, database: &Database) {
        let mut served: Vec<JoinHandle<()>> = Vec::new();
        while let Some(askers) = poll_fn(|context| self.poll(context)).await {
            served.retain(|task| !task.is_finished());
            for asker in askers {
                let executor = &database.executor().whole().of_library();
                let (wakes, (sender, requests)) = (Wakes::new(), mailbox(executor));
                let host = Host::Engine(database.clone(), RefCell::default());
                let host = Requests::new(host, executor, &wakes);
                served.push(executor.spawn(async move { receive(&host, requests, None).await }));
                // One that has gone needs none, and its mailbox is closed with it.
                let _given = asker.send(Handle {
                    link: Arc::new(Link { sender, wakes, node: None, cause: Arc::clone(&self.cause) }),
                });
            }
        }
        for task in served {
            task.join().await;
        }
    }
}
