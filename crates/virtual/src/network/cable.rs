//! Parcels between the ends of connections: leaving, hopping along the wires, arriving.

use super::Net;
use super::faults::Fate;
use super::host::State;
use super::link::{CLIENT, Content, EndState, Link, SERVER, reset};
use base::time::SECOND_NS;
use devices::PacketId;
use driver::{Fault, FaultKind, OpKind, Output};

/// How long a parcel is that carries no bytes of a stream.
const CONTROL_BYTES: u32 = 64;
/// A listener has at most this many connections that were not accepted; more have to try again.
const BACKLOG: usize = 128;
const TRY_AGAIN_NS: u64 = SECOND_NS;

/// What travels.
pub(crate) struct Parcel {
    pub(crate) link: u64,
    /// To which side.
    pub(crate) to: usize,
    pub(crate) what: What,
    /// Whether something went wrong that has kept it from leaving.
    pub(crate) was_kept: bool,
}

pub(crate) enum What {
    /// The wish for a connection, and the answers.
    Open,
    Opened,
    Refused,
    /// This place of the stream.
    Part(u64, Content),
    /// The connection is gone.
    Reset,
}

/// Something that happens to a machine.
pub(crate) enum Event {
    /// A parcel leaves, later than it would have.
    Depart(Parcel),
    Hop(PacketId, Parcel),
    /// A parcel arrives that uses no wires.
    Arrive(Parcel),
}

impl Event {
    fn parcel(&self) -> &Parcel {
        match self {
            Event::Depart(parcel) | Event::Hop(_, parcel) | Event::Arrive(parcel) => parcel,
        }
    }
}

impl Net {
    pub(crate) fn happen(&mut self, machine: u32, event: Event) {
        match event {
            Event::Depart(parcel) => self.depart(parcel),
            Event::Arrive(parcel) => self.arrive(parcel),
            Event::Hop(packet, parcel) => match self.wires.hop(self.now, packet) {
                Some(next) => self.schedule(machine, next, Event::Hop(packet, parcel)),
                None => self.arrive(parcel),
            },
        }
    }

    /// From which machine to which it travels.
    fn route(&self, parcel: &Parcel) -> (u32, u32) {
        let hosts = self.links[&parcel.link].hosts;
        (hosts[1 - parcel.to], hosts[parcel.to])
    }

    /// To which machine a parcel's events happen: where it goes to, unless no program runs there.
    fn owner(&self, (from, to): (u32, u32)) -> u32 {
        if self.hosts[to as usize].state == State::Vacant { from } else { to }
    }

    pub(crate) fn post(&mut self, link: u64, to: usize, what: What) {
        self.post_after(0, link, to, what);
    }

    /// Posts a parcel that leaves so much later.
    fn post_after(&mut self, ns: u64, link: u64, to: usize, what: What) {
        self.link(link).parcels += 1;
        let mut parcel = Parcel { link, to, what, was_kept: false };
        let ns = ns + self.chance.lateness_ns(self.now, self.route(&parcel));
        parcel.was_kept = ns > 0;
        if ns == 0 {
            return self.depart(parcel);
        }
        let owner = self.owner(self.route(&parcel));
        self.schedule(owner, self.now.plus_ns(ns), Event::Depart(parcel));
    }

    fn depart(&mut self, mut parcel: Parcel) {
        let (from, to) = self.route(&parcel);
        let owner = self.owner((from, to));
        if from == to {
            return self.schedule(owner, self.now, Event::Arrive(parcel));
        }
        if let Some(at) = self.chance.held(self.now, (from, to)) {
            parcel.was_kept = true;
            return self.schedule(owner, at, Event::Depart(parcel));
        }
        let bytes = match &parcel.what {
            What::Part(_, Content::Bytes(bytes)) => bytes.len() as u32,
            _ => CONTROL_BYTES,
        };
        let (packet, hop) = self.wires.send(self.now, (from, to), bytes);
        self.schedule(owner, hop, Event::Hop(packet, parcel));
    }

    /// A part of a stream leaves its end, if the network lets it.
    pub(crate) fn send_part(&mut self, id: u64, side: usize, content: Content) {
        let link = self.link(id);
        let place = link.flows[side].leave(&content);
        if link.flows[side].is_hung {
            return;
        }
        let is_local = link.hosts[CLIENT] == link.hosts[SERVER];
        let fate = if is_local { Fate::Carried } else { self.chance.fate() };
        let part = What::Part(place, content);
        match fate {
            Fate::Carried => self.post(id, 1 - side, part),
            Fate::Late(ns) => self.post_after(ns, id, 1 - side, part),
            Fate::Hung => self.link(id).flows[side].is_hung = true,
            Fate::Reset => self.break_link(id),
        }
    }

    /// A connection breaks: its ends learn of it one after the other.
    fn break_link(&mut self, id: u64) {
        let (ns, first) = self.chance.rift();
        self.fail_end(id, first);
        self.post_after(ns, id, 1 - first, What::Reset);
    }

    /// The connections between two machines.
    fn links_between(&self, one: u32, other: u32) -> Vec<u64> {
        let is_between = |link: &Link| link.hosts == [one, other] || link.hosts == [other, one];
        self.links.iter().filter(|(_, link)| is_between(link)).map(|(id, _)| *id).collect()
    }

    pub(crate) fn break_between(&mut self, one: u32, other: u32) -> usize {
        let links = self.links_between(one, other);
        let open = |id: &u64| self.links[id].ends.iter().all(|end| matches!(end.state, EndState::Open));
        let links: Vec<u64> = links.into_iter().filter(open).collect();
        links.iter().for_each(|id| self.break_link(*id));
        self.chance.injected.resets += links.len() as u64;
        links.len()
    }

    pub(crate) fn hang_between(&mut self, sender: u32, receiver: u32) -> usize {
        let links = self.links_between(sender, receiver);
        for id in &links {
            let link = self.link(*id);
            let side = usize::from(link.hosts[CLIENT] != sender);
            link.flows[side].is_hung = true;
        }
        self.chance.injected.hung += links.len() as u64;
        links.len()
    }

    fn arrive(&mut self, parcel: Parcel) {
        let Parcel { link: id, to, what, was_kept } = parcel;
        self.link(id).parcels -= 1;
        match what {
            What::Open => self.arrive_open(id),
            What::Opened => self.arrive_opened(id),
            What::Refused => {
                let fault = Fault::new(
                    FaultKind::Refused,
                    format!("nothing listens at {}", self.link(id).ends[SERVER].address),
                );
                self.end_connect(id, Err(fault));
                self.link(id).ends[CLIENT].state = EndState::Closed;
            }
            What::Reset => self.fail_end(id, to),
            What::Part(place, content) => self.arrive_part(id, to, (place, content), was_kept),
        }
    }

    fn arrive_open(&mut self, id: u64) {
        let link = self.link(id);
        let (machine, address) = (link.hosts[SERVER], link.ends[SERVER].address);
        let Some(listener) = self.hosts[machine as usize].listener_at(address.port()) else {
            return self.post(id, CLIENT, What::Refused);
        };
        if listener.queue.len() >= BACKLOG {
            return self.post_after(TRY_AGAIN_NS, id, SERVER, What::Open);
        }
        listener.queue.push_back(id);
        let accept = listener.accept.take();
        self.link(id).ends[SERVER].state = EndState::Open;
        self.post(id, CLIENT, What::Opened);
        if let Some(token) = accept {
            let output = self.accept_next(machine, address.port()).expect("one has just come");
            self.hosts[machine as usize].complete(self.now, (token, OpKind::Accept), Ok(output), None);
        }
    }

    fn arrive_opened(&mut self, id: u64) {
        let end = &mut self.link(id).ends[CLIENT];
        if !matches!(end.state, EndState::Connecting(_)) {
            // It has been given up meanwhile.
            return self.post(id, SERVER, What::Reset);
        }
        let host = self.link(id).hosts[CLIENT] as usize;
        let connection = self.hosts[host].new_socket();
        self.hosts[host].sockets.insert(connection, (id, CLIENT));
        let peer = self.link(id).ends[SERVER].address;
        self.end_connect(id, Ok(Output::Connected { connection, peer }));
        self.link(id).ends[CLIENT].state = EndState::Open;
    }

    /// A connect completes.
    pub(crate) fn end_connect(&mut self, id: u64, result: Result<Output, Fault>) {
        let link = self.link(id);
        let (EndState::Connecting(token), host) = (link.ends[CLIENT].state, link.hosts[CLIENT]) else { return };
        let host = &mut self.hosts[host as usize];
        host.connecting.remove(&token);
        host.complete(self.now, (token, OpKind::Connect), result, None);
    }

    fn arrive_part(&mut self, id: u64, to: usize, (place, content): (u64, Content), was_kept: bool) {
        let link = self.link(id);
        match link.ends[to].state {
            EndState::Open | EndState::Connecting(_) => {
                link.flows[1 - to].arrive(place, content);
                self.feed(id, to);
            }
            EndState::Closed | EndState::Absent if content != Content::End => {
                self.chance.injected.stray += u64::from(was_kept);
                self.post(id, 1 - to, What::Reset);
            }
            _ => {}
        }
    }

    /// An end learns that its connection is gone.
    pub(crate) fn fail_end(&mut self, id: u64, side: usize) {
        let link = self.link(id);
        let peer = link.ends[1 - side].address;
        match link.ends[side].state {
            EndState::Open => {
                self.end_transfers(id, side, &reset(peer));
                self.link(id).ends[side].state = EndState::Reset;
                self.link(id).flows[1 - side].discard();
            }
            EndState::Connecting(_) => {
                self.end_connect(id, Err(reset(peer)));
                self.link(id).ends[side].state = EndState::Closed;
            }
            _ => {}
        }
    }

    /// No program runs on a machine any more: what would happen to it happens to its peers.
    pub(crate) fn hand_over_events(&mut self, machine: u32) {
        let mut events = Vec::new();
        while let Some(event) = self.hosts[machine as usize].withdraw_event() {
            events.push(event);
        }
        for (at, event) in events {
            let hosts = self.link(event.parcel().link).hosts;
            let peer = if hosts[0] == machine { hosts[1] } else { hosts[0] };
            self.schedule(peer, at, event);
        }
    }
}
