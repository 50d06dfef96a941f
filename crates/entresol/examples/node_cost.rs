//! What transactions cost at nodes beside those of one engine: reads of one record each, of which some of a hundred change it, of keys
//! that are each node's own, by tasks of the nodes' threads. `cargo run --release -p entresol --example node_cost [SECONDS [RECORDS]]`.

#![allow(clippy::disallowed_methods, reason = "it measures on the real clock")]

use base::Random;
use base::units::grouped;
use entresol::configuration::Configuration;
use entresol::{DatabaseThread, Error, Node, NodeThreads, Opening, PartitionId, PartitionSpec, Result};
use real_driver::thread_cpu_ns;
use std::ops::Range;

const TASKS: usize = 64;
const CONFIGURATION: &str = "[buffer]\nsize = \"256 MiB\"\n[log]\nsize = \"256 MiB\"\n";
const NODES: &str = "[nodes]\ncount = 2\nbuffer = \"128 MiB\"\n";

/// How many of a hundred transactions change their record.
type Changes = u64;

/// What the tasks of one thread have done: transactions, nanoseconds, and nanoseconds of its processor.
#[derive(Clone, Copy)]
struct Done {
    count: u64,
    elapsed_ns: u64,
    cpu_ns: u64,
}

/// Keys that one thread's tasks draw from, and for how long.
#[derive(Clone)]
struct Part {
    table: PartitionId,
    keys: Range<u64>,
    seconds: u64,
    changes: Changes,
}

/// Runs `one` for a key, which is changed or not, by some tasks until the time is over.
async fn repeat<F: AsyncFnMut([u8; 8], bool) -> Result<()>>(
    executor: &entresol::Executor,
    part: &Part,
    task: usize,
    mut one: F,
) -> Result<u64> {
    let mut random = Random::stream(task as u64, "keys");
    let (began, mut count) = (executor.now(), 0);
    while executor.now().since_ns(began) < part.seconds * 1_000_000_000 {
        let key = part.keys.start + random.below(part.keys.end - part.keys.start);
        one(key.to_be_bytes(), random.below(100) < part.changes).await?;
        count += 1;
        if count % 64 == 0 {
            executor.yield_now().await;
        }
    }
    Ok(count)
}

async fn at_engine(database: &entresol::Database, part: Part) -> Result<Done> {
    let executor = database.executor().clone();
    let (began, cpu) = (executor.now(), thread_cpu_ns());
    let tasks: Vec<_> = (0..TASKS)
        .map(|task| {
            let (database, part, executor) = (database.clone(), part.clone(), executor.clone());
            database.executor().clone().spawn(async move {
                repeat(&executor, &part, task, async |key, changes| {
                    database
                        .transaction(async |tx| match changes {
                            true => tx.modify(part.table, &key, |value| value[0] ^= 1).await,
                            false => tx.get(part.table, &key).await.map(drop),
                        })
                        .await
                })
                .await
            })
        })
        .collect();
    let mut count = 0;
    for task in tasks {
        count += task.join().await?;
    }
    Ok(Done { count, elapsed_ns: executor.now().since_ns(began), cpu_ns: thread_cpu_ns() - cpu })
}

async fn at_node(node: &Node, part: Part) -> Result<Done> {
    let executor = node.executor().clone();
    let (began, cpu) = (executor.now(), thread_cpu_ns());
    let tasks: Vec<_> = (0..TASKS)
        .map(|task| {
            let (node, part) = (node.clone(), part.clone());
            executor.spawn(async move {
                repeat(node.executor(), &part, task, async |key, changes| {
                    node.transaction(async |tx| match changes {
                        true => tx.modify(part.table, &key, |value| value[0] ^= 1).await,
                        false => tx.get(part.table, &key).await.map(drop),
                    })
                    .await
                })
                .await
            })
        })
        .collect();
    let mut count = 0;
    for task in tasks {
        count += task.join().await?;
    }
    Ok(Done { count, elapsed_ns: executor.now().since_ns(began), cpu_ns: thread_cpu_ns() - cpu })
}

/// The load by itself: keys are drawn, and nothing is done with them.
async fn alone(executor: &entresol::Executor, part: Part) -> Result<Done> {
    let (began, cpu) = (executor.now(), thread_cpu_ns());
    let count = repeat(executor, &part, 0, async |key, changes| {
        std::hint::black_box((key, changes));
        Ok(())
    })
    .await?;
    Ok(Done { count, elapsed_ns: executor.now().since_ns(began), cpu_ns: thread_cpu_ns() - cpu })
}

fn show(what: &str, changes: Changes, done: &[Done]) {
    let rate: f64 = done.iter().map(|done| done.count as f64 * 1e9 / done.elapsed_ns as f64).sum();
    let cpu: u64 = done.iter().map(|done| done.cpu_ns).sum();
    let count: u64 = done.iter().map(|done| done.count).sum();
    println!(
        "{what:<10} {changes:>3} % changes {:>10}/s, {:.2} us of its thread for each",
        grouped(rate as u64),
        cpu as f64 / count as f64 / 1e3
    );
}

fn opening(directory: &std::path::Path, more: &str) -> std::result::Result<Opening, entresol::OpenError> {
    let configuration = Configuration::from_bytes("node_cost", format!("{CONFIGURATION}{more}").as_bytes(), None)?;
    Ok(Opening::new(directory, configuration))
}

fn main() -> std::result::Result<(), entresol::OpenError> {
    let mut arguments = std::env::args().skip(1).map(|text| text.parse::<u64>().expect("a number"));
    let (seconds, records) = (arguments.next().unwrap_or(3), arguments.next().unwrap_or(200_000));
    let directory = tempfile::tempdir_in(".").map_err(|error| Error::Setting(error.to_string()))?;
    let thread = DatabaseThread::start(opening(directory.path(), "")?)?;
    let handle = thread.handle();
    let table = handle.create_partition(PartitionSpec::b_tree("table")).wait()?;
    let loaded = (0..records).map(|number| (number.to_be_bytes().to_vec(), vec![7; 92]));
    let loaded: Vec<_> = loaded.collect();
    handle.with_database(async move |database| database.load_b_tree(table, loaded, |_| {}).await).wait()?;
    let part = |keys: Range<u64>, changes| Part { table, keys, seconds, changes };
    let load = part(0..records, 5);
    let done = handle.with_database(async move |database| alone(database.executor(), load).await).wait()?;
    show("the load", 5, &[done]);
    for changes in [0, 1, 5, 100] {
        let part = part(0..records, changes);
        let done = handle.with_database(async move |database| at_engine(database, part).await).wait()?;
        show("one engine", changes, &[done]);
    }
    drop(handle);
    thread.close()?;
    let threads = NodeThreads::start(opening(directory.path(), NODES)?)?;
    let nodes = threads.handle();
    let halves = [0..records / 2, records / 2..records];
    // Once to have the pages here.
    for (count, changes) in [(2, 5), (1, 0), (2, 0), (1, 1), (2, 1), (1, 5), (2, 5), (1, 100), (2, 100)] {
        let begun: Vec<_> = (0..count)
            .map(|number| {
                let part = part(halves[number].clone(), changes);
                nodes.with_node(number, async move |node| at_node(node, part).await)
            })
            .collect();
        let done: Vec<Done> = begun.into_iter().map(|pending| pending.wait()).collect::<Result<_>>()?;
        show(if count == 1 { "one node" } else { "two nodes" }, changes, &done);
    }
    drop(nodes);
    threads.close()
}
