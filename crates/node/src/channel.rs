//! What messages travel on: a stream of bytes in each direction.
//!
//! Nodes reach each other through [`Transport`] alone. The plain one is the executor's own connections, over a real or a virtual network
//! and over the loopback. One that encrypts wraps it: it connects and accepts as the plain one does, shakes hands, and gives
//! [`Channel`]s whose bytes it seals and opens. Nothing above this room knows the difference.

pub mod threads;

use crate::message::{MessageError, SIZE_MAX, decode, frame_size};
use crate::outbox::Outbox;
use base::time::MILLISECOND_NS;
use driver::{Fault, FaultKind};
pub use engine::page_store::Future;
use executor::{Connection, Executor, Listener, UserExecutor, WaitQueue, WholeExecutor};
use serde::de::DeserializeOwned;
use std::cell::Cell;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::pin::pin;
use std::rc::Rc;
use thiserror::Error;

/// A connection to another node.
pub trait Channel {
    /// Sends bytes behind all that was sent before. One task sends at a time.
    fn send<'a>(&'a self, bytes: &'a [u8]) -> Future<'a, Result<(), Fault>>;

    /// Whether [`Channel::send_at_once`] sends.
    fn sends_at_once(&self) -> bool {
        false
    }

    /// As [`Channel::send`], where nothing has to be waited for. Only for channels that say so ([`Channel::sends_at_once`]).
    fn send_at_once(&self, _bytes: Vec<u8>) -> Result<(), Fault> {
        Err(Fault::new(FaultKind::Unsupported, "what this channel sends takes time"))
    }

    /// Ends the sending: the peer, when it has received everything, is told that nothing more comes.
    fn shutdown(&self) -> Future<'_, Result<(), Fault>>;

    /// Appends what has come to `into`, waiting for that if nothing has. Returns how many bytes it is: none at the end.
    fn receive<'a>(&'a self, into: &'a mut Vec<u8>) -> Future<'a, Result<usize, Fault>>;

    /// Where the peer is, if that is known.
    fn peer_address(&self) -> Option<SocketAddr> {
        None
    }

    /// The name that the peer has proven to have. None where nothing is proven.
    fn peer_name(&self) -> Option<&str> {
        None
    }
}

/// Accepts connections of other nodes.
pub trait Acceptor {
    /// Where it listens.
    fn address(&self) -> SocketAddr;

    /// The next connection.
    fn accept(&self) -> Future<'_, Result<Rc<dyn Channel>, Fault>>;
}

/// The way to other nodes.
pub trait Transport {
    /// Listens at an address.
    fn listen(&self, address: SocketAddr) -> Future<'_, Result<Rc<dyn Acceptor>, Fault>>;

    /// Connects to a node that listens there: to the one of this name, or to the server. A transport that authenticates makes sure that it
    /// is.
    fn connect<'a>(&'a self, address: SocketAddr, name: Option<&'a str>) -> Future<'a, Result<Rc<dyn Channel>, Fault>>;
}

/// Bytes as they are, wherever they go: what seals them is above this.
pub struct Bare(pub UserExecutor);

/// Bytes as they are, to where they can do without protection: for described networks, and for the loopback of one machine.
pub struct Plain(pub UserExecutor);

impl Plain {
    fn bare(&self, address: SocketAddr) -> Result<Bare, Fault> {
        if is_loopback(address) || self.0.whole().has_described_network() {
            return Ok(Bare(self.0.clone()));
        }
        let words = format!("{address} is off loopback, and nothing goes there without TLS and mutual authentication");
        Err(Fault::new(FaultKind::Denied, words))
    }
}

/// Whether only processes of this machine are reached there.
pub(crate) fn is_loopback(address: SocketAddr) -> bool {
    address.ip().to_canonical().is_loopback()
}

impl Transport for Plain {
    fn listen(&self, address: SocketAddr) -> Future<'_, Result<Rc<dyn Acceptor>, Fault>> {
        Box::pin(async move { self.bare(address)?.listen(address).await })
    }

    fn connect<'a>(&'a self, address: SocketAddr, name: Option<&'a str>) -> Future<'a, Result<Rc<dyn Channel>, Fault>> {
        Box::pin(async move { self.bare(address)?.connect(address, name).await })
    }
}

impl Transport for Bare {
    fn listen(&self, address: SocketAddr) -> Future<'_, Result<Rc<dyn Acceptor>, Fault>> {
        Box::pin(async move { Ok(Rc::new(self.0.whole().listen(address).await?) as Rc<dyn Acceptor>) })
    }

    fn connect<'a>(
        &'a self,
        address: SocketAddr,
        _name: Option<&'a str>,
    ) -> Future<'a, Result<Rc<dyn Channel>, Fault>> {
        Box::pin(async move { Ok(Rc::new(self.0.whole().connect(address).await?) as Rc<dyn Channel>) })
    }
}

impl Acceptor for Listener {
    fn address(&self) -> SocketAddr {
        Listener::address(self)
    }

    fn accept(&self) -> Future<'_, Result<Rc<dyn Channel>, Fault>> {
        Box::pin(async move { Ok(Rc::new(Listener::accept(self).await?) as Rc<dyn Channel>) })
    }
}

impl Channel for Connection {
    fn send<'a>(&'a self, bytes: &'a [u8]) -> Future<'a, Result<(), Fault>> {
        Box::pin(Connection::send(self, bytes))
    }

    fn shutdown(&self) -> Future<'_, Result<(), Fault>> {
        Box::pin(Connection::shutdown(self))
    }

    fn receive<'a>(&'a self, into: &'a mut Vec<u8>) -> Future<'a, Result<usize, Fault>> {
        Box::pin(Connection::receive(self, into))
    }

    fn peer_address(&self) -> Option<SocketAddr> {
        Some(self.peer())
    }
}

/// The end of something: what is waited for until then is not waited for any more.
#[derive(Default)]
pub struct Ending {
    has_come: Cell<bool>,
    bell: WaitQueue,
}

impl Ending {
    /// It comes.
    pub fn come(&self, executor: &Executor) {
        self.has_come.set(true);
        self.bell.wake_all(executor);
    }

    /// Whether it has come.
    pub fn has_come(&self) -> bool {
        self.has_come.get()
    }

    /// What `work` gives; `None` if the end comes before.
    pub async fn before<T>(&self, executor: &Executor, work: impl std::future::Future<Output = T>) -> Option<T> {
        let coming = async {
            while !self.has_come() {
                self.bell.wait(executor).await;
            }
        };
        Outbox::unless_ended(&mut pin!(coming), work).await
    }
}

/// How long it is waited after a connection that could not be accepted, in nanoseconds: sockets may be free again then.
const REST_NS: u64 = 10 * MILLISECOND_NS;

/// The next connection; `None` once the acceptor is closed. One that cannot be had, for the peer is gone already or there are too many
/// sockets, is no reason to accept no others.
pub async fn next_connection(acceptor: &dyn Acceptor, executor: &Executor) -> Option<Rc<dyn Channel>> {
    loop {
        match acceptor.accept().await {
            Ok(channel) => return Some(channel),
            Err(fault) if fault.kind == FaultKind::Closed => return None,
            Err(_) => executor.sleep_ns(REST_NS).await,
        }
    }
}

/// Why no more messages come.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ChannelError {
    /// The connection is gone.
    #[error("{0}")]
    Fault(#[from] Fault),
    /// What has come is no message.
    #[error("{0}")]
    Message(#[from] MessageError),
}

/// Cuts what comes on a channel into messages.
pub struct Incoming {
    channel: Rc<dyn Channel>,
    executor: Executor,
    bytes: Vec<u8>,
    /// How many of them were taken.
    taken: usize,
    /// How many a message may have.
    limit: usize,
    /// How many the last message had.
    last: usize,
    /// How many messages were taken since it was waited for some.
    together: usize,
    /// Is told of the memory that what has come takes, in bytes.
    observer: Option<Box<dyn Fn(usize)>>,
}

/// How much a peer may say before it is heard, in bytes, if it is to be noticed that it ends.
const EARLY_MAX: usize = 16 << 10;
/// How much memory is kept for messages to come, in bytes.
const KEPT_MAX: usize = 1 << 20;

impl Incoming {
    /// What comes on this channel.
    pub fn new(channel: &Rc<dyn Channel>, executor: &Executor) -> Incoming {
        Incoming {
            channel: Rc::clone(channel),
            executor: executor.clone(),
            bytes: Vec::new(),
            taken: 0,
            limit: SIZE_MAX,
            last: 0,
            together: 0,
            observer: None,
        }
    }

    /// From now on this is told how much memory what has come takes, in bytes.
    pub fn observe(&mut self, observer: Box<dyn Fn(usize)>) {
        self.observer = Some(observer);
    }

    /// No one is told of that any more.
    pub fn unobserve(&mut self) {
        self.observer = None;
    }

    /// From now on a message may have this many bytes.
    pub fn limit(&mut self, bytes: usize) {
        self.limit = bytes;
    }

    /// The bytes of the message that has come last.
    pub fn last_size(&self) -> usize {
        self.last
    }

    /// How many messages were taken since it was waited for some, or since [`Incoming::begin_anew`].
    pub fn together(&self) -> usize {
        self.together
    }

    /// Others have had their turn.
    pub fn begin_anew(&mut self) {
        self.together = 0;
    }

    /// The next message, which is paid for; `None` if the peer has ended.
    ///
    /// # Errors
    /// [`ChannelError`]: then the channel is of no use any more.
    pub async fn next<M: DeserializeOwned>(&mut self) -> Result<Option<M>, ChannelError> {
        let frame = self.next_frame().await?;
        Ok(frame.map(decode).transpose()?)
    }

    /// Waits until the peer has ended, or is lost. What it says meanwhile is kept, but not listened to if it is much.
    pub async fn hung_up(&mut self) {
        while self.bytes.len() - self.taken < EARLY_MAX {
            if !matches!(self.channel.receive(&mut self.bytes).await, Ok(1..)) {
                return;
            }
            if let Some(observer) = &self.observer {
                observer(self.bytes.capacity());
            }
        }
        std::future::pending().await
    }

    /// The frame of the next message, which is paid for; `None` if the peer has ended.
    ///
    /// # Errors
    /// As [`Incoming::next`].
    pub async fn next_frame(&mut self) -> Result<Option<&[u8]>, ChannelError> {
        loop {
            let rest = &self.bytes[self.taken..];
            if let Some(size) = frame_size(rest, self.limit)?.filter(|size| *size <= rest.len()) {
                self.executor.pay_message(size).await;
                self.taken += size;
                self.last = size;
                self.together += 1;
                return Ok(Some(&self.bytes[self.taken - size..self.taken]));
            }
            self.bytes.drain(..std::mem::take(&mut self.taken));
            if self.bytes.is_empty() && self.bytes.capacity() > KEPT_MAX {
                self.bytes = Vec::new();
            }
            let mut receiving = self.channel.receive(&mut self.bytes);
            let mut has_waited = false;
            let received = poll_fn(|context| {
                let polled = receiving.as_mut().poll(context);
                has_waited |= polled.is_pending();
                polled
            });
            let count = received.await?;
            drop(receiving);
            if has_waited {
                self.begin_anew();
            }
            if count == 0 {
                return Ok(None);
            }
            if let Some(observer) = &self.observer {
                observer(self.bytes.capacity());
            }
        }
    }
}
