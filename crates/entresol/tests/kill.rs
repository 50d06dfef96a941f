//! A real process, killed with SIGKILL at random moments while it commits to the real disk: whatever it acknowledged is there.
#![expect(clippy::disallowed_methods, reason = "the test is about real processes and real time")]

use base::{Instant, Random};
use entresol::configuration::Configuration;
use entresol::{Database, Opening, PartitionSpec, Store};
use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;
use workload::debit_credit::{self, Parameters, Scale, Tables};

const KILLS: u32 = 50;
const DIRECTORY: &str = "ENTRESOL_KILL_DIRECTORY";
const LIFE: &str = "ENTRESOL_KILL_LIFE";
const CLIENTS: u64 = 8;

fn scale() -> Scale {
    Scale { accounts_per_branch: 500, ..Scale::tpc_b(3) }
}

fn open(directory: &Path) -> Store {
    // Small, so that pages are replaced and checkpoints taken between two kills.
    let text = "[buffer]\nsize = \"256 KiB\"\npage_size = \"4 KiB\"\n[log]\nsize = \"2 MiB\"\n";
    let configuration = Configuration::parse(text).expect("a sound configuration");
    Opening::new(directory, configuration).open().expect("opens, whatever happened before")
}

fn specification(name: &str) -> entresol::Result<PartitionSpec> {
    Ok(if name == debit_credit::HISTORY { PartitionSpec::append(name) } else { PartitionSpec::b_tree(name) })
}

/// Runs in the process that is killed: commits for ever and says what is acknowledged. The amount is the transaction's name.
#[test]
fn victim() {
    let (Ok(directory), Ok(life)) = (std::env::var(DIRECTORY), std::env::var(LIFE)) else { return };
    let life: u64 = life.parse().expect("a number");
    let store = open(Path::new(&directory));
    let tables = Tables::of(store.database(), &scale()).expect("loaded before");
    let work = store.run(async |database| {
        let clients: Vec<_> = (0..CLIENTS)
            .map(|client| database.executor().spawn(commit_for_ever(database.clone(), tables.clone(), life, client)))
            .collect();
        for client in clients {
            client.join().await?;
        }
        Ok(())
    });
    work.expect("runs until it is killed");
}

async fn commit_for_ever(database: Database, tables: Tables, life: u64, client: u64) -> entresol::Result<()> {
    let mut random = Random::stream(life, &format!("client {client}"));
    for number in 0.. {
        let name = (life * 1_000_000 + number) * CLIENTS + client;
        let parameters = Parameters { delta: name as i64, ..Parameters::draw(&scale(), &mut random) };
        database.transaction(async |tx| tables.run(tx, &parameters).await).await?;
        let mut out = std::io::stdout().lock();
        writeln!(out, "acknowledged {name}").and_then(|()| out.flush()).expect("the parent reads");
    }
    Ok(())
}

#[test]
fn what_a_killed_process_acknowledged_is_there() {
    let directory = tempfile::tempdir().expect("a directory");
    let directory = directory.path().join("data");
    let store = open(&directory);
    let load = store.run(async |database| debit_credit::load(database, &scale(), specification, |_| ()).await);
    load.expect("loads");
    drop(store);
    let mut random = Random::stream(Instant::START.ns() + u64::from(std::process::id()), "moments");
    let mut acknowledged = BTreeSet::new();
    for life in 0..KILLS {
        acknowledged.extend(one_life(&directory, life, random.between(5, 120)));
        if life % 10 == 9 || life < 3 {
            verify(&directory, &acknowledged, life);
        }
    }
    assert!(acknowledged.len() > 500, "only {} transactions in {KILLS} lives", acknowledged.len());
}

/// Lets a process run, kills it `ms` milliseconds after its first commit, and returns what it acknowledged.
fn one_life(directory: &Path, life: u32, ms: u64) -> Vec<i64> {
    let mut child = Command::new(std::env::current_exe().expect("this test's own file"))
        .args(["--exact", "victim", "--nocapture"])
        .env(DIRECTORY, directory)
        .env(LIFE, life.to_string())
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .spawn()
        .expect("starts");
    let lines = BufReader::new(child.stdout.take().expect("piped"));
    let mut names = Vec::new();
    let mut killer = None;
    for line in lines.lines() {
        let line = line.expect("text");
        // The line may be cut off by the kill; a whole name is followed by a line end, which `lines` requires or ends.
        let Some(name) = line.split("acknowledged ").nth(1) else { continue };
        names.push(name.to_owned());
        if killer.is_none() {
            let id = child.id();
            killer = Some(std::thread::spawn(move || {
                std::thread::sleep(Duration::from_millis(ms));
                Command::new("kill").args(["-KILL", &id.to_string()]).status().expect("kill exists")
            }));
        }
    }
    let killed = killer.expect("it committed something").join().expect("no panic");
    assert!(killed.success());
    child.wait().expect("it is gone");
    // The last line may lack its end.
    names.pop();
    names.iter().map(|name| name.parse().expect("a whole number")).collect()
}

fn verify(directory: &Path, acknowledged: &BTreeSet<i64>, life: u32) {
    let store = open(directory);
    let tables = Tables::of(store.database(), &scale()).expect("loaded before");
    let totals = store.run(async |database| debit_credit::totals(database, &tables).await).expect("adds up");
    assert!(totals.agree(), "after life {life}: {totals:?}");
    let mut found = BTreeSet::new();
    let history = store.database().partition(debit_credit::HISTORY).expect("exists");
    let read = store.run(async |database| {
        let mut tx = database.begin().await?;
        tx.scan_appended(history, |_, record| {
            found.insert(i64::from_le_bytes(record[24..32].try_into().expect("eight bytes")));
            true
        })
        .await?;
        tx.commit().await
    });
    read.expect("reads");
    let missing: Vec<_> = acknowledged.difference(&found).take(5).collect();
    assert!(missing.is_empty(), "after life {life} these are missing: {missing:?}");
    let report = store.run(async |database| database.check(|_| ()).await).expect("checks");
    assert!(report.findings.is_empty(), "after life {life}: {:?}", report.findings);
}
