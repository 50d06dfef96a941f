//! Very many partitions, small and empty: the catalog grows by thousands of entries, and is written anew.

use super::client::Client;
use super::read::with_known;
use super::shape::ShapeKind;
use crate::ClientEvent;
use crate::context::{After, RunContext};
use base::Random;
use engine::Database;
use std::rc::Rc;

/// From this number of partitions on, a catalog counts as large.
const MANY: usize = 1_000;

/// How many partitions such a seed comes to have: few have any, and few of these very many.
pub fn count(seed: u64) -> u64 {
    let random = &mut Random::stream(seed, "crowd");
    match (random.chance(0.04), random.chance(0.1)) {
        (false, _) => 0,
        (true, false) => random.between(60, 160),
        (true, true) => random.between(1_000, 2_500),
    }
}

/// Whether a seed's catalog becomes large.
pub fn is_large(crowd: u64) -> bool {
    crowd >= 1_000
}

/// A long name, so that a catalog of few is long as well.
fn name(number: u64) -> String {
    format!("many-{}-{number}", "x".repeat(50))
}

/// Creates the missing partitions, a very large number of them not all in the first run, and drops a few.
pub async fn crowd(context: Rc<RunContext>, database: Database) {
    let mut client = Client::new(context, database, usize::MAX);
    let (crowd, run) = (client.context.configuration.crowd, client.context.run);
    let end = if is_large(crowd) && run == 0 { crowd * 9 / 10 } else { crowd };
    for number in 0..end {
        if client.context.over.get() {
            return;
        }
        let name = name(number);
        let state = with_known(&client.context, &name, |known| known.state().cloned());
        let after = match state {
            Some(None) => {
                let shape = Rc::new(ShapeKind::small(&name, number, if is_large(crowd) { 8 } else { 2 }));
                client.create_as(&name, shape).await
            }
            Some(Some(shape)) if client.random.chance(0.02) => client.drop_partition(&name, &shape).await,
            _ => After::Retry,
        };
        if after == After::Reopen {
            return;
        }
    }
    if client.database.partitions().len() >= MANY {
        client.context.event(ClientEvent::Crowded);
    }
}
