use super::*;
use crate::debit_credit::{self, DebitCredit, HISTORY, Scale, Tables, totals};
use crate::ground::settings;
use crate::run::{Length, Measured, Plan, Unwatched, run_through};
use devices::Hardware;
use engine::catalog::{Locking, Organization};
use engine::{Database, PartitionSpec, Procedures, Settings, server};
use executor::{Executor, Order};
use virtual_driver::{Media, Options, VirtualDriver};

fn small() -> Scale {
    Scale { accounts_per_branch: 50, ..Scale::tpc_b(3) }
}

/// Debit-Credit on sets through a transaction server of described hardware.
fn measured(hardware: &str, load: Load, settings_of: server::Settings) -> Result<Measured> {
    let mut hardware = Hardware::named(hardware).expect("it is described");
    if let Some(cpu) = &mut hardware.cpu {
        cpu.instructions.message = 3_000;
        cpu.count = 1;
    }
    let driver = VirtualDriver::new(hardware, Options { seed: 1, ..Options::default() }, Media::new());
    let executor = Executor::new(Box::new(driver), Order::FirstInFirstOut);
    let work = async {
        let mut procedures = Procedures::new();
        debit_credit::register(&mut procedures, &small());
        let database = Database::create(&executor, Settings { procedures, ..settings(64) }).await?;
        let spec = |name: &str| {
            let arrivals = name == HISTORY;
            let locking = if arrivals { Locking::None } else { Locking::Record };
            Ok(PartitionSpec::new(name, Organization::set(arrivals), locking))
        };
        debit_credit::load(&database, &small(), spec, |_| {}).await?;
        let server = TransactionServer::start(&database, settings_of)?;
        let plan = Plan { load, warm_up: Length::Transactions(200), measure: Length::Transactions(2_000), seed: 1 };
        let tables = Tables::of(database.catalog(), &small())?;
        let at_end = |found| (found, database.statistics().commits.get());
        let found = run_through(&server, DebitCredit(tables.clone()), &plan, 1, &mut Unwatched, at_end).await?;
        server.close().await;
        let sums = totals(&database, &tables).await?;
        assert!(sums.agree() && sums.transactions == 2_200, "{sums:?}");
        for (measured, commits) in &found {
            assert_eq!((measured.transactions, measured.response.count(), *commits), (2_000, 2_000, 2_000));
        }
        Ok(found.into_iter().map(|(measured, _)| measured).next().expect("one batch"))
    };
    let result = executor.run(work).expect("the machine goes on");
    executor.stop();
    result
}

#[test]
fn a_full_queue_stays_full_and_a_closed_loop_has_its_clients() -> Result<()> {
    let settings = server::Settings { queue: 50, ..server::Settings::default() };
    let full = measured("rahm-1991", Load::Full, settings)?;
    let report = full.server.expect("it went through a server");
    assert_eq!((report.queue_max, report.restarts, report.takeovers), (50, 0, 0));
    assert!(report.queue_mean > 48.0, "{}", report.queue_mean);
    let closed = measured("rahm-1991", Load::Closed { clients: 10 }, settings)?;
    assert!(closed.server.expect("it went through a server").queue_max <= 10);
    // Little's law over all that is inside, from submission to response.
    let inside = closed.transactions as f64 * closed.response.mean_ns() / closed.elapsed_ns as f64;
    assert!((9.0..=10.1).contains(&inside), "{inside}");
    Ok(())
}

#[test]
fn every_server_pays_for_its_own_work_and_together_they_have_the_cpu() -> Result<()> {
    let found = measured("rahm-1991", Load::Full, server::Settings::default())?;
    let cpu = found.server.expect("it went through a server").cpu_ns;
    let station = found.stations.iter().find(|station| station.name == "cpu").expect("one is described");
    let (busy, all) = (station.utilization * found.elapsed_ns as f64, cpu.transaction + cpu.log + cpu.message);
    assert!((all as f64 / busy - 1.0).abs() < 0.01, "{all} of {busy}");
    let per_transaction = |ns: u64| ns as f64 / found.transactions as f64;
    // Two messages of 3,000 instructions, 50 MIPS; begin, four references and end.
    assert!((per_transaction(cpu.message) / 120_000.0 - 1.0).abs() < 0.1, "{}", per_transaction(cpu.message));
    assert!((per_transaction(cpu.transaction) / 5_000_000.0 - 1.0).abs() < 0.1, "{}", per_transaction(cpu.transaction));
    assert!(cpu.log > 0 && cpu.checkpoint == 0);
    Ok(())
}

#[test]
fn loads_that_do_not_go_through_servers_are_refused() {
    let refusal = measured("ideal", Load::Open { rate_per_s: 5.0 }, server::Settings::default()).unwrap_err();
    assert!(refusal.to_string().contains("say how many clients"), "{refusal}");
    let refusal = measured("ideal", Load::Full, server::Settings { queue: 0, ..server::Settings::default() });
    assert!(refusal.unwrap_err().to_string().contains("at least 1 request"));
}
