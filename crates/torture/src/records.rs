//! Clients that each change their own records: keys and values of all sizes, savepoints, scans, abandoned calls. What each
//! wrote it alone changes, so it knows what it must find; what others wrote it reads, and remembers what it was shown.

mod client;
mod owner;

pub use client::client;
pub use owner::{Owner, RecordsByKey, owner_of};
