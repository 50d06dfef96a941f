//! Main memory and a second-level cache of pages that are in one of both are together one buffer under LRU replacement.

use devices::Hardware;
use driver::Driver;
use engine::canary::{Canary, plant};
use engine::catalog::Locking;
use engine::second_level::{self, CacheSettings};
use engine::{Database, Internals, PartitionSpec, Result, Settings, buffer, checkpoint, log};
use entresol_workload::trace::replay::{Replay, organization};
use entresol_workload::trace::stack_distance::StackDistances;
use entresol_workload::trace::{Partition, Reference, Trace, Type};
use entresol_workload::{Length, Load, Plan, Unwatched, run};
use executor::{Executor, Order};
use proptest::prelude::*;
use std::rc::Rc;
use virtual_driver::{Media, Options, VirtualDriver};

/// Transactions of one read of a page each.
fn trace(pages: &[u64]) -> Trace {
    let mut trace = Trace::new();
    let objects = pages.iter().max().expect("it has references") + 1;
    let partition = Partition { name: "p".into(), objects, blocking_factor: 1, locks: Locking::None };
    let partition = trace.add_partition(partition).unwrap();
    trace.add_type(Type { name: "t".into(), rate_per_s: None }).unwrap();
    for object in pages {
        trace.begin(0);
        trace.refer(Reference { partition, write: false, object: *object }).unwrap();
    }
    trace
}

/// Replays the trace with `frames` frames of main memory and `pages` pages behind them: the hits of each.
fn hits(trace: &Trace, frames: usize, pages: u32, clients: u32) -> (u64, u64) {
    let cache = CacheSettings::new("nvem", pages);
    let settings = Settings {
        buffer: buffer::Settings { frames, page_size: 1024, cleaner: false, ..buffer::Settings::default() },
        log: log::Settings { capacity: 1 << 20, ..log::Settings::default() },
        checkpoint: checkpoint::Policy::OFF,
        hierarchy: second_level::Settings { cache: Some(cache), ..second_level::Settings::default() },
        ..Settings::default()
    };
    let hardware = Hardware::named("rahm-1991").expect("it is described");
    let driver: Box<dyn Driver> = Box::new(VirtualDriver::new(hardware, Options::default(), Media::new()));
    let executor = Executor::new(driver, Order::FirstInFirstOut);
    let replay = async || -> Result<(u64, u64)> {
        let database = Database::create(&executor, settings).await?;
        let spec = |partition: &Partition| {
            let organization = organization(partition, 1024);
            Ok(PartitionSpec { assumed: true, ..PartitionSpec::new(&partition.name, organization, partition.locks) })
        };
        let replay = Replay::prepare(&database, Rc::new(trace.clone()), spec).await?;
        let measure = Length::Transactions(trace.len() as u64);
        let plan = Plan { load: Load::Closed { clients }, warm_up: Length::Transactions(0), measure, seed: 1 };
        let measured = run::run(&database, replay, &plan, &mut Unwatched, |measured| measured).await?;
        assert_eq!(measured.transactions, trace.len() as u64);
        let tiers = database.buffer().tiers().expect("there is one");
        tiers.check().expect("consistent");
        let seen = database.statistics().references()[0];
        assert_eq!(seen.hits + seen.misses(), trace.len() as u64);
        Ok((seen.hits, tiers.cache.as_ref().expect("there is one").statistics.reads.get()))
    };
    let hits = executor.run(replay()).expect("the machine goes on").expect("the replay succeeds");
    executor.stop();
    hits
}

/// How many references hit in a list of `frames` pages, the most recently used one last.
fn naive_lru(pages: &[u64], frames: usize) -> u64 {
    let mut list = Vec::new();
    let mut hits = 0;
    for page in pages {
        match list.iter().position(|held| held == page) {
            Some(place) => {
                list.remove(place);
                hits += 1;
            }
            None if list.len() == frames => drop(list.remove(0)),
            None => {}
        }
        list.push(*page);
    }
    hits
}

fn assert_one_buffer(pages: &[u64], frames: usize, behind: u32) {
    let trace = trace(pages);
    let (first, second) = hits(&trace, frames, behind, 1);
    let distances = StackDistances::of_trace(&trace);
    let both = frames + behind as usize;
    assert_eq!(distances.hits(both), naive_lru(pages, both));
    assert_eq!(first, distances.hits(frames), "hits in {frames} frames");
    assert_eq!(first + second, distances.hits(both), "hits in {frames} frames and {behind} pages behind them");
}

#[test]
fn a_cache_of_one_page_has_that_page() {
    let around: Vec<u64> = (0..17).cycle().take(170).collect();
    assert_one_buffer(&around, 16, 1);
    assert_one_buffer(&around, 16, 2);
}

#[test]
fn pages_that_are_held_twice_are_found() {
    let around: Vec<u64> = (0..18).cycle().take(180).collect();
    assert_one_buffer(&around, 16, 2);
    let planted = std::panic::catch_unwind(|| {
        plant(Some(Canary::HeldTwice));
        assert_one_buffer(&around, 16, 2);
    });
    plant(None);
    assert!(planted.is_err());
}

#[test]
fn many_clients_leave_each_page_in_one_place() {
    let mut random = base::Random::stream(1, "pages");
    let pages: Vec<u64> = (0..3_000).map(|_| random.below(60)).collect();
    let trace = trace(&pages);
    for behind in [1, 8, 30] {
        let (first, second) = hits(&trace, 32, behind, 8);
        let (frames, both) = (naive_lru(&pages, 32), naive_lru(&pages, 32 + behind as usize));
        // Clients that meet at the same page or at a full buffer change a little.
        let near = |found: u64, ideal: u64| found.abs_diff(ideal) < 150;
        assert!(near(first, frames) && near(first + second, both), "{behind}: {first} {second}; {frames} {both}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn both_levels_are_one_buffer_under_lru(
        frames in 8..24_usize,
        behind in 1..24_u32,
        skewed in prop::collection::vec((0..60_u64, 0..60_u64), 1..400),
    ) {
        let pages: Vec<u64> = skewed.into_iter().map(|(one, other)| one.min(other)).collect();
        assert_one_buffer(&pages, frames, behind);
    }
}
