//! What a database does once its page server was closed: it changes nothing itself while a node that has not heard of that may still use its
//! copies, and another server waits for the commits of the first.

use crate::counting::{client_settings, counters, settings};
use crate::machines::Machines;
use base::time::MILLISECOND_NS;
use base::{Instant, PageId, PartitionId};
use engine::canary::{self, Canary};
use engine::log::GroupCommit;
use engine::{Database, Error, Result, Settings, Transaction, log};
use entresol_node::channel::Plain;
use entresol_node::page_client::{NodeInternals, PageClient};
use entresol_node::page_server::{PageServer, ServerSettings};
use executor::{Cluster, Executor};
use std::cell::Cell;
use std::net::SocketAddr;
use std::rc::Rc;
use virtual_driver::{NetworkFaults, Partition};

const PAGE: PageId = PageId { partition: PartitionId(0), number: 3 };

fn at(ms: u64) -> Instant {
    Instant::from_ns(ms * MILLISECOND_NS)
}

async fn serve(database: &Database, address: SocketAddr) -> Result<PageServer> {
    let transport = Rc::new(Plain(database.executor().clone()));
    PageServer::serve(database, transport, address, ServerSettings::default()).await
}

/// A machine with a database that is served, and one with a node.
struct Ground {
    machines: Machines,
    cluster: Cluster,
    executors: [Executor; 2],
    database: Database,
    server: PageServer,
}

impl Ground {
    fn new(faults: NetworkFaults, settings: Settings) -> Ground {
        let machines = Machines::with(5, faults);
        let executors = [machines.server(), machines.client(1)];
        let mut cluster = Cluster::new(executors.iter().cloned());
        let (executor, address) = (executors[0].clone(), machines.address(0));
        let serving = executors[0].spawn(async move {
            let database = Database::create(&executor, settings).await?;
            database.create_partition(counters()).await?;
            let server = serve(&database, address).await?;
            Ok::<_, Error>((database, server))
        });
        let (database, server) = cluster.run(serving).expect("no machine stops").expect("it serves");
        Ground { machines, cluster, executors, database, server }
    }

    fn join(&mut self, server: SocketAddr) -> PageClient {
        let (executor, own) = (self.executors[1].clone(), self.machines.address(1));
        let own = SocketAddr::new(own.ip(), own.port() + server.port() - self.machines.address(0).port());
        let joining = self.executors[1].spawn(async move {
            let transport = Rc::new(Plain(executor.for_users()));
            PageClient::join(&executor, transport, server, client_settings(own, 12)).await
        });
        let client = self.cluster.run(joining).expect("no machine stops").expect("it is let in");
        client.attach(PAGE.partition);
        client
    }

    fn end(self) {
        drop(self.server);
        self.executors.iter().for_each(Executor::stop);
    }
}

async fn read(client: &PageClient) -> Result<u8> {
    let mut transaction = client.begin().await;
    let (value, _) = transaction.read(PAGE, |bytes| bytes[32]).await?;
    transaction.commit().await?;
    Ok(value)
}

async fn write(client: PageClient, value: u8) -> Result<()> {
    let mut transaction = client.begin().await;
    transaction.write(PAGE, 32, &[value]).await?;
    transaction.commit().await
}

/// The node is cut off from 3 s on, and the server is closed at 3.1 s. When the database has then changed what the node has a copy of, and when that
/// was last read there as it was before.
fn changed_and_last_read() -> (Instant, Instant) {
    let cut = Partition { machines: vec![1], from: at(3_000), until: at(20_000) };
    let mut ground = Ground::new(NetworkFaults { partitions: vec![cut], ..NetworkFaults::default() }, settings());
    let client = ground.join(ground.machines.address(0));
    let first = client.clone();
    let reading = ground.executors[1].spawn(async move { read(&first).await });
    assert_eq!(ground.cluster.run(reading), Ok(Ok(0)));
    ground.cluster.run_until(at(2_900)).expect("no machine stops");
    let last: Rc<Cell<Instant>> = Rc::default();
    ground.executors[1].spawn({
        let (last, executor) = (Rc::clone(&last), ground.executors[1].clone());
        async move {
            while let Ok(0) = read(&client).await {
                last.set(executor.now());
                executor.sleep_ns(20 * MILLISECOND_NS).await;
            }
        }
    });
    ground.cluster.run_until(at(3_100)).expect("no machine stops");
    ground.server.close();
    let changing = ground.executors[0].spawn({
        let database = ground.database.clone();
        let change = async |tx: &mut Transaction| tx.modify_object(PAGE.partition, 3, |object| object[0] = 1).await;
        async move { database.transaction(change).await.map(|()| database.executor().now()) }
    });
    let changed = ground.cluster.run(changing).expect("no machine stops").expect("no node has a lease");
    ground.cluster.run_until(at(10_000)).expect("no machine stops");
    ground.end();
    (changed, last.get())
}

#[test]
fn a_database_changes_nothing_that_a_node_which_is_cut_off_may_read() {
    let (changed, last_read) = changed_and_last_read();
    assert!(changed < at(6_000), "it waits for leases alone: {changed:?}");
    assert!(last_read > at(4_000), "its lease has lasted: {last_read:?}");
    assert!(last_read < changed, "read at {last_read:?}, changed at {changed:?}");
    canary::plant(Some(Canary::ForgottenLeases));
    let (changed, last_read) = changed_and_last_read();
    canary::plant(None);
    assert!(changed < last_read, "what is planted is found");
}

/// The same of what is done to its partitions.
#[test]
fn no_partition_is_dropped_of_which_a_node_may_have_copies() {
    let cut = Partition { machines: vec![1], from: at(3_000), until: at(20_000) };
    let mut ground = Ground::new(NetworkFaults { partitions: vec![cut], ..NetworkFaults::default() }, settings());
    let _node = ground.join(ground.machines.address(0));
    ground.cluster.run_until(at(3_100)).expect("no machine stops");
    ground.server.close();
    let dropping = ground.executors[0].spawn({
        let database = ground.database.clone();
        async move { database.drop_partition(PAGE.partition).await.map(|()| database.executor().now()) }
    });
    let dropped = ground.cluster.run(dropping).expect("no machine stops").expect("no node has a lease");
    assert!((at(4_000)..at(6_000)).contains(&dropped), "{dropped:?}");
    ground.end();
}

#[test]
fn a_server_waits_for_the_commits_of_the_one_before_it() {
    let slow =
        log::Settings { group_commit: GroupCommit::Delay { ns: 200 * MILLISECOND_NS }, ..log::Settings::default() };
    let mut ground = Ground::new(NetworkFaults::default(), Settings { log: slow, ..settings() });
    let first = ground.machines.address(0);
    let client = ground.join(first);
    // Leases of an earlier server would be over.
    ground.cluster.run_until(at(4_000)).expect("no machine stops");
    let writing = ground.executors[1].spawn(write(client, 7));
    ground.cluster.run_until(at(4_100)).expect("no machine stops");
    assert!(!writing.is_finished(), "its commit is under way");
    ground.server.close();
    let second = SocketAddr::new(first.ip(), first.port() + 1);
    let serving = ground.executors[0].spawn({
        let database = ground.database.clone();
        async move { serve(&database, second).await }
    });
    let server = ground.cluster.run(serving).expect("no machine stops").expect("the first one was closed");
    let client = ground.join(second);
    let reading = ground.executors[1].spawn(async move { read(&client).await });
    assert_eq!(ground.cluster.run(reading), Ok(Ok(7)));
    drop(server);
    ground.end();
}
