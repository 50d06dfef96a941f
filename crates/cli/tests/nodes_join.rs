//! Nodes that stay: they join a server, run transactions until they are asked to end, and outlive others and the server.
#![allow(clippy::disallowed_methods, reason = "tests make directories and certificates")]

#[path = "ground/bank.rs"]
mod bank;
#[path = "ground/certificates.rs"]
mod certificates;
#[path = "ground/command.rs"]
mod command;
#[path = "ground/processes.rs"]
mod processes;

use bank::{CONFIGURATION, bank, totals};
use certificates::{Authority, write};
use processes::{Process, serve};
use serde_json::Value;
use std::path::Path;
use std::time::{Duration, Instant};

/// A node that has joined.
fn stay(directory: &Path, address: &str, more: &str) -> Process {
    let mut node = Process::start(directory, &format!("node --join {address} --json{more}"));
    let said = node.line();
    if said != format!("joined {address}") {
        panic!("it does not join: {said} {}", node.end().error);
    }
    node
}

/// Asks a node to end, and returns what it has done.
fn ended(node: Process, signal: &str) -> Value {
    node.signal(signal);
    let ended = node.end();
    assert_eq!(ended.code, Some(0), "{}", ended.error);
    serde_json::from_str(&ended.output).expect("JSON")
}

fn number(report: &Value, field: &str) -> u64 {
    report[field].as_u64().unwrap_or_else(|| panic!("{field} of {report}"))
}

fn end_server(server: Process) {
    server.signal("TERM");
    let ended = server.end();
    assert_eq!(ended.code, Some(0), "{}", ended.error);
}

#[test]
fn nodes_stay_until_they_are_asked_to_end() {
    let bank = bank(CONFIGURATION);
    let (server, address) = serve(bank.path(), "127.0.0.1:0");
    let idle = stay(bank.path(), &address, "");
    let nodes = [1, 2].map(|seed| stay(bank.path(), &address, &format!(" --load debit-credit --seed {seed}")));
    std::thread::sleep(Duration::from_secs(3));
    let idle = ended(idle, "INT");
    assert_eq!((number(&idle, "transactions"), number(&idle, "rejoined")), (0, 0), "{idle}");
    let mut transactions = 0;
    for (node, signal) in nodes.into_iter().zip(["INT", "TERM"]) {
        let done = ended(node, signal);
        assert_eq!((number(&done, "unknown"), number(&done, "rejoined")), (0, 0), "{done}");
        assert!(number(&done, "transactions") > 0 && number(&done, "copies") > 0, "{done}");
        transactions += number(&done, "transactions");
    }
    end_server(server);
    assert_eq!(totals(bank.path()).transactions, 1 + transactions);
}

#[test]
fn a_node_that_is_killed_leaves_no_lock_and_nothing_half_done() {
    let bank = bank(CONFIGURATION);
    let (server, address) = serve(bank.path(), "127.0.0.1:0");
    let victim = stay(bank.path(), &address, " --load debit-credit --seed 1");
    let other = stay(bank.path(), &address, " --load debit-credit --seed 2");
    std::thread::sleep(Duration::from_secs(2));
    victim.kill();
    // Its locks are gone when its lease is: then one that comes behind it gets them, too, all of one branch.
    let late = stay(bank.path(), &address, " --load debit-credit --seed 3");
    std::thread::sleep(Duration::from_secs(6));
    let [other, late] = [other, late].map(|node| ended(node, "TERM"));
    assert!(number(&late, "transactions") > 0, "{late}");
    assert_eq!((number(&other, "rejoined"), number(&other, "unknown")), (0, 0), "{other}");
    end_server(server);
    let acknowledged = 1 + number(&other, "transactions") + number(&late, "transactions");
    let found = totals(bank.path()).transactions;
    assert!(found >= acknowledged, "{found}, {acknowledged}");
}

/// The server is killed again and again while these nodes work.
fn outlives_its_server(directory: &Path, (mut server, address): (Process, String), again: &dyn Fn() -> Process) {
    let credentials = std::fs::read_to_string(directory.join("credentials")).unwrap_or_default();
    let line = |seed| format!(" --load debit-credit --seed {seed} {credentials}").trim_end().to_owned();
    let nodes = [1, 2].map(|seed| stay(directory, &address, &line(seed)));
    for _ in 0..2 {
        std::thread::sleep(Duration::from_secs(3));
        server.kill();
        server = again();
    }
    std::thread::sleep(Duration::from_secs(5));
    let done = nodes.map(|node| ended(node, "TERM"));
    end_server(server);
    let of_all = |field: &str| done.iter().map(|done| number(done, field)).sum::<u64>();
    for done in &done {
        assert!(number(done, "rejoined") >= 2 && number(done, "transactions") > 0, "{done}");
    }
    let (acknowledged, found) = (1 + of_all("transactions"), totals(directory).transactions);
    assert!((acknowledged..=acknowledged + of_all("unknown")).contains(&found), "{found}, {done:?}");
}

#[test]
fn nodes_outlive_a_server_that_is_killed() {
    let bank = bank(CONFIGURATION);
    let (server, address) = serve(bank.path(), "127.0.0.1:0");
    let again = || serve(bank.path(), &address).0;
    outlives_its_server(bank.path(), (server, address.clone()), &again);
}

#[test]
fn nodes_outlive_a_server_that_is_killed_over_tls() {
    let bank = bank(CONFIGURATION);
    let authority = Authority::named("ours");
    let credentials = authority.issue(bank.path(), &["server", "127.0.0.1"]);
    write(&bank.path().join("credentials"), &authority.issue(bank.path(), &["teller"]));
    write(&bank.path().join("grants.toml"), "[node.teller]\nwrite = [\"*\"]\n");
    let again = |address: &str| {
        let line = format!("node --serve {address} --data bank --grants grants.toml {credentials}");
        let mut server = Process::start(bank.path(), &line);
        let said = server.line();
        let address = said.strip_prefix("serving 'bank' at ").expect("it serves").to_owned();
        (server, address)
    };
    let (server, address) = again("127.0.0.1:0");
    outlives_its_server(bank.path(), (server, address.clone()), &|| again(&address).0);
}

/// A server listens when it has recovered: until then nodes find none there, new ones as well as those that it had, and wait for it.
#[test]
fn nodes_that_join_while_the_server_recovers_wait_for_it() {
    let bank = bank(CONFIGURATION);
    let (server, address) = serve(bank.path(), "127.0.0.1:0");
    let former = stay(bank.path(), &address, " --load debit-credit --seed 1");
    std::thread::sleep(Duration::from_secs(2));
    server.kill();
    let mut server = Process::start(bank.path(), &format!("node --serve {address} --data bank"));
    // However fast it would be: it goes on when the others have sought it for long.
    server.signal("STOP");
    let line = format!("bench debit-credit --join {address} --seed 2 --transactions 10 --json");
    let mut newcomer = Process::start(bank.path(), &line);
    std::thread::sleep(Duration::from_secs(2));
    assert!(newcomer.is_running(), "{}", newcomer.end().error);
    server.signal("CONT");
    assert_eq!(server.line(), format!("serving 'bank' at {address}"));
    let come = newcomer.end();
    assert_eq!(come.code, Some(0), "{}", come.error);
    let come: Value = serde_json::from_str(&come.output).expect("JSON");
    assert_eq!((number(&come, "transactions"), number(&come, "unknown")), (10, 0), "{come}");
    let former = ended(former, "TERM");
    assert!(number(&former, "rejoined") == 1 && number(&former, "transactions") > 0, "{former}");
    end_server(server);
    let (acknowledged, found) = (1 + 12 + number(&former, "transactions"), totals(bank.path()).transactions);
    assert!((acknowledged..=acknowledged + number(&former, "unknown")).contains(&found), "{found}, {former}");
}

#[test]
fn a_node_without_its_server_ends_when_it_is_asked_to() {
    let bank = bank(CONFIGURATION);
    let (server, address) = serve(bank.path(), "127.0.0.1:0");
    let nodes = ["", " --load debit-credit"].map(|more| stay(bank.path(), &address, more));
    std::thread::sleep(Duration::from_secs(1));
    server.kill();
    std::thread::sleep(Duration::from_secs(1));
    for node in nodes {
        let began = Instant::now();
        ended(node, "TERM");
        assert!(began.elapsed() < Duration::from_secs(30), "it is not sought for a minute");
    }
}
