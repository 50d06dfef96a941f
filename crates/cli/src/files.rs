//! The files that a command reads and writes itself: workloads, traces, reports.

use crate::Failure;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// The bytes of a file.
#[expect(clippy::disallowed_methods, reason = "a command's own input, read before any driver exists")]
pub fn read(path: &Path) -> Result<Vec<u8>, Failure> {
    std::fs::read(path).map_err(|error| format!("'{}' cannot be read: {error}", path.display()).into())
}

/// The names of the files in a directory.
pub fn names(directory: &Path) -> Result<Vec<String>, Failure> {
    let failure = |error: std::io::Error| format!("'{}' cannot be read: {error}", directory.display());
    let mut names = Vec::new();
    for entry in std::fs::read_dir(directory).map_err(failure)? {
        let entry = entry.map_err(failure)?;
        if entry.file_type().map_err(failure)?.is_file() {
            names.extend(entry.file_name().into_string().ok());
        }
    }
    names.sort();
    Ok(names)
}

/// Reads a file piece by piece: `piece` is given where each begins.
#[expect(clippy::disallowed_methods, reason = "a command's own input, read before any driver exists")]
pub fn read_in_pieces(path: &Path, mut piece: impl FnMut(u64, &[u8])) -> Result<(), Failure> {
    let failure = |error: std::io::Error| format!("'{}' cannot be read: {error}", path.display());
    let mut file = std::fs::File::open(path).map_err(failure)?;
    let (mut buffer, mut offset) = (vec![0; 1 << 20], 0);
    loop {
        match std::io::Read::read(&mut file, &mut buffer).map_err(failure)? {
            0 => return Ok(()),
            length => {
                piece(offset, &buffer[..length]);
                offset += length as u64;
            }
        }
    }
}

/// The text of a file.
pub fn read_text(path: &Path) -> Result<String, Failure> {
    let bytes = read(path)?;
    String::from_utf8(bytes).map_err(|error| {
        let line = error.as_bytes()[..error.utf8_error().valid_up_to()].split(|byte| *byte == b'\n').count();
        format!("{}:{line}: this is not text in UTF-8", path.display()).into()
    })
}

/// Refuses a file that exists already.
pub fn must_not_exist(path: &Path) -> Result<(), Failure> {
    if path.exists() {
        Err(format!("'{}' exists already; name another file or remove it", path.display()).into())
    } else {
        Ok(())
    }
}

/// Writes a file that must not exist yet.
#[expect(clippy::disallowed_methods, reason = "a command's own output, beside whatever a driver writes")]
pub fn create(path: &Path, bytes: &[u8]) -> Result<(), Failure> {
    must_not_exist(path)?;
    let failure = |error: std::io::Error| format!("'{}' cannot be written: {error}", path.display());
    let mut file = std::fs::OpenOptions::new().write(true).create_new(true).open(path).map_err(failure)?;
    Ok(std::io::Write::write_all(&mut file, bytes).map_err(failure)?)
}

/// Writes a file in place of what may be there.
#[expect(clippy::disallowed_methods, reason = "a command's own output, beside whatever a driver writes")]
pub fn replace(path: &Path, bytes: &[u8]) -> Result<(), Failure> {
    std::fs::write(path, bytes).map_err(|error| format!("'{}' cannot be written: {error}", path.display()).into())
}

/// Opens a file to add to it, which is made if it is missing.
#[expect(clippy::disallowed_methods, reason = "a command's own output, beside whatever a driver writes")]
pub fn append(path: &Path) -> Result<std::fs::File, Failure> {
    let file = std::fs::OpenOptions::new().append(true).create(true).open(path);
    file.map_err(|error| format!("'{}' cannot be written: {error}", path.display()).into())
}

/// Removes a file, if there is one.
pub fn remove_if_there(path: &Path) -> Result<(), Failure> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(format!("'{}' cannot be removed: {error}", path.display()).into())
        }
        _ => Ok(()),
    }
}

/// A directory, removed with all that is in it when this is dropped.
pub struct Directory(PathBuf);

impl Directory {
    /// A new one among the system's temporary ones.
    pub fn new() -> Result<Directory, Failure> {
        Directory::at(&std::env::temp_dir())
    }

    /// A new one in `parent`, which is made if it is missing, and stays.
    pub fn beneath(parent: &Path) -> Result<Directory, Failure> {
        let failure = |error: std::io::Error| format!("'{}' cannot be made: {error}", parent.display());
        std::fs::create_dir_all(parent).map_err(failure)?;
        Directory::at(parent)
    }

    /// The one of this name in `parent`, empty: what an interrupted command has left there is removed.
    pub fn anew(parent: &Path, name: &str) -> Result<Directory, Failure> {
        let path = parent.join(name);
        let failure = |error: std::io::Error| format!("'{}' cannot be made anew: {error}", path.display());
        if path.exists() {
            std::fs::remove_dir_all(&path).map_err(failure)?;
        }
        std::fs::create_dir(&path).map_err(failure)?;
        Ok(Directory(path))
    }

    fn at(parent: &Path) -> Result<Directory, Failure> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        loop {
            let number = NUMBER.fetch_add(1, Ordering::Relaxed);
            let path = parent.join(format!("entresol-{}-{number}", std::process::id()));
            match std::fs::create_dir(&path) {
                Ok(()) => return Ok(Directory(path)),
                // One that was killed had this process's number before it.
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(format!("'{}' cannot be made: {error}", path.display()).into()),
            }
        }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        // A destructor has no caller to report an error to.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_killed_process_of_this_number_has_left_is_no_obstacle() {
        let parent = tempfile::tempdir().expect("a directory for this test");
        let left = |number: u64| parent.path().join(format!("entresol-{}-{number}", std::process::id()));
        (0..1_000).for_each(|number| std::fs::create_dir(left(number)).expect("it is new"));
        let made = Directory::beneath(parent.path()).expect("there are other names");
        assert!(made.path().is_dir() && (0..1_000).all(|number| left(number) != made.path()));
    }
}
