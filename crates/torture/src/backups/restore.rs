//! Making a database from a backup, after all of its own devices are lost.

use super::{ARCHIVE, Taken, is_place};
use crate::adversary::{Observed, Phase};
use crate::run::{World, machine};
use crate::{Coverage, Plan};
use base::Random;
use driver::Halt;
use engine::{Database, Error, RestoreReport, RestoreSource, Result};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use virtual_driver::{Media, PowerCut};

/// What is wrong with a backup that is to be restored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Flaw {
    /// A file is not there.
    Missing {
        /// In which place.
        place: &'static str,
        /// Its name.
        file: String,
    },
    /// A bit of a file has flipped.
    Flipped {
        /// In which place.
        place: &'static str,
        /// Its name.
        file: String,
        /// Which byte, from the beginning.
        byte: u64,
    },
    /// A sector of a file is unreadable.
    Unreadable {
        /// In which place.
        place: &'static str,
        /// Its name.
        file: String,
        /// A byte of it, from the file's beginning.
        byte: u64,
    },
}

/// The files of a backup.
const FILES: [&str; 3] = ["data", "log", "entresol.backup"];

impl Flaw {
    /// Draws one, in a backup or in what it builds on.
    pub fn draw(media: &Media, places: &[&'static str], random: &mut Random) -> Option<Flaw> {
        let place = *random.choose(places)?;
        let files = if place == ARCHIVE { media.names(place) } else { FILES.map(str::to_owned).to_vec() };
        let file = random.choose(&files)?.clone();
        let length = media.length(place, &file).filter(|length| *length > 0)?;
        let byte = random.below(length);
        Some(match random.below(4) {
            0 => Flaw::Missing { place, file },
            1 => Flaw::Unreadable { place, file, byte },
            _ => Flaw::Flipped { place, file, byte },
        })
    }

    fn inflict(&self, media: &Media, random: &mut Random) {
        let done = match self {
            Flaw::Missing { place, file } => {
                media.remove(place, file);
                Ok(())
            }
            Flaw::Flipped { place, file, byte } => media.flip_bit(place, file, *byte, random.below(8) as u8),
            Flaw::Unreadable { place, file, byte } => media.make_unreadable(place, file, *byte, 1),
        };
        done.expect("the file is there");
    }

    /// Whether an error says where the flaw is.
    pub fn is_named_by(&self, error: &Error) -> bool {
        error.to_string().contains(&format!("'{}'", self.place()))
    }

    /// The place of the file.
    pub fn place(&self) -> &'static str {
        let (Flaw::Missing { place, .. } | Flaw::Flipped { place, .. } | Flaw::Unreadable { place, .. }) = self;
        place
    }

    /// Whether the rest may be enough: a bit that nothing depends on, a base's log, or a segment that is not needed.
    pub fn may_be_harmless(&self, taken: &Taken) -> bool {
        match self {
            Flaw::Flipped { .. } => true,
            Flaw::Missing { place, file } | Flaw::Unreadable { place, file, .. } => {
                *place == ARCHIVE || file == "log" && *place != taken.place
            }
        }
    }
}

/// What came of a restore.
pub struct Restored {
    /// What it has said; nothing if the power went, or the program was killed.
    pub result: Option<Result<RestoreReport>>,
    /// What is wrong with the engine.
    pub wrong: Option<String>,
    /// Which faults it has met.
    pub coverage: Coverage,
}

/// The media of `world` once all devices but the places of backups were replaced by empty ones, and this was done to a backup.
pub fn lose(world: &World, flaw: Option<&Flaw>, random: &mut Random) -> Media {
    let media = world.media.copy();
    let hardware = world.configuration.hardware();
    let own = hardware.devices.keys().filter(|device| !is_place(device));
    own.for_each(|device| media.replace(device));
    if let Some(flaw) = flaw {
        flaw.inflict(&media, random);
    }
    media
}

/// Makes a database from a backup on the media of `world`.
pub fn restore(world: &World, run: u64, (source, plan): (&RestoreSource, Plan), random: &mut Random) -> Restored {
    let observed = Rc::new(Observed::default());
    observed.phase.set(Phase::Restoring);
    let kill = plan.kill;
    let executor = machine(world, run, plan, &observed);
    let settings = world.configuration.settings.clone();
    let ended = catch_unwind(AssertUnwindSafe(|| {
        let ended = executor.run(Database::restore(&executor, &settings, source, |_| {}));
        executor.stop();
        ended
    }));
    let (result, wrong) = match ended {
        Ok(Ok(result)) => (Some(result), None),
        Ok(Err(Halt::PowerCut)) => (None, None),
        Ok(Err(halt)) => (None, Some(format!("a restore stops: {halt:?}"))),
        Err(panic) => {
            let message = crate::run::message(&*panic);
            std::mem::forget(executor);
            (None, Some(format!("a restore panics: {message}")))
        }
    };
    if kill {
        world.media.process_end(random);
    } else {
        // What a restore has said to be there is durable.
        world.media.power_cut(random, &PowerCut::default());
    }
    let coverage = observed.coverage.borrow().clone();
    Restored { result, wrong, coverage }
}

/// Whether an error says that there is no whole backup, and may be said of one that was cut off.
pub fn is_no_backup(error: &Error) -> bool {
    use engine::BackupError::{Damaged, NotABackup};
    match error {
        Error::Backup(NotABackup { .. }) => true,
        // The last thing that is written was cut off in its midst.
        Error::Backup(Damaged { file, .. }) => file == "entresol.backup",
        _ => false,
    }
}
