//! A workload on both clocks, side by side.
#![allow(clippy::disallowed_methods, reason = "tests make and look into directories")]

use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output};

/// A fresh directory with a small configuration and a small machine.
fn workshop() -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(directory.path().join(name), text).unwrap();
    write("small.toml", "[log]\nsize = \"4 MiB\"\n[buffer]\nsize = \"4 MiB\"");
    write(
        "here.toml",
        "[cpu]\ncount = 1\nmips = 1_000\ndiscipline = \"run-until-wait\"\n[cpu.instructions]\nbegin_transaction = 500\n\
         object_reference = 500\nend_transaction = 500\ninput_output = 2_000\nnvem_access = 300\n\
         network_message = 3_000\nwake_up = 5_000\n[network.loopback]\nlatency = \"8 us\"\n[device.disk]\nwrite_cache = \"volatile\"\nmedium = { servers = 8, service = \"100 us\" }",
    );
    write("virtual.toml", "hardware = \"nvme-2026\"");
    directory
}

fn predict(directory: &Path, line: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_entresol"));
    command.current_dir(directory).arg("predict").args(line.split(' ')).output().expect("the program starts")
}

fn comparison(directory: &Path, line: &str) -> Value {
    let output = predict(directory, &format!("{line} --json"));
    assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("a comparison")
}

/// What a run on described hardware says.
fn described(directory: &Path, line: &str) -> Value {
    let line = format!("{line} --data none --config small.toml --hardware here.toml --json");
    let mut command = Command::new(env!("CARGO_BIN_EXE_entresol"));
    let output =
        command.current_dir(directory).arg("bench").args(line.split(' ')).output().expect("the program starts");
    assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("a report")
}

fn figure<'a>(comparison: &'a Value, key: &str) -> &'a Value {
    let figure = &comparison["figures"][key];
    assert!(figure.is_object(), "{key} in {:#}", comparison["figures"]);
    figure
}

const BOTH: &str = "--config small.toml --hardware here.toml --rounds 2";

#[test]
fn a_prediction_stands_beside_the_runs_that_it_is_of() {
    let directory = workshop();
    let line = format!("debit-credit {BOTH} --scale 2 --clients 4 --transactions 2000 --report report");
    let found = comparison(directory.path(), &line);
    assert_eq!(found["rounds"], 2);
    let reports = found["real"].as_array().unwrap();
    assert!(reports.iter().all(|report| report["clock"] == "real") && found["predicted"]["clock"] == "virtual");
    let rate = figure(&found, "throughput_per_s");
    let seen: Vec<f64> = reports.iter().map(|report| report["throughput_per_s"].as_f64().unwrap()).collect();
    assert_eq!(rate["real"], serde_json::json!(seen));
    let (median, predicted) = (rate["median"].as_f64().unwrap(), rate["predicted"].as_f64().unwrap());
    assert!((median - (seen[0] + seen[1]) / 2.0).abs() < 1e-6 * median);
    assert!((rate["error"].as_f64().unwrap() - (predicted / median - 1.0)).abs() < 1e-9);
    // What the engine does is the same on both clocks: only times are predicted.
    for (key, most) in [("hit_ratio.account", 0.08), ("io.disk.reads", 0.35), ("log_bytes_per_transaction", 1.0)] {
        let error = figure(&found, key)["error"].as_f64().unwrap();
        assert!(error.abs() < most, "{key}: {:#}", found["figures"]);
    }
    for key in [
        "response_us.mean",
        "response_us.p99",
        "composition_us.commit_wait",
        "under_way.disk",
        "utilization.disk.medium",
        "cpus_busy",
    ] {
        assert!(figure(&found, key)["predicted"].as_f64().unwrap() > 0.0, "{key}");
    }
    let looks = found["probes"][0]["looks"].as_array().unwrap();
    assert_eq!((looks.len(), &found["probes"][0]["device"]), (3, &"disk".into()), "before, between and behind");
    assert!(looks.iter().all(|look| look["durable_write_us"].as_f64().unwrap() > 0.0));
    let shares = found["distribution_us"]["shares"].as_array().unwrap().len();
    assert_eq!(found["distribution_us"]["real"][1].as_array().unwrap().len(), shares);
    let page = std::fs::read_to_string(directory.path().join("report/report.html")).unwrap();
    assert!(page.contains("<svg") && page.contains("predicted, and run 1") && page.contains("run 2"));
    assert!(!directory.path().join("debit-credit.data/entresol-predict.probe").exists(), "the probe is gone");
}

#[test]
fn what_a_cache_brings_is_predicted() {
    let directory = workshop();
    let text = "[log]\nsize = \"4 MiB\"\n[buffer]\nsize = \"1 MiB\"\n[cache]\ndevice = \"disk\"\nsize = \"8 MiB\"\n";
    std::fs::write(directory.path().join("cache.toml"), text).unwrap();
    let line =
        "debit-credit --config cache.toml --hardware here.toml --rounds 1 --scale 2 --clients 4 --transactions 1000";
    let found = comparison(directory.path(), line);
    assert!(figure(&found, "tier.cache.written_bytes")["predicted"].as_f64().unwrap() > 0.0);
    assert!(figure(&found, "tier.cache.saved_us")["predicted"].is_number(), "{:#}", found["figures"]);
}

/// Of what server and nodes say to each other.
const SAID: [&str; 4] =
    ["messages_per_transaction", "bytes_per_transaction", "pages_per_transaction", "log_bytes_per_transaction"];

#[test]
fn a_server_and_two_nodes_are_predicted() {
    let directory = workshop();
    let line = "page-server --scale 1 --nodes 2 --clients 2 --transactions 200";
    let found = comparison(directory.path(), &format!("{line} {BOTH} --report report"));
    assert_eq!(found["predicted"], described(directory.path(), line), "a described run is the same each time");
    let reports = found["real"].as_array().unwrap();
    assert!(reports.iter().all(|report| report["clock"] == "real") && found["predicted"]["clock"] == "virtual");
    for report in reports.iter().chain([&found["predicted"]]) {
        assert_eq!(
            (&report["transactions"], &report["unknown"], &report["nodes"]),
            (&200.into(), &0.into(), &2.into())
        );
    }
    // How often nodes are in each other's way is what this machine makes of it, which may have other things to do.
    for key in SAID {
        let figure = figure(&found, key);
        assert!(figure["predicted"].as_f64().unwrap() > 0.0, "{key}");
        assert_eq!(figure["predicted"], found["predicted"][key], "{key}");
        let seen: Vec<f64> = reports.iter().map(|report| report[key].as_f64().unwrap()).collect();
        assert!(seen.iter().all(|value| *value > 0.0) && figure["real"] == serde_json::json!(seen), "{key}: {seen:?}");
        let (median, error) = (figure["median"].as_f64().unwrap(), figure["error"].as_f64().unwrap());
        assert!((median - (seen[0] + seen[1]) / 2.0).abs() < 1e-6 * median, "{key}: {figure}");
        assert!((error - (figure["predicted"].as_f64().unwrap() / median - 1.0)).abs() < 1e-9, "{key}: {figure}");
    }
    for key in ["throughput_per_s", "response_us.p99", "cpu_us_per_transaction", "server_cpu_us_per_transaction"] {
        assert!(figure(&found, key)["predicted"].as_f64().unwrap() > 0.0, "{key}");
    }
    // The parts of a response are the whole of it, on either clock.
    for report in reports.iter().chain([&found["predicted"]]) {
        let of = |part: &Value| part.as_object().unwrap().values().map(|value| value.as_f64().unwrap()).sum::<f64>();
        let (parts, mean) = (of(&report["composition_us"]), report["response_us"]["mean"].as_f64().unwrap());
        assert!((parts / mean - 1.0).abs() < 0.01, "{report:#}");
        assert!(report["composition_us"]["commit_wait"].as_f64().unwrap() > 0.05 * mean, "{report:#}");
        let hits = report["node_hit_ratio"].as_f64().unwrap();
        assert!(hits > 0.1 && hits < 1.0, "some pages are there, and none was at first: {report:#}");
    }
    for key in ["composition_us.commit_wait", "composition_us.read_wait", "node_hit_ratio"] {
        assert!(figure(&found, key)["predicted"].as_f64().unwrap() > 0.0, "{key}");
    }
    let run = |seed| described(directory.path(), &format!("page-server --scale 1 --transactions 100 --seed {seed}"));
    assert!(run(1) == run(1) && run(1) != run(2));
    let page = std::fs::read_to_string(directory.path().join("report/report.html")).unwrap();
    assert!(page.contains("<svg") && page.contains("callbacks"), "{page}");
}

#[test]
fn what_the_cache_of_a_server_brings_is_in_its_report() {
    let directory = workshop();
    let text = "[log]\nsize = \"4 MiB\"\n[buffer]\nsize = \"1 MiB\"\n[nodes]\nbuffer = \"1 MiB\"\n\
                [cache]\ndevice = \"disk\"\nsize = \"8 MiB\"\n";
    std::fs::write(directory.path().join("small.toml"), text).unwrap();
    let report = described(directory.path(), "page-server --scale 2 --nodes 1 --clients 2 --transactions 400");
    let [cache] = &report["tiers"].as_array().expect("a list")[..] else { panic!("one tier: {:#}", report["tiers"]) };
    assert_eq!(cache["name"], "cache");
    for key in ["reads", "bytes_written", "written_over_per_day", "reads_per_transaction"] {
        assert!(cache[key].as_f64().unwrap() > 0.0, "{key}: {cache:#}");
    }
    assert!(cache["saved_ms"].is_number(), "{cache:#}");
}

/// What server and nodes say to each other is the same code on both clocks: only times are predicted. A node alone is in no other's way,
/// however busy the machine is.
#[test]
fn what_a_node_and_its_server_say_is_predicted() {
    let directory = workshop();
    let line = format!("page-server {BOTH} --scale 1 --nodes 1 --clients 1 --transactions 400");
    let found = comparison(directory.path(), &line);
    for key in SAID {
        let error = figure(&found, key)["error"].as_f64().unwrap();
        assert!(error.abs() < 0.1, "{key}: {:#}", found["figures"]);
    }
}

#[test]
fn nodes_need_a_network_and_run_warm() {
    let directory = workshop();
    let described = std::fs::read_to_string(directory.path().join("here.toml")).unwrap();
    let alone = described.replace("[network.loopback]\nlatency = \"8 us\"\n", "");
    std::fs::write(directory.path().join("alone.toml"), alone).unwrap();
    let refused = |line: &str| {
        let output = predict(directory.path(), line);
        assert!(!output.status.success() && output.stdout.is_empty(), "{line}");
        String::from_utf8(output.stderr).unwrap()
    };
    let said = refused("page-server --config small.toml --hardware alone.toml --scale 1");
    assert!(said.contains("no network 'loopback'") && said.contains("entresol calibrate"), "{said}");
    let said = refused("page-server --config small.toml --hardware here.toml --cold");
    assert!(said.contains("--cold"), "{said}");
    assert!(!directory.path().join("page-server.data").exists(), "nothing has begun");
}

#[test]
fn the_table_is_narrow_and_has_its_errors() {
    let directory = workshop();
    let output = predict(directory.path(), &format!("ycsb {BOTH} --records 2000 --clients 4 --transactions 500"));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
    for word in ["throughput", "response, 99 %", "of the mean", "points", "disk: durable write", "2 runs, medians"] {
        assert!(text.contains(word), "{word} in {text}");
    }
}

#[test]
fn everything_that_runs_on_either_clock_is_predicted() {
    let directory = workshop();
    std::fs::write(
        directory.path().join("sets.toml"),
        "[log]\nsize = \"4 MiB\"\n[buffer]\nsize = \"16 MiB\"\n[cache]\ndevice = \"disk\"\nsize = \"8 MiB\"\n",
    )
    .unwrap();
    let mut trace = "entresol-trace 1\npartition p objects 1000 blocking-factor 5 locks page\ntype t\n".to_owned();
    (0..400).for_each(|number| trace += &format!("begin t\nw p {}\n", number * 7 % 1_000));
    std::fs::write(directory.path().join("small.trace"), trace + "end transactions 400 references 400\n").unwrap();
    for line in [
        "credit-card --scale 800 --clients 4 --transactions 500",
        "page-stream --pages 2000 --clients 4 --transactions 500",
        "synthetic --workload rahm-1991-contention --clients 4 --transactions 100",
        "tpcc --shrink 100 --clients 4 --transactions 300",
        "trace --trace small.trace --clients 4 --transactions 300",
    ] {
        let line = format!("{line} --config sets.toml --hardware here.toml --rounds 1");
        let found = comparison(directory.path(), &line);
        assert!(figure(&found, "throughput_per_s")["predicted"].as_f64().unwrap() > 0.0, "{line}");
    }
    for line in
        ["sort --size 8MiB --memory 2MiB --cluster-size 32KiB", "join --size 8MiB --memory 2MiB --cluster-size 32KiB"]
    {
        let found = comparison(directory.path(), &format!("{line} {BOTH}"));
        for key in ["clusters_written", "spilled_bytes", "passes"] {
            assert_eq!(figure(&found, key)["error"], 0.0, "{line}: {key} follows from the rows");
        }
        assert!(figure(&found, "time_us")["predicted"].as_f64().unwrap() > 0.0, "{line}");
        let shares = found["distribution_us"]["shares"].as_array().unwrap().len();
        let real = found["distribution_us"]["real"].as_array().unwrap();
        for times in real.iter().chain([&found["distribution_us"]["predicted"]]) {
            let times: Vec<f64> = times.as_array().unwrap().iter().map(|us| us.as_f64().unwrap()).collect();
            assert!(times.len() == shares && times.is_sorted() && times[0] < times[shares - 1], "{line}: {times:?}");
        }
        let [half, most] = ["rows_us.p50", "rows_us.p99"].map(|key| figure(&found, key)["predicted"].as_f64().unwrap());
        assert!(0.0 < half && half < most, "{line}: {half} {most}");
    }
}

#[test]
fn placements_checkpoints_and_a_database_that_is_there_are_predicted() {
    let directory = workshop();
    let write = |name: &str, text: &str| std::fs::write(directory.path().join(name), text).unwrap();
    let described = std::fs::read_to_string(directory.path().join("here.toml")).unwrap();
    let second = "\n[device.fast]\nwrite_cache = \"volatile\"\nmedium = { servers = 8, service = \"20 us\" }\n";
    write("two.toml", &(described + second));
    write(
        "placed.toml",
        "[log]\nsize = \"4 MiB\"\ndevice = \"fast\"\n[undo]\ndevice = \"fast\"\n[temp]\ndevice = \"fast\"\n[buffer]\nsize = \"4 MiB\"\n\
         [checkpoint]\ninterval = \"20 ms\"\n[device.fast]\npath = \"fast\"\n",
    );
    let line =
        "debit-credit --config placed.toml --hardware two.toml --rounds 1 --scale 2 --clients 4 --transactions 2000";
    let found = comparison(directory.path(), line);
    for key in ["io.fast.writes", "utilization.fast.medium"] {
        assert!(figure(&found, key)["predicted"].as_f64().unwrap() > 0.0, "{key}: {:#}", found["figures"]);
    }
    // Sweeps over sets, one behind the other, and none. The log is elsewhere, and never so full that it needs a sweep.
    let swept = "[log]\nsize = \"64 MiB\"\ndevice = \"fast\"\n[undo]\ndevice = \"fast\"\n[temp]\ndevice = \"fast\"\n[buffer]\nsize = \"32 MiB\"\n\
                 [device.fast]\npath = \"fast\"\n[checkpoint]\nsets = \"accou\"\nsweep_interval = \"0 s\"\n\
                 [partition.account]\norganization = \"set\"\n[partition.branch]\norganization = \"set\"\n\
                 [partition.teller]\norganization = \"set\"\n[partition.history]\norganization = \"arrivals\"\nlocks = \"none\"\n";
    let [swept, unswept] = [("swept", "\"0 s\""), ("unswept", "\"off\"")].map(|(name, interval)| {
        let text = swept.replace("\"0 s\"", interval).replace("path = \"fast\"", &format!("path = \"{name}.fast\""));
        write(&format!("{name}.toml"), &text);
        let line = format!(
            "debit-credit --config {name}.toml --data {name}.data --hardware two.toml --rounds 1 --scale 1 --clients 4 --transactions 2000"
        );
        figure(&comparison(directory.path(), &line), "io.disk.writes").clone()
    });
    for clock in ["median", "predicted"] {
        assert!(swept[clock].as_f64() > unswept[clock].as_f64(), "{clock}: {swept} {unswept}");
    }
    let found = comparison(directory.path(), &format!("{line} --like debit-credit.data"));
    assert!(figure(&found, "throughput_per_s")["predicted"].as_f64().unwrap() > 0.0);
}

#[test]
fn what_cannot_run_on_both_clocks_is_refused_before_anything_runs() {
    let directory = workshop();
    let refused = |line: &str| {
        let output = predict(directory.path(), line);
        assert!(!output.status.success(), "{line} succeeded");
        assert!(!directory.path().join("debit-credit.data").exists(), "{line} has begun");
        String::from_utf8(output.stderr).unwrap()
    };
    assert!(refused("debit-credit --config small.toml").contains("entresol calibrate"));
    let twice = refused("debit-credit --config virtual.toml --hardware here.toml");
    assert!(twice.contains("'virtual.toml' names hardware"), "{twice}");
    assert!(refused("debit-credit --hardware rahm-1991").contains("--config"));
    assert!(refused("debit-credit --hardware nowhere.toml").contains("nowhere.toml"));
}

#[test]
fn what_memory_stands_for_is_predicted_to_lose_its_contents_as_it_does_here() {
    let (directory, memory) = (workshop(), tempfile::tempdir_in("/dev/shm").unwrap());
    let text = format!(
        "[device.nvem]\npath = {:?}\nkind = \"mapped\"\ndescribed = \"rahm-1991:nvem\"\n[log]\nsize = \"4 MiB\"\n[buffer]\n\
         size = \"4 MiB\"\n[cache]\ndevice = \"nvem\"\nsize = \"4 MiB\"\ndesign = \"lazy-cleaning\"\n",
        memory.path().join("nvem")
    );
    std::fs::write(directory.path().join("cached.toml"), text).unwrap();
    let line =
        "debit-credit --config cached.toml --hardware here.toml --rounds 1 --scale 2 --clients 4 --transactions 1000";
    let found = comparison(directory.path(), line);
    for report in [&found["real"][0], &found["predicted"]] {
        assert_eq!(report["tiers"][0]["volatile"], true, "{:#}", report["tiers"]);
    }
}
