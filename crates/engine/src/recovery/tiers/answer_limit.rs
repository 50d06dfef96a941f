//! How long an opening waits for the device of a tier.

use crate::Result;
use crate::second_level::{CacheSettings, Settings};
use crate::tier_file::Kind;
use base::time::SECOND_NS;
use base::units::format_duration_ns;
use driver::{DeviceId, Fault, FaultKind};
use executor::Executor;

/// How long the device of a cache may take for an answer if the settings ask for none, in nanoseconds.
const SILENCE_NS_MAX: u64 = 10 * SECOND_NS;

/// How long a tier's device may take for an answer, in nanoseconds; 0 for any time.
#[derive(Clone, Copy)]
pub(super) struct AnswerLimit(u64);

impl AnswerLimit {
    /// What the settings ask for of a tier of this kind. A write buffer has all the time that it takes: the database cannot do without it.
    pub(super) fn of(kind: Kind, settings: &Settings) -> AnswerLimit {
        let limit_ns = settings.cache.as_ref().map_or(SILENCE_NS_MAX, |cache| cache.silence_ns_max);
        AnswerLimit(if kind == Kind::Cache { limit_ns } else { 0 })
    }

    /// What the creation of a file of this many bytes has, of a tier of this kind.
    pub(super) fn of_creation(
        executor: &Executor,
        (kind, device): (Kind, DeviceId),
        settings: &Settings,
        bytes: u64,
    ) -> AnswerLimit {
        let cache = settings.cache.as_ref().filter(|_| kind == Kind::Cache);
        let is_memory = executor.traits(device).synchronous;
        cache.map_or(AnswerLimit(0), |cache| AnswerLimit::of_cache(cache, bytes, is_memory))
    }

    /// What the creation of a file of this many bytes has, of this cache.
    pub(super) fn of_cache(cache: &CacheSettings, bytes: u64, is_memory: bool) -> AnswerLimit {
        AnswerLimit(cache.creation_ns_max(bytes, is_memory))
    }

    /// Waits for an operation of the tier; `None` if it lasts too long.
    pub(super) async fn answered<T>(self, executor: &Executor, operation: impl Future<Output = T>) -> Option<T> {
        match self.0 {
            0 => Some(operation.await),
            limit_ns => executor.within(limit_ns, operation).await,
        }
    }

    /// Waits until something of a cache on this device is made.
    ///
    /// # Errors
    /// The driver's; that of a device that does not answer, which is named.
    pub(super) async fn made<T>(
        self,
        executor: &Executor,
        device: &str,
        making: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        let made = self.answered(executor, making).await;
        made.unwrap_or_else(|| {
            let why = format!("the cache on device '{device}' was not made: {}", self.exceeded());
            Err(Fault::new(FaultKind::Device, why + "; mend it, or open the database without a cache").into())
        })
    }

    /// Words for an operation that has lasted too long.
    pub(super) fn exceeded(self) -> String {
        format!("it has not answered for {}", format_duration_ns(self.0 as f64))
    }
}
