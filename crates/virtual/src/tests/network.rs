//! Machines on a network that cuts, delays and breaks.

use super::frame;
use crate::{FaultPlan, Media, Network, NetworkFaults, NetworkOptions, OneWay, Options, Partition, VirtualDriver};
use base::time::{MILLISECOND_NS, SECOND_NS};
use base::{Instant, Random};
use devices::Hardware;
use driver::{Completion, Driver, FaultKind, Halt, Op, Output, SocketId, Token};
use std::net::SocketAddr;

/// Machines that take turns, and what has completed on them.
struct World {
    network: Network,
    drivers: Vec<Option<VirtualDriver>>,
    ended: Vec<(usize, Completion)>,
    now: Instant,
    next: u64,
}

impl World {
    fn new(machines: u32, faults: NetworkFaults, seed: u64) -> World {
        let network = Network::new(NetworkOptions { faults, seed, ..NetworkOptions::default() });
        let drivers = (0..machines).map(|machine| Some(driver(&network, machine, seed))).collect();
        World { network, drivers, ended: Vec::new(), now: Instant::START, next: 0 }
    }

    fn calm(machines: u32) -> World {
        World::new(machines, NetworkFaults::default(), 1)
    }

    fn submit(&mut self, machine: usize, op: Op) -> Token {
        self.next += 1;
        let (driver, mut done) = (self.drivers[machine].as_mut().expect("it runs"), Vec::new());
        driver.park(Some(self.now), &mut done).expect("it does not stop");
        driver.submit(Token(self.next), op);
        self.ended.extend(done.into_iter().map(|completion| (machine, completion)));
        Token(self.next)
    }

    /// The next turn, if it comes by `until`.
    fn turn(&mut self, until: Instant) -> bool {
        let moments = self.drivers.iter().enumerate();
        let moments = moments.filter_map(|(place, driver)| Some((driver.as_ref()?.next_event()?.max(self.now), place)));
        let Some((moment, place)) = moments.min().filter(|(moment, _)| *moment <= until) else { return false };
        self.now = moment;
        let mut done = Vec::new();
        match self.drivers[place].as_mut().expect("it runs").park(Some(moment), &mut done) {
            Ok(()) => self.ended.extend(done.into_iter().map(|completion| (place, completion))),
            Err(halt) => {
                assert_eq!(halt, Halt::PowerCut);
                self.drivers[place] = None;
            }
        }
        true
    }

    fn run_ns(&mut self, ns: u64) {
        let until = self.now.plus_ns(ns);
        while self.turn(until) {}
        self.now = until;
    }

    /// How an operation has ended, if it has.
    fn ended(&mut self, token: Token) -> Option<Completion> {
        let place = self.ended.iter().position(|(_, completion)| completion.token == token)?;
        Some(self.ended.remove(place).1)
    }

    /// Waits for an operation's end.
    fn end(&mut self, token: Token) -> Completion {
        loop {
            if let Some(completion) = self.ended(token) {
                return completion;
            }
            assert!(self.turn(Instant::NEVER), "it ends");
        }
    }

    fn run(&mut self, machine: usize, op: Op) -> Completion {
        let token = self.submit(machine, op);
        self.end(token)
    }

    fn address(&self, machine: u32) -> SocketAddr {
        SocketAddr::new(self.network.address(machine), 7_000)
    }

    fn listen(&mut self, machine: u32) -> SocketId {
        let address = self.address(machine);
        match self.run(machine as usize, Op::Listen { address }).result {
            Ok(Output::Listening { listener, .. }) => listener,
            other => panic!("{other:?}"),
        }
    }

    /// A connection from machine `from` to the listener of machine 0: the end there, and that of machine 0.
    fn connect(&mut self, from: usize, listener: SocketId) -> (SocketId, SocketId) {
        let address = self.address(0);
        let tokens = [self.submit(from, Op::Connect { address }), self.submit(0, Op::Accept { listener })];
        let [client, server] = tokens.map(|token| match self.end(token).result {
            Ok(Output::Connected { connection, .. }) => connection,
            other => panic!("{other:?}"),
        });
        (client, server)
    }

    fn send(&mut self, machine: usize, connection: SocketId, bytes: &[u8]) -> Completion {
        self.run(machine, send(connection, bytes))
    }

    fn receive(&mut self, machine: usize, connection: SocketId) -> Token {
        self.submit(machine, Op::Receive { connection, length: 100, buffer: frame(100) })
    }
}

fn driver(network: &Network, machine: u32, seed: u64) -> VirtualDriver {
    let options = Options { seed, faults: Some(FaultPlan::default()), ..Options::default() };
    VirtualDriver::on_network(Hardware::ideal(), options, Media::new(), network.attach(machine))
}

fn send(connection: SocketId, bytes: &[u8]) -> Op {
    let mut buffer = frame(bytes.len() as u32);
    buffer.copy_from_slice(bytes);
    Op::Send { connection, length: bytes.len() as u32, buffer }
}

fn received(completion: Completion) -> Result<Vec<u8>, FaultKind> {
    let buffer = completion.buffer.expect("a receive gives its buffer back");
    match completion.result {
        Ok(Output::Received { length }) => Ok(buffer[..length as usize].to_vec()),
        Ok(other) => panic!("{other:?}"),
        Err(fault) => Err(fault.kind),
    }
}

fn kind(completion: &Completion) -> Option<FaultKind> {
    completion.result.as_ref().err().map(|fault| fault.kind)
}

fn at_ms(ms: u64) -> Instant {
    Instant::from_ns(ms * MILLISECOND_NS)
}

#[test]
fn an_address_without_a_machine_is_unreachable_and_one_without_a_program_refuses() {
    let mut world = World::calm(2);
    let nowhere = "10.9.9.9:1".parse().expect("an address");
    assert_eq!(kind(&world.run(0, Op::Connect { address: nowhere })), Some(FaultKind::Unreachable));
    let address = world.address(1);
    assert_eq!(kind(&world.run(0, Op::Connect { address })), Some(FaultKind::Refused), "nothing listens");
    world.drivers[1] = None;
    assert_eq!(kind(&world.run(0, Op::Connect { address })), Some(FaultKind::Refused), "nothing runs");
}

#[test]
fn a_partition_holds_what_is_sent_until_it_heals() {
    let partitions = vec![Partition { machines: vec![1], from: at_ms(10), until: at_ms(500) }];
    let mut world = World::new(3, NetworkFaults { partitions, ..NetworkFaults::default() }, 1);
    let listener = world.listen(0);
    let ((client, server), (other, others)) = (world.connect(1, listener), world.connect(2, listener));
    world.run_ns(20 * MILLISECOND_NS);
    let (waits, reached) = (world.receive(0, server), world.receive(0, others));
    assert!(world.send(1, client, b"over").result.is_ok(), "the kernel has taken it");
    world.send(2, other, b"here");
    world.run_ns(400 * MILLISECOND_NS);
    assert_eq!(received(world.ended(reached).expect("they reach each other")), Ok(b"here".to_vec()));
    assert!(world.ended(waits).is_none());
    assert_eq!(received(world.end(waits)), Ok(b"over".to_vec()));
    assert!(world.now > at_ms(500) && world.now <= at_ms(700), "{}", world.now);
    assert_eq!(world.network.injected().held, 1);
}

#[test]
fn one_direction_is_cut_or_slow_and_the_other_goes_on() {
    let mut world = World::calm(2);
    let listener = world.listen(0);
    let (client, server) = world.connect(1, listener);
    let held = OneWay { machines: (1, 0), from: world.now, until: at_ms(300), late_ns: None };
    world.network.disturb(held.clone());
    let (there, back) = (world.receive(0, server), world.receive(1, client));
    world.send(1, client, b"there");
    world.send(0, server, b"back");
    assert_eq!(received(world.end(back)), Ok(b"back".to_vec()));
    assert!(world.now < at_ms(1));
    assert_eq!(received(world.end(there)), Ok(b"there".to_vec()));
    assert!(world.now >= at_ms(300) && world.now <= at_ms(500), "{}", world.now);
    let (from, late_ns) = (world.now, 70 * MILLISECOND_NS);
    world.network.disturb(OneWay { machines: (0, 1), from, until: at_ms(9_000), late_ns: Some(late_ns) });
    let (there, back) = (world.receive(0, server), world.receive(1, client));
    world.send(1, client, b"there");
    world.send(0, server, b"back");
    assert_eq!(received(world.end(there)), Ok(b"there".to_vec()));
    assert_eq!(world.now, from);
    assert_eq!(received(world.end(back)), Ok(b"back".to_vec()));
    assert_eq!(world.now, from.plus_ns(late_ns));
    world.network.disturb(OneWay { until: at_ms(9_000), ..held });
    world.network.heal();
    let there = world.receive(0, server);
    world.send(1, client, b"there");
    let healed = world.now;
    assert_eq!(received(world.end(there)), Ok(b"there".to_vec()));
    assert_eq!(world.now, healed);
}

#[test]
fn connections_are_broken_and_hang_on_demand() {
    let mut world = World::calm(3);
    let listener = world.listen(0);
    let ((client, server), (other, others)) = (world.connect(1, listener), world.connect(2, listener));
    assert_eq!(world.network.break_connections(1, 0), 1);
    for (machine, socket) in [(0, server), (1, client)] {
        let wait = world.receive(machine, socket);
        assert_eq!(received(world.end(wait)), Err(FaultKind::Reset));
    }
    assert_eq!(world.network.break_connections(1, 0), 0, "they are broken");
    assert_eq!(world.network.hang_connections(0, 2), 1);
    let (there, back) = (world.receive(0, others), world.receive(2, other));
    world.send(2, other, b"there");
    world.send(0, others, b"back");
    assert_eq!(received(world.end(there)), Ok(b"there".to_vec()));
    world.run_ns(SECOND_NS);
    assert!(world.ended(back).is_none(), "it is not told");
    let (again, _) = world.connect(2, listener);
    assert!(world.send(2, again, b"new").result.is_ok(), "another connection does not hang");
}

/// A machine whose power is cut tells its peers nothing; once it runs again, it knows their connections no more.
#[test]
fn a_machine_without_power_says_nothing() {
    let mut world = World::calm(2);
    let listener = world.listen(0);
    let (client, _) = world.connect(1, listener);
    let wait = world.receive(1, client);
    world.network.cut_power(0);
    world.drivers[0] = None;
    world.run_ns(SECOND_NS);
    assert!(world.ended(wait).is_none());
    world.drivers[0] = Some(driver(&world.network, 0, 1));
    assert!(world.send(1, client, b"are you there").result.is_ok());
    assert_eq!(received(world.end(wait)), Err(FaultKind::Reset));
}

/// What is left of a connection is forgotten with its second end, whether that is closed or loses its power.
#[test]
fn connections_are_forgotten_with_both_ends() {
    let mut world = World::calm(4);
    let listener = world.listen(0);
    let ends = [1, 2, 3].map(|machine| (machine, world.connect(machine, listener)));
    let (third, (client, server)) = ends[2];
    world.run(third, Op::Close { socket: client });
    world.run_ns(SECOND_NS);
    assert_eq!(world.network.connections(), 3, "one is closed at one end");
    world.run(0, Op::Close { socket: server });
    world.run_ns(SECOND_NS);
    assert_eq!(world.network.connections(), 2);
    world.network.cut_power(0);
    world.drivers[0] = None;
    assert_eq!(world.network.connections(), 2, "the others believe in them");
    world.network.cut_power(1);
    world.drivers[1] = None;
    assert_eq!(world.network.connections(), 1);
    world.drivers[0] = Some(driver(&world.network, 0, 1));
    let (second, (client, _)) = ends[1];
    world.run(second, Op::Close { socket: client });
    world.run_ns(SECOND_NS);
    assert_eq!(world.network.connections(), 0, "it learns that the other is closed");
}

/// A connect waits as a kernel does, and then says that it was not answered.
#[test]
fn a_connect_into_a_partition_times_out() {
    let mut world = World::calm(2);
    world.listen(0);
    let far = Instant::from_ns(10_000 * SECOND_NS);
    world.network.partition(Partition { machines: vec![0], from: world.now, until: far });
    let address = world.address(0);
    let ended = world.run(1, Op::Connect { address });
    assert_eq!(kind(&ended), Some(FaultKind::TimedOut));
    assert_eq!(world.now.ns() / SECOND_NS, 127);
}

/// One end learns of a break before the other, which may still be given what was on its way.
#[test]
fn a_broken_connection_loses_the_rest_and_tells_both_ends() {
    let (mut late_bytes, mut lost) = (0, 0);
    for seed in 0..60 {
        let faults = NetworkFaults { reset: 0.2, late: 0.5, late_ns: MILLISECOND_NS, ..NetworkFaults::default() };
        let mut world = World::new(2, faults, seed);
        let listener = world.listen(0);
        let (client, server) = world.connect(1, listener);
        let (mut sent, mut got) = (0u8, Vec::new());
        let fault = loop {
            match kind(&world.send(1, client, &[sent])) {
                None => sent += 1,
                fault => break fault,
            }
            world.run_ns(10_000);
        };
        assert_eq!(fault, Some(FaultKind::Reset));
        let ended = loop {
            let wait = world.receive(0, server);
            match received(world.end(wait)) {
                Ok(bytes) => got.extend(bytes),
                Err(kind) => break kind,
            }
        };
        assert_eq!(ended, FaultKind::Reset, "never an end that looks like the peer's");
        assert!(got.iter().copied().eq(0..got.len() as u8), "in order, without a gap: {got:?}");
        late_bytes += u32::from(!got.is_empty());
        lost += u32::from(got.len() < usize::from(sent));
        assert!(world.network.injected().resets >= 1);
    }
    assert!(late_bytes > 5 && lost > 20, "{late_bytes} and {lost} of 60");
}

/// Two ends that close at once are no fault.
#[test]
fn bytes_that_come_to_a_closed_end_count_only_if_the_network_has_kept_them() {
    for keeps in [None, Some(Some(70 * MILLISECOND_NS)), Some(None)] {
        let mut world = World::calm(2);
        let listener = world.listen(0);
        let (client, server) = world.connect(1, listener);
        if let Some(late_ns) = keeps {
            let (from, until) = (world.now, world.now.plus_ns(50 * MILLISECOND_NS));
            world.network.disturb(OneWay { machines: (1, 0), from, until, late_ns });
        }
        world.submit(0, Op::Close { socket: server });
        world.submit(1, send(client, b"late"));
        world.run_ns(SECOND_NS);
        assert_eq!(world.network.injected().stray, u64::from(keeps.is_some()), "{keeps:?}");
    }
}

/// A client that connects again is overtaken by what it sent before.
#[test]
fn late_bytes_of_an_old_connection_come_after_those_of_a_new_one() {
    let mut overtaken = 0;
    for seed in 0..100 {
        let faults = NetworkFaults { late: 0.5, late_ns: 10 * MILLISECOND_NS, ..NetworkFaults::default() };
        let mut world = World::new(2, faults, seed);
        let listener = world.listen(0);
        let (old, olds) = world.connect(1, listener);
        world.send(1, old, b"old");
        world.run(1, Op::Close { socket: old });
        let (new, news) = world.connect(1, listener);
        world.send(1, new, b"new");
        let (late, soon) = (world.receive(0, olds), world.receive(0, news));
        assert_eq!(received(world.end(soon)), Ok(b"new".to_vec()));
        overtaken += u32::from(world.ended(late).is_none_or(|completion| {
            world.ended.push((0, completion));
            false
        }));
        assert_eq!(received(world.end(late)), Ok(b"old".to_vec()), "but they come");
    }
    assert!((10..90).contains(&overtaken), "{overtaken} of 100");
}

#[test]
fn a_half_that_hangs_says_nothing_and_the_other_goes_on() {
    let faults = NetworkFaults { hang: 0.1, ..NetworkFaults::default() };
    let mut seen = 0;
    for seed in 0..40 {
        let mut world = World::new(2, faults.clone(), seed);
        let listener = world.listen(0);
        let (client, server) = world.connect(1, listener);
        let mut got = 0;
        while world.network.injected().hung == 0 {
            let wait = world.receive(0, server);
            assert!(world.send(1, client, b"x").result.is_ok());
            world.run_ns(1_000);
            match world.ended(wait) {
                Some(completion) => got += received(completion).expect("no fault").len(),
                None => assert_eq!(world.network.injected().hung, 1),
            }
        }
        // The window fills, and then a send stands.
        let sent = (0..100).take_while(|_| {
            let token = world.submit(1, send(client, &[1; 4_096]));
            world.run_ns(SECOND_NS);
            world.ended(token).is_some_and(|completion| completion.result.is_ok())
        });
        assert!(sent.count() <= 16);
        seen += got;
    }
    assert!(seen > 100, "{seen}");
}

#[test]
fn a_power_cut_is_silent_until_the_machine_is_back() {
    let mut world = World::calm(2);
    let listener = world.listen(0);
    let (client, _) = world.connect(1, listener);
    let (idle, _) = world.connect(1, listener);
    let wait = world.receive(1, client);
    world.drivers[0].as_mut().expect("it runs").cut_power_after(0);
    world.send(1, client, b"are you there?");
    world.run_ns(3_600 * SECOND_NS);
    assert!(world.drivers[0].is_none(), "the power is gone");
    assert!(world.ended(wait).is_none(), "and nothing says so");
    let address = world.address(0);
    let connect = world.submit(1, Op::Connect { address });
    world.run_ns(SECOND_NS);
    assert!(world.ended(connect).is_none());
    world.drivers[0] = Some(driver(&world.network, 0, 1));
    assert_eq!(received(world.end(wait)), Err(FaultKind::Reset));
    assert_eq!(kind(&world.end(connect)), Some(FaultKind::Refused), "it listens no more");
    // A connection on which nothing was sent looks well until something is.
    let wait = world.receive(1, idle);
    world.run_ns(3_600 * SECOND_NS);
    assert!(world.ended(wait).is_none());
    assert!(world.send(1, idle, b"and you?").result.is_ok());
    assert_eq!(received(world.end(wait)), Err(FaultKind::Reset));
    let now = world.drivers[0].as_ref().expect("it runs").now();
    assert!(now.ns() > 7_200 * SECOND_NS, "its clock goes on where the others are");
}

#[test]
fn a_full_backlog_makes_clients_try_again() {
    let mut world = World::calm(2);
    let (listener, address) = (world.listen(0), world.address(0));
    let connects: Vec<_> = (0..130).map(|_| world.submit(1, Op::Connect { address })).collect();
    world.run_ns(MILLISECOND_NS);
    let mut waiting: Vec<_> = connects.into_iter().filter(|token| world.ended(*token).is_none()).collect();
    assert_eq!(waiting.len(), 2);
    for _ in 0..2 {
        assert!(world.run(0, Op::Accept { listener }).result.is_ok());
    }
    world.run_ns(2 * SECOND_NS);
    waiting.retain(|token| world.ended(*token).is_none());
    assert!(waiting.is_empty());
}

/// Whatever the network does, what arrives on a connection is the front of what was sent, all machines stop talking in the end,
/// nothing is left of closed connections, and the same seed does the same.
#[test]
fn streams_are_fronts_of_what_was_sent_under_every_fault() {
    let mut injected = [0; 4];
    for seed in 0..150 {
        let first = hostile_run(seed);
        assert_eq!(first, hostile_run(seed), "seed {seed}");
        for (sum, count) in injected.iter_mut().zip(first.1) {
            *sum += count;
        }
    }
    assert!(injected.iter().all(|count| *count > 20), "{injected:?}");
}

fn hostile_run(seed: u64) -> (u64, [u64; 4]) {
    let mut random = Random::stream(seed, "hostile network");
    let partitions = (0..random.below(3)).map(|_| {
        let from = random.below(20);
        Partition { machines: vec![random.below(3) as u32], from: at_ms(from), until: at_ms(from + random.below(300)) }
    });
    let partitions = partitions.collect();
    let one_way = vec![];
    let faults =
        NetworkFaults { partitions, one_way, late: 0.2, late_ns: 2 * MILLISECOND_NS, reset: 0.01, hang: 0.005 };
    let mut world = World::new(3, faults, seed);
    let listener = world.listen(0);
    let mut ends = Vec::new();
    for round in 0..6 {
        let address = world.address(0);
        let tokens = [world.submit(1 + round % 2, Op::Connect { address }), world.submit(0, Op::Accept { listener })];
        let sockets = tokens.map(|token| match world.end(token).result {
            Ok(Output::Connected { connection, .. }) => connection,
            other => panic!("{other:?}"),
        });
        ends.push((1 + round % 2, sockets[0], sockets[1]));
    }
    for (machine, client, server) in ends.clone() {
        let bytes: Vec<u8> = (0..20_000u32).map(|byte| (byte % 251) as u8).collect();
        let mut wait = world.receive(0, server);
        let (mut got, mut sends) = (Vec::new(), 0);
        for piece in bytes.chunks(1_000) {
            let token = world.submit(machine, send(client, piece));
            world.run_ns(random.below(MILLISECOND_NS));
            match world.ended(token) {
                Some(completion) if completion.result.is_ok() => sends += 1,
                _ => break,
            }
            while let Some(Ok(bytes)) = world.ended(wait).map(received) {
                got.extend(bytes);
                wait = world.receive(0, server);
            }
        }
        assert!(bytes.starts_with(&got) && got.len() <= (sends + 1) * 1_000, "seed {seed}");
    }
    world.run_ns(SECOND_NS);
    for (machine, client, server) in ends {
        world.run(machine, Op::Close { socket: client });
        world.run(0, Op::Close { socket: server });
    }
    world.run_ns(SECOND_NS);
    assert_eq!(world.network.connections(), 0, "seed {seed}");
    let hash = world.drivers.iter().flatten().fold(0u64, |hash, driver| hash.rotate_left(7) ^ driver.event_hash());
    let injected = world.network.injected();
    (hash, [injected.late, injected.held, injected.resets, injected.hung])
}
