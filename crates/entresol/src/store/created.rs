//! The directories that an opening or a restore creates: one that fails leaves none of them.

use crate::Opening;
use real_driver::MissingDirectories;

/// Those that this opening places files in, and those above them, that are missing now.
pub(crate) fn missing_directories(opening: &Opening) -> MissingDirectories {
    let configuration = &opening.configuration;
    let is_real = configuration.hardware.is_none();
    let devices = configuration.devices.values().filter_map(|device| device.path.as_deref());
    MissingDirectories::of(devices.chain([&*opening.path]).filter(|_| is_real))
}
