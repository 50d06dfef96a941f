//! What a run counts is the run's own: neither its warm-up nor the load before it.

use engine::{Database, Internals, PartitionSpec, Settings};
use entresol_workload::debit_credit::{self, DebitCredit, HISTORY, Scale, Tables};
use entresol_workload::run::Measured;
use entresol_workload::{Length, Load, Plan, Unwatched, run};
use executor::{Executor, Order, WholeExecutor};
use virtual_driver::{Hardware, Media, Options, VirtualDriver};

/// What is counted for each transaction after a warm-up of this many transactions, by name.
fn counts(warm_up: u64) -> Vec<(&'static str, f64)> {
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
        let of_each = |measured: Measured| {
            let (locks, log) = (database.locks().statistics(), database.log().statistics());
            let references: u64 = database.statistics().references().iter().map(|seen| seen.hits + seen.misses()).sum();
            let completed: u64 = database.executor().whole().stations().iter().map(|station| station.completed).sum();
            let counts = [
                ("lock requests", locks.requests),
                ("log records", log.records),
                ("bytes of log records", log.record_bytes),
                ("bytes of log written", log.bytes_written),
                ("log writes", log.writes),
                ("commits asked of the log", log.commits),
                ("commits that shared a write", log.group_commits),
                ("commits", database.statistics().commits.get()),
                ("references", references),
                ("requests that devices completed", completed),
            ];
            counts.map(|(name, count)| (name, count as f64 / measured.transactions as f64)).to_vec()
        };
        run::run(&database, workload, &plan, &mut Unwatched, of_each).await
    };
    let counts = executor.run(run);
    executor.stop();
    counts.expect("the machine goes on").expect("runs")
}

#[test]
fn what_the_warm_up_did_is_not_counted() {
    for ((name, short), (_, long)) in counts(1).into_iter().zip(counts(5_000)) {
        assert!(short > 0.0, "{name}: nothing was counted");
        assert!((long / short - 1.0).abs() < 0.05, "{name}: {short} and {long} a transaction");
    }
}
