//! Disks that are full or must not be written.

use crate::ground::{
    assert_unaltered, bench, check, contents, copy_to, database, refusal, run, scratch, succeeds, text,
};
use std::fs;
use std::path::Path;
use std::process::{Command, Output};

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

/// The program with these arguments, which finds no room for a file beyond 1 MiB.
fn limited(arguments: &[String]) -> Output {
    let shell = "trap '' XFSZ; ulimit -f 2048; exec \"$0\" \"$@\"";
    Command::new("sh").args(["-c", shell, env!("CARGO_BIN_EXE_entresol")]).args(arguments).output().expect("a shell")
}

#[test]
fn a_creation_without_room_leaves_nothing_and_names_the_setting() {
    for backend in ["io-uring", "thread-pool"] {
        let directory = scratch();
        let (small, config) = (directory.path().join("small"), directory.path().join("config.toml"));
        fs::create_dir(&small).expect("the name is free");
        let text_of = |log: &str| {
            format!("[buffer]\nsize = \"4 MiB\"\n[log]\nsize = \"{log}\"\n[driver]\nbackend = \"{backend}\"\n")
        };
        let on = |place: &Path| [bench(place, "10"), vec!["--config".to_owned(), text(&config).to_owned()]].concat();
        fs::write(&config, text_of("4 MiB")).expect("writes");
        let probed = run(&on(&directory.path().join("probe")));
        if String::from_utf8_lossy(&probed.stderr).contains("io_uring is refused") {
            println!("skipped: this machine has no io_uring");
            continue;
        }
        succeeds(&probed);
        fs::write(&config, text_of("64 MiB")).expect("writes");
        let fails = |at: &Path, said: &str, why: &str| {
            assert!(said.contains(why) && said.contains(text(&at.join("log"))), "{backend}: {said}");
            assert!(said.contains("give [log] size a smaller value"), "{backend}: {said}");
            assert!(contents(at).is_empty(), "{backend}: it left {:?}", contents(at).keys());
        };
        fails(&small, &refusal(&limited(&on(&small))), "File too large");
        let disk = directory.path().join("disk");
        fs::create_dir(&disk).expect("the name is free");
        let Some(_mount) = Mount::new(&disk, &["-t", "tmpfs", "-o", "size=2m", "tmpfs"]) else { return };
        fails(&disk, &refusal(&run(&on(&disk))), "No space left");
    }
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
