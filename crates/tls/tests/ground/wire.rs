//! A wire that is listened to, and changes what it carries.

use driver::Fault;
use node::channel::{Acceptor, Channel, Future, Plain, Transport};
use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::rc::Rc;

/// What is done to a wire, on the side that connects.
#[derive(Default)]
pub struct Tap {
    /// All that has been received there.
    pub received: RefCell<Vec<u8>>,
    /// All that was sent from there.
    pub sent: RefCell<Vec<u8>>,
    /// Whether a bit of the next bytes to be received is changed.
    pub changes: Cell<bool>,
    /// Whether the connection seems to have ended.
    pub cuts: Cell<bool>,
}

/// Connects over a wire with a tap.
pub struct Tapped<T>(pub T, pub Rc<Tap>);

struct Wire(Rc<dyn Channel>, Rc<Tap>);

impl<T: Transport> Transport for Tapped<T> {
    fn listen(&self, address: SocketAddr) -> Future<'_, Result<Rc<dyn Acceptor>, Fault>> {
        self.0.listen(address)
    }

    fn connect<'a>(&'a self, address: SocketAddr, name: Option<&'a str>) -> Future<'a, Result<Rc<dyn Channel>, Fault>> {
        Box::pin(async move {
            let channel = self.0.connect(address, name).await?;
            Ok(Rc::new(Wire(channel, Rc::clone(&self.1))) as Rc<dyn Channel>)
        })
    }
}

impl Channel for Wire {
    fn send<'a>(&'a self, bytes: &'a [u8]) -> Future<'a, Result<(), Fault>> {
        self.1.sent.borrow_mut().extend_from_slice(bytes);
        self.0.send(bytes)
    }

    fn shutdown(&self) -> Future<'_, Result<(), Fault>> {
        self.0.shutdown()
    }

    fn receive<'a>(&'a self, into: &'a mut Vec<u8>) -> Future<'a, Result<usize, Fault>> {
        Box::pin(async move {
            let before = into.len();
            let count = self.0.receive(into).await?;
            if self.1.cuts.get() {
                into.truncate(before);
                return Ok(0);
            }
            if count > 0 && self.1.changes.take() {
                into[before + count / 2] ^= 4;
            }
            self.1.received.borrow_mut().extend_from_slice(&into[before..]);
            Ok(count)
        })
    }

    fn peer_name(&self) -> Option<&str> {
        self.0.peer_name()
    }
}

/// A plain wire with a tap.
#[allow(dead_code, reason = "not every test is below TLS")]
pub fn tapped(executor: &executor::Executor) -> (Rc<dyn Transport>, Rc<Tap>) {
    let tap = Rc::<Tap>::default();
    (Rc::new(Tapped(Plain(executor.for_users()), Rc::clone(&tap))), tap)
}

/// Whether the bytes are somewhere among these.
pub fn has(bytes: &[u8], sought: &[u8]) -> bool {
    bytes.windows(sought.len()).any(|window| window == sought)
}
