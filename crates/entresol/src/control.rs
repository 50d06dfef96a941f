//! What other programs may ask of a database that this one has open: a backup, what waits in it, and what its transactions reference.
//!
//! They ask at a socket in the home's directory ([`DirectorySocket`]), where a thread listens. It sleeps in the kernel while no one asks, and
//! each connection gets a thread that waits for its one answer. The engine's thread does the work, as for a [`Handle`] of the program's own.
//!
//! It listens unless the configuration says that it shall not: who needs a backup of a program that must not be stopped cannot start it again
//! for that, and those who can ask, its own user and root, can read the files as well.

mod ask;
mod door;
mod message;
mod recording;

pub use ask::{ElsewhereError, WaitsElsewhere};
pub(crate) use door::Door;

use crate::OpenError;
use crate::handle::Handle;
use crate::pending::Pending;
use crate::store::Store;
use driver::{Fault, FaultKind};
use engine::{BackupProgress, BackupReport, BackupSettings, Error};
use executor::WholeExecutor;
use message::{Answer, Ask, Failure, Waits, encode, receive};
use real_driver::DirectorySocket;
use std::future::Future;
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Builder, JoinHandle, Thread};
use std::time::Duration;

/// How long a client may take for its question.
const PATIENCE: Duration = Duration::from_secs(5);
/// How often a client is told how far its request is, and is looked whether it has gone.
const TICK: Duration = Duration::from_millis(100);
/// How many ticks a client waits for a program that has its engine run nothing.
const IDLE_TICKS: usize = 100;
/// More clients at once are turned away.
const CONNECTIONS_MAX: usize = 16;
/// The stacks of these threads.
const STACK: usize = 256 << 10;

/// Listens for other programs until it is dropped.
pub(crate) struct Control {
    socket: Arc<DirectorySocket>,
    line: Arc<Line>,
    thread: Option<JoinHandle<()>>,
}

/// What the threads of connections share.
struct Line {
    way: Way,
    /// Whether requests are to end.
    is_closing: AtomicBool,
}

/// What takes requests up.
pub(crate) enum Way {
    /// A thread of its own.
    Thread(Handle),
    /// The caller's, as long as it runs something.
    Caller(Arc<Door>),
}

impl Control {
    /// Listens in a directory that is locked.
    ///
    /// # Errors
    /// The machine's, such as that the directory's file system has no sockets.
    pub fn listen(directory: &Path, way: Way) -> Result<Control, Fault> {
        let socket = Arc::new(DirectorySocket::listen(directory)?);
        let line = Arc::new(Line { way, is_closing: AtomicBool::new(false) });
        let (at, to) = (Arc::clone(&socket), Arc::clone(&line));
        let thread = spawn(move || serve_all(&at, &to)).map_err(|error| {
            Fault::new(FaultKind::NoMemory, format!("starting the thread that listens for other programs: {error}"))
        })?;
        Ok(Control { socket, line, thread: Some(thread) })
    }
}

impl Control {
    /// Has those who ask hear why the engine has ended on the caller's thread.
    pub fn note_cause(&self, error: &OpenError) {
        if let Way::Caller(door) = &self.line.way {
            door.note_cause(error);
        }
    }
}

impl Drop for Control {
    /// Requests under way are ended, and their clients told.
    fn drop(&mut self) {
        self.line.is_closing.store(true, Ordering::Release);
        self.socket.close();
        let _ended = self.thread.take().map(JoinHandle::join);
        if let Way::Caller(door) = &self.line.way {
            door.close();
        }
    }
}

impl Store {
    /// Has other programs ask what takes requests up, unless it is not configured so. A directory whose file system has no sockets is opened
    /// all the same.
    pub(crate) fn hear(&mut self, way: Way) {
        if self.is_virtual() || !self.configuration().driver.socket {
            return;
        }
        match Control::listen(&self.home, way) {
            Ok(control) => self.control = Some(control),
            Err(fault) => self.events.iter().for_each(|events| events.tell_unheard(&fault)),
        }
    }

    /// Has other programs ask on the thread that it is on.
    pub(crate) fn heard(mut self) -> Store {
        let door = Arc::<Door>::default();
        self.hear(Way::Caller(Arc::clone(&door)));
        if self.control.is_some() {
            let database = self.database().clone();
            self.door = Some(self.executor().whole().of_library().spawn(async move { door.answer(&database).await }));
        }
        self
    }
}

fn spawn(work: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    Builder::new().name("entresol control".to_owned()).stack_size(STACK).spawn(work)
}

/// The thread of a connection, and that while it is open.
type Served = (JoinHandle<()>, Weak<UnixStream>);

fn serve_all(socket: &DirectorySocket, line: &Arc<Line>) {
    let mut served: Vec<Served> = Vec::new();
    while let Some(stream) = socket.accept() {
        served.retain(|(thread, _)| !thread.is_finished());
        // Without a thread for it a connection is closed, which its client takes for an end.
        if served.len() < CONNECTIONS_MAX {
            served.extend(serve_on_thread(stream, line).ok());
        }
    }
    for (thread, stream) in served {
        // It may wait for a question.
        let _shut = stream.upgrade().map(|stream| stream.shutdown(Shutdown::Read));
        let _ended = thread.join();
    }
}

fn serve_on_thread(stream: UnixStream, line: &Arc<Line>) -> io::Result<Served> {
    let (stream, line) = (Arc::new(stream), Arc::clone(line));
    let open = Arc::downgrade(&stream);
    Ok((spawn(move || serve(&stream, &line))?, open))
}

fn serve(stream: &UnixStream, line: &Line) {
    let asked = match stream.set_read_timeout(Some(PATIENCE)) {
        Ok(()) => receive::<Ask>(&mut &*stream),
        Err(error) => Err(error.into()),
    };
    if stream.set_nonblocking(true).is_err() {
        return;
    }
    let answer = match asked {
        Ok(None) => None,
        Ok(Some(Ask::Backup(settings))) => back_up(stream, settings, line),
        Ok(Some(Ask::Waits)) => waits(stream, line),
        Ok(Some(Ask::Record(span_ns, references_max))) => recording::record(stream, (span_ns, references_max), line),
        Err(error) => Some(Answer::Failed(Failure::other(&error.to_string()))),
    };
    if let Some(answer) = answer {
        // A client that has gone needs none.
        let _told = line.tell(stream, &answer);
    }
}

/// Has a backup taken, and tells the client how far it is. The answer; nothing if the client has gone, which ends its backup.
fn back_up(stream: &UnixStream, settings: BackupSettings, line: &Line) -> Option<Answer> {
    if let Some(place) =
        [Some(&settings.target), settings.base.as_ref()].into_iter().flatten().find(|place| !is_absolute(place))
    {
        return Some(Answer::Failed(Failure::other(&format!("'{place}' is no absolute path"))));
    }
    let seen = Arc::new(Mutex::new(None));
    let handle = match line.handle(stream) {
        Ok(handle) => handle,
        Err(answer) => return answer,
    };
    let noted = Arc::clone(&seen);
    let mut pending = handle.with_database(async move |database| {
        let note = move |progress| *noted.lock().unwrap_or_else(PoisonError::into_inner) = Some(progress);
        database.backup(&settings, note).await
    });
    // Else what takes requests up for this one alone would wait for more.
    drop(handle);
    loop {
        if let Some(result) = wait(&mut pending) {
            return Some(answer_of(result));
        }
        let told: Option<BackupProgress> = seen.lock().unwrap_or_else(PoisonError::into_inner).take();
        let answer = match line.is_over(stream) {
            Some(answer) => answer,
            None if told.is_none_or(|progress| line.tell(stream, &Answer::Progress(progress))) => continue,
            None => None,
        };
        pending.cancel();
        return answer;
    }
}

/// What waits. The answer; nothing if the client has gone.
fn waits(stream: &UnixStream, line: &Line) -> Option<Answer> {
    let handle = match line.handle(stream) {
        Ok(handle) => handle,
        Err(answer) => return answer,
    };
    let mut pending =
        handle.with_database(async |database| Ok(Waits::new(database.waits(), database.waiting_to_begin())));
    drop(handle);
    for _tick in 0..IDLE_TICKS {
        match wait(&mut pending) {
            Some(Ok(waits)) => return Some(Answer::Waits(waits)),
            Some(Err(error)) => return Some(answer_of_error(error)),
            None => {}
        }
        if let Some(answer) = line.is_over(stream) {
            return answer;
        }
    }
    Some(Answer::Failed(Failure::Idle))
}

fn is_absolute(place: &str) -> bool {
    Path::new(place).is_absolute()
}

/// What a request that has failed is answered.
fn answer_of_error(error: Error) -> Answer {
    match error {
        Error::Closed => Answer::Failed(Failure::Closed),
        Error::Backup(error) => Answer::Failed(Failure::Backup(error)),
        other => Answer::Failed(Failure::other(&other.to_string())),
    }
}

fn answer_of(result: engine::Result<BackupReport>) -> Answer {
    match result {
        Ok(report) => Answer::Done(report),
        Err(error) => answer_of_error(error),
    }
}

impl Line {
    /// A handle of the engine, as soon as that runs; else the answer, as that of [`Line::is_over`].
    fn handle(&self, stream: &UnixStream) -> Result<Handle, Option<Answer>> {
        let door = match &self.way {
            Way::Thread(handle) => return Ok(handle.clone()),
            Way::Caller(door) => door,
        };
        let given = door.knock();
        for _tick in 0..IDLE_TICKS {
            match given.recv_timeout(TICK) {
                Ok(handle) => return Ok(handle),
                Err(std::sync::mpsc::RecvTimeoutError::Timeout) => {}
                Err(_) => return Err(Some(self.ended())),
            }
            if let Some(answer) = self.is_over(stream) {
                return Err(answer);
            }
        }
        Err(Some(Answer::Failed(Failure::Idle)))
    }

    /// Tells a client something, and whether it is there. One that is stopped for a while is waited for with what matters, and is spared
    /// how far its request was meanwhile.
    fn tell(&self, mut stream: &UnixStream, answer: &Answer) -> bool {
        let bytes = encode(answer);
        let mut told = 0;
        while told < bytes.len() {
            match stream.write(&bytes[told..]) {
                Ok(0) => return false,
                Ok(written) => told += written,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() != io::ErrorKind::WouldBlock => return false,
                Err(_) if told == 0 && matches!(answer, Answer::Progress(_)) => return true,
                Err(_) if self.is_closing.load(Ordering::Acquire) => return false,
                Err(_) => thread::park_timeout(TICK),
            }
        }
        true
    }

    /// The answer of an engine that gives none any more.
    fn ended(&self) -> Answer {
        answer_of_error(match &self.way {
            Way::Thread(handle) => handle.link.ended(),
            Way::Caller(door) => door.ended(),
        })
    }

    /// Whether a request is to end, because the database is closed, which its client is told, or because the client has gone.
    fn is_over(&self, stream: &UnixStream) -> Option<Option<Answer>> {
        if self.is_closing.load(Ordering::Acquire) {
            return Some(Some(self.ended()));
        }
        is_gone(stream).then_some(None)
    }
}

/// Whether the client has closed its end. One that says more than was asked is taken for gone as well.
fn is_gone(mut stream: &UnixStream) -> bool {
    !stream.read(&mut [0]).is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
}

/// Wakes a thread that waits for an answer.
struct WaitingThread(Thread);

impl Wake for WaitingThread {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Waits for an answer, for a tick at most, without the haste of threads that have the next request ready.
fn wait<T>(pending: &mut Pending<T>) -> Option<engine::Result<T>> {
    let waker = Waker::from(Arc::new(WaitingThread(thread::current())));
    for is_last in [false, true] {
        match Pin::new(&mut *pending).poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(answer) => return Some(answer),
            Poll::Pending if is_last => {}
            Poll::Pending => thread::park_timeout(TICK),
        }
    }
    None
}
