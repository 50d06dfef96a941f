//! Devices of this machine that are mapped into memory, and those that behave by a description.

use conformance::{DEVICE, PAGE, Subject};
use driver::{Access, Driver, FileId, Frame, Op, Output, Token};
use real_driver::{Backend, Behaviour, Options, RealDriver};
use std::collections::BTreeMap;
use std::path::Path;

fn scratch() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory")
}

fn open(directory: &Path, behaviour: Behaviour) -> Subject {
    let devices = vec![(DEVICE.to_owned(), directory.to_owned())];
    let behaviour = BTreeMap::from([(DEVICE.to_owned(), behaviour)]);
    let options = Options { devices, behaviour, backend: Backend::Automatic, ..Options::default() };
    Subject::new(Box::new(RealDriver::open(options).expect("opens")), None)
}

fn mapped() -> Behaviour {
    Behaviour { mapped: true, described: None }
}

fn described(mapped: bool, text: &str) -> Behaviour {
    let hardware = devices::Hardware::parse(&format!("[device.disk]\n{text}"), "described").expect("valid");
    Behaviour { mapped, described: hardware.devices.into_values().next() }
}

fn write(file: FileId, offset: u64, buffer: Frame, access: Access) -> Op {
    Op::Write { file, offset, length: buffer.len() as u32, buffer, durable: true, access }
}

const SYNCHRONOUS: Access = Access::Synchronous { instructions: 300 };

#[test]
fn a_mapped_device_says_how_it_is_durable_and_holds_the_cpu() {
    let directory = scratch();
    let subject = open(directory.path(), mapped());
    let description = subject.driver.description();
    assert!(description.contains("mapped with MAP_S"), "{description}");
    assert!(description.contains("msync") || description.contains("sfence"), "{description}");
    let traits = subject.driver.traits(subject.device());
    assert!(traits.synchronous && traits.alignment <= 512 && traits.atomic_write <= 512, "{traits:?}");
    if let Ok(memory) = tempfile::tempdir_in("/dev/shm") {
        let subject = open(memory.path(), mapped());
        assert!(subject.driver.description().contains("not durable"), "{}", subject.driver.description());
        assert!(!subject.driver.traits(subject.device()).durable);
    }
}

#[test]
fn mapped_and_plain_drivers_see_the_same_files() {
    let directory = scratch();
    let mut subject = open(directory.path(), mapped());
    let file = subject.create("pages", 8 * PAGE as u64);
    for number in 0..8 {
        let frame = subject.frame(PAGE, number as u8 + 1);
        subject.succeed(write(file, number * PAGE as u64, frame, SYNCHRONOUS));
    }
    // Small and unaligned accesses, as a slot's header needs them.
    let frame = subject.frame(64, 0xAA);
    subject.succeed(write(file, 5 * PAGE as u64 + 192, frame, SYNCHRONOUS));
    // A write beyond the end makes the file longer, and the mapping follows.
    let frame = subject.frame(PAGE, 0xBB);
    subject.succeed(write(file, 40 * PAGE as u64, frame, Access::Asynchronous));
    assert!(subject.bytes(file, 40 * PAGE as u64, PAGE).iter().all(|byte| *byte == 0xBB));
    assert!(subject.bytes(file, 30 * PAGE as u64, PAGE).iter().all(|byte| *byte == 0));
    subject.succeed(Op::Resize { file, length: 20 * PAGE as u64, prewrite: true });
    drop(subject);
    let mut subject = open(directory.path(), Behaviour::default());
    let (file, length) = subject.open("pages");
    assert_eq!(length, 20 * PAGE as u64);
    for number in 0..8_u64 {
        let bytes = subject.bytes(file, number * PAGE as u64, PAGE);
        let changed = |at: usize| number == 5 && (192..256).contains(&at);
        let right = |(at, byte): (usize, &u8)| *byte == if changed(at) { 0xAA } else { number as u8 + 1 };
        assert!(bytes.iter().enumerate().all(right), "page {number}");
    }
    drop(subject);
    let mut subject = open(directory.path(), mapped());
    let (file, _) = subject.open("pages");
    assert!(subject.bytes(file, 7 * PAGE as u64, PAGE).iter().all(|byte| *byte == 8));
}

#[test]
fn a_described_device_takes_the_time_of_its_description() {
    let directory = scratch();
    let mut subject = open(directory.path(), described(false, "medium = { servers = 1, service = \"5 ms\" }"));
    assert!(subject.driver.description().contains("with the delays of its description"));
    let file = subject.create("slow", 8 * PAGE as u64);
    let began = subject.driver.now();
    let tokens: Vec<_> = (0..4)
        .map(|number| {
            let frame = subject.frame(PAGE, number as u8);
            subject.submit(write(file, number * PAGE as u64, frame, Access::Asynchronous))
        })
        .collect();
    subject.await_all(&tokens);
    let took_ms = subject.driver.now().since_ns(began) / 1_000_000;
    assert!(took_ms >= 20, "four requests queue for one arm: {took_ms} ms");
    let stations = subject.driver.stations();
    let medium = stations.iter().find(|station| station.name == "disk.medium").expect("the described arm");
    assert_eq!(medium.completed, 4);
    assert!(stations.iter().all(|station| station.little_error < 1e-9), "{stations:?}");
}

#[test]
fn a_described_device_begins_what_it_is_asked_when_the_thread_has_nothing_else_to_run() {
    let directory = scratch();
    let mut subject = open(directory.path(), described(false, "medium = { servers = 1, service = \"30 ms\" }"));
    let file = subject.create("late", PAGE as u64);
    let buffer = subject.frame(PAGE, 7);
    let asked = subject.driver.now();
    let token = subject.submit(write(file, 0, buffer, Access::Asynchronous));
    while subject.driver.now().since_ns(asked) < 30_000_000 {
        std::hint::spin_loop();
    }
    let parked = subject.driver.now();
    subject.await_all(&[token]);
    let took_ms = subject.driver.now().since_ns(parked) / 1_000_000;
    assert!(took_ms >= 30, "the operating system has it from the park on, as those of other devices: {took_ms} ms");
}

#[test]
fn what_has_ended_on_one_device_does_not_wait_for_a_described_one() {
    let (slow, quick) = (scratch(), scratch());
    let behaviour = described(false, "medium = { servers = 1, service = { read = \"3 s\", write = \"1 us\" } }");
    let mut options = Options::new("slow", slow.path());
    options.devices.push(("quick".to_owned(), quick.path().to_owned()));
    options.behaviour = BTreeMap::from([("slow".to_owned(), behaviour)]);
    options.direct = false;
    let mut driver = RealDriver::open(options).expect("opens");
    let open = |driver: &mut RealDriver, device: &str| {
        let mut done = Vec::new();
        let device = driver.device(device).expect("it was just named");
        driver.submit(Token(1), Op::Open { device, name: "file".into(), create: true });
        while done.is_empty() {
            driver.park(None, &mut done).expect("a real machine goes on");
        }
        match done.remove(0).result {
            Ok(Output::Opened { file, .. }) => file,
            other => panic!("{other:?}"),
        }
    };
    let [slow, quick] = ["slow", "quick"].map(|device| open(&mut driver, device));
    let mut done = Vec::new();
    let park = |driver: &mut RealDriver, done: &mut Vec<_>| {
        while done.is_empty() {
            driver.park(None, done).expect("a real machine goes on");
        }
    };
    // What the system has in memory is read when that is handed over.
    for file in [slow, quick] {
        let buffer = driver.frames(1, PAGE).expect("there is memory").remove(0);
        driver.submit(Token(2), write(file, 0, buffer, Access::Asynchronous));
        park(&mut driver, &mut done);
        done.clear();
    }
    let began = driver.now();
    for (token, file) in [(3, slow), (4, quick)] {
        let buffer = driver.frames(1, PAGE).expect("there is memory").remove(0);
        let (length, access) = (PAGE as u32, Access::Asynchronous);
        driver.submit(Token(token), Op::Read { file, offset: 0, length, buffer, access });
    }
    park(&mut driver, &mut done);
    let took_ms = driver.now().since_ns(began) / 1_000_000;
    assert_eq!((done.len(), done[0].token), (1, Token(4)));
    assert!(took_ms < 2_000, "it waits for the other one: {took_ms} ms");
}

#[test]
fn a_synchronous_access_holds_the_thread_as_long_as_described() {
    let Ok(memory) = tempfile::tempdir_in("/dev/shm") else { return println!("skipped: no memory file system") };
    let nvem = "medium = { servers = 1, service = \"300 us\" }\nsynchronous = true";
    let mut subject = open(memory.path(), described(true, nvem));
    assert!(subject.driver.traits(subject.device()).synchronous);
    let file = subject.create("nvem", PAGE as u64);
    let buffer = subject.frame(PAGE, 7);
    let began = subject.driver.now();
    let token = subject.submit(write(file, 0, buffer, SYNCHRONOUS));
    let held_us = subject.driver.now().since_ns(began) / 1_000;
    assert!(held_us >= 300, "{held_us} us");
    let completion = subject.await_all(&[token]).pop().expect("one");
    assert_eq!(completion.result, Ok(Output::Done));
}

#[test]
fn a_described_cache_answers_before_the_disk() {
    let directory = scratch();
    let disk = "controller.service = \"100 us\"\nmedium = { servers = 1, service = \"40 ms\" }\n\
                cache = { kind = \"non-volatile\", size = \"4 pages\" }";
    let mut subject = open(directory.path(), described(false, disk));
    let file = subject.create("cached", PAGE as u64);
    let frame = subject.frame(PAGE, 1);
    let began = subject.driver.now();
    subject.succeed(write(file, 0, frame, Access::Asynchronous));
    subject.bytes(file, 0, PAGE);
    let took_ms = subject.driver.now().since_ns(began) / 1_000_000;
    let caches = subject.driver.caches();
    let counts = caches[0].files.iter().find(|file| file.name == "cached").expect("counted");
    assert_eq!((counts.absorbed, counts.read_hits), (1, 1), "{caches:?}");
    // A busy machine may take longer than the cache, but only a machine that waits for the disk takes twice its time.
    assert!(took_ms < 80, "{took_ms} ms");
}
