use super::*;
use engine::second_level::{Parameters, WriteBudget};
use proptest::prelude::*;

mod described;
mod reference;
mod sizes;
mod upper_cache;

/// The message about `text`, as a user sees it.
fn message(text: &str) -> String {
    Configuration::from_bytes("house.toml", text.as_bytes(), None).expect_err(text).to_string()
}

fn findings(text: &str) -> Vec<Finding> {
    match Configuration::parse(text) {
        Err(ConfigurationError::Wrong { findings }) => findings,
        other => panic!("{text:?} gave {other:?}"),
    }
}

#[test]
fn nothing_is_the_default() {
    assert_eq!(Configuration::parse(""), Ok(Configuration::default()));
    assert_eq!(Configuration::read(None, None), Ok(Configuration::default()));
    assert_eq!(Configuration::parse("[log]\n[buffer]\n[partition]\n[device]"), Ok(Configuration::default()));
}

#[test]
fn every_section_is_read() {
    let configuration = Configuration::parse(
        r#"
        mpl = 8
        [device.disk]
        path = "data"
        [device.flash]
        path = "/mnt/nvme/entresol"
        kind = "mapped"
        described = "rahm-1991:nvem"
        [buffer]
        size = "1 GiB"
        page_size = 16384
        replacement = "lru"
        cleaner = false
        warm = true
        [cache]
        device = "flash"
        size = "64 MiB"
        design = "migrate-modified"
        write_budget = "5 MiB/s"
        write_burst = "1 MiB"
        rated_writes = "600 TiB"
        volatile = true
        [write_buffer]
        device = "flash"
        size = "500 pages"
        pages = false
        volatile = false
        [log]
        device = "flash"
        write_buffer = true
        size = "64 MiB"
        group_commit = "size"
        group_size = 32
        group_delay = "1.5 ms"
        writes_in_flight = 2
        durable = false
        hold_locks = "until-durable"
        [undo]
        memory = "1 MiB"
        retention = "90 s"
        [temp]
        device = "flash"
        [commit]
        update = "force"
        [checkpoint]
        interval = "off"
        log_bytes = "8 MiB"
        [locks]
        victim = "youngest"
        wait_at_most = "250 ms"
        [server]
        standbys = 3
        queue = 40
        retry_interval = "2.5 s"
        [nodes]
        count = 3
        buffer = "32 MiB"
        algorithm = "fwd-h"
        chances = 3
        transactions = 8
        keep_write_locks = false
        commit_pages = true
        split_keys = { account = ["p", "g"] }
        [driver]
        backend = "thread-pool"
        answer_at_most = "9 s"
        direct = false
        socket = false
        [partition.account]
        device = "flash"
        organization = "direct"
        locks = "page"
        residence = "memory"
        cache = false
        write_buffer = false
        blocking_factor = 10
        record_size = "100 B"
        objects = 5_000_000
        page_size = "4 KiB"
        "#,
    )
    .unwrap();
    let expected = Configuration {
        hardware: None,
        mpl: 8,
        devices: BTreeMap::from([
            ("disk".to_owned(), Device { path: Some("data".into()), ..Device::default() }),
            (
                "flash".to_owned(),
                Device {
                    path: Some("/mnt/nvme/entresol".into()),
                    kind: DeviceKind::Mapped,
                    described: Some(Hardware::named("rahm-1991").unwrap().devices["nvem"].clone()),
                },
            ),
        ]),
        buffer: Buffer {
            size: 1 << 30,
            page_size: 16384,
            replacement: Policy::default(),
            cleaner: false,
            warm: true,
            ..Buffer::default()
        },
        upper_cache: None,
        cache: Some(Cache {
            device: "flash".to_owned(),
            pages: 4096,
            design: Design::named("migrate-modified").expect("it has this name"),
            parameters: Parameters::default(),
            volatile: Some(true),
            write_budget: Some(WriteBudget { burst_bytes: 1 << 20, ..WriteBudget::bytes_per_second(5 << 20) }),
            rated_bytes: Some(600 << 40),
        }),
        write_buffer: Some(WriteBuffer {
            device: "flash".to_owned(),
            pages: 500,
            log_bytes: 500 * 4096,
            takes_pages: false,
            volatile: Some(false),
        }),
        log: Log {
            device: "flash".to_owned(),
            page_size: 4096,
            size: 64 << 20,
            group_commit: GroupCommit::Size { transactions: 32, delay_ns_max: 1_500_000 },
            writes_in_flight: Some(2),
            durable: false,
            write_buffer: true,
            hold_locks: LockHold::UntilDurable,
            ..Log::default()
        },
        undo: Undo { memory: 1 << 20, retention_ns: 90_000_000_000, ..Undo::default() },
        temp: Temp { device: "flash".to_owned(), ..Temp::default() },
        commit: Commit { update: Update::Force },
        checkpoint: Checkpoint { interval_ns: None, log_bytes: Some(8 << 20), ..Checkpoint::for_log(0) },
        locks: Locks { victim: VictimPolicy::Youngest, wait_ns_max: Some(250_000_000) },
        server: Some(engine::server::Settings { standbys: 3, queue: 40, retry_interval_ns: 2_500_000_000 }),
        nodes: Nodes {
            count: 3,
            buffer: Some(32 << 20),
            algorithm: "fwd-h",
            chances: 3,
            transactions: 8,
            keeps_write_locks: false,
            commits_pages: true,
            split_keys: BTreeMap::from([("account".to_owned(), crate::KeyRanges::split_at(["g", "p"]))]),
        },
        driver: Driver {
            backend: Backend::ThreadPool,
            direct: false,
            socket: false,
            answer_ns_max: Some(9_000_000_000),
        },
        partitions: BTreeMap::from([(
            "account".to_owned(),
            Partition {
                device: "flash".to_owned(),
                organization: Organization::Direct,
                locks: LockGranule::Page,
                residence: Residence::Memory,
                cache: false,
                write_buffer: false,
                blocking_factor: Some(10),
                record_size: Some(100),
                objects: Some(5_000_000),
                page_size: Some(4096),
                segment_size: None,
                reserve_percent: None,
                record: None,
                secondaries: Vec::new(),
                named: "device organization locks page_size blocking_factor record_size objects".split(' ').collect(),
            },
        )]),
        asked: engine::Asked {
            page_size: Some(16384),
            log_page_size: None,
            log_device: Some("flash".to_owned()),
            log_size: Some(64 << 20),
        },
    };
    assert_eq!(configuration, expected);
    assert_eq!(configuration.partition("branch"), Partition::default());
}

#[test]
fn records_and_indexes_of_a_set_are_read_in_the_order_of_the_file() {
    use engine::set::{FieldType, RecordType};
    let configuration = Configuration::parse(
        r#"
        [partition.card]
        organization = "set"
        record = { zip = "bytes(5)", holder = "text", account = "u64" }
        secondary = { by_town = ["zip", "holder"], by_account = "account" }
        "#,
    )
    .unwrap();
    let fields = [("zip", FieldType::Array(5)), ("holder", FieldType::Text), ("account", FieldType::U64)];
    let card = configuration.partition("card");
    assert_eq!(card.record, Some(RecordType::new(fields).unwrap()));
    let named = |name: &str, fields: &[&str]| (name.to_owned(), fields.iter().map(|f| (*f).to_owned()).collect());
    assert_eq!(card.secondaries, [named("by_town", &["zip", "holder"]), named("by_account", &["account"])]);

    let set = "[partition.card]\norganization = \"set\"\n";
    for (text, place, what) in [
        ("record = 1", "3:10", "'record' is a whole number"),
        ("record = { a = \"u46\" }", "3:16", "'a' cannot be \"u46\""),
        ("record = { a = 3 }", "3:16", "'a' is a whole number"),
        ("record = { a = [\"u8\", \"u8\"] }", "3:12", "field 'a' has no type, or several"),
        ("record = { \"a b\" = \"u8\" }", "3:12", "'a b' cannot name a field"),
        ("record = { a = \"bytes(65535)\", b = \"u8\" }", "3:10", "with field 'b' the fixed fields have 65536 bytes"),
        ("secondary = { by_a = \"a\" }", "3:13", "an index is over the fields of records, whose type is missing"),
        ("record = { a = \"u8\" }\nsecondary = { by_b = \"b\" }", "4:22", "there is no field 'b'"),
        ("record = { a = \"u8\" }\nsecondary = { by_b = [] }", "4:15", "index 'by_b' orders by no field"),
    ] {
        let said = message(&format!("{set}{text}"));
        assert!(said.contains(&format!("house.toml:{place}: {what}")), "{text}: {said}");
    }
    let paged = message("[partition.card]\norganization = \"append\"\nrecord = { a = \"u8\" }");
    assert!(paged.contains("'record' has no effect in a partition of this organization"), "{paged}");
}

/// The example of DESIGN.md, section 4, word for word.
const DESIGN: &str = r#"
hardware = "rahm-1991"           # virtual; left out: the real machine
[device.disk]   path = "data"                        # kind: file | mapped | described
[device.flash]  path = "/mnt/nvme/entresol"
[buffer]        size = "1 GiB"   replacement = "lru"
[cache]         device = "flash" size = "16 GiB" design = "lazy-cleaning" dirty_max = "50%"
[log]           device = "flash"
[undo]          device = "flash"
[temp]          device = "flash"
[partition.account]  device = "disk" organization = "b-tree" locks = "record"
[partition.branch]   residence = "memory"
"#;

/// The example as TOML: there each key has a line of its own.
fn design() -> String {
    let lines = DESIGN.lines().map(|line| match line.split_once(']') {
        Some((header, keys)) => format!("{header}]\n{}\n", keys.replace("\" ", "\"\n")),
        None => format!("{line}\n"),
    });
    lines.collect()
}

#[test]
fn the_design_is_understood() {
    // Rahm's machine has no flash: that is said at the line that asks for it.
    let wrong = findings(&design());
    let words: Vec<String> = wrong.iter().map(|finding| finding.problem.to_string()).collect();
    assert_eq!(words, ["hardware 'rahm-1991' has no device 'flash'"]);
    // On this machine, and on described ones that have these devices, all of it is understood.
    let real = design().replace("hardware = \"rahm-1991\"", "");
    let configuration = Configuration::parse(&real).unwrap();
    assert_eq!((configuration.undo.device.as_str(), configuration.temp.device.as_str()), ("flash", "flash"));
    let cache = configuration.cache.as_ref().expect("there is one");
    assert_eq!((cache.device.as_str(), cache.pages, cache.design.name()), ("flash", 2 << 20, "lazy-cleaning"));
    assert_eq!(cache.parameters, Parameters { dirty_max_percent: 50, ..Parameters::default() });
    assert_eq!(configuration.partition("branch").residence, Residence::Memory);
    assert_eq!(configuration.devices["disk"].path, Some(PathBuf::from("data")));
    let described = Configuration::from_bytes("f", real.as_bytes(), Some("ideal")).unwrap();
    assert_eq!((described.log.device.as_str(), described.undo.device.as_str()), ("flash", "flash"));
}

#[test]
fn the_numbers_of_a_design_belong_to_it() {
    let cache = |keys: &str| format!("[cache]\ndevice = \"disk\"\nsize = \"100 pages\"\n{keys}");
    let all = "fill_threshold = \"90%\"\ndirty_max = \"1 %\"\ngroup_pages = 8\nthrottle = 0";
    let read = |keys: &str| Configuration::parse(&cache(keys)).unwrap().cache.expect("there is one");
    let lazy = read(&format!("design = \"lazy-cleaning\"\n{all}"));
    let parameters = Parameters { fill_threshold_percent: 90, dirty_max_percent: 1, group_pages: 8, throttle: 0 };
    assert_eq!(lazy.parameters, parameters);
    assert_eq!(read("design = \"lazy-cleaning\"").parameters, Parameters::default());
    assert_eq!(read("design = \"dual-write\"\nthrottle = 7").parameters.throttle, 7);
    // What a design does not go by is refused, with the designs that do.
    for (keys, key, design) in [
        ("dirty_max = \"50%\"", "dirty_max", "migrate-all"),
        ("design = \"dual-write\"\ngroup_pages = 2", "group_pages", "dual-write"),
        ("design = \"migrate-modified\"\nthrottle = 2", "throttle", "migrate-modified"),
    ] {
        let said = message(&cache(keys));
        assert!(said.contains(&format!("'{key}' has no effect with the design \"{design}\"")), "{said}");
        assert!(said.contains("\"lazy-cleaning\""), "{said}");
    }
    for (wrong, allowed) in [
        ("dirty_max = \"101%\"", "from \"0%\" to \"100%\" in whole percent"),
        ("dirty_max = \"half\"", "from \"0%\" to \"100%\" in whole percent"),
        ("fill_threshold = \"95\"", "from \"0%\" to \"100%\" in whole percent"),
        ("group_pages = 0", "a whole number from 1 to 256"),
        ("throttle = -1", "a whole number from 0 to 65,536"),
    ] {
        let said = message(&cache(&format!("design = \"lazy-cleaning\"\n{wrong}")));
        assert!(said.contains(allowed), "{said}");
    }
    // Each of them needs the cache.
    assert!(message("[cache]\nthrottle = 2\ndesign = \"dual-write\"").contains("it needs a device"));
}

#[test]
fn checkpoints_follow_the_size_of_the_log() {
    let configuration = Configuration::parse("[log]\nsize = \"64 MiB\"").unwrap();
    assert_eq!(configuration.checkpoint.log_bytes, Some(16 << 20));
    assert!(message("[log]\nsize = \"64 MiB\"\n[checkpoint]\nlog_bytes = \"48 MiB\"").contains("to \"32 MiB\""));
    assert_eq!(configuration.checkpoint.sweep_interval_ns, None);
    let configuration =
        Configuration::parse("[checkpoint]\nsets = \"tccou\"\nquiesce = true\nsweep_interval = \"0 s\"");
    let found = configuration.expect("valid").checkpoint;
    assert_eq!((found.sweep_interval_ns, found.quiesce), (Some(0), true));
    assert!(message("[checkpoint]\nsweep_interval = \"2 days\"").contains("sweep_interval"));
}

#[test]
fn paths_start_at_the_file() {
    let described = "[device.one]\nsync = \"1 ms\"";
    let directory = std::env::temp_dir().join(format!("entresol-configuration-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let file = directory.join(FILE_NAME);
    #[expect(clippy::disallowed_methods, reason = "the test makes the files that are read")]
    let write = |name: &str, text: &str| std::fs::write(directory.join(name), text).unwrap();
    write("one.toml", described);
    write(FILE_NAME, "[device.flash]\npath = \"flash\"\ndescribed = \"one.toml\"\n[device.nvem]\npath = \"/nvem\"");
    let configuration = Configuration::read(Some(&file), None).unwrap();
    let one = Hardware::parse(described, "").unwrap().devices.remove("one");
    assert_eq!(configuration.devices["flash"].described, one);
    assert_eq!(configuration.devices["flash"].path, Some(directory.join("flash")));
    assert_eq!(configuration.devices["nvem"].path, Some(PathBuf::from("/nvem")));
    assert_eq!(configuration.devices["disk"].path, None);
    write("one.toml", "[device.one]\nsink = \"1 ms\"");
    let error = Configuration::read(Some(&file), None).unwrap_err().to_string();
    assert!(error.contains("entresol.toml:3:13: 'one.toml' cannot be used: line 2: unknown field `sink`"), "{error}");
    std::fs::remove_dir_all(&directory).unwrap();
    let error = Configuration::read(Some(&file), None).unwrap_err();
    assert!(matches!(&error, ConfigurationError::Unreadable { file, .. } if file.ends_with(FILE_NAME)));
}

#[test]
fn messages_show_the_line_and_what_is_allowed() {
    let cases = [
        (
            "[buffer]\nsise = \"1 GiB\"\n",
            "house.toml:2:1: unknown key 'sise' in [buffer]\n  |\n2 | sise = \"1 GiB\"\n  | ^^^^\n  \
             = allowed: page_size, size, replacement, cleaner, warm, growth_step\n  = did you mean 'size'?",
        ),
        (
            "# redo needs no place\n\n[redo]\ndevice = \"flash\"",
            "house.toml:3:2: unknown section 'redo' in the file\n  |\n3 | [redo]\n  |  ^^^^\n  \
             = allowed: hardware, device, mpl, buffer, cache, upper_cache, write_buffer, log, undo, temp, commit, checkpoint, locks, \
             server, nodes, driver, partition",
        ),
        (
            "[log]\ndevice = \"flsh\"\n[device.flash]\npath = \"f\"",
            "house.toml:2:10: there is no device 'flsh'\n  |\n2 | device = \"flsh\"\n  |          ^^^^^^\n  \
             = allowed: \"disk\", \"flash\", or another that has a section [device.NAME]\n  = did you mean 'flash'?",
        ),
        (
            "[temp]\ncluster_size = \"100 KiB\"",
            "house.toml:2:16: 'cluster_size' cannot be \"100 KiB\"\n  |\n2 | cluster_size = \"100 KiB\"\n  \
             |                ^^^^^^^^^\n  = allowed: \"4 KiB\" to \"16 MiB\", a power of two",
        ),
        (
            "buffer.size = \"64 Kilo\"",
            "house.toml:1:15: 'size' cannot be read: '64 Kilo' is not a size; write a number with B, KiB, MiB, GiB, \
             TiB or PiB (or kB, MB, GB, TB, PB), such as \"64 KiB\"\n  |\n1 | buffer.size = \"64 Kilo\"\n  |               ^^^^^^^^^\n  \
             = allowed: a size from \"128 KiB\" to \"16 TiB\": 16 pages or more",
        ),
        (
            "[buffer]\n\tpage_size = 5000",
            "house.toml:2:14: 'page_size' cannot be 5000\n  |\n2 |  page_size = 5000\n  |              ^^^^\n  \
             = allowed: \"4 KiB\" to \"64 KiB\", a power of two",
        ),
        (
            "[commit]\nupdate = \"noforse\"",
            "house.toml:2:10: 'update' cannot be \"noforse\"\n  |\n2 | update = \"noforse\"\n  |          ^^^^^^^^^\n  \
             = allowed: \"noforce\", \"force\"\n  = did you mean 'noforce'?",
        ),
        (
            "mpl = \"many\"",
            "house.toml:1:7: 'mpl' is a text\n  |\n1 | mpl = \"many\"\n  |       ^^^^^^\n  \
             = allowed: a whole number from 1 to 65,536",
        ),
        (
            "[log]\ngroup_size = 4",
            "house.toml:2:14: 'group_size' has no effect with group_commit = \"paced\"\n  |\n2 | group_size = 4\n  \
             |              ^\n  = allowed: group_size beside group_commit = \"size\"",
        ),
        (
            "[log]\nsets = \"toper\"\n[checkpoint]\nsets = \"acbw\"",
            "house.toml:2:8: sets = \"toper\" does not go with [checkpoint] sets = \"acbw\": a procedure has to find the state \
             that it had found, so the backup must hold whole transactions; sweep by tcbw, tccou or calc, or log values or \
             actions\n  |\n2 | sets = \"toper\"\n  |        ^^^^^^^\n  = allowed: \"toper\" beside [checkpoint] sets = \
             \"tcbw\", \"tccou\", \"calc\"",
        ),
        (
            "[partition.\"../etc\"]",
            "house.toml:1:12: '../etc' cannot name a device or a partition\n  |\n1 | [partition.\"../etc\"]\n  \
             |            ^^^^^^^^\n  = allowed: 1 to 64 of the characters a-z A-Z 0-9 _ -, a letter first",
        ),
    ];
    for (text, expected) in cases {
        assert_eq!(message(text), expected);
    }
}

#[test]
fn all_that_is_wrong_is_found_in_order() {
    let text =
        "[partition.account]\norganization = \"heap\"\n[log]\ndurable = 1\nsize = \"0 B\"\n[buffer]\ncleaner = 0";
    let lines: Vec<usize> = findings(text).iter().map(|finding| finding.line).collect();
    assert_eq!(lines, [2, 4, 5, 7]);
}

#[test]
fn wrong_values_are_wrong_everywhere() {
    let wrong = [
        "hardware = \"abacus\"",
        "hardware = 1",
        "buffer = 3",
        "device = []",
        "[device]\ndisk = true",
        "hardware = \"/no/such/file.toml\"",
        "[device.nvem]\nkind = \"described\"\ndescribed = \"hdd-7200\"",
        "hardware = \"rahm-1991\"\n[device.nvem]\nkind = \"described\"",
        "[device.flash]\ndescribed = \"unheard-of\"",
        "[device.flash]\ndescribed = \"rahm-1991\"",
        "[device.flash]\ndescribed = \"rahm-1991:drum\"",
        "[device.flash]\npath = \"\"",
        "mpl = 0",
        "mpl = -1",
        "mpl = 1.5",
        "mpl = 99999999999999999999999",
        "[buffer]\nsize = \"1 KiB\"",
        "[buffer]\nsize = -4096",
        "[buffer]\npage_size = \"128 KiB\"",
        "[log]\ngroup_commit = \"delay\"\ngroup_delay = \"1\"",
        "[log]\ngroup_commit = \"none\"\ngroup_delay = \"1 ms\"",
        "[checkpoint]\ninterval = \"never\"",
        "[checkpoint]\ninterval = 60",
        "[locks]\nvictim = \"oldest\"",
        "[locks]\nwait_at_most = \"soon\"",
        "[server]\nstandbys = 251",
        "[server]\nqueue = 0",
        "[nodes]\ncount = 0",
        "[nodes]\nalgorithm = \"magic\"",
        "[nodes]\nchances = 256",
        "[nodes]\nsplit_keys = \"n\"",
        "[nodes]\nsplit_keys = { account = [true] }",
        "[nodes]\nsplit_keys = { account = -1 }",
        "[server]\nretry_interval = \"2 h\"",
        "[server]\nretry = \"2 s\"",
        "[partition.account]\nblocking_factor = 10",
        "[partition.account]\nlocks = \"page\"",
        "[partition.account]\norganization = \"set\"\nlocks = \"none\"",
        "[partition.account]\norganization = \"append\"\nobjects = 3",
        "[partition.account]\norganization = \"direct\"\nblocking_factor = 100\nrecord_size = 100",
        "[partition.account]\norganization = \"direct\"\nobjects = 0",
        "size = ",
        "[buffer\nsize = 1",
        "mpl = 1\nmpl = 2",
        "[undo]\ndevice = \"dusk\"",
        "[undo]\nmemory = \"2 GiB\"\nsize = \"1 GiB\"",
        "[temp]\ndevice = \"dusk\"",
        "[temp]\nlength = \"1 GiB\"",
        "[cache]\ndevice = \"disk\"\nsize = \"1 MiB\"\ndirty_max = \"50%\"",
    ];
    for text in wrong {
        assert_eq!(findings(text).len(), 1, "{text}\n{}", message(text));
    }
    let not_text = Configuration::from_bytes("f", b"mpl = 1\n# \xff", None).unwrap_err().to_string();
    assert!(not_text.starts_with("f:2:3: the file is not UTF-8 text"), "{not_text}");
}

/// Every message has lines that fit and end with no blank.
fn is_readable(bytes: &[u8]) -> Result<(), TestCaseError> {
    for hardware in [None, Some("rahm-1991")] {
        if let Err(error) = Configuration::from_bytes("f", bytes, hardware) {
            let ConfigurationError::Wrong { findings } = &error else { panic!("{error}") };
            prop_assert!(!findings.is_empty());
            prop_assert!(findings.is_sorted_by_key(|finding| (finding.line, finding.column)));
            for finding in findings {
                let shown = finding.to_string();
                let lines: Vec<&str> = shown.split('\n').collect();
                prop_assert!(lines.len() >= 4 && lines[3].trim_end().ends_with('^'), "{shown}");
                prop_assert!(lines[2].chars().count() <= 100 && lines[3].chars().count() <= 100, "{shown}");
            }
        }
    }
    Ok(())
}

proptest! {
    #[test]
    fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        is_readable(&bytes)?;
    }

    #[test]
    fn arbitrary_toml_never_panics(
        lines in prop::collection::vec(
            "(\\[[a-z.\"]{1,12}\\]|(size|device|mpl|hardware|page_size|log|partition\\.a\\.locks) ?= ?(\"[ -~é\\t]{0,90}\"|-?[0-9]{1,22}|0x[f0-9]{1,20}|1e400|true|\\[1\\]|\\{a=1\\}))",
            0..8,
        )
    ) {
        is_readable(lines.join("\n").as_bytes())?;
    }

    #[test]
    fn mutated_references_never_panic(
        edits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>(), 0..3_u8), 1..6)
    ) {
        let mut bytes: Vec<u8> = Configuration::reference().lines().filter(|l| !l.starts_with("# ")).collect::<Vec<_>>().join("\n").into_bytes();
        for (at, byte, edit) in edits {
            let at = at.index(bytes.len());
            match edit {
                0 => bytes[at] = byte,
                1 => bytes.insert(at, byte),
                _ => { bytes.remove(at); }
            }
        }
        is_readable(&bytes)?;
    }
}

#[test]
fn tiers_are_refused_by_line_and_reason() {
    for (text, says, allowed) in [
        ("[cache]\nsize = \"4 MiB\"", "it needs a device", "beside device"),
        ("[cache]\ndevice = \"disk\"", "it needs a size", "\"1,000 pages\""),
        ("[cache]\ndevice = \"disk\"\nsize = \"much\"", "'size' cannot be read", "or a size such as"),
        ("[cache]\ndevice = \"disk\"\nsize = \"1 KiB\"", "that is 0 pages of 8192 bytes", "1 to 2,147"),
        ("[cache]\ndevice = \"dusk\"\nsize = \"4 MiB\"", "no device 'dusk'", "\"disk\""),
        ("[cache]\ndesign = \"migrate\"", "design", "\"migrate-all\""),
        (
            "[cache]\ndevice = \"disk\"\nsize = \"4 MiB\"\nwrite_budget = \"0 per day\"",
            "a budget of zero",
            "no [cache]",
        ),
        ("[cache]\ndevice = \"disk\"\nsize = \"4 MiB\"\nwrite_budget = \"0 MiB/s\"", "a budget of zero", "above zero"),
        (
            "[cache]\ndevice = \"disk\"\nsize = \"4 MiB\"\nwrite_budget = \"-1 per day\"",
            "no rate of writes",
            "3 per day",
        ),
        ("[cache]\ndevice = \"disk\"\nsize = \"4 MiB\"\nwrite_budget = \"20 MiB\"", "no rate of writes", "20 MiB/s"),
        (
            "[cache]\ndevice = \"disk\"\nsize = \"4 MiB\"\nwrite_burst = \"1 MiB\"",
            "has no effect",
            "beside write_budget",
        ),
        ("[cache]\nwrite_budget = \"1 per day\"", "it needs a device", "beside device"),
        (
            "[cache]\ndevice = \"disk\"\nsize = \"4 MiB\"\nwrite_budget = \"1 per day\"\nwrite_burst = \"4 KiB\"",
            "no page of 8 KiB fits",
            "at least one page",
        ),
        ("[cache]\ndevice = \"disk\"\nsize = \"4 MiB\"\nrated_writes = \"0\"", "may not be written", "600 TB"),
        ("[write_buffer]\npages = true", "it needs a device", "beside device"),
        ("[log]\nwrite_buffer = true", "there is no write buffer", "[write_buffer]"),
        ("[partition.a]\ncache = \"no\"", "cache", "true, false"),
    ] {
        let message = message(text);
        assert!(message.contains(says) && message.contains(allowed), "{message}");
    }
}
