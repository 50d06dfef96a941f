//! Running a workload through a node of a page server: the node's clients, each with one transaction at a time on copies of pages.

use crate::run::{Length, Watch, Workload};
use base::statistics::{BatchMeans, Histogram};
use base::time::MILLISECOND_NS;
use base::{Instant, Random};
use driver::FaultKind;
use engine::{Error, Result};
use executor::{WaitQueue, WholeExecutor};
use node::page_client::{NodeInternals, PageClient, PageTransaction};
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// A kind of transaction that nodes run, too.
pub trait AtNode: Workload {
    /// Runs it at a node.
    ///
    /// # Errors
    /// Those of the calls.
    fn run_at_node(&self, tx: &mut PageTransaction, input: &Self::Input) -> impl Future<Output = Result<()>>;

    /// Hears that a transaction is committed.
    fn committed(&self, _input: &Self::Input) {}
}

/// What a run through a node measured.
#[derive(Clone, Debug)]
pub struct MeasuredAtNode {
    /// Transactions whose commits were acknowledged.
    pub transactions: u64,
    /// Rolled back as a deadlock's victim, or lost with the connection before their commits, and run again.
    pub repeated: u64,
    /// Transactions whose commits were sent and not answered, and whose server did not know of them later, those of the warm-up
    /// among them: they may be committed.
    pub unknown: u64,
    /// How long it took, in nanoseconds.
    pub elapsed_ns: u64,
    /// Times from the first attempt to the acknowledgement.
    pub response: Histogram,
    /// The same in batches.
    pub means: BatchMeans,
}

/// How a workload runs through a node.
#[derive(Clone, Copy, Debug)]
pub struct NodePlan {
    /// The node's clients.
    pub clients: u32,
    /// What is cut off.
    pub warm_up: Length,
    /// What is measured.
    pub measure: Length,
    /// Seeds the transactions.
    pub seed: u64,
}

/// How often progress is looked at, in nanoseconds.
const LOOK_NS: u64 = 20 * MILLISECOND_NS;

/// Runs a workload by the plan. When the server is gone, clients wait until the node has found it again.
///
/// # Errors
/// Those of the engine, and that of a server that is sought no longer.
pub async fn run<W: AtNode>(
    client: &PageClient,
    workload: W,
    plan: &NodePlan,
    watch: &mut impl Watch,
) -> Result<MeasuredAtNode> {
    let node = Rc::new(NodeLoad::new(client, workload, Rc::default()));
    node.part((plan, "warm-up"), plan.warm_up, |_, _| {}).await?;
    let unknown = node.figures.take().unknown;
    client.traffic().restart();
    node.part((plan, "measured"), plan.measure, |transactions, ns| watch.progress(transactions, ns)).await?;
    let mut measured = node.figures.take();
    measured.unknown += unknown;
    Ok(measured)
}

/// Runs transactions one after the other until `is_over` says that this is enough. What was done by then is in `figures` at any time.
///
/// # Errors
/// As [`run`].
pub async fn stay<W: AtNode>(
    client: &PageClient,
    workload: W,
    seed: u64,
    figures: Rc<RefCell<MeasuredAtNode>>,
    is_over: impl Fn() -> bool,
) -> Result<()> {
    NodeLoad::new(client, workload, figures).client(Random::stream(seed, "client of a node"), |_| !is_over()).await
}

impl MeasuredAtNode {
    /// Nothing is done.
    pub fn new() -> MeasuredAtNode {
        MeasuredAtNode {
            transactions: 0,
            repeated: 0,
            unknown: 0,
            elapsed_ns: 0,
            response: Histogram::new(),
            means: BatchMeans::new(),
        }
    }
}

impl Default for MeasuredAtNode {
    fn default() -> MeasuredAtNode {
        MeasuredAtNode::new()
    }
}

/// How one attempt has ended.
enum Attempt {
    Committed,
    /// Nothing of it is committed.
    Nothing(Error),
    Unknown(Error),
}

/// What the clients of a node share.
struct NodeLoad<W> {
    node: PageClient,
    workload: W,
    figures: Rc<RefCell<MeasuredAtNode>>,
    began: Cell<Instant>,
    /// Transactions that have begun and not ended.
    active: Cell<u64>,
    /// Clients that have not ended.
    running: Cell<u32>,
    failure: RefCell<Option<Error>>,
    /// Told when a client ends.
    ended: WaitQueue,
}

impl<W: AtNode> NodeLoad<W> {
    fn new(node: &PageClient, workload: W, figures: Rc<RefCell<MeasuredAtNode>>) -> NodeLoad<W> {
        NodeLoad {
            node: node.clone(),
            workload,
            figures,
            began: Cell::new(node.executor().now()),
            active: Cell::new(0),
            running: Cell::new(0),
            failure: RefCell::new(None),
            ended: WaitQueue::new(),
        }
    }

    /// All clients run for so long.
    async fn part(
        self: &Rc<Self>,
        (plan, part): (&NodePlan, &str),
        length: Length,
        mut progress: impl FnMut(u64, u64),
    ) -> Result<()> {
        let executor = self.node.executor().whole();
        self.began.set(executor.now());
        self.running.set(plan.clients);
        for number in 0..plan.clients {
            let node = Rc::clone(self);
            let random = Random::stream(plan.seed, &format!("client {number} of a node, {part}"));
            executor.spawn(async move {
                if let Err(error) = node.client(random, |node| node.begins_one(length)).await {
                    node.failure.borrow_mut().get_or_insert(error);
                }
                node.running.set(node.running.get() - 1);
                node.ended.wake_all(node.node.executor().whole());
            });
        }
        while self.running.get() > 0 {
            if executor.within(LOOK_NS, self.ended.wait(executor)).await.is_none() {
                progress(self.figures.borrow().transactions, self.elapsed_ns());
            }
        }
        self.failure.take().map_or(Ok(()), Err)
    }

    fn elapsed_ns(&self) -> u64 {
        self.node.executor().now().since_ns(self.began.get())
    }

    /// Whether one more transaction may begin. One that ends without being committed is followed by another.
    fn begins_one(&self, length: Length) -> bool {
        let may = match length {
            Length::Transactions(count) => self.figures.borrow().transactions + self.active.get() < count,
            Length::Time(ns) => self.elapsed_ns() < ns,
        };
        may && self.failure.borrow().is_none()
    }

    /// Runs transactions one after the other for as long as one more may begin.
    async fn client(&self, mut random: Random, begins_one: impl Fn(&Self) -> bool) -> Result<()> {
        let executor = self.node.executor().whole();
        while begins_one(self) {
            let start = executor.now();
            self.active.set(self.active.get() + 1);
            let committed = self.commit_one(&mut random).await;
            self.active.set(self.active.get() - 1);
            let mut figures = self.figures.borrow_mut();
            if committed? {
                let response_ns = executor.now().since_ns(start);
                figures.transactions += 1;
                figures.response.record(response_ns);
                figures.means.record(response_ns as f64);
            }
            figures.elapsed_ns = self.elapsed_ns();
        }
        Ok(())
    }

    /// Runs a transaction until it is committed; false if that is not known.
    async fn commit_one(&self, random: &mut Random) -> Result<bool> {
        let input = self.workload.draw(random);
        let mut tries = 0;
        loop {
            let error = match self.attempt(&input).await {
                Attempt::Committed => {
                    self.workload.committed(&input);
                    return Ok(true);
                }
                Attempt::Unknown(_) if self.node.failure().is_none() => {
                    self.figures.borrow_mut().unknown += 1;
                    return Ok(false);
                }
                Attempt::Nothing(error) | Attempt::Unknown(error) => error,
            };
            if !passes(&error) || self.node.failure().is_some() {
                return Err(error);
            }
            self.figures.borrow_mut().repeated += 1;
            // One that is run again at once meets those that it was given up for.
            tries = (tries + 1).min(6);
            self.node.executor().sleep_ns(random.below((MILLISECOND_NS / 16) << tries)).await;
        }
    }

    async fn attempt(&self, input: &W::Input) -> Attempt {
        let mut tx = self.node.begin().await;
        if let Err(error) = self.workload.run_at_node(&mut tx, input).await {
            return Attempt::Nothing(error);
        }
        match tx.commit().await {
            Ok(()) => Attempt::Committed,
            Err(error @ Error::Input(_)) if !is_cancelled(&error) => Attempt::Unknown(error),
            Err(error) => Attempt::Nothing(error),
        }
    }
}

fn is_cancelled(error: &Error) -> bool {
    matches!(error, Error::Input(fault) if fault.kind == FaultKind::Cancelled)
}

/// Whether it helps to try again: it was a deadlock's victim, the server had no room for it or its log had failed, or the server was gone.
fn passes(error: &Error) -> bool {
    match error {
        Error::Deadlock | Error::CommitRefused(_) => true,
        Error::Input(fault) => {
            matches!(fault.kind, FaultKind::Cancelled | FaultKind::Reset | FaultKind::Closed | FaultKind::TimedOut)
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_server_refuses_is_tried_again() {
        assert!(passes(&Error::CommitRefused("the log failed".to_owned())));
        assert!(!passes(&Error::Closed));
    }
}
