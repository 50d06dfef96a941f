//! What the other crates of the house do with a node, and users of the library do not.

use super::PageClient;
use crate::lease::Lapses;
use crate::message::{ClientId, Session};
use crate::outbox::Traffic;
use base::PartitionId;
use engine::buffer::Buffer;
use std::rc::Rc;

/// A node seen from inside: its buffer and its connections. The library exports no such name, so it is no part of what its users may rely on.
#[doc(hidden)]
pub trait NodeInternals {
    /// Its name at the server, for as long as the present connection lasts.
    fn id(&self) -> ClientId;

    /// Its session at the server.
    fn session(&self) -> Session;

    /// How often copies might not be used while there were some, until now.
    fn lapses(&self) -> Lapses;

    /// Its buffer.
    fn buffer(&self) -> &Rc<Buffer>;

    /// What it has sent.
    fn traffic(&self) -> &Traffic;

    /// On how many connections other clients may send pages here: those that have not yet sent one that is wanted, and those that have.
    fn callers(&self) -> (usize, usize);

    /// To how many other clients it has connections, or is making them.
    fn peers(&self) -> usize;

    /// Makes the pages of a partition of the server's database known here.
    fn attach(&self, partition: PartitionId);
}

impl NodeInternals for PageClient {
    fn id(&self) -> ClientId {
        self.session().client
    }

    fn session(&self) -> Session {
        self.0.protocol.borrow().session().expect("it has joined")
    }

    fn lapses(&self) -> Lapses {
        self.0.lapses.get()
    }

    fn buffer(&self) -> &Rc<Buffer> {
        &self.0.buffer
    }

    fn traffic(&self) -> &Traffic {
        &self.0.traffic
    }

    fn callers(&self) -> (usize, usize) {
        self.0.callers.count()
    }

    fn peers(&self) -> usize {
        self.0.peers.len()
    }

    fn attach(&self, partition: PartitionId) {
        self.0.attach(partition);
    }
}
