//! Opening a database, as every command does it: what is configured and gains nothing is said on standard error.

use crate::progress::Progress;
use crate::{Failure, files};
use base::units::{format_size, grouped};
use entresol::configuration::Configuration;
use entresol::{OpenError, Opening, Store, UndoProgress};
use std::path::Path;
use virtual_driver::Media;

/// Opens a database, creating it if there is none.
pub fn open(opening: Opening, progress: &Progress) -> Result<Store, Failure> {
    announced(opening, progress, Opening::open)
}

/// Opens a database, if there is one.
pub fn open_existing(opening: Opening, progress: &Progress) -> Result<Store, Failure> {
    announced(opening, progress, Opening::open_existing)
}

/// Opens a copy, in memory, of the database in a directory, on described hardware: with its sizes, what its pages hold, and, if
/// `is_warm`, what was in memory when that was noted last. It is opened there as it would be here, so what a checkpoint has not written is replayed from its log. `configured` says where
/// its devices are.
pub fn open_like(
    opening: Opening,
    (directory, configured): (&Path, &Configuration),
    is_warm: bool,
    progress: &Progress,
) -> Result<Store, Failure> {
    if !directory.join(engine::SUPERBLOCK_FILE).is_file() {
        return Err(format!("'{}' is no database to be copied", directory.display()).into());
    }
    let Some(hardware) = &opening.configuration().hardware else {
        return Err("a copy of a database runs on described hardware; name it with --hardware".into());
    };
    let media = Media::new();
    for (name, device) in &configured.devices {
        let Some(description) = hardware.devices.get(name) else {
            let known: Vec<&str> = hardware.devices.keys().map(String::as_str).collect();
            let why = format!("the hardware '{}' has no device '{name}' as the database has", hardware.name);
            return Err(format!("{why}; it has {}", known.join(", ")).into());
        };
        let place = device.path.as_deref().unwrap_or(directory);
        // No other process writes while the copy is made.
        let _lock = real_driver::DirectoryLock::acquire(place)?;
        for file in files::names(place)?.into_iter().filter(|file| !is_beside(file)) {
            copy(&place.join(&file), |offset, bytes| media.put((name, description), &file, offset, bytes), progress)?;
        }
    }
    let store = announced(opening, progress, |opening| opening.open_on(&media))?;
    if is_warm {
        progress.phase("reading what was in memory", 0);
        store.run(async |database| database.warm_as_noted().await)?;
    }
    Ok(store)
}

/// Files that lie in a database's directory and are none of its own.
fn is_beside(name: &str) -> bool {
    name == real_driver::DirectoryLock::NAME || name == entresol::configuration::FILE_NAME
}

fn copy(path: &Path, mut put: impl FnMut(u64, &[u8]), progress: &Progress) -> Result<(), Failure> {
    progress.phase("copying", 0);
    let mut end = 0;
    files::read_in_pieces(path, |offset, bytes| {
        end = offset + bytes.len() as u64;
        put(offset, bytes);
    })
    .map_err(|error| format!("{error}, behind {}", format_size(end)))?;
    Ok(())
}

/// The same opening, which says on standard error what devices leave unanswered.
pub fn watched(opening: Opening, progress: &Progress) -> Opening {
    let warn = progress.warner();
    opening.on_silence(move |late| warn(&late.to_string()))
}

fn announced(
    opening: Opening,
    progress: &Progress,
    open: impl FnOnce(Opening) -> Result<Store, OpenError>,
) -> Result<Store, Failure> {
    progress.phase("opening", 0);
    // A command is one engine, but where it has nodes of its own.
    let store = open(watched(opening.nodes(1), progress))?;
    progress.warn(&store.warnings());
    left_to_undo(store.database().undoing()).iter().for_each(|words| progress.warner()(words));
    Ok(store)
}

/// What is undone beside whatever a command does, in words.
pub fn left_to_undo(left: UndoProgress) -> Option<String> {
    let (transactions, changes) = (grouped(left.transactions), grouped(left.changes));
    (left.transactions > 0).then(|| {
        format!(
            "{transactions} large transactions had not ended and are undone beside this, {changes} changes of theirs are left: what they \
             have changed stays locked"
        )
    })
}
