//! Sockets: operations under way on them, and how they end. One send, and one accept, connect or receive, of a socket is under
//! way at a time, so bytes stay in order; a close cancels both, waits for them and lets the kernel do the rest.

use super::RealDriver;
use crate::fault::{fault_of, kind_of};
use crate::flight::Flight;
use crate::mailbox::{Answer, JobResult};
use crate::mechanism::Mechanism;
use crate::request::Call;
use crate::sockets::{self, Exchange, Kind};
use driver::{Completion, Fault, FaultKind, Op, Output, SocketId, Token};
use std::io;
use std::net::SocketAddr;

fn closed() -> Fault {
    Fault::new(FaultKind::Closed, "the socket was closed, or is not open")
}

impl RealDriver {
    /// Whether sockets must not block, because a thread asks many of them in turn.
    fn polls(&self) -> bool {
        matches!(self.mechanism, Mechanism::Pool(_))
    }

    pub(super) fn submit_to_network(&mut self, token: Token, op: Op) {
        let result = match op {
            Op::Listen { address } => self.listen(address),
            Op::Connect { address } => match self.connect(token, address) {
                Ok(()) => return,
                Err(fault) => Err(fault),
            },
            Op::Accept { listener } => {
                return self.begin_exchange(token, Exchange::new(Call::Accept, listener, None, 0));
            }
            Op::Send { connection, length, buffer } => {
                assert!(length as usize <= buffer.len(), "{length} bytes do not fit a frame of {}", buffer.len());
                return self.begin_exchange(token, Exchange::new(Call::Send, connection, Some(buffer), length));
            }
            Op::Receive { connection, length, buffer } => {
                assert!((1..=buffer.len()).contains(&(length as usize)), "what is received fits the buffer");
                return self.begin_exchange(token, Exchange::new(Call::Receive, connection, Some(buffer), length));
            }
            Op::Shutdown { connection } => self.shut_down(connection),
            Op::Close { socket } => return self.close_socket(token, socket),
            other => unreachable!("{other:?} is no operation of the network"),
        };
        self.finish(token, result, None);
    }

    fn listen(&mut self, address: SocketAddr) -> Result<Output, Fault> {
        let (socket, address) = sockets::listen(address, self.polls())?;
        Ok(Output::Listening { listener: self.sockets.insert(socket)?, address })
    }

    fn connect(&mut self, token: Token, address: SocketAddr) -> Result<(), Fault> {
        let (socket, kernel, length) = sockets::unconnected(address, self.polls())?;
        let id = self.sockets.insert(socket)?;
        let exchange = Exchange { address: Some(kernel), ..Exchange::new(Call::Connect, id, None, length) };
        self.begin_exchange(token, exchange);
        Ok(())
    }

    fn begin_exchange(&mut self, token: Token, exchange: Exchange) {
        match self.refusal_of(&exchange) {
            Some(fault) => self.finish(token, Err(fault), exchange.buffer),
            None if exchange.call == Call::Send && exchange.length == 0 => {
                self.finish(token, Ok(Output::Done), exchange.buffer);
            }
            None => {
                let (call, id) = (exchange.call, exchange.socket);
                let slot = self.flights.insert(token, Flight::Exchange(exchange));
                *self.sockets.get(id).expect("it was just looked at").under_way(call) = Some(slot);
                self.start_exchange(slot);
            }
        }
    }

    /// Why an operation cannot begin, if it cannot.
    fn refusal_of(&mut self, exchange: &Exchange) -> Option<Fault> {
        let Some(socket) = self.sockets.get(exchange.socket) else { return Some(closed()) };
        let suits = matches!((&socket.kind, exchange.call), (Kind::Listener(_), Call::Accept))
            || matches!(&socket.kind, Kind::Connection(_)) && exchange.call != Call::Accept;
        if socket.closing.is_some() || !suits {
            return Some(closed());
        }
        if socket.under_way(exchange.call).is_some() {
            let message = format!("{}: another one is under way", exchange.attempt(socket.address));
            return Some(Fault::new(FaultKind::Busy, message));
        }
        socket.mute.clone().filter(|_| exchange.call == Call::Send)
    }

    fn start_exchange(&mut self, slot: u32) {
        let exchange = self.flights.exchange(slot);
        let socket = self.sockets.get(exchange.socket).expect("a socket outlasts what is under way on it");
        let request = exchange.request(slot, socket.fd());
        self.mechanism.start(request);
    }

    fn shut_down(&mut self, id: SocketId) -> Result<Output, Fault> {
        let socket = self.sockets.get(id).filter(|socket| socket.closing.is_none()).ok_or_else(closed)?;
        if socket.sending.is_some() {
            return Err(Fault::new(FaultKind::Busy, format!("a send to {} is under way", socket.address)));
        }
        if socket.mute.is_none() {
            socket.mute = Some(Fault::new(FaultKind::Closed, format!("sending to {} was shut down", socket.address)));
            let fail = |error| fault_of(&format!("ending what is sent to {}", socket.address), &error);
            socket.shut_down().map_err(fail)?;
        }
        Ok(Output::Done)
    }

    fn close_socket(&mut self, token: Token, id: SocketId) {
        let Some(socket) = self.sockets.get(id).filter(|socket| socket.closing.is_none()) else {
            return self.finish(token, Ok(Output::Done), None);
        };
        if socket.is_quiet() {
            drop(self.sockets.remove(id));
            return self.finish(token, Ok(Output::Done), None);
        }
        socket.closing = Some(token);
        let under_way = [socket.sending, socket.awaiting];
        for slot in under_way.into_iter().flatten() {
            self.cancel_exchange(slot);
        }
    }

    pub(super) fn cancel_exchange(&mut self, slot: u32) {
        let exchange = self.flights.exchange(slot);
        exchange.is_cancelled = true;
        if self.mechanism.cancel_exchange(exchange.call, slot) {
            let mut done = std::mem::take(&mut self.ready);
            self.end_exchange(slot, -libc::ECANCELED, &mut done);
            self.ready = done;
        }
    }

    /// Takes the result of an attempt: the operation completes or its rest is queued.
    pub(super) fn exchanged(&mut self, slot: u32, result: i32, done: &mut Vec<Completion>) {
        let exchange = self.flights.exchange(slot);
        let is_interrupted = matches!(-result, libc::EINTR | libc::EAGAIN);
        if exchange.call == Call::Send && result > 0 {
            exchange.done += result as u32;
        }
        let is_short = exchange.call == Call::Send && result > 0 && exchange.done < exchange.length;
        match (is_interrupted || is_short, exchange.is_cancelled) {
            (true, false) => self.start_exchange(slot),
            (true, true) => self.end_exchange(slot, -libc::ECANCELED, done),
            (false, _) => self.end_exchange(slot, result, done),
        }
    }

    /// Ends what is under way on all sockets: the driver is being dropped.
    pub(super) fn end_exchanges(&mut self) {
        for slot in self.flights.exchanges() {
            self.cancel_exchange(slot);
        }
    }

    /// Closes connections that were accepted and not looked at.
    pub(super) fn close_unseen(&mut self) {
        self.answers.clear();
        self.mailbox.collect(&mut self.answers);
        for Answer { slot, result } in std::mem::take(&mut self.answers) {
            if let JobResult::Transferred(fd) = result
                && fd >= 0
                && self.flights.is_exchange(slot)
                && self.flights.exchange(slot).call == Call::Accept
            {
                drop(sockets::accepted(fd));
            }
        }
    }

    fn end_exchange(&mut self, slot: u32, result: i32, done: &mut Vec<Completion>) {
        let (token, Flight::Exchange(exchange)) = self.flights.remove(slot) else {
            unreachable!("slot {slot} holds no exchange")
        };
        let id = exchange.socket;
        let socket = self.sockets.get(id).expect("a socket outlasts what is under way on it");
        *socket.under_way(exchange.call) = None;
        let is_closing = socket.closing.is_some();
        let ended = self.outcome(&exchange, result, is_closing);
        done.push(Completion { token, result: ended, buffer: exchange.buffer });
        let closing = self.sockets.get(id).filter(|socket| socket.is_quiet()).and_then(|socket| socket.closing);
        if let Some(token) = closing {
            drop(self.sockets.remove(id));
            done.push(Completion { token, result: Ok(Output::Done), buffer: None });
        }
    }

    /// What an operation answers with.
    fn outcome(&mut self, exchange: &Exchange, result: i32, is_closing: bool) -> Result<Output, Fault> {
        let id = exchange.socket;
        let socket = self.sockets.get(id).expect("a socket outlasts what is under way on it");
        let address = socket.address;
        if result < 0 || is_closing {
            let ended = if is_closing { closed() } else { fault_of_exchange(exchange, address, -result) };
            if exchange.call == Call::Send {
                socket.mute = Some(Fault::new(FaultKind::Closed, format!("a send to {address} has failed")));
            }
            if exchange.call == Call::Accept && result >= 0 {
                drop(sockets::accepted(result));
            }
            if exchange.call == Call::Connect && !is_closing {
                drop(self.sockets.remove(id));
            }
            return Err(ended);
        }
        match exchange.call {
            Call::Accept => {
                let socket = sockets::accepted(result)?;
                let peer = socket.address;
                Ok(Output::Connected { connection: self.sockets.insert(socket)?, peer })
            }
            Call::Connect => {
                if let Kind::Connection(stream) = &socket.kind {
                    // A connection that has ended at once refuses, and says so when it is used.
                    let _ = stream.set_nodelay(true);
                }
                Ok(Output::Connected { connection: id, peer: address })
            }
            Call::Send => Ok(Output::Done),
            _ => Ok(Output::Received { length: result as u32 }),
        }
    }
}

fn fault_of_exchange(exchange: &Exchange, address: SocketAddr, errno: i32) -> Fault {
    let error = io::Error::from_raw_os_error(errno);
    Fault::new(kind_of(errno), format!("{}: {error}", exchange.attempt(address)))
}
