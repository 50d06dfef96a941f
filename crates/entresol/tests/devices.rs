//! Databases on this machine's devices of other kinds: mapped into memory, and behaving by a description.
#![allow(clippy::disallowed_methods, reason = "the test writes descriptions")]

use entresol::configuration::Configuration;
use entresol::{BackupSettings, DatabaseThread, ElsewhereError, Error, OpenError, Opening, PartitionSpec, Store};
use executor::WholeExecutor;
use std::path::Path;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

fn scratch() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory")
}

/// The log and the partition `hot` on the device `nvem`, the partition `cold` on the disk.
fn open(directory: &Path, nvem: &str) -> Store {
    let text = format!(
        "[buffer]\nsize = \"1 MiB\"\n[log]\ndevice = \"nvem\"\nsize = \"4 MiB\"\n[partition.hot]\ndevice = \"nvem\"\n\
         [device.nvem]\npath = \"{}\"\n{nvem}\n",
        directory.join("nvem").display()
    );
    let configuration = Configuration::parse(&text).expect("right");
    Opening::new(directory.join("data"), configuration).open().expect("opens")
}

fn key(number: u64) -> [u8; 8] {
    number.to_be_bytes()
}

/// Two openings with transactions on both partitions; the second ends without closing and the third finds everything.
fn openings(directory: &Path, nvem: &str) {
    for opening in 0..3_u64 {
        let store = open(directory, nvem);
        assert!(
            store.executor().whole().description().contains("nvem in"),
            "{}",
            store.executor().whole().description()
        );
        store
            .run(async |database| {
                if opening == 0 {
                    for name in ["hot", "cold"] {
                        let device = if name == "hot" { "nvem" } else { "disk" };
                        let spec = PartitionSpec { device: device.into(), ..PartitionSpec::b_tree(name) };
                        database.create_partition(spec).await?;
                    }
                }
                let (hot, cold) = (database.partition("hot")?, database.partition("cold")?);
                for number in 0..opening * 50 {
                    let found = database.transaction(async |tx| {
                        let in_hot = tx.get_with(hot, &key(number), |value| value.map(<[u8]>::to_vec)).await?;
                        let in_cold = tx.get_with(cold, &key(number), |value| value.map(<[u8]>::to_vec)).await?;
                        Ok::<_, entresol::Error>((in_hot, in_cold))
                    });
                    let value = Some(vec![number as u8; 300]);
                    assert_eq!(found.await?, (value.clone(), value), "record {number} in opening {opening}");
                }
                for number in opening * 50..(opening + 1) * 50 {
                    let value = [number as u8; 300];
                    let put = database.transaction(async |tx| {
                        tx.put(hot, &key(number), &value).await?;
                        tx.put(cold, &key(number), &value).await
                    });
                    put.await?;
                }
                Ok(())
            })
            .expect("the store works");
        if opening != 1 {
            store.close().expect("closes");
        }
    }
}

#[test]
fn a_mapped_device_holds_log_and_partition_through_restarts() {
    openings(scratch().path(), "kind = \"mapped\"");
}

#[test]
fn a_mapped_device_shows_the_delays_of_its_description() {
    openings(scratch().path(), "kind = \"mapped\"\ndescribed = \"rahm-1991:nvem\"");
}

#[test]
fn a_plain_device_shows_the_delays_of_its_description() {
    openings(scratch().path(), "described = \"rahm-1991:ssd\"\ncache = \"none\"");
}

/// A database with a device that takes this long for each of its requests, and a limit of a second.
fn beside_slow(directory: &Path, service: &str) -> Opening {
    let slow = directory.join("slow.toml");
    let text = format!("[device.slow]\nmedium.service = \"{service}\"\nsync = \"0 us\"\n");
    std::fs::write(&slow, text).expect("writes");
    let text = format!(
        "[buffer]\nsize = \"1 MiB\"\n[log]\nsize = \"4 MiB\"\n[driver]\nanswer_at_most = \"1 s\"\n\
         [device.slow]\ndescribed = \"{}\"\npath = \"{}\"\n",
        slow.display(),
        directory.join("slow").display()
    );
    Opening::new(directory.join("data"), Configuration::parse(&text).expect("right"))
}

#[test]
fn a_device_that_leaves_a_request_unanswered_for_longer_than_it_may_ends_all_that_waits() {
    let directory = scratch();
    let opening = |service| beside_slow(directory.path(), service);
    let server = DatabaseThread::start(opening("15 min")).expect("opens");
    let handle = server.handle();
    let quick = handle.create_partition(PartitionSpec::b_tree("quick")).wait().expect("creates");
    handle.put(quick, b"milk", b"two litres").wait().expect("puts");
    let spec = PartitionSpec { device: "slow".into(), ..PartitionSpec::b_tree("late") };
    let late = handle.create_partition(spec).wait().expect("creates");
    handle.put(late, b"bread", b"one").wait().expect("the log has it");
    let checkpoint = handle.with_database(async |database| database.checkpoint().await);
    let error = checkpoint.wait().expect_err("the device does not answer");
    let Error::Input(fault) = &error else { panic!("{error}") };
    assert!(fault.message.contains("device 'slow' has left"), "{error}");
    assert_eq!(handle.get(quick, b"milk").wait(), Err(error));
    assert!(matches!(server.close(), Err(OpenError::Machine(_))));
    let server = DatabaseThread::start(opening("1 us")).expect("opens");
    assert_eq!(server.handle().get(quick, b"milk").wait().expect("reads").as_deref(), Some(&b"two litres"[..]));
    server.close().expect("closes");
}

#[test]
fn who_asks_a_store_from_outside_is_told_which_device_has_ended_it() {
    let directory = scratch();
    let opening = beside_slow(directory.path(), "15 min");
    let asking = opening.clone();
    let store = opening.open().expect("opens");
    let settings = BackupSettings {
        target: directory.path().join("backup").display().to_string(),
        base: None,
        bytes_per_second: None,
    };
    store
        .run(async |database| {
            let spec = PartitionSpec { device: "slow".into(), ..PartitionSpec::b_tree("late") };
            let late = database.create_partition(spec).await?;
            database.transaction(async |tx| tx.put(late, b"bread", b"one").await).await
        })
        .expect("the log has it");
    // It begins with a checkpoint.
    let asking = std::thread::spawn(move || asking.back_up_elsewhere(&settings, |_| {}));
    let ended = store.run(async |database| {
        database.executor().sleep_ns(60_000_000_000).await;
        Ok(())
    });
    assert!(matches!(&ended, Err(OpenError::Machine(_))), "{ended:?}");
    drop(store);
    let refused = asking.join().expect("it does not panic");
    let is_told = matches!(&refused, Err(OpenError::Elsewhere(ElsewhereError::Failed { detail, .. })) if detail.contains("device 'slow' has left"));
    assert!(is_told, "{refused:?}");
}

/// An opening reads both logs, and does without none of them.
#[test]
fn an_opening_is_given_up_where_one_of_two_logs_does_not_answer() {
    let directory = scratch();
    let slow = directory.path().join("slow.toml");
    let describe = |service: &str| {
        let text = format!("[device.slow]\nmedium.service = \"{service}\"\nsync = \"0 us\"\n");
        std::fs::write(&slow, text).expect("writes");
    };
    let text = format!(
        "[buffer]\nsize = \"1 MiB\"\n[log]\nsize = \"4 MiB\"\nsecond_device = \"slow\"\n[driver]\nanswer_at_most = \"1 s\"\n\
         [device.slow]\ndescribed = \"{}\"\npath = \"{}\"\n",
        slow.display(),
        directory.path().join("slow").display()
    );
    let opening = || Opening::new(directory.path().join("data"), Configuration::parse(&text).expect("right"));
    describe("1 us");
    DatabaseThread::start(opening()).expect("opens").close().expect("closes");
    describe("15 min");
    let (sender, ended) = mpsc::channel();
    let silent = opening();
    thread::spawn(move || sender.send(DatabaseThread::start(silent).map(|_| ())));
    match ended.recv_timeout(Duration::from_secs(60)).expect("it ends") {
        Err(OpenError::Machine(fault)) => {
            assert!(fault.message.contains("device 'slow' has left"), "{}", fault.message)
        }
        other => panic!("{other:?}"),
    }
    describe("1 us");
    DatabaseThread::start(opening()).expect("opens").close().expect("closes");
}
