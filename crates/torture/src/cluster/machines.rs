//! The machines of a cluster: the server's has the number 0 and media that stay.

use super::ClusterShape;
use super::shape::LOG_DEVICE;
use base::time::{MICROSECOND_NS, SECOND_NS};
use base::{Clock, Random};
use devices::{Law, Network as Wiring};
use driver::OpKind;
use executor::{Executor, Order};
use std::cell::Cell;
use std::net::SocketAddr;
use virtual_driver::{
    ErrorAt, FaultPlan, Hardware, Media, Network, NetworkFaults, NetworkOptions, Options, PowerCut, VirtualDriver,
};

/// The port that all listen at.
const PORT: u16 = 7000;
/// How long a parcel is on its way in the mean.
const LATENCY_NS: u64 = 200 * MICROSECOND_NS;
/// How far clocks are ahead, at most, when the scenario begins.
const AHEAD_NS: u64 = 1_000_000 * SECOND_NS;

pub(super) struct Machines {
    pub network: Network,
    media: Media,
    seed: u64,
    clock_gains_ppm: Option<Vec<u64>>,
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
        Machines { network, media: Media::new(), seed, clock_gains_ppm, starts: Cell::new(0) }
    }

    /// Starts a machine. Of the writes of its log one fails, if it is said which.
    pub fn start(&self, number: u32, failing_write: Option<u64>) -> Executor {
        self.starts.set(self.starts.get() + 1);
        let seed = Random::stream(self.seed, &format!("machine {number}, start {}", self.starts.get())).word();
        let media = if number == 0 { self.media.clone() } else { Media::new() };
        let error = |nth| ErrorAt { kind: OpKind::Write, device: Some(LOG_DEVICE.to_owned()), nth };
        let faults = FaultPlan { errors: failing_write.map(error).into_iter().collect(), ..FaultPlan::default() };
        let options = Options { seed, faults: Some(faults), jitter: true, discard: Vec::new() };
        let driver = VirtualDriver::on_network(Hardware::ideal(), options, media, self.network.attach(number));
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
