//! On this machine: a process that runs Debit-Credit is killed at random moments, again and again. What it said was
//! committed is there, what it said was undone is not, and the books balance.

use base::Random;
use driver::Driver;
use engine::{Database, Direction, PartitionSpec, Result, Settings, buffer, checkpoint, log};
use executor::{Executor, Order};
use real_driver::{Options, RealDriver};
use std::collections::BTreeSet;
use std::io::Read;
use std::ops::Bound;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

const KILLS: u64 = 55;
const CLIENTS: u64 = 8;
const ROWS: [(&str, u64); 3] = [("account", 300), ("teller", 20), ("branch", 2)];
/// Tells a process of this test that it is the one to be killed: the data's directory and its number.
const DIRECTORY: &str = "ENTRESOL_KILL_DIRECTORY";
const RUN: &str = "ENTRESOL_KILL_RUN";

fn settings() -> Settings {
    Settings {
        buffer: buffer::Settings { frames: 64, page_size: 4096, ..buffer::Settings::default() },
        log: log::Settings { capacity: 4 << 20, ..log::Settings::default() },
        checkpoint: checkpoint::Policy { log_bytes: Some(200 << 10), interval_ns: None },
        ..Settings::default()
    }
}

fn machine(directory: &Path) -> Executor {
    let driver = RealDriver::open(Options::new("disk", directory)).expect("the directory is usable");
    assert!(driver.device("disk").is_some());
    Executor::new(Box::new(driver), Order::FirstInFirstOut)
}

/// Opens the database, or creates and loads what is missing of it.
async fn open(executor: &Executor) -> Result<Database> {
    let database = match Database::open(executor, settings(), "kill").await {
        Err(engine::Error::NotADatabase { .. } | engine::Error::Unfinished { .. }) => {
            Database::create(executor, settings()).await?
        }
        opened => opened?,
    };
    for (name, count) in ROWS {
        if database.partition(name).is_err() {
            database.create_partition(PartitionSpec::b_tree(name)).await?;
        }
        let partition = database.partition(name)?;
        let mut tx = database.begin().await?;
        for number in 0..count {
            if tx.get(partition, &number.to_be_bytes()).await?.is_none() {
                tx.put(partition, &number.to_be_bytes(), &[0; 60]).await?;
            }
        }
        tx.commit().await?;
    }
    if database.partition("history").is_err() {
        database.create_partition(PartitionSpec::append("history")).await?;
    }
    Ok(database)
}

/// One transfer; says whether it was committed or, on purpose, undone.
async fn transfer(database: &Database, id: u64, random: &mut Random) -> Result<bool> {
    let mut tx = database.begin().await?;
    let delta = random.between(1, 200) as i64 - 100;
    let mut record: Vec<u8> = [id, delta as u64].into_iter().flat_map(u64::to_le_bytes).collect();
    for (name, count) in ROWS {
        let (partition, number) = (database.partition(name)?, random.below(count));
        let add = |row: &mut [u8]| {
            let sum = i64::from_le_bytes(*row.first_chunk().expect("a row begins with its balance")) + delta;
            row[..8].copy_from_slice(&sum.to_le_bytes());
        };
        tx.modify(partition, &number.to_be_bytes(), add).await?;
        record.extend_from_slice(&number.to_le_bytes());
    }
    tx.append(database.partition("history")?, &record).await?;
    if random.chance(0.1) {
        tx.rollback().await?;
        return Ok(false);
    }
    tx.commit().await?;
    Ok(true)
}

/// The process that is killed. As a test of its own it does nothing.
#[test]
fn child() {
    let Ok(directory) = std::env::var(DIRECTORY) else { return };
    let run: u64 = std::env::var(RUN).expect("set together").parse().expect("a number");
    let executor = machine(Path::new(&directory));
    let forever = async {
        let database = open(&executor).await.expect("opens");
        let clients: Vec<_> = (0..CLIENTS)
            .map(|client| {
                let database = database.clone();
                executor.spawn(async move {
                    let mut random = Random::stream(run, &format!("client {client}"));
                    for number in 0.. {
                        let id = (run * CLIENTS + client) << 32 | number;
                        match transfer(&database, id, &mut random).await {
                            Ok(true) => println!("done {id}"),
                            Ok(false) => println!("undone {id}"),
                            Err(error) if error.is_conflict() => {}
                            Err(error) => panic!("{error}"),
                        }
                    }
                })
            })
            .collect();
        for client in clients {
            client.join().await;
        }
    };
    executor.run(forever).expect("runs until it is killed");
}

/// What killed processes have said.
#[derive(Default)]
struct Said {
    done: BTreeSet<u64>,
    undone: BTreeSet<u64>,
}

/// Runs a process, kills it after a while and notes what it said.
#[allow(clippy::disallowed_methods, reason = "the moment of the kill is on this machine's clock")]
fn run_and_kill(directory: &Path, run: u64, delay: Duration, said: &mut Said) {
    let mut child = Command::new(std::env::current_exe().expect("this test has a file"))
        .args(["--exact", "kill::child", "--nocapture"])
        .env(DIRECTORY, directory)
        .env(RUN, run.to_string())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the test runs itself");
    let mut out = child.stdout.take().expect("piped");
    let reader = std::thread::spawn(move || {
        let mut text = String::new();
        out.read_to_string(&mut text).map(|_| text)
    });
    std::thread::sleep(delay);
    let early = child.try_wait().expect("it is our child");
    // SIGKILL: no destructor runs, nothing is flushed.
    child.kill().expect("it is our child");
    let output = child.wait_with_output().expect("it is our child");
    assert!(early.is_none(), "it ended by itself: {}", String::from_utf8_lossy(&output.stderr));
    let text = reader.join().expect("reads to the end").expect("the test writes text");
    // The last line may be cut off: a number that lost its end would be another's.
    let (lines, _) = text.rsplit_once('\n').unwrap_or_default();
    for line in lines.lines() {
        let mut words = line.split(' ');
        match (words.next(), words.next().and_then(|word| word.parse().ok())) {
            (Some("done"), Some(id)) => assert!(said.done.insert(id)),
            (Some("undone"), Some(id)) => assert!(said.undone.insert(id)),
            _ => {}
        }
    }
}

/// Opens what the killed processes left and compares it with what they said.
fn inspect(directory: &Path, said: &Said) -> usize {
    let executor = machine(directory);
    let inspection = async {
        let database = open(&executor).await.expect("opens");
        let mut tx = database.begin().await.expect("begins");
        let mut history = Vec::new();
        let partition = database.partition("history").expect("exists");
        tx.scan_appended(partition, |_, record| {
            let words = record.as_chunks::<8>().0;
            history.push(words.iter().map(|word| u64::from_le_bytes(*word)).collect::<Vec<_>>());
            true
        })
        .await
        .expect("reads");
        let ids: BTreeSet<u64> = history.iter().map(|transfer| transfer[0]).collect();
        assert_eq!(ids.len(), history.len(), "no transfer is there twice");
        let lost: Vec<_> = said.done.difference(&ids).collect();
        assert!(lost.is_empty(), "acknowledged and lost: {lost:?}");
        let undone: Vec<_> = said.undone.intersection(&ids).collect();
        assert!(undone.is_empty(), "rolled back and there: {undone:?}");
        for (kind, (name, count)) in ROWS.into_iter().enumerate() {
            let mut expected = vec![0_i64; count as usize];
            for transfer in &history {
                expected[transfer[2 + kind] as usize] += transfer[1] as i64;
            }
            let partition = database.partition(name).expect("exists");
            let mut cursor = tx.cursor(partition, Bound::Unbounded, Bound::Unbounded, Direction::Forward);
            let mut found = Vec::new();
            while let Some((_, row)) = tx.next(&mut cursor).await.expect("reads") {
                found.push(i64::from_le_bytes(*row.first_chunk().expect("a row begins with its balance")));
            }
            assert_eq!(found, expected, "{name}");
        }
        tx.commit().await.expect("commits");
        let report = database.check(|_| ()).await.expect("checks");
        assert!(report.is_clean(), "{:?}", report.findings);
        history.len()
    };
    let transfers = executor.run(inspection).expect("runs to the end");
    // Without a close: the next process recovers once more.
    executor.stop();
    transfers
}

#[test]
fn killed_at_random_moments_it_keeps_its_word() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut random = Random::stream(1, "kill");
    let mut said = Said::default();
    let mut transfers = 0;
    for run in 0..KILLS {
        let delay = Duration::from_millis(random.between(20, 350));
        run_and_kill(directory.path(), run, delay, &mut said);
        if run % 6 == 5 || run + 1 == KILLS {
            transfers = inspect(directory.path(), &said);
        }
    }
    assert!(said.done.len() > 500 && !said.undone.is_empty(), "{} done", said.done.len());
    assert!(transfers >= said.done.len());
}
