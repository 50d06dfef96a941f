//! From a configuration to a driver and the engine's settings.

use crate::OpenError;
use crate::configuration::{
    Backend, Cache, Configuration, DeviceKind, LockGranule, LockHold, Organization, Partition, Residence, Update,
};
use driver::Driver;
use engine::catalog::{self, IndexSpec, Locking};
use engine::page::HEADER_SIZE;
use engine::second_level::{self, CacheSettings, Placement};
use engine::tier_file::WriteBufferSettings;
use engine::{Error, PartitionSpec, Procedures, Settings, buffer, checkpoint, log, temp, version};
use real_driver::DirectoryLocks;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;
use virtual_driver::{Media, Port, VirtualDriver};

/// Opens the driver that the configuration names: this machine's over the directory `path`, or a described one's, over
/// `media` if they are to outlive it, and on a described network if it has a port there. A driver of this machine keeps `locks` until it has ended.
pub fn driver(
    configuration: &Configuration,
    (path, locks): (&Path, &DirectoryLocks),
    seed: u64,
    (media, port): (Option<&Media>, Option<Port>),
) -> Result<Box<dyn Driver>, OpenError> {
    if let Some(hardware) = &configuration.hardware {
        // Where nothing restarts on what a described machine has logged, only the time of log writes matters.
        let discard = match media {
            Some(_) => Vec::new(),
            None => vec![log::Settings::default().file, log::Settings::default().second_file()],
        };
        let options = virtual_driver::Options { seed, discard, ..virtual_driver::Options::default() };
        let (hardware, media) = (hardware.clone(), media.cloned().unwrap_or_default());
        return Ok(Box::new(match port {
            Some(port) => VirtualDriver::on_network(hardware, options, media, port),
            None => VirtualDriver::new(hardware, options, media),
        }));
    }
    let mut devices = Vec::new();
    let mut behaviour = BTreeMap::new();
    for (name, device) in &configuration.devices {
        devices.push((name.clone(), device.path.clone().unwrap_or_else(|| path.to_owned())));
        let (mapped, described) = (device.kind == DeviceKind::Mapped, device.described.clone());
        behaviour.insert(name.clone(), real_driver::Behaviour { mapped, described });
    }
    let backend = match configuration.driver.backend {
        Backend::Automatic => real_driver::Backend::Automatic,
        Backend::IoUring => real_driver::Backend::IoUring,
        Backend::ThreadPool => real_driver::Backend::ThreadPool,
    };
    let direct = configuration.driver.direct;
    let locks = locks.clone();
    let defaults = real_driver::Options::default();
    let answer_max = configuration.driver.answer_ns_max.map(Duration::from_nanos);
    let patience = defaults.patience.min(answer_max.map_or(Duration::MAX, |limit| limit.max(Duration::from_secs(1))));
    let options = real_driver::Options { devices, behaviour, backend, direct, locks, patience, ..defaults };
    Ok(Box::new(real_driver::RealDriver::open(options)?))
}

/// The engine's settings.
pub fn settings(configuration: &Configuration, procedures: Procedures) -> Settings {
    let page_size = configuration.buffer.page_size as usize;
    let log_page_size = configuration.log.page_size as usize;
    let log_defaults = log::Settings::default();
    Settings {
        buffer: buffer::Settings {
            frames: (configuration.buffer.size / page_size as u64) as usize,
            page_size,
            replacement: configuration.buffer.replacement,
            cleaner: configuration.buffer.cleaner,
            growth_step: configuration.buffer.growth_step,
            ..buffer::Settings::default()
        },
        log: log::Settings {
            page_size: log_page_size,
            write_size_max: log_defaults.write_size_max / log_page_size * log_page_size,
            capacity: configuration.log.size,
            // Described machines are measured as they are after the first lap.
            first_extent: if configuration.hardware.is_some() {
                configuration.log.size
            } else {
                log_defaults.first_extent
            },
            durable: configuration.log.durable,
            group_commit: configuration.log.group_commit,
            sync_method: configuration.log.sync_method,
            second: configuration.log.second_device.clone().map(|device| {
                let acknowledged = configuration.log.acknowledged;
                log::Second { device, acknowledged }
            }),
            silence_ns_max: configuration.log.lost_after_ns,
            without: configuration.log.without.clone(),
            archive: configuration.log.archive.clone(),
            writes_in_flight_max: configuration.log.writes_in_flight.map(|writes| writes as usize),
            ..log::Settings::default()
        },
        home_device: configuration.partition("").device,
        log_device: configuration.log.device.clone(),
        hierarchy: hierarchy(configuration),
        force: configuration.commit.update == Update::Force,
        hold_locks: configuration.log.hold_locks == LockHold::UntilDurable,
        victim: configuration.locks.victim,
        lock_wait_ns_max: configuration.locks.wait_ns_max,
        undone_first_max: configuration.checkpoint.undone_first,
        checkpoint: checkpoint::Policy {
            log_bytes: configuration.checkpoint.log_bytes,
            interval_ns: configuration.checkpoint.interval_ns,
        },
        sweep: checkpoint::SweepSettings {
            strategy: configuration.checkpoint.sets,
            spool: configuration.checkpoint.spool,
            quiesce: configuration.checkpoint.quiesce,
            interval_ns: configuration.checkpoint.sweep_interval_ns,
            spread_percent: configuration.checkpoint.sweep_spread_percent,
            device_percent: configuration.checkpoint.sweep_device_percent,
            segments_in_flight: configuration.checkpoint.segments_in_flight,
            segment_interval_ns: configuration.checkpoint.segment_interval_ns,
        },
        multiprogramming_level: configuration.mpl as usize,
        logging: configuration.log.sets,
        whole_fields: configuration.log.whole_fields,
        temp: temp::TempSettings {
            device: Some(configuration.temp.device.clone()),
            cluster_size: configuration.temp.cluster_size as usize,
            size: configuration.temp.size,
        },
        undo: version::UndoSettings {
            device: Some(configuration.undo.device.clone()),
            cluster_size: configuration.undo.cluster_size as usize,
            memory: configuration.undo.memory,
            age_ns: configuration.undo.age_ns,
            size: configuration.undo.size,
            retention_ns: configuration.undo.retention_ns,
            reader_percent: configuration.undo.reader_percent,
            ..version::UndoSettings::default()
        },
        procedures,
        listener: None,
        asked: configuration.asked.clone(),
    }
}

/// The tiers, and which partitions use them.
fn hierarchy(configuration: &Configuration) -> second_level::Settings {
    let cache = |cache: &Cache| CacheSettings {
        design: cache.design,
        parameters: cache.parameters,
        volatile: cache.volatile,
        write_budget: cache.write_budget,
        rated_bytes: cache.rated_bytes,
        ..CacheSettings::new(&*cache.device, cache.pages)
    };
    let write_buffer = configuration.write_buffer.as_ref().map(|buffer| WriteBufferSettings {
        device: buffer.device.clone(),
        pages: if buffer.takes_pages { buffer.pages } else { 0 },
        log_bytes: if configuration.log.write_buffer { buffer.log_bytes } else { 0 },
        volatile: buffer.volatile,
    });
    let placement = |(name, partition): (&String, &Partition)| {
        let resident = partition.residence == Residence::Memory;
        (name.clone(), Placement { resident, cache: partition.cache, write_buffer: partition.write_buffer })
    };
    second_level::Settings {
        cache: configuration.cache.as_ref().map(cache),
        upper_cache: configuration.upper_cache.as_ref().map(cache),
        write_buffer,
        placements: configuration.partitions.iter().map(placement).collect(),
    }
}

impl Partition {
    fn set(&self, arrivals: bool) -> catalog::Organization {
        let mut set = catalog::Organization::set(arrivals);
        if let catalog::Organization::Set { segment_size, reserve_percent, .. } = &mut set {
            *segment_size = self.segment_size.unwrap_or(*segment_size);
            *reserve_percent = self.reserve_percent.unwrap_or(*reserve_percent);
        }
        set
    }
}

impl Configuration {
    /// The partition `name` as configured; what the configuration leaves open is as in `default`.
    ///
    /// # Errors
    /// [`Error::Setting`] if the configuration asks for what this release cannot do.
    ///
    /// ```
    /// use entresol::configuration::{Configuration, Partition};
    ///
    /// let configuration = Configuration::parse(
    ///     "hardware = \"rahm-1991\"\n[partition.branch]\ndevice = \"nvem\"\nlocks = \"none\"",
    /// )?;
    /// let store = entresol::Opening::new("described", configuration).open()?;
    /// let spec = store.configuration().partition_spec("branch", &Partition::default())?;
    /// assert_eq!(spec.device, "nvem");
    /// let branch = store.run(async |database| database.create_partition(spec).await)?;
    /// # assert_eq!(store.database().partition("branch")?, branch);
    /// # Ok::<(), entresol::OpenError>(())
    /// ```
    pub fn partition_spec(&self, name: &str, default: &Partition) -> Result<PartitionSpec, Error> {
        let chosen = self.partitions.get(name).unwrap_or(default);
        let fail = |why: &str| Err(Error::Setting(format!("partition '{name}': {why}")));
        if chosen.page_size.is_some_and(|size| size != self.buffer.page_size) {
            return fail("in this release every partition has the page size of [buffer]");
        }
        let blocking_factor = chosen.blocking_factor.or(default.blocking_factor);
        let organization = match chosen.organization {
            Organization::BTree => catalog::Organization::BTree,
            Organization::Set => chosen.set(false),
            Organization::Arrivals => chosen.set(true),
            Organization::Append => catalog::Organization::Append { blocking_factor: blocking_factor.unwrap_or(0) },
            Organization::Direct => {
                let record_size = chosen.record_size.or(default.record_size).unwrap_or(8);
                let Some(objects) = chosen.objects.or(default.objects) else {
                    return fail("a direct partition needs its number of objects: set 'objects'");
                };
                let fit = (self.buffer.page_size - HEADER_SIZE as u32) / record_size.max(1);
                let blocking_factor = blocking_factor.unwrap_or(fit);
                catalog::Organization::Direct { objects, blocking_factor, record_size }
            }
        };
        let locking = match chosen.locks {
            LockGranule::Record => Locking::Record,
            LockGranule::Page => Locking::Page,
            LockGranule::None => Locking::None,
        };
        let device = match self.partitions.get(name) {
            Some(partition) => partition.device.clone(),
            None => self.partition(name).device,
        };
        let spec = PartitionSpec { device, ..PartitionSpec::new(name, organization, locking) };
        // What the configuration says of records replaces the workload's description, indexes included.
        let source = match organization {
            catalog::Organization::Set { .. } if chosen.record.is_none() => default,
            catalog::Organization::Set { .. } | catalog::Organization::BTree => chosen,
            _ => return Ok(spec),
        };
        let index = |(name, fields): &(String, Vec<String>)| IndexSpec {
            name: name.clone(),
            fields: fields.clone(),
            is_unique: false,
            record: None,
        };
        let secondaries = source.secondaries.iter().map(index).collect();
        Ok(PartitionSpec { record: source.record.clone(), secondaries, ..spec })
    }
}
