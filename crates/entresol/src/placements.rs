//! Every allocation of a partition (17) and of the log (5) that Rahm 1991 (figure 3.2) knows, virtual and real: Debit-Credit
//! runs, the machine stops, a restart finds what was committed.
#![allow(clippy::disallowed_methods, reason = "tests make directories and write descriptions into them")]

use crate::assemble;
use crate::configuration::Configuration;
use base::Random;
use devices::Hardware;
use driver::Driver;
use engine::catalog::{Locking, Organization};
use engine::{Database, PartitionSpec, Procedures};
use executor::{Executor, Order};
use real_driver::DirectoryLocks;
use std::path::Path;
use virtual_driver::{Media, Options, VirtualDriver};
use workload::debit_credit::{self, ACCOUNT, BRANCH, HISTORY, Parameters, Scale, Tables};

/// What stands before a partition's disk in the engine.
const TIERS: [(&str, &str); 3] = [
    ("nothing", ""),
    ("NVEM write buffer", "[write_buffer]\ndevice = \"nvem\"\nsize = \"6 pages\"\nvolatile = false\n"),
    ("NVEM cache", "[cache]\ndevice = \"nvem\"\nsize = \"12 pages\"\nvolatile = false\n"),
];

/// What stands in the disk, and how the disk is called.
const DISKS: [(&str, &str, &str); 5] = [
    ("disk", "disk", ""),
    ("disk with volatile cache", "disk", "cache = \"volatile\"\ncache_size = \"10 pages\"\n"),
    ("disk with non-volatile cache", "disk", "cache = \"non-volatile\"\ncache_size = \"10 pages\"\n"),
    ("disk with write buffer", "disk", "cache = \"write-buffer\"\ncache_size = \"10 pages\"\n"),
    ("SSD", "ssd", ""),
];

/// One machine: described in full, or this one with devices that behave as described.
const MACHINE: &str = "[device.disk]\nmedium.service = \"40 us\"\natomic_write = \"any\"\n[device.ssd]\n\
                       controller.service = \"20 us\"\natomic_write = \"any\"\n[device.nvem]\n\
                       medium.service = \"1 us\"\nsynchronous = true\natomic_write = \"any\"\n";

struct Case {
    name: String,
    tiers: &'static str,
    disk: &'static str,
    /// The partitions' device, or `memory`.
    partitions: &'static str,
    log: &'static str,
    log_buffered: bool,
    warns: bool,
}

fn partition_cases() -> Vec<Case> {
    let case = |name: String, (tiers, disk, partitions), warns| Case {
        name,
        tiers,
        disk,
        partitions,
        log: "ssd",
        log_buffered: false,
        warns,
    };
    let mut cases = Vec::new();
    for (tier, tiers) in TIERS {
        for (place, device, cache) in DISKS {
            // Two caches or two write buffers, one behind the other.
            let useful = cache.is_empty() || tier == "NVEM write buffer" && place.contains(" volatile");
            let pointless = !tiers.is_empty() && !useful;
            cases.push(case(format!("{tier}, {place}"), (tiers, cache, device), pointless));
        }
    }
    cases.push(case("NVEM resident".to_owned(), ("", "", "nvem"), false));
    cases.push(case("memory resident".to_owned(), ("", "", "memory"), false));
    cases
}

fn log_cases() -> Vec<Case> {
    let buffer = TIERS[1].1;
    let (in_disk, none) = (DISKS[3].2, "");
    let kinds = [
        ("NVEM", none, none, "nvem", false),
        ("SSD", none, none, "ssd", false),
        ("disk with NVEM write buffer", buffer, none, "disk", true),
        ("disk with write buffer in the disk", none, in_disk, "disk", false),
        ("disk", none, none, "disk", false),
    ];
    let case = |(name, tiers, disk, log, log_buffered): (&str, _, _, _, _)| Case {
        name: format!("log on {name}"),
        tiers,
        disk,
        partitions: "ssd",
        log,
        log_buffered,
        warns: false,
    };
    kinds.into_iter().map(case).collect()
}

impl Case {
    /// The configuration's text; `first` stands before all sections, each device has these lines.
    fn text(&self, first: &str, lines: impl Fn(&str) -> String) -> String {
        let partition = match self.partitions {
            "memory" => "device = \"disk\"\nresidence = \"memory\"".to_owned(),
            device => format!("device = \"{device}\""),
        };
        let partitions: String =
            [ACCOUNT, BRANCH, HISTORY].iter().map(|name| format!("[partition.{name}]\n{partition}\n")).collect();
        format!(
            "{first}[device.disk]\n{}{}[device.ssd]\n{}[device.nvem]\n{}[buffer]\nsize = \"64 KiB\"\n\
             page_size = \"4 KiB\"\ncleaner = false\n[log]\ndevice = \"{}\"\nsize = \"4 MiB\"\nwrite_buffer = {}\n\
             [checkpoint]\ninterval = \"off\"\nlog_bytes = \"off\"\n{}{partitions}",
            lines("disk"),
            self.disk,
            lines("ssd"),
            lines("nvem"),
            self.log,
            self.log_buffered,
            self.tiers,
        )
    }
}

fn scale() -> Scale {
    Scale { accounts_per_branch: 300, record_size: 100, history_size: 32, ..Scale::rahm_1991(30) }
}

fn spec(configuration: &Configuration, name: &str) -> PartitionSpec {
    let direct = |objects| Organization::Direct { objects, blocking_factor: 11, record_size: 100 };
    let (organization, locking) = match name {
        ACCOUNT => (direct(scale().accounts()), Locking::Page),
        BRANCH => (direct(scale().branches * 11), Locking::Page),
        _ => (Organization::Append { blocking_factor: 20 }, Locking::None),
    };
    PartitionSpec { device: configuration.partition(name).device, ..PartitionSpec::new(name, organization, locking) }
}

/// Runs `work` on a machine that stops afterwards.
fn on<T>(driver: Box<dyn Driver>, work: impl AsyncFnOnce(&Executor) -> engine::Result<T>) -> T {
    let executor = Executor::new(driver, Order::FirstInFirstOut);
    let result = executor.run(work(&executor)).expect("the machine goes on");
    executor.stop();
    result.unwrap_or_else(|error| panic!("{error}"))
}

/// Loads and runs Debit-Credit, stops, and looks at what is there, twice: after a stop in the middle, and after an orderly one.
fn walk(configuration: &Configuration, transactions: u64, mut driver: impl FnMut() -> Box<dyn Driver>) {
    let settings = assemble::settings(configuration, Procedures::new());
    on(driver(), async |executor| {
        let database = Database::create(executor, settings.clone()).await?;
        debit_credit::load(&database, &scale(), |name| Ok(spec(configuration, name)), |_| ()).await?;
        let tables = Tables::of(database.catalog(), &scale())?;
        let mut random = Random::stream(1, "walk");
        for _ in 0..transactions {
            let drawn = Parameters::draw(&scale(), &mut random);
            database.transaction(async |tx| tables.run(tx, &drawn).await).await?;
        }
        for tier in database.tiers() {
            assert!(tier.writes > transactions / 5, "{tier:?}");
        }
        Ok(())
    });
    for _ in 0..2 {
        on(driver(), async |executor| {
            let database = Database::open(executor, settings.clone(), "walk").await?;
            let tables = Tables::of(database.catalog(), &scale())?;
            let totals = debit_credit::totals(&database, &tables).await?;
            assert!(totals.agree() && totals.transactions == transactions, "{totals:?}");
            let report = database.check(|_| ()).await?;
            assert!(report.findings.is_empty(), "{:?}", report.findings);
            database.close().await
        });
    }
}

fn parse(case: &Case, text: &str) -> Configuration {
    let configuration = Configuration::parse(text).unwrap_or_else(|error| panic!("{}: {error}", case.name));
    assert_eq!(!configuration.warnings().is_empty(), case.warns, "{}: {:?}", case.name, configuration.warnings());
    configuration
}

fn walk_virtually(case: &Case, directory: &Path) {
    let machine = directory.join("machine.toml");
    std::fs::write(&machine, MACHINE).expect("writes");
    let first = format!("hardware = \"{}\"\n", machine.display());
    let configuration = parse(case, &case.text(&first, |_| String::new()));
    let hardware: Hardware = configuration.hardware.clone().expect("named above");
    let media = Media::new();
    walk(&configuration, 150, || Box::new(VirtualDriver::new(hardware.clone(), Options::default(), media.clone())));
}

fn walk_really(case: &Case, directory: &Path) {
    for part in MACHINE.split("[device.").skip(1) {
        let (name, text) = part.split_once("]\n").expect("a section");
        std::fs::write(directory.join(format!("{name}.toml")), format!("[device.{name}]\n{text}")).expect("writes");
        std::fs::create_dir(directory.join(name)).expect("creates");
    }
    let lines = |name: &str| {
        let kind = if name == "nvem" { "mapped" } else { "file" };
        let place = directory.join(name);
        let (place, description) = (place.display(), directory.join(format!("{name}.toml")));
        format!("path = \"{place}\"\nkind = \"{kind}\"\ndescribed = \"{}\"\n", description.display())
    };
    let configuration = parse(case, &case.text("", lines));
    let driver = || {
        assemble::driver(&configuration, (directory, &DirectoryLocks::default()), 1, (None, None))
            .unwrap_or_else(|error| panic!("{}: {error}", case.name))
    };
    walk(&configuration, 40, driver);
}

#[test]
fn every_allocation_virtually() {
    let cases: Vec<Case> = partition_cases().into_iter().chain(log_cases()).collect();
    assert_eq!(cases.len(), 17 + 5);
    for case in cases {
        walk_virtually(&case, tempfile::tempdir().expect("a directory").path());
    }
}

#[test]
fn every_allocation_really() {
    for case in partition_cases().into_iter().chain(log_cases()) {
        // Memory spares the test thousands of real syncs.
        let memory = tempfile::tempdir_in("/dev/shm");
        let directory = memory.or_else(|_| tempfile::tempdir()).expect("a directory");
        walk_really(&case, directory.path());
    }
}
