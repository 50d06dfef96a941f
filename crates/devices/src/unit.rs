use crate::cache::{Answer, DiskCache};
use crate::hardware::{Device, Stage};
use crate::station::Fifo;
use crate::{Assignment, Cache, CacheCounts, Law, ReadWrite, WriteCache};
use base::statistics::StationReport;
use base::{Instant, Random};
use std::collections::BTreeMap;

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
pub(crate) const MEDIUM: usize = 2;
/// The stage of a request that has passed all.
pub(crate) const DONE: usize = STAGES.len();

/// Where a request goes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NextStage {
    /// Into this stage, from which it departs at this moment.
    Stage(usize, Instant),
    /// Nowhere: it is done.
    End,
    /// Nowhere, but its bytes go on to the medium in the background.
    Destage,
}

/// The running model of one device.
pub(crate) struct Unit {
    stages: [Option<Queue>; STAGES.len()],
    cache: Option<DiskCache>,
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
        let cache = device.cache.as_ref().filter(|_| device.medium.is_some());
        let volatile = device.write_cache == WriteCache::Volatile;
        Unit {
            stages,
            cache: cache.map(|cache| DiskCache::new(cache, volatile)),
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

    /// A request that has passed the stages below `from` goes on.
    #[inline]
    pub(crate) fn forward(&mut self, now: Instant, from: usize, transfer: &Transfer) -> NextStage {
        let Some(stage) = (from..DONE).find(|stage| self.concerns(*stage, transfer)) else { return NextStage::End };
        let answer = match &mut self.cache {
            Some(cache) if stage == MEDIUM => cache.arrive(transfer),
            _ => Answer::Medium,
        };
        match answer {
            Answer::Medium => NextStage::Stage(stage, self.enter(now, stage, transfer)),
            Answer::Done => NextStage::End,
            Answer::Destage => NextStage::Destage,
        }
    }

    /// A request arrives at a stage that it has to pass: when it departs from there.
    #[inline]
    pub(crate) fn enter(&mut self, now: Instant, stage: usize, transfer: &Transfer) -> Instant {
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
            service_ns = (random.exponential(service_ns as f64) as u64).saturating_add(random.below(1_000));
        }
        queue.fifo.arrive(now, server, service_ns)
    }

    fn concerns(&self, stage: usize, transfer: &Transfer) -> bool {
        // A sync moves no bytes.
        self.stages[stage].is_some() && !(stage == 1 && transfer.direction == Direction::Sync)
    }

    /// A request that arrived at `stage` at `entered` departs from it; `background` tells whether only the cache waits for it.
    #[inline]
    pub(crate) fn leave(
        &mut self,
        (now, entered): (Instant, Instant),
        stage: usize,
        transfer: &Transfer,
        background: bool,
    ) {
        let Some(queue) = &mut self.stages[stage] else { unreachable!("a request leaves a stage that it entered") };
        queue.fifo.depart(now, entered);
        match &mut self.cache {
            Some(cache) if background => cache.end_destage(transfer),
            Some(cache) if stage == MEDIUM && transfer.direction == Direction::Read => cache.end_read(transfer),
            _ => {}
        }
    }

    pub(crate) fn restart(&mut self, now: Instant) {
        self.stages.iter_mut().flatten().for_each(|queue| queue.fifo.restart(now));
        self.cache.iter_mut().for_each(DiskCache::restart);
    }

    /// The cache and what each file's requests met there.
    pub(crate) fn cache(&self) -> Option<(&Cache, &BTreeMap<u32, CacheCounts>)> {
        self.cache.as_ref().map(|cache| (cache.description(), cache.counts()))
    }

    /// The report of every stage; `present` tells the stage and the time of entry of each request in this device.
    pub(crate) fn reports(&self, present: &[(usize, Instant)], now: Instant) -> impl Iterator<Item = StationReport> {
        let queues = self.stages.iter().enumerate().filter_map(|(stage, queue)| Some((stage, queue.as_ref()?)));
        queues.map(move |(stage, queue)| {
            let here = present.iter().filter(|(at, _)| *at == stage).map(|(_, entered)| *entered);
            queue.fifo.report(here, now)
        })
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
