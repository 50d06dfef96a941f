//! Transfers through io_uring: queued one by one, handed over and awaited with one system call.
#![allow(unsafe_code)]

use crate::bell::Bell;
use crate::fault::fault_of;
use crate::memory::BufferTable;
use crate::request::{Call, Request};
use driver::{Fault, FaultKind, ThreadUse};
use io_uring::squeue::{Entry, Flags};
use io_uring::types::{Fd, FsyncFlags, SubmitArgs, Timespec};
use io_uring::{IoUring, cqueue, opcode};
use std::collections::VecDeque;
use std::io;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::time::Duration;

const ENTRIES: u32 = 512;
/// More requests than completions fit the ring are never in flight, so the kernel need not keep an overflow list.
const COMPLETIONS: u32 = 8 * ENTRIES;
/// How long a wait is for several ends at most.
const GATHERING: Duration = Duration::from_nanos(driver::GATHERING_NS);
const FILES: u32 = 1024;
/// Places behind those of files, for locks of directories.
const LOCKS: u32 = 32;
const BUFFERS: u32 = 4096;
/// Completions of the ring's own requests carry these instead of a slot.
const BELL: u64 = u64::MAX;
const CANCEL: u64 = u64::MAX - 1;
/// Marks the slots of requests of sockets, and among them of accepts.
const EXCHANGE: u64 = 1 << 32;
const ACCEPT: u64 = 3 << 32;

fn mark(call: Call, slot: u32) -> u64 {
    let mark = match call {
        Call::Accept => ACCEPT,
        _ if call.is_network() => EXCHANGE,
        _ => 0,
    };
    mark | u64::from(slot)
}

fn is_exchange(mark: u64) -> bool {
    matches!(mark & !u64::from(u32::MAX), EXCHANGE | ACCEPT)
}

/// The connection that a completed accept has made.
fn accepted(completion: &cqueue::Entry) -> Option<OwnedFd> {
    let is_accept = completion.user_data() & !u64::from(u32::MAX) == ACCEPT;
    // SAFETY: the kernel has made this descriptor for the accept, and it has no other owner.
    (is_accept && completion.result() >= 0).then(|| unsafe { OwnedFd::from_raw_fd(completion.result()) })
}

pub(crate) struct Ring {
    ring: IoUring,
    backlog: VecDeque<Entry>,
    in_flight: usize,
    /// Those of them that wait for other machines, which may take for ever.
    exchanges: usize,
    /// How often something was handed over, how often while nothing was under way, and how often operations had ended meanwhile.
    batches: u64,
    notifications: u64,
    interrupts: u64,
    bell: Arc<Bell>,
    /// Where the kernel puts the eventfd's count; only the ring refers to it while a read is in flight.
    bell_count: *mut u64,
    files: u32,
    buffers: u32,
    flags: &'static str,
}

impl Ring {
    /// Sets up a ring for the calling thread, which must be the one that waits.
    ///
    /// # Errors
    /// What the kernel says.
    pub(crate) fn new(bell: Arc<Bell>) -> io::Result<Ring> {
        let (ring, flags) = build()?;
        Ring::over(ring, flags, bell)
    }

    fn over(ring: IoUring, flags: &'static str, bell: Arc<Bell>) -> io::Result<Ring> {
        if !ring.params().is_feature_ext_arg() || !ring.params().is_feature_nodrop() {
            return Err(io::Error::from_raw_os_error(libc::ENOSYS));
        }
        // Without a table no lock would outlast a process that is killed with requests under way.
        let register = |files| ring.submitter().register_files_sparse(files + LOCKS).map(|()| files);
        let files = register(FILES).or_else(|_| register(0))?;
        let buffers = if ring.submitter().register_buffers_sparse(BUFFERS).is_ok() { BUFFERS } else { 0 };
        let bell_count = Box::into_raw(Box::new(0u64));
        let mut ring = Ring {
            ring,
            backlog: VecDeque::new(),
            in_flight: 0,
            exchanges: 0,
            batches: 0,
            notifications: 0,
            interrupts: 0,
            bell,
            bell_count,
            files,
            buffers,
            flags,
        };
        ring.listen();
        Ok(ring)
    }

    /// Queues a request. Nothing reaches the kernel before [`Ring::wait`].
    pub(crate) fn start(&mut self, request: &Request) {
        let mut entry = entry(request);
        if request.registered_file.is_some() {
            entry = entry.flags(Flags::FIXED_FILE);
        }
        self.queue(entry.user_data(mark(request.call, request.slot)));
    }

    fn queue(&mut self, entry: Entry) {
        if !self.backlog.is_empty() || !self.push(&entry) {
            self.backlog.push_back(entry);
        }
    }

    fn push(&mut self, entry: &Entry) -> bool {
        if self.in_flight >= COMPLETIONS as usize {
            return false;
        }
        // SAFETY: the flight table keeps the buffer and the file of a request until its completion was seen; `bell_count`
        // lives until the ring has no request in flight.
        let pushed = unsafe { self.ring.submission().push(entry) };
        self.in_flight += usize::from(pushed.is_ok());
        self.exchanges += usize::from(pushed.is_ok() && is_exchange(entry.get_user_data()));
        pushed.is_ok()
    }

    /// Keeps a read of the eventfd in flight, which a kick of the bell completes.
    fn listen(&mut self) {
        let fd = self.bell.eventfd().expect("a ring's bell has an eventfd");
        self.queue(opcode::Read::new(Fd(fd), self.bell_count.cast(), 8).build().user_data(BELL));
    }

    /// Asks the kernel to give a request up. True if it never reached the kernel and will therefore not complete.
    pub(crate) fn cancel(&mut self, slot: u32) -> bool {
        self.cancel_marked(u64::from(slot))
    }

    /// The same for such a request of a socket.
    pub(crate) fn cancel_exchange(&mut self, call: Call, slot: u32) -> bool {
        self.cancel_marked(mark(call, slot))
    }

    fn cancel_marked(&mut self, mark: u64) -> bool {
        if let Some(position) = self.backlog.iter().position(|entry| entry.get_user_data() == mark) {
            self.backlog.remove(position);
            return true;
        }
        self.queue(opcode::AsyncCancel::new(mark).build().user_data(CANCEL));
        false
    }

    /// Hands over everything queued and, if `wait` is not zero, waits that long for a completion or the bell; `None` waits
    /// without limit. While much is in flight it waits for several completions, up to 100 us. Appends what is done: slots, and
    /// bytes or negated error numbers.
    pub(crate) fn wait(&mut self, wait: Option<Duration>, done: &mut Vec<(u32, i32)>) {
        let may_wait = wait != Some(Duration::ZERO) && self.ring.completion().is_empty();
        // A kick after this announcement completes the eventfd's read.
        let announced = may_wait && self.bell.announce();
        self.interrupts += u64::from(!self.ring.completion().is_empty() || self.ring.submission().taskrun());
        loop {
            self.refill();
            self.note_batch();
            let more = !self.backlog.is_empty() && self.in_flight < COMPLETIONS as usize;
            match announced && !more {
                true => self.enter_and_wait(wait),
                false => self.enter(false, wait),
            }
            if !more || self.ring.submission().is_full() {
                break;
            }
        }
        if may_wait {
            self.bell.withdraw();
        }
        self.reap(done);
    }

    /// What is queued is about to be handed over.
    fn note_batch(&mut self) {
        let handed_over = self.ring.submission().len();
        // The read of the bell is always under way, and so may what waits for other machines be.
        let at_rest = self.in_flight <= handed_over + self.exchanges + 1;
        self.batches += u64::from(handed_over > 0);
        self.notifications += u64::from(handed_over > 0 && at_rest);
    }

    /// How often something was handed over, and how often it was interrupted. It does not sleep by itself.
    pub(crate) fn used(&self) -> ThreadUse {
        let Ring { batches, notifications, interrupts, .. } = *self;
        ThreadUse { batches, notifications, sleeps: 0, interrupts }
    }

    /// Moves the backlog into the submission queue as far as there is room.
    fn refill(&mut self) {
        while let Some(entry) = self.backlog.pop_front() {
            if !self.push(&entry) {
                self.backlog.push_front(entry);
                return;
            }
        }
    }

    /// Waits for several ends at first, if several are to be expected soon, then for one.
    fn enter_and_wait(&mut self, limit: Option<Duration>) {
        let ends = self.ends_wanted(limit);
        if ends == 1 {
            return self.enter(true, limit);
        }
        accept(self.hand_over(ends, GATHERING));
        if self.ring.completion().is_empty() {
            self.enter(true, limit.map(|limit| limit - GATHERING));
        }
    }

    fn enter(&mut self, wait: bool, limit: Option<Duration>) {
        let submission = self.ring.submission();
        let idle = submission.is_empty() && !submission.taskrun() && !submission.cq_overflow();
        drop(submission);
        let result = match limit {
            _ if !wait && idle => return,
            Some(limit) if wait => self.hand_over(1, limit),
            _ => self.ring.submitter().submit_and_wait(usize::from(wait)),
        };
        accept(result);
    }

    /// How many ends a wait is for at first.
    fn ends_wanted(&self, limit: Option<Duration>) -> usize {
        match limit {
            Some(limit) if limit <= GATHERING => 1,
            _ => driver::ends_gathered(self.in_flight - self.exchanges),
        }
    }

    fn hand_over(&self, ends: usize, limit: Duration) -> io::Result<usize> {
        let limit = Timespec::from(limit);
        self.ring.submitter().submit_with_args(ends, &SubmitArgs::new().timespec(&limit))
    }

    fn reap(&mut self, done: &mut Vec<(u32, i32)>) {
        let mut heard = false;
        let (mut ended, mut exchanged) = (0, 0);
        for completion in self.ring.completion() {
            ended += 1;
            match completion.user_data() {
                BELL => heard = true,
                CANCEL => {}
                slot => {
                    exchanged += usize::from(is_exchange(slot));
                    done.push((slot as u32, completion.result()));
                }
            }
        }
        self.in_flight -= ended;
        self.exchanges -= exchanged;
        if heard {
            self.listen();
        }
    }

    /// Makes a file known under this place in the table of registered files, if the table reaches so far.
    pub(crate) fn register_file(&mut self, place: u32, fd: RawFd) -> bool {
        place < self.files && self.ring.submitter().register_files_update(place, &[fd]).is_ok()
    }

    /// Has the kernel keep the lock of a directory, the `number`th one, until it has ended every request of this ring, also if the
    /// process is killed meanwhile: the table of a ring goes after its last request.
    ///
    /// # Errors
    /// What the kernel says, or that the table has no place for that many.
    pub(crate) fn keep_lock(&mut self, number: u32, fd: RawFd) -> Result<(), Fault> {
        if number >= LOCKS {
            let message = format!(
                "opening a database in more than {LOCKS} directories: put some of its devices together, or set backend = \
                 \"thread-pool\" in [driver]"
            );
            return Err(Fault::new(FaultKind::Unsupported, message));
        }
        let kept = self.ring.submitter().register_files_update(self.files + number, &[fd]);
        kept.map(drop).map_err(|error| fault_of("having the kernel keep the lock of a directory", &error))
    }

    /// Empties a place in the table of registered files.
    pub(crate) fn forget_file(&mut self, place: u32) {
        // The place is overwritten before it is used again, so a refusal only keeps the file open for longer.
        let _ = self.ring.submitter().register_files_update(place, &[-1]);
    }

    /// Waits for everything in flight, at most for `patience`, so that no buffer is freed under the kernel's hands. False if the
    /// kernel refuses, or something does not end.
    pub(crate) fn drain(&mut self, patience: Duration) -> bool {
        let start = crate::real_driver::wall_clock();
        self.backlog.retain(|entry| entry.get_user_data() == CANCEL);
        self.bell.kick();
        while self.in_flight > 0 {
            self.refill();
            let left = patience.saturating_sub(start.elapsed());
            if left.is_zero() {
                return false;
            }
            let limit = Timespec::from(left);
            let waited = self.ring.submitter().submit_with_args(1, &SubmitArgs::new().timespec(&limit));
            match waited.map_err(|error| error.raw_os_error()) {
                Ok(_) | Err(Some(libc::ETIME | libc::EINTR | libc::EAGAIN | libc::EBUSY)) => {}
                Err(_) => return false,
            }
            // A connection that is accepted only now has no owner any more, and is closed.
            self.in_flight -= self.ring.completion().map(|ended| drop(accepted(&ended))).count();
        }
        // SAFETY: the pointer came from a box; the read that used it has ended.
        drop(unsafe { Box::from_raw(self.bell_count) });
        self.bell_count = std::ptr::null_mut();
        true
    }

    /// The ring's flags and tables in a few words.
    pub(crate) fn describe(&self) -> String {
        let files = if self.files > 0 { "registered files" } else { "plain files" };
        format!("{}, {files}", self.flags)
    }
}

impl BufferTable for Ring {
    fn places(&self) -> usize {
        self.buffers as usize
    }

    fn fill(&mut self, first: usize, pieces: &[libc::iovec]) -> io::Result<()> {
        // SAFETY: the pieces are mapped; the regions clear their places once the memory is unmapped, and until then no
        // request names them because no frame is left. The kernel holds the pages itself.
        unsafe { self.ring.submitter().register_buffers_update(first as u32, pieces, None) }
    }

    fn clear(&mut self, first: usize, count: usize) {
        let nothing = vec![libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 }; count];
        // A place that cannot be cleared only keeps memory for longer.
        // SAFETY: empty pieces refer to no memory.
        let _ = unsafe { self.ring.submitter().register_buffers_update(first as u32, &nothing, None) };
    }
}

/// Panics at results of the kernel that a ring in use cannot have.
fn accept(result: io::Result<usize>) {
    match result.map_err(|error| error.raw_os_error()) {
        // Time over, a signal, or a kernel that wants its completions collected before it accepts more.
        Ok(_) | Err(Some(libc::ETIME | libc::EINTR | libc::EAGAIN | libc::EBUSY)) => {}
        Err(errno) => panic!(
            "io_uring_enter failed: {}; a real driver is used only by the thread that opened it",
            io::Error::from_raw_os_error(errno.unwrap_or(0))
        ),
    }
}

fn entry(request: &Request) -> Entry {
    let Request { address, length, offset, .. } = *request;
    // With `FIXED_FILE` the kernel takes the descriptor for a place in the table of registered files.
    let file = Fd(request.registered_file.map_or(request.fd, |place| place as RawFd));
    let flags = if request.call == Call::WriteDurable { libc::RWF_DSYNC } else { 0 };
    match (request.call, request.registered_buffer) {
        (Call::Read, Some(place)) => opcode::ReadFixed::new(file, address, length, place).offset(offset).build(),
        (Call::Read, None) => opcode::Read::new(file, address, length).offset(offset).build(),
        (Call::Write | Call::WriteDurable, Some(place)) => {
            opcode::WriteFixed::new(file, address, length, place).offset(offset).rw_flags(flags).build()
        }
        (Call::Write | Call::WriteDurable, None) => {
            opcode::Write::new(file, address, length).offset(offset).rw_flags(flags).build()
        }
        (Call::Sync, _) => opcode::Fsync::new(file).flags(FsyncFlags::DATASYNC).build(),
        (Call::Accept, _) => {
            let (nothing, length) = (std::ptr::null_mut(), std::ptr::null_mut());
            opcode::Accept::new(file, nothing, length).flags(libc::SOCK_CLOEXEC).build()
        }
        (Call::Connect, _) => opcode::Connect::new(file, address.cast(), length).build(),
        (Call::Send, _) => opcode::Send::new(file, address, length).flags(libc::MSG_NOSIGNAL).build(),
        (Call::Receive, _) => opcode::Recv::new(file, address, length).build(),
    }
}

/// Builds the ring with the best flags that the kernel knows.
fn build() -> io::Result<(IoUring, &'static str)> {
    let base = || {
        let mut builder = IoUring::builder();
        builder.dontfork().setup_cqsize(COMPLETIONS);
        builder
    };
    let best =
        base().setup_single_issuer().setup_defer_taskrun().setup_taskrun_flag().setup_submit_all().build(ENTRIES);
    match best {
        Ok(ring) => Ok((ring, "single issuer, deferred task work")),
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => Ok((plain_builder().build(ENTRIES)?, "no flags")),
        Err(error) => Err(error),
    }
}

fn plain_builder() -> io_uring::Builder {
    let mut builder = IoUring::builder();
    builder.dontfork().setup_cqsize(COMPLETIONS);
    builder
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bell::Waker;
    use std::io::Write;
    use std::os::fd::AsRawFd;
    use std::os::unix::net::UnixStream;

    /// Kernels before 6.1 do not know the flags; the ring must do without them.
    #[test]
    fn a_ring_without_flags_reads_and_hears_the_bell() {
        let Ok(kernel) = plain_builder().build(ENTRIES) else { return println!("skipped: io_uring is refused") };
        let bell = Arc::new(Bell::new(Waker::Eventfd(Waker::eventfd().expect("a descriptor"))));
        let mut ring = Ring::over(kernel, "no flags", Arc::clone(&bell)).expect("the kernel is new enough");
        let (reader, mut writer) = io::pipe().expect("two descriptors");
        let mut bytes = [0u8; 4];
        let request = Request {
            slot: 7,
            call: Call::Read,
            fd: reader.as_raw_fd(),
            registered_file: None,
            registered_buffer: None,
            address: bytes.as_mut_ptr(),
            length: 4,
            offset: u64::MAX,
        };
        ring.start(&request);
        let mut done = Vec::new();
        ring.wait(Some(Duration::from_millis(1)), &mut done);
        assert!(done.is_empty(), "nothing was written yet");
        bell.wake();
        ring.wait(None, &mut done);
        assert!(done.is_empty(), "the bell ended the wait");
        writer.write_all(b"four").expect("a pipe has room");
        while done.is_empty() {
            ring.wait(None, &mut done);
        }
        assert_eq!(done, [(7, 4)]);
        assert!(ring.drain(Duration::from_secs(10)));
        assert_eq!(&bytes, b"four");
    }

    #[test]
    fn one_end_among_many_transfers_in_flight_is_not_waited_for_in_vain() {
        let Ok((kernel, flags)) = build() else { return println!("skipped: io_uring is refused") };
        let bell = Arc::new(Bell::new(Waker::Eventfd(Waker::eventfd().expect("a descriptor"))));
        let mut ring = Ring::over(kernel, flags, Arc::clone(&bell)).expect("the kernel is new enough");
        let mut pipes: Vec<_> = (0..40).map(|_| io::pipe().expect("two descriptors")).collect();
        let mut bytes = [[0u8; 4]; 40];
        for (slot, ((reader, _), bytes)) in pipes.iter().zip(&mut bytes).enumerate() {
            let (fd, address) = (reader.as_raw_fd(), bytes.as_mut_ptr());
            let (registered_file, registered_buffer) = (None, None);
            let slot = slot as u32;
            let (call, offset) = (Call::Read, u64::MAX);
            ring.start(&Request { slot, call, fd, registered_file, registered_buffer, address, length: 4, offset });
        }
        let mut done = Vec::new();
        ring.wait(Some(Duration::from_millis(1)), &mut done);
        assert!(done.is_empty() && ring.ends_wanted(None) > 1, "many are in flight");
        for (slot, (_, writer)) in pipes.iter_mut().enumerate().rev() {
            writer.write_all(b"four").expect("a pipe has room");
            ring.wait(None, &mut done);
            assert_eq!(std::mem::take(&mut done), [(slot as u32, 4)]);
        }
        assert!(ring.drain(Duration::from_secs(10)));
        assert_eq!(bytes, [*b"four"; 40]);
    }

    /// Sockets wait for other machines, which may never answer: what they have in flight says nothing of ends that are near.
    #[test]
    fn idle_sockets_do_not_make_it_wait_for_several_ends() {
        let Ok((kernel, flags)) = build() else { return println!("skipped: io_uring is refused") };
        let bell = Arc::new(Bell::new(Waker::Eventfd(Waker::eventfd().expect("a descriptor"))));
        let mut ring = Ring::over(kernel, flags, Arc::clone(&bell)).expect("the kernel is new enough");
        let mut pairs: Vec<_> = (0..60).map(|_| UnixStream::pair().expect("two descriptors")).collect();
        let mut bytes = [[0u8; 4]; 60];
        for (slot, ((receiver, _), bytes)) in pairs.iter().zip(&mut bytes).enumerate() {
            let (fd, address, slot) = (receiver.as_raw_fd(), bytes.as_mut_ptr(), slot as u32);
            let (registered_file, registered_buffer) = (None, None);
            let call = Call::Receive;
            ring.start(&Request { slot, call, fd, registered_file, registered_buffer, address, length: 4, offset: 0 });
        }
        let mut done = Vec::new();
        ring.wait(Some(Duration::from_millis(1)), &mut done);
        assert!(done.is_empty() && ring.exchanges == 60 && ring.ends_wanted(None) == 1);
        pairs[7].1.write_all(b"four").expect("a socket has room");
        ring.wait(None, &mut done);
        assert_eq!((std::mem::take(&mut done), ring.exchanges), (vec![(7, 4)], 59));
        for slot in (0..60).filter(|slot| *slot != 7) {
            assert!(!ring.cancel_exchange(Call::Receive, slot), "the kernel has it");
        }
        assert!(ring.drain(Duration::from_secs(10)));
    }
}
