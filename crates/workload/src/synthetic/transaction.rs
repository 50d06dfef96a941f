//! Synthetic transactions as the engine runs them.

use super::draw::{Input, Laws};
use super::{Instructions, Model, ObjectReference};
use crate::run::Workload;
use base::{PartitionId, Random};
use engine::catalog::Organization;
use engine::{Database, Error, PartitionSpec, Result, Transaction};
use executor::WholeExecutor;

/// A synthetic workload on a database, to be run by [`crate::run::run`].
///
/// ```
/// # use engine::{Database, Internals, PartitionSpec, Settings, catalog::Locking};
/// # use executor::{Executor, Order};
/// # use virtual_driver::{Hardware, Media, Options, VirtualDriver};
/// use entresol_workload::synthetic::{Model, Synthetic};
/// use entresol_workload::{Length, Load, Plan, Unwatched, run};
///
/// # let driver = VirtualDriver::new(Hardware::ideal(), Options::default(), Media::new());
/// # let executor = Executor::new(Box::new(driver), Order::FirstInFirstOut);
/// # let done = executor.run(async {
/// # let database = Database::create(&executor, Settings::default()).await?;
/// let model = Model::parse(Model::RAHM_1991_CONTENTION, "section 4.7").expect("it comes with the crate");
/// let load = Load::Open { rate_per_s: model.rate_per_s() };
/// let page_size = database.settings().buffer.page_size as u32;
/// let workload = Synthetic::prepare(&database, model, |partition| {
///     Ok(PartitionSpec::new(&partition.name, partition.organization(page_size), Locking::Page))
/// })
/// .await?;
/// let plan = Plan { load, warm_up: Length::Transactions(0), measure: Length::Transactions(500), seed: 1 };
/// let measured = run::run(&database, workload, &plan, &mut Unwatched, |measured| measured).await?;
/// assert_eq!(measured.types[0].name, "update");
/// # Ok::<(), engine::Error>(())
/// # });
/// # executor.stop();
/// # done.expect("the machine goes on").expect("the run ends");
/// ```
#[derive(Clone, Debug)]
pub struct Synthetic {
    model: Model,
    laws: Laws,
    tables: Vec<PartitionId>,
    /// Where types differ from the hardware's description: what each type's steps cost.
    prices: Option<Vec<Prices>>,
}

/// What a type's steps cost, in instructions.
#[derive(Clone, Copy, Debug)]
struct Prices {
    begin: u64,
    reference: u64,
    end: u64,
}

impl Synthetic {
    /// Finds the model's partitions in the database, creating those that are missing as `spec` says (of these direct
    /// organizations: [`super::Partition::organization`]).
    ///
    /// # Errors
    /// [`Error::Unsuitable`] if a partition exists with other objects or another blocking factor; else the engine's.
    pub async fn prepare(
        database: &Database,
        model: Model,
        spec: impl Fn(&super::Partition) -> Result<PartitionSpec>,
    ) -> Result<Synthetic> {
        let mut tables = Vec::new();
        for partition in &model.partitions {
            tables.push(match database.partition(&partition.name) {
                Ok(id) => same(database, id, partition)?,
                Err(_) => database.create_partition(spec(partition)?).await?,
            });
        }
        Ok(Synthetic { laws: Laws::of(&model), model, tables, prices: None })
    }

    /// Lets each type charge what its steps cost: its own instructions or, where it gives none, these of the hardware
    /// (begin, reference and end of a transaction), whose description then has to price these steps at nothing.
    pub fn priced(mut self, hardware: [u64; 3]) -> Synthetic {
        let [begin, reference, end] = hardware;
        let prices = self.model.types.iter().map(|kind| {
            let Instructions { begin_transaction, object_reference, end_transaction } = kind.instructions;
            Prices {
                begin: begin_transaction.unwrap_or(begin),
                reference: object_reference.unwrap_or(reference),
                end: end_transaction.unwrap_or(end),
            }
        });
        self.prices = Some(prices.collect());
        self
    }

    /// The model.
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// The partitions, in the order of the model's.
    pub fn tables(&self) -> &[PartitionId] {
        &self.tables
    }
}

impl super::Partition {
    /// Its organization on pages of `page_size` bytes.
    pub fn organization(&self, page_size: u32) -> Organization {
        let (objects, blocking_factor) = (self.objects, self.blocking_factor);
        let record_size = self.record_size.unwrap_or_else(|| record_size(blocking_factor, page_size));
        Organization::Direct { objects, blocking_factor, record_size }
    }
}

/// The bytes per object where the model gives none: eight, or as many as fit.
pub(crate) fn record_size(blocking_factor: u32, page_size: u32) -> u32 {
    let room = page_size.saturating_sub(engine::page::HEADER_SIZE as u32);
    (room / blocking_factor.max(1)).clamp(1, 8)
}

/// The partition, if it is what the model describes.
fn same(database: &Database, id: PartitionId, partition: &super::Partition) -> Result<PartitionId> {
    let present = database.describe(id)?.organization;
    let (objects, factor) = (partition.objects, partition.blocking_factor);
    match present {
        Organization::Direct { objects: had, blocking_factor, .. } if had == objects && blocking_factor == factor => {
            Ok(id)
        }
        _ => Err(Error::Unsuitable(format!(
            "the database has another partition '{}' than one of {objects} objects, {factor} on a page; name another \
             directory or correct the workload",
            partition.name
        ))),
    }
}

/// What a write does to an object: it counts.
pub(crate) fn touch(object: &mut [u8]) {
    for byte in object {
        *byte = byte.wrapping_add(1);
        if *byte != 0 {
            break;
        }
    }
}

impl Workload for Synthetic {
    type Input = Input;

    fn draw(&self, random: &mut Random) -> Input {
        self.laws.transaction(&self.model, random)
    }

    async fn run(&self, tx: &mut Transaction, input: &Input) -> Result<()> {
        let executor = tx.executor().whole().clone();
        let prices = self.prices.as_ref().map(|prices| prices[input.kind]);
        if let Some(prices) = prices {
            executor.charge_instructions(prices.begin);
            executor.pay_debt().await;
        }
        for ObjectReference { partition, object, write } in &input.references {
            if let Some(prices) = prices {
                executor.charge_instructions(prices.reference);
            }
            let table = self.tables[*partition];
            if *write {
                tx.modify_object(table, *object, touch).await?;
            } else {
                tx.read_object(table, *object, |_| ()).await?;
            }
        }
        if let Some(prices) = prices {
            // Paid when the commit pays for itself.
            executor.charge_instructions(prices.end);
        }
        Ok(())
    }

    fn types(&self) -> Vec<String> {
        self.model.types.iter().map(|kind| kind.name.clone()).collect()
    }

    fn type_of(&self, input: &Input) -> usize {
        input.kind
    }
}
