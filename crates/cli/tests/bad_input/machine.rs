//! Disks that are full or must not be written.

use crate::ground::{
    assert_unaltered, bench, check, contents, copy_to, database, refusal, run, scratch, succeeds, text,
};
use std::fs;
use std::path::Path;
use std::process::Command;

/// A mount that goes with the test.
struct Mount<'a>(&'a Path);

impl<'a> Mount<'a> {
    /// `None`, with a word, where this process may not mount.
    fn new(at: &'a Path, arguments: &[&str]) -> Option<Mount<'a>> {
        let done = Command::new("mount").args(arguments).arg(at).output();
        match done {
            Ok(output) if output.status.success() => Some(Mount(at)),
            _ => {
                println!("skipped: this process may not mount");
                None
            }
        }
    }
}

impl Drop for Mount<'_> {
    fn drop(&mut self) {
        // Whether it succeeds shows when the directory below is removed.
        let _ = Command::new("umount").arg("--lazy").arg(self.0).status();
    }
}

/// The disk has this room beside the database, and this file is the first that finds none.
fn ends_and_loses_nothing((room, file): (u64, &str)) {
    let (_directory, original) = database();
    let used: u64 = contents(&original).values().map(|bytes| bytes.len() as u64).sum();
    let directory = scratch();
    let size = format!("size={}", used + room);
    let Some(_mount) = Mount::new(directory.path(), &["-t", "tmpfs", "-o", &size, "tmpfs"]) else { return };
    let data = directory.path().join("data");
    copy_to(&original, &data);
    let said = refusal(&run(&bench(&data, "100000000")));
    assert!(said.contains("No space left") && said.contains(file), "{said}");
    succeeds(&run(&check(&data)));
    let none = directory.path().join("new");
    let said = refusal(&run(&bench(&none, "10")));
    assert!(said.contains("No space left") && said.contains(text(&none)), "{said}");
    let enlarged = Command::new("mount").args(["-o", "remount,size=1g"]).arg(directory.path()).status();
    assert!(enlarged.is_ok_and(|status| status.success()));
    succeeds(&run(&bench(&data, "100")));
}

#[test]
fn a_full_disk_ends_the_run_and_loses_nothing() {
    // The log has 4 MiB and grows to 8.
    for full in [(3 << 20, "data/log"), (7 << 20, "history.pages")] {
        ends_and_loses_nothing(full);
    }
}

#[test]
fn a_file_size_limit_is_as_good_as_a_full_disk() {
    let (_directory, data) = database();
    let arguments = bench(&data, "100000000");
    // 9 MiB hold the log, but not all accounts. The signal that comes with the limit is ignored.
    let limited = "trap '' XFSZ; ulimit -f 18432; exec \"$0\" \"$@\"";
    let mut shell = Command::new("sh");
    let output = shell.args(["-c", limited, env!("CARGO_BIN_EXE_entresol")]).args(arguments).output();
    let said = refusal(&output.expect("a shell"));
    assert!(said.contains("File too large") && said.contains(".pages"), "{said}");
    succeeds(&run(&check(&data)));
    succeeds(&run(&bench(&data, "10")));
}

#[test]
fn a_path_that_must_not_be_written_is_named() {
    let (directory, data) = database();
    let above = text(directory.path());
    let Some(_bound) = Mount::new(directory.path(), &["--bind", above]) else { return };
    let remounted = Command::new("mount").args(["-o", "remount,ro,bind", above]).status();
    assert!(remounted.is_ok_and(|status| status.success()));
    let before = contents(&data);
    for arguments in [bench(&data, "10"), check(&data), bench(&directory.path().join("new"), "10")] {
        let said = refusal(&run(&arguments));
        assert!(said.contains("Read-only file system") && said.contains(above), "{said}");
        assert_unaltered(&data, &before);
    }
    assert!(fs::read_dir(directory.path()).expect("a directory").count() == 1);
}
