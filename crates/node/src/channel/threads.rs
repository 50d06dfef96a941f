//! Channels between the threads of one process: bytes go from thread to thread in memory, and no socket is there.
//!
//! An address is a place of an [`Exchange`] and means nothing outside of it. A thread that ends, in whatever way, drops its ends of all
//! channels, and its peers find them ended. Nothing is lost on the way, and what waits is bounded by what nodes may have under way at a
//! time.

use super::{Acceptor, Channel, Future, Transport};
use driver::{Fault, FaultKind};
use executor::{Executor, Mailbox, Sender, mailbox};
use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::net::{Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Where the threads of a process find each other. Clones are the same exchange.
#[derive(Clone, Default)]
pub struct Exchange(Arc<Mutex<Places>>);

#[derive(Default)]
struct Places {
    last: u16,
    listening: BTreeMap<SocketAddr, Sender<Offer>>,
}

/// A connection that a thread wants with one that listens.
struct Offer {
    from: SocketAddr,
    to_caller: Sender<Parcel>,
}

enum Parcel {
    /// The offer is taken: the way back.
    Opened(Sender<Parcel>),
    Bytes(Vec<u8>),
}

impl Exchange {
    /// One at which no thread listens.
    pub fn new() -> Exchange {
        Exchange::default()
    }

    /// The way from the thread of this executor to the others.
    pub fn transport(&self, executor: &Executor) -> Threads {
        Threads { exchange: self.clone(), executor: executor.clone() }
    }

    fn places(&self) -> MutexGuard<'_, Places> {
        // Nothing panics while the places are held.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The way from one thread to the others of its [`Exchange`].
pub struct Threads {
    exchange: Exchange,
    executor: Executor,
}

impl Threads {
    /// Any address: [`Transport::listen`] takes a free one for it.
    pub const ANY: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);

    fn listen_at(&self, asked: SocketAddr) -> Result<ThreadAcceptor, Fault> {
        let mut places = self.exchange.places();
        let address = if asked == Threads::ANY { places.free()? } else { asked };
        if places.listening.contains_key(&address) {
            return Err(Fault::new(FaultKind::AddressInUse, format!("a thread listens at {address} already")));
        }
        let (sender, offers) = mailbox(&self.executor);
        places.listening.insert(address, sender);
        let (exchange, executor) = (self.exchange.clone(), self.executor.clone());
        Ok(ThreadAcceptor { address, exchange, executor, offers, waiting: RefCell::default() })
    }

    async fn connect_to(&self, address: SocketAddr) -> Result<ThreadChannel, Fault> {
        let refused = || Fault::new(FaultKind::Refused, format!("no thread listens at {address}"));
        let listening = self.exchange.places().listening.get(&address).cloned().ok_or_else(refused)?;
        let (to_caller, incoming) = mailbox(&self.executor);
        listening.send(Offer { from: Threads::ANY, to_caller });
        let mut batch = Vec::new();
        if !incoming.receive(&self.executor, &mut batch).await {
            return Err(refused());
        }
        let mut arrived = VecDeque::from(batch);
        let Some(Parcel::Opened(outgoing)) = arrived.pop_front() else { unreachable!("the way back comes first") };
        Ok(ThreadChannel::new(&self.executor, (incoming, arrived), outgoing, address))
    }
}

impl Places {
    fn free(&mut self) -> Result<SocketAddr, Fault> {
        for _ in 0..=u16::MAX {
            self.last = self.last.wrapping_add(1).max(1);
            let address = SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), self.last);
            if !self.listening.contains_key(&address) {
                return Ok(address);
            }
        }
        Err(Fault::new(FaultKind::AddressInUse, "as many threads listen as there are addresses"))
    }
}

impl Transport for Threads {
    fn listen(&self, address: SocketAddr) -> Future<'_, Result<Rc<dyn Acceptor>, Fault>> {
        let listening = self.listen_at(address).map(|acceptor| Rc::new(acceptor) as Rc<dyn Acceptor>);
        Box::pin(std::future::ready(listening))
    }

    fn connect<'a>(&'a self, address: SocketAddr, _: Option<&'a str>) -> Future<'a, Result<Rc<dyn Channel>, Fault>> {
        Box::pin(async move { Ok(Rc::new(self.connect_to(address).await?) as Rc<dyn Channel>) })
    }
}

struct ThreadAcceptor {
    address: SocketAddr,
    exchange: Exchange,
    executor: Executor,
    offers: Mailbox<Offer>,
    waiting: RefCell<VecDeque<Offer>>,
}

impl ThreadAcceptor {
    async fn next(&self) -> Result<ThreadChannel, Fault> {
        loop {
            let offer = self.waiting.borrow_mut().pop_front();
            if let Some(Offer { from, to_caller }) = offer {
                let (to_here, incoming) = mailbox(&self.executor);
                to_caller.send(Parcel::Opened(to_here));
                return Ok(ThreadChannel::new(&self.executor, (incoming, VecDeque::new()), to_caller, from));
            }
            let mut batch = Vec::new();
            if !self.offers.receive(&self.executor, &mut batch).await {
                return Err(Fault::new(FaultKind::Closed, "no thread can connect any more"));
            }
            self.waiting.borrow_mut().extend(batch);
        }
    }
}

impl Acceptor for ThreadAcceptor {
    fn address(&self) -> SocketAddr {
        self.address
    }

    fn accept(&self) -> Future<'_, Result<Rc<dyn Channel>, Fault>> {
        Box::pin(async move { Ok(Rc::new(self.next().await?) as Rc<dyn Channel>) })
    }
}

impl Drop for ThreadAcceptor {
    fn drop(&mut self) {
        let gone = self.exchange.places().listening.remove(&self.address);
        drop(gone);
    }
}

struct ThreadChannel {
    executor: Executor,
    incoming: Mailbox<Parcel>,
    arrived: RefCell<VecDeque<Parcel>>,
    /// None once nothing more is sent.
    outgoing: RefCell<Option<Sender<Parcel>>>,
    peer: SocketAddr,
}

impl ThreadChannel {
    fn new(
        executor: &Executor,
        (incoming, arrived): (Mailbox<Parcel>, VecDeque<Parcel>),
        outgoing: Sender<Parcel>,
        peer: SocketAddr,
    ) -> ThreadChannel {
        let (arrived, outgoing) = (RefCell::new(arrived), RefCell::new(Some(outgoing)));
        ThreadChannel { executor: executor.clone(), incoming, arrived, outgoing, peer }
    }

    /// Appends all that has arrived, and returns how many bytes that was.
    fn take(&self, into: &mut Vec<u8>) -> usize {
        let before = into.len();
        for parcel in self.arrived.borrow_mut().drain(..) {
            match parcel {
                Parcel::Bytes(bytes) => into.extend_from_slice(&bytes),
                Parcel::Opened(_) => unreachable!("a channel is opened once"),
            }
        }
        into.len() - before
    }
}

impl Channel for ThreadChannel {
    fn send<'a>(&'a self, bytes: &'a [u8]) -> Future<'a, Result<(), Fault>> {
        Box::pin(std::future::ready(self.send_at_once(bytes.to_vec())))
    }

    fn sends_at_once(&self) -> bool {
        true
    }

    fn send_at_once(&self, bytes: Vec<u8>) -> Result<(), Fault> {
        match &*self.outgoing.borrow() {
            Some(outgoing) if !outgoing.is_closed() => {
                outgoing.send(Parcel::Bytes(bytes));
                Ok(())
            }
            _ => Err(Fault::new(FaultKind::Reset, "the other thread has ended")),
        }
    }

    fn shutdown(&self) -> Future<'_, Result<(), Fault>> {
        drop(self.outgoing.take());
        Box::pin(std::future::ready(Ok(())))
    }

    fn receive<'a>(&'a self, into: &'a mut Vec<u8>) -> Future<'a, Result<usize, Fault>> {
        Box::pin(async move {
            loop {
                let taken = self.take(into);
                if taken > 0 {
                    return Ok(taken);
                }
                let mut batch = Vec::new();
                if !self.incoming.receive(&self.executor, &mut batch).await {
                    return Ok(0);
                }
                self.arrived.borrow_mut().extend(batch);
            }
        })
    }

    fn peer_address(&self) -> Option<SocketAddr> {
        Some(self.peer)
    }
}
