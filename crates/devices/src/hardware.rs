use crate::cache::{Cache, CacheKind};
use crate::cold_caches::{self, ColdCaches};
use crate::concurrency::{Concurrency, Together};
use crate::fields::{self, Assignment, Bandwidth, Discipline, ReadWrite, Servers, WriteCache};
use crate::law::Law;
use crate::limit::{self, Limit};
use crate::network::Network;
use base::units::parse_size;
use serde::Deserialize;
use serde::de::{Deserializer, Error};
use std::collections::BTreeMap;
use thiserror::Error as ThisError;

/// The descriptions that come with this crate.
const EMBEDDED: [(&str, &str); 9] = [
    ("ideal", include_str!("../hardware/ideal.toml")),
    ("rahm-1991", include_str!("../hardware/rahm-1991.toml")),
    ("nvme-2026", include_str!("../hardware/nvme-2026.toml")),
    ("hdd-7200", include_str!("../hardware/hdd-7200.toml")),
    ("vax-11-785", include_str!("../hardware/vax-11-785.toml")),
    ("lee-2008", include_str!("../hardware/lee-2008.toml")),
    ("do-2011", include_str!("../hardware/do-2011.toml")),
    ("franklin-1992-client", include_str!("../hardware/franklin-1992-client.toml")),
    ("franklin-1992-server", include_str!("../hardware/franklin-1992-server.toml")),
];

/// The version of descriptions that `entresol calibrate` writes, in their first line.
pub const CALIBRATION_VERSION: u32 = 1;

/// How that line begins.
const CALIBRATED: &str = "# entresol calibrate, version ";

/// The version in the first line, if a calibration has written the text.
fn calibrated_by(text: &str) -> Option<u32> {
    let rest = text.lines().next()?.strip_prefix(CALIBRATED)?;
    rest.split(':').next()?.trim().parse().ok()
}

/// Why there is no such hardware.
#[derive(Clone, Debug, PartialEq, Eq, ThisError)]
pub enum HardwareError {
    /// No embedded description has this name.
    #[error("no described hardware is named '{name}'; known are {known}")]
    Unknown {
        /// The name asked for.
        name: String,
        /// The names that exist.
        known: String,
    },
    /// The text describes no hardware.
    #[error("{source_name}: {message}")]
    Text {
        /// Where the text comes from.
        source_name: String,
        /// The line of the error, counted from 1, where one is to blame.
        line: Option<usize>,
        /// The line's text, what is wrong with it and what is allowed.
        message: String,
    },
}

/// A described machine. All fields may be changed before a machine is built of them.
///
/// ```
/// use entresol_devices::{Hardware, Law};
///
/// let mut hardware = Hardware::named("rahm-1991")?;
/// assert_eq!(hardware.cpu.as_ref().map(|cpu| (cpu.count, cpu.mips)), Some((4, 50.0)));
/// hardware.device_mut("disk").medium.as_mut().expect("a disk has arms").service.read = Law::Fixed(5_000_000);
///
/// let own = Hardware::parse("[device.tape]\nmedium = { servers = 1, service = \"exponential 2 s\" }", "tape.toml")?;
/// assert_eq!(own.devices.keys().collect::<Vec<_>>(), ["tape"]);
/// let error = Hardware::parse("[device.tape]\nmedum = {}", "tape.toml").unwrap_err();
/// assert!(error.to_string().contains("unknown field `medum`"));
/// # Ok::<(), entresol_devices::HardwareError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Hardware {
    /// The description's name.
    #[serde(skip)]
    pub name: String,
    /// The processors; without them CPU work takes no time.
    pub cpu: Option<Cpu>,
    /// The devices by name, in ascending order.
    #[serde(default, rename = "device")]
    pub devices: BTreeMap<String, Device>,
    /// The networks that machines like this one are joined by, by name.
    #[serde(default, rename = "network")]
    pub networks: BTreeMap<String, Network>,
}

/// Described processors.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cpu {
    /// How many.
    #[serde(deserialize_with = "positive_count")]
    pub count: u32,
    /// Millions of instructions that each executes per second.
    #[serde(deserialize_with = "positive")]
    pub mips: f64,
    /// How transactions share them.
    #[serde(default)]
    pub discipline: Discipline,
    /// The speed in proportion to `mips` where the steps touch a number of bytes of memory, ascending; between two sizes it
    /// changes with the logarithm of the size. Caches that do not hold everything make a CPU slower. Always `mips` by default.
    #[serde(default, deserialize_with = "footprint")]
    pub footprint: Vec<(u64, f64)>,
    /// How long a thread that sleeps takes until it runs, once there is something for it to do: with `run-until-wait`. No time
    /// by default.
    #[serde(default = "no_time")]
    pub wake_latency: Law,
    /// Whether a thread that has much under way on devices sleeps until several operations have ended, as the real driver does with
    /// io_uring: with `run-until-wait`. Not by default.
    #[serde(default)]
    pub gathering: bool,
    /// What a thread finds in its caches when it goes on behind an interrupt or a sleep, by how long that was: with `run-until-wait`.
    /// Everything by default.
    #[serde(default, deserialize_with = "cold_caches::parsed")]
    pub cold_caches: Vec<ColdCaches>,
    /// What the steps of transactions cost.
    pub instructions: Instructions,
}

/// Mean numbers of instructions per step: Rahm 1991, table 4.1, and, nothing unless given, the basic operations of System M
/// (Garcia-Molina and Salem, 1988, table 4.4).
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Instructions {
    /// Begin of transaction.
    pub begin_transaction: u64,
    /// One object reference.
    pub object_reference: u64,
    /// End of transaction.
    pub end_transaction: u64,
    /// One I/O.
    pub input_output: u64,
    /// One access to non-volatile extended memory.
    pub nvem_access: u64,
    /// One lock, requested and released.
    #[serde(default)]
    pub lock_pair: u64,
    /// One record of the log: of a change, of the beginning and of the end of a transaction that changes anything.
    #[serde(default)]
    pub log_record: u64,
    /// One page of the log buffer.
    #[serde(default)]
    pub log_page: u64,
    /// One look whether the log is durable up to some position.
    #[serde(default)]
    pub log_check: u64,
    /// Memory for a copy of a segment, taken and given back.
    #[serde(default)]
    pub segment_allocation: u64,
    /// Copying 1 KiB of a segment.
    #[serde(default)]
    pub segment_copy: u64,
    /// One message between a client and the transaction server.
    #[serde(default)]
    pub message: u64,
    /// One comparison of two keys in a sort, a merge or a hash table.
    #[serde(default)]
    pub key_comparison: u64,
    /// One row copied.
    #[serde(default)]
    pub row_copy: u64,
    /// One message to or from another machine, at each end, whatever its length.
    #[serde(default)]
    pub network_message: u64,
    /// Each 256 bytes of such a message, at each end.
    #[serde(default)]
    pub network_bytes: u64,
    /// One look at, entry into or removal from the directory of the copies of pages that other machines have.
    #[serde(default)]
    pub copy_registration: u64,
    /// One change of a page that a log record describes, looked at and made again.
    #[serde(default)]
    pub redo: u64,
    /// One search of a b-tree from its root to a record.
    #[serde(default)]
    pub tree_search: u64,
    /// One row entered into a hash table or looked for in it, beside its copy or the comparison.
    #[serde(default)]
    pub hash_entry: u64,
    /// One message of a page server and its nodes, made or read at one end, beside what the system takes for it.
    #[serde(default)]
    pub node_message: u64,
    /// One page in such a message, at one end.
    #[serde(default)]
    pub page_image: u64,
    /// One change of a page by a node, looked through and tried on a copy of the page before it is logged.
    #[serde(default)]
    pub shipped_change: u64,
    /// One request of another thread, taken by the engine's and answered, beside what it asks for.
    #[serde(default)]
    pub request: u64,
    /// Each 256 bytes of a record's value that is read, shown, written, or kept because it is deleted.
    #[serde(default)]
    pub value_copy: u64,
    /// One value that the CPU's caches do not hold, as far as that is known by what was referred to before: what looking for it and
    /// copying it take longer.
    #[serde(default)]
    pub distant_value: u64,
    /// Operations given to the operating system, whatever their number: what a batch costs beside `input_output` for each. With
    /// the CPU's discipline `run-until-wait`.
    #[serde(default)]
    pub submission: u64,
    /// What a batch costs in which nothing is for a device, all of it for networks; as much as `submission` by default.
    #[serde(default)]
    pub network_submission: Option<u64>,
    /// What a batch for devices costs more if nothing is under way: the device is at rest and has to be told. With the CPU's discipline
    /// `run-until-wait`.
    #[serde(default)]
    pub notification: u64,
    /// Going to sleep and waking up, with what cold caches cost behind it. With the CPU's discipline `run-until-wait`.
    #[serde(default)]
    pub wake_up: u64,
    /// The same where a message wakes it; as much as `wake_up` by default.
    #[serde(default)]
    pub network_wake_up: Option<u64>,
    /// Operations end while the CPU is at work, whatever their number until it looks. With the CPU's discipline `run-until-wait`.
    #[serde(default)]
    pub interrupt: u64,
    /// Whether actual numbers are exponentially distributed about these means; otherwise they are exactly these.
    #[serde(default)]
    pub exponential: bool,
}

/// A described device: up to three stages that a request passes in order (controller, transmission, medium) and what it
/// promises.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Device {
    /// The servers that manage requests.
    pub controller: Option<Stage>,
    /// The way between main memory and device.
    pub transmission: Option<Stage>,
    /// Where the bytes are: disk arms, flash channels, the server of an extended memory.
    pub medium: Option<Stage>,
    /// The controller's cache, which spares requests the medium; none by default.
    pub cache: Option<Cache>,
    /// What a request to make everything durable costs at the medium; nothing by default.
    #[serde(default = "no_time")]
    pub sync: Law,
    /// Whether a sync also waits for the writes that are under way when it comes, and takes its time behind them.
    #[serde(default)]
    pub sync_waits: bool,
    /// What is written brings pauses: flash that has to make room; none by default.
    pub pauses: Option<Pauses>,
    /// Limits that are set on the device from outside, which a transfer passes before everything else; none by default.
    #[serde(default, deserialize_with = "limit::limits")]
    pub limits: Vec<Limit>,
    /// Whether completed writes may stand in a volatile cache.
    #[serde(default)]
    pub write_cache: WriteCache,
    /// What a durable write costs at the medium beyond a plain one; by default as much as `sync` with a volatile write
    /// cache, nothing without.
    pub durable_write: Option<Law>,
    /// What a write takes beyond one over written data where, at least in part, nothing was ever written: the file system notes
    /// that the place is written now. Only described hardware knows it: a file of this machine that shows a device's delays is taken for
    /// written. None by default.
    pub fresh_write: Option<Law>,
    /// By what factor that is longer where several such writes are under way; it is the same by default.
    #[serde(default, deserialize_with = "Together::read")]
    pub fresh_together: Option<Together>,
    /// Offsets and lengths are multiples of this many bytes, a power of two.
    #[serde(default = "sector", deserialize_with = "fields::alignment")]
    pub alignment: u32,
    /// Writes of up to this many bytes are never torn by a power cut; `u32::MAX` if none ever is.
    #[serde(default = "sector", deserialize_with = "fields::atomic_write")]
    pub atomic_write: u32,
    /// Whether accesses hold the CPU unless a configuration says otherwise.
    #[serde(default)]
    pub synchronous: bool,
    /// Whether the contents are lost in a power cut.
    #[serde(default)]
    pub volatile: bool,
    /// How many bytes of files fit; unlimited by default.
    #[serde(default, deserialize_with = "fields::optional_size")]
    pub capacity: Option<u64>,
}

/// Pauses of a medium, in which it serves nothing.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pauses {
    /// One comes whenever this many bytes have been written, above zero.
    #[serde(deserialize_with = "fields::positive_size")]
    pub every: u64,
    /// How long it lasts.
    pub time: Law,
}

/// How a stage serves the requests that are there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StageDiscipline {
    /// In the order of arrival, each server one to its end.
    #[default]
    Fifo,
    /// All at once, each at an equal share of the servers' speed and none faster than one server: transfers that share the
    /// bandwidth of a link.
    ProcessorSharing,
}

/// One stage of a device: servers with queues.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Stage {
    /// How many servers; unlimited by default.
    #[serde(default)]
    pub servers: Servers,
    /// How requests share the servers.
    #[serde(default)]
    pub discipline: StageDiscipline,
    /// Times that depend on what is under way, in place of servers. All requests are in service then, and what is said of
    /// `service` (and, where there are tables for these, of the device's `durable_write` and `sync`) gives only the law about
    /// the means in the tables, not the mean.
    pub concurrency: Option<Concurrency>,
    /// Which server a request goes to.
    #[serde(default)]
    pub assignment: Assignment,
    /// Bytes per stripe of a striped stage.
    #[serde(default = "stripe", deserialize_with = "fields::size")]
    pub stripe: u64,
    /// The time of one request, whatever its length.
    #[serde(default = "no_service")]
    pub service: ReadWrite<Law>,
    /// The time, in place of `service`, of a request that begins where the server's previous one ended, in the same file.
    pub sequential: Option<ReadWrite<Law>>,
    /// Each server's speed; adds the request's length divided by it to the service.
    pub bandwidth: Option<ReadWrite<Bandwidth>>,
}

fn no_time() -> Law {
    Law::NONE
}

fn no_service() -> ReadWrite<Law> {
    ReadWrite::both(Law::NONE)
}

fn sector() -> u32 {
    512
}

fn stripe() -> u64 {
    65_536
}

fn positive_count<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u32, D::Error> {
    match u32::deserialize(deserializer)? {
        0 => Err(D::Error::custom("a machine has at least one CPU; leave [cpu] out for one that costs no time")),
        count => Ok(count),
    }
}

fn positive<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    let number = f64::deserialize(deserializer)?;
    if number > 0.0 && number.is_finite() { Ok(number) } else { Err(D::Error::custom("a speed is above zero")) }
}

/// Sizes with speeds, written as `{ "1 MiB" = 1.0, "1 GiB" = 0.5 }`.
fn footprint<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<(u64, f64)>, D::Error> {
    let mut speeds = Vec::new();
    for (size, speed) in BTreeMap::<String, f64>::deserialize(deserializer)? {
        let bytes = parse_size(&size).map_err(D::Error::custom)?;
        if bytes == 0 || speed <= 0.0 || !speed.is_finite() {
            return Err(D::Error::custom(format!("sizes and speeds are above zero, not \"{size}\" = {speed}")));
        }
        speeds.push((bytes, speed));
    }
    speeds.sort_by_key(|(bytes, _)| *bytes);
    Ok(speeds)
}

impl Cpu {
    /// The speed in proportion to `mips` where the steps touch `bytes` of memory.
    pub fn speed(&self, bytes: u64) -> f64 {
        let above = self.footprint.partition_point(|(size, _)| *size <= bytes);
        let below = above.checked_sub(1).map(|below| self.footprint[below]);
        match (below, self.footprint.get(above).copied()) {
            (None, None) => 1.0,
            (None, Some((_, speed))) | (Some((_, speed)), None) => speed,
            (Some((low, from)), Some((high, to))) => {
                let far = (bytes as f64 / low as f64).ln() / (high as f64 / low as f64).ln();
                from + (to - from) * far
            }
        }
    }
}

impl Hardware {
    /// The names of the embedded descriptions.
    pub fn names() -> impl Iterator<Item = &'static str> {
        EMBEDDED.iter().map(|(name, _)| *name)
    }

    /// The embedded description of this name.
    ///
    /// # Errors
    /// [`HardwareError::Unknown`] if there is none.
    pub fn named(name: &str) -> Result<Hardware, HardwareError> {
        match EMBEDDED.iter().find(|(known, _)| *known == name) {
            Some((known, text)) => Hardware::parse(text, known),
            None => {
                let known = Hardware::names().collect::<Vec<_>>().join(", ");
                Err(HardwareError::Unknown { name: name.to_owned(), known })
            }
        }
    }

    /// The text of the embedded description of this name.
    pub fn text(name: &str) -> Option<&'static str> {
        EMBEDDED.iter().find(|(known, _)| *known == name).map(|(_, text)| *text)
    }

    /// Reads a description from TOML; `source_name` (a file, say) becomes its name and appears in errors.
    ///
    /// # Errors
    /// [`HardwareError::Text`] if the text is no TOML, has an unknown key or a wrong value.
    pub fn parse(text: &str, source_name: &str) -> Result<Hardware, HardwareError> {
        let other = calibrated_by(text).filter(|version| *version != CALIBRATION_VERSION).map(|version| {
            format!(
                "a calibration of version {version} has written this, and this release knows version {CALIBRATION_VERSION}: calibrate \
                 again"
            )
        });
        let mut hardware: Hardware = toml::from_str(text).map_err(|error| HardwareError::Text {
            source_name: source_name.to_owned(),
            line: error.span().map(|span| 1 + text[..span.start].matches('\n').count()),
            message: match &other {
                Some(other) => format!("{}\n{other}", error.to_string().trim_end()),
                None => error.to_string().trim_end().to_owned(),
            },
        })?;
        // What a later release means by the same words is not known; earlier ones meant the same.
        if let Some(message) = other.filter(|_| calibrated_by(text) > Some(CALIBRATION_VERSION)) {
            return Err(HardwareError::Text { source_name: source_name.to_owned(), line: Some(1), message });
        }
        hardware.name = source_name.to_owned();
        if let Some(message) = hardware.contradiction() {
            return Err(HardwareError::Text { source_name: source_name.to_owned(), line: None, message });
        }
        Ok(hardware)
    }

    /// What the description says twice and differently, if anything.
    fn contradiction(&self) -> Option<String> {
        let mut shared: BTreeMap<&str, &Limit> = BTreeMap::new();
        for (name, device) in &self.devices {
            for (word, stage) in device.stages() {
                if let Some(why) = stage.contradiction() {
                    return Some(format!("device '{name}', {word}: {why}"));
                }
            }
            for limit in &device.limits {
                let Some(known) = &limit.shared else { continue };
                if *shared.entry(known).or_insert(limit) != limit {
                    return Some(format!(
                        "device '{name}': the shared limit '{known}' differs from that of another device"
                    ));
                }
            }
        }
        None
    }

    /// Hardware for tests: CPU work takes no time, devices (`disk`, `flash`, `nvem`) answer soon and never queue.
    pub fn ideal() -> Hardware {
        Hardware::named("ideal").expect("the embedded description is valid")
    }

    /// The device of this name, for changing its description.
    ///
    /// # Panics
    /// If there is no such device.
    pub fn device_mut(&mut self, name: &str) -> &mut Device {
        match self.devices.get_mut(name) {
            Some(device) => device,
            None => panic!("hardware '{}' has no device '{name}'", self.name),
        }
    }
}

impl Device {
    /// A device that answers at once: no stages, nothing torn, every alignment.
    pub fn no_delay() -> Device {
        Device {
            controller: None,
            transmission: None,
            medium: None,
            cache: None,
            sync: Law::NONE,
            sync_waits: false,
            pauses: None,
            limits: Vec::new(),
            write_cache: WriteCache::None,
            durable_write: None,
            fresh_write: None,
            fresh_together: None,
            alignment: 1,
            atomic_write: u32::MAX,
            synchronous: false,
            volatile: false,
            capacity: None,
        }
    }

    /// Whether every completed write survives a power cut, because it stands in a non-volatile cache or on the medium.
    pub fn keeps_completed_writes(&self) -> bool {
        let absorbs = self.cache.as_ref().is_some_and(|cache| cache.kind != CacheKind::Volatile);
        absorbs && self.write_cache == WriteCache::None && !self.volatile
    }

    /// What a durable write costs at the medium beyond a plain one.
    pub fn durable_write_law(&self) -> Law {
        match (&self.durable_write, self.write_cache) {
            (Some(law), _) => law.clone(),
            (None, WriteCache::Volatile) => self.sync.clone(),
            (None, WriteCache::None) => Law::NONE,
        }
    }

    /// Its stages with the words for them, in the order in which a request passes them.
    pub fn stages(&self) -> impl Iterator<Item = (&'static str, &Stage)> {
        let stages = [("controller", &self.controller), ("transmission", &self.transmission), ("medium", &self.medium)];
        stages.into_iter().filter_map(|(word, stage)| Some((word, stage.as_ref()?)))
    }
}

impl Stage {
    /// What cannot be said together, if both is.
    fn contradiction(&self) -> Option<&'static str> {
        let several = self.servers != Servers::Unlimited && self.servers != Servers::count(1);
        let placed = self.assignment != Assignment::Shared;
        if self.concurrency.is_some() {
            let other = self.servers != Servers::Unlimited || self.sequential.is_some() || self.bandwidth.is_some();
            let fifo = self.discipline == StageDiscipline::Fifo;
            return (other || placed || !fifo).then_some(
                "with 'concurrency' the tables say everything; leave 'servers', 'discipline', 'assignment', 'sequential' and \
                 'bandwidth' out, or describe them in another stage",
            );
        }
        let shares = self.discipline == StageDiscipline::ProcessorSharing;
        (shares && several && placed).then_some("servers that are shared have no queues to be assigned to")
    }
}
