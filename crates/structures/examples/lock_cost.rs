//! Prints what locks cost without contention: nanoseconds per pair of request and release.
//!
//! `cargo run --release -p entresol-structures --example lock_cost`

use base::{Lsn, PartitionId, Random};
use entresol_structures::lock::{LockTable, Mode, Outcome, Owner, Resource, VictimPolicy};
use std::hint::black_box;

/// Pairs in a round, and rounds; the fastest round is printed.
const PAIRS: u64 = 200_000;
const ROUNDS: usize = 20;

/// Runs transactions of `locks` locks each on records below `records`, with `others` locks held by others meanwhile.
fn ns_per_pair(locks: u64, records: u64, others: u64, again: bool) -> f64 {
    let mut table = LockTable::new(VictimPolicy::Requester);
    let mut woken = Vec::new();
    for number in 0..others {
        let held = table.request(Owner(1), Resource::record(PartitionId(9), number), Mode::Exclusive, 0);
        assert_eq!(held, Outcome::Granted);
    }
    let mut random = Random::stream(1, "records");
    let numbers: Vec<u64> = (0..4096).map(|_| random.below(records)).collect();
    let rounds = (0..ROUNDS).map(|_| round(&mut table, &numbers, locks, again, &mut woken));
    rounds.min_by(f64::total_cmp).expect("a round")
}

#[allow(clippy::disallowed_methods, reason = "a measurement on the machine's own clock")]
fn round(table: &mut LockTable, numbers: &[u64], locks: u64, again: bool, woken: &mut Vec<Owner>) -> f64 {
    let start = std::time::Instant::now();
    let (transactions, mut next) = (PAIRS / locks, 0);
    for transaction in 0..transactions {
        for _ in 0..locks {
            let resource = Resource::record(PartitionId(1), numbers[next % numbers.len()]);
            next += 1;
            let _ = black_box(table.request(Owner(0), black_box(resource), Mode::Exclusive, transaction));
            if again {
                let _ = black_box(table.request(Owner(0), black_box(resource), Mode::Shared, transaction));
            }
        }
        table.release_all_stamped(Owner(0), Lsn(transaction), woken);
    }
    assert!(woken.is_empty());
    start.elapsed().as_nanos() as f64 / (transactions * locks) as f64
}

fn main() {
    for (name, locks, records, others) in [
        ("4 locks, empty table", 4, 1 << 40, 0),
        ("4 locks of 100 records", 4, 100, 0),
        ("4 locks beside 1,000", 4, 1 << 40, 1_000),
        ("4 locks beside 100,000", 4, 1 << 40, 100_000),
        ("100 locks, empty table", 100, 1 << 40, 0),
    ] {
        let pair = ns_per_pair(locks, records, others, false);
        let again = ns_per_pair(locks, records, others, true) - pair;
        println!("{name:<24} {pair:5.1} ns per pair, {again:4.1} ns for what is held already");
    }
}
