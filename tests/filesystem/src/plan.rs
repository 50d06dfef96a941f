use base::Random;
use std::time::Duration;

/// What a request does, as far as faults tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Step {
    /// Bytes are read.
    Read,
    /// Bytes are written.
    Write,
    /// A file is made durable.
    Sync,
    /// A file or directory is created.
    Create,
    /// A file is removed.
    Remove,
    /// A file's length is set, or room for it reserved.
    Resize,
    /// A directory is made durable.
    SyncDirectory,
    /// A directory is read.
    List,
}

/// What becomes of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Effect {
    /// It fails with EIO; of a write some sectors may have been written.
    Error,
    /// A sync fails with EIO, and no later one tries again what it was to make durable.
    Forgotten,
    /// It takes as long.
    Slow(Duration),
    /// It gets no answer while the program runs.
    Hung,
}

/// Which requests fail, and how.
#[derive(Clone, Debug, PartialEq)]
pub struct Rule {
    /// Requests of this kind.
    pub step: Step,
    /// Files whose names begin with this.
    pub file: &'static str,
    /// The first of them that fails, counted from 1.
    pub first: u64,
    /// How many are, from there on; `u64::MAX` for all.
    pub count: u64,
    /// What becomes of them.
    pub effect: Effect,
}

impl Effect {
    /// Whether the request fails.
    pub fn is_error(self) -> bool {
        matches!(self, Effect::Error | Effect::Forgotten)
    }
}

/// How a process ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// SIGKILL: the machine goes on, and what is under way lands.
    Kill,
    /// The same, but writes that are under way land this much later, whether or not the next process is there by then.
    Stray(Duration),
    /// The power goes: what was not synced is lost, kept or torn.
    PowerCut,
}

/// What happens to one process.
#[derive(Clone, Debug)]
pub struct Plan {
    /// How it ends.
    pub end: End,
    /// At which request from its beginning, counting those that have a [`Step`].
    pub at: u64,
    /// The faults before the end.
    pub rules: Vec<Rule>,
    /// How many more bytes files may take, if that is limited.
    pub room: Option<u64>,
    /// The share of requests, 0 to 1, that others may overtake.
    pub overtaken: f64,
}

impl Plan {
    /// Draws a plan; if `gentle`, it has no fault besides its end.
    pub fn draw(random: &mut Random, gentle: bool) -> Plan {
        let magnitude = random.between(4, 12);
        let end = match random.below(10) {
            0 => End::Kill,
            1..4 => End::Stray(Duration::from_millis(random.between(5, 400))),
            _ => End::PowerCut,
        };
        let at = random.between(1 << (magnitude - 1), 1 << magnitude);
        let overtaken = *random.choose(&[0.0, 0.1, 0.5]).expect("three shares");
        let mut plan = Plan { end, at, rules: Vec::new(), room: None, overtaken };
        if gentle || random.chance(0.4) {
            return plan;
        }
        match random.below(8) {
            0 => plan.room = Some(random.below(512) << 10),
            1 => plan.rules.push(rule(random, Effect::Slow(Duration::from_millis(random.clone().between(5, 60))))),
            2 => plan.rules.push(Rule { count: u64::MAX, ..rule(random, Effect::Hung) }),
            _ => plan.rules.push(rule(random, Effect::Error)),
        }
        plan
    }
}

fn rule(random: &mut Random, effect: Effect) -> Rule {
    let steps = [
        (Step::Write, "log"),
        (Step::Write, "log"),
        (Step::Sync, "log"),
        (Step::Write, "account"),
        (Step::Sync, "account"),
        (Step::Read, "account"),
        (Step::Write, "double-write"),
        (Step::Write, "entresol.home"),
        (Step::Write, ""),
        (Step::Sync, ""),
        (Step::Read, ""),
        (Step::Create, ""),
        (Step::Resize, ""),
        (Step::Remove, ""),
        (Step::SyncDirectory, ""),
        (Step::List, ""),
    ];
    let (step, file) = *random.choose(&steps).expect("there are some");
    let rare = matches!(step, Step::Create | Step::Resize | Step::Remove | Step::SyncDirectory | Step::List);
    let first = if rare { random.between(1, 6) } else { 1 << random.below(8) };
    let forgets = effect == Effect::Error && step == Step::Sync && random.chance(0.6);
    let effect = if forgets { Effect::Forgotten } else { effect };
    let count = if random.chance(0.6) { 1 } else { u64::MAX };
    Rule { step, file, first, count, effect }
}
