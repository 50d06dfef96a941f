//! The settings of a database.

use super::Asked;
use crate::statistics::Listener;
use crate::{Error, Procedures, Result, buffer, checkpoint, log, second_level, temp, version};
use executor::Executor;
use std::rc::Rc;
use structures::lock::VictimPolicy;
use structures::set::Logging;

/// How a database works. What its files fix (page sizes, the log's device and size) is taken from them when it is opened, but for
/// what is [`asked`](Settings::asked) for.
///
/// ```
/// use entresol_engine::{Settings, buffer, log};
///
/// let settings = Settings {
///     buffer: buffer::Settings { frames: 100_000, ..buffer::Settings::default() },
///     log: log::Settings { capacity: 64 << 20, ..log::Settings::default() },
///     log_device: "flash".into(),
///     force: true,
///     ..Settings::default()
/// };
/// assert!(settings.log.durable && settings.home_device == "disk");
/// ```
#[derive(Clone, Debug)]
pub struct Settings {
    /// The buffer.
    pub buffer: buffer::Settings,
    /// The log.
    pub log: log::Settings,
    /// The device that holds the superblock file and the double-write area.
    pub home_device: String,
    /// The device that holds the log.
    pub log_device: String,
    /// The tiers between main memory and the partitions' own devices.
    pub hierarchy: second_level::Settings,
    /// FORCE: a transaction's pages are written before its commit is acknowledged.
    pub force: bool,
    /// Whether locks are held until the commit is durable (TPSIM) or only until its record stands in the log buffer.
    pub hold_locks: bool,
    /// Which transaction gives up in a deadlock.
    pub victim: VictimPolicy,
    /// How long a call of a transaction waits for a lock at most, in nanoseconds; without a limit if this is absent.
    pub lock_wait_ns_max: Option<u64>,
    /// An opening serves before it has undone what is left of an unfinished transaction with more changes than this; smaller ones are undone
    /// first. So are those that the log has no room for beside new work. What is left of a partition without locks keeps others from all of it
    /// until it is undone, but for additions at its end.
    pub undone_first_max: u64,
    /// When checkpoints are taken.
    pub checkpoint: checkpoint::Policy,
    /// How memory-resident sets are swept.
    pub sweep: checkpoint::SweepSettings,
    /// How changes of memory-resident sets are logged.
    pub logging: Logging,
    /// Whether a change of a part of a record of a set, such as a field, has the whole part in the log, not only the bytes of it that
    /// differ (System M, section 3: the new value of any part that is modified).
    pub whole_fields: bool,
    /// How many transactions run at once; others wait to be admitted.
    pub multiprogramming_level: usize,
    /// Temporary space.
    pub temp: temp::TempSettings,
    /// Versions for readers of the past, and the undo space.
    pub undo: version::UndoSettings,
    /// The procedures that callers name.
    pub procedures: Procedures,
    /// What a database that exists is asked to be.
    pub asked: Asked,
    /// Who is told of events, from the opening on.
    pub listener: Option<Rc<dyn Listener>>,
}

impl Default for Settings {
    /// Everything on the device `disk`, no tiers, durable commits, NOFORCE; a checkpoint after a quarter of the log's
    /// default size or a minute.
    fn default() -> Settings {
        let log = log::Settings::default();
        let checkpoint =
            checkpoint::Policy { log_bytes: Some(log.capacity / 4), interval_ns: Some(60 * base::time::SECOND_NS) };
        Settings {
            buffer: buffer::Settings::default(),
            log,
            home_device: "disk".into(),
            log_device: "disk".into(),
            hierarchy: second_level::Settings::default(),
            force: false,
            hold_locks: false,
            victim: VictimPolicy::default(),
            lock_wait_ns_max: None,
            undone_first_max: 1_000,
            checkpoint,
            sweep: checkpoint::SweepSettings::default(),
            logging: Logging::default(),
            whole_fields: false,
            multiprogramming_level: 1024,
            temp: temp::TempSettings::default(),
            undo: version::UndoSettings::default(),
            procedures: Procedures::new(),
            asked: Asked::default(),
            listener: None,
        }
    }
}

impl Settings {
    /// Checks what two settings ask of each other.
    pub(super) fn check(&self) -> Result<()> {
        self.undo.check()?;
        self.sweep.check()?;
        self.buffer.check()?;
        let pair = self.sweep.strategy.check(self.logging);
        pair.map_err(|why| Error::Setting(format!("this log of sets does not go with these checkpoints: {why}")))
    }

    /// Refuses caches that no page of this database could enter, or that cannot be had together.
    pub(super) fn check_caches(&self) -> Result<()> {
        self.hierarchy.check(self.buffer.page_size)
    }

    /// The undo space and the device that holds it.
    pub(super) fn undo_place(&self) -> (&str, temp::TempSettings) {
        (self.undo.device.as_ref().unwrap_or(&self.home_device), self.undo.space())
    }

    /// Removes what an earlier opening has left where nothing is recovered.
    pub(super) async fn clear_spaces(&self, executor: &Executor) -> Result<()> {
        let (device, undo) = self.undo_place();
        temp::Space::clear(executor, temp::FILE, self.temp_place()).await?;
        temp::Space::clear(executor, version::FILE, (device, &undo)).await
    }

    /// Temporary space and the device that holds it.
    pub(super) fn temp_place(&self) -> (&str, &temp::TempSettings) {
        (self.temp.device.as_ref().unwrap_or(&self.home_device), &self.temp)
    }
}
