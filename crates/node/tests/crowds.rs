//! Many transactions of several nodes at one place: few of them are a deadlock's victims.

use crate::things::ServedThings;
use base::time::MICROSECOND_NS;
use engine::Error;
use entresol_node::page_client::{PageClient, PageTransaction};
use executor::Executor;
use std::cell::Cell;
use std::rc::Rc;

const TASKS: u32 = 16;
const EACH: u32 = 40;

/// Commits `EACH` transactions of `TASKS` tasks at each of two nodes, and counts the victims.
fn victims(seed: u64, work: impl AsyncFn(&mut PageTransaction, u32) -> engine::Result<()> + Clone + 'static) -> u32 {
    let mut served = ServedThings::new(seed, 2, None);
    let victims = Rc::new(Cell::new(0));
    let next = Rc::new(Cell::new(0));
    let mut tasks = Vec::new();
    for number in 0..2 {
        for _ in 0..TASKS {
            let (executor, client) = (served.nodes[number].clone(), served.clients[number].clone());
            let (work, victims, next) = (work.clone(), Rc::clone(&victims), Rc::clone(&next));
            tasks.push(served.nodes[number].spawn(commit_each(executor, client, work, (victims, next))));
        }
    }
    for task in tasks {
        served.cluster.run(task).expect("they go on").expect("all is committed");
    }
    victims.get()
}

async fn commit_each(
    executor: Executor,
    client: PageClient,
    work: impl AsyncFn(&mut PageTransaction, u32) -> engine::Result<()>,
    (victims, next): (Rc<Cell<u32>>, Rc<Cell<u32>>),
) -> engine::Result<()> {
    for _ in 0..EACH {
        let number = next.replace(next.get() + 1);
        let attempts = Cell::new(0);
        client
            .transaction(async |tx| {
                attempts.set(attempts.get() + 1);
                work(tx, number).await?;
                executor.sleep_ns(100 * MICROSECOND_NS).await;
                Ok::<_, Error>(())
            })
            .await?;
        victims.set(victims.get() + attempts.get() - 1);
    }
    Ok(())
}

#[test]
fn appends_of_nodes_that_begin_on_one_page_are_seldom_victims() {
    for seed in 0..4 {
        let found = victims(seed, async |tx, _| {
            let history = tx.partition("history").await?.id();
            tx.append(history, &[7; 200]).await.map(drop)
        });
        assert!(found < TASKS * EACH / 4, "{seed}: {found}");
    }
}

#[test]
fn changes_of_one_record_by_nodes_that_all_have_its_page_are_seldom_victims() {
    for seed in 0..8 {
        let found = victims(seed, async |tx, number| {
            let notes = tx.partition("notes").await?.id();
            let key = (number % 3).to_be_bytes();
            tx.put(notes, &key, &[number as u8; 20]).await.map(drop)
        });
        assert!(found < TASKS * EACH / 4, "{seed}: {found}");
    }
}
