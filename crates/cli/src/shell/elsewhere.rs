//! A shell of a database that another process has open: it asks that one.

use super::request::{self, ShellCommand};
use super::{converse, waits};
use crate::{Failure, backup, bench};
use entresol::{ElsewhereError, FaultKind, OpenError, Opening};
use std::io::BufRead;
use std::path::Path;

const OTHERS: &str = "another program has the database open: from here 'waits' and 'backup' are answered";
const GONE: &str = "the program that had the database open has ended: start the shell again";

/// Whether an opening has failed because another program has the database open that can be asked.
pub fn is_asked(opening: &Opening, failure: &Failure) -> bool {
    let is_busy = matches!(failure.downcast_ref(), Some(OpenError::Machine(fault)) if fault.kind == FaultKind::Busy);
    let hears = || match opening.waits_elsewhere() {
        Ok(waits) => waits.is_some(),
        Err(error) => matches!(error, OpenError::Elsewhere(ElsewhereError::Idle { .. })),
    };
    is_busy && hears()
}

/// Answers requests until the end of the input. Returns how many failed.
pub fn ask(opening: &Opening, input: &mut impl BufRead, interactive: bool) -> Result<u64, Failure> {
    eprintln!("{OTHERS}");
    converse(input, interactive, |line| {
        let Some(command) = ShellCommand::parse(line)? else { return Ok(Some(String::new())) };
        Ok(Some(match command {
            ShellCommand::Quit => return Ok(None),
            ShellCommand::Help => request::HELP.trim_end().to_owned(),
            ShellCommand::Waits => waits::to_text(&opening.waits_elsewhere()?.ok_or(GONE)?),
            ShellCommand::Backup { directory, rate } => {
                let rate = rate.map(|rate| bench::in_bytes(rate, opening.configuration()));
                let settings = backup::settings(Path::new(&directory), None, rate)?;
                backup::to_text(&opening.back_up_elsewhere(&settings, |_| {})?.ok_or(GONE)?)
            }
            _ => return Err(OTHERS.into()),
        }))
    })
}
