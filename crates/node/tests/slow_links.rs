//! Links over which long messages take longer than a lease lasts.

use crate::counting::client_settings;
use crate::machines::Machines;
use base::time::SECOND_NS;
use base::{PageId, PartitionId};
use engine::catalog::{Locking, Organization};
use engine::set::SEGMENT_SIZES;
use engine::{Database, Error, PartitionSpec, Settings, buffer};
use entresol_node::channel::Plain;
use entresol_node::page_client::{ClientSettings, NodeInternals, PageClient};
use entresol_node::page_server::{PageServer, ServerInternals, ServerSettings};
use executor::{Cluster, Executor};
use std::net::SocketAddr;
use std::rc::Rc;

const PAGE_SIZE: usize = 32 << 10;
/// Of a commit of a network that carries a MB in a second.
const PAGES: u32 = 256;

fn pages(frames: usize) -> buffer::Settings {
    buffer::Settings { frames, page_size: PAGE_SIZE, cleaner: false, ..buffer::Settings::default() }
}

/// Serves pages with a byte each, and a set of long records.
async fn serve(executor: Executor, address: SocketAddr) -> (PageServer, PartitionId) {
    let settings = Settings { buffer: pages(600), ..Settings::default() };
    let database = Database::create(&executor, settings).await.expect("the media are empty");
    let organization = Organization::Direct { objects: 1_000, blocking_factor: 1, record_size: 8 };
    let spec = PartitionSpec::new("large", organization, Locking::None);
    let large = database.create_partition(spec).await.expect("there is room");
    let organization =
        Organization::Set { arrivals: false, segment_size: *SEGMENT_SIZES.end() as u32, reserve_percent: 10 };
    let spec = PartitionSpec::new("films", organization, Locking::Record);
    database.create_partition(spec).await.expect("there is memory");
    let transport = Rc::new(Plain(executor.for_users()));
    let server = PageServer::serve(&database, transport, address, ServerSettings::default()).await;
    (server.expect("the port is free"), large)
}

async fn join(executor: Executor, (server, own): (SocketAddr, SocketAddr)) -> PageClient {
    let settings = ClientSettings { buffer: pages(300), transactions: 64, ..client_settings(own, 1) };
    let transport = Rc::new(Plain(executor.for_users()));
    PageClient::join(&executor, transport, server, settings).await.expect("it is let in")
}

/// A server and a node of it, and a partition of pages there.
struct Pair {
    machines: Machines,
    cluster: Cluster,
    executors: [Executor; 2],
    server: PageServer,
    client: PageClient,
    large: PartitionId,
}

impl Pair {
    fn new(machines: Machines) -> Pair {
        let executors = [machines.server(), machines.client(1)];
        let mut cluster = Cluster::new(executors.iter().cloned());
        let (at, own) = (machines.address(0), machines.address(1));
        let serving = executors[0].spawn(serve(executors[0].clone(), at));
        let (server, large) = cluster.run(serving).expect("it starts");
        let client = cluster.run(executors[1].spawn(join(executors[1].clone(), (at, own)))).expect("it joins");
        client.attach(large);
        cluster.run_until(cluster.now().plus_ns(3 * SECOND_NS)).expect("they go on");
        Pair { machines, cluster, executors, server, client, large }
    }

    /// Has the node do something that takes longer than a term lasts, and neither end gives the other one up.
    fn run<T: 'static>(&mut self, work: impl AsyncFnOnce(PageClient, PartitionId) -> T + 'static) -> T {
        let (began, client, large) = (self.cluster.now(), self.client.clone(), self.large);
        let task = self.executors[1].spawn(async move { work(client, large).await });
        let done = self.cluster.run(task).expect("they go on");
        let took_ns = self.cluster.now().since_ns(began);
        assert!(took_ns > 5 * SECOND_NS, "{took_ns}");
        let counts = self.server.counts();
        assert_eq!((counts.joined, counts.unheard), (1, 0), "its session lasts");
        self.server.protocol().check().expect("the directory is right");
        done
    }

    fn end(self) {
        let Pair { machines, cluster, executors, server, client, .. } = self;
        drop((server, client));
        executors.iter().for_each(Executor::stop);
        drop((cluster, machines));
    }
}

async fn change_all(client: PageClient, large: PartitionId) -> engine::Result<()> {
    let mut transaction = client.begin().await;
    for number in 0..PAGES {
        transaction.write(PageId::new(large, number), 40, &[1]).await?;
    }
    transaction.commit().await
}

#[test]
fn a_commit_is_heard_that_takes_longer_to_come_than_a_term_lasts() {
    let mut pair = Pair::new(Machines::narrow(1, "1 MB/s"));
    assert_eq!(pair.run(change_all), Ok(()));
    assert_eq!(pair.server.counts().commits, 1);
    pair.end();
}

#[test]
fn an_answer_is_heard_that_takes_longer_to_come_than_a_server_may_be_silent() {
    let mut pair = Pair::new(Machines::narrow(2, "400 kB/s"));
    let film = vec![7; 3 << 20];
    let expected = film.clone();
    let found = pair.run(async move |client, _| {
        let films = client.partition("films").await?.id();
        let mut tx = client.begin().await;
        tx.put(films, b"film", &film).await?;
        tx.commit().await?;
        let mut tx = client.begin().await;
        let found = tx.get(films, b"film").await?;
        tx.commit().await.map(|()| found)
    });
    assert!(found.expect("its session lasts").is_some_and(|found| found == expected));
    pair.end();
}

/// More than may wait for a node, all of it asked for before any of it has left.
#[test]
fn long_records_that_are_asked_for_together_are_sent_one_after_the_other() {
    const FILMS: u8 = 8;
    let film = |number: u8| vec![number; 3 << 20];
    let mut pair = Pair::new(Machines::narrow(4, "4 MB/s"));
    let found = pair.run(async move |client, _| {
        let films = client.partition("films").await?.id();
        for number in 0..FILMS {
            let mut tx = client.begin().await;
            tx.put(films, &[number], &film(number)).await?;
            tx.commit().await?;
        }
        let get = |number: u8| {
            let client = client.clone();
            client.executor().clone().spawn(async move {
                let mut tx = client.begin().await;
                let found = tx.get(films, &[number]).await?;
                tx.commit().await.map(|()| found == Some(film(number)))
            })
        };
        let tasks: Vec<_> = (0..FILMS).map(get).collect();
        let mut found = Vec::new();
        for task in tasks {
            found.push(task.join().await?);
        }
        Ok::<_, Error>(found)
    });
    assert_eq!(found, Ok(vec![true; FILMS.into()]));
    pair.end();
}
