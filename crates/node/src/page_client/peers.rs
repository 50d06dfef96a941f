//! Pages from client to client: each has a connection to those that it was told to send pages to.

use super::ClientNode;
use crate::channel::{Acceptor, Channel, Incoming, Transport, next_connection};
use crate::message::{ClientId, ToPeer};
use crate::outbox::{Outbox, Traffic};
use executor::Executor;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::rc::{Rc, Weak};

/// The connections to other clients.
pub(super) struct Peers {
    executor: Executor,
    transport: Rc<dyn Transport>,
    traffic: Rc<Traffic>,
    size_min: usize,
    outboxes: RefCell<BTreeMap<SocketAddr, Peer>>,
}

enum Peer {
    /// Pages wait for the connection.
    Connecting(Vec<(ClientId, ToPeer)>),
    Connected(Rc<Outbox>),
}

impl Peers {
    pub fn new(executor: &Executor, transport: Rc<dyn Transport>, traffic: &Rc<Traffic>, size_min: usize) -> Peers {
        let (executor, traffic) = (executor.clone(), Rc::clone(traffic));
        Peers { executor, transport, traffic, size_min, outboxes: RefCell::default() }
    }

    /// Sends a page to another client, connecting to it first if need be. If that cannot be, the server is told so.
    pub fn send(&self, client: &Rc<ClientNode>, (to, address): (ClientId, SocketAddr), message: ToPeer) {
        let mut outboxes = self.outboxes.borrow_mut();
        match outboxes.get_mut(&address) {
            Some(Peer::Connected(outbox)) if !outbox.is_closed() => outbox.push(&message),
            Some(Peer::Connecting(waiting)) => waiting.push((to, message)),
            Some(Peer::Connected(_)) | None => {
                outboxes.insert(address, Peer::Connecting(vec![(to, message)]));
                self.executor.spawn(connect(Rc::downgrade(client), address));
            }
        }
    }

    /// Nothing is sent any more.
    pub fn close(&self) {
        for peer in self.outboxes.borrow().values() {
            if let Peer::Connected(outbox) = peer {
                outbox.close();
            }
        }
    }

    fn connected(&self, address: SocketAddr, channel: Rc<dyn Channel>) {
        let outbox = Outbox::new(&self.executor, channel, &self.traffic, self.size_min);
        let before = self.outboxes.borrow_mut().insert(address, Peer::Connected(Rc::clone(&outbox)));
        if let Some(Peer::Connecting(waiting)) = before {
            waiting.iter().for_each(|(_, message)| outbox.push(message));
        }
    }
}

async fn connect(client: Weak<ClientNode>, address: SocketAddr) {
    let Some(inner) = client.upgrade() else { return };
    let transport = Rc::clone(&inner.peers.transport);
    drop(inner);
    let connected = transport.connect(address).await;
    let Some(inner) = client.upgrade() else { return };
    match connected {
        Ok(channel) => inner.peers.connected(address, channel),
        Err(_) => {
            let before = inner.peers.outboxes.borrow_mut().remove(&address);
            let Some(Peer::Connecting(waiting)) = before else { return };
            for (to, ToPeer::Page { copy, returns, .. }) in waiting {
                inner.refuse(copy, to, returns);
            }
        }
    }
}

/// Receives pages from other clients.
pub(super) async fn accept(client: Weak<ClientNode>, acceptor: Rc<dyn Acceptor>, executor: Executor) {
    while let Some(channel) = next_connection(&*acceptor, &executor).await {
        let (client, mut incoming) = (client.clone(), Incoming::new(&channel, &executor));
        executor.spawn(async move {
            while let Ok(Some(ToPeer::Page { to, copy, bytes, returns })) = incoming.next().await {
                let Some(client) = client.upgrade() else { return };
                if !client.arrive_from_peer(to, copy, (&bytes, returns)) {
                    return;
                }
            }
        });
    }
}
