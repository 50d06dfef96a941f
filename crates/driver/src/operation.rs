use crate::{Fault, Frame};
use std::fmt;
use std::net::SocketAddr;

/// Names an operation in flight; chosen by the executor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Token(pub u64);

impl Token {
    /// The completion that a rung doorbell causes; it belongs to no operation.
    pub const DOORBELL: Token = Token(u64::MAX);
}

/// Names a device of the driver (a directory for real, a described device virtually).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DeviceId(pub u16);

/// Names an open file on a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FileId(pub u32);

/// Names an open socket of the driver: a listener or a connection. A driver gives each name once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SocketId(pub u32);

/// Whether a CPU is given up while the device works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// The CPU is free meanwhile.
    Asynchronous,
    /// The CPU first executes `instructions` and is then held through the device's service (Rahm 1991, section 3.2): one
    /// compound operation. For real: a copy.
    Synchronous {
        /// CPU work before the access, in instructions.
        instructions: u64,
    },
}

/// Which work goes first on a CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Transactions.
    User,
    /// Work that preempts transactions.
    System,
}

/// What can be asked of a driver.
pub enum Op {
    /// Opens a file, creating it empty if `create` is set and it does not exist. Completes with [`Output::Opened`]. A created
    /// file is durable (its name survives a power cut) once the operation completes. Reads of a file that was there give what
    /// the device holds, or what the next sync writes: nothing of the system's cache that a sync before this, perhaps another
    /// program's, has failed to write and marked clean.
    Open {
        /// The device that holds the file.
        device: DeviceId,
        /// The file's name, without directories.
        name: String,
        /// Whether a missing file is created.
        create: bool,
    },
    /// Reads `length` bytes at `offset` into the front of `buffer`.
    Read {
        /// The file read from.
        file: FileId,
        /// Where the read begins, in bytes.
        offset: u64,
        /// How many bytes.
        length: u32,
        /// Receives them; at least `length` long.
        buffer: Frame,
        /// Whether the CPU is held.
        access: Access,
    },
    /// Writes the first `length` bytes of `buffer` at `offset`.
    Write {
        /// The file written to.
        file: FileId,
        /// Where the write begins, in bytes.
        offset: u64,
        /// How many bytes.
        length: u32,
        /// Holds them; at least `length` long.
        buffer: Frame,
        /// Whether the completion means that these bytes survive a power cut (a data-sync write).
        durable: bool,
        /// Whether the CPU is held.
        access: Access,
    },
    /// Makes durable everything whose write had completed when this was submitted.
    Sync {
        /// The file made durable.
        file: FileId,
    },
    /// Sets a file's length, reserving room for growth; new bytes read as zeros. Durable when it completes.
    Resize {
        /// The file.
        file: FileId,
        /// The new length in bytes.
        length: u64,
        /// Whether a medium on which first writes are slow is to be written with zeros: not worth it where growth is filled
        /// soon, in large pieces that are made durable together.
        prewrite: bool,
    },
    /// Removes a closed or open file; a file that does not exist is no error. Durable when it completes.
    Remove {
        /// The device that holds the file.
        device: DeviceId,
        /// The file's name.
        name: String,
    },
    /// Lists the names of a device's files in ascending order. Completes with [`Output::Names`].
    List {
        /// The device.
        device: DeviceId,
    },
    /// Executes instructions on the described CPU. For real: completes at once.
    Cpu {
        /// How many instructions.
        instructions: u64,
        /// Which work goes first.
        class: Class,
    },
    /// Runs a long pure computation beside the executor's thread. Virtually it runs at once and costs `instructions`.
    Compute {
        /// The computation; it owns what it works on and delivers its result itself.
        run: Box<dyn FnOnce() + Send>,
        /// Its described cost, in instructions.
        instructions: u64,
    },
    /// Listens for connections. Completes with [`Output::Listening`].
    Listen {
        /// Where; port 0 lets the driver choose one.
        address: SocketAddr,
    },
    /// Waits for the next connection to a listener, of whose accepts one may be under way at a time. Completes with
    /// [`Output::Connected`].
    Accept {
        /// The listener.
        listener: SocketId,
    },
    /// Connects to a listener. Completes with [`Output::Connected`].
    Connect {
        /// Where it listens.
        address: SocketAddr,
    },
    /// Sends the first `length` bytes of `buffer`, behind all that was sent before: connections are streams of bytes. Completes
    /// when the network has taken them, which says nothing of their arrival. A send that fails may have sent some of them, and
    /// then the connection sends no more. One send or shutdown of a connection may be under way at a time.
    Send {
        /// The connection.
        connection: SocketId,
        /// How many bytes.
        length: u32,
        /// Holds them; at least `length` long.
        buffer: Frame,
    },
    /// Receives what has arrived, or waits for something to arrive. One receive of a connection may be under way at a time.
    /// Completes with [`Output::Received`].
    Receive {
        /// The connection.
        connection: SocketId,
        /// How many bytes at most; above zero.
        length: u32,
        /// Receives them at its front; at least `length` long.
        buffer: Frame,
    },
    /// Sends nothing more: when the peer has received everything, it is told that this is the end. Receiving goes on.
    Shutdown {
        /// The connection.
        connection: SocketId,
    },
    /// Closes a listener or a connection. What is under way on it ends with [`FaultKind::Closed`] first. What the network has taken
    /// is still delivered, unless something that was received has not been asked for: then the peer is told that the
    /// connection was reset, and may lose what is on its way.
    ///
    /// [`FaultKind::Closed`]: crate::FaultKind::Closed
    Close {
        /// The listener or connection; one that is not open is no error.
        socket: SocketId,
    },
}

impl Op {
    /// Which kind of operation this is.
    pub fn kind(&self) -> OpKind {
        match self {
            Op::Open { .. } => OpKind::Open,
            Op::Read { .. } => OpKind::Read,
            Op::Write { .. } => OpKind::Write,
            Op::Sync { .. } => OpKind::Sync,
            Op::Resize { .. } => OpKind::Resize,
            Op::Remove { .. } => OpKind::Remove,
            Op::List { .. } => OpKind::List,
            Op::Cpu { .. } => OpKind::Cpu,
            Op::Compute { .. } => OpKind::Compute,
            Op::Listen { .. } => OpKind::Listen,
            Op::Accept { .. } => OpKind::Accept,
            Op::Connect { .. } => OpKind::Connect,
            Op::Send { .. } => OpKind::Send,
            Op::Receive { .. } => OpKind::Receive,
            Op::Shutdown { .. } => OpKind::Shutdown,
            Op::Close { .. } => OpKind::Close,
        }
    }

    /// The buffer that it owns, for an operation that will not be performed.
    pub fn into_buffer(self) -> Option<Frame> {
        match self {
            Op::Read { buffer, .. } | Op::Write { buffer, .. } => Some(buffer),
            Op::Send { buffer, .. } | Op::Receive { buffer, .. } => Some(buffer),
            _ => None,
        }
    }

    /// The instructions that the described CPU executes for it.
    pub fn instructions(&self) -> u64 {
        match self {
            Op::Cpu { instructions, .. } | Op::Compute { instructions, .. } => *instructions,
            Op::Read { access: Access::Synchronous { instructions }, .. }
            | Op::Write { access: Access::Synchronous { instructions }, .. } => *instructions,
            _ => 0,
        }
    }

    /// Whether a task that waits for it waits for a CPU, or for a device while it holds a CPU.
    pub fn holds_cpu(&self) -> bool {
        let synchronous = |access: &Access| matches!(access, Access::Synchronous { .. });
        match self {
            Op::Cpu { .. } => true,
            Op::Read { access, .. } | Op::Write { access, .. } => synchronous(access),
            _ => false,
        }
    }
}

impl fmt::Debug for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Op::Open { device, name, create } => write!(f, "Open({}, {name}, create {create})", device.0),
            Op::Read { file, offset, length, .. } => write!(f, "Read({}, {offset}, {length})", file.0),
            Op::Write { file, offset, length, durable, .. } => {
                write!(f, "Write({}, {offset}, {length}, durable {durable})", file.0)
            }
            Op::Sync { file } => write!(f, "Sync({})", file.0),
            Op::Resize { file, length, .. } => write!(f, "Resize({}, {length})", file.0),
            Op::Remove { device, name } => write!(f, "Remove({}, {name})", device.0),
            Op::List { device } => write!(f, "List({})", device.0),
            Op::Cpu { .. } => write!(f, "Cpu"),
            Op::Compute { .. } => write!(f, "Compute"),
            Op::Listen { address } => write!(f, "Listen({address})"),
            Op::Accept { listener } => write!(f, "Accept({})", listener.0),
            Op::Connect { address } => write!(f, "Connect({address})"),
            Op::Send { connection, length, .. } => write!(f, "Send({}, {length})", connection.0),
            Op::Receive { connection, length, .. } => write!(f, "Receive({}, {length})", connection.0),
            Op::Shutdown { connection } => write!(f, "Shutdown({})", connection.0),
            Op::Close { socket } => write!(f, "Close({})", socket.0),
        }
    }
}

/// The kinds of [`Op`], for counting.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum OpKind {
    /// [`Op::Open`].
    Open,
    /// [`Op::Read`].
    Read,
    /// [`Op::Write`].
    Write,
    /// [`Op::Sync`].
    Sync,
    /// [`Op::Resize`].
    Resize,
    /// [`Op::Remove`].
    Remove,
    /// [`Op::List`].
    List,
    /// [`Op::Cpu`].
    Cpu,
    /// [`Op::Compute`].
    Compute,
    /// [`Op::Listen`].
    Listen,
    /// [`Op::Accept`].
    Accept,
    /// [`Op::Connect`].
    Connect,
    /// [`Op::Send`].
    Send,
    /// [`Op::Receive`].
    Receive,
    /// [`Op::Shutdown`].
    Shutdown,
    /// [`Op::Close`].
    Close,
}

impl OpKind {
    /// Whether it concerns the network and no device.
    pub fn is_network(self) -> bool {
        self >= OpKind::Listen
    }
}

/// What a successful operation gives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// Nothing more to say.
    Done,
    /// The answer to [`Op::Open`].
    Opened {
        /// The open file.
        file: FileId,
        /// Its present length in bytes.
        length: u64,
    },
    /// The answer to [`Op::List`].
    Names(Vec<String>),
    /// The answer to [`Op::Listen`].
    Listening {
        /// The listener.
        listener: SocketId,
        /// Where it listens, with the port that was chosen.
        address: SocketAddr,
    },
    /// The answer to [`Op::Accept`] and [`Op::Connect`].
    Connected {
        /// The connection.
        connection: SocketId,
        /// The address of its other end.
        peer: SocketAddr,
    },
    /// The answer to [`Op::Receive`].
    Received {
        /// How many bytes stand at the front of the buffer; zero if the peer has ended sending and everything was received.
        length: u32,
    },
}

/// The end of an operation.
#[derive(Debug)]
pub struct Completion {
    /// Which operation.
    pub token: Token,
    /// How it ended.
    pub result: Result<Output, Fault>,
    /// The buffer that a read, write, send or receive carried, whatever the result.
    pub buffer: Option<Frame>,
}
