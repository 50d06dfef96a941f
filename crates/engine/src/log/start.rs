//! Where an opening of the log begins: its files, its state, the writer.

use super::Circle;
use super::batches::Batches;
use super::buffer::LogBuffer;
use super::duplex::{Duplex, SideFile};
use super::group_commit::CommitGroup;
use super::growth::{LogExtent, LogGrowth};
use super::lazy_sync::LazySync;
use super::statistics::LogStatistics;
use super::waiters::Waiters;
use super::{GROUP, GroupCommit, Log, LogState, Measured, Settings, writer};
use crate::{Error, Result};
use base::Lsn;
use driver::{DeviceId, Fault, FaultKind, FileId, Op};
use executor::{Executor, WaitQueue};
use std::cell::{Cell, OnceCell, RefCell};
use std::rc::Rc;

/// How long records may wait in memory where commits do not wait for them, in nanoseconds.
pub(super) const LAZY_WRITE_NS: u64 = 100 * base::time::MILLISECOND_NS;

/// How much a new log file grows at once, in bytes: small enough that drivers write it with zeros.
const GROWTH_STEP: u64 = 64 << 20;

impl Log {
    /// Creates an empty log on the device of this name, in place of any file of the log's name, and on the second device if
    /// there is one.
    ///
    /// # Errors
    /// [`Setting`](crate::Error::Setting), or the driver's [`Input`](crate::Error::Input).
    pub async fn create(executor: &Executor, device: &str, settings: &Settings) -> Result<Rc<Log>> {
        settings.check_capacity(settings.capacity)?;
        let circle = Circle::from_zero(settings.capacity);
        let extent = settings.first_extent();
        let first = (crate::io::device(executor, device)?, device);
        let mut files = vec![LogFile::create(executor, first, (settings, 0), extent).await?];
        if let Some(second) = &settings.second {
            let device = crate::io::device(executor, &second.device)?;
            let place = (device, &second.device[..]);
            files.push(LogFile::create(executor, place, (settings, 1), extent).await?);
        }
        let start = Start {
            files,
            circle,
            position: circle.first(settings.page_size as u64),
            oldest: circle.first(settings.page_size as u64),
            epoch: 1,
            changed_alone: Lsn::ZERO,
        };
        Ok(Log::start(executor, settings, &start))
    }

    /// Takes the log up. Nothing is written before there is something to log, so that an opening leaves a full log as it is.
    pub(super) fn start(executor: &Executor, settings: &Settings, start: &Start) -> Rc<Log> {
        let log = Log::assemble(executor, settings, start);
        executor.spawn_in(log.group, 0, writer::run(Rc::downgrade(&log), executor.clone(), Rc::clone(&log.bell)));
        log
    }

    /// An open log without a writer.
    pub(super) fn assemble(executor: &Executor, settings: &Settings, start: &Start) -> Rc<Log> {
        let Start { circle, position, oldest, epoch, .. } = *start;
        let first = &start.files[0];
        let (file, synchronous) = (first.file, first.synchronous);
        let duplex = start.duplex(settings);
        let settings = &settings.decided_by(first.measured);
        let buffer = LogBuffer::new(executor, settings.page_size, settings.write_size_max, circle, position, epoch);
        // Without durability a group only bounds how long records stay in memory.
        let policy = if settings.durable { settings.group_commit } else { GroupCommit::Delay { ns: LAZY_WRITE_NS } };
        let writes_in_flight_max = match (policy == GroupCommit::None, synchronous) {
            (true, _) => usize::MAX,
            // Each holds the processor, so a second one only waits for it, where more commits could have joined it.
            (false, true) => 1,
            (false, false) => settings.in_flight_max(),
        };
        let is_serial = settings.is_serial && !synchronous;
        let extent = |file: &LogFile| LogExtent { file: file.file, length: file.length, lost: false };
        let growth = LogGrowth::new(start.files.iter().map(extent).collect());
        let log = Rc::new_cyclic(|this| Log {
            this: this.clone(),
            executor: executor.clone(),
            group: executor.group(GROUP, executor::Members::Free),
            settings: settings.clone(),
            measured: start.files.iter().map(|file| file.measured).collect(),
            file,
            opened_at: Lsn(position),
            changed_alone: Cell::new(start.changed_alone),
            circle,
            growth,
            limit: Cell::new(0),
            margin_min: Cell::new(0),
            synchronous,
            write_buffer: OnceCell::new(),
            duplex,
            writes_in_flight_max,
            inner: RefCell::new(LogState {
                buffer,
                batches: Batches::default(),
                group: CommitGroup::new(policy, is_serial),
                scratch: Vec::with_capacity(4096),
                statistics: LogStatistics::default(),
            }),
            written: Cell::new(Lsn(position)),
            durable: Cell::new(Lsn(position)),
            complete: Cell::new(Lsn(position)),
            released: Cell::new(Lsn(position)),
            oldest: Cell::new(Lsn(oldest)),
            demand: Cell::new(Lsn::ZERO),
            syncing: Cell::new(false),
            lazy: LazySync::new(Lsn(position)),
            failed: RefCell::new(None),
            waiters: Waiters::default(),
            room: WaitQueue::new(),
            claims: Default::default(),
            holds: Default::default(),
            archive: OnceCell::new(),
            time: Default::default(),
            bell: Rc::new(WaitQueue::new()),
        });
        log.keep_margin(0);
        log
    }
}

/// A file that holds the log, open.
#[derive(Clone, Debug)]
pub(crate) struct LogFile {
    /// 0 on the log's device, 1 on the second one.
    pub index: usize,
    /// The device's name.
    pub device: String,
    /// The file.
    pub file: FileId,
    /// Bytes of it that are there, whole log pages.
    pub length: u64,
    /// Whether a write holds the CPU.
    pub synchronous: bool,
    /// What was measured of the device, now or when it was created.
    pub measured: Option<Measured>,
}

/// Where the device has no room for a new log: which setting asks for it.
fn too_large(error: Error, capacity: u64) -> Error {
    match error {
        Error::Input(fault) if fault.kind == FaultKind::NoSpace => {
            let size = base::units::format_size(capacity);
            let message =
                format!("{}; make room for the log of {size}, or give [log] size a smaller value", fault.message);
            Error::Input(Fault::new(fault.kind, message))
        }
        other => other,
    }
}

impl LogFile {
    /// Makes a blank file of `length` bytes in place of any other of that name.
    pub async fn create(
        executor: &Executor,
        (device, name): (DeviceId, &str),
        (settings, index): (&Settings, usize),
        length: u64,
    ) -> Result<LogFile> {
        let traits = executor.traits(device);
        settings.check(traits.alignment)?;
        settings.check_device(name, traits.synchronous)?;
        let file_name = settings.file_of(index);
        executor.perform(Op::Remove { device, name: file_name.clone() }).await.result?;
        let (file, _) = executor.open(device, &file_name, true).await?;
        grow_file(executor, file, length).await.map_err(|error| too_large(error, length))?;
        let mut measured = None;
        if settings.asks_to_measure() && !traits.synchronous {
            measured = Some(Measured::measure(executor, file, settings, length).await?);
        }
        Ok(LogFile { index, device: name.to_owned(), file, length, synchronous: traits.synchronous, measured })
    }

    /// Opens a file that was created before.
    pub async fn open(
        executor: &Executor,
        (device, name): (DeviceId, &str),
        (settings, index): (&Settings, usize),
        measured: Option<Measured>,
    ) -> Result<LogFile> {
        let traits = executor.traits(device);
        settings.check(traits.alignment)?;
        settings.check_device(name, traits.synchronous)?;
        let (file, length) = executor.open(device, &settings.file_of(index), false).await?;
        // What a killed process wrote can be read here and is perhaps not durable; redo relies on it, and writes pages.
        executor.perform(Op::Sync { file }).await.result?;
        // A step of its growth that was cut off may have ended anywhere.
        let length = length - length % settings.page_size as u64;
        Ok(LogFile { index, device: name.to_owned(), file, length, synchronous: traits.synchronous, measured })
    }
}

/// Where an opening of the log begins.
pub(super) struct Start {
    /// The files that it goes to, one or two.
    pub files: Vec<LogFile>,
    pub circle: Circle,
    pub position: u64,
    pub oldest: u64,
    pub epoch: u32,
    /// Up to where the database has changed something by itself.
    pub changed_alone: Lsn,
}

impl Start {
    /// Both devices, if there are two.
    fn duplex(&self, settings: &Settings) -> Option<Duplex> {
        let [first, second] = &self.files[..] else { return None };
        let side = |file: &LogFile| {
            let own = settings.decided_by(file.measured);
            let (method, in_flight_max) = (own.method(), own.in_flight_max());
            SideFile { device: file.device.clone(), file: file.file, method, in_flight_max }
        };
        let acknowledged = settings.second.as_ref().map(|second| second.acknowledged).unwrap_or_default();
        Some(Duplex::new([side(first), side(second)], acknowledged, self.position))
    }
}

/// Brings a new file to its full size, step by step.
async fn grow_file(executor: &Executor, file: FileId, size: u64) -> Result<()> {
    let mut length = 0;
    while length < size {
        length = size.min(length + GROWTH_STEP);
        executor.perform(Op::Resize { file, length, prewrite: true }).await.result?;
    }
    Ok(())
}
