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
    /// It in words.
    pub fn name(self) -> &'static str {
        match self {
            Effect::Error => "EIO",
            Effect::Forgotten => "EIO, forgotten",
            Effect::Slow(_) => "slow",
            Effect::Hung => "hung",
        }
    }

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
    /// The only step whose requests count for that, if not all do.
    pub at_step: Option<Step>,
    /// The faults before the end.
    pub rules: Vec<Rule>,
    /// How many more bytes files may take, if that is limited.
    pub room: Option<u64>,
    /// The share of requests, 0 to 1, that others may overtake.
    pub overtaken: f64,
}

/// Every fault: the kind of request that it strikes, and what becomes of that.
pub fn all_faults() -> impl Iterator<Item = (Step, Effect)> {
    let steps = [
        Step::Write,
        Step::Sync,
        Step::Read,
        Step::Create,
        Step::Resize,
        Step::Remove,
        Step::SyncDirectory,
        Step::List,
    ];
    let effects = [Effect::Error, Effect::Slow(Duration::ZERO), Effect::Hung];
    let any = effects.into_iter().flat_map(move |effect| steps.map(|step| (step, effect)));
    any.chain([(Step::Sync, Effect::Forgotten)])
}

impl Plan {
    /// Draws a plan; if `gentle`, it has no fault besides its end. What it hurts, if anything, is `next`.
    pub fn draw(random: &mut Random, next: (Step, Effect), gentle: bool) -> Plan {
        let magnitude = random.between(4, 12);
        let end = match random.below(10) {
            0 => End::Kill,
            1..4 => End::Stray(Duration::from_millis(random.between(5, 400))),
            _ => End::PowerCut,
        };
        let at = random.between(1 << (magnitude - 1), 1 << magnitude);
        let overtaken = *random.choose(&[0.0, 0.1, 0.5]).expect("three shares");
        // Names and lengths are seldom changed.
        let seldom = [Step::Create, Step::Resize, Step::Remove];
        let at_step = random.chance(0.1).then(|| *random.choose(&seldom).expect("three steps"));
        let at = if at_step.is_some() { random.between(1, 6) } else { at };
        let mut plan = Plan { end, at, at_step, rules: Vec::new(), room: None, overtaken };
        if gentle || random.chance(0.4) {
            return plan;
        }
        match random.below(8) {
            0 => plan.room = Some(random.below(512) << 10),
            _ => plan.rules.push(rule(random, next)),
        }
        plan
    }

    /// Whether the program has to go on after all that the plan does to it before its end: it waits for what is slow, and tries again
    /// what fails once, except what is to make something durable.
    pub fn is_survived(&self) -> bool {
        let is_tried_again = |step| !matches!(step, Step::Write | Step::Sync | Step::SyncDirectory);
        let is_survived = |rule: &Rule| match rule.effect {
            Effect::Slow(_) => true,
            Effect::Error => rule.count == 1 && is_tried_again(rule.step),
            Effect::Forgotten | Effect::Hung => false,
        };
        self.room.is_none() && self.rules.iter().all(is_survived)
    }
}

fn rule(random: &mut Random, (step, effect): (Step, Effect)) -> Rule {
    let files: &[&str] = match step {
        Step::Write => &["log", "log", "account", "double-write", "entresol.home", ""],
        Step::Sync => &["log", "account", ""],
        Step::Read => &["account", ""],
        _ => &[""],
    };
    let file = random.choose(files).expect("there are some");
    let first = match step {
        Step::Remove => random.between(1, 2),
        Step::Create | Step::Resize | Step::SyncDirectory | Step::List => random.between(1, 6),
        Step::Read | Step::Write | Step::Sync => 1 << random.below(6),
    };
    let effect = match effect {
        Effect::Slow(_) => Effect::Slow(Duration::from_millis(random.between(5, 60))),
        effect => effect,
    };
    let is_once = effect != Effect::Hung && random.chance(0.6);
    Rule { step, file, first, count: if is_once { 1 } else { u64::MAX }, effect }
}
