//! Hardware that is described, and what the configuration changes of it.

use super::*;

#[test]
fn hardware_is_virtual_and_may_come_from_outside() {
    let text = "[buffer]\npage_size = \"128 B\"\nsize = \"2 KiB\"";
    assert!(message(text).contains("\"4 KiB\" to \"64 KiB\", a power of two"));
    let virtually = Configuration::from_bytes("f", text.as_bytes(), Some("rahm-1991")).unwrap();
    assert_eq!(virtually.hardware, Some(Hardware::named("rahm-1991").unwrap()));
    assert_eq!(virtually.buffer.page_size, 128);
    assert_eq!(Configuration::parse(&format!("hardware = \"rahm-1991\"\n{text}")), Ok(virtually));
    let error = Configuration::from_bytes("f", b"", Some("rahm-1919")).unwrap_err();
    assert!(error.to_string().ends_with("did you mean 'rahm-1991'?"), "{error}");
}

#[test]
fn hardware_brings_its_devices() {
    let text = "hardware = \"nvme-2026\"\n[device.old]\ndescribed = \"hdd-7200\"\n[log]\ndevice = \"old\"";
    let configuration = Configuration::parse(text).unwrap();
    assert_eq!(configuration.hardware.as_ref().unwrap().devices.keys().collect::<Vec<_>>(), ["nvme", "old"]);
    assert_eq!(configuration.log.device, "old");
    assert_eq!(configuration.partition("account").device, "nvme");
    assert!(message(&text.replace("\"old\"", "\"disk\"")).contains("allowed: \"nvme\", \"old\", or another"));
    let unknown = message("hardware = \"nvme-2026\"\n[device.nvm]\npath = \"data\"");
    assert!(unknown.starts_with("house.toml:2:9: hardware 'nvme-2026' has no device 'nvm'"), "{unknown}");
    assert!(unknown.ends_with("did you mean 'nvme'?"), "{unknown}");
}

#[test]
fn described_devices_get_caches_and_servers() {
    let text = r#"
        hardware = "rahm-1991"
        [device.disk]
        cache = "non-volatile"
        cache_size = "1,000 pages"
        disks = 4
        controllers = "unlimited"
        [device.log-disk]
        cache = "write-buffer"
        cache_size = "500 pages"
        [device.spare]
        described = "rahm-1991:disk"
        cache = "volatile"
        cache_size = "4 MiB"
        cache_page_size = "1 KiB"
        cache_write_misses = true
        cache_read_misses = false
        [buffer]
        page_size = "256 B"
        size = "500 KiB"
        "#;
    let hardware = Configuration::parse(text).unwrap().hardware.unwrap();
    let cache = |name: &str| hardware.devices[name].cache.clone().unwrap();
    assert_eq!((cache("disk").pages(), cache("disk").page_size), (1_000, 256), "pages of the buffer");
    assert_eq!((cache("log-disk").pages(), cache("log-disk").page_size), (500, 4096));
    assert_eq!((cache("spare").pages(), cache("spare").page_size), (4_096, 1_024));
    assert!(cache("spare").write_misses && !cache("spare").read_misses && cache("disk").write_misses);
    assert_eq!(hardware.devices["disk"].medium.as_ref().unwrap().servers, devices::Servers::count(4));
    assert_eq!(hardware.devices["disk"].controller.as_ref().unwrap().servers, devices::Servers::Unlimited);
    assert_eq!(hardware.devices["ssd"], Hardware::named("rahm-1991").unwrap().devices["ssd"]);
    let without = text.replace("\"non-volatile\"", "\"none\"").replace("cache_size = \"1,000 pages\"", "");
    assert_eq!(Configuration::parse(&without).unwrap().hardware.unwrap().devices["disk"].cache, None);
}

#[test]
fn mistakes_in_changed_descriptions_are_named() {
    let cases = [
        ("cache = \"warm\"", "cannot be \"warm\"", "\"volatile\", \"non-volatile\", \"write-buffer\", \"none\""),
        ("cache = \"volatile\"", "a cache needs its size", "cache_size = \"1,000 pages\""),
        ("cache_size = \"1 page\"", "no effect without a cache", "beside cache = \"volatile\""),
        ("cache = \"volatile\"\ncache_size = \"much\"", "'cache_size' cannot be read", "\"1,000 pages\", or a size"),
        ("cache = \"volatile\"\ncache_size = 7", "'cache_size' is a whole number", "\"1,000 pages\""),
        ("cache = \"write-buffer\"\ncache_size = \"1 page\"\ncache_read_misses = true", "takes no reads", "without"),
        ("disks = \"many\"", "'disks' is a text", "from 1 to 65,536, or \"unlimited\""),
        ("disks = 0", "'disks' cannot be 0", "or \"unlimited\""),
        ("cach = \"none\"", "unknown key 'cach'", "did you mean 'cache'?"),
    ];
    for (lines, wrong, allowed) in cases {
        let message = message(&format!("hardware = \"rahm-1991\"\n[device.disk]\n{lines}\n"));
        assert!(
            message.starts_with("house.toml:3:")
                || message.starts_with("house.toml:4:")
                || message.starts_with("house.toml:5:"),
            "{message}"
        );
        assert!(message.contains(wrong) && message.contains(allowed), "{wrong}, {allowed} in {message}");
    }
    let ssd =
        message("hardware = \"rahm-1991\"\n[device.ssd]\ndisks = 2\ncache = \"volatile\"\ncache_size = \"1 page\"");
    assert!(ssd.contains("has no medium") && ssd.contains("stands before a medium"), "{ssd}");
    assert!(message("[device.disk]\ndisks = 2").contains("changes a description, and this device has none"));
}
