//! The store: pages, buffer, log, locks, organizations, checkpoints, recovery, transactions.
//!
//! The engine never names a driver. All that it does outside its own memory goes through the executor to whatever driver
//! that runs on.

pub mod error;
pub mod lock;
pub mod log;
pub mod organization;
pub mod page;

pub use error::{Error, Need, Result};
