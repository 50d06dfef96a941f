use crate::{Media, Options, VirtualDriver};
use base::Instant;
use devices::Hardware;
use driver::{Access, Completion, Driver, FaultKind, FileId, Frame, Halt, Op, Output, Token};

mod caches;
mod damage;
mod faults;
mod injuries;
mod network;
mod power;
mod thread;
mod timing;
mod turns;

/// A driver with the means to run one operation after another.
struct Bench {
    driver: VirtualDriver,
    next: u64,
}

impl Bench {
    fn new(hardware: Hardware, options: Options, media: &Media) -> Bench {
        Bench { driver: VirtualDriver::new(hardware, options, media.clone()), next: 0 }
    }

    fn submit(&mut self, op: Op) -> Token {
        self.next += 1;
        self.driver.submit(Token(self.next), op);
        Token(self.next)
    }

    fn run(&mut self, op: Op) -> Completion {
        let token = self.submit(op);
        let mut done = Vec::new();
        while done.is_empty() {
            self.driver.park(None, &mut done).expect("the operation completes");
        }
        assert_eq!((done.len(), done[0].token), (1, token));
        done.remove(0)
    }

    fn open(&mut self, device: &str, name: &str) -> FileId {
        let device = self.driver.device(device).expect("the device exists");
        match self.run(Op::Open { device, name: name.to_owned(), create: true }).result {
            Ok(Output::Opened { file, .. }) => file,
            other => panic!("{other:?}"),
        }
    }

    fn write(&mut self, file: FileId, offset: u64, byte: u8, length: u32, durable: bool) -> Completion {
        self.run(write(file, offset, byte, length, durable))
    }

    fn read(&mut self, file: FileId, offset: u64, length: u32) -> Result<Vec<u8>, FaultKind> {
        let completion = self.run(read(file, offset, length));
        let buffer = completion.buffer.expect("a read gives its buffer back");
        completion.result.map(|_| buffer[..length as usize].to_vec()).map_err(|fault| fault.kind)
    }
}

fn frame(length: u32) -> Frame {
    Frame::allocate(1, length as usize).pop().expect("one frame")
}

fn write(file: FileId, offset: u64, byte: u8, length: u32, durable: bool) -> Op {
    let mut buffer = frame(length);
    buffer.fill(byte);
    Op::Write { file, offset, length, buffer, durable, access: Access::Asynchronous }
}

fn read(file: FileId, offset: u64, length: u32) -> Op {
    Op::Read { file, offset, length, buffer: frame(length), access: Access::Asynchronous }
}

#[test]
fn files_keep_what_is_written_and_outlive_the_driver() {
    let media = Media::new();
    let mut bench = Bench::new(Hardware::ideal(), Options::default(), &media);
    let file = bench.open("disk", "data");
    assert!(bench.write(file, 8192, 7, 4096, true).result.is_ok());
    assert_eq!(bench.read(file, 4096, 4096), Ok(vec![0; 4096]), "never written");
    assert_eq!(bench.read(file, 8192, 4096), Ok(vec![7; 4096]));
    assert_eq!(bench.read(file, 8192, 8192), Err(FaultKind::EndOfFile));
    assert_eq!(bench.read(file, 100, 512), Err(FaultKind::Unsupported), "misaligned");
    drop(bench);

    let mut bench = Bench::new(Hardware::ideal(), Options::default(), &media);
    let file = bench.open("disk", "data");
    assert_eq!(bench.read(file, 8192, 4096), Ok(vec![7; 4096]));
    assert!(bench.run(Op::Resize { file, length: 8704, prewrite: true }).result.is_ok());
    assert!(bench.run(Op::Resize { file, length: 12288, prewrite: true }).result.is_ok());
    let tail = bench.read(file, 8192, 4096).expect("inside the file");
    assert!(tail[..512].iter().all(|b| *b == 7) && tail[512..].iter().all(|b| *b == 0), "shrinking forgets");
}

#[test]
fn names_are_listed_removed_and_reported_missing() {
    let mut bench = Bench::new(Hardware::ideal(), Options::default(), &Media::new());
    let device = bench.driver.device("disk").expect("the device exists");
    let (b, _) = (bench.open("disk", "b"), bench.open("disk", "a"));
    bench.open("flash", "c");
    let names = bench.run(Op::List { device }).result;
    assert_eq!(names, Ok(Output::Names(vec!["a".to_owned(), "b".to_owned()])));
    assert!(bench.run(Op::Remove { device, name: "b".to_owned() }).result.is_ok());
    assert!(bench.run(Op::Remove { device, name: "b".to_owned() }).result.is_ok(), "removing twice is no error");
    let fault = bench.run(Op::Open { device, name: "b".to_owned(), create: false }).result.expect_err("removed");
    assert_eq!(fault.kind, FaultKind::NotFound);
    assert!(fault.message.contains("'b'") && fault.message.contains("'disk'"), "{fault}");
    assert_eq!(bench.read(b, 0, 512), Err(FaultKind::NotFound));
    assert_eq!(bench.driver.device("tape"), None);
}

#[test]
fn a_full_device_says_so_and_keeps_what_it_has() {
    let mut hardware = Hardware::ideal();
    hardware.device_mut("disk").capacity = Some(10_000);
    let mut bench = Bench::new(hardware, Options::default(), &Media::new());
    let (first, second) = (bench.open("disk", "first"), bench.open("disk", "second"));
    assert!(bench.write(first, 0, 1, 4096, false).result.is_ok());
    assert!(bench.run(Op::Resize { file: second, length: 5_000, prewrite: true }).result.is_ok());
    let fault = bench.write(first, 4096, 2, 4096, false).result.expect_err("no room");
    assert_eq!(fault.kind, FaultKind::NoSpace);
    assert!(bench.run(Op::Resize { file: second, length: 0, prewrite: true }).result.is_ok());
    assert!(bench.write(first, 4096, 2, 4096, false).result.is_ok());
    assert_eq!(bench.read(first, 0, 4096), Ok(vec![1; 4096]));
}

#[test]
fn a_device_is_full_for_as_long_as_it_is_made_so() {
    let media = Media::new();
    let mut bench = Bench::new(Hardware::ideal(), Options::default(), &media);
    let file = bench.open("disk", "first");
    assert!(bench.write(file, 0, 1, 4096, false).result.is_ok());
    media.set_full("disk", true);
    for op in [write(file, 4096, 2, 4096, false), Op::Resize { file, length: 8192, prewrite: true }] {
        assert_eq!(bench.run(op).result.expect_err("no room").kind, FaultKind::NoSpace);
    }
    assert!(bench.write(file, 0, 3, 4096, true).result.is_ok(), "what is there may be written");
    media.set_full("disk", false);
    assert!(bench.write(file, 4096, 2, 4096, false).result.is_ok());
}

#[test]
fn discarded_files_keep_their_length_only() {
    let media = Media::new();
    let options = Options { discard: vec!["log".to_owned()], ..Options::default() };
    let mut bench = Bench::new(Hardware::ideal(), options, &media);
    let (log, data) = (bench.open("disk", "log.1"), bench.open("disk", "data"));
    bench.write(log, 0, 9, 4096, true);
    bench.write(data, 0, 9, 4096, true);
    assert_eq!(bench.read(log, 0, 4096), Ok(vec![0; 4096]));
    assert_eq!(bench.read(data, 0, 4096), Ok(vec![9; 4096]));
    assert_eq!(media.length("disk", "log.1"), Some(4096));
}

#[test]
fn park_passes_time_rings_and_knows_when_nothing_can_happen() {
    let mut bench = Bench::new(Hardware::ideal(), Options::default(), &Media::new());
    let mut done = Vec::new();
    assert_eq!(bench.driver.park(None, &mut done), Err(Halt::Idle));
    assert_eq!(bench.driver.park(Some(Instant::from_ns(500)), &mut done), Ok(()));
    assert_eq!(bench.driver.now(), Instant::from_ns(500));
    bench.driver.doorbell().ring();
    assert_eq!(bench.driver.park(None, &mut done), Ok(()));
    assert_eq!(done.remove(0).token, Token::DOORBELL);

    let file = bench.open("disk", "data");
    bench.write(file, 0, 1, 512, false);
    let start = bench.driver.now();
    bench.submit(read(file, 0, 512));
    assert!(bench.driver.park(Some(Instant::START), &mut done).is_ok() && done.is_empty(), "never inside submit");
    assert!(bench.driver.park(Some(start.plus_ns(9_999)), &mut done).is_ok() && done.is_empty(), "ideal disk: 10 us");
    assert!(bench.driver.park(Some(start.plus_ns(20_000)), &mut done).is_ok());
    assert_eq!((done.len(), bench.driver.now()), (1, start.plus_ns(10_000)));
}

#[test]
fn computations_run_and_deliver() {
    let mut bench = Bench::new(Hardware::named("rahm-1991").expect("embedded"), Options::default(), &Media::new());
    let (sender, receiver) = std::sync::mpsc::channel();
    let run = Box::new(move || sender.send(6 * 7).expect("the receiver lives"));
    assert!(bench.run(Op::Compute { run, instructions: 50_000_000 }).result.is_ok());
    assert_eq!(receiver.try_recv(), Ok(42));
    assert_eq!(bench.driver.now(), Instant::from_ns(base::time::SECOND_NS), "50 MIPS");
}
