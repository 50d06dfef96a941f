//! What it costs that two nodes change different records of one leaf of a b-tree: transactions, and messages for each, with each algorithm by which
//! locks are of pages or fall to records. Each task of a node has a record of its own, adds to it, and rests before it commits.
//! `cargo run --release -p entresol --example leaf_cost [SECONDS [TASKS [REST_US]]]`.

#![allow(clippy::disallowed_methods, reason = "it measures on the real clock")]

use base::units::grouped;
use entresol::configuration::Configuration;
use entresol::{DatabaseThread, Error, Node, NodeThreads, Opening, PartitionId, PartitionSpec, Result};

const NODES: usize = 2;
const CONFIGURATION: &str = "[buffer]\nsize = \"16 MiB\"\n[log]\nsize = \"256 MiB\"\n";

/// What the tasks of a node do.
#[derive(Clone, Copy)]
struct Part {
    table: PartitionId,
    node: usize,
    seconds: u64,
    tasks: usize,
    rest_ns: u64,
}

async fn add(node: Node, part: Part, task: usize) -> Result<u64> {
    let executor = node.executor().clone();
    let key = ((part.node + NODES * task) as u64).to_be_bytes();
    let (began, mut count) = (executor.now(), 0);
    while executor.now().since_ns(began) < part.seconds * 1_000_000_000 {
        node.transaction(async |tx| {
            tx.add(part.table, &key, 0..8, 1).await?;
            if part.rest_ns > 0 {
                executor.sleep_ns(part.rest_ns).await;
            }
            Ok::<_, Error>(())
        })
        .await?;
        count += 1;
    }
    Ok(count)
}

async fn add_all(node: Node, part: Part) -> Result<u64> {
    let executor = node.executor().clone();
    let tasks: Vec<_> = (0..part.tasks).map(|task| executor.spawn(add(node.clone(), part, task))).collect();
    let mut count = 0;
    for task in tasks {
        count += task.join().await?;
    }
    Ok(count)
}

fn opening(directory: &std::path::Path, more: &str) -> std::result::Result<Opening, entresol::OpenError> {
    let configuration = Configuration::from_bytes("leaf_cost", format!("{CONFIGURATION}{more}").as_bytes(), None)?;
    Ok(Opening::new(directory, configuration))
}

fn main() -> std::result::Result<(), entresol::OpenError> {
    let mut arguments = std::env::args().skip(1).map(|text| text.parse::<u64>().expect("a number"));
    let mut argument = |usual| arguments.next().unwrap_or(usual);
    let (seconds, tasks, rest_us) = (argument(3), argument(1) as usize, argument(0));
    let directory = tempfile::tempdir_in(".").map_err(|error| Error::Setting(error.to_string()))?;
    let thread = DatabaseThread::start(opening(directory.path(), "")?)?;
    let handle = thread.handle();
    let table = handle.create_partition(PartitionSpec::b_tree("table")).wait()?;
    let loaded: Vec<_> =
        (0..(NODES * tasks) as u64).map(|number| (number.to_be_bytes().to_vec(), vec![0; 40])).collect();
    handle.with_database(async move |database| database.load_b_tree(table, loaded, |_| {}).await).wait()?;
    drop(handle);
    thread.close()?;
    for algorithm in ["cbl", "ps-aa"] {
        let more = format!("[nodes]\ncount = {NODES}\nbuffer = \"16 MiB\"\nalgorithm = \"{algorithm}\"\n");
        let threads = NodeThreads::start(opening(directory.path(), &more)?)?;
        let nodes = threads.handle();
        let messages = || -> Result<u64> {
            let survey = nodes.survey().wait()?;
            Ok(survey.sent.iter().chain(&survey.received).map(|kind| kind.amount.messages).sum())
        };
        let before = messages()?;
        let begun: Vec<_> = (0..NODES)
            .map(|number| {
                let part = Part { table, node: number, seconds, tasks, rest_ns: rest_us * 1000 };
                nodes.with_node(number, async move |node| add_all(node.clone(), part).await)
            })
            .collect();
        let mut count = 0;
        for pending in begun {
            count += pending.wait()?;
        }
        let sent = messages()? - before;
        println!(
            "{algorithm:<6} {tasks} tasks of each node, {rest_us} us of rest: {:>9}/s, {:.1} messages for each",
            grouped(count / seconds),
            sent as f64 / count as f64
        );
        drop(nodes);
        threads.close()?;
    }
    Ok(())
}
