//! A client that sorts and joins beside the transactions of others, in temporary space with injected faults: each answer must
//! match a model or be an error that an injected fault explains, and the space must be freed.

use crate::abandon::at_most;
use crate::context::RunContext;
use crate::damage;
use base::Random;
use base::time::{MILLISECOND_NS, SECOND_NS};
use driver::FaultKind;
use engine::temp::{self, Iterated, JoinKind, JoinMethod, JoinSettings, Rows};
use engine::{Database, Error, Result};
use std::rc::Rc;

/// Rows: keys and values.
type List = Vec<(Vec<u8>, Vec<u8>)>;

/// A row of a join's answer.
type Answer = (Vec<u8>, Vec<u8>, Option<Vec<u8>>);

/// The memory of an operator, in smallest clusters.
const CLUSTERS: u64 = 128;

/// Temporary space of every fourth seed.
pub fn settings(seed: u64) -> Option<temp::TempSettings> {
    let random = &mut Random::stream(seed, "temporary space");
    let device = (*random.choose(&["disk", "flash", "second"]).expect("three devices")).to_owned();
    let cluster_size = *random.choose(&[512, 1024]).expect("two sizes");
    // Now and then so little that it fills up.
    let size = if random.chance(0.2) { 32 << 10 } else { 64 << 20 };
    let settings = temp::TempSettings { device: Some(device), cluster_size, size };
    random.chance(0.25).then_some(settings)
}

/// Sorts and joins a few times, or until the run is over.
pub async fn client(context: Rc<RunContext>, database: Database) {
    let random = &mut context.random("spill");
    for _ in 0..random.between(1, 3) {
        context.pause(random).await;
        let polls = if random.chance(0.2) { random.between(1, 40) } else { u64::MAX };
        let work = async {
            match random.chance(0.4) {
                true => sort(&context, &database, random).await,
                false => join(&context, &database, random).await,
            }
        };
        if let Some(Err(error)) = at_most(polls, work).await {
            judge(&context, &error);
        }
        if context.over.get() || !comes_back(&context, &database).await {
            return;
        }
    }
}

/// Whether an injected fault in temporary space explains the error. Temporary data need not survive, so the run continues.
fn judge(context: &RunContext, error: &Error) {
    context.look_at_damages();
    let is_explained = match error {
        Error::TempFull { .. } => context.configuration.settings.temp.size < 1 << 20,
        error if damage::is_injected(&error.to_string()) => true,
        // What sorts and joins use goes with the database, also from under one that goes on.
        Error::Closed => context.is_closing.get(),
        Error::Input(fault) if context.is_closing.get() && fault.kind == FaultKind::NotFound => true,
        error => damage::explain(&context.observed.damages.borrow(), error),
    };
    if !is_explained {
        context.wrong(format!("spilling: {error}"));
    }
}

/// Waits until what was given up is no longer under way.
async fn comes_back(context: &RunContext, database: &Database) -> bool {
    let deadline = context.executor.now().plus_ns(10 * SECOND_NS);
    while database.temp_statistics().bytes_in_use > 0 {
        if context.executor.now() >= deadline {
            let bytes = database.temp_statistics().bytes_in_use;
            context.wrong(format!("{bytes} bytes of temporary space do not come back"));
            return false;
        }
        context.executor.sleep_ns(MILLISECOND_NS).await;
    }
    true
}

fn rows(random: &mut Random, count: u64, keys: u64) -> List {
    let row = |_| {
        let key = random.below(keys).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes().to_vec();
        let mut value = vec![0; random.below(300) as usize];
        random.fill(&mut value);
        (key, value)
    };
    (0..count).map(row).collect()
}

fn memory(context: &RunContext) -> u64 {
    CLUSTERS * context.configuration.settings.temp.cluster_size as u64
}

async fn sort(context: &RunContext, database: &Database, random: &mut Random) -> Result<()> {
    let count = random.between(100, 1_500);
    let mut expected = rows(random, count, 400);
    let mut sorted = database.sort(Iterated::new(expected.clone().into_iter()), memory(context)).await?;
    let mut found = List::new();
    while let Some(row) = sorted.next().await? {
        found.push((row.key.to_vec(), row.value.to_vec()));
    }
    if !found.is_sorted_by(|one, next| one.0 <= next.0) {
        context.wrong("a sort is out of order");
    }
    // Rows of one key come in any order.
    found.sort();
    expected.sort();
    if found != expected {
        context.wrong(format!("a sort of {count} rows gives others"));
    }
    Ok(())
}

async fn join(context: &RunContext, database: &Database, random: &mut Random) -> Result<()> {
    let keys = random.between(20, 300);
    let [left, right] = [1_000, 600].map(|most| {
        let count = random.between(50, most);
        rows(random, count, keys)
    });
    let method = *random.choose(&[JoinMethod::Hash, JoinMethod::SortMerge]).expect("two methods");
    let kind = *random.choose(&[JoinKind::Inner, JoinKind::Left]).expect("two kinds");
    let mut expected = nested_loops(&left, &right, kind);
    let inputs = (Iterated::new(left.into_iter()), Iterated::new(right.into_iter()));
    let mut found: Vec<Answer> = Vec::new();
    let take = async |answer: temp::Joined<'_>| {
        found.push((answer.key.to_vec(), answer.left.to_vec(), answer.right.map(<[u8]>::to_vec)));
        Ok(())
    };
    database.join(inputs, JoinSettings { method, kind, memory: memory(context) }, take).await?;
    found.sort();
    expected.sort();
    if found != expected {
        context.wrong(format!(
            "a {method:?} join has {} answers, not the {} of nested loops",
            found.len(),
            expected.len()
        ));
    }
    Ok(())
}

fn nested_loops(left: &List, right: &List, kind: JoinKind) -> Vec<Answer> {
    let mut answers = Vec::new();
    for (key, value) in left {
        let before = answers.len();
        for (_, other) in right.iter().filter(|(other, _)| other == key) {
            answers.push((key.clone(), value.clone(), Some(other.clone())));
        }
        if answers.len() == before && kind == JoinKind::Left {
            answers.push((key.clone(), value.clone(), None));
        }
    }
    answers
}
