//! The engine on described hardware against queueing theory: with nothing but one station in its way, its response times
//! are that station's (Kleinrock, Queueing Systems, volume 1).

use base::{PartitionId, Random};
use devices::theory::mmc_response;
use engine::catalog::{Locking, Organization};
use engine::lock::VictimPolicy;
use engine::replacement::Policy;
use engine::{Database, PartitionSpec, Result, Settings, Transaction, buffer, checkpoint, log};
use executor::{Executor, Order};
use virtual_driver::{Hardware, Media, Options, VirtualDriver};
use workload::run::{Length, Load, Measured, Plan, Watch, Workload, run};

const MEAN_SERVICE_S: f64 = 0.005;
const OBJECTS: u64 = 20_000;

/// Reads or changes one object, always in memory.
struct OneObject {
    partition: PartitionId,
    write: bool,
}

impl Workload for OneObject {
    type Input = u64;

    fn draw(&self, random: &mut Random) -> u64 {
        random.below(OBJECTS)
    }

    async fn run(&self, tx: &mut Transaction, number: &u64) -> Result<()> {
        if self.write {
            return tx.modify_object(self.partition, *number, |object| object[0] ^= 1).await;
        }
        tx.read_object(self.partition, *number, |_| ()).await
    }
}

struct Unwatched;

impl Watch for Unwatched {
    fn progress(&mut self, _transactions: u64, _elapsed_ns: u64) {}

    fn cpu_ns(&self) -> u64 {
        0
    }

    fn process_cpu_ns(&self) -> u64 {
        0
    }

    fn wall_ns(&self) -> u64 {
        0
    }
}

fn settings() -> Settings {
    Settings {
        buffer: buffer::Settings {
            frames: 1_024,
            page_size: 256,
            replacement: Policy::default(),
            cleaner: false,
            batch: 64,
            growth_step: 1 << 20,
        },
        log: log::Settings { capacity: 1 << 40, group_commit: log::GroupCommit::None, ..log::Settings::default() },
        home_device: "home".into(),
        log_device: "log".into(),
        hierarchy: engine::second_level::Settings::default(),
        force: false,
        hold_locks: false,
        victim: VictimPolicy::Requester,
        checkpoint: checkpoint::Policy { log_bytes: None, interval_ns: None },
        multiprogramming_level: 1_024,
        ..Settings::default()
    }
}

/// A machine with CPUs of which one transaction takes 5 ms (exponential) if it has `cpus`, and none that costs time else; a
/// home device that takes no time and a log disk of this description.
fn hardware(cpus: u32, log_medium: &str) -> Hardware {
    let cpu = "mips = 50\n[cpu.instructions]\nbegin_transaction = 250_000\nobject_reference = 0\nend_transaction = 0\n\
               input_output = 0\nnvem_access = 0\nexponential = true\n";
    let cpu = if cpus > 0 { format!("[cpu]\ncount = {cpus}\n{cpu}") } else { String::new() };
    let device = "alignment = \"64 B\"\natomic_write = \"any\"";
    let text = format!("{cpu}[device.home]\n{device}\n[device.log]\n{device}\n{log_medium}\n");
    Hardware::parse(&text, "one station").expect("valid")
}

fn measure(hardware: Hardware, write: bool, rate_per_s: f64, transactions: u64) -> Measured {
    let options = Options { seed: 3, discard: vec!["log".into()], ..Options::default() };
    let executor = Executor::new(Box::new(VirtualDriver::new(hardware, options, Media::new())), Order::FirstInFirstOut);
    let work = async {
        let database = Database::create(&executor, settings()).await?;
        let partition = database
            .create_partition(PartitionSpec {
                device: "home".into(),
                ..PartitionSpec::new(
                    "objects",
                    Organization::Direct { objects: OBJECTS, blocking_factor: 20, record_size: 8 },
                    Locking::None,
                )
            })
            .await?;
        let every_page = (0..OBJECTS).step_by(20);
        for number in every_page {
            database.transaction(async |tx| tx.read_object(partition, number, |_| ()).await).await?;
        }
        let plan = Plan {
            load: Load::Open { rate_per_s },
            warm_up: Length::Transactions(transactions / 20),
            measure: Length::Transactions(transactions),
            seed: 5,
        };
        run(&database, OneObject { partition, write }, &plan, &mut Unwatched, |measured| measured).await
    };
    executor.run(work).expect("the machine runs").expect("the run succeeds")
}

/// The mean response in units of the mean service time.
fn response(measured: &Measured) -> f64 {
    assert!(measured.saturated.is_none(), "{:?}", measured.saturated);
    for station in &measured.stations {
        assert!(station.little_error < 1e-9, "{station:?}");
    }
    measured.response.mean_ns() / 1e9 / MEAN_SERVICE_S
}

fn close(measured: f64, expected: f64) {
    assert!((measured / expected - 1.0).abs() < 0.03, "{measured} service times, theory says {expected}");
}

#[test]
fn one_cpu_is_m_m_1_and_four_are_m_m_4() {
    close(response(&measure(hardware(1, ""), false, 0.6 / MEAN_SERVICE_S, 150_000)), 1.0 / 0.4);
    close(response(&measure(hardware(4, ""), false, 4.0 * 0.7 / MEAN_SERVICE_S, 200_000)), mmc_response(4, 0.7));
}

#[test]
fn a_log_disk_is_m_d_1_or_m_m_1_by_its_law() {
    let rate = 0.6 / MEAN_SERVICE_S;
    let fixed = hardware(0, "medium = { servers = 1, service = \"5 ms\" }");
    close(response(&measure(fixed, true, rate, 100_000)), 1.0 + 0.6 / (2.0 * 0.4));
    let exponential = hardware(0, "medium = { servers = 1, service = \"exponential 5 ms\" }");
    close(response(&measure(exponential, true, rate, 150_000)), 1.0 / 0.4);
}

#[test]
fn a_run_beyond_saturation_ends_and_names_the_station() {
    let log = "medium = { servers = 1, service = \"exponential 5 ms\" }";
    // Ten times what the log disk can do: the unfinished would be millions.
    let measured = measure(hardware(0, log), true, 2_000.0, 2_000_000);
    let saturation = measured.saturated.as_ref().expect("saturated");
    assert_eq!(saturation.station, "log.medium", "{saturation:?}");
    assert!(saturation.utilization > 0.99 && saturation.unfinished > 5_000, "{saturation:?}");
    assert!(measured.transactions < 20_000, "it ended early: {}", measured.transactions);
    let throughput = measured.transactions as f64 / (measured.elapsed_ns as f64 / 1e9);
    assert!((throughput / 200.0 - 1.0).abs() < 0.1, "what the disk can do: {throughput} per second");
    // A little beyond: the growth shows before the bound is reached.
    let measured = measure(hardware(1, ""), false, 260.0, 10_000);
    let saturation = measured.saturated.as_ref().expect("saturated");
    assert_eq!(saturation.station, "cpu", "{saturation:?}");
    let words = saturation.to_string();
    assert!(words.starts_with("saturated at station 'cpu', busy for 100.0 %"), "{words}");
}
