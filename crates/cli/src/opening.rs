//! Opening a database, as every command does it: what is configured and gains nothing is said on standard error.

use crate::Failure;
use crate::progress::Progress;
use entresol::{OpenError, Opening, Store};

/// Opens a database, creating it if there is none.
pub fn open(opening: Opening, progress: &Progress) -> Result<Store, Failure> {
    announced(opening, progress, Opening::open)
}

/// Opens a database, if there is one.
pub fn open_existing(opening: Opening, progress: &Progress) -> Result<Store, Failure> {
    announced(opening, progress, Opening::open_existing)
}

fn announced(
    opening: Opening,
    progress: &Progress,
    open: impl FnOnce(Opening) -> Result<Store, OpenError>,
) -> Result<Store, Failure> {
    progress.phase("opening", 0);
    let warn = progress.warner();
    let store = open(opening.on_silence(move |late| warn(&late.to_string())))?;
    progress.warn(&store.warnings());
    Ok(store)
}
