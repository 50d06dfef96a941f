//! The loads of Franklin, Carey and Livny (VLDB 1992): transactions of clients on the pages of a server, each client with a hot region of
//! its own or without any.
//!
//! Each client is a machine and runs one transaction after the other. A transaction references pages, each once; what the
//! processing of a page takes is drawn from an exponential distribution, once for a page that is read and once more for one that is
//! written. A deadlock's victim is run again with the same references.
//!
//! Server and clients are the same on both clocks: [`run`] has them on described machines, and programs of this machine make them of the
//! parts that it uses.

mod client;
mod draw;
mod measured;
mod run;
mod server;

pub use client::{ClientLoad, ClientTotals, Processing, client_settings};
pub use draw::{PageReference, Pattern, references};
pub use measured::{ClientCounts, Figures, ServerCounts};
pub use node::algorithm::CHANCES;
pub use run::{Machines, run};
pub use server::{Served, in_memory_ratio, resident, server_settings};

/// The names of the algorithms.
pub const ALGORITHMS: [&str; 8] = ["cbl", "fwd", "fwd-h", "fwd-s", "fwd-hs", "adaptive", "n-chance", "ps-aa"];
/// How many pages the database has (table 4 of the paper).
pub const DATABASE_PAGES: u32 = 1250;
/// The mean number of pages that a transaction references: half of them to half as many more.
pub const TRANSACTION_PAGES: u64 = 20;
/// The pages of a client's hot region.
pub const HOT_PAGES: u32 = 50;
/// How many references go there.
pub const HOT_PROBABILITY: f64 = 0.8;
/// Instructions to process a page that is read; a page that is written takes them once more.
pub const PAGE_INSTRUCTIONS: f64 = 30_000.0;
/// The length of a message without pages, in bytes.
pub const CONTROL_MESSAGE: usize = 256;
/// The most clients: each has a hot region.
pub const CLIENTS_MAX: u32 = DATABASE_PAGES / HOT_PAGES;

/// What is run.
#[derive(Clone, Debug, PartialEq)]
pub struct PageServerModel {
    /// The server's algorithm, such as `fwd-h`.
    pub algorithm: String,
    /// How often that passes a page on to idle clients before one has used it.
    pub chances: u8,
    /// How many clients run transactions; `None`: all. The others have joined and are idle.
    pub working: Option<u32>,
    /// Which pages are referenced.
    pub pattern: Pattern,
    /// How many of the references write.
    pub write_probability: f64,
    /// How many pages a client's buffer holds.
    pub client_pages: u32,
    /// The described network that joins the machines.
    pub network: String,
    /// Whether commits carry the pages that they have changed, as in the paper.
    pub commits_pages: bool,
}

#[cfg(test)]
mod tests;
