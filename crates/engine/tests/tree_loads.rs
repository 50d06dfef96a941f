//! A load of a b-tree that is cut off leaves an empty tree, which is sound.

use base::Random;
use driver::Halt;
use entresol_engine::catalog::{Locking, Organization};
use entresol_engine::{Database, Error, Internals, PartitionSpec, Settings, buffer};
use executor::{Executor, Order};
use virtual_driver::{FaultPlan, Hardware, Media, Options, PowerCut, VirtualDriver};

fn settings() -> Settings {
    Settings { buffer: buffer::Settings { frames: 32, page_size: 1024, ..Default::default() }, ..Settings::default() }
}

/// Runs `work` on a machine whose power goes at this event, if at any.
fn run<T>(media: &Media, power_cut_at: Option<u64>, work: impl AsyncFnOnce(&Executor) -> T) -> Result<T, Halt> {
    let faults = Some(FaultPlan { power_cut_at, ..FaultPlan::default() });
    let mut hardware = Hardware::ideal();
    hardware.device_mut("disk").atomic_write = 512;
    let driver = VirtualDriver::new(hardware, Options { faults, ..Options::default() }, media.clone());
    let executor = Executor::new(Box::new(driver), Order::FirstInFirstOut);
    let result = executor.run(work(&executor));
    executor.stop();
    result
}

fn records() -> impl Iterator<Item = ([u8; 8], [u8; 40])> {
    (0..100_u64).map(|number| (number.to_be_bytes(), [number as u8; 40]))
}

#[test]
fn a_load_cut_off_by_the_power_leaves_an_empty_tree_that_is_sound() {
    let mut left = [0; 2];
    for event in 1.. {
        let media = Media::new();
        let partition = run(&media, None, async |executor| {
            let database = Database::create(executor, settings()).await?;
            let tree = database.create_partition(PartitionSpec::b_tree("notes")).await?;
            database.close().await.map(|()| tree)
        });
        let tree = partition.expect("nothing is cut off").expect("nothing fails");
        let loaded = run(&media, Some(event), async |executor| {
            let database = Database::open(executor, settings(), "here").await?;
            database.load_b_tree(tree, records(), |_| {}).await
        });
        media.power_cut(&mut Random::stream(event, "load"), &PowerCut { lost: 0.0, torn: 1.0 });
        let checked = run(&media, None, async |executor| {
            let database = Database::open(executor, settings(), "here").await?;
            let report = database.check(|_| {}).await?;
            assert!(report.is_clean(), "event {event}: {:?}", report.findings);
            let found = database.transaction(async |tx| tx.get(tree, &7_u64.to_be_bytes()).await).await?;
            left[usize::from(found.is_some())] += 1;
            // Pages that the load has left half written are used again.
            for (key, value) in records() {
                database.transaction(async |tx| tx.put(tree, &key, &value).await).await?;
            }
            Ok::<(), Error>(())
        });
        assert_eq!(checked, Ok(Ok(())), "event {event}");
        if loaded == Ok(Ok(())) {
            break;
        }
    }
    assert!(left[0] > 8 && left[1] > 0, "{left:?}");
}

#[test]
fn records_that_are_too_large_or_out_of_order_are_errors_and_leave_an_empty_tree() {
    let done = run(&Media::new(), None, async |executor| {
        let database = Database::create(executor, settings()).await?;
        let tree = database.create_partition(PartitionSpec::b_tree("notes")).await?;
        let long = [(b"a".to_vec(), vec![0; 10]), (b"b".to_vec(), vec![0; 600])];
        let refused = database.load_b_tree(tree, long, |_| {}).await;
        assert!(matches!(&refused, Err(Error::TooLarge { what: "a loaded value", .. })), "{refused:?}");
        let long = [(vec![b'a'; 900], Vec::new())];
        let refused = database.load_b_tree(tree, long, |_| {}).await;
        assert!(matches!(&refused, Err(Error::TooLarge { what: "a key", .. })), "{refused:?}");
        // The last two lie on different pages.
        for wrong in [2, 57, 99] {
            let number = |at: u64| if at == wrong { wrong - 1 } else { at };
            let unordered = (0..100_u64).map(|at| (number(at).to_be_bytes(), [at as u8; 40]));
            let refused = database.load_b_tree(tree, unordered, |_| {}).await.expect_err("a key comes twice");
            assert!(refused.to_string().contains(&format!("record {}", wrong + 1)), "{refused}");
        }
        database.load_b_tree(tree, records(), |_| {}).await?;
        let found = database.transaction(async |tx| tx.get(tree, &7_u64.to_be_bytes()).await).await?;
        assert_eq!(found, Some(vec![7; 40]));
        assert!(database.check(|_| {}).await?.is_clean());
        Ok::<_, Error>(())
    });
    done.expect("nothing is cut off").expect("nothing else fails");
}

#[test]
fn a_tree_whose_pages_all_count_as_written_is_read_in_as_far_as_it_goes() {
    let done = run(&Media::new(), None, async |executor| {
        let database = Database::create(executor, settings()).await?;
        let spec = PartitionSpec { assumed: true, ..PartitionSpec::b_tree("notes") };
        let notes = database.create_partition(spec).await?;
        database.load_b_tree(notes, records(), |_| {}).await?;
        let file = database.buffer().space(notes);
        let before = file.reads.get();
        database.warm(notes, |_| {}).await?;
        let size = 1024;
        let room = 2 * records().map(|(key, value)| (key.len() + value.len()) as u64).sum::<u64>() / size + 10;
        assert!(file.written() as u64 > 2 * room, "the file has room for more");
        assert!(
            file.reads.get() - before < room,
            "{} pages are read, {room} would hold all records twice",
            file.reads.get() - before
        );
        database.close().await
    });
    done.expect("the machine goes on").expect("succeeds");
}

#[test]
fn only_a_tree_is_loaded_as_one() {
    let done = run(&Media::new(), None, async |executor| {
        let database = Database::create(executor, settings()).await?;
        let objects = Organization::Direct { objects: 100, blocking_factor: 10, record_size: 60 };
        for spec in [
            PartitionSpec::append("appended"),
            PartitionSpec::new("objects", objects, Locking::Page),
            PartitionSpec::set("set"),
        ] {
            let partition = database.create_partition(spec).await?;
            let refused = database.load_b_tree(partition, records(), |_| {}).await;
            assert!(matches!(refused, Err(Error::WrongOrganization { .. })), "{refused:?}");
            database.warm(partition, |_| {}).await?;
        }
        assert!(database.check(|_| {}).await?.is_clean());
        Ok::<_, Error>(())
    });
    done.expect("nothing is cut off").expect("nothing else fails");
}

#[test]
fn a_tree_is_loaded_once_at_a_time() {
    let done = run(&Media::new(), None, async |executor| {
        let database = Database::create(executor, settings()).await?;
        let tree = database.create_partition(PartitionSpec::b_tree("notes")).await?;
        let load = |byte: u8| {
            let database = database.clone();
            let records = (0..2_000_u64).map(move |number| (number.to_be_bytes(), [byte; 40]));
            executor.spawn(async move { database.load_b_tree(tree, records, |_| {}).await })
        };
        let loads = [load(1), load(2)];
        let mut results = Vec::new();
        for load in loads {
            results.push(load.join().await);
        }
        assert_eq!(results, [Ok(()), Err(Error::PartitionInUse("notes".to_owned()))]);
        let mut snapshot = database.snapshot().await?;
        for number in 0..2_000_u64 {
            assert_eq!(snapshot.get(tree, &number.to_be_bytes()).await?, Some(vec![1; 40]), "record {number}");
        }
        let report = database.check(|_| {}).await?;
        assert!(report.is_clean(), "{:?}", report.findings);
        Ok::<(), Error>(())
    });
    done.expect("the machine goes on").expect("works");
}
