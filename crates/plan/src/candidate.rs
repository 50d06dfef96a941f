//! Candidates: combinations of what may vary, and why some cannot be.

use crate::losses::{self, NotSurvived};
use crate::{Limits, Loss, Machine};
use base::units::{format_size, grouped, grouped_decimal};
use entresol::configuration::Configuration;
use papers::experiment::{Setting, Work};
use std::collections::BTreeMap;
use std::fmt::{self, Write};
use toml::{Table, Value};
use workload::trace::miss_ratio::MissRatioCurve;
use workload::{Length, Load};

/// One combination.
#[derive(Clone, Debug)]
pub struct Candidate {
    /// What was chosen, each with what it is called.
    pub choices: Vec<(String, String)>,
    /// The rented machine.
    pub machine: Machine,
    /// The database's configuration at its full size, without hardware: as it is written.
    pub configuration: Table,
    /// The same, read, on the described machine.
    pub whole: Configuration,
    /// The run, at the size of the plan's miniature.
    pub setting: Setting,
}

/// A combination that is not run.
#[derive(Clone, Debug)]
pub struct Refused {
    /// What was chosen, each with what it is called.
    pub choices: Vec<(String, String)>,
    /// The price of a month, where it is known.
    pub cost_per_month: Option<f64>,
    /// Why it cannot be.
    pub unfit: Unfit,
}

/// Why a candidate is not run.
#[derive(Clone, Debug, PartialEq)]
pub enum Unfit {
    /// The instance has no drives, and the configuration names them.
    NoDrives(String),
    /// A volume of this kind cannot be so large, or do so much.
    Bounds(String),
    /// The buffer, what records were, sets and the slots of caches, or the memories of nodes, take more memory than there is.
    Memory {
        /// What the database takes, in bytes.
        needed: u64,
        /// What the instance has for it.
        allowed: u64,
    },
    /// A device holds less than is put on it.
    Capacity {
        /// The device.
        device: String,
        /// What is put on it, in bytes.
        needed: u64,
        /// What it holds.
        allowed: u64,
    },
    /// It costs too much.
    Cost {
        /// The price of a month.
        needed: f64,
        /// The limit.
        allowed: f64,
    },
    /// A loss that must be survived is not.
    Survives(Loss, NotSurvived),
    /// Even by its miss-ratio curve it reads more than its device may do.
    Reads {
        /// The device.
        device: String,
        /// Reads per second that miss in memory and cache.
        needed: f64,
        /// Operations per second that it may do.
        allowed: f64,
    },
}

impl Unfit {
    /// The limit that is to blame.
    pub fn limit(&self) -> &'static str {
        match self {
            Unfit::NoDrives(_) => "drives",
            Unfit::Bounds(_) => "volume",
            Unfit::Memory { .. } => "memory",
            Unfit::Capacity { .. } => "capacity",
            Unfit::Cost { .. } => "cost",
            Unfit::Survives(..) => "survives",
            Unfit::Reads { .. } => "throughput",
        }
    }

    /// How much of what is allowed it would use; infinite where nothing of it is allowed.
    pub fn used(&self) -> f64 {
        match self {
            Unfit::Memory { needed, allowed } | Unfit::Capacity { needed, allowed, .. } => {
                *needed as f64 / (*allowed).max(1) as f64
            }
            Unfit::Cost { needed, allowed } | Unfit::Reads { needed, allowed, .. } => needed / allowed,
            Unfit::NoDrives(_) | Unfit::Bounds(_) | Unfit::Survives(..) => f64::INFINITY,
        }
    }
}

impl fmt::Display for Unfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unfit::NoDrives(instance) => write!(f, "the instance {instance} has no drives of its own"),
            Unfit::Bounds(why) => f.write_str(why),
            Unfit::Memory { needed, allowed } => {
                write!(
                    f,
                    "the database takes {} of memory, and there are {}",
                    format_size(*needed),
                    format_size(*allowed)
                )
            }
            Unfit::Capacity { device, needed, allowed } => {
                write!(f, "'{device}' is to hold {}, and holds {}", format_size(*needed), format_size(*allowed))
            }
            Unfit::Cost { needed, allowed } => {
                write!(f, "{} a month, and {} are allowed", grouped_decimal(*needed, 2), grouped_decimal(*allowed, 2))
            }
            Unfit::Survives(loss, why) => write!(f, "does not survive \"{}\": {why}", loss.word()),
            Unfit::Reads { device, needed, allowed } => write!(
                f,
                "'{device}' would be read {} times a second, and does {}",
                grouped(*needed as u64),
                grouped(*allowed as u64)
            ),
        }
    }
}

/// A miss-ratio curve of a pass over a workload prunes what needs more reads than its device does by this factor: LRU is not
/// the best replacement there is, and a sampled curve is off by a few per cent.
const READS_MARGIN: f64 = 1.5;

/// What the engine keeps in memory of each slot of a cache, in bytes: the slot itself, its place in the directory and in the
/// order of replacement, estimated from the sizes of these.
const SLOT_BYTES: u64 = 140;

/// The least transactions of a run that is a part of a whole one.
const ARRIVALS_MIN: u64 = 200;

impl Candidate {
    /// What was chosen, in a line.
    pub fn name(&self) -> String {
        let labels: Vec<&str> = self.choices.iter().map(|(_, label)| label.as_str()).collect();
        if labels.is_empty() { self.machine.instance.clone() } else { labels.join(", ") }
    }

    /// The trace that it replays, if it replays one.
    pub fn trace(&self) -> Option<&str> {
        match &self.setting.work {
            Work::Trace { trace } => Some(trace),
            _ => None,
        }
    }

    /// Arrivals per second, of a load with a rate.
    pub fn arrivals_per_s(&self) -> Option<f64> {
        match self.setting.plan.load {
            Load::Open { rate_per_s } => Some(rate_per_s),
            Load::Closed { .. } | Load::Full => None,
        }
    }

    /// Why it cannot be, by sizes, prices and losses.
    pub(crate) fn find_unfit(&self, limits: &Limits) -> Option<Unfit> {
        if let Some(unfit) = self.find_crowded(0) {
            return Some(unfit);
        }
        for (devices, needed) in self.occupied(limits.data.unwrap_or(0)) {
            let capacity = |device: &String| self.machine.places.get(device).map_or(u64::MAX, |place| place.capacity);
            let allowed = devices.iter().map(capacity).fold(0, u64::saturating_add);
            if needed > allowed {
                return Some(Unfit::Capacity { device: devices.join("' and '"), needed, allowed });
            }
        }
        let cost = self.machine.cost_per_month();
        if let Some(allowed) = limits.cost_per_month.filter(|allowed| cost > *allowed) {
            return Some(Unfit::Cost { needed: cost, allowed });
        }
        limits.survives.iter().find_map(|loss| {
            losses::survives(&self.whole, &self.machine, *loss).err().map(|why| Unfit::Survives(*loss, why))
        })
    }

    /// Whether memory does not hold the database beside this number of bytes of memory-resident sets, which are known when it was run.
    pub fn find_crowded(&self, of_sets: u64) -> Option<Unfit> {
        let slots: u64 = self.whole.caches().map(|cache| u64::from(cache.pages)).sum();
        let own = (self.whole.buffer.size + self.whole.undo.memory + SLOT_BYTES * slots).saturating_add(of_sets);
        // Nodes are beside their server, or have a machine like that each.
        let of_node = self.whole.nodes.buffer.unwrap_or(self.whole.buffer.size);
        let needed = match self.setting.work {
            Work::Nodes { nodes, .. } if self.machine.is_for_all() => {
                own.saturating_add(u64::from(nodes).saturating_mul(of_node))
            }
            Work::Nodes { .. } => own.max(of_node),
            _ => own,
        };
        let allowed = self.machine.memory.saturating_sub(self.machine.reserve);
        (needed > allowed).then_some(Unfit::Memory { needed, allowed })
    }

    /// The devices that hold partitions, or may come to hold some.
    fn page_devices(&self) -> Vec<String> {
        losses::pages(&self.whole).into_iter().collect()
    }

    /// The bytes that are put on devices: the log and the caches on each, and `data` of the partitions beside these on those that have some
    /// together, for it is not said how much of it each has.
    fn occupied(&self, data: u64) -> Vec<(Vec<String>, u64)> {
        let whole = &self.whole;
        let page = u64::from(whole.buffer.page_size);
        let caches = whole.caches().map(|cache| (cache.device.clone(), u64::from(cache.pages) * page));
        let log = std::iter::once(&whole.log.device).chain(&whole.log.second_device);
        let log = log.map(|device| (device.clone(), whole.log.size));
        let mut occupied: BTreeMap<String, u64> = BTreeMap::new();
        for (device, bytes) in caches.chain(log) {
            *occupied.entry(device).or_default() += bytes;
        }
        let paged = self.page_devices();
        let beside: u64 = paged.iter().filter_map(|device| occupied.get(device)).sum();
        let each = occupied.into_iter().map(|(device, bytes)| (vec![device], bytes));
        each.chain([(paged, beside + data)]).collect()
    }

    /// Why it cannot be, by the misses of a pass over its workload at the size of the miniature, with this number of references per
    /// transaction. First references to pages do not count.
    pub fn find_unread(
        &self,
        curve: &MissRatioCurve,
        references_per_transaction: f64,
        limits: &Limits,
    ) -> Option<Unfit> {
        let asked = limits.throughput_per_s.or(self.arrivals_per_s())?;
        let configuration = &self.setting.configuration;
        let frames = configuration.buffer.size / u64::from(configuration.buffer.page_size);
        let slots: u64 = configuration.caches().map(|cache| u64::from(cache.pages)).sum();
        let needed = asked * references_per_transaction * curve.repeated_miss_ratio(frames + slots);
        // What is missed of partitions on other devices is read there.
        let [device] = <[String; 1]>::try_from(self.page_devices()).ok()?;
        let allowed = self.machine.places.get(&device)?.operations?;
        (needed > READS_MARGIN * allowed).then_some(Unfit::Reads { device, needed, allowed })
    }

    /// The run with a part of its length, behind a warm-up of the same length as that of the whole. It is no shorter than that some 200
    /// transactions arrive, as far as the whole is not.
    pub fn part(&self, divisor: u64) -> Setting {
        let mut setting = self.setting.clone();
        setting.plan.measure = match setting.plan.measure {
            Length::Transactions(count) => Length::Transactions((count / divisor.max(1)).max(ARRIVALS_MIN)),
            Length::Time(ns) => {
                let least_ns = self.arrivals_per_s().map_or(0.0, |rate| ARRIVALS_MIN as f64 * 1e9 / rate) as u64;
                Length::Time((ns / divisor.max(1)).max(least_ns.min(ns)).max(1_000_000))
            }
        };
        setting
    }

    /// The configuration as the text of a file that opens a database on this machine, behind these lines of comment.
    pub fn configuration_text(&self, comment: &str) -> String {
        let mut text = String::new();
        for line in comment.lines() {
            let _ = writeln!(text, "# {line}");
        }
        let mut table = self.configuration.clone();
        for (name, place) in &self.machine.places {
            // The device 'disk' is the directory of the database unless it says otherwise.
            let usual = (name != entresol::configuration::DEFAULT_DEVICE).then(|| name.clone());
            let Some(path) = place.path.clone().or(usual) else { continue };
            let device = table.entry("device").or_insert_with(|| Value::Table(Table::new()));
            if let Value::Table(devices) = device {
                let section = devices.entry(name.clone()).or_insert_with(|| Value::Table(Table::new()));
                if let Value::Table(section) = section {
                    section.insert("path".to_owned(), Value::String(path));
                }
            }
        }
        text.push_str(&toml::to_string(&table).expect("a table of TOML is TOML"));
        text
    }
}
