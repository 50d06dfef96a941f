//! A closed loop of operations on one file, on any driver: a number of each kind is under way, and as one ends the next of its
//! kind begins. The same loop measures this machine's device and the description that is fitted to it.

use base::statistics::Histogram;
use base::{Instant, Random};
use driver::{Access, Completion, DeviceId, Driver, Fault, FileId, Frame, Op, Output, Token};
use serde::{Deserialize, Serialize};

/// The kinds of operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ProbeKind {
    /// Reads.
    Read,
    /// Writes over written data.
    Write,
    /// Data-sync writes over written data.
    Durable,
    /// Syncs, each behind a write of its own, which is not timed.
    Sync,
}

impl ProbeKind {
    /// All of them.
    pub const ALL: [ProbeKind; 4] = [ProbeKind::Read, ProbeKind::Write, ProbeKind::Durable, ProbeKind::Sync];
    /// A word for each.
    pub const WORDS: [&str; 4] = ["read", "write", "durable write", "sync"];
}

/// How many of each kind are under way at once, and how long a transfer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mix {
    /// By kind.
    pub depths: [u32; 4],
    /// The length of a transfer, in bytes.
    pub size: u32,
    /// Whether transfers follow each other in the file; otherwise their places are random.
    pub in_sequence: bool,
}

/// The shares at which a distribution of times is kept.
pub const SHARES: [f64; 12] = [0.0, 0.01, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 0.995, 0.999, 1.0];

/// The times of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ProbeTimes {
    /// How many ended.
    pub count: u64,
    /// Their mean, in nanoseconds.
    pub mean_ns: f64,
    /// Their quantiles at [`SHARES`], in nanoseconds.
    pub quantiles_ns: [u64; SHARES.len()],
}

impl ProbeTimes {
    /// Of these times.
    pub fn of(times: &Histogram) -> ProbeTimes {
        let quantiles_ns = SHARES.map(|share| times.quantile_ns(share));
        ProbeTimes { count: times.count(), mean_ns: times.mean_ns(), quantiles_ns }
    }

    /// The median, in nanoseconds.
    pub fn p50_ns(&self) -> f64 {
        self.quantiles_ns[4] as f64
    }

    /// What 99 % do not exceed, in nanoseconds.
    pub fn p99_ns(&self) -> f64 {
        self.quantiles_ns[8] as f64
    }
}

/// What was seen of a mix.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProbePoint {
    /// What was under way.
    pub mix: Mix,
    /// For how long, in seconds.
    pub seconds: f64,
    /// The times by kind.
    pub times: [ProbeTimes; 4],
    /// CPU time of this thread, in nanoseconds; zero on described hardware.
    pub cpu_ns: u64,
    /// How often this thread turned to the operating system, as [`ThreadUse::counts`](driver::ThreadUse::counts) orders it.
    pub thread: [u64; 4],
}

impl ProbePoint {
    /// Operations of a kind per second.
    pub fn per_second(&self, kind: ProbeKind) -> f64 {
        self.times[kind as usize].count as f64 / self.seconds
    }

    /// Operations of all kinds, the writes before syncs included.
    pub fn operations(&self) -> u64 {
        self.times.iter().map(|times| times.count).sum::<u64>() + self.times[ProbeKind::Sync as usize].count
    }
}

/// When a point ends.
#[derive(Clone, Copy, Debug)]
pub enum Until {
    /// After this number of nanoseconds.
    Time(u64),
    /// After this number of operations.
    Operations(u64),
}

/// An operation under way or at rest.
struct Slot {
    kind: ProbeKind,
    /// Whether the write before a sync is under way.
    prepares: bool,
    begun: Instant,
    frame: Option<Frame>,
}

/// A closed loop on a file.
pub struct ClosedLoop {
    driver: Box<dyn Driver>,
    device: DeviceId,
    file: FileId,
    file_bytes: u64,
    name: String,
    slots: Vec<Slot>,
    /// CPU instructions of an operation, on described hardware.
    instructions: u64,
    random: Random,
    position: u64,
    done: Vec<Completion>,
}

impl ClosedLoop {
    /// A new file of `file_bytes` written bytes on a device, with buffers of `size` bytes for `depth` operations at once.
    pub fn new(
        mut driver: Box<dyn Driver>,
        (device, name): (&str, &str),
        file_bytes: u64,
        (size, depth): (u32, u32),
    ) -> Result<ClosedLoop, Fault> {
        let device = driver.device(device).expect("the driver has the device that it was made with");
        let mut frames = driver.frames(depth as usize, size as usize)?;
        let mut random = Random::stream(1, "calibrate");
        // Data that does not shrink: some devices compress.
        frames.iter_mut().for_each(|frame| random.fill(frame));
        let at_rest =
            |frame| Slot { kind: ProbeKind::Read, prepares: false, begun: Instant::START, frame: Some(frame) };
        let mut bench = ClosedLoop {
            driver,
            device,
            file: FileId(0),
            file_bytes,
            name: name.to_owned(),
            slots: frames.into_iter().map(at_rest).collect(),
            instructions: 0,
            random,
            position: 0,
            done: Vec::new(),
        };
        bench.remove()?;
        if let Output::Opened { file, .. } = bench.once(Op::Open { device, name: name.to_owned(), create: true })? {
            bench.file = file;
        }
        match bench.find_room().and_then(|()| bench.fill(true)) {
            Ok(()) => Ok(bench),
            Err(fault) => {
                bench.remove()?;
                Err(fault)
            }
        }
    }

    /// Asks for all its room at once: it is refused before a device is filled that has less.
    fn find_room(&mut self) -> Result<(), Fault> {
        let file = self.file;
        self.once(Op::Resize { file, length: self.file_bytes, prewrite: false })?;
        self.once(Op::Resize { file, length: 0, prewrite: false }).map(|_| ())
    }

    /// Makes the file as long as it is to be, written or not.
    fn fill(&mut self, prewrite: bool) -> Result<(), Fault> {
        let step = real_driver::PREWRITE_MAX;
        for length in (step..self.file_bytes).step_by(step as usize).chain([self.file_bytes]) {
            self.once(Op::Resize { file: self.file, length, prewrite })?;
        }
        Ok(())
    }

    /// The same file with room that was never written.
    pub fn make_fresh(&mut self) -> Result<(), Fault> {
        self.once(Op::Resize { file: self.file, length: 0, prewrite: false })?;
        self.position = 0;
        self.fill(false)
    }

    /// From now on a sequence begins with the first place.
    pub fn rewind(&mut self) {
        self.position = 0;
    }

    /// Removes the file.
    pub fn remove(&mut self) -> Result<(), Fault> {
        self.once(Op::Remove { device: self.device, name: self.name.clone() }).map(|_| ())
    }

    /// From now on an operation costs this number of instructions, on described hardware.
    pub fn charge(&mut self, instructions: u64) {
        self.instructions = instructions;
    }

    /// Keeps a mix under way.
    pub fn run(&mut self, mix: Mix, until: Until) -> Result<ProbePoint, Fault> {
        let mut times: [Histogram; 4] = Default::default();
        let mut slots = 0;
        for (kind, depth) in ProbeKind::ALL.into_iter().zip(mix.depths) {
            for _ in 0..depth {
                (self.slots[slots].kind, self.slots[slots].prepares) = (kind, kind == ProbeKind::Sync);
                slots += 1;
            }
        }
        self.driver.restart_statistics();
        let (cpu, start) = (real_driver::thread_cpu_ns(), self.driver.now());
        let (mut under_way, mut ended, mut failed) = (slots, 0, None);
        (0..slots).for_each(|slot| self.begin(slot, &mix));
        while under_way > 0 {
            let now = self.park();
            let over = match until {
                Until::Time(ns) => now.since_ns(start) >= ns,
                Until::Operations(count) => ended >= count,
            };
            for index in 0..self.done.len() {
                let Completion { token, result, buffer } = take(&mut self.done[index]);
                let slot = &mut self.slots[token.0 as usize];
                slot.frame = buffer.or(slot.frame.take());
                failed = failed.or(result.err());
                if !slot.prepares {
                    times[slot.kind as usize].record(now.since_ns(slot.begun));
                    ended += 1;
                }
                // A sync follows its write in any case, so that every write before one is followed by one.
                let goes_on = slot.prepares || !over;
                slot.prepares = slot.kind == ProbeKind::Sync && !slot.prepares;
                if goes_on && failed.is_none() {
                    self.begin(token.0 as usize, &mix);
                } else {
                    under_way -= 1;
                }
            }
        }
        let seconds = self.driver.now().since_ns(start) as f64 / 1e9;
        let is_real = self.driver.prices().is_none();
        let cpu_ns = if is_real { real_driver::thread_cpu_ns() - cpu } else { 0 };
        let thread = self.driver.thread_use().counts();
        let times = times.each_ref().map(ProbeTimes::of);
        failed.map_or(Ok(ProbePoint { mix, seconds, times, cpu_ns, thread }), Err)
    }

    fn begin(&mut self, number: usize, mix: &Mix) {
        if self.instructions > 0 {
            self.driver.compute_alone(self.instructions, None);
        }
        let length = mix.size;
        let places = self.file_bytes / u64::from(length);
        let place = if mix.in_sequence {
            self.position += 1;
            (self.position - 1) % places
        } else {
            self.random.below(places)
        };
        let slot = &mut self.slots[number];
        slot.begun = self.driver.now();
        let (file, offset, access) = (self.file, place * u64::from(length), Access::Asynchronous);
        let mut buffer = || slot.frame.take().expect("the slot's operation has ended");
        let op = match slot.kind {
            ProbeKind::Read => Op::Read { file, offset, length, buffer: buffer(), access },
            ProbeKind::Sync if !slot.prepares => Op::Sync { file },
            kind => Op::Write { file, offset, length, buffer: buffer(), durable: kind == ProbeKind::Durable, access },
        };
        self.driver.submit(Token(number as u64), op);
    }

    fn once(&mut self, op: Op) -> Result<Output, Fault> {
        self.driver.submit(Token(u64::MAX - 1), op);
        self.done.clear();
        while self.done.is_empty() {
            self.driver.park(None, &mut self.done).expect("something is under way");
        }
        take(&mut self.done[0]).result
    }

    /// Waits until something has ended, and says when.
    fn park(&mut self) -> Instant {
        self.done.clear();
        self.driver.park(None, &mut self.done).expect("something is under way");
        self.driver.now()
    }
}

fn take(completion: &mut Completion) -> Completion {
    let taken = Completion { token: completion.token, result: Ok(Output::Done), buffer: None };
    std::mem::replace(completion, taken)
}
