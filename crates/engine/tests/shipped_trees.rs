//! Another node's restructurings of trees: they come with its updates, or go with them.

use crate::ground::copies::{CopiedPages, spacious};
use crate::ground::shipments::run;
use base::Random;
use entresol_engine::{Database, Direction, Error, PartitionSpec};
use std::ops::Bound;
use virtual_driver::{FaultPlan, Media, PowerCut};

/// The power goes at each event of the commit of a transaction of another node that divides the root, inner nodes and leaves.
fn commit_and_cut(sends_pages: bool) {
    let key = |number: u32| format!("key {:04}", number * 7 % 300).into_bytes();
    let (mut committed, mut lost) = (0, 0);
    for event in 1.. {
        let media = Media::new();
        let prepared = run(&media, FaultPlan::default(), async |executor| {
            let database = Database::create(executor, spacious()).await?;
            database.create_partition(PartitionSpec::b_tree("tree")).await?;
            database.close().await
        });
        prepared.expect("the machine goes on").expect("it is created");
        let faults = FaultPlan { power_cut_at: Some(event), ..FaultPlan::default() };
        let done = run(&media, faults, async |executor| {
            let database = Database::open(executor, spacious(), "here").await?;
            let (tree, mut node) = (database.partition("tree")?, CopiedPages::default());
            for number in 0..300 {
                node.insert(&database, tree, &key(number), &[number as u8; 40]).await?;
            }
            node.commit(&database, sends_pages).await
        });
        media.power_cut(&mut Random::stream(event, "shipped trees"), &PowerCut::default());
        let found = run(&media, FaultPlan::default(), async |executor| {
            let database = Database::open(executor, spacious(), "here").await?;
            let report = database.check(|_| {}).await?;
            assert!(report.is_clean(), "event {event}: {:?}", report.findings);
            let (tree, mut found) = (database.partition("tree")?, 0);
            let mut tx = database.begin().await?;
            let mut cursor = tx.cursor(tree, Bound::Unbounded, Bound::Unbounded, Direction::Forward);
            while tx.next(&mut cursor).await?.is_some() {
                found += 1;
            }
            tx.rollback().await?;
            database.close().await?;
            Ok::<_, Error>(found)
        });
        let found = found.expect("the machine goes on").unwrap_or_else(|error| panic!("event {event}: {error}"));
        assert!(found == 0 || found == 300, "event {event}: {found}");
        committed += u32::from(found > 0);
        lost += u32::from(found == 0);
        match done {
            Ok(Ok(())) => {
                assert_eq!(found, 300, "it is durable");
                break;
            }
            Ok(Err(error)) => panic!("event {event}: {error}"),
            Err(_) => {}
        }
    }
    assert!(committed > 0 && lost > 10, "{committed} {lost}");
}

#[test]
fn a_tree_is_sound_whenever_the_power_goes_in_a_commit_that_divides_its_nodes() {
    commit_and_cut(true);
}

#[test]
fn a_tree_is_sound_whenever_the_power_goes_in_a_commit_whose_records_are_redone() {
    commit_and_cut(false);
}
