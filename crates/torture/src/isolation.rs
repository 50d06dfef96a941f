//! Clients that meet on a few records of every organization, at the levels of isolation, and record what they are shown:
//! [`crate::history`] finds the anomalies.
//!
//! A restart comes in as a transaction that reads everything. What was acknowledged was so before that began, and what was in
//! doubt is decided by what it shows; so a lost commit, or half a one, is an anomaly like any other.

mod actor;
mod client;
mod contention;
mod everything;
mod flood;
mod reader;
mod store;

pub use client::client;
pub use contention::Contention;
pub use everything::{load, read};
pub use flood::flood;
pub use store::Store;
