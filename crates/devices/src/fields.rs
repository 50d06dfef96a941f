//! The kinds of values that a hardware description is written with.

use crate::law::rounded;
use base::units::{parse_duration_ns, parse_size};
use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserializer, Error, IntoDeserializer, MapAccess, Visitor};
use std::fmt;
use std::marker::PhantomData;
use std::num::NonZeroU32;

/// How many servers a stage has: a number above zero, or `"unlimited"` (no request ever waits).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Servers {
    /// As many as there are requests.
    #[default]
    Unlimited,
    /// This many.
    Count(NonZeroU32),
}

impl Servers {
    /// This many servers.
    ///
    /// # Panics
    /// If `count` is zero.
    pub fn count(count: u32) -> Servers {
        Servers::Count(NonZeroU32::new(count).expect("a stage has a server"))
    }
}

impl<'de> Deserialize<'de> for Servers {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Servers, D::Error> {
        struct ServersVisitor;
        impl Visitor<'_> for ServersVisitor {
            type Value = Servers;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number of servers above zero, or \"unlimited\"")
            }

            fn visit_i64<E: Error>(self, number: i64) -> Result<Servers, E> {
                let count = u32::try_from(number).ok().and_then(NonZeroU32::new);
                count.map(Servers::Count).ok_or_else(|| E::invalid_value(serde::de::Unexpected::Signed(number), &self))
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Servers, E> {
                if text == "unlimited" {
                    return Ok(Servers::Unlimited);
                }
                Err(E::invalid_value(serde::de::Unexpected::Str(text), &self))
            }
        }
        deserializer.deserialize_any(ServersVisitor)
    }
}

/// Which server of a stage a request goes to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Assignment {
    /// All servers serve one queue.
    #[default]
    Shared,
    /// A server drawn uniformly, each with its own queue: data spread evenly over disks.
    Uniform,
    /// The server that holds the request's first byte, each with its own queue: consecutive stripes of a file lie on
    /// consecutive servers.
    Striped,
}

/// How a CPU is given to transactions; system work always comes first, in order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Discipline {
    /// In the order of arrival, each to its end.
    #[default]
    Fifo,
    /// All at once, each at an equal share of the speed.
    ProcessorSharing,
    /// A task keeps its thread until it waits, as under the executor on a real machine: its bursts pass without another task's
    /// turn between them, and what completes meanwhile is noticed behind them. With computations beside it on other threads it
    /// shares the CPUs. Of machines on a network only those that reach no other do so.
    RunUntilWait,
}

/// Whether a device holds completed writes where a power cut loses them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum WriteCache {
    /// A completed write stands on the medium.
    #[default]
    None,
    /// A completed write may stand in volatile memory until it is forced out.
    Volatile,
}

/// A value for reads and one for writes; written as one value for both, or as `{ read = ..., write = ... }`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReadWrite<T> {
    /// For reads.
    pub read: T,
    /// For writes.
    pub write: T,
}

impl<T: Clone> ReadWrite<T> {
    /// The same for both.
    pub fn both(value: T) -> ReadWrite<T> {
        ReadWrite { read: value.clone(), write: value }
    }
}

impl<'de, T: Deserialize<'de> + Clone> Deserialize<'de> for ReadWrite<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<ReadWrite<T>, D::Error> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Pair<T> {
            read: T,
            write: T,
        }
        struct PairVisitor<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de> + Clone> Visitor<'de> for PairVisitor<T> {
            type Value = ReadWrite<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("one value, or { read = ..., write = ... }")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<ReadWrite<T>, E> {
                T::deserialize(text.into_deserializer()).map(ReadWrite::both)
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<ReadWrite<T>, A::Error> {
                let pair = Pair::deserialize(MapAccessDeserializer::new(map))?;
                Ok(ReadWrite { read: pair.read, write: pair.write })
            }
        }
        deserializer.deserialize_any(PairVisitor(PhantomData))
    }
}

/// Bytes per second, written as `"150 MB/s"`.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub struct Bandwidth(pub f64);

impl Bandwidth {
    /// How long `bytes` take, in nanoseconds.
    #[inline]
    pub(crate) fn transfer_ns(self, bytes: u32) -> u64 {
        rounded(f64::from(bytes) * 1e9 / self.0)
    }
}

impl<'de> Deserialize<'de> for Bandwidth {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Bandwidth, D::Error> {
        let text = String::deserialize(deserializer)?;
        let bytes = text.trim().strip_suffix("/s").and_then(|size| parse_size(size).ok()).filter(|bytes| *bytes > 0);
        let wrong =
            || D::Error::custom(format!("'{text}' is not a bandwidth; write a size per second, such as \"150 MB/s\""));
        bytes.map(|bytes| Bandwidth(bytes as f64)).ok_or_else(wrong)
    }
}

pub(crate) fn size<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    parse_size(&String::deserialize(deserializer)?).map_err(D::Error::custom)
}

pub(crate) fn positive_size<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    match size(deserializer)? {
        0 => Err(D::Error::custom("a size above zero is meant")),
        bytes => Ok(bytes),
    }
}

/// A time in nanoseconds.
pub(crate) fn duration<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    parse_duration_ns(&String::deserialize(deserializer)?).map_err(D::Error::custom)
}

pub(crate) fn optional_size<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    size(deserializer).map(Some)
}

/// A size above zero and below 1 GiB.
pub(crate) fn extent<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u32, D::Error> {
    let bytes = size(deserializer)?;
    let fits = u32::try_from(bytes).ok().filter(|bytes| (1..=1 << 30).contains(bytes));
    fits.ok_or_else(|| D::Error::custom(format!("a piece of a message has 1 byte to 1 GiB, not {bytes}")))
}

/// A power of two that fits 32 bits.
pub(crate) fn alignment<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u32, D::Error> {
    let bytes = size(deserializer)?;
    let small = u32::try_from(bytes).ok().filter(|bytes| bytes.is_power_of_two());
    small.ok_or_else(|| D::Error::custom(format!("an alignment is a power of two below 4 GiB, not {bytes}")))
}

/// A size, or `"any"` for writes of every size.
pub(crate) fn atomic_write<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u32, D::Error> {
    let text = String::deserialize(deserializer)?;
    if text == "any" {
        return Ok(u32::MAX);
    }
    let bytes = parse_size(&text).map_err(|error| D::Error::custom(format!("{error}, or \"any\"")))?;
    u32::try_from(bytes).map_err(|_| D::Error::custom(format!("'{text}' is more than a write can hold; write \"any\"")))
}
