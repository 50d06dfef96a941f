//! The state in which a run on described hardware begins: steady, cold, or that of an existing database.
#![allow(clippy::disallowed_methods, reason = "tests make and look into directories")]

use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Output};

/// A fresh directory with a small configuration and a small machine.
fn workshop() -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(directory.path().join(name), text).unwrap();
    write("small.toml", "[log]\nsize = \"4 MiB\"\n[buffer]\nsize = \"4 MiB\"");
    write(
        "here.toml",
        "[cpu]\ncount = 1\nmips = 1_000\n[cpu.instructions]\nbegin_transaction = 2_000\nobject_reference = 2_000\n\
         end_transaction = 2_000\ninput_output = 4_000\nnvem_access = 300\n\
         [device.disk]\nmedium = { servers = 8, service = \"100 us\" }",
    );
    directory
}

fn bench(directory: &Path, line: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_entresol"));
    command.current_dir(directory).arg("bench").args(line.split(' ')).output().expect("the program starts")
}

fn report(directory: &Path, line: &str) -> Value {
    let output = bench(directory, &format!("{line} --json"));
    assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("a report")
}

fn failure(directory: &Path, line: &str) -> String {
    let output = bench(directory, line);
    assert!(!output.status.success(), "{line} succeeded");
    String::from_utf8(output.stderr).expect("text")
}

fn number(report: &Value, pointer: &str) -> f64 {
    report.pointer(pointer).and_then(Value::as_f64).unwrap_or_else(|| panic!("{pointer} in {report:#}"))
}

const RUN: &str = "debit-credit --config small.toml --hardware here.toml --scale 1 --clients 8";

#[test]
fn a_described_machine_is_measured_in_its_steady_state_unless_it_begins_cold() {
    let directory = workshop();
    let warm = report(directory.path(), &format!("{RUN} --transactions 600"));
    assert_eq!(warm["warm_up"]["is_steady"], true, "{warm:#}");
    assert!(number(&warm, "/warm_up/windows") >= 2.0);
    let cold = report(directory.path(), &format!("{RUN} --transactions 600 --cold"));
    assert!(cold.get("warm_up").is_none(), "{cold:#}");
    let later = report(directory.path(), &format!("{RUN} --transactions 600 --seed 2"));
    let [warm, cold, later] = [&warm, &cold, &later].map(|report| number(report, "/hit_ratio/account"));
    assert!(cold < warm - 0.1, "cold {cold}, warm {warm}");
    assert!((later - warm).abs() < 0.08, "it is steady: {warm}, {later}");
}

#[test]
fn new_pages_of_the_history_are_not_read_on_a_machine_like_this_one() {
    let directory = workshop();
    let file = directory.path().join("here.toml");
    let described = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, described.replace("mips = 1_000", "mips = 1_000\ndiscipline = \"run-until-wait\"")).unwrap();
    std::fs::write(directory.path().join("small.toml"), "[log]\nsize = \"16 MiB\"\n[buffer]\nsize = \"64 MiB\"")
        .unwrap();
    let report = report(directory.path(), &format!("{RUN} --transactions 3000"));
    assert_eq!(number(&report, "/io_per_transaction/disk/reads"), 0.0, "{report:#}");
}

fn contents(directory: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap());
    entries.map(|entry| (entry.file_name().into_string().unwrap(), std::fs::read(entry.path()).unwrap())).collect()
}

#[test]
fn a_database_runs_on_described_hardware_as_it_is() {
    let directory = workshop();
    let real = "debit-credit --config small.toml --data real --scale 2 --clients 4";
    report(directory.path(), &format!("{real} --transactions 2000"));
    let like = "debit-credit --config small.toml --hardware here.toml --like real --clients 4";
    let found = report(directory.path(), &format!("{like} --transactions 500"));
    assert!(found["workload"].as_str().unwrap().contains("scale 2"), "{found:#}");
    assert_eq!(found["clock"], "virtual");
    assert_eq!(number(&found, "/transactions"), 500.0);
    // The real run's buffer of 4 MiB holds as much of the same 24 MiB.
    let again = report(directory.path(), &format!("{real} --transactions 4000"));
    let [found, again] = [&found, &again].map(|report| number(report, "/hit_ratio/account"));
    assert!((found - again).abs() < 0.05, "virtual {found}, real {again}");
    // From its first transaction on, that has what was in memory at the end of the real run, and without the note of it nothing.
    let course = |data: &str| {
        let like = format!("debit-credit --config small.toml --hardware here.toml --like {data} --clients 4");
        number(&report(directory.path(), &format!("{like} --seconds 0.02 --course 0.01")), "/hit_ratio/account")
    };
    let noted = course("real");
    for (name, bytes) in contents(&directory.path().join("real")) {
        if name != "resident.pages" {
            std::fs::create_dir_all(directory.path().join("bare")).unwrap();
            std::fs::write(directory.path().join("bare").join(name), bytes).unwrap();
        }
    }
    let bare = course("bare");
    assert!(noted > bare + 0.04, "with what was in memory {noted}, without {bare}");
    let before = contents(&directory.path().join("real"));
    report(directory.path(), &format!("{like} --transactions 100"));
    assert!(before == contents(&directory.path().join("real")), "the copy has not touched it");
}

#[test]
fn what_cannot_be_copied_is_named() {
    let directory = workshop();
    let run = |more: &str| format!("debit-credit --config small.toml --transactions 100 {more}");
    assert!(
        failure(directory.path(), &run("--like nothing --hardware here.toml")).contains("'nothing' is no database")
    );
    assert!(failure(directory.path(), &run("--like nothing")).contains("--hardware"));
    report(directory.path(), &run("--data real --scale 1"));
    let other = failure(directory.path(), &run("--like real --hardware nvme-2026"));
    assert!(other.contains("no device 'disk'") && other.contains("nvme"), "{other}");
}
