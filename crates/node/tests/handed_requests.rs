//! Requests for pages that go on for another transaction than the one that has made them, at nodes that are far from their server.

use crate::counting::{join, serve};
use crate::machines::Machines;
use base::time::MILLISECOND_NS;
use base::{Instant, PageId};
use engine::{Error, Result};
use entresol_node::algorithm;
use entresol_node::page_client::PageClient;
use entresol_node::page_server::ServerInternals;
use executor::{Cluster, Executor};
use std::future::poll_fn;
use std::pin::pin;
use std::task::{Context, Poll};

/// So far that what is renewed of a lease is over for most of the time.
const LATENCY_NS: u64 = 900 * MILLISECOND_NS;

fn at(ms: u64) -> Instant {
    Instant::from_ns(ms * MILLISECOND_NS)
}

fn value(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes[32..40].try_into().expect("eight bytes"))
}

/// Pages that transactions want.
#[derive(Clone, Copy)]
struct WantedPages {
    first: PageId,
    second: PageId,
    last: PageId,
}

/// Has the last page from early on, and wants to write the first one, and then the second.
async fn write_all(
    client: PageClient,
    executor: Executor,
    WantedPages { first, second, last }: WantedPages,
) -> Result<()> {
    let mut writer = client.begin().await;
    writer.write(last, 32, &1_u64.to_le_bytes()).await?;
    executor.sleep_until(at(20_000)).await;
    writer.write(first, 32, &1_u64.to_le_bytes()).await?;
    writer.write(second, 32, &1_u64.to_le_bytes()).await?;
    writer.commit().await
}

/// One transaction has read the first page, and is a victim, for it waits for the last one. Another one has read the second, begins to wait for the
/// last one then, and stops as soon as it has asked. Returns whether the node had no lease until that.
async fn ask_and_stop(
    client: PageClient,
    executor: Executor,
    WantedPages { first, second, last }: WantedPages,
) -> Result<bool> {
    let (mut victim, mut reader) = (client.begin().await, client.begin().await);
    victim.read(first, value).await?;
    reader.read(second, value).await?;
    executor.sleep_until(at(21_000)).await;
    assert_eq!(victim.read(last, value).await.map(drop), Err(Error::Deadlock));
    drop(victim);
    let had_none = !client.has_lease();
    {
        let mut reading = pin!(reader.read(last, value));
        let is_over = |context: &mut Context<'_>| match reading.as_mut().poll(context) {
            Poll::Pending if client.has_lease() => Poll::Ready(()),
            Poll::Pending => Poll::Pending,
            Poll::Ready(read) => panic!("another node writes the page: {read:?}"),
        };
        poll_fn(is_over).await;
    }
    executor.sleep_until(at(35_000)).await;
    reader.commit().await.map(|()| had_none)
}

/// Waits for the last page when the one that has asked for it is about to be a victim, and asks for it anew, or comes to what the other one
/// has asked for by then.
async fn wait(client: PageClient, executor: Executor, WantedPages { last, .. }: WantedPages) -> Result<u64> {
    let mut waiting = client.begin().await;
    executor.sleep_until(at(22_600)).await;
    let (found, _) = waiting.read(last, value).await?;
    waiting.commit().await.map(|()| found)
}

#[test]
fn who_comes_to_a_request_again_whose_transaction_has_stopped_waiting_has_it_from_then_on() {
    let mut without = 0;
    for seed in 0..8 {
        let machines = Machines::far_apart(seed, LATENCY_NS);
        let executors = [machines.server(), machines.client(1), machines.client(2)];
        let mut cluster = Cluster::new(executors.iter().cloned());
        let algorithm = algorithm::named("cbl").expect("it is one of them");
        let serving = executors[0].spawn(serve(executors[0].clone(), machines.address(0), algorithm));
        let (server, counters) = cluster.run(serving).expect("it starts");
        let clients = [1, 2].map(|number: u32| {
            let executor = &executors[number as usize];
            let addresses = (machines.address(0), machines.address(number));
            cluster.run(executor.spawn(join(executor.clone(), addresses, counters))).expect("they go on")
        });
        cluster.run_until(at(10_000)).expect("they go on");
        let [first, second, last] = [1, 2, 3].map(|number| PageId::new(counters, number));
        let wanted = WantedPages { first, second, last };
        let at_node = |number: usize| (clients[number].clone(), executors[number + 1].clone());
        let ((one, executor), (other, elsewhere)) = (at_node(0), at_node(1));
        let asking = executor.spawn(ask_and_stop(one.clone(), executor.clone(), wanted));
        let waiting = executor.spawn(wait(one, executor.clone(), wanted));
        let writing = elsewhere.spawn(write_all(other, elsewhere.clone(), wanted));
        cluster.run_until(at(60_000)).expect("they go on");
        without += u32::from(cluster.run(asking).expect("they go on").expect("it waits for no one"));
        assert_eq!(cluster.run(writing).expect("they go on"), Ok(()), "seed {seed}");
        assert_eq!(cluster.run(waiting).expect("they go on"), Ok(1), "seed {seed}");
        assert_eq!(server.protocol().counts().victims, 1, "seed {seed}");
        server.protocol().check().expect("the directory is right");
        drop((server, clients));
        executors.iter().for_each(Executor::stop);
    }
    assert!(without > 1, "most have to wait for their lease: {without}");
}
