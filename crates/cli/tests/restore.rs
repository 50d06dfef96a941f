//! `entresol restore` as a real process: from a backup and the archive of the log behind it.
#![allow(clippy::disallowed_methods, reason = "tests make and look into directories")]

use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

fn entresol(directory: &Path, words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_entresol"));
    command.current_dir(directory).args(words);
    command
}

fn run(directory: &Path, words: &[&str]) -> Output {
    entresol(directory, words).output().expect("the program starts")
}

/// What a shell answers to these lines.
fn shell(directory: &Path, database: &str, lines: &str) -> String {
    let mut command = entresol(directory, &["shell", database]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("the program starts");
    child.stdin.take().expect("a pipe").write_all(lines.as_bytes()).expect("it reads");
    let output = child.wait_with_output().expect("it ends");
    assert!(output.status.success() && output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

fn unix_seconds() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("it is later").as_secs_f64()
}

/// A time by the calendar as an argument.
fn time(unix_seconds: f64) -> String {
    let output =
        Command::new("date").args(["-u", "-d", &format!("@{unix_seconds:.3}"), "+%Y-%m-%dT%H:%M:%S.%3NZ"]).output();
    String::from_utf8(output.expect("there is a date").stdout).expect("text").trim().to_owned()
}

#[test]
fn a_database_is_restored_up_to_a_time_and_to_the_end_of_the_archive() {
    let directory = tempfile::tempdir().expect("a directory");
    let at = directory.path();
    std::fs::create_dir(at.join("bank")).expect("a directory");
    let text = "[log]\nsize = \"4 MiB\"\narchive = \"../archive\"\n[buffer]\nsize = \"8 MiB\"\n\
                [partition.teller]\norganization = \"set\"";
    std::fs::write(at.join("bank/entresol.toml"), text).expect("a file");
    let line = "bench debit-credit --data bank --scale 1 --transactions 1 --clients 1 --json";
    let created = run(at, &line.split(' ').collect::<Vec<_>>());
    assert!(created.status.success(), "{}", String::from_utf8_lossy(&created.stderr));
    let too_early = time(unix_seconds());
    std::thread::sleep(Duration::from_millis(20));
    shell(at, "bank", "put account 1 \"before\"\nput teller 7 \"before\"\nbackup backup\n");
    shell(at, "bank", "put account 1 \"first\"\nput teller 7 \"first\"\n");
    std::thread::sleep(Duration::from_millis(20));
    let between = time(unix_seconds());
    std::thread::sleep(Duration::from_millis(20));
    shell(at, "bank", "put account 1 \"second\"\nput teller 7 \"second\"\n");
    let restored = |name: &str, more: &[&str]| {
        let words = [&["restore", "backup", name], more].concat();
        let output = run(at, &words);
        let [said, mistakes] =
            [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned());
        (output.status.code(), said, mistakes)
    };
    let answers = |name: &str| shell(at, name, "get account 1\nget teller 7\n");
    for (name, more, expected) in [
        ("alone", vec![], "before"),
        ("between", vec!["--archive", "archive", "--to", &between], "first"),
        ("all", vec!["--archive", "archive"], "second"),
    ] {
        let (code, said, mistakes) = restored(name, &more);
        assert_eq!(code, Some(0), "{name}: {mistakes}");
        assert!(said.contains("every one as it should be"), "{said}");
        assert_eq!(said.contains("where the last commit was made at 20"), name != "alone", "{said}");
        let answers = answers(name);
        let answers: Vec<&str> = answers.lines().collect();
        assert!(answers[0].contains(expected) && answers[1].contains(expected), "{name}: {answers:?}");
    }
    for (more, code, words) in [
        (vec!["--archive", "archive", "--to", &too_early], 1, "use an earlier backup"),
        (vec!["--archive", "archive", "--to", "2100-01-01 00:00"], 1, "which is before 2100-01-01 00:00:00.000 UTC"),
        (vec!["--archive", "backup"], 1, "it holds no segment"),
        (vec!["--archive", "nowhere"], 1, "there is no directory 'nowhere'"),
        (vec!["--archive", "archive", "--to", "noon"], 2, "neither a position of the log"),
        (vec!["--to", "5"], 2, "--archive"),
    ] {
        let (found, _, mistakes) = restored("refused", &more);
        assert!(found == Some(code) && mistakes.contains(words), "{more:?}: {found:?} {mistakes}");
    }
}
