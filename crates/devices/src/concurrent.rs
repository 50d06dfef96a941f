//! A station whose requests are all in service at once, each at a speed that depends on which others are there.

use crate::concurrency::Concurrency;
use crate::law::{Law, rounded};
use crate::station::Flow;
use base::statistics::{StationReport, TimeWeighted};
use base::{Instant, Random};
use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap, VecDeque};

/// Kinds of service. Requests of one kind progress at one speed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Read,
    Write,
    /// What a durable write does behind its bytes.
    Force,
    Sync,
}

const KINDS: usize = 4;

/// How fast requests progress.
pub(crate) enum Pace {
    /// By equal shares of this number of servers, unlimited if zero; a request asks for nanoseconds of one server.
    Shares(u32),
    /// By tables; a request asks for multiples of the time there, and for nanoseconds where there is no table.
    Tables(Box<Concurrency>),
}

/// What a request asks for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Demand {
    Read(f64),
    Write {
        plain: f64,
        force: Option<f64>,
    },
    /// Whether it waits for the writes that are under way, and then how much it asks for.
    Sync {
        waits: bool,
        amount: f64,
    },
}

/// A request in service: where its kind's progress will be at its end, as the bits of a number that is not negative, which are
/// ordered like the number. The rest of it makes equal ends fall in the order of arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Service {
    end: u64,
    sequence: u64,
    job: u32,
    /// What a durable write asks for behind its bytes, as bits.
    force: Option<u64>,
}

/// The requests of one kind.
#[derive(Default)]
struct Progress {
    attained: f64,
    speed: f64,
    ends: BinaryHeap<Reverse<Service>>,
}

/// A sync that waits for writes which came before it.
struct Held {
    sequence: u64,
    job: u32,
    amount: f64,
}

pub(crate) struct Concurrent {
    name: String,
    pace: Pace,
    kinds: [Progress; KINDS],
    held: Vec<Held>,
    /// What has come while a flush held the device, in the order of arrival.
    waiting: VecDeque<(u32, Demand)>,
    /// The writes under way, by their order of arrival.
    writes: BTreeSet<u64>,
    sequence: u64,
    /// Progress is counted up to here; later than now in a pause.
    updated: Instant,
    /// The first end, and whose it is.
    next: Option<(Instant, usize)>,
    busy: TimeWeighted,
    flow: Flow,
}

impl Concurrent {
    pub(crate) fn new(name: String, pace: Pace) -> Concurrent {
        Concurrent {
            name,
            pace,
            kinds: Default::default(),
            held: Vec::new(),
            waiting: VecDeque::new(),
            writes: BTreeSet::new(),
            sequence: 0,
            updated: Instant::START,
            next: None,
            busy: TimeWeighted::default(),
            flow: Flow::default(),
        }
    }

    /// Whether a demand is a multiple of the time that a table has for it: for reads and writes, for what makes a write
    /// durable, and for syncs.
    pub(crate) fn is_tabled(&self) -> [bool; 3] {
        match &self.pace {
            Pace::Shares(_) => [false; 3],
            Pace::Tables(tables) => [true, tables.durable_write.is_some(), tables.sync.is_some()],
        }
    }

    /// The law of a request of this kind that begins now, if the tables have laws for its kind.
    pub(crate) fn law(&self, kind: Kind, random: &mut Random) -> Option<&Law> {
        let Pace::Tables(tables) = &self.pace else { return None };
        let laws = [&tables.read_law, &tables.write_law, &tables.durable_write_law, &tables.sync_law];
        let laws = laws[kind as usize].as_ref()?;
        let (reads, writes) = (self.present(Kind::Read), self.present(Kind::Write) + self.present(Kind::Force));
        let under_way = match kind {
            Kind::Read => (reads + 1, writes),
            Kind::Write | Kind::Force => (reads, writes + 1),
            Kind::Sync => (reads, writes),
        };
        Some(tables.law(laws, under_way, random))
    }

    /// When the station is to be looked at again, if no request comes before.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.next.map(|(at, _)| at)
    }

    pub(crate) fn arrive(&mut self, now: Instant, job: u32, demand: Demand) {
        self.flow.arrive(now);
        self.advance(now);
        if self.is_flush_at_it() {
            self.waiting.push_back((job, demand));
        } else {
            self.admit(job, demand);
        }
        self.plan(now);
    }

    /// Whether a flush is under way that holds whatever comes.
    fn is_flush_at_it(&self) -> bool {
        let holds = matches!(&self.pace, Pace::Tables(tables) if tables.flush_holds);
        holds && self.present(Kind::Force) + self.present(Kind::Sync) > 0
    }

    fn admit(&mut self, job: u32, demand: Demand) {
        self.sequence += 1;
        match demand {
            Demand::Read(amount) => self.begin(Kind::Read, amount, job, (self.sequence, None)),
            Demand::Write { plain, force } => {
                self.writes.insert(self.sequence);
                self.begin(Kind::Write, plain, job, (self.sequence, force.map(f64::to_bits)));
            }
            Demand::Sync { waits, amount } => {
                self.held.push(Held { sequence: if waits { self.sequence } else { 0 }, job, amount });
                self.release();
            }
        }
    }

    /// The request that departs now, if one does; its time of departure has to be reported.
    pub(crate) fn expire(&mut self, now: Instant) -> Option<u32> {
        let (_, kind) = self.next.filter(|(at, _)| *at == now)?;
        self.advance(now);
        let Some(Reverse(Service { sequence, job, force, .. })) = self.kinds[kind].ends.pop() else {
            unreachable!("a planned end has its request")
        };
        if let Some(force) = force {
            self.begin(Kind::Force, f64::from_bits(force), job, (sequence, None));
        } else if self.writes.remove(&sequence) {
            self.release();
        }
        while !self.is_flush_at_it()
            && let Some((job, demand)) = self.waiting.pop_front()
        {
            self.admit(job, demand);
        }
        self.plan(now);
        if force.is_some() { None } else { Some(job) }
    }

    pub(crate) fn depart(&mut self, now: Instant, entered: Instant) {
        self.flow.depart(now, entered);
    }

    /// Nothing progresses for this long.
    pub(crate) fn pause(&mut self, now: Instant, ns: u64) {
        self.advance(now);
        self.updated = self.updated.max(now).plus_ns(ns);
        self.plan(now);
    }

    pub(crate) fn restart(&mut self, now: Instant) {
        self.flow.restart(now);
        self.busy.restart(now);
    }

    pub(crate) fn report(&self, present: impl Iterator<Item = Instant>, now: Instant) -> StationReport {
        self.flow.report(&self.name, (1, self.busy.integral(now)), present, now)
    }

    fn begin(&mut self, kind: Kind, amount: f64, job: u32, (sequence, force): (u64, Option<u64>)) {
        let progress = &mut self.kinds[kind as usize];
        if progress.ends.is_empty() {
            progress.attained = 0.0;
        }
        let end = (progress.attained + amount).to_bits();
        progress.ends.push(Reverse(Service { end, sequence, job, force }));
    }

    /// Begins the syncs that wait for no write any more.
    fn release(&mut self) {
        let oldest = self.writes.first().copied().unwrap_or(u64::MAX);
        for Held { sequence, job, amount } in std::mem::take(&mut self.held) {
            if sequence < oldest {
                self.begin(Kind::Sync, amount, job, (sequence, None));
            } else {
                self.held.push(Held { sequence, job, amount });
            }
        }
    }

    fn present(&self, kind: Kind) -> usize {
        self.kinds[kind as usize].ends.len()
    }

    fn advance(&mut self, now: Instant) {
        if now > self.updated {
            let elapsed = now.since_ns(self.updated) as f64;
            self.kinds.iter_mut().for_each(|kind| kind.attained += kind.speed * elapsed);
            self.updated = now;
        }
    }

    /// Sets the speeds for what is present, and finds the first end.
    fn plan(&mut self, now: Instant) {
        let (reads, writes) = (self.present(Kind::Read), self.present(Kind::Write) + self.present(Kind::Force));
        let (forces, all) = (self.present(Kind::Force), reads + writes + self.present(Kind::Sync));
        match &self.pace {
            Pace::Shares(servers) => {
                let speed = if *servers == 0 { 1.0 } else { (f64::from(*servers) / all.max(1) as f64).min(1.0) };
                self.kinds.iter_mut().for_each(|kind| kind.speed = speed);
            }
            Pace::Tables(tables) => {
                let tabled =
                    [Some(&tables.read), Some(&tables.write), tables.durable_write.as_ref(), tables.sync.as_ref()];
                for (kind, times) in self.kinds.iter_mut().zip(tabled) {
                    if !kind.ends.is_empty() {
                        kind.speed = times.map_or(1.0, |times| 1.0 / tables.time_ns(times, reads, writes));
                    }
                }
                if let (Some(together), true) = (&tables.durable_together, forces > 1) {
                    self.kinds[Kind::Force as usize].speed /= together.factor(forces);
                }
            }
        }
        let until = |(index, kind): (usize, &Progress)| {
            let Reverse(first) = kind.ends.peek()?;
            let left = (f64::from_bits(first.end) - kind.attained).max(0.0) / kind.speed;
            Some((self.updated.plus_ns(rounded(left)).max(now), index))
        };
        self.next = self.kinds.iter().enumerate().filter_map(until).min();
        self.busy.set(now, f64::from(u8::from(all > 0)));
    }
}
