//! A database on the calling thread.

mod contents;
pub(crate) mod created;

use crate::configuration::{Configuration, FILE_NAME};
use crate::control::Control;
use crate::error::{run, run_telling};
use crate::events::{Events, SLOW_NS, Silence, watch};
use crate::{OpenError, assemble, existing, log_words, page_words, residence};
use contents::{Contents, contents};
use created::{check_directories, missing_directories};
use driver::{Fault, FaultKind};
use engine::server::TransactionServer;
use engine::statistics::Listener;
use engine::{Database, Error, Machine, Procedures, Settings};
use executor::{Executor, JoinHandle, Order, Unanswered, UserExecutor};
use real_driver::{DirectoryLock, DirectoryLocks, DirectorySocket};
use std::collections::BTreeSet;
use std::fmt;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use virtual_driver::{Media, Port};

/// A database that is about to be opened.
///
/// ```
/// use entresol::configuration::Configuration;
/// let configuration = Configuration::parse("hardware = \"rahm-1991\"")?;
/// let store = entresol::Opening::new("described", configuration).seed(7).open()?;
/// assert!(store.is_virtual());
/// # Ok::<(), entresol::OpenError>(())
/// ```
#[derive(Clone)]
pub struct Opening {
    pub(crate) path: PathBuf,
    pub(crate) configuration: Configuration,
    pub(crate) seed: u64,
    pub(crate) procedures: Arc<dyn Fn() -> Procedures + Send + Sync>,
    silence: Option<Silence>,
    slow_ns: u64,
}

impl fmt::Debug for Opening {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Opening { path, configuration, seed, procedures: _, silence: _, slow_ns } = self;
        let mut fields = formatter.debug_struct("Opening");
        fields
            .field("path", path)
            .field("configuration", configuration)
            .field("seed", seed)
            .field("slow_ns", slow_ns)
            .finish_non_exhaustive()
    }
}

impl Opening {
    /// Of the directory `path`, with this configuration. On described hardware nothing is stored there.
    pub fn new(path: impl Into<PathBuf>, configuration: Configuration) -> Opening {
        let procedures = Arc::new(Procedures::new);
        Opening { path: path.into(), configuration, seed: 1, procedures, silence: None, slow_ns: SLOW_NS }
    }

    /// Of the directory `path`, with the configuration in its file `entresol.toml`, or the defaults if it has none.
    ///
    /// # Errors
    /// [`OpenError::Configuration`].
    pub fn in_directory(path: impl Into<PathBuf>) -> Result<Opening, OpenError> {
        let path = path.into();
        let file = path.join(FILE_NAME);
        let configuration = Configuration::read(file.exists().then_some(file.as_path()), None)?;
        Ok(Opening::new(path, configuration))
    }

    /// Seeds the random numbers of a described machine.
    pub fn seed(mut self, seed: u64) -> Opening {
        self.seed = seed;
        self
    }

    /// Has the database opened with procedures, which are made on its thread.
    ///
    /// ```
    /// # let directory = tempfile::tempdir().unwrap();
    /// # let directory = directory.path();
    /// # std::fs::write(directory.join("entresol.toml"), "[log]\nsize = \"4 MiB\"").unwrap();
    /// use entresol::{Opening, PartitionSpec, Procedures};
    ///
    /// let opening = Opening::in_directory(directory)?.procedures(|| {
    ///     let mut procedures = Procedures::new();
    ///     procedures.register("remember", async |tx, parameters| {
    ///         let notes = tx.partition("notes")?;
    ///         tx.put(notes, parameters, b"noted").await?;
    ///         Ok(Vec::new())
    ///     });
    ///     procedures
    /// });
    /// let store = opening.open()?;
    /// store.run(async |database| {
    ///     database.create_partition(PartitionSpec::b_tree("notes")).await?;
    ///     database.call("remember", b"milk").await
    /// })?;
    /// # Ok::<(), entresol::OpenError>(())
    /// ```
    pub fn procedures(mut self, make: impl Fn() -> Procedures + Send + Sync + 'static) -> Opening {
        self.procedures = Arc::new(make);
        self
    }

    /// Has `tell` told, on the database's thread, of each device of this machine that leaves requests unanswered for five
    /// seconds, once until it answers: of the oldest of them, with the number of the others. Whatever needs the device waits then, the opening itself perhaps. [`Database::unanswered`] lists them at
    /// any time. If it panics, nothing else ends.
    pub fn on_silence(mut self, tell: impl Fn(&Unanswered) + Send + Sync + 'static) -> Opening {
        self.silence = Some(Arc::new(tell));
        self
    }

    /// From which time on a transaction counts as slow, a second unless this says so. If a subscriber of the `tracing` crate is
    /// there when the database is opened, it gets an event of each slow transaction with what it has waited for, and events of
    /// openings, recoveries, checkpoints, retries and devices that fail. Without a subscriber nothing of that is measured.
    ///
    /// ```
    /// use entresol::{Opening, configuration::Configuration};
    /// use std::time::Duration;
    ///
    /// let opening = Opening::new("described", Configuration::parse("hardware = \"nvme-2026\"")?);
    /// let store = opening.slow_after(Duration::from_millis(20)).open()?;
    /// # Ok::<(), entresol::OpenError>(())
    /// ```
    pub fn slow_after(mut self, limit: Duration) -> Opening {
        self.slow_ns = u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX);
        self
    }

    /// Has the database opened with this number of engines, 1 to 64, whatever the configuration says: `[nodes]`, `count`. Several are started by
    /// [`NodeThreads::start`](crate::NodeThreads::start).
    pub fn nodes(mut self, count: u32) -> Opening {
        self.configuration.nodes.count = count;
        self
    }

    /// Has other programs ask nothing of the database, whatever the configuration says (`[driver]`, `socket`): for an opening that another one of
    /// the same program follows, with which what they have asked would end.
    pub fn unasked(mut self) -> Opening {
        self.configuration.driver.socket = false;
        self
    }

    /// Opens the database on this thread, creating it if the directory is empty or missing.
    ///
    /// # Errors
    /// An [`OpenError`] that names the file and says what to do. [`OpenError::SeveralNodes`] if the configuration says that there are: a
    /// [`Store`] is one engine, and its transactions can do what those of nodes cannot (registered procedures, sorts and joins, scans and snapshots
    /// of sets).
    pub fn open(self) -> Result<Store, OpenError> {
        let procedures = (self.procedures)();
        self.start(procedures, true, (None, None)).map(Store::heard)
    }

    /// The same, where the devices of described hardware have these media: what was durable there when another store ended,
    /// closed or dropped as in a crash, is found again. On this machine `media` have no meaning.
    ///
    /// # Errors
    /// As [`Opening::open`].
    ///
    /// ```
    /// use entresol::{Opening, PartitionSpec, configuration::Configuration};
    ///
    /// let opening = Opening::new("described", Configuration::parse("hardware = \"nvme-2026\"")?);
    /// let media = virtual_driver::Media::new();
    /// let store = opening.clone().open_on(&media)?;
    /// store.run(async |database| {
    ///     let spec = PartitionSpec { device: "nvme".into(), ..PartitionSpec::b_tree("notes") };
    ///     let notes = database.create_partition(spec).await?;
    ///     database.transaction(async |tx| tx.put(notes, b"k", b"v").await).await
    /// })?;
    /// drop(store);
    /// let store = opening.open_on(&media)?;
    /// assert!(store.database().recovery().records > 0 && store.database().partition("notes").is_ok());
    /// # Ok::<(), entresol::OpenError>(())
    /// ```
    pub fn open_on(self, media: &Media) -> Result<Store, OpenError> {
        let procedures = (self.procedures)();
        self.start(procedures, true, (Some(media), None)).map(Store::heard)
    }

    /// The same, where described hardware has a port on a described network. On this machine that has no meaning.
    ///
    /// # Errors
    /// As [`Opening::open`].
    ///
    /// ```
    /// use entresol::{Opening, configuration::Configuration};
    /// use virtual_driver::{Network, NetworkOptions};
    ///
    /// let network = Network::new(NetworkOptions::default());
    /// let opening = Opening::new("described", Configuration::parse("hardware = \"nvme-2026\"")?);
    /// let store = opening.open_at(network.attach(0))?;
    /// assert!(store.is_virtual());
    /// # Ok::<(), entresol::OpenError>(())
    /// ```
    pub fn open_at(self, port: Port) -> Result<Store, OpenError> {
        let procedures = (self.procedures)();
        self.start(procedures, true, (None, Some(port))).map(Store::heard)
    }

    /// As [`Opening::open_on`] and [`Opening::open_at`] at once: what was durable on the media of a machine at a port is found again, there
    /// or by a machine without one.
    ///
    /// # Errors
    /// As [`Opening::open`].
    ///
    /// ```
    /// use entresol::{Opening, PartitionSpec, configuration::Configuration};
    /// use virtual_driver::{Media, Network, NetworkOptions};
    ///
    /// let (network, media) = (Network::new(NetworkOptions::default()), Media::new());
    /// let opening = Opening::new("described", Configuration::parse("hardware = \"nvme-2026\"")?);
    /// let store = opening.clone().open_on_at(&media, network.attach(0))?;
    /// let spec = PartitionSpec { device: "nvme".into(), ..PartitionSpec::b_tree("notes") };
    /// store.run(async |database| database.create_partition(spec).await)?;
    /// drop(store);
    /// assert!(opening.open_on(&media)?.database().partition("notes").is_ok());
    /// # Ok::<(), entresol::OpenError>(())
    /// ```
    pub fn open_on_at(self, media: &Media, port: Port) -> Result<Store, OpenError> {
        let procedures = (self.procedures)();
        self.start(procedures, true, (Some(media), Some(port))).map(Store::heard)
    }

    /// Opens the database on this thread, if there is one.
    ///
    /// # Errors
    /// [`Error::NotADatabase`] if there is none, or as [`Opening::open`].
    ///
    /// ```
    /// # let directory = tempfile::tempdir().unwrap();
    /// # let directory = directory.path();
    /// use entresol::{Error, OpenError, Opening};
    ///
    /// let missing = Opening::in_directory(directory)?.open_existing();
    /// assert!(matches!(missing, Err(OpenError::Engine(Error::NotADatabase { .. }))));
    /// assert_eq!(directory.read_dir().unwrap().count(), 0, "nothing was created");
    /// # Ok::<(), OpenError>(())
    /// ```
    pub fn open_existing(self) -> Result<Store, OpenError> {
        let procedures = (self.procedures)();
        self.start(procedures, false, (None, None)).map(Store::heard)
    }

    /// As [`Opening::open`], for a thread that takes up what others ask.
    pub(crate) fn open_on_thread(self) -> Result<Store, OpenError> {
        let procedures = (self.procedures)();
        self.start(procedures, true, (None, None))
    }

    fn start(
        self,
        procedures: Procedures,
        create: bool,
        place: (Option<&Media>, Option<Port>),
    ) -> Result<Store, OpenError> {
        self.is_one_engine()?;
        let missing = missing_directories(&self);
        let Some(events) = Events::of(&self.path.display().to_string(), self.slow_ns) else {
            return self.start_untold(procedures, create, place, None).inspect_err(|_| missing.remove());
        };
        let opening = events.opening();
        let _entered = opening.enter();
        let result = self.start_untold(procedures, create, place, Some(&events));
        result.inspect_err(|error| {
            missing.remove();
            events.tell_failure(error);
        })
    }

    fn start_untold(
        self,
        procedures: Procedures,
        create: bool,
        (media, port): (Option<&Media>, Option<Port>),
        events: Option<&Rc<Events>>,
    ) -> Result<Store, OpenError> {
        let path = self.path.display().to_string();
        let real = self.configuration.hardware.is_none();
        if real && !create && !self.path.is_dir() {
            let detail = "there is no such directory".to_owned();
            return Err(Error::NotADatabase { path, detail }.into());
        }
        check_directories(&self)?;
        let locks = DirectoryLocks::default();
        let driver = assemble::driver(&self.configuration, (&self.path, &locks), self.seed, (media, port))?;
        // However this ends from here on, the machine stops before another process may have the directories.
        let machine = Machine(Executor::new(driver, Order::FirstInFirstOut));
        let executor = &machine.0;
        if let Some(tell) = self.silence.clone().filter(|_| real) {
            executor.spawn(watch(executor.clone(), move |late| tell(late)));
        }
        let limit = self.configuration.driver.answer_ns_max.filter(|_| real);
        let limit = limit.map(|limit_ns| machine.limit_answers(limit_ns));
        if let Some(events) = events {
            events.hear_devices(executor, real);
        }
        let listener = events.map(|events| Rc::<Events>::clone(events) as Rc<dyn Listener>);
        let settings = Settings { listener, ..assemble::settings(&self.configuration, procedures) };
        let home = settings.home_device.clone();
        let others = || self.configuration.devices.keys().filter(|name| real && **name != home);
        self.refuse_foreign(executor, &home, others(), create)?;
        let directories = self.lock_directories(&locks)?;
        // The directories are locked from here on, so the answer stays true.
        let found = run(executor, contents(executor, &home))??;
        let opened = match found {
            Contents::Nothing | Contents::Foreign => None,
            Contents::Bare | Contents::Database => {
                match run(executor, Database::open(executor, settings.clone(), &path))? {
                    Err(Error::Unfinished { .. }) if create && found == Contents::Bare => {
                        self.refuse_occupied(executor, others())?;
                        None
                    }
                    result => Some(result?),
                }
            }
        };
        let is_new = opened.is_none();
        let database = match opened {
            Some(database) => database,
            None => {
                let devices: Vec<String> = others().chain([&home]).cloned().collect();
                let created = run(executor, Database::create_or_nothing(executor, settings, &devices))?;
                if created.is_err() {
                    locks.remove_created();
                }
                created?
            }
        };
        limit.inspect(|limit| limit.opened(&database));
        run(executor, existing::follow(&database, &self.configuration))??;
        if let Some(events) = events {
            events.tell_opened(is_new);
        }
        let (is_noted, home) = (residence::begin(&database, &self.configuration), self.home().to_owned());
        let (database, configuration, events) = (Some(database), self.configuration, events.cloned());
        Ok(Store { control: None, door: None, database, is_noted, machine, configuration, home, directories, events })
    }

    /// Of several engines none is left out silently.
    pub(crate) fn is_one_engine(&self) -> Result<(), OpenError> {
        match self.configuration.nodes.count {
            1 => Ok(()),
            count => Err(OpenError::SeveralNodes { count }),
        }
    }

    /// Locks the directory of every device, each once.
    pub(crate) fn lock_directories(&self, locks: &DirectoryLocks) -> Result<BTreeSet<PathBuf>, OpenError> {
        if self.configuration.hardware.is_some() {
            return Ok(BTreeSet::new());
        }
        let directories = self.configuration.devices.values().map(|device| {
            let directory = device.path.as_ref().unwrap_or(&self.path);
            // Two names of one directory would be two locks of which the second fails.
            directory.canonicalize().unwrap_or_else(|_| directory.clone())
        });
        let directories: BTreeSet<PathBuf> = directories.collect();
        directories
            .iter()
            .try_for_each(|directory| locks.acquire(directory))
            .map_err(|fault| self.with_advice(fault))?;
        Ok(directories)
    }

    /// Says of a database that another program has open what can be had of it all the same.
    fn with_advice(&self, mut fault: Fault) -> Fault {
        let home = self.home();
        if fault.kind == FaultKind::Busy && matches!(DirectorySocket::connect(home), Ok(Some(_))) {
            let path = self.path.display();
            fault.message += &format!(
                "; 'entresol backup {path} BACKUP' has the program that has it open copy it meanwhile, and 'waits' in 'entresol shell {path}' shows what waits in it"
            );
        }
        fault
    }

    /// Where the database is at home.
    pub(crate) fn home(&self) -> &Path {
        let device = self.configuration.devices.get(&self.configuration.partition("").device);
        device.and_then(|device| device.path.as_deref()).unwrap_or(&self.path)
    }

    /// The configuration.
    pub fn configuration(&self) -> &Configuration {
        &self.configuration
    }
}

/// A database on the calling thread. Closing it makes the next opening quick; dropping it loses nothing that was committed.
///
/// ```
/// # let directory = tempfile::tempdir().unwrap();
/// # let directory = directory.path();
/// # std::fs::write(directory.join("entresol.toml"), "[log]\nsize = \"4 MiB\"").unwrap();
/// use entresol::PartitionSpec;
///
/// let store = entresol::open(directory)?;
/// let notes = store.run(async |database| database.create_partition(PartitionSpec::b_tree("notes")).await)?;
/// store.run(async |database| database.transaction(async |tx| tx.put(notes, b"milk", b"two litres").await).await)?;
/// drop(store);
///
/// // Without `close` the next opening takes from the log what was committed.
/// let store = entresol::open(directory)?;
/// let milk = store.run(async |database| database.transaction(async |tx| tx.get(notes, b"milk").await).await)?;
/// assert_eq!(milk.as_deref(), Some(&b"two litres"[..]));
/// store.close()?;
/// # Ok::<(), entresol::OpenError>(())
/// ```
pub struct Store {
    /// What hears other programs.
    pub(crate) control: Option<Control>,
    /// What takes up on this thread what they ask.
    pub(crate) door: Option<JoinHandle<()>>,
    database: Option<Database>,
    is_noted: residence::IsNoted,
    machine: Machine,
    configuration: Configuration,
    /// The directory of the database's home.
    pub(crate) home: PathBuf,
    /// Those that are locked.
    directories: BTreeSet<PathBuf>,
    /// What makes events of it, if they are wanted.
    pub(crate) events: Option<Rc<Events>>,
}

impl Store {
    /// Runs `work` to its end. Tasks that it spawned go on in the next call.
    ///
    /// # Errors
    /// Those of `work`; [`OpenError::Halted`] if it waits for what cannot come, which is not known where other programs are heard, or if
    /// it is called by what it runs; [`OpenError::Machine`] once a device has left a request unanswered for longer than it may.
    ///
    /// ```
    /// # let directory = tempfile::tempdir().unwrap();
    /// # let directory = directory.path();
    /// # std::fs::write(directory.join("entresol.toml"), "[log]\nsize = \"4 MiB\"").unwrap();
    /// use entresol::{OpenError, PartitionSpec};
    ///
    /// let store = entresol::open(directory)?;
    /// let id = store.run(async |database| {
    ///     let notes = database.create_partition(PartitionSpec::b_tree("notes")).await?;
    ///     // What is spawned runs beside the work, and goes on in the next call if it is not waited for.
    ///     let clone = database.clone();
    ///     let first = database.executor().spawn(async move {
    ///         clone.transaction(async |tx| tx.put(notes, b"1", b"milk").await).await
    ///     });
    ///     database.transaction(async |tx| tx.put(notes, b"2", b"bread").await).await?;
    ///     first.join().await?;
    ///     Ok(notes)
    /// })?;
    /// let error = store.run(async |database| database.partition("nots")).unwrap_err();
    /// assert!(matches!(error, OpenError::Engine(entresol::Error::NoPartition(_))));
    /// # assert_eq!(store.database().partition("notes").unwrap(), id);
    /// # Ok::<(), OpenError>(())
    /// ```
    pub fn run<T>(&self, work: impl AsyncFnOnce(&Database) -> engine::Result<T>) -> Result<T, OpenError> {
        let tell = |error: &OpenError| self.control.iter().for_each(|control| control.note_cause(error));
        Ok(run_telling(&self.machine.0, work(self.database()), tell)??)
    }

    /// The database.
    pub fn database(&self) -> &Database {
        self.database.as_ref().expect("a store has its database until it is closed")
    }

    /// The executor that it runs on.
    pub fn executor(&self) -> &UserExecutor {
        self.database().executor()
    }

    /// What it was opened with.
    pub fn configuration(&self) -> &Configuration {
        &self.configuration
    }

    /// Starts the transaction server that the configuration describes (`[server]`); `None` if it describes none.
    ///
    /// # Errors
    /// Those of [`TransactionServer::start`].
    ///
    /// ```
    /// use entresol::{Opening, configuration::Configuration};
    ///
    /// let text = "hardware = \"rahm-1991\"\n[server]\nstandbys = 2";
    /// let store = Opening::new("described", Configuration::parse(text)?).open()?;
    /// let server = store.transaction_server()?.expect("one is described");
    /// assert_eq!(server.settings().standbys, 2);
    /// # Ok::<(), entresol::OpenError>(())
    /// ```
    pub fn transaction_server(&self) -> Result<Option<TransactionServer>, OpenError> {
        let settings = self.configuration.server;
        Ok(settings.map(|settings| TransactionServer::start(self.database(), settings)).transpose()?)
    }

    /// Where the log is and how its writes become durable, and by what measurement that was chosen.
    ///
    /// ```
    /// use entresol::{Opening, configuration::Configuration};
    ///
    /// let store = Opening::new("described", Configuration::parse("hardware = \"nvme-2026\"")?).open()?;
    /// let chosen = "log on device 'nvme': data-sync writes, up to 4 at once; at its creation one alone took 99.01 us";
    /// assert!(store.log_description().starts_with(chosen));
    /// # Ok::<(), entresol::OpenError>(())
    /// ```
    pub fn log_description(&self) -> String {
        log_words::describe(self.database())
    }

    /// Which devices may tear a page at a power cut, as this opening has found, and whether pages are written twice for that.
    ///
    /// ```
    /// use entresol::{Opening, PartitionSpec, configuration::Configuration};
    ///
    /// let store = Opening::new("described", Configuration::parse("hardware = \"nvme-2026\"")?).open()?;
    /// let spec = PartitionSpec { device: "nvme".into(), ..PartitionSpec::b_tree("notes") };
    /// store.run(async |database| database.create_partition(spec).await)?;
    /// let words = "pages of 8 KiB on device 'nvme': written twice (double-write), since its writes are whole by 4 KiB";
    /// assert_eq!(store.page_write_description(), words);
    /// # Ok::<(), entresol::OpenError>(())
    /// ```
    pub fn page_write_description(&self) -> String {
        page_words::describe(self.database())
    }

    /// What is configured and gains nothing, in words that say why, and directories that cannot be locked against other
    /// machines.
    ///
    /// ```
    /// use entresol::{Opening, configuration::Configuration};
    ///
    /// let text = "hardware = \"rahm-1991\"\n[cache]\ndevice = \"nvem\"\nsize = \"100 pages\"\n[partition.a]\ndevice = \"nvem\"";
    /// let store = Opening::new("described", Configuration::parse(text)?).open()?;
    /// assert!(store.warnings()[0].contains("its cache is on its own device 'nvem'"));
    /// # Ok::<(), entresol::OpenError>(())
    /// ```
    pub fn warnings(&self) -> Vec<String> {
        let mut warnings = self.configuration.warnings();
        warnings.extend(self.directories.iter().filter_map(|directory| DirectoryLock::doubt(directory)));
        warnings
    }

    /// Whether it runs on described hardware under the virtual clock.
    pub fn is_virtual(&self) -> bool {
        self.configuration.hardware.is_some()
    }

    /// Writes everything back, so that the next opening has nothing to redo.
    ///
    /// # Errors
    /// The driver's. What was committed is safe all the same.
    pub fn close(mut self) -> Result<(), OpenError> {
        let database = self.database.take().expect("a store is closed once");
        let closing = self.events.as_ref().map(|events| events.closing().entered());
        drop(self.control.take());
        let (door, is_noted) = (self.door.take(), Rc::clone(&self.is_noted));
        let ending = async move {
            if let Some(door) = door {
                door.join().await;
            }
            residence::note(&database, &is_noted).await;
            database.close().await
        };
        let closed = run(&self.machine.0, ending).and_then(|closed| Ok(closed?));
        if let (Some(events), Err(error)) = (&self.events, &closed) {
            events.tell_failure(error);
        }
        drop(closing);
        closed
    }
}

impl Opening {
    /// Where the database is.
    pub fn path(&self) -> &Path {
        &self.path
    }
}
