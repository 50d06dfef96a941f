//! Snapshots of a database: of this moment and of earlier ones.

use super::Database;
use crate::transaction::{Snapshot, await_segments};
use crate::{AskedMoment, Error, Result};
use base::calendar::format_unix_ns;
use base::units::format_duration_ns;
use base::{Instant, Lsn};
use structures::canary::{self, Canary};

impl Database {
    /// A snapshot of this moment. What it sees is durable: nothing of it can be lost any more.
    ///
    /// # Errors
    /// [`crate::Error::LogFailed`].
    pub async fn snapshot(&self) -> Result<Snapshot> {
        let engine = &self.0.engine;
        await_segments(engine).await;
        let snapshot = Snapshot::begin(engine, engine.versions.present());
        self.confirm(snapshot.moment()).await?;
        Ok(snapshot)
    }

    /// The database as it was at a position of the log, which may be any that [`Snapshot::moment`] gives.
    ///
    /// # Errors
    /// [`Error::SnapshotTooOld`] if that is longer ago than `[undo] retention` says, or than the log reaches back that the opening has
    /// found, and no snapshot of that moment is held; [`Error::FutureMoment`] if it is still to come; [`Error::LogFailed`]. Reads get
    /// `SnapshotTooOld` from partitions that are not known so far back: of moments before the opening these are partitions that did
    /// not exist yet, or were truncated since then.
    ///
    /// ```
    /// # mod ground { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/ground/database.rs")); }
    /// # use ground::*;
    /// # let undo = entresol_engine::version::UndoSettings { retention_ns: 60_000_000_000, ..Default::default() };
    /// # let settings = entresol_engine::Settings { undo, ..Default::default() };
    /// # with_database_of(settings, async |database| {
    /// # let notes = database.create_partition(PartitionSpec::b_tree("notes")).await?;
    /// database.transaction(async |tx| tx.put(notes, b"milk", b"two litres").await).await?;
    /// let bought = database.snapshot().await?.moment();
    /// database.transaction(async |tx| tx.delete(notes, b"milk").await).await?;
    /// let mut then = database.as_of(bought).await?;
    /// assert!(then.get(notes, b"milk").await?.is_some());
    /// # Ok(())
    /// # });
    /// ```
    pub async fn as_of(&self, moment: Lsn) -> Result<Snapshot> {
        let engine = &self.0.engine;
        if moment > engine.core.log.end() {
            return Err(Error::FutureMoment { moment: moment.to_string(), now: engine.core.log.end().to_string() });
        }
        await_segments(engine).await;
        let oldest = engine.versions.oldest_moment();
        if moment < oldest && !engine.versions.is_held(moment) {
            let asked = AskedMoment { asked: moment.to_string(), earliest: oldest.to_string() };
            return Err(Error::SnapshotTooOld { oldest, asked: Some(Box::new(asked)) });
        }
        let snapshot = Snapshot::begin(engine, moment);
        self.confirm(moment).await?;
        Ok(snapshot)
    }

    /// The database as it was at a time of the executor's clock, to a hundredth of a second.
    ///
    /// # Errors
    /// As [`Database::as_of`].
    pub async fn as_of_time(&self, time: Instant) -> Result<Snapshot> {
        let engine = &self.0.engine;
        let now = engine.core.executor.now();
        if time > now && !canary::is_planted(Canary::ReadFuture) {
            return Err(Error::FutureMoment { moment: time.to_string(), now: now.to_string() });
        }
        let by_clock = |earliest_ns| (time.to_string(), engine.versions.on_clock(earliest_ns).to_string());
        self.as_of_found(engine.versions.moment_at(time), by_clock).await
    }

    /// The database as it was at a time by the calendar, in nanoseconds since the beginning of 1970 UTC, to a hundredth of a second. The
    /// clock is followed from opening to opening; that it is set meanwhile changes nothing before the next one.
    ///
    /// # Errors
    /// As [`Database::as_of`].
    ///
    /// ```
    /// # mod ground { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/ground/database.rs")); }
    /// # use ground::*;
    /// # let undo = entresol_engine::version::UndoSettings { retention_ns: 60_000_000_000, ..Default::default() };
    /// # let settings = entresol_engine::Settings { undo, ..Default::default() };
    /// # with_database_of(settings, async |database| {
    /// # let notes = database.create_partition(PartitionSpec::b_tree("notes")).await?;
    /// database.transaction(async |tx| tx.put(notes, b"milk", b"two litres").await).await?;
    /// let bought_ns = database.executor().unix_ns();
    /// # database.executor().sleep_ns(2_000_000_000).await;
    /// database.transaction(async |tx| tx.delete(notes, b"milk").await).await?;
    /// let mut then = database.as_of_unix_ns(bought_ns).await?;
    /// assert!(then.get(notes, b"milk").await?.is_some());
    /// # Ok(())
    /// # });
    /// ```
    pub async fn as_of_unix_ns(&self, unix_ns: u64) -> Result<Snapshot> {
        let versions = &self.0.engine.versions;
        let now_ns = versions.unix_ns();
        if unix_ns > now_ns {
            return Err(Error::FutureMoment { moment: format_unix_ns(unix_ns), now: format_unix_ns(now_ns) });
        }
        let by_calendar = |earliest_ns| (format_unix_ns(unix_ns), format_unix_ns(earliest_ns));
        self.as_of_found(versions.moment_at_unix(unix_ns), by_calendar).await
    }

    /// The snapshot of a moment that a time has led to, if it has to any. `name` names that time, and the earliest one that can be read, which it gets
    /// in nanoseconds since 1970.
    async fn as_of_found(&self, moment: Option<Lsn>, name: impl FnOnce(u64) -> (String, String)) -> Result<Snapshot> {
        let begun = match moment {
            Some(moment) => self.as_of(moment).await,
            None => Err(Error::SnapshotTooOld { oldest: self.0.engine.versions.oldest_moment(), asked: None }),
        };
        begun.map_err(|error| match error {
            Error::SnapshotTooOld { oldest, .. } => {
                let (asked, earliest) = name(self.0.engine.versions.earliest_unix_ns());
                Error::SnapshotTooOld { oldest, asked: Some(Box::new(AskedMoment { asked, earliest })) }
            }
            error => error,
        })
    }

    /// The database as it was `age_ns` nanoseconds ago, to a hundredth of a second.
    ///
    /// # Errors
    /// As [`Database::as_of`].
    ///
    /// ```
    /// # mod ground { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/ground/database.rs")); }
    /// # use ground::*;
    /// # let undo = entresol_engine::version::UndoSettings { retention_ns: 60_000_000_000, ..Default::default() };
    /// # let settings = entresol_engine::Settings { undo, ..Default::default() };
    /// # with_database_of(settings, async |database| {
    /// # let notes = database.create_partition(PartitionSpec::b_tree("notes")).await?;
    /// database.transaction(async |tx| tx.put(notes, b"milk", b"two litres").await).await?;
    /// database.executor().sleep_ns(2_000_000_000).await;
    /// database.transaction(async |tx| tx.delete(notes, b"milk").await).await?;
    /// let mut then = database.as_of_age(1_000_000_000).await?;
    /// assert!(then.get(notes, b"milk").await?.is_some());
    /// # Ok(())
    /// # });
    /// ```
    pub async fn as_of_age(&self, age_ns: u64) -> Result<Snapshot> {
        let versions = &self.0.engine.versions;
        let moment = versions.unix_ns().checked_sub(age_ns).and_then(|unix_ns| versions.moment_at_unix(unix_ns));
        let ago = |ns: u64| format!("{} ago", format_duration_ns(ns as f64));
        let by_age = |earliest_ns: u64| {
            let earliest = ago(versions.unix_ns().saturating_sub(earliest_ns));
            (ago(age_ns), format!("{earliest}, at {}", format_unix_ns(earliest_ns)))
        };
        self.as_of_found(moment, by_age).await
    }

    /// Waits until what was committed up to `moment` is durable.
    async fn confirm(&self, moment: Lsn) -> Result<()> {
        let (engine, core) = (&self.0.engine, &self.0.engine.core);
        let moment = moment.min(engine.versions.present());
        if core.is_durable() && moment > core.log.durable() {
            core.log.wait_durable(moment).await?;
        }
        Ok(())
    }
}
