//! `entresol backup`, and `waits` in the shell, beside the process that has the database open.
#![allow(clippy::disallowed_methods, reason = "tests look into directories and wait for processes")]

#[path = "ground/bank.rs"]
mod bank;
#[path = "ground/command.rs"]
mod command;
#[path = "ground/processes.rs"]
mod processes;

use bank::{CONFIGURATION, bank, totals};
use command::{printed, refused};
use processes::{Ended, Process, fed, serve};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

fn patiently(what: &str, mut is_so: impl FnMut() -> bool) {
    for _ in 0..6000 {
        if is_so() {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("{what}");
}

/// Whether the balances agree in what a backup is restored to; how often money was transferred.
fn transfers(directory: &Path, backup: &str) -> u64 {
    let other = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    let place = other.path().join("bank");
    std::fs::create_dir(&place).expect("a directory");
    std::fs::write(place.join("entresol.toml"), CONFIGURATION).expect("a file");
    let said = printed(directory, &format!("restore {backup} {}", place.display()));
    assert!(said.contains("every one as it should be"), "{said}");
    assert!(printed(other.path(), "check bank").contains("every one as it should be"));
    totals(other.path()).transactions
}

#[test]
fn a_running_debit_credit_is_backed_up_by_another_process_and_its_balances_agree() {
    for (name, threads) in [("tasks", ""), ("threads", " --threads")] {
        let directory = bank(CONFIGURATION);
        let at = directory.path();
        let load = format!("bench debit-credit --data bank --scale 1 --seconds 300 --clients 8{threads}");
        let mut running = Process::start(at, &load);
        patiently("it does not listen", || at.join("bank/entresol.socket").exists());
        let first: serde_json::Value =
            serde_json::from_str(&printed(at, "backup bank first --json")).expect("it is JSON");
        assert!(first["pages"].as_u64() > Some(1000), "{first}");
        let said = printed(at, "backup bank second --base first");
        assert!(said.contains("shows what was committed up to"), "{said}");
        assert!(running.is_running(), "{name}");
        running.kill();
        let [earlier, later] = ["first", "second"].map(|backup| transfers(at, backup));
        assert!(1 < earlier && earlier < later, "{name}: {earlier}, {later}");
        assert!(totals(at).transactions >= later, "{name}");
    }
}

/// The part of another process: a transaction that holds a lock, and one that waits for it.
#[test]
fn a_process_with_a_wait() {
    let Some(directory) = std::env::var_os("ENTRESOL_TEST_WAITS_IN") else { return };
    let thread = entresol::start(directory).expect("opens");
    let handle = thread.handle();
    let branch = handle.partition("branch").wait().expect("it is there");
    let holds = handle.with_database(async move |database| {
        let mut holder = database.begin().await?;
        holder.put(branch, b"held", &[1; 100]).await?;
        let other = database.clone();
        let waits = async move { other.transaction(async |tx| tx.put(branch, b"held", &[2; 100]).await).await };
        database.executor().spawn(waits).join().await
    });
    drop(holds.wait());
}

#[test]
fn a_shell_shows_who_waits_for_whom_in_another_process() {
    let directory = bank(CONFIGURATION);
    let at = directory.path();
    let mut command = Command::new(std::env::current_exe().expect("it has a name"));
    command.args(["--exact", "a_process_with_a_wait"]).env("ENTRESOL_TEST_WAITS_IN", at.join("bank"));
    let running = Other(command.stdout(Stdio::null()).spawn().expect("the program starts"));
    patiently("it does not listen", || at.join("bank/entresol.socket").exists());
    let mut seen = String::new();
    patiently("nothing waits", || {
        let (output, error) = fed(at, "shell bank", "waits\nget account 5\nquit\n");
        assert!(error.contains("line 2: error: another program has the database open"), "{error}");
        seen = output;
        seen.contains("before it: ")
    });
    let line = seen.lines().next().expect("a wait");
    assert!(line.starts_with("transaction ") && line.contains(" has waited "), "{seen}");
    assert!(line.contains("of 'branch' (Exclusive); before it: "), "{seen}");
    let (output, error) = fed(at, "shell bank", "backup saved 1,000pages\n");
    assert!(output.contains("shows what was committed up to"), "{output}{error}");
    drop(running);
    assert!(transfers(at, "saved") > 0);
}

#[test]
fn a_command_says_which_device_keeps_it_waiting() {
    let silent = "answer_at_most = \"9 s\"\n[partition.history]\norganization = \"append\"\nlocks = \"none\"\ndevice = \"slow\"\n\
                  [device.slow]\npath = \"slow\"\n";
    let directory = bank(&format!("{CONFIGURATION}{silent}"));
    let at = directory.path();
    std::fs::write(at.join("bank/slow.toml"), "[device.slow]\nmedium.service = \"15 min\"\n").expect("a file");
    let text = format!("{CONFIGURATION}{silent}described = \"slow.toml\"\n");
    std::fs::write(at.join("bank/entresol.toml"), text).expect("a file");
    let Ended { code, error, .. } = Process::start(at, "check bank").end();
    let warned = error.find("Warning: device 'slow' has left ").expect("it is said");
    let ended = error.rfind("error: device 'slow' has left ").expect("it is given up");
    assert!(code == Some(1) && warned < ended, "{error}");
}

/// A process that is killed when it is dropped.
struct Other(Child);

impl Drop for Other {
    fn drop(&mut self) {
        let _gone_already = self.0.kill();
        let _waited = self.0.wait();
    }
}

#[test]
fn a_served_database_is_backed_up_and_opened_by_no_other() {
    let directory = bank(CONFIGURATION);
    let at = directory.path();
    let (server, _) = serve(at, "127.0.0.1:0");
    printed(at, "backup bank saved --rate 50MiB");
    let opened = refused(at, "check bank");
    assert!(opened.contains("is open already") && opened.contains("'entresol backup bank BACKUP'"), "{opened}");
    let again = refused(at, "backup bank saved");
    assert!(again.contains("saved' is not empty") && !at.join("bank/saved").exists(), "{again}");
    server.signal("TERM");
    let Ended { code, error, .. } = server.end();
    assert!(code == Some(0) && !at.join("bank/entresol.socket").exists(), "{error}");
    assert!(transfers(at, "saved") > 0);
}

#[test]
fn a_backup_ends_with_an_error_when_the_process_that_takes_it_is_killed() {
    let directory = bank(CONFIGURATION);
    let at = directory.path();
    let (server, _) = serve(at, "127.0.0.1:0");
    let asking = Process::start(at, "backup bank saved --rate 100KiB");
    patiently("it does not begin", || at.join("saved/data").exists());
    server.kill();
    let Ended { code, output, error } = asking.end();
    assert_eq!((code, output.as_str()), (Some(1), ""), "{error}");
    assert!(error.contains("has ended before it answered"), "{error}");
    assert!(refused(at, "restore saved again").contains("holds no whole backup"));
    assert!(!at.join("again").exists() || at.join("again").read_dir().expect("a directory").next().is_none());
    // The socket is left, and what is left of the backup makes way for another.
    assert!(at.join("bank/entresol.socket").exists());
    printed(at, "backup bank saved");
    assert!(!at.join("bank/entresol.socket").exists());
    assert!(transfers(at, "saved") > 0);
}

#[test]
fn a_backup_is_given_up_when_the_process_that_has_asked_for_it_is_killed() {
    let directory = bank(CONFIGURATION);
    let at = directory.path();
    let (mut server, _) = serve(at, "127.0.0.1:0");
    let asking = Process::start(at, "backup bank saved --rate 100KiB");
    patiently("it does not begin", || at.join("saved/data").exists());
    asking.kill();
    patiently("it is not given up, or leaves its directory", || !at.join("saved").exists());
    assert!(server.is_running());
    printed(at, "backup bank saved");
    drop(server);
    assert!(transfers(at, "saved") > 0);
}
