use driver::{Access, Completion, DeviceId, Driver, Fault, FileId, Frame, Op, Output, Token};
use std::any::Any;
use std::collections::BTreeMap;
use std::net::IpAddr;

/// The device that every subject has.
pub const DEVICE: &str = "disk";

/// The size of the pages that most promises transfer.
pub const PAGE: usize = 4096;

/// A driver under test, with an empty device named [`DEVICE`].
pub struct Subject {
    /// The driver.
    pub driver: Box<dyn Driver>,
    /// What must outlive the driver, such as the directory of its files.
    pub ground: Option<Box<dyn Any>>,
    /// Another machine, or another program of the same one, that can reach it.
    pub peer: Option<Peer>,
    next: u64,
}

/// A driver beside the one under test.
pub struct Peer {
    /// The other driver.
    pub driver: Box<dyn Driver>,
    /// Where it finds the one under test.
    pub address: IpAddr,
}

impl Subject {
    /// A driver and what must outlive it.
    pub fn new(driver: Box<dyn Driver>, ground: Option<Box<dyn Any>>) -> Subject {
        Subject { driver, ground, peer: None, next: 0 }
    }

    /// The same beside another driver.
    pub fn beside(self, peer: Peer) -> Subject {
        Subject { peer: Some(peer), ..self }
    }

    /// The device under test.
    pub fn device(&self) -> DeviceId {
        self.driver.device(DEVICE).expect("the subject has this device")
    }

    /// Submits an operation under a token of its own.
    pub fn submit(&mut self, op: Op) -> Token {
        let token = Token(self.next);
        self.next += 1;
        self.driver.submit(token, op);
        token
    }

    /// Parks for so long and returns what has completed.
    pub fn rest_ns(&mut self, ns: u64) -> Vec<Completion> {
        let (mut done, until) = (Vec::new(), self.driver.now().plus_ns(ns));
        while self.driver.now() < until {
            self.driver.park(Some(until), &mut done).expect("a set timer is no reason to stop");
        }
        done
    }

    /// Parks until these operations have completed. Nothing else may complete, and nothing twice.
    pub fn await_all(&mut self, tokens: &[Token]) -> Vec<Completion> {
        let mut found = BTreeMap::new();
        let mut done = Vec::new();
        while found.len() < tokens.len() {
            self.driver.park(None, &mut done).expect("the machine does not stop");
            for completion in done.drain(..) {
                assert!(tokens.contains(&completion.token), "no operation has {:?}", completion.token);
                let before = found.insert(completion.token, completion);
                assert!(before.is_none(), "{before:?} completed twice");
            }
        }
        tokens.iter().map(|token| found.remove(token).expect("each completed once")).collect()
    }

    /// Submits one operation and waits for its end.
    pub fn run(&mut self, op: Op) -> Completion {
        let token = self.submit(op);
        self.await_all(&[token]).pop().expect("one completion")
    }

    /// Submits one operation and expects its success.
    pub fn succeed(&mut self, op: Op) -> (Output, Option<Frame>) {
        let description = format!("{op:?}");
        let completion = self.run(op);
        (completion.result.unwrap_or_else(|fault| panic!("{description}: {fault}")), completion.buffer)
    }

    /// Submits one operation and expects its failure.
    pub fn fail(&mut self, op: Op) -> (Fault, Option<Frame>) {
        let description = format!("{op:?}");
        let completion = self.run(op);
        (completion.result.expect_err(&description), completion.buffer)
    }

    /// Opens a file, which is created if it is missing. Returns it and its length.
    pub fn open(&mut self, name: &str) -> (FileId, u64) {
        let device = self.device();
        match self.succeed(Op::Open { device, name: name.to_owned(), create: true }).0 {
            Output::Opened { file, length } => (file, length),
            other => panic!("opening gave {other:?}"),
        }
    }

    /// Creates a file of this length.
    pub fn create(&mut self, name: &str, length: u64) -> FileId {
        let (file, _) = self.open(name);
        self.succeed(Op::Resize { file, length, prewrite: true });
        file
    }

    /// The names of the device's files.
    pub fn names(&mut self) -> Vec<String> {
        let device = self.device();
        match self.succeed(Op::List { device }).0 {
            Output::Names(names) => names,
            other => panic!("listing gave {other:?}"),
        }
    }

    /// One frame filled with a byte.
    pub fn frame(&mut self, size: usize, byte: u8) -> Frame {
        let mut frame = self.driver.frames(1, size).expect("memory").pop().expect("one frame");
        frame.fill(byte);
        frame
    }

    /// Reads a span and returns its bytes.
    pub fn bytes(&mut self, file: FileId, offset: u64, length: usize) -> Vec<u8> {
        let buffer = self.frame(length, 0xEE);
        let (output, buffer) = self.succeed(read(file, offset, buffer));
        assert_eq!(output, Output::Done);
        buffer.expect("a read gives its buffer back").to_vec()
    }
}

/// A read of a whole frame.
pub fn read(file: FileId, offset: u64, buffer: Frame) -> Op {
    Op::Read { file, offset, length: buffer.len() as u32, buffer, access: Access::Asynchronous }
}

/// A write of a whole frame.
pub fn write(file: FileId, offset: u64, buffer: Frame, durable: bool) -> Op {
    Op::Write { file, offset, length: buffer.len() as u32, buffer, durable, access: Access::Asynchronous }
}
