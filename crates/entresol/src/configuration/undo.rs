//! Versions for readers of the past: where they are, for how long.

use super::DEFAULT_DEVICE;
use super::interpret::{Context, KIB, SECOND_NS, TIB};
use super::section::Section;
use engine::version::UndoSettings;

/// `[undo]`: versions of records for readers of the past, in rollback segments.
#[derive(Clone, Debug, PartialEq)]
pub struct Undo {
    /// `device`: the device of the undo space, where versions go that memory has no room for.
    pub device: String,
    /// `memory`: bytes of versions that stay in memory, up to 1 TiB.
    pub memory: u64,
    /// `age`: how old versions become in memory before they leave it without need, in nanoseconds, up to a year; `None`, as
    /// `"off"`: any age.
    pub age_ns: Option<u64>,
    /// `size`: the most bytes of versions altogether, 1 MiB to 16 TiB; the oldest are given up beyond it.
    pub size: u64,
    /// `cluster_size`: bytes of a write to the undo space; a power of two from 4 KiB (virtually 512 B) to 16 MiB.
    pub cluster_size: u32,
    /// `retention`: for how long any moment can be read as it was, in nanoseconds, up to a year; 0, as `"off"`: only while a
    /// snapshot of it is held.
    pub retention_ns: u64,
    /// `reader_percent`: the most of the engine's thread that long readers of the past take together while others are active,
    /// in percent, 1 to 100.
    pub reader_percent: u8,
}

impl Default for Undo {
    fn default() -> Undo {
        let defaults = UndoSettings::default();
        Undo {
            device: DEFAULT_DEVICE.to_owned(),
            memory: defaults.memory,
            age_ns: defaults.age_ns,
            size: defaults.size,
            cluster_size: defaults.cluster_size as u32,
            retention_ns: defaults.retention_ns,
            reader_percent: defaults.reader_percent,
        }
    }
}

impl Undo {
    /// Reads an `[undo]`.
    pub(super) fn read(section: &mut Section<'_>, context: &Context, page_size: u32) -> Undo {
        section.set_page_size(page_size);
        let defaults = Undo::default();
        let low = if context.is_virtual { 512 } else { 4 * KIB };
        let cluster = section.power_of_two("cluster_size", low..=*engine::temp::TempSettings::CLUSTER_SIZES.end());
        let size = section.size("size", KIB * KIB..=16 * TIB, "").unwrap_or(defaults.size);
        let memory = section.size("memory", 0..=size.min(TIB), ": no more than its size");
        let mut duration = |key| {
            let year = 0..=365 * 86_400 * SECOND_NS;
            section.unless_off(key, |section| section.duration_ns(key, year, ", or \"off\"")).flatten()
        };
        let (age_ns, retention_ns) = (duration("age"), duration("retention").unwrap_or(0));
        Undo {
            device: context.device(section),
            memory: memory.unwrap_or(defaults.memory.min(size)),
            size,
            cluster_size: cluster.map_or(defaults.cluster_size, |bytes| bytes as u32),
            age_ns,
            retention_ns,
            reader_percent: section.number("reader_percent", 1..=100).map_or(defaults.reader_percent, |n| n as u8),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Undo;
    use crate::configuration::Configuration;

    #[test]
    fn what_readers_of_the_past_cost_can_be_said() {
        let undo = |text: &str| Configuration::parse(&format!("[undo]\n{text}")).map(|found| found.undo);
        let found = undo("age = \"2 s\"\nreader_percent = 25").expect("right");
        assert_eq!(found, Undo { age_ns: Some(2_000_000_000), reader_percent: 25, ..Undo::default() });
        assert_eq!(undo("age = \"off\"\nretention = \"off\"").expect("right"), Undo::default());
        for wrong in ["reader_percent = 0", "reader_percent = 101", "age = \"never\""] {
            let key = &wrong[..wrong.find(' ').expect("a key")];
            let error = undo(wrong).expect_err("out of range").to_string();
            assert!(error.contains(key), "{error}");
        }
    }
}
