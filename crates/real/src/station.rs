use base::Instant;
use base::statistics::TimeWeighted;
use driver::StationReport;

/// What is in flight on a device: requests handed over and not yet seen to be done.
pub(crate) struct Station {
    population: TimeWeighted,
    busy: TimeWeighted,
    completed: u64,
    response_ns: u64,
    since: Instant,
}

impl Station {
    pub(crate) fn new(now: Instant) -> Station {
        Station {
            population: TimeWeighted::new(now, 0.0),
            busy: TimeWeighted::new(now, 0.0),
            completed: 0,
            response_ns: 0,
            since: now,
        }
    }

    pub(crate) fn arrive(&mut self, now: Instant) {
        if self.population.value() == 0.0 {
            self.busy.set(now, 1.0);
        }
        self.population.add(now, 1.0);
    }

    pub(crate) fn depart(&mut self, now: Instant, arrival: Instant) {
        self.population.add(now, -1.0);
        if self.population.value() == 0.0 {
            self.busy.set(now, 0.0);
        }
        self.completed += 1;
        self.response_ns += now.since_ns(arrival.max(self.since));
    }

    pub(crate) fn restart(&mut self, now: Instant) {
        self.population.restart(now);
        self.busy.restart(now);
        self.completed = 0;
        self.response_ns = 0;
        self.since = now;
    }

    /// The report; `present` tells when each request that is still in flight arrived.
    pub(crate) fn report(&self, name: &str, present: impl Iterator<Item = Instant>, now: Instant) -> StationReport {
        let completed = self.completed;
        let present_ns: u64 = present.map(|arrival| now.since_ns(arrival.max(self.since))).sum();
        let population_ns = self.population.integral(now);
        StationReport {
            name: name.to_owned(),
            servers: 1,
            utilization: self.busy.mean(now),
            completed,
            response_ns_mean: if completed == 0 { 0.0 } else { self.response_ns as f64 / completed as f64 },
            population_mean: self.population.mean(now),
            little_error: (population_ns - (self.response_ns + present_ns) as f64).abs() / population_ns.max(1.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_overlapping_requests_are_counted_and_timed() {
        let at = Instant::from_ns;
        let mut station = Station::new(at(0));
        station.arrive(at(10));
        station.arrive(at(20));
        station.depart(at(50), at(10));
        station.depart(at(60), at(20));
        station.arrive(at(90));
        let report = station.report("disk", [at(90)].into_iter(), at(100));
        assert_eq!((report.completed, report.response_ns_mean), (2, 40.0));
        assert_eq!((report.population_mean, report.utilization, report.little_error), (0.9, 0.6, 0.0));
        station.restart(at(100));
        let later = station.report("disk", [at(90)].into_iter(), at(200));
        assert_eq!((later.completed, later.population_mean, later.little_error), (0, 1.0, 0.0));
        assert_eq!(station.report("disk", std::iter::empty(), at(200)).little_error, 1.0, "a request is missing");
    }
}
