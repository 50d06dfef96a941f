//! What only a real machine can show: other threads, other processes' errors, files that outlive the driver.

use conformance::{DEVICE, PAGE, Subject};
use driver::{Access, Completion, Driver, FaultKind, Halt, Op, Token};
use real_driver::{Backend, Options, RealDriver};
use std::path::Path;
use std::time::Duration;

/// Runs a test with each backend that this machine grants, in a fresh directory.
fn with_each_backend(test: impl Fn(&Path, Backend)) {
    for backend in [Backend::IoUring, Backend::ThreadPool] {
        let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
        match RealDriver::open(Options { backend, ..Options::new(DEVICE, directory.path()) }) {
            Ok(_) => test(directory.path(), backend),
            Err(fault) => println!("skipped: {fault}"),
        }
    }
}

fn open(directory: &Path, backend: Backend) -> Subject {
    let options = Options { backend, ..Options::new(DEVICE, directory) };
    Subject::new(Box::new(RealDriver::open(options).expect("it opened before")), None)
}

fn write(file: driver::FileId, buffer: driver::Frame) -> Op {
    let length = buffer.len() as u32;
    Op::Write { file, offset: 0, length, buffer, durable: true, access: Access::Asynchronous }
}

#[test]
#[allow(clippy::disallowed_methods, reason = "the doorbell is for threads")]
fn a_doorbell_wakes_a_parked_driver() {
    with_each_backend(|directory, backend| {
        let mut subject = open(directory, backend);
        for _ in 0..20 {
            let doorbell = subject.driver.doorbell();
            let ringer = std::thread::spawn(move || {
                std::thread::sleep(Duration::from_millis(2));
                doorbell.ring();
            });
            let mut done = Vec::new();
            subject.driver.park(None, &mut done).expect("a doorbell exists");
            assert_eq!(done.iter().map(|completion| completion.token).collect::<Vec<_>>(), [Token::DOORBELL]);
            ringer.join().expect("no panic");
        }
    });
}

#[test]
#[allow(clippy::disallowed_methods, reason = "the doorbell is for threads")]
fn no_ring_is_lost_among_transfers() {
    with_each_backend(|directory, backend| {
        let mut subject = open(directory, backend);
        let file = subject.create("busy", PAGE as u64);
        let doorbell = subject.driver.doorbell();
        let (heard, answer) = std::sync::mpsc::channel::<()>();
        let ringer = std::thread::spawn(move || {
            for _ in 0..500 {
                doorbell.ring();
                answer.recv_timeout(Duration::from_secs(20)).expect("every ring is heard");
            }
        });
        let mut rings = 0;
        let mut done = Vec::new();
        let mut idle = subject.driver.frames(1, PAGE).expect("memory").pop();
        while rings < 500 {
            if let Some(buffer) = idle.take() {
                let length = PAGE as u32;
                subject.submit(Op::Read { file, offset: 0, length, buffer, access: Access::Asynchronous });
            }
            subject.driver.park(None, &mut done).expect("the machine does not stop");
            for Completion { token, buffer, .. } in done.drain(..) {
                if token == Token::DOORBELL {
                    rings += 1;
                    heard.send(()).expect("the ringer listens");
                }
                idle = buffer.or(idle);
            }
        }
        ringer.join().expect("no panic");
    });
}

#[test]
fn files_outlive_the_driver() {
    with_each_backend(|directory, backend| {
        let mut subject = open(directory, backend);
        let file = subject.create("kept", PAGE as u64);
        let frame = subject.frame(PAGE, 0x42);
        subject.succeed(write(file, frame));
        drop(subject);
        let mut subject = open(directory, backend);
        assert_eq!(subject.names(), ["kept"]);
        let (file, length) = subject.open("kept");
        assert_eq!(length, PAGE as u64);
        assert!(subject.bytes(file, 0, PAGE).iter().all(|byte| *byte == 0x42));
    });
}

#[test]
fn names_that_leave_the_directory_are_faults() {
    with_each_backend(|directory, backend| {
        let mut subject = open(directory, backend);
        let device = subject.device();
        for name in ["", ".", "..", "a/b", "/tmp/x"] {
            let (fault, _) = subject.fail(Op::Open { device, name: name.to_owned(), create: true });
            assert_eq!(fault.kind, FaultKind::Unsupported, "{fault}");
            subject.fail(Op::Remove { device, name: name.to_owned() });
        }
        assert!(subject.names().is_empty());
    });
}

#[test]
fn a_full_device_is_a_fault_and_the_file_stays_as_it_was() {
    with_each_backend(|directory, backend| {
        let mut subject = open(directory, backend);
        let file = subject.create("greedy", PAGE as u64);
        let (fault, _) = subject.fail(Op::Resize { file, length: 1 << 50, prewrite: true });
        assert_eq!(fault.kind, FaultKind::NoSpace, "{fault}");
        assert!(fault.message.contains("greedy"), "{fault}");
        assert_eq!(subject.open("greedy").1, PAGE as u64);
    });
}

#[test]
fn a_directory_that_cannot_be_is_a_fault_that_names_it() {
    with_each_backend(|directory, backend| {
        let file = tempfile::NamedTempFile::new_in(directory).expect("the directory can be written");
        let inside = file.path().join("data");
        let fault = RealDriver::open(Options { backend, ..Options::new(DEVICE, &inside) }).err().expect("no directory");
        assert!(fault.message.contains(&inside.display().to_string()), "{fault}");
        let missing = directory.join("made/on/demand");
        RealDriver::open(Options { backend, ..Options::new(DEVICE, &missing) }).expect("missing directories are made");
        assert!(missing.is_dir());
    });
}

#[test]
fn a_park_that_nothing_can_end_says_so() {
    with_each_backend(|directory, backend| {
        let mut driver = RealDriver::open(Options { backend, ..Options::new(DEVICE, directory) }).expect("as before");
        assert_eq!(driver.park(None, &mut Vec::new()), Err(Halt::Idle));
    });
}

#[test]
#[should_panic(expected = "the computation's own words")]
fn a_panic_of_a_computation_goes_on_in_the_driver() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    let mut subject = open(directory.path(), Backend::Automatic);
    let run = Box::new(|| panic!("the computation's own words"));
    subject.run(Op::Compute { run, instructions: 1 });
}
