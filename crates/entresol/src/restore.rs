//! Making a database from a backup.

use crate::store::created::missing_directories;
use crate::{OpenError, Opening, assemble};
use engine::{BackupProgress, Database, Machine, RestoreReport, RestoreSource};
use executor::{Executor, Order};
use real_driver::DirectoryLocks;

impl Opening {
    /// Makes the database's files from a backup; opening it then recovers it. There must be none of them yet.
    ///
    /// # Errors
    /// An [`OpenError`] that names the file and says what to do.
    ///
    /// ```
    /// # let directory = tempfile::tempdir().unwrap();
    /// # let (first, second) = (directory.path().join("first"), directory.path().join("second"));
    /// # let backup = directory.path().join("backup");
    /// # std::fs::create_dir(&first).unwrap();
    /// # std::fs::write(first.join("entresol.toml"), "[log]\nsize = \"4 MiB\"").unwrap();
    /// use entresol::{BackupSettings, Opening, PartitionSpec, RestoreSource};
    ///
    /// let store = entresol::open(&first)?;
    /// let notes = store.run(async |database| {
    ///     let notes = database.create_partition(PartitionSpec::b_tree("notes")).await?;
    ///     database.transaction(async |tx| tx.put(notes, b"milk", b"two litres").await).await?;
    ///     let target = backup.display().to_string();
    ///     database.backup(&BackupSettings { target, base: None, bytes_per_second: None }, |_| {}).await?;
    ///     Ok(notes)
    /// })?;
    /// store.close()?;
    ///
    /// let source = RestoreSource { backup: backup.display().to_string(), ..RestoreSource::default() };
    /// Opening::in_directory(&second)?.restore(&source, |_| {})?;
    /// let store = entresol::open(&second)?;
    /// let milk = store.run(async |database| database.transaction(async |tx| tx.get(notes, b"milk").await).await)?;
    /// assert_eq!(milk.as_deref(), Some(&b"two litres"[..]));
    /// store.close()?;
    /// # Ok::<(), entresol::OpenError>(())
    /// ```
    pub fn restore(
        self,
        source: &RestoreSource,
        progress: impl FnMut(BackupProgress),
    ) -> Result<RestoreReport, OpenError> {
        let missing = missing_directories(&self);
        self.restore_in_places(source, progress).inspect_err(|_| missing.remove())
    }

    fn restore_in_places(
        self,
        source: &RestoreSource,
        progress: impl FnMut(BackupProgress),
    ) -> Result<RestoreReport, OpenError> {
        let procedures = (self.procedures)();
        let locks = DirectoryLocks::default();
        let driver = assemble::driver(&self.configuration, (&self.path, &locks), self.seed, (None, None))?;
        let machine = Machine(Executor::new(driver, Order::FirstInFirstOut));
        self.lock_directories(&locks)?;
        let settings = assemble::settings(&self.configuration, procedures);
        let restored =
            machine.0.run(Database::restore(&machine.0, &settings, source, progress)).map_err(OpenError::from);
        let restored = restored.and_then(|restored| Ok(restored?));
        if restored.is_err() {
            // Nothing may be under way when others can have the directories.
            drop(machine);
            locks.remove_created();
        }
        restored
    }
}
