//! A random database and a random workload.

use crate::SeedKind;
use crate::coverage::pairs;
use crate::isolation::Contention;
use crate::{backups, lost_end, partitions, spill, unlocked};
use base::Random;
use base::time::{MICROSECOND_NS, MILLISECOND_NS, SECOND_NS};
use engine::catalog::{Locking, Organization};
use engine::lock::VictimPolicy;
use engine::log::{Acknowledged, GroupCommit, Second, SyncMethod};
use engine::replacement::{POLICIES, Policy};
use engine::second_level::{self, CacheSettings, DESIGNS, Design, Parameters, Placement, WriteBudget};
use engine::tier_file::WriteBufferSettings;
use engine::{PartitionSpec, Settings, buffer, checkpoint, log};
use virtual_driver::Hardware;

/// How the rows of Debit-Credit are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rows {
    /// In b-trees, locked by record.
    Tree,
    /// In memory-resident sets.
    Set,
    /// As objects found by number.
    Direct(Locking),
}

impl Rows {
    /// Whether rows are found by key.
    pub fn have_keys(self) -> bool {
        !matches!(self, Rows::Direct(_))
    }
}

/// The size of the sets' segments in bytes: the smallest.
pub const SEGMENT_SIZE: u32 = *engine::set::SEGMENT_SIZES.start() as u32;

/// Everything that is random about a seed apart from the course of events.
#[derive(Clone, Debug)]
pub struct Configuration {
    /// The engine's settings.
    pub settings: Settings,
    /// Whether the device of the tiers loses its contents with the power.
    pub volatile_tiers: bool,
    /// Writes of up to this many bytes are never torn.
    pub atomic_write: u32,
    /// Whether CPU work takes time, so that tasks suspend where they pay for it.
    pub priced: bool,
    /// Whether ready tasks run in random order.
    pub shuffled: bool,
    /// Whether all service times are random.
    pub jitter: bool,
    /// How the rows are kept.
    pub rows: Rows,
    /// What is locked where history is appended.
    pub history: Locking,
    /// The most history records on a page; 0 for as many as fit.
    pub history_per_page: u32,
    /// The size of a row in bytes.
    pub row_size: usize,
    /// How many branches there are.
    pub branches: u64,
    /// How many tellers.
    pub tellers: u64,
    /// How many accounts.
    pub accounts: u64,
    /// Clients that run Debit-Credit.
    pub debit_clients: usize,
    /// Clients that each change their own records.
    pub record_clients: usize,
    /// Clients that each create, load and change their own partitions.
    pub partition_clients: usize,
    /// How many small partitions are created beside those: mostly none, in a few seeds thousands.
    pub crowd: u64,
    /// Whether more is given up before its end: clients call for several records at a time, and commit what they have given up halfway; databases are
    /// closed at work, and given up for devices that do not answer.
    pub haste: bool,
    /// Whether clients rest as futures of other runtimes do, now and then.
    pub foreign_waits: bool,
    /// How many different keys a client with records of its own uses.
    pub keys: u64,
    /// The longest value in bytes.
    pub value_max: u64,
    /// The share of transactions that may make many changes, 0 to 1.
    pub long_transactions: f64,
    /// How long a client rests between two transactions at most, in nanoseconds: time for background checkpoints.
    pub pause_ns_max: u64,
    /// The contention test, if the seed tests isolation. No other clients work then.
    pub contention: Option<Contention>,
    /// Whether backups are taken beside the clients.
    pub backups: bool,
    /// Whether a client sorts and joins beside the others.
    pub spills: bool,
    /// Whether a client has partitions without locks.
    pub has_unlocked: bool,
    /// How many runs end in a fault.
    pub runs: u64,
    /// How many transactions each client runs in a run.
    pub transactions: u64,
}

/// Whether more is given up before its end than in other seeds.
pub fn is_hasty(seed: u64) -> bool {
    Random::stream(seed, "haste").chance(0.2)
}

/// From how many changes on an opening leaves transactions to be undone behind it.
pub fn undone_first_max(random: &mut Random) -> u64 {
    one_of(random, &[0, 1, 4, 16, 50, 1_000])
}

fn one_of<T: Copy>(random: &mut Random, items: &[T]) -> T {
    *random.choose(items).expect("there are some")
}

impl Configuration {
    /// What `seed` stands for.
    pub fn draw(seed: u64, options: crate::Options) -> Configuration {
        let random = &mut Random::stream(seed, "configuration");
        // A buffer that holds next to nothing, so that a restart writes and reads while it redoes and undoes.
        let tiny = random.chance(0.2);
        let page_size = if tiny { 512 } else { one_of(random, &[512, 512, 1024, 1024, 2048, 4096, 8192]) };
        let clients = [(4, 0), (0, 3), (2, 2), (3, 3), (6, 1), (1, 1)];
        let (debit_clients, record_clients) = if tiny { (1, 1) } else { one_of(random, &clients) };
        let contention = (options.kind == SeedKind::Isolation).then(|| Contention::draw(seed));
        let (debit_clients, record_clients) =
            if contention.is_some() { (0, 0) } else { (debit_clients, record_clients) };
        let clients = debit_clients + record_clients + contention.as_ref().map_or(0, |contention| contention.clients);
        let checkpoint = if tiny { checkpoint::Policy::OFF } else { checkpoint(random) };
        let crowd = if contention.is_some() { 0 } else { partitions::crowd_count(seed) };
        let (capacity, is_short) = if checkpoint == checkpoint::Policy::OFF {
            (16 << 20, false)
        } else {
            let capacity = one_of(random, &[256 << 10, 512 << 10, 1 << 20, 4 << 20]);
            let is_short = contention.is_none() && has_short_log(seed, crowd);
            (if is_short { SHORT_LOG } else { capacity }, is_short)
        };
        let (second, silence_ns_max) = second_log(seed);
        let backups = contention.is_none() && !partitions::is_large_crowd(crowd) && backups::are_taken(seed);
        // A short log has no room for what an archive is told of many partitions.
        let archive = backups::archive(seed).filter(|_| backups && !(is_short && crowd > 0));
        let has_unlocked = !backups && lost_end::waits(seed, options) && crowd == 0 && contention.is_none();
        let has_unlocked = has_unlocked && partitions::clients(seed) == 0 && unlocked::is_of(seed, capacity);
        let temp = spill::settings(seed).filter(|_| contention.is_none());
        let (mut hierarchy, volatile_tiers) = hierarchy(&mut Random::stream(seed, "hierarchy"), tiny);
        if let Some(cache) = &mut hierarchy.cache {
            design(seed, cache);
            let random = &mut Random::stream(seed, "cache table");
            cache.table = Some(random.chance(0.7));
            cache.table_ahead = one_of(random, &[0, 4096, 4 << 20]);
            place(seed, cache);
            hierarchy.upper_cache = upper_cache(seed);
        }
        if let (Some(_), Some(buffer)) = (&second, &mut hierarchy.write_buffer) {
            buffer.log_bytes = 0;
        }
        let random_sets = &mut Random::stream(seed, "sets");
        let in_memory = random_sets.chance(0.3);
        let (logging, strategy) = one_of(random_sets, &pairs());
        let sweep = checkpoint::SweepSettings {
            strategy,
            spool: random_sets.chance(0.5),
            quiesce: random_sets.chance(0.3),
            interval_ns: random_sets.chance(0.3).then(|| random_sets.below(20) * MILLISECOND_NS),
            spread_percent: one_of(&mut Random::stream(seed, "spread"), &[0, 50, 90]),
            device_percent: one_of(&mut Random::stream(seed, "sweep share"), &[1, 10, 100]),
            // Transactions meet a sweep half way only if it takes its time.
            segments_in_flight: one_of(random_sets, &[1, 1, 8]),
            segment_interval_ns: one_of(random_sets, &[0, 200, 5_000]) * MICROSECOND_NS,
        };
        let row_size_max = if page_size == 512 { 48 } else { 100 };
        let row_size = random.between(16, row_size_max) as usize;
        // Sets of more than a segment or two.
        let row_size_max = if capacity < 1 << 20 { 1_000 } else { 6_000 };
        let row_size = match in_memory && random_sets.chance(0.5) {
            true => random_sets.between(500, row_size_max) as usize,
            false => row_size,
        };
        let locking = one_of(random, &[Locking::Record, Locking::Page]);
        Configuration {
            settings: Settings {
                buffer: buffer::Settings {
                    frames: if tiny { 20 } else { one_of(random, &[16 + 6 * clients, 64, 64, 200, 1000]) },
                    page_size,
                    replacement: replacement(seed),
                    cleaner: random.chance(0.6),
                    batch: one_of(&mut Random::stream(seed, "batch"), &[2, 8, 64]),
                    growth_step: one_of(&mut Random::stream(seed, "growth step"), &[4 << 10, 32 << 10, 1 << 20]),
                },
                log: log::Settings {
                    second,
                    silence_ns_max,
                    first_extent: first_extent(seed, capacity),
                    archive,
                    durable: lost_end::waits(seed, options),
                    ..log(random, capacity, is_short)
                },
                home_device: "disk".into(),
                log_device: one_of(random, &LOG_DEVICES).into(),
                hierarchy,
                force: random.chance(0.2),
                hold_locks: random.chance(0.25),
                victim: one_of(random, &[VictimPolicy::Requester, VictimPolicy::Youngest]),
                undone_first_max: undone_first_max(&mut Random::stream(seed, "undone first")),
                checkpoint,
                sweep,
                logging,
                whole_fields: Random::stream(seed, "whole fields").chance(0.3),
                multiprogramming_level: one_of(random, &[2, 4, 64]),
                temp: temp.clone().unwrap_or_default(),
                undo: contention.as_ref().map_or_else(Default::default, |contention| contention.undo.clone()),
                ..Settings::default()
            },
            volatile_tiers,
            atomic_write: one_of(random, &[512, 512, 4096, u32::MAX]),
            priced: random.chance(0.3),
            shuffled: random.chance(0.7),
            jitter: random.chance(0.7),
            rows: match random.chance(0.6) {
                _ if in_memory => Rows::Set,
                true => Rows::Tree,
                false => Rows::Direct(locking),
            },
            history: one_of(random, &[Locking::None, Locking::None, Locking::Page, Locking::Record]),
            history_per_page: one_of(random, &[0, 0, 3]),
            row_size,
            branches: random.between(1, 3),
            tellers: random.between(2, 10),
            accounts: random.between(10, 150),
            debit_clients,
            record_clients,
            partition_clients: if contention.is_some() { 0 } else { partitions::clients(seed) },
            crowd,
            haste: is_hasty(seed),
            foreign_waits: Random::stream(seed, "foreign waits").chance(0.1),
            keys: if tiny { 60 } else { random.between(5, 60) },
            value_max: if capacity < 1 << 20 { 4_000 } else { 20_000 },
            long_transactions: if tiny {
                0.5
            } else if capacity >= 1 << 20 {
                0.1
            } else {
                0.0
            },
            backups,
            spills: temp.is_some(),
            has_unlocked,
            pause_ns_max: one_of(random, &[0, 0, 2_000, 20_000]) * MICROSECOND_NS,
            contention,
            runs: if tiny { options.runs_max } else { random.between(1, options.runs_max) },
            transactions: random.between(2, options.transactions_max),
        }
    }

    /// The machine that it runs on.
    pub fn hardware(&self) -> Hardware {
        let mut hardware = Hardware::ideal();
        let second = hardware.device_mut("flash").clone();
        hardware.devices.insert("second".to_owned(), second.clone());
        hardware.devices.insert(CACHE_DEVICE.to_owned(), second);
        if self.backups {
            let place = hardware.device_mut("disk").clone();
            let names = backups::PLACES.into_iter().chain([backups::ARCHIVE]);
            hardware.devices.extend(names.map(|name| (name.to_owned(), place.clone())));
        }
        for device in ["disk", "flash", "nvem", "second", CACHE_DEVICE] {
            hardware.device_mut(device).atomic_write = self.atomic_write;
        }
        hardware.device_mut("nvem").volatile = self.volatile_tiers;
        if self.priced {
            let machine = Hardware::named("nvme-2026").expect("an embedded description");
            hardware.cpu = machine.cpu;
        }
        hardware
    }

    /// The partitions, in the order of their creation.
    pub fn partitions(&self) -> Vec<PartitionSpec> {
        if let Some(contention) = &self.contention {
            return contention.partitions();
        }
        let rows = |name, objects| match self.rows {
            Rows::Tree => PartitionSpec::b_tree(name),
            Rows::Set => PartitionSpec::new(name, set(false), Locking::Record),
            Rows::Direct(locking) => {
                let room = self.settings.buffer.page_size - engine::page::HEADER_SIZE;
                let blocking_factor = (room / self.row_size).min(8) as u32;
                let record_size = self.row_size as u32;
                PartitionSpec::new(name, Organization::Direct { objects, blocking_factor, record_size }, locking)
            }
        };
        let history = match (self.rows, self.history) {
            (Rows::Set, Locking::None) => PartitionSpec::new("history", set(true), Locking::None),
            (Rows::Set, Locking::Record) => PartitionSpec::new("history", set(true), Locking::Record),
            (_, locking) => {
                PartitionSpec::new("history", Organization::Append { blocking_factor: self.history_per_page }, locking)
            }
        };
        let unlocked = self.has_unlocked.then(unlocked::specs).into_iter().flatten();
        let all = [
            rows("account", self.accounts),
            rows("teller", self.tellers),
            rows("branch", self.branches),
            history,
            PartitionSpec::b_tree("records"),
        ];
        all.into_iter().chain(unlocked).collect()
    }
}

fn set(arrivals: bool) -> Organization {
    Organization::Set { arrivals, segment_size: SEGMENT_SIZE, reserve_percent: 10 }
}

/// The devices that the log may be on.
pub const LOG_DEVICES: [&str; 2] = ["disk", "flash"];

/// The second device of every third log: one that the log itself is never on. And for how long one of two may be silent, in
/// nanoseconds: longer than any device is slow.
fn second_log(seed: u64) -> (Option<Second>, u64) {
    let random = &mut Random::stream(seed, "second log");
    let acknowledged = one_of(random, &[Acknowledged::Both, Acknowledged::First]);
    let second = random.chance(0.35).then(|| Second { device: "second".into(), acknowledged });
    (second, random.between(1, 5) * SECOND_NS)
}

/// The usual policy in every other seed, since most users have it, and one of them all in the others.
fn replacement(seed: u64) -> Policy {
    let random = &mut Random::stream(seed, "replacement");
    if random.chance(0.5) { Policy::default() } else { one_of(random, POLICIES) }
}

/// How many designs are those of Rahm's study: the first ones.
const MIGRATING: usize = 3;

/// Every other cache is of a design that is not one of Rahm's.
fn design(seed: u64, cache: &mut CacheSettings) {
    let random = &mut Random::stream(seed, "cache design");
    if !random.chance(0.5) {
        draw_design(random, cache);
    }
}

/// A device that only the cache is on, and that is not accessed like memory: its operations have a time limit.
pub const CACHE_DEVICE: &str = "cache";

/// Half of the caches are on a device of their own, which may be silent for longer than any device is slow.
fn place(seed: u64, cache: &mut CacheSettings) {
    let random = &mut Random::stream(seed, "cache device");
    if random.chance(0.5) {
        cache.device = CACHE_DEVICE.to_owned();
    }
    cache.silence_ns_max = random.between(1, 5) * SECOND_NS;
}

/// A design that is not one of Rahm's, with parameters and perhaps a budget of writes.
pub fn draw_design(random: &mut Random, cache: &mut CacheSettings) {
    cache.design = one_of(random, &DESIGNS[MIGRATING..]);
    cache.parameters = Parameters {
        fill_threshold_percent: one_of(random, &[0, 50, 95]),
        dirty_max_percent: one_of(random, &[0, 10, 50, 100]),
        group_pages: one_of(random, &[1, 3, 32]),
        throttle: one_of(random, &[0, 1, 4, 100]),
    };
    cache.write_budget = random.chance(0.3).then(|| WriteBudget {
        bytes_per_day: one_of(random, &[1 << 20, 1 << 33, 1 << 37]),
        burst_bytes: one_of(random, &[16 << 10, 64 << 10]),
    });
}

/// Now and then there is another cache above the cache, of any design.
fn upper_cache(seed: u64) -> Option<CacheSettings> {
    let random = &mut Random::stream(seed, "upper cache");
    random.chance(UPPER).then(|| draw_upper_cache(random))
}

/// The share of caches that have another one above them.
const UPPER: f64 = 0.1;

/// An upper cache: smaller than most caches below, so that there is something left for these to serve.
pub fn draw_upper_cache(random: &mut Random) -> CacheSettings {
    let device = if random.chance(0.5) { CACHE_DEVICE } else { "nvem" };
    let mut upper = CacheSettings::new(device, random.between(1, 30) as u32);
    match random.chance(0.5) {
        true => upper.design = one_of(random, &DESIGNS[..MIGRATING]),
        false => draw_design(random, &mut upper),
    }
    CacheSettings { silence_ns_max: random.between(1, 5) * SECOND_NS, ..upper }
}

/// The tiers of a database, and whether their device is volatile.
fn hierarchy(random: &mut Random, tiny: bool) -> (second_level::Settings, bool) {
    if random.chance(0.4) {
        return (second_level::Settings::default(), false);
    }
    let volatile = random.chance(0.2);
    let device = "nvem".to_owned();
    let pages_max = if tiny { 40 } else { 80 };
    // The usual one twice as often as the others of Rahm's study.
    let migrating = &DESIGNS[..MIGRATING];
    let designs: Vec<Design> = migrating[..1].iter().chain(migrating).copied().collect();
    let cache = random.chance(0.7).then(|| CacheSettings {
        device: device.clone(),
        pages: random.between(1, pages_max) as u32,
        design: one_of(random, &designs),
        parameters: Parameters::default(),
        volatile: None,
        write_budget: None,
        rated_bytes: None,
        table: None,
        table_ahead: 0,
        silence_ns_max: 10 * SECOND_NS,
    });
    let write_buffer = (!volatile && random.chance(0.6)).then(|| WriteBufferSettings {
        device: device.clone(),
        pages: one_of(random, &[0, 1, 8, 30]),
        log_bytes: one_of(random, &[0, 4096, 16 << 10, 64 << 10]),
        volatile: None,
    });
    let names = ["account", "teller", "branch", "history", "records", "tree", "direct"];
    let placement = |random: &mut Random| Placement {
        resident: random.chance(0.1),
        cache: random.chance(0.85),
        write_buffer: random.chance(0.85),
    };
    let placements = names.iter().map(|name| ((*name).to_owned(), placement(random))).collect();
    (second_level::Settings { cache, upper_cache: None, write_buffer, placements }, volatile)
}

fn checkpoint(random: &mut Random) -> checkpoint::Policy {
    let log_bytes = Some(random.between(8 << 10, 200 << 10));
    let interval_ns = Some(random.between(1_000, 50_000) * MICROSECOND_NS);
    one_of(
        random,
        &[
            checkpoint::Policy::OFF,
            checkpoint::Policy { log_bytes, interval_ns: None },
            checkpoint::Policy { log_bytes: None, interval_ns },
            checkpoint::Policy { log_bytes, interval_ns },
        ],
    )
}

/// The capacity of a log of few pages, in bytes.
const SHORT_LOG: u64 = 256 << 10;

/// Whether the log has so few pages that it fills up: often where many partitions are created, since each creation takes one.
fn has_short_log(seed: u64, crowd: u64) -> bool {
    let is_crowded = crowd > 0 && !partitions::is_large_crowd(crowd);
    Random::stream(seed, "short log").chance(if is_crowded { 0.7 } else { 0.05 })
}

/// How much of the log's file is there from the beginning: often a small part of it.
fn first_extent(seed: u64, capacity: u64) -> u64 {
    let random = &mut Random::stream(seed, "growing log");
    if random.chance(0.6) { ((8 << 10) << random.below(6)).min(capacity / 2) } else { capacity }
}

fn log(random: &mut Random, capacity: u64, is_short: bool) -> log::Settings {
    let page_size = one_of(random, &[512, 1024, 4096]);
    let page_size = if is_short { 4096 } else { page_size };
    let delay_ns = random.between(10, 500) * MICROSECOND_NS;
    let transactions = random.between(1, 6) as u32;
    let usual = if transactions.is_multiple_of(2) { GroupCommit::Paced } else { GroupCommit::Adaptive };
    log::Settings {
        page_size,
        capacity,
        write_size_max: page_size * one_of(random, &[1, 4, 16]),
        writes_in_flight_max: one_of(random, &[Some(1), Some(2), None, Some(16)]),
        group_commit: one_of(
            random,
            &[
                GroupCommit::None,
                usual,
                GroupCommit::Size { transactions, delay_ns_max: delay_ns },
                GroupCommit::Delay { ns: delay_ns },
            ],
        ),
        durable: true,
        sync_method: one_of(random, &[Some(SyncMethod::SyncWrite), Some(SyncMethod::WriteThenSync), None]),
        buffer_size_max: random.between(32 << 10, 1 << 20),
        reserve: one_of(random, &[0.25, 0.5]),
        ..log::Settings::default()
    }
}
