//! One stage of a device at work.

use crate::concurrent::{Concurrent, Demand, Kind, Pace};
use crate::hardware::{Device, Stage, StageDiscipline};
use crate::station::Fifo;
use crate::{Assignment, Direction, Law, ReadWrite, Servers, Transfer};
use base::statistics::StationReport;
use base::{Instant, Random};

/// What becomes of a request that enters a stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stay {
    /// It departs at this moment.
    Until(Instant),
    /// It departs when the stage says so, which is to be looked at again at this moment.
    Inside(Option<Instant>),
}

enum Station {
    Fifo(Fifo),
    Concurrent(Box<Concurrent>),
}

/// What a device's requests are charged at the medium.
pub(crate) struct Terms {
    sync: Law,
    sync_waits: bool,
    durable_write: Law,
    /// Multiplies every service time: 1 for a healthy device.
    pub(crate) slowdown: f64,
    pub(crate) jitter: bool,
}

impl Terms {
    pub(crate) fn new(device: &Device, jitter: bool) -> Terms {
        Terms {
            sync: device.sync.clone(),
            sync_waits: device.sync_waits,
            durable_write: device.durable_write_law(),
            slowdown: 1.0,
            jitter,
        }
    }

    /// A service as it comes out on this device.
    #[inline]
    fn changed(&self, mut service_ns: u64, random: &mut Random) -> u64 {
        if self.slowdown != 1.0 {
            // Also what takes no time on a healthy device.
            service_ns = (service_ns.max(1) as f64 * self.slowdown) as u64;
        }
        if self.jitter {
            service_ns = (random.exponential(service_ns as f64) as u64).saturating_add(random.below(1_000));
        }
        service_ns
    }
}

pub(crate) struct Queue {
    stage: Stage,
    station: Station,
    /// Where each server's last request ended: file and address on that server.
    positions: Vec<Option<(u32, u64)>>,
    /// When the last of the writes that have come departs.
    writes_until: Instant,
}

fn choose<T>(pair: &ReadWrite<T>, write: bool) -> &T {
    if write { &pair.write } else { &pair.read }
}

impl Queue {
    pub(crate) fn new(name: String, stage: Stage) -> Queue {
        let station = match (&stage.concurrency, stage.discipline) {
            (Some(tables), _) => {
                Station::Concurrent(Box::new(Concurrent::new(name, Pace::Tables(Box::new(tables.clone())))))
            }
            (None, StageDiscipline::ProcessorSharing) => {
                let servers = match stage.servers {
                    Servers::Unlimited => 0,
                    Servers::Count(count) => count.get(),
                };
                Station::Concurrent(Box::new(Concurrent::new(name, Pace::Shares(servers))))
            }
            (None, StageDiscipline::Fifo) => Station::Fifo(Fifo::new(name, stage.servers)),
        };
        let servers = if let Station::Fifo(fifo) = &station { fifo.servers().max(1) } else { 1 };
        Queue { stage, station, positions: vec![None; servers], writes_until: Instant::START }
    }

    /// A request arrives. What the medium does beyond moving bytes is in `terms`; other stages have none.
    #[inline]
    pub(crate) fn enter(
        &mut self,
        (now, job): (Instant, u32),
        transfer: &Transfer,
        (terms, is_medium): (&Terms, bool),
        random: &mut Random,
    ) -> Stay {
        if let Station::Concurrent(_) = self.station {
            return self.join((now, job), transfer, (terms, is_medium), random);
        }
        let (server, mut service_ns) = self.serve(transfer, random);
        let mut earliest = now;
        match transfer.direction {
            Direction::Sync if is_medium => {
                service_ns = terms.sync.draw(random);
                earliest = if terms.sync_waits { now.max(self.writes_until) } else { now };
            }
            Direction::Write { durable: true } if is_medium => service_ns += terms.durable_write.draw(random),
            _ => {}
        }
        service_ns = terms.changed(service_ns, random);
        let Station::Fifo(fifo) = &mut self.station else { unreachable!("the other station was served above") };
        let departure = fifo.arrive_for((now, earliest), server, service_ns);
        if let Direction::Write { .. } = transfer.direction {
            self.writes_until = self.writes_until.max(departure);
        }
        Stay::Until(departure)
    }

    fn join(
        &mut self,
        (now, job): (Instant, u32),
        transfer: &Transfer,
        (terms, is_medium): (&Terms, bool),
        random: &mut Random,
    ) -> Stay {
        let Queue { station: Station::Concurrent(station), .. } = &*self else {
            unreachable!("the other station has servers")
        };
        let [tabled, tabled_force, tabled_sync] = station.is_tabled();
        let is_durable = is_medium && transfer.direction == Direction::Write { durable: true };
        let kind = match transfer.direction {
            Direction::Read => Kind::Read,
            Direction::Write { .. } => Kind::Write,
            Direction::Sync => Kind::Sync,
        };
        let law = station.law(kind, random).cloned();
        let force_law = if is_durable { station.law(Kind::Force, random).cloned() } else { None };
        // A demand by a table is a multiple of the time there, in millionths for slow and random devices to be changed alike.
        let amount = |law: &Law, tabled: bool, random: &mut Random| {
            let (ns, mean_ns) = (law.draw(random), law.mean_ns());
            if !tabled {
                return terms.changed(ns, random) as f64;
            }
            let multiple = if mean_ns > 0.0 { ns as f64 / mean_ns } else { 1.0 };
            terms.changed((multiple * 1e6) as u64, random) as f64 / 1e6
        };
        let demand = match transfer.direction {
            Direction::Sync => Demand::Sync {
                waits: terms.sync_waits && is_medium,
                amount: if is_medium { amount(law.as_ref().unwrap_or(&terms.sync), tabled_sync, random) } else { 0.0 },
            },
            direction => {
                let write = direction != Direction::Read;
                let plain = if tabled {
                    amount(law.as_ref().unwrap_or(choose(&self.stage.service, write)), true, random)
                } else {
                    let (_, service_ns) = self.serve(transfer, random);
                    terms.changed(service_ns, random) as f64
                };
                let force_law = force_law.as_ref().unwrap_or(&terms.durable_write);
                let force = is_durable.then(|| amount(force_law, tabled_force, random));
                if write { Demand::Write { plain, force } } else { Demand::Read(plain) }
            }
        };
        let Station::Concurrent(station) = &mut self.station else { unreachable!("it was this one above") };
        station.arrive(now, job, demand);
        Stay::Inside(station.next())
    }

    /// The stage is looked at, as it has wished: the request that departs, and when it wants to be looked at again.
    pub(crate) fn expire(&mut self, now: Instant) -> (Option<u32>, Option<Instant>) {
        match &mut self.station {
            Station::Fifo(_) => (None, None),
            Station::Concurrent(station) => {
                // One that is no longer wished for.
                if station.next() != Some(now) {
                    return (None, None);
                }
                let job = station.expire(now);
                (job, station.next())
            }
        }
    }

    #[inline]
    pub(crate) fn depart(&mut self, now: Instant, entered: Instant) {
        match &mut self.station {
            Station::Fifo(fifo) => fifo.depart(now, entered),
            Station::Concurrent(station) => station.depart(now, entered),
        }
    }

    /// Nothing is served for this long.
    pub(crate) fn pause(&mut self, now: Instant, ns: u64) {
        match &mut self.station {
            Station::Fifo(fifo) => fifo.pause(now, ns),
            Station::Concurrent(station) => station.pause(now, ns),
        }
    }

    pub(crate) fn restart(&mut self, now: Instant) {
        match &mut self.station {
            Station::Fifo(fifo) => fifo.restart(now),
            Station::Concurrent(station) => station.restart(now),
        }
    }

    /// The report; `present` tells when each request that is here entered.
    pub(crate) fn report(&self, present: impl Iterator<Item = Instant>, now: Instant) -> StationReport {
        match &self.station {
            Station::Fifo(fifo) => fifo.report(present, now),
            Station::Concurrent(station) => station.report(present, now),
        }
    }

    /// The server for a request, and how long it takes there.
    #[inline]
    fn serve(&mut self, transfer: &Transfer, random: &mut Random) -> (usize, u64) {
        let (server, address) = self.place(transfer, random);
        let write = match transfer.direction {
            Direction::Sync => return (server, 0),
            Direction::Read => false,
            Direction::Write { .. } => true,
        };
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
        let Station::Fifo(fifo) = &self.station else { return (0, transfer.offset) };
        let servers = fifo.servers();
        if servers <= 1 {
            return (0, transfer.offset);
        }
        match self.stage.assignment {
            Assignment::Shared => (fifo.first_free(), transfer.offset),
            Assignment::Uniform => (random.below(servers as u64) as usize, transfer.offset),
            Assignment::Striped => {
                let stripe = transfer.offset / self.stage.stripe;
                let row = stripe / servers as u64;
                ((stripe % servers as u64) as usize, row * self.stage.stripe + transfer.offset % self.stage.stripe)
            }
        }
    }
}
