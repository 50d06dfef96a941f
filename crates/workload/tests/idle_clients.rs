//! What the memories of idle clients are worth to one that works, on the machines of Franklin, Carey and Livny 1992.

use base::time::SECOND_NS;
use devices::Hardware;
use engine::buffer;
use engine::catalog::{Locking, Organization};
use engine::{Database, PartitionSpec, Settings, checkpoint};
use entresol_workload::page_server::{CHANCES, DATABASE_PAGES, Figures, Machines, PageServerModel, Pattern, run};
use executor::{Cluster, Executor, Order};
use virtual_driver::{Media, Network, NetworkOptions, Options, VirtualDriver};

/// The memory of the server, in pages, and that of a client.
const SERVER_PAGES: usize = 375;
const CLIENT_PAGES: u32 = 187;

fn described(name: &str) -> Hardware {
    Hardware::named(name).expect("it is described")
}

/// What is measured of one client that references pages uniformly and writes none, for some seconds behind three times as many of warm-up,
/// while others are idle.
fn measured(algorithm: &str, clients: u32, seconds: u64) -> Figures {
    let server = described("franklin-1992-server");
    let description = server.networks["fast"].clone();
    let network = Network::new(NetworkOptions { name: "fast".to_owned(), description, ..NetworkOptions::default() });
    let machine = |number: u32| {
        let hardware = if number == 0 { server.clone() } else { described("franklin-1992-client") };
        let options = Options { seed: u64::from(number), ..Options::default() };
        let driver = VirtualDriver::on_network(hardware, options, Media::new(), network.attach(number));
        Executor::new(Box::new(driver), Order::FirstInFirstOut)
    };
    let (executor, clients): (Executor, Vec<Executor>) = (machine(0), (1..=clients).map(machine).collect());
    let buffer =
        buffer::Settings { frames: SERVER_PAGES, page_size: 4096, cleaner: false, ..buffer::Settings::default() };
    let settings = Settings {
        buffer,
        log_device: "log".to_owned(),
        home_device: "disk".to_owned(),
        checkpoint: checkpoint::Policy { log_bytes: None, interval_ns: None },
        ..Settings::default()
    };
    let made = executor.run(async {
        let database = Database::create(&executor, settings).await?;
        let objects = u64::from(DATABASE_PAGES);
        let organization = Organization::Direct { objects, blocking_factor: 1, record_size: 8 };
        let spec = PartitionSpec {
            device: "disk".to_owned(),
            assumed: true,
            ..PartitionSpec::new("pages", organization, Locking::None)
        };
        let pages = database.create_partition(spec).await?;
        Ok::<_, engine::Error>((database, pages))
    });
    let (database, pages) = made.expect("the machine goes on").expect("there is room");
    let model = PageServerModel {
        algorithm: algorithm.to_owned(),
        chances: CHANCES,
        working: Some(1),
        pattern: Pattern::Uniform,
        write_probability: 0.0,
        client_pages: CLIENT_PAGES,
        network: "fast".to_owned(),
        commits_pages: true,
    };
    let machines = Machines {
        database: &database,
        pages,
        addresses: (0..=clients.len() as u32).map(|number| network.address(number)).collect(),
        cluster: Cluster::new([executor.clone()].into_iter().chain(clients.iter().cloned())),
        clients: clients.clone(),
    };
    let figures = run(&model, machines, (3 * seconds * SECOND_NS, seconds * SECOND_NS, 1), 1);
    clients.iter().for_each(Executor::stop);
    executor.stop();
    figures.expect("they go on").remove(0)
}

#[test]
fn idle_clients_save_reads_of_the_disk() {
    let reads = |algorithm| measured(algorithm, 4, 50).disk_reads_per_commit;
    let [forwarding, sending, passing] = ["fwd", "fwd-s", "n-chance"].map(reads);
    assert!(2.0 * passing < forwarding && 2.0 * passing < sending, "{forwarding}, {sending}, {passing}");
}
