//! Backups, and databases that are made from them.

use super::{Database, Settings};
use crate::Result;
use crate::online_backup::{self, BackupProgress, BackupReport, BackupSettings, RestoreReport, RestoreSource};
use executor::Executor;

impl Database {
    /// Copies the whole database into an empty directory, as of one moment, while transactions go on: every partition and set,
    /// with the log that they need. `progress` is called now and then. Commits do not wait for it: where they would for
    /// a second or a tenth of the time, because the log is full of what it has still to copy, the backup fails. One that fails leaves no files
    /// behind, nor a directory that was missing, nor does one whose future is dropped; one that a power cut ends leaves no whole backup.
    ///
    /// # Errors
    /// [`BackupError`](crate::BackupError), [`Error::DamagedPage`](crate::Error::DamagedPage) or what else keeps a part of
    /// the database from being read, or the driver's.
    ///
    /// ```
    /// # mod ground { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/ground/backups.rs")); }
    /// use entresol_engine::{BackupSettings, Database, PartitionSpec, RestoreSource, Settings};
    ///
    /// # ground::on(&virtual_driver::Media::new(), async |executor| {
    /// let database = Database::create(executor, Settings::default()).await?;
    /// let notes = database.create_partition(PartitionSpec::b_tree("notes")).await?;
    /// database.transaction(async |tx| tx.put(notes, b"milk", b"two litres").await).await?;
    /// let backup = BackupSettings::to("backup");
    /// database.backup(&backup, |_| {}).await?;
    /// drop(database);
    ///
    /// // The disk is lost.
    /// # ground::lose(executor, &["disk"]).await;
    /// let source = RestoreSource { backup: "backup".into(), ..RestoreSource::default() };
    /// Database::restore(executor, &Settings::default(), &source, |_| {}).await?;
    /// let database = Database::open(executor, Settings::default(), "notes").await?;
    /// let milk = database.transaction(async |tx| tx.get(notes, b"milk").await).await?;
    /// assert_eq!(milk.as_deref(), Some(&b"two litres"[..]));
    /// # Ok::<(), entresol_engine::Error>(())
    /// # })?;
    /// # Ok::<(), entresol_engine::Error>(())
    /// ```
    pub async fn backup(
        &self,
        settings: &BackupSettings,
        progress: impl FnMut(BackupProgress) + 'static,
    ) -> Result<BackupReport> {
        online_backup::back_up(&self.0.engine, settings, Box::new(progress)).await
    }

    /// Makes the files of a database from a backup, on devices of the names that its partitions were created with; there must
    /// be none of them yet. Opening it recovers it: what was committed when the backup ended is there, and nothing else.
    ///
    /// # Errors
    /// [`BackupError`](crate::BackupError), [`Error::NoDevice`](crate::Error::NoDevice), or the driver's. What is left then
    /// is no database; another restore may begin there.
    // Users of the library have no whole executor, and restore by its `Opening`.
    #[doc(hidden)]
    pub async fn restore(
        executor: &Executor,
        settings: &Settings,
        source: &RestoreSource,
        mut progress: impl FnMut(BackupProgress),
    ) -> Result<RestoreReport> {
        let place = (&settings.home_device[..], &settings.log);
        online_backup::restore(executor, place, source, &mut progress).await
    }
}
