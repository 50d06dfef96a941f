//! Clients that create, load, use and drop partitions of every organization beside the others, each client its own. An
//! operation on a partition that was not answered leaves several states that the partition may be in: each run compares.

mod care;
mod client;
mod crowd;
mod drop;
mod held;
mod index;
mod known;
mod read;
mod shape;
mod transaction;
mod unsynced;

pub use client::client;
pub use crowd::{count as crowd_count, crowd, is_large as is_large_crowd};
pub use known::Known;
pub use read::contents;

use base::Random;

/// How the names of clients' partitions begin.
const OWN: &str = "own-";

/// How many such clients a seed has.
pub fn clients(seed: u64) -> usize {
    let random = &mut Random::stream(seed, "partitions");
    if random.chance(0.2) { random.between(1, 2) as usize } else { 0 }
}

/// The names that a client's partitions have, one after another.
fn name(client: usize, number: u64) -> String {
    format!("{OWN}{client}-{number}")
}

/// Whether a client's partition has this name.
pub fn is_own(name: &str) -> bool {
    name.starts_with(OWN)
}
