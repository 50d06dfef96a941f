//! Debit-Credit through a node of a page server: transactions run there on copies of pages, one after the other.

use super::transaction::{Access, add_to};
use super::{ACCOUNT, BRANCH, HISTORY, Parameters, Scale, TELLER, Tables};
use crate::run::{Length, Watch};
use base::Random;
use base::statistics::{BatchMeans, Histogram};
use base::time::MILLISECOND_NS;
use driver::FaultKind;
use engine::catalog::Organization;
use engine::{Error, Result};
use executor::Executor;
use node::page_client::{PageClient, PageTransaction};
use std::cell::RefCell;
use std::ops::Bound;

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

impl Tables {
    /// Finds the partitions at a node's server, and how large they are.
    ///
    /// # Errors
    /// [`Error::NoPartition`]; [`Error::WrongOrganization`] for sets, which have no pages; those of reading all branches.
    pub async fn at_node(client: &PageClient) -> Result<Tables> {
        let branch = client.partition(BRANCH).await?;
        let (is_clustered, objects) = match branch.organization {
            Organization::Direct { objects, .. } => (true, objects),
            _ => (false, count(client, branch.id()).await?),
        };
        let scale = if is_clustered {
            Scale::rahm_1991(objects / (1 + Scale::tpc_b(1).tellers_per_branch))
        } else {
            Scale::tpc_b(objects)
        };
        let teller = if is_clustered { None } else { Some(access(client, TELLER).await?) };
        let history = client.partition(HISTORY).await?.id();
        Ok(Tables {
            account: access(client, ACCOUNT).await?,
            teller,
            branch: access(client, BRANCH).await?,
            history,
            scale,
        })
    }

    /// The references of one transaction, in the order of [`Tables::run`].
    ///
    /// # Errors
    /// Those of the calls; [`Error::WrongOrganization`] for sets, which have no pages.
    pub async fn run_at_node(&self, tx: &mut PageTransaction, parameters: &Parameters) -> Result<()> {
        let Parameters { account, teller, branch, delta } = *parameters;
        add(self.account, tx, account, delta).await?;
        tx.append(self.history, &parameters.history()[..self.scale.history_size.min(64)]).await?;
        match self.teller {
            Some(table) => {
                add(table, tx, teller, delta).await?;
                add(self.branch, tx, branch, delta).await
            }
            None => {
                let cluster = branch * (1 + self.scale.tellers_per_branch);
                add(self.branch, tx, cluster, delta).await?;
                add(self.branch, tx, cluster + self.cluster(teller), delta).await
            }
        }
    }
}

async fn access(client: &PageClient, name: &str) -> Result<Access> {
    let found = client.partition(name).await?;
    match found.organization {
        Organization::BTree => Ok(Access::Key(found.id())),
        Organization::Direct { .. } => Ok(Access::Number(found.id())),
        other => {
            let detail = "Debit-Credit through a node needs a b-tree or a direct partition".to_owned();
            Err(Error::WrongOrganization { partition: name.into(), organization: other.name(), detail })
        }
    }
}

/// How many branches a b-tree has: their numbers have no gaps.
async fn count(client: &PageClient, branches: base::PartitionId) -> Result<u64> {
    let (mut tx, mut count) = (client.begin().await, 0);
    tx.scan(branches, Bound::Unbounded, |_, _| {
        count += 1;
        true
    })
    .await?;
    tx.commit().await?;
    Ok(count)
}

async fn add(table: Access, tx: &mut PageTransaction, number: u64, delta: i64) -> Result<()> {
    let change = |record: &mut [u8]| add_to(record, delta);
    match table {
        Access::Key(partition) => tx.modify(partition, &number.to_be_bytes(), change).await.map(drop),
        Access::Number(partition) => tx.modify_object(partition, number, change).await.map(drop),
        Access::Set(partition) => Err(Error::WrongOrganization {
            partition: partition.0.to_string(),
            organization: "set",
            detail: "Debit-Credit through a node needs a b-tree or a direct partition".to_owned(),
        }),
    }
}

/// How one attempt has ended.
enum Attempt {
    Committed,
    /// Nothing of it is committed.
    Nothing(Error),
    Unknown(Error),
}

/// Runs transactions through a node for as long as `warm_up` says, and then for as long as `measure` says. When the server is gone,
/// it waits until the node has found it again.
///
/// # Errors
/// Those of the engine, and that of a server that is sought no longer.
pub async fn run(
    (executor, client): (&Executor, &PageClient),
    tables: &Tables,
    (warm_up, measure): (Length, Length),
    seed: u64,
    watch: &mut impl Watch,
) -> Result<MeasuredAtNode> {
    let mut source = TransactionSource::new((executor, client), tables, seed);
    let unknown = source.run_for(warm_up, |_, _| {}).await?.unknown;
    client.traffic().restart();
    let progress = |transactions, elapsed_ns| watch.progress(transactions, elapsed_ns);
    let mut measured = source.run_for(measure, progress).await?;
    measured.unknown += unknown;
    Ok(measured)
}

/// Runs transactions through a node until `is_over` says that this is enough. What was done by then is in `figures` at any time.
///
/// # Errors
/// As [`run`].
pub async fn stay(
    (executor, client): (&Executor, &PageClient),
    tables: &Tables,
    seed: u64,
    figures: &RefCell<MeasuredAtNode>,
    is_over: impl Fn() -> bool,
) -> Result<()> {
    TransactionSource::new((executor, client), tables, seed).run(figures, |_, _| is_over()).await
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

struct TransactionSource<'a> {
    executor: &'a Executor,
    client: &'a PageClient,
    tables: &'a Tables,
    random: Random,
}

impl<'a> TransactionSource<'a> {
    fn new((executor, client): (&'a Executor, &'a PageClient), tables: &'a Tables, seed: u64) -> TransactionSource<'a> {
        TransactionSource { executor, client, tables, random: Random::stream(seed, "debit-credit at a node") }
    }

    async fn run_for(&mut self, length: Length, mut progress: impl FnMut(u64, u64)) -> Result<MeasuredAtNode> {
        let figures = RefCell::new(MeasuredAtNode::new());
        let is_over = |transactions, elapsed_ns| {
            let is_over = match length {
                Length::Transactions(count) => transactions >= count,
                Length::Time(ns) => elapsed_ns >= ns,
            };
            if !is_over {
                progress(transactions, elapsed_ns);
            }
            is_over
        };
        self.run(&figures, is_over).await?;
        Ok(figures.into_inner())
    }

    /// Runs transactions until `is_over`, which is told how many have been committed, and how long that took in nanoseconds.
    async fn run(
        &mut self,
        figures: &RefCell<MeasuredAtNode>,
        mut is_over: impl FnMut(u64, u64) -> bool,
    ) -> Result<()> {
        let began = self.executor.now();
        loop {
            let elapsed_ns = self.executor.now().since_ns(began);
            figures.borrow_mut().elapsed_ns = elapsed_ns;
            let transactions = figures.borrow().transactions;
            if is_over(transactions, elapsed_ns) {
                return Ok(());
            }
            let start = self.executor.now();
            if self.commit_one(figures).await? {
                let response_ns = self.executor.now().since_ns(start);
                let mut figures = figures.borrow_mut();
                figures.transactions += 1;
                figures.response.record(response_ns);
                figures.means.record(response_ns as f64);
            }
        }
    }

    /// Runs a transaction until it is committed; false if that is not known.
    async fn commit_one(&mut self, figures: &RefCell<MeasuredAtNode>) -> Result<bool> {
        let parameters = Parameters::draw(self.tables.scale(), &mut self.random);
        let mut tries = 0;
        loop {
            let error = match self.attempt(&parameters).await {
                Attempt::Committed => return Ok(true),
                Attempt::Unknown(_) if self.client.failure().is_none() => {
                    figures.borrow_mut().unknown += 1;
                    return Ok(false);
                }
                Attempt::Nothing(error) | Attempt::Unknown(error) => error,
            };
            if !passes(&error) || self.client.failure().is_some() {
                return Err(error);
            }
            figures.borrow_mut().repeated += 1;
            // One that is run again at once meets those that it was given up for.
            tries = (tries + 1).min(6);
            self.executor.sleep_ns(self.random.below((MILLISECOND_NS / 16) << tries)).await;
        }
    }

    async fn attempt(&self, parameters: &Parameters) -> Attempt {
        let mut tx = self.client.begin().await;
        if let Err(error) = self.tables.run_at_node(&mut tx, parameters).await {
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
