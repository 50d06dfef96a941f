//! The same seed gives the same run to the last event, and another seed another run.

use base::{Instant, Random};
use driver::{
    Completion, DeviceId, DeviceTraits, Doorbell, Driver, Fault, Frame, Halt, Op, Prices, StationReport, Token,
};
use engine::lock::VictimPolicy;
use engine::replacement::Policy;
use engine::{Database, PartitionSpec, Settings, buffer, checkpoint, log};
use executor::{Executor, Order};
use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use virtual_driver::{Hardware, Media, Options, VirtualDriver};
use workload::debit_credit::{self, Parameters, Scale, Tables};

/// The virtual driver, with its event hash in view.
struct Hashed {
    driver: VirtualDriver,
    view: Rc<View>,
}

/// What is seen of a driver from outside.
#[derive(Default)]
struct View {
    hash: Cell<u64>,
    /// Whether every burst of CPU time is an operation that a task waits for.
    waits: bool,
    /// Bursts that were not.
    alone: Cell<u64>,
}

impl Driver for Hashed {
    fn now(&self) -> Instant {
        self.driver.now()
    }

    fn submit(&mut self, token: Token, op: Op) {
        self.driver.submit(token, op);
    }

    fn compute_alone(&mut self, instructions: u64, until: Option<Instant>) -> bool {
        let alone = !self.view.waits && self.driver.compute_alone(instructions, until);
        self.view.alone.set(self.view.alone.get() + u64::from(alone));
        alone
    }

    fn cancel(&mut self, token: Token) {
        self.driver.cancel(token);
    }

    fn park(&mut self, until: Option<Instant>, done: &mut Vec<Completion>) -> Result<(), Halt> {
        let parked = self.driver.park(until, done);
        self.view.hash.set(self.driver.event_hash());
        parked
    }

    fn entropy(&mut self) -> u128 {
        self.driver.entropy()
    }

    fn frames(&mut self, count: usize, size: usize) -> Result<Vec<Frame>, Fault> {
        self.driver.frames(count, size)
    }

    fn device(&self, name: &str) -> Option<DeviceId> {
        self.driver.device(name)
    }

    fn traits(&self, device: DeviceId) -> DeviceTraits {
        self.driver.traits(device)
    }

    fn prices(&self) -> Option<Prices> {
        self.driver.prices()
    }

    fn doorbell(&self) -> Arc<dyn Doorbell> {
        self.driver.doorbell()
    }

    fn description(&self) -> String {
        self.driver.description()
    }

    fn stations(&self) -> Vec<StationReport> {
        self.driver.stations()
    }

    fn restart_statistics(&mut self) {
        self.driver.restart_statistics();
    }
}

/// A small buffer, a cleaner, a group commit by delay and checkpoints in the background: everything that an undetermined order
/// could affect.
fn settings(device: &str) -> Settings {
    Settings {
        buffer: buffer::Settings {
            frames: 64,
            page_size: 4096,
            replacement: Policy::default(),
            cleaner: true,
            batch: 64,
            growth_step: 1 << 20,
        },
        log: log::Settings {
            capacity: 2 << 20,
            group_commit: log::GroupCommit::Size { transactions: 4, delay_ns_max: 50_000 },
            ..log::Settings::default()
        },
        home_device: device.into(),
        log_device: device.into(),
        hierarchy: engine::second_level::Settings::default(),
        force: false,
        hold_locks: false,
        victim: VictimPolicy::Youngest,
        checkpoint: checkpoint::Policy { log_bytes: Some(256 << 10), interval_ns: Some(5_000_000) },
        multiprogramming_level: 6,
        ..Settings::default()
    }
}

/// What there is to compare of a run: the hash of its events, when it ended, how many deadlocks it had, all balances, the
/// load of its stations.
#[derive(Debug, PartialEq)]
struct Trace {
    hash: u64,
    end: Instant,
    deadlocks: u64,
    balance: i64,
    stations: Vec<StationReport>,
}

/// Eight clients, each with transactions that touch two branches in random order, so that they wait, clash and are tried
/// again.
fn trace(hardware: &str, seed: u64, order: Order, jitter: bool) -> Trace {
    trace_in(&Rc::default(), hardware, seed, order, jitter)
}

fn trace_in(view: &Rc<View>, hardware: &str, seed: u64, order: Order, jitter: bool) -> Trace {
    let hardware = Hardware::named(hardware).expect("it is described");
    let device = hardware.devices.keys().next().expect("it has a device").clone();
    let driver = VirtualDriver::new(hardware, Options { seed, jitter, ..Options::default() }, Media::new());
    let executor = Executor::new(Box::new(Hashed { driver, view: Rc::clone(view) }), order);
    let work = async {
        let scale = Scale { accounts_per_branch: 500, ..Scale::tpc_b(4) };
        let database = Database::create(&executor, settings(&device)).await?;
        let spec = |name: &str| {
            let base = if name == debit_credit::HISTORY { PartitionSpec::append } else { PartitionSpec::b_tree };
            Ok(PartitionSpec { device: device.clone(), ..base(name) })
        };
        debit_credit::load(&database, &scale, spec, |_| ()).await?;
        let tables = Tables::of(database.catalog(), &scale)?;
        let clients: Vec<_> =
            (0..8).map(|client| executor.spawn(clients_work(&database, &tables, seed, client))).collect();
        for client in clients {
            client.join().await?;
        }
        let totals = debit_credit::totals(&database, &tables).await?;
        assert!(totals.agree(), "{totals:?}");
        Ok((database.statistics().deadlocks.get(), totals.accounts))
    };
    let result: engine::Result<(u64, i64)> = executor.run(work).expect("the machine does not stop");
    let (deadlocks, balance) = result.expect("works");
    let (end, stations) = (executor.now(), executor.stations());
    executor.stop();
    Trace { hash: view.hash.get(), end, deadlocks, balance, stations }
}

fn clients_work(
    database: &Database,
    tables: &Tables,
    seed: u64,
    client: u32,
) -> impl Future<Output = engine::Result<()>> + use<> {
    let (database, tables) = (database.clone(), tables.clone());
    async move {
        let mut random = Random::stream(seed, &format!("client {client}"));
        for _ in 0..30 {
            let both = [(); 2].map(|()| Parameters::draw(tables.scale(), &mut random));
            database
                .transaction(async |tx| {
                    tables.run(tx, &both[0]).await?;
                    tables.run(tx, &both[1]).await.map(|_| ())
                })
                .await?;
        }
        Ok(())
    }
}

#[test]
fn the_same_seed_repeats_a_run_to_the_last_event() {
    for hardware in ["ideal", "nvme-2026"] {
        for (jitter, seeded) in [(false, false), (true, false), (true, true)] {
            let run = |seed| {
                let order = if seeded { Order::Seeded(seed) } else { Order::FirstInFirstOut };
                trace(hardware, seed, order, jitter)
            };
            let (first, second, other) = (run(11), run(11), run(12));
            assert_eq!(first, second, "{hardware}, jitter {jitter}, seeded order {seeded}");
            assert_ne!(first.hash, other.hash, "{hardware}, jitter {jitter}, seeded order {seeded}");
            assert!(first.deadlocks > 0, "the clients clash: {first:?}");
        }
    }
}

#[test]
fn the_order_of_tasks_alone_makes_another_run() {
    let [fifo, one, two] =
        [Order::FirstInFirstOut, Order::Seeded(1), Order::Seeded(2)].map(|order| trace("ideal", 11, order, false).hash);
    assert!(fifo != one && one != two && fifo != two);
}

#[test]
fn a_burst_that_nothing_disturbs_passes_as_one_that_is_waited_for() {
    for seed in 11..15 {
        let run = |waits| {
            let view = Rc::new(View { waits, ..View::default() });
            let trace = trace_in(&view, "rahm-1991", seed, Order::FirstInFirstOut, false);
            (Trace { hash: 0, ..trace }, view.alone.get())
        };
        let ((waiting, none), (passing, alone)) = (run(true), run(false));
        assert_eq!(waiting, passing, "seed {seed}");
        assert!(none == 0 && alone > 500, "{alone} bursts passed alone");
    }
}
