//! A channel whose bytes are sealed on one side and opened on the other.

use crate::names::node_name;
use driver::{Fault, FaultKind};
use executor::{Executor, Turn};
use node::channel::{Channel, Future};
use rustls::{AlertDescription, CertificateError, Connection, Error, OtherError};
use std::cell::RefCell;
use std::io::{BufRead, ErrorKind, Write};
use std::net::SocketAddr;
use std::rc::Rc;

/// One end of a connection in TLS.
pub(crate) struct Sealed {
    raw: Rc<dyn Channel>,
    executor: Executor,
    session: RefCell<Session>,
    /// What is sealed leaves in the order in which it was.
    sending: Turn,
    at: SocketAddr,
    peer_name: Option<String>,
}

/// The state of TLS, and what has come and was not opened yet.
struct Session {
    tls: Connection,
    arrived: Vec<u8>,
    opened: usize,
}

/// What opening has given.
enum Opened {
    Bytes(usize),
    Nothing,
    End,
}

impl Session {
    /// Opens what has arrived, until something is open.
    fn open(&mut self, into: &mut Vec<u8>) -> Result<Opened, Error> {
        let before = into.len();
        loop {
            let is_ended = self.take_open(into);
            if is_ended && into.len() == before {
                return Ok(Opened::End);
            }
            if is_ended || self.opened == self.arrived.len() {
                let count = into.len() - before;
                return Ok(if count > 0 { Opened::Bytes(count) } else { Opened::Nothing });
            }
            self.step()?;
        }
    }

    /// Takes what is open. Whether nothing comes behind it.
    fn take_open(&mut self, into: &mut Vec<u8>) -> bool {
        let mut reader = self.tls.reader();
        loop {
            let length = match reader.fill_buf() {
                Ok([]) => return true,
                Ok(bytes) => {
                    into.extend_from_slice(bytes);
                    bytes.len()
                }
                Err(error) => return error.kind() != ErrorKind::WouldBlock,
            };
            reader.consume(length);
        }
    }

    /// Gives TLS a part of what has arrived.
    fn step(&mut self) -> Result<(), Error> {
        let mut rest = &self.arrived[self.opened..];
        let taken = self.tls.read_tls(&mut rest).map_err(|error| Error::General(error.to_string()))?;
        // Behind the end of a session nothing is taken.
        self.opened = if taken == 0 { self.arrived.len() } else { self.opened + taken };
        if self.opened == self.arrived.len() {
            self.arrived.clear();
            self.opened = 0;
        }
        self.tls.process_new_packets().map(drop)
    }

    /// Appends what TLS has to send.
    fn outgoing(&mut self, out: &mut Vec<u8>) {
        while self.tls.wants_write() {
            self.tls.write_tls(out).expect("memory takes it");
        }
    }

    /// Seals as much of these bytes as is done at a time, and returns how many that were.
    fn seal(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> Result<usize, Fault> {
        let sealed = self.tls.writer().write(bytes);
        self.outgoing(out);
        match sealed {
            Ok(count) if count > 0 => Ok(count),
            _ => Err(Fault::new(FaultKind::Closed, "sending was ended")),
        }
    }
}

/// Whether the peer is not, or does not take this node for, what it should be: it will not be otherwise at another attempt.
fn is_refusal(error: &Error, is_new: bool) -> bool {
    match error {
        Error::AlertReceived(alert) => !matches!(
            alert,
            AlertDescription::CloseNotify | AlertDescription::InternalError | AlertDescription::UserCanceled
        ),
        _ => is_new,
    }
}

/// What has gone wrong, in words for the one who has set up the certificates.
fn fault(at: SocketAddr, error: &Error, is_new: bool) -> Fault {
    let kind = if is_refusal(error, is_new) { FaultKind::Denied } else { FaultKind::Reset };
    let words = match error {
        Error::AlertReceived(alert) if kind == FaultKind::Denied => {
            format!(
                "the node at {at} does not accept this node's certificate ({alert:?}): is it of the same authority, and valid now?"
            )
        }
        Error::InvalidMessage(_) if is_new => format!("the node at {at} does not speak TLS ({error})"),
        Error::NoCertificatesPresented => format!("the node at {at} shows no certificate"),
        Error::InvalidCertificate(CertificateError::Other(OtherError(cause))) => {
            format!("the certificate of the node at {at} is not accepted: {cause}")
        }
        Error::InvalidCertificate(_) => format!("the certificate of the node at {at} is not accepted: {error}"),
        _ => format!("TLS with the node at {at}: {error}"),
    };
    Fault::new(kind, words)
}

/// How long a peer that is refused may take to hear why, in nanoseconds, and how much of what it says meanwhile is passed over.
const FAREWELL_NS: u64 = 500_000_000;
const FAREWELL_BYTES: usize = 64 << 10;

/// Shakes hands over a connection. The time that is spent on that is told to `spent`, in nanoseconds.
///
/// # Errors
/// That of the connection; [`FaultKind::Denied`] if the peer is not who it should be.
pub(crate) async fn shake_hands(
    (executor, raw, at): (&Executor, Rc<dyn Channel>, SocketAddr),
    tls: Connection,
    spent: impl Fn(u64),
) -> Result<Sealed, Fault> {
    let mut session = Session { tls, arrived: Vec::new(), opened: 0 };
    loop {
        let mut out = Vec::new();
        session.outgoing(&mut out);
        if !out.is_empty() {
            raw.send(&out).await?;
        }
        if !session.tls.is_handshaking() {
            break;
        }
        if session.arrived.is_empty() && raw.receive(&mut session.arrived).await? == 0 {
            return Err(Fault::new(FaultKind::Reset, format!("the node at {at} has hung up before it was known")));
        }
        let began = executor.now();
        let step = session.step();
        spent(executor.now().since_ns(began));
        if let Err(error) = step {
            executor.within(FAREWELL_NS, say_why(&mut session, &*raw)).await;
            return Err(fault(at, &error, true));
        }
    }
    let shown = session.tls.peer_certificates().and_then(|chain| chain.first());
    let peer_name = shown.and_then(|certificate| node_name(certificate).ok());
    let (executor, session) = (executor.clone(), RefCell::new(session));
    Ok(Sealed { raw, executor, session, sending: Turn::new(), at, peer_name })
}

/// Sends the alert that TLS has made, and waits for the peer to have heard it: what is closed while more comes is reset.
async fn say_why(session: &mut Session, raw: &dyn Channel) {
    let mut out = Vec::new();
    session.outgoing(&mut out);
    if raw.send(&out).await.is_err() || raw.shutdown().await.is_err() {
        return;
    }
    let mut passed_over = Vec::new();
    while passed_over.len() < FAREWELL_BYTES && matches!(raw.receive(&mut passed_over).await, Ok(1..)) {}
}

impl Sealed {
    async fn send_all(&self, bytes: &[u8]) -> Result<(), Fault> {
        let _mine = self.sending.take(&self.executor).await;
        let (mut rest, mut out) = (bytes, Vec::with_capacity(bytes.len() + 64));
        while !rest.is_empty() {
            out.clear();
            let sealed = self.session.borrow_mut().seal(rest, &mut out)?;
            rest = &rest[sealed..];
            self.raw.send(&out).await?;
        }
        Ok(())
    }

    /// Sends what TLS itself has to say.
    async fn send_own(&self) -> Result<(), Fault> {
        let _mine = self.sending.take(&self.executor).await;
        let mut out = Vec::new();
        self.session.borrow_mut().outgoing(&mut out);
        if out.is_empty() { Ok(()) } else { self.raw.send(&out).await }
    }

    async fn receive_some(&self, into: &mut Vec<u8>) -> Result<usize, Fault> {
        loop {
            let opened = self.session.borrow_mut().open(into);
            match opened {
                Ok(Opened::Bytes(count)) => return Ok(count),
                Ok(Opened::End) => return Ok(0),
                Ok(Opened::Nothing) => {}
                Err(error) => {
                    let _told = self.send_own().await;
                    return Err(fault(self.at, &error, false));
                }
            }
            // Nothing is lost with this if it is abandoned: bytes come into it when it is ready, and only then.
            let mut arrived = Vec::new();
            if self.raw.receive(&mut arrived).await? == 0 {
                let words = format!("the connection to the node at {} was cut", self.at);
                return Err(Fault::new(FaultKind::Reset, words));
            }
            self.session.borrow_mut().arrived.append(&mut arrived);
        }
    }

    async fn end_sending(&self) -> Result<(), Fault> {
        self.session.borrow_mut().tls.send_close_notify();
        self.send_own().await?;
        self.raw.shutdown().await
    }
}

impl Channel for Sealed {
    fn send<'a>(&'a self, bytes: &'a [u8]) -> Future<'a, Result<(), Fault>> {
        Box::pin(self.send_all(bytes))
    }

    fn shutdown(&self) -> Future<'_, Result<(), Fault>> {
        Box::pin(self.end_sending())
    }

    fn receive<'a>(&'a self, into: &'a mut Vec<u8>) -> Future<'a, Result<usize, Fault>> {
        Box::pin(self.receive_some(into))
    }

    fn peer_name(&self) -> Option<&str> {
        self.peer_name.as_deref()
    }
}
