//! What needs a node to die, which none does of itself.

use super::*;
use std::sync::mpsc;

const CONFIGURATION: &str = "[nodes]\ncount = 2\nbuffer = \"1 MiB\"\n[log]\nsize = \"4 MiB\"\n[buffer]\nsize = \"4 MiB\"\n[driver]\nbackend = \"thread-pool\"";

fn start(directory: &std::path::Path) -> NodeThreads {
    let configuration = Configuration::parse(CONFIGURATION).expect("it is right");
    NodeThreads::start(Opening::new(directory, configuration)).expect("it starts")
}

/// A node's thread panics outside of any request's code, and its thread is gone.
fn break_node(threads: &NodeThreads, number: usize) {
    let (handle, thread) = &threads.nodes[number];
    handle.link.sender.send(Request::Run(Box::new(|_| panic!("a defect of the node's own"))));
    while !thread.is_finished() {
        std::thread::yield_now();
    }
}

#[test]
fn a_node_that_dies_fails_its_requests_and_no_others() {
    let directory = tempfile::tempdir().expect("a directory");
    let threads = start(directory.path());
    let handle = threads.handle();
    let notes = handle.ensure_partition(PartitionSpec::b_tree("notes")).wait().expect("there is room");
    handle.put(notes, b"milk", b"old").wait().expect("it commits");
    // A transaction of the second node has the page's write lock, and has changed it.
    let (tell, told) = mpsc::channel();
    let caught = handle.transaction_at(1, async move |tx| {
        tx.put(notes, b"milk", b"lost").await?;
        tell.send(()).expect("it is waited for");
        std::future::pending::<Result<()>>().await
    });
    told.recv().expect("it gets there");
    let behind = handle.transaction_at(1, async move |tx| tx.get(notes, b"milk").await);
    // One of the first node waits for it.
    let waits = handle.transaction_at(0, async move |tx| {
        let milk = tx.get(notes, b"milk").await?;
        tx.put(notes, b"milk", b"new").await?;
        Ok::<_, Error>(milk)
    });
    break_node(&threads, 1);
    assert_eq!(caught.wait(), Err(Error::NodeEnded { node: 1 }));
    assert_eq!(behind.wait(), Err(Error::NodeEnded { node: 1 }));
    assert_eq!(waits.wait(), Ok(Some(b"old".to_vec())), "the lock is free, and nothing of its transaction is left");
    // What is asked of it now goes to another.
    assert_eq!(
        handle.transaction_at(1, async move |tx| tx.get(notes, b"milk").await).wait(),
        Ok(Some(b"new".to_vec()))
    );
    for _ in 0..4 {
        assert_eq!(handle.get(notes, b"milk").wait(), Ok(Some(b"new".to_vec())));
    }
    assert_eq!(handle.survey().wait().expect("the server goes on").nodes.len(), 1);
    let closed = threads.close();
    assert!(matches!(closed, Err(OpenError::Engine(Error::NodeEnded { node: 1 }))), "{closed:?}");
    // The database was closed all the same.
    let store = Opening::new(directory.path(), Configuration::parse(CONFIGURATION).expect("right"))
        .nodes(1)
        .open()
        .expect("opens");
    assert_eq!(store.database().recovery().records, 0);
    let milk = store.run(async |database| database.transaction(async |tx| tx.get(notes, b"milk").await).await);
    assert_eq!(milk.expect("it reads"), Some(b"new".to_vec()));
}

#[test]
fn requests_of_nodes_that_are_all_dead_are_refused() {
    let directory = tempfile::tempdir().expect("a directory");
    let threads = start(directory.path());
    let handle = threads.handle();
    let notes = handle.ensure_partition(PartitionSpec::b_tree("notes")).wait().expect("there is room");
    break_node(&threads, 0);
    break_node(&threads, 1);
    assert!(matches!(handle.get(notes, b"milk").wait(), Err(Error::NodeEnded { .. })));
}
