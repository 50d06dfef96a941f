//! Workloads, the clients that run them, and what a run measures.

pub mod at_node;
pub mod credit_card;
pub mod debit_credit;
#[cfg(test)]
mod ground;
pub mod page_server;
pub mod page_stream;
pub mod point_reads;
mod record_transaction;
pub mod run;
pub mod snapshot_readers;
pub mod synthetic;
pub mod tpcc;
pub mod trace;
pub mod update_commit;
pub mod ycsb;

pub use at_node::{AtNode, MeasuredAtNode, NodePlan};
pub use record_transaction::RecordTransaction;
pub use run::{Length, Load, Measured, Plan, Steady, TypeMeasured, Unwatched, WarmUp, Watch, Window, Workload};

/// What a name of a partition or of a type of transactions is, in messages.
const NAME_RULE: &str = "is no name; allowed are 1 to 64 of the characters a-z A-Z 0-9 _ -, a letter first";

/// Whether `name` may name a partition or a type of transactions.
fn is_name(name: &str) -> bool {
    name.len() <= 64
        && name.starts_with(|c: char| c.is_ascii_alphabetic())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-')
}
