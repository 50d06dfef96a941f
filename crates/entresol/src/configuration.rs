//! Where everything lives and how it behaves: one TOML file, parsed into typed settings with defaults.
//!
//! Every section and key may be left out, so an empty text and a missing file are valid configurations. The same file
//! opens a database for real and, with `hardware` named, runs it virtually. [`Configuration::reference`] is the whole
//! format as a commented file.
//!
//! ```
//! use entresol::configuration::{Configuration, Organization};
//!
//! let configuration = Configuration::parse(
//!     r#"
//!     [device.flash]
//!     path = "/mnt/nvme/entresol"
//!
//!     [buffer]
//!     size = "1 GiB"
//!
//!     [log]
//!     device = "flash"
//!     "#,
//! )?;
//! assert_eq!(configuration.buffer.size, 1 << 30);
//! assert_eq!(configuration.log.device, "flash");
//! assert_eq!(configuration.partition("account").organization, Organization::BTree);
//!
//! let error = Configuration::parse("[buffer]\nsise = \"1 GiB\"").unwrap_err();
//! assert!(error.to_string().contains("did you mean 'size'?"));
//! # Ok::<(), entresol::configuration::ConfigurationError>(())
//! ```

mod catalogue;
mod choice;
mod described;
mod error;
mod interpret;
mod log;
mod nodes;
mod schema;
mod section;
mod tiers;
mod undo;
mod wear;

#[cfg(test)]
mod tests;

pub use engine::checkpoint::Strategy;
pub use engine::lock::VictimPolicy;
pub use engine::log::{Acknowledged, GroupCommit, SyncMethod};
pub use engine::replacement::Policy;
pub use engine::second_level::Design;
pub use engine::set::Logging;

pub use choice::{Backend, Choice, DeviceKind, LockGranule, LockHold, Organization, Residence, Update};
pub use log::Log;
pub use nodes::Nodes;
pub use tiers::{Cache, WriteBuffer};
pub use undo::Undo;

pub use error::{ConfigurationError, Finding, Problem, nearest};

use devices::Hardware;
use engine::replacement::POLICIES;
use engine::second_level::DESIGNS;
use engine::set::RecordType;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The name of the device that exists without being configured: the directory of the database.
pub const DEFAULT_DEVICE: &str = "disk";

/// The name of the configuration file that a database directory may hold.
pub const FILE_NAME: &str = "entresol.toml";

/// All settings of a database. The fields are the sections of the file, by their names there.
#[derive(Clone, Debug, PartialEq)]
pub struct Configuration {
    /// `hardware`: the described machine on which to run under the virtual clock, written as a name that `entresol devices
    /// list` shows or as the path of a description ending in `.toml`; with the described devices of the configuration
    /// added. `None`: this machine.
    pub hardware: Option<Hardware>,
    /// `mpl`: the multiprogramming level, how many transactions may be under way at once; others wait for their turn.
    /// Snapshots do not count. 1 to 65,536.
    pub mpl: u32,
    /// `[device.NAME]`: where files live, by name. Always holds [`DEFAULT_DEVICE`] on the real machine; virtually the
    /// devices are those of `hardware`.
    pub devices: BTreeMap<String, Device>,
    /// `[buffer]`: the main-memory buffer.
    pub buffer: Buffer,
    /// `[cache]`: the second-level cache; `None` for none.
    pub cache: Option<Cache>,
    /// `[upper_cache]`: a cache between main memory and the second-level cache; `None` for none.
    pub upper_cache: Option<Cache>,
    /// `[write_buffer]`: the write buffer; `None` for none.
    pub write_buffer: Option<WriteBuffer>,
    /// `[log]`: the write-ahead log.
    pub log: Log,
    /// `[undo]`: versions of records for readers of the past.
    pub undo: Undo,
    /// `[temp]`: temporary space for sorts and joins.
    pub temp: Temp,
    /// `[commit]`: what happens to changed pages at commit.
    pub commit: Commit,
    /// `[checkpoint]`: how often restart is made short.
    pub checkpoint: Checkpoint,
    /// `[locks]`: what happens when transactions wait for each other.
    pub locks: Locks,
    /// `[server]`: the transaction server that runs procedures; `None` if there is no such section. Its keys are `standbys`
    /// (0 to 250 executors), `queue` (1 to 1,048,576 requests) and `retry_interval` (up to an hour).
    pub server: Option<engine::server::Settings>,
    /// `[nodes]`: engines on several cores that share the database.
    pub nodes: Nodes,
    /// `[driver]`: how this machine does its input and output.
    pub driver: Driver,
    /// `[partition.NAME]`: placement and organization of partitions, by name. Those not named here have defaults:
    /// [`Configuration::partition`].
    pub partitions: BTreeMap<String, Partition>,
    /// Which of the keys were said that the files of a database fix, and what they said: `page_size` in `[buffer]`; `page_size`, `device`
    /// and `size` in `[log]`. A database that exists refuses another page size; its log moves to the device and gets the size.
    pub asked: engine::Asked,
}

impl Configuration {
    /// The caches below main memory, from the top down.
    pub fn caches(&self) -> impl Iterator<Item = &Cache> {
        self.upper_cache.iter().chain(&self.cache)
    }
}

impl Default for Configuration {
    fn default() -> Configuration {
        let log = Log::default();
        let checkpoint = Checkpoint::for_log(log.size);
        Configuration {
            hardware: None,
            mpl: 1024,
            devices: BTreeMap::from([(DEFAULT_DEVICE.to_owned(), Device::default())]),
            buffer: Buffer::default(),
            cache: None,
            upper_cache: None,
            write_buffer: None,
            log,
            undo: Undo::default(),
            temp: Temp::default(),
            commit: Commit::default(),
            checkpoint,
            locks: Locks::default(),
            server: None,
            nodes: Nodes::default(),
            driver: Driver::default(),
            partitions: BTreeMap::new(),
            asked: engine::Asked::default(),
        }
    }
}

/// `[device.NAME]`: a place for files.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Device {
    /// `path`: the directory. `None`: the database's own. A relative path in a file starts at that file's directory.
    pub path: Option<PathBuf>,
    /// `kind`: how the device is reached.
    pub kind: DeviceKind,
    /// `described`: the description whose delays the device shows, written as `MACHINE:DEVICE` (or `MACHINE` if that has
    /// one device) with a name that `entresol devices list` shows or the path of a description ending in `.toml`. On the
    /// real machine the delays are added on the wall clock. A device of `hardware` has its description there; both are as
    /// changed by `cache` (`"volatile"`, `"non-volatile"`, `"write-buffer"`, `"none"`), `cache_size` (pages or bytes),
    /// `cache_page_size` (that of `[buffer]`, for a write buffer 4 KiB), `cache_write_misses` and `cache_read_misses` (see
    /// [`devices::Cache`]), `controllers` and `disks` (how many, or `"unlimited"`).
    pub described: Option<devices::Device>,
}

/// `[buffer]`: the main-memory buffer.
#[derive(Clone, Debug, PartialEq)]
pub struct Buffer {
    /// `size`: how much memory holds pages, in bytes; at least 16 pages.
    pub size: u64,
    /// `page_size`: bytes per page of partitions that set no size of their own; a power of two from 4 KiB (virtually
    /// 128 B) to 64 KiB.
    pub page_size: u32,
    /// `replacement`: which page makes room for another.
    pub replacement: Policy,
    /// `cleaner`: whether changed pages are written in the background before their frames are needed.
    pub cleaner: bool,
    /// `warm`: whether an opening reads what was in memory when the database was closed, or at most a minute before its process ended
    /// otherwise, in the background. Without meaning under the virtual clock.
    pub warm: bool,
    /// `growth_step`: the least by which a partition's file becomes longer, in bytes; a page to 1 GiB.
    pub growth_step: u64,
}

impl Default for Buffer {
    fn default() -> Buffer {
        Buffer {
            size: 256 << 20,
            page_size: 8 << 10,
            replacement: Policy::default(),
            cleaner: true,
            warm: false,
            growth_step: 1 << 20,
        }
    }
}

/// `[temp]`: temporary space for sorts and joins.
#[derive(Clone, Debug, PartialEq)]
pub struct Temp {
    /// `device`: the device that holds it.
    pub device: String,
    /// `cluster_size`: bytes of a cluster, the unit of its input and output; a power of two from 4 KiB (virtually 512 B) to
    /// 16 MiB.
    pub cluster_size: u32,
    /// `size`: the most bytes that it takes, a cluster to 16 TiB.
    pub size: u64,
}

impl Default for Temp {
    fn default() -> Temp {
        Temp { device: DEFAULT_DEVICE.to_owned(), cluster_size: 256 << 10, size: 64 << 30 }
    }
}

/// `[commit]`: what happens to changed pages at commit.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Commit {
    /// `update`: whether changed pages are written at commit.
    pub update: Update,
}

/// `[checkpoint]`: how often restart is made short. Whichever limit is reached first starts a checkpoint.
#[derive(Clone, Debug, PartialEq)]
pub struct Checkpoint {
    /// `interval`: the time from one checkpoint to the next in nanoseconds, 1 ms to 24 hours; `None` for `"off"`.
    pub interval_ns: Option<u64>,
    /// `log_bytes`: the growth of the log from one checkpoint to the next in bytes, 16 KiB to half of the log's size;
    /// `None` for `"off"`. Left out: a quarter of the log's size.
    pub log_bytes: Option<u64>,
    /// `sets`: what a checkpoint takes of memory-resident sets, `"fuzzy"`, `"acbw"`, `"tcbw"`, `"accou"`, `"tccou"`, `"calc"`.
    pub sets: Strategy,
    /// `spool`: whether a consistent checkpoint of sets writes copies of segments, so that these can be changed meanwhile.
    pub spool: bool,
    /// `quiesce`: whether `"tccou"` lets transactions come to their ends before it begins, as System M does.
    pub quiesce: bool,
    /// `sweep_interval`: the least time from the beginning of one checkpoint of sets to that of the next in nanoseconds, 0 to 24
    /// hours; 0: one follows the other. `None` for `"off"`: whenever `interval` or `log_bytes` says so.
    pub sweep_interval_ns: Option<u64>,
    /// `sweep_spread_percent`: over how much of that interval such a checkpoint spreads its writes if no task waits for it, 0
    /// to 90.
    pub sweep_spread_percent: u8,
    /// `sweep_device_percent`: for which share of the time such a checkpoint writes if no task waits for it and it has no
    /// interval to be spread over, 1 to 100.
    pub sweep_device_percent: u8,
    /// `segments_in_flight`: how many segments a checkpoint of sets writes at once, 1 to 64.
    pub segments_in_flight: usize,
    /// `segment_interval`: the least time from one segment that is written to the next in nanoseconds, up to 10 s; 0 for
    /// `"off"`.
    pub segment_interval_ns: u64,
    /// `undone_first`: an opening serves before it has undone what is left of an unfinished transaction with more changes than this, 0 to a
    /// billion; what such a transaction has changed stays locked until it is undone, and a partition without locks as a whole.
    pub undone_first: u64,
}

impl Checkpoint {
    /// The defaults beside a log of `size` bytes.
    pub fn for_log(size: u64) -> Checkpoint {
        Checkpoint {
            interval_ns: Some(60_000_000_000),
            log_bytes: Some(size / 4),
            sets: Strategy::default(),
            spool: true,
            quiesce: false,
            sweep_interval_ns: None,
            sweep_spread_percent: 50,
            sweep_device_percent: 10,
            segments_in_flight: 8,
            segment_interval_ns: 0,
            undone_first: 1_000,
        }
    }
}

/// `[locks]`: what happens when transactions wait for each other.
#[derive(Clone, Debug, PartialEq)]
pub struct Locks {
    /// `victim`: which transaction is rolled back to end a deadlock.
    pub victim: VictimPolicy,
    /// `wait_at_most`: how long a call waits for a lock at most, in nanoseconds; `None` without a limit, as on described hardware
    /// unless it is said.
    pub wait_ns_max: Option<u64>,
}

impl Default for Locks {
    fn default() -> Locks {
        Locks { victim: VictimPolicy::default(), wait_ns_max: Some(60 * base::time::SECOND_NS) }
    }
}

/// `[driver]`: how this machine does its input and output. Without meaning under the virtual clock.
#[derive(Clone, Debug, PartialEq)]
pub struct Driver {
    /// `backend`: the way to the kernel.
    pub backend: Backend,
    /// `direct`: whether files are read and written past the page cache (O_DIRECT).
    pub direct: bool,
    /// `socket`: whether other programs of the same user, and root's, can have the open database backed up and see what waits in it, by the socket `entresol.socket` in
    /// its directory.
    pub socket: bool,
    /// `answer_at_most`: how long a device may leave unanswered what something waits for, or a scan reads ahead, in nanoseconds; 100 ms to 24 h. Then the database
    /// is given up as by a power cut, and all that was under way ends with an error that names the device. `None`: for ever.
    pub answer_ns_max: Option<u64>,
}

impl Default for Driver {
    fn default() -> Driver {
        Driver { backend: Backend::Automatic, direct: true, socket: true, answer_ns_max: None }
    }
}

/// `[partition.NAME]`: placement and organization of one partition.
#[derive(Clone, Debug, PartialEq)]
pub struct Partition {
    /// `device`: the device that holds the partition's file.
    pub device: String,
    /// `organization`: how records are found.
    pub organization: Organization,
    /// `locks`: what a transaction locks.
    pub locks: LockGranule,
    /// `residence`: whether pages may leave main memory.
    pub residence: Residence,
    /// `cache`: whether its pages may enter the caches below main memory, where there are any.
    pub cache: bool,
    /// `write_buffer`: whether its pages are written by way of the write buffer, where there is one for pages.
    pub write_buffer: bool,
    /// `blocking_factor`: records per page of direct and append partitions, 1 to 65,535; `None`: as many as fit.
    pub blocking_factor: Option<u32>,
    /// `record_size`: bytes per record of direct and append partitions; `None`: as the workload says.
    pub record_size: Option<u32>,
    /// `objects`: how many records a direct partition has; `None`: as the workload says.
    pub objects: Option<u64>,
    /// `page_size`: bytes per page; `None`: that of `[buffer]`.
    pub page_size: Option<u32>,
    /// `segment_size`: bytes per segment of a set; `None`: 256 KiB.
    pub segment_size: Option<u32>,
    /// `reserve_percent`: the share of a set's segment that inserts keep free, in percent; `None`: 10.
    pub reserve_percent: Option<u8>,
    /// `record`: the fields of a b-tree's or a set's records, each with its type; `None`: as the workload says, or values of any bytes.
    pub record: Option<RecordType>,
    /// `secondary`: the ordered secondary indexes of a b-tree or a set by name, each over one field or several; beside `record`.
    pub secondaries: Vec<(String, Vec<String>)>,
    /// Which of its keys the file names: an opening refuses those of them that an existing partition is not and cannot become.
    pub named: Vec<&'static str>,
}

impl Default for Partition {
    fn default() -> Partition {
        Partition {
            device: DEFAULT_DEVICE.to_owned(),
            organization: Organization::default(),
            locks: LockGranule::default(),
            residence: Residence::default(),
            cache: true,
            write_buffer: true,
            blocking_factor: None,
            record_size: None,
            objects: None,
            page_size: None,
            segment_size: None,
            reserve_percent: None,
            record: None,
            secondaries: Vec::new(),
            named: Vec::new(),
        }
    }
}

/// Whether `name` may name a device or a partition, and so a file: 1 to 64 ASCII letters, digits, `_` and `-`, a letter
/// first.
pub fn is_name(name: &str) -> bool {
    name.len() <= 64
        && name.starts_with(|c: char| c.is_ascii_alphabetic())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-')
}

#[expect(clippy::disallowed_methods, reason = "the configuration chooses the driver, so none exists yet")]
fn read_file(file: &Path) -> std::io::Result<Vec<u8>> {
    std::fs::read(file)
}

/// The device of what names none: [`DEFAULT_DEVICE`], or the first of hardware that has none of this name.
fn default_device(hardware: Option<&Hardware>) -> &str {
    match hardware {
        Some(hardware) if !hardware.devices.contains_key(DEFAULT_DEVICE) => {
            hardware.devices.keys().next().map_or(DEFAULT_DEVICE, String::as_str)
        }
        _ => DEFAULT_DEVICE,
    }
}

impl Configuration {
    /// The configuration that `text` describes; messages name it `<text>`.
    ///
    /// # Errors
    /// [`ConfigurationError::Wrong`] with everything that is wrong in it.
    pub fn parse(text: &str) -> Result<Configuration, ConfigurationError> {
        Configuration::from_bytes("<text>", text.as_bytes(), None)
    }

    /// The configuration that the bytes of the file `file` (named in messages, not read) describe, run on `hardware` (a
    /// name or path as in the file) if that is given, whatever the file says. Descriptions named by path are read;
    /// relative paths start at the working directory.
    ///
    /// # Errors
    /// [`ConfigurationError::Wrong`] with everything that is wrong in the file; [`ConfigurationError::Hardware`] if
    /// `hardware` cannot be used.
    ///
    /// ```
    /// use entresol::configuration::Configuration;
    ///
    /// let text = b"[buffer]\nsize = \"64 KiB\"\npage_size = \"256 B\"";
    /// assert!(Configuration::from_bytes("small.toml", text, None).is_err(), "real pages have 4 KiB at least");
    /// let described = Configuration::from_bytes("small.toml", text, Some("rahm-1991"))?;
    /// assert_eq!(described.buffer.size / u64::from(described.buffer.page_size), 256);
    /// # Ok::<(), entresol::configuration::ConfigurationError>(())
    /// ```
    pub fn from_bytes(file: &str, bytes: &[u8], hardware: Option<&str>) -> Result<Configuration, ConfigurationError> {
        interpret::interpret(file, bytes, hardware.map(interpret::hardware).transpose()?, Path::new(""))
    }

    /// As [`Configuration::from_bytes`], run on this description of hardware, whatever the file says.
    ///
    /// # Errors
    /// [`ConfigurationError::Wrong`] with everything that is wrong in the file.
    pub fn on_hardware(file: &str, bytes: &[u8], hardware: Hardware) -> Result<Configuration, ConfigurationError> {
        interpret::interpret(file, bytes, Some(hardware), Path::new(""))
    }

    /// Reads a configuration file; its relative paths start at its directory. `hardware`, if given, is used whatever the
    /// file says, and starts at the working directory if it is a path. No file (`None`) is an empty one.
    ///
    /// # Errors
    /// [`ConfigurationError::Unreadable`] if the file cannot be read, and those of [`Configuration::from_bytes`].
    pub fn read(file: Option<&Path>, hardware: Option<&str>) -> Result<Configuration, ConfigurationError> {
        let Some(file) = file else {
            return Configuration::from_bytes("<no file>", b"", hardware);
        };
        let name = file.display().to_string();
        let bytes = read_file(file)
            .map_err(|error| ConfigurationError::Unreadable { file: name.clone(), reason: error.to_string() })?;
        let hardware = hardware.map(interpret::hardware).transpose()?;
        interpret::interpret(&name, &bytes, hardware, file.parent().unwrap_or(Path::new("")))
    }

    /// The settings of the partition `name`: as configured, or the defaults.
    ///
    /// ```
    /// use entresol::configuration::{Configuration, Residence};
    ///
    /// let configuration = Configuration::parse("[partition.branch]\nresidence = \"memory\"")?;
    /// assert_eq!(configuration.partition("branch").residence, Residence::Memory);
    /// assert_eq!(configuration.partition("account").residence, Residence::Paged, "the default");
    /// # Ok::<(), entresol::configuration::ConfigurationError>(())
    /// ```
    pub fn partition(&self, name: &str) -> Partition {
        let default =
            || Partition { device: default_device(self.hardware.as_ref()).to_owned(), ..Partition::default() };
        self.partitions.get(name).cloned().unwrap_or_else(default)
    }

    /// The whole format as a commented file that holds every key with its default. It parses to
    /// [`Configuration::default`].
    pub fn reference() -> String {
        let policies: Vec<&str> = POLICIES.iter().map(|policy| policy.name()).collect();
        let designs: Vec<&str> = DESIGNS.iter().map(|design| design.name()).collect();
        include_str!("configuration/reference.toml")
            .replace("{policies}", &alternatives(&policies))
            .replace("{designs}", &alternatives(&designs))
    }
}

/// Words that a key takes, for people: `"a", "b" or "c"`.
fn alternatives(words: &[&str]) -> String {
    let quoted: Vec<String> = words.iter().map(|word| format!("\"{word}\"")).collect();
    match quoted.split_last() {
        Some((last, rest)) if !rest.is_empty() => format!("{} or {last}", rest.join(", ")),
        _ => quoted.concat(),
    }
}
