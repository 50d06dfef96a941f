//! As many files are open as the process may have, far more than it has by default, and the limit is said when it is reached.
#![allow(unsafe_code, clippy::disallowed_methods)]

use driver::{Access, Completion, DeviceId, Driver, Fault, FaultKind, FileId, Frame, Op, Output, Token};
use entresol_real::{Backend, Options, RealDriver};
use std::path::Path;
use std::process::Command;

/// More than the ring's table of registered files has places, and more than a process may have open by default.
const FILES: usize = 2_500;
/// What a child process is to do: its case, its backend and the directory.
const TASK: &str = "ENTRESOL_DESCRIPTORS";

/// Limits the files that this process may have open: now, and at most.
fn limit(soft: u64, hard: u64) {
    let limit = libc::rlimit { rlim_cur: soft, rlim_max: hard };
    // SAFETY: the call reads the limits and takes no other memory.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &limit) }, 0, "{}", std::io::Error::last_os_error());
}

fn perform(driver: &mut RealDriver, op: Op) -> Completion {
    driver.submit(Token(1), op);
    let mut done = Vec::new();
    while done.is_empty() {
        driver.park(None, &mut done).expect("a real machine goes on");
    }
    done.remove(0)
}

fn open(driver: &mut RealDriver, number: usize) -> Result<FileId, Fault> {
    let op = Op::Open { device: DeviceId(0), name: format!("file-{number}"), create: false };
    match perform(driver, op).result? {
        Output::Opened { file, .. } => Ok(file),
        other => panic!("{other:?}"),
    }
}

/// Writes the number of a file into it, or expects it there.
fn transfer(driver: &mut RealDriver, file: FileId, number: usize, write: bool) {
    let mut buffer = Frame::allocate(1, 4096).remove(0);
    let (offset, length, access) = (0, 4096, Access::Asynchronous);
    if write {
        buffer.fill(number as u8);
    }
    let op = match write {
        true => Op::Write { file, offset, length, buffer, durable: false, access },
        false => Op::Read { file, offset, length, buffer, access },
    };
    let Completion { result, buffer, .. } = perform(driver, op);
    assert_eq!(result, Ok(Output::Done));
    assert!(buffer.expect("it comes back").iter().all(|byte| *byte == number as u8), "file {number}");
}

/// What the child process does. Without a task it is no test.
#[test]
fn child() {
    let Ok(task) = std::env::var(TASK) else { return };
    let [case, backend, directory] = task.split('\n').collect::<Vec<_>>()[..] else { panic!("{task}") };
    let backend = if backend == "ring" { Backend::IoUring } else { Backend::ThreadPool };
    let options = Options { backend, ..Options::new("disk", directory) };
    match case {
        "many" => {
            limit(64, FILES as u64 + 100);
            let mut driver = RealDriver::open(options).expect("opens");
            let files: Vec<FileId> = (0..FILES).map(|number| open(&mut driver, number).expect("opens")).collect();
            for write in [true, false] {
                files.iter().enumerate().for_each(|(number, file)| transfer(&mut driver, *file, number, write));
            }
        }
        "forgotten" => {
            limit(64, 64);
            let mut driver = RealDriver::open(options).expect("opens");
            for write in [true, false] {
                for number in 0..FILES {
                    let file = open(&mut driver, number).expect("opens");
                    transfer(&mut driver, file, number, write);
                    driver.forget(file);
                }
            }
        }
        "few" => {
            limit(64, 64);
            let mut driver = RealDriver::open(options).expect("opens");
            let mut files = Vec::new();
            let fault = loop {
                match open(&mut driver, files.len()) {
                    Ok(file) => files.push(file),
                    Err(fault) => break fault,
                }
            };
            assert!(files.len() > 20, "{} {fault}", files.len());
            assert_eq!(fault.kind, FaultKind::TooManyFiles, "{fault}");
            let name = format!("file-{}'", files.len());
            for part in [name.as_str(), "Too many open files", "64", "RLIMIT_NOFILE", "ulimit -n"] {
                assert!(fault.message.contains(part), "{part} in {fault}");
            }
            // Open files continue to work, and a closed file makes room for another one.
            files.iter().enumerate().for_each(|(number, file)| transfer(&mut driver, *file, number, true));
            let op = Op::List { device: DeviceId(0) };
            let listing = perform(&mut driver, op).result.expect_err("a listing takes a descriptor");
            assert_eq!(listing.kind, FaultKind::TooManyFiles, "{listing}");
        }
        other => panic!("{other}"),
    }
}

/// Runs a case in a process of its own, in both backends.
fn in_child(case: &str) {
    let directory = tempfile::tempdir().expect("a directory");
    let path: &Path = directory.path();
    (0..FILES).for_each(|number| std::fs::write(path.join(format!("file-{number}")), []).expect("a file"));
    let ring = RealDriver::open(Options { backend: Backend::IoUring, ..Options::new("disk", path) });
    if let Err(fault) = &ring {
        println!("without io_uring: {fault}");
    }
    for backend in ["ring", "pool"].into_iter().filter(|backend| *backend == "pool" || ring.is_ok()) {
        let mut command = Command::new(std::env::current_exe().expect("this test"));
        command.args(["child", "--exact", "--nocapture"]).env(TASK, format!("{case}\n{backend}\n{}", path.display()));
        let output = command.output().expect("it starts");
        let said = [&output.stdout[..], &output.stderr].concat();
        assert!(output.status.success(), "{case}, {backend}: {}", String::from_utf8_lossy(&said));
    }
}

#[test]
fn the_limit_of_open_files_is_raised_as_far_as_it_may_be() {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the call writes the limits and takes no other memory.
    assert_eq!(unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) }, 0);
    if limit.rlim_max < FILES as u64 + 100 {
        return println!("skipped: this process may have {} files open at most", limit.rlim_max);
    }
    in_child("many");
}

#[test]
fn files_that_are_forgotten_leave_their_places_to_others() {
    in_child("forgotten");
}

#[test]
fn the_limit_of_open_files_is_said_when_it_is_reached() {
    in_child("few");
}
