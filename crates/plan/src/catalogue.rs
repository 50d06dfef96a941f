//! Catalogues: instances and volumes that can be rented, with their prices.

use crate::PlanError;
use base::units::parse_size;
use entresol::configuration::{Finding, Problem};
use papers::ExperimentError;
use papers::experiment::document::Document;
use serde::Deserialize;
use serde::de::{Deserializer, Error};
use std::collections::BTreeMap;
use toml::Table;

/// The catalogues that come with this crate.
const EMBEDDED: [(&str, &str); 1] = [("cloud-2026", include_str!("../catalogues/cloud-2026.toml"))];

/// The version of the format.
pub const VERSION: i64 = 1;

/// Hours of a month, as providers count them.
const MONTH_HOURS: f64 = 730.0;

/// What can be rented.
///
/// ```
/// let catalogue = entresol_plan::Catalogue::named("cloud-2026").expect("it comes with this crate");
/// let instance = &catalogue.instances["m6id.large"];
/// assert_eq!(instance.memory, 8 << 30);
/// assert!(instance.price_per_month().is_some_and(|price| price > 80.0 && price < 95.0));
/// assert!(catalogue.volumes.contains_key("gp3"));
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Catalogue {
    /// Where each comes from, with the date of its prices, for people.
    pub sources: Vec<String>,
    /// `currency`: what prices are in.
    pub currency: String,
    /// `[instance.NAME]`: instances by name.
    pub instances: BTreeMap<String, Instance>,
    /// `[volume.NAME]`: kinds of volumes by name.
    pub volumes: BTreeMap<String, Volume>,
    /// `[cpu.NAME]`: processors, described as in a hardware description.
    pub cpus: BTreeMap<String, Table>,
    /// `[drive.NAME]`: drives of instances, described as devices in a hardware description.
    pub drives: BTreeMap<String, Table>,
    /// `[network.NAME]`: what joins instances, described as in a hardware description.
    pub networks: BTreeMap<String, Table>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    version: i64,
    date: String,
    currency: String,
    #[serde(default)]
    cpu: BTreeMap<String, Table>,
    #[serde(default)]
    drive: BTreeMap<String, Table>,
    #[serde(default)]
    network: BTreeMap<String, Table>,
    #[serde(default)]
    instance: BTreeMap<String, Instance>,
    #[serde(default)]
    volume: BTreeMap<String, Volume>,
}

/// An instance.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Instance {
    /// `price_per_hour`; a month has 730 hours.
    #[serde(default, deserialize_with = "price")]
    price_per_hour: Option<f64>,
    /// `price_per_month`, in place of one per hour.
    #[serde(default, deserialize_with = "price")]
    price_per_month: Option<f64>,
    /// `memory`: bytes of main memory.
    #[serde(deserialize_with = "size")]
    pub memory: u64,
    /// `cpus`: processors as the provider counts them. A database's engine runs on one.
    pub cpus: u32,
    /// `cpu`: the name of the processor's description.
    pub cpu: String,
    /// `network`: the name of the description of what joins it to others of its kind, if that is known.
    pub network: Option<String>,
    /// `volumes`: what all volumes get together.
    #[serde(default)]
    pub volumes: Allowance,
    /// `local`: the instance's own drives, which are lost when it stops.
    pub local: Option<Local>,
}

/// What an instance lets its volumes do together.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Allowance {
    /// `operations`: per second; unlimited if it is left out.
    #[serde(default, deserialize_with = "price")]
    pub operations: Option<f64>,
    /// `bandwidth`: bytes per second; unlimited if it is left out.
    #[serde(default, deserialize_with = "optional_rate")]
    pub bandwidth: Option<u64>,
}

/// An instance's own drives.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Local {
    /// `drive`: the name of their description; several drives are described as one.
    pub drive: String,
    /// `capacity`: bytes.
    #[serde(deserialize_with = "size")]
    pub capacity: u64,
    /// `rated_writes`: how many bytes they are rated to be written with in their life, if that is known.
    #[serde(default, deserialize_with = "optional_size")]
    pub rated_writes: Option<u64>,
}

/// A kind of volume.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Volume {
    /// `price`: what it costs in a month.
    pub price: Option<VolumePrice>,
    /// `size`: how large one may be, in bytes.
    pub size: Sizes,
    /// `operations`: how many per second one may be asked to do.
    pub operations: Operations,
    /// `bandwidth`: how many bytes per second.
    pub bandwidth: Rates,
    /// `operation_size`: an operation counts once for each of these many bytes.
    #[serde(default, deserialize_with = "optional_size")]
    pub operation_size: Option<u64>,
    /// `slice`: in which steps the limits are enforced, such as the "100 ms" of Linux's blkio controller.
    pub slice: Option<String>,
    /// `each_way`: whether the limits are those of reads and of writes, each, and not of both together.
    #[serde(default)]
    pub each_way: bool,
    /// `device`: what it is, as a hardware description has devices, without the limits above.
    pub device: Table,
}

/// The price of a volume in a month.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VolumePrice {
    /// Of 10^9 bytes.
    pub per_gb: f64,
    /// Of an operation per second beyond those included.
    #[serde(default)]
    pub per_operation: f64,
    /// Operations per second that cost nothing.
    #[serde(default)]
    pub operations_included: f64,
    /// Of 10^6 bytes per second beyond those included.
    #[serde(default)]
    pub per_mb: f64,
    /// Units of 10^6 bytes per second that cost nothing.
    #[serde(default)]
    pub mb_included: f64,
}

/// Bounds of a size.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sizes {
    /// The least, in bytes.
    #[serde(deserialize_with = "size")]
    pub least: u64,
    /// The most.
    #[serde(deserialize_with = "size")]
    pub most: u64,
}

/// Bounds of operations per second.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Operations {
    /// The least, and what a volume has of which nothing else is said.
    pub least: f64,
    /// The most.
    pub most: f64,
    /// The most for each 10^9 bytes, if that matters.
    pub per_gb_most: Option<f64>,
}

/// Bounds of bytes per second.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rates {
    /// The least, and what a volume has of which nothing else is said.
    #[serde(deserialize_with = "rate")]
    pub least: u64,
    /// The most.
    #[serde(deserialize_with = "rate")]
    pub most: u64,
}

/// Bytes per second, of `"125 MB/s"`.
pub fn parse_rate(text: &str) -> Result<u64, String> {
    let size = text.trim().strip_suffix("/s").ok_or_else(|| format!("'{text}' is no rate such as \"125 MB/s\""))?;
    parse_size(size).map_err(|error| error.to_string())
}

fn size<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    parse_size(&String::deserialize(deserializer)?).map_err(D::Error::custom)
}

fn optional_size<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    size(deserializer).map(Some)
}

fn rate<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    parse_rate(&String::deserialize(deserializer)?).map_err(D::Error::custom)
}

fn optional_rate<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    rate(deserializer).map(Some)
}

fn price<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<f64>, D::Error> {
    let number = f64::deserialize(deserializer)?;
    if number > 0.0 && number.is_finite() { Ok(Some(number)) } else { Err(D::Error::custom("that is not above zero")) }
}

impl Catalogue {
    /// The names of the catalogues that come with this crate.
    pub fn names() -> impl Iterator<Item = &'static str> {
        EMBEDDED.iter().map(|(name, _)| *name)
    }

    /// The text of the one of this name.
    pub fn text(name: &str) -> Option<&'static str> {
        EMBEDDED.iter().find(|(known, _)| *known == name).map(|(_, text)| *text)
    }

    /// The one of this name.
    ///
    /// # Panics
    /// If it cannot be read, which a test excludes.
    pub fn named(name: &str) -> Option<Catalogue> {
        Some(Catalogue::parse(name, Catalogue::text(name)?).expect("the catalogues of this crate can be read"))
    }

    /// Reads a catalogue; `file` names it in messages.
    ///
    /// # Errors
    /// [`PlanError::Version`], or [`PlanError::Text`] that shows what is wrong.
    pub fn parse(file: &str, text: &str) -> Result<Catalogue, PlanError> {
        let document = Document::parse(file, text)?;
        check_version(file, &document)?;
        let written: Written = toml::from_str(text).map_err(|error: toml::de::Error| {
            let span = error.span().unwrap_or(0..0);
            let problem = Problem::Conflict(error.message().to_owned());
            let allowed = "what the shipped catalogue has: 'entresol plan --catalogue'".to_owned();
            ExperimentError::Wrong(Box::new(Finding::new(file, text, span, problem, allowed, None)))
        })?;
        debug_assert_eq!(written.version, VERSION, "the version was looked at");
        let sources = vec![format!("{file} ({})", written.date)];
        let Written {
            currency, cpu: cpus, drive: drives, network: networks, instance: instances, volume: volumes, ..
        } = written;
        Ok(Catalogue { sources, currency, instances, volumes, cpus, drives, networks })
    }

    /// Adds what another has, in place of what has the same name here.
    ///
    /// # Errors
    /// [`PlanError::Currencies`] if its prices are in another currency.
    pub fn extend(&mut self, other: Catalogue) -> Result<(), PlanError> {
        if other.currency != self.currency {
            return Err(PlanError::Currencies { one: self.currency.clone(), other: other.currency });
        }
        self.sources.extend(other.sources);
        self.instances.extend(other.instances);
        self.volumes.extend(other.volumes);
        self.cpus.extend(other.cpus);
        self.drives.extend(other.drives);
        self.networks.extend(other.networks);
        Ok(())
    }
}

/// Refuses a text of another version of its format.
pub(crate) fn check_version(file: &str, document: &Document) -> Result<(), PlanError> {
    match document.value("version").and_then(toml::Value::as_integer) {
        Some(VERSION) => Ok(()),
        found => {
            let found =
                document.value("version").map(|value| found.map_or_else(|| value.to_string(), |n| n.to_string()));
            Err(PlanError::Version { file: file.to_owned(), found })
        }
    }
}

impl Instance {
    /// What it costs in a month, if the catalogue says so.
    pub fn price_per_month(&self) -> Option<f64> {
        self.price_per_month.or(self.price_per_hour.map(|price| price * MONTH_HOURS))
    }
}

impl VolumePrice {
    /// Of a volume of this many bytes that does these many operations and bytes per second.
    pub fn per_month(&self, size: u64, operations: f64, bandwidth: u64) -> f64 {
        let beyond = |asked: f64, included: f64| (asked - included).max(0.0);
        self.per_gb * size as f64 / 1e9
            + self.per_operation * beyond(operations, self.operations_included)
            + self.per_mb * beyond(bandwidth as f64 / 1e6, self.mb_included)
    }
}
