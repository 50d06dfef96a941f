//! Which files hold the log, which will, and what the superblock file says of that.

use super::Settings;
use crate::checkpoint::state_lost_log_device;
use crate::engine::Engine;
use crate::log::{Acknowledged, Circle, Copies, LogFile, Measured};
use crate::superblock::{SecondLog, Superblock};
use crate::{Error, Result};
use base::Lsn;
use base::units::grouped;
use driver::{DeviceId, FaultKind};
use executor::Executor;
use std::rc::Rc;
use structures::canary::{self, Canary};

/// What becomes of one of two places for the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LogFileState {
    /// It holds the log and goes on to.
    Kept,
    /// It holds a log that is no longer wanted there.
    Retired,
    /// It gets a new copy.
    Fresh,
    /// There is none, or it was lost.
    Absent,
}

/// The files, and what the superblock file is to say before anything is acknowledged.
pub(super) struct LogFiles {
    pub copies: Copies,
    /// Where positions lie in each.
    pub circle: Circle,
    /// The second log device from now on.
    pub second: Option<SecondLog>,
    /// The device and name of a file that is to be removed then.
    pub retired: Option<(DeviceId, String)>,
}

impl Settings {
    /// Checks what a log on two devices asks of them, once the first one is known.
    pub(super) fn check_second_log(&self) -> Result<()> {
        let Some(second) = &self.log.second else { return Ok(()) };
        if second.device == self.log_device {
            return Err(Error::Setting(format!("the log's second device '{}' is its first one, too", second.device)));
        }
        if self.hierarchy.write_buffer.as_ref().is_some_and(|buffer| buffer.log_bytes > 0) {
            let why = "a log on two devices has no write buffer, where commits would be durable before either has them";
            return Err(Error::Setting(why.into()));
        }
        Ok(())
    }
}

/// What the superblock says of the second device that these settings ask for.
pub(super) fn second_log(settings: &Settings, measured: Option<Measured>) -> Option<SecondLog> {
    let second = settings.log.second.as_ref()?;
    let both = second.acknowledged == Acknowledged::Both;
    Some(SecondLog { device: second.device.clone(), lost: None, both, measured })
}

/// Where positions lie in the file of a log on one device.
///
/// # Errors
/// The driver's.
pub(super) async fn circle(executor: &Executor, settings: &Settings, superblock: &Superblock) -> Result<Circle> {
    if let Some(shape) = &superblock.log_shape {
        return Ok(shape.circle);
    }
    let device = crate::io::device(executor, &settings.log_device)?;
    let (_, length) = executor.open(device, &settings.log.file, false).await?;
    settings.log.check_capacity(length)?;
    Ok(Circle::from_zero(length))
}

/// Finds the files of the log.
///
/// # Errors
/// [`Error::LogCopyMissing`], [`Error::Setting`], or the driver's.
pub(super) async fn find(executor: &Executor, settings: &Settings, superblock: &Superblock) -> Result<LogFiles> {
    let record = superblock.second_log.as_ref();
    let wanted = settings.log.second.as_ref().map(|second| &second.device);
    if let (Some(record), Some(wanted)) = (record, wanted)
        && record.device != *wanted
    {
        let present = &record.device;
        return Err(Error::Setting(format!(
            "the log's second device is '{present}', not '{wanted}'; open the database once without a second device"
        )));
    }
    let names = [Some(&superblock.log_device), record.map(|record| &record.device).or(wanted)];
    let states = states(settings, record, &names)?;
    let places = || names.into_iter().flatten().zip(states).enumerate();
    let stated = superblock.log_shape.as_ref();
    let (mut copies, mut size, mut extent, mut retired) = (Copies::default(), None, u64::MAX, None);
    copies.tolerant = record.is_some_and(|record| record.both);
    for (index, (name, state)) in places() {
        if matches!(state, LogFileState::Kept | LogFileState::Retired) {
            let measured = if index == 0 { superblock.log_measured } else { record.and_then(|record| record.measured) };
            let place = (executor, settings, &name[..], index);
            let file = open(place, record.is_some(), measured).await?;
            let length = file.length;
            let is_sound = match stated {
                Some(stated) => (stated.extent..=stated.circle.size).contains(&length),
                None => *size.get_or_insert(length) == length,
            };
            if !is_sound {
                let detail = format!("its file of {} bytes is not of this log, or was cut", grouped(length));
                return Err(match record {
                    Some(_) => Error::LogCopyMissing { device: name.clone(), detail },
                    None => {
                        let lsn = Lsn(superblock.log_durable);
                        Error::DamagedLog { lsn, file: settings.log.file_of(index), detail }
                    }
                });
            }
            extent = extent.min(length);
            if state == LogFileState::Kept {
                copies.kept.push(file);
            } else {
                retired = executor.device(name).map(|device| (device, settings.log.file_of(index)));
                copies.retired.push(file);
            }
        }
    }
    let of_file = || Circle::from_zero(size.expect("one file at least holds the log"));
    let circle = stated.map_or_else(of_file, |stated| stated.circle);
    settings.log.check_capacity(circle.size)?;
    for (index, (name, _)) in places().filter(|(_, (_, state))| *state == LogFileState::Fresh) {
        let place = (crate::io::device(executor, name)?, &name[..]);
        copies.fresh.push(LogFile::create(executor, place, (&settings.log, index), extent).await?);
    }
    let measured = copies.fresh.iter().find(|file| file.index == 1).and_then(|file| file.measured);
    let measured = measured.or(record.and_then(|record| record.measured));
    let lost = states.iter().position(|state| *state == LogFileState::Absent).map(|index| index as u8);
    let second = match second_log(settings, measured) {
        Some(second) => Some(SecondLog { lost, ..second }),
        // The first device was lost and is not wanted any more: the second one continues alone.
        None if lost == Some(0) => record.cloned().map(|record| SecondLog { lost, ..record }),
        None => None,
    };
    Ok(LogFiles { copies, circle, second, retired })
}

fn states(settings: &Settings, record: Option<&SecondLog>, names: &[Option<&String>; 2]) -> Result<[LogFileState; 2]> {
    let is_wanted = settings.log.second.is_some();
    let mut lost = record.and_then(|record| record.lost).map(usize::from);
    if canary::is_planted(Canary::LostCopyRead) {
        lost = lost.map(|lost| 1 - lost);
    }
    let mut states = [0, 1].map(|index| match (index, record) {
        _ if lost == Some(index) => {
            if is_wanted {
                LogFileState::Fresh
            } else {
                LogFileState::Absent
            }
        }
        (1, None) => {
            if is_wanted {
                LogFileState::Fresh
            } else {
                LogFileState::Absent
            }
        }
        (1, Some(_)) if !is_wanted && lost.is_none() => LogFileState::Retired,
        _ => LogFileState::Kept,
    });
    let Some(without) = &settings.log.without else { return Ok(states) };
    let fail = |why: &str| Err(Error::Setting(format!("the log cannot do without device '{without}': {why}")));
    let Some(index) = names.iter().position(|name| *name == Some(without)) else {
        return fail("it has no copy there");
    };
    if matches!(states[index], LogFileState::Kept | LogFileState::Retired) {
        let holds_log = matches!(states[1 - index], LogFileState::Kept | LogFileState::Retired);
        match record {
            Some(record) if holds_log && record.both => states[1 - index] = LogFileState::Kept,
            Some(_) if holds_log => {
                let detail =
                    "commits were acknowledged when one device had them, so it may have the last of them alone";
                return Err(Error::LogCopyMissing { device: without.clone(), detail: detail.to_owned() });
            }
            _ => return fail("no other one has the log"),
        }
    }
    states[index] = LogFileState::Absent;
    Ok(states)
}

/// Opens a file that holds the log; `has_copy`: whether there is another one.
async fn open(
    (executor, settings, name, index): (&Executor, &Settings, &str, usize),
    has_copy: bool,
    measured: Option<Measured>,
) -> Result<LogFile> {
    let missing = |detail: String| Error::LogCopyMissing { device: name.to_owned(), detail };
    let device = match executor.device(name) {
        None if has_copy => return Err(missing(crate::io::undescribed(name))),
        _ => crate::io::device(executor, name)?,
    };
    match LogFile::open(executor, (device, name), (&settings.log, index), measured).await {
        Err(Error::Input(fault)) if has_copy && fault.kind == FaultKind::NotFound => {
            Err(missing(format!("it holds no file '{}'", settings.log.file_of(index))))
        }
        result => result,
    }
}

/// From now on the loss of one of two log devices is stated in the superblock file.
pub(super) fn watch(engine: &Rc<Engine>) {
    let weak = Rc::downgrade(engine);
    engine.core.log.on_loss(move || {
        let Some(engine) = weak.upgrade() else { return };
        engine.core.executor.clone().spawn(async move { state_lost_log_device(&engine).await });
    });
}
