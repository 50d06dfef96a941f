//! `entresol restore`: a database from a backup.

use crate::progress::Progress;
use crate::{Failure, check, opening, print};
use base::Lsn;
use base::calendar::{format_unix_ns, parse_unix_ns};
use base::units::{format_size, grouped};
use clap::Args;
use entresol::{Opening, RestoreArchive, RestoreSource, RestoreTarget};
use std::path::{Path, PathBuf};

/// Makes a database from a backup, recovers it, and checks every page of it
///
/// The directory is empty but for a file entresol.toml, if the database needs one: its
/// devices have the names that they had when the backup was taken. With the archive of the
/// log (log.archive) it has also what was committed behind the backup: as far as the
/// archive goes, or up to a time or a position of the log.
#[derive(Args)]
#[command(
    verbatim_doc_comment,
    after_help = "Examples:\n  entresol restore /mnt/backup/monday debit-credit.data\n  \
                  entresol restore /mnt/backup/monday again.data --archive /mnt/archive \\\n    \
                  --to '2026-11-26 12:00:00 UTC'"
)]
pub struct Arguments {
    /// Directory of the backup
    #[arg(value_name = "BACKUP")]
    pub backup: PathBuf,
    /// Directory of the database to be made
    #[arg(value_name = "DIR")]
    pub directory: PathBuf,
    /// Directory of the log's archive
    #[arg(long, value_name = "ARCHIVE")]
    pub archive: Option<PathBuf>,
    /// Last moment restored: a time or a log position [default: all]
    #[arg(long, value_name = "TIME|POSITION", requires = "archive", value_parser = target)]
    pub to: Option<RestoreTarget>,
}

/// A position of the log, or a time by the calendar.
fn target(text: &str) -> Result<RestoreTarget, String> {
    if let Ok(position) = text.replace(['_', ','], "").parse() {
        return Ok(RestoreTarget::Position(Lsn(position)));
    }
    let unix_ns = parse_unix_ns(text).ok_or(
        "neither a position of the log, such as 1_234_567, nor a time, such as '2026-11-26 12:00:00 UTC' or \
         2026-11-26T13:00:00+01:00",
    )?;
    Ok(RestoreTarget::Time { unix_ns })
}

/// A directory that is there, by its absolute path.
fn existing(directory: &Path) -> Result<String, Failure> {
    if !directory.is_dir() {
        return Err(format!("there is no directory '{}'", directory.display()).into());
    }
    Ok(std::path::absolute(directory)?.display().to_string())
}

pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    let archive = match &arguments.archive {
        Some(archive) => Some(RestoreArchive { archive: existing(archive)?, target: arguments.to.unwrap_or_default() }),
        None => None,
    };
    let source = RestoreSource { backup: existing(&arguments.backup)?, archive };
    let progress = Progress::start("restore");
    let opening = Opening::in_directory(&arguments.directory)?;
    let shown = progress.steps();
    let said = move |seen: entresol::BackupProgress| shown.step("restoring", seen.done, seen.total);
    let report = opening.clone().restore(&source, said)?;
    let store = opening::open_existing(opening, &progress)?;
    let recovered = store.database().recovery().records;
    let checked = check::checked(store, &progress);
    progress.finish();
    let committed =
        report.committed_unix_ns.map(|ns| format!(", where the last commit was made at {}", format_unix_ns(ns)));
    let restored = format!(
        "{} pages restored, {} of log and {} records in it replayed, up to {}{}",
        grouped(report.pages),
        format_size(report.log_bytes),
        grouped(recovered),
        report.end,
        committed.unwrap_or_default()
    );
    match checked {
        Ok(checked) => print(&format!("{restored}\n{checked}")),
        Err(why) => print(&restored).and(Err(why)),
    }
}
