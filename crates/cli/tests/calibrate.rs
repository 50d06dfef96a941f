//! Where a calibration cannot be made, it says so and leaves nothing.

#![allow(clippy::disallowed_methods, reason = "tests look into directories")]

#[path = "ground/processes.rs"]
mod processes;

use processes::Process;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

fn failure(directory: &str, more: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_entresol"));
    let output = command.args(["calibrate", directory, "--quick"]).args(more).output().expect("the program starts");
    assert!(!output.status.success(), "{directory} {more:?}");
    String::from_utf8(output.stderr).expect("text")
}

#[test]
fn places_that_cannot_be_measured_are_named() {
    assert!(failure("/no/such/place", &[]).contains("'/no/such/place' is not a directory"));
    let read_only = failure("/proc", &[]);
    assert!(read_only.contains("'/proc' cannot be measured"), "{read_only}");
    let directory = tempfile::tempdir().expect("a directory for this test");
    let place = directory.path().to_str().expect("text");
    assert!(failure(place, &["--output", "/no/such/place/here.toml"]).contains("cannot be written"));
    assert!(failure(place, &["--size", "1 KiB"]).contains("multiple of 1 MiB"));
    let too_large = failure(place, &["--size", "900 TiB"]);
    assert!(too_large.contains("cannot be measured") && too_large.contains("make room there"), "{too_large}");
    assert_eq!(directory.path().read_dir().expect("it is there").count(), 0, "nothing is left");
}

#[test]
fn an_interrupted_calibration_leaves_nothing_but_what_it_has_measured() {
    let [place, kept] = [(); 2].map(|()| tempfile::tempdir().expect("a directory for this test"));
    let partial = kept.path().join("here.partial.json");
    let process = Process::start(
        kept.path(),
        &format!("calibrate {} --quick --size 64MiB --output here.toml", place.path().display()),
    );
    let began = Instant::now();
    while !partial.is_file() {
        assert!(began.elapsed() < Duration::from_secs(120), "nothing is kept");
        std::thread::sleep(Duration::from_millis(20));
    }
    process.signal("INT");
    let ended = process.end();
    assert_eq!((ended.code, ended.output.as_str()), (Some(1), ""), "{}", ended.error);
    assert!(ended.error.contains("interrupted") && ended.error.contains("goes on where it was"), "{}", ended.error);
    assert_eq!(place.path().read_dir().expect("it is there").count(), 0, "nothing is left");
    assert!(partial.is_file() && !kept.path().join("here.toml").exists(), "half a calibration is none");
}

#[test]
fn a_description_of_another_release_is_refused_where_it_is_used() {
    let directory = tempfile::tempdir().expect("a directory for this test");
    let later = "# entresol calibrate, version 99: io_uring\n[device.disk]\nmedium.service = \"1 ms\"\n";
    std::fs::write(directory.path().join("here.toml"), later).expect("it can be written");
    for command in ["bench", "predict"] {
        let line = "debit-credit --hardware here.toml --transactions 1";
        let mut entresol = Command::new(env!("CARGO_BIN_EXE_entresol"));
        let output = entresol.current_dir(directory.path()).arg(command).args(line.split(' ')).output();
        let output = output.expect("the program starts");
        let said = String::from_utf8(output.stderr).expect("text");
        assert!(!output.status.success() && said.contains("version 99") && said.contains("calibrate again"), "{said}");
    }
    assert_eq!(directory.path().read_dir().expect("it is there").count(), 1, "nothing was begun");
}

/// A directory on which nothing can be written, or that is nearly full, where this may be had: by root.
fn mounted(options: &str) -> Option<Mounted> {
    let directory = tempfile::tempdir().expect("a directory for this test");
    let mut mount = Command::new("mount");
    mount.args(["-t", "tmpfs", "-o", options, "tmpfs"]).arg(directory.path()).stderr(Stdio::null());
    mount.status().is_ok_and(|status| status.success()).then(|| Mounted(directory))
}

struct Mounted(tempfile::TempDir);

impl Drop for Mounted {
    fn drop(&mut self) {
        let _is_busy = Command::new("umount").arg("--lazy").arg(self.0.path()).status();
    }
}

#[test]
fn full_and_read_only_file_systems_are_said_with_what_helps() {
    for (options, words) in [("size=48m", ["No space", "make room there"]), ("ro", ["Read-only", "can be written"])] {
        let Some(place) = mounted(options) else {
            eprintln!("skipped: nothing can be mounted here");
            return;
        };
        let said = failure(place.0.path().to_str().expect("text"), &["--size", "64 MiB"]);
        assert!(said.contains("cannot be measured") && words.iter().all(|word| said.contains(word)), "{said}");
        assert_eq!(place.0.path().read_dir().expect("it is there").count(), 0, "nothing is left");
    }
}

/// A directory in memory, where the machine has one.
fn in_memory() -> Option<tempfile::TempDir> {
    let mounts = std::fs::read_to_string("/proc/mounts").unwrap_or_default();
    let is_there = mounts.lines().any(|line| line.split(' ').nth(1) == Some("/dev/shm") && line.contains(" tmpfs "));
    is_there.then(|| tempfile::tempdir_in("/dev/shm").ok()).flatten()
}

fn in_memory_calibration(place: &Path, output: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_entresol"));
    command.args(["calibrate", "--quick", "--size", "64 MiB", "--output"]).arg(output).arg(place);
    command
}

#[test]
#[ignore = "takes a minute"]
fn a_calibration_in_memory_says_so_and_goes_on_where_it_was_killed() {
    let Some(place) = in_memory() else {
        eprintln!("skipped: /dev/shm is not memory here");
        return;
    };
    let kept = tempfile::tempdir().expect("a directory for this test");
    let (output, partial) = (kept.path().join("here.toml"), kept.path().join("here.partial.json"));
    let calibration = &mut in_memory_calibration(place.path(), &output);
    let mut first = calibration.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("the program starts");
    let began = Instant::now();
    while !partial.is_file() {
        assert!(began.elapsed() < Duration::from_secs(120), "nothing is kept");
        std::thread::sleep(Duration::from_millis(20));
    }
    first.kill().expect("it runs");
    first.wait().expect("it has ended");
    assert!(!output.is_file(), "half a calibration is none");

    let second = in_memory_calibration(place.path(), &output).output().expect("the program starts");
    let (said, text) = (String::from_utf8_lossy(&second.stderr), String::from_utf8_lossy(&second.stdout));
    assert!(second.status.success(), "{said}");
    assert!(text.contains("lies in memory"), "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
    for words in [
        "how good each law is",
        "reads of 8 KiB",
        "messages, one at a time",
        "how good each price is",
        "object reference",
    ] {
        assert!(text.contains(words), "{words} in {text}");
    }
    let described = std::fs::read_to_string(&output).expect("it is written");
    assert!(
        described.contains("[network.loopback]\nlatency = ") && described.contains("network_message = "),
        "{described}"
    );
    assert!(output.is_file() && !partial.is_file(), "it is complete");
    assert_eq!(place.path().read_dir().expect("it is there").count(), 0, "nothing is left");
}
