//! What the other crates of the house do with a page server, and users of the library do not.

use super::{Observer, PageServer};
use crate::outbox::Traffic;
use crate::server::Server;
use engine::Internals as _;
use engine::buffer::Buffer;
use std::cell::Ref;
use std::rc::Rc;

/// A page server seen from inside: its buffer, its messages and its protocol. The library exports no such name, so it is no part of what its
/// users may rely on.
#[doc(hidden)]
pub trait ServerInternals {
    /// The database's buffer.
    fn buffer(&self) -> &Rc<Buffer>;

    /// What it has sent.
    fn traffic(&self) -> &Traffic;

    /// Forgets what was counted: the end of a warm-up.
    fn restart_counts(&self);

    /// From now on this is told of each page that a client gets.
    fn observe(&self, observer: Observer);

    /// How many peers there are that have not said who they are.
    fn strangers(&self) -> usize;

    /// The memory that all of them together take with what they have sent, in bytes.
    fn strangers_bytes(&self) -> usize;

    /// The server's side of the protocol, to look at.
    fn protocol(&self) -> Ref<'_, Server>;
}

impl ServerInternals for PageServer {
    fn buffer(&self) -> &Rc<Buffer> {
        self.0.database.buffer()
    }

    fn traffic(&self) -> &Traffic {
        &self.0.traffic
    }

    fn restart_counts(&self) {
        self.0.protocol.borrow_mut().restart_counts();
        self.0.traffic.restart();
        self.0.received.borrow_mut().clear();
    }

    fn observe(&self, observer: Observer) {
        self.0.observer.replace(Some(observer));
    }

    fn strangers(&self) -> usize {
        self.0.strangers.borrow().len()
    }

    fn strangers_bytes(&self) -> usize {
        self.0.strangers.borrow().iter().map(|stranger| stranger.sent.get()).sum()
    }

    fn protocol(&self) -> Ref<'_, Server> {
        self.0.protocol.borrow()
    }
}
