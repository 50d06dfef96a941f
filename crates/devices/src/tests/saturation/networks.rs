//! Every described network, saturated, recovers its stated bandwidth, latency and queueing.

use super::{close, embedded};
use crate::{Calendar, Hardware, Law, Medium, Network, PacketId, StationReport, Wires};
use base::Instant;

/// A network with the calendar of its hops.
struct Course {
    wires: Wires,
    calendar: Calendar,
    now: Instant,
}

impl Course {
    fn new(network: &Network, jitter: bool) -> Course {
        Course { wires: Wires::new("lan", network, 11, jitter), calendar: Calendar::new(), now: Instant::START }
    }

    fn send(&mut self, from: u32, to: u32, bytes: u32) -> PacketId {
        let (packet, hop) = self.wires.send(self.now, (from, to), bytes);
        self.calendar.schedule(hop, packet.0);
        packet
    }

    /// Packets hop until one arrives.
    fn arrival(&mut self) -> PacketId {
        loop {
            let (now, packet) = self.calendar.take().expect("a packet is under way");
            self.now = now;
            match self.wires.hop(now, PacketId(packet)) {
                Some(next) => self.calendar.schedule(next, packet),
                None => return PacketId(packet),
            }
        }
    }
}

struct Carried {
    per_second: f64,
    bytes_per_second: f64,
    response_ns: f64,
    stations: Vec<StationReport>,
}

/// A constant number of packets under way between these machines: each that arrives is followed by one more.
fn load(network: &Network, routes: &[(u32, u32)], each: usize, bytes: u32) -> Carried {
    const PACKETS: usize = 20_000;
    let mut course = Course::new(network, false);
    let mut routes_of = vec![0; routes.len() * each];
    for number in 0..routes.len() * each {
        let (from, to) = routes[number % routes.len()];
        let packet = course.send(from, to, bytes);
        routes_of[packet.0 as usize] = number % routes.len();
    }
    for _ in 0..PACKETS {
        let route = routes_of[course.arrival().0 as usize];
        let packet = course.send(routes[route].0, routes[route].1, bytes);
        routes_of[packet.0 as usize] = route;
    }
    let stations = course.wires.stations(course.now);
    assert!(stations.iter().all(|station| station.completed == 0 || station.little_error < 1e-9), "{stations:?}");
    let per_second = PACKETS as f64 / course.now.seconds();
    Carried {
        per_second,
        bytes_per_second: per_second * f64::from(bytes),
        response_ns: (routes.len() * each) as f64 / per_second * 1e9,
        stations,
    }
}

/// Eight and eighty megabits a second, from any machine: one message after the other.
#[test]
fn franklin_1992_networks_are_one_medium_in_order_of_arrival() {
    let hardware = embedded("franklin-1992-server");
    for (name, bytes_per_second) in [("slow", 1e6), ("fast", 1e7)] {
        let network = &hardware.networks[name];
        let pages = load(network, &[(0, 1), (2, 0), (3, 4), (1, 0)], 4, 4_096);
        close(pages.bytes_per_second, bytes_per_second, 1e-6);
        close(pages.response_ns, 16.0 * 4_096.0 / bytes_per_second * 1e9, 1e-6);
        let [medium] = &pages.stations[..] else { panic!("one medium: {:?}", pages.stations) };
        assert!(medium.utilization > 0.999 && medium.population_mean > 15.9, "{medium:?}");
        close(load(network, &[(0, 1)], 1, 256).per_second, bytes_per_second / 256.0, 1e-6);
    }
}

fn switched(latency: &str) -> Network {
    let text = format!("[network.lan]\nbandwidth = \"100 MB/s\"\nlatency = \"{latency}\"");
    Hardware::parse(&text, "lan").expect("valid").networks["lan"].clone()
}

#[test]
fn links_of_a_switch_are_loaded_by_their_own_machines_only() {
    let network = switched("0 us");
    close(load(&network, &[(0, 1), (2, 3)], 8, 10_000).bytes_per_second, 200e6, 0.001);
    // Both leave on their own link and meet on the way to machine 1.
    let meeting = load(&network, &[(0, 1), (2, 1)], 8, 10_000);
    close(meeting.bytes_per_second, 100e6, 0.001);
    let down =
        meeting.stations.iter().find(|station| station.name == "network.lan.1.down").expect("machine 1 receives");
    assert!(down.utilization > 0.999, "{down:?}");
    // Both directions of a link are used at once.
    close(load(&network, &[(0, 1), (1, 0)], 8, 10_000).bytes_per_second, 200e6, 0.001);
}

#[test]
fn latency_delays_and_does_not_occupy() {
    let network = switched("1 ms");
    close(load(&network, &[(0, 1)], 1, 10_000).response_ns, 1.2e6, 1e-6);
    close(load(&network, &[(0, 1)], 100, 10_000).bytes_per_second, 100e6, 0.001);
    let far = Network { latency: Law::Exponential(1_000_000), ..network };
    close(load(&far, &[(0, 1)], 1, 10_000).response_ns, 1.2e6, 0.02);
}

#[test]
fn without_a_bandwidth_nothing_queues_and_with_jitter_order_is_random() {
    let network = Network::no_delay();
    let mut course = Course::new(&network, false);
    let sent: Vec<_> = (0..10).map(|_| course.send(0, 1, 1 << 20)).collect();
    let arrived: Vec<_> = (0..10).map(|_| course.arrival()).collect();
    assert_eq!((arrived, course.now), (sent.clone(), Instant::START));
    assert!(course.wires.stations(course.now).is_empty());
    let mut course = Course::new(&network, true);
    let sent: Vec<_> = (0..10).map(|_| course.send(0, 1, 1 << 20)).collect();
    let mut arrived: Vec<_> = (0..10).map(|_| course.arrival()).collect();
    assert_ne!(arrived, sent);
    arrived.sort_unstable();
    assert_eq!(arrived, sent);
}

#[test]
fn a_restart_forgets_what_was_carried() {
    let mut course = Course::new(&switched("0 us"), false);
    for _ in 0..5 {
        course.send(0, 1, 1_000);
        course.arrival();
    }
    course.wires.restart_statistics(course.now);
    assert!(course.wires.stations(course.now).iter().all(|station| station.completed == 0));
    course.send(1, 0, 1_000);
    course.arrival();
    let carried: u64 = course.wires.stations(course.now).iter().map(|station| station.completed).sum();
    assert_eq!(carried, 2, "up and down");
    assert_eq!(course.wires.network().medium, Medium::Switched);
}
