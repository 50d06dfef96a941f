//! A transport whose ends know each other by name, as one that authenticates does: here the name comes from the address.

use driver::Fault;
use executor::Executor;
use node::channel::{Acceptor, Channel, Future, Plain, Transport};
use std::net::SocketAddr;
use std::rc::Rc;

/// [`Plain`] with names.
pub(super) struct Named(pub Executor);

/// The name of the machine with this number.
pub(super) fn name_of(machine: u32) -> String {
    format!("node-{machine}")
}

struct NamedAcceptor(Rc<dyn Acceptor>);

struct NamedChannel {
    inner: Rc<dyn Channel>,
    name: Option<String>,
}

impl Transport for Named {
    fn listen(&self, address: SocketAddr) -> Future<'_, Result<Rc<dyn Acceptor>, Fault>> {
        Box::pin(async move {
            let acceptor = Plain(self.0.clone()).listen(address).await?;
            Ok(Rc::new(NamedAcceptor(acceptor)) as Rc<dyn Acceptor>)
        })
    }

    fn connect<'a>(&'a self, address: SocketAddr, name: Option<&'a str>) -> Future<'a, Result<Rc<dyn Channel>, Fault>> {
        Box::pin(async move { Plain(self.0.clone()).connect(address, name).await })
    }
}

impl Acceptor for NamedAcceptor {
    fn address(&self) -> SocketAddr {
        self.0.address()
    }

    fn accept(&self) -> Future<'_, Result<Rc<dyn Channel>, Fault>> {
        Box::pin(async move {
            let inner = self.0.accept().await?;
            let machine = inner.peer_address().map(|peer| match peer {
                // Machines have the addresses from 10.0.0.1 on.
                SocketAddr::V4(peer) => (peer.ip().to_bits() & 0x00ff_ffff) - 1,
                SocketAddr::V6(_) => 0,
            });
            Ok(Rc::new(NamedChannel { inner, name: machine.map(name_of) }) as Rc<dyn Channel>)
        })
    }
}

impl Channel for NamedChannel {
    fn send<'a>(&'a self, bytes: &'a [u8]) -> Future<'a, Result<(), Fault>> {
        self.inner.send(bytes)
    }

    fn shutdown(&self) -> Future<'_, Result<(), Fault>> {
        self.inner.shutdown()
    }

    fn receive<'a>(&'a self, into: &'a mut Vec<u8>) -> Future<'a, Result<usize, Fault>> {
        self.inner.receive(into)
    }

    fn peer_address(&self) -> Option<SocketAddr> {
        self.inner.peer_address()
    }

    fn peer_name(&self) -> Option<&str> {
        self.name.as_deref()
    }
}
