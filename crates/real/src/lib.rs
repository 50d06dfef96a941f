//! The real driver: files in directories, on this machine's clock, through io_uring or a pool of threads.
//!
//! The two backends differ only in how a transfer is handed to the kernel and how its end is learnt ([`Backend`]). What a
//! file is, which faults there are and how short transfers go on is shared by both.
//!
//! * A **device** is a directory; its files lie directly in it. The caller locks a database's directory against other
//!   processes with a [`DirectoryLock`].
//! * **Other programs** of the same user reach the one that has a database open by the [`DirectorySocket`] beside the lock.
//! * **Open files**: every file of a device keeps a descriptor. Opening a driver raises the process's limit of them
//!   (`RLIMIT_NOFILE`) to its hard limit; programs that still call `select` should not use descriptors above 1,023. A limit that
//!   is reached is a [`driver::FaultKind::TooManyFiles`] that says which one, and what is open goes on.
//! * **Direct I/O** is the default. A file system that refuses it is used through the page cache, and
//!   [`driver::Driver::description`] says so; what the cache has of a file is dropped when the file is opened, so that reads
//!   show what the device holds, not what an earlier sync has failed to write.
//! * **The end**: a driver that is dropped waits for what the kernel has begun, and only then lets its [`DirectoryLocks`] go.
//!   Where a device does not answer for [`Options::patience`], buffers, files and locks are kept until the process ends.
//! * **Durable writes** carry `RWF_DSYNC`; `Sync` is `fdatasync`; creating, resizing and removing sync the file and its
//!   directory.
//! * **Growth** of up to [`PREWRITE_MAX`] bytes in one resize is written with zeros where that is asked for: the first write
//!   into reserved but unwritten extents must change metadata and a data-sync write then takes two to three times as long.
//!   Larger growth is only reserved.
//! * **Mapped devices** ([`Behaviour::mapped`]) are read and written by copying to and from a mapping of the file, on the
//!   driver's thread. Where the mount grants `MAP_SYNC` every write is flushed from the processor's caches; elsewhere durable
//!   writes end with `msync`.
//! * **Described devices** ([`Behaviour::described`]): a transfer completes when the device and the queueing model of its
//!   description both have it done, on the wall clock. Work on whole files is not delayed.
//! * **Sockets** ([`driver::Op::Listen`] and those after it) are TCP, without a delay for small messages. With io_uring the ring
//!   serves them, and what waits for other machines does not make it wait for several ends at once. Without it one thread
//!   polls all of them. At most 1,024 are open at once; a driver that is dropped closes them.
//! * **Synchronous accesses** copy within `submit`: meant for memory file systems and DAX mounts, where an access is a copy.

mod bell;
mod described;
mod descriptors;
mod directory_lock;
mod directory_socket;
mod end_request;
mod fault;
mod files;
mod flight;
mod flush;
mod heap;
mod here;
mod job;
mod mailbox;
mod mapped;
mod mechanism;
mod medium;
mod memory;
mod missing_directories;
mod options;
mod place;
mod poller;
mod pool;
mod real_driver;
mod request;
mod ring;
mod slices;
mod sockets;
mod station;
mod usage;
mod workers;

pub use directory_lock::{DirectoryLock, DirectoryLocks};
pub use directory_socket::DirectorySocket;
pub use end_request::{is_end_requested, note_end_requests};
pub use heap::Heap;
pub use job::PREWRITE_MAX;
pub use medium::is_memory;
pub use memory::REGISTERED_MAX;
pub use missing_directories::MissingDirectories;
pub use options::{Backend, Behaviour, Options};
pub use real_driver::RealDriver;
pub use slices::give_way_to_woken;
pub use usage::{allowed_processors, leave_processor, process_cpu_ns, processor, thread_cpu_ns, wall_ns};
