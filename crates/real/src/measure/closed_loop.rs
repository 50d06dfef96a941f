#![allow(unsafe_code)]

use super::{Point, Probe};
use crate::RealDriver;
use base::statistics::Histogram;
use base::{Instant, Random};
use driver::{Access, Completion, DeviceId, Driver, Fault, FileId, Frame, Op, Output, Token};

const DEVICE: DeviceId = DeviceId(0);
/// The file grows by this much at a time, so that all of it is written in advance.
const STEP: u64 = crate::PREWRITE_MAX;

/// A closed loop of operations on one file: as one ends the next begins.
pub(crate) struct ClosedLoop {
    driver: RealDriver,
    file: FileId,
    file_bytes: u64,
    /// The buffers at rest, by token.
    frames: Vec<Option<Frame>>,
    begun: Vec<Instant>,
    random: Random,
    position: u64,
    done: Vec<Completion>,
}

impl ClosedLoop {
    /// A new file of `file_bytes` written bytes, and buffers of `size` bytes for `depth` operations at once.
    pub(crate) fn new(
        mut driver: RealDriver,
        name: &str,
        file_bytes: u64,
        size: u32,
        depth: u32,
    ) -> Result<ClosedLoop, Fault> {
        let mut frames = driver.frames(depth as usize, size as usize)?;
        let mut random = Random::stream(1, "measure");
        // Data that does not shrink: some devices compress.
        frames.iter_mut().for_each(|frame| random.fill(frame));
        let mut bench = ClosedLoop {
            driver,
            file: FileId(0),
            file_bytes,
            frames: frames.into_iter().map(Some).collect(),
            begun: vec![Instant::START; depth as usize],
            random,
            position: 0,
            done: Vec::new(),
        };
        bench.remove(name)?;
        let open = Op::Open { device: DEVICE, name: name.to_owned(), create: true };
        if let Output::Opened { file, .. } = bench.once(open)? {
            bench.file = file;
        }
        for length in (STEP..file_bytes).step_by(STEP as usize).chain([file_bytes]) {
            let grown = bench.once(Op::Resize { file: bench.file, length, prewrite: true });
            if let Err(fault) = grown {
                bench.remove(name)?;
                return Err(fault);
            }
        }
        Ok(bench)
    }

    /// Removes the file.
    pub(crate) fn remove(&mut self, name: &str) -> Result<(), Fault> {
        self.once(Op::Remove { device: DEVICE, name: name.to_owned() }).map(|_| ())
    }

    pub(crate) fn driver(&self) -> &RealDriver {
        &self.driver
    }

    /// Repeats a probe for `span_ns`.
    pub(crate) fn run(&mut self, probe: Probe, size: u32, depth: u32, span_ns: u64) -> Result<Point, Fault> {
        let mut times = Histogram::new();
        let cpu = cpu_time_ns();
        let start = self.driver.now();
        let until = start.plus_ns(span_ns);
        let operations = match probe {
            Probe::Sync => self.batches(size, depth, until, &mut times)?,
            _ => self.stream(probe, size, depth, until, &mut times)?,
        };
        let seconds = self.driver.now().since_ns(start) as f64 / 1e9;
        let rate = operations as f64 / seconds;
        Ok(Point {
            probe,
            size,
            depth,
            operations,
            mean_ns: times.mean_ns(),
            p50_ns: times.quantile_ns(0.5),
            p99_ns: times.quantile_ns(0.99),
            operations_per_second: rate,
            bytes_per_second: rate * f64::from(size),
            cpu_ns_mean: (cpu_time_ns() - cpu) as f64 / operations as f64,
        })
    }

    /// Keeps `depth` operations in flight until the moment is reached. Returns how many were made.
    fn stream(
        &mut self,
        probe: Probe,
        size: u32,
        depth: u32,
        until: Instant,
        times: &mut Histogram,
    ) -> Result<u64, Fault> {
        let mut operations = 0;
        let mut in_flight = depth;
        let mut failed = None;
        (0..depth as usize).for_each(|index| self.begin(index, probe, size));
        while in_flight > 0 {
            let now = self.park();
            for index in 0..self.done.len() {
                let Completion { token, result, buffer } = take(&mut self.done[index]);
                let slot = token.0 as usize;
                self.frames[slot] = buffer;
                times.record(now.since_ns(self.begun[slot]));
                operations += 1;
                failed = failed.or(result.err());
                if now < until && failed.is_none() {
                    self.begin(slot, probe, size);
                } else {
                    in_flight -= 1;
                }
            }
        }
        failed.map_or(Ok(operations), Err)
    }

    /// Batches of `depth` writes, each followed by one sync, which is timed. Returns the number of writes.
    fn batches(&mut self, size: u32, depth: u32, until: Instant, times: &mut Histogram) -> Result<u64, Fault> {
        let mut operations = 0;
        while operations == 0 || self.driver.now() < until {
            operations += self.stream(Probe::Write, size, depth, Instant::START, &mut Histogram::new())?;
            let begun = self.driver.now();
            self.once(Op::Sync { file: self.file })?;
            times.record(self.driver.now().since_ns(begun));
        }
        Ok(operations)
    }

    fn begin(&mut self, slot: usize, probe: Probe, length: u32) {
        let places = self.file_bytes / u64::from(length);
        let place = match probe {
            Probe::SequentialRead | Probe::SequentialWrite => {
                self.position += 1;
                (self.position - 1) % places
            }
            _ => self.random.below(places),
        };
        let buffer = self.frames[slot].take().expect("the slot's operation has ended");
        let (file, offset, access) = (self.file, place * u64::from(length), Access::Asynchronous);
        let op = match probe {
            Probe::Read | Probe::SequentialRead => Op::Read { file, offset, length, buffer, access },
            _ => Op::Write { file, offset, length, buffer, durable: probe == Probe::DurableWrite, access },
        };
        self.begun[slot] = self.driver.now();
        self.driver.submit(Token(slot as u64), op);
    }

    fn once(&mut self, op: Op) -> Result<Output, Fault> {
        self.driver.submit(Token(u64::MAX - 1), op);
        self.park();
        take(&mut self.done[0]).result
    }

    /// Parks until something has ended, and says when.
    fn park(&mut self) -> Instant {
        self.done.clear();
        self.driver.park(None, &mut self.done).expect("something is in flight");
        self.driver.now()
    }
}

fn take(completion: &mut Completion) -> Completion {
    let taken = Completion { token: completion.token, result: Ok(Output::Done), buffer: None };
    std::mem::replace(completion, taken)
}

/// The CPU time of all threads of this process so far, in nanoseconds.
fn cpu_time_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` outlives the call. The clock exists on every Linux; if it did not, the time would stay zero.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
