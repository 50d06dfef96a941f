//! Which seed of the default range finds each planted bug first, and of which kind the seed is:
//!
//! `cargo run --release -p entresol-torture --features canary --example canaries -- [A..B] [NAME ...]`
//!
//! Without names every bug is planted. Both kinds of seeds run in turns until one finds the bug; then the same seed has to be
//! sound without it. The program fails if a bug is not found, or is found by a seed that fails anyway.

use engine::canary::{Canary, plant};
use entresol_torture::{Failure, Options, SeedKind, run_seed};
use std::ops::Range;
use std::process::ExitCode;

fn failure(seed: u64, kind: SeedKind, canary: Option<Canary>) -> Option<Failure> {
    plant(canary);
    let outcome = run_seed(seed, Options::FULL.of(kind));
    plant(None);
    outcome.failure
}

/// The first failure with this bug planted.
fn find(canary: Canary, seeds: Range<u64>) -> Option<(SeedKind, Failure)> {
    let both = seeds.flat_map(|seed| [(seed, SeedKind::Durability), (seed, SeedKind::Isolation)]);
    both.into_iter().find_map(|(seed, kind)| Some((kind, failure(seed, kind, Some(canary))?)))
}

/// Prints who finds it, and returns whether that is as it should be.
fn report(canary: Canary, seeds: &Range<u64>) -> bool {
    let name = format!("{canary:?}");
    let Some((kind, found)) = find(canary, seeds.clone()) else {
        println!("{name:<20} not found in {seeds:?}");
        return false;
    };
    let is_sound = failure(found.seed, kind, None).is_none();
    let wrong: String = found.wrong[0].chars().take(80).collect();
    let doubt = if is_sound { "" } else { " (the seed fails anyway)" };
    println!("{name:<20} {:<10} {:>5}{doubt}  {wrong}", format!("{kind:?}").to_lowercase(), found.seed);
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
