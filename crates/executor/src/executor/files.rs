//! Files by their names.

use super::Executor;
#[cfg(doc)]
use driver::Driver;
use driver::{DeviceId, Fault, FileId, Op, Output};

impl Executor {
    /// Opens a file, or creates it; says how long it is, in bytes.
    ///
    /// # Errors
    /// The driver's [`Fault`].
    pub async fn open(&self, device: DeviceId, name: &str, create: bool) -> Result<(FileId, u64), Fault> {
        match self.perform(Op::Open { device, name: name.to_owned(), create }).await.result? {
            Output::Opened { file, length } => {
                self.0.names.borrow_mut().set_file(file, device, name);
                Ok((file, length))
            }
            other => unreachable!("opening a file answers with the file, not {other:?}"),
        }
    }

    /// The names of a device's files.
    ///
    /// # Errors
    /// The driver's [`Fault`].
    pub async fn names(&self, device: DeviceId) -> Result<Vec<String>, Fault> {
        match self.perform(Op::List { device }).await.result? {
            Output::Names(names) => Ok(names),
            other => unreachable!("a listing answers with names, not {other:?}"),
        }
    }

    /// Lets a file go that was opened; see [`Driver::forget`].
    pub fn forget(&self, file: FileId) {
        self.0.driver.borrow_mut().forget(file);
    }
}
