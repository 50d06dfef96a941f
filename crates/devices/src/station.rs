use crate::Servers;
use base::Instant;
use base::statistics::{StationReport, TimeWeighted};

/// Counts what passes through a station.
#[derive(Clone, Debug, Default)]
pub(crate) struct Flow {
    population: TimeWeighted,
    start: Instant,
    completed: u64,
    response_ns: f64,
    /// The parts of the departed requests' times since the start.
    inside_ns: f64,
}

impl Flow {
    #[inline]
    pub(crate) fn arrive(&mut self, now: Instant) {
        self.population.add(now, 1.0);
    }

    #[inline]
    pub(crate) fn depart(&mut self, now: Instant, entered: Instant) {
        self.population.add(now, -1.0);
        self.completed += 1;
        self.response_ns += now.since_ns(entered) as f64;
        self.inside_ns += now.since_ns(entered.max(self.start)) as f64;
    }

    pub(crate) fn restart(&mut self, now: Instant) {
        self.population.restart(now);
        (self.start, self.completed, self.response_ns, self.inside_ns) = (now, 0, 0.0, 0.0);
    }

    /// The report; `busy_ns` is the time that all servers together were busy, `present` tells when each request that is
    /// still here entered.
    pub(crate) fn report(
        &self,
        name: &str,
        (servers, busy_ns): (u32, f64),
        present: impl Iterator<Item = Instant>,
        now: Instant,
    ) -> StationReport {
        let population_ns = self.population.integral(now);
        let present_ns: f64 = present.map(|entered| now.since_ns(entered.max(self.start)) as f64).sum();
        let span = now.since_ns(self.start) as f64;
        let per_span = |amount: f64| if span > 0.0 { amount / span } else { 0.0 };
        StationReport {
            name: name.to_owned(),
            servers,
            utilization: if servers == 0 { 0.0 } else { per_span(busy_ns) / f64::from(servers) },
            completed: self.completed,
            response_ns_mean: self.response_ns / self.completed.max(1) as f64,
            population_mean: self.population.mean(now),
            little_error: (population_ns - self.inside_ns - present_ns).abs() / population_ns.max(1.0),
        }
    }
}

/// First-in-first-out servers whose service times are known on arrival, so that the departure follows at once: no queue is
/// kept, only the moment at which each server will be free.
#[derive(Clone, Debug)]
pub(crate) struct Fifo {
    name: String,
    free_at: Vec<Instant>,
    /// No service begins before this.
    paused_until: Instant,
    /// Service promised since the last restart, including what was left to do then.
    promised_ns: u64,
    flow: Flow,
}

impl Fifo {
    pub(crate) fn new(name: String, servers: Servers) -> Fifo {
        let free_at = match servers {
            Servers::Unlimited => Vec::new(),
            Servers::Count(count) => vec![Instant::START; count.get() as usize],
        };
        Fifo { name, free_at, paused_until: Instant::START, promised_ns: 0, flow: Flow::default() }
    }

    /// How many servers there are; zero if unlimited.
    pub(crate) fn servers(&self) -> usize {
        self.free_at.len()
    }

    /// The server that is free first.
    #[inline]
    pub(crate) fn first_free(&self) -> usize {
        (1..self.free_at.len())
            .fold(0, |best, index| if self.free_at[index] < self.free_at[best] { index } else { best })
    }

    /// A request arrives in the queue of `server`; returns when it departs.
    #[inline]
    pub(crate) fn arrive(&mut self, now: Instant, server: usize, service_ns: u64) -> Instant {
        self.arrive_for((now, now), server, service_ns)
    }

    /// The same, of a request that is not served before `earliest`.
    #[inline]
    pub(crate) fn arrive_for(
        &mut self,
        (now, earliest): (Instant, Instant),
        server: usize,
        service_ns: u64,
    ) -> Instant {
        self.flow.arrive(now);
        let earliest = earliest.max(self.paused_until);
        match self.free_at.get_mut(server) {
            None => earliest.plus_ns(service_ns),
            Some(free_at) => {
                *free_at = (*free_at).max(earliest).plus_ns(service_ns);
                self.promised_ns = self.promised_ns.saturating_add(service_ns);
                *free_at
            }
        }
    }

    /// What comes from now on is not served before this time has passed behind what has come.
    pub(crate) fn pause(&mut self, now: Instant, ns: u64) {
        let behind = self.free_at.iter().copied().max().unwrap_or(now).max(now).max(self.paused_until);
        self.paused_until = behind.plus_ns(ns);
    }

    #[inline]
    pub(crate) fn depart(&mut self, now: Instant, entered: Instant) {
        self.flow.depart(now, entered);
    }

    fn unfinished_ns(&self, now: Instant) -> u64 {
        self.free_at.iter().fold(0, |sum, free_at| sum.saturating_add(free_at.since_ns(now)))
    }

    pub(crate) fn restart(&mut self, now: Instant) {
        self.promised_ns = self.unfinished_ns(now);
        self.flow.restart(now);
    }

    pub(crate) fn report(&self, present: impl Iterator<Item = Instant>, now: Instant) -> StationReport {
        let busy_ns = self.promised_ns.saturating_sub(self.unfinished_ns(now));
        self.flow.report(&self.name, (self.free_at.len() as u32, busy_ns as f64), present, now)
    }
}
