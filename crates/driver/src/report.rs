/// What the engine must know of a device to use it well.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DeviceTraits {
    /// Writes of up to this many aligned bytes are never torn by a power cut.
    pub atomic_write: u32,
    /// Writes of up to this many bytes would not be torn if they asked for that (`RWF_ATOMIC`), which none does; 0 if that is not offered.
    pub untorn_on_request: u32,
    /// Offsets, lengths and buffers of direct I/O are multiples of this many bytes.
    pub alignment: u32,
    /// Whether accesses hold the CPU (NVEM) unless a configuration says otherwise.
    pub synchronous: bool,
    /// Whether what is written survives a power cut at all.
    pub durable: bool,
}

/// A cache inside a device, managed by the device's controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheReport {
    /// The device's name.
    pub device: String,
    /// What it is: the word for it in descriptions, such as `non-volatile`.
    pub kind: String,
    /// How many pages it holds.
    pub pages: u64,
    /// What the requests to each file met, in the order in which the files were created.
    pub files: Vec<CachedFile>,
}

/// What the requests to one file met in a device's cache.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CachedFile {
    /// The file's name.
    pub name: String,
    /// Read requests.
    pub reads: u64,
    /// Those that were answered from the cache.
    pub read_hits: u64,
    /// Write requests.
    pub writes: u64,
    /// Those whose pages were all in the cache.
    pub write_hits: u64,
    /// Writes that were done when they stood in the cache; the others waited for the medium.
    pub absorbed: u64,
}

/// How often the engine's thread turned to its operating system, and this to it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ThreadUse {
    /// Times at which it handed operations over, whatever their number.
    pub batches: u64,
    /// Those of them that found nothing under way: the device was at rest, and had to be told.
    pub notifications: u64,
    /// Times at which it slept, for nothing was at hand.
    pub sleeps: u64,
    /// Times at which it found that operations had ended while it ran, which has interrupted it.
    pub interrupts: u64,
}

impl ThreadUse {
    /// What was added to an earlier state.
    pub fn since(self, before: ThreadUse) -> ThreadUse {
        ThreadUse {
            batches: self.batches - before.batches,
            notifications: self.notifications - before.notifications,
            sleeps: self.sleeps - before.sleeps,
            interrupts: self.interrupts - before.interrupts,
        }
    }

    /// The numbers in the order of their declaration.
    pub fn counts(self) -> [u64; 4] {
        let ThreadUse { batches, notifications, sleeps, interrupts } = self;
        [batches, notifications, sleeps, interrupts]
    }
}

/// How many events of one sort a simulation had.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventCount {
    /// What happened: `cpu`, the name of a device's station, `delays` or `timers`.
    pub name: String,
    /// How often.
    pub count: u64,
}
