//! What one seed's cluster is.

use super::{ClusterOptions, own_snapshots, set_orders, sets, space, things, unseen};
use base::Random;
use base::time::{MILLISECOND_NS, SECOND_NS};
use engine::catalog::{Locking, Organization};
use engine::checkpoint::{Strategy, SweepSettings};
use engine::second_level::{self, CacheSettings, DESIGNS};
use engine::{PartitionSpec, Settings, buffer, checkpoint, log};
use node::algorithm::{ALGORITHMS, Algorithm};
use node::lease::CLOCK_GAIN_PPM_MAX;
use std::fmt;

/// A server and its nodes.
#[derive(Clone)]
pub struct ClusterShape {
    /// What the server does with the memories of its nodes.
    pub algorithm: &'static Algorithm,
    /// How often it passes a page on to idle nodes before one has used it.
    pub chances: u8,
    /// How many nodes there are.
    pub nodes: u32,
    /// Those of them, by number, that only read pages, and that as often as they can.
    pub readers: Vec<u32>,
    /// How many pages they share.
    pub pages: u64,
    /// How many objects each of these has. With more than one, operations are mostly on objects.
    pub objects_on_page: u64,
    /// How many records may be in the tree that they share.
    pub keys: u64,
    /// Whether these are changed in place for the most part, so that nodes change different records of one leaf.
    pub stays_in_place: bool,
    /// How many records may be in a tree whose records have a type and indexes. None in most seeds, which have no long values either.
    pub things: u64,
    /// How many records may be in a memory-resident set, and in one that has an index. There are none in most seeds.
    pub set_records: u64,
    /// How sets are swept.
    pub strategy: Strategy,
    /// How many transactions of a node run at a time.
    pub transactions: u32,
    /// Whether nodes keep write locks.
    pub keeps_write_locks: bool,
    /// The nodes, by number, whose commits carry log records alone.
    pub record_committers: Vec<u32>,
    /// The probability that a transaction goes back to savepoints now and then. None does in most seeds.
    pub savepoints: f64,
    /// Whether transactions have pages locked now and then before they look at them.
    pub looks_unseen: bool,
    /// When writes of the server's log that begin take long, in nanoseconds from the beginning of trouble, and how long. None do in most seeds.
    pub slow_log: Option<(u64, u64)>,
    /// The nodes, by number, that read snapshots beside their transactions.
    pub snapshot_readers: Vec<u32>,
    /// How many bytes the server has for what pages were before, if they are few.
    pub snapshot_room: Option<usize>,
    /// Whether the server's program reads snapshots of its database while it serves it.
    pub reads_own: bool,
    /// How many frames a node's buffer has, and how many the server's.
    pub frames: (usize, usize),
    /// How many operations a transaction has, at most.
    pub operations_max: u64,
    /// The probability that an operation is one on records, not on a page.
    pub records: f64,
    /// The probability that an operation writes.
    pub writes: f64,
    /// How long a node rests between two transactions, at most, in nanoseconds.
    pub rest_ns_max: u64,
    /// For how long a node seeks its server, in nanoseconds.
    pub patience_ns: u64,
    /// For how long calls of nodes wait for locks, in nanoseconds. Without end in most seeds.
    pub lock_wait_ns_max: Option<u64>,
    /// The probability that a parcel is late, that a connection breaks, and that one hangs.
    pub late: f64,
    /// See [`ClusterShape::late`].
    pub reset: f64,
    /// See [`ClusterShape::late`].
    pub hang: f64,
    /// Whether what is sent is taken at once, as between threads.
    pub sends_at_once: bool,
    /// Over how much virtual time faults are spread, in nanoseconds.
    pub trouble_ns: u64,
    /// The size of the server's log, in bytes, and when the server takes checkpoints.
    pub log_size: u64,
    /// See [`ClusterShape::log_size`].
    pub checkpoint: checkpoint::Policy,
    /// Whether writes of the log fail.
    pub log_fails: bool,
    /// Whether two nodes come under one name.
    pub shares_names: bool,
    /// A second device of the server's log, and a cache below its memory, in a few seeds.
    pub second_log: Option<log::Second>,
    /// See [`ClusterShape::second_log`].
    pub cache: Option<CacheSettings>,
    /// Whether commits wait for the log. Where they do not, what was acknowledged has to outlive closes of the server; when all is over the
    /// power takes the last of it, and nothing is asked for then but a sound database.
    pub is_durable: bool,
    /// Whether operations of the server's data device fail, some each time it is started.
    pub disk_fails: bool,
    /// Whether that device is full at times, and partitions are made and dropped beside nodes.
    pub fills: bool,
    /// How long the server's data device takes in the mean, in nanoseconds, where it is slow: in half of the seeds in which nodes leave, so that
    /// their commits take some time. The server has as few frames then as it may.
    pub slow_disk_ns: Option<u64>,
    /// The same of its log's device.
    pub slow_log_ns: Option<u64>,
    /// How many millionths each machine's clock gains on the slowest that there may be, the server's first. None if all clocks agree.
    pub clock_gains_ppm: Option<Vec<u64>>,
}

impl fmt::Debug for ClusterShape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClusterShape")
            .field("algorithm", &self.algorithm.name())
            .field("chances", &self.chances)
            .field("nodes", &self.nodes)
            .field("readers", &self.readers)
            .field("pages", &self.pages)
            .field("objects_on_page", &self.objects_on_page)
            .field("keys", &self.keys)
            .field("stays_in_place", &self.stays_in_place)
            .field("things", &self.things)
            .field("set_records", &self.set_records)
            .field("strategy", &self.strategy)
            .field("transactions", &self.transactions)
            .field("keeps_write_locks", &self.keeps_write_locks)
            .field("record_committers", &self.record_committers)
            .field("savepoints", &self.savepoints)
            .field("looks_unseen", &self.looks_unseen)
            .field("slow_log", &self.slow_log)
            .field("snapshot_readers", &self.snapshot_readers)
            .field("snapshot_room", &self.snapshot_room)
            .field("reads_own", &self.reads_own)
            .field("frames", &self.frames)
            .field("operations_max", &self.operations_max)
            .field("records", &self.records)
            .field("writes", &self.writes)
            .field("rest_ns_max", &self.rest_ns_max)
            .field("patience_ns", &self.patience_ns)
            .field("lock_wait_ns_max", &self.lock_wait_ns_max)
            .field("late, reset, hang", &(self.late, self.reset, self.hang))
            .field("sends_at_once", &self.sends_at_once)
            .field("trouble_ns", &self.trouble_ns)
            .field("log_size", &self.log_size)
            .field("checkpoint", &self.checkpoint)
            .field("log_fails", &self.log_fails)
            .field("shares_names", &self.shares_names)
            .field("second_log", &self.second_log)
            .field("cache", &self.cache)
            .field("is_durable", &self.is_durable)
            .field("disk_fails", &self.disk_fails)
            .field("fills", &self.fills)
            .field("slow_disk_ns", &self.slow_disk_ns)
            .field("slow_log_ns", &self.slow_log_ns)
            .field("clock_gains_ppm", &self.clock_gains_ppm)
            .finish()
    }
}

/// How many records there may be in the tree.
pub(super) const KEYS_MAX: u64 = 16;
/// How many frames the server has, at least.
const FRAMES_MIN: u64 = 12;
/// How many frames more a node has for each further transaction that it runs at a time.
const FRAMES_MORE: usize = 12;
/// How many frames more a node and the server have where there are long values and indexes: all pages of a commit are in memory.
const FRAMES_OF_THINGS: (usize, usize) = (48, 240);
/// How often operations are on records, at least, where these are changed in place.
const RECORDS_IN_PLACE: f64 = 0.7;
/// The same where pages of records are locked before they are looked at.
const RECORDS_UNSEEN: f64 = 0.4;
/// The pages' size, in bytes.
const PAGE_SIZE: usize = 1024;

impl ClusterShape {
    /// Draws the cluster of a seed.
    pub fn draw(seed: u64, options: ClusterOptions) -> ClusterShape {
        let mut random = Random::stream(seed, "cluster shape");
        let mut of_objects = Random::stream(seed, "cluster objects");
        let falls = of_objects.chance(0.3);
        let suited: Vec<&'static Algorithm> =
            ALGORITHMS.iter().filter(|algorithm| algorithm.falls() == falls).collect();
        let algorithm = suited[seed as usize % suited.len()];
        let stays_in_place = falls && Random::stream(seed, "cluster leaves").chance(0.5);
        let nodes = random.between(2, 4) as u32;
        let readers: Vec<u32> = (2..=nodes).filter(|_| random.chance(0.4)).collect();
        // More of them than frames, so that they leave, or so few that nodes are always in each other's way.
        let pages = if random.chance(0.4) { random.between(30, 80) } else { random.between(2, 8) };
        let mut within = Random::stream(seed, "cluster transactions");
        let transactions = if within.chance(0.25) { 1 } else { within.between(2, 5) as u32 };
        let frames_more = FRAMES_MORE * (transactions as usize - 1);
        let is_noisy = random.chance(0.3);
        let noise = |random: &mut Random, most: f64| if is_noisy { random.unit() * most } else { 0.0 };
        let mut of_commits = Random::stream(seed, "cluster commits");
        let mut of_snapshots = Random::stream(seed, "cluster snapshots");
        // They are in the way of all else, so most seeds have none.
        let has_snapshots = seed % 5 == 4;
        let mut of_log = Random::stream(seed, "cluster log");
        let mut of_waits = Random::stream(seed, "cluster waits");
        let mut of_things = Random::stream(seed, "cluster things");
        let (mut of_sets, has_set) = (Random::stream(seed, "cluster sets"), matches!(seed % 11, 2 | 8));
        // In three of eight seeds, so that there are some with each algorithm.
        let things = if (4..7).contains(&(seed % 8)) { of_things.between(4, 40) } else { 0 };
        let (of_node, of_server) = if things > 0 { FRAMES_OF_THINGS } else { (0, 0) };
        let looks_unseen = unseen::is_of(seed);
        let has_upkeep = has_upkeep(seed);
        let drawn = |concern: &str, share| has_upkeep && Random::stream(seed, concern).chance(share);
        let slow_disk_ns = draw_slow(seed, "cluster slow disk");
        let is_durable = !drawn("cluster durability", 0.25);
        let checkpoint = checkpoint::Policy {
            log_bytes: Some(of_log.between(16, 256) << 10),
            interval_ns: Some(of_log.between(200, 2_000) * MILLISECOND_NS),
        };
        ClusterShape {
            algorithm,
            chances: Random::stream(seed, "cluster chances").below(4) as u8,
            nodes,
            readers,
            pages,
            objects_on_page: if falls { of_objects.between(2, 8) } else { 1 },
            keys: random.between(4, KEYS_MAX),
            stays_in_place,
            things,
            set_records: if has_set { of_sets.between(2, 12) } else { 0 },
            strategy: of_sets.choose(&Strategy::ALL).filter(|_| has_set).copied().unwrap_or_default(),
            transactions,
            keeps_write_locks: within.chance(0.6),
            record_committers: (1..=nodes).filter(|_| of_commits.chance(0.5)).collect(),
            savepoints: if (5..7).contains(&(seed % 7)) { 0.6 } else { 0.0 },
            looks_unseen,
            slow_log: draw_slow_log(&mut Random::stream(seed, "cluster slow log"), looks_unseen, options),
            snapshot_readers: (1..=nodes).filter(|_| has_snapshots && of_snapshots.chance(0.8)).collect(),
            snapshot_room: of_snapshots.chance(0.4).then(|| of_snapshots.between(2, 32) as usize * PAGE_SIZE),
            reads_own: own_snapshots::is_of(seed),
            frames: (
                random.between(12, 24) as usize + frames_more + of_node,
                random.between(FRAMES_MIN, if slow_disk_ns.is_some() { FRAMES_MIN } else { 40 }) as usize + of_server,
            ),
            operations_max: random.between(2, 5),
            records: if random.chance(0.5) { random.unit() * 0.8 } else { 0.0 }.max(if stays_in_place {
                RECORDS_IN_PLACE
            } else if looks_unseen {
                RECORDS_UNSEEN
            } else {
                0.0
            }),
            writes: 0.15 + random.unit() * 0.5,
            rest_ns_max: random.between(20, 120) * MILLISECOND_NS,
            patience_ns: if random.chance(0.35) { SECOND_NS } else { 60 * SECOND_NS },
            lock_wait_ns_max: (seed % 6 == 3).then(|| of_waits.between(5, 400) * MILLISECOND_NS),
            late: if random.chance(0.5) { random.unit() * 0.1 } else { 0.0 },
            reset: noise(&mut random, 0.003),
            hang: noise(&mut random, 0.001),
            sends_at_once: Random::stream(seed, "cluster sending").chance(0.25),
            trouble_ns: random.between(options.seconds_max / 2, options.seconds_max) * SECOND_NS,
            log_size: (256 << 10) << of_log.below(5),
            checkpoint,
            log_fails: of_log.chance(0.4) && is_durable,
            shares_names: drawn("cluster names", 0.5),
            second_log: draw_second_log(&mut Random::stream(seed, "cluster second log")).filter(|_| has_upkeep),
            cache: draw_cache(&mut Random::stream(seed, "cluster cache")).filter(|_| has_upkeep),
            is_durable,
            disk_fails: is_durable && drawn("cluster disk", 0.4),
            fills: space::is_of(seed),
            slow_disk_ns,
            slow_log_ns: draw_slow(seed, "cluster slow log"),
            clock_gains_ppm: draw_clocks(&mut Random::stream(seed, "cluster clocks"), nodes),
        }
    }

    /// Whether the server's clock gains as much on a node's as leases allow for.
    pub fn clocks_are_at_bound(&self) -> bool {
        self.clock_gains_ppm.as_deref().is_some_and(|gains| gains[0] == CLOCK_GAIN_PPM_MAX && gains[1..].contains(&0))
    }

    /// Whether a node only reads.
    pub fn only_reads(&self, node: u32) -> bool {
        self.readers.contains(&node)
    }

    /// The server's settings.
    pub(super) fn settings(&self) -> Settings {
        let (second, durable) = (self.second_log.clone(), self.is_durable);
        let log = log::Settings { capacity: self.log_size, second, durable, ..log::Settings::default() };
        let hierarchy = second_level::Settings { cache: self.cache.clone(), ..second_level::Settings::default() };
        let (buffer, log_device) = (self.buffer(self.frames.1), LOG_DEVICE.to_owned());
        let sweep = SweepSettings { strategy: self.strategy, ..SweepSettings::default() };
        Settings { buffer, log, log_device, hierarchy, checkpoint: self.checkpoint, sweep, ..Settings::default() }
    }

    pub(super) fn buffer(&self, frames: usize) -> buffer::Settings {
        buffer::Settings { frames, page_size: PAGE_SIZE, cleaner: false, ..buffer::Settings::default() }
    }

    /// Whether what pages were may take more than the server has for it: long values take much.
    pub(super) fn has_little_room_for_snapshots(&self) -> bool {
        self.snapshot_room.is_some() || self.things > 0
    }

    /// The partitions that nodes share.
    pub(super) fn partitions(&self) -> Vec<PartitionSpec> {
        let organization = Organization::Direct {
            objects: self.pages * self.objects_on_page,
            blocking_factor: self.objects_on_page as u32,
            record_size: 8,
        };
        let pages = PartitionSpec::new(PAGES, organization, Locking::None);
        let things = (self.things > 0).then(things::spec);
        let sets = (self.set_records > 0).then(|| [sets::spec()].into_iter().chain(set_orders::specs()));
        let all = [pages, PartitionSpec::b_tree(TREE), PartitionSpec::append(LOG)].into_iter().chain(things);
        all.chain(sets.into_iter().flatten()).collect()
    }
}

/// Whether the server is closed, paused, has other devices than most, such as fail, or nodes of one name.
pub(super) fn has_upkeep(seed: u64) -> bool {
    Random::stream(seed, "cluster upkeep").chance(0.3)
}

/// Whether nodes leave.
pub(super) fn has_departures(seed: u64) -> bool {
    Random::stream(seed, "cluster departures").chance(0.25)
}

/// How long a device takes, in half of those seeds.
fn draw_slow(seed: u64, concern: &str) -> Option<u64> {
    let mut random = Random::stream(seed, concern);
    let ns = random.between(1, 20) * MILLISECOND_NS;
    (has_departures(seed) && random.chance(0.5)).then_some(ns)
}

/// In a tenth of the seeds, and in more of those in which what is not answered may be seen: for longer than a lease.
fn draw_slow_log(random: &mut Random, looks_unseen: bool, options: ClusterOptions) -> Option<(u64, u64)> {
    let is_slow = random.chance(if looks_unseen { 0.5 } else { 0.1 });
    let at_ns = random.below(options.seconds_max * SECOND_NS / 2);
    is_slow.then(|| (at_ns, random.between(3_000, 7_000) * MILLISECOND_NS))
}

/// In a third of those seeds.
fn draw_second_log(random: &mut Random) -> Option<log::Second> {
    let acknowledged = *random.choose(&[log::Acknowledged::Both, log::Acknowledged::First]).expect("two");
    random.chance(0.35).then(|| log::Second { device: SECOND_DEVICE.to_owned(), acknowledged })
}

/// In a third of those seeds, of any design.
fn draw_cache(random: &mut Random) -> Option<CacheSettings> {
    let design = *random.choose(DESIGNS).expect("there are some");
    let settings = CacheSettings { design, ..CacheSettings::new(CACHE_DEVICE, random.between(4, 60) as u32) };
    random.chance(0.35).then_some(settings)
}

/// How fast clocks are: often those of the nodes as slow as leases allow for beside the server's.
fn draw_clocks(random: &mut Random, nodes: u32) -> Option<Vec<u64>> {
    let differ = random.chance(0.5);
    let mut draw = |extreme| if random.chance(0.5) { extreme } else { random.between(0, CLOCK_GAIN_PPM_MAX) };
    differ.then(|| (0..=nodes).map(|machine| draw(if machine == 0 { CLOCK_GAIN_PPM_MAX } else { 0 })).collect())
}

/// The device of the server's log.
pub(super) const LOG_DEVICE: &str = "flash";
/// That of pages.
pub(super) const DATA_DEVICE: &str = "disk";
/// Those of a second log and a cache.
pub(super) const SECOND_DEVICE: &str = "second";
pub(super) const CACHE_DEVICE: &str = "cache";

/// The partition of pages.
pub(super) const PAGES: &str = "page";
/// The partition of records that have keys.
pub(super) const TREE: &str = "tree";
/// The partition of records that are added to its end.
pub(super) const LOG: &str = "log";
/// The partition of records that have a type and indexes.
pub(super) const THINGS: &str = "thing";
/// The memory-resident sets: of records with keys, of such that have a type and an index, and of such that the set numbers.
pub(super) const STOCK: &str = "stock";
pub(super) const OFFERS: &str = "offer";
pub(super) const ARRIVALS: &str = "arrival";
