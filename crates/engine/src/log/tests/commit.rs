use super::*;
use base::time::{MILLISECOND_NS, SECOND_NS};
use driver::OpKind;
use virtual_driver::ErrorAt;

const POLICIES: [GroupCommit; 6] = [
    GroupCommit::None,
    GroupCommit::Adaptive,
    GroupCommit::Paced,
    GroupCommit::Size { transactions: 4, delay_ns_max: 1_000_000 },
    GroupCommit::Delay { ns: 300_000 },
    GroupCommit::Page { delay_ns_max: 300_000 },
];

/// Lets `clients` tasks each commit `rounds` records. Returns what each commit got, in the order of their return.
fn commit_all(machine: &Machine, log: &Rc<Log>, clients: u64, rounds: u64) -> Vec<(Lsn, Result<()>)> {
    let results = Rc::new(RefCell::new(Vec::new()));
    let handles: Vec<_> = (0..clients)
        .map(|client| {
            let (log, results) = (Rc::clone(log), Rc::clone(&results));
            machine.executor.spawn(async move {
                for round in 0..rounds {
                    let body = Body::Commit { chains: &[0; 32], changes: &[] };
                    let lsn = log.append(TransactionId(client * rounds + round), &body, []);
                    let result = log.commit(lsn).await;
                    assert!(result.is_err() || !log.settings.durable || log.durable() >= lsn);
                    results.borrow_mut().push((lsn, result));
                }
            })
        })
        .collect();
    machine.run(async {
        for handle in handles {
            handle.join().await;
        }
    });
    results.take()
}

#[test]
fn every_policy_and_sync_method_commits_in_order() {
    for group_commit in POLICIES {
        for sync_method in [SyncMethod::SyncWrite, SyncMethod::WriteThenSync] {
            let settings =
                Settings { group_commit, sync_method: Some(sync_method), capacity: 1 << 20, ..small_settings() };
            let site = Site::default();
            let machine = site.machine();
            let log = machine.run(machine.create(&settings));
            let results = commit_all(&machine, &log, 10, 20);
            assert!(results.len() == 200 && results.iter().all(|(_, result)| result.is_ok()));
            assert!(results.is_sorted_by_key(|(lsn, _)| *lsn), "{group_commit:?}: acknowledged in log order");
            let statistics = log.statistics();
            assert_eq!((statistics.commits, statistics.records, statistics.group_commits), (200, 200, 200));
            assert_eq!(statistics.record_bytes, 200 * 52);
            assert!(statistics.writes >= statistics.commit_writes);
            match group_commit {
                GroupCommit::None => assert_eq!(statistics.group_size_max, 1),
                GroupCommit::Size { .. } => assert!(statistics.group_size_mean() >= 4.0),
                _ => assert!(statistics.group_size_mean() > 1.5, "{}", statistics.group_size_mean()),
            }
            assert_eq!(statistics.syncs > 0, sync_method == SyncMethod::WriteThenSync);
            let (found, _) = machine.run(machine.scan(&settings, Lsn::ZERO, log.durable())).expect("sound");
            assert_eq!(found.len(), 200);
        }
    }
}

#[test]
fn without_grouping_each_commit_writes_one_page_and_pays_for_it() {
    let settings = Settings { group_commit: GroupCommit::None, capacity: 1 << 20, ..small_settings() };
    let site = Site::default();
    let machine = site.machine();
    let log = machine.run(machine.create(&settings));
    machine.executor.record_steps();
    commit_all(&machine, &log, 5, 10);
    let statistics = log.statistics();
    assert_eq!((statistics.writes, statistics.bytes_written), (50, 50 * 512));
    use executor::Step;
    let steps = machine.executor.take_steps();
    let count = |step| steps.iter().filter(|other| **other == step).count();
    assert_eq!(count(Step::Work(driver::Work::InputOutput)), 50);
    assert_eq!(count(Step::Op(OpKind::Write)), 50);
}

#[test]
fn writes_that_hold_the_processor_come_one_after_the_other() {
    let mut hardware = Hardware::named("rahm-1991").expect("embedded");
    hardware.cpu.as_mut().expect("described").count = 1;
    let driver = VirtualDriver::new(hardware, Options::default(), Media::new());
    let executor = Executor::new(Box::new(driver), Order::FirstInFirstOut);
    let device = executor.device("nvem").expect("as described");
    let machine = Machine { executor, device, trusts_second_alone: false, believes_commits: false };
    let settings = Settings { capacity: 1 << 20, ..Settings::default() };
    let log = machine.run(machine.create(&settings));
    let clients: Vec<_> = (0..16_u64)
        .map(|client| {
            let (log, executor) = (Rc::clone(&log), machine.executor.clone());
            machine.executor.spawn(async move {
                for round in 0..20 {
                    executor.charge_instructions(1_000);
                    executor.pay_debt().await;
                    let lsn = log.append(TransactionId(client * 20 + round), &Body::RolledBack, []);
                    assert!(log.inner.borrow().batches.in_flight() <= 1);
                    log.commit(lsn).await.expect("commits");
                }
            })
        })
        .collect();
    machine.run(async {
        for client in clients {
            client.join().await;
        }
    });
    // Twenty microseconds of work a commit, fifty of device a write: commits that arrive during one write share the next.
    assert!(log.statistics().group_size_mean() > 4.0, "{}", log.statistics().group_size_mean());
}

/// Clients that come one by one, as threads do, commit on a device that takes 100 us for a write. Returns the mean size of a group and
/// the longest wait, in nanoseconds.
fn come_one_by_one(group_commit: GroupCommit, clients: u64, pause_ns: u64) -> (f64, u64) {
    let mut hardware = Hardware::named("nvme-2026").expect("embedded");
    hardware.devices = hardware.devices.into_values().map(|device| (DEVICE.to_owned(), device)).collect();
    let driver = VirtualDriver::new(hardware, Options::default(), Media::new());
    let executor = Executor::new(Box::new(driver), Order::FirstInFirstOut);
    let device = executor.device(DEVICE).expect("as described");
    let machine = Machine { executor, device, trusts_second_alone: false, believes_commits: false };
    let settings = Settings { group_commit, capacity: 1 << 28, ..Settings::default() };
    let log = machine.run(machine.create(&settings));
    let longest = Rc::new(Cell::new(0));
    let clients: Vec<_> = (0..clients)
        .map(|client| {
            let (log, executor, longest) = (Rc::clone(&log), machine.executor.clone(), Rc::clone(&longest));
            let mut random = Random::stream(client, "pause");
            machine.executor.spawn(async move {
                for round in 0..200 {
                    executor.sleep_ns(random.between(pause_ns / 2, 3 * pause_ns / 2)).await;
                    let lsn = log.append(TransactionId(client * 200 + round), &Body::RolledBack, []);
                    let began = executor.now();
                    log.commit(lsn).await.expect("commits");
                    longest.set(longest.get().max(executor.now().since_ns(began)));
                }
            })
        })
        .collect();
    machine.run(async {
        for client in clients {
            client.join().await;
        }
    });
    (log.statistics().group_size_mean(), longest.get())
}

#[test]
fn paced_writes_have_more_commits_and_none_waits_for_long() {
    let (adaptive, adaptive_ns) = come_one_by_one(GroupCommit::Adaptive, 64, 200_000);
    let (paced, paced_ns) = come_one_by_one(GroupCommit::Paced, 64, 200_000);
    assert!(paced > 1.5 * adaptive, "{paced} beside {adaptive}");
    assert!(paced_ns <= adaptive_ns + 150_000, "{paced_ns} ns beside {adaptive_ns} ns");
    // Few clients, and many that come seldom, are served as before.
    for (clients, pause_ns) in [(1, 10_000), (2, 10_000), (4, 10_000), (64, 10_000_000)] {
        let [adaptive, paced] =
            [GroupCommit::Adaptive, GroupCommit::Paced].map(|policy| come_one_by_one(policy, clients, pause_ns));
        assert!(paced.1 <= adaptive.1 + adaptive.1 / 4, "{clients}: {paced:?} beside {adaptive:?}");
    }
}

#[test]
fn a_dropped_commit_leaves_its_write_to_the_writer() {
    let mut hardware = Hardware::named("rahm-1991").expect("embedded");
    let name = hardware.devices.keys().next().expect("devices").clone();
    hardware.device_mut(&name).synchronous = false;
    let driver = VirtualDriver::new(hardware, Options::default(), Media::new());
    let executor = Executor::new(Box::new(driver), Order::FirstInFirstOut);
    let device = executor.device(&name).expect("as described");
    let machine = Machine { executor, device, trusts_second_alone: false, believes_commits: false };
    let settings = Settings { group_commit: GroupCommit::None, capacity: 1 << 20, ..Settings::default() };
    machine.run(async {
        let log = machine.create(&settings).await;
        let lsn = log.append(TransactionId(1), &Body::RolledBack, []);
        {
            let mut commit = Box::pin(log.commit(lsn));
            let first = poll_fn(|context| Poll::Ready(commit.as_mut().poll(context))).await;
            assert!(first.is_pending(), "it pays for its write first");
            assert_eq!(log.inner.borrow().batches.in_flight(), 0);
        }
        log.wait_durable(lsn).await.expect("written all the same");
    });
}

#[test]
fn after_a_failed_write_or_sync_no_commit_succeeds() {
    let failures = [
        (OpKind::Write, 10, SyncMethod::SyncWrite),
        (OpKind::Write, 10, SyncMethod::WriteThenSync),
        (OpKind::Sync, 4, SyncMethod::WriteThenSync),
    ];
    for (kind, nth, sync_method) in failures {
        for group_commit in POLICIES {
            let settings =
                Settings { group_commit, sync_method: Some(sync_method), capacity: 1 << 20, ..small_settings() };
            let errors = vec![ErrorAt { kind, device: None, nth }];
            let faults = Some(FaultPlan { errors, ..FaultPlan::default() });
            let site = Site::default();
            let machine = site.machine_with(Options { faults, ..Options::default() }, Order::FirstInFirstOut);
            let log = machine.run(machine.create(&settings));
            let results = commit_all(&machine, &log, 6, 30);
            let durable = log.durable();
            assert_eq!(results.len(), 180);
            for (lsn, result) in &results {
                assert_eq!(result.is_ok(), *lsn <= durable, "{lsn}");
            }
            let failed = results.iter().position(|(_, result)| result.is_err()).expect("one failed");
            assert!(failed > 0, "some commits came before the failure");
            assert!(matches!(&results[failed].1, Err(Error::LogFailed(why)) if why.contains("'log'")));
            machine.run(async {
                assert!(log.flush(log.end()).await.is_err() && log.failure().is_some());
                assert_eq!(log.flush(durable).await, Ok(()));
            });
            drop((log, machine));

            let machine = site.machine();
            let (found, log) = machine.run(machine.reopen(&settings, Lsn::ZERO));
            assert!(found.last().is_some_and(|last| last.end >= results[failed - 1].0 && last.end.0 + 512 > durable.0));
            assert!(commit_all(&machine, &log, 2, 2).iter().all(|(_, result)| result.is_ok()));
        }
    }
}

#[test]
fn a_full_log_holds_work_back_and_fails_rather_than_overwrite() {
    let site = Site::default();
    let machine = site.machine();
    let settings = small_settings();
    machine.run(async {
        let log = machine.create(&settings).await;
        let fill = |log: &Log| {
            let mut random = Random::stream(1, "fill");
            log.append_encoded(&record_of(&mut random, 400))
        };
        while !log.is_crowded() {
            let lsn = fill(&log);
            log.commit(lsn).await.expect("durable");
        }
        assert!(log.used() > log.capacity() * 7 / 10 && log.used() < log.capacity() * 8 / 10);
        let waiter = machine.executor.spawn({
            let log = Rc::clone(&log);
            async move { log.throttle().await }
        });
        machine.executor.sleep_ns(1_000_000).await;
        assert!(!waiter.is_finished());
        log.truncate(log.durable());
        assert_eq!(waiter.join().await, Ok(()));

        let oldest = log.oldest();
        let failed = loop {
            let lsn = fill(&log);
            if let Err(error) = log.commit(lsn).await {
                break error;
            }
        };
        assert!(failed.to_string().contains("full"), "{failed}");
        assert!(log.durable().0 - oldest.0 <= log.capacity());
        assert!(log.durable().0 - oldest.0 > log.capacity() * 9 / 10);
        assert!(log.throttle().await.is_err());
    });
}

#[test]
fn without_durability_commits_return_at_once_and_are_written_later() {
    let site = Site::default();
    let machine = site.machine();
    let settings = Settings { durable: false, capacity: 1 << 20, ..small_settings() };
    machine.run(async {
        let log = machine.create(&settings).await;
        let before = machine.executor.now();
        let lsn = log.append(TransactionId(1), &Body::Commit { chains: &[], changes: &[] }, []);
        log.commit(lsn).await.expect("nothing to wait for");
        assert!(machine.executor.now() == before && log.written() < lsn);
        log.executor.sleep_ns(LAZY_WRITE_NS + MILLISECOND_NS).await;
        assert!(log.written() >= lsn && log.durable() < lsn, "written by itself, and not synced");
        log.executor.sleep_ns(LAZY_SYNC_NS).await;
        assert!(log.durable() >= lsn && log.statistics().syncs == 1, "synced by itself");
        assert!(machine.executor.now().since_ns(before) < SECOND_NS);
    });
}

#[test]
fn without_durability_what_is_demanded_is_synced_at_once() {
    for second in [None, Some(Acknowledged::Both), Some(Acknowledged::First)] {
        let site = Site::default();
        let machine = site.machine();
        let two = second.map(|acknowledged| Second { device: SECOND.to_owned(), acknowledged });
        let settings = Settings { durable: false, second: two, ..small_settings() };
        machine.run(async {
            let log = machine.create(&settings).await;
            for round in 1..=3 {
                let before = machine.executor.now();
                let lsn = log.append(TransactionId(round), &Body::Commit { chains: &[], changes: &[] }, []);
                log.flush(lsn).await.expect("demanded");
                assert!(log.durable() >= lsn && log.written() >= lsn);
                assert!(machine.executor.now().since_ns(before) < LAZY_WRITE_NS, "nothing else is waited for");
                log.truncate(lsn);
            }
            assert!(log.oldest() > log.opened_at(), "what is durable is given up");
        });
    }
}

#[test]
fn an_idle_log_needs_nothing_and_a_dropped_one_ends_its_writer() {
    let site = Site::default();
    let machine = site.machine();
    let log = machine.run(machine.create(&small_settings()));
    let weak = Rc::downgrade(&log);
    let idle = machine.executor.run(std::future::pending::<()>());
    assert_eq!(idle, Err(Halt::Idle));
    drop(log);
    assert!(weak.upgrade().is_none());
    machine.run(machine.executor.yield_now());
}
