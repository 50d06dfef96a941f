//! Thousands of sets in a database with real files: as many are open as the process may have, those of dropped sets no longer.

use conformance::DEVICE;
use driver::FaultKind;
use engine::catalog::{Locking, Organization};
use engine::{Database, Error, PartitionSpec, Result, Settings, buffer, checkpoint, log};
use executor::{Executor, Order};
use real_driver::{Backend, Options, RealDriver};
use std::path::Path;
use std::process::Command;

/// A set has two files.
const SETS: usize = 3_000;
/// What a child process is to do: its case, its backend and the directory.
const TASK: &str = "ENTRESOL_DESCRIPTORS";

fn settings() -> Settings {
    Settings {
        log: log::Settings { capacity: 4 << 20, ..log::Settings::default() },
        buffer: buffer::Settings { frames: 64, ..buffer::Settings::default() },
        checkpoint: checkpoint::Policy::OFF,
        home_device: DEVICE.into(),
        log_device: DEVICE.into(),
        ..Settings::default()
    }
}

async fn create(database: &Database, name: &str) -> Result<()> {
    let organization = Organization::Set { arrivals: false, segment_size: 16 << 10, reserve_percent: 10 };
    let spec = PartitionSpec::new(name, organization, Locking::Record);
    let set = database.create_partition(PartitionSpec { device: DEVICE.into(), ..spec }).await?;
    database.transaction(async |tx| tx.put(set, b"name", name.as_bytes()).await).await
}

async fn expect(database: &Database, names: impl Iterator<Item = String>) -> Result<()> {
    for name in names {
        let set = database.partition(&name)?;
        let found = database.transaction(async |tx| tx.get(set, b"name").await).await?;
        assert_eq!(found.as_deref(), Some(name.as_bytes()));
    }
    Ok(())
}

/// How many files this process has open.
fn open_files() -> usize {
    std::fs::read_dir("/proc/self/fd").expect("the process has descriptors").count()
}

/// Waits until `count` files are open: a thread of its own closes them.
async fn closed_down_to(executor: &Executor, count: usize) {
    for _ in 0..1_000 {
        if open_files() <= count {
            return;
        }
        executor.sleep_ns(10_000_000).await;
    }
    panic!("{} files are open, {count} should be", open_files());
}

fn live(backend: Backend, directory: &Path, work: impl AsyncFnOnce(&Executor) -> Result<()>) {
    let driver = RealDriver::open(Options { backend, ..Options::new(DEVICE, directory) }).expect("opens");
    let executor = Executor::new(Box::new(driver), Order::FirstInFirstOut);
    let result = executor.run(work(&executor));
    executor.stop();
    result.expect("the machine goes on").unwrap_or_else(|error| panic!("{error}"));
}

/// Many sets, a third of which replace others.
async fn many(executor: &Executor) -> Result<()> {
    let database = Database::create(executor, settings()).await?;
    let before = open_files();
    for number in 0..SETS {
        create(&database, &format!("set-{number}")).await?;
    }
    database.checkpoint().await?;
    assert!(open_files() >= before + 2 * SETS, "{} files are open", open_files());
    for number in 0..SETS / 3 {
        database.drop_partition(database.partition(&format!("set-{number}"))?).await?;
    }
    closed_down_to(executor, before + 2 * (SETS - SETS / 3)).await;
    for number in 0..SETS / 3 {
        create(&database, &format!("new-{number}")).await?;
    }
    Ok(())
}

async fn many_again(executor: &Executor) -> Result<()> {
    let database = Database::open(executor, settings(), "here").await?;
    expect(&database, (SETS / 3..SETS).map(|number| format!("set-{number}"))).await?;
    expect(&database, (0..SETS / 3).map(|number| format!("new-{number}"))).await
}

/// As many sets as the limit lets be; what that keeps from being made leaves nothing, and the rest goes on.
async fn few(executor: &Executor) -> Result<()> {
    let database = Database::create(executor, settings()).await?;
    let mut count = 0;
    let error = loop {
        match create(&database, &format!("set-{count}")).await {
            Ok(()) => count += 1,
            Err(error) => break error,
        }
    };
    assert!((100..160).contains(&count), "{count} sets");
    let Error::Input(fault) = &error else { panic!("{error}") };
    assert_eq!(fault.kind, FaultKind::TooManyFiles, "{error}");
    for part in [format!("set-{count}.backup-"), "300".into(), "ulimit -n".into(), "a set takes two files".into()] {
        assert!(fault.message.contains(&part), "{part} in {error}");
    }
    expect(&database, (0..count).map(|number| format!("set-{number}"))).await?;
    database.checkpoint().await?;
    let before = open_files();
    for number in 0..10 {
        database.drop_partition(database.partition(&format!("set-{number}"))?).await?;
    }
    closed_down_to(executor, before - 20).await;
    for number in 0..10 {
        create(&database, &format!("set-{number}")).await?;
    }
    expect(&database, (0..count).map(|number| format!("set-{number}"))).await
}

/// What the child process does. Without a task it is no test.
#[test]
fn child() {
    let Ok(task) = std::env::var(TASK) else { return };
    let [case, backend, directory] = task.split('\n').collect::<Vec<_>>()[..] else { panic!("{task}") };
    let backend = if backend == "ring" { Backend::IoUring } else { Backend::ThreadPool };
    match case {
        "many" => {
            live(backend, directory.as_ref(), many);
            live(backend, directory.as_ref(), many_again);
        }
        "few" => live(backend, directory.as_ref(), few),
        other => panic!("{other}"),
    }
}

/// Runs a case in a process of its own with these limits on open files, soft and hard. False if it cannot be run.
fn in_child(case: &str, backend: &str, (soft, hard): (usize, usize)) -> bool {
    // Thousands of sets are durable there at once.
    let memory = Path::new("/dev/shm");
    let place = if memory.is_dir() { memory } else { Path::new(env!("CARGO_TARGET_TMPDIR")) };
    let directory = tempfile::tempdir_in(place).expect("a directory");
    if backend == "ring" {
        let ring = Options { backend: Backend::IoUring, ..Options::new(DEVICE, directory.path()) };
        if let Err(fault) = RealDriver::open(ring) {
            println!("skipped: {fault}");
            return false;
        }
    }
    let limited = format!("ulimit -Sn {soft} && ulimit -Hn {hard} && exec \"$0\" child --exact --nocapture");
    let mut command = Command::new("sh");
    command.arg("-c").arg(limited).arg(std::env::current_exe().expect("this test"));
    command.env(TASK, format!("{case}\n{backend}\n{}", directory.path().display()));
    let output = command.output().expect("it starts");
    let said = [&output.stdout[..], &output.stderr].concat();
    assert!(output.status.success(), "{case}, {backend}: {}", String::from_utf8_lossy(&said));
    true
}

#[test]
fn thousands_of_sets_are_open_and_dropped_ones_give_their_files_back() {
    let limits = (64, 2 * SETS + 200);
    // Both together take long; the ring has a table of files besides.
    let _ = in_child("many", "ring", limits) || in_child("many", "pool", limits);
}

#[test]
fn the_limit_that_keeps_a_set_from_being_created_is_said() {
    for backend in ["ring", "pool"] {
        in_child("few", backend, (64, 300));
    }
}
