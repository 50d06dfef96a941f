//! What a run counts is the run's own: neither its warm-up nor the load before it.

use engine::{Database, PartitionSpec, Settings};
use entresol_workload::debit_credit::{self, DebitCredit, HISTORY, Scale, Tables};
use entresol_workload::run::Measured;
use entresol_workload::{Length, Load, Plan, Unwatched, run};
use executor::{Executor, Order};
use virtual_driver::{Hardware, Media, Options, VirtualDriver};

/// Requests for locks per transaction after a warm-up of this many transactions.
fn lock_requests(warm_up: u64) -> f64 {
    let driver = VirtualDriver::new(Hardware::ideal(), Options::default(), Media::new());
    let executor = Executor::new(Box::new(driver), Order::FirstInFirstOut);
    let run = async {
        let scale = Scale { accounts_per_branch: 100, ..Scale::tpc_b(2) };
        let database = Database::create(&executor, Settings::default()).await?;
        let spec =
            |name: &str| Ok(if name == HISTORY { PartitionSpec::append(name) } else { PartitionSpec::b_tree(name) });
        debit_credit::load(&database, &scale, spec, |_| {}).await?;
        let workload = DebitCredit(Tables::of(database.catalog(), &scale)?);
        let (warm_up, measure) = (Length::Transactions(warm_up), Length::Transactions(200));
        let plan = Plan { load: Load::Closed { clients: 1 }, warm_up, measure, seed: 1 };
        let requests =
            |measured: Measured| database.locks().statistics().requests as f64 / measured.transactions as f64;
        run::run(&database, workload, &plan, &mut Unwatched, requests).await
    };
    let requests = executor.run(run);
    executor.stop();
    requests.expect("the machine goes on").expect("runs")
}

#[test]
fn lock_requests_of_the_warm_up_are_not_counted() {
    let (short, long) = (lock_requests(1), lock_requests(5_000));
    assert!((long / short - 1.0).abs() < 0.02, "{short} and {long} requests a transaction");
}
