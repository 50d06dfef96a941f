//! The real driver keeps the promises of the seam, with each backend and on each sort of file system.

use conformance::{DEVICE, Subject};
use real_driver::{Backend, Options, RealDriver};
use std::path::Path;

/// A driver on a fresh directory under `root`; `None` if this machine does not have what it needs.
fn subject(root: &Path, backend: Backend, direct: bool) -> Option<Subject> {
    let directory = match tempfile::tempdir_in(root) {
        Ok(directory) => directory,
        Err(error) => {
            println!("skipped: no directory under '{}': {error}", root.display());
            return None;
        }
    };
    let options = Options { backend, direct, ..Options::new(DEVICE, directory.path()) };
    match RealDriver::open(options) {
        Ok(driver) => Some(Subject::new(Box::new(driver), Some(Box::new(directory)))),
        Err(fault) => {
            println!("skipped: {fault}");
            None
        }
    }
}

fn disk() -> &'static Path {
    Path::new(env!("CARGO_TARGET_TMPDIR"))
}

fn memory() -> &'static Path {
    Path::new("/dev/shm")
}

mod io_uring_direct {
    fn make() -> Option<conformance::Subject> {
        super::subject(super::disk(), super::Backend::IoUring, true)
    }
    conformance::conformance!(make);
}

mod io_uring_buffered {
    fn make() -> Option<conformance::Subject> {
        super::subject(super::disk(), super::Backend::IoUring, false)
    }
    conformance::conformance!(make);
}

mod io_uring_memory {
    fn make() -> Option<conformance::Subject> {
        super::subject(super::memory(), super::Backend::IoUring, true)
    }
    conformance::conformance!(make);
}

mod thread_pool_direct {
    fn make() -> Option<conformance::Subject> {
        super::subject(super::disk(), super::Backend::ThreadPool, true)
    }
    conformance::conformance!(make);
}

mod thread_pool_memory {
    fn make() -> Option<conformance::Subject> {
        super::subject(super::memory(), super::Backend::ThreadPool, true)
    }
    conformance::conformance!(make);
}
