use super::store::{Store, set};
use crate::configuration::is_hasty;
use crate::history::Level;
use base::Random;
use base::time::{MICROSECOND_NS, SECOND_NS};
use engine::catalog::Locking;
use engine::{PartitionSpec, version};

/// The levels that transactions run at.
const LEVELS: [&[Level]; 5] = [
    &[Level::ReadCommitted],
    &[Level::Snapshot],
    &[Level::Serializable],
    &[Level::Snapshot, Level::Serializable],
    &[Level::ReadCommitted, Level::Snapshot, Level::Serializable],
];

/// Longer than any run, over all its restarts, in nanoseconds.
const RETENTION_NS: u64 = 3_600 * SECOND_NS;

/// The name of the partition that has the lock of whose turn it is.
pub const TURNS: &str = "turns";

/// Versions that leave memory early or late, and that are kept for a fixed time or as long as a snapshot may read them.
fn undo(random: &mut Random) -> version::UndoSettings {
    let choose = |random: &mut Random, items: &[u64]| *random.choose(items).expect("there are some");
    let memory = choose(random, &[0, 500, 4_000, 64 << 20]);
    version::UndoSettings {
        device: random.choose(&[None, Some("flash".to_owned()), Some("nvem".to_owned())]).expect("three").clone(),
        // Versions of a few dozen bytes never fill eight large clusters in a run.
        cluster_size: choose(random, &[512, 512, 4096]) as usize,
        memory,
        age_ns: *random.choose(&[None, Some(0), Some(0), Some(200 * MICROSECOND_NS)]).expect("four"),
        size: memory.max(choose(random, &[8 << 10, 1 << 30, 1 << 30])),
        retention_ns: choose(random, &[0, 0, 100, 10_000]) * MICROSECOND_NS,
        lazy_commits: choose(random, &[0, 4, 1024, 1024]) as u32,
        ..version::UndoSettings::default()
    }
}

/// Which clients contend, and on which records.
#[derive(Clone, Debug)]
pub struct Contention {
    /// At which levels transactions run: each draws one of these.
    pub levels: &'static [Level],
    /// How the records are kept.
    pub stores: Vec<Store>,
    /// How many records of each store there may be.
    pub keys: u64,
    /// How many places the index of typed records has, if records share them.
    pub groups: u64,
    /// Whether the records that do not share them are in a b-tree; in a set otherwise.
    pub unique_in_tree: bool,
    /// Clients.
    pub clients: usize,
    /// The most operations of a transaction.
    pub operations_max: u64,
    /// How long clients rest between two operations at most, in nanoseconds.
    pub rest_ns_max: u64,
    /// The longest value in bytes, but for a few.
    pub value_max: u64,
    /// What is locked where records are found by number.
    pub locking: Locking,
    /// How many such records are on a page.
    pub blocking_factor: u32,
    /// Where versions go, and for how long.
    pub undo: version::UndoSettings,
    /// The share of transactions that only read, at a moment that is past.
    pub past: f64,
    /// What is locked where records are added at the end.
    pub appended_locking: Locking,
    /// How many of them are on a page; 0 for as many as fit.
    pub appended_per_page: u32,
    /// Whether they are in a set of arrivals; on pages otherwise.
    pub appended_in_set: bool,
    /// Whether transactions take turns in adding and scanning them, where they are not locked.
    pub takes_turns: bool,
    /// Whether some calls wait for locks for a short time only.
    pub is_impatient: bool,
    /// Whether some calls are for several records.
    pub several: bool,
    /// A client that changes many unrelated records, so that versions outgrow the undo space.
    pub flood: Option<Flood>,
}

/// Changes of many records that no other client reads.
#[derive(Clone, Copy, Debug)]
pub struct Flood {
    /// How many records there are.
    pub records: u64,
    /// How many of them a transaction changes.
    pub together: u64,
    /// Whether they are in a set; in a b-tree otherwise.
    pub in_set: bool,
}

impl Flood {
    /// The name of their partition.
    pub const NAME: &str = "flood";

    /// Every sixth seed has one: with it, versions may take this many bytes.
    fn draw(seed: u64) -> Option<(Flood, u64)> {
        let random = &mut Random::stream(seed, "flood");
        // The table of the latest versions is swept when it has grown by thousands.
        let is_wide = random.chance(0.2);
        let (records, size) = if is_wide {
            (random.between(4_500, 6_000), 256 << 10)
        } else {
            (random.between(200, 1_000), random.between(1, 4) * (8 << 10))
        };
        let flood = Flood { records, together: random.between(20, 200), in_set: is_wide || random.chance(0.5) };
        random.chance(0.17).then_some((flood, size))
    }
}

impl Contention {
    /// What `seed` stands for.
    pub fn draw(seed: u64) -> Contention {
        let random = &mut Random::stream(seed, "contention");
        let mut stores: Vec<Store> = Store::NAMED.into_iter().filter(|_| random.chance(0.5)).collect();
        if stores.is_empty() {
            stores.push(*random.choose(&Store::NAMED).expect("there are some"));
        }
        let mut drawn = Contention {
            levels: random.choose(&LEVELS).expect("there are some"),
            stores,
            keys: random.between(2, 16),
            groups: random.between(1, 5),
            unique_in_tree: false,
            clients: random.between(2, 6) as usize,
            operations_max: random.between(2, 10),
            rest_ns_max: *random.choose(&[1, 20, 200]).expect("there are some") * MICROSECOND_NS,
            value_max: random.between(20, 120),
            locking: if random.chance(0.5) { Locking::Record } else { Locking::Page },
            blocking_factor: random.between(1, 3) as u32,
            undo: undo(random),
            past: *random.choose(&[0.0, 0.2, 0.5]).expect("there are some"),
            appended_locking: *random.choose(&[Locking::None, Locking::Page, Locking::Record]).expect("three"),
            appended_per_page: *random.choose(&[0, 1, 1, 3]).expect("four"),
            appended_in_set: false,
            takes_turns: false,
            is_impatient: Random::stream(seed, "impatience").chance(0.25),
            several: is_hasty(seed),
            flood: None,
        };
        if let Some((flood, size)) = Flood::draw(seed) {
            drawn.flood = Some(flood);
            drawn.undo = version::UndoSettings { size, memory: drawn.undo.memory.min(size), ..drawn.undo };
        }
        if random.chance(0.3) {
            drawn.stores.push(Store::Appended);
        }
        let unique = &mut Random::stream(seed, "unique");
        if unique.chance(0.3) {
            drawn.stores.push(Store::Unique);
            drawn.unique_in_tree = unique.chance(0.4);
        }
        if Random::stream(seed, "arrivals").chance(0.5) {
            drawn.appended_in_set = true;
            if drawn.appended_locking == Locking::Page {
                drawn.appended_locking = Locking::Record;
            }
        }
        // Otherwise nothing but their durability could be told of what serializable transactions see there.
        drawn.takes_turns = drawn.stores.contains(&Store::Appended)
            && drawn.appended_locking == Locking::None
            && drawn.levels.contains(&Level::Serializable)
            && Random::stream(seed, "turns").chance(0.7);
        // Of such a seed the moments before a restart are asked for.
        if Random::stream(seed, "kept moments").chance(0.2) {
            (drawn.undo.retention_ns, drawn.past) = (RETENTION_NS, 0.5);
        }
        drawn
    }

    /// The partitions, in the order of their creation.
    pub fn partitions(&self) -> Vec<PartitionSpec> {
        let flood = self.flood.map(|flood| match flood.in_set {
            true => PartitionSpec::new(Flood::NAME, set(), Locking::Record),
            false => PartitionSpec::b_tree(Flood::NAME),
        });
        let turns = self.takes_turns.then(|| PartitionSpec::b_tree(TURNS));
        self.stores.iter().map(|store| store.spec(self)).chain(flood).chain(turns).collect()
    }

    /// How many places records of a store may have.
    pub fn places(&self, store: Store) -> u64 {
        match store {
            Store::Index => self.groups,
            // So that some are free.
            Store::Unique => 2 * self.keys,
            _ => self.keys,
        }
    }

    /// Whether moments before a restart can be read, as far as the log has them.
    pub fn keeps_moments(&self) -> bool {
        self.undo.retention_ns == RETENTION_NS
    }

    /// How the levels are called together.
    pub fn name(&self) -> String {
        self.levels.iter().map(|level| level.name()).collect::<Vec<_>>().join(" and ")
    }
}
