//! Every benchmark from the command line to its report, as small as it can be.
#![allow(clippy::disallowed_methods, reason = "tests make and look into directories")]

use serde_json::Value;
use std::process::{Command, Output};

/// A fresh directory with a configuration whose log and buffer are quickly made.
fn workshop() -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("small.toml"), "[log]\nsize = \"4 MiB\"\n[buffer]\nsize = \"32 MiB\"")
        .unwrap();
    directory
}

/// Runs `entresol bench` in the directory.
fn bench(directory: &std::path::Path, line: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_entresol"));
    command.current_dir(directory).arg("bench").args(line.split(' ')).output().expect("the program starts")
}

/// The report of a run that must succeed.
fn report(directory: &std::path::Path, line: &str) -> Value {
    let output = bench(directory, &format!("{line} --json"));
    let (out, error) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{line}: {error}");
    assert_eq!(error, "", "{line}");
    serde_json::from_str(&out).unwrap_or_else(|error| panic!("{line}: {error} in {out}"))
}

fn number(report: &Value, pointer: &str) -> f64 {
    report.pointer(pointer).and_then(Value::as_f64).unwrap_or_else(|| panic!("{pointer} in {report:#}"))
}

#[test]
fn debit_credit_with_tasks_and_with_threads() {
    let directory = workshop();
    for (mode, seed) in [("", 1), (" --threads", 2), (" --server", 3), (" --threads --server", 4)] {
        let line =
            format!("debit-credit --config small.toml --scale 1 --clients 4 --transactions 300 --seed {seed}{mode}");
        let report = report(directory.path(), &line);
        assert_eq!(number(&report, "/transactions"), 300.0, "{report:#}");
        let account = &report["references"]["account"];
        assert_eq!(
            account["hits"].as_u64().zip(account["misses"].as_u64()).map(|(hits, misses)| hits + misses),
            Some(300)
        );
        assert_eq!(report["clock"], "real");
        for pointer in ["/throughput_per_s", "/response_us/mean", "/response_us/p99", "/log_bytes_per_transaction"] {
            assert!(number(&report, pointer) > 0.0, "{pointer} in {report:#}");
        }
        let (engine, process) =
            (number(&report, "/cpu_us_per_transaction"), number(&report, "/process_cpu_us_per_transaction"));
        assert!(0.0 < engine && engine <= process, "{engine} {process}");
        assert!(number(&report, "/hit_ratio/account") > 0.9);
    }
    let output = bench(directory.path(), "debit-credit --config small.toml --scale 2 --transactions 1");
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1));
    assert!(error.contains("1 branches, not 2") && error.contains("--scale"), "{error}");
}

#[test]
fn a_server_that_is_kept_busy_says_who_had_the_cpu() {
    let directory = workshop();
    let line = "debit-credit --config small.toml --scale 1 --transactions 2000 --server --full";
    let report = report(directory.path(), line);
    for server in ["transaction", "log", "message"] {
        assert!(number(&report, &format!("/server/cpu_us_per_transaction/{server}")) > 0.0, "{report:#}");
    }
    assert_eq!(number(&report, "/server/queue_max"), 256.0);
    let output = bench(directory.path(), "debit-credit --config small.toml --full");
    assert_eq!(output.status.code(), Some(2), "a full queue needs a server");
}

#[test]
fn credit_cards_are_reported_type_by_type_and_add_up() {
    let directory = workshop();
    let line = "credit-card --config small.toml --scale 1000 --clients 4 --transactions 2000";
    for line in [line.to_owned(), format!("{line} --seed 2")] {
        let report = report(directory.path(), &line);
        assert_eq!(number(&report, "/transactions"), 2_000.0, "{report:#}");
        let types = report["types"].as_array().expect("a list");
        let names: Vec<&str> = types.iter().filter_map(|one| one["name"].as_str()).collect();
        assert_eq!(names, ["BAL", "CCCK", "CLCK", "DEBIT", "PAY", "CHANGE", "LOST", "FOUND"]);
        assert!(number(&types[0], "/response_us/mean") > 0.0, "{report:#}");
    }
    let output = bench(directory.path(), "credit-card --config small.toml --scale 2000 --transactions 1");
    assert!(String::from_utf8_lossy(&output.stderr).contains("1000 accounts, not 2000"));
    std::fs::write(
        directory.path().join("paged.toml"),
        "[log]\nsize = \"4 MiB\"\n[partition.account]\norganization = \"b-tree\"",
    )
    .unwrap();
    let output = bench(directory.path(), "credit-card --config paged.toml --data p --transactions 1");
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && error.contains("partition 'account'"), "{error}");
}

#[test]
fn debit_credit_on_described_hardware_has_no_process() {
    let directory = workshop();
    let report = report(directory.path(), "debit-credit --hardware rahm-1991 --scale 5 --transactions 200");
    assert_eq!(report["clock"], "virtual");
    assert_eq!(report["process_cpu_us_per_transaction"], Value::Null);
    assert!(number(&report, "/cpu_us_per_transaction") > 1_000.0, "a processor of 1991 takes milliseconds");
}

#[test]
fn a_rate_beyond_saturation_names_the_station_and_a_disk_cache_is_counted() {
    let directory = workshop();
    let cached = "hardware = \"rahm-1991\"\n[device.disk]\ncache = \"non-volatile\"\ncache_size = \"100 pages\"\n\
                  [log]\ndevice = \"log-disk\"\ngroup_commit = \"none\"\nsize = \"1 GiB\"\n\
                  [buffer]\nsize = \"16 MiB\"\n[checkpoint]\ninterval = \"off\"\nlog_bytes = \"off\"\n";
    let direct = "organization = \"direct\"\nlocks = \"page\"\n";
    let text = format!(
        "{cached}[partition.account]\n{direct}[partition.branch]\n{direct}[partition.history]\n\
         organization = \"append\"\nlocks = \"none\"\n"
    );
    std::fs::write(directory.path().join("cached.toml"), text).unwrap();
    let report = report(directory.path(), "debit-credit --config cached.toml --scale 100 --rate 1000 --seconds 60");
    assert_eq!(report["saturated"]["station"], "log-disk.medium", "{report:#}");
    assert!(number(&report, "/saturated/utilization") > 0.9);
    assert!(number(&report, "/seconds") < 50.0, "it ended early: {report:#}");
    assert!(report["notes"].to_string().contains("saturated at station 'log-disk.medium'"), "{report:#}");
    let accounts = report["disk_caches"].as_array().unwrap().iter().find(|cache| cache["file"] == "account.pages");
    let accounts = accounts.unwrap_or_else(|| panic!("{report:#}"));
    assert!(number(accounts, "/reads") > 100.0 && number(accounts, "/absorbed") > 0.0, "{accounts}");
    assert!(number(&report, "/simulation/events_per_wall_s") > 0.0);
}

#[test]
fn a_mapped_memory_device_is_reported_as_not_durable() {
    let directory = workshop();
    let Ok(memory) = tempfile::tempdir_in("/dev/shm") else { return println!("skipped: no memory file system") };
    let text = format!(
        "[buffer]\nsize = \"32 MiB\"\n[log]\nsize = \"4 MiB\"\ndevice = \"nvem\"\n[device.nvem]\nkind = \"mapped\"\n\
         described = \"rahm-1991:nvem\"\npath = \"{}\"\n",
        memory.path().display()
    );
    std::fs::write(directory.path().join("nvem.toml"), text).unwrap();
    let report =
        report(directory.path(), "debit-credit --config nvem.toml --scale 1 --clients 4 --transactions 300 --data d");
    let notes = report["notes"].to_string();
    assert!(notes.contains("device 'nvem' is memory: it is not durable"), "{notes}");
    assert!(report["driver"].as_str().unwrap().contains("with the delays of its description"), "{report:#}");
    let stations = report["utilization"].as_array().unwrap();
    assert!(stations.iter().any(|station| station["name"] == "nvem.medium"), "{stations:?}");
}

#[test]
fn point_reads_miss_a_buffer_that_is_smaller_than_the_data() {
    let directory = workshop();
    let line = "point-reads --config small.toml --scale 1 --seconds 0.3 --outstanding 8 --buffer 2MiB";
    let report = report(directory.path(), line);
    let hits = number(&report, "/hit_ratio/account");
    assert!((0.05..0.5).contains(&hits), "2 MiB of 11 are about a fifth, not {hits}");
    let (reads, per_second) =
        (number(&report, "/io_per_transaction/disk/reads"), number(&report, "/io_per_s/disk/reads"));
    assert!((0.5..1.0).contains(&reads), "a read that misses reads one page: {reads}");
    let throughput = number(&report, "/throughput_per_s");
    assert!((per_second / throughput - reads).abs() < 0.01, "{per_second} {throughput} {reads}");
}

#[test]
fn recovery_redoes_the_log_and_undoes_what_was_under_way() {
    let directory = workshop();
    let report = report(directory.path(), "recovery --scale 1 --log 2MiB --buffer 32MiB");
    assert!(number(&report, "/log_bytes") >= f64::from(2 << 20), "{report:#}");
    assert!(number(&report, "/records") > 4_000.0, "{report:#}");
    assert_eq!(report["unfinished"], 1);
    for pointer in ["/records_per_s", "/log_bytes_per_s", "/sequential_read_bytes_per_s", "/undo_seconds"] {
        assert!(number(&report, pointer) > 0.0, "{pointer} in {report:#}");
    }
    assert_eq!(bench(directory.path(), "debit-credit --data recovery.data --transactions 10").status.code(), Some(0));
    let output = bench(directory.path(), "recovery --again");
    assert!(String::from_utf8_lossy(&output.stderr).contains("was closed"), "{output:?}");
    let output = bench(directory.path(), "recovery --log 1GiB");
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("do not fit"), "{output:?}");
}

#[test]
fn recovery_makes_moments_readable_again() {
    let directory = workshop();
    let report = report(directory.path(), "recovery --moments --scale 1 --log 2MiB --buffer 32MiB");
    assert!(number(&report, "/moments_log_bytes") >= number(&report, "/log_bytes"), "{report:#}");
    assert!(number(&report, "/moments_seconds") > 0.0, "{report:#}");
}

#[test]
fn recovery_loads_the_backup_of_sets_and_repeats_their_log() {
    let directory = workshop();
    let report = report(directory.path(), "recovery --sets --scale 1 --log 2MiB");
    assert!(number(&report, "/log_bytes") >= f64::from(2 << 20), "{report:#}");
    assert!(number(&report, "/backup_bytes") > 12e6, "{report:#}");
    for pointer in ["/load_seconds", "/redo_seconds", "/sequential_read_seconds", "/open_ratio"] {
        assert!(number(&report, pointer) > 0.0, "{pointer} in {report:#}");
    }
    assert!(number(&report, "/open_seconds") > number(&report, "/load_seconds") + number(&report, "/redo_seconds"));
    // A process that begins with the restart finds the same, but for the record behind which the sweep began.
    let again = self::report(directory.path(), "recovery --sets --again");
    assert_eq!(again["backup_bytes"], report["backup_bytes"]);
    assert!(number(&again, "/records") >= number(&report, "/records") - 1.0, "{again:#}");
    for pointer in ["/memory_seconds", "/open_cpu_seconds"] {
        assert!(number(&again, pointer) > 0.0, "{pointer} in {again:#}");
    }
}

#[test]
fn a_long_reader_is_held_against_writers_alone() {
    let directory = workshop();
    let line = "snapshot-reader --config small.toml --scale 1 --clients 8 --seconds 0.5 --rounds 1";
    let report = report(directory.path(), line);
    for pointer in
        ["/throughput_ratio/median", "/without/throughput_per_s", "/with/p99_us", "/with/versions", "/with/read_per_s"]
    {
        assert!(number(&report, pointer) > 0.0, "{pointer} in {report:#}");
    }
    assert_eq!(number(&report, "/without/versions"), 0.0);
}

#[test]
fn checkpoints_are_held_against_runs_without_any() {
    let directory = workshop();
    let line = "checkpoints --scale 1 --clients 8 --seconds 0.5 --rounds 1 --bound 1MiB --strategies tcbw,calc";
    let report = report(directory.path(), line);
    let costs = report["costs"].as_array().expect("costs");
    assert_eq!(costs.len(), 4, "each strategy at both intervals");
    for cost in costs {
        for pointer in ["/throughput_ratio/median", "/p99_ratio/min", "/cpu_ratio/max", "/median/written_bytes_per_s"] {
            assert!(number(cost, pointer) > 0.0, "{pointer} in {report:#}");
        }
        // A sweep that rests need not end in so short a run of an unoptimized build.
        assert!(number(cost, "/median/sweeps_per_s") > 0.0 || cost["strategy"] == "calc", "{report:#}");
        let restarts = number(cost, "/median/restarts_by_colour");
        assert_eq!(restarts > 0.0, cost["strategy"] == "tcbw", "{report:#}");
    }
    assert_eq!(costs[0]["interval_seconds"], 0.0);
    assert!(number(&costs[2], "/interval_seconds") > 0.0);
    let runs = report["runs"].as_array().expect("runs");
    let strategies: Vec<Option<&str>> = runs.iter().map(|run| run["strategy"].as_str()).collect();
    assert_eq!(strategies, [None, Some("calc"), Some("tcbw"), None, Some("calc"), Some("tcbw")]);
    assert_eq!(runs[1]["throughput_per_s"], costs[1]["median"]["throughput_per_s"]);
    let left = std::fs::read_dir(directory.path().join("checkpoints.data")).unwrap();
    assert_eq!(left.count(), 0, "each round removes its database");
}

#[test]
fn every_command_says_what_gains_nothing() {
    let directory = workshop();
    let here = directory.path();
    let text = "[log]\nsize = \"4 MiB\"\n[buffer]\nsize = \"32 MiB\"\n[cache]\ndevice = \"disk\"\nsize = \"1 MiB\"\n\
                [partition.account]\ndevice = \"disk\"\n";
    std::fs::write(here.join("pointless.toml"), text).unwrap();
    let trace = "entresol-trace 1\npartition p objects 9 blocking-factor 1 locks page\ntype t\nbegin t\nw p 8\n\
                 end transactions 1 references 1\n";
    std::fs::write(here.join("one.trace"), trace).unwrap();
    let gains_nothing = |partition: &str| format!("partition '{partition}': its cache is on its own device 'disk'");
    let lines = [
        ("debit-credit --scale 1 --clients 2 --transactions 50 --data d", "account"),
        ("debit-credit --threads --clients 2 --transactions 50 --data d", "account"),
        ("point-reads --seconds 0.05 --data d", "account"),
        ("synthetic --workload rahm-1991-contention --clients 2 --transactions 20 --data s", "small"),
        ("trace --trace one.trace --data t", "p"),
    ];
    for (line, partition) in lines {
        let output = bench(here, &format!("{line} --config pointless.toml --json"));
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(error.contains(&format!("Warning: {}", gains_nothing(partition))), "{line}: {error}");
        let report: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{line}: {error}"));
        assert!(report["warnings"].to_string().contains(&gains_nothing(partition)), "{line}: {report:#}");
    }
    std::fs::rename(here.join("pointless.toml"), here.join("d/entresol.toml")).unwrap();
    let check = Command::new(env!("CARGO_BIN_EXE_entresol")).current_dir(here).args(["check", "d"]).output().unwrap();
    let error = String::from_utf8_lossy(&check.stderr);
    assert!(check.status.success() && error.contains(&gains_nothing("account")), "{error}");
}

#[test]
fn a_check_says_what_the_opening_decided_about_torn_pages() {
    let directory = workshop();
    let here = directory.path();
    report(here, "debit-credit --config small.toml --scale 1 --clients 2 --transactions 20 --data d");
    let check = Command::new(env!("CARGO_BIN_EXE_entresol")).current_dir(here).args(["check", "d"]).output().unwrap();
    let said = String::from_utf8_lossy(&check.stdout).split_whitespace().collect::<Vec<_>>().join(" ");
    let decided = "pages of 8 KiB on device 'disk': written twice (double-write), since its writes are whole by 512 B";
    assert!(check.status.success() && said.contains(decided), "{said}");
    assert!(here.join("d/double-write").metadata().unwrap().len() > 0);
}

#[test]
fn reports_for_people_fit_the_width() {
    let directory = workshop();
    let lines = [
        "debit-credit --config small.toml --data d --scale 1 --transactions 50 --threads --clients 2",
        "point-reads --config small.toml --data d --seconds 0.05 --buffer 2MiB",
        "recovery --data r --scale 1 --log 1MiB --buffer 32MiB",
        "checkpoints --data c --scale 1 --clients 4 --seconds 0.1 --rounds 1 --bound 1MiB",
        "checkpoints --data c --scale 1 --clients 4 --seconds 0.1 --rounds 1 --bound 1MiB --log toper --strategies calc",
        "update-commit --data u --config small.toml --records 1000 --clients 2 --seconds 0.1 --rounds 1",
    ];
    for line in lines {
        let output = bench(directory.path(), line);
        assert!(output.status.success(), "{line}: {output:?}");
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(text.lines().count() > 6, "{text}");
        for line in text.lines() {
            assert!(line.chars().count() <= 100, "{line}");
        }
    }
}

#[test]
fn wrong_usage_is_told_from_failure() {
    let directory = workshop();
    let lines = [
        "debit-credit --threads --rate 5",
        "debit-credit --threads --hardware rahm-1991",
        "point-reads --outstanding 0",
        "point-reads --buffer lots",
        "recovery --log 0",
        "checkpoints --strategies sharp",
        "update-commit --clients 1,0",
    ];
    for line in lines {
        let output = bench(directory.path(), line);
        assert_eq!(output.status.code(), Some(2), "{line}");
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1, "{line} left something behind");
    }
}

#[test]
fn updates_and_commits_are_held_against_the_device() {
    let directory = workshop();
    let line = "update-commit --config small.toml --records 2000 --clients 1,8 --seconds 0.2 --rounds 2";
    let real = report(directory.path(), line);
    assert_eq!((real["runs"].as_array().unwrap().len(), real["points"].as_array().unwrap().len()), (4, 2));
    let described = report(directory.path(), "update-commit --hardware hdd-7200 --records 500 --clients 1,8");
    for report in [&real, &described] {
        for (index, clients) in [1.0, 8.0].into_iter().enumerate() {
            let of = |name: &str| number(report, &format!("/points/{index}/{name}"));
            assert_eq!(of("clients"), clients);
            for name in ["commits_per_s", "response_us/p99", "cpu", "log_writes_per_s", "device/writes_per_s"] {
                assert!(of(name) > 0.0 || name == "cpu", "{name} in {report:#}");
            }
            assert!(of("log_bytes_per_write") >= 4096.0 && of("write_bytes") % 4096.0 == 0.0);
            assert!(of("response_ratio") > 0.0, "{report:#}");
        }
    }
    // The speed of a shared machine is not asserted.
    let (one, many) = (number(&described, "/points/0/commits_per_s"), number(&described, "/points/1/commits_per_s"));
    assert!(many > 1.5 * one, "commits share log writes: {described:#}");
    assert!(number(&described, "/points/1/group_size_mean") > 1.5, "{described:#}");
    assert!(number(&described, "/points/1/response_ratio") > 0.9, "a commit waits for a durable write: {described:#}");
    assert_eq!((&real["clock"], &described["clock"]), (&Value::from("real"), &Value::from("virtual")));
    // One client alone pays for its write and nothing else that is described.
    assert!((number(&described, "/points/0/response_ratio") - 1.0).abs() < 0.05, "{described:#}");
    let output = bench(directory.path(), "update-commit --config small.toml --records 9 --seconds 0.1");
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && error.contains("2000 records, not 9"), "{error}");
}

#[test]
fn sorts_and_joins_say_what_they_spilled() {
    let directory = workshop();
    let small = "--size 4MiB --memory 128pages --cluster-size 2pages";
    for line in ["sort", "join --method hash", "join --method sort-merge", "sort --hardware nvme-2026"] {
        let report = report(directory.path(), &format!("{line} {small}"));
        let (spilled, writes) = (number(&report, "/spilled_bytes"), number(&report, "/writes"));
        assert!(spilled >= 1.5e6 && writes * 16_384.0 == spilled, "{line}: {report:#}");
        assert!(number(&report, "/reads") >= writes && number(&report, "/passes") >= 1.0, "{line}: {report:#}");
        let rows = number(&report, "/rows");
        let answers = if line.starts_with("join") { (rows / 2.0).floor() } else { rows };
        assert_eq!(number(&report, "/answers"), answers);
        assert!(number(&report, "/ratio") > 0.5 && number(&report, "/first_seconds") < number(&report, "/seconds"));
        assert_eq!(report["cpu_seconds"].is_null(), line.contains("hardware"), "{report:#}");
    }
    let in_memory = report(directory.path(), "sort --rows 1,000");
    assert_eq!((number(&in_memory, "/spilled_bytes"), &in_memory["ratio"]), (0.0, &Value::Null));
    let output = bench(directory.path(), "sort --memory 1MiB");
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && error.contains("too little") && error.contains("cluster_size"), "{error}");
    let output = bench(directory.path(), "sort --cluster-size 100KiB");
    assert!(String::from_utf8_lossy(&output.stderr).contains("a power of two"), "{output:?}");
}

#[test]
fn ycsb_on_both_clocks_counts_its_operations_and_what_it_has_inserted() {
    let directory = workshop();
    for (workload, kinds) in [("a", ["read", "update"]), ("e", ["scan", "insert"])] {
        let line = format!("ycsb --workload {workload} --config small.toml --clients 4 --transactions 400");
        let report = report(directory.path(), &if workload == "a" { format!("{line} --records 500") } else { line });
        assert_eq!(number(&report, "/transactions"), 400.0);
        for (at, kind) in kinds.into_iter().enumerate() {
            assert_eq!(report.pointer(&format!("/types/{at}/name")).and_then(Value::as_str), Some(kind), "{report:#}");
        }
    }
    let described = report(directory.path(), "ycsb --hardware nvme-2026 --records 500 --clients 4 --transactions 100");
    assert_eq!(described["clock"], "virtual");
    let output = bench(directory.path(), "ycsb --config small.toml --records 5,000 --transactions 1");
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(error.contains("records, not 5,000") && error.contains("--records"), "{error}");
    let output = bench(directory.path(), "ycsb --workload g");
    assert!(String::from_utf8_lossy(&output.stderr).contains("a to f"), "{output:?}");
}

#[test]
fn tpcc_on_both_clocks_reports_its_types_and_is_consistent_afterwards() {
    let directory = workshop();
    let line = "tpcc --config small.toml --clients 4 --transactions 400";
    let first = report(directory.path(), &format!("{line} --warehouses 2 --shrink 100"));
    assert_eq!(number(&first, "/transactions"), 400.0);
    let types = first["types"].as_array().expect("types are reported");
    let names: Vec<&str> = types.iter().filter_map(|found| found["name"].as_str()).collect();
    assert_eq!(names, ["new-order", "payment", "order-status", "delivery", "stock-level"]);
    assert!(first["workload"].as_str().is_some_and(|name| name.contains("shrunk")), "{first:#}");
    let notes = first["notes"].to_string();
    assert!(notes.contains("consistency conditions") && notes.contains("New-Orders a minute"), "{notes}");
    report(directory.path(), line);
    let described = report(
        directory.path(),
        "tpcc --hardware nvme-2026 --warehouses 1 --shrink 100 --clients 4 --transactions 200",
    );
    assert_eq!(described["clock"], "virtual");
    let output = bench(directory.path(), &format!("{line} --warehouses 3"));
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(error.contains("2 warehouses, not 3") && error.contains("--warehouses"), "{error}");
}
