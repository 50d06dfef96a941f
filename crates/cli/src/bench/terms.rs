//! The terms of a run that benchmarks share: where, how many arrivals, how long, on what.

use super::positive;
use crate::node::joining::Joining;
use crate::node::protection::usage;
use crate::progress::Progress;
use crate::{Failure, opening};
use clap::Args;
use engine::catalog::Locking;
use entresol::configuration::{Configuration, FILE_NAME, LockGranule, Organization, Partition};
use entresol::{Opening, PartitionSpec, Store};
use std::path::{Path, PathBuf};
use workload::{Length, Load, Plan};

/// The terms of a run.
#[derive(Args, Clone, Debug)]
pub struct Terms {
    /// Seed of all random numbers
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// How long to measure, on the run's clock [default: 10, or all]
    #[arg(long, value_name = "S", value_parser = positive, conflicts_with = "transactions")]
    pub seconds: Option<f64>,
    /// How many transactions to measure, in place of a time
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub transactions: Option<u64>,
    /// Shows the throughput of each S seconds, without a warm-up
    #[arg(long, value_name = "S", value_parser = positive, conflicts_with = "transactions")]
    pub course: Option<f64>,
    /// Begins with an empty buffer, and measures it warming up
    #[arg(long)]
    pub cold: bool,
    /// Runs a copy of the database in DIR on the described hardware
    #[arg(long, value_name = "DIR", requires = "hardware")]
    pub like: Option<PathBuf>,
    #[command(flatten)]
    pub setup: Setup,
}

/// What a benchmark runs on, and how its report is printed.
#[derive(Args, Clone, Debug)]
pub struct Setup {
    /// Configuration file [default: DIR/entresol.toml]
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Described hardware: a name ('entresol devices list') or a file
    #[arg(long, value_name = "NAME")]
    pub hardware: Option<String>,
    /// Prints the report as JSON
    #[arg(long)]
    pub json: bool,
    /// Devices that lose their contents with the power on this hardware, whatever its description says.
    #[arg(skip)]
    pub volatile: Vec<String>,
}

impl Setup {
    /// Reads a configuration for the hardware that the arguments name.
    pub fn read(&self, file: Option<&Path>) -> Result<Configuration, Failure> {
        let mut configuration = Configuration::read(file, self.hardware.as_deref())?;
        let described = configuration.hardware.iter_mut().flat_map(|hardware| &mut hardware.devices);
        for (_, device) in described.filter(|(name, _)| self.volatile.contains(name)) {
            device.volatile = true;
        }
        Ok(configuration)
    }
}

impl Terms {
    /// The configuration that the arguments name, of a database in the directory `data`.
    pub fn configuration(&self, data: &Path) -> Result<Configuration, Failure> {
        let of_copied = self.like.as_ref().map(|directory| directory.join(FILE_NAME)).filter(|file| file.is_file());
        Ok(match (&self.setup.config, self.setup.hardware.as_deref()) {
            (None, Some(_)) if self.like.is_some() => self.setup.read(of_copied.as_deref())?,
            (None, Some(hardware)) if let Some(base) = papers::base(hardware) => {
                Configuration::from_bytes(hardware, base.as_bytes(), None)?
            }
            (None, None) => {
                let inside = data.join(FILE_NAME);
                Configuration::read(inside.is_file().then_some(inside.as_path()), None)?
            }
            (file, _) => self.setup.read(file.as_deref())?,
        })
    }

    /// The measured length: 10 seconds unless another is asked for.
    pub fn measure(&self) -> Length {
        self.length().unwrap_or(Length::Time(10_000_000_000))
    }

    /// The plan of a run under this load, a fifth of it before it is measured unless it begins cold.
    pub fn plan(&self, load: Load) -> Plan {
        let measure = self.measure();
        let warm_up = if self.is_cold() { Length::Time(0) } else { measure.share(5) };
        Plan { load, warm_up, measure, seed: self.seed }
    }

    /// Whether the run is measured from its first transaction on, with nothing in the buffer.
    pub fn is_cold(&self) -> bool {
        self.cold || self.course.is_some()
    }

    /// Opens a database, or a copy of the one that is named for that.
    pub fn open(&self, opening: Opening, progress: &Progress) -> Result<Store, Failure> {
        match &self.like {
            None => opening::open(opening, progress),
            Some(directory) => {
                let configured = match &self.setup.config {
                    Some(file) => Configuration::read(Some(file), None)?,
                    None => {
                        let inside = directory.join(FILE_NAME);
                        Configuration::read(inside.is_file().then_some(inside.as_path()), None)?
                    }
                };
                opening::open_like(opening, (directory, &configured), !self.cold, progress)
            }
        }
    }

    /// The measured length, if one is asked for.
    pub fn length(&self) -> Option<Length> {
        let transactions = self.transactions.map(Length::Transactions);
        transactions.or(self.seconds.map(|seconds| Length::Time((seconds * 1e9) as u64)))
    }

    /// The database in the directory `data`.
    pub fn opening(&self, data: &Path, configuration: Configuration) -> Opening {
        Opening::new(data, configuration).seed(self.seed)
    }
}

/// Refuses what is for a server that is joined, where none is.
pub fn without_server(joining: &Joining) -> Result<(), Failure> {
    if joining.protection.is_given() {
        return Err(usage("TLS is for a server that is joined: give --join ADDRESS".to_owned()));
    }
    Ok(())
}

/// The load of a workload whose transactions run on the engine's thread.
#[derive(Args, Clone, Copy, Debug)]
pub struct ClosedOrOpen {
    /// Clients, each with one transaction at a time [default: 64]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=65_536), conflicts_with = "rate")]
    pub clients: Option<u32>,
    /// In place of clients: transactions arrive so often, at random (Poisson)
    #[arg(long, value_name = "TPS", value_parser = positive)]
    pub rate: Option<f64>,
}

/// How many clients there are where none are asked for.
const CLIENTS: u32 = 64;

impl ClosedOrOpen {
    /// The load.
    pub fn load(self) -> Load {
        let clients = self.clients.unwrap_or(CLIENTS);
        self.rate.map_or(Load::Closed { clients }, |rate_per_s| Load::Open { rate_per_s })
    }
}

/// The load of a workload that a transaction server can run.
#[derive(Args, Clone, Copy, Debug)]
pub struct ServedLoad {
    /// Clients, each with one transaction at a time [default: 64]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=65_536), conflicts_with = "rate")]
    pub clients: Option<u32>,
    /// In place of clients: transactions arrive so often, at random (Poisson)
    #[arg(long, value_name = "TPS", value_parser = positive)]
    pub rate: Option<f64>,
    /// Runs registered procedures by a transaction server (section 'server')
    #[arg(long, conflicts_with = "rate")]
    pub server: bool,
    /// In place of clients: its request queue is kept full
    #[arg(long, requires = "server", conflicts_with = "clients")]
    pub full: bool,
}

impl ServedLoad {
    /// The load.
    pub fn load(self) -> Load {
        match self.rate {
            _ if self.full => Load::Full,
            Some(rate_per_s) => Load::Open { rate_per_s },
            None => Load::Closed { clients: self.clients.unwrap_or(CLIENTS) },
        }
    }

    /// The configuration with the server that is asked for, and with none if none is.
    pub fn configured(self, configuration: Configuration) -> Configuration {
        let server = self.server.then(|| configuration.server.unwrap_or_default());
        Configuration { server, ..configuration }
    }
}

/// Adds a direct partition to the configuration: placed as its section there says, if it has one, and of this organization.
/// `locks` is what the workload asks for; `None` leaves it to the section.
pub fn place(
    configuration: &mut Configuration,
    name: &str,
    objects: engine::catalog::Organization,
    locks: Option<Locking>,
) {
    let engine::catalog::Organization::Direct { objects, blocking_factor, record_size } = objects else {
        unreachable!("the partitions of these workloads are direct")
    };
    let section = configuration.partition(name);
    let locks = match locks {
        Some(Locking::Page) => LockGranule::Page,
        Some(Locking::Record) => LockGranule::Record,
        Some(Locking::None) => LockGranule::None,
        None => section.locks,
    };
    let partition = Partition {
        organization: Organization::Direct,
        locks,
        objects: Some(objects),
        blocking_factor: Some(blocking_factor),
        record_size: section.record_size.or(Some(record_size)),
        ..section
    };
    configuration.partitions.insert(name.to_owned(), partition);
}

/// The partition that [`place`] has added, as it is to be created in this store.
pub fn placed(store: &Store, name: &str) -> entresol::Result<PartitionSpec> {
    let configuration = store.configuration();
    let spec = configuration.partition_spec(name, &configuration.partition(name))?;
    Ok(PartitionSpec { assumed: store.is_virtual(), ..spec })
}
