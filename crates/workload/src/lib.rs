//! Workloads, the clients that run them, and what a run measures.

pub mod debit_credit;
pub mod point_reads;
pub mod run;

pub use run::{Length, Load, Measured, Plan, TypeMeasured, Watch, Workload};
