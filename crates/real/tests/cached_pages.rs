//! What an earlier opening has left of a file in the system's cache.
#![allow(unsafe_code, clippy::disallowed_methods, reason = "the test asks the system what it has in its cache")]

use driver::{Access, Driver, FileId, Op, Output, Token};
use entresol_real::{Options, RealDriver};
use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::Path;

const LENGTH: usize = 1 << 20;

fn perform(driver: &mut RealDriver, op: Op) -> Output {
    driver.submit(Token(1), op);
    let mut done = Vec::new();
    while done.is_empty() {
        driver.park(None, &mut done).expect("it is under way");
    }
    done.remove(0).result.expect("it succeeds")
}

/// Opens the file, creating it if it is missing, not for direct I/O.
fn open(directory: &Path) -> (RealDriver, FileId) {
    let options = Options { direct: false, ..Options::new("disk", directory) };
    let mut driver = RealDriver::open(options).expect("opens");
    let device = driver.device("disk").expect("opened with it");
    match perform(&mut driver, Op::Open { device, name: "data".to_owned(), create: true }) {
        Output::Opened { file, .. } => (driver, file),
        other => panic!("{other:?}"),
    }
}

/// How many pages of the file the system has in its cache.
fn pages_cached(directory: &Path) -> usize {
    let file = File::open(directory.join("data")).expect("it was created");
    let mut resident = vec![0_u8; LENGTH / 4096];
    // SAFETY: a new mapping at a place of the system's choice, which nothing accesses; the vector has a byte for each page.
    unsafe {
        let (protection, flags) = (libc::PROT_READ, libc::MAP_SHARED);
        let start = libc::mmap(std::ptr::null_mut(), LENGTH, protection, flags, file.as_raw_fd(), 0);
        assert_ne!(start, libc::MAP_FAILED);
        assert_eq!(libc::mincore(start, LENGTH, resident.as_mut_ptr()), 0);
        libc::munmap(start, LENGTH);
    }
    resident.iter().filter(|page| **page & 1 == 1).count()
}

#[test]
fn an_opening_reads_from_the_device_what_an_earlier_one_has_left_in_the_cache() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    let (mut driver, file) = open(directory.path());
    let mut buffer = driver.frames(1, LENGTH).expect("memory").remove(0);
    buffer.fill(7);
    let (offset, length, access) = (0, LENGTH as u32, Access::Asynchronous);
    perform(&mut driver, Op::Write { file, offset, length, buffer, durable: false, access });
    drop(driver);
    if pages_cached(directory.path()) == 0 {
        return println!("skipped: this file system caches nothing");
    }
    let (mut driver, file) = open(directory.path());
    assert_eq!(pages_cached(directory.path()), 0);
    let buffer = driver.frames(1, LENGTH).expect("memory").remove(0);
    driver.submit(Token(2), Op::Read { file, offset, length, buffer, access });
    let mut done = Vec::new();
    driver.park(None, &mut done).expect("it is under way");
    let completion = done.remove(0);
    completion.result.expect("it reads");
    assert!(
        completion.buffer.is_some_and(|bytes| bytes.iter().all(|byte| *byte == 7)),
        "what was dirty is written first"
    );
}
