//! A server with a partition of typed records, which has indexes, and clients of it.

use crate::machines::Machines;
use base::time::SECOND_NS;
use engine::catalog::{IndexSpec, Locking, Organization};
use engine::set::{FieldType, FieldValue, RecordType};
use engine::{Database, Error, PartitionSpec, Settings, buffer, log};
use entresol_node::algorithm::{ALGORITHMS, CHANCES};
use entresol_node::channel::Plain;
use entresol_node::grants::Grants;
use entresol_node::page_client::{ClientSettings, PageClient};
use entresol_node::page_server::{PageServer, ServerSettings};
use executor::{Cluster, Executor};
use std::net::SocketAddr;
use std::rc::Rc;

pub const PAGE_SIZE: usize = 1024;

pub fn buffer_settings(frames: usize) -> buffer::Settings {
    buffer::Settings { frames, page_size: PAGE_SIZE, cleaner: false, ..buffer::Settings::default() }
}

pub fn settings() -> Settings {
    let log = log::Settings { capacity: 4 << 20, ..log::Settings::default() };
    Settings { buffer: buffer_settings(400), log, ..Settings::default() }
}

pub fn record() -> RecordType {
    let fields = [("group", FieldType::U32), ("weight", FieldType::I64), ("name", FieldType::Text)];
    RecordType::new(fields).expect("sound")
}

pub fn stored(group: u32, weight: i64, name: &str) -> Vec<u8> {
    let mut value = Vec::new();
    let contents = [FieldValue::U32(group), FieldValue::I64(weight), FieldValue::Text(name)];
    record().encode(&contents, &mut value).expect("suits");
    value
}

/// The fields of a stored record.
pub fn fields(value: &[u8]) -> (u32, i64, String) {
    let of = |field| record().decode(value, field).expect("it is of the type");
    match (record().decode(value, 0), record().decode(value, 1), record().decode(value, 2)) {
        (Ok(FieldValue::U32(group)), Ok(FieldValue::I64(weight)), Ok(FieldValue::Text(name))) => {
            (group, weight, name.to_owned())
        }
        _ => panic!("{:?}", [of(0), of(1), of(2)]),
    }
}

/// What is served: things with two indexes, notes without a type, sets, records that are added, and cells by number.
pub async fn create(executor: &Executor) -> Database {
    let database = Database::create(executor, settings()).await.expect("the medium is empty");
    let things = PartitionSpec::b_tree("things").record(record()).secondary("by_group", &["group", "weight"]);
    let things = database.create_partition(things).await.expect("there is room");
    let by_name = IndexSpec::new("by_name", &["name"]).unique();
    database.create_index(things, by_name).await.expect("there is room");
    database.create_partition(PartitionSpec::b_tree("notes")).await.expect("there is room");
    let offers = PartitionSpec::set("offers").record(record()).secondary("by_name", &["name"]);
    let offers = offers.secondary("by_group", &["group", "weight"]);
    let arrivals = PartitionSpec::new("arrivals", Organization::set(true), Locking::Record);
    for set in [PartitionSpec::set("stock"), PartitionSpec::set("prices").record(record()), offers, arrivals] {
        database.create_partition(set).await.expect("there is memory");
    }
    database.create_partition(PartitionSpec::append("history")).await.expect("there is room");
    let cells = Organization::Direct { objects: 24, blocking_factor: 12, record_size: 8 };
    database.create_partition(PartitionSpec::new("cells", cells, Locking::None)).await.expect("there is room");
    let seats = PartitionSpec::set("seats").record(record()).index(IndexSpec::new("by_name", &["name"]).unique());
    database.create_partition(seats).await.expect("there is memory");
    database
}

pub async fn serve(executor: Executor, address: SocketAddr, number: usize, grants: Option<Grants>) -> PageServer {
    let database = create(&executor).await;
    serve_database(&database, address, number, grants).await
}

pub async fn serve_database(
    database: &Database,
    address: SocketAddr,
    number: usize,
    grants: Option<Grants>,
) -> PageServer {
    let transport = Rc::new(Plain(database.executor().clone()));
    let settings = ServerSettings {
        algorithm: &ALGORITHMS[number % ALGORITHMS.len()],
        chances: CHANCES,
        message_size_min: 0,
        has_leases: true,
        grants,
    };
    PageServer::serve(database, transport, address, settings).await.expect("the port is free")
}

fn client_settings(address: SocketAddr, commits_pages: bool) -> ClientSettings {
    ClientSettings {
        buffer: buffer_settings(160),
        address,
        message_size_min: 0,
        transactions: 8,
        keeps_write_locks: false,
        commits_pages,
        lock_wait_ns_max: None,
        patience_ns: 60 * SECOND_NS,
    }
}

async fn join(executor: Executor, server: SocketAddr, settings: ClientSettings) -> PageClient {
    executor.sleep_ns(1_000).await;
    let transport = Rc::new(Plain(executor.for_users()));
    PageClient::join(&executor, transport, server, settings).await.expect("the server listens")
}

/// A server and some clients, which have joined.
pub struct ServedThings {
    pub machines: Machines,
    pub cluster: Cluster,
    pub server: Executor,
    pub page_server: PageServer,
    pub nodes: Vec<Executor>,
    pub clients: Vec<PageClient>,
}

impl ServedThings {
    pub fn new(seed: u64, nodes: u32, grants: Option<Grants>) -> ServedThings {
        ServedThings::suited(seed, nodes, grants, |settings| settings)
    }

    /// The same with settings of the clients that suit a test.
    pub fn suited(
        seed: u64,
        nodes: u32,
        grants: Option<Grants>,
        suit: impl Fn(ClientSettings) -> ClientSettings,
    ) -> ServedThings {
        let machines = Machines::new(seed);
        let server = machines.server();
        let nodes: Vec<Executor> = (1..=nodes).map(|number| machines.client(number)).collect();
        let mut cluster = Cluster::new([server.clone()].into_iter().chain(nodes.iter().cloned()));
        let at = machines.address(0);
        let serving = server.spawn(serve(server.clone(), at, seed as usize, grants));
        let page_server = cluster.run(serving).expect("it starts");
        let mut clients = Vec::new();
        for (executor, number) in nodes.iter().zip(1..) {
            let settings = suit(client_settings(machines.address(number), number % 2 == 0));
            let joining = join(executor.clone(), at, settings);
            clients.push(cluster.run(executor.spawn(joining)).expect("it joins"));
        }
        ServedThings { machines, cluster, server, page_server, nodes, clients }
    }

    /// Has the first client do something.
    pub fn run<T: 'static>(&mut self, work: impl AsyncFnOnce(PageClient) -> T + 'static) -> T {
        let client = self.clients[0].clone();
        let task = self.nodes[0].spawn(async move { work(client).await });
        self.cluster.run(task).expect("they go on")
    }

    /// Ends all, and opens the database once more, which is looked through.
    pub fn open<T>(self, look: impl AsyncFnOnce(&Database) -> engine::Result<T>) -> T {
        let ServedThings { machines, cluster, server, page_server, nodes, clients } = self;
        drop((clients, page_server));
        nodes.iter().for_each(Executor::stop);
        server.stop();
        drop(cluster);
        open(&machines, look)
    }
}

/// Opens the database, which is to be sound.
pub fn open<T>(machines: &Machines, look: impl AsyncFnOnce(&Database) -> engine::Result<T>) -> T {
    let executor = machines.server();
    let found = executor.run(async {
        let database = Database::open(&executor, settings(), "things").await?;
        let report = database.check(|_| {}).await?;
        assert!(report.is_clean(), "{:?}", report.findings);
        let found = look(&database).await?;
        database.close().await?;
        Ok::<_, Error>(found)
    });
    let found = found.expect("the machine goes on").expect("the database is opened");
    executor.stop();
    found
}
