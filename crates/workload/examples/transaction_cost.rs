//! What a Debit-Credit transaction on b-trees costs, in isolation. Storage is simulated and takes no time, so that two runs execute the same
//! instructions.
//!
//! ```text
//! cargo build --release -p entresol-workload --example transaction_cost
//! valgrind --tool=callgrind --toggle-collect='*Shared<W>>::one::*' target/release/examples/transaction_cost [durable]
//! ```
//!
//! What is collected, divided by the transactions that it prints, is the instructions of each.

use driver::Driver;
use engine::catalog::{Locking, Organization};
use engine::{Database, PartitionSpec, Settings, log};
use entresol_workload::debit_credit::{self, DebitCredit, HISTORY, Scale, Tables};
use entresol_workload::{Length, Load, Plan, Watch, run};
use executor::{Executor, Order};
use real_driver::{thread_cpu_ns, wall_ns};
use virtual_driver::{Hardware, Media, Options, VirtualDriver};

const WARM_UP: u64 = 2_000;
const MEASURED: u64 = 10_000;

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
    let durable = std::env::args().nth(1).is_some_and(|argument| argument == "durable");
    let driver: Box<dyn Driver> = Box::new(VirtualDriver::new(Hardware::ideal(), Options::default(), Media::new()));
    let executor = Executor::new(driver, Order::FirstInFirstOut);
    let result = executor.run(measure(&executor, durable));
    executor.stop();
    result.expect("the machine goes on").expect("the engine succeeds");
}

async fn measure(executor: &Executor, durable: bool) -> engine::Result<()> {
    let log = log::Settings { durable, ..log::Settings::default() };
    let database = Database::create(executor, Settings { log, ..Settings::default() }).await?;
    let scale = Scale::tpc_b(1);
    let spec = |name: &str| {
        let organization =
            if name == HISTORY { Organization::Append { blocking_factor: 0 } } else { Organization::BTree };
        Ok(PartitionSpec::new(name, organization, Locking::Record))
    };
    debit_credit::load(&database, &scale, spec, |_| {}).await?;
    let tables = Tables::of(database.catalog(), &scale)?;
    let (warm_up, measure) = (Length::Transactions(WARM_UP), Length::Transactions(MEASURED));
    let plan = Plan { load: Load::Closed { clients: 8 }, warm_up, measure, seed: 1 };
    let found = run::run(&database, DebitCredit(tables), &plan, &mut Clock, |found| found).await?;
    println!(
        "{} transactions, {:.0} ns of CPU each",
        WARM_UP + MEASURED,
        found.cpu_ns as f64 / found.transactions as f64
    );
    Ok(())
}
