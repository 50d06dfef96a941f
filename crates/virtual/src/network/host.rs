//! What one machine has of a network: its sockets, what happens to it, what has completed.

use super::cable::Event;
use base::Instant;
use devices::Calendar;
use driver::{Completion, Fault, Frame, Op, OpKind, Output, SocketId, Token};
use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, SocketAddr};

/// Ports that the system chooses begin here.
const CHOSEN_PORTS: u16 = 49_152;

/// Whether a program runs on a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// A driver simulates it.
    Running,
    /// It is up, and no program runs.
    Vacant,
    /// Its power is gone.
    Dark,
}

pub(crate) struct Listener {
    pub(crate) address: SocketAddr,
    /// The accept under way.
    pub(crate) accept: Option<Token>,
    /// Connections that no accept has asked for yet.
    pub(crate) queue: VecDeque<u64>,
}

/// What a machine asks of the network.
pub(crate) enum Call {
    Submit(Op),
    Cancel,
}

/// What happens to a machine next.
pub(crate) enum Happening {
    Event(Event),
    Call(Token, Call),
}

pub(crate) struct Host {
    pub(crate) address: IpAddr,
    pub(crate) state: State,
    pub(crate) calendar: Calendar,
    events: Vec<Option<Event>>,
    free: Vec<u32>,
    pub(crate) happened: u64,
    /// What this machine has asked for where it is ahead of others, and when.
    pub(crate) calls: VecDeque<(Instant, Token, Call)>,
    /// What has completed, and when.
    inbox: Vec<(Instant, OpKind, Completion)>,
    pub(crate) listeners: BTreeMap<SocketId, Listener>,
    /// Connections, and the side of each that is this machine's.
    pub(crate) sockets: BTreeMap<SocketId, (u64, usize)>,
    /// Connects under way, and when each is given up.
    pub(crate) connecting: BTreeMap<Token, (u64, Instant)>,
    sockets_given: u32,
    ports_chosen: u16,
}

impl Host {
    pub(crate) fn new(address: IpAddr) -> Host {
        Host {
            address,
            state: State::Vacant,
            calendar: Calendar::new(),
            events: Vec::new(),
            free: Vec::new(),
            happened: 0,
            calls: VecDeque::new(),
            inbox: Vec::new(),
            listeners: BTreeMap::new(),
            sockets: BTreeMap::new(),
            connecting: BTreeMap::new(),
            sockets_given: 0,
            ports_chosen: 0,
        }
    }

    pub(crate) fn schedule(&mut self, at: Instant, event: Event) {
        let place = self.free.pop().unwrap_or_else(|| {
            self.events.push(None);
            self.events.len() as u32 - 1
        });
        self.events[place as usize] = Some(event);
        self.calendar.schedule(at, place);
    }

    /// When something happens here, or is found to have not happened.
    pub(crate) fn next_event(&self) -> Option<Instant> {
        let call = self.calls.front().map(|(at, ..)| *at);
        let patience = self.patience().map(|(until, _)| until);
        self.calendar.next().into_iter().chain(call).chain(patience).min()
    }

    /// Takes what happens next, events first; `None` if a connect has waited long enough before.
    pub(crate) fn take_next(&mut self) -> Option<Happening> {
        self.happened += 1;
        let next = self.next_event()?;
        if self.calendar.next() == Some(next) {
            return self.withdraw_event().map(|(_, event)| Happening::Event(event));
        }
        let (_, token, call) = self.calls.pop_front_if(|(at, ..)| *at == next)?;
        Some(Happening::Call(token, call))
    }

    /// Takes the next event out without letting it happen.
    pub(crate) fn withdraw_event(&mut self) -> Option<(Instant, Event)> {
        let (at, place) = self.calendar.take()?;
        self.free.push(place);
        self.events[place as usize].take().map(|event| (at, event))
    }

    pub(crate) fn complete(
        &mut self,
        now: Instant,
        (token, kind): (Token, OpKind),
        result: Result<Output, Fault>,
        buffer: Option<Frame>,
    ) {
        self.inbox.push((now, kind, Completion { token, result, buffer }));
    }

    /// When the first of what has completed did so.
    pub(crate) fn next_completed(&self) -> Option<Instant> {
        self.inbox.iter().map(|(at, ..)| *at).min()
    }

    /// Takes what has completed by this moment.
    pub(crate) fn take_completed(&mut self, now: Instant) -> Vec<(OpKind, Completion)> {
        let completed = self.inbox.extract_if(.., |(at, ..)| *at <= now);
        completed.map(|(_, kind, completion)| (kind, completion)).collect()
    }

    /// A name for a socket.
    pub(crate) fn new_socket(&mut self) -> SocketId {
        self.sockets_given += 1;
        SocketId(self.sockets_given)
    }

    /// A port that nothing uses.
    pub(crate) fn choose_port(&mut self) -> u16 {
        loop {
            let port = CHOSEN_PORTS + self.ports_chosen;
            self.ports_chosen = (self.ports_chosen + 1) % (u16::MAX - CHOSEN_PORTS);
            if self.listener_at(port).is_none() {
                return port;
            }
        }
    }

    /// Whether an address is this machine's.
    pub(crate) fn has(&self, address: IpAddr) -> bool {
        address.is_unspecified() || address.is_loopback() || address == self.address
    }

    /// The listener at a port.
    pub(crate) fn listener_at(&mut self, port: u16) -> Option<&mut Listener> {
        self.listeners.values_mut().find(|listener| listener.address.port() == port)
    }

    /// Forgets sockets and completions: the program is gone.
    pub(crate) fn forget_program(&mut self) {
        self.inbox.clear();
        self.calls.clear();
        self.listeners.clear();
        self.sockets.clear();
        self.connecting.clear();
    }
}
