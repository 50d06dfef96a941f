//! What a Debit-Credit transaction on memory-resident sets costs, in isolation: as a task per client, and through the
//! transaction server. Storage is simulated and takes no time.
//!
//! ```text
//! cargo run --release -p entresol-workload --example server_cost -- [BRANCHES] [ACCOUNTS PER BRANCH]
//! ```

use driver::Driver;
use engine::catalog::{Locking, Organization};
use engine::server::{self, TransactionServer};
use engine::{Database, PartitionSpec, Procedures, Settings, checkpoint, log};
use entresol_workload::debit_credit::{self, DebitCredit, HISTORY, Scale, Tables};
use entresol_workload::{Length, Load, Measured, Plan, Watch, run};
use executor::{Executor, Order};
use real_driver::{thread_cpu_ns, wall_ns};
use virtual_driver::{Hardware, Media, Options, VirtualDriver};

struct Clock;

impl Watch for Clock {
    fn progress(&mut self, _: u64, _: u64) {}

    fn cpu_ns(&self) -> u64 {
        thread_cpu_ns()
    }

    fn process_cpu_ns(&self) -> u64 {
        thread_cpu_ns()
    }

    fn wall_ns(&self) -> u64 {
        wall_ns()
    }
}

fn main() {
    let arguments: Vec<u64> = std::env::args().skip(1).map(|text| text.parse().expect("a number")).collect();
    let branches = arguments.first().copied().unwrap_or(10);
    let scale = Scale { accounts_per_branch: arguments.get(1).copied().unwrap_or(100_000), ..Scale::tpc_b(branches) };
    let options = Options { discard: vec!["log".into()], ..Options::default() };
    let driver: Box<dyn Driver> = Box::new(VirtualDriver::new(Hardware::ideal(), options, Media::new()));
    let executor = Executor::new(driver, Order::FirstInFirstOut);
    let result = executor.run(compare(&executor, &scale));
    executor.stop();
    result.expect("the machine goes on").expect("the engine succeeds");
}

async fn compare(executor: &Executor, scale: &Scale) -> engine::Result<()> {
    let mut procedures = Procedures::new();
    debit_credit::register(&mut procedures, scale);
    let settings = Settings {
        procedures,
        log: log::Settings { durable: false, ..log::Settings::default() },
        checkpoint: checkpoint::Policy { log_bytes: Some(200 << 20), interval_ns: None },
        ..Settings::default()
    };
    let database = Database::create(executor, settings).await?;
    let spec = |name: &str| {
        let arrivals = name == HISTORY;
        let locking = if arrivals { Locking::None } else { Locking::Record };
        Ok(PartitionSpec::new(name, Organization::set(arrivals), locking))
    };
    debit_credit::load(&database, scale, spec, |_| {}).await?;
    let tables = Tables::of(database.catalog(), scale)?;
    let plan =
        |load| Plan { load, warm_up: Length::Transactions(200_000), measure: Length::Transactions(1_000_000), seed: 1 };
    for _ in 0..3 {
        let load = Load::Closed { clients: 64 };
        let found = run::run(&database, DebitCredit(tables.clone()), &plan(load), &mut Clock, |found| found).await?;
        tell("64 clients", &found);
        let server = TransactionServer::start(&database, server::Settings::default())?;
        for (name, load) in [("64 clients, server", load), ("full queue, server", Load::Full)] {
            let workload = DebitCredit(tables.clone());
            let found = run::run_through(&server, workload, &plan(load), 1, &mut Clock, |found| found).await?;
            tell(name, &found[0]);
        }
        server.close().await;
    }
    Ok(())
}

fn tell(name: &str, found: &Measured) {
    println!("{name:20} {:5.0} ns of CPU per transaction", found.cpu_ns as f64 / found.transactions as f64);
}
