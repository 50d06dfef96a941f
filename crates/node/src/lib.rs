//! Several nodes, one database, all memories: a page server and its clients (Franklin, Carey, Livny, VLDB 1992).
//!
//! A node is an engine on one core. The server has the disks and the log; clients run transactions on copies of pages, which they keep
//! across transactions, and get pages from the server's memory, from each other's, or from the server's disk.
//!
//! The protocol is two plain state machines, [`server::Server`] and [`client::Client`], which know no connection, no clock and no
//! memory. What is between nodes is [`message`]s.

pub mod algorithm;
pub mod client;
pub mod message;
pub mod server;
