//! What every floor of the house shares: instants, identities, units, seeded random numbers and statistics.
//!
//! This crate uses no other crate of the workspace and makes no system call.

pub mod calendar;
pub mod canary;
pub mod identity;
pub mod random;
pub mod statistics;
pub mod time;
pub mod units;
pub mod varint;

pub use identity::{Lsn, PageId, PartitionId, TransactionId};
pub use random::Random;
pub use time::{Clock, Instant};
