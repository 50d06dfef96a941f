//! The log on the virtual driver, against a plain list of the records appended.

mod commit;
mod crash;
mod damage;
mod growth;
mod round_trip;

use super::*;
use base::Random;
use driver::{Access, DeviceId, Frame, Halt, Op};
use executor::Order;
use lazy_sync::LAZY_SYNC_NS;
use start::LAZY_WRITE_NS;
use virtual_driver::{FaultPlan, Hardware, Media, Options, VirtualDriver};

const DEVICE: &str = "disk";
const SECOND: &str = "flash";

/// Media that machines come and go on. Power cuts tear writes at 128 bytes.
#[derive(Default)]
struct Site {
    media: Media,
    /// A restart does as if the second of two devices had everything.
    trusts_second_alone: bool,
    /// A restart expects what was committed, though nothing says that it is durable.
    believes_commits: bool,
}

impl Site {
    fn hardware() -> Hardware {
        let mut hardware = Hardware::ideal();
        for name in [DEVICE, SECOND] {
            let device = hardware.device_mut(name);
            device.alignment = 128;
            device.atomic_write = 128;
        }
        hardware
    }

    /// A machine where nothing goes wrong and tasks run in order.
    fn machine(&self) -> Machine {
        self.machine_with(Options { faults: Some(FaultPlan::default()), ..Options::default() }, Order::FirstInFirstOut)
    }

    fn machine_with(&self, options: Options, order: Order) -> Machine {
        let driver = VirtualDriver::new(Site::hardware(), options, self.media.clone());
        let executor = Executor::new(Box::new(driver), order);
        let device = executor.device(DEVICE).expect("the ideal hardware has a disk");
        let (trusts_second_alone, believes_commits) = (self.trusts_second_alone, self.believes_commits);
        Machine { executor, device, trusts_second_alone, believes_commits }
    }
}

struct Machine {
    executor: Executor,
    device: DeviceId,
    trusts_second_alone: bool,
    believes_commits: bool,
}

impl Machine {
    fn run<T>(&self, future: impl Future<Output = T>) -> T {
        self.executor.run(future).expect("the machine stays up")
    }

    async fn create(&self, settings: &Settings) -> Rc<Log> {
        Log::create(&self.executor, DEVICE, settings).await.expect("created")
    }

    async fn scan(&self, settings: &Settings, from: Lsn, known_durable: Lsn) -> Result<(Vec<Found>, LogScan)> {
        let mut scan = match &settings.second {
            None => LogScan::open(&self.executor, self.device, settings, from, known_durable).await?,
            Some(second) => self.scan_both(settings, second, (from, known_durable)).await?,
        };
        let mut found = Vec::new();
        while let Some(entry) = scan.next().await? {
            found.push(Found { start: entry.start, end: entry.end, bytes: entry.bytes.to_vec() });
        }
        assert_eq!(scan.next().await?, None, "the end stays the end");
        Ok((found, scan))
    }

    /// A scan over both copies.
    async fn scan_both(&self, settings: &Settings, second: &Second, span: (Lsn, Lsn)) -> Result<LogScan> {
        let mut copies = Copies { tolerant: second.acknowledged == Acknowledged::Both, ..Copies::default() };
        for (index, name) in [DEVICE, &second.device].into_iter().enumerate() {
            let device = self.executor.device(name).expect("described");
            let file = LogFile::open(&self.executor, (device, name), (settings, index), None).await?;
            if index == 0 && self.trusts_second_alone {
                copies.fresh.push(file);
            } else {
                copies.kept.push(file);
            }
        }
        Ok(LogScan::over(&self.executor, copies, settings, Circle::from_zero(settings.capacity), span))
    }

    async fn reopen(&self, settings: &Settings, from: Lsn) -> (Vec<Found>, Rc<Log>) {
        let (found, scan) = self.scan(settings, from, from).await.expect("sound");
        (found, scan.finish())
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        self.executor.stop();
    }
}

#[derive(Clone, Debug, PartialEq)]
struct Found {
    start: Lsn,
    end: Lsn,
    bytes: Vec<u8>,
}

fn small_settings() -> Settings {
    Settings { page_size: 512, capacity: 64 * 512, write_size_max: 4 * 512, ..Settings::default() }
}

/// A record of `size` bytes, at least 16, with a true length and random contents.
fn record_of(random: &mut Random, size: usize) -> Vec<u8> {
    let mut bytes = vec![0; size.max(16)];
    random.fill(&mut bytes[4..]);
    let length = bytes.len() as u32;
    bytes[..4].copy_from_slice(&length.to_le_bytes());
    bytes
}

/// Appends a record and says where it stands, as far as the log tells: its end.
fn append(log: &Log, bytes: Vec<u8>) -> (Lsn, Vec<u8>) {
    (log.append_encoded(&bytes), bytes)
}

/// Whether the records found are these, in order, without overlaps.
fn assert_same(found: &[Found], expected: &[(Lsn, Vec<u8>)]) {
    assert_eq!(found.len(), expected.len(), "as many records");
    let mut last = Lsn::ZERO;
    for (found, (end, bytes)) in found.iter().zip(expected) {
        assert!(found.bytes == *bytes && found.end == *end, "{} is not the record of {end}", found.end);
        assert!(last <= found.start && found.start < found.end);
        last = found.end;
    }
}
