//! Asking the program that has a database open.

use super::message::{Answer, Ask, Failure, Unreadable, encode, receive};
use crate::{OpenError, Opening};
use engine::{BackupProgress, BackupReport, BackupSettings, Error, LockWait};
use real_driver::DirectorySocket;
use std::io::Write;
use std::os::unix::net::UnixStream;
use thiserror::Error;

/// Why the program that has a database open has not done what it was asked for.
#[derive(Debug, Error)]
pub enum ElsewhereError {
    /// It has ended, or was killed.
    #[error(
        "the program that has '{path}' open has ended before it answered; what it was asked for is not done: begin again"
    )]
    Ended {
        /// The database's directory.
        path: String,
    },
    /// It speaks otherwise, or not.
    #[error("the program that has '{path}' open cannot be asked: {detail}")]
    Unreadable {
        /// The database's directory.
        path: String,
        /// What it has said.
        detail: String,
    },
    /// It has the database on its own thread and has run nothing there for ten seconds.
    #[error(
        "the program that has '{path}' open runs nothing in it at present, and does what others ask only then: ask again when it works"
    )]
    Idle {
        /// The database's directory.
        path: String,
    },
    /// It could not do that.
    #[error("the program that has '{path}' open could not do that: {detail}")]
    Failed {
        /// The database's directory.
        path: String,
        /// Why.
        detail: String,
    },
}

/// What waits in a database that another program has open ([`Opening::waits_elsewhere`]).
#[derive(Clone, Debug, PartialEq)]
pub struct WaitsElsewhere {
    /// Transactions that wait for locks, the longest wait first, and who is in their way.
    pub locks: Vec<LockWait>,
    /// How many more there are, beyond what a message takes.
    pub left_out: u64,
    /// How many tasks wait to begin a transaction because as many are active as may run at once.
    pub beginning: u64,
}

impl Opening {
    /// Has the program that has the database open, on this machine and by the same user, take a backup of it; nothing if no program listens
    /// there: then the database is not open, or its configuration says that it shall not be asked. `progress` is told how far it is, ten
    /// times a second at most. What [`Database::backup`](crate::Database::backup) says holds of the backup; one whose asking program ends is
    /// given up. A database on the thread of its program, a [`Store`](crate::Store), takes it up when that has it run something, goes on only
    /// then, and is waited for ten seconds until it does.
    ///
    /// # Errors
    /// [`Error::Backup`], [`Error::Closed`] if the database is closed meanwhile, or an [`ElsewhereError`].
    ///
    /// ```
    /// # let directory = tempfile::tempdir().unwrap();
    /// # let (directory, backup) = (directory.path().join("data"), directory.path().join("backup"));
    /// # std::fs::create_dir(&directory).unwrap();
    /// # std::fs::write(directory.join("entresol.toml"), "[log]\nsize = \"4 MiB\"").unwrap();
    /// use entresol::{BackupSettings, Opening};
    ///
    /// let settings = BackupSettings { target: backup.display().to_string(), base: None, bytes_per_second: None };
    /// let opening = Opening::in_directory(&directory)?;
    /// assert!(opening.back_up_elsewhere(&settings, |_| {})?.is_none(), "it is not open");
    ///
    /// let thread = entresol::start(&directory)?;
    /// // In another process:
    /// opening.back_up_elsewhere(&settings, |_| {})?.expect("it is open");
    /// assert!(backup.join("entresol.backup").is_file());
    /// thread.close()?;
    /// # Ok::<(), entresol::OpenError>(())
    /// ```
    pub fn back_up_elsewhere(
        &self,
        settings: &BackupSettings,
        mut progress: impl FnMut(BackupProgress),
    ) -> Result<Option<BackupReport>, OpenError> {
        let Some(mut asked) = Asked::begin(self, &Ask::Backup(settings.clone()))? else { return Ok(None) };
        loop {
            match asked.answer()? {
                Answer::Progress(seen) => progress(seen),
                Answer::Done(report) => return Ok(Some(report)),
                Answer::Failed(failure) => return Err(asked.failed(failure)),
                _ => return Err(asked.strange()),
            }
        }
    }

    /// What waits in the database, as the program says that has it open, on this machine and by the same user; nothing if no program listens
    /// there, as for [`Opening::back_up_elsewhere`]. `waits` in `entresol shell` shows it.
    ///
    /// # Errors
    /// [`Error::Closed`] if the database is closed meanwhile, or an [`ElsewhereError`].
    ///
    /// ```
    /// # let directory = tempfile::tempdir().unwrap();
    /// # let directory = directory.path();
    /// # std::fs::write(directory.join("entresol.toml"), "[log]\nsize = \"4 MiB\"").unwrap();
    /// let opening = entresol::Opening::in_directory(directory)?;
    /// assert!(opening.waits_elsewhere()?.is_none(), "it is not open");
    ///
    /// let thread = entresol::start(directory)?;
    /// // In another process:
    /// assert!(opening.waits_elsewhere()?.expect("it is open").locks.is_empty());
    /// thread.close()?;
    /// # Ok::<(), entresol::OpenError>(())
    /// ```
    pub fn waits_elsewhere(&self) -> Result<Option<WaitsElsewhere>, OpenError> {
        let Some(mut asked) = Asked::begin(self, &Ask::Waits)? else { return Ok(None) };
        match asked.answer()? {
            Answer::Waits(waits) => Ok(Some(waits.into())),
            Answer::Failed(failure) => Err(asked.failed(failure)),
            _ => Err(asked.strange()),
        }
    }
}

/// A question that was asked.
pub(super) struct Asked {
    path: String,
    stream: UnixStream,
}

impl Asked {
    /// Asks the program that has a database open; nothing if none listens there.
    pub fn begin(opening: &Opening, ask: &Ask) -> Result<Option<Asked>, OpenError> {
        let path = opening.home().display().to_string();
        let Some(stream) = DirectorySocket::connect(opening.home())? else { return Ok(None) };
        let mut asked = Asked { path, stream };
        let sent = asked.stream.write_all(&encode(ask));
        sent.map_err(|error| asked.unreadable(error.into()))?;
        Ok(Some(asked))
    }

    /// Waits for what is answered next.
    pub fn answer(&mut self) -> Result<Answer, OpenError> {
        match receive(&mut self.stream) {
            Ok(Some(answer)) => Ok(answer),
            Ok(None) => Err(ElsewhereError::Ended { path: self.path.clone() }.into()),
            Err(error) => Err(self.unreadable(error).into()),
        }
    }

    fn unreadable(&self, error: Unreadable) -> ElsewhereError {
        let path = self.path.clone();
        match error {
            Unreadable::Silent(_) => ElsewhereError::Ended { path },
            other => ElsewhereError::Unreadable { path, detail: other.to_string() },
        }
    }

    /// The error of an answer that is a failure.
    pub fn failed(&self, failure: Failure) -> OpenError {
        match failure {
            Failure::Backup(error) => Error::Backup(error).into(),
            Failure::Closed => Error::Closed.into(),
            Failure::Idle => ElsewhereError::Idle { path: self.path.clone() }.into(),
            Failure::Other(detail) => ElsewhereError::Failed { path: self.path.clone(), detail }.into(),
        }
    }

    /// The error of an answer to another question.
    pub fn strange(&self) -> OpenError {
        let detail = "it has answered what was not asked".to_owned();
        ElsewhereError::Unreadable { path: self.path.clone(), detail }.into()
    }
}
