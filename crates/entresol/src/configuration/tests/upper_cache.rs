use super::*;

const CACHES: &str = "[cache]\ndevice = \"flash\"\nsize = \"1 MiB\"\ndesign = \"lazy-cleaning\"\n\
                      [upper_cache]\ndevice = \"nvem\"\nsize = \"20 pages\"\n";
const DEVICES: &str = "[device.flash]\npath = \"f\"\n[device.nvem]\npath = \"n\"\n";

#[test]
fn two_caches_stand_one_above_the_other() {
    let own = "design = \"frequency\"\ndirty_max = \"5%\"\n";
    let configuration = Configuration::parse(&format!("{CACHES}{own}{DEVICES}")).expect("reads");
    let upper = configuration.upper_cache.clone().expect("there is one");
    assert_eq!((upper.device.as_str(), upper.pages, upper.design.name()), ("nvem", 20, "frequency"));
    assert_eq!(upper.parameters.dirty_max_percent, 5);
    let settings = crate::assemble::settings(&configuration, engine::Procedures::new());
    let devices =
        [settings.hierarchy.upper_cache, settings.hierarchy.cache].map(|cache| cache.map(|cache| cache.device));
    assert_eq!(devices, [Some("nvem".to_owned()), Some("flash".to_owned())]);
    assert_eq!(configuration.caches().map(|cache| cache.pages).collect::<Vec<_>>(), [20, 128]);
}

#[test]
fn what_an_upper_cache_cannot_be_is_refused_by_its_keys() {
    for (text, why, allowed) in [
        (
            format!("{CACHES}volatile = false\n{DEVICES}"),
            "an upper cache begins empty at each opening",
            "without this key",
        ),
        (
            format!("{CACHES}design = \"migrate-all\"\nthrottle = 5\n{DEVICES}"),
            "'throttle' has no effect",
            "dual-write",
        ),
        (
            "[upper_cache]\ndevice = \"disk\"\nsize = \"1 MiB\"".to_owned(),
            "an upper cache stands above [cache]",
            "[cache] in its place",
        ),
        ("[upper_cache]\nsize = \"1 MiB\"".to_owned(), "it needs a device", "beside device"),
    ] {
        let said = message(&text);
        assert!(said.contains(why) && said.contains(allowed), "{said}");
    }
}

#[test]
fn an_upper_cache_on_the_device_of_the_cache_is_warned_of() {
    let text = CACHES.replace("nvem", "flash") + DEVICES;
    let warnings = Configuration::parse(&text).expect("reads").warnings();
    assert!(warnings.iter().any(|warning| warning.contains("the upper cache is on the cache's device 'flash'")));
}
