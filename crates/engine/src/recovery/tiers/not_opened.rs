//! Caches that an opening does without, because their devices fail or do not answer. What a cache that goes on has alone redo makes anew, or
//! the opening says which page it cannot; a new one has nothing yet.

use crate::second_level::CacheSettings;
use crate::tier_file::Kind;
use crate::{Error, Result};
use driver::{Fault, FaultKind, OpKind};
use executor::Executor;

/// A cache that the settings ask for, and that there is not.
#[derive(Debug)]
pub struct CacheNotOpened {
    /// Which one.
    pub kind: Kind,
    /// Its device.
    pub device: String,
    /// Why not.
    pub error: Error,
}

/// Something of a cache on this device, or that there is none because the device is bad.
///
/// # Errors
/// Whatever else kept it from being made.
pub fn unless_bad<T>(made: Result<T>, (kind, device): (Kind, &str)) -> Result<Result<T, CacheNotOpened>> {
    match made {
        Err(error) if is_of_device(&error) => Ok(Err(CacheNotOpened { kind, device: device.to_owned(), error })),
        made => made.map(Ok),
    }
}

/// Whether a device failed, or did not answer, rather than being full or another one than it should be.
pub fn is_of_device(error: &Error) -> bool {
    matches!(error, Error::Input(fault) if fault.kind == FaultKind::Device)
}

/// Refuses to create files of a cache whose device has left something unanswered, for longer than it may, that an earlier opening in this
/// process has begun: whenever that is carried out, it may take a file of the same name away.
///
/// # Errors
/// That of a device that does not answer.
pub fn check_names_answered(executor: &Executor, cache: &CacheSettings) -> Result<()> {
    if cache.silence_ns_max == 0 {
        return Ok(());
    }
    let unanswered = executor.unanswered(cache.silence_ns_max);
    let is_of_name = |kind| matches!(kind, OpKind::Open | OpKind::Remove);
    match unanswered.iter().find(|request| request.device == cache.device && is_of_name(request.kind)) {
        Some(request) => {
            Err(Fault::new(FaultKind::Device, format!("no cache is made while {request}: it may hang")).into())
        }
        None => Ok(()),
    }
}
