//! What a thread finds in its caches when it goes on: the operating system, other programs and other machines of the same host have used
//! them meanwhile, the longer the more.

use crate::fields::duration;
use serde::Deserialize;
use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{Deserializer, Error, MapAccess, SeqAccess, Visitor};
use std::fmt;

/// How slow the first steps are behind a sleep, or behind an interrupt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ColdCaches {
    /// The shortest sleep that it is so behind, in nanoseconds. Nothing by default: behind every sleep, and behind interrupts.
    #[serde(default, deserialize_with = "duration", rename = "sleep")]
    pub sleep_ns: u64,
    /// How many instructions of steps are slower, until the caches are warm.
    pub instructions: u64,
    /// How much longer these take, as a share.
    pub slowdown: f64,
}

impl ColdCaches {
    /// What holds behind a sleep of this length, of those in the order of their sleeps.
    pub fn behind(all: &[ColdCaches], sleep_ns: u64) -> Option<ColdCaches> {
        all.iter().rev().find(|cold| cold.sleep_ns <= sleep_ns).copied()
    }

    /// By how many instructions they lengthen what runs.
    pub fn cost(&self) -> f64 {
        self.instructions as f64 * self.slowdown
    }
}

/// A table, or a list of them; in the order of their sleeps.
pub(crate) fn parsed<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<ColdCaches>, D::Error> {
    let mut all = deserializer.deserialize_any(OneOrMore)?;
    if let Some(ColdCaches { slowdown, .. }) = all.iter().find(|cold| !(0.0..=100.0).contains(&cold.slowdown)) {
        return Err(D::Error::custom(format!("a slowdown is a share from 0 to 100, not {slowdown}")));
    }
    all.sort_by_key(|cold| cold.sleep_ns);
    if let Some(two) = all.windows(2).find(|two| two[0].sleep_ns == two[1].sleep_ns) {
        let sleep_ns = two[0].sleep_ns;
        return Err(D::Error::custom(format!("two say what the caches have behind a sleep of {sleep_ns} ns")));
    }
    Ok(all)
}

struct OneOrMore;

impl<'de> Visitor<'de> for OneOrMore {
    type Value = Vec<ColdCaches>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a table with 'instructions' and 'slowdown', or a list of them, each with its 'sleep'")
    }

    fn visit_map<A: MapAccess<'de>>(self, table: A) -> Result<Vec<ColdCaches>, A::Error> {
        Ok(vec![ColdCaches::deserialize(MapAccessDeserializer::new(table))?])
    }

    fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<Vec<ColdCaches>, A::Error> {
        Vec::deserialize(SeqAccessDeserializer::new(list))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Hardware;

    fn read(caches: &str) -> Result<Vec<ColdCaches>, String> {
        let text = format!(
            "[cpu]\ncount = 1\nmips = 1_000\ncold_caches = {caches}\n[cpu.instructions]\nbegin_transaction = 1\n\
             object_reference = 1\nend_transaction = 1\ninput_output = 1\nnvem_access = 1\n"
        );
        let hardware = Hardware::parse(&text, "test").map_err(|error| error.to_string())?;
        Ok(hardware.cpu.expect("described").cold_caches)
    }

    #[test]
    fn caches_are_cold_by_the_length_of_sleeps() {
        let one = ColdCaches { sleep_ns: 0, instructions: 20_000, slowdown: 0.5 };
        assert_eq!(read("{ instructions = 20_000, slowdown = 0.5 }"), Ok(vec![one]));
        let long = ColdCaches { sleep_ns: 10_000_000, instructions: 4_000_000, slowdown: 1.5 };
        let text = "[{ sleep = \"10 ms\", instructions = 4_000_000, slowdown = 1.5 }, { instructions = 20_000, slowdown = 0.5 }]";
        let both = read(text).expect("a list");
        assert_eq!(both, [one, long]);
        for (sleep_ns, expected) in [(0, one), (9_999_999, one), (10_000_000, long), (1 << 40, long)] {
            assert_eq!(ColdCaches::behind(&both, sleep_ns), Some(expected), "{sleep_ns}");
        }
        assert_eq!(ColdCaches::behind(&both[1..], 1), None);
        for (wrong, why) in [
            ("{ instructions = 1, slowdown = -0.5 }", "share"),
            ("[{ instructions = 1, slowdown = 0.5 }, { instructions = 2, slowdown = 0.5 }]", "two say"),
            ("[{ sleep = \"soon\", instructions = 1, slowdown = 0.5 }]", "soon"),
            ("\"cold\"", "a list of them"),
        ] {
            let error = read(wrong).expect_err(wrong);
            assert!(error.contains(why), "{wrong}: {error}");
        }
    }
}
