//! From an instance and volumes of the catalogue to a machine: its devices, its price, its description.

use crate::PlanError;
use crate::catalogue::{Catalogue, Instance, Volume, VolumePrice, parse_rate};
use base::units::parse_size;
use devices::{Discipline, Hardware, LOOPBACK};
use entresol::configuration::{Problem, nearest};
use papers::experiment::Sources;
use papers::experiment::document::overlay;
use std::collections::BTreeMap;
use toml::{Table, Value};

/// A rented machine.
#[derive(Clone, Debug)]
pub struct Machine {
    /// The instance's name.
    pub instance: String,
    /// Bytes of its main memory.
    pub memory: u64,
    /// Of that, what the database leaves to the system.
    pub reserve: u64,
    /// Its devices by name.
    pub places: BTreeMap<String, Place>,
    /// The parts of the price of a month, each with what it is for.
    pub prices: Vec<(String, f64)>,
    /// The description that the database is run on.
    pub hardware: Hardware,
}

/// A device of a rented machine.
#[derive(Clone, Debug, PartialEq)]
pub struct Place {
    /// What it is, for people.
    pub kind: String,
    /// How many bytes it holds.
    pub capacity: u64,
    /// Whether it loses what it holds when the instance stops.
    pub is_local: bool,
    /// How many operations per second it may do; `None` without a limit.
    pub operations: Option<f64>,
    /// How many bytes it is rated to be written with in its life, if that is known.
    pub rated_writes: Option<u64>,
    /// Its directory, as the plan says; `None`: one beside the configuration.
    pub path: Option<String>,
}

/// What the plan calls the instance's drives where it does not say.
const LOCAL: &str = "local";
/// What the system keeps of the memory where the plan does not say.
const RESERVE: u64 = 1 << 30;

impl Machine {
    /// The price of a month.
    pub fn cost_per_month(&self) -> f64 {
        self.prices.iter().map(|(_, price)| price).sum()
    }

    /// Whether the nodes of a server are programs of its instance.
    pub fn is_for_all(&self) -> bool {
        self.hardware.networks.contains_key(LOOPBACK)
    }

    /// With what is rented for this number of nodes: nothing if a loopback is described, else an instance for each like the server's.
    ///
    /// # Errors
    /// Why it is not known what joins them.
    pub(crate) fn with_nodes(mut self, nodes: u32) -> Result<Machine, String> {
        let networks: Vec<&str> = self.hardware.networks.keys().map(String::as_str).collect();
        if self.is_for_all() {
            let share = self.hardware.cpu.as_ref().is_none_or(|cpu| cpu.discipline == Discipline::RunUntilWait);
            let why = "nodes of one instance share its processors, which the [cpu] can say by 'run-until-wait' alone";
            return if share { Ok(self) } else { Err(why.to_owned()) };
        }
        match networks[..] {
            [_] => {}
            [] => return Err(format!("nothing says what joins nodes on instances '{}'", self.instance)),
            _ => return Err(format!("nodes are joined by one network, and there are {}", networks.join(", "))),
        }
        let price = self.prices[0].1;
        self.prices.insert(1, (format!("{nodes} nodes: {}", self.instance), f64::from(nodes) * price));
        Ok(self)
    }
}

/// The keys of `[machine]`, of a volume and of the instance's drives in it.
const KEYS: [&str; 4] = ["instance", "volume", "local", "reserve"];
const VOLUME_KEYS: [&str; 5] = ["type", "size", "operations", "bandwidth", "path"];
const LOCAL_KEYS: [&str; 2] = ["name", "path"];

/// A reader of the tree `machine` of a candidate.
pub(crate) struct Reader<'a> {
    pub catalogue: &'a Catalogue,
    pub sources: &'a Sources<'a>,
    /// The catalogues' names, for messages.
    pub file: String,
}

impl Reader<'_> {
    /// The machine that these tables name; `changes` are laid over its description.
    pub fn machine(&self, table: &Table, changes: &Table) -> Result<Machine, PlanError> {
        self.only(table, "machine", &KEYS)?;
        let name = self.text(table, "machine", "instance")?.ok_or_else(|| {
            let known: Vec<&str> = self.catalogue.instances.keys().map(String::as_str).collect();
            self.wrong("machine", Problem::Conflict("[machine] has no 'instance'".to_owned()), &known.join(", "))
        })?;
        let instance = self.named(&self.catalogue.instances, "machine.instance", "instance", &name)?;
        let price = instance.price_per_month().ok_or_else(|| self.priceless("instance", &name))?;
        let mut prices = vec![(name.clone(), price)];
        let (mut places, mut devices) = (BTreeMap::new(), Table::new());
        let empty = Table::new();
        let volumes = self.table(table, "machine", "volume")?.unwrap_or(&empty);
        for key in volumes.keys() {
            let path = format!("machine.volume.{key}");
            let volume = self.table(volumes, "machine.volume", key)?.unwrap_or(&empty);
            let (place, price, device) = self.volume(instance, &path, volume)?;
            prices.push((format!("{key}: {}", place.kind), price));
            devices.insert(key.clone(), Value::Table(device));
            places.insert(key.clone(), place);
        }
        self.local(table, instance, (&mut places, &mut devices))?;
        let reserve = match self.text(table, "machine", "reserve")? {
            None => RESERVE,
            Some(text) => self.quantity("machine.reserve", &text, parse_size(&text).map_err(|e| e.to_string()))?,
        };
        let cpu = self.catalogue.cpus.get(&instance.cpu);
        let cpu = cpu.ok_or_else(|| self.undescribed("cpu", &instance.cpu, &name))?;
        let mut description = Table::new();
        description.insert("cpu".to_owned(), Value::Table(cpu.clone()));
        description.insert("device".to_owned(), Value::Table(devices));
        if let Some(joined) = &instance.network {
            let network =
                self.catalogue.networks.get(joined).ok_or_else(|| self.undescribed("network", joined, &name))?;
            let networks = Table::from_iter([(joined.clone(), Value::Table(network.clone()))]);
            description.insert("network".to_owned(), Value::Table(networks));
        }
        overlay(&mut description, changes);
        let text = toml::to_string(&description).expect("a table of TOML is TOML");
        let hardware = Hardware::parse(&text, &format!("{name} with its volumes")).map_err(PlanError::Hardware)?;
        Ok(Machine { instance: name, memory: instance.memory, reserve, places, prices, hardware })
    }

    fn volume(&self, instance: &Instance, path: &str, table: &Table) -> Result<(Place, f64, Table), PlanError> {
        self.only(table, path, &VOLUME_KEYS)?;
        let kind = self.text(table, path, "type")?.ok_or_else(|| {
            let known: Vec<&str> = self.catalogue.volumes.keys().map(String::as_str).collect();
            self.wrong(path, Problem::Conflict("a volume needs a 'type'".to_owned()), &known.join(", "))
        })?;
        let volume = self.named(&self.catalogue.volumes, &format!("{path}.type"), "volume", &kind)?;
        let price = volume.price.as_ref().ok_or_else(|| self.priceless("volume", &kind))?;
        let (size, operations, bandwidth) = self.asked(volume, path, table)?;
        let limits = limits(volume, instance, (operations, bandwidth));
        let mut device = volume.device.clone();
        device.insert("limits".to_owned(), Value::Array(limits));
        device.insert("capacity".to_owned(), Value::String(format!("{size} B")));
        let allowed = instance.volumes.operations.map_or(operations, |most| most.min(operations));
        let place = Place {
            kind: describe(&kind, price, (size, operations, bandwidth)),
            capacity: size,
            is_local: false,
            operations: Some(allowed),
            rated_writes: None,
            path: self.text(table, path, "path")?,
        };
        Ok((place, price.per_month(size, operations, bandwidth), device))
    }

    /// How large a volume is asked to be, and how many operations and bytes per second it is to do.
    fn asked(&self, volume: &Volume, path: &str, table: &Table) -> Result<(u64, f64, u64), PlanError> {
        let size_path = format!("{path}.size");
        let size = self.text(table, path, "size")?.ok_or_else(|| {
            self.wrong(path, Problem::Conflict("a volume needs a 'size'".to_owned()), "size = \"100 GB\"")
        })?;
        let size = self.quantity(&size_path, &size, parse_size(&size).map_err(|error| error.to_string()))?;
        let gb = |bytes: u64| format!("{} GB", bytes as f64 / 1e9);
        self.bounded(&size_path, size as f64, [volume.size.least as f64, volume.size.most as f64], |n| gb(n as u64))?;
        let bounds = &volume.operations;
        let most = bounds
            .per_gb_most
            .map_or(bounds.most, |each| bounds.most.min((each * size as f64 / 1e9).max(bounds.least)));
        let operations_path = format!("{path}.operations");
        let operations = match table.get("operations") {
            None => bounds.least,
            Some(value) => value.as_integer().map(|n| n as f64).or(value.as_float()).ok_or_else(|| {
                let problem = Problem::WrongType { key: "operations".to_owned(), found: value.type_str() };
                self.wrong(&operations_path, problem, "a number of operations per second")
            })?,
        };
        self.bounded(&operations_path, operations, [bounds.least, most], |n| format!("{n}"))?;
        let rate_path = format!("{path}.bandwidth");
        let bandwidth = match self.text(table, path, "bandwidth")? {
            None => volume.bandwidth.least,
            Some(text) => self.quantity(&rate_path, &text, parse_rate(&text))?,
        };
        let ends = [volume.bandwidth.least as f64, volume.bandwidth.most as f64];
        self.bounded(&rate_path, bandwidth as f64, ends, |n| format!("{} MB/s", n / 1e6))?;
        Ok((size, operations, bandwidth))
    }

    /// Adds the instance's own drives, if it has any.
    fn local(
        &self,
        table: &Table,
        instance: &Instance,
        (places, devices): (&mut BTreeMap<String, Place>, &mut Table),
    ) -> Result<(), PlanError> {
        let empty = Table::new();
        let section = self.table(table, "machine", "local")?.unwrap_or(&empty);
        self.only(section, "machine.local", &LOCAL_KEYS)?;
        let name = self.text(section, "machine.local", "name")?.unwrap_or_else(|| LOCAL.to_owned());
        let path = self.text(section, "machine.local", "path")?;
        if places.contains_key(&name) {
            let problem = Problem::Conflict(format!("a volume and the instance's drives are both called '{name}'"));
            return Err(self.wrong("machine.local", problem, "name = \"nvme\""));
        }
        let Some(local) = &instance.local else { return Ok(()) };
        let drive = self.catalogue.drives.get(&local.drive);
        let drive = drive.ok_or_else(|| self.undescribed("drive", &local.drive, "its instance"))?;
        let mut device = drive.clone();
        device.insert("capacity".to_owned(), Value::String(format!("{} B", local.capacity)));
        let place = Place {
            kind: format!("own drives, {}", base::units::format_size(local.capacity)),
            capacity: local.capacity,
            is_local: true,
            operations: None,
            rated_writes: local.rated_writes,
            path,
        };
        devices.insert(name.clone(), Value::Table(device));
        places.insert(name, place);
        Ok(())
    }

    fn wrong(&self, path: &str, problem: Problem, allowed: &str) -> PlanError {
        self.sources.error(path, problem, allowed, None).into()
    }

    fn priceless(&self, what: &'static str, name: &str) -> PlanError {
        PlanError::PriceMissing { what, name: name.to_owned(), file: self.file.clone() }
    }

    fn undescribed(&self, what: &'static str, name: &str, of: &str) -> PlanError {
        PlanError::Undescribed { what, name: name.to_owned(), of: of.to_owned(), file: self.file.clone() }
    }

    fn only(&self, table: &Table, path: &str, known: &[&str]) -> Result<(), PlanError> {
        match table.keys().find(|key| !known.contains(&key.as_str())) {
            None => Ok(()),
            Some(key) => {
                let near = nearest(key, known.iter().copied()).map(str::to_owned);
                let problem = Problem::Unknown { what: "key", name: key.clone(), section: format!("[{path}]") };
                Err(self.sources.error(&format!("{path}.{key}"), problem, &known.join(", "), near).into())
            }
        }
    }

    fn text(&self, table: &Table, path: &str, key: &str) -> Result<Option<String>, PlanError> {
        match table.get(key) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text.clone())),
            Some(other) => {
                let problem = Problem::WrongType { key: key.to_owned(), found: other.type_str() };
                Err(self.wrong(&format!("{path}.{key}"), problem, "a text"))
            }
        }
    }

    fn table<'t>(&self, table: &'t Table, path: &str, key: &str) -> Result<Option<&'t Table>, PlanError> {
        match table.get(key) {
            None => Ok(None),
            Some(Value::Table(inner)) => Ok(Some(inner)),
            Some(other) => {
                let problem = Problem::WrongType { key: key.to_owned(), found: other.type_str() };
                Err(self.wrong(&format!("{path}.{key}"), problem, "a table"))
            }
        }
    }

    fn named<'c, T>(
        &self,
        known: &'c BTreeMap<String, T>,
        path: &str,
        what: &'static str,
        name: &str,
    ) -> Result<&'c T, PlanError> {
        known.get(name).ok_or_else(|| {
            let names: Vec<&str> = known.keys().map(String::as_str).collect();
            let near = nearest(name, names.iter().copied()).map(str::to_owned);
            let problem = Problem::NoSuch { what, name: name.to_owned() };
            self.sources.error(path, problem, &names.join(", "), near).into()
        })
    }

    fn quantity(&self, path: &str, text: &str, read: Result<u64, String>) -> Result<u64, PlanError> {
        read.map_err(|reason| {
            let key = path.rsplit('.').next().unwrap_or(path).to_owned();
            self.wrong(path, Problem::NotAQuantity { key, reason }, &format!("a quantity with a unit, not \"{text}\""))
        })
    }

    fn bounded(
        &self,
        path: &str,
        value: f64,
        [least, most]: [f64; 2],
        show: impl Fn(f64) -> String,
    ) -> Result<(), PlanError> {
        if (least..=most).contains(&value) {
            return Ok(());
        }
        let key = path.rsplit('.').next().unwrap_or(path).to_owned();
        let allowed = format!("{} to {} for this kind of volume", show(least), show(most));
        let why = format!("'{path}' cannot be {}; allowed: {allowed}", show(value));
        match self.wrong(path, Problem::OutOfRange { key, value: show(value) }, &allowed) {
            PlanError::Text(error) => Err(PlanError::OutOfBounds { error, why }),
            other => Err(other),
        }
    }
}

/// The limits of a volume: its own, and those that it shares with the instance's others.
fn limits(volume: &Volume, instance: &Instance, (operations, bandwidth): (f64, u64)) -> Vec<Value> {
    let rate = |bytes: u64| Value::String(format!("{bytes} B/s"));
    let ways: &[&str] = if volume.each_way { &["reads", "writes"] } else { &["both"] };
    let own = |key: &str, value: Value, way: &str| {
        let mut table = Table::from_iter([(key.to_owned(), value), ("of".to_owned(), Value::String(way.to_owned()))]);
        if let Some(slice) = &volume.slice {
            table.insert("slice".to_owned(), Value::String(slice.clone()));
        }
        if let Some(size) = volume.operation_size.filter(|_| key == "operations") {
            table.insert("operation_size".to_owned(), Value::String(format!("{size} B")));
        }
        table
    };
    let mut limits = Vec::new();
    for way in ways {
        limits.push(own("operations", Value::Float(operations), way));
        limits.push(own("bandwidth", rate(bandwidth), way));
    }
    let mut shared = |key: &str, value: Value, name: &str| {
        let entries = [(key.to_owned(), value), ("shared".to_owned(), Value::String(name.to_owned()))];
        limits.push(Table::from_iter(entries));
    };
    if let Some(most) = instance.volumes.operations {
        shared("operations", Value::Float(most), "operations of all volumes");
    }
    if let Some(most) = instance.volumes.bandwidth {
        shared("bandwidth", rate(most), "bandwidth of all volumes");
    }
    limits.into_iter().map(Value::Table).collect()
}

/// A volume in words, without what comes with every one of its kind.
fn describe(kind: &str, price: &VolumePrice, (size, operations, bandwidth): (u64, f64, u64)) -> String {
    let mut words = format!("{kind} {} GB", size as f64 / 1e9);
    if operations > price.operations_included {
        words += &format!(", {operations} operations/s");
    }
    if price.per_mb > 0.0 && bandwidth as f64 / 1e6 > price.mb_included {
        words += &format!(", {} MB/s", bandwidth as f64 / 1e6);
    }
    words
}
