use super::keys::{self, Key};
use super::*;
use crate::ground;
use crate::{Length, Load, Plan, Unwatched, run};
use engine::PartitionSpec;
use virtual_driver::Hardware;

#[test]
fn keys_are_those_of_the_original() {
    // Computed by the original's Utils.hash of site.ycsb.
    assert_eq!(Key::of(0).as_bytes(), b"user6284781860667377211");
    assert_eq!(Key::of(1).as_bytes(), b"user8517097267634966620");
    assert_eq!(Key::of_hash(0).as_bytes(), b"user0");
}

#[test]
fn hashes_are_ordered_as_their_keys() {
    let mut random = Random::stream(1, "hashes");
    let hashes: Vec<u64> = (0..500).map(|at| (random.word() >> 1) >> (at % 63)).collect();
    for [first, second] in hashes.array_windows() {
        let by_key = Key::of_hash(*first).as_bytes().cmp(Key::of_hash(*second).as_bytes());
        assert_eq!(keys::rank(*first).cmp(&keys::rank(*second)), by_key, "{first} and {second}");
    }
}

#[test]
fn insertions_are_seen_up_to_the_first_that_has_not_ended() {
    let inserted = Inserted::new(10);
    assert_eq!([inserted.next(), inserted.next(), inserted.next()], [10, 11, 12]);
    for (number, visible) in [(11, 10), (12, 10), (10, 13), (10, 13)] {
        inserted.acknowledge(number);
        assert_eq!(inserted.visible.get(), visible);
    }
    assert!(inserted.ahead.borrow().is_empty());
}

#[test]
fn every_mix_runs_and_its_operations_have_their_shares() {
    let mut settings = ground::settings(600);
    settings.buffer.page_size = 8192;
    ground::with(Hardware::ideal(), settings, async |database| {
        let spec = PartitionSpec::b_tree(USERTABLE);
        load(&database, spec, 1_000, |_| {}).await?;
        let table = database.partition(USERTABLE)?;
        let mut present = records(&database).await?;
        assert_eq!(present, 1_000);
        for mix in Mix::ALL {
            let plan = Plan {
                load: Load::Closed { clients: 8 },
                warm_up: Length::Transactions(10),
                measure: Length::Transactions(2_000),
                seed: 1,
            };
            let workload = Ycsb::new(table, mix, present);
            let measured = run::run(&database, workload, &plan, &mut Unwatched, |measured| measured).await?;
            assert_eq!(measured.transactions, 2_000);
            for (found, (kind, share)) in measured.types.iter().zip(mix.operations()) {
                let part = found.response.count() as f64 / 2_000.0;
                assert!((part - share).abs() < 0.04, "{mix:?}: {part} {}", kind.name());
            }
            present = records(&database).await?;
        }
        // Workloads D and E insert 5 % of about 2,010 each.
        assert!((1_140..1_270).contains(&present), "{present}");
        Ok(())
    });
}
