//! Simulated machines on one network: the server's has the number 0 and a medium that stays.

use executor::{Executor, Order};
use std::net::SocketAddr;
use virtual_driver::{Hardware, Media, Network, NetworkFaults, NetworkOptions, Options, VirtualDriver};

pub struct Machines {
    network: Network,
    media: Media,
    seed: u64,
}

impl Machines {
    #[allow(dead_code, reason = "not every network is without faults")]
    pub fn new(seed: u64) -> Machines {
        Machines::with(seed, NetworkFaults::default())
    }

    pub fn with(seed: u64, faults: NetworkFaults) -> Machines {
        let options = NetworkOptions { seed, jitter: true, faults, ..NetworkOptions::default() };
        Machines { network: Network::new(options), media: Media::new(), seed }
    }

    /// On a network that takes so long, in nanoseconds, to carry anything.
    #[allow(dead_code, reason = "most networks take no time")]
    pub fn far_apart(seed: u64, latency_ns: u64) -> Machines {
        Machines::linked(seed, &format!("latency = \"{latency_ns} ns\""))
    }

    /// On a network whose links carry this number of bytes in a second.
    #[allow(dead_code, reason = "most networks take no time")]
    pub fn narrow(seed: u64, bandwidth: &str) -> Machines {
        Machines::linked(seed, &format!("bandwidth = \"{bandwidth}\""))
    }

    #[allow(dead_code, reason = "most networks take no time")]
    fn linked(seed: u64, line: &str) -> Machines {
        let hardware = Hardware::parse(&format!("[network.own]\n{line}\n"), "test").expect("a description");
        let description = hardware.networks["own"].clone();
        let options = NetworkOptions { description, seed, ..NetworkOptions::default() };
        Machines { network: Network::new(options), media: Media::new(), seed }
    }

    fn start(&self, number: u32, media: Media) -> Executor {
        self.start_on(Hardware::ideal(), number, media)
    }

    fn start_on(&self, hardware: Hardware, number: u32, media: Media) -> Executor {
        let options = Options { seed: self.seed + u64::from(number), ..Options::default() };
        let port = self.network.attach(number);
        let driver = VirtualDriver::on_network(hardware, options, media, port);
        Executor::new(Box::new(driver), Order::Seeded(self.seed))
    }

    pub fn server(&self) -> Executor {
        self.start(0, self.media.clone())
    }

    /// The same, of this hardware.
    #[allow(dead_code, reason = "not every server is slow")]
    pub fn server_on(&self, hardware: Hardware) -> Executor {
        self.start_on(hardware, 0, self.media.clone())
    }

    /// The server's machine, which does not run, loses what its medium has not made durable.
    #[allow(dead_code, reason = "not every test does")]
    pub fn cut_power(&self, random: &mut base::Random) {
        self.media.power_cut(random, &virtual_driver::PowerCut::default());
    }

    pub fn client(&self, number: u32) -> Executor {
        self.start(number, Media::new())
    }

    pub fn address(&self, number: u32) -> SocketAddr {
        (self.network.address(number), 7000).into()
    }
}
