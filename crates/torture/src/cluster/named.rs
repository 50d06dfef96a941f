//! A transport whose ends know each other by name, as one that authenticates does: here the name comes from the address. Its channels may
//! take what is sent at once, as those between threads do.

use driver::{Fault, FaultKind};
use executor::{Executor, WaitQueue};
use node::channel::{Acceptor, Channel, Future, Plain, Transport};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::rc::Rc;

/// [`Plain`] with names.
pub(super) struct Named {
    pub executor: Executor,
    /// Whether channels take what is sent at once.
    pub at_once: bool,
    /// Whether two machines come under one name.
    pub shares_names: bool,
}

impl Named {
    fn channel(&self, inner: Rc<dyn Channel>, name: Option<String>) -> Rc<dyn Channel> {
        let queue = self.at_once.then(Rc::<Queue>::default);
        if let Some(queue) = &queue {
            self.executor.spawn(empty(Rc::clone(queue), Rc::clone(&inner), self.executor.clone()));
        }
        Rc::new(NamedChannel { inner, name, executor: self.executor.clone(), queue })
    }
}

/// What was taken and waits to be sent.
#[derive(Default)]
struct Queue {
    pieces: RefCell<VecDeque<Vec<u8>>>,
    /// Nothing more comes.
    is_over: Cell<bool>,
    /// Nothing is sent any more.
    is_cut: Cell<bool>,
    bell: WaitQueue,
}

async fn empty(queue: Rc<Queue>, channel: Rc<dyn Channel>, executor: Executor) {
    loop {
        let piece = queue.pieces.borrow_mut().pop_front();
        match piece {
            Some(piece) => {
                if channel.send(&piece).await.is_err() {
                    return queue.is_cut.set(true);
                }
            }
            None if queue.is_over.get() => {
                let _told = channel.shutdown().await;
                return;
            }
            None => queue.bell.wait(&executor).await,
        }
    }
}

/// The name of the machine with this number, which may be that of another one as well.
pub(super) fn name_of(machine: u32, shares_names: bool) -> String {
    format!("node-{}", if shares_names { machine.div_ceil(2) } else { machine })
}

struct NamedAcceptor {
    inner: Rc<dyn Acceptor>,
    transport: Named,
}

struct NamedChannel {
    inner: Rc<dyn Channel>,
    name: Option<String>,
    executor: Executor,
    queue: Option<Rc<Queue>>,
}

impl Drop for NamedChannel {
    fn drop(&mut self) {
        self.end();
    }
}

impl NamedChannel {
    /// Nothing more is sent but what was taken.
    fn end(&self) {
        if let Some(queue) = &self.queue {
            queue.is_over.set(true);
            queue.bell.wake_all(&self.executor);
        }
    }
}

impl Transport for Named {
    fn listen(&self, address: SocketAddr) -> Future<'_, Result<Rc<dyn Acceptor>, Fault>> {
        Box::pin(async move {
            let inner = Plain(self.executor.for_users()).listen(address).await?;
            let transport =
                Named { executor: self.executor.clone(), at_once: self.at_once, shares_names: self.shares_names };
            Ok(Rc::new(NamedAcceptor { inner, transport }) as Rc<dyn Acceptor>)
        })
    }

    fn connect<'a>(&'a self, address: SocketAddr, name: Option<&'a str>) -> Future<'a, Result<Rc<dyn Channel>, Fault>> {
        Box::pin(async move {
            let inner = Plain(self.executor.for_users()).connect(address, name).await?;
            Ok(self.channel(inner, None))
        })
    }
}

impl Acceptor for NamedAcceptor {
    fn address(&self) -> SocketAddr {
        self.inner.address()
    }

    fn accept(&self) -> Future<'_, Result<Rc<dyn Channel>, Fault>> {
        Box::pin(async move {
            let inner = self.inner.accept().await?;
            let machine = inner.peer_address().map(|peer| match peer {
                // Machines have the addresses from 10.0.0.1 on.
                SocketAddr::V4(peer) => (peer.ip().to_bits() & 0x00ff_ffff) - 1,
                SocketAddr::V6(_) => 0,
            });
            let name = machine.map(|machine| name_of(machine, self.transport.shares_names));
            Ok(self.transport.channel(inner, name))
        })
    }
}

impl Channel for NamedChannel {
    fn send<'a>(&'a self, bytes: &'a [u8]) -> Future<'a, Result<(), Fault>> {
        match self.queue {
            Some(_) => Box::pin(std::future::ready(self.send_at_once(bytes.to_vec()))),
            None => self.inner.send(bytes),
        }
    }

    fn sends_at_once(&self) -> bool {
        self.queue.is_some()
    }

    fn send_at_once(&self, bytes: Vec<u8>) -> Result<(), Fault> {
        match &self.queue {
            Some(queue) if !queue.is_cut.get() => {
                queue.pieces.borrow_mut().push_back(bytes);
                queue.bell.wake_all(&self.executor);
                Ok(())
            }
            _ => Err(Fault::new(FaultKind::Reset, "nothing is sent any more")),
        }
    }

    fn shutdown(&self) -> Future<'_, Result<(), Fault>> {
        match self.queue {
            Some(_) => {
                self.end();
                Box::pin(std::future::ready(Ok(())))
            }
            None => self.inner.shutdown(),
        }
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
