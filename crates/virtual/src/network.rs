//! A network that joins simulated machines: sockets as the kernel of each machine has them, and parcels on the wires between.
//!
//! * **Time**: every event belongs to the machine that it happens to, and happens in that machine's park. The wires are the
//!   queueing model of the devices crate. A machine of which no program runs leaves its events to the other end. A machine whose tasks
//!   keep its CPU until they wait may have come further than others: what it asks for is done when they have come as far, and what
//!   happens to it meanwhile happens at its time, in a turn in which the machine itself does nothing.
//! * **Streams**: the bytes of one direction of a connection arrive in the order in which they were sent, whatever happens to the
//!   parcels. At most a window of them is under way or unread. What a receiver takes makes room for its peer at once:
//!   acknowledgements cost nothing and take no time.
//! * **Death**: a driver that is dropped is a program that ended: the kernel closes its sockets. One whose power was cut says
//!   nothing; its peers learn of it when it is attached again and has forgotten their connections.

mod cable;
mod faults;
mod host;
mod link;
mod operations;
mod processors;

pub(crate) use host::Call;

pub use faults::{NetworkFaults, NetworkInjected, OneWay, Partition};

use base::Instant;
use cable::Event;
use devices::{Network as Description, Wires};
use driver::{Completion, OpKind, StationReport, Token};
use faults::Chance;
use host::{Happening, Host, State};
use link::Link;
use processors::Processors;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::rc::Rc;

/// How a simulated network runs.
#[derive(Clone, Debug, PartialEq)]
pub struct NetworkOptions {
    /// The description's name, for reports.
    pub name: String,
    /// What carries the bytes.
    pub description: Description,
    /// Seeds every stream of random numbers.
    pub seed: u64,
    /// Whether all times are random, so that parcels arrive in a seeded random order (torture).
    pub jitter: bool,
    /// What goes wrong.
    pub faults: NetworkFaults,
    /// The machines are programs of one computer, which share this many processors; absent if each machine has what its hardware
    /// says. Counts where tasks keep their CPUs until they wait.
    pub processors: Option<u32>,
}

impl Default for NetworkOptions {
    /// A network that takes no time and does no harm.
    fn default() -> NetworkOptions {
        let (description, faults) = (Description::no_delay(), NetworkFaults::default());
        NetworkOptions { name: "ideal".to_owned(), description, seed: 0, jitter: false, faults, processors: None }
    }
}

/// A network of simulated machines. Clones are handles to the same one.
///
/// ```
/// use driver::{Driver, Op, Output, Token};
/// use entresol_virtual::{Hardware, Media, Network, NetworkOptions, Options, VirtualDriver};
///
/// let network = Network::new(NetworkOptions::default());
/// let mut server = VirtualDriver::on_network(Hardware::ideal(), Options::default(), Media::new(), network.attach(0));
/// server.submit(Token(1), Op::Listen { address: (network.address(0), 80).into() });
/// let mut done = Vec::new();
/// server.park(None, &mut done).expect("it listens at once");
/// assert!(matches!(done[0].result, Ok(Output::Listening { address, .. }) if address.to_string() == "10.0.0.1:80"));
/// ```
#[derive(Clone)]
pub struct Network(Rc<RefCell<Net>>);

/// A machine's place on a network. Dropped with its driver.
pub struct Port {
    network: Network,
    machine: u32,
    /// Whether the power is gone, so that nothing is told to peers.
    is_cut: bool,
}

pub(crate) struct Net {
    wires: Wires,
    hosts: Vec<Host>,
    links: BTreeMap<u64, Link>,
    /// Those that were changed since the last look for what is left of them.
    changed: Vec<u64>,
    next_link: u64,
    chance: Chance,
    processors: Option<Processors>,
    /// What the machine that acts has come to.
    now: Instant,
    /// What the machine that is furthest has come to.
    latest: Instant,
}

impl Network {
    /// A network without machines.
    pub fn new(options: NetworkOptions) -> Network {
        let NetworkOptions { name, description, seed, jitter, faults, processors } = options;
        Network(Rc::new(RefCell::new(Net {
            wires: Wires::new(&name, &description, seed, jitter),
            hosts: Vec::new(),
            links: BTreeMap::new(),
            changed: Vec::new(),
            next_link: 0,
            chance: Chance::new(faults, seed),
            processors: processors.map(Processors::new),
            now: Instant::START,
            latest: Instant::START,
        })))
    }

    /// Joins a machine to the network, by its number, for the driver that will simulate it. A machine that was there before
    /// keeps its address; peers that still believe in its old connections will learn better.
    ///
    /// # Panics
    /// If a driver simulates that machine already.
    pub fn attach(&self, machine: u32) -> Port {
        let net = &mut *self.0.borrow_mut();
        for number in net.hosts.len() as u32..=machine {
            net.hosts.push(Host::new(address(number)));
        }
        let host = &mut net.hosts[machine as usize];
        assert!(host.state != State::Running, "machine {machine} is simulated already");
        host.state = State::Running;
        Port { network: self.clone(), machine, is_cut: false }
    }

    /// The address of a machine.
    pub fn address(&self, machine: u32) -> IpAddr {
        address(machine)
    }

    /// Adds to what goes wrong from now on.
    pub fn partition(&self, partition: Partition) {
        self.0.borrow_mut().chance.partition(partition);
    }

    /// The same for what one machine sends another one.
    pub fn disturb(&self, one_way: OneWay) {
        self.0.borrow_mut().chance.disturb(one_way);
    }

    /// Breaks the connections between two machines; the ends learn of it one after the other. Returns how many there were.
    pub fn break_connections(&self, one: u32, other: u32) -> usize {
        self.change(|net| net.break_between(one, other))
    }

    /// From now on the connections that there are between two machines carry nothing that `sender` sends, and neither end is told.
    /// Returns how many there are.
    pub fn hang_connections(&self, sender: u32, receiver: u32) -> usize {
        self.change(|net| net.hang_between(sender, receiver))
    }

    /// From now on nothing goes wrong: neither what was planned nor what was to happen by chance. What hangs goes on to hang.
    pub fn heal(&self) {
        self.0.borrow_mut().chance.heal();
    }

    /// The power of a machine goes: its peers are told nothing. Its driver is dropped next.
    pub fn cut_power(&self, machine: u32) {
        self.change(|net| net.darken(machine));
    }

    fn change<T>(&self, change: impl FnOnce(&mut Net) -> T) -> T {
        let net = &mut *self.0.borrow_mut();
        let changed = change(net);
        net.tidy();
        changed
    }

    /// What has gone wrong so far.
    pub fn injected(&self) -> NetworkInjected {
        self.0.borrow().chance.injected
    }

    /// How many connections exist at present, counting what is left of those that one end has closed.
    pub fn connections(&self) -> usize {
        self.0.borrow().links.len()
    }
}

fn address(machine: u32) -> IpAddr {
    let [_, high, middle, low] = (machine + 1).to_be_bytes();
    IpAddr::V4(Ipv4Addr::new(10, high, middle, low))
}

impl Port {
    /// The moment to which the machine has come that is furthest.
    pub(crate) fn latest(&self) -> Instant {
        self.network.0.borrow().latest
    }

    /// When something happens to this machine, or is found to have not happened, or has completed. A moment in the past is at once.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.next_event().into_iter().chain(self.next_completed()).min()
    }

    /// The same without what has completed.
    pub(crate) fn next_event(&self) -> Option<Instant> {
        self.network.0.borrow().hosts[self.machine as usize].next_event()
    }

    /// When the first of what has completed, and was not collected, did so.
    pub(crate) fn next_completed(&self) -> Option<Instant> {
        self.network.0.borrow().hosts[self.machine as usize].next_completed()
    }

    /// How many events have happened to this machine.
    pub(crate) fn events(&self) -> u64 {
        self.network.0.borrow().hosts[self.machine as usize].happened
    }

    pub(crate) fn call(&self, now: Instant, token: Token, call: Call) {
        self.net(now, |net, machine| net.call(machine, token, call));
    }

    /// The same of a machine that has come to a moment to which others may still have to come: it is done then.
    pub(crate) fn call_ahead(&self, at: Instant, token: Token, call: Call) {
        self.network.0.borrow_mut().hosts[self.machine as usize].calls.push_back((at, token, call));
    }

    /// The next event of this machine happens.
    pub(crate) fn step(&self, now: Instant) {
        self.net(now, |net, machine| match net.hosts[machine as usize].take_next() {
            Some(Happening::Event(event)) => net.happen(machine, event),
            Some(Happening::Call(token, call)) => net.call(machine, token, call),
            None => net.give_up_connect(machine),
        });
    }

    /// The moment to which those who use the network have come together.
    pub(crate) fn now(&self) -> Instant {
        self.network.0.borrow().now
    }

    /// Whether this machine, which has something to do, has a processor for it.
    pub(crate) fn runs(&self, now: Instant) -> bool {
        self.network.0.borrow_mut().processors.as_mut().is_none_or(|processors| processors.runs(self.machine, now))
    }

    /// Whether there is a processor for this machine, which waits for one.
    pub(crate) fn has_processor(&self) -> bool {
        let net = self.network.0.borrow();
        net.processors.as_ref().is_none_or(|processors| processors.has_room_for(self.machine))
    }

    /// This machine has nothing more to do.
    pub(crate) fn leave_processor(&self) {
        self.network.0.borrow_mut().processors.iter_mut().for_each(|processors| processors.leave(self.machine));
    }

    pub(crate) fn come_to(&self, now: Instant) {
        self.network.0.borrow_mut().come_to(now);
    }

    /// What has completed by this moment since this was last asked.
    pub(crate) fn collect(&self, now: Instant) -> Vec<(OpKind, Completion)> {
        self.network.0.borrow_mut().hosts[self.machine as usize].take_completed(now)
    }

    /// The power goes: nothing is told to peers.
    pub(crate) fn cut(&mut self) {
        self.is_cut = true;
    }

    pub(crate) fn stations(&self, now: Instant) -> Vec<StationReport> {
        self.network.0.borrow().wires.stations(now)
    }

    pub(crate) fn restart_statistics(&self, now: Instant) {
        self.network.0.borrow_mut().wires.restart_statistics(now);
    }

    fn net(&self, now: Instant, act: impl FnOnce(&mut Net, u32)) {
        let net = &mut *self.network.0.borrow_mut();
        net.come_to(now);
        act(net, self.machine);
        net.tidy();
    }
}

impl Drop for Port {
    fn drop(&mut self) {
        self.leave_processor();
        let net = &mut *self.network.0.borrow_mut();
        if self.is_cut || net.hosts[self.machine as usize].state == State::Dark {
            net.darken(self.machine)
        } else {
            net.end_program(self.machine)
        }
        net.tidy();
    }
}

impl Net {
    /// Forgets connections of which nothing is left. Looks at those alone that were changed, for machines that send each other pages have
    /// hundreds of others.
    fn tidy(&mut self) {
        for id in self.changed.drain(..) {
            if self.links.get(&id).is_some_and(Link::is_over) {
                self.links.remove(&id);
            }
        }
    }

    fn come_to(&mut self, now: Instant) {
        (self.now, self.latest) = (now, self.latest.max(now));
    }

    fn schedule(&mut self, machine: u32, at: Instant, event: Event) {
        let at = at.max(self.now);
        self.hosts[machine as usize].schedule(at, event);
    }
}
