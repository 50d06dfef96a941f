//! One engine: the same seeded work of one client takes the same steps (`Work` and `Op`, in order) on every driver.
//!
//! What runs on a timer runs when the clock says so, and clocks differ. So checkpoints are taken where the workload asks for
//! them and not in the background, and the log is written when a commit asks for it. A restart keeps many reads in flight,
//! which end in any order, so its buffer has room for all pages: which page makes room for another would depend on that
//! order. The described disk has the traits of the real one (what a power cut may tear, whether accesses hold the CPU),
//! because the engine rightly acts on them. Scans read ahead, so what theirs come to is the same, and its order is not.

use base::Random;
use conformance::DEVICE;
use driver::{DeviceTraits, Driver};
use engine::catalog::{Locking, Organization};
use engine::lock::VictimPolicy;
use engine::log::{GroupCommit, SyncMethod};
use engine::replacement::Policy;
use engine::{Database, Direction, PartitionSpec, Settings, buffer, checkpoint, log};
use executor::{Executor, Order, Step};
use real_driver::{Backend, Options, RealDriver};
use std::ops::Bound;
use std::path::Path;
use virtual_driver::{Hardware, Media, VirtualDriver};
use workload::debit_credit::{self, Parameters, Scale, Tables};

/// The smallest page that may tear on every real disk, so that the double-write area is at work.
const PAGE_SIZE: usize = 16 << 10;

/// What is varied: settings that change which steps there are.
#[derive(Clone, Copy, Debug)]
struct Variant {
    frames: usize,
    cleaner: bool,
    force: bool,
    hold_locks: bool,
    group_commit: GroupCommit,
    sync_method: SyncMethod,
    durable: bool,
}

const PLAIN: Variant = Variant {
    frames: 2_000,
    cleaner: false,
    force: false,
    hold_locks: false,
    group_commit: GroupCommit::Adaptive,
    sync_method: SyncMethod::SyncWrite,
    durable: true,
};

const VARIANTS: [Variant; 6] = [
    PLAIN,
    Variant { frames: 40, ..PLAIN },
    Variant { frames: 40, force: true, ..PLAIN },
    Variant { frames: 60, group_commit: GroupCommit::None, hold_locks: true, ..PLAIN },
    Variant { sync_method: SyncMethod::WriteThenSync, ..PLAIN },
    Variant { group_commit: GroupCommit::Size { transactions: 8, delay_ns_max: 1_000 }, ..PLAIN },
];

fn settings(variant: Variant) -> Settings {
    Settings {
        buffer: buffer::Settings {
            frames: variant.frames,
            page_size: PAGE_SIZE,
            replacement: Policy::default(),
            cleaner: variant.cleaner,
            ..buffer::Settings::default()
        },
        log: log::Settings {
            capacity: 8 << 20,
            group_commit: variant.group_commit,
            sync_method: Some(variant.sync_method),
            durable: variant.durable,
            ..log::Settings::default()
        },
        home_device: DEVICE.into(),
        log_device: DEVICE.into(),
        hierarchy: engine::second_level::Settings::default(),
        force: variant.force,
        hold_locks: variant.hold_locks,
        victim: VictimPolicy::Requester,
        checkpoint: checkpoint::Policy::OFF,
        multiprogramming_level: 4,
        ..Settings::default()
    }
}

fn scale() -> Scale {
    Scale { accounts_per_branch: 4_000, ..Scale::tpc_b(2) }
}

fn spec(name: &str) -> engine::Result<PartitionSpec> {
    Ok(match name {
        debit_credit::HISTORY => PartitionSpec::append(name),
        debit_credit::TELLER => {
            let organization =
                Organization::Direct { objects: scale().tellers(), blocking_factor: 4, record_size: 100 };
            PartitionSpec::new(name, organization, Locking::Page)
        }
        _ => PartitionSpec::b_tree(name),
    })
}

/// Debit-Credit, records of all lengths, scans, rollbacks and savepoints, checkpoints; a crash and the recovery from it.
fn steps(make: impl Fn() -> Box<dyn Driver>, variant: Variant) -> Vec<Step> {
    let mut steps = Vec::new();
    let mut live = |executor: &Executor, work: &dyn Fn(&Executor) -> Result<(), engine::Error>| {
        executor.record_steps();
        work(executor).expect("works");
        steps.extend(executor.take_steps());
        executor.stop();
    };
    let executor = Executor::new(make(), Order::FirstInFirstOut);
    live(&executor, &|executor| executor.run(first_opening(executor, variant)).expect("the machine does not stop"));
    drop(executor);
    let executor = Executor::new(make(), Order::FirstInFirstOut);
    live(&executor, &|executor| executor.run(second_opening(executor, variant)).expect("the machine does not stop"));
    drop(executor);
    let executor = Executor::new(make(), Order::FirstInFirstOut);
    let mut scans = executor.run(third_opening(&executor, variant)).expect("the machine does not stop").expect("works");
    executor.stop();
    scans.retain(|step| matches!(step, Step::Op(_)));
    scans.sort_unstable_by_key(|step| format!("{step:?}"));
    steps.extend(scans);
    steps
}

async fn first_opening(executor: &Executor, variant: Variant) -> Result<(), engine::Error> {
    let database = Database::create(executor, settings(variant)).await?;
    debit_credit::load(&database, &scale(), spec, |_| ()).await?;
    let tree = database.create_partition(PartitionSpec::b_tree("mixed")).await?;
    let tables = Tables::of(database.catalog(), &scale())?;
    let mut random = Random::stream(5, "seam");
    for round in 0..150_u64 {
        let parameters = Parameters::draw(&scale(), &mut random);
        database.transaction(async |tx| tables.run(tx, &parameters).await).await?;
        mixed(&database, tree, &mut random).await?;
        if round % 60 == 59 {
            database.checkpoint().await?;
        }
    }
    Ok(())
}

async fn mixed(database: &Database, tree: base::PartitionId, random: &mut Random) -> Result<(), engine::Error> {
    let mut tx = database.begin().await?;
    for _ in 0..random.between(1, 6) {
        let key = random.below(200).to_be_bytes();
        match random.below(5) {
            0 => {
                tx.delete(tree, &key).await?;
            }
            1 => {
                let mut cursor = tx.cursor(tree, Bound::Included(&key), Bound::Unbounded, Direction::Forward);
                for _ in 0..8 {
                    tx.next(&mut cursor).await?;
                }
            }
            _ => {
                let length = if random.chance(0.05) { 50_000 } else { random.between(0, 700) };
                tx.put(tree, &key, &vec![7; length as usize]).await?;
            }
        }
    }
    if random.chance(0.2) {
        let savepoint = tx.savepoint();
        tx.put(tree, b"taken back", b"soon").await?;
        tx.rollback_to(savepoint).await?;
    }
    if random.chance(0.2) { tx.rollback().await } else { tx.commit().await }
}

/// The recovery, and single reads.
async fn second_opening(executor: &Executor, variant: Variant) -> Result<(), engine::Error> {
    let roomy = Variant { frames: PLAIN.frames, ..variant };
    let database = Database::open(executor, settings(roomy), "seam").await?;
    let tree = database.partition("mixed")?;
    for number in 0..200_u64 {
        database.transaction(async |tx| tx.get(tree, &number.to_be_bytes()).await).await?;
    }
    database.close().await
}

/// The steps of scans of all that there is.
async fn third_opening(executor: &Executor, variant: Variant) -> Result<Vec<Step>, engine::Error> {
    let roomy = Variant { frames: PLAIN.frames, ..variant };
    let database = Database::open(executor, settings(roomy), "seam").await?;
    let tables = Tables::of(database.catalog(), &scale())?;
    executor.record_steps();
    let totals = debit_credit::totals(&database, &tables).await?;
    let steps = executor.take_steps();
    assert!(totals.agree() && totals.transactions == 150, "{totals:?}");
    database.close().await.map(|()| steps)
}

/// A machine that answers soon, with one disk of these traits.
fn described(traits: DeviceTraits) -> Hardware {
    let mut hardware = Hardware::ideal();
    let disk = hardware.devices.get_mut(DEVICE).expect("the ideal machine has a disk");
    disk.atomic_write = traits.atomic_write;
    disk.alignment = traits.alignment;
    disk.synchronous = traits.synchronous;
    hardware
}

fn real(directory: &Path, backend: Backend) -> Option<RealDriver> {
    match RealDriver::open(Options { backend, ..Options::new(DEVICE, directory) }) {
        Ok(driver) => Some(driver),
        Err(fault) => {
            println!("skipped: {fault}");
            None
        }
    }
}

fn assert_same(left: &[Step], right: &[Step], name: &str, variant: Variant) {
    if let Some(at) = (0..left.len().max(right.len())).find(|at| left.get(*at) != right.get(*at)) {
        let around = at.saturating_sub(6)..at + 6;
        let shown = |steps: &[Step]| around.clone().filter_map(|at| steps.get(at).copied()).collect::<Vec<_>>();
        panic!("{name} differs at step {at} with {variant:?}:\n virtual {:?}\n {name} {:?}", shown(left), shown(right));
    }
}

#[test]
fn the_engine_takes_the_same_steps_on_every_driver() {
    for variant in VARIANTS {
        let mut compared = 0;
        for backend in [Backend::IoUring, Backend::ThreadPool] {
            let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
            let Some(driver) = real(directory.path(), backend) else { continue };
            let traits = driver.traits(driver.device(DEVICE).expect("it was opened with it"));
            drop(driver);
            let media = Media::new();
            let simulated = steps(
                || Box::new(VirtualDriver::new(described(traits), virtual_driver::Options::default(), media.clone())),
                variant,
            );
            let open = || -> Box<dyn Driver> { Box::new(real(directory.path(), backend).expect("it opened before")) };
            let measured = steps(open, variant);
            assert!(simulated.len() > 2_500, "{} steps prove little", simulated.len());
            assert_same(&simulated, &measured, &format!("{backend:?}"), variant);
            compared += 1;
        }
        assert!(compared > 0, "the thread pool runs everywhere");
    }
}
