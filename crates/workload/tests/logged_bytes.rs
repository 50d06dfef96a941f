//! How much the log takes of Debit-Credit over memory-resident sets (Garcia-Molina and Salem, System M, 1988, section 4: the
//! volume falls from VALUE by AOPER to TOPER).

use engine::catalog::{Locking, Organization};
use engine::checkpoint::{Strategy, SweepSettings};
use engine::set::Logging;
use engine::{Database, Internals, PartitionSpec, Procedures, Settings};
use entresol_workload::debit_credit::{self, DebitCredit, HISTORY, Scale, Tables};
use entresol_workload::run::Measured;
use entresol_workload::{Length, Load, Plan, Unwatched, run};
use executor::{Executor, Order};
use virtual_driver::{Hardware, Media, Options, VirtualDriver};

const TRANSACTIONS: u64 = 500;

fn scale() -> Scale {
    Scale { accounts_per_branch: 1_000, ..Scale::tpc_b(2) }
}

async fn logged(executor: &Executor, logging: Logging, strategy: Strategy) -> engine::Result<f64> {
    let mut procedures = Procedures::new();
    debit_credit::register(&mut procedures, &scale());
    let sweep = SweepSettings { strategy, ..SweepSettings::default() };
    let database = Database::create(executor, Settings { logging, sweep, procedures, ..Settings::default() }).await?;
    let spec = |name: &str| {
        let (organization, arrivals) = (Organization::set(name == HISTORY), name == HISTORY);
        let locking = if arrivals { Locking::None } else { Locking::Record };
        Ok(PartitionSpec::new(name, organization, locking))
    };
    debit_credit::load(&database, &scale(), spec, |_| {}).await?;
    let plan = Plan {
        load: Load::Closed { clients: 4 },
        warm_up: Length::Transactions(10),
        measure: Length::Transactions(TRANSACTIONS),
        seed: 1,
    };
    let workload = DebitCredit(Tables::of(database.catalog(), &scale())?);
    let logged = |measured: Measured| database.log().statistics().record_bytes as f64 / measured.transactions as f64;
    run::run(&database, workload, &plan, &mut Unwatched, logged).await
}

/// Bytes of log records for each transaction.
fn bytes(logging: Logging, strategy: Strategy) -> f64 {
    let driver = VirtualDriver::new(Hardware::ideal(), Options::default(), Media::new());
    let executor = Executor::new(Box::new(driver), Order::FirstInFirstOut);
    let bytes = executor.run(logged(&executor, logging, strategy));
    executor.stop();
    bytes.expect("the machine goes on").expect("runs")
}

#[test]
fn values_take_more_of_the_log_than_actions_and_these_more_than_procedures() {
    for strategy in [Strategy::TransactionBlackWhite, Strategy::TransactionCopyOnUpdate, Strategy::StableVersions] {
        let [values, actions, procedures] = Logging::ALL.map(|logging| bytes(logging, strategy));
        assert!(values > actions && actions > procedures, "{strategy:?}: {values}, {actions}, {procedures} bytes");
        assert!(procedures < 0.75 * values, "{strategy:?}: {values}, {procedures} bytes");
    }
}
