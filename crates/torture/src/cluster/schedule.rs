//! What goes wrong in one seed, and when.

use super::named::name_of;
use super::shape::{ARRIVALS, LOG, OFFERS, PAGES, STOCK, THINGS, TREE, has_departures, has_upkeep};
use super::{ClusterFault, ClusterOptions, ClusterShape, ClusterStep, space};
use base::Random;
use base::time::{MICROSECOND_NS, MILLISECOND_NS, SECOND_NS};

/// What goes wrong in one seed, in the order of time.
#[derive(Clone, Debug, Default)]
pub struct Schedule {
    pub(super) planned: Vec<Planned>,
}

/// Something that goes wrong at a moment, or soon after it.
#[derive(Clone, Debug)]
pub(super) struct Planned {
    /// When, in nanoseconds from the beginning of trouble.
    pub at_ns: u64,
    /// What its machine is to be doing, if it comes to that in time.
    pub at_step: Option<ClusterStep>,
    pub act: Act,
}

/// Something that is done to the cluster.
#[derive(Clone, Debug)]
pub(super) enum Act {
    /// With what is between a node and its server, for so long.
    Link {
        fault: ClusterFault,
        node: u32,
        ns: u64,
        late_ns: u64,
    },
    /// With what is between two nodes, for so long.
    Peers {
        fault: ClusterFault,
        nodes: (u32, u32),
        ns: u64,
        late_ns: u64,
    },
    /// A node ends, and is started again after so long.
    EndNode {
        fault: ClusterFault,
        node: u32,
        down_ns: u64,
    },
    StartNode {
        node: u32,
    },
    /// A node leaves its server, and comes again as another one.
    Leave {
        node: u32,
    },
    /// The server ends, and is started again after so long; then it ends once more after so long.
    EndServer {
        fault: ClusterFault,
        down_ns: u64,
        again_ns: Option<u64>,
    },
    StartServer {
        again_ns: Option<u64>,
    },
    /// The server is closed, and is started again after so long.
    CloseServer {
        down_ns: u64,
    },
    /// The server's data device is full, for so long.
    FillDevice {
        ns: u64,
    },
    FreeDevice,
    /// A partition is made, and is to be dropped.
    ChangePartitions {
        number: u64,
        kind: u64,
    },
    /// A machine does nothing for so long.
    Pause {
        machine: u32,
        ns: u64,
    },
    /// A node may do this, for so long.
    Grant {
        node: u32,
        rights: Rights,
        ns: u64,
    },
    /// It may do everything again.
    GrantAll {
        node: u32,
    },
}

/// Which partitions a node may write, and which others it may read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Rights {
    pub write: Vec<String>,
    pub read: Vec<String>,
}

impl Rights {
    /// Everything.
    pub fn all() -> Rights {
        Rights { write: vec!["*".to_owned()], read: Vec::new() }
    }

    fn draw(random: &mut Random, shape: &ClusterShape) -> Rights {
        let mut rights = Rights::default();
        let things = (shape.things > 0).then_some(THINGS);
        let sets: &[&str] = if shape.set_records > 0 { &[STOCK, OFFERS, ARRIVALS] } else { &[] };
        for name in [PAGES, TREE, LOG].into_iter().chain(things).chain(sets.iter().copied()) {
            match random.below(3) {
                0 => rights.write.push(name.to_owned()),
                1 => rights.read.push(name.to_owned()),
                _ => {}
            }
        }
        rights
    }
}

/// The faults of what is between a node and its server.
const LINKS: [ClusterFault; 7] = [
    ClusterFault::Cut,
    ClusterFault::CutOut,
    ClusterFault::CutIn,
    ClusterFault::SlowOut,
    ClusterFault::SlowIn,
    ClusterFault::Broken,
    ClusterFault::Hung,
];
const PEERS: [ClusterFault; 3] = [ClusterFault::PeerCut, ClusterFault::PeerSlow, ClusterFault::PeerBroken];

impl Schedule {
    /// Draws what goes wrong with this cluster.
    pub fn draw(seed: u64, shape: &ClusterShape, options: ClusterOptions) -> Schedule {
        let mut drawing = Drawing { random: Random::stream(seed, "cluster schedule"), shape, planned: Vec::new() };
        let faults = drawing.random.between(2, options.faults_max);
        while (drawing.planned.len() as u64) < faults {
            let at_ns = drawing.random.below(shape.trouble_ns);
            drawing.draw(at_ns);
        }
        let (random, planned) = (Random::stream(seed, "cluster leases"), drawing.planned);
        let mut drawing = Drawing { random, shape, planned };
        for _ in 0..drawing.random.below(3) {
            drawing.outlast_lease();
        }
        let (random, planned) = (Random::stream(seed, "cluster renewals"), drawing.planned);
        let mut drawing = Drawing { random, shape, planned };
        if drawing.random.chance(0.5) {
            drawing.late_renewal();
        }
        let (random, planned) = (Random::stream(seed, "cluster closes"), drawing.planned);
        let mut drawing = Drawing { random, shape, planned };
        if has_upkeep(seed) && drawing.random.chance(0.6) {
            drawing.close_server();
        }
        let (random, planned) = (Random::stream(seed, "cluster pauses"), drawing.planned);
        let mut drawing = Drawing { random, shape, planned };
        if has_upkeep(seed) && drawing.random.chance(0.6) {
            (0..drawing.random.between(1, 3)).for_each(|_| drawing.pause_machine());
        }
        let (random, planned) = (Random::stream(seed, "cluster pauses in a row"), drawing.planned);
        let mut drawing = Drawing { random, shape, planned };
        if has_upkeep(seed) && drawing.random.chance(0.4) {
            drawing.pause_twice();
        }
        let (random, planned) = (Random::stream(seed, "cluster nodes that leave"), drawing.planned);
        let mut drawing = Drawing { random, shape, planned };
        if has_departures(seed) {
            (0..drawing.random.between(1, 3)).for_each(|_| drawing.leave_server());
        }
        let (random, planned) = (Random::stream(seed, "cluster end beside slow log"), drawing.planned);
        let mut drawing = Drawing { random, shape, planned };
        drawing.end_beside_slow_log();
        let mut planned = drawing.planned;
        planned.extend(space::draw(seed, shape));
        planned.sort_by_key(|planned| planned.at_ns);
        Schedule { planned }
    }

    /// Whether a node may do less than everything at some time.
    pub(super) fn restricts(&self, node: u32, shares_names: bool) -> bool {
        let name = name_of(node, shares_names);
        let is_its = |planned: &Planned| match planned.act {
            Act::Grant { node: granted, .. } => name_of(granted, shares_names) == name,
            _ => false,
        };
        self.planned.iter().any(is_its)
    }
}

struct Drawing<'a> {
    random: Random,
    shape: &'a ClusterShape,
    planned: Vec<Planned>,
}

impl Drawing<'_> {
    fn draw(&mut self, at_ns: u64) {
        let node = self.random.between(1, u64::from(self.shape.nodes)) as u32;
        match self.random.below(14) {
            0..5 => self.draw_link(at_ns, node),
            5..7 => self.draw_peers(at_ns, node),
            7 => self.draw_end(at_ns, node),
            8 | 9 => self.draw_server(at_ns),
            10 => self.draw_grant(at_ns, node),
            11 => self.late_answers(at_ns, node),
            12 => self.server_behind_a_cut(at_ns, node),
            _ => self.late_pages(at_ns, node),
        }
    }

    fn plan(&mut self, at_ns: u64, at_step: Option<ClusterStep>, act: Act) {
        self.planned.push(Planned { at_ns, at_step, act });
    }

    /// Most of the faults wait for what a node or the server is doing.
    fn step(&mut self, of_server: bool) -> Option<ClusterStep> {
        let steps: Vec<_> = ClusterStep::ALL.into_iter().filter(|step| step.is_of_server() == of_server).collect();
        let short = if of_server { ClusterStep::Recovery } else { ClusterStep::Commit };
        match self.random.below(10) {
            0..4 => None,
            // Seldom met by chance.
            4..6 => Some(short),
            _ => self.random.choose(&steps).copied(),
        }
    }

    /// As short as a message's way or longer than any lease.
    fn duration_ns(&mut self) -> u64 {
        match self.random.below(4) {
            0 => self.random.between(1, 100) * MILLISECOND_NS,
            1 => self.random.between(100, 2_000) * MILLISECOND_NS,
            2 => self.random.between(2_000, 3_000) * MILLISECOND_NS,
            _ => self.random.between(3_000, 7_000) * MILLISECOND_NS,
        }
    }

    fn late_ns(&mut self) -> u64 {
        let most = *self.random.choose(&[2, 50, 500, 2_500]).expect("there are some");
        self.random.between(1, most) * MILLISECOND_NS
    }

    fn draw_link(&mut self, at_ns: u64, node: u32) {
        let fault = *self.random.choose(&LINKS).expect("there are some");
        let (step, ns, late_ns) = (self.step(false), self.duration_ns(), self.late_ns());
        self.plan(at_ns, step, Act::Link { fault, node, ns, late_ns });
    }

    fn other(&mut self, node: u32) -> u32 {
        let other = self.random.between(1, u64::from(self.shape.nodes) - 1) as u32;
        other + u32::from(other >= node)
    }

    fn draw_peers(&mut self, at_ns: u64, node: u32) {
        let (fault, other) = (*self.random.choose(&PEERS).expect("there are some"), self.other(node));
        let (step, ns, late_ns) = (self.step(false), self.duration_ns(), self.late_ns());
        self.plan(at_ns, step, Act::Peers { fault, nodes: (node, other), ns, late_ns });
    }

    fn ending(&mut self) -> ClusterFault {
        if self.random.chance(0.5) { ClusterFault::Kill } else { ClusterFault::PowerCut }
    }

    fn draw_end(&mut self, at_ns: u64, node: u32) {
        let (fault, step) = (self.ending(), self.step(false));
        let down_ns = if self.random.chance(0.5) { 0 } else { self.duration_ns() };
        self.plan(at_ns, step, Act::EndNode { fault, node, down_ns });
    }

    fn draw_server(&mut self, at_ns: u64) {
        let (fault, step) = (self.ending(), self.step(true));
        let down_ns = if self.random.chance(0.5) { 0 } else { self.random.below(3_000) * MILLISECOND_NS };
        let again_ns = match self.random.below(4) {
            // While it recovers, while nodes come back, and later.
            0 => Some(self.random.below(3 * MILLISECOND_NS)),
            1 => Some(self.random.below(300 * MILLISECOND_NS)),
            2 => Some(self.random.below(3 * SECOND_NS)),
            _ => None,
        };
        self.plan(at_ns, step, Act::EndServer { fault, down_ns, again_ns });
    }

    fn draw_grant(&mut self, at_ns: u64, node: u32) {
        let (step, rights, ns) = (self.step(false), Rights::draw(&mut self.random, self.shape), self.duration_ns());
        self.plan(at_ns, step, Act::Grant { node, rights, ns });
        if self.random.chance(0.4) {
            let after_ns = self.random_ms(500);
            self.server_behind_a_cut(at_ns + after_ns, node);
        } else if self.random.chance(0.3) {
            let ns = self.duration_ns();
            let at_ns = at_ns.saturating_sub(self.random_ms(500));
            self.plan(at_ns, None, Act::Link { fault: ClusterFault::Cut, node, ns, late_ns: 0 });
        }
    }

    /// The server is closed while nodes work, perhaps more than once.
    fn close_server(&mut self) {
        for _ in 0..self.random.between(1, 2) {
            let (at_ns, step) = (self.random.below(self.shape.trouble_ns), self.step(true));
            let down_ns = if self.random.chance(0.5) { 0 } else { self.random.below(3_000) * MILLISECOND_NS };
            self.plan(at_ns, step, Act::CloseServer { down_ns });
        }
    }

    /// A machine is paused, for longer than a lease most of the time: a node in most cases, the server in others.
    fn pause_machine(&mut self) {
        let of_server = self.random.chance(0.3);
        let machine = if of_server { 0 } else { self.random.between(1, u64::from(self.shape.nodes)) as u32 };
        let (at_ns, step) = (self.random.below(self.shape.trouble_ns), self.step(of_server));
        let ns = if self.random.chance(0.3) {
            self.duration_ns()
        } else {
            self.random.between(2_600, 6_000) * MILLISECOND_NS
        };
        self.plan(at_ns, step, Act::Pause { machine, ns });
    }

    /// A node leaves its server, most of the time while it commits.
    fn leave_server(&mut self) {
        let node = self.random.between(1, u64::from(self.shape.nodes)) as u32;
        let at_ns = self.random.below(self.shape.trouble_ns);
        let step = if self.random.chance(0.6) { Some(ClusterStep::Commit) } else { self.step(false) };
        self.plan(at_ns, step, Act::Leave { node });
    }

    /// A machine is paused for about a lease, and again when it has hardly woken; perhaps its server is started again meanwhile.
    fn pause_twice(&mut self) {
        let machine = self.random.below(u64::from(self.shape.nodes) + 1) as u32;
        let at_ns = self.random.below(self.shape.trouble_ns);
        let (first_ns, between_ns) = (self.random.between(1_800, 4_000) * MILLISECOND_NS, self.random_ms(200));
        let second_ns = self.random.between(1_000, 4_000) * MILLISECOND_NS;
        self.plan(at_ns, None, Act::Pause { machine, ns: first_ns });
        self.plan(at_ns + first_ns + between_ns, None, Act::Pause { machine, ns: second_ns });
        if self.random.chance(0.5) {
            let (fault, down_ns, after_ns) = (self.ending(), self.random_ms(300), self.random_ms(2_000));
            self.plan(at_ns + after_ns, None, Act::EndServer { fault, down_ns, again_ns: None });
        }
    }

    /// The server ends while its log is slow, in most of the seeds in which that is so.
    fn end_beside_slow_log(&mut self) {
        let Some((at_ns, ns)) = self.shape.slow_log.filter(|_| self.random.chance(0.7)) else { return };
        let (fault, at_ns) = (self.ending(), at_ns + self.random.below(ns));
        self.plan(at_ns, None, Act::EndServer { fault, down_ns: 0, again_ns: None });
    }

    fn random_ms(&mut self, most: u64) -> u64 {
        self.random.below(most) * MILLISECOND_NS
    }

    /// What the server says to a node takes a good part of a lease, and then nothing comes any more.
    fn late_answers(&mut self, at_ns: u64, node: u32) {
        let late_ns = self.random.between(300, 1_900) * MILLISECOND_NS;
        let ns = self.random.between(2_000, 5_000) * MILLISECOND_NS;
        self.plan(at_ns, None, Act::Link { fault: ClusterFault::SlowIn, node, ns, late_ns });
        let (at_ns, ns) = (at_ns + self.random_ms(4_000), self.random.between(2_500, 5_000) * MILLISECOND_NS);
        let fault = if self.random.chance(0.5) { ClusterFault::Cut } else { ClusterFault::CutOut };
        self.plan(at_ns, None, Act::Link { fault, node, ns, late_ns: 0 });
    }

    /// What one says to another one takes longer than a lease: a cut, or messages that come when their sender has joined again, or its
    /// introduction itself.
    fn outlast_lease(&mut self) {
        let node = self.random.between(1, u64::from(self.shape.nodes)) as u32;
        let at_ns = self.random.below(self.shape.trouble_ns);
        let late_ns = self.random.between(2_600, 7_000) * MILLISECOND_NS;
        let link = |fault, ns, late_ns| Act::Link { fault, node, ns, late_ns };
        match self.random.below(4) {
            0 => {
                let (step, fault) = (self.step(false), *self.random.choose(&LINKS[..3]).expect("there are some"));
                self.plan(at_ns, step, link(fault, late_ns, 0));
            }
            1 => {
                let fault = if self.random.chance(0.5) { ClusterFault::SlowOut } else { ClusterFault::SlowIn };
                let ns = self.random.between(20, 2_000) * MILLISECOND_NS;
                self.plan(at_ns, None, link(fault, ns, late_ns));
                let broken_ns = self.random.chance(0.5).then(|| at_ns + self.random.below(ns));
                broken_ns.inspect(|at_ns| self.plan(*at_ns, None, link(ClusterFault::Broken, 0, 0)));
            }
            2 => {
                self.plan(at_ns, None, link(ClusterFault::Broken, 0, 0));
                let after_ns = self.random.between(100, 3_000) * MICROSECOND_NS;
                let ns = self.random.between(5, 1_000) * MILLISECOND_NS;
                self.plan(at_ns + after_ns, None, link(ClusterFault::SlowOut, ns, late_ns));
            }
            _ => {
                let (fault, nodes) = (ClusterFault::PeerSlow, (self.other(node), node));
                let ns = self.random.between(20, 2_000) * MILLISECOND_NS;
                self.plan(at_ns, None, Act::Peers { fault, nodes, ns, late_ns });
                let at_ns = at_ns + self.random.below(ns);
                self.plan(at_ns, Some(ClusterStep::Read), link(ClusterFault::Broken, 0, 0));
            }
        }
    }

    /// The server hears last of a node that only reads before its answer has come: that takes a good part of a lease or longer. The others
    /// ask for what the node has when it is not heard any more, and it does not hear that.
    fn late_renewal(&mut self) {
        let Some(node) = self.random.choose(&self.shape.readers).copied() else { return };
        let at_ns = self.random.below(self.shape.trouble_ns * 2 / 3);
        let (heard_ns, late_ns) = (self.random.between(300, 900) * MILLISECOND_NS, self.random.between(1_200, 3_200));
        let (late_ns, ns) = (late_ns * MILLISECOND_NS, self.random.between(2_500, 5_000) * MILLISECOND_NS);
        let link = |fault, node, ns, late_ns| Act::Link { fault, node, ns, late_ns };
        for other in (1..=self.shape.nodes).filter(|other| *other != node) {
            self.plan(at_ns, None, link(ClusterFault::CutOut, other, heard_ns, 0));
        }
        // What is under way is done by then.
        let slow_ns = at_ns + 50 * MILLISECOND_NS;
        self.plan(slow_ns, None, link(ClusterFault::SlowIn, node, heard_ns + late_ns, late_ns));
        self.plan(at_ns + heard_ns, None, link(ClusterFault::CutOut, node, late_ns + ns, 0));
        self.plan(at_ns + heard_ns + late_ns, None, link(ClusterFault::CutIn, node, ns, 0));
    }

    /// The server is started again while a node does not reach it.
    fn server_behind_a_cut(&mut self, at_ns: u64, node: u32) {
        let ns = self.random.between(1_000, 6_000) * MILLISECOND_NS;
        let fault = *self.random.choose(&LINKS[..3]).expect("there are some");
        self.plan(at_ns, None, Act::Link { fault, node, ns, late_ns: 0 });
        let (fault, down_ns, after_ns) = (self.ending(), self.random_ms(300), self.random_ms(1_500));
        self.plan(at_ns + after_ns, None, Act::EndServer { fault, down_ns, again_ns: None });
    }

    /// Pages of other nodes are late at one that is started again, or whose connection breaks.
    fn late_pages(&mut self, at_ns: u64, node: u32) {
        let ns = self.random.between(1_000, 4_000) * MILLISECOND_NS;
        for other in (1..=self.shape.nodes).filter(|other| *other != node) {
            let late_ns = self.random.between(20, 2_000) * MILLISECOND_NS;
            self.plan(at_ns, None, Act::Peers { fault: ClusterFault::PeerSlow, nodes: (other, node), ns, late_ns });
        }
        let after_ns = at_ns + self.random.below(ns);
        if self.random.chance(0.5) {
            let fault = self.ending();
            self.plan(after_ns, Some(ClusterStep::Read), Act::EndNode { fault, node, down_ns: 0 });
        } else {
            let fault = ClusterFault::Broken;
            self.plan(after_ns, Some(ClusterStep::Read), Act::Link { fault, node, ns: 0, late_ns: 0 });
        }
    }
}
