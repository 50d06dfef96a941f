//! The seam between the engine and the world: what can be asked of a driver, and what comes back. No behaviour.
//!
//! The engine never names the world outside; it asks a [`Driver`], for files and for sockets. The real driver performs
//! operations on this machine's wall clock, the virtual driver simulates them on described hardware under a virtual clock.
//! Everything that both would have to do alike (operations in flight, wakers, timers) lives above the seam, in the executor.

mod fault;
mod frame;
mod gathering;
mod operation;
mod report;
mod work;

pub use base::statistics::StationReport;
pub use fault::{Fault, FaultKind};
pub use frame::{Frame, FrameArray, Memory, prefetch};
pub use gathering::{GATHERING_NS, ends_gathered};
pub use operation::{Access, Class, Completion, DeviceId, FileId, Op, OpKind, Output, SocketId, Token};
pub use report::{CacheReport, CachedFile, DeviceTraits, EventCount, ThreadUse};
pub use work::{Prices, Work};

use base::{Clock, Instant};
use std::path::Path;
use std::sync::Arc;

/// The world, real or virtual.
///
/// A driver is used by one executor on one thread. An operation is submitted with a token and completes exactly once, in
/// some later [`Driver::park`], never inside [`Driver::submit`].
///
/// ```
/// use base::Instant;
/// use entresol_driver::{Driver, Halt, Op, Output, Token};
/// use virtual_driver::{Hardware, Media, Options, VirtualDriver};
///
/// let mut driver = VirtualDriver::new(Hardware::ideal(), Options::default(), Media::new());
/// let device = driver.device("disk").expect("the ideal machine has a disk");
/// driver.submit(Token(1), Op::Open { device, name: "log".into(), create: true });
/// let mut done = Vec::new();
/// driver.park(None, &mut done)?;
/// assert_eq!(done[0].token, Token(1));
/// assert!(matches!(done[0].result, Ok(Output::Opened { length: 0, .. })));
/// assert!(driver.now() > Instant::START, "creating a file takes time");
/// # Ok::<(), Halt>(())
/// ```
pub trait Driver {
    /// The present moment. Never goes back.
    fn now(&self) -> Instant;

    /// The time by the calendar, in nanoseconds since the beginning of 1970 UTC; it may be set back. A virtual machine begins in 1970.
    fn unix_ns(&self) -> u64 {
        self.now().ns()
    }

    /// Starts an operation. The buffer inside it belongs to the driver until the completion gives it back.
    fn submit(&mut self, token: Token, op: Op);

    /// Spends CPU time at once, without an operation and its completion, if nothing can happen before it has passed: no
    /// completion, nothing at `until` or before it. A simulation's clock is then at its end. Otherwise, and on every real
    /// machine, it does nothing and answers no.
    fn compute_alone(&mut self, instructions: u64, until: Option<Instant>) -> bool {
        let _ = (instructions, until);
        false
    }

    /// Whether [`Driver::compute_alone`] spends all CPU time at once, whatever happens meanwhile: a task keeps the described CPU
    /// until it waits, as it does on a real machine.
    fn runs_until_wait(&self) -> bool {
        false
    }

    /// The engine's steps touch this many bytes of memory from now on, on which a described CPU's speed may depend.
    fn set_footprint(&mut self, bytes: u64) {
        let _ = bytes;
    }

    /// Asks that an operation be given up. Advisory: it still completes exactly once.
    fn cancel(&mut self, token: Token);

    /// Waits until at least one operation completes, the doorbell rings or `until` is reached, and appends all completions
    /// at hand to `done`. An `until` in the past only collects what is ready.
    ///
    /// # Errors
    /// [`Halt`] if the machine stops here.
    fn park(&mut self, until: Option<Instant>, done: &mut Vec<Completion>) -> Result<(), Halt>;

    /// Memory that this driver reads and writes fastest: `count` zeroed frames of `size` bytes, cut from one region in its
    /// order, aligned to 4 KiB or to `size` if that is smaller. The memory is freed when the last of them is dropped.
    ///
    /// # Errors
    /// A [`Fault`] of kind [`FaultKind::NoMemory`] if it cannot be had.
    fn frames(&mut self, count: usize, size: usize) -> Result<Vec<Frame>, Fault>;

    /// The same memory before its first use: its pages come into being where they are first written, which another thread may
    /// do. Without such a difference these are [`Driver::frames`].
    ///
    /// # Errors
    /// As [`Driver::frames`].
    fn untouched_frames(&mut self, count: usize, size: usize) -> Result<Vec<Frame>, Fault> {
        self.frames(count, size)
    }

    /// The clock of a simulated machine, beside the time that it shares with others. A real one knows no other time than its clock's.
    fn clock(&self) -> Clock {
        Clock::default()
    }

    /// When the simulation goes on by itself, in the time that simulated machines share, if anything is to happen; absent on a real
    /// machine. Several simulated machines take turns by it.
    fn next_event(&self) -> Option<Instant> {
        None
    }

    /// When a simulated machine has its next turn among others, if it has one, given when it has a task to run. It may come to that
    /// later, for its own clock is ahead or its processor is taken.
    fn next_turn(&self, task: Option<Instant>) -> Option<Instant> {
        task.into_iter().chain(self.next_event()).min()
    }

    /// A turn of a simulated machine whose tasks keep its CPU until they wait ([`Driver::runs_until_wait`]), among others that have
    /// come to `moment`, too. What is to happen by then happens, and the machine's thread looks at it, as in a [`Driver::park`] that
    /// waits for nothing; `is_due` tells that it has something to run whatever it finds. False if it does not look: it sleeps, or
    /// waits for a processor, or its own clock is ahead, for it is busy until then.
    ///
    /// # Errors
    /// [`Halt`] if the machine stops here.
    fn take_turn(&mut self, moment: Instant, is_due: bool, done: &mut Vec<Completion>) -> Result<bool, Halt> {
        let _ = is_due;
        self.park(Some(self.clock().shows(moment)), done).map(|()| true)
    }

    /// The device of this name, if there is one.
    fn device(&self, name: &str) -> Option<DeviceId>;

    /// A directory of this machine as one more device, named by its path; the same one where it is asked for again, unless the path
    /// leads to another directory by then: that is one more device. It is created if it is missing, also if it was attached before.
    ///
    /// # Errors
    /// A [`Fault`] naming the directory that cannot be created or reached; [`FaultKind::NotFound`] on a described machine, which
    /// has the devices of its description.
    fn attach(&mut self, directory: &Path) -> Result<DeviceId, Fault> {
        let message = format!("a described machine has no directory '{}'", directory.display());
        Err(Fault::new(FaultKind::NotFound, message))
    }

    /// Nothing was made of a directory that was attached: it is removed, with those above it, if attaching it has created them last, and as far as
    /// they are empty.
    fn remove_attached(&mut self, device: DeviceId) {
        let _ = device;
    }

    /// Nothing is asked of this file any more by one of those who have opened it. When that is said as often as it was opened, what the driver
    /// keeps for it may go, once what is under way has completed.
    fn forget(&mut self, file: FileId) {
        let _ = file;
    }

    /// What the engine must know of a device to use it well.
    fn traits(&self, device: DeviceId) -> DeviceTraits;

    /// What CPU steps cost; `None` on a real machine, where they cost what they cost.
    fn prices(&self) -> Option<Prices>;

    /// Whether its network is a described one: nothing that is sent leaves the program.
    fn has_described_network(&self) -> bool {
        false
    }

    /// 128 random bits that cannot be guessed: the operating system's on a real machine, those of a stream with the driver's seed on a
    /// simulated one. For secrets, and for what tells files from those of other databases; all else draws from streams named by concern.
    fn entropy(&mut self) -> u128;

    /// Wakes a parked driver from another thread.
    fn doorbell(&self) -> Arc<dyn Doorbell>;

    /// One line about the driver for logs: which kind, and why it was chosen.
    fn description(&self) -> String;

    /// Load and queueing of every station (CPU, disk arm, controller, ...) since the last [`Driver::restart_statistics`].
    fn stations(&self) -> Vec<StationReport>;

    /// The caches inside devices since the last [`Driver::restart_statistics`], in the order of the devices; none on a real
    /// machine, whose devices do not tell.
    fn caches(&self) -> Vec<CacheReport> {
        Vec::new()
    }

    /// The simulation's events since the last [`Driver::restart_statistics`], by sort; none on a real machine.
    fn events(&self) -> Vec<EventCount> {
        Vec::new()
    }

    /// What the thread asked of its operating system since the last [`Driver::restart_statistics`]; nothing on a described machine
    /// whose tasks do not keep its CPU until they wait.
    fn thread_use(&self) -> ThreadUse {
        ThreadUse::default()
    }

    /// Forgets what stations did so far: the end of a warm-up.
    fn restart_statistics(&mut self);
}

/// Wakes the executor's thread from any other thread.
pub trait Doorbell: Send + Sync {
    /// Makes the present or next [`Driver::park`] return at once.
    fn ring(&self);
}

/// Why a machine stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Halt {
    /// The power went out (torture): nothing that is not durable survives.
    PowerCut,
    /// Nothing is in flight, no timer is set and no doorbell exists: the run would wait for ever.
    Idle,
    /// A device has left a request unanswered for longer than it may.
    Unanswered,
    /// The executor runs already, and what was to run waits within a task of its own.
    Nested,
}
