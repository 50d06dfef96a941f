//! A place for a backup: a directory, reached as a device.

use super::manifest::BLOCK;
use crate::error::BackupError;
use crate::{Error, Result};
use driver::{Access, DeviceId, Fault, FaultKind, FileId, Frame, Op, Work};
use executor::Executor;
use std::path::Path;

/// What a driver keeps in a directory that it has locked.
const LOCK_FILE: &str = "entresol.lock";

/// A directory that holds a backup, or will.
#[derive(Clone)]
pub(crate) struct BackupPlace {
    pub executor: Executor,
    pub device: DeviceId,
    /// What it is called, for messages.
    pub name: String,
}

/// A file of a place that is open. It is let go when this is dropped: there will be any number of them, and their directory may be moved
/// away.
pub(crate) struct PlaceFile {
    executor: Executor,
    id: FileId,
}

impl Drop for PlaceFile {
    fn drop(&mut self) {
        self.executor.forget(self.id);
    }
}

impl BackupPlace {
    /// The device of this name, or a directory of this machine by its absolute path.
    ///
    /// # Errors
    /// [`Error::NoDevice`], [`Error::Argument`] for a path that is not absolute, or the driver's.
    pub fn of(executor: &Executor, name: &str) -> Result<BackupPlace> {
        // Also if it was attached before: another directory may be there by now, or none.
        let device = match Path::new(name) {
            path if path.is_absolute() => executor.attach(path)?,
            path if path.components().count() > 1 => {
                let words = "is no device, and a directory is named by its absolute path, from '/' on";
                return Err(Error::Argument(format!("'{name}' {words}")));
            }
            _ => crate::io::device(executor, name)?,
        };
        Ok(BackupPlace { executor: executor.clone(), device, name: name.to_owned() })
    }

    /// The names of the files that it holds.
    ///
    /// # Errors
    /// The driver's.
    pub async fn names(&self) -> Result<Vec<String>> {
        Ok(self.executor.names(self.device).await?)
    }

    /// The same but for what a driver keeps there.
    ///
    /// # Errors
    /// The driver's.
    pub async fn contents(&self) -> Result<Vec<String>> {
        let mut names = self.names().await?;
        names.retain(|name| name != LOCK_FILE);
        Ok(names)
    }

    /// Opens a new file.
    ///
    /// # Errors
    /// [`BackupError::TargetFull`], [`BackupError::Displaced`], or the driver's.
    pub async fn create(&self, name: &str) -> Result<PlaceFile> {
        let opened = self.executor.open(self.device, name, true).await;
        let (id, _) = opened.map_err(|fault| self.write_error(fault))?;
        Ok(PlaceFile { executor: self.executor.clone(), id })
    }

    /// Opens a file and says how long it is, in bytes; nothing if there is none.
    ///
    /// # Errors
    /// The driver's.
    pub async fn find(&self, name: &str) -> Result<Option<(PlaceFile, u64)>> {
        match self.executor.open(self.device, name, false).await {
            Ok((id, length)) => Ok(Some((PlaceFile { executor: self.executor.clone(), id }, length))),
            Err(fault) if fault.kind == FaultKind::NotFound => Ok(None),
            Err(fault) => Err(fault.into()),
        }
    }

    /// Removes these files, one after the other, up to one that cannot be removed. One that is not there is no error.
    ///
    /// # Errors
    /// The driver's.
    pub async fn remove(&self, names: &[&str]) -> Result<()> {
        for name in names {
            let op = Op::Remove { device: self.device, name: (*name).to_owned() };
            match self.executor.perform(op).await.result {
                Err(fault) if fault.kind != FaultKind::NotFound => return Err(fault.into()),
                _ => {}
            }
        }
        Ok(())
    }

    /// Reads `length` bytes at `offset`, whole blocks.
    ///
    /// # Errors
    /// The driver's.
    pub async fn read(&self, file: &PlaceFile, (offset, length): (u64, usize)) -> Result<Frame> {
        let buffer = self.executor.frame(length)?;
        self.executor.charge(Work::InputOutput);
        self.executor.pay_debt().await;
        let op = Op::Read { file: file.id, offset, length: length as u32, buffer, access: Access::Asynchronous };
        let completion = self.executor.perform(op).await;
        completion.result?;
        Ok(completion.buffer.expect("a read gives its buffer back"))
    }

    /// Writes the first `length` bytes of a frame at `offset`, whole blocks, and gives the frame back.
    ///
    /// # Errors
    /// [`BackupError::TargetFull`], or the driver's.
    pub async fn write(&self, file: &PlaceFile, (offset, length): (u64, usize), buffer: Frame) -> Result<Frame> {
        self.executor.charge(Work::InputOutput);
        self.executor.pay_debt().await;
        let (durable, access) = (false, Access::Asynchronous);
        let op = Op::Write { file: file.id, offset, length: length as u32, buffer, durable, access };
        let completion = self.executor.perform(op).await;
        completion.result.map_err(|fault| self.write_error(fault))?;
        Ok(completion.buffer.expect("a write gives its buffer back"))
    }

    /// Makes a file durable.
    ///
    /// # Errors
    /// As [`BackupPlace::write`].
    pub async fn sync(&self, file: &PlaceFile) -> Result<()> {
        self.executor.perform(Op::Sync { file: file.id }).await.result.map_err(|fault| self.write_error(fault))?;
        Ok(())
    }

    /// Writes a file of these bytes, durably.
    ///
    /// # Errors
    /// As [`BackupPlace::write`].
    pub async fn write_file(&self, name: &str, bytes: &[u8]) -> Result<()> {
        let length = bytes.len().next_multiple_of(BLOCK);
        let mut frame = self.executor.frame(length)?;
        frame[..bytes.len()].copy_from_slice(bytes);
        let file = self.create(name).await?;
        self.write(&file, (0, length), frame).await?;
        self.sync(&file).await
    }

    /// An error if the directory has not this file any more, with this many bytes at least. Where the file system does not say when a
    /// directory was made, another one may be there.
    ///
    /// # Errors
    /// [`BackupError::Displaced`], or the driver's.
    pub async fn check_file(&self, name: &str, length: u64) -> Result<()> {
        let detail = match self.executor.open(self.device, name, false).await {
            Ok((id, found)) => {
                drop(PlaceFile { executor: self.executor.clone(), id });
                if found >= length {
                    return Ok(());
                }
                format!("its file '{name}' has {found} bytes and should have {length}")
            }
            Err(fault) if fault.kind == FaultKind::NotFound => format!("it has no file '{name}'"),
            Err(fault) => return Err(self.write_error(fault)),
        };
        Err(BackupError::Displaced { place: self.name.clone(), detail }.into())
    }

    fn write_error(&self, fault: Fault) -> Error {
        match fault.kind {
            FaultKind::Displaced | FaultKind::NotFound => {
                BackupError::Displaced { place: self.name.clone(), detail: fault.message }.into()
            }
            FaultKind::NoSpace => {
                BackupError::TargetFull { place: self.name.clone(), detail: fault.message.clone() }.into()
            }
            _ => fault.into(),
        }
    }
}
