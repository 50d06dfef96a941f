//! Where a calibration cannot be made, it says so and leaves nothing.

#![allow(clippy::disallowed_methods, reason = "tests look into directories")]

use std::process::Command;

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
