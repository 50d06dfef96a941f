use crate::hardware::{Device, Stage};
use crate::station::{Fifo, Station};
use crate::{Assignment, Law, ReadWrite};
use base::{Instant, Random};

/// What a request does to a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Bytes come from the device.
    Read,
    /// Bytes go to the device.
    Write {
        /// Whether the bytes must be on the medium when the request completes.
        durable: bool,
    },
    /// No bytes move: earlier writes reach the medium.
    Sync,
}

/// One request to a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transfer {
    /// What it does.
    pub direction: Direction,
    /// Which file of the device, as a number.
    pub file: u32,
    /// Where in the file it begins, in bytes.
    pub offset: u64,
    /// How many bytes.
    pub length: u32,
}

/// The stages of a device, in the order in which a request passes them.
const STAGES: [&str; 3] = ["controller", "transmission", "medium"];
const MEDIUM: usize = 2;

/// The running model of one device.
pub(crate) struct Unit {
    stages: [Option<Queue>; STAGES.len()],
    sync: Law,
    durable_write: Law,
    random: Random,
    /// Multiplies every service time: 1 for a healthy device.
    slowdown: f64,
    jitter: bool,
}

struct Queue {
    stage: Stage,
    fifo: Fifo,
    /// Where each server's last request ended: file and address on that server.
    positions: Vec<Option<(u32, u64)>>,
}

impl Unit {
    pub(crate) fn new(name: &str, device: &Device, seed: u64, jitter: bool) -> Unit {
        let described = [&device.controller, &device.transmission, &device.medium];
        let mut number = 0;
        let stages = described.map(|stage| {
            number += 1;
            let stage = stage.clone()?;
            let fifo = Fifo::new(format!("{name}.{}", STAGES[number - 1]), stage.servers);
            let positions = vec![None; fifo.servers().max(1)];
            Some(Queue { stage, fifo, positions })
        });
        Unit {
            stages,
            sync: device.sync,
            durable_write: device.durable_write_law(),
            random: Random::stream(seed, name),
            slowdown: 1.0,
            jitter,
        }
    }

    pub(crate) fn set_slowdown(&mut self, factor: f64) {
        self.slowdown = factor;
    }

    /// A request arrives at the first stage from `from` on that it has to pass: that stage and when it departs from there.
    #[inline]
    pub(crate) fn enter(&mut self, now: Instant, from: usize, transfer: &Transfer) -> Option<(usize, Instant)> {
        let stage = (from..STAGES.len()).find(|stage| self.concerns(*stage, transfer))?;
        let Unit { stages, random, .. } = self;
        let Some(queue) = &mut stages[stage] else { unreachable!("a stage that concerns a request exists") };
        let (server, mut service_ns) = queue.serve(transfer, random);
        match transfer.direction {
            Direction::Sync if stage == MEDIUM => service_ns = self.sync.draw(random),
            Direction::Write { durable: true } if stage == MEDIUM => service_ns += self.durable_write.draw(random),
            _ => {}
        }
        if self.slowdown != 1.0 {
            service_ns = (service_ns as f64 * self.slowdown) as u64;
        }
        if self.jitter {
            service_ns = random.exponential(service_ns as f64) as u64 + random.below(1_000);
        }
        Some((stage, queue.fifo.arrive(now, server, service_ns)))
    }

    fn concerns(&self, stage: usize, transfer: &Transfer) -> bool {
        // A sync moves no bytes.
        self.stages[stage].is_some() && !(stage == 1 && transfer.direction == Direction::Sync)
    }

    /// A request that arrived at `stage` at `entered` departs from it.
    #[inline]
    pub(crate) fn leave(&mut self, now: Instant, stage: usize, entered: Instant) {
        let Some(queue) = &mut self.stages[stage] else { unreachable!("a request leaves a stage that it entered") };
        queue.fifo.depart(now, entered);
    }

    pub(crate) fn restart(&mut self, now: Instant) {
        self.stages.iter_mut().flatten().for_each(|queue| queue.fifo.restart(now));
    }

    pub(crate) fn reports(&self, now: Instant) -> impl Iterator<Item = Station> {
        self.stages.iter().flatten().map(move |queue| queue.fifo.report(now))
    }
}

impl Queue {
    /// The server for a request, and how long it takes there.
    #[inline]
    fn serve(&mut self, transfer: &Transfer, random: &mut Random) -> (usize, u64) {
        let (server, address) = self.place(transfer, random);
        let write = match transfer.direction {
            Direction::Sync => return (server, 0),
            Direction::Read => false,
            Direction::Write { .. } => true,
        };
        fn choose<T: Copy>(pair: &ReadWrite<T>, write: bool) -> T {
            if write { pair.write } else { pair.read }
        }
        let mut law = choose(&self.stage.service, write);
        if let Some(sequential) = &self.stage.sequential {
            if self.positions[server] == Some((transfer.file, address)) {
                law = choose(sequential, write);
            }
            self.positions[server] = Some((transfer.file, address + u64::from(transfer.length)));
        }
        let transfer_ns = self.stage.bandwidth.map_or(0, |pair| choose(&pair, write).transfer_ns(transfer.length));
        (server, law.draw(random) + transfer_ns)
    }

    /// The server for a request, and where on that server the request begins.
    #[inline]
    fn place(&self, transfer: &Transfer, random: &mut Random) -> (usize, u64) {
        let servers = self.fifo.servers();
        if servers <= 1 {
            return (0, transfer.offset);
        }
        match self.stage.assignment {
            Assignment::Shared => (self.fifo.first_free(), transfer.offset),
            Assignment::Uniform => (random.below(servers as u64) as usize, transfer.offset),
            Assignment::Striped => {
                let stripe = transfer.offset / self.stage.stripe;
                let row = stripe / servers as u64;
                ((stripe % servers as u64) as usize, row * self.stage.stripe + transfer.offset % self.stage.stripe)
            }
        }
    }
}
