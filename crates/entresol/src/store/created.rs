//! The directories that an opening or a restore creates: one that fails leaves none of them.

use crate::Opening;
use std::path::{Path, PathBuf};

/// Directories that were missing.
pub(crate) struct MissingDirectories(Vec<PathBuf>);

impl MissingDirectories {
    /// Of those that this opening places files in, and of those above them; deeper ones come first.
    pub fn of(opening: &Opening) -> MissingDirectories {
        let configuration = &opening.configuration;
        let is_real = configuration.hardware.is_none();
        let devices = configuration.devices.values().filter_map(|device| device.path.as_deref());
        let places = devices.chain([&*opening.path]).filter(|_| is_real);
        let above = |place| Path::ancestors(place).take_while(|path| !path.as_os_str().is_empty() && !path.exists());
        let mut missing: Vec<PathBuf> = places.flat_map(above).map(Path::to_owned).collect();
        missing.sort_by_key(|path| std::cmp::Reverse(path.components().count()));
        MissingDirectories(missing)
    }

    /// Takes away those that are there now, and are empty.
    pub fn remove(&self) {
        self.0.iter().for_each(|path| drop(std::fs::remove_dir(path)));
    }
}
