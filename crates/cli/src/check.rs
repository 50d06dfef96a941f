//! `entresol check`: is every byte of a database as it was written?

use crate::progress::Progress;
use crate::table::wrapped;
use crate::{Failure, opening, print};
use base::units::grouped;
use clap::Args;
use engine::check::{CheckReport, Finding};
use entresol::{Database, Opening, Store};
use std::path::PathBuf;

/// Verifies every checksum and the structure of every partition
///
/// A database that was not closed is recovered first, as by every opening: its log is
/// redone, what was not committed is undone, and a checkpoint is taken. Beyond that
/// nothing is changed.
#[derive(Args)]
#[command(verbatim_doc_comment, after_help = "Example:\n  entresol check debit-credit.data")]
pub struct Arguments {
    /// Directory of the database
    #[arg(value_name = "DIR")]
    pub directory: PathBuf,
}

pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    let progress = Progress::start("check");
    let store = opening::open_existing(Opening::in_directory(&arguments.directory)?, &progress)?;
    let text = checked(store, &progress)?;
    progress.finish();
    print(&text)
}

/// Checks a database and closes it. What is to be said of one that is as it should be.
///
/// # Errors
/// What was found.
pub fn checked(store: Store, progress: &Progress) -> Result<String, Failure> {
    let mut total = 0;
    let report = store.run(async |database| {
        let report = database.check(|seen| {
            if std::mem::replace(&mut total, seen.total) != seen.total {
                progress.phase("checking", seen.total);
            }
            progress.advance_to(seen.done);
        });
        report.await
    })?;
    let listed: Vec<String> = report.findings.iter().map(|finding| describe(finding, store.database())).collect();
    let partitions = store.database().partitions().len();
    let words = [store.page_write_description(), store.log_description()];
    let words: Vec<String> = words.iter().filter(|words| !words.is_empty()).map(|words| wrapped(words)).collect();
    store.close()?;
    if !report.is_clean() {
        return Err(failure(&report, &listed).into());
    }
    let pages = grouped(report.pages);
    Ok(format!("{pages} pages in {partitions} partitions, every one as it should be\n{}", words.join("\n")))
}

fn describe(finding: &Finding, database: &Database) -> String {
    let partitions = database.partitions();
    let partition = partitions.iter().find(|partition| partition.name == finding.partition);
    let file = partition.map_or_else(String::new, |partition| partition.file_name());
    format!("file '{file}', page {}: {}", finding.page, finding.what)
}

fn failure(report: &CheckReport, listed: &[String]) -> String {
    let in_words = |why| {
        wrapped(&format!(
            "not everything was looked at, such as whether pages are neither in use nor free: {why}; check again later"
        ))
    };
    let unsearched: Vec<String> = report.unsearched.iter().map(in_words).collect();
    if listed.is_empty() {
        return format!("{} pages read, nothing found, and\n{}", grouped(report.pages), unsearched.join("\n"));
    }
    let count = listed.len() as u64 + report.omitted;
    let mut text = format!("{} found:\n  {}", grouped(count), listed.join("\n  "));
    if report.omitted > 0 {
        text.push_str(&format!("\n  and {} more", grouped(report.omitted)));
    }
    text.push_str("\nrestore the files from a backup");
    unsearched.into_iter().for_each(|words| text.push_str(&format!("\n{words}")));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn omitted_findings_are_counted() {
        let report = CheckReport { pages: 10, findings: Vec::new(), omitted: 1_234, unsearched: Vec::new() };
        let text = failure(&report, &["file 'a.pages', page 3: it is torn".to_owned()]);
        assert!(text.starts_with("1,235 found:\n  file 'a.pages', page 3: it is torn\n  and 1,234 more"), "{text}");
    }

    #[test]
    fn what_was_not_looked_at_is_a_failure() {
        let unsearched = vec![entresol::Error::StillFreeing, entresol::Error::StillUndoing];
        let report = CheckReport { pages: 1_010, findings: Vec::new(), omitted: 0, unsearched };
        let text = failure(&report, &[]);
        assert!(text.starts_with("1,010 pages read, nothing found, and\nnot everything was looked at"), "{text}");
        assert_eq!(text.matches("not everything").count(), 2, "{text}");
    }
}
