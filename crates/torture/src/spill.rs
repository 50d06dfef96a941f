//! A client that sorts and joins beside the transactions of others, in temporary space that is hurt, too: each answer is what a
//! model says or an error that what was done explains, and the space comes back.

use crate::abandon::at_most;
use crate::hurt;
use crate::stage::Stage;
use base::Random;
use base::time::{MILLISECOND_NS, SECOND_NS};
use engine::temp::{self, Iterated, JoinKind, JoinMethod, JoinSettings, Rows};
use engine::{Database, Error, Result};
use std::rc::Rc;

/// Rows: keys and values.
type List = Vec<(Vec<u8>, Vec<u8>)>;

/// A row of a join's answer.
type Answer = (Vec<u8>, Vec<u8>, Option<Vec<u8>>);

/// So many smallest clusters are the memory of an operator.
const CLUSTERS: u64 = 128;

/// Temporary space of every fourth seed.
pub fn settings(seed: u64) -> Option<temp::Settings> {
    let random = &mut Random::stream(seed, "temporary space");
    let device = (*random.choose(&["disk", "flash", "second"]).expect("three devices")).to_owned();
    let cluster_size = *random.choose(&[512, 1024]).expect("two sizes");
    // Now and then so little that it fills up.
    let size = if random.chance(0.2) { 32 << 10 } else { 64 << 20 };
    let settings = temp::Settings { device: Some(device), cluster_size, size };
    random.chance(0.25).then_some(settings)
}

/// Sorts and joins until it has done so a few times or the life is over.
pub async fn client(stage: Rc<Stage>, database: Database) {
    let random = &mut stage.random("spill");
    for _ in 0..random.between(1, 3) {
        stage.pause(random).await;
        let polls = if random.chance(0.2) { random.between(1, 40) } else { u64::MAX };
        let work = async {
            match random.chance(0.4) {
                true => sort(&stage, &database, random).await,
                false => join(&stage, &database, random).await,
            }
        };
        if let Some(Err(error)) = at_most(polls, work).await {
            judge(&stage, &error);
        }
        if stage.over.get() || !comes_back(&stage, &database).await {
            return;
        }
    }
}

/// Is it an error that what was done to temporary space explains? Nothing of it is lost that matters, so the life goes on.
fn judge(stage: &Stage, error: &Error) {
    let is_explained = match error {
        Error::TempFull { .. } => stage.configuration.settings.temp.size < 1 << 20,
        error if hurt::is_injected(&error.to_string()) => true,
        error => hurt::explain(&stage.scene.hurts.borrow(), error),
    };
    if !is_explained {
        stage.wrong(format!("spilling: {error}"));
    }
}

/// Waits until what was given up is no longer under way.
async fn comes_back(stage: &Stage, database: &Database) -> bool {
    let deadline = stage.executor.now().plus_ns(10 * SECOND_NS);
    while database.temp_statistics().bytes_in_use > 0 {
        if stage.executor.now() >= deadline {
            let bytes = database.temp_statistics().bytes_in_use;
            stage.wrong(format!("{bytes} bytes of temporary space do not come back"));
            return false;
        }
        stage.executor.sleep_ns(MILLISECOND_NS).await;
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

fn memory(stage: &Stage) -> u64 {
    CLUSTERS * stage.configuration.settings.temp.cluster_size as u64
}

async fn sort(stage: &Stage, database: &Database, random: &mut Random) -> Result<()> {
    let count = random.between(100, 1_500);
    let mut expected = rows(random, count, 400);
    let mut sorted = database.sort(Iterated::new(expected.clone().into_iter()), memory(stage)).await?;
    let mut found = List::new();
    while let Some(row) = sorted.next().await? {
        found.push((row.key.to_vec(), row.value.to_vec()));
    }
    if !found.is_sorted_by(|one, next| one.0 <= next.0) {
        stage.wrong("a sort is out of order");
    }
    // Rows of one key come in any order.
    found.sort();
    expected.sort();
    if found != expected {
        stage.wrong(format!("a sort of {count} rows gives others"));
    }
    Ok(())
}

async fn join(stage: &Stage, database: &Database, random: &mut Random) -> Result<()> {
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
    database.join(inputs, JoinSettings { method, kind, memory: memory(stage) }, take).await?;
    found.sort();
    expected.sort();
    if found != expected {
        stage.wrong(format!(
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
