//! From the text to the settings: every section in turn, then what one section may not say beside another.

use super::choice::{Choice, DeviceKind, LockGranule, Organization};
use super::described::{Changes, set_cache_page_size};
use super::error::{ConfigurationError, Problem};
use super::section::{Document, Section};
use super::{
    Buffer, Cache, Checkpoint, Commit, Configuration, DEFAULT_DEVICE, Device, Driver, Locks, Log, Nodes, Partition,
    Temp, Undo, WriteBuffer, catalogue, schema,
};
use devices::Hardware;
use engine::checkpoint::Strategy;
use engine::replacement::{POLICIES, Policy};
use engine::server;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use toml::de::DeTable;

pub(super) const KIB: u64 = 1 << 10;
pub(super) const TIB: u64 = 1 << 40;
pub(super) const MICROSECOND_NS: u64 = base::time::MICROSECOND_NS;
pub(super) const SECOND_NS: u64 = base::time::SECOND_NS;

/// The hardware of this name, or described in the file of this path from the working directory.
pub(super) fn hardware(name: &str) -> Result<Hardware, ConfigurationError> {
    // A path from outside starts where the program does, not where the file lies.
    catalogue::machine(name, Path::new("")).map_err(|problem| {
        let known = catalogue::machines().into_iter().map(str::to_owned).collect();
        ConfigurationError::Hardware { problem, known }
    })
}

/// The configuration that `bytes` describe; `hardware`, if given, is used whatever they say. Descriptions named by path
/// are read from `directory`.
pub(super) fn interpret(
    file: &str,
    bytes: &[u8],
    hardware: Option<Hardware>,
    directory: &Path,
) -> Result<Configuration, ConfigurationError> {
    // What is not UTF-8 is shown replaced; the first replacement is where the valid text ends.
    let lossy = String::from_utf8_lossy(bytes);
    let document = Document::new(file, &lossy);
    let table = match (std::str::from_utf8(bytes), DeTable::parse(&lossy)) {
        (Err(error), _) => {
            let at = error.valid_up_to();
            return Err(document.failure(at..at, Problem::NotText, "text in UTF-8"));
        }
        (Ok(_), Err(error)) => {
            let span = error.span().unwrap_or(lossy.len()..lossy.len());
            return Err(document.failure(span, Problem::Syntax(error.message().to_owned()), ""));
        }
        (Ok(_), Ok(table)) => table,
    };
    let configuration = read(&document, table.get_ref(), hardware, directory);
    document.verdict().map(|()| configuration)
}

/// What the sections must know of each other.
pub(super) struct Context {
    /// Whether the run is under the virtual clock.
    pub(super) is_virtual: bool,
    /// The names of all devices.
    devices: Vec<String>,
    /// The device of what names none.
    default_device: String,
}

impl Context {
    fn page_size(&self, section: &mut Section<'_>) -> Option<u32> {
        let low = if self.is_virtual { 128 } else { 4 * KIB };
        let bytes = section.power_of_two("page_size", low..=64 * KIB)?;
        Some(u32::try_from(bytes).expect("the range ends at 64 KiB"))
    }

    pub(super) fn device(&self, section: &mut Section<'_>) -> String {
        self.device_at(section, "device").unwrap_or_else(|| self.default_device.clone())
    }

    /// The device that this key names, if it is there.
    pub(super) fn device_at(&self, section: &mut Section<'_>, key: &'static str) -> Option<String> {
        let name = section.text(key, "the name of a device")?;
        if self.devices.iter().all(|device| device != name) {
            let known: Vec<&str> = self.devices.iter().map(String::as_str).collect();
            let problem = Problem::NoSuch { what: "device", name: name.to_owned() };
            let more = ", or another that has a section [device.NAME]";
            section.report_name(key, problem, name, &known, more);
        }
        Some(name.to_owned())
    }

    /// The device or, on this machine, the path from `directory` of the directory that this key names, if it is there.
    pub(super) fn place_at(&self, section: &mut Section<'_>, key: &'static str, directory: &Path) -> Option<String> {
        if self.is_virtual {
            return self.device_at(section, key);
        }
        let name = section.text(key, "the name of a device or the path of a directory")?;
        if name.is_empty() {
            let conflict = Problem::Conflict("the path is empty".to_owned());
            section.conflict(key, conflict, "the name of a device or the path of a directory");
        }
        if self.devices.iter().any(|device| device == name) {
            return Some(name.to_owned());
        }
        let path = directory.join(name);
        Some(std::path::absolute(&path).unwrap_or(path).display().to_string())
    }
}

fn read(document: &Document<'_>, table: &DeTable<'_>, hardware: Option<Hardware>, directory: &Path) -> Configuration {
    let mut root = Section::root(document, table);
    let written = read_hardware(&mut root, directory);
    let mut hardware = hardware.or(written);
    let mut buffered = Vec::new();
    let mut devices: BTreeMap<String, Device> = root
        .named_sections("device", |name, section| {
            read_device(name, section, hardware.as_ref(), directory, &mut buffered)
        })
        .into_iter()
        .collect();
    if let Some(hardware) = &mut hardware {
        let described = devices.iter().filter_map(|(name, device)| Some((name.clone(), device.described.clone()?)));
        hardware.devices.extend(described);
    } else {
        devices.entry(DEFAULT_DEVICE.to_owned()).or_default();
    }
    let context = context(&devices, hardware.as_ref());
    let mpl = root.number("mpl", 1..=65_536).map(|mpl| mpl as u32);
    let (buffer, says_page_size) =
        root.section("buffer", |section| (read_buffer(section, &context), section.has("page_size")));
    for name in &buffered {
        let described = devices.get_mut(name).and_then(|device| device.described.as_mut());
        let of_hardware = hardware.as_mut().and_then(|hardware| hardware.devices.get_mut(name));
        described.into_iter().chain(of_hardware).for_each(|device| set_cache_page_size(device, buffer.page_size));
    }
    let cache = root.section("cache", |section| Cache::read(section, &context, buffer.page_size));
    let upper_cache = root
        .section("upper_cache", |section| Cache::read_upper(section, &context, (buffer.page_size, cache.is_some())));
    let write_buffer = root.section("write_buffer", |section| WriteBuffer::read(section, &context, buffer.page_size));
    let (log, log_of_sets, said) = root.section("log", |section| {
        let log = Log::read(section, (&context, directory), write_buffer.is_some());
        (log, section.span("sets"), ["page_size", "device", "size"].map(|key| section.has(key)))
    });
    let [says_log_page_size, says_log_device, says_log_size] = said;
    let asked = engine::Asked {
        page_size: says_page_size.then_some(buffer.page_size as usize),
        log_page_size: says_log_page_size.then_some(log.page_size as usize),
        log_device: says_log_device.then(|| log.device.clone()),
        log_size: says_log_size.then_some(log.size),
    };
    let undo = root.section("undo", |section| Undo::read(section, &context, buffer.page_size));
    let temp = root.section("temp", |section| read_temp(section, &context, buffer.page_size));
    let commit = root.section("commit", |section| Commit { update: section.choice("update").unwrap_or_default() });
    let checkpoint = root.section("checkpoint", |section| read_checkpoint(section, &log));
    if let Err(why) = checkpoint.sets.check(log.sets) {
        let (sets, swept) = (log.sets.word(), checkpoint.sets.word());
        let conflict = format!("sets = \"{sets}\" does not go with [checkpoint] sets = \"{swept}\": {why}");
        let suits = |strategy: &Strategy| strategy.check(log.sets).is_ok();
        let words: Vec<&str> =
            Strategy::ALL.iter().filter(|strategy| suits(strategy)).map(|found| found.word()).collect();
        let allowed = format!("\"{sets}\" beside [checkpoint] sets = \"{}\"", words.join("\", \""));
        root.conflict_at(log_of_sets, Problem::Conflict(conflict), &allowed);
    }
    let locks = root.section("locks", |section| read_locks(section, hardware.is_some()));
    let has_server = root.has("server");
    let server = Some(root.section("server", read_server)).filter(|_| has_server);
    let nodes = root.section("nodes", |section| Nodes::read(section, buffer.page_size));
    let driver = root.section("driver", read_driver);
    let partitions = root
        .named_sections("partition", |_, section| read_partition(section, &context, buffer.page_size))
        .into_iter()
        .collect();
    root.finish();
    let mpl = mpl.unwrap_or(Configuration::default().mpl);
    Configuration {
        hardware,
        mpl,
        devices,
        buffer,
        cache,
        upper_cache,
        write_buffer,
        log,
        undo,
        temp,
        commit,
        checkpoint,
        locks,
        server,
        nodes,
        driver,
        partitions,
        asked,
    }
}

fn read_locks(section: &mut Section<'_>, is_described: bool) -> Locks {
    let range = base::time::MILLISECOND_NS..=86_400 * SECOND_NS;
    let limit = |section: &mut Section<'_>| section.duration_ns("wait_at_most", range, ", or \"off\"");
    // What a described machine is asked is how long transactions wait.
    let unsaid = if is_described { None } else { Locks::default().wait_ns_max };
    Locks {
        victim: section.choice("victim").unwrap_or_default(),
        wait_ns_max: section.unless_off("wait_at_most", limit).unwrap_or(unsaid),
    }
}

fn read_hardware(root: &mut Section<'_>, directory: &Path) -> Option<Hardware> {
    let name = root.text("hardware", "the name of described hardware, or the path of a description ending in .toml")?;
    match catalogue::machine(name, directory) {
        Ok(hardware) => Some(hardware),
        Err(problem) => {
            let more = ", or the path of a description ending in .toml";
            root.report_name("hardware", problem, name, &catalogue::machines(), more);
            // What follows is read as for a virtual run, so that one mistake is not reported many times.
            Some(Hardware::ideal())
        }
    }
}

fn context(devices: &BTreeMap<String, Device>, hardware: Option<&Hardware>) -> Context {
    // A device that the hardware lacks is reported where it has its section, not wherever it is used.
    let described = hardware.into_iter().flat_map(|hardware| hardware.devices.keys());
    let names: BTreeSet<&String> = devices.keys().chain(described).collect();
    let names = names.into_iter().cloned().collect();
    let default_device = super::default_device(hardware).to_owned();
    Context { is_virtual: hardware.is_some(), devices: names, default_device }
}

/// Reads a `[device.NAME]`; `buffered` receives its name if its cache's pages are to have the size of the buffer's.
fn read_device(
    name: &str,
    section: &mut Section<'_>,
    hardware: Option<&Hardware>,
    directory: &Path,
    buffered: &mut Vec<String>,
) -> Device {
    let path = section.text("path", "the path of a directory");
    let kind = section.choice("kind").unwrap_or_default();
    let described = section.text("described", "the name of a described device, or the path of a description");
    if path == Some("") {
        let conflict = Problem::Conflict("the path is empty".to_owned());
        section.conflict("path", conflict, "the path of a directory; without this key it is the database's own");
    }
    if kind == DeviceKind::Described && hardware.is_none() {
        let conflict =
            Problem::Conflict("a device that is only described does not exist on the real machine".to_owned());
        section.conflict("kind", conflict, "\"file\", \"mapped\"; \"described\" beside hardware = \"NAME\"");
    } else if kind == DeviceKind::Described && described.is_none() {
        let conflict = Problem::Conflict("a described device needs its description".to_owned());
        section.conflict("kind", conflict, "\"described\" beside described = \"NAME\"");
    } else if let Some(hardware) = hardware.filter(|hardware| !hardware.devices.contains_key(name))
        && described.is_none()
    {
        let problem = Problem::Conflict(format!("hardware '{}' has no device '{name}'", hardware.name));
        let known: Vec<&str> = hardware.devices.keys().map(String::as_str).collect();
        section.report_header(problem, name, &known, ", or another beside described = \"NAME\"");
    }
    let described = described.and_then(|name| {
        let report = |problem| {
            let known = catalogue::descriptions();
            let known: Vec<&str> = known.iter().map(String::as_str).collect();
            let more = ", or the path of a description ending in .toml";
            section.report_name("described", problem, name, &known, more);
        };
        catalogue::description(name, directory).map_err(report).ok()
    });
    let changes = Changes::read(section);
    let described = match described.or_else(|| hardware?.devices.get(name).filter(|_| !changes.is_empty()).cloned()) {
        Some(mut description) => {
            changes.apply(section, &mut description);
            buffered.extend(changes.buffer_pages.then(|| name.to_owned()));
            Some(description)
        }
        None => {
            Changes::refuse(section);
            None
        }
    };
    Device { path: path.map(|path| directory.join(path)), kind, described }
}

fn read_buffer(section: &mut Section<'_>, context: &Context) -> Buffer {
    let defaults = Buffer::default();
    let page_size = context.page_size(section).unwrap_or(defaults.page_size);
    section.set_page_size(page_size);
    let least = 16 * u64::from(page_size);
    let steps = u64::from(page_size)..=1 << 30;
    let names: Vec<&str> = POLICIES.iter().map(|policy| policy.name()).collect();
    Buffer {
        size: section.size("size", least..=16 * TIB, ": 16 pages or more").unwrap_or(defaults.size),
        page_size,
        replacement: section.word("replacement", &names).and_then(Policy::named).unwrap_or_default(),
        cleaner: section.flag("cleaner").unwrap_or(defaults.cleaner),
        warm: section.flag("warm").unwrap_or(defaults.warm),
        growth_step: section.size("growth_step", steps, ": a page to 1 GiB").unwrap_or(defaults.growth_step),
    }
}

fn read_temp(section: &mut Section<'_>, context: &Context, page_size: u32) -> Temp {
    section.set_page_size(page_size);
    let defaults = Temp::default();
    let low = if context.is_virtual { 512 } else { 4 * KIB };
    let cluster = section.power_of_two("cluster_size", low..=*engine::temp::TempSettings::CLUSTER_SIZES.end());
    let cluster_size = cluster.map_or(defaults.cluster_size, |bytes| bytes as u32);
    let sizes = u64::from(cluster_size)..=16 * TIB;
    Temp {
        device: context.device(section),
        cluster_size,
        size: section.size("size", sizes, ": a cluster or more").unwrap_or(defaults.size),
    }
}

fn read_checkpoint(section: &mut Section<'_>, log: &Log) -> Checkpoint {
    let log_size = log.size;
    section.set_page_size(log.page_size);
    let mut checkpoint = Checkpoint::for_log(log_size);
    let interval = base::time::MILLISECOND_NS..=86_400 * SECOND_NS;
    if let Some(interval_ns) =
        section.unless_off("interval", |section| section.duration_ns("interval", interval, ", or \"off\""))
    {
        checkpoint.interval_ns = interval_ns;
    }
    if let Some(log_bytes) = section.unless_off("log_bytes", |section| {
        section.size("log_bytes", 16 * KIB..=log_size / 2, ": half of the log's size; or \"off\"")
    }) {
        checkpoint.log_bytes = log_bytes;
    }
    checkpoint.sets = section.choice("sets").unwrap_or_default();
    checkpoint.spool = section.flag("spool").unwrap_or(checkpoint.spool);
    checkpoint.quiesce = section.flag("quiesce").unwrap_or(checkpoint.quiesce);
    let floor = 0..=86_400 * SECOND_NS;
    if let Some(interval_ns) =
        section.unless_off("sweep_interval", |section| section.duration_ns("sweep_interval", floor, ", or \"off\""))
    {
        checkpoint.sweep_interval_ns = interval_ns;
    }
    checkpoint.sweep_spread_percent =
        section.number("sweep_spread_percent", 0..=90).map_or(checkpoint.sweep_spread_percent, |percent| percent as u8);
    checkpoint.sweep_device_percent = section
        .number("sweep_device_percent", 1..=100)
        .map_or(checkpoint.sweep_device_percent, |percent| percent as u8);
    checkpoint.segments_in_flight =
        section.number("segments_in_flight", 1..=64).map_or(checkpoint.segments_in_flight, |count| count as usize);
    let pace = MICROSECOND_NS..=10 * SECOND_NS;
    checkpoint.segment_interval_ns = section
        .unless_off("segment_interval", |section| section.duration_ns("segment_interval", pace, ", or \"off\""))
        .flatten()
        .unwrap_or(0);
    checkpoint.undone_first = section.number("undone_first", 0..=1_000_000_000).unwrap_or(checkpoint.undone_first);
    checkpoint
}

fn read_server(section: &mut Section<'_>) -> server::Settings {
    let defaults = server::Settings::default();
    let interval = 0..=3_600 * SECOND_NS;
    server::Settings {
        standbys: section
            .number("standbys", 0..=server::Settings::STANDBYS_MAX.into())
            .map_or(defaults.standbys, |standbys| standbys as u8),
        queue: section.number("queue", 1..=1 << 20).map_or(defaults.queue, |queue| queue as usize),
        retry_interval_ns: section.duration_ns("retry_interval", interval, "").unwrap_or(defaults.retry_interval_ns),
    }
}

fn read_driver(section: &mut Section<'_>) -> Driver {
    let range = 100 * base::time::MILLISECOND_NS..=86_400 * SECOND_NS;
    let limit = |section: &mut Section<'_>| section.duration_ns("answer_at_most", range, ", or \"off\"");
    Driver {
        backend: section.choice("backend").unwrap_or_default(),
        direct: section.flag("direct").unwrap_or(Driver::default().direct),
        socket: section.flag("socket").unwrap_or(Driver::default().socket),
        answer_ns_max: section.unless_off("answer_at_most", limit).flatten(),
    }
}

/// What a partition is created with.
const LASTING: [&str; 10] = [
    "device",
    "organization",
    "locks",
    "page_size",
    "blocking_factor",
    "record_size",
    "objects",
    "segment_size",
    "reserve_percent",
    "record",
];

fn read_partition(section: &mut Section<'_>, context: &Context, buffer_page_size: u32) -> Partition {
    let record = schema::read_record(section);
    let page_size = context.page_size(section);
    section.set_page_size(page_size.unwrap_or(buffer_page_size));
    let partition = Partition {
        device: context.device(section),
        organization: section.choice("organization").unwrap_or_default(),
        locks: section.choice("locks").unwrap_or_default(),
        residence: section.choice("residence").unwrap_or_default(),
        cache: section.flag("cache").unwrap_or(true),
        write_buffer: section.flag("write_buffer").unwrap_or(true),
        blocking_factor: section.number("blocking_factor", 1..=65_535).map(|n| n as u32),
        record_size: section.size("record_size", 1..=64 * KIB, "").map(|n| n as u32),
        objects: section.number("objects", 1..=1 << 48),
        page_size,
        segment_size: section.power_of_two("segment_size", 16 * KIB..=4096 * KIB).map(|n| n as u32),
        reserve_percent: section.number("reserve_percent", 0..=90).map(|n| n as u8),
        secondaries: schema::read_secondaries(section, record.as_ref()),
        record,
        named: LASTING.into_iter().filter(|key| section.has(key)).collect(),
    };
    check_partition(section, &partition, buffer_page_size);
    partition
}

fn check_partition(section: &Section<'_>, partition: &Partition, buffer_page_size: u32) {
    let fixed = "organization = \"direct\" or \"append\"";
    let (direct, set) = ("organization = \"direct\"", "organization = \"set\" or \"arrivals\"");
    let typed = "organization = \"b-tree\", \"set\" or \"arrivals\"";
    let is_set = matches!(partition.organization, Organization::Set | Organization::Arrivals);
    let keys = [
        ("blocking_factor", fixed),
        ("record_size", fixed),
        ("objects", direct),
        ("segment_size", set),
        ("reserve_percent", set),
        ("record", typed),
        ("secondary", typed),
    ];
    for (key, allowed) in keys {
        let suits = match partition.organization {
            _ if allowed == set => is_set,
            _ if allowed == typed => is_set || partition.organization == Organization::BTree,
            Organization::BTree | Organization::Set | Organization::Arrivals => false,
            Organization::Append => key != "objects",
            Organization::Direct => true,
        };
        if !suits {
            let conflict = format!("'{key}' has no effect in a partition of this organization");
            section.conflict(key, Problem::Conflict(conflict), &format!("{key} beside {allowed}"));
        }
    }
    if (is_set || partition.organization == Organization::BTree) && partition.locks == LockGranule::Page {
        let what = if is_set { "a set" } else { "a b-tree" };
        let conflict = Problem::Conflict(format!("{what} is not locked by page"));
        section.conflict(
            "locks",
            conflict,
            "\"record\", \"none\"; \"page\" beside organization = \"direct\" or \"append\"",
        );
    }
    if partition.organization == Organization::Set && partition.locks == LockGranule::None {
        let conflict = Problem::Conflict("a set whose records have keys is locked by record".into());
        section.conflict("locks", conflict, "\"record\"; \"none\" beside organization = \"arrivals\"");
    }
    let page_size = partition.page_size.unwrap_or(buffer_page_size);
    if let (Some(blocking_factor), Some(record_size)) = (partition.blocking_factor, partition.record_size)
        && u64::from(blocking_factor) * u64::from(record_size) > u64::from(page_size)
    {
        let conflict =
            format!("{blocking_factor} records of {record_size} bytes do not fit on a page of {page_size} bytes");
        section.conflict(
            "blocking_factor",
            Problem::Conflict(conflict),
            "as many records as fit; without this key that number",
        );
    }
}
