//! Several nodes, one database, all memories: a page server and its clients (Franklin, Carey, Livny, VLDB 1992).
//!
//! A node is an engine on one core. The server has the disks and the log; clients run transactions on copies of pages, which they keep
//! across transactions, and get pages from the server's memory, from each other's, or from the server's disk.
//!
//! The protocol is two plain state machines, [`server::Server`] and [`client::Client`], which know no connection, no clock and no
//! memory. What is between nodes is [`message`]s. [`page_server::PageServer`] and [`page_client::PageClient`] are the same above engines,
//! over any [`channel::Transport`].
//!
//! # Another transport
//!
//! What encrypts and authenticates implements [`channel::Transport`] over [`channel::Bare`]: `connect` and `accept` shake hands and
//! give a [`channel::Channel`] whose bytes are sealed and opened on the way. A peer that is not who it should be is an error of
//! `connect`, and never comes out of `accept`. Limits of what a stranger may cost before that belong there; those of messages are
//! in [`message`].

pub mod algorithm;
pub mod channel;
pub mod client;
pub mod grants;
pub mod leaf_records;
pub mod lease;
pub mod message;
mod outbox;
pub mod page_client;
pub mod page_server;
pub mod server;
pub mod survey;

pub use outbox::{Amount, Traffic};
