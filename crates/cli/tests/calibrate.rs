//! Where a calibration cannot be made, it says so and leaves nothing.

#![allow(clippy::disallowed_methods, reason = "tests look into directories")]

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
    assert!(too_large.contains("cannot be measured"), "{too_large}");
    assert_eq!(directory.path().read_dir().expect("it is there").count(), 0, "nothing is left");
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
    assert!(output.is_file() && !partial.is_file(), "it is complete");
    assert_eq!(place.path().read_dir().expect("it is there").count(), 0, "nothing is left");
}
