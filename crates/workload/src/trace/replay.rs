//! Replay of a trace against direct partitions made to fit.
//!
//! Either all transactions come in the trace's order, at one rate or from clients, or each type's come in their order there
//! at a rate of their own (Rahm 1991, section 3.1). Behind the last transaction comes the first again.

use super::{Partition, Problem, Reference, Trace};
use crate::run::Workload;
use crate::synthetic;
use base::{PartitionId, Random};
use engine::catalog::Organization;
use engine::{Database, Error, PartitionSpec, Result, Transaction};
use std::cell::Cell;
use std::rc::Rc;

/// A trace on a database, to be run by [`crate::run::run`].
///
/// ```
/// # use engine::{Database, PartitionSpec, Settings};
/// # use executor::{Executor, Order};
/// # use virtual_driver::{Hardware, Media, Options, VirtualDriver};
/// use entresol_workload::point_reads::PointReads;
/// use entresol_workload::trace::record::{Recorded, Recorder};
/// use entresol_workload::trace::replay::{Replay, organization};
/// use entresol_workload::{Length, Load, Plan, Unwatched, run};
/// # use std::rc::Rc;
///
/// # let machine = || {
/// #     let driver = VirtualDriver::new(Hardware::ideal(), Options::default(), Media::new());
/// #     Executor::new(Box::new(driver), Order::FirstInFirstOut)
/// # };
/// # let (executor, other) = (machine(), machine());
/// let plan = Plan {
///     load: Load::Closed { clients: 1 },
///     warm_up: Length::Transactions(0),
///     measure: Length::Transactions(50),
///     seed: 1,
/// };
/// # let recorded = executor.run(async {
/// # let database = Database::create(&executor, Settings::default()).await?;
/// // What one database is asked for is written down ...
/// let partition = database.create_partition(PartitionSpec::b_tree("squares")).await?;
/// let records = (0..1_000_u64).map(|number| (number.to_be_bytes(), (number * number).to_le_bytes()));
/// database.load_b_tree(partition, records, |_| {}).await?;
/// let recorder = Recorder::new();
/// let workload = Recorded::new(&database, PointReads { partition, records: 1_000 }, Some(Rc::clone(&recorder)));
/// run::run(&database, workload, &plan, &mut Unwatched, |_| ()).await?;
/// let trace = recorder.trace(&database).expect("its names are a trace's");
/// # Ok::<_, engine::Error>(trace)
/// # });
/// # let trace = recorded.expect("the machine goes on").expect("the run ends");
/// # executor.stop();
/// # let done = other.run(async {
/// # let database = Database::create(&other, Settings::default()).await?;
/// // ... and asked of another one.
/// let replay = Replay::prepare(&database, Rc::new(trace), |partition| {
///     Ok(PartitionSpec::new(&partition.name, organization(partition, 8192), partition.locks))
/// })
/// .await?;
/// let measured = run::run(&database, replay, &plan, &mut Unwatched, |measured| measured).await?;
/// assert_eq!(measured.transactions, 50);
/// # Ok::<(), engine::Error>(())
/// # });
/// # other.stop();
/// # done.expect("the machine goes on").expect("the run ends");
/// ```
#[derive(Debug)]
pub struct Replay {
    trace: Rc<Trace>,
    tables: Vec<PartitionId>,
    order: Order,
    reads_ahead: bool,
}

/// The least number of references to consecutive objects that counts as a scan.
const SCAN_MIN: usize = 32;

/// Which transaction comes next.
#[derive(Debug)]
enum Order {
    /// That of the trace, from this position on.
    Common(Cell<usize>),
    /// A type drawn by these rates, then the next of its positions.
    ByType(Vec<Share>),
}

/// One type's part in a replay by types.
#[derive(Debug)]
struct Share {
    rate_per_s: f64,
    positions: Vec<u32>,
    next: Cell<usize>,
}

impl Replay {
    /// Finds the trace's partitions in the database, creating those that are missing as `spec` says (of these direct
    /// organizations: [`organization`]).
    ///
    /// # Errors
    /// [`Error::Argument`] if the trace has no transactions, [`Error::Unsuitable`] if a partition exists and does not fit; else the engine's.
    pub async fn prepare(
        database: &Database,
        trace: Rc<Trace>,
        spec: impl Fn(&Partition) -> Result<PartitionSpec>,
    ) -> Result<Replay> {
        if trace.is_empty() {
            return Err(Error::Argument("the trace has no transactions".to_owned()));
        }
        let mut tables = Vec::new();
        for partition in trace.partitions() {
            tables.push(match database.partition(&partition.name) {
                Ok(id) => fitting(database, id, partition)?,
                Err(_) => database.create_partition(spec(partition)?).await?,
            });
        }
        Ok(Replay { trace, tables, order: Order::Common(Cell::new(0)), reads_ahead: false })
    }

    /// Lets each type's transactions come in their own order, at these rates per second in the order of the trace's types;
    /// the run's own rate has to be their sum. A type of rate 0 does not come at all.
    ///
    /// # Errors
    /// [`Problem::Fields`] if a type with a rate has no transaction, or all rates are 0.
    ///
    /// # Panics
    /// If there are not as many rates as types.
    pub fn by_type(mut self, rates: &[f64]) -> Result<Replay, Problem> {
        let mut shares: Vec<Share> =
            rates.iter().map(|rate| Share { rate_per_s: *rate, positions: Vec::new(), next: Cell::new(0) }).collect();
        assert_eq!(shares.len(), self.trace.types().len(), "every type has a rate");
        for (position, transaction) in self.trace.transactions().enumerate() {
            shares[usize::from(transaction.kind)].positions.push(position as u32);
        }
        for (share, kind) in shares.iter().zip(self.trace.types()) {
            if share.rate_per_s > 0.0 && share.positions.is_empty() {
                let name = &kind.name;
                return Err(Problem::Fields(format!("type '{name}' has a rate but no transaction in the trace")));
            }
        }
        if shares.iter().all(|share| share.rate_per_s <= 0.0) {
            return Err(Problem::Fields("no type has a rate above 0".to_owned()));
        }
        self.order = Order::ByType(shares);
        Ok(self)
    }

    /// Has references to many consecutive objects replayed as a scan, which reads ahead: a trace does not say how its pages
    /// came to be read.
    pub fn with_read_ahead(self) -> Replay {
        Replay { reads_ahead: true, ..self }
    }

    /// How many of these references to begin with are a scan; fewer than two if it is none.
    fn scan_length(&self, references: &[Reference]) -> usize {
        let goes_on = |pair: &[Reference]| {
            let next = Reference { object: pair[0].object + 1, ..pair[0] };
            !next.write && pair[1] == next
        };
        let length = 1 + references.windows(2).take_while(|pair| goes_on(pair)).count();
        if self.reads_ahead && length >= SCAN_MIN { length } else { 0 }
    }

    /// The trace.
    pub fn trace(&self) -> &Trace {
        &self.trace
    }
}

/// The organization of a trace's partition on pages of `page_size` bytes.
pub fn organization(partition: &Partition, page_size: u32) -> Organization {
    let (objects, blocking_factor) = (partition.objects, partition.blocking_factor);
    Organization::Direct { objects, blocking_factor, record_size: synthetic::record_size(blocking_factor, page_size) }
}

/// The partition, if it has the trace's objects where the trace has them.
fn fitting(database: &Database, id: PartitionId, partition: &Partition) -> Result<PartitionId> {
    let present = database.describe(id)?.organization;
    let (objects, factor) = (partition.objects, partition.blocking_factor);
    match present {
        Organization::Direct { objects: has, blocking_factor, .. } if has >= objects && blocking_factor == factor => {
            Ok(id)
        }
        _ => Err(Error::Unsuitable(format!(
            "the database's partition '{}' does not fit the trace's {objects} objects, {factor} on a page; name another \
             directory",
            partition.name
        ))),
    }
}

impl Order {
    fn next(&self, transactions: usize, random: &mut Random) -> usize {
        let advance = |next: &Cell<usize>, length: usize| next.replace((next.get() + 1) % length);
        match self {
            Order::Common(next) => advance(next, transactions),
            Order::ByType(shares) => {
                let total: f64 = shares.iter().map(|share| share.rate_per_s).sum();
                let mut point = random.unit() * total;
                let drawn = shares.iter().find(|share| {
                    point -= share.rate_per_s;
                    point < 0.0
                });
                // Rounding may leave the point behind the last share.
                let share = drawn.or_else(|| shares.iter().rfind(|share| share.rate_per_s > 0.0));
                let share = share.expect("a type has a rate");
                share.positions[advance(&share.next, share.positions.len())] as usize
            }
        }
    }
}

impl Workload for Replay {
    /// A transaction's position in the trace.
    type Input = usize;

    fn draw(&self, random: &mut Random) -> usize {
        self.order.next(self.trace.len(), random)
    }

    async fn run(&self, tx: &mut Transaction, position: &usize) -> Result<()> {
        let mut rest = self.trace.transaction(*position).references;
        while let [Reference { partition, write, object }, ..] = *rest {
            let table = self.tables[usize::from(partition)];
            let length = self.scan_length(rest);
            if length > 1 {
                tx.scan_objects(table, object..object + length as u64, |_, _| ()).await?;
            } else if write {
                tx.modify_object(table, object, synthetic::touch).await?;
            } else {
                tx.read_object(table, object, |_| ()).await?;
            }
            rest = &rest[length.max(1)..];
        }
        Ok(())
    }

    fn types(&self) -> Vec<String> {
        self.trace.types().iter().map(|kind| kind.name.clone()).collect()
    }

    fn type_of(&self, position: &usize) -> usize {
        self.trace.transaction(*position).kind.into()
    }

    fn is_counted(&self) -> bool {
        true
    }
}
