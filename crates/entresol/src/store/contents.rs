//! What there is in a directory before a database is opened in it.

use crate::configuration::FILE_NAME;
use crate::error::run;
use crate::{OpenError, Opening};
use driver::{Access, Op};
use engine::Error;
use executor::Executor;
use real_driver::DirectoryLock;

/// What a directory holds.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Contents {
    Nothing,
    /// A superblock file and no more than its creation makes: without partitions, or cut off.
    Bare,
    Database,
    Foreign,
}

/// Files that a directory may hold before its database is complete: those that a creation cut off may have left.
const BEGINNINGS: [&str; 9] = [
    engine::SUPERBLOCK_FILE,
    "double-write",
    "log",
    "log-2",
    "cache.tier",
    "upper-cache.tier",
    "write-buffer.tier",
    "log-buffer.tier",
    DirectoryLock::NAME,
];

/// The files of the log, which a creation makes before the superblock file, and leaves blank.
const LOGS: [&str; 2] = ["log", "log-2"];
/// How much of a log's file tells whether it was ever used, in bytes.
const LOG_FRONT: u64 = 2 << 20;

/// The names of a device's files.
async fn names(executor: &Executor, device: &str) -> Result<Vec<String>, Error> {
    let device = executor.device(device).ok_or_else(|| Error::NoDevice(device.to_owned()))?;
    Ok(executor.names(device).await?)
}

/// A file on a device of a database that is to be created which no creation of one has left, if there is any.
async fn stranger(executor: &Executor, device: &str) -> Result<Option<String>, Error> {
    let names = names(executor, device).await?;
    let locked = names.iter().any(|name| name == DirectoryLock::NAME);
    for name in names {
        let is_own = name == DirectoryLock::NAME || name == FILE_NAME;
        let may_be_left = locked && LOGS.contains(&name.as_str());
        if is_own || (may_be_left && is_blank(executor, device, &name).await?) {
            continue;
        }
        return Ok(Some(name));
    }
    Ok(None)
}

/// Whether nothing was ever logged in a file: a log's first record is in its second page, at 1 MiB at most, and what comes there
/// later in its turn is log again.
async fn is_blank(executor: &Executor, device: &str, name: &str) -> Result<bool, Error> {
    let Some(device) = executor.device(device) else { return Ok(false) };
    let (file, length) = executor.open(device, name, false).await?;
    let length = length.min(LOG_FRONT) / 4096 * 4096;
    if length == 0 {
        return Ok(true);
    }
    let buffer = executor.frame(LOG_FRONT as usize)?;
    let op = Op::Read { file, offset: 0, length: length as u32, buffer, access: Access::Asynchronous };
    let completion = executor.perform(op).await;
    completion.result?;
    let front = completion.buffer.expect("a read gives its buffer back");
    Ok(front[..length as usize].iter().all(|byte| *byte == 0))
}

pub(super) async fn contents(executor: &Executor, device: &str) -> Result<Contents, Error> {
    let names = names(executor, device).await?;
    let has_superblock = names.iter().any(|name| name == engine::SUPERBLOCK_FILE);
    // A creation that was cut off had locked the directory first: without the lock's file, the log belongs to another database.
    let locked = names.iter().any(|name| name == DirectoryLock::NAME);
    let known = |name: &String| name == FILE_NAME || (locked && BEGINNINGS.contains(&name.as_str()));
    Ok(match (has_superblock, names.iter().all(known)) {
        (true, true) => Contents::Bare,
        (true, false) => Contents::Database,
        (false, true) => Contents::Nothing,
        (false, false) => Contents::Foreign,
    })
}

impl Opening {
    /// Nothing is created beside what another program or another database left.
    pub(super) fn refuse_foreign<'a>(
        &self,
        executor: &Executor,
        home: &str,
        others: impl Iterator<Item = &'a String>,
        create: bool,
    ) -> Result<(), OpenError> {
        let path = self.path.display().to_string();
        let state = run(executor, contents(executor, home))??;
        if state == Contents::Foreign || (state == Contents::Nothing && !create) {
            let place = if create { "an empty directory or a database" } else { "the directory of a database" };
            let detail = format!("it holds no file '{}'; name {place}", engine::SUPERBLOCK_FILE);
            return Err(Error::NotADatabase { path, detail }.into());
        }
        match state {
            Contents::Database | Contents::Bare => Ok(()),
            Contents::Nothing | Contents::Foreign => self.refuse_occupied(executor, others),
        }
    }

    /// Nothing is created over files on other devices than the home's.
    pub(super) fn refuse_occupied<'a>(
        &self,
        executor: &Executor,
        others: impl Iterator<Item = &'a String>,
    ) -> Result<(), OpenError> {
        let path = self.path.display().to_string();
        for device in others {
            let strange = run(executor, stranger(executor, device))??;
            if let Some(name) = strange {
                let detail = format!("its device '{device}' holds the file '{name}'; give it an empty directory");
                return Err(Error::NotADatabase { path, detail }.into());
            }
        }
        Ok(())
    }
}
