//! Disks with caches show the times that their parts add up to, and what they do when they are full.

use super::{embedded, next_completion, page};
use crate::{Cache, CacheKind, CacheSize, Direction, Hardware, Law, Machine, Servers, StationReport, Transfer};
use base::Random;

const WRITE: Direction = Direction::Write { durable: true };

/// The paper's log disk, with a fixed time, behind a cache.
fn disk(kind: CacheKind, pages: u64) -> Hardware {
    let mut hardware = embedded("rahm-1991");
    let device = hardware.device_mut("log-disk");
    device.cache = Some(Cache::new(kind, CacheSize::Pages(pages)));
    device.medium.as_mut().expect("described").service = crate::ReadWrite::both(Law::Fixed(5_000_000));
    device.controller.as_mut().expect("described").servers = Servers::Unlimited;
    hardware
}

fn machine(kind: CacheKind, pages: u64) -> (Machine, u16) {
    let hardware = disk(kind, pages);
    let number = hardware.devices.keys().position(|name| name == "log-disk").expect("described");
    (Machine::new(&hardware, 1, false), number as u16)
}

/// How long one transfer takes alone, in microseconds.
fn time_us(machine: &mut Machine, device: u16, transfer: Transfer) -> u64 {
    let began = machine.now();
    let job = machine.transfer(device, transfer);
    while next_completion(machine) != job {}
    machine.now().since_ns(began) / 1_000
}

fn idle(machine: &mut Machine) {
    while machine.next().is_some() {
        assert_eq!(machine.step(), None, "only the cache's own writes are left");
    }
}

fn medium(machine: &Machine) -> StationReport {
    machine.stations().into_iter().find(|station| station.name == "log-disk.medium").expect("a medium")
}

const CACHE_US: u64 = 1_400;
const DISK_US: u64 = 6_400;

#[test]
fn a_volatile_cache_spares_reads_the_disk() {
    let (mut machine, disk) = machine(CacheKind::Volatile, 2);
    let mut time = |direction, number| time_us(&mut machine, disk, page(direction, number));
    assert_eq!(time(Direction::Read, 1), DISK_US);
    assert_eq!(time(Direction::Read, 1), CACHE_US);
    assert_eq!(time(WRITE, 1), DISK_US, "every write goes to the disk");
    assert_eq!(time(WRITE, 2), DISK_US);
    assert_eq!(time(Direction::Read, 2), DISK_US, "a write miss leaves the cache alone");
    assert_eq!(time(WRITE, 1), DISK_US);
    assert_eq!(time(Direction::Read, 3), DISK_US);
    assert_eq!(time(Direction::Read, 1), CACHE_US, "the write made it the most recently used");
    assert_eq!(time(Direction::Read, 2), DISK_US, "so this one was replaced");
}

#[test]
fn a_non_volatile_cache_spares_writes_too_and_writes_to_the_disk_later() {
    let (mut machine, disk) = machine(CacheKind::NonVolatile, 3);
    assert_eq!(time_us(&mut machine, disk, page(WRITE, 1)), CACHE_US);
    assert_eq!(machine.stations().iter().filter(|station| station.name == "log-disk.medium").count(), 1);
    assert_eq!(time_us(&mut machine, disk, page(Direction::Read, 1)), CACHE_US);
    assert_eq!(time_us(&mut machine, disk, page(Direction::Sync, 0)), 0, "nothing is volatile: it does not wait");
    idle(&mut machine);
    let medium = medium(&machine);
    assert_eq!((medium.completed, machine.now().ns()), (1, 6_400_000), "the disk write began at once");
    let counts: Vec<_> = machine.caches().map(|(device, _, files)| (device, files[&0])).collect();
    assert_eq!((counts[0].0, counts[0].1.absorbed, counts[0].1.read_hits), (disk, 1, 1));
}

#[test]
fn a_full_write_buffer_lets_writes_pass() {
    let (mut machine, disk) = machine(CacheKind::WriteBuffer, 4);
    let jobs: Vec<_> = (0..6).map(|number| machine.transfer(disk, page(WRITE, number))).collect();
    let mut ends = Vec::new();
    while ends.len() < 6 {
        let job = next_completion(&mut machine);
        ends.push((jobs.iter().position(|known| *known == job).expect("one of them"), machine.now().ns() / 1_000));
    }
    // Four fit; the disk writes them one after the other, then those that passed.
    assert_eq!(&ends[..4], &[(0, 1_400), (1, 1_400), (2, 1_400), (3, 1_400)]);
    assert_eq!(&ends[4..], &[(4, 26_400), (5, 31_400)]);
    assert_eq!(time_us(&mut machine, disk, page(WRITE, 9)), CACHE_US, "there is room again");
    assert_eq!(
        time_us(&mut machine, disk, page(Direction::Read, 9)),
        10_000,
        "reads wait for the disk, its writes first"
    );
}

/// Poisson writes of new pages at `rate` per second: their mean time in microseconds and the share that was absorbed.
fn log_writes(kind: Option<CacheKind>, rate: f64) -> (f64, f64) {
    let (mut hardware, mut random) = (disk(CacheKind::WriteBuffer, 500), Random::stream(5, "log"));
    hardware.device_mut("log-disk").cache = kind.map(|kind| Cache::new(kind, CacheSize::Pages(500)));
    hardware.device_mut("log-disk").medium.as_mut().expect("described").service =
        crate::ReadWrite::both(Law::Exponential(5_000_000));
    let number = hardware.devices.keys().position(|name| name == "log-disk").expect("described") as u16;
    let mut machine = Machine::new(&hardware, 2, false);
    let mut under_way = std::collections::BTreeMap::new();
    let (mut sum_ns, mut count) = (0, 0u64);
    for write in 0..40_000 {
        let arrival = machine.delay(random.exponential(1e9 / rate) as u64);
        loop {
            let job = next_completion(&mut machine);
            if job == arrival {
                break;
            }
            let began: base::Instant = under_way.remove(&job).expect("submitted below");
            (sum_ns, count) = (sum_ns + machine.now().since_ns(began), count + 1);
        }
        under_way.insert(machine.transfer(number, page(WRITE, write)), machine.now());
    }
    for station in machine.stations() {
        assert!(station.little_error < 1e-9, "{station:?}");
    }
    let absorbed = machine.caches().map(|(_, _, files)| files[&0].absorbed as f64 / files[&0].writes as f64).next();
    (sum_ns as f64 / count as f64 / 1e3, absorbed.unwrap_or(0.0))
}

#[test]
fn a_write_buffer_hides_a_busy_log_disk_until_it_is_saturated() {
    // Claims R-4.1a and R-4.1b: without a cache 5 ms / (1 - load) at the disk; with one almost nothing up to 190 per second.
    let (plain, _) = log_writes(None, 150.0);
    assert!((plain / 21_400.0 - 1.0).abs() < 0.1, "{plain}");
    for kind in [CacheKind::WriteBuffer, CacheKind::NonVolatile] {
        for rate in [50.0, 150.0, 190.0] {
            let (time, absorbed) = log_writes(Some(kind), rate);
            assert!(absorbed > 0.999 && (time - 1_400.0).abs() < 30.0, "{kind:?} at {rate}: {time} us, {absorbed}");
        }
        let (time, absorbed) = log_writes(Some(kind), 300.0);
        assert!(time > 100_000.0 && absorbed < 0.8, "{kind:?} beyond the disk's 200 per second: {time} us, {absorbed}");
    }
}
