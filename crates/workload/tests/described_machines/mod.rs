//! A run of the page server on the machines of Franklin, Carey and Livny 1992.

use base::time::SECOND_NS;
use devices::Hardware;
use engine::buffer;
use engine::catalog::{Locking, Organization};
use engine::{Database, PartitionSpec, Settings, checkpoint};
use entresol_workload::page_server::{CHANCES, DATABASE_PAGES, Figures, Machines, PageServerModel, Pattern, run};
use executor::{Cluster, Executor, Order};
use virtual_driver::{Media, Network, NetworkOptions, Options, VirtualDriver};

/// The memory of the server, in pages.
pub const SERVER_PAGES: usize = 375;

fn described(name: &str) -> Hardware {
    Hardware::named(name).expect("it is described")
}

/// A load that writes nothing, with the paper's larger buffers of clients.
pub fn read_only(algorithm: &str, pattern: Pattern) -> PageServerModel {
    PageServerModel {
        algorithm: algorithm.to_owned(),
        chances: CHANCES,
        working: None,
        pattern,
        write_probability: 0.0,
        client_pages: 187,
        network: "fast".to_owned(),
        commits_pages: true,
    }
}

/// What is measured of the model on a server and this number of clients, for some seconds behind others of warm-up.
pub fn measured(model: &PageServerModel, clients: u32, [warm_up, seconds]: [u64; 2]) -> Figures {
    let server = described("franklin-1992-server");
    let description = server.networks[&model.network].clone();
    let network =
        Network::new(NetworkOptions { name: model.network.clone(), description, ..NetworkOptions::default() });
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
    let machines = Machines {
        database: &database,
        pages,
        addresses: (0..=clients.len() as u32).map(|number| network.address(number)).collect(),
        cluster: Cluster::new([executor.clone()].into_iter().chain(clients.iter().cloned())),
        clients: clients.clone(),
    };
    let figures = run(model, machines, (warm_up * SECOND_NS, seconds * SECOND_NS, 1), 1);
    clients.iter().for_each(Executor::stop);
    executor.stop();
    figures.expect("they go on").remove(0)
}
