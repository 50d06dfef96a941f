use std::fmt;

/// What sort of failure an operation met.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FaultKind {
    /// The file or directory does not exist.
    NotFound,
    /// The path leads to another directory than it did.
    Displaced,
    /// The file exists already.
    Exists,
    /// No room is left on the device.
    NoSpace,
    /// The path cannot be written or reached with this user's rights.
    Denied,
    /// Another process holds the file.
    Busy,
    /// The read ends beyond the end of the file.
    EndOfFile,
    /// The device failed to read, write or make durable.
    Device,
    /// No more files can be open at once: a limit of the process, of the machine or of the driver.
    TooManyFiles,
    /// Memory could not be had.
    NoMemory,
    /// The operation was given up on request.
    Cancelled,
    /// The driver or file system does not know the operation.
    Unsupported,
    /// Nothing listens at the address.
    Refused,
    /// The connection is gone: its peer died, or closed it without receiving everything.
    Reset,
    /// No way leads to the address, or it is none of this machine's.
    Unreachable,
    /// Something listens at the address already.
    AddressInUse,
    /// The peer, or a device, has not answered for long.
    TimedOut,
    /// The socket was closed on this side, or never was open.
    Closed,
}

/// A failed operation: the sort, and words that name the file or device and what the system said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The sort of failure, for decisions.
    pub kind: FaultKind,
    /// What failed, for people: names the file or device.
    pub message: String,
}

impl Fault {
    /// A fault of this kind with these words.
    pub fn new(kind: FaultKind, message: impl Into<String>) -> Fault {
        Fault { kind, message: message.into() }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Fault {}
