//! What programs ask of their machine's network, and how that ends.

use super::Net;
use super::cable::What;
use super::host::{Call, Listener, State};
use super::link::{CLIENT, Content, End, EndState, Flow, Link, Receiving, SERVER, Sending, closed};
use base::Instant;
use base::time::SECOND_NS;
use driver::{Fault, FaultKind, Frame, Op, OpKind, Output, SocketId, Token};
use std::collections::VecDeque;
use std::net::SocketAddr;

/// How long a connect waits for an answer: seven attempts of a kernel, each after twice as long as the one before.
const CONNECT_PATIENCE_NS: u64 = 127 * SECOND_NS;

type Ended = (Result<Output, Fault>, Option<Frame>);

fn busy(what: &str) -> Fault {
    Fault::new(FaultKind::Busy, format!("another {what} of this socket is under way"))
}

fn cancelled() -> Fault {
    Fault::new(FaultKind::Cancelled, "given up on request")
}

impl Net {
    /// A connection that is about to change.
    pub(crate) fn link(&mut self, id: u64) -> &mut Link {
        self.changed.push(id);
        self.links.get_mut(&id).expect("a connection lasts as long as something refers to it")
    }

    pub(crate) fn call(&mut self, machine: u32, token: Token, call: Call) {
        match call {
            Call::Submit(op) => self.submit(machine, token, op),
            Call::Cancel => self.cancel(machine, token),
        }
    }

    fn submit(&mut self, machine: u32, token: Token, op: Op) {
        let kind = op.kind();
        let ended = match op {
            Op::Listen { address } => Some((self.listen(machine, address), None)),
            Op::Accept { listener } => self.accept(machine, token, listener).map(|result| (result, None)),
            Op::Connect { address } => self.connect(machine, token, address).map(|fault| (Err(fault), None)),
            Op::Send { connection, length, buffer } => {
                self.send(machine, connection, Sending { token, buffer, length: length as usize, taken: 0 })
            }
            Op::Receive { connection, length, buffer } => {
                self.receive(machine, connection, Receiving { token, buffer, length: length as usize })
            }
            Op::Shutdown { connection } => Some((self.shut_down(machine, connection), None)),
            Op::Close { socket } => {
                self.close(machine, socket);
                Some((Ok(Output::Done), None))
            }
            other => unreachable!("{other:?} is no operation of the network"),
        };
        if let Some((result, buffer)) = ended {
            self.hosts[machine as usize].complete(self.now, (token, kind), result, buffer);
        }
    }

    fn listen(&mut self, machine: u32, mut address: SocketAddr) -> Result<Output, Fault> {
        let host = &mut self.hosts[machine as usize];
        if !host.has(address.ip()) {
            let message = format!("listening at {address}: this machine is {}", host.address);
            return Err(Fault::new(FaultKind::Unreachable, message));
        }
        if address.port() == 0 {
            address.set_port(host.choose_port());
        } else if host.listener_at(address.port()).is_some() {
            return Err(Fault::new(FaultKind::AddressInUse, format!("something listens at {address} already")));
        }
        let listener = host.new_socket();
        host.listeners.insert(listener, Listener { address, accept: None, queue: VecDeque::new() });
        Ok(Output::Listening { listener, address })
    }

    fn accept(&mut self, machine: u32, token: Token, socket: SocketId) -> Option<Result<Output, Fault>> {
        let Some(listener) = self.hosts[machine as usize].listeners.get_mut(&socket) else {
            return Some(Err(closed()));
        };
        if listener.accept.is_some() {
            return Some(Err(busy("accept")));
        }
        if listener.queue.is_empty() {
            listener.accept = Some(token);
            return None;
        }
        let port = listener.address.port();
        self.accept_next(machine, port).map(Ok)
    }

    /// Takes the first connection that waits at a port.
    pub(crate) fn accept_next(&mut self, machine: u32, port: u16) -> Option<Output> {
        let host = &mut self.hosts[machine as usize];
        let id = host.listener_at(port)?.queue.pop_front()?;
        let connection = host.new_socket();
        host.sockets.insert(connection, (id, SERVER));
        Some(Output::Connected { connection, peer: self.link(id).ends[CLIENT].address })
    }

    /// Begins to connect, or returns why that cannot be.
    fn connect(&mut self, machine: u32, token: Token, address: SocketAddr) -> Option<Fault> {
        let ip = address.ip();
        let is_local = self.hosts[machine as usize].has(ip);
        let target =
            if is_local { Some(machine as usize) } else { self.hosts.iter().position(|host| host.address == ip) };
        let Some(target) = target else {
            return Some(Fault::new(FaultKind::Unreachable, format!("no machine has the address {ip}")));
        };
        let host = &mut self.hosts[machine as usize];
        let own = SocketAddr::new(if ip.is_loopback() { ip } else { host.address }, host.choose_port());
        let id = self.next_link;
        self.next_link += 1;
        host.connecting.insert(token, (id, self.now.plus_ns(CONNECT_PATIENCE_NS)));
        let ends = [End::new(own, EndState::Connecting(token)), End::new(address, EndState::Absent)];
        let flows = [Flow::default(), Flow::default()];
        self.links.insert(id, Link { hosts: [machine, target as u32], ends, flows, parcels: 0 });
        self.post(id, SERVER, What::Open);
        None
    }

    /// The connect that has waited longest for an answer has waited long enough.
    pub(crate) fn give_up_connect(&mut self, machine: u32) {
        let Some((_, token)) = self.hosts[machine as usize].patience() else { return };
        let (id, _) = self.hosts[machine as usize].connecting[&token];
        let address = self.link(id).ends[SERVER].address;
        self.end_connect(id, Err(Fault::new(FaultKind::TimedOut, format!("{address} does not answer"))));
        self.link(id).ends[CLIENT].state = EndState::Closed;
    }

    /// The connection of a socket and which side this machine is, if it can be used.
    fn usable(&mut self, machine: u32, socket: SocketId) -> Result<(u64, usize), Fault> {
        let (id, side) = *self.hosts[machine as usize].sockets.get(&socket).ok_or_else(closed)?;
        let link = self.link(id);
        let peer = link.ends[1 - side].address;
        link.ends[side].unusable(peer).map_or(Ok((id, side)), Err)
    }

    fn send(&mut self, machine: u32, socket: SocketId, sending: Sending) -> Option<Ended> {
        assert!(sending.length <= sending.buffer.len(), "what is sent stands in the buffer");
        let able = self.usable(machine, socket).and_then(|(id, side)| {
            let end = &mut self.link(id).ends[side];
            match &end.mute {
                Some(fault) => Err(fault.clone()),
                None if end.sending.is_some() => Err(busy("send")),
                None => Ok((id, side)),
            }
        });
        match able {
            Err(fault) => Some((Err(fault), Some(sending.buffer))),
            Ok((id, side)) => {
                self.link(id).ends[side].sending = Some(sending);
                self.pump(id, side);
                None
            }
        }
    }

    fn receive(&mut self, machine: u32, socket: SocketId, receiving: Receiving) -> Option<Ended> {
        assert!((1..=receiving.buffer.len()).contains(&receiving.length), "what is received fits the buffer");
        let able = self.usable(machine, socket).and_then(|(id, side)| {
            let is_busy = self.link(id).ends[side].receiving.is_some();
            if is_busy { Err(busy("receive")) } else { Ok((id, side)) }
        });
        match able {
            Err(fault) => Some((Err(fault), Some(receiving.buffer))),
            Ok((id, side)) => {
                self.link(id).ends[side].receiving = Some(receiving);
                self.feed(id, side);
                None
            }
        }
    }

    fn shut_down(&mut self, machine: u32, socket: SocketId) -> Result<Output, Fault> {
        let (id, side) = self.usable(machine, socket)?;
        let end = &mut self.link(id).ends[side];
        if end.sending.is_some() {
            return Err(busy("send"));
        }
        if end.mute.is_none() {
            end.mute = Some(Fault::new(FaultKind::Closed, "the sending was shut down"));
            self.send_part(id, side, Content::End);
        }
        Ok(Output::Done)
    }

    /// Lets leave what an end wants to send, as far as its peer has room.
    fn pump(&mut self, id: u64, side: usize) {
        let (packet, window) = (self.wires.network().packet as usize, self.wires.network().window as usize);
        loop {
            let Link { hosts, ends, flows, .. } = self.link(id);
            let host = hosts[side];
            let Some(sending) = &mut ends[side].sending else { return };
            let rest = sending.length - sending.taken;
            if rest == 0 {
                let Sending { token, buffer, .. } = ends[side].sending.take().expect("just seen");
                return self.hosts[host as usize].complete(
                    self.now,
                    (token, OpKind::Send),
                    Ok(Output::Done),
                    Some(buffer),
                );
            }
            let count = rest.min(packet).min(flows[side].room(window));
            if count == 0 {
                return;
            }
            let bytes = sending.buffer[sending.taken..sending.taken + count].to_vec();
            sending.taken += count;
            self.send_part(id, side, Content::Bytes(bytes));
        }
    }

    /// Gives an end what has arrived for it, if it waits for that.
    pub(crate) fn feed(&mut self, id: u64, side: usize) {
        let Link { hosts, ends, flows, .. } = self.link(id);
        let (host, flow) = (hosts[side], &mut flows[1 - side]);
        if flow.unread.is_empty() && !flow.is_ended {
            return;
        }
        let Some(Receiving { token, mut buffer, length }) = ends[side].receiving.take() else { return };
        let count = flow.read(&mut buffer[..length]) as u32;
        let output = Output::Received { length: count };
        self.hosts[host as usize].complete(self.now, (token, OpKind::Receive), Ok(output), Some(buffer));
        self.pump(id, 1 - side);
    }

    /// What is under way at an end fails.
    pub(crate) fn end_transfers(&mut self, id: u64, side: usize, fault: &Fault) {
        let link = self.link(id);
        let host = link.hosts[side] as usize;
        let (sending, receiving) = (link.ends[side].sending.take(), link.ends[side].receiving.take());
        if let Some(Sending { token, buffer, .. }) = sending {
            self.hosts[host].complete(self.now, (token, OpKind::Send), Err(fault.clone()), Some(buffer));
        }
        if let Some(Receiving { token, buffer, .. }) = receiving {
            self.hosts[host].complete(self.now, (token, OpKind::Receive), Err(fault.clone()), Some(buffer));
        }
    }

    fn close(&mut self, machine: u32, socket: SocketId) {
        let host = &mut self.hosts[machine as usize];
        if let Some(listener) = host.listeners.remove(&socket) {
            if let Some(token) = listener.accept {
                host.complete(self.now, (token, OpKind::Accept), Err(closed()), None);
            }
            for id in listener.queue {
                self.abort(id, SERVER);
            }
        } else if let Some((id, side)) = host.sockets.remove(&socket) {
            self.end_transfers(id, side, &closed());
            self.close_end(id, side);
        }
    }

    /// An end is closed: its peer is told of the end of the stream, or, if something was not read, of a reset.
    fn close_end(&mut self, id: u64, side: usize) {
        let link = self.link(id);
        if !link.flows[1 - side].unread.is_empty() {
            return self.abort(id, side);
        }
        let state = std::mem::replace(&mut link.ends[side].state, EndState::Closed);
        if state == EndState::Open && !link.flows[side].is_shut {
            self.send_part(id, side, Content::End);
        }
    }

    /// An end is closed and its peer told of a reset.
    fn abort(&mut self, id: u64, side: usize) {
        let link = self.link(id);
        let state = std::mem::replace(&mut link.ends[side].state, EndState::Closed);
        link.flows[1 - side].discard();
        if state == EndState::Open && !link.flows[side].is_hung {
            self.post(id, 1 - side, What::Reset);
        }
    }

    fn cancel(&mut self, machine: u32, token: Token) {
        let host = &mut self.hosts[machine as usize];
        if host.connecting.contains_key(&token) {
            let (id, _) = host.connecting[&token];
            self.end_connect(id, Err(cancelled()));
            self.link(id).ends[CLIENT].state = EndState::Closed;
            return;
        }
        let accepts = |listener: &&mut Listener| listener.accept == Some(token);
        if let Some(listener) = host.listeners.values_mut().find(accepts) {
            listener.accept = None;
            return host.complete(self.now, (token, OpKind::Accept), Err(cancelled()), None);
        }
        for (id, side) in host.sockets.values().copied().collect::<Vec<_>>() {
            self.cancel_transfer(id, side, token);
        }
    }

    fn cancel_transfer(&mut self, id: u64, side: usize, token: Token) {
        let link = self.link(id);
        let (host, end) = (link.hosts[side] as usize, &mut link.ends[side]);
        if let Some(sending) = end.sending.take_if(|sending| sending.token == token) {
            end.mute = Some(Fault::new(FaultKind::Closed, "a send was given up half way"));
            self.hosts[host].complete(self.now, (token, OpKind::Send), Err(cancelled()), Some(sending.buffer));
        } else if let Some(receiving) = end.receiving.take_if(|receiving| receiving.token == token) {
            self.hosts[host].complete(self.now, (token, OpKind::Receive), Err(cancelled()), Some(receiving.buffer));
        }
    }

    /// A machine's program has ended, and its kernel closes what it had open.
    pub(crate) fn end_program(&mut self, machine: u32) {
        // What it has asked for before its end is done.
        while let Some((_, token, call)) = self.hosts[machine as usize].calls.pop_front() {
            self.call(machine, token, call);
        }
        let host = &mut self.hosts[machine as usize];
        let sockets: Vec<_> = host.listeners.keys().chain(host.sockets.keys()).copied().collect();
        let connecting: Vec<_> = host.connecting.values().map(|(id, _)| *id).collect();
        host.state = State::Vacant;
        sockets.into_iter().for_each(|socket| self.close(machine, socket));
        connecting.into_iter().for_each(|id| self.link(id).ends[CLIENT].state = EndState::Closed);
        self.hosts[machine as usize].forget_program();
        self.hand_over_events(machine);
    }

    /// A machine's power is gone. Peers see nothing of that.
    pub(crate) fn darken(&mut self, machine: u32) {
        let host = &mut self.hosts[machine as usize];
        host.state = State::Dark;
        host.forget_program();
        self.changed.extend(self.links.keys());
        for link in self.links.values_mut() {
            for side in [CLIENT, SERVER] {
                let is_there = !matches!(link.ends[side].state, EndState::Absent);
                if link.hosts[side] == machine && is_there {
                    let address = link.ends[side].address;
                    link.ends[side] = End::new(address, EndState::Closed);
                    link.flows[1 - side].discard();
                }
            }
        }
    }
}

impl super::Host {
    /// The connect that will be given up first, and when.
    pub(crate) fn patience(&self) -> Option<(Instant, Token)> {
        self.connecting.iter().map(|(token, (_, until))| (*until, *token)).min()
    }
}
