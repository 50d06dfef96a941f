//! The replay of a trace, counted: as many transactions as are to be measured, and, by one client, as many hits as the references
//! allow.
//!
//! A buffer and a cache that hold each page once are together one buffer under LRU replacement (Rahm 1991, section 3.2), so a plain
//! list says what both must hit.

use base::Random;
use devices::Hardware;
use engine::catalog::Locking;
use engine::second_level::{self, CacheSettings};
use engine::{Database, Internals, PartitionSpec, Result, Settings, buffer, checkpoint, log};
use executor::{Executor, Order};
use std::rc::Rc;
use virtual_driver::{Media, Options, VirtualDriver};
use workload::trace::replay::{Replay, organization};
use workload::trace::{Partition, Reference, Trace, Type};
use workload::{Length, Load, Plan, Unwatched, run};

/// What was counted, or should have been.
#[derive(Debug, PartialEq, Eq)]
struct Counts {
    transactions: u64,
    references: u64,
    /// In main memory.
    hits: u64,
    /// In main memory and in the cache.
    both: u64,
}

/// What is wrong with the replay of this seed's trace.
pub fn wrong(seed: u64) -> Option<String> {
    let mut random = Random::stream(seed, "replay");
    let (frames, behind) = (random.between(8, 24), random.between(1, 24));
    let span = random.between(frames, frames + 2 * behind);
    let is_cycle = random.chance(0.3);
    let pages: Vec<u64> =
        (0..random.between(1, 300)).map(|number| if is_cycle { number % span } else { random.below(span) }).collect();
    // Most often there is more of it than is measured.
    let measured = random.between(1, pages.len() as u64) as usize;
    let pages_measured = &pages[..measured];
    let transactions = measured as u64;
    let clients = if random.chance(0.5) { 1 } else { random.between(2, frames / 2) as u32 };
    let (hits, both) = (list_hits(pages_measured, frames), list_hits(pages_measured, frames + behind));
    let mut expected = Counts { transactions, references: transactions, hits, both };
    let found = counted(&pages, (clients, transactions), (frames, behind));
    if let Ok(found) = &found
        && clients > 1
    {
        // Clients that meet at a page change what the others find.
        (expected.hits, expected.both) = (found.hits, found.both);
    }
    match found {
        Ok(found) if found == expected => None,
        found => Some(format!("{clients} clients, {frames} frames, {behind} pages: {found:?}, not {expected:?}")),
    }
}

/// How many references hit in a list of this length, the page used last at its end.
fn list_hits(pages: &[u64], length: u64) -> u64 {
    let mut list = Vec::new();
    let mut hits = 0;
    for page in pages {
        match list.iter().position(|held| held == page) {
            Some(place) => {
                list.remove(place);
                hits += 1;
            }
            None if list.len() as u64 == length => drop(list.remove(0)),
            None => {}
        }
        list.push(*page);
    }
    hits
}

/// Transactions of one read of a page each.
fn trace(pages: &[u64]) -> Trace {
    let mut trace = Trace::new();
    let objects = pages.iter().max().expect("it has references") + 1;
    let partition = Partition { name: "p".into(), objects, blocking_factor: 1, locks: Locking::None };
    let partition = trace.add_partition(partition).expect("it is the first");
    trace.add_type(Type { name: "t".into(), rate_per_s: None }).expect("it is the first");
    for object in pages {
        trace.begin(0);
        trace.refer(Reference { partition, write: false, object: *object }).expect("it is one of the partition's");
    }
    trace
}

fn counted(pages: &[u64], load: (u32, u64), (frames, behind): (u64, u64)) -> Result<Counts> {
    let cache = CacheSettings::new("nvem", behind as u32);
    let settings = Settings {
        buffer: buffer::Settings {
            frames: frames as usize,
            page_size: 1024,
            cleaner: false,
            ..buffer::Settings::default()
        },
        log: log::Settings { capacity: 1 << 20, ..log::Settings::default() },
        checkpoint: checkpoint::Policy::OFF,
        hierarchy: second_level::Settings { cache: Some(cache), ..second_level::Settings::default() },
        ..Settings::default()
    };
    let hardware = Hardware::named("rahm-1991").expect("it is described");
    let driver = VirtualDriver::new(hardware, Options::default(), Media::new());
    let executor = Executor::new(Box::new(driver), Order::FirstInFirstOut);
    let counts = executor.run(replay(&executor, settings, Rc::new(trace(pages)), load));
    executor.stop();
    counts.expect("nothing stops this machine")
}

async fn replay(
    executor: &Executor,
    settings: Settings,
    trace: Rc<Trace>,
    (clients, transactions): (u32, u64),
) -> Result<Counts> {
    let database = Database::create(executor, settings).await?;
    let spec = |partition: &Partition| {
        let organization = organization(partition, 1024);
        Ok(PartitionSpec { assumed: true, ..PartitionSpec::new(&partition.name, organization, partition.locks) })
    };
    let replay = Replay::prepare(&database, Rc::clone(&trace), spec).await?;
    let measure = Length::Transactions(transactions);
    let plan = Plan { load: Load::Closed { clients }, warm_up: Length::Transactions(0), measure, seed: 1 };
    let measured = run::run(&database, replay, &plan, &mut Unwatched, |measured| measured).await?;
    let seen = database.statistics().references()[0];
    let tiers = database.buffer().tiers().expect("there is one");
    let cached = tiers.cache.as_ref().expect("there is one").statistics.reads.get();
    Ok(Counts {
        transactions: measured.transactions,
        references: seen.count(),
        hits: seen.hits,
        both: seen.hits + cached,
    })
}
