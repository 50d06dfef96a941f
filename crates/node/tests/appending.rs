//! Nodes that add records to one partition: each does so on pages of its own.

use crate::things::{self, ServedThings};
use base::Random;
use base::time::SECOND_NS;
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

async fn add_many(client: &PageClient, count: u32) -> engine::Result<Vec<Position>> {
    client
        .transaction(async |tx| {
            let history = tx.partition("history").await?.id();
            let mut found = Vec::new();
            for _ in 0..count {
                found.push(tx.append(history, &[1; 900]).await?);
            }
            Ok(found)
        })
        .await
}

/// The server is one of the same partitions, which was restored as it was before there were records.
#[test]
fn a_node_adds_nothing_behind_the_end_of_what_a_server_has_that_was_restored() {
    let mut served = ServedThings::new(1, 1, None);
    // More pages than a file grows by at a time.
    let last = served.run(async |client| {
        let mut last = None;
        for _ in 0..28 {
            last = add_many(&client, 40).await?.last().copied();
        }
        Ok::<_, Error>(last)
    });
    assert!(last.expect("all is added").expect("there are some").page.number > 1_100);
    served.server.stop();
    let restored = served.machines.client(0);
    served.cluster.replace(0, restored.clone());
    let serving = restored.spawn(things::serve(restored.clone(), served.machines.address(0), 1, None));
    served.page_server = served.cluster.run(serving).expect("it starts");
    let executor = served.nodes[0].clone();
    let added = served.run(async move |client| {
        for _ in 0..60 {
            executor.sleep_ns(SECOND_NS).await;
            match add_many(&client, 3).await {
                Err(Error::Input(_)) => {}
                added => return added.map(Some),
            }
        }
        Ok(None)
    });
    let added = added.expect("there is room").expect("the node finds the server again");
    assert!(added.iter().all(|place| place.page.number < 10), "{added:?}");
    let found = served.run(async |client| {
        let (history, mut found) = (client.partition("history").await?.id(), Vec::new());
        let look = |position: Position, _: &[u8]| {
            found.push(position);
            true
        };
        client.begin().await.scan_appended(history, look).await?;
        Ok::<_, Error>(found)
    });
    assert_eq!(found, Ok(added));
}
