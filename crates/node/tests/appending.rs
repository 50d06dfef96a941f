//! Nodes that add records to one partition: each does so on pages of its own.

use crate::things::ServedThings;
use base::Random;
use engine::Error;
use engine::organization::append::Position;
use entresol_node::page_client::PageClient;
use executor::Executor;
use std::collections::BTreeSet;

const RECORDS: u32 = 300;

/// Adds records, some in vain, and returns where those are that were committed.
async fn add(executor: Executor, client: PageClient, number: u32) -> engine::Result<Vec<Position>> {
    let history = client.partition("history").await?.id();
    let mut random = Random::stream(number.into(), "records");
    let mut found = Vec::new();
    while found.len() < RECORDS as usize {
        executor.sleep_ns(random.below(1_000_000)).await;
        let mut tx = client.begin().await;
        if random.below(4) == 0 {
            let nothing = tx.savepoint();
            match tx.append(history, &[number as u8; 50]).await {
                Ok(_) => tx.rollback_to(nothing).await?,
                Err(Error::Deadlock) => continue,
                Err(error) => return Err(error),
            }
        }
        let added = tx.append(history, &[number as u8; 50]).await;
        match added {
            Ok(_) if random.below(4) == 0 => drop(tx),
            Ok(position) => match tx.commit().await {
                Ok(()) => found.push(position),
                Err(Error::Deadlock) => {}
                Err(error) => return Err(error),
            },
            Err(Error::Deadlock) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(found)
}

#[test]
fn nodes_add_records_to_pages_of_their_own_and_lose_none() {
    for seed in 0..4 {
        let mut served = ServedThings::new(seed, 2, None);
        let adding: Vec<_> = (0..2)
            .map(|number| {
                let (executor, client) = (served.nodes[number].clone(), served.clients[number].clone());
                served.nodes[number].spawn(add(executor, client, number as u32))
            })
            .collect();
        let mut places = Vec::new();
        for task in adding {
            places.push(served.cluster.run(task).expect("they go on").expect("all is added"));
        }
        let pages = |places: &[Position]| places.iter().map(|place| place.page).collect::<BTreeSet<_>>();
        let [first, second] = [pages(&places[0]), pages(&places[1])];
        let shared = first.intersection(&second).count();
        assert!(first.len() > 10 && second.len() > 10 && shared <= 1, "{seed}: {shared} of {}", first.len());
        let mut expected: Vec<(Position, u8)> = (0_u8..)
            .zip(&places)
            .flat_map(|(number, places)| places.iter().map(move |place| (*place, number)))
            .collect();
        expected.sort();
        let found = served.open(async |database| {
            let (history, mut found) = (database.partition("history")?, Vec::new());
            let look = |position, record: &[u8]| {
                found.push((position, record[0]));
                true
            };
            database.begin().await?.scan_appended(history, look).await?;
            // The engine goes on where the last page is.
            database.transaction(async |tx| tx.append(history, b"more").await).await?;
            Ok(found)
        });
        assert_eq!(found, expected, "{seed}");
    }
}
