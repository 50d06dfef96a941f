//! `entresol restore`: a database from a backup.

use crate::progress::Progress;
use crate::{Failure, check, opening, print};
use base::units::{format_size, grouped};
use clap::Args;
use entresol::{Opening, RestoreSource};
use std::path::PathBuf;

/// Makes a database from a backup, recovers it, and checks every page of it
///
/// The directory is empty but for a file entresol.toml, if the database needs one: its
/// devices have the names that they had when the backup was taken.
#[derive(Args)]
#[command(verbatim_doc_comment, after_help = "Example:\n  entresol restore /mnt/backup/monday debit-credit.data")]
pub struct Arguments {
    /// Directory of the backup
    #[arg(value_name = "BACKUP")]
    pub backup: PathBuf,
    /// Directory of the database to be made
    #[arg(value_name = "DIR")]
    pub directory: PathBuf,
}

pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    if !arguments.backup.is_dir() {
        return Err(format!("there is no directory '{}'", arguments.backup.display()).into());
    }
    let progress = Progress::start("restore");
    let source = RestoreSource { backup: std::path::absolute(&arguments.backup)?.display().to_string() };
    let opening = Opening::in_directory(&arguments.directory)?;
    let shown = progress.steps();
    let said = move |seen: entresol::BackupProgress| shown.step("restoring", seen.done, seen.total);
    let report = opening.clone().restore(&source, said)?;
    let store = opening::open_existing(opening, &progress)?;
    let recovered = store.database().recovery().records;
    let checked = check::checked(store, &progress)?;
    progress.finish();
    print(&format!(
        "{} pages restored, {} of log and {} records in it replayed, up to {}\n{checked}",
        grouped(report.pages),
        format_size(report.log_bytes),
        grouped(recovered),
        report.end
    ))
}
