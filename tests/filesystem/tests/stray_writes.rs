//! What a process has under way when it is killed lands before its directory can be had again.

#![allow(clippy::disallowed_methods, reason = "the processes live on this machine's clock")]

use filesystem::{Backend, Effect, End, Mounted, Plan, Rule, Step};
use real_driver::DirectoryLock;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const DELAY: Duration = Duration::from_millis(1_500);
const LIFE_MAX: Duration = Duration::from_secs(60);

fn lands_first(backend: Backend) {
    if !backend.is_available() {
        return println!("skipped: this machine has no {}", backend.name());
    }
    let volume = match Mounted::new(1) {
        Ok(volume) => volume,
        Err(error) => return println!("skipped: no file system in user space can be mounted: {error}"),
    };
    // The process comes to the end of its plan with a write of its log under way.
    let rules = vec![Rule { step: Step::Write, file: "log", first: 60, count: u64::MAX, effect: Effect::Hung }];
    let over =
        volume.begin(Plan { end: End::Stray(DELAY), at: u64::MAX, at_step: None, rules, room: None, overtaken: 0.0 });
    let mut child = Command::new(env!("CARGO_BIN_EXE_filesystem-torture"))
        .args(["process", backend.name(), &volume.path().display().to_string(), "database", "1", "0", "false", "false"])
        .stdout(Stdio::null())
        .spawn()
        .expect("the program is there");
    let _ = over.recv_timeout(Duration::from_secs(6));
    volume.halt();
    child.kill().expect("it is there");
    let landing = Instant::now() + DELAY;
    let injected = volume.end(End::Stray(DELAY));
    assert!(injected.stray > 0, "{injected:?}");
    child.wait().expect("it is our child");
    let directory = volume.path().join("database");
    while DirectoryLock::acquire(&directory).is_err() {
        assert!(landing.elapsed() < LIFE_MAX, "it is never unlocked");
    }
    assert!(Instant::now() >= landing, "unlocked {:?} before the last write lands", landing - Instant::now());
}

#[test]
fn a_directory_is_locked_until_what_a_killed_process_wrote_through_io_uring_has_landed() {
    lands_first(Backend::IoUring);
}

#[test]
fn a_directory_is_locked_until_what_a_killed_process_wrote_through_threads_has_landed() {
    lands_first(Backend::ThreadPool);
}
