//! The processes of a study over TCP, which end with the command that has started them, however it ends.
#![allow(clippy::disallowed_methods, reason = "tests look at processes and directories")]

#[path = "ground/processes.rs"]
mod processes;

use processes::Process;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

/// A process of a run.
struct Machine {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Machine {
    fn start(point: u64, role: &Value) -> Machine {
        let mut command = Command::new(env!("CARGO_BIN_EXE_entresol"));
        command.args(["reproduce", "franklin-1992", "--machine"]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("the program starts");
        let (input, output) = (child.stdin.take(), BufReader::new(child.stdout.take().expect("a pipe")));
        let mut machine = Machine { child, input, output };
        machine.say(&json!({ "experiment": "rw-5-slow", "quick": true, "point": point, "seed": 1, "role": role }));
        machine
    }

    fn say(&mut self, what: &Value) {
        writeln!(self.input.as_mut().expect("it is open"), "{what}").expect("it listens");
    }

    fn answer(&mut self) -> Value {
        let mut line = String::new();
        self.output.read_line(&mut line).expect("UTF-8");
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{line}: {error}"))
    }

    fn look(&mut self) -> Value {
        self.say(&json!("Look"));
        self.answer()["Seen"].take()
    }

    /// It ends where its input does.
    fn end(mut self) {
        drop(self.input.take());
        let began = Instant::now();
        while self.child.try_wait().expect("it can be asked").is_none() {
            assert!(began.elapsed() < Duration::from_secs(10), "it goes on and on");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        let _gone_already = self.child.kill();
        let _waited = self.child.wait();
    }
}

#[test]
fn a_server_and_its_clients_count_what_they_do() {
    let directory = tempfile::tempdir().expect("a directory");
    // FWD, two clients: the first of its three points, behind CBL's.
    let point = 3;
    let mut server = Machine::start(point, &json!({ "Server": { "directory": directory.path() } }));
    let serving = server.answer()["Serving"].take();
    let role = |number: u32| json!({ "Client": { "number": number, "server": serving["address"], "pages": serving["pages"] } });
    let mut clients = [0, 1].map(|number| Machine::start(point, &role(number)));
    let names: Vec<Value> = clients.iter_mut().map(|client| client.answer()["Joined"].take()).collect();
    server.say(&json!({ "Count": names }));
    clients.iter_mut().for_each(|client| client.say(&json!("Begin")));
    let number =
        |seen: &Value, of: &str, what: &str| seen[of][what].as_u64().unwrap_or_else(|| panic!("{what}: {seen}"));
    let resident = |seen: &Value| seen["resident"].as_str().map_or(0, |pages| pages.matches('1').count());
    let began = Instant::now();
    let mut seen = server.look();
    while resident(&seen) < 375 {
        assert!(began.elapsed() < Duration::from_secs(60), "its buffer does not become full: {seen}");
        std::thread::sleep(Duration::from_millis(100));
        seen = server.look();
    }
    let counted = |what: &str| number(&seen, "server", what);
    assert!(counted("reads") > 100, "most pages come from the disk: {seen}");
    assert!(counted("hot_hits") > 0 && counted("hot_misses") > 0 && counted("cold_misses") > 0, "{seen}");
    for client in &mut clients {
        let seen = client.look();
        let counted = |what: &str| number(&seen, "client", what);
        assert!(counted("commits") > 10 && counted("hot_hits") > counted("hot_misses"), "{seen}");
        // Some have been called back.
        assert!((40..=62).contains(&resident(&seen)), "{seen}");
    }
    clients.into_iter().for_each(Machine::end);
    server.end();
}

/// The processes of runs that this one has started, by the directories of their servers and by what they are started with.
fn left(parent: u32) -> Vec<String> {
    let mut left = Vec::new();
    for entry in std::fs::read_dir("/proc").expect("every Linux has it").flatten() {
        let of = |file: &str| std::fs::read_to_string(entry.path().join(file)).unwrap_or_default();
        let is_child =
            of("stat").rsplit(") ").next().and_then(|rest| rest.split(' ').nth(1)) == Some(&parent.to_string());
        if is_child {
            left.push(format!("{} {}", entry.file_name().to_string_lossy(), of("cmdline").replace('\0', " ")));
        }
    }
    left
}

/// What the command has in a file system in memory.
fn files(process: u32) -> usize {
    let prefix = format!("entresol-{process}-");
    let names = std::fs::read_dir("/dev/shm").into_iter().flatten().flatten();
    names.filter(|entry| entry.file_name().to_string_lossy().starts_with(&prefix)).count()
}

fn started() -> (Process, Vec<u32>) {
    let directory = tempfile::tempdir().expect("a directory");
    let process = Process::start(directory.path(), "reproduce franklin-1992 --real --unshaped --quick");
    let began = Instant::now();
    // The server of the first run, and its only client.
    while left(process.number()).len() < 2 {
        assert!(began.elapsed() < Duration::from_secs(30), "it starts none");
        std::thread::sleep(Duration::from_millis(20));
    }
    let numbers = left(process.number()).iter().filter_map(|line| line.split(' ').next()?.parse().ok()).collect();
    (process, numbers)
}

fn are_gone(processes: &[u32]) {
    let began = Instant::now();
    let is_alive = |process: &&u32| {
        let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
        !stat.is_empty() && !stat.contains(") Z ")
    };
    while let Some(process) = processes.iter().find(is_alive) {
        assert!(began.elapsed() < Duration::from_secs(10), "process {process} goes on and on");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn nothing_is_left_of_a_command_that_is_interrupted() {
    let (process, processes) = started();
    let number = process.number();
    process.signal("INT");
    let ended = process.end();
    assert_eq!((ended.code, ended.error.trim()), (Some(1), "error: interrupted"));
    are_gone(&processes);
    assert_eq!(files(number), 0);
}

#[test]
fn no_process_outlives_a_command_that_is_killed() {
    let (process, processes) = started();
    let number = process.number();
    process.kill();
    are_gone(&processes);
    assert_eq!(files(number), 0);
}

#[test]
fn only_this_study_has_processes_and_they_take_their_time() {
    let directory = tempfile::tempdir().expect("a directory");
    let ended = Process::start(directory.path(), "reproduce lee-2008 --real").end();
    assert!(ended.code == Some(1) && ended.error.contains("franklin-1992"), "{}", ended.error);
    let ended = Process::start(directory.path(), "reproduce franklin-1992 --real --quick --minutes 1").end();
    assert!(ended.code == Some(1) && ended.error.contains("230 runs"), "{}", ended.error);
}
