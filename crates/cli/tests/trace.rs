//! Traces and synthetic workloads from the command line to their reports, and what is said of wrong ones.
#![allow(clippy::disallowed_methods, reason = "tests make and look into directories")]

#[path = "ground/command.rs"]
mod command;

use command::{printed, refused};
use serde_json::Value;
use std::fs;
use std::path::Path;

fn json(directory: &Path, line: &str) -> Value {
    let text = printed(directory, &format!("{line} --json"));
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{line}: {error} in {text}"))
}

#[test]
fn a_bank_is_recorded_converted_and_replayed() {
    let directory = tempfile::tempdir().unwrap();
    let here = directory.path();
    let record = "trace record bank.trace debit-credit --hardware rahm-1991 --scale 5 --clients 4 --transactions 300";
    let run = json(here, record);
    let stat = json(here, "trace stat bank.trace");
    let transactions = stat["transactions"].as_u64().unwrap();
    assert_eq!(run["transactions"], 300);
    let windows = run["warm_up"]["windows"].as_u64().unwrap();
    assert_eq!(transactions, 300 + 60 * windows, "the warm-up included: a fifth of the run again and again");
    assert_eq!(stat["references"].as_u64(), Some(4 * transactions));
    assert_eq!(stat["types"][0]["reference_matrix"]["branch"], 0.5);
    printed(here, "trace convert bank.trace bank.txt --text");
    printed(here, "trace convert bank.txt again.trace");
    let bytes = |name: &str| fs::read(here.join(name)).unwrap();
    assert_eq!(bytes("bank.trace"), bytes("again.trace"));
    let shown = printed(here, "trace show bank.trace --transactions 2");
    assert!(bytes("bank.txt").starts_with(shown.split("\nend ").next().unwrap().as_bytes()), "{shown}");
    assert!(shown.contains("\nend transactions 2 references 8"), "{shown}");
    for hardware in [" --hardware rahm-1991", ""] {
        let report = json(here, &format!("bench trace --trace bank.txt --transactions 200{hardware}"));
        assert_eq!(report["transactions"], 200, "{report:#}");
        assert_eq!(report["types"][0]["name"], "transaction");
        assert!(report["hit_ratio"]["branch"].as_f64().unwrap() > 0.5, "{report:#}");
    }
}

#[test]
fn records_of_b_trees_are_recorded_by_their_leaves() {
    let directory = tempfile::tempdir().unwrap();
    let here = directory.path();
    fs::write(here.join("small.toml"), "[log]\nsize = \"4 MiB\"\n[buffer]\nsize = \"32 MiB\"\n").unwrap();
    printed(here, "trace record bank.trace debit-credit --config small.toml --scale 1 --clients 4 --transactions 100");
    let stat = json(here, "trace stat bank.trace");
    let partition = |name: &str| {
        let all = stat["partitions"].as_array().unwrap();
        all.iter().find(|partition| partition["name"] == name).unwrap_or_else(|| panic!("{name} in {stat:#}"))
    };
    let accounts = partition("account");
    assert_eq!((&accounts["blocking_factor"], &accounts["references"]), (&1.into(), &stat["transactions"]));
    assert_eq!(accounts["writes"], accounts["references"]);
    // A hundred transactions draw from far more leaves than the one that holds all ten tellers.
    assert!(accounts["pages"].as_u64() > Some(60) && partition("teller")["pages"] == 1, "{stat:#}");
}

#[test]
fn every_workload_that_can_be_recorded_is_replayed_as_often() {
    let directory = tempfile::tempdir().unwrap();
    let here = directory.path();
    fs::write(here.join("small.toml"), "[log]\nsize = \"16 MiB\"\n[buffer]\nsize = \"32 MiB\"\n").unwrap();
    for (name, line) in [
        ("stream", "page-stream --hardware rahm-1991 --pages 500"),
        ("ycsb", "ycsb --config small.toml --records 1000"),
        ("tpcc", "tpcc --config small.toml --shrink 100"),
    ] {
        printed(here, &format!("trace record {name}.trace {line} --clients 4 --transactions 200"));
        let stat = json(here, &format!("trace stat {name}.trace"));
        let count = |what: &str| stat[what].as_u64().unwrap_or_else(|| panic!("{what} in {stat:#}"));
        assert!(count("transactions") >= 200 && count("references") >= count("transactions"), "{name}: {stat:#}");
        let report = json(here, &format!("bench trace --trace {name}.trace --hardware ideal --transactions 200"));
        assert_eq!(report["transactions"], 200, "{name}");
    }
}

#[test]
fn a_block_trace_is_imported_and_replayed_at_its_own_rates() {
    let directory = tempfile::tempdir().unwrap();
    let here = directory.path();
    let mut lines = String::new();
    for number in 0..400_u64 {
        let kind = if number % 4 == 0 { "Write" } else { "Read" };
        let time = 128_166_372_003_061_629 + number * 200_000;
        lines += &format!("{time},usr,{},{kind},{},4096,100\n", number % 2, (number * 37 % 50) * 4096);
    }
    fs::write(here.join("usr.csv"), lines).unwrap();
    printed(here, "trace import msr-cambridge usr.csv usr.trace");
    let stat = json(here, "trace stat usr.trace");
    assert_eq!((&stat["transactions"], &stat["writes"]), (&Value::from(400), &Value::from(100)));
    let line = "bench trace --trace usr.trace --below-buffer --rate-per-type --hardware rahm-1991";
    let report = json(here, line);
    assert!((report["throughput_per_s"].as_f64().unwrap() - 50.0).abs() < 8.0, "{report:#}");
    // Sixteen pages of memory hit next to nothing of 25 that are read in turn.
    assert!(report["hit_ratio"]["usr-1"].as_f64().unwrap() < 0.1, "{report:#}");
    let said = refused(here, "bench trace --trace usr.trace --rate-per-type erase=1 --hardware rahm-1991");
    assert!(said.contains("no type 'erase'; it has read, write"), "{said}");
}

#[test]
fn a_synthetic_workload_runs_on_both_clocks() {
    let directory = tempfile::tempdir().unwrap();
    let here = directory.path();
    fs::write(here.join("w.toml"), printed(here, "bench synthetic --format")).unwrap();
    fs::write(here.join("small.toml"), "[log]\nsize = \"4 MiB\"\n[buffer]\nsize = \"32 MiB\"\n").unwrap();
    for line in ["--config small.toml --clients 4", "--hardware rahm-1991 --rate 50"] {
        let report = json(here, &format!("bench synthetic --workload w.toml --transactions 200 {line}"));
        let count = |index: usize| report["types"][index]["transactions"].as_u64().unwrap();
        assert_eq!((&report["types"][0]["name"], &report["types"][1]["name"]), (&"browse".into(), &"order".into()));
        assert!(count(0) > 2 * count(1) && count(1) > 10, "{report:#}");
    }
    let report =
        json(here, "bench synthetic --workload rahm-1991-contention --hardware rahm-1991 --transactions 300 --rate 10");
    // 250,000 instructions of 50 MIPS and those of input and output.
    let cpu = report["cpu_us_per_transaction"].as_f64().unwrap();
    assert!((4_500.0..6_500.0).contains(&cpu), "{cpu}");
}

#[test]
fn wrong_files_are_named_with_line_and_what_is_allowed() {
    let directory = tempfile::tempdir().unwrap();
    let here = directory.path();
    let text = "entresol-trace 1\npartition p objects 10 blocking-factor 1 locks page\ntype t\nbegin t\nr p 3\n";
    let whole = format!("{text}end transactions 1 references 1\n");
    fs::write(here.join("good.txt"), &whole).unwrap();
    printed(here, "trace convert good.txt good.trace");
    let binary = fs::read(here.join("good.trace")).unwrap();
    let cases: [(&[u8], &str); 5] = [
        (text.as_bytes(), "bad: line 5: the trace is cut off"),
        (&whole.replace("r p", "r q").into_bytes(), "bad: line 5: there is no partition 'q'; allowed: p"),
        (&whole.replace("p 3", "p three").into_bytes(), "bad: line 5: 'three' is no number"),
        (&binary[..binary.len() - 3], "bad: byte"),
        (b"", "this is no trace"),
    ];
    for (bytes, what) in cases {
        fs::write(here.join("bad"), bytes).unwrap();
        for line in ["trace stat bad", "trace show bad", "trace convert bad out", "bench trace --trace bad"] {
            let said = refused(here, line);
            assert!(said.contains(what), "{line}: {said}");
        }
    }
    let before = fs::read_dir(here).unwrap().count();
    fs::write(here.join("w.toml"), "[partition.p]\nobjects = 10\n[type.t]\nsize = 1\n").unwrap();
    assert!(refused(here, "bench synthetic --workload w.toml").contains("w.toml:3: "));
    for (line, what) in [
        ("trace stat absent", "'absent' cannot be read"),
        ("bench synthetic --workload absent", "'absent' cannot be read"),
        ("trace convert good.txt good.trace", "exists already"),
        ("trace generate rahm-1991 good.trace", "exists already"),
        ("trace record good.trace debit-credit", "exists already"),
        ("trace record new.trace debit-credit --threads", "--threads"),
        ("trace import msr-cambridge good.txt new.trace", "good.txt: line 1: "),
    ] {
        let said = refused(here, line);
        assert!(said.contains(what), "{line}: {said}");
    }
    assert_eq!(fs::read_dir(here).unwrap().count(), before + 1, "nothing but the workload was added");
}

/// A trace in which each transaction reads two of ten objects on two pages.
fn small_trace(directory: &Path, transactions: u64) {
    let mut text = "entresol-trace 1\npartition p objects 10 blocking-factor 5 locks page\ntype t\n".to_owned();
    for number in 0..transactions {
        text += &format!("begin t\nr p {}\nr p {}\n", number % 10, number * 3 % 10);
    }
    text += &format!("end transactions {transactions} references {}\n", 2 * transactions);
    fs::write(directory.join("small.trace"), text).unwrap();
    fs::write(directory.join("small.toml"), "[log]\nsize = \"4 MiB\"\n[buffer]\nsize = \"32 MiB\"\n").unwrap();
}

#[test]
fn a_replay_reports_the_transactions_and_references_of_its_trace() {
    let directory = tempfile::tempdir().unwrap();
    let here = directory.path();
    small_trace(here, 3);
    for hardware in ["--hardware rahm-1991", "--hardware ideal", "--config small.toml"] {
        for (load, transactions) in
            [("", 3), (" --clients 2", 3), (" --clients 9", 3), (" --rate 50", 3), (" --transactions 10", 10)]
        {
            let line = format!("bench trace --trace small.trace {hardware}{load}");
            let report = json(here, &line);
            assert_eq!(report["transactions"], transactions, "{line}: {report:#}");
            assert_eq!(report["types"][0]["transactions"], transactions, "{line}: {report:#}");
            let seen = &report["references"]["p"];
            let count = |what: &str| seen[what].as_u64().unwrap_or_else(|| panic!("{what} in {report:#}"));
            assert_eq!(count("hits") + count("misses"), 2 * transactions, "{line}: {report:#}");
            assert_eq!(count("second_level_hits"), 0, "{line}: {report:#}");
            let ratio = count("hits") as f64 / (2 * transactions) as f64;
            assert_eq!(report["hit_ratio"]["p"].as_f64(), Some(ratio), "{line}: {report:#}");
        }
    }
    let text = printed(here, "bench trace --trace small.trace --hardware ideal");
    let row = text.lines().find(|line| line.starts_with("p ")).unwrap_or_else(|| panic!("{text}"));
    assert_eq!(row.split_whitespace().collect::<Vec<_>>(), ["p", "6", "4", "66.7", "%"], "{text}");
}

#[test]
fn a_warm_up_leaves_something_of_the_trace_to_be_measured() {
    let directory = tempfile::tempdir().unwrap();
    let here = directory.path();
    small_trace(here, 20);
    for warm_up in [20, 21, 4_000] {
        let line = format!("bench trace --trace small.trace --warm-up {warm_up} --hardware ideal");
        let said = refused(here, &line);
        assert!(said.contains(&format!("--warm-up {warm_up}")) && said.contains("20 transactions"), "{said}");
        // With a length of its own the replay begins again behind the last transaction.
        assert_eq!(json(here, &format!("{line} --transactions 7"))["transactions"], 7);
    }
    let report = json(here, "bench trace --trace small.trace --warm-up 19 --hardware ideal");
    assert_eq!(report["transactions"], 1);
}

#[test]
fn block_traces_without_a_request_are_refused_and_a_byte_order_mark_is_passed_over() {
    let directory = tempfile::tempdir().unwrap();
    let here = directory.path();
    let header = "Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime\n";
    for nothing in ["", "\n\r\n", header, &format!("\u{feff}{header}"), "\u{feff}"] {
        fs::write(here.join("none.csv"), nothing).unwrap();
        let said = refused(here, "trace import msr-cambridge none.csv none.trace");
        assert!(said.contains("none.csv") && said.contains("no request"), "{nothing:?}: {said}");
        assert!(!here.join("none.trace").exists());
    }
    let line = "128166372003061629,usr,0,Read,8192,4096,100\n";
    for (number, text) in [format!("\u{feff}{header}{line}"), format!("\u{feff}{line}")].iter().enumerate() {
        fs::write(here.join("marked.csv"), text).unwrap();
        let out = format!("marked-{number}.txt");
        printed(here, &format!("trace import msr-cambridge marked.csv {out} --text"));
        assert_eq!(json(here, &format!("trace stat {out}"))["transactions"], 1);
        let marked = format!("\u{feff}{}", fs::read_to_string(here.join(&out)).unwrap());
        fs::write(here.join("marked.trace"), marked).unwrap();
        assert_eq!(json(here, "trace stat marked.trace")["references"], 1);
    }
}

#[test]
fn nothing_takes_no_time_of_the_cpu() {
    let directory = tempfile::tempdir().unwrap();
    let here = directory.path();
    small_trace(here, 3);
    let text = printed(here, "bench trace --trace small.trace --hardware ideal");
    assert!(!text.contains("-0"), "{text}");
    let report = printed(here, "bench trace --trace small.trace --hardware ideal --json");
    assert!(!report.contains("-0.0"), "{report}");
}

#[test]
fn a_miss_ratio_curve_is_that_of_the_stack_distances() {
    let directory = tempfile::tempdir().unwrap();
    let here = directory.path();
    printed(here, "trace record b.trace debit-credit --hardware rahm-1991 --scale 5 --clients 4 --transactions 300");
    let stat = json(here, "trace stat b.trace");
    let exact = json(here, "trace miss-ratio b.trace --pages-max 100,000");
    assert_eq!(exact["pages"], stat["pages"]);
    assert_eq!(exact["sampled"], 1.0);
    let ratio = |report: &Value, pages: u64| {
        let curve = report["curve"].as_array().unwrap();
        curve.iter().find(|point| point["pages"] == pages).unwrap_or_else(|| panic!("{report:#}"))["miss_ratio"]
            .as_f64()
            .unwrap()
    };
    let of_stat = 1.0 - stat["lru_hit_ratio"]["100"].as_f64().unwrap();
    let (below, above) = (ratio(&exact, 64), ratio(&exact, 128));
    assert!(above <= of_stat + 1e-12 && of_stat <= below + 1e-12, "{above} {of_stat} {below}");
    let sampled = json(here, "trace miss-ratio b.trace --pages-max 100");
    assert!(sampled["sampled"].as_f64().unwrap() < 0.9, "{sampled:#}");
    let text = printed(here, "trace miss-ratio b.trace --report curve");
    assert!(text.contains("buffer") && text.lines().all(|line| line.chars().count() <= 100), "{text}");
    let page = fs::read_to_string(here.join("curve/report.html")).unwrap();
    assert!(page.contains("<svg") && page.contains("miss"), "{page}");
    let said = refused(here, "trace miss-ratio none.trace");
    assert!(said.contains("none.trace"), "{said}");
}

#[test]
fn an_open_database_is_recorded_and_the_trace_is_a_workload() {
    let directory = tempfile::tempdir().unwrap();
    let here = directory.path();
    let text = "[log]\nsize = \"4 MiB\"\n[buffer]\nsize = \"4 MiB\"\n";
    let configuration = entresol::configuration::Configuration::parse(text).unwrap();
    let thread = entresol::DatabaseThread::start(entresol::Opening::new(here.join("data"), configuration)).unwrap();
    let handle = thread.handle();
    let notes = handle.ensure_partition(entresol::PartitionSpec::b_tree("notes")).wait().unwrap();
    let asking = std::thread::spawn({
        let here = here.to_owned();
        move || printed(&here, "trace record app.trace --data data --seconds 2")
    });
    let mut key = 0_u32;
    while !asking.is_finished() {
        handle.put(notes, &(key % 3_000).to_be_bytes(), &[7; 200]).wait().unwrap();
        key += 1;
    }
    let said = asking.join().unwrap();
    assert!(said.contains(" transactions, "), "{said}");
    let stat = json(here, "trace stat app.trace");
    assert!(stat["transactions"].as_u64().unwrap() > 20, "{stat:#}");
    assert_eq!((&stat["partitions"][0]["name"], &stat["types"][0]["name"]), (&"notes".into(), &"transaction".into()));
    let replayed = json(here, "bench trace --trace app.trace --transactions 20 --hardware rahm-1991");
    assert_eq!(replayed["transactions"], 20, "{replayed:#}");
    thread.close().unwrap();
    assert!(refused(here, "trace record other.trace --data data --seconds 1").contains("no program listens"));
    for line in ["trace record other.trace", "trace record other.trace --data data --seconds 1 debit-credit"] {
        assert!(refused(here, line).contains("--data"), "{line}");
    }
}
