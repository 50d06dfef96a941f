//! Whether there are the devices that the parts of a database are on, or are to be.

use super::Settings;
use crate::catalog::Partitions;
use crate::superblock::Superblock;
use crate::{Error, Result};
use executor::Executor;

fn check(executor: &Executor, (part, key): (&str, &str), device: &str) -> Result<()> {
    if executor.device(device).is_some() {
        return Ok(());
    }
    Err(Error::MissingDevice { part: part.to_owned(), key: key.to_owned(), device: device.to_owned() })
}

const LOG: (&str, &str) = ("the log", "[log] device");
const SECOND_LOG: (&str, &str) = ("the second log", "[log] second_device");

impl Settings {
    /// Of what the settings place anew at every opening, and of the log, if it is asked for on a device.
    ///
    /// # Errors
    /// [`Error::MissingDevice`].
    pub(super) fn check_devices(&self, executor: &Executor) -> Result<()> {
        let hierarchy = &self.hierarchy;
        let parts = [
            (("undo space", "[undo] device"), Some(self.undo_place().0)),
            (("temporary space", "[temp] device"), Some(self.temp_place().0)),
            (("the cache", "[cache] device"), hierarchy.cache.as_ref().map(|cache| &*cache.device)),
            (("the upper cache", "[upper_cache] device"), hierarchy.upper_cache.as_ref().map(|cache| &*cache.device)),
            (
                ("the write buffer", "[write_buffer] device"),
                hierarchy.write_buffer.as_ref().map(|buffer| &*buffer.device),
            ),
            (LOG, self.asked.log_device.as_deref()),
        ];
        parts.into_iter().try_for_each(|(part, device)| device.map_or(Ok(()), |device| check(executor, part, device)))
    }

    /// Of the log of a new database.
    ///
    /// # Errors
    /// [`Error::MissingDevice`].
    pub(super) fn check_log_devices(&self, executor: &Executor) -> Result<()> {
        check(executor, LOG, &self.log_device)?;
        self.log.second.as_ref().map_or(Ok(()), |second| check(executor, SECOND_LOG, &second.device))
    }

    /// Of the log of a database that exists. Of one on two devices it is said otherwise which of them is gone.
    ///
    /// # Errors
    /// [`Error::MissingDevice`].
    pub(super) fn check_log_devices_of(&self, executor: &Executor, superblock: &Superblock) -> Result<()> {
        if superblock.second_log.is_some() {
            return Ok(());
        }
        check(executor, LOG, &superblock.log_device)?;
        self.log.second.as_ref().map_or(Ok(()), |second| check(executor, SECOND_LOG, &second.device))
    }
}

/// Of all partitions.
///
/// # Errors
/// [`Error::MissingDevice`].
pub(super) fn check_of_partitions(executor: &Executor, partitions: &Partitions) -> Result<()> {
    partitions.iter().try_for_each(|partition| {
        let (part, key) = (format!("partition '{}'", partition.name), format!("[partition.{}] device", partition.name));
        check(executor, (&part, &key), &partition.device)
    })
}
