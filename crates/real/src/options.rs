use crate::DirectoryLocks;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

/// How transfers reach the kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Backend {
    /// io_uring if the kernel grants it, the thread pool otherwise.
    #[default]
    Automatic,
    /// io_uring; opening fails if the kernel refuses it.
    IoUring,
    /// Threads that read and write synchronously.
    ThreadPool,
}

/// How a device differs from a directory of files that are read and written.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Behaviour {
    /// Whether its files are mapped into memory and accessed by copying, on the driver's thread.
    pub mapped: bool,
    /// The description whose delays it shows: a transfer completes when both have it done. Whether accesses hold the CPU is
    /// then as described.
    pub described: Option<devices::Device>,
}

/// What a real driver is opened with.
#[derive(Clone, Debug)]
pub struct Options {
    /// The devices: a name and the directory that holds its files, which is created if it is missing. A device's position
    /// here is its [`driver::DeviceId`].
    pub devices: Vec<(String, PathBuf)>,
    /// Which of them behave otherwise, by name.
    pub behaviour: BTreeMap<String, Behaviour>,
    /// How transfers reach the kernel.
    pub backend: Backend,
    /// Whether files are opened for direct I/O (`O_DIRECT`) where the file system allows it.
    pub direct: bool,
    /// The largest number of threads that the thread pool's transfers use; they are started as load demands.
    pub pool_threads: usize,
    /// The locks of the directories, which the driver keeps for as long as it has anything under way there.
    pub locks: DirectoryLocks,
    /// How long a driver that is dropped waits for devices that do not answer.
    pub patience: Duration,
}

impl Options {
    /// One device of this name in this directory, with direct I/O and the backend that the kernel grants.
    pub fn new(name: impl Into<String>, directory: impl Into<PathBuf>) -> Options {
        Options { devices: vec![(name.into(), directory.into())], ..Options::default() }
    }
}

impl Default for Options {
    fn default() -> Options {
        Options {
            devices: Vec::new(),
            behaviour: BTreeMap::new(),
            backend: Backend::Automatic,
            direct: true,
            pool_threads: 64,
            locks: DirectoryLocks::default(),
            patience: Duration::from_secs(60),
        }
    }
}
