//! Connections between nodes that are sealed, and of which both ends have proven who they are (TLS 1.3, RFC 8446).
//!
//! [`Tls`] is a [`Transport`](node::channel::Transport) over another: rustls turns bytes into bytes, and the transport below, which is
//! the engine's own driver, moves them. Nothing here waits for a socket.
//!
//! # Who is who
//!
//! One authority, which issues certificates for nothing else, says who belongs together. A node is known by the only DNS name in its
//! certificate, which grants refer to; a server by the name, or the address, under which it is sought. A node that is sent pages by
//! another has to prove the name that the server has told. A certificate with an extended key usage needs `clientAuth` for a node,
//! `serverAuth` for a server, and both for a node to which others send pages.
//!
//! Sessions are not resumed, so that each connection shows a certificate that is valid now.
//!
//! # What strangers cost
//!
//! See [`handshakes`](Tls::accepted): a limit of handshakes under way, of the time for each, and of the share of this thread's time that all of
//! them take. A peer that is not who it should be never gets as far as a message.

mod admission;
mod credentials;
mod names;
mod sealed;
mod transport;

pub use admission::{Refusals, SHARE, UNDER_WAY_MAX};
pub use credentials::{Files, TlsError};
pub use transport::{Options, Tls};
