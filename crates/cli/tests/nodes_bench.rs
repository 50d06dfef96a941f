//! Money is transferred by nodes in processes of their own, some of which die, as the server does.
#![allow(clippy::disallowed_methods, reason = "tests make and look into directories, and play a server")]

#[path = "ground/bank.rs"]
mod bank;
#[path = "ground/command.rs"]
mod command;
#[path = "ground/processes.rs"]
mod processes;

use bank::{CONFIGURATION, bank, directory, totals};
use command::{printed, refused};
use node::message;
use processes::{Process, serve};
use serde_json::Value;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::Path;
use std::time::Duration;

fn bench(directory: &Path, address: &str, seed: u64, transactions: u64) -> Process {
    let line = format!("bench debit-credit --join {address} --seed {seed} --transactions {transactions} --json");
    Process::start(directory, &line)
}

/// What a bench that has come to its end says of itself.
fn report(process: Process) -> Value {
    let ended = process.end();
    assert_eq!(ended.code, Some(0), "{}", ended.error);
    serde_json::from_str(&ended.output).expect("JSON")
}

fn number(report: &Value, field: &str) -> u64 {
    report[field].as_u64().unwrap_or_else(|| panic!("{field} of {report}"))
}

/// Transactions that were run before those that are measured: a fifth.
fn all(transactions: u64) -> u64 {
    transactions + transactions / 5
}

#[test]
fn two_nodes_transfer_money_and_the_balances_agree() {
    let bank = bank(CONFIGURATION);
    let (server, address) = serve(bank.path(), "127.0.0.1:0");
    let nodes = [1, 2].map(|seed| bench(bank.path(), &address, seed, 100));
    for report in nodes.map(report) {
        assert_eq!((number(&report, "transactions"), number(&report, "unknown")), (100, 0), "{report}");
    }
    server.signal("INT");
    let ended = server.end();
    assert_eq!(ended.code, Some(0), "{}", ended.error);
    assert_eq!(totals(bank.path()).transactions, 1 + 2 * all(100));
    assert!(printed(bank.path(), "check bank").contains("every one as it should be"));
}

#[test]
fn a_node_has_several_clients() {
    let bank = bank(CONFIGURATION);
    let (server, address) = serve(bank.path(), "127.0.0.1:0");
    let line = format!("bench debit-credit --join {address} --clients 8 --transactions 200");
    let nodes = [1, 2].map(|seed| Process::start(bank.path(), &format!("{line} --seed {seed} --json")));
    for report in nodes.map(report) {
        assert_eq!((number(&report, "transactions"), number(&report, "clients")), (200, 8), "{report}");
    }
    let text = printed(bank.path(), &line);
    assert!(text.contains("8 clients, each with one transaction at a time"), "{text}");
    server.signal("INT");
    assert_eq!(server.end().code, Some(0));
    assert_eq!(totals(bank.path()).transactions, 1 + 3 * all(200));
}

#[test]
fn ycsb_runs_through_nodes() {
    let directory = directory(CONFIGURATION);
    let load = "bench ycsb --data bank --records 1,000 --transactions 1 --clients 1 --workload";
    printed(directory.path(), &format!("{load} c"));
    let (server, address) = serve(directory.path(), "127.0.0.1:0");
    for letter in ["a", "b", "c", "d", "e", "f"] {
        let line = format!("bench ycsb --join {address} --clients 4 --transactions 100 --workload {letter} --json");
        let report: Value = serde_json::from_str(&printed(directory.path(), &line)).expect("JSON");
        assert_eq!((number(&report, "transactions"), number(&report, "unknown")), (100, 0), "{report}");
        assert!(
            report["workload"].as_str().is_some_and(|name| name.starts_with(&format!("ycsb {letter} "))),
            "{report}"
        );
    }
    server.signal("INT");
    assert_eq!(server.end().code, Some(0));
    assert!(printed(directory.path(), "check bank").contains("every one as it should be"));
    // Workloads d and e have added records, and left no gap.
    let text = printed(directory.path(), &format!("{load} d"));
    let of_report = text.lines().find_map(|line| line.strip_prefix("ycsb d, ")?.strip_suffix(" records, 1 client"));
    let records: u64 =
        of_report.and_then(|count| count.replace(',', "").parse().ok()).unwrap_or_else(|| panic!("{text}"));
    assert!((1_001..1_050).contains(&records), "{text}");
}

#[test]
fn tpcc_runs_through_nodes_and_is_consistent() {
    let directory = directory(CONFIGURATION);
    let load = "bench tpcc --data bank --shrink 100 --transactions 1 --clients 1";
    printed(directory.path(), load);
    let (server, address) = serve(directory.path(), "127.0.0.1:0");
    let line = format!("bench tpcc --join {address} --clients 4 --transactions 100 --json --seed");
    let nodes = [1, 2].map(|seed| Process::start(directory.path(), &format!("{line} {seed}")));
    for report in nodes.map(report) {
        assert_eq!((number(&report, "transactions"), number(&report, "unknown")), (100, 0), "{report}");
    }
    server.signal("INT");
    assert_eq!(server.end().code, Some(0));
    // It verifies the benchmark's conditions.
    printed(directory.path(), load);
}

#[test]
fn a_node_that_is_killed_leaves_the_others_at_work() {
    let bank = bank(CONFIGURATION);
    let (server, address) = serve(bank.path(), "127.0.0.1:0");
    let victim = bench(bank.path(), &address, 1, 1_000_000);
    let other = bench(bank.path(), &address, 2, 300);
    std::thread::sleep(Duration::from_secs(4));
    victim.kill();
    assert_eq!(number(&report(other), "transactions"), 300);
    server.signal("TERM");
    assert_eq!(server.end().code, Some(0));
    let totals = totals(bank.path());
    assert!(totals.transactions > all(300), "what it has committed is there, whole: {totals:?}");
}

#[test]
fn nodes_go_on_when_the_server_is_killed_and_started_again() {
    let bank = bank(CONFIGURATION);
    let (mut server, address) = serve(bank.path(), "127.0.0.1:0");
    let nodes = [1, 2].map(|seed| bench(bank.path(), &address, seed, 400));
    for _ in 0..2 {
        std::thread::sleep(Duration::from_secs(4));
        server.kill();
        // They find it where it was.
        (server, _) = serve(bank.path(), &address);
    }
    let reports = nodes.map(report);
    let unknown: u64 = reports.iter().map(|report| number(report, "unknown")).sum();
    for report in &reports {
        assert_eq!(number(report, "transactions"), 400, "{report}");
    }
    server.signal("TERM");
    assert_eq!(server.end().code, Some(0));
    let found = totals(bank.path()).transactions;
    let acknowledged = 1 + 2 * all(400);
    assert!((acknowledged..=acknowledged + unknown).contains(&found), "{found}, {acknowledged}, {unknown}");
}

#[test]
fn a_node_waits_for_a_server_that_comes_up_later() {
    let bank = bank(CONFIGURATION);
    // None from which systems connect: a node that tries such a port again and again may reach itself. Nor one that this test of another
    // checkout takes.
    let first = std::process::id() % 12_000;
    let mut free = (first..first + 12_000).map(|number| format!("127.0.0.1:{}", 20_000 + number % 12_000));
    let address = free.find(|address| TcpListener::bind(address).is_ok()).expect("a port is free");
    let node = bench(bank.path(), &address, 1, 10);
    std::thread::sleep(Duration::from_millis(700));
    let (server, _) = serve(bank.path(), &address);
    assert_eq!(number(&report(node), "transactions"), 10);
    server.signal("TERM");
    assert_eq!(server.end().code, Some(0));
}

#[test]
fn nodes_that_do_not_suit_the_server_are_told_why() {
    let bank = bank(CONFIGURATION);
    let (server, address) = serve(bank.path(), "127.0.0.1:0");
    std::fs::write(bank.path().join("other.toml"), "[buffer]\npage_size = \"4 KiB\"").expect("a file");
    let said = refused(bank.path(), &format!("bench debit-credit --join {address} --config other.toml"));
    assert!(said.contains("4096 bytes") && said.contains("8192") && said.contains("page_size"), "{said}");
    server.signal("TERM");
    assert_eq!(server.end().code, Some(0));
}

#[test]
fn partitions_without_pages_are_named() {
    let bank = bank(&format!("{CONFIGURATION}[partition.teller]\norganization = \"set\"\n"));
    let (server, address) = serve(bank.path(), "127.0.0.1:0");
    let said = refused(bank.path(), &format!("bench debit-credit --join {address}"));
    assert!(said.contains("'teller'") && said.contains("set"), "{said}");
    server.signal("TERM");
    assert_eq!(server.end().code, Some(0));
}

#[test]
fn a_server_of_an_older_release_is_named_as_one() {
    let directory = tempfile::tempdir().expect("a directory");
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let address = listener.local_addr().expect("it has one");
    let older = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("it comes");
        let read = stream.read(&mut [0; 1_000]).expect("it says who it is");
        assert!(read > 5);
        stream.write_all(&[2, 0, 0, 0, message::VERSION - 1, 0, 0]).expect("it listens");
    });
    let said = refused(directory.path(), &format!("bench debit-credit --join {address}"));
    assert!(said.contains("run the same release on both"), "{said}");
    older.join().expect("it was asked once");
}

#[test]
fn several_engines_of_one_process_transfer_money() {
    let nodes = "[nodes]\ncount = 2\nbuffer = \"16 MiB\"\n";
    let bank = bank(&format!("{CONFIGURATION}{nodes}"));
    let text = printed(bank.path(), "bench debit-credit --data bank --clients 4 --transactions 100");
    assert!(text.contains("\n2 nodes, cbl; seed 1\n") && text.contains("4 clients, each a task"), "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
    let report: Value = serde_json::from_str(&printed(
        bank.path(),
        "bench debit-credit --data bank --clients 4 --transactions 100 --seed 2 --json",
    ))
    .expect("JSON");
    assert_eq!((number(&report, "transactions"), number(&report, "nodes")), (100, 2), "{report}");
    assert!(report["messages_per_transaction"].as_f64().is_some_and(|messages| messages > 1.0), "{report}");
    // That of the bank's making and its warm-up, on nodes, too.
    assert_eq!(totals(bank.path()).transactions, all(1) + 2 * all(100));
    let said = refused(bank.path(), "bench debit-credit --data bank --rate 100 --transactions 10");
    assert!(said.contains("[nodes]"), "{said}");
    let text = printed(bank.path(), "bench debit-credit --data bank --threads --clients 4 --transactions 100");
    assert!(text.contains("4 clients, each a thread"), "{text}");
    assert_eq!(totals(bank.path()).transactions, all(1) + 3 * all(100));
}

#[test]
fn one_node_beside_its_server_transfers_money() {
    let bank = bank(CONFIGURATION);
    let text = printed(bank.path(), "bench debit-credit --data bank --nodes 1 --clients 4 --transactions 100");
    assert!(text.contains("\n1 node, cbl; seed 1\n") && text.contains("messages"), "{text}");
    assert_eq!(totals(bank.path()).transactions, all(1) + all(100));
    let text = printed(bank.path(), "bench debit-credit --data bank --clients 4 --transactions 100");
    assert!(!text.contains("node"), "one engine has no server: {text}");
    let ended = Process::start(bank.path(), "bench debit-credit --data bank --nodes 65 --transactions 10").end();
    assert_eq!(ended.code, Some(2), "it is a mistake in the arguments");
    assert!(ended.error.contains("1..=64"), "{}", ended.error);
}
