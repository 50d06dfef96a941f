//! Pages from client to client: each has a connection to those that it was told to send pages to, for as long as they are there.

use super::ClientNode;
use crate::channel::{Channel, Transport};
use crate::message::{ClientId, Copy, LeavingFate, Secret, Session, ToPeer};
use crate::outbox::{Outbox, TO_PEER_MAX, Traffic};
use base::time::SECOND_NS;
use engine::page::header;
use executor::Executor;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::pin::pin;
use std::rc::{Rc, Weak};

/// The connections to other clients.
pub(super) struct Peers {
    executor: Executor,
    transport: Rc<dyn Transport>,
    traffic: Rc<Traffic>,
    size_min: usize,
    outboxes: RefCell<BTreeMap<PeerPlace, Peer>>,
}

/// Where another client is, and the name that it has to prove there.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct PeerPlace {
    pub address: SocketAddr,
    pub name: Option<String>,
}

enum Peer {
    /// Pages wait for the connection.
    Connecting(Vec<(ClientId, ToPeer)>),
    Connected(Rc<Outbox>),
}

/// The most pages that wait for one connection. The server is told at once that more cannot be sent.
const PAGES_MAX: usize = 64;
/// How long a client may take to accept a connection, in nanoseconds.
const CONNECTING_NS: u64 = 2 * SECOND_NS;

impl Peers {
    pub fn new(executor: &Executor, transport: Rc<dyn Transport>, traffic: &Rc<Traffic>, size_min: usize) -> Peers {
        let (executor, traffic) = (executor.clone(), Rc::clone(traffic));
        Peers { executor, transport, traffic, size_min, outboxes: RefCell::default() }
    }

    /// Sends a page to another client, connecting to it first if need be. If that cannot be, the server is told so.
    pub fn send(&self, client: &Rc<ClientNode>, (to, place): (ClientId, PeerPlace), message: ToPeer) {
        let mut outboxes = self.outboxes.borrow_mut();
        match outboxes.get_mut(&place) {
            Some(Peer::Connected(outbox)) if !outbox.is_closed() => outbox.push(&message),
            Some(Peer::Connecting(waiting)) if waiting.len() < PAGES_MAX => waiting.push((to, message)),
            Some(Peer::Connecting(_)) => self.refuse(client, to, &message),
            Some(Peer::Connected(_)) | None => {
                outboxes.insert(place.clone(), Peer::Connecting(vec![(to, message)]));
                self.executor.spawn(connect(Rc::downgrade(client), place));
            }
        }
    }

    fn refuse(&self, client: &ClientNode, to: ClientId, message: &ToPeer) {
        let ToPeer::Page { copy, .. } = message;
        client.refuse(*copy, to);
    }

    /// To how many clients there are connections, or are to be.
    pub fn len(&self) -> usize {
        self.outboxes.borrow().len()
    }

    /// Nothing is sent any more.
    pub fn close(&self) {
        for peer in self.outboxes.borrow().values() {
            if let Peer::Connected(outbox) = peer {
                outbox.close();
            }
        }
    }

    fn connected(&self, client: &Rc<ClientNode>, place: PeerPlace, channel: Rc<dyn Channel>) {
        let outbox = Outbox::new(&self.executor, Rc::clone(&channel), &self.traffic, (self.size_min, TO_PEER_MAX));
        let before = self.outboxes.borrow_mut().insert(place.clone(), Peer::Connected(Rc::clone(&outbox)));
        if let Some(Peer::Connecting(waiting)) = before {
            waiting.iter().for_each(|(_, message)| outbox.push(message));
        }
        self.executor.spawn(watch(Rc::downgrade(client), (place, outbox), channel));
    }

    fn forget(&self, place: &PeerPlace, gone: &Rc<Outbox>) {
        let mut outboxes = self.outboxes.borrow_mut();
        if matches!(outboxes.get(place), Some(Peer::Connected(outbox)) if Rc::ptr_eq(outbox, gone)) {
            outboxes.remove(place);
        }
    }
}

/// Waits for the end of a connection. Nothing is said on it to this side, so whatever comes is that.
async fn watch(client: Weak<ClientNode>, (place, outbox): (PeerPlace, Rc<Outbox>), channel: Rc<dyn Channel>) {
    let mut ended = pin!(outbox.ended());
    let mut nothing = Vec::new();
    let _end = Outbox::unless_ended(&mut ended, channel.receive(&mut nothing)).await;
    outbox.close();
    if let Some(client) = client.upgrade() {
        client.peers.forget(&place, &outbox);
    }
}

async fn connect(client: Weak<ClientNode>, place: PeerPlace) {
    let Some(inner) = client.upgrade() else { return };
    let (transport, executor) = (Rc::clone(&inner.peers.transport), inner.executor.clone());
    drop(inner);
    let connected = executor.within(CONNECTING_NS, transport.connect(place.address, place.name.as_deref())).await;
    let Some(inner) = client.upgrade() else { return };
    match connected {
        Some(Ok(channel)) => inner.peers.connected(&inner, place, channel),
        Some(Err(_)) | None => {
            let before = inner.peers.outboxes.borrow_mut().remove(&place);
            let Some(Peer::Connecting(waiting)) = before else { return };
            waiting.iter().for_each(|(to, page)| inner.peers.refuse(&inner, *to, page));
        }
    }
}

impl ClientNode {
    /// Sends another client a page, or says that this cannot be done.
    pub(super) fn forward(
        self: &Rc<Self>,
        (copy, wanted): (Copy, u64),
        (to, place, secret): (ClientId, PeerPlace, Secret),
        fate: LeavingFate,
    ) {
        let theirs = Copy { page: copy.page, number: wanted };
        let bytes = self.protocol.borrow().may_send(copy).then(|| self.bytes_of(copy)).flatten();
        match bytes {
            Some(bytes) => {
                let Some(own) = self.protocol.borrow().session() else { return };
                let addressee = Session { epoch: own.epoch, client: to };
                let page = ToPeer::Page { to: addressee, secret, copy: theirs, bytes, fate };
                self.peers.send(self, (to, place), page);
                self.note_sent(copy);
            }
            None => self.refuse(theirs, to),
        }
    }

    fn refuse(&self, theirs: Copy, to: ClientId) {
        let refused = self.protocol.borrow_mut().refuse(theirs, to);
        self.say(&refused);
    }

    /// The bytes of a copy, sealed, from where they are.
    fn bytes_of(&self, copy: Copy) -> Option<Vec<u8>> {
        if let Some(kept) = self.kept.borrow().get(&copy) {
            return Some(kept.clone());
        }
        let pool = self.buffer.pool().borrow();
        let mut bytes = pool.bytes(pool.frame_of(copy.page)?).to_vec();
        header::seal(&mut bytes);
        Some(bytes)
    }
}
