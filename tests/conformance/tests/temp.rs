//! Temporary space on every driver: what its operators answer, what they leave behind, what a restart makes of it.

use base::Random;
use conformance::DEVICE;
use driver::{Driver, Halt, Op, Output};
use engine::temp::{FILE, Iterated, JoinKind, JoinMethod, JoinSettings, Joined, Rows};
use engine::{Database, Settings, log, temp};
use executor::{Executor, Order};
use real_driver::{Backend, Options, RealDriver};
use std::collections::BTreeMap;
use virtual_driver::{FaultPlan, Hardware, Media, PowerCut, VirtualDriver};

type List = Vec<(Vec<u8>, Vec<u8>)>;

const MEMORY: u64 = 16 * 4096;

fn settings() -> Settings {
    let log = log::Settings { capacity: 4 << 20, ..log::Settings::default() };
    let temp = temp::TempSettings { cluster_size: 4096, size: 64 << 20, ..temp::TempSettings::default() };
    Settings { log, temp, home_device: DEVICE.into(), log_device: DEVICE.into(), ..Settings::default() }
}

/// Runs a test on every driver; what it is given makes one machine after the other over the same contents.
fn on_every_driver(test: impl Fn(&dyn Fn() -> Executor)) {
    for backend in [Backend::IoUring, Backend::ThreadPool] {
        let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
        let open = || RealDriver::open(Options { backend, ..Options::new(DEVICE, directory.path()) });
        match open() {
            Ok(driver) => drop(driver),
            Err(fault) => {
                println!("skipped: {fault}");
                continue;
            }
        }
        test(&|| Executor::new(Box::new(open().expect("it opened before")), Order::FirstInFirstOut));
    }
    let media = Media::new();
    test(&|| {
        let driver = VirtualDriver::new(Hardware::ideal(), virtual_driver::Options::default(), media.clone());
        Executor::new(Box::new(driver) as Box<dyn Driver>, Order::FirstInFirstOut)
    });
}

fn live<T>(executor: &Executor, work: impl AsyncFnOnce(&Executor) -> engine::Result<T>) -> T {
    let result = executor.run(work(executor)).expect("the machine goes on");
    executor.stop();
    result.unwrap_or_else(|error| panic!("{error}"))
}

fn rows(count: u64) -> List {
    let mut random = Random::stream(7, "rows");
    let row = |_| {
        let mut value = vec![0; random.below(120) as usize];
        random.fill(&mut value);
        (random.below(count / 2).to_be_bytes().to_vec(), value)
    };
    (0..count).map(row).collect()
}

async fn drain(mut rows: impl Rows) -> engine::Result<List> {
    let mut found = List::new();
    while let Some(row) = rows.next().await? {
        found.push((row.key.to_vec(), row.value.to_vec()));
    }
    Ok(found)
}

async fn has_file(executor: &Executor) -> bool {
    let device = executor.device(DEVICE).expect("every machine has it");
    match executor.perform(Op::List { device }).await.result {
        Ok(Output::Names(names)) => names.iter().any(|name| name == FILE),
        other => panic!("{other:?}"),
    }
}

#[test]
fn rows_are_sorted_and_what_a_crash_leaves_is_removed() {
    let rows = rows(20_000);
    let mut expected = rows.clone();
    expected.sort();
    on_every_driver(|machine| {
        live(&machine(), async |executor| {
            let database = Database::create(executor, settings()).await?;
            assert!(!has_file(executor).await, "nothing was sorted yet");
            let sorted = database.sort(Iterated::new(rows.iter().map(|(key, value)| (key, value))), MEMORY).await?;
            let report = sorted.report();
            assert!(report.runs > 20 && report.passes > 1, "{report:?}");
            let mut found = drain(sorted).await?;
            assert!(found.is_sorted_by_key(|(key, _)| key));
            found.sort();
            assert!(found == expected);
            let statistics = database.temp_statistics();
            assert_eq!(statistics.writes, statistics.reads, "what is written is read once");
            assert_eq!(statistics.writes * 4096, report.spilled_bytes);
            assert_eq!(statistics.bytes_in_use, 0);
            assert!(has_file(executor).await);
            Ok(())
        });
        // The program was not closed.
        live(&machine(), async |executor| {
            let database = Database::open(executor, settings(), "temp").await?;
            assert!(!has_file(executor).await);
            drain(database.sort(Iterated::new(rows.iter().map(|(key, value)| (key, value))), MEMORY).await?).await?;
            assert!(has_file(executor).await);
            database.close().await?;
            assert!(!has_file(executor).await);
            Ok(())
        });
    });
}

#[test]
fn rows_are_joined() {
    let (left, right) = (rows(9_000), rows(8_000));
    let mut expected: Vec<(&[u8], &[u8], &[u8])> = Vec::new();
    let mut by_key = BTreeMap::<&[u8], Vec<&[u8]>>::new();
    right.iter().for_each(|(key, value)| by_key.entry(key).or_default().push(value));
    for (key, value) in &left {
        expected.extend(by_key.get(&key[..]).into_iter().flatten().map(|right| (&key[..], &value[..], *right)));
    }
    expected.sort();
    on_every_driver(|machine| {
        live(&machine(), async |executor| {
            let database = Database::create(executor, settings()).await?;
            for method in [JoinMethod::Hash, JoinMethod::SortMerge] {
                let inputs = (
                    Iterated::new(left.iter().map(|(key, value)| (key, value))),
                    Iterated::new(right.iter().map(|(key, value)| (key, value))),
                );
                let mut found = Vec::new();
                let take = async |answer: Joined<'_>| {
                    let right = answer.right.expect("an inner join").to_vec();
                    found.push((answer.key.to_vec(), answer.left.to_vec(), right));
                    Ok(())
                };
                let settings = JoinSettings { method, kind: JoinKind::Inner, memory: 4 * MEMORY };
                let report = database.join(inputs, settings, take).await?;
                assert!(report.spilled_bytes > 500_000, "{report:?}");
                found.sort();
                assert!(found.iter().map(|(key, left, right)| (&key[..], &left[..], &right[..])).eq(expected.clone()));
                // A join may end before the last reads ahead do.
                while database.temp_statistics().bytes_in_use > 0 {
                    executor.sleep_ns(base::time::MILLISECOND_NS).await;
                }
            }
            Ok(())
        });
    });
}

#[test]
fn a_power_cut_during_a_sort_loses_nothing_else() {
    let rows = rows(3_000);
    let media = Media::new();
    let machine = |faults| {
        let options = virtual_driver::Options { faults: Some(faults), ..virtual_driver::Options::default() };
        Executor::new(Box::new(VirtualDriver::new(Hardware::ideal(), options, media.clone())), Order::FirstInFirstOut)
    };
    let put = async |database: &Database| {
        let notes = database.create_partition(engine::PartitionSpec::b_tree("notes")).await?;
        database.transaction(async |tx| tx.put(notes, b"milk", b"two litres").await).await
    };
    live(&machine(FaultPlan::default()), async |executor| put(&Database::create(executor, settings()).await?).await);
    for event in (300..900).step_by(50) {
        let executor = machine(FaultPlan { power_cut_at: Some(event), ..FaultPlan::default() });
        let cut: Result<engine::Result<()>, Halt> = executor.run(async {
            let database = Database::open(&executor, settings(), "temp").await?;
            for _ in 0..100 {
                drain(database.sort(Iterated::new(rows.iter().map(|(key, value)| (key, value))), MEMORY).await?)
                    .await?;
            }
            Ok(())
        });
        assert_eq!(cut, Err(Halt::PowerCut));
        executor.stop();
        media.power_cut(&mut Random::stream(event, "power"), &PowerCut::default());
        live(&machine(FaultPlan::default()), async |executor| {
            let database = Database::open(executor, settings(), "temp").await?;
            assert!(!has_file(executor).await);
            let notes = database.partition("notes")?;
            let milk = database.transaction(async |tx| tx.get(notes, b"milk").await).await?;
            assert_eq!(milk.as_deref(), Some(&b"two litres"[..]));
            Ok(())
        });
    }
}
