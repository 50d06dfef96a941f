//! The directories that an opening or a restore creates: one that fails leaves none of them.

use crate::{Error, Opening};
use real_driver::MissingDirectories;
use std::path::Path;

/// Those that this opening places files in, and those above them, that are missing now.
pub(crate) fn missing_directories(opening: &Opening) -> MissingDirectories {
    MissingDirectories::of(places(opening))
}

fn places(opening: &Opening) -> impl Iterator<Item = &Path> {
    let configuration = &opening.configuration;
    let is_real = configuration.hardware.is_none();
    let devices = configuration.devices.values().filter_map(|device| device.path.as_deref());
    devices.chain([&*opening.path]).filter(move |_| is_real)
}

/// Refuses a database that is there while the directory of one of its devices is not: that may be on a file system which is not mounted,
/// and what is made in its place would be on another one. Directories are made for a database that is created.
///
/// # Errors
/// [`Error::Setting`], with the key.
pub(crate) fn check_directories(opening: &Opening) -> Result<(), Error> {
    if !places(opening).any(|place| place.join(engine::SUPERBLOCK_FILE).exists()) {
        return Ok(());
    }
    let devices = opening.configuration.devices.iter();
    let mut missing = devices.filter_map(|(name, device)| Some((name, device.path.as_deref()?)));
    match missing.find(|(_, path)| !path.exists()) {
        Some((name, path)) => Err(Error::Setting(format!(
            "[device.{name}] path: there is no directory '{}', and the database is there already: mount its file system, \
             correct the path, or make the directory if the device is new",
            path.display()
        ))),
        None => Ok(()),
    }
}
