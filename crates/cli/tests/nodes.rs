//! A database and its nodes as processes: `entresol node` and what joins it.
#![allow(clippy::disallowed_methods, reason = "tests make and look into directories, and play strangers")]

#[path = "ground/command.rs"]
mod command;
#[path = "ground/processes.rs"]
mod processes;
#[path = "ground/stranger.rs"]
mod stranger;

use command::{printed, refused};
use processes::{Process, serve};
use std::net::{TcpListener, TcpStream};
use tempfile::TempDir;

/// A directory with a small bank in `bank`.
fn bank() -> TempDir {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    let text = "[log]\nsize = \"16 MiB\"\n[buffer]\nsize = \"32 MiB\"\n[driver]\nbackend = \"thread-pool\"\n";
    std::fs::create_dir(directory.path().join("bank")).expect("a directory");
    std::fs::write(directory.path().join("bank/entresol.toml"), text).expect("a file");
    printed(directory.path(), "bench debit-credit --data bank --scale 1 --transactions 1 --clients 1 --json");
    directory
}

#[test]
fn a_database_is_served_until_its_server_is_asked_to_end() {
    let bank = bank();
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
    let bank = bank();
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
fn nothing_is_served_off_the_loopback() {
    let bank = bank();
    let process = Process::start(bank.path(), "node --serve 0.0.0.0:0 --data bank");
    let ended = process.end();
    assert_eq!(ended.code, Some(2), "it is a mistake in the arguments");
    assert!(ended.error.contains("without TLS and mutual authentication"), "{}", ended.error);
}

/// A stranger says all this to a server, and it goes on as if nothing had been: no panic, and no more memory than at its beginning but
/// for what its buffer and its clients' places may have.
fn strangers_are_borne(messages: u64) {
    let bank = bank();
    let (mut server, address) = serve(bank.path(), "127.0.0.1:0");
    let address = address.parse().expect("an address");
    // Its buffer and what else it takes once.
    stranger::harass(address, 2_000, 1);
    let before = server.resident_kib();
    let most = std::thread::scope(|scope| {
        let strangers: Vec<_> =
            (0..2).map(|seed| scope.spawn(move || stranger::harass(address, messages / 2, 7 + seed))).collect();
        let mut most = before;
        while !strangers.iter().all(|stranger| stranger.is_finished()) {
            std::thread::sleep(std::time::Duration::from_millis(50));
            assert!(server.is_running(), "it has ended");
            most = most.max(server.resident_kib());
        }
        most
    });
    println!("{messages} messages: {before} KiB before, {most} KiB at most");
    assert!(most < before + (96 << 10), "{before} KiB before, {most} KiB at most");
    server.signal("TERM");
    let ended = server.end();
    assert_eq!((ended.code, ended.error.as_str()), (Some(0), ""));
    assert!(printed(bank.path(), "check bank").contains("every one as it should be"));
}

#[test]
fn what_strangers_say_costs_a_server_little() {
    strangers_are_borne(20_000);
}

/// `cargo test --release -p entresol-cli --test nodes -- --ignored --nocapture a_million`
#[test]
#[ignore = "takes minutes"]
fn what_strangers_say_in_a_million_messages_costs_a_server_little() {
    strangers_are_borne(1_000_000);
}
