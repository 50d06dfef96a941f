use crate::cache::{Answer, DiskCache};
use crate::hardware::{Device, Pauses};
use crate::limit::Bucket;
use crate::queue::{Queue, Stay, Terms};
use crate::station::Fifo;
use crate::{Cache, CacheCounts, Law, Servers, Together, WriteCache};
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
    /// Whether it writes where, at least in part, nothing was ever written.
    pub fresh: bool,
}

/// The stages of a device, in the order in which a request passes them.
const STAGES: [&str; 4] = ["limit", "controller", "transmission", "medium"];
const LIMIT: usize = 0;
const TRANSMISSION: usize = 2;
pub(crate) const MEDIUM: usize = 3;
/// The stage of a request that has passed all.
pub(crate) const DONE: usize = STAGES.len();

/// Where a request goes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NextStage {
    /// Into this stage.
    Stage(usize, Stay),
    /// Nowhere: it is done.
    End,
    /// Nowhere, but its bytes go on to the medium in the background.
    Destage,
}

/// The running model of one device.
pub(crate) struct Unit {
    /// The limits on its transfers, by their places among the machine's.
    limits: Vec<usize>,
    /// The wait for their credit.
    limited: Fifo,
    stages: [Option<Queue>; STAGES.len()],
    cache: Option<DiskCache>,
    terms: Terms,
    pauses: Option<Pauses>,
    /// What a write takes longer where nothing was ever written, by how many of these are under way, and how many are.
    fresh_write: Option<Law>,
    fresh_together: Option<Together>,
    fresh_under_way: usize,
    /// What was written since the last pause, in bytes.
    written: u64,
    random: Random,
}

impl Unit {
    pub(crate) fn new(name: &str, device: &Device, limits: Vec<usize>, seed: u64, jitter: bool) -> Unit {
        let described = [&None, &device.controller, &device.transmission, &device.medium];
        let mut stages = described.into_iter().zip(STAGES);
        let stages = std::array::from_fn(|_| {
            let (stage, word) = stages.next()?;
            Some(Queue::new(format!("{name}.{word}"), stage.clone()?))
        });
        let cache = device.cache.as_ref().filter(|_| device.medium.is_some());
        let volatile = device.write_cache == WriteCache::Volatile;
        Unit {
            limits,
            limited: Fifo::new(format!("{name}.{}", STAGES[LIMIT]), Servers::Unlimited),
            stages,
            cache: cache.map(|cache| DiskCache::new(cache, volatile)),
            terms: Terms::new(device, jitter),
            pauses: device.pauses.clone(),
            fresh_write: device.fresh_write.clone(),
            fresh_together: device.fresh_together.clone(),
            fresh_under_way: 0,
            written: 0,
            random: Random::stream(seed, name),
        }
    }

    pub(crate) fn set_slowdown(&mut self, factor: f64) {
        self.terms.slowdown = factor;
    }

    /// A request that has passed the stages below `from` goes on.
    #[inline]
    pub(crate) fn forward(
        &mut self,
        (now, job): (Instant, u32),
        from: usize,
        transfer: &Transfer,
        buckets: &mut [Bucket],
    ) -> NextStage {
        if from == LIMIT && (!self.limits.is_empty() || self.fresh_write.is_some()) {
            let credit = self.limits.iter().filter_map(|limit| {
                let bucket = &mut buckets[*limit];
                bucket.limit().concerns(transfer).then(|| bucket.take(now, transfer))
            });
            let (credit, fresh_ns) = (credit.max(), self.fresh_ns(transfer));
            if let Some(at) = credit.max(fresh_ns.map(|ns| credit.unwrap_or(now).plus_ns(ns))) {
                return NextStage::Stage(LIMIT, Stay::Until(self.limited.arrive(now, 0, at.since_ns(now))));
            }
        }
        let Some(stage) = (from..DONE).find(|stage| self.concerns(*stage, transfer)) else {
            self.end_fresh(transfer);
            return NextStage::End;
        };
        let answer = match &mut self.cache {
            Some(cache) if stage == MEDIUM => cache.arrive(transfer),
            _ => Answer::Medium,
        };
        match answer {
            Answer::Medium => NextStage::Stage(stage, self.enter((now, job), stage, transfer)),
            Answer::Done | Answer::Destage => {
                self.end_fresh(transfer);
                if answer == Answer::Done { NextStage::End } else { NextStage::Destage }
            }
        }
    }

    /// A request arrives at a stage that it has to pass.
    #[inline]
    pub(crate) fn enter(&mut self, (now, job): (Instant, u32), stage: usize, transfer: &Transfer) -> Stay {
        let Unit { stages, terms, random, .. } = self;
        let Some(queue) = &mut stages[stage] else { unreachable!("a stage that concerns a request exists") };
        if let (MEDIUM, Some(pauses), Direction::Write { .. }) = (stage, &self.pauses, transfer.direction) {
            self.written += u64::from(transfer.length);
            if self.written >= pauses.every {
                self.written -= pauses.every;
                queue.pause(now, pauses.time.draw(random));
            }
        }
        queue.enter((now, job), transfer, (terms, stage == MEDIUM), random)
    }

    /// A stage is looked at, as it has wished: the request that departs, and when it wants to be looked at again.
    pub(crate) fn expire(&mut self, now: Instant, stage: usize) -> (Option<u32>, Option<Instant>) {
        self.stages[stage].as_mut().map_or((None, None), |queue| queue.expire(now))
    }

    /// Whether the file system has to note that a place is written now.
    fn is_fresh(&self, transfer: &Transfer) -> bool {
        transfer.fresh && self.fresh_write.is_some() && matches!(transfer.direction, Direction::Write { .. })
    }

    /// A request has passed the device. What a cache writes in the background was counted once.
    fn end_fresh(&mut self, transfer: &Transfer) {
        self.fresh_under_way = self.fresh_under_way.saturating_sub(usize::from(self.is_fresh(transfer)));
    }

    /// How long that takes for a write that has just come.
    fn fresh_ns(&mut self, transfer: &Transfer) -> Option<u64> {
        if !self.is_fresh(transfer) {
            return None;
        }
        self.fresh_under_way += 1;
        let alone_ns = self.fresh_write.as_ref()?.draw(&mut self.random);
        let factor = self.fresh_together.as_ref().map_or(1.0, |together| together.factor(self.fresh_under_way));
        Some((alone_ns as f64 * factor).round() as u64)
    }

    fn concerns(&self, stage: usize, transfer: &Transfer) -> bool {
        // A sync moves no bytes.
        self.stages[stage].is_some() && !(stage == TRANSMISSION && transfer.direction == Direction::Sync)
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
        if stage == LIMIT {
            return self.limited.depart(now, entered);
        }
        let Some(queue) = &mut self.stages[stage] else { unreachable!("a request leaves a stage that it entered") };
        queue.depart(now, entered);
        match &mut self.cache {
            Some(cache) if background => cache.end_destage(transfer),
            Some(cache) if stage == MEDIUM && transfer.direction == Direction::Read => cache.end_read(transfer),
            _ => {}
        }
    }

    pub(crate) fn restart(&mut self, now: Instant) {
        self.limited.restart(now);
        self.stages.iter_mut().flatten().for_each(|queue| queue.restart(now));
        self.cache.iter_mut().for_each(DiskCache::restart);
    }

    /// The cache and what each file's requests met there.
    pub(crate) fn cache(&self) -> Option<(&Cache, &BTreeMap<u32, CacheCounts>)> {
        self.cache.as_ref().map(|cache| (cache.description(), cache.counts()))
    }

    /// The report of every stage; `present` tells the stage and the time of entry of each request in this device. `used_ns`
    /// tells of a limit how long its rate took to give the credit that was taken, since a moment `span_ns` ago.
    pub(crate) fn reports(
        &self,
        present: &[(usize, Instant)],
        now: Instant,
        (used_ns, span_ns): (impl Fn(usize) -> u64, u64),
    ) -> impl Iterator<Item = StationReport> {
        let here = |stage: usize| present.iter().filter(move |(at, _)| *at == stage).map(|(_, entered)| *entered);
        let limited = self.limits.iter().map(|limit| used_ns(*limit)).max().map(|used_ns| StationReport {
            servers: 1,
            utilization: if span_ns > 0 { used_ns as f64 / span_ns as f64 } else { 0.0 },
            ..self.limited.report(here(LIMIT), now)
        });
        let queues = self.stages.iter().enumerate().filter_map(|(stage, queue)| Some((stage, queue.as_ref()?)));
        limited.into_iter().chain(queues.map(move |(stage, queue)| queue.report(here(stage), now)))
    }
}
