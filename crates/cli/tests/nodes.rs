//! A database and its nodes as processes: `entresol node` and what joins it.
#![allow(clippy::disallowed_methods, reason = "tests make and look into directories, and play strangers")]

#[path = "ground/bank.rs"]
mod bank;
#[path = "ground/command.rs"]
mod command;
#[path = "ground/processes.rs"]
mod processes;
#[path = "ground/stranger.rs"]
mod stranger;

use bank::{CONFIGURATION, totals};
use command::{printed, refused};
use engine::Database;
use entresol::{Opening, PartitionSpec};
use processes::{Process, fed, serve};
use serde_json::Value;
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::time::{Duration, Instant};
use stranger::Targets;

#[test]
fn a_database_is_served_until_its_server_is_asked_to_end() {
    let bank = bank::bank(CONFIGURATION);
    let (server, address) = serve(bank.path(), "127.0.0.1:0");
    TcpStream::connect(&address).expect("it listens");
    // One server has the database, and the address.
    let said = refused(bank.path(), "node --serve 127.0.0.1:0 --data bank");
    assert!(said.contains("bank") && said.contains("open already"), "{said}");
    let said = refused(bank.path(), "check bank");
    assert!(said.contains("open already"), "{said}");
    server.signal("TERM");
    let ended = server.end();
    assert_eq!(ended.code, Some(0), "{}", ended.error);
    assert!(ended.output.contains("commits") && ended.output.lines().all(|line| line.chars().count() <= 100));
    // It was closed: there is nothing to redo, and another may open it.
    assert!(printed(bank.path(), "check bank").contains("every one as it should be"));
    assert!(TcpStream::connect(&address).is_err());
}

#[test]
fn an_address_in_use_and_a_directory_without_a_database_are_named() {
    let bank = bank::bank(CONFIGURATION);
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let address = taken.local_addr().expect("it has one");
    let said = refused(bank.path(), &format!("node --serve {address} --data bank"));
    assert!(said.contains(&address.to_string()) && said.contains("another port"), "{said}");
    // It has let the database go.
    assert!(printed(bank.path(), "check bank").contains("every one as it should be"));
    let said = refused(bank.path(), "node --serve 127.0.0.1:0 --data elsewhere");
    assert!(said.contains("elsewhere"), "{said}");
}

#[test]
fn a_node_whose_own_address_is_in_use_names_it() {
    let bank = bank::bank(CONFIGURATION);
    let (server, address) = serve(bank.path(), "127.0.0.1:0");
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let taken = taken.local_addr().map(|own| (taken, own)).expect("it has one");
    let began = Instant::now();
    for command in ["node", "bench debit-credit"] {
        let said = refused(bank.path(), &format!("{command} --join {address} --listen {}", taken.1));
        assert!(said.contains(&taken.1.to_string()) && said.contains("--listen"), "{said}");
        assert!(!said.contains(&address), "the server is not to blame: {said}");
    }
    assert!(began.elapsed() < Duration::from_secs(30), "it does not wait for what will not come");
    // It has left, if it had come.
    server.signal("TERM");
    assert_eq!(server.end().code, Some(0));
}

#[test]
fn nothing_is_served_off_the_loopback() {
    let bank = bank::bank(CONFIGURATION);
    let process = Process::start(bank.path(), "node --serve 0.0.0.0:0 --data bank");
    let ended = process.end();
    assert_eq!(ended.code, Some(2), "it is a mistake in the arguments");
    assert!(ended.error.contains("without TLS and mutual authentication"), "{}", ended.error);
}

/// What strangers want something of beside the accounts of the bank, which no one has open: a tree and a set.
fn add_targets(directory: &Path) -> Targets {
    let store = Opening::in_directory(directory.join("bank")).expect("it is configured").open_existing();
    let store = store.expect("it is there");
    let add = async |database: &Database| {
        let tree = database.create_partition(PartitionSpec::b_tree("litter")).await?;
        let set = database.create_partition(PartitionSpec::set("bin")).await?;
        Ok(Targets { pages: [database.partition("account")?, tree], set })
    };
    let targets = store.run(add).expect("there is room");
    store.close().expect("it can be closed");
    targets
}

/// How many messages strangers send before it is looked how many were heard.
const ROUND: u64 = 100_000;

/// How many messages a server has heard, from what it says of them.
fn heard_of(known: &Value) -> u64 {
    let kinds = known["received"].as_array().into_iter().flatten();
    kinds.filter_map(|kind| kind["amount"]["messages"].as_u64()).sum()
}

/// A server hears this number of messages of strangers, and it goes on as if nothing had been: no panic, and no more memory than at its beginning but for
/// what its buffer and its clients' places may have. A node transfers money meanwhile, of which nothing is lost.
fn strangers_are_borne(messages: u64) {
    let bank = bank::bank(CONFIGURATION);
    let targets = add_targets(bank.path());
    // With this algorithm locks are of records, too.
    let mut server = Process::start(bank.path(), "node --serve 127.0.0.1:0 --data bank --algorithm ps-aa");
    let line = server.line();
    let address = line.strip_prefix("serving 'bank' at ").unwrap_or_else(|| panic!("it does not serve: {line}"));
    let server_address = address.parse().expect("an address");
    // Its buffer and what else it takes once.
    stranger::harass(server_address, targets, 2_000, 1);
    // A server that was just started grants no write lock, and those that this stranger may have are over then.
    std::thread::sleep(Duration::from_secs(4));
    let mut node = Process::start(bank.path(), &format!("node --join {address} --load debit-credit --json"));
    assert_eq!(node.line(), format!("joined {address}"));
    let (before, began) = (server.resident_kib(), Instant::now());
    let (mut sent, mut most, mut known) = (0, before, Value::Null);
    // After a message that no honest node says the rest of a connection is not heard.
    while heard_of(&known) < messages {
        std::thread::scope(|scope| {
            let harass = |seed: u64| stranger::harass(server_address, targets, ROUND / 2, 7 + sent + seed);
            let strangers: Vec<_> = (0..2).map(|seed| scope.spawn(move || harass(seed))).collect();
            while !strangers.iter().all(|stranger| stranger.is_finished()) {
                std::thread::sleep(Duration::from_millis(50));
                assert!(server.is_running() && node.is_running(), "it has ended");
                most = most.max(server.resident_kib());
            }
        });
        sent += ROUND;
        let (said, error) = fed(bank.path(), &format!("shell --server {address} --json"), "messages\n");
        known = serde_json::from_str(said.trim()).unwrap_or_else(|_| panic!("{said} {error}"));
        assert!(heard_of(&known) > sent / 20, "{known}");
    }
    let (elapsed, heard) = (began.elapsed(), heard_of(&known));
    let kinds = known["received"].as_array().expect("some were heard").len();
    assert!(kinds > 20, "{known}");
    node.signal("TERM");
    let ended = node.end();
    assert_eq!(ended.code, Some(0), "{}", ended.error);
    let done: Value = serde_json::from_str(&ended.output).expect("JSON");
    let number = |field: &str| done[field].as_u64().unwrap_or_else(|| panic!("{field} of {done}"));
    println!(
        "{heard} messages of {kinds} kinds heard, {sent} sent, in {:.1} s: {before} KiB before, {most} KiB at most; a node {} transactions, {}/s",
        elapsed.as_secs_f64(),
        number("transactions"),
        done["throughput_per_s"]
    );
    assert!(most < before + (96 << 10), "{before} KiB before, {most} KiB at most");
    server.signal("TERM");
    let ended = server.end();
    assert_eq!((ended.code, ended.error.as_str()), (Some(0), ""));
    assert!(printed(bank.path(), "check bank").contains("every one as it should be"));
    // It was kept waiting by locks that strangers had, as by those of any other node, and may have lost its place for that.
    assert!(number("transactions") > 0, "{done}");
    let (acknowledged, found) = (1 + number("transactions"), totals(bank.path()).transactions);
    assert!((acknowledged..=acknowledged + number("unknown")).contains(&found), "{found}, {done}");
}

#[test]
fn what_strangers_say_costs_a_server_little() {
    strangers_are_borne(10_000);
}

/// `cargo test --release -p entresol-cli --test nodes -- --ignored --nocapture a_million`
#[test]
#[ignore = "takes minutes"]
fn what_strangers_say_in_a_million_messages_costs_a_server_little() {
    strangers_are_borne(1_000_000);
}
