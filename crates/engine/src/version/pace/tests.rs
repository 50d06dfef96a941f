//! Long readers on a machine whose clock goes on between two looks at it.

use super::{LONG_NS, SLICE_NS, UNDO_READ_NS};
use crate::catalog::{Locking, Organization};
use crate::{Database, Direction, Isolation, PartitionSpec, Result, Settings, Transaction};
use base::{Instant, PartitionId};
use driver::{
    Completion, DeviceId, DeviceTraits, Doorbell, Driver, Fault, Frame, Halt, Op, Prices, StationReport, Token,
};
use executor::{Executor, Order};
use std::cell::Cell;
use std::ops::Bound;
use std::rc::Rc;
use std::sync::Arc;
use virtual_driver::{Hardware, Media, Options, VirtualDriver};

/// The time between two looks at the clock, in nanoseconds: what every step of a reader takes.
const STEP_NS: u64 = 10_000;

struct Working {
    machine: VirtualDriver,
    worked_ns: Cell<u64>,
}

impl Driver for Working {
    fn now(&self) -> Instant {
        self.worked_ns.set(self.worked_ns.get() + STEP_NS);
        self.machine.now().plus_ns(self.worked_ns.get())
    }
    fn submit(&mut self, token: Token, op: Op) {
        self.machine.submit(token, op);
    }
    fn cancel(&mut self, token: Token) {
        self.machine.cancel(token);
    }
    fn park(&mut self, until: Option<Instant>, done: &mut Vec<Completion>) -> Result<(), Halt> {
        let until = until.map(|until| Instant::from_ns(until.ns().saturating_sub(self.worked_ns.get())));
        self.machine.park(until, done)
    }
    fn entropy(&mut self) -> u128 {
        self.machine.entropy()
    }
    fn frames(&mut self, count: usize, size: usize) -> Result<Vec<Frame>, Fault> {
        self.machine.frames(count, size)
    }
    fn device(&self, name: &str) -> Option<DeviceId> {
        self.machine.device(name)
    }
    fn traits(&self, device: DeviceId) -> DeviceTraits {
        self.machine.traits(device)
    }
    fn prices(&self) -> Option<Prices> {
        self.machine.prices()
    }
    fn doorbell(&self) -> Arc<dyn Doorbell> {
        self.machine.doorbell()
    }
    fn description(&self) -> String {
        self.machine.description()
    }
    fn stations(&self) -> Vec<StationReport> {
        self.machine.stations()
    }
    fn restart_statistics(&mut self) {
        self.machine.restart_statistics();
    }
}

async fn filled(executor: &Executor) -> Result<(Database, [PartitionId; 4])> {
    filled_with(executor, Settings::default()).await
}

/// Partitions with enough records for many steps: a b-tree, a set, one that is appended to, one with objects.
async fn filled_with(executor: &Executor, settings: Settings) -> Result<(Database, [PartitionId; 4])> {
    let database = Database::create(executor, settings).await?;
    let organization = Organization::Set { segment_size: 1 << 20, reserve_percent: 10, arrivals: false };
    let objects = Organization::Direct { objects: 1_000, blocking_factor: 10, record_size: 8 };
    let partitions = [
        database.create_partition(PartitionSpec::b_tree("tree")).await?,
        database.create_partition(PartitionSpec::new("set", organization, Locking::Record)).await?,
        database.create_partition(PartitionSpec::append("appended")).await?,
        database.create_partition(PartitionSpec::new("direct", objects, Locking::Record)).await?,
    ];
    let [tree, set, appended, _] = partitions;
    let fill = async |tx: &mut Transaction| {
        for number in 0..1_000_u32 {
            let (key, value) = (number.to_be_bytes(), [7; 1_000]);
            tx.put(tree, &key, &value).await?;
            tx.put(set, &key, &value[..8]).await?;
            tx.append(appended, &value).await?;
        }
        Ok::<_, crate::Error>(())
    };
    database.transaction(fill).await?;
    Ok((database, partitions))
}

/// How they can be read: three scans, then record by record the objects, the b-tree and the set.
const WAYS: usize = 6;

/// Reads one of them in some way until that has taken some time of steps; says how long it took altogether.
async fn read(database: &Database, partitions: [PartitionId; 4], which: usize) -> Result<(u64, u64)> {
    let mut tx = database.begin_at(Isolation::Snapshot).await?;
    let (pace, began) = (tx.pace(), database.executor().now());
    while pace.taken_ns.get() < 10 * LONG_NS {
        let mut found = 0;
        let mut count = || {
            found += 1;
            true
        };
        match which {
            0 => {
                let mut cursor = tx.cursor(partitions[0], Bound::Unbounded, Bound::Unbounded, Direction::Forward);
                while tx.next(&mut cursor).await?.is_some() {
                    count();
                }
            }
            1 => tx.scan_set(partitions[1], |_, _| count()).await?,
            2 => tx.scan_appended(partitions[2], |_, _| count()).await?,
            // Record by record.
            _ => {
                for number in 0..1_000_u32 {
                    match which {
                        3 => drop(tx.read_object(partitions[3], number.into(), <[u8]>::to_vec).await?),
                        _ => assert!(tx.get(partitions[which - 4], &number.to_be_bytes()).await?.is_some()),
                    }
                    count();
                }
            }
        }
        assert_eq!(found, 1_000);
    }
    let times = (pace.taken_ns.get(), database.executor().now().since_ns(began));
    tx.commit().await?;
    Ok(times)
}

/// The most that steps may take of some time beside others: what they take before a reader is long, and then its share.
fn share_ns(elapsed_ns: u64) -> u64 {
    let percent = u64::from(Settings::default().undo.reader_percent);
    LONG_NS + 2 * SLICE_NS + elapsed_ns * percent / 100
}

fn on_a_working_machine(work: impl AsyncFnOnce(&Executor) -> Result<()>) {
    let machine = VirtualDriver::new(Hardware::ideal(), Options::default(), Media::new());
    let working = Working { machine, worked_ns: Cell::new(0) };
    let executor = Executor::new(Box::new(working), Order::FirstInFirstOut);
    let done = executor.run(work(&executor));
    executor.stop();
    done.expect("the machine goes on").expect("nothing fails");
}

#[test]
fn a_long_reader_rests_beside_others_and_alone_it_does_not() {
    on_a_working_machine(async |executor| {
        let (database, partitions) = filled(executor).await?;
        for which in 0..WAYS {
            let idle = database.snapshot().await?;
            let (taken_ns, elapsed_ns) = read(&database, partitions, which).await?;
            assert!(elapsed_ns < 20 * taken_ns / 3, "{taken_ns} of {elapsed_ns} with no other task");
            assert_eq!(database.0.engine.versions.readers.paid.get(), Instant::START, "it has not rested");
            drop(idle);
        }
        for which in 0..WAYS {
            let other = database.begin().await?;
            let (taken_ns, elapsed_ns) = read(&database, partitions, which).await?;
            assert!(taken_ns <= share_ns(elapsed_ns), "{taken_ns} of {elapsed_ns}");
            assert!(2 * taken_ns > share_ns(elapsed_ns), "{taken_ns} of {elapsed_ns}: it rests more than it has to");
            drop(other);
        }
        assert_eq!(database.0.engine.versions.readers.count.get(), 0, "all have ended");
        Ok(())
    });
}

#[test]
fn long_readers_share_what_is_theirs() {
    on_a_working_machine(async |executor| {
        let (database, partitions) = filled(executor).await?;
        let both = async || {
            let (one, began) = (database.clone(), executor.now());
            let one = executor.spawn(async move { read(&one, partitions, 0).await });
            let (other_ns, _) = read(&database, partitions, 1).await?;
            let (one_ns, _) = one.join().await?;
            Ok::<_, crate::Error>((one_ns + other_ns, executor.now().since_ns(began)))
        };
        let (taken_ns, elapsed_ns) = both().await?;
        assert!(elapsed_ns < 20 * taken_ns / 3, "{taken_ns} of {elapsed_ns} with no other task");
        let finished = Rc::new(Cell::new(false));
        let (writer, over) = (database.clone(), Rc::clone(&finished));
        let writer = executor.spawn(async move {
            // No transaction is active at the moments between its transactions, and yet its commits show that a client is.
            while !over.get() {
                writer.transaction(async |tx| tx.put(partitions[0], &[0; 4], &[8; 1_000]).await).await?;
                writer.executor().sleep_ns(LONG_NS / 20).await;
            }
            Ok(())
        });
        let (taken_ns, elapsed_ns) = both().await?;
        assert!(taken_ns <= share_ns(elapsed_ns) + LONG_NS + 2 * SLICE_NS, "{taken_ns} of {elapsed_ns}");
        finished.set(true);
        writer.join().await
    });
}

#[test]
fn reads_of_the_undo_space_count_for_who_reads_there() {
    on_a_working_machine(async |executor| {
        let mut settings = Settings::default();
        settings.undo.memory = 64 << 10;
        let (database, [tree, ..]) = filled_with(executor, settings).await?;
        let mut old = database.begin_at(Isolation::Snapshot).await?;
        for number in 0..1_000_u32 {
            database.transaction(async |tx| tx.put(tree, &number.to_be_bytes(), &[8; 1_000]).await).await?;
        }
        let _other = database.begin().await?;
        let began = executor.now();
        let mut cursor = old.cursor(tree, Bound::Unbounded, Bound::Unbounded, Direction::Forward);
        while let Some((_, value)) = old.next(&mut cursor).await? {
            assert_eq!(value, [7; 1_000]);
        }
        let reads = database.0.engine.versions.space.statistics().reads;
        assert!(reads > 500, "{reads} reads of the undo space");
        let elapsed_ns = executor.now().since_ns(began);
        assert!(reads * UNDO_READ_NS <= share_ns(elapsed_ns), "{reads} reads within {elapsed_ns}");
        Ok(())
    });
}

#[test]
fn a_short_reader_of_records_does_not_look_at_the_clock() {
    on_a_working_machine(async |executor| {
        let (database, [tree, set, _, direct]) = filled(executor).await?;
        let _other = database.begin().await?;
        for round in 0..100 {
            let mut snapshot = database.snapshot().await?;
            let began = executor.now();
            for number in 0..20_u32 {
                snapshot.get(tree, &number.to_be_bytes()).await?;
                snapshot.get(set, &number.to_be_bytes()).await?;
                snapshot.read_object(direct, number.into(), |_| ()).await?;
            }
            // The first one brings pages; from here to there is one look.
            assert!(round == 0 || executor.now().since_ns(began) == STEP_NS);
        }
        Ok(())
    });
}

#[test]
fn a_reader_that_has_locks_does_not_rest() {
    on_a_working_machine(async |executor| {
        let (database, [tree, ..]) = filled(executor).await?;
        let _other = database.begin().await?;
        let mut tx = database.begin_at(Isolation::ReadCommitted).await?;
        tx.put(tree, &[0; 4], &[8; 1_000]).await?;
        for number in 0..100_000_u32 {
            tx.get(tree, &(number % 1_000).to_be_bytes()).await?;
        }
        assert_eq!((tx.pace().taken_ns.get(), database.0.engine.versions.readers.paid.get()), (0, Instant::START));
        tx.commit().await
    });
}
