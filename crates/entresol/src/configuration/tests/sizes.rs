use super::message;
use crate::configuration::Configuration;

#[test]
fn sizes_are_said_in_bytes_of_either_sort_or_in_pages() {
    let read = |text: &str| Configuration::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"));
    let buffer = |size: &str| read(&format!("[buffer]\npage_size = \"16 KiB\"\nsize = \"{size}\"")).buffer.size;
    assert_eq!(
        ["16 MB", "16 MiB", "1000 pages", "1,000 pages"].map(buffer),
        [16_000_000, 16 << 20, 1_000 << 14, 1_000 << 14]
    );
    // The page size may stand behind the size, or have its default.
    assert_eq!(read("[buffer]\nsize = \"100 pages\"\npage_size = \"4 KiB\"").buffer.size, 100 << 12);
    assert_eq!(read("[buffer]\nsize = \"100 pages\"").buffer.size, 100 << 13);
    let all = read(
        r#"
        [checkpoint]
        log_bytes = "600 pages"
        [undo]
        size = "2_000 pages"
        memory = "1 page"
        [log]
        page_size = "8 KiB"
        size = "2_000 pages"
        [temp]
        size = "64 pages"
        cluster_size = "2 pages"
        [cache]
        device = "disk"
        size = "500 pages"
        write_budget = "1 per day"
        write_burst = "70 pages"
        rated_writes = "1_000_000 pages"
        [partition.branch]
        organization = "set"
        page_size = "4 KiB"
        segment_size = "16 pages"
        [buffer]
        page_size = "16 KiB"
        "#,
    );
    assert_eq!((all.checkpoint.log_bytes, all.log.size), (Some(600 << 13), 2_000 << 13));
    assert_eq!((all.undo.size, all.undo.memory), (2_000 << 14, 1 << 14));
    assert_eq!((all.temp.size, all.temp.cluster_size), (64 << 14, 2 << 14));
    let cache = all.cache.expect("there is one");
    assert_eq!((cache.pages, cache.write_budget.map(|budget| budget.burst_bytes)), (500, Some(70 << 14)));
    assert_eq!(cache.rated_bytes, Some(1_000_000 << 14));
    assert_eq!(all.partitions["branch"].segment_size, Some(16 << 12));
    for (text, place, what) in [
        ("[buffer]\nsize = \"15 pages\"", "2:8", "'size' cannot be \"15 pages\""),
        ("[buffer]\nsize = \"1.5 pages\"", "2:8", "'size' cannot be read: '1.5 pages' is not a size"),
        (
            "[buffer]\npage_size = \"1 page\"",
            "2:13",
            "'page_size' cannot be read: '1 page' counts pages, whose size is not known here",
        ),
        ("[log]\nsize = \"9e15 pages\"", "2:8", "'size' cannot be read: '9e15 pages' is not a size"),
        (
            "[log]\nsize = \"9000000000000000 pages\"",
            "2:8",
            "'size' cannot be read: '9000000000000000 pages' is not a size",
        ),
        ("[undo]\n\nsize = \"16 MBytes\"", "3:8", "'size' cannot be read: '16 MBytes' is not a size"),
    ] {
        let said = message(text);
        assert!(said.contains(&format!("house.toml:{place}: {what}")), "{text}: {said}");
    }
}

#[test]
fn budgets_of_writes_are_read() {
    let read = |keys: &str| {
        let text = format!("[cache]\ndevice = \"disk\"\nsize = \"4 MiB\"\n{keys}");
        Configuration::parse(&text).expect("it is sound").cache.expect("there is one")
    };
    assert_eq!((read("").write_budget, read("").rated_bytes), (None, None));
    let day = read("write_budget = \"0.5 per day\"\nrated_writes = \"600 TB\"");
    let budget = day.write_budget.expect("there is one");
    assert_eq!((budget.bytes_per_day, budget.burst_bytes), (2 << 20, 64 * 8192));
    assert_eq!(day.rated_bytes, Some(600_000_000_000_000));
    let rate = read("write_budget = \"20 MiB/s\"\nwrite_burst = \"1 GiB\"").write_budget.expect("there is one");
    assert_eq!((rate.bytes_per_day, rate.burst_bytes), (86_400 * (20 << 20), 1 << 30));
    assert_eq!(read("write_budget = \"3/day\"").write_budget.map(|budget| budget.bytes_per_day), Some(12 << 20));
}
