use base::Random;
use std::fmt::Write;
use std::path::Path;

/// A way to the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backend {
    /// io_uring.
    IoUring,
    /// Threads that read and write synchronously.
    ThreadPool,
}

impl Backend {
    /// Its name in configurations.
    pub fn name(self) -> &'static str {
        match self {
            Backend::IoUring => "io-uring",
            Backend::ThreadPool => "thread-pool",
        }
    }

    /// Whether this machine has it.
    pub fn is_available(self) -> bool {
        let backend = match self {
            Backend::IoUring => real_driver::Backend::IoUring,
            Backend::ThreadPool => real_driver::Backend::ThreadPool,
        };
        let options = |path: &Path| real_driver::Options { backend, ..real_driver::Options::new("disk", path) };
        tempfile::tempdir().is_ok_and(|directory| real_driver::RealDriver::open(options(directory.path())).is_ok())
    }
}

/// A database: where it is and how it is configured, drawn from a seed.
#[derive(Clone, Debug)]
pub(crate) struct Description {
    pub(crate) configuration: String,
    pub(crate) rows: [u64; 3],
    pub(crate) clients: u64,
}

/// The kinds of rows, by their partitions.
pub(crate) const KINDS: [&str; 3] = ["account", "teller", "branch"];
/// How many records the partition of notes has at most.
pub(crate) const NOTES: u64 = 13;
/// How many records a partition gets that is created by the way.
pub(crate) const EXTRA_RECORDS: u64 = 20;

impl Description {
    /// The database `name` in `directory`, whose devices are directories there.
    pub(crate) fn draw(seed: u64, backend: Backend, directory: &Path, name: &str) -> Description {
        let random = &mut Random::stream(seed, "description");
        let mut one_of = |choices: &[&'static str]| *random.choose(choices).expect("there are some");
        let mut text = format!("[driver]\nbackend = \"{}\"\n", backend.name());
        let second = directory.join(format!("{name}-second"));
        let _ = write!(text, "[device.second]\npath = \"{}\"\n", second.display());
        let _ =
            write!(text, "[buffer]\nsize = \"{}\"\npage_size = \"4 KiB\"\n", one_of(&["128 KiB", "256 KiB", "1 MiB"]));
        let _ = write!(text, "[log]\nsize = \"{}\"\n", one_of(&["1 MiB", "2 MiB", "4 MiB"]));
        let _ = writeln!(text, "sync_method = \"{}\"", one_of(&["sync-write", "write-then-sync", "measured"]));
        let _ = writeln!(text, "group_commit = \"{}\"", one_of(&["adaptive", "none"]));
        text += one_of(&["", "", "device = \"second\"\n", "second_device = \"second\"\n"]);
        let _ = write!(text, "[checkpoint]\nlog_bytes = \"{}\"\n", one_of(&["64 KiB", "256 KiB"]));
        let _ = writeln!(text, "sets = \"{}\"", one_of(&["fuzzy", "acbw", "tccou", "calc"]));
        text += one_of(&["", "", "[cache]\ndevice = \"second\"\nsize = \"40 pages\"\n"]);
        text += one_of(&["", "", "", "[commit]\nupdate = \"force\"\n"]);
        Description { configuration: text, rows: [300, 20, 4], clients: random.between(1, 8) }
    }
}
