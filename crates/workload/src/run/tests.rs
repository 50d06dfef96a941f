//! Runs are as long as they are said to be, and what the engine counts is theirs alone.

use super::{Length, Load, Plan, Unwatched, run_in_batches};
use crate::ground;
use crate::trace::replay::{Replay, organization};
use crate::trace::{Partition, Reference, Trace, Type};
use devices::Hardware;
use engine::canary::{Canary, plant};
use engine::catalog::Locking;
use engine::{Database, PartitionSpec, Result};
use std::rc::Rc;

/// One client, few and many.
const CLOSED: [Load; 4] = [
    Load::Closed { clients: 1 },
    Load::Closed { clients: 3 },
    Load::Closed { clients: 64 },
    Load::Closed { clients: 300 },
];

/// A trace with two references per transaction.
fn trace(transactions: u64) -> Rc<Trace> {
    let mut trace = Trace::new();
    let partition = Partition { name: "p".into(), objects: 100, blocking_factor: 10, locks: Locking::None };
    let partition = trace.add_partition(partition).unwrap();
    trace.add_type(Type { name: "t".into(), rate_per_s: None }).unwrap();
    for number in 0..transactions {
        trace.begin(0);
        for object in [number % 100, number * 7 % 100] {
            trace.refer(Reference { partition, write: false, object }).unwrap();
        }
    }
    Rc::new(trace)
}

async fn replay(database: &Database, trace: &Rc<Trace>) -> Result<Replay> {
    let spec = |partition: &Partition| {
        Ok(PartitionSpec {
            assumed: true,
            ..PartitionSpec::new(&partition.name, organization(partition, 1024), partition.locks)
        })
    };
    Replay::prepare(database, Rc::clone(trace), spec).await
}

fn references(database: &Database) -> u64 {
    database.statistics().references().iter().map(|seen| seen.hits + seen.misses()).sum()
}

/// Transactions, responses and references of each batch.
fn counted(hardware: &str, trace: &Rc<Trace>, plan: Plan, batches: u32) -> Vec<(u64, u64, u64)> {
    let hardware = Hardware::named(hardware).unwrap();
    ground::on(hardware, 64, async |database| {
        let replay = replay(&database, trace).await?;
        let at_end = |found: super::Measured| (found.transactions, found.response.count(), references(&database));
        let counts = run_in_batches(&database, replay, &plan, batches, &mut Unwatched, at_end).await?;
        let commits = database.statistics().commits.get();
        assert!(commits <= counts.last().unwrap().0 + 300, "{commits} commits, {counts:?}");
        Ok(counts)
    })
}

fn plan(load: Load, warm_up: u64, measure: u64) -> Plan {
    Plan { load, warm_up: Length::Transactions(warm_up), measure: Length::Transactions(measure), seed: 1 }
}

#[test]
fn a_trace_is_replayed_once_and_no_further() {
    for hardware in ["ideal", "rahm-1991"] {
        for transactions in [1, 3, 64, 65, 200] {
            let open = Load::Open { rate_per_s: 50.0 };
            for load in CLOSED.into_iter().chain([open]) {
                let found = counted(hardware, &trace(transactions), plan(load, 0, transactions), 1);
                assert_eq!(found, [(transactions, transactions, 2 * transactions)], "{hardware}, {load:?}");
            }
        }
    }
}

#[test]
fn a_run_beyond_its_length_is_found() {
    let planted = std::panic::catch_unwind(|| {
        plant(Some(Canary::Overrun));
        a_trace_is_replayed_once_and_no_further();
    });
    plant(None);
    assert!(planted.is_err());
}

#[test]
fn a_warm_up_and_what_is_measured_share_no_transaction() {
    for hardware in ["ideal", "rahm-1991"] {
        for load in CLOSED {
            for (warm_up, measure) in [(1, 2), (10, 3), (70, 130), (64, 64)] {
                let found = counted(hardware, &trace(warm_up + measure), plan(load, warm_up, measure), 1);
                assert_eq!(found, [(measure, measure, 2 * measure)], "{hardware}, {load:?}, {warm_up}");
            }
        }
    }
}

#[test]
fn arrivals_behind_a_warm_up_are_counted_exactly_and_end_with_the_trace() {
    for hardware in ["ideal", "rahm-1991"] {
        let recorder = crate::trace::record::Recorder::new();
        let trace = trace(200);
        let (found, recorded) = ground::on(Hardware::named(hardware).unwrap(), 64, async |database| {
            let replay = replay(&database, &trace).await?;
            let workload = crate::trace::record::Recorded::new(&database, replay, Some(Rc::clone(&recorder)));
            let plan = plan(Load::Open { rate_per_s: 200.0 }, 50, 150);
            let at_end = |found: super::Measured| (found.transactions, found.response.count());
            let found = super::run(&database, workload, &plan, &mut Unwatched, at_end).await?;
            Ok((found, recorder.trace(&database).unwrap().len()))
        });
        assert_eq!((found, recorded), ((150, 150), 200), "{hardware}");
    }
}

#[test]
fn batches_add_up_to_what_was_asked_for() {
    for hardware in ["ideal", "rahm-1991"] {
        for load in CLOSED {
            let found = counted(hardware, &trace(103), plan(load, 20, 103), 10);
            let sum = |part: fn(&(u64, u64, u64)) -> u64| found.iter().map(part).sum::<u64>();
            assert_eq!((sum(|batch| batch.0), sum(|batch| batch.1)), (103, 103), "{hardware}, {load:?}: {found:?}");
            assert!(found.iter().all(|batch| (10..=11).contains(&batch.0)), "{hardware}, {load:?}: {found:?}");
            assert_eq!(sum(|batch| batch.2), 206, "{hardware}, {load:?}: {found:?}");
        }
    }
}

#[test]
fn a_run_of_some_time_begins_nothing_behind_its_end() {
    // Within a batch of 400 ms a client has tens of transactions; everything hits.
    let found = |clients| {
        let (warm_up, measure) = (Length::Time(50_000_000), Length::Time(800_000_000));
        let plan = Plan { load: Load::Closed { clients }, warm_up, measure, seed: 1 };
        counted("rahm-1991", &trace(10), plan, 2)
    };
    for (transactions, responses, references) in found(1) {
        assert_eq!(transactions, responses);
        assert!(transactions > 3 && references.abs_diff(2 * transactions) <= 2, "{transactions} {references}");
    }
    for (transactions, responses, _) in found(20) {
        assert!(transactions == responses && transactions > 3, "{transactions} {responses}");
    }
}

#[test]
fn a_warm_up_of_some_time_leaves_nothing_to_what_is_counted() {
    for load in CLOSED {
        let plan = Plan { warm_up: Length::Time(70_000_000), ..plan(load, 0, 90) };
        assert_eq!(counted("rahm-1991", &trace(10), plan, 1), [(90, 90, 180)], "{load:?}");
    }
}
