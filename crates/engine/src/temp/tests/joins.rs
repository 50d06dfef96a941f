use super::ground::{List, give_up, machine, rows, settings, with_space};
use crate::temp::join::{JoinKind, JoinMethod as Method, JoinReport, JoinSettings, Joined, join};
use crate::temp::{Iterated, Space};
use crate::{Error, Result};
use base::Random;
use driver::OpKind;
use virtual_driver::{ErrorAt, FaultPlan};

/// The least memory of joins in clusters of 512 bytes.
const MEMORY: u64 = 56 * 512;

type Answers = Vec<(Vec<u8>, Vec<u8>, Option<Vec<u8>>)>;

async fn joined(
    space: &Space,
    (left, right): (&List, &List),
    (method, kind): (Method, JoinKind),
    memory: u64,
) -> Result<(Answers, JoinReport)> {
    let inputs = (
        Iterated::new(left.iter().map(|(key, value)| (key, value))),
        Iterated::new(right.iter().map(|(key, value)| (key, value))),
    );
    let mut answers = Answers::new();
    let mut take = async |answer: Joined<'_>| {
        answers.push((answer.key.to_vec(), answer.left.to_vec(), answer.right.map(<[u8]>::to_vec)));
        Ok(())
    };
    let report = join(space, inputs, JoinSettings { method, kind, memory }, &mut take).await?;
    Ok((answers, report))
}

/// Every left row beside every right row.
fn nested_loops((left, right): (&List, &List), kind: JoinKind) -> Answers {
    let mut answers = Answers::new();
    for (key, value) in left {
        let before = answers.len();
        for (_, other) in right.iter().filter(|(other, _)| other == key) {
            answers.push((key.clone(), value.clone(), Some(other.clone())));
        }
        if kind == JoinKind::Left && answers.len() == before {
            answers.push((key.clone(), value.clone(), None));
        }
    }
    answers.sort();
    answers
}

fn check(found: (Answers, JoinReport), (left, right): (&List, &List), how: (Method, JoinKind)) {
    compare(found, (left, right), how, &nested_loops((left, right), how.1));
}

fn compare(
    (mut found, report): (Answers, JoinReport),
    (left, right): (&List, &List),
    how: (Method, JoinKind),
    expected: &Answers,
) {
    if how.0 == Method::SortMerge {
        assert!(found.is_sorted_by_key(|(key, ..)| key), "in order");
    }
    assert_eq!(report.answers, found.len() as u64);
    assert_eq!(report.left_rows, left.len() as u64);
    assert_eq!(report.right_rows, right.len() as u64);
    found.sort();
    assert!(found == *expected, "the answers of nested loops");
}

const WAYS: [(Method, JoinKind); 4] = [
    (Method::Hash, JoinKind::Inner),
    (Method::Hash, JoinKind::Left),
    (Method::SortMerge, JoinKind::Inner),
    (Method::SortMerge, JoinKind::Left),
];

/// Two inputs whose keys come from the same numbers.
fn inputs(random: &mut Random, counts: [u64; 2], keys: u64, longest: u64) -> (List, List) {
    let mut all = rows(random, counts[0] + counts[1], keys, longest);
    let right = all.split_off(counts[0] as usize);
    (all, right)
}

#[test]
fn joins_as_nested_loops_do() {
    let (mut spilled, mut passes) = ([0, 0], [0, 0]);
    for seed in 0..30 {
        let mut random = Random::stream(seed, "joins");
        let cluster = 512_usize << random.below(2);
        let memory = cluster as u64 * random.between(56, 100);
        let longest = if random.chance(0.3) { memory / 12 - 30 } else { random.below(200) };
        let most = 800.min(300_000 / (longest + 1));
        let few = |random: &mut Random| if random.chance(0.1) { random.below(2) } else { random.below(most) };
        let counts = [few(&mut random), few(&mut random)];
        // Few keys have very many answers.
        let keys = random.between(
            1 + (counts[0] * counts[1]) / 30_000,
            2 + (counts[0] * counts[1]) / 30_000 + counts[0] + counts[1],
        );
        let (left, right) = inputs(&mut random, counts, keys, longest);
        let expected = [JoinKind::Inner, JoinKind::Left].map(|kind| nested_loops((&left, &right), kind));
        for how in WAYS {
            let executor = machine(None, seed);
            let result = with_space(&executor, &settings(cluster), async |space| {
                joined(space, (&left, &right), how, memory).await
            });
            let result = result.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
            spilled[how.0 as usize] += u32::from(result.1.spilled_bytes > 0);
            passes[how.0 as usize] = passes[how.0 as usize].max(result.1.passes);
            compare(result, (&left, &right), how, &expected[how.1 as usize]);
        }
    }
    assert!(spilled.iter().all(|count| *count > 5) && passes[1] > 1, "{spilled:?} {passes:?}");
}

#[test]
fn one_key_with_more_rows_than_memory_holds_is_joined() {
    let of_key = |count: u32, size: usize| -> List {
        (0..count).map(|n| (b"k".to_vec(), [&n.to_be_bytes()[..], &vec![7; size]].concat())).collect()
    };
    // Right rows alone are several times the memory; left ones make several blocks.
    let (left, right) = (of_key(60, 400), of_key(400, 400));
    for how in WAYS {
        let executor = machine(None, 1);
        let result = with_space(&executor, &settings(512), async |space| {
            joined(space, (&left, &right), how, MEMORY).await.expect("joins")
        });
        assert!(result.1.spilled_bytes > 400 * 400, "{:?}", result.1);
        check(result, (&left, &right), how);
    }
}

#[test]
fn partitions_too_large_for_memory_are_divided_again() {
    let list = |count: u64| -> List { (0..count).map(|n| (n.to_be_bytes().to_vec(), vec![1; 60])).collect() };
    let (left, right) = (list(8_000), list(7_000));
    let how = (Method::Hash, JoinKind::Left);
    let executor = machine(None, 1);
    let (found, report) = with_space(&executor, &settings(512), async |space| {
        joined(space, (&left, &right), how, MEMORY).await.expect("joins")
    });
    assert!(report.passes > 1 && found.len() == 8_000, "{report:?}");
    assert_eq!(found.iter().filter(|answer| answer.2.is_none()).count(), 1_000);
}

#[test]
fn what_stays_in_memory_is_not_written() {
    let list = |count: u64| -> List { (0..count).map(|n| (n.to_be_bytes().to_vec(), vec![1; 60])).collect() };
    let (left, right) = (list(2_000), list(2_000));
    let bytes = [64, 200, 800].map(|clusters| {
        let executor = machine(None, 1);
        let report = with_space(&executor, &settings(512), async |space| {
            joined(space, (&left, &right), (Method::Hash, JoinKind::Inner), clusters * 512).await.expect("joins").1
        });
        report.spilled_bytes
    });
    assert!(bytes[0] > bytes[1] && bytes[1] > 0 && bytes[2] == 0, "{bytes:?}");
    assert!(bytes[1] < 4_000 * 70 * 4 / 5, "a part of both inputs: {bytes:?}");
}

#[test]
fn failures_of_the_device_and_of_the_taker_end_a_join_cleanly() {
    let (left, right) = inputs(&mut Random::stream(1, "rows"), [1_500, 1_500], 4_000, 60);
    for how in WAYS {
        for (kind, nth) in [(OpKind::Write, 3), (OpKind::Write, 90), (OpKind::Read, 1), (OpKind::Read, 50)] {
            let errors = vec![ErrorAt { kind, device: None, nth }];
            let executor = machine(Some(FaultPlan { errors, ..FaultPlan::default() }), nth);
            let result =
                with_space(&executor, &settings(512), async |space| joined(space, (&left, &right), how, MEMORY).await);
            assert!(matches!(result, Err(Error::Input(_))), "{how:?} {kind:?} {nth}");
        }
        let executor = machine(None, 1);
        let refused = with_space(&executor, &settings(512), async |space| {
            let source = |rows: &List| Iterated::new(rows.clone().into_iter());
            let mut left_over = 20;
            let mut take = async |_: Joined<'_>| {
                left_over -= 1;
                if left_over == 0 { Err(Error::RolledBack("enough".into())) } else { Ok(()) }
            };
            let inputs = (source(&left), source(&right));
            let settings = JoinSettings { method: how.0, kind: how.1, memory: MEMORY };
            join(space, inputs, settings, &mut take).await
        });
        assert_eq!(refused, Err(Error::RolledBack("enough".into())));
    }
}

#[test]
fn a_join_can_be_given_up_at_any_moment() {
    let (left, right) = inputs(&mut Random::stream(2, "rows"), [800, 800], 900, 60);
    for how in WAYS {
        let executor = machine(None, 1);
        with_space(&executor, &settings(512), async |space| {
            let (mut polls, mut ended) = (1, false);
            while !ended {
                ended = give_up(joined(space, (&left, &right), how, MEMORY), polls).await.is_some();
                polls += 1 + polls / 2;
            }
            check(joined(space, (&left, &right), how, MEMORY).await.expect("joins"), (&left, &right), how);
        });
    }
}

#[test]
fn too_little_memory_is_said() {
    let few = inputs(&mut Random::stream(3, "rows"), [5, 5], 5, 60);
    for how in WAYS {
        let executor = machine(None, 1);
        let error = with_space(&executor, &settings(512), async |space| {
            joined(space, (&few.0, &few.1), how, 47 * 512).await.expect_err("too little")
        });
        let least = if how.0 == Method::Hash { "28" } else { "24" };
        assert_eq!(
            error.to_string(),
            format!(
                "memory of 23.5 KiB is too little for clusters of 512 B: give {least} KiB or more, or make [temp] \
                 cluster_size smaller"
            )
        );
    }
}
