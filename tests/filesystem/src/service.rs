//! The thread that owns the volume: answers the kernel's requests, injects faults, and cuts the power.

use crate::front::{Call, OPEN_FLAGS};
use crate::plan::{Effect, End, Plan, Rule, Step};
use crate::volume::{Result, SECTOR, Volume};
use base::Random;
use fuser::{Errno, FileAttr, FileHandle, FileType, Generation, INodeNo};
use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant, UNIX_EPOCH};
use virtual_driver::Injury;

/// What the thread hears.
pub(crate) enum Message {
    Call(Call),
    /// A process begins. At the moment in its plan, the volume stops serving and notifies the sender.
    Begin(Plan, Sender<()>),
    /// Everything stands still from here on, if it does not yet.
    Halt,
    /// The process has been killed, or has ended: the end takes effect.
    End(End, Sender<Injected>),
}

/// What was done to a process.
#[derive(Clone, Debug, Default)]
pub struct Injected {
    /// Requests with a fault, by operation, file and effect.
    pub hurt: BTreeMap<(Step, String, Effect), u64>,
    /// Requests for room that was not there, and questions how much there is where it is limited.
    pub no_space: u64,
    /// Requests that were under way at the end.
    pub under_way: u64,
    /// Writes that were under way when it was killed and landed later.
    pub stray: u64,
    /// Changes of names, and of lengths, that a power cut has lost because they were not synced.
    pub lost: [u64; 2],
    /// Requests served.
    pub requests: u64,
}

impl Injected {
    /// Whether anything failed on purpose.
    pub fn errors(&self) -> u64 {
        self.hurt.iter().filter(|((_, _, effect), _)| effect.is_error()).map(|(_, count)| count).sum()
    }

    /// The files of which reads failed on purpose: what a process cannot read it takes for damaged.
    pub fn unread(&self) -> impl Iterator<Item = &str> {
        let failed = self.hurt.keys().filter(|(step, _, effect)| *step == Step::Read && effect.is_error());
        failed.map(|(_, file, _)| file.as_str())
    }
}

/// A request that has its turn later, or never by itself.
struct Held {
    due: Option<Instant>,
    call: Call,
    injury: Option<Injury>,
}

pub(crate) struct Service {
    volume: Volume,
    random: Random,
    plan: Option<(Plan, Sender<()>)>,
    /// How many requests each rule has met.
    met: Vec<u64>,
    counted: u64,
    held: Vec<Held>,
    still: bool,
    injected: Injected,
}

/// Attributes and names are asked for each time: after a cut they are others.
const FRESH: Duration = Duration::ZERO;
/// For how long others may overtake a request, in microseconds.
const OVERTAKEN_US_MAX: u64 = 2_000;
/// What an unlimited volume says is free, in bytes.
const ENDLESS: u64 = 1 << 40;
const NUMBER_BITS: u32 = 40;

impl Service {
    pub(crate) fn new(volume: Volume, seed: u64) -> Service {
        Service {
            volume,
            random: Random::stream(seed, "service"),
            plan: None,
            met: Vec::new(),
            counted: 0,
            held: Vec::new(),
            still: false,
            injected: Injected::default(),
        }
    }

    /// Serves until all senders are gone.
    pub(crate) fn run(mut self, messages: &Receiver<Message>) {
        loop {
            let message = match self.next_due() {
                Some(due) => messages.recv_timeout(due.saturating_duration_since(now())),
                None => messages.recv().map_err(|_| RecvTimeoutError::Disconnected),
            };
            match message {
                Ok(Message::Call(call)) => self.admit(call),
                Ok(Message::Begin(plan, told)) => self.begin(plan, told),
                Ok(Message::Halt) => self.still = true,
                Ok(Message::End(end, told)) => {
                    self.end(end);
                    let _ = told.send(std::mem::take(&mut self.injected));
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            self.serve_due();
        }
    }

    fn next_due(&self) -> Option<Instant> {
        if self.still { None } else { self.held.iter().filter_map(|held| held.due).min() }
    }

    fn begin(&mut self, plan: Plan, told: Sender<()>) {
        self.volume.limit(plan.room);
        (self.met, self.counted) = (vec![0; plan.rules.len()], 0);
        self.plan = Some((plan, told));
    }

    /// Takes a request in: it waits for its turn, for the end, or is answered at once.
    fn admit(&mut self, call: Call) {
        let Some((step, name)) = self.step(&call).filter(|_| !self.still) else {
            return if self.still { self.hold(call, None, None) } else { self.answer(call, None) };
        };
        self.injected.requests += 1;
        let (effect, overtaken) = self.struck(step, &name);
        if let Some(effect) = effect {
            *self.injected.hurt.entry((step, name, effect)).or_default() += 1;
        }
        let wait = match effect {
            Some(Effect::Hung) => return self.hold_and_count((call, step), None, None),
            Some(Effect::Slow(delay)) => delay,
            _ if self.random.chance(overtaken) => Duration::from_micros(self.random.below(OVERTAKEN_US_MAX)),
            _ => Duration::ZERO,
        };
        let injury = match effect {
            Some(Effect::Error) => Some(Injury::Fail),
            Some(Effect::Forgotten) => Some(Injury::Forget { cached: false }),
            _ => None,
        };
        self.hold_and_count((call, step), Some(now() + wait), injury);
    }

    fn hold_and_count(&mut self, (call, step): (Call, Step), due: Option<Instant>, injury: Option<Injury>) {
        self.hold(call, due, injury);
        let counts = self.plan.as_ref().is_some_and(|(plan, _)| plan.at_step.is_none_or(|counted| counted == step));
        self.counted += u64::from(counts);
        if !counts {
            return;
        }
        if let Some((plan, told)) = &self.plan
            && self.counted == plan.at
        {
            self.still = true;
            let _ = told.send(());
        }
    }

    fn hold(&mut self, call: Call, due: Option<Instant>, injury: Option<Injury>) {
        self.held.push(Held { due, call, injury });
    }

    /// What the plan does to this request, and the share of requests that others may overtake.
    fn struck(&mut self, step: Step, name: &str) -> (Option<Effect>, f64) {
        let Some((plan, _)) = &self.plan else { return (None, 0.0) };
        let mut effect = None;
        for (Rule { step: of, file, first, count, effect: does }, met) in plan.rules.iter().zip(&mut self.met) {
            if *of == step && name.starts_with(file) {
                *met += 1;
                if *met >= *first && *met - *first < *count {
                    effect = Some(*does);
                }
            }
        }
        (effect, plan.overtaken)
    }

    fn serve_due(&mut self) {
        while !self.still {
            let now = now();
            let due = self.held.iter().position(|held| held.due.is_some_and(|due| due <= now));
            let Some(index) = due else { return };
            let Held { call, injury, .. } = self.held.remove(index);
            self.answer(call, injury);
        }
    }

    fn end(&mut self, end: End) {
        self.plan = None;
        self.volume.limit(None);
        let mut held = std::mem::take(&mut self.held);
        self.injected.under_way += held.len() as u64;
        let (mut under_way, mut stray) = (Vec::new(), Vec::new());
        // Whatever was under way may come in any order.
        while !held.is_empty() {
            let index = self.random.below(held.len() as u64) as usize;
            let Held { call, injury, .. } = held.swap_remove(index);
            match (end, call) {
                (End::Stray(delay), call @ Call::Write { .. }) => {
                    stray.push(Held { due: Some(now() + delay), call, injury });
                }
                (End::Kill | End::Stray(_), call) => self.answer(call, injury),
                (End::PowerCut, Call::Write { inode, offset, data, reply, .. }) => {
                    under_way.extend(self.number(inode).ok().map(|number| (number, offset, data)));
                    reply.error(Errno::EIO);
                }
                // Of what else was under way, the device had done some.
                (End::PowerCut, call) if self.random.chance(0.5) => self.answer(call, None),
                (End::PowerCut, call) => drop(call),
            }
        }
        if end == End::PowerCut {
            self.injected.lost = self.volume.power_cut(under_way);
        }
        self.injected.stray += stray.len() as u64;
        self.held = stray;
        self.still = false;
    }

    fn step(&self, call: &Call) -> Option<(Step, String)> {
        let named =
            |inode: &u64| self.number(*inode).map_or(String::new(), |number| self.volume.name(number).to_owned());
        Some(match call {
            Call::Read { inode, .. } => (Step::Read, named(inode)),
            Call::Write { inode, .. } => (Step::Write, named(inode)),
            Call::Sync { inode, .. } => (Step::Sync, named(inode)),
            Call::Resize { inode, .. } | Call::Reserve { inode, .. } => (Step::Resize, named(inode)),
            Call::SyncDirectory { inode, .. } => (Step::SyncDirectory, named(inode)),
            Call::List { inode, offset: 0, .. } => (Step::List, named(inode)),
            Call::Create { name, .. } | Call::MakeDirectory { name, .. } => (Step::Create, name.clone()),
            Call::Remove { name, .. } => (Step::Remove, name.clone()),
            _ => return None,
        })
    }

    /// The volume's number of an inode; the kernel may still have those of before a cut.
    fn number(&self, inode: u64) -> Result<u64> {
        let (cuts, number) = (inode >> NUMBER_BITS, inode & ((1 << NUMBER_BITS) - 1));
        match number == Volume::ROOT || cuts == self.volume.cuts() {
            true => Ok(number),
            false => Err(Errno::ESTALE),
        }
    }

    fn inode(&self, number: u64) -> INodeNo {
        INodeNo(if number == Volume::ROOT { number } else { self.volume.cuts() << NUMBER_BITS | number })
    }

    fn attributes(&self, number: u64) -> Result<FileAttr> {
        let (directory, size) = self.volume.attributes(number)?;
        let (kind, perm) = if directory { (FileType::Directory, 0o700) } else { (FileType::RegularFile, 0o600) };
        Ok(FileAttr {
            ino: self.inode(number),
            size,
            blocks: size / 512,
            atime: UNIX_EPOCH,
            mtime: UNIX_EPOCH,
            ctime: UNIX_EPOCH,
            crtime: UNIX_EPOCH,
            kind,
            perm,
            nlink: 1,
            uid: 0,
            gid: 0,
            rdev: 0,
            blksize: 4096,
            flags: 0,
        })
    }

    /// Notes that there was no room, if that is why.
    fn noting<T>(&mut self, result: Result<T>) -> Result<T> {
        if let Err(error) = &result
            && error.code() == Errno::ENOSPC.code()
        {
            self.injected.no_space += 1;
        }
        result
    }

    fn entry(&mut self, parent: u64, name: &str, directory: Option<bool>) -> Result<FileAttr> {
        let parent = self.number(parent)?;
        let number = match directory {
            Some(directory) => self.volume.create(parent, name, directory)?,
            None => self.volume.lookup(parent, name)?,
        };
        self.attributes(number)
    }

    fn resize(&mut self, inode: u64, length: u64) -> Result<FileAttr> {
        let number = self.number(inode)?;
        self.volume.resize(number, length)?;
        self.attributes(number)
    }

    fn reserve(&mut self, inode: u64, end: u64) -> Result<()> {
        let number = self.number(inode)?;
        let (_, length) = self.volume.attributes(number)?;
        if end > length { self.volume.resize(number, end) } else { Ok(()) }
    }

    /// Does what is asked, or fails it, and tells the kernel.
    fn answer(&mut self, call: Call, injury: Option<Injury>) {
        let fails = injury.is_some();
        let failing = |result: Result<()>| if fails { Err(Errno::EIO) } else { result };
        let empty = |reply: fuser::ReplyEmpty, result: Result<()>| match result {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(error),
        };
        match call {
            Call::Lookup { parent, name, reply } => match self.entry(parent, &name, None) {
                Ok(attributes) => reply.entry(&FRESH, &attributes, Generation(0)),
                Err(error) => reply.error(error),
            },
            Call::Attributes { inode, reply } => match self.number(inode).and_then(|number| self.attributes(number)) {
                Ok(attributes) => reply.attr(&FRESH, &attributes),
                Err(error) => reply.error(error),
            },
            Call::Resize { reply, .. } if fails => reply.error(Errno::EIO),
            Call::Resize { inode, length, reply } => {
                let resized = self.resize(inode, length);
                match self.noting(resized) {
                    Ok(attributes) => reply.attr(&FRESH, &attributes),
                    Err(error) => reply.error(error),
                }
            }
            Call::MakeDirectory { reply, .. } if fails => reply.error(Errno::EIO),
            Call::MakeDirectory { parent, name, reply } => match self.entry(parent, &name, Some(true)) {
                Ok(attributes) => reply.entry(&FRESH, &attributes, Generation(0)),
                Err(error) => reply.error(error),
            },
            Call::Create { reply, .. } if fails => reply.error(Errno::EIO),
            Call::Create { parent, name, reply } => match self.entry(parent, &name, Some(false)) {
                Ok(attributes) => {
                    self.count_handle(attributes.ino.0, true);
                    reply.created(&FRESH, &attributes, Generation(0), FileHandle(0), OPEN_FLAGS);
                }
                Err(error) => reply.error(error),
            },
            Call::Remove { reply, .. } if fails => reply.error(Errno::EIO),
            Call::Remove { parent, name, reply } => {
                let removed = self.number(parent).and_then(|parent| self.volume.remove(parent, &name));
                empty(reply, removed);
            }
            Call::Rename { parent, name, new, reply } => {
                let renamed = self.number(parent).and_then(|parent| self.volume.rename(parent, &name, &new));
                empty(reply, renamed);
            }
            Call::Open { inode, reply } => match self.number(inode) {
                Ok(_) => {
                    self.count_handle(inode, true);
                    reply.opened(FileHandle(0), OPEN_FLAGS);
                }
                Err(error) => reply.error(error),
            },
            Call::Release { inode, reply } => {
                self.count_handle(inode, false);
                reply.ok();
            }
            Call::Read { inode, offset, size, reply } => {
                match self.number(inode).and_then(|number| self.volume.read(number, offset, size, injury)) {
                    Ok(bytes) => reply.data(&bytes),
                    Err(error) => reply.error(error),
                }
            }
            Call::Write { inode, offset, data, durable, reply } => {
                let number = self.number(inode);
                let written = number.and_then(|number| self.volume.write(number, offset, &data, durable, injury));
                match self.noting(written) {
                    Ok(()) => reply.written(data.len() as u32),
                    Err(error) => reply.error(error),
                }
            }
            Call::Reserve { reply, .. } if fails => reply.error(Errno::EIO),
            Call::Reserve { inode, end, reply } => {
                let reserved = self.reserve(inode, end);
                empty(reply, self.noting(reserved));
            }
            Call::Sync { inode, reply } => {
                empty(reply, self.number(inode).and_then(|number| self.volume.sync(number, injury)));
            }
            Call::SyncDirectory { inode, reply } => {
                // A failed sync leaves the names as they are: lost or kept at a cut.
                let number = self.number(inode);
                let synced = number.and_then(|number| if fails { Ok(()) } else { self.volume.sync_directory(number) });
                empty(reply, failing(synced));
            }
            Call::List { reply, .. } if fails => reply.error(Errno::EIO),
            Call::List { inode, offset, reply } => self.list(inode, offset, reply),
            Call::Room { reply } => {
                // Some ask before they take, and do without.
                self.injected.no_space += u64::from(self.volume.free().is_some());
                let used = self.volume.used() / SECTOR;
                let free = self.volume.free().unwrap_or(ENDLESS) / SECTOR;
                reply.statfs(used + free, free, free, 1 << 20, 1 << 20, SECTOR as u32, 255, SECTOR as u32);
            }
        }
    }

    fn count_handle(&mut self, inode: u64, opened: bool) {
        if let Ok(number) = self.number(inode) {
            if opened { self.volume.opened(number) } else { self.volume.closed(number) }
        }
    }

    fn list(&self, inode: u64, offset: u64, mut reply: fuser::ReplyDirectory) {
        let listed = self.number(inode).and_then(|number| self.volume.list(number));
        let entries = match listed {
            Ok(entries) => entries,
            Err(error) => return reply.error(error),
        };
        let dots = [".", ".."].map(|name| (name.to_owned(), Volume::ROOT, true));
        for (place, (name, number, directory)) in dots.into_iter().chain(entries).enumerate().skip(offset as usize) {
            let kind = if directory { FileType::Directory } else { FileType::RegularFile };
            if reply.add(self.inode(number), place as u64 + 1, kind, &name) {
                break;
            }
        }
        reply.ok();
    }
}

#[allow(clippy::disallowed_methods, reason = "the kernel's requests come on this machine's clock")]
fn now() -> Instant {
    Instant::now()
}
