//! The description that a calibration writes: text that `devices::Hardware::parse` accepts.

use super::loopback_fit::FittedLoopback;
use super::prices::StepPrices;
use base::units::format_size;
use devices::{ColdCaches, Device, LOOPBACK, Law, Times, Together, WriteCache};
use driver::Work;
use std::fmt::Write;

/// The version of what a calibration writes, in its first line.
pub const VERSION: u32 = devices::CALIBRATION_VERSION;

/// The names that descriptions have for the prices of steps.
pub const NAMES: [(Work, &str); 24] = [
    (Work::BeginTransaction, "begin_transaction"),
    (Work::ObjectReference, "object_reference"),
    (Work::EndTransaction, "end_transaction"),
    (Work::InputOutput, "input_output"),
    (Work::NvemAccess, "nvem_access"),
    (Work::LockPair, "lock_pair"),
    (Work::LogRecord, "log_record"),
    (Work::LogPage, "log_page"),
    (Work::KeyComparison, "key_comparison"),
    (Work::RowCopy, "row_copy"),
    (Work::TreeSearch, "tree_search"),
    (Work::HashEntry, "hash_entry"),
    (Work::LogCheck, "log_check"),
    (Work::SegmentAllocation, "segment_allocation"),
    (Work::SegmentCopy, "segment_copy"),
    (Work::Message, "message"),
    (Work::Redo, "redo"),
    (Work::Request, "request"),
    (Work::CopyRegistration, "copy_registration"),
    (Work::NodeMessage, "node_message"),
    (Work::PageImage, "page_image"),
    (Work::ShippedChange, "shipped_change"),
    (Work::ValueCopy, "value_copy"),
    (Work::DistantValue, "distant_value"),
];

/// The text. One instruction is one nanosecond.
pub fn text(
    (name, device): (&str, &Device),
    prices: &StepPrices,
    loopback: Option<&FittedLoopback>,
    how: &str,
) -> String {
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let mut text = format!("# entresol calibrate, version {VERSION}: {how}\n");
    text += "\n# An instruction is a nanosecond of this CPU, found by running the engine. Begin and end of a transaction are known as a\n\
             # sum only.\n[cpu]\n";
    let _ = write!(
        text,
        "count = {cpus}\nmips = 1_000\ndiscipline = \"run-until-wait\"\ngathering = {}\n",
        prices.system.gathering
    );
    if prices.footprint.len() > 1 {
        let mut sizes: Vec<(u64, f64)> = prices.footprint.clone();
        sizes.sort_by_key(|(bytes, _)| *bytes);
        let sizes: Vec<String> =
            sizes.iter().map(|(bytes, speed)| format!("\"{} KiB\" = {speed:.3}", (bytes >> 10).max(1))).collect();
        let _ = writeln!(text, "footprint = {{ {} }}", sizes.join(", "));
    }
    let cold = prices.cpu().cold_caches;
    if !cold.is_empty() {
        text += "cold_caches = [\n";
        for ColdCaches { sleep_ns, instructions, slowdown } in cold {
            let sleep_us = sleep_ns / 1_000;
            let _ = writeln!(
                text,
                "    {{ sleep = \"{sleep_us} us\", instructions = {instructions}, slowdown = {slowdown:.2} }},"
            );
        }
        text += "]\n";
    }
    text += "\n[cpu.instructions]\n";
    for (work, word) in NAMES {
        let _ = writeln!(text, "{word} = {}", prices.steps_ns[work as usize].round() as u64);
    }
    let _ = writeln!(text, "submission = {}", prices.system.submission_ns.round() as u64);
    let _ = writeln!(text, "notification = {}", prices.system.notification_ns.round() as u64);
    let _ = writeln!(text, "wake_up = {}", prices.system.wake_up_ns.round() as u64);
    let _ = writeln!(text, "interrupt = {}", prices.system.interrupt_ns.round() as u64);
    if let Some(FittedLoopback { prices, .. }) = loopback {
        let (message, piece) = (prices.message_ns.round() as u64, prices.piece_ns.round() as u64);
        let wake = prices.wake_ns.round() as u64;
        let _ = writeln!(text, "network_submission = 0\nnetwork_wake_up = {wake}");
        let _ = writeln!(text, "network_message = {message}\nnetwork_bytes = {piece}");
    }
    text + &of_device(name, device) + &loopback.map_or(String::new(), of_loopback)
}

fn of_loopback(FittedLoopback { network, .. }: &FittedLoopback) -> String {
    let mut text = format!("\n# Between two threads of this machine.\n[network.{LOOPBACK}]\n");
    let _ = writeln!(text, "latency = \"{}\"\npacket = \"{} B\"", law(&network.latency), network.packet);
    if let Some(bandwidth) = network.bandwidth {
        let _ = writeln!(text, "bandwidth = \"{} MB/s\"", (bandwidth.0 / 1e6).max(1.0).round() as u64);
    }
    text
}

fn of_device(name: &str, device: &Device) -> String {
    let mut text = format!("\n[device.{name}]\n");
    let cache = if device.write_cache == WriteCache::Volatile { "volatile" } else { "none" };
    let _ = write!(text, "write_cache = \"{cache}\"\nsync = \"{}\"\n", law(&device.sync));
    if let Some(durable_write) = &device.durable_write {
        let _ = writeln!(text, "durable_write = \"{}\"", law(durable_write));
    }
    if let Some(fresh_write) = &device.fresh_write {
        let _ = writeln!(text, "fresh_write = \"{}\"", law(fresh_write));
    }
    if let Some(together) = &device.fresh_together {
        let _ = writeln!(text, "fresh_together = {}", factors(together));
    }
    let _ = writeln!(text, "alignment = \"{}\"", format_size(u64::from(device.alignment)));
    let _ = writeln!(text, "atomic_write = \"{}\"", format_size(u64::from(device.atomic_write)));
    let _ = writeln!(text, "synchronous = {}\nvolatile = {}", device.synchronous, device.volatile);
    if let Some(bandwidth) = device.transmission.as_ref().and_then(|stage| stage.bandwidth) {
        let [read, write] = [bandwidth.read.0, bandwidth.write.0].map(|rate| (rate / 1e6).max(1.0).round() as u64);
        let _ = write!(
            text,
            "\n[device.{name}.transmission]\nservers = 1\ndiscipline = \"processor-sharing\"\n\
             bandwidth = {{ read = \"{read} MB/s\", write = \"{write} MB/s\" }}\n"
        );
    }
    let Some(medium) = &device.medium else { return text };
    let _ = write!(
        text,
        "\n# The laws about the means below.\n[device.{name}.medium.service]\nread = \"{}\"\nwrite = \"{}\"\n",
        law(&medium.service.read),
        law(&medium.service.write)
    );
    if let Some(tables) = &medium.concurrency {
        let _ = write!(
            text,
            "\n# Mean times by reads (rows) and writes (columns) under way.\n[device.{name}.medium.concurrency]\n\
             reads = {:?}\nwrites = {:?}\n",
            tables.reads, tables.writes
        );
        let named = [
            ("read", Some(&tables.read)),
            ("write", Some(&tables.write)),
            ("durable_write", tables.durable_write.as_ref()),
            ("sync", tables.sync.as_ref()),
        ];
        for (word, times) in named.into_iter().filter_map(|(word, times)| Some((word, times?))) {
            let _ = writeln!(text, "{word} = [\n{}]", rows(times));
        }
        if let Some(together) = &tables.durable_together {
            let _ = writeln!(text, "durable_together = {}", factors(together));
        }
        if tables.flush_holds {
            text += "# What comes while a flush is at it waits for its end.\nflush_holds = true\n";
        }
    }
    text
}

fn factors(Together { count, times }: &Together) -> String {
    let times: Vec<String> = times.iter().map(|times| format!("{times:.2}")).collect();
    format!("{{ count = {count:?}, times = [{}] }}", times.join(", "))
}

fn rows(Times(rows): &Times) -> String {
    let row = |row: &Vec<f64>| {
        let cells: Vec<String> = row.iter().map(|ns| format!("\"{:.1} us\"", ns / 1e3)).collect();
        format!("    [{}],\n", cells.join(", "))
    };
    rows.iter().map(row).collect()
}

/// A law in numbers that a description reads.
fn law(law: &Law) -> String {
    let us = |ns: u64| format!("{} us", ns as f64 / 1e3);
    match law {
        Law::Quantiles(points) => {
            let points = points.iter().map(|(share, ns)| format!("{}% {}", (share * 1e5).round() / 1e3, us(*ns)));
            format!("quantiles {}", points.collect::<Vec<_>>().join(", "))
        }
        law => us(law.mean_ns() as u64),
    }
}

#[cfg(test)]
mod tests {
    use super::super::fit::SystemCosts;
    use super::*;
    use crate::calibrate::loopback_fit::MessagePrices;
    use devices::{Bandwidth, Hardware, Network};

    #[test]
    fn what_is_written_is_read_again() {
        let medium = "[device.d.medium.concurrency]\nreads = [0, 1]\nwrites = [0, 1]\n\
                      read = [[\"50 us\", \"70.5 us\"], [\"50 us\", \"70.5 us\"]]\n\
                      write = [[\"40 us\", \"40 us\"], [\"60 us\", \"60 us\"]]\n\
                      sync = [[\"40 us\", \"40 us\"], [\"60 us\", \"60 us\"]]\n\
                      durable_write = [[\"40 us\", \"40 us\"], [\"60 us\", \"60 us\"]]\n\
                      durable_together = { count = [1, 4], times = [1.0, 2.5] }\nflush_holds = true\n";
        let laws = "[device.d]\nsync = \"quantiles 0% 4.5 us, 99.5% 100 us, 100% 1000 us\"\ndurable_write = \"46 us\"\nfresh_write = \"quantiles 0% 1 us, 100% 3 us\"\nfresh_together = { count = [1, 8], times = [1.0, 2.5] }\n\
                    write_cache = \"volatile\"\natomic_write = \"4 KiB\"\n[device.d.medium.service]\n\
                    read = \"quantiles 0% 1 us, 100% 3 us\"\nwrite = \"100 us\"\n[device.d.transmission]\nservers = 1\n\
                    discipline = \"processor-sharing\"\nbandwidth = { read = \"1300 MB/s\", write = \"2200 MB/s\" }\n";
        let hardware = Hardware::parse(&format!("{laws}{medium}"), "test").unwrap_or_else(|error| panic!("{error}"));
        let system = SystemCosts {
            submission_ns: 800.4,
            operation_ns: 1_000.0,
            notification_ns: 2_345.4,
            wake_up_ns: 4_321.4,
            interrupt_ns: 678.4,
            gathering: true,
        };
        let prices = StepPrices {
            steps_ns: std::array::from_fn(|work| 100.0 * work as f64),
            system,
            footprint: vec![(1 << 20, 1.0), (1 << 30, 0.625)],
            cold_slowdown: 0.75,
            behind_sleeps: vec![ColdCaches { sleep_ns: 10_000_000, instructions: 4_000_000, slowdown: 1.5 }],
            explained_ns: Vec::new(),
        };
        let latency = Law::quantiles(vec![(0.0, 4_500), (0.5, 7_250), (1.0, 30_000)]).expect("a law");
        let network = Network { latency, bandwidth: Some(Bandwidth(5_432e6)), packet: 65_536, ..Network::no_delay() };
        let of_messages = MessagePrices { message_ns: 1_234.4, piece_ns: 17.0, wake_ns: 900.4 };
        let loopback = FittedLoopback { network: network.clone(), prices: of_messages, shown: Vec::new(), nodes: None };
        let text = text(("d", &hardware.devices["d"]), &prices, Some(&loopback), "a test");
        let read = Hardware::parse(&text, "test").unwrap_or_else(|error| panic!("{error}\n{text}"));
        assert_eq!(read.devices, hardware.devices, "{text}");
        assert_eq!(read.networks[LOOPBACK], network, "{text}");
        assert!(text.contains("atomic_write = \"4 KiB\""), "what a power cut leaves whole is said: {text}");
        let cpu = read.cpu.expect("written");
        assert_eq!((cpu.instructions.submission, cpu.instructions.wake_up), (800, 4_321));
        assert_eq!((cpu.instructions.notification, cpu.instructions.interrupt), (2_345, 678));
        assert_eq!((cpu.instructions.network_message, cpu.instructions.network_bytes), (1_234, 17));
        assert_eq!((cpu.instructions.network_submission, cpu.instructions.network_wake_up), (Some(0), Some(900)));
        assert_eq!(cpu.instructions.object_reference, 100 * Work::ObjectReference as u64);
        let cold = [(0, 20_000, 0.75), (10_000_000, 4_000_000, 1.5)];
        let cold = cold.map(|(sleep_ns, instructions, slowdown)| ColdCaches { sleep_ns, instructions, slowdown });
        assert_eq!(cpu.cold_caches, cold);
        assert_eq!(cpu.footprint, [(1 << 20, 1.0), (1 << 30, 0.625)]);
    }
}
