//! The real driver keeps the promises of the seam, with each backend and on each sort of file system.

use conformance::{DEVICE, Peer, Subject};
use real_driver::{Backend, Behaviour, Options, RealDriver};
use std::collections::BTreeMap;
use std::path::Path;

/// A driver on a fresh directory under `root`; `None` if this machine does not have what it needs.
fn subject(root: &Path, backend: Backend, direct: bool) -> Option<Subject> {
    behaving(root, Options { backend, direct, ..Options::default() }, Behaviour::default())
}

/// The same with a device that is mapped or behaves by a description.
fn behaving(root: &Path, options: Options, behaviour: Behaviour) -> Option<Subject> {
    let directory = match tempfile::tempdir_in(root) {
        Ok(directory) => directory,
        Err(error) => {
            println!("skipped: no directory under '{}': {error}", root.display());
            return None;
        }
    };
    let devices = vec![(DEVICE.to_owned(), directory.path().to_owned())];
    let options = Options { devices, behaviour: BTreeMap::from([(DEVICE.to_owned(), behaviour)]), ..options };
    let other = Options { backend: options.backend, ..Options::default() };
    match RealDriver::open(options).and_then(|driver| Ok((driver, RealDriver::open(other)?))) {
        Ok((driver, peer)) => {
            let peer = Peer { driver: Box::new(peer), address: std::net::Ipv4Addr::LOCALHOST.into() };
            Some(Subject::new(Box::new(driver), Some(Box::new(directory))).beside(peer))
        }
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

/// A described device that is fast enough to be tested with thousands of requests.
fn described(text: &str) -> Option<devices::Device> {
    let hardware = devices::Hardware::parse(&format!("[device.disk]\n{text}"), "described").expect("valid");
    hardware.devices.into_values().next()
}

mod mapped_disk {
    fn make() -> Option<conformance::Subject> {
        let behaviour = super::Behaviour { mapped: true, described: None };
        super::behaving(super::disk(), super::Options::default(), behaviour)
    }
    conformance::conformance!(make);
}

mod mapped_memory_with_delays {
    fn make() -> Option<conformance::Subject> {
        let nvem = "medium = { servers = 1, service = \"5 us\" }\nsynchronous = true";
        let behaviour = super::Behaviour { mapped: true, described: super::described(nvem) };
        super::behaving(super::memory(), super::Options::default(), behaviour)
    }
    conformance::conformance!(make);
}

mod io_uring_with_delays {
    fn make() -> Option<conformance::Subject> {
        let disk = "controller.service = \"20 us\"\nmedium = { servers = 4, service = \"exponential 50 us\" }\n\
                    cache = { kind = \"non-volatile\", size = \"40 pages\" }";
        let behaviour = super::Behaviour { mapped: false, described: super::described(disk) };
        super::behaving(super::disk(), super::Options::default(), behaviour)
    }
    conformance::conformance!(make);
}

mod thread_pool_with_delays {
    fn make() -> Option<conformance::Subject> {
        let disk = "medium = { servers = 8, service = \"30 us\" }";
        let behaviour = super::Behaviour { mapped: false, described: super::described(disk) };
        let options = super::Options { backend: super::Backend::ThreadPool, ..super::Options::default() };
        super::behaving(super::disk(), options, behaviour)
    }
    conformance::conformance!(make);
}
