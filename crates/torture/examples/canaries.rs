//! Which seed of the default range finds each planted bug first, and of which kind the seed is:
//!
//! `cargo run --release -p entresol-torture --features canary --example canaries -- [A..B] [NAME ...]`
//!
//! Without names every bug is planted. Both kinds of seeds run in turns until one finds the bug; those of clusters do if the bug is
//! between nodes. Then the same seed has to be sound without it. The program fails if a bug is not found, or is found by a seed that fails anyway.

use engine::canary::{Canary, plant};
use entresol_torture::cluster::{self, ClusterOptions};
use entresol_torture::{Options, SeedKind, run_seed};
use std::ops::Range;
use std::process::ExitCode;

/// What kind of seeds looks for a bug.
#[derive(Clone, Copy)]
enum Search {
    OneNode(SeedKind),
    Cluster,
}

impl Search {
    fn name(self) -> String {
        match self {
            Search::OneNode(kind) => format!("{kind:?}").to_lowercase(),
            Search::Cluster => "cluster".to_owned(),
        }
    }

    /// What is wrong with a seed while this bug is planted.
    fn failure(self, seed: u64, canary: Option<Canary>) -> Option<String> {
        plant(canary);
        let wrong = match self {
            Search::OneNode(kind) => run_seed(seed, Options::FULL.of(kind)).failure.map(|failure| failure.wrong),
            Search::Cluster => cluster::run_seed(seed, ClusterOptions::FULL).failure.map(|failure| failure.wrong),
        };
        plant(None);
        wrong.map(|wrong| wrong[0].clone())
    }
}

/// The first failure with this bug planted.
fn find(canary: Canary, seeds: Range<u64>) -> Option<(Search, u64, String)> {
    let both = [SeedKind::Durability, SeedKind::Isolation].map(Search::OneNode);
    let searches = if canary.is_between_nodes() { vec![Search::Cluster] } else { both.to_vec() };
    let all = seeds.flat_map(|seed| searches.iter().map(move |search| (seed, *search)));
    all.into_iter().find_map(|(seed, search)| Some((search, seed, search.failure(seed, Some(canary))?)))
}

/// Prints who finds it, and returns whether that is as it should be.
fn report(canary: Canary, seeds: &Range<u64>) -> bool {
    let name = format!("{canary:?}");
    let Some((search, seed, wrong)) = find(canary, seeds.clone()) else {
        println!("{name:<20} not found in {seeds:?}");
        return false;
    };
    let is_sound = search.failure(seed, None).is_none();
    let wrong: String = wrong.chars().take(80).collect();
    let doubt = if is_sound { "" } else { " (the seed fails anyway)" };
    println!("{name:<20} {:<10} {seed:>5}{doubt}  {wrong}", search.name());
    is_sound
}

fn main() -> ExitCode {
    let mut words: Vec<String> = std::env::args().skip(1).collect();
    let range = words.first().and_then(|word| word.split_once(".."));
    let range = range.and_then(|(first, end)| Some(first.parse().ok()?..end.parse().ok()?));
    if range.is_some() {
        words.remove(0);
    }
    let seeds = range.unwrap_or(0..8_000);
    let is_meant = |canary: &&Canary| {
        let is_named = words.is_empty() || words.contains(&format!("{canary:?}"));
        is_named && !canary.is_beyond_torture()
    };
    // A planted bug may make the engine panic, which is a find and no news.
    std::panic::set_hook(Box::new(|_| {}));
    let unfound = Canary::ALL.iter().filter(is_meant).filter(|canary| !report(**canary, &seeds)).count();
    if unfound == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
