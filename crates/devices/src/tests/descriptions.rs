use crate::{Hardware, HardwareError, Law, Medium, ReadWrite, Servers};

fn error(text: &str) -> (Option<usize>, String) {
    match Hardware::parse(text, "mine.toml") {
        Err(error @ HardwareError::Text { line, .. }) => (line, error.to_string()),
        other => panic!("{other:?}"),
    }
}

#[test]
fn every_embedded_description_is_valid_and_an_unknown_name_lists_them() {
    for name in Hardware::names() {
        assert_eq!(Hardware::named(name).expect("valid").name, name);
    }
    let error = Hardware::named("tape").expect_err("not described").to_string();
    assert!(error.contains("'tape'") && error.contains("rahm-1991") && error.contains("nvme-2026"), "{error}");
}

#[test]
fn an_unknown_key_is_shown_with_its_line_and_the_known_ones() {
    let (line, message) = error("[device.disk]\nmedium.service = \"1 ms\"\nspindles = 3\n");
    assert_eq!(line, Some(3));
    for part in ["mine.toml", "spindles = 3", "unknown field `spindles`", "`medium`"] {
        assert!(message.contains(part), "{part} in {message}");
    }
}

#[test]
fn a_wrong_value_is_shown_with_its_line_and_what_is_allowed() {
    let cases = [
        ("medium.service = \"15 parsecs\"", "such as \"1.4 ms\""),
        ("medium.service = \"normal 15 ms\"", "fixed, exponential, uniform, quantiles or mixture"),
        ("medium.service = \"uniform 3 ms to 1 ms\"", "ends before it begins"),
        ("medium.service = { read = \"1 ms\" }", "missing field `write`"),
        ("medium.servers = 0", "above zero"),
        ("medium.servers = \"many\"", "unlimited"),
        ("medium.bandwidth = \"150 MB\"", "\"150 MB/s\""),
        ("medium.assignment = \"chaos\"", "striped"),
        ("alignment = \"500 B\"", "power of two"),
        ("atomic_write = \"all\"", "\"any\""),
        ("capacity = \"4 TBits\"", "64 KiB"),
    ];
    for (line, allowed) in cases {
        let (number, message) = error(&format!("[device.disk]\n{line}\n"));
        assert_eq!(number, Some(2), "{message}");
        assert!(message.contains(line) && message.contains(allowed), "{allowed} in {message}");
    }
    let (_, message) = error("[cpu]\ncount = 0\nmips = 50\n[cpu.instructions]\n");
    assert!(message.contains("at least one CPU"), "{message}");
}

#[test]
fn values_are_read_as_written() {
    let text = "[device.d]\nmedium = { servers = 2, service = { read = \"exponential 2 ms\", write = \"3 ms\" } }\nsync = \"7 us\"";
    let mut hardware = Hardware::parse(text, "mine").expect("valid");
    let device = hardware.device_mut("d");
    let medium = device.medium.as_ref().expect("described");
    assert_eq!(medium.servers, Servers::count(2));
    assert_eq!(medium.service, ReadWrite { read: Law::Exponential(2_000_000), write: Law::Fixed(3_000_000) });
    assert_eq!(device.durable_write_law(), Law::NONE, "no volatile cache");
    device.write_cache = crate::WriteCache::Volatile;
    assert_eq!(device.durable_write_law(), Law::Fixed(7_000));
    assert_eq!("uniform 10 ms to 30 ms".parse(), Ok(Law::Uniform(10_000_000, 30_000_000)));
    assert_eq!(Law::Uniform(10_000_000, 30_000_000).mean_ns(), 20e6);
}

#[test]
fn rahm_1991_says_what_the_paper_says() {
    let hardware = Hardware::named("rahm-1991").expect("embedded");
    let cpu = hardware.cpu.expect("described");
    assert_eq!((cpu.count, cpu.mips), (4, 50.0));
    let costs = &cpu.instructions;
    assert_eq!(costs.begin_transaction + 4 * costs.object_reference + costs.end_transaction, 250_000);
    assert_eq!((costs.input_output, costs.nvem_access, costs.exponential), (3_000, 300, true));
    assert_eq!(hardware.devices.keys().collect::<Vec<_>>(), ["disk", "log-disk", "nvem", "ssd"]);
    assert!(hardware.devices.values().all(|device| device.atomic_write == u32::MAX));
}

#[test]
fn a_description_of_another_version_says_so() {
    let text = |version: u32, key: &str| {
        format!("# entresol calibrate, version {version}: io_uring; a file of 1 GiB\n[device.disk]\n{key}\n")
    };
    let of = |version, key: &str| Hardware::parse(&text(version, key), "here.toml");
    let known = crate::CALIBRATION_VERSION;
    assert!(of(known, "sync = \"5 us\"").is_ok() && of(1, "sync = \"5 us\"").is_ok(), "earlier words mean the same");
    let later = of(known + 1, "sync = \"5 us\"").expect_err("a later release may mean something else").to_string();
    assert!(later.contains(&format!("version {}", known + 1)) && later.contains("calibrate again"), "{later}");
    let unknown = of(known + 1, "wear = 3").expect_err("an unknown key").to_string();
    assert!(unknown.contains("unknown field `wear`") && unknown.contains("calibrate again"), "{unknown}");
    let mistake = of(known, "wear = 3").expect_err("an unknown key").to_string();
    assert!(!mistake.contains("calibrate again"), "{mistake}");
}

#[test]
fn a_network_is_described_and_its_mistakes_are_named() {
    let hardware = Hardware::parse("[network.lan]\nbandwidth = \"1 MB/s\"\nwindow = \"8 KiB\"", "mine").expect("valid");
    let lan = &hardware.networks["lan"];
    assert_eq!((lan.medium, lan.packet, lan.window), (Medium::Switched, 16 << 10, 8 << 10));
    assert_eq!(lan.latency, Law::NONE);
    let cases = [
        ("medium = \"ether\"", "`shared` or `switched`"),
        ("bandwidth = \"8 Mbit\"", "\"150 MB/s\""),
        ("packet = \"0 B\"", "1 byte to 1 GiB"),
        ("window = \"2 GiB\"", "1 byte to 1 GiB"),
        ("latency = \"far\"", "\"1.4 ms\""),
        ("speed = 3", "unknown field `speed`"),
    ];
    for (line, allowed) in cases {
        let (number, message) = error(&format!("[network.lan]\n{line}\n"));
        assert_eq!(number, Some(2), "{message}");
        assert!(message.contains(line) && message.contains(allowed), "{allowed} in {message}");
    }
}

#[test]
fn a_cache_is_described_and_its_mistakes_are_named() {
    let text = |cache: &str| format!("[device.disk]\nmedium.service = \"15 ms\"\n[device.disk.cache]\n{cache}\n");
    let read = |cache: &str| Hardware::parse(&text(cache), "mine").expect("valid").device_mut("disk").cache.clone();
    let cache = read("kind = \"volatile\"\nsize = \"1,000 pages\"").expect("described");
    assert_eq!((cache.pages(), cache.page_size, cache.write_misses, cache.read_misses), (1_000, 4096, false, true));
    let cache = read("kind = \"write-buffer\"\nsize = \"4 MiB\"\npage_size = \"2 KiB\"").expect("described");
    assert_eq!((cache.pages(), cache.write_misses, cache.read_misses), (2_048, false, false));
    let cases = [
        ("kind = \"warm\"\nsize = \"1 MiB\"", 4, "`volatile`, `non-volatile`, `write-buffer`"),
        ("kind = \"volatile\"\nsize = \"many pages\"", 5, "\"1,000 pages\" or \"4 MiB\""),
        ("kind = \"volatile\"\nsize = \"0 pages\"", 5, "\"1,000 pages\" or \"4 MiB\""),
        ("kind = \"volatile\"\nsize = \"5 k pages\"", 5, "\"1,000 pages\" or \"4 MiB\""),
        ("kind = \"volatile\"", 3, "missing field `size`"),
        ("kind = \"volatile\"\nsize = \"1 page\"\npage_size = \"100 B\"", 6, "power of two"),
        ("kind = \"write-buffer\"\nsize = \"1 page\"\nread_misses = true", 3, "takes no reads"),
        ("kind = \"non-volatile\"\nsize = \"1 page\"\nwrite_misses = false", 3, "a choice of volatile caches"),
        ("kind = \"volatile\"\nsize = \"1 page\"\nwarm = true", 6, "`write_misses`"),
    ];
    for (cache, line, allowed) in cases {
        let (number, message) = error(&text(cache));
        assert_eq!(number, Some(line), "{message}");
        assert!(message.contains(allowed), "{allowed} in {message}");
    }
}
