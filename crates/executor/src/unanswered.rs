//! Operations that a device leaves unanswered: which they are, and for how long.

use crate::Executor;
use base::Instant;
use base::time::{MILLISECOND_NS, SECOND_NS};
use base::units::{format_duration_ns, grouped};
use driver::{DeviceId, FileId, Op, OpKind};
use std::collections::BTreeMap;
use std::fmt;

/// What an operation in flight was submitted for.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Submission {
    place: Option<(OpKind, Target)>,
    since: Option<Instant>,
}

#[derive(Clone, Copy, Debug)]
enum Target {
    Device(DeviceId),
    File(FileId),
}

impl Submission {
    /// Of an operation that a device has to answer; nothing of computations and of what other machines answer.
    #[inline]
    pub fn of(op: &Op, now: impl FnOnce() -> Instant) -> Submission {
        let place = match op {
            Op::Read { file, .. } | Op::Write { file, .. } | Op::Sync { file } | Op::Resize { file, .. } => {
                Target::File(*file)
            }
            Op::Open { device, .. } | Op::Remove { device, .. } | Op::List { device } => Target::Device(*device),
            _ => return Submission::default(),
        };
        Submission { place: Some((op.kind(), place)), since: Some(now()) }
    }
}

/// A request that a device has not answered yet ([`Executor::unanswered`]).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unanswered {
    /// What it was asked for.
    pub kind: OpKind,
    /// The device's name.
    pub device: String,
    /// The file, if it is about one that was opened.
    pub file: Option<String>,
    /// Since when.
    pub since: Instant,
    /// For how long, in nanoseconds.
    pub waited_ns: u64,
    /// How many other requests the device has left unanswered for about as long, where one stands for all of them.
    pub others: usize,
}

impl fmt::Display for Unanswered {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self.kind {
            OpKind::Read => "a read",
            OpKind::Write => "a write",
            OpKind::Sync => "a sync",
            OpKind::Resize => "a change of length",
            OpKind::Remove => "the removal of a file",
            OpKind::List => "the listing of its files",
            _ => "the opening of a file",
        };
        let file = self.file.as_ref().map_or_else(String::new, |file| format!(" of file '{file}'"));
        let waited = format_duration_ns(self.waited_ns as f64);
        write!(formatter, "device '{}' has left {what}{file} unanswered for {waited}", self.device)?;
        match self.others {
            0 => Ok(()),
            1 => formatter.write_str(", and one other request"),
            others => write!(formatter, ", and {} other requests", grouped(others as u64)),
        }
    }
}

/// The names of devices and files, as far as they were asked for.
#[derive(Debug, Default)]
pub(crate) struct Names {
    devices: BTreeMap<u16, String>,
    files: BTreeMap<u32, (DeviceId, String)>,
}

impl Names {
    pub fn set_device(&mut self, device: DeviceId, name: &str) {
        self.devices.entry(device.0).or_insert_with(|| name.to_owned());
    }

    pub fn set_file(&mut self, file: FileId, device: DeviceId, name: &str) {
        self.files.insert(file.0, (device, name.to_owned()));
    }

    fn describe(&self, submission: Submission, now: Instant) -> Option<Unanswered> {
        let ((kind, place), since) = submission.place.zip(submission.since)?;
        let (device, file) = match place {
            Target::Device(device) => (Some(device), None),
            Target::File(file) => self.files.get(&file.0).map(|(device, name)| (*device, name.clone())).unzip(),
        };
        let name = device.and_then(|device| self.devices.get(&device.0));
        let device = name.cloned().unwrap_or_else(|| "a device".to_owned());
        Some(Unanswered { kind, device, file, since, waited_ns: now.since_ns(since), others: 0 })
    }
}

impl Executor {
    /// The requests that devices have left unanswered for at least this long, the oldest first. Those are counted, too, that
    /// nothing waits for any more.
    pub fn unanswered(&self, waited_ns_min: u64) -> Vec<Unanswered> {
        let mut late = self.late(self.0.operations.borrow().submissions(), waited_ns_min);
        late.sort_by_key(|request| request.since);
        late
    }

    /// From now on it is looked at requests that are unanswered for this long, in nanoseconds, and for which something waits. Once
    /// `is_overdue` says so of one, every [`Executor::run`] that comes to wait ends with [`Halt::Unanswered`], and [`Executor::overdue`] tells which.
    ///
    /// [`Halt::Unanswered`]: driver::Halt::Unanswered
    pub fn limit_answers(&self, limit_ns: u64, is_overdue: impl Fn(&Unanswered) -> bool + 'static) {
        self.spawn(end_when_overdue(self.clone(), limit_ns, is_overdue));
    }

    /// The request that was left unanswered for longer than it might be ([`Executor::limit_answers`]).
    pub fn overdue(&self) -> Option<Unanswered> {
        self.0.overdue.get().cloned()
    }

    /// Those of these that have waited for at least this long.
    fn late(&self, submissions: impl Iterator<Item = Submission>, waited_ns_min: u64) -> Vec<Unanswered> {
        let (now, names) = (self.now(), self.0.names.borrow());
        let all = submissions.filter_map(|submission| names.describe(submission, now));
        all.filter(|request| request.waited_ns >= waited_ns_min).collect()
    }
}

async fn end_when_overdue(executor: Executor, limit_ns: u64, is_overdue: impl Fn(&Unanswered) -> bool) {
    let step_ns = (limit_ns / 8).clamp(MILLISECOND_NS, SECOND_NS);
    loop {
        let looks_at = executor.now().plus_ns(step_ns);
        executor.sleep_until(looks_at).await;
        // A process that was stopped does not know yet what was answered meanwhile.
        if executor.now().since_ns(looks_at) > step_ns {
            continue;
        }
        let late = executor.late(executor.0.operations.borrow().awaited(), limit_ns);
        if let Some(late) = late.into_iter().find(&is_overdue) {
            let _first = executor.0.overdue.set(late);
            return executor.yield_now().await;
        }
    }
}
