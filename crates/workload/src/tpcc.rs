//! TPC-C (TPC Benchmark C, revision 5.11): orders of a wholesale supplier, in five types of transactions on nine tables.
//!
//! The tables are b-trees whose keys are the columns of the primary key, the history is appended to. Two more b-trees find customers
//! by their last name and the orders of a customer. Clients stand for terminals without keying and thinking times; each
//! transaction draws its home warehouse. The types are drawn with the weights 45, 43, 4, 4, 4 (clause 5.2.4.2).

mod delivery;
pub mod input;
pub mod keys;
mod load;
mod new_order;
mod order_status;
mod payment;
mod population;
pub mod rows;
mod stock_level;
#[cfg(test)]
mod tests;
mod verify;

pub use input::Input;
pub use load::{Records, history, load, records};
pub use verify::{Rows, Violation, verify, violations};

use crate::run::Workload;
use crate::{AtNode, RecordTransaction};
use base::{PartitionId, Random};
use engine::{Catalog, Database, Direction, Error, Result, Transaction};
use node::page_client::{PageClient, PageTransaction};

/// The b-trees, in the order in which they are loaded.
pub const TREES: [&str; 10] = [
    "warehouse",
    "district",
    "customer",
    "customer-name",
    "new-order",
    "order",
    "customer-order",
    "order-line",
    "item",
    "stock",
];
/// The partition that payments append to.
pub const HISTORY: &str = "history";

/// How large the database is. The benchmark's own sizes are [`Scale::warehouses`]; smaller ones are for tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scale {
    /// Warehouses.
    pub warehouses: u32,
    /// Districts of each warehouse.
    pub districts: u32,
    /// Customers of each district, and as many orders at the beginning.
    pub customers: u32,
    /// Items, each of which every warehouse stocks.
    pub items: u32,
}

impl Scale {
    /// The benchmark's cardinalities (clause 1.2.1).
    ///
    /// ```
    /// let scale = entresol_workload::tpcc::Scale::warehouses(10);
    /// assert_eq!((scale.districts, scale.customers, scale.items), (10, 3_000, 100_000));
    /// ```
    pub fn warehouses(warehouses: u32) -> Scale {
        Scale { warehouses, districts: 10, customers: 3_000, items: 100_000 }
    }

    /// This size with `factor` times fewer customers and items, at least what the transactions need: for trials, not by the
    /// rules.
    pub fn shrunk(self, factor: u32) -> Scale {
        Scale { customers: (self.customers / factor).max(30), items: (self.items / factor).max(100), ..self }
    }

    /// Orders of a district that are not delivered at the beginning: the last 900 of 3,000.
    fn undelivered(&self) -> u32 {
        self.customers * 3 / 10
    }

    /// Records that a load makes in b-trees, order lines by their mean.
    pub fn records(&self) -> u64 {
        let [warehouses, districts, customers, items] =
            [self.warehouses, self.districts, self.customers, self.items].map(u64::from);
        let per_district = 1 + 14 * customers + u64::from(self.undelivered());
        warehouses * (1 + districts * per_district + items) + items
    }
}

/// The partitions, ready for transactions.
#[derive(Clone, Debug)]
pub struct Tables {
    warehouse: PartitionId,
    district: PartitionId,
    customer: PartitionId,
    customer_name: PartitionId,
    new_order: PartitionId,
    order: PartitionId,
    customer_order: PartitionId,
    order_line: PartitionId,
    item: PartitionId,
    stock: PartitionId,
    history: PartitionId,
}

impl Tables {
    /// Finds the partitions.
    ///
    /// # Errors
    /// [`engine::Error::NoPartition`].
    pub fn of(catalog: &Catalog) -> Result<Tables> {
        let found = TREES.iter().chain([&HISTORY]).map(|name| catalog.partition(name));
        Ok(Tables::in_order(&found.collect::<Result<Vec<_>>>()?))
    }

    /// Finds the partitions at a node's server.
    ///
    /// # Errors
    /// [`engine::Error::NoPartition`]; those of a server that is lost.
    pub async fn at_node(client: &PageClient) -> Result<Tables> {
        let mut found = Vec::new();
        for name in TREES.iter().chain([&HISTORY]) {
            found.push(client.partition(name).await?.id());
        }
        Ok(Tables::in_order(&found))
    }

    /// The trees in the order of [`TREES`], and the history behind them.
    fn in_order(found: &[PartitionId]) -> Tables {
        Tables {
            warehouse: found[0],
            district: found[1],
            customer: found[2],
            customer_name: found[3],
            new_order: found[4],
            order: found[5],
            customer_order: found[6],
            order_line: found[7],
            item: found[8],
            stock: found[9],
            history: found[10],
        }
    }

    /// How large the database is, as a transaction sees it.
    ///
    /// # Errors
    /// The engine's; [`engine::Error::NoRecord`] of a table that is empty.
    pub async fn scale(&self, tx: &mut impl RecordTransaction) -> Result<Scale> {
        let warehouses = last(tx, (self.warehouse, "warehouse")).await?;
        let districts = last(tx, (self.district, "district")).await?;
        let customers = last(tx, (self.customer, "customer")).await?;
        let items = last(tx, (self.item, "item")).await?;
        Ok(Scale {
            warehouses: keys::number(&warehouses, 0),
            districts: keys::District::of(&districts).number.into(),
            customers: keys::number(&customers, 5),
            items: keys::number(&items, 0),
        })
    }
}

/// The last key of a table.
async fn last(tx: &mut impl RecordTransaction, (table, name): (PartitionId, &str)) -> Result<Vec<u8>> {
    let mut last = None;
    let note = |key: &[u8], _: &[u8]| {
        last = Some(key.to_vec());
        false
    };
    tx.look_at_range(table, .., Direction::Backward, note).await?;
    last.ok_or_else(|| Error::NoRecord(name.to_owned()))
}

impl Tables {
    /// Runs a transaction.
    async fn run(&self, tx: &mut impl RecordTransaction, input: &Input) -> Result<()> {
        match input {
            Input::NewOrder(input) => new_order::run(self, tx, input).await,
            Input::Payment(input) => payment::run(self, tx, input).await,
            Input::OrderStatus(input) => order_status::run(self, tx, input).await.map(drop),
            Input::Delivery(input) => delivery::run(self, tx, input).await.map(drop),
            Input::StockLevel(input) => stock_level::run(self, tx, input).await.map(drop),
        }
    }
}

/// Whether the database holds the partitions.
pub fn exists(database: &Database) -> bool {
    TREES.iter().chain([&HISTORY]).all(|name| database.partition(name).is_ok())
}

/// How large the database is.
///
/// # Errors
/// The engine's.
pub async fn scale(database: &Database) -> Result<Scale> {
    let tables = Tables::of(database.catalog())?;
    database.transaction(async |tx| tables.scale(tx).await).await
}

/// TPC-C as a workload that [`crate::run::run`] runs.
pub struct Tpcc {
    /// Its partitions.
    pub tables: Tables,
    /// Its size.
    pub scale: Scale,
}

impl Workload for Tpcc {
    type Input = Input;

    fn draw(&self, random: &mut Random) -> Input {
        Input::draw(&self.scale, random)
    }

    async fn run(&self, tx: &mut Transaction, input: &Input) -> Result<()> {
        self.tables.run(tx, input).await
    }

    fn types(&self) -> Vec<String> {
        ["new-order", "payment", "order-status", "delivery", "stock-level"].map(str::to_owned).to_vec()
    }

    fn type_of(&self, input: &Input) -> usize {
        match input {
            Input::NewOrder(_) => 0,
            Input::Payment(_) => 1,
            Input::OrderStatus(_) => 2,
            Input::Delivery(_) => 3,
            Input::StockLevel(_) => 4,
        }
    }
}

impl AtNode for Tpcc {
    async fn run_at_node(&self, tx: &mut PageTransaction, input: &Input) -> Result<()> {
        self.tables.run(tx, input).await
    }
}
