//! Channels within one thread: bytes go from memory to memory, and the system has no part in it. So what a page server and its nodes do for a
//! message can be told from what the system takes for it.

use driver::{Fault, FaultKind};
use executor::{Executor, WaitQueue};
use node::channel::{Acceptor, Channel, Future, Transport};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::rc::Rc;

/// The way from one task of a thread to the others. Clones are the same way.
#[derive(Clone)]
pub struct InProcess {
    executor: Executor,
    places: Rc<RefCell<BTreeMap<SocketAddr, Rc<Offers>>>>,
}

/// Connections that are to be accepted at an address.
struct Offers {
    address: SocketAddr,
    executor: Executor,
    waiting: RefCell<VecDeque<Rc<dyn Channel>>>,
    bell: WaitQueue,
}

/// The bytes of one direction.
struct OneWay {
    bytes: RefCell<Vec<u8>>,
    has_ended: Cell<bool>,
    bell: WaitQueue,
}

struct ChannelEnd {
    executor: Executor,
    incoming: Rc<OneWay>,
    outgoing: Rc<OneWay>,
}

impl InProcess {
    /// Of the thread of this executor.
    pub fn new(executor: &Executor) -> InProcess {
        InProcess { executor: executor.clone(), places: Rc::default() }
    }
}

impl Transport for InProcess {
    fn listen(&self, address: SocketAddr) -> Future<'_, Result<Rc<dyn Acceptor>, Fault>> {
        let (executor, waiting, bell) = (self.executor.clone(), RefCell::default(), WaitQueue::new());
        let offers = Rc::new(Offers { address, executor, waiting, bell });
        self.places.borrow_mut().insert(address, Rc::clone(&offers));
        Box::pin(std::future::ready(Ok(offers as Rc<dyn Acceptor>)))
    }

    fn connect<'a>(&'a self, address: SocketAddr, _: Option<&'a str>) -> Future<'a, Result<Rc<dyn Channel>, Fault>> {
        let refused = || Fault::new(FaultKind::Refused, format!("no task listens at {address}"));
        let connected = self.places.borrow().get(&address).ok_or_else(refused).map(|offers| {
            let way = || OneWay { bytes: RefCell::default(), has_ended: Cell::new(false), bell: WaitQueue::new() };
            let [one, other] = [Rc::new(way()), Rc::new(way())];
            let end = |incoming: &Rc<OneWay>, outgoing: &Rc<OneWay>| -> Rc<dyn Channel> {
                let (incoming, outgoing) = (Rc::clone(incoming), Rc::clone(outgoing));
                Rc::new(ChannelEnd { executor: self.executor.clone(), incoming, outgoing })
            };
            offers.waiting.borrow_mut().push_back(end(&one, &other));
            offers.bell.wake_all(&self.executor);
            end(&other, &one)
        });
        Box::pin(std::future::ready(connected))
    }
}

impl Acceptor for Offers {
    fn address(&self) -> SocketAddr {
        self.address
    }

    fn accept(&self) -> Future<'_, Result<Rc<dyn Channel>, Fault>> {
        Box::pin(async move {
            loop {
                let offered = self.waiting.borrow_mut().pop_front();
                match offered {
                    Some(channel) => return Ok(channel),
                    None => self.bell.wait(&self.executor).await,
                }
            }
        })
    }
}

impl ChannelEnd {
    fn end(&self) {
        self.outgoing.has_ended.set(true);
        self.outgoing.bell.wake_all(&self.executor);
    }
}

impl Drop for ChannelEnd {
    fn drop(&mut self) {
        self.end();
    }
}

impl Channel for ChannelEnd {
    fn send<'a>(&'a self, bytes: &'a [u8]) -> Future<'a, Result<(), Fault>> {
        self.outgoing.bytes.borrow_mut().extend_from_slice(bytes);
        self.outgoing.bell.wake_all(&self.executor);
        Box::pin(std::future::ready(Ok(())))
    }

    fn shutdown(&self) -> Future<'_, Result<(), Fault>> {
        self.end();
        Box::pin(std::future::ready(Ok(())))
    }

    fn receive<'a>(&'a self, into: &'a mut Vec<u8>) -> Future<'a, Result<usize, Fault>> {
        Box::pin(async move {
            loop {
                let length = self.incoming.bytes.borrow().len();
                if length > 0 {
                    into.append(&mut self.incoming.bytes.borrow_mut());
                    return Ok(length);
                }
                if self.incoming.has_ended.get() {
                    return Ok(0);
                }
                self.incoming.bell.wait(&self.executor).await;
            }
        })
    }
}
