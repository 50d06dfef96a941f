//! `entresol shell --server`: what a server shows of its nodes.
#![allow(clippy::disallowed_methods, reason = "tests make directories")]

#[path = "ground/bank.rs"]
mod bank;
#[path = "ground/command.rs"]
mod command;
#[path = "ground/processes.rs"]
mod processes;

use bank::{CONFIGURATION, bank};
use processes::{Process, fed, serve};
use serde_json::Value;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

const QUESTIONS: &str = "nodes\ncopies\ncallbacks\nmessages\nholders branch 0\n";

/// The answers in JSON.
fn seen(directory: &std::path::Path, address: &str) -> Vec<Value> {
    let (shown, mistakes) = fed(directory, &format!("shell --server {address} --json"), QUESTIONS);
    assert_eq!(mistakes, "");
    shown.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

fn list(value: &Value) -> &Vec<Value> {
    value.as_array().unwrap_or_else(|| panic!("a list: {value}"))
}

fn amount(of: &Value, kind: &str) -> u64 {
    let found = list(of).iter().find(|entry| entry["kind"] == kind);
    found.map_or(0, |entry| entry["amount"]["messages"].as_u64().expect("a number"))
}

#[test]
fn a_shell_shows_nodes_copies_callbacks_and_messages_of_a_server() {
    let bank = bank(CONFIGURATION);
    let (server, address) = serve(bank.path(), "127.0.0.1:0");
    let mut nodes = [1, 2].map(|seed| {
        let line = format!("node --join {address} --load debit-credit --seed {seed} --json");
        Process::start(bank.path(), &line)
    });
    nodes.iter_mut().for_each(|node| assert_eq!(node.line(), format!("joined {address}")));
    // Both want the one branch all the time. It is looked until a callback is under way.
    let began = Instant::now();
    let mut callback = None;
    let mut last = Vec::new();
    while callback.is_none() && began.elapsed() < Duration::from_secs(60) {
        last = seen(bank.path(), &address);
        callback = list(&last[2]).first().cloned();
    }
    let callback = callback.expect("nodes that write the same pages call copies back");
    assert!(callback["age_ns"].as_u64().is_some_and(|age| age < 60_000_000_000), "{callback}");
    assert_ne!(callback["holder"], callback["writer"], "{callback}");
    let [joined, held, _, messages, page] = &last[..] else { panic!("{last:?}") };
    assert_eq!(list(joined).len(), 2, "who looks is no node: {joined}");
    for node in list(joined) {
        let lease = node["lease_left_ns"].as_u64().expect("it has one");
        assert!(lease > 0 && lease <= 2_500_000_000, "{node}");
        assert!(node["joined_ns"].as_u64().is_some_and(|ns| ns > 0), "{node}");
        assert!(node["address"].as_str().is_some_and(|address| address.starts_with("127.0.0.1:")), "{node}");
    }
    let mut copies: BTreeMap<String, u64> = BTreeMap::new();
    for entry in list(held) {
        *copies.entry(entry["partition"].as_str().expect("a name").to_owned()).or_default() +=
            entry["copies"].as_u64().expect("a number");
    }
    assert!(copies["account"] > copies["branch"] && copies["branch"] > 0, "{copies:?}");
    let (received, sent) = (&messages["received"], &messages["sent"]);
    assert!(amount(received, "commit") > 0 && amount(sent, "committed") > 0, "{messages}");
    assert!(amount(sent, "call back") > 0 && amount(sent, "page") > 0, "{messages}");
    assert!(amount(received, "read") >= amount(sent, "page"), "{messages}");
    assert_eq!((&page["partition"], &page["page"]), (&"branch".into(), &0.into()));

    let (shown, mistakes) = fed(bank.path(), &format!("shell --server {address}"), QUESTIONS);
    assert_eq!(mistakes, "");
    assert!(shown.lines().all(|line| line.chars().count() <= 100), "{shown}");
    assert!(shown.starts_with("2 nodes, served for ") && shown.contains("; cbl\n"), "{shown}");
    assert!(shown.contains("lease left") && shown.contains("write locks"), "{shown}");

    let questions = "get account 1\nholders nowhere 0\nholders branch x\nnodes";
    let (shown, mistakes) = fed(bank.path(), &format!("shell --server {address}"), questions);
    let expected = [
        "line 1: error: its server has the database",
        "line 2: error: ",
        "line 3: error: 'x' is not the number of a page",
        "error: 3 requests failed",
    ];
    mistakes.lines().zip(expected).for_each(|(line, start)| assert!(line.starts_with(start), "{line}: not {start}"));
    assert!(mistakes.contains("'nowhere'") && shown.starts_with("2 nodes"), "{mistakes} {shown}");

    for node in nodes {
        node.signal("TERM");
        let ended = node.end();
        assert_eq!((ended.code, ended.output.starts_with('{')), (Some(0), true), "{}", ended.error);
    }
    let (shown, _) = fed(bank.path(), &format!("shell --server {address}"), "nodes\ncopies\ncallbacks\n");
    let shown: Vec<&str> = shown.lines().collect();
    assert!(shown[0].starts_with("0 nodes"), "{shown:?}");
    assert_eq!(shown[1..], ["no node has a copy", "no copy is called back"]);
    server.signal("TERM");
    assert_eq!(server.end().code, Some(0));
    // One whose server is gone, and a database that is served to no nodes.
    let (_, mistakes) = fed(bank.path(), &format!("shell --server {address}"), "nodes\n");
    assert!(mistakes.contains(&address), "{mistakes}");
    let (_, mistakes) = fed(bank.path(), "shell bank", "nodes\n");
    assert!(mistakes.contains("served to no nodes"), "{mistakes}");
}
