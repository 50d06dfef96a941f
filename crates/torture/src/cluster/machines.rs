//! The machines of a cluster: the server's has the number 0 and media that stay.

use super::ClusterShape;
use super::play::TROUBLE_FROM_NS;
use super::shape::{CACHE_DEVICE, DATA_DEVICE, LOG_DEVICE, SECOND_DEVICE};
use base::time::{MICROSECOND_NS, MILLISECOND_NS, SECOND_NS};
use base::{Clock, Instant, Random};
use devices::{Law, Network as Wiring, ReadWrite};
use driver::OpKind;
use executor::{Executor, Order};
use std::cell::Cell;
use std::net::SocketAddr;
use virtual_driver::{
    ErrorAt, FaultPlan, Hardware, Injury, Media, Network, NetworkFaults, NetworkOptions, Options, PowerCut, Slow,
    VirtualDriver,
};

/// The port that all listen at.
const PORT: u16 = 7000;
/// How long a parcel is on its way in the mean.
const LATENCY_NS: u64 = 200 * MICROSECOND_NS;
/// For how long writes of a log that is slow begin, and how long each takes otherwise, in nanoseconds.
const SLOW_NS: u64 = 50 * MILLISECOND_NS;
const LOG_WRITE_NS: u64 = 5 * MICROSECOND_NS;
/// How far clocks are ahead, at most, when the scenario begins.
const AHEAD_NS: u64 = 1_000_000 * SECOND_NS;

/// Which operations of a server's devices fail, counted since it was started.
#[derive(Default)]
pub(super) struct Failing {
    pub log_write: Option<u64>,
    pub of_data: Vec<(OpKind, u64, Injury)>,
}

impl Failing {
    /// Draws which of the data device fail, the first of them behind what a creation needs, if it is said so.
    pub fn draw_of_data(random: &mut Random, behind_creation: bool) -> Vec<(OpKind, u64, Injury)> {
        let draw = |random: &mut Random| {
            let mean = if random.chance(0.5) { 20.0 } else { 200.0 };
            let nth = 1 + random.exponential(mean) as u64 + if behind_creation { CREATION } else { 0 };
            let (kind, injury) = *random
                .choose(&[
                    (OpKind::Read, Injury::Fail),
                    (OpKind::Write, Injury::Fail),
                    (OpKind::Write, Injury::NoSpace),
                    (OpKind::Resize, Injury::NoSpace),
                    (OpKind::Sync, Injury::Fail),
                    (OpKind::Sync, Injury::Forget { cached: false }),
                ])
                .expect("there are some");
            (kind, nth, injury)
        };
        (0..random.between(1, 4)).map(|_| draw(random)).collect()
    }
}

/// How many operations of each kind a creation needs, at most.
const CREATION: u64 = 150;

pub(super) struct Machines {
    pub network: Network,
    media: Media,
    seed: u64,
    clock_gains_ppm: Option<Vec<u64>>,
    slow: Vec<Slow>,
    hardware: Hardware,
    starts: Cell<u64>,
}

impl Machines {
    pub fn new(seed: u64, shape: &ClusterShape) -> Machines {
        let faults = NetworkFaults {
            late: shape.late,
            late_ns: 20_000 * MICROSECOND_NS,
            reset: shape.reset,
            hang: shape.hang,
            ..NetworkFaults::default()
        };
        let description = Wiring { latency: Law::Exponential(LATENCY_NS), ..Wiring::no_delay() };
        let options = NetworkOptions { seed, description, faults, ..NetworkOptions::default() };
        let (network, clock_gains_ppm) = (Network::new(options), shape.clock_gains_ppm.clone());
        let mut hardware = Hardware::ideal();
        for (name, slow_ns) in [(DATA_DEVICE, shape.slow_disk_ns), (LOG_DEVICE, shape.slow_log_ns)] {
            if let (Some(ns), Some(medium)) = (slow_ns, &mut hardware.device_mut(name).medium) {
                medium.service = ReadWrite::both(Law::Exponential(ns));
            }
        }
        let flash = hardware.device_mut(LOG_DEVICE).clone();
        for (name, is_there) in [(SECOND_DEVICE, shape.second_log.is_some()), (CACHE_DEVICE, shape.cache.is_some())] {
            is_there.then(|| hardware.devices.insert(name.to_owned(), flash.clone()));
        }
        let slow = shape.slow_log.map(|(at_ns, ns)| {
            let from = Instant::from_ns(TROUBLE_FROM_NS + at_ns);
            let factor = ns as f64 / LOG_WRITE_NS as f64;
            Slow { device: LOG_DEVICE.to_owned(), from, until: from.plus_ns(SLOW_NS), factor }
        });
        let slow = slow.into_iter().collect();
        Machines { network, media: Media::new(), seed, clock_gains_ppm, slow, hardware, starts: Cell::new(0) }
    }

    /// Starts a machine. These of its operations fail.
    pub fn start(&self, number: u32, failing: &Failing) -> Executor {
        self.starts.set(self.starts.get() + 1);
        let seed = Random::stream(self.seed, &format!("machine {number}, start {}", self.starts.get())).word();
        let media = if number == 0 { self.media.clone() } else { Media::new() };
        let error = |kind, device: &str, nth| ErrorAt { kind, device: Some(device.to_owned()), nth };
        let of_log = failing.log_write.map(|nth| error(OpKind::Write, LOG_DEVICE, nth));
        let injuries = failing.of_data.iter().map(|(kind, nth, injury)| (error(*kind, DATA_DEVICE, *nth), *injury));
        let (errors, injuries) = (of_log.into_iter().collect(), injuries.collect());
        let slow = if number == 0 { self.slow.clone() } else { Vec::new() };
        let faults = FaultPlan { errors, injuries, slow, ..FaultPlan::default() };
        let options = Options { seed, faults: Some(faults), jitter: true, discard: Vec::new() };
        let driver = VirtualDriver::on_network(self.hardware.clone(), options, media, self.network.attach(number));
        Executor::new(Box::new(driver.with_clock(self.clock(number))), Order::Seeded(seed))
    }

    /// The clock of a machine that is started: as fast as it ever was, and as far ahead as it may be.
    fn clock(&self, number: u32) -> Clock {
        let Some(gains) = &self.clock_gains_ppm else { return Clock::default() };
        let mut random = Random::stream(self.seed, &format!("clock of machine {number}, start {}", self.starts.get()));
        Clock::new(random.below(AHEAD_NS), gains[number as usize])
    }

    pub fn address(&self, number: u32) -> SocketAddr {
        (self.network.address(number), PORT).into()
    }

    /// The server's data device is full from now on, or no longer.
    pub fn set_full(&self, full: bool) {
        self.media.set_full(DATA_DEVICE, full);
    }

    /// The server's machine, which does not run, has lost its power, or only its program.
    pub fn treat_media(&self, random: &mut Random, power_is_gone: bool) {
        if power_is_gone {
            let policies = [PowerCut::default(), PowerCut { lost: 0.0, torn: 1.0 }, PowerCut { lost: 1.0, torn: 0.0 }];
            let policy = random.choose(&policies).expect("there are some");
            self.media.power_cut(random, policy);
        } else {
            self.media.process_end(random);
        }
    }
}
