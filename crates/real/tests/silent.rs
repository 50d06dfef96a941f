//! A device that never answers: what becomes of its database's lock when the driver goes.
#![allow(unsafe_code, clippy::disallowed_methods, reason = "the test makes the device and looks at its lock")]

use driver::{Access, Driver, FaultKind, Op, Output, Token};
use entresol_real::{Backend, DirectoryLock, DirectoryLocks, Options, RealDriver};
use std::ffi::CString;
use std::time::{Duration, Instant};

/// A read of a pipe without a writer never ends.
#[test]
fn the_lock_stays_while_a_transfer_may_still_happen() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = CString::new(directory.path().join("pipe").to_str().expect("text")).expect("no zeros");
    // SAFETY: the path ends with a zero byte.
    assert_eq!(unsafe { libc::mkfifo(path.as_ptr(), 0o600) }, 0);
    let locks = DirectoryLocks::default();
    let patience = Duration::from_millis(100);
    let options = Options {
        backend: Backend::IoUring,
        direct: false,
        locks: locks.clone(),
        patience,
        ..Options::new("disk", directory.path())
    };
    let mut driver = match RealDriver::open(options) {
        Ok(driver) => driver,
        Err(fault) => return println!("skipped: {fault}"),
    };
    locks.acquire(directory.path()).expect("the lock is free");
    drop(locks);
    let device = driver.device("disk").expect("opened with it");
    let mut done = Vec::new();
    driver.submit(Token(1), Op::Open { device, name: "pipe".to_owned(), create: false });
    driver.park(None, &mut done).expect("something is in flight");
    let Ok(Output::Opened { file, .. }) = done.remove(0).result else { panic!("a pipe opens") };
    let buffer = driver.frames(1, 4096).expect("memory").remove(0);
    let access = Access::Asynchronous;
    driver.submit(Token(2), Op::Read { file, offset: 0, length: 4096, buffer, access });
    let until = driver.now().plus_ns(1_000_000);
    driver.park(Some(until), &mut done).expect("something is in flight");
    assert!(done.is_empty(), "it does not answer");
    let began = Instant::now();
    drop(driver);
    assert!(began.elapsed() >= patience);
    let refused = DirectoryLock::acquire(directory.path()).expect_err("the read may still happen");
    assert_eq!(refused.kind, FaultKind::Busy, "{refused}");
}
