//! The protocol against a naive model: random interleavings of what a server and its clients do, with memories that hold version
//! numbers in place of pages. After each step no client may have read what is not the latest committed version, none may write what
//! another reads, and the server must know of every copy; at the end every transaction must have ended.

mod node;
mod world;

use engine::canary::{self, Canary};
use entresol_node::algorithm::ALGORITHMS;
use world::{Plan, World};

/// Runs seeds until one fails; that one's failure.
fn first_failure(seeds: std::ops::Range<u64>, crashes: bool) -> Option<String> {
    seeds.into_iter().find_map(|seed| {
        let algorithm = ALGORITHMS[seed as usize % ALGORITHMS.len()];
        let plan = Plan { algorithm, clients: 3, pages: 2 + seed % 7, transactions: 8, crashes };
        let failure = World::new(plan, seed).run().err()?;
        Some(format!("seed {seed}, {}: {failure}", algorithm.name()))
    })
}

#[test]
fn whatever_the_order_no_read_is_stale_and_every_transaction_ends() {
    assert_eq!(first_failure(0..700, false), None);
}

#[test]
fn clients_that_vanish_take_nothing_with_them() {
    assert_eq!(first_failure(0..700, true), None);
}

#[test]
fn the_same_seed_gives_the_same_course() {
    let course = |seed| {
        let plan = Plan { algorithm: ALGORITHMS[4], clients: 3, pages: 4, transactions: 8, crashes: true };
        let mut world = World::new(plan, seed);
        world.run().expect("it ends well");
        world.steps()
    };
    assert_eq!(course(7), course(7));
}

#[test]
fn the_model_finds_what_is_planted() {
    let planted = [
        Canary::UncalledCopies,
        Canary::UnnumberedCopies,
        Canary::SilentUse,
        Canary::EarlyRelease,
        Canary::KeptArrival,
    ];
    for canary in planted {
        canary::plant(Some(canary));
        let found = std::panic::catch_unwind(|| first_failure(0..700, false));
        canary::plant(None);
        assert!(!matches!(found, Ok(None)), "{canary:?} was not found");
    }
}
