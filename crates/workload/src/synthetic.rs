//! The general synthetic workload of Rahm 1991, section 3.1 and table 3.1.
//!
//! A database of partitions, each with objects, a blocking factor and subpartitions (the generalized b/c rule: relative
//! sizes and access probabilities, uniform within each); types of transactions with arrival rate, number of objects (fixed
//! or exponentially distributed), write probability, sequential access or not, instructions; and the relative reference
//! matrix, which says what share of a type's references goes to which partition.
//!
//! [`Model::parse`] reads such a workload from TOML; [`Model::REFERENCE`] is the whole format as a commented file:
//!
//! ```
//! use entresol_workload::synthetic::Model;
//! let model = Model::parse(Model::REFERENCE, "reference.toml")?;
//! assert_eq!(model.types[0].name, "browse");
//! let wrong = Model::RAHM_1991_CONTENTION.replace("large = 0.2", "big = 0.2");
//! let error = Model::parse(&wrong, "w.toml").unwrap_err();
//! assert_eq!(error.to_string(), "w.toml:22: there is no partition 'big'; known are large, small");
//! # Ok::<(), entresol_workload::synthetic::DescriptionError>(())
//! ```

mod description;
mod draw;
mod transaction;

pub use description::DescriptionError;
pub use draw::{Input, ObjectReference};
pub use transaction::Synthetic;
pub(crate) use transaction::{record_size, touch};

use engine::catalog::Locking;

/// A synthetic workload.
///
/// ```
/// use entresol_workload::synthetic::Model;
///
/// let text = r#"
///     [partition.stock]
///     objects = 10_000
///     blocking_factor = 10
///     subpartitions = [{ size = 80, access = 20 }, { size = 20, access = 80 }]
///
///     [type.order]
///     arrival_rate = 50
///     size = 5
///     write_probability = 0.4
///     references = { stock = 1 }
/// "#;
/// let model = Model::parse(text, "orders.toml")?;
/// assert_eq!((model.rate_per_s(), model.partitions[0].objects), (50.0, 10_000));
///
/// let error = Model::parse(&text.replace("{ stock = 1 }", "{ stick = 1 }"), "orders.toml").unwrap_err();
/// assert!(error.to_string().contains("stick"), "{error}");
/// # Ok::<(), entresol_workload::synthetic::DescriptionError>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Model {
    /// The partitions, in ascending order of names.
    pub partitions: Vec<Partition>,
    /// The types of transactions, in ascending order of names.
    pub types: Vec<TransactionType>,
}

/// `[partition.NAME]`: objects of fixed size, found by number.
#[derive(Clone, Debug, PartialEq)]
pub struct Partition {
    /// Its name.
    pub name: String,
    /// `objects`: how many it has (NumObjects).
    pub objects: u64,
    /// `blocking_factor`: how many of them are on a page (BlockFactor).
    pub blocking_factor: u32,
    /// `locks`: what transactions lock, written `"page"`, `"object"` or `"none"`; `None` leaves it to the configuration.
    pub locks: Option<Locking>,
    /// `record_size`: bytes per object; `None`: as many as fit, but at most eight.
    pub record_size: Option<u32>,
    /// `subpartitions`: how references spread over the objects; one of all objects if left out.
    pub subpartitions: Vec<Subpartition>,
}

/// A part of a partition within which all objects are referenced equally often.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Subpartition {
    /// `size`: its share of the objects, in any unit that all of the partition's have.
    pub size: f64,
    /// `access`: its share of the references, in any unit that all of the partition's have.
    pub access: f64,
}

/// `[type.NAME]`: one type of transactions.
#[derive(Clone, Debug, PartialEq)]
pub struct TransactionType {
    /// Its name.
    pub name: String,
    /// `arrival_rate`: transactions per second (ArrRate). Where a run has another total, the shares of it.
    pub rate_per_s: f64,
    /// `size`: the mean number of objects that one references (TxSize).
    pub size: f64,
    /// `variable_size`: whether the number is exponentially distributed about that mean (VarSize). Numbers are whole and at
    /// least one, so the law is the exponential's discrete counterpart, the geometric one, of the same mean.
    pub variable_size: bool,
    /// `write_probability`: the share of references that change the object (WriteProb), 0 to 1.
    pub write_probability: f64,
    /// `sequential`: whether a transaction references consecutive objects of one partition (Sequentiality). Behind the last
    /// object comes the first.
    pub sequential: bool,
    /// `references`: the type's row of the relative reference matrix (RefMatrix): a share for each of [`Model::partitions`],
    /// in any unit.
    pub references: Vec<f64>,
    /// `instructions`: what its steps cost on described hardware, where that differs from the hardware's own description.
    pub instructions: Instructions,
}

/// Mean numbers of instructions; `None`: as the hardware's description says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Instructions {
    /// `begin_transaction`: begin of transaction.
    pub begin_transaction: Option<u64>,
    /// `object_reference`: each object reference.
    pub object_reference: Option<u64>,
    /// `end_transaction`: end of transaction.
    pub end_transaction: Option<u64>,
}

impl Model {
    /// The whole format as a commented file.
    pub const REFERENCE: &'static str = include_str!("../workloads/reference.toml");

    /// The workload of Rahm 1991, section 4.7: contention for locks between transactions of one type.
    pub const RAHM_1991_CONTENTION: &'static str = include_str!("../workloads/rahm-1991-contention.toml");

    /// All arrivals per second.
    pub fn rate_per_s(&self) -> f64 {
        self.types.iter().map(|kind| kind.rate_per_s).sum()
    }

    /// Whether types say themselves what their steps cost. Then the described hardware's own prices of begin, reference and
    /// end of transactions have to be zero, and are handed to [`Synthetic::priced`], which charges for all types.
    pub fn has_instructions(&self) -> bool {
        self.types.iter().any(|kind| kind.instructions != Instructions::default())
    }
}

#[cfg(test)]
mod tests;
