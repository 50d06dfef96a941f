//! The log: where it is, how it is written.

use super::choice::Choice;
use super::error::Problem;
use super::interpret::{Context, KIB, MICROSECOND_NS, SECOND_NS, TIB};
use super::section::Section;
use super::{Acknowledged, DEFAULT_DEVICE, GroupCommit, LockHold, SyncMethod};
use base::time::MILLISECOND_NS;
use engine::set::Logging;
use std::path::Path;

/// `[log]`: the write-ahead log.
#[derive(Clone, Debug, PartialEq)]
pub struct Log {
    /// `device`: the device that holds the log. If that of a database that exists is on another one, its next opening moves it.
    pub device: String,
    /// `second_device`: a second device that every log write goes to; `None` for none.
    pub second_device: Option<String>,
    /// `acknowledged`: whether a commit is durable when `"both"` devices have it or when the `"first"` of them has.
    pub acknowledged: Acknowledged,
    /// `lost_after`: how long one of two devices may leave a write unanswered before it counts as lost, in nanoseconds; 10 ms
    /// to 1 h.
    pub lost_after_ns: u64,
    /// `without`: one of the two devices that was lost and is to be done without; `None` for none.
    pub without: Option<String>,
    /// `archive`: where the log is copied before its space is given up: a device, or a directory by its path from that of the database;
    /// `None` for nowhere.
    pub archive: Option<String>,
    /// `page_size`: bytes per page of the log, of which each write is a multiple; 4 KiB (virtually 128 B) to 64 KiB, a multiple
    /// of the alignment of its device.
    pub page_size: u32,
    /// `write_buffer`: whether commits are durable in the `[write_buffer]` and reach the log's device afterwards.
    pub write_buffer: bool,
    /// `size`: how much log is kept before the oldest must be given up, in bytes; 1 MiB (virtually 64 KiB) or eight of its pages
    /// to 16 TiB. Whole pages: what the last one lacks is left out. Its file grows to that size as it is filled for the first time; the log of
    /// a database that exists gets another size at the next opening that says one.
    pub size: u64,
    /// `group_commit`, `group_size`, `group_delay`: how long a commit waits for others to share its log write.
    pub group_commit: GroupCommit,
    /// `sync_method`: how log writes become durable, `"sync-write"` or `"write-then-sync"`. `None` for `"measured"`: what was faster when the database was created.
    pub sync_method: Option<SyncMethod>,
    /// `writes_in_flight`: how many log writes may be under way at once, 1 to 64. `None` for `"measured"`: one if the device
    /// served no more at once when the database was created (then a write serves every transaction that is ready), else four.
    pub writes_in_flight: Option<u32>,
    /// `durable`: whether commits wait until their log record survives a power cut. If not, that takes the last ones, a second's at most.
    pub durable: bool,
    /// `hold_locks`: until when a committing transaction keeps its locks.
    pub hold_locks: LockHold,
    /// `sets`: what it repeats of memory-resident sets, `"value"`, `"aoper"` (actions) or `"toper"` (procedures).
    pub sets: Logging,
    /// `whole_fields`: whether a change of a field of such a set logs the whole field, not only the bytes that differ.
    pub whole_fields: bool,
}

impl Default for Log {
    fn default() -> Log {
        Log {
            device: DEFAULT_DEVICE.to_owned(),
            second_device: None,
            acknowledged: Acknowledged::Both,
            lost_after_ns: 30 * SECOND_NS,
            without: None,
            archive: None,
            page_size: 4096,
            write_buffer: false,
            size: 1 << 30,
            group_commit: GroupCommit::Paced,
            sync_method: None,
            writes_in_flight: None,
            durable: true,
            hold_locks: LockHold::UntilLogged,
            sets: Logging::Values,
            whole_fields: false,
        }
    }
}

impl Log {
    /// Reads a `[log]`.
    pub(super) fn read(
        section: &mut Section<'_>,
        (context, directory): (&Context, &Path),
        has_write_buffer: bool,
    ) -> Log {
        let defaults = Log::default();
        let low = if context.is_virtual { 64 * KIB } else { KIB * KIB };
        let write_buffer = section.flag("write_buffer").unwrap_or(defaults.write_buffer);
        if write_buffer && !has_write_buffer {
            let conflict = Problem::Conflict("there is no write buffer".to_owned());
            section.conflict("write_buffer", conflict, "false; true beside a section [write_buffer]");
        }
        let page_low = if context.is_virtual { 128 } else { 4 * KIB };
        let page_rule = ", a multiple of the alignment of the log's device";
        let device = context.device(section);
        let second_device = context.device_at(section, "second_device");
        let acknowledged: Option<Acknowledged> = section.choice("acknowledged");
        let lost_after_ns = section.duration_ns("lost_after", 10 * MILLISECOND_NS..=3_600 * SECOND_NS, "");
        if second_device.as_ref() == Some(&device) {
            let conflict = Problem::Conflict(format!("device '{device}' has the log already"));
            section.conflict("second_device", conflict, "another device");
        }
        if second_device.is_some() && write_buffer {
            let conflict = "with a write buffer commits are durable before either of two log devices has them";
            let allowed = "second_device beside write_buffer = false";
            section.conflict("second_device", Problem::Conflict(conflict.to_owned()), allowed);
        }
        if second_device.is_none() {
            let conflict = || Problem::Conflict("there is one log device only".to_owned());
            section.conflict("acknowledged", conflict(), "acknowledged beside second_device = \"NAME\"");
            section.conflict("lost_after", conflict(), "lost_after beside second_device = \"NAME\"");
        }
        let page_size = section.size("page_size", page_low..=64 * KIB, page_rule).unwrap_or(defaults.page_size.into());
        section.set_page_size(page_size);
        let low = low.max(8 * page_size);
        let size = section.size("size", low..=16 * TIB, ", and eight pages at least").unwrap_or(defaults.size);
        Log {
            device,
            second_device,
            acknowledged: acknowledged.unwrap_or_default(),
            lost_after_ns: lost_after_ns.unwrap_or(defaults.lost_after_ns),
            without: context.device_at(section, "without"),
            archive: context.place_at(section, "archive", directory),
            page_size: page_size as u32,
            write_buffer,
            size: size / page_size * page_size,
            group_commit: read_group_commit(section),
            sync_method: section.choice("sync_method").unwrap_or_default(),
            writes_in_flight: section
                .unless("measured", "writes_in_flight", |section| {
                    section.number_or("writes_in_flight", 1..=64, ", or \"measured\"")
                })
                .flatten()
                .map(|writes| writes as u32),
            durable: section.flag("durable").unwrap_or(defaults.durable),
            hold_locks: section.choice("hold_locks").unwrap_or_default(),
            sets: section.choice("sets").unwrap_or_default(),
            whole_fields: section.flag("whole_fields").unwrap_or(defaults.whole_fields),
        }
    }
}

impl Choice for Acknowledged {
    const WORDS: &'static [(&'static str, Acknowledged)] =
        &[("both", Acknowledged::Both), ("first", Acknowledged::First)];
}

impl Choice for Option<SyncMethod> {
    const WORDS: &'static [(&'static str, Option<SyncMethod>)] = &[
        ("measured", None),
        ("sync-write", Some(SyncMethod::SyncWrite)),
        ("write-then-sync", Some(SyncMethod::WriteThenSync)),
    ];
}

fn read_group_commit(section: &mut Section<'_>) -> GroupCommit {
    let policy = section.word("group_commit", &["paced", "adaptive", "none", "size", "delay", "page"]);
    let size = section.number("group_size", 2..=65_536);
    let delay_ns = section.duration_ns("group_delay", MICROSECOND_NS..=10 * SECOND_NS, "");
    let policy = policy.unwrap_or("paced");
    let transactions = size.unwrap_or(8) as u32;
    let delay_ns = delay_ns.unwrap_or(base::time::MILLISECOND_NS);
    if policy != "size" {
        let conflict = format!("'group_size' has no effect with group_commit = \"{policy}\"");
        section.conflict("group_size", Problem::Conflict(conflict), "group_size beside group_commit = \"size\"");
    }
    if !matches!(policy, "size" | "delay" | "page") {
        let conflict = format!("'group_delay' has no effect with group_commit = \"{policy}\"");
        let allowed = "group_delay beside group_commit = \"size\", \"delay\" or \"page\"";
        section.conflict("group_delay", Problem::Conflict(conflict), allowed);
    }
    match policy {
        "none" => GroupCommit::None,
        "size" => GroupCommit::Size { transactions, delay_ns_max: delay_ns },
        "delay" => GroupCommit::Delay { ns: delay_ns },
        "page" => GroupCommit::Page { delay_ns_max: delay_ns },
        "adaptive" => GroupCommit::Adaptive,
        _ => GroupCommit::Paced,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::configuration::Configuration;

    fn log(text: &str) -> Log {
        Configuration::parse(&format!("[log]\n{text}")).expect(text).log
    }

    #[test]
    fn two_devices_are_two_and_have_no_write_buffer() {
        let devices = "[device.flash]\npath = \"f\"\n[log]\n";
        let text = "second_device = \"flash\"\nacknowledged = \"first\"\nlost_after = \"5 s\"";
        let log = Configuration::parse(&format!("{devices}{text}")).expect("two devices").log;
        assert_eq!((log.second_device.as_deref(), log.acknowledged), (Some("flash"), Acknowledged::First));
        assert_eq!(log.lost_after_ns, 5 * SECOND_NS);
        let buffered =
            "write_buffer = true\nsecond_device = \"flash\"\n[write_buffer]\ndevice = \"flash\"\nsize = \"9 pages\"";
        for (text, why) in [
            ("second_device = \"disk\"", "has the log already"),
            ("second_device = \"drum\"", "drum"),
            ("without = \"drum\"", "drum"),
            ("acknowledged = \"first\"", "one log device only"),
            ("lost_after = \"5 s\"", "one log device only"),
            ("second_device = \"flash\"\nlost_after = \"1 us\"", "10 ms"),
            (buffered, "durable before either"),
        ] {
            let error = Configuration::parse(&format!("{devices}{text}")).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        }
    }

    #[test]
    fn how_the_log_is_written_is_measured_unless_it_is_said() {
        let measured = log("sync_method = \"measured\"\nwrites_in_flight = \"measured\"");
        assert_eq!((&measured, measured.sync_method, measured.writes_in_flight), (&Log::default(), None, None));
        let said = log("sync_method = \"write-then-sync\"\nwrites_in_flight = 2");
        assert_eq!((said.sync_method, said.writes_in_flight), (Some(SyncMethod::WriteThenSync), Some(2)));
        assert_eq!(log("sync_method = \"sync-write\"").sync_method, Some(SyncMethod::SyncWrite));
        for text in ["sync_method = \"fsync\"", "writes_in_flight = 0", "writes_in_flight = \"all\""] {
            let error = Configuration::parse(&format!("[log]\n{text}")).unwrap_err().to_string();
            assert!(error.contains("measured"), "{error}");
        }
        assert!(Configuration::parse("[log]\ngroup_commit = \"delay\"\ngroup_delay = \"1 min\"").is_err());
    }

    #[test]
    fn an_archive_is_a_device_or_a_directory() {
        let archive = |text: &str| Configuration::parse(text).map(|found| found.log.archive);
        assert_eq!(archive("[log]\narchive = \"/mnt/archive\""), Ok(Some("/mnt/archive".into())));
        assert_eq!(archive("[device.tape]\npath = \"t\"\n[log]\narchive = \"tape\""), Ok(Some("tape".into())));
        let beside = archive("[log]\narchive = \"archive\"").expect("a path").expect("it is said");
        assert!(beside.ends_with("/archive"), "{beside}");
        for refused in
            ["[log]\narchive = \"\"", "[log]\narchive = 5", "hardware = \"ideal\"\n[log]\narchive = \"/mnt\""]
        {
            assert!(archive(refused).is_err(), "{refused}");
        }
    }

    #[test]
    fn a_log_has_whole_pages() {
        let size = |text: &str| super::super::Configuration::parse(text).map(|found| found.log.size);
        assert_eq!(size("[log]\nsize = \"16 MB\""), Ok(3_906 * 4_096));
        assert_eq!(size("[log]\nsize = \"16 MiB\""), Ok(16 << 20));
        assert_eq!(size("[log]\nsize = \"1_000 pages\"\npage_size = \"16 KiB\""), Ok(1_000 << 14));
        assert_eq!(size("[log]\nsize = 10_000_000\npage_size = \"64 KiB\""), Ok(152 << 16));
        let refused = size("hardware = \"ideal\"\n[log]\nsize = \"256 KiB\"\npage_size = \"64 KiB\"");
        let refused = format!("{:?}", refused.expect_err("four pages are no log"));
        assert!(refused.contains("eight pages at least") && refused.contains("size"), "{refused}");
    }
}
