//! Load that goes through a transaction server: a generative message server, which "uses random number generators to
//! continuously create requests, driving the performance experiments" (Garcia-Molina and Salem 1988, section 2.2).

use super::{Load, Shared, Workload};
use base::{Instant, Random};
use engine::server::{MessageServer, ProcedureId, TransactionServer};
use engine::{Error, Result};
use executor::{WaitQueue, WholeExecutor};
use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;

/// What the submitting and the receiving half of a message server share.
struct Generator<W> {
    run: Rc<Shared<W>>,
    messages: MessageServer,
    procedures: Vec<ProcedureId>,
    /// How many requests may be under way.
    limit: u32,
    open: Cell<u32>,
    /// When the latest response came, or requests were permitted again.
    latest: Cell<Instant>,
    /// Told when fewer are under way.
    answered: WaitQueue,
    /// Memory for parameters.
    spare: RefCell<Vec<Vec<u8>>>,
}

/// Starts a message server under this load.
pub(super) fn begin<W: Workload>(run: &Rc<Shared<W>>, server: &TransactionServer, load: Load) -> Result<()> {
    let limit = match load {
        Load::Closed { clients } => clients,
        Load::Full => u32::MAX,
        Load::Open { .. } => {
            let why = "arrivals at a rate do not go through a transaction server; say how many clients there are";
            return Err(Error::Setting(why.into()));
        }
    };
    let names = run.workload.procedures();
    if names.is_empty() {
        return Err(Error::Argument("this workload has no procedures, so no transaction server can run it".into()));
    }
    let procedures = names.iter().map(|name| server.procedure(name)).collect::<Result<_>>()?;
    let generator = Rc::new(Generator {
        run: Rc::clone(run),
        messages: server.message_server(),
        procedures,
        limit,
        open: Cell::new(0),
        latest: Cell::new(run.database.executor().now()),
        answered: WaitQueue::new(),
        spare: RefCell::default(),
    });
    run.spawn_in(server.message_group(), async move |_| generator.run().await);
    Ok(())
}

impl<W: Workload> Generator<W> {
    /// Submits and receives until the run is over and every request is answered.
    async fn run(self: Rc<Self>) {
        let mut submit = pin!(self.submit());
        let mut receive = pin!(self.receive());
        poll_fn(|context| match (receive.as_mut().poll(context), submit.as_mut().poll(context)) {
            (Poll::Ready(()), _) => unreachable!("it receives as long as it is asked"),
            (_, submitted) => submitted,
        })
        .await;
    }

    async fn submit(&self) {
        let executor = self.run.database.executor().whole();
        let mut random = Random::stream(self.run.plan.seed, "requests");
        let mut failed = false;
        while !self.run.finished.get() && !failed {
            if self.open.get() >= self.limit {
                self.answered.wait(executor).await;
                continue;
            }
            if !self.run.take_permit(self.latest.get()) {
                self.run.permitted.wait(executor).await;
                self.latest.set(executor.now());
                continue;
            }
            let input = self.run.workload.draw(&mut random);
            let mut parameters = self.spare.borrow_mut().pop().unwrap_or_default();
            let procedure = self.procedures[self.run.workload.request(&input, &mut parameters)];
            let kind = self.run.workload.type_of(&input) as u64;
            self.open.set(self.open.get() + 1);
            if let Err(error) = self.messages.submit(procedure, kind, parameters).await {
                self.open.set(self.open.get() - 1);
                self.run.end_one();
                self.run.fail(error);
                failed = true;
            }
        }
        while self.open.get() > 0 {
            self.answered.wait(executor).await;
        }
    }

    async fn receive(&self) {
        let executor = self.run.database.executor().whole();
        let mut batch = Vec::new();
        loop {
            self.messages.receive(&mut batch).await;
            let now = executor.now();
            self.latest.set(now);
            self.open.set(self.open.get() - batch.len() as u32);
            for mut response in batch.drain(..) {
                match response.answer {
                    Ok(_) => self.run.count(response.tag as usize, response.submitted, now),
                    Err(error) => self.run.fail(error),
                }
                self.run.end_one();
                response.parameters.clear();
                self.spare.borrow_mut().push(response.parameters);
            }
            self.answered.wake_all(executor);
        }
    }
}

#[cfg(test)]
mod tests;
