//! A network on which peers have proven who they are.

use driver::Fault;
use entresol_node::channel::{Acceptor, Channel, Future, Plain, Transport};
use std::net::SocketAddr;
use std::rc::Rc;

/// Peers have proven names: those of their addresses.
pub struct Named<T>(pub T);

struct NamedChannel(Rc<dyn Channel>, Option<String>);

impl Transport for Named<Plain> {
    fn listen(&self, address: SocketAddr) -> Future<'_, Result<Rc<dyn Acceptor>, Fault>> {
        Box::pin(async move { Ok(Rc::new(Named(self.0.listen(address).await?)) as Rc<dyn Acceptor>) })
    }

    fn connect<'a>(&'a self, address: SocketAddr, name: Option<&'a str>) -> Future<'a, Result<Rc<dyn Channel>, Fault>> {
        self.0.connect(address, name)
    }
}

impl Acceptor for Named<Rc<dyn Acceptor>> {
    fn address(&self) -> SocketAddr {
        self.0.address()
    }

    fn accept(&self) -> Future<'_, Result<Rc<dyn Channel>, Fault>> {
        Box::pin(async move {
            let channel = self.0.accept().await?;
            let name = channel.peer_address().map(|peer| peer.ip().to_string());
            Ok(Rc::new(NamedChannel(channel, name)) as Rc<dyn Channel>)
        })
    }
}

impl Channel for NamedChannel {
    fn send<'a>(&'a self, bytes: &'a [u8]) -> Future<'a, Result<(), Fault>> {
        self.0.send(bytes)
    }

    fn shutdown(&self) -> Future<'_, Result<(), Fault>> {
        self.0.shutdown()
    }

    fn receive<'a>(&'a self, into: &'a mut Vec<u8>) -> Future<'a, Result<usize, Fault>> {
        self.0.receive(into)
    }

    fn peer_name(&self) -> Option<&str> {
        self.1.as_deref()
    }
}
