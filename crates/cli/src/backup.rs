//! `entresol backup`: a copy of a database, as of one moment.

use crate::progress::Progress;
use crate::{Failure, bench, opening, print};
use base::units::{Size, format_duration_ns, format_size, grouped};
use clap::Args;
use entresol::{BackupReport, BackupSettings, Opening};
use serde::Serialize;
use std::path::{Path, PathBuf};

/// Copies a database into an empty directory, as of one moment
///
/// A database that another program of the same user has open is copied by that program,
/// which is asked by the socket entresol.socket in the database's directory (driver.socket
/// = false in entresol.toml: it is not asked). Its transactions go on meanwhile. Interrupted,
/// this command has the backup given up.
#[derive(Args)]
#[command(
    verbatim_doc_comment,
    after_help = "Examples:\n  entresol backup debit-credit.data /mnt/backup/monday --rate 50MiB\n  \
                  entresol backup debit-credit.data /mnt/backup/tuesday --base /mnt/backup/monday"
)]
pub struct Arguments {
    /// Directory of the database
    #[arg(value_name = "DIR")]
    pub directory: PathBuf,
    /// Empty directory for the backup, created if missing
    #[arg(value_name = "BACKUP")]
    pub backup: PathBuf,
    /// Earlier backup that this one builds on: it has only what was changed since
    #[arg(long, value_name = "BACKUP")]
    pub base: Option<PathBuf>,
    /// Bytes or pages read per second at most [default: as many as the devices give]
    #[arg(long, value_name = "SIZE", value_parser = bench::size)]
    pub rate: Option<Size>,
    /// Prints the figures as JSON
    #[arg(long)]
    pub json: bool,
}

/// The figures of a backup.
#[derive(Serialize)]
struct Figures {
    end: u64,
    bytes_read: u64,
    data_bytes: u64,
    log_bytes: u64,
    pages: u64,
    elapsed_ns: u64,
}

pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    let progress = Progress::start("backup");
    let opening = Opening::in_directory(&arguments.directory)?;
    let rate = arguments.rate.map(|rate| bench::in_bytes(rate, opening.configuration()));
    let settings = settings(&arguments.backup, arguments.base.as_deref(), rate)?;
    let shown = progress.steps();
    let said = move |seen: entresol::BackupProgress| shown.step("copying", seen.done, seen.total);
    progress.phase("waiting for the program that has it open", 0);
    let ask = || opening.back_up_elsewhere(&settings, &said);
    let report = match ask()? {
        Some(report) => report,
        None => match opening::open_existing(opening.clone(), &progress) {
            Ok(store) => {
                let report = store.run(async |database| database.backup(&settings, said).await)?;
                store.close()?;
                report
            }
            // Another program may have been about to open it.
            Err(refused) => ask()?.ok_or(refused)?,
        },
    };
    progress.finish();
    print(&if arguments.json { to_json(&report) } else { to_text(&report) })
}

/// A backup into this directory.
pub fn settings(
    directory: &Path,
    base: Option<&Path>,
    bytes_per_second: Option<u64>,
) -> Result<BackupSettings, Failure> {
    let target = std::path::absolute(directory)?.display().to_string();
    let base = base.map(std::path::absolute).transpose()?.map(|base| base.display().to_string());
    Ok(BackupSettings { target, base, bytes_per_second })
}

/// The figures for people.
pub fn to_text(report: &BackupReport) -> String {
    let rate = report.bytes_read as f64 / (report.elapsed_ns.max(1) as f64 / 1e9);
    format!(
        "{} pages and {} of log in {} at {}/s; shows what was committed up to {}",
        grouped(report.pages),
        format_size(report.log_bytes),
        format_duration_ns(report.elapsed_ns as f64),
        format_size(rate as u64),
        report.end
    )
}

fn to_json(report: &BackupReport) -> String {
    let BackupReport { end, bytes_read, data_bytes, log_bytes, pages, elapsed_ns } = *report;
    let figures = Figures { end: end.0, bytes_read, data_bytes, log_bytes, pages, elapsed_ns };
    serde_json::to_string_pretty(&figures).expect("it has no keys but names")
}
