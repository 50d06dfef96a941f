//! The virtual driver keeps the promises of the seam, on ideal and on described hardware.

use conformance::{DEVICE, Peer, Subject};
use virtual_driver::{Hardware, Media, Network, NetworkFaults, NetworkOptions, Options, VirtualDriver};

fn subject(hardware: Hardware, options: Options) -> Option<Subject> {
    Some(Subject::new(Box::new(VirtualDriver::new(hardware, options, Media::new())), None))
}

/// Two machines on one network, of which the first is under test.
fn on_network(hardware: Hardware, options: Options, network: NetworkOptions) -> Option<Subject> {
    let network = Network::new(network);
    let driver = |machine| {
        let port = network.attach(machine);
        Box::new(VirtualDriver::on_network(hardware.clone(), options.clone(), Media::new(), port))
    };
    let subject = Subject::new(driver(0), None);
    Some(subject.beside(Peer { driver: driver(1), address: network.address(0) }))
}

mod ideal {
    fn make() -> Option<conformance::Subject> {
        super::subject(super::Hardware::ideal(), super::Options::default())
    }
    conformance::conformance!(make);
}

/// A flash device that queues, under the name that the promises use.
fn flash() -> Hardware {
    let mut hardware = Hardware::named("nvme-2026").expect("embedded");
    let device = hardware.devices.remove("nvme").expect("described");
    hardware.devices.insert(DEVICE.to_owned(), device);
    hardware
}

mod on_an_ideal_network {
    fn make() -> Option<conformance::Subject> {
        super::on_network(super::flash(), super::Options::default(), super::NetworkOptions::default())
    }
    conformance::conformance!(make);
}

mod on_a_slow_network {
    fn make() -> Option<conformance::Subject> {
        let mut hardware = super::Hardware::named("franklin-1992-server").expect("embedded");
        let description = hardware.networks.remove("slow").expect("described");
        let network =
            super::NetworkOptions { name: "slow".to_owned(), description, ..super::NetworkOptions::default() };
        super::on_network(super::flash(), super::Options::default(), network)
    }
    conformance::conformance!(make);
}

mod on_a_late_network {
    fn make() -> Option<conformance::Subject> {
        let faults = super::NetworkFaults { late: 0.3, late_ns: 300_000, ..super::NetworkFaults::default() };
        let network = super::NetworkOptions { faults, jitter: true, seed: 12, ..super::NetworkOptions::default() };
        super::on_network(
            super::flash(),
            super::Options { jitter: true, seed: 12, ..super::Options::default() },
            network,
        )
    }
    conformance::conformance!(make);
}

mod described {
    fn make() -> Option<conformance::Subject> {
        super::subject(super::flash(), super::Options::default())
    }
    conformance::conformance!(make);
}

mod jittered {
    fn make() -> Option<conformance::Subject> {
        super::subject(super::flash(), super::Options { jitter: true, seed: 11, ..super::Options::default() })
    }
    conformance::conformance!(make);
}
