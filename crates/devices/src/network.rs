//! Networks between machines: what carries packets, and when each arrives. Which bytes they hold, and in what order a receiver
//! sees them, is no concern of these models.

use crate::fields::{self, Bandwidth, Servers};
use crate::law::Law;
use crate::station::Fifo;
use base::statistics::StationReport;
use base::{Instant, Random};
use serde::Deserialize;

/// The name of the network between programs of one machine, which share its processors.
pub const LOOPBACK: &str = "loopback";

/// A described network.
///
/// ```
/// use entresol_devices::{Hardware, Medium};
///
/// let hardware = Hardware::named("franklin-1992-server")?;
/// assert_eq!(hardware.networks["slow"].medium, Medium::Shared);
/// let own = Hardware::parse("[network.lan]\nbandwidth = \"1 GB/s\"\nlatency = \"20 us\"", "lan.toml")?;
/// assert_eq!(own.networks["lan"].medium, Medium::Switched);
/// # Ok::<(), entresol_devices::HardwareError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Network {
    /// What the machines have in common.
    #[serde(default)]
    pub medium: Medium,
    /// The speed of the medium, or of each machine's links; unlimited by default.
    pub bandwidth: Option<Bandwidth>,
    /// How long a packet is on its way beside its transmission, whatever its length; no time by default.
    #[serde(default = "no_time")]
    pub latency: Law,
    /// Longer sends are cut into packets of this many bytes.
    #[serde(default = "packet", deserialize_with = "fields::extent")]
    pub packet: u32,
    /// How many bytes of one direction of a connection may be under way or unread.
    #[serde(default = "window", deserialize_with = "fields::extent")]
    pub window: u32,
}

/// What the machines of a network have in common.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Medium {
    /// One medium, which carries one packet after the other.
    Shared,
    /// A switch: each machine has a link to it and one from it, and packets between different machines do not meet elsewhere.
    #[default]
    Switched,
}

fn no_time() -> Law {
    Law::NONE
}

fn packet() -> u32 {
    16 << 10
}

fn window() -> u32 {
    64 << 10
}

impl Network {
    /// A network that takes no time.
    pub fn no_delay() -> Network {
        Network { medium: Medium::Switched, bandwidth: None, latency: Law::NONE, packet: packet(), window: window() }
    }
}

/// Names a packet under way; given anew once it has arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PacketId(pub u32);

/// Where a packet is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Leg {
    Medium,
    /// The link from this machine to the switch.
    Up(u32),
    /// The link from the switch to its machine.
    Down,
    /// Transmitted, but not there yet.
    Flying,
}

struct Packet {
    to: u32,
    bytes: u32,
    leg: Leg,
    entered: Instant,
}

/// The links of one machine.
struct Links {
    up: Fifo,
    down: Fifo,
}

/// The running model of a network. A packet makes one hop after the other; the caller has the calendar and says when the moment
/// of each hop has come.
///
/// ```
/// use base::Instant;
/// use entresol_devices::{Hardware, Wires};
///
/// let hardware = Hardware::named("franklin-1992-server")?;
/// let mut wires = Wires::new("slow", &hardware.networks["slow"], 1, false);
/// let (first, departs) = wires.send(Instant::START, (0, 1), 4_096);
/// assert_eq!(departs.ns(), 4_096_000, "at 1 MB/s");
/// let (_, behind) = wires.send(Instant::START, (2, 3), 256);
/// assert_eq!(behind.ns(), 4_352_000, "all machines share the medium");
/// assert_eq!(wires.hop(departs, first), None, "it has arrived");
/// # Ok::<(), entresol_devices::HardwareError>(())
/// ```
pub struct Wires {
    name: String,
    network: Network,
    medium: Fifo,
    links: Vec<Links>,
    packets: Vec<Packet>,
    free: Vec<PacketId>,
    random: Random,
    jitter: bool,
}

impl Wires {
    /// A network of this name and description, idle. With `jitter` all times become random (torture).
    pub fn new(name: &str, network: &Network, seed: u64, jitter: bool) -> Wires {
        Wires {
            name: name.to_owned(),
            medium: Fifo::new(format!("network.{name}"), Servers::count(1)),
            network: network.clone(),
            links: Vec::new(),
            packets: Vec::new(),
            free: Vec::new(),
            random: Random::stream(seed, "network"),
            jitter,
        }
    }

    /// The description.
    pub fn network(&self) -> &Network {
        &self.network
    }

    /// A packet of this many bytes leaves machine `from` for machine `to`. Returns the moment of its first [`Wires::hop`].
    pub fn send(&mut self, now: Instant, (from, to): (u32, u32), bytes: u32) -> (PacketId, Instant) {
        let leg = match (self.network.bandwidth, self.network.medium) {
            (None, _) => Leg::Flying,
            (Some(_), Medium::Shared) => Leg::Medium,
            (Some(_), Medium::Switched) => Leg::Up(from),
        };
        let packet = Packet { to, bytes, leg, entered: now };
        let id = match self.free.pop() {
            Some(id) => {
                self.packets[id.0 as usize] = packet;
                id
            }
            None => {
                self.packets.push(packet);
                PacketId(self.packets.len() as u32 - 1)
            }
        };
        (id, self.enter(now, id, leg))
    }

    /// The moment of a packet's next hop has come. Returns that of the one after it, or `None` once the packet has arrived.
    pub fn hop(&mut self, now: Instant, id: PacketId) -> Option<Instant> {
        let Packet { leg, entered, to, .. } = self.packets[id.0 as usize];
        let next = match leg {
            Leg::Medium => {
                self.medium.depart(now, entered);
                Leg::Flying
            }
            Leg::Up(from) => {
                self.links_of(from).up.depart(now, entered);
                Leg::Down
            }
            Leg::Down => {
                self.links_of(to).down.depart(now, entered);
                Leg::Flying
            }
            Leg::Flying => {
                self.free.push(id);
                return None;
            }
        };
        if next == Leg::Flying && self.network.latency == Law::NONE && !self.jitter {
            self.packets[id.0 as usize].leg = Leg::Flying;
            self.free.push(id);
            return None;
        }
        Some(self.enter(now, id, next))
    }

    /// Load and queueing of the medium, or of each machine's links, since the statistics were last restarted.
    pub fn stations(&self, now: Instant) -> Vec<StationReport> {
        let here = |leg: Leg, machine: u32| {
            let inside = move |packet: &&Packet| packet.leg == leg && (leg != Leg::Down || packet.to == machine);
            self.packets.iter().filter(inside).map(|packet| packet.entered)
        };
        if self.network.bandwidth.is_none() {
            return Vec::new();
        }
        if self.network.medium == Medium::Shared {
            return vec![self.medium.report(here(Leg::Medium, 0), now)];
        }
        let links = self.links.iter().zip(0..);
        let reports = links.flat_map(|(links, machine)| {
            [links.up.report(here(Leg::Up(machine), machine), now), links.down.report(here(Leg::Down, machine), now)]
        });
        reports.collect()
    }

    /// Forgets what stations did so far.
    pub fn restart_statistics(&mut self, now: Instant) {
        self.medium.restart(now);
        for links in &mut self.links {
            links.up.restart(now);
            links.down.restart(now);
        }
    }

    fn links_of(&mut self, machine: u32) -> &mut Links {
        let name = &self.name;
        let known = self.links.len() as u32;
        self.links.extend((known..=machine).map(|number| {
            let link = |way: &str| Fifo::new(format!("network.{name}.{number}.{way}"), Servers::count(1));
            Links { up: link("up"), down: link("down") }
        }));
        &mut self.links[machine as usize]
    }

    /// A packet begins this leg; returns when the leg ends.
    fn enter(&mut self, now: Instant, id: PacketId, leg: Leg) -> Instant {
        let packet = &mut self.packets[id.0 as usize];
        (packet.leg, packet.entered) = (leg, now);
        let (to, bytes) = (packet.to, packet.bytes);
        let transmission_ns = self.network.bandwidth.map_or(0, |bandwidth| bandwidth.transfer_ns(bytes));
        let ns =
            self.shaken(if leg == Leg::Flying { self.network.latency.mean_ns() as u64 } else { transmission_ns }, leg);
        match leg {
            Leg::Medium => self.medium.arrive(now, 0, ns),
            Leg::Up(from) => self.links_of(from).up.arrive(now, 0, ns),
            Leg::Down => self.links_of(to).down.arrive(now, 0, ns),
            Leg::Flying => now.plus_ns(ns),
        }
    }

    /// A leg's time: as described, or random about that with jitter.
    fn shaken(&mut self, mean_ns: u64, leg: Leg) -> u64 {
        if self.jitter {
            return self.random.exponential(mean_ns as f64) as u64 + self.random.below(1_000);
        }
        if leg == Leg::Flying { self.network.latency.draw(&mut self.random) } else { mean_ns }
    }
}
