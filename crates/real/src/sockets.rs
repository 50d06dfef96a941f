//! Sockets that are open, and what is under way on each.
#![allow(unsafe_code)]

use crate::fault::fault_of;
use crate::request::{Call, Request};
use driver::{Fault, FaultKind, Frame, SocketId, Token};
use std::collections::BTreeMap;
use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

/// How many sockets can be open at once. Each has three requests under way at most, so together they leave the ring room.
pub(crate) const SOCKETS_MAX: usize = 1_024;

/// An address as the kernel reads it.
#[repr(C)]
pub(crate) union KernelAddress {
    v4: libc::sockaddr_in,
    v6: libc::sockaddr_in6,
}

pub(crate) enum Kind {
    Listener(TcpListener),
    Connection(TcpStream),
}

pub(crate) struct Socket {
    pub(crate) kind: Kind,
    /// Its own address, or that of its peer.
    pub(crate) address: SocketAddr,
    /// The slots of what is under way: a send; an accept, a connect or a receive.
    pub(crate) sending: Option<u32>,
    pub(crate) awaiting: Option<u32>,
    /// The close that waits for these to end.
    pub(crate) closing: Option<Token>,
    /// Why it sends no more, if it does not.
    pub(crate) mute: Option<Fault>,
}

/// An operation of a socket that is not done yet.
pub(crate) struct Exchange {
    pub(crate) call: Call,
    pub(crate) socket: SocketId,
    pub(crate) buffer: Option<Frame>,
    /// Where a connect goes to.
    pub(crate) address: Option<Box<KernelAddress>>,
    pub(crate) length: u32,
    pub(crate) done: u32,
    pub(crate) is_cancelled: bool,
}

#[derive(Default)]
pub(crate) struct SocketTable {
    sockets: BTreeMap<SocketId, Socket>,
    given: u32,
}

impl Socket {
    pub(crate) fn new(kind: Kind, address: SocketAddr) -> Socket {
        Socket { kind, address, sending: None, awaiting: None, closing: None, mute: None }
    }

    pub(crate) fn fd(&self) -> RawFd {
        match &self.kind {
            Kind::Listener(listener) => listener.as_raw_fd(),
            Kind::Connection(stream) => stream.as_raw_fd(),
        }
    }

    /// Whether nothing is under way.
    pub(crate) fn is_quiet(&self) -> bool {
        self.sending.is_none() && self.awaiting.is_none()
    }

    /// The place of what such a call has under way.
    pub(crate) fn under_way(&mut self, call: Call) -> &mut Option<u32> {
        if call == Call::Send { &mut self.sending } else { &mut self.awaiting }
    }

    /// Ends the sending.
    ///
    /// # Errors
    /// What the kernel says.
    pub(crate) fn shut_down(&self) -> io::Result<()> {
        match &self.kind {
            Kind::Connection(stream) => stream.shutdown(std::net::Shutdown::Write),
            Kind::Listener(_) => Err(io::Error::from_raw_os_error(libc::EINVAL)),
        }
    }
}

impl SocketTable {
    /// Enters a socket.
    ///
    /// # Errors
    /// The fault of a table that is full.
    pub(crate) fn insert(&mut self, socket: Socket) -> Result<SocketId, Fault> {
        if self.sockets.len() >= SOCKETS_MAX {
            let message = format!("{}: {SOCKETS_MAX} sockets are open, and no more can be", socket.address);
            return Err(Fault::new(FaultKind::TooManyFiles, message));
        }
        self.given += 1;
        let id = SocketId(self.given);
        self.sockets.insert(id, socket);
        Ok(id)
    }

    pub(crate) fn get(&mut self, id: SocketId) -> Option<&mut Socket> {
        self.sockets.get_mut(&id)
    }

    pub(crate) fn remove(&mut self, id: SocketId) -> Option<Socket> {
        self.sockets.remove(&id)
    }

    /// Gives up the ownership of all sockets without closing them.
    pub(crate) fn leak(&mut self) {
        std::mem::forget(std::mem::take(&mut self.sockets));
    }
}

impl Exchange {
    pub(crate) fn new(call: Call, socket: SocketId, buffer: Option<Frame>, length: u32) -> Exchange {
        Exchange { call, socket, buffer, address: None, length, done: 0, is_cancelled: false }
    }

    /// The request for what is left.
    pub(crate) fn request(&mut self, slot: u32, fd: RawFd) -> Request {
        let (address, length) = match (&mut self.buffer, &mut self.address) {
            (Some(buffer), _) => (buffer[self.done as usize..].as_mut_ptr(), self.length - self.done),
            (None, Some(address)) => (std::ptr::from_mut(&mut **address).cast(), self.length),
            (None, None) => (std::ptr::null_mut(), 0),
        };
        let (registered_file, registered_buffer) = (None, None);
        Request { slot, call: self.call, fd, registered_file, registered_buffer, address, length, offset: 0 }
    }

    /// What is attempted, in words.
    pub(crate) fn attempt(&self, address: SocketAddr) -> String {
        match self.call {
            Call::Accept => format!("accepting a connection at {address}"),
            Call::Connect => format!("connecting to {address}"),
            Call::Send => format!("sending {} bytes to {address}", self.length),
            _ => format!("receiving from {address}"),
        }
    }
}

/// A socket that listens.
///
/// # Errors
/// The fault of an address that cannot be used.
#[allow(clippy::disallowed_methods, reason = "this is the driver that the fence points to")]
pub(crate) fn listen(address: SocketAddr, is_polled: bool) -> Result<(Socket, SocketAddr), Fault> {
    let open = || {
        let listener = TcpListener::bind(address)?;
        listener.set_nonblocking(is_polled)?;
        let address = listener.local_addr()?;
        Ok((Socket::new(Kind::Listener(listener), address), address))
    };
    open().map_err(|error| fault_of(&format!("listening at {address}"), &error))
}

/// A socket that will connect, and the address as the kernel reads it with its length.
///
/// # Errors
/// The fault of a machine that gives no socket.
pub(crate) fn unconnected(address: SocketAddr, is_polled: bool) -> Result<(Socket, Box<KernelAddress>, u32), Fault> {
    let (family, kernel, length) = kernel_address(address);
    let flags = libc::SOCK_STREAM | libc::SOCK_CLOEXEC | if is_polled { libc::SOCK_NONBLOCK } else { 0 };
    // SAFETY: the call takes no memory; a result that is not negative is a descriptor with no other owner.
    let socket = unsafe {
        let fd = libc::socket(family, flags, 0);
        if fd < 0 { Err(io::Error::last_os_error()) } else { Ok(OwnedFd::from_raw_fd(fd)) }
    };
    let socket = socket.map_err(|error| fault_of(&format!("connecting to {address}"), &error))?;
    Ok((Socket::new(Kind::Connection(TcpStream::from(socket)), address), Box::new(kernel), length))
}

fn kernel_address(address: SocketAddr) -> (i32, KernelAddress, u32) {
    match address {
        SocketAddr::V4(address) => {
            let v4 = libc::sockaddr_in {
                sin_family: libc::AF_INET as libc::sa_family_t,
                sin_port: address.port().to_be(),
                sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(address.ip().octets()) },
                sin_zero: [0; 8],
            };
            (libc::AF_INET, KernelAddress { v4 }, size_of::<libc::sockaddr_in>() as u32)
        }
        SocketAddr::V6(address) => {
            let v6 = libc::sockaddr_in6 {
                sin6_family: libc::AF_INET6 as libc::sa_family_t,
                sin6_port: address.port().to_be(),
                sin6_flowinfo: address.flowinfo(),
                sin6_addr: libc::in6_addr { s6_addr: address.ip().octets() },
                sin6_scope_id: address.scope_id(),
            };
            (libc::AF_INET6, KernelAddress { v6 }, size_of::<libc::sockaddr_in6>() as u32)
        }
    }
}

/// A connection that the kernel has accepted.
///
/// # Errors
/// The fault of a connection that is gone already.
pub(crate) fn accepted(fd: i32) -> Result<Socket, Fault> {
    // SAFETY: the kernel has just made this descriptor for an accept, and it has no other owner.
    let stream = TcpStream::from(unsafe { OwnedFd::from_raw_fd(fd) });
    // Small messages leave at once.
    let ready = stream.set_nodelay(true).and_then(|()| stream.peer_addr());
    let peer = ready.map_err(|error| fault_of("accepting a connection", &error))?;
    Ok(Socket::new(Kind::Connection(stream), peer))
}
