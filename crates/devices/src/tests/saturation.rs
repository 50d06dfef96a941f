//! Every description, saturated, recovers its stated rates, bandwidth and queueing.

use super::{embedded, next_completion, page};
use crate::{Assignment, Class, Direction, Hardware, Machine, Servers, StationReport, Transfer};
use base::Random;

mod models;
mod networks;

/// What a device does with a constant number of requests under way.
struct Load {
    per_second: f64,
    bytes_per_second: f64,
    response_ns: f64,
    stations: Vec<StationReport>,
}

fn load(hardware: &Hardware, name: &str, depth: u64, mut next: impl FnMut(u64) -> Transfer) -> Load {
    const REQUESTS: u64 = 30_000;
    let mut machine = Machine::new(hardware, 11, false);
    let device = hardware.devices.keys().position(|known| known == name).expect("described") as u16;
    let length = u64::from(next(0).length);
    for number in 0..depth {
        machine.transfer(device, next(number));
    }
    for number in depth..REQUESTS + depth {
        next_completion(&mut machine);
        machine.transfer(device, next(number));
    }
    let stations = machine.stations();
    for station in stations.iter().filter(|station| station.completed > 0) {
        assert!(station.little_error < 1e-9, "{station:?}");
    }
    let per_second = REQUESTS as f64 / machine.now().seconds();
    Load {
        per_second,
        bytes_per_second: per_second * length as f64,
        response_ns: depth as f64 / per_second * 1e9,
        stations,
    }
}

/// Pages far from each other.
fn scattered(direction: Direction) -> impl FnMut(u64) -> Transfer {
    let mut random = Random::stream(13, "pages");
    move |_| page(direction, random.below(1 << 30))
}

fn close(measured: f64, stated: f64, tolerance: f64) {
    assert!((measured / stated - 1.0).abs() < tolerance, "measured {measured}, stated {stated}");
}

const WRITE: Direction = Direction::Write { durable: false };
const DURABLE: Direction = Direction::Write { durable: true };

#[test]
fn rahm_1991_devices() {
    let hardware = embedded("rahm-1991");
    for (name, ns) in [("disk", 16.4e6), ("log-disk", 6.4e6), ("ssd", 1.4e6), ("nvem", 50e3)] {
        for direction in [Direction::Read, WRITE, DURABLE] {
            close(load(&hardware, name, 1, scattered(direction)).response_ns, ns, 0.02);
        }
    }
    close(load(&hardware, "disk", 64, scattered(WRITE)).response_ns, 16.4e6, 0.02);
    close(load(&hardware, "ssd", 64, scattered(WRITE)).response_ns, 1.4e6, 0.02);
    let log = load(&hardware, "log-disk", 64, scattered(DURABLE));
    close(log.per_second, 200.0, 0.02);
    let arm = log.stations.iter().find(|station| station.name == "log-disk.medium").expect("an arm");
    assert!(arm.utilization > 0.99 && arm.population_mean > 60.0, "{arm:?}");
    close(load(&hardware, "nvem", 8, scattered(Direction::Read)).per_second, 20_000.0, 0.001);
}

#[test]
fn nvme_2026() {
    let hardware = embedded("nvme-2026");
    close(load(&hardware, "nvme", 1, scattered(Direction::Read)).response_ns, 58e3, 0.01);
    close(load(&hardware, "nvme", 1, scattered(WRITE)).response_ns, 53e3, 0.01);
    close(load(&hardware, "nvme", 1, scattered(DURABLE)).response_ns, 99e3, 0.01);
    close(load(&hardware, "nvme", 128, scattered(Direction::Read)).per_second, 80_000.0, 0.01);
    close(load(&hardware, "nvme", 128, scattered(Direction::Read)).response_ns, 1.6e6, 0.01);
    close(load(&hardware, "nvme", 128, scattered(WRITE)).per_second, 113_000.0, 0.01);
    let long =
        |direction| move |number| Transfer { direction, file: 0, offset: number << 20, length: 1 << 20, fresh: false };
    close(load(&hardware, "nvme", 4, long(Direction::Read)).bytes_per_second, 1.3e9, 0.01);
    close(load(&hardware, "nvme", 4, long(WRITE)).bytes_per_second, 2.2e9, 0.01);
    let sync = |_| Transfer { length: 0, ..page(Direction::Sync, 0) };
    close(load(&hardware, "nvme", 1, sync).response_ns, 73e3, 0.01);
}

#[test]
fn hdd_7200() {
    let hardware = embedded("hdd-7200");
    close(load(&hardware, "hdd", 1, scattered(Direction::Read)).response_ns, 12.8e6, 0.02);
    close(load(&hardware, "hdd", 16, scattered(WRITE)).per_second, 1e9 / 12.72e6, 0.02);
    close(load(&hardware, "hdd", 1, |number| page(DURABLE, number)).response_ns, 4.29e6, 0.02);
    let scan =
        |number| Transfer { direction: Direction::Read, file: 0, offset: number << 20, length: 1 << 20, fresh: false };
    close(load(&hardware, "hdd", 4, scan).bytes_per_second, 200e6, 0.02);
    // Two interleaved scans make the arm seek between them.
    let two = |number: u64| Transfer { file: number as u32 % 2, ..page(Direction::Read, number / 2) };
    close(load(&hardware, "hdd", 2, two).per_second, 1e9 / 12.72e6, 0.02);
}

#[test]
fn vax_11_785() {
    let hardware = embedded("vax-11-785");
    for disk in ["log-disk", "backup-disk"] {
        // A page of 4 KiB takes 1.86 ms of transfer.
        close(load(&hardware, disk, 1, scattered(Direction::Read)).response_ns, 38.2e6, 0.02);
        close(load(&hardware, disk, 16, scattered(WRITE)).per_second, 1e9 / 38.2e6, 0.02);
        close(load(&hardware, disk, 1, |number| page(DURABLE, number)).response_ns, 10.19e6, 0.02);
    }
}

#[test]
fn lee_2008() {
    let hardware = embedded("lee-2008");
    let long =
        |direction| move |number| Transfer { direction, file: 0, offset: number << 20, length: 1 << 20, fresh: false };
    let sectors =
        |direction| move |number: u64| Transfer { direction, file: 0, offset: number << 9, length: 512, fresh: false };
    // Table 1, with the transfer of a page of 4 KiB beside the latency.
    close(load(&hardware, "disk", 1, scattered(Direction::Read)).response_ns, 8.37e6, 0.02);
    close(load(&hardware, "disk", 16, scattered(WRITE)).per_second, 1e9 / 8.37e6, 0.02);
    close(load(&hardware, "disk", 1, sectors(WRITE)).response_ns, 4.17e6, 0.02);
    close(load(&hardware, "disk", 4, long(Direction::Read)).bytes_per_second, 110e6, 0.02);
    close(load(&hardware, "flash", 1, scattered(Direction::Read)).response_ns, 0.273e6, 0.02);
    close(load(&hardware, "flash", 16, scattered(Direction::Read)).per_second, 1e9 / 0.273e6, 0.02);
    close(load(&hardware, "flash", 1, sectors(WRITE)).response_ns, 0.416e6, 0.02);
    close(load(&hardware, "flash", 4, long(Direction::Read)).bytes_per_second, 56e6, 0.02);
    close(load(&hardware, "flash", 4, long(WRITE)).bytes_per_second, 32e6, 0.02);
    // What a forced write takes: calibrated on table 2, where four threads make two groups that are written in turn.
    close(load(&hardware, "disk", 1, sectors(DURABLE)).response_ns, 11.31e6, 0.02);
    close(load(&hardware, "flash", 1, sectors(DURABLE)).response_ns, 0.856e6, 0.02);
    let queue = load(&hardware, "flash", 16, sectors(DURABLE));
    let medium = queue.stations.iter().find(|station| station.name == "flash.medium").expect("described");
    assert!(medium.utilization > 0.99 && medium.population_mean > 15.0, "{medium:?}");
}

#[test]
fn do_2011() {
    let hardware = embedded("do-2011");
    let block = |direction| {
        move |number: u64| Transfer { direction, file: 0, offset: number << 13, length: 8_192, fresh: false }
    };
    let random = |direction| {
        let mut random = Random::stream(13, "blocks");
        move |_| block(direction)(random.below(1 << 30))
    };
    // Table 1, in operations of 8 KB per second. Of eight disks some are idle for a moment unless much is under way.
    for (device, direction, per_second, tolerance) in [
        ("disk", Direction::Read, 1_015.0, 0.03),
        ("disk", WRITE, 895.0, 0.03),
        ("ssd", Direction::Read, 12_182.0, 0.005),
        ("ssd", WRITE, 12_374.0, 0.005),
    ] {
        close(load(&hardware, device, 400, random(direction)).per_second, per_second, tolerance);
    }
    for (device, direction, per_second) in [
        ("disk", Direction::Read, 26_370.0),
        ("disk", WRITE, 12_246.0),
        ("ssd", Direction::Read, 15_980.0),
        ("ssd", WRITE, 14_965.0),
    ] {
        close(load(&hardware, device, 128, block(direction)).per_second, per_second, 0.01);
    }
    // Eight of these disks do 946 writes in sequence, one at a time on each.
    close(8.0 * load(&hardware, "log-disk", 1, block(DURABLE)).per_second, 946.0, 0.01);
    let queue = load(&hardware, "disk", 400, random(Direction::Read));
    let arms = queue.stations.iter().find(|station| station.name == "disk.medium").expect("described");
    assert!(arms.utilization > 0.95 && (arms.population_mean - 400.0).abs() < 4.0, "{arms:?}");
}

#[test]
fn franklin_1992_disks() {
    let hardware = embedded("franklin-1992-server");
    close(load(&hardware, "disk", 1, scattered(Direction::Read)).response_ns, 20e6, 0.01);
    let queue = load(&hardware, "disk", 200, scattered(WRITE));
    close(queue.per_second, 100.0, 0.03);
    let arms = queue.stations.iter().find(|station| station.name == "disk.medium").expect("described");
    assert!(arms.utilization > 0.97 && (arms.population_mean - 200.0).abs() < 2.0, "{arms:?}");
    assert!(load(&hardware, "log", 64, scattered(DURABLE)).per_second.is_infinite(), "no time has passed");
}

/// Messages of `bytes` bytes that a machine's CPU does in a second, when it does nothing else.
fn messages_per_second(hardware: &Hardware, bytes: u64) -> f64 {
    const MESSAGES: u64 = 1_000;
    let costs = &hardware.cpu.as_ref().expect("described").instructions;
    let mut machine = Machine::new(hardware, 11, false);
    let instructions = costs.network_message + costs.network_bytes * bytes.div_ceil(256);
    for _ in 0..MESSAGES {
        machine.compute(instructions, Class::System);
    }
    for _ in 0..MESSAGES {
        next_completion(&mut machine);
    }
    MESSAGES as f64 / machine.now().seconds()
}

/// Table 4: 20,000 instructions a message and 10,000 for 4 KiB; 15 and 30 MIPS; 5,000 for an access to a disk.
#[test]
fn franklin_1992_processors() {
    for (name, mips) in [("franklin-1992-client", 15e6), ("franklin-1992-server", 30e6)] {
        let hardware = embedded(name);
        close(messages_per_second(&hardware, 4_096), mips / 30_000.0, 1e-6);
        close(messages_per_second(&hardware, 256), mips / 20_625.0, 1e-6);
        let costs = &hardware.cpu.as_ref().expect("described").instructions;
        assert_eq!((costs.input_output, costs.lock_pair, costs.copy_registration), (5_000, 300, 300));
        assert_eq!(costs.redo, if name.ends_with("server") { 1_000 } else { 0 });

        // Two transactions share the CPU, and a message goes before both.
        let mut machine = Machine::new(&hardware, 11, false);
        let [first, second] = [30_000, 30_000].map(|instructions| machine.compute(instructions, Class::User));
        let message = machine.compute(30_000, Class::System);
        let mut ends = Vec::new();
        for _ in 0..3 {
            let job = next_completion(&mut machine);
            ends.push((job, (machine.now().seconds() * mips / 30_000.0).round() as u32));
        }
        assert_eq!(ends, [(message, 1), (first, 3), (second, 3)]);
    }
}

#[test]
fn ideal_devices_never_queue() {
    let hardware = Hardware::ideal();
    for (name, ns) in [("disk", 10e3), ("flash", 5e3), ("nvem", 1e3)] {
        close(load(&hardware, name, 100, scattered(Direction::Read)).response_ns, ns, 1e-9);
    }
}

fn arms(assignment: Assignment) -> Hardware {
    let mut hardware = embedded("hdd-7200");
    let device = hardware.device_mut("hdd");
    device.controller = None;
    let medium = device.medium.as_mut().expect("described");
    (medium.servers, medium.assignment, medium.stripe) = (Servers::count(8), assignment, 65_536);
    hardware
}

#[test]
fn several_arms_add_up() {
    let one = 1e9 / 12.72e6;
    close(load(&arms(Assignment::Shared), "hdd", 64, scattered(Direction::Read)).per_second, 8.0 * one, 0.02);
    for assignment in [Assignment::Uniform, Assignment::Striped] {
        let spread = load(&arms(assignment), "hdd", 200, scattered(Direction::Read));
        assert!(
            spread.per_second > 7.5 * one && spread.per_second < 8.0 * one,
            "some arms idle: {}",
            spread.per_second
        );
    }
}

#[test]
fn a_scan_over_stripes_is_sequential_on_every_arm() {
    let scan =
        |number| Transfer { direction: Direction::Read, file: 0, offset: number << 16, length: 1 << 16, fresh: false };
    close(load(&arms(Assignment::Striped), "hdd", 32, scan).bytes_per_second, 8.0 * 200e6, 0.02);
}
