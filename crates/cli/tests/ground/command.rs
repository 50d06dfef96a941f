//! The command, run in a directory.

use std::path::Path;
use std::process::{Command, Output};

fn entresol(directory: &Path, line: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_entresol"));
    command.current_dir(directory).args(line.split(' ')).output().expect("the program starts")
}

/// What a command that must succeed prints.
pub fn printed(directory: &Path, line: &str) -> String {
    let output = entresol(directory, line);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{line}: {error}");
    String::from_utf8(output.stdout).expect("UTF-8")
}

/// What a command that must fail says.
#[allow(dead_code, reason = "not every test refuses")]
pub fn refused(directory: &Path, line: &str) -> String {
    let output = entresol(directory, line);
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{line}: {error}");
    assert!(error.starts_with("error: ") && !error.contains("panicked"), "{line}: {error}");
    error
}
