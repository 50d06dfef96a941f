use super::*;
use crate::log::record::Record;
use base::{PageId, PartitionId};
use proptest::prelude::*;
use structures::page::Change;
use structures::undo::Undo;

fn sizes() -> impl Strategy<Value = Vec<usize>> {
    let size = prop_oneof![8 => 16_usize..200, 3 => 200_usize..6_000, 1 => 6_000_usize..300 * 1024];
    prop::collection::vec(size, 1..60)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Records of any size, appended with flushes between them, over two openings, are read back from any boundary.
    #[test]
    fn what_is_appended_is_read(
        sizes in sizes(),
        page_exponent in 7_u32..14,
        pages_per_write in 1_usize..9,
        flush_share in 0.0..0.5_f64,
        seed in 0_u64..1 << 32,
    ) {
        let page_size = 1 << page_exponent;
        let capacity = 24 << 20;
        let settings = Settings { page_size, capacity, write_size_max: page_size * pages_per_write, ..Settings::default() };
        let site = Site::default();
        let mut random = Random::stream(seed, "log");
        let mut model = Vec::new();
        let (first, second) = sizes.split_at(sizes.len() / 2);
        for (opening, sizes) in [first, second].into_iter().enumerate() {
            let machine = site.machine();
            machine.run(async {
                let log = match opening {
                    0 => machine.create(&settings).await,
                    _ => machine.reopen(&settings, Lsn::ZERO).await.1,
                };
                for size in sizes {
                    model.push(append(&log, record_of(&mut random, *size)));
                    if random.chance(flush_share) {
                        log.flush(log.end()).await.expect("written");
                    }
                }
                log.flush(log.end()).await.expect("written");
            });
        }
        let machine = site.machine();
        let from = random.below(model.len() as u64 + 1) as usize;
        machine.run(async {
            let (found, _) = machine.scan(&settings, Lsn::ZERO, Lsn::ZERO).await.expect("sound");
            assert_same(&found, &model);
            let boundary = if from == 0 { Lsn::ZERO } else { model[from - 1].0 };
            let (found, scan) = machine.scan(&settings, boundary, model.last().expect("some").0).await.expect("sound");
            assert_same(&found, &model[from..]);
            assert_eq!(scan.end(), model.last().expect("some").0);
        });
    }
}

#[test]
fn an_encoded_record_comes_back_decoded() {
    let site = Site::default();
    let machine = site.machine();
    let settings = small_settings();
    machine.run(async {
        let log = machine.create(&settings).await;
        let page = PageId::new(PartitionId(2), 7);
        let edit = Edit { page, change: Change::Patch { offset: 64, bytes: &[5; 700] } };
        let undo = Undo::PatchPage { page, offset: 64, bytes: &[4; 700] }.stored();
        let body = Body::Update(&undo);
        let update = log.append(TransactionId(9), &body, [(3, &edit)]);
        let commit = log.append(TransactionId(9), &Body::Commit { chains: &[], changes: &[] }, []);
        assert!(update < commit && commit == log.end());
        log.commit(commit).await.expect("durable");
        assert!(log.durable() >= commit);
        drop(log);
        let (found, _) = machine.scan(&settings, Lsn::ZERO, commit).await.expect("sound");
        let first = Record::decode(&found[0].bytes).expect("sound");
        assert_eq!((first.transaction, first.body), (TransactionId(9), body));
        assert_eq!(first.edits().collect::<Vec<_>>(), [(3, edit)]);
        assert_eq!(Record::decode(&found[1].bytes).expect("sound").body, Body::Commit { chains: &[], changes: &[] });
    });
}

/// Not all that a database changes by itself is in its log: the superblock may say more than its records, and never beyond its end.
#[test]
fn up_to_where_a_database_has_changed_something_by_itself_is_what_it_knew_or_finds() {
    let site = Site::default();
    let machine = site.machine();
    let settings = small_settings();
    machine.run(async {
        let log = machine.create(&settings).await;
        let of_node = || log.append(TransactionId(8), &Body::RolledBack, []);
        let before = of_node();
        let own = log.append(TransactionId(9), &Body::Commit { chains: &[], changes: &[] }, []);
        let (between, end) = (of_node(), of_node());
        assert_eq!(log.changed_alone(), own);
        log.flush(end).await.expect("written");
        drop(log);
        for (known, wanted) in [(before, own), (own, own), (between, between), (end, end), (Lsn(end.0 + 900), end)] {
            let scan = LogScan::open(&machine.executor, machine.device, &settings, Lsn::ZERO, Lsn::ZERO).await;
            let mut scan = scan.expect("sound").changed_alone_before(Some(known));
            while scan.next().await.expect("sound").is_some() {}
            assert_eq!(scan.finish().changed_alone(), wanted, "{known} was known");
        }
    });
}

/// The log goes around its file many times; what was truncated is gone, what was not is there.
#[test]
fn the_file_is_reused_after_truncation() {
    let site = Site::default();
    let settings = Settings { capacity: 37 * 512, ..small_settings() };
    let mut random = Random::stream(4, "wrap");
    let mut model: Vec<(Lsn, Vec<u8>)> = Vec::new();
    let mut from = Lsn::ZERO;
    let mut laps = 0;
    for opening in 0..6 {
        let machine = site.machine();
        machine.run(async {
            let log = match opening {
                0 => machine.create(&settings).await,
                _ => {
                    let (found, log) = machine.reopen(&settings, from).await;
                    assert_same(&found, &model);
                    log
                }
            };
            for _ in 0..400 {
                if log.is_crowded() {
                    let keep = random.below(model.len() as u64) as usize;
                    from = model[keep].0.min(log.durable());
                    log.truncate(from);
                    model.retain(|(end, _)| *end > from);
                }
                let size = random.between(16, 1_200) as usize;
                model.push(append(&log, record_of(&mut random, size)));
                if random.chance(0.4) {
                    log.flush(log.end()).await.expect("written");
                }
                assert!(log.used() <= log.capacity());
                assert!(log.oldest() <= from || from == Lsn::ZERO);
            }
            log.flush(log.end()).await.expect("written");
            laps = log.end().0 / log.capacity();
        });
    }
    assert!(laps > 20, "{laps} laps");
}

#[test]
fn settings_out_of_range_are_refused() {
    let site = Site::default();
    let machine = site.machine();
    let refused = [
        Settings { page_size: 100, ..small_settings() },
        Settings { page_size: 512 + 64, ..small_settings() },
        Settings { capacity: 7 * 512, ..small_settings() },
        Settings { capacity: 64 * 512 + 1, ..small_settings() },
        Settings { write_size_max: 700, ..small_settings() },
        Settings { writes_in_flight_max: Some(0), ..small_settings() },
        Settings { reserve: 1.0, ..small_settings() },
        Settings { group_commit: GroupCommit::Size { transactions: 0, delay_ns_max: 1 }, ..small_settings() },
    ];
    machine.run(async {
        for settings in refused {
            let result = Log::create(&machine.executor, DEVICE, &settings).await;
            assert!(matches!(result, Err(Error::Setting(_))), "{settings:?}");
        }
        machine.create(&small_settings()).await;
        let other = Settings { page_size: 1024, write_size_max: 1024, ..small_settings() };
        let error = machine.scan(&other, Lsn::ZERO, Lsn(2000)).await.map(|_| ()).expect_err("other pages");
        assert!(matches!(error, Error::DamagedLog { .. }), "{error}");
    });
}
