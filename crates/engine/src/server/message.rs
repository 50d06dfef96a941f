//! Message servers: "they are responsible for feeding transaction requests to the TS and for handling the response messages
//! from those transactions" (section 2.2).

use super::requests::Request;
use super::{ProcedureId, ServerState};
use crate::{Error, Result};
use base::Instant;
use driver::Work;
use executor::{Executor, WaitQueue, WholeExecutor};
use std::cell::RefCell;
use std::rc::Rc;

/// The answer to a request.
#[derive(Clone, Debug, PartialEq)]
pub struct Response {
    /// The request's tag.
    pub tag: u64,
    /// The request's parameters, back for reuse.
    pub parameters: Vec<u8>,
    /// When the request was put into the request queue, or began to wait for a place there. "Another stamp is generated when
    /// the response is taken from the message server's response queue, and the response time is taken to be the difference"
    /// (section 4.3).
    pub submitted: Instant,
    /// What the procedure answered.
    pub answer: Result<Vec<u8>>,
}

/// A message server's response queue.
#[derive(Default)]
pub(super) struct Mailbox {
    responses: RefCell<Vec<Response>>,
    bell: WaitQueue,
}

impl Mailbox {
    pub fn deliver(&self, executor: &Executor, response: Response) {
        let mut responses = self.responses.borrow_mut();
        responses.push(response);
        if responses.len() == 1 {
            self.bell.wake_all(executor);
        }
    }
}

/// A message server: its requests go into the one request queue, its responses come to a queue of its own. One task may
/// submit while another receives.
#[derive(Clone)]
pub struct MessageServer {
    server: Rc<ServerState>,
    mailbox: Rc<Mailbox>,
}

impl MessageServer {
    pub(super) fn new(server: &Rc<ServerState>) -> MessageServer {
        MessageServer { server: Rc::clone(server), mailbox: Rc::default() }
    }

    /// The procedure of this name, as [`super::TransactionServer::procedure`].
    ///
    /// # Errors
    /// [`Error::NoProcedure`] if there is none.
    pub fn procedure(&self, name: &str) -> Result<ProcedureId> {
        super::TransactionServer(Rc::clone(&self.server)).procedure(name)
    }

    /// Submits a request; waits while the request queue is full, in order of arrival with the other submitters.
    ///
    /// # Errors
    /// [`Error::Closed`] if the server takes no more requests.
    pub async fn submit(&self, procedure: ProcedureId, tag: u64, parameters: Vec<u8>) -> Result<()> {
        let (server, executor) = (&*self.server, self.server.database.executor().whole());
        executor.charge(Work::Message);
        executor.pay_debt().await;
        let submitted = executor.round_now();
        let from = Rc::clone(&self.mailbox);
        let request = Request { procedure, parameters, tag, from, submitted, age: None, restarts: 0 };
        if server.closing.get() {
            return Err(Error::Closed);
        }
        server.unanswered.set(server.unanswered.get() + 1);
        if let Err(request) = server.requests.try_push(request) {
            let mut entering = Entering { server, entered: false };
            server.requests.push(executor, request).await;
            entering.entered = true;
        }
        server.statistics.queued(executor.round_now(), server.requests.len());
        server.idle.call(executor);
        Ok(())
    }

    /// Waits until there are responses and adds all of them to `batch`.
    pub async fn receive(&self, batch: &mut Vec<Response>) {
        let executor = self.server.database.executor().whole();
        loop {
            let taken = {
                let mut responses = self.mailbox.responses.borrow_mut();
                let count = responses.len();
                batch.append(&mut responses);
                count
            };
            if taken > 0 {
                executor.charge_times(Work::Message, taken as u64);
                return executor.pay_debt().await;
            }
            self.mailbox.bell.wait(executor).await;
        }
    }
}

/// A request that waits for a place in the queue; if its task gives up, it is not waited for.
struct Entering<'a> {
    server: &'a ServerState,
    entered: bool,
}

impl Drop for Entering<'_> {
    fn drop(&mut self) {
        if !self.entered {
            self.server.end_one();
        }
    }
}
