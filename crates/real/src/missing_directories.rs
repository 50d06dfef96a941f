//! Directories that something is about to create: what fails then leaves none of them.

use std::path::{Path, PathBuf};

/// Directories that were missing.
#[derive(Debug, Default)]
pub struct MissingDirectories(Vec<PathBuf>);

impl MissingDirectories {
    /// Those of these places, and those above them, that are missing now.
    ///
    /// ```
    /// # let directory = tempfile::tempdir().unwrap();
    /// # let directory = directory.path();
    /// use entresol_real::MissingDirectories;
    ///
    /// let place = directory.join("a/b");
    /// let missing = MissingDirectories::of([&*place]);
    /// std::fs::create_dir_all(&place).unwrap();
    /// missing.remove();
    /// assert!(directory.is_dir() && !directory.join("a").exists());
    /// ```
    pub fn of<'a>(places: impl IntoIterator<Item = &'a Path>) -> MissingDirectories {
        let above = |place| Path::ancestors(place).take_while(|path| !path.as_os_str().is_empty() && !path.exists());
        let mut missing: Vec<PathBuf> = places.into_iter().flat_map(above).map(Path::to_owned).collect();
        // Deeper ones come first.
        missing.sort_by_key(|path| std::cmp::Reverse(path.components().count()));
        MissingDirectories(missing)
    }

    /// Takes away those that are there now, and are empty.
    pub fn remove(&self) {
        self.0.iter().for_each(|path| drop(std::fs::remove_dir(path)));
    }
}
