//! The models against queueing theory (Kleinrock, Queueing Systems, volumes 1 and 2).

use super::{embedded, next_completion, page};
use crate::theory::mmc_response;
use crate::{Class, Device, Direction, Discipline, Hardware, Law, Machine, ReadWrite, Servers, Stage, StationReport};
use base::Random;

const CUSTOMERS: u64 = 300_000;
/// All mean service times here, in nanoseconds; at 50 MIPS that many instructions take it.
const SERVICE_NS: f64 = 1e6;
const INSTRUCTIONS: f64 = 50_000.0;

/// Poisson arrivals that load `servers` to `load`, each submitted by `arrive`.
fn open(machine: &mut Machine, servers: f64, load: f64, mut arrive: impl FnMut(&mut Machine, &mut Random)) {
    let mut random = Random::stream(3, "arrivals");
    for customer in 0..CUSTOMERS {
        let arrival = machine.delay(random.exponential(SERVICE_NS / servers / load) as u64);
        while next_completion(machine) != arrival {}
        arrive(machine, &mut random);
        if customer == CUSTOMERS / 20 {
            machine.restart_statistics();
        }
    }
}

fn check(station: &StationReport, utilization: f64, response_ns: f64) {
    let close = |measured: f64, expected: f64| (measured / expected - 1.0).abs() < 0.03;
    assert!(close(station.response_ns_mean, response_ns), "response {response_ns} expected: {station:?}");
    assert!(close(station.utilization, utilization), "utilization {utilization} expected: {station:?}");
    assert!(station.little_error < 1e-9, "{station:?}");
}

fn cpus(count: u32, discipline: Discipline) -> Hardware {
    let mut hardware = embedded("rahm-1991");
    let cpu = hardware.cpu.as_mut().expect("described");
    (cpu.count, cpu.discipline) = (count, discipline);
    hardware
}

fn cpu_response(hardware: &Hardware, load: f64, mut instructions: impl FnMut(&mut Random) -> f64) -> StationReport {
    let mut machine = Machine::new(hardware, 5, false);
    let servers = f64::from(hardware.cpu.as_ref().expect("described").count);
    open(&mut machine, servers, load, |machine, random| {
        machine.compute(instructions(random) as u64, Class::User);
    });
    machine.stations().swap_remove(0)
}

fn exponential(random: &mut Random) -> f64 {
    random.exponential(INSTRUCTIONS)
}

#[test]
fn cpus_are_m_m_c() {
    check(&cpu_response(&cpus(1, Discipline::Fifo), 0.7, exponential), 0.7, SERVICE_NS / 0.3);
    check(&cpu_response(&cpus(4, Discipline::Fifo), 0.8, exponential), 0.8, SERVICE_NS * mmc_response(4, 0.8));
}

#[test]
fn a_fixed_demand_gives_m_d_1() {
    let station = cpu_response(&cpus(1, Discipline::Fifo), 0.8, |_| INSTRUCTIONS);
    check(&station, 0.8, SERVICE_NS * (1.0 + 0.8 / (2.0 * 0.2)));
}

/// A device with only a medium of this law.
fn one_stage(servers: u32, law: Law) -> Machine {
    let stage = Stage {
        servers: Servers::count(servers),
        discipline: Default::default(),
        concurrency: None,
        assignment: Default::default(),
        stripe: 4096,
        service: ReadWrite::both(law),
        sequential: None,
        bandwidth: None,
    };
    let mut hardware = embedded("ideal");
    hardware.devices.clear();
    hardware.devices.insert("d".to_owned(), Device { medium: Some(stage), ..Device::no_delay() });
    Machine::new(&hardware, 7, false)
}

#[test]
fn device_stages_are_m_m_c_and_m_d_1() {
    let cases = [
        (1, Law::Exponential(1_000_000), 1.0 / 0.3),
        (3, Law::Exponential(1_000_000), mmc_response(3, 0.7)),
        (1, Law::Fixed(1_000_000), 1.0 + 0.7 / 0.6),
    ];
    for (servers, law, response) in cases {
        let mut machine = one_stage(servers, law);
        open(&mut machine, f64::from(servers), 0.7, |machine, _| {
            machine.transfer(0, page(Direction::Read, 0));
        });
        check(&machine.stations()[0], 0.7, SERVICE_NS * response);
    }
}

#[test]
fn processor_sharing_depends_on_the_mean_only() {
    let hyperexponential = |random: &mut Random| {
        let mean = if random.chance(0.9) { 0.5 } else { 5.5 };
        random.exponential(INSTRUCTIONS * mean)
    };
    let one = cpus(1, Discipline::ProcessorSharing);
    check(&cpu_response(&one, 0.6, exponential), 0.6, SERVICE_NS / 0.4);
    check(&cpu_response(&one, 0.6, |_| INSTRUCTIONS), 0.6, SERVICE_NS / 0.4);
    check(&cpu_response(&one, 0.6, hyperexponential), 0.6, SERVICE_NS / 0.4);
    // With several servers and exponential demands, sharing and queueing have the same mean.
    check(
        &cpu_response(&cpus(4, Discipline::ProcessorSharing), 0.8, exponential),
        0.8,
        SERVICE_NS * mmc_response(4, 0.8),
    );
}

/// Mean responses of system and user work on one CPU under a load of 0.75, a third of it system work.
fn classes(discipline: Discipline) -> (f64, f64) {
    let mut machine = Machine::new(&cpus(1, discipline), 5, false);
    let mut random = Random::stream(4, "classes");
    let mut under_way = std::collections::BTreeMap::new();
    let (mut sums, mut counts) = ([0.0; 2], [0.0; 2]);
    for _ in 0..CUSTOMERS {
        let arrival = machine.delay(random.exponential(SERVICE_NS / 0.75) as u64);
        loop {
            let done = next_completion(&mut machine);
            if done == arrival {
                break;
            }
            let (class, since): (Class, base::Instant) = under_way.remove(&done).expect("submitted below");
            sums[class as usize] += machine.now().since_ns(since) as f64;
            counts[class as usize] += 1.0;
        }
        let class = if random.chance(1.0 / 3.0) { Class::System } else { Class::User };
        let job = machine.compute(exponential(&mut random) as u64, class);
        under_way.insert(job, (class, machine.now()));
    }
    (sums[Class::System as usize] / counts[Class::System as usize], sums[0] / counts[0])
}

#[test]
fn system_work_preempts_and_user_work_resumes() {
    for discipline in [Discipline::Fifo, Discipline::ProcessorSharing] {
        let (system, user) = classes(discipline);
        let (system_expected, user_expected) = (SERVICE_NS / 0.75, SERVICE_NS / (0.75 * 0.25));
        assert!((system / system_expected - 1.0).abs() < 0.03, "system work sees only itself: {system}");
        assert!((user / user_expected - 1.0).abs() < 0.04, "preemptive resume: {user} against {user_expected}");
    }
}

#[test]
fn a_synchronous_access_holds_its_cpu() {
    for discipline in [Discipline::Fifo, Discipline::ProcessorSharing] {
        let mut machine = Machine::new(&cpus(1, discipline), 5, false);
        let nvem = embedded("rahm-1991").devices.keys().position(|name| name == "nvem").expect("described") as u16;
        let access = machine.transfer_synchronously(500, nvem, page(Direction::Read, 0));
        let burst = machine.compute(500, Class::User);
        let system = machine.compute(500, Class::System);
        // Sharing halves the speed of the first burst; system work preempts only instructions, not the device.
        let order: Vec<_> = (0..3).map(|_| (next_completion(&mut machine), machine.now().ns())).collect();
        assert_eq!(order.iter().map(|(_, at)| *at).max(), Some(80_000), "10 us each and 50 us: {order:?}");
        assert_eq!(order[0], (system, 10_000));
        assert!(order.iter().any(|(job, _)| *job == access) && order.iter().any(|(job, _)| *job == burst));
        let cpu = &machine.stations()[0];
        assert!((cpu.utilization - 1.0).abs() < 1e-9 && cpu.completed == 3, "{cpu:?}");
    }
}
