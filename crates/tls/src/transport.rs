//! TLS over another transport.

use crate::admission::{Admission, Refusals};
use crate::credentials::{Credentials, Files, Fingerprint, TlsError};
use crate::sealed::{Sealed, shake_hands};
use base::time::SECOND_NS;
use driver::{Fault, FaultKind};
use executor::{Executor, UserExecutor, WaitQueue, WholeExecutor};
use node::channel::{Acceptor, Channel, Ending, Future, Transport, next_connection};
use rustls::pki_types::ServerName;
use rustls::{ClientConnection, Connection, ServerConnection};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::rc::{Rc, Weak};
use std::sync::Arc;

/// How often it is looked whether the files have changed, in nanoseconds.
const LOOK_NS: u64 = SECOND_NS;
/// How many looks there are between two words on peers that were refused, so that these cannot fill a disk with words.
const LOOKS_PER_WORD: u64 = 10;

/// Is told what an operator should know, in a line.
pub type Notice = Box<dyn Fn(&str)>;

/// How TLS is used.
pub struct Options {
    /// Where the credentials are.
    pub files: Files,
    /// The name of the server in its certificate, if it is not the address under which it is sought.
    pub server_name: Option<String>,
    /// Is told of credentials that have changed, and now and then of peers that were refused.
    pub notice: Notice,
}

/// A transport that seals what it carries. Clones are handles to the same.
#[derive(Clone)]
pub struct Tls(Rc<Inner>);

struct Inner {
    executor: Executor,
    raw: Rc<dyn Transport>,
    files: Files,
    server_name: Option<ServerName<'static>>,
    notice: Notice,
    credentials: RefCell<Credentials>,
    /// The state of the files from which they are, or from which they could not be read.
    seen: RefCell<Fingerprint>,
    admission: Admission,
    accepted: Cell<u64>,
}

impl Tls {
    /// Reads the credentials. When their files change, new connections use the new ones; those that are there go on.
    ///
    /// # Errors
    /// [`TlsError`], which names the file.
    pub fn new(executor: &UserExecutor, raw: Rc<dyn Transport>, options: Options) -> Result<Tls, TlsError> {
        let executor = executor.whole();
        let Options { files, server_name, notice } = options;
        let server_name = server_name.map(|name| {
            let known = ServerName::try_from(name.clone());
            known.map_err(|_| TlsError::Name(name))
        });
        let seen = files.fingerprint();
        let inner = Rc::new(Inner {
            executor: executor.clone(),
            raw,
            server_name: server_name.transpose()?,
            notice,
            credentials: RefCell::new(files.load()?),
            files,
            seen: RefCell::new(seen),
            admission: Admission::new(executor),
            accepted: Cell::new(0),
        });
        executor.spawn(watch(Rc::downgrade(&inner), executor.clone()));
        Ok(Tls(inner))
    }

    /// The peers that were turned away, for they were not who they should be.
    pub fn refusals(&self) -> Refusals {
        self.0.admission.refusals()
    }

    /// How many peers have proven who they are.
    pub fn accepted(&self) -> u64 {
        self.0.accepted.get()
    }

    /// How many handshakes with peers that have connected to this node have begun, and how many are under way.
    pub fn handshakes(&self) -> (u64, usize) {
        (self.0.admission.begun(), self.0.admission.under_way())
    }
}

/// Looks at the files again and again. A change counts when they are the same at two looks, for a certificate and its key are two files.
async fn watch(tls: Weak<Inner>, executor: Executor) {
    let (mut before, mut looks, mut told) = (None, 0, 0);
    loop {
        executor.sleep_ns(LOOK_NS).await;
        let Some(tls) = tls.upgrade() else { return };
        let found = tls.files.fingerprint();
        if found != *tls.seen.borrow() && before.as_ref() == Some(&found) {
            tls.seen.replace(found.clone());
            tls.read_again();
        }
        before = Some(found);
        looks += 1;
        let Refusals { count, latest } = tls.admission.refusals();
        if count > told && looks >= LOOKS_PER_WORD {
            (tls.notice)(&format!("{} peers were refused; the latest: {latest}", count - told));
            (looks, told) = (0, count);
        }
    }
}

impl Inner {
    fn read_again(&self) {
        match self.files.load() {
            Ok(credentials) => {
                self.credentials.replace(credentials);
                (self.notice)("the key and the certificates have changed; new connections use the new ones");
            }
            Err(error) => {
                (self.notice)(&format!(
                    "the key and the certificates have changed, and the former ones are kept: {error}"
                ));
            }
        }
    }

    async fn connect(&self, address: SocketAddr, name: Option<&str>) -> Result<Rc<dyn Channel>, Fault> {
        let denied = |words: String| Fault::new(FaultKind::Denied, words);
        let expected = match (name, &self.server_name) {
            (Some(name), _) => ServerName::try_from(name.to_owned())
                .map_err(|_| denied(format!("the node at {address} is said to be '{name}', which is no name")))?,
            (None, Some(name)) => name.clone(),
            (None, None) => ServerName::IpAddress(address.ip().into()),
        };
        let raw = self.raw.connect(address, name).await?;
        let configuration = Arc::clone(&self.credentials.borrow().client);
        let tls = ClientConnection::new(configuration, expected).map_err(|error| denied(error.to_string()))?;
        let sealed = shake_hands((&self.executor, raw, address), Connection::Client(tls), |_| {}).await?;
        Ok(Rc::new(sealed))
    }

    async fn admit(&self, raw: Rc<dyn Channel>, own: SocketAddr) -> Option<Sealed> {
        let configuration = Arc::clone(&self.credentials.borrow().server);
        let tls = ServerConnection::new(configuration).ok()?;
        let at = raw.peer_address().unwrap_or(own);
        let spent = |ns| self.admission.note_spent(ns);
        let sealed = shake_hands((&self.executor, raw, at), Connection::Server(tls), spent);
        let sealed = self.admission.complete(sealed).await?;
        self.accepted.set(self.accepted.get() + 1);
        Some(sealed)
    }
}

impl Transport for Tls {
    fn listen(&self, address: SocketAddr) -> Future<'_, Result<Rc<dyn Acceptor>, Fault>> {
        Box::pin(async move {
            let raw = self.0.raw.listen(address).await?;
            let acceptor = Rc::new(SealedAcceptor {
                executor: self.0.executor.clone(),
                address: raw.address(),
                ready: RefCell::default(),
                is_closed: Cell::new(false),
                bell: WaitQueue::new(),
                ending: Rc::default(),
            });
            let ending = Rc::clone(&acceptor.ending);
            self.0.executor.spawn(accept(Rc::clone(&self.0), raw, (Rc::downgrade(&acceptor), ending)));
            Ok(acceptor as Rc<dyn Acceptor>)
        })
    }

    fn connect<'a>(&'a self, address: SocketAddr, name: Option<&'a str>) -> Future<'a, Result<Rc<dyn Channel>, Fault>> {
        Box::pin(self.0.connect(address, name))
    }
}

/// Accepts peers that have proven who they are.
struct SealedAcceptor {
    executor: Executor,
    address: SocketAddr,
    ready: RefCell<VecDeque<Rc<dyn Channel>>>,
    is_closed: Cell<bool>,
    bell: WaitQueue,
    ending: Rc<Ending>,
}

impl Drop for SealedAcceptor {
    fn drop(&mut self) {
        self.ending.come(&self.executor);
    }
}

async fn accept(tls: Rc<Inner>, raw: Rc<dyn Acceptor>, (acceptor, ending): (Weak<SealedAcceptor>, Rc<Ending>)) {
    let own = raw.address();
    loop {
        let next = async {
            tls.admission.may_begin().await;
            next_connection(&*raw, &tls.executor).await
        };
        let Some(connection) = ending.before(&tls.executor, next).await else { return };
        let Some(waiting) = acceptor.upgrade() else { return };
        let Some(connection) = connection else {
            waiting.is_closed.set(true);
            return waiting.bell.wake_all(&tls.executor);
        };
        drop(waiting);
        let (tls, acceptor) = (Rc::clone(&tls), acceptor.clone());
        tls.executor.clone().spawn(async move {
            let Some(sealed) = tls.admit(connection, own).await else { return };
            if let Some(waiting) = acceptor.upgrade() {
                waiting.ready.borrow_mut().push_back(Rc::new(sealed));
                waiting.bell.wake_all(&tls.executor);
            }
        });
    }
}

impl Acceptor for SealedAcceptor {
    fn address(&self) -> SocketAddr {
        self.address
    }

    fn accept(&self) -> Future<'_, Result<Rc<dyn Channel>, Fault>> {
        Box::pin(async move {
            loop {
                if let Some(channel) = self.ready.borrow_mut().pop_front() {
                    return Ok(channel);
                }
                if self.is_closed.get() {
                    return Err(Fault::new(FaultKind::Closed, format!("{} is closed", self.address)));
                }
                self.bell.wait(&self.executor).await;
            }
        })
    }
}
