use crate::law::rounded;
use base::Instant;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Jobs that share servers equally (processor sharing), kept by the amount of service that each will have had at its end.
///
/// `attained_ns` is the service that a job present from the start would have had; a job that needs `d` more ends when this
/// reaches its present value plus `d`, whichever jobs come and go meanwhile.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sharing {
    attained_ns: f64,
    updated: Instant,
    servers: u32,
    ends: BinaryHeap<Reverse<(u64, u64, u32)>>,
    sequence: u64,
    next: Option<Instant>,
}

impl Sharing {
    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }

    /// When the first job ends, if no job comes or goes before.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.next
    }

    /// Each job's share of one server's speed.
    fn rate(&self) -> f64 {
        if self.ends.is_empty() { 0.0 } else { (f64::from(self.servers) / self.ends.len() as f64).min(1.0) }
    }

    fn advance(&mut self, now: Instant) {
        self.attained_ns += self.rate() * now.since_ns(self.updated) as f64;
        self.updated = now;
    }

    fn plan(&mut self) -> Option<Instant> {
        let rate = self.rate();
        self.next = match self.ends.peek() {
            Some(Reverse((end, _, _))) if rate > 0.0 => {
                let left = (f64::from_bits(*end) - self.attained_ns).max(0.0);
                Some(self.updated.plus_ns(rounded(left / rate)))
            }
            _ => None,
        };
        self.next
    }

    /// From now on this many servers are there to share.
    pub(crate) fn set_servers(&mut self, now: Instant, servers: u32) -> Option<Instant> {
        self.advance(now);
        self.servers = servers;
        self.plan()
    }

    /// A job comes that needs `demand_ns` of one server.
    pub(crate) fn add(&mut self, now: Instant, job: u32, demand_ns: u64) -> Option<Instant> {
        self.advance(now);
        if self.ends.is_empty() {
            self.attained_ns = 0.0;
        }
        // Non-negative floating-point numbers are ordered like their bits.
        let end = (self.attained_ns + demand_ns as f64).to_bits();
        self.ends.push(Reverse((end, self.sequence, job)));
        self.sequence += 1;
        self.plan()
    }

    /// The first job ends at the planned moment.
    pub(crate) fn finish(&mut self, now: Instant) -> u32 {
        self.advance(now);
        let Some(Reverse((_, _, job))) = self.ends.pop() else { unreachable!("a planned end has its job") };
        self.plan();
        job
    }
}
