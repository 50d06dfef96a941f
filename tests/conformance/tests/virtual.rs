//! The virtual driver keeps the promises of the seam, on ideal and on described hardware.

use conformance::{DEVICE, Subject};
use virtual_driver::{Hardware, Media, Options, VirtualDriver};

fn subject(hardware: Hardware, options: Options) -> Option<Subject> {
    let driver = VirtualDriver::new(hardware, options, Media::new());
    Some(Subject::new(Box::new(driver), None))
}

mod ideal {
    fn make() -> Option<conformance::Subject> {
        super::subject(super::Hardware::ideal(), super::Options::default())
    }
    conformance::conformance!(make);
}

/// A flash device that queues, under the name that the promises use.
fn flash() -> Hardware {
    let mut hardware = Hardware::named("nvme-2026").expect("embedded");
    let device = hardware.devices.remove("nvme").expect("described");
    hardware.devices.insert(DEVICE.to_owned(), device);
    hardware
}

mod described {
    fn make() -> Option<conformance::Subject> {
        super::subject(super::flash(), super::Options::default())
    }
    conformance::conformance!(make);
}

mod jittered {
    fn make() -> Option<conformance::Subject> {
        super::subject(super::flash(), super::Options { jitter: true, seed: 11, ..super::Options::default() })
    }
    conformance::conformance!(make);
}
