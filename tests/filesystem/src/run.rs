//! Processes of one database after the other, each with its plan, and what is found after each.

use crate::description::Backend;
use crate::judgement::{Judgement, Said};
use crate::mounted::Mounted;
use crate::plan::{Effect, End, Plan, Step, all_faults};
use crate::service::Injected;
use base::Random;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::thread::JoinHandle;
use std::time::Duration;

/// What is run.
#[derive(Clone, Debug)]
pub struct Options {
    /// The program that takes the orders of a process: `filesystem-torture`.
    pub program: PathBuf,
    /// The way to the kernel.
    pub backend: Backend,
    /// From which every plan is drawn.
    pub seed: u64,
    /// How many processes come to their end by a plan.
    pub cuts: u64,
}

/// What a run has seen.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    /// Kills.
    pub kills: u64,
    /// Writes of killed processes that landed later than their ends.
    pub stray: u64,
    /// Power cuts.
    pub power_cuts: u64,
    /// Databases.
    pub databases: u64,
    /// Databases whose creation was cut off and refused since, because of what it had left on another device.
    pub refused: u64,
    /// Ends before the database was open.
    pub before_open: u64,
    /// How often everything was compared.
    pub looks: u64,
    /// Transactions acknowledged.
    pub acknowledged: u64,
    /// Requests served.
    pub requests: u64,
    /// Requests under way at an end.
    pub under_way: u64,
    /// Requests for room that was limited.
    pub no_space: u64,
    /// Changes of names, and of lengths, that were not synced and lost.
    pub lost: [u64; 2],
    /// Requests with a fault, by operation and by effect.
    pub hurt: BTreeMap<(Step, &'static str), u64>,
    /// The sorts of errors that processes met.
    pub errors: BTreeSet<String>,
}

/// What went wrong.
#[derive(Clone, Debug)]
pub struct Failure {
    /// Replays the plans, not the course of events.
    pub seed: u64,
    /// Which process of the run, from 0, and of its database.
    pub opening: (u64, u64),
    /// What happened to it.
    pub plan: String,
    /// Everything that is wrong.
    pub wrong: Vec<String>,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (run, database) = self.opening;
        writeln!(f, "seed {}, process {run} ({database} of its database): {}", self.seed, self.plan)?;
        self.wrong.iter().take(12).try_for_each(|what| writeln!(f, "  {what}"))
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{} power cuts and {} kills over {} databases ({} before they were open, {} creations refused since); \
             compared {} times",
            self.power_cuts, self.kills, self.databases, self.before_open, self.refused, self.looks
        )?;
        writeln!(
            f,
            "{} transactions acknowledged; {} requests, {} under way at an end, {} stray writes, \
             {} without room; {} names and {} lengths lost",
            self.acknowledged, self.requests, self.under_way, self.stray, self.no_space, self.lost[0], self.lost[1]
        )?;
        for ((step, effect), count) in &self.hurt {
            writeln!(f, "  {effect:14} {step:?}: {count}")?;
        }
        write!(f, "errors met: {}", self.errors.iter().map(String::as_str).collect::<Vec<_>>().join(", "))
    }
}

/// Processes of one database, at most.
const OPENINGS_MAX: u64 = 12;
/// After this time a process is ended, whatever it has reached.
const OPENING_TIME_MAX: Duration = Duration::from_millis(1_500);
/// An upper limit on the opening of a database without a fault.
const LOOK_MAX: Duration = Duration::from_secs(60);

struct Process {
    child: Child,
    /// How many transactions it has acknowledged so far.
    acknowledged: Arc<AtomicU64>,
    out: JoinHandle<Vec<String>>,
    err: JoinHandle<String>,
}

/// How waiting for a process came to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wait {
    /// What was waited for has come.
    Over,
    /// The process has ended by itself.
    Ended,
    /// Neither.
    Vain,
}

/// Runs processes until `cuts` of them have been cut.
///
/// # Errors
/// What went wrong first.
pub fn run(options: &Options, volume: &Mounted, mut told: impl FnMut(&Summary)) -> Result<Summary, Box<Failure>> {
    let mut summary = Summary::default();
    let mut random = Random::stream(options.seed, "lives");
    while summary.kills + summary.power_cuts < options.cuts {
        let name = format!("database-{}", summary.databases);
        summary.databases += 1;
        database(options, volume, &name, &mut random, &mut summary)?;
        told(&summary);
    }
    Ok(summary)
}

fn database(
    options: &Options,
    volume: &Mounted,
    name: &str,
    random: &mut Random,
    summary: &mut Summary,
) -> Result<(), Box<Failure>> {
    let seed = random.below(u64::MAX);
    let mut judgement = Judgement::default();
    let openings = random.between(3, OPENINGS_MAX);
    for opening in 0..=openings {
        let cuts = summary.kills + summary.power_cuts;
        let looks = opening == openings || cuts == options.cuts;
        let next = summary.rarest_fault(random);
        let mut plan = Plan::draw(random, next, looks);
        if looks {
            (plan.at, plan.at_step, plan.overtaken) = (u64::MAX, None, 0.0);
        }
        let orders = Orders { options, volume, name, seed, opening, existing: judgement.created, looks };
        let (lines, error, injected) = live(&orders, &plan);
        let mut said = judgement.hear(&lines, &injected);
        said.wrong.extend(error);
        if looks && !said.closed && !judgement.refused {
            said.wrong.push("nothing is in its way, and it does not come to its end".to_owned());
        }
        summary.note(&plan, &said, &injected, looks);
        if !said.wrong.is_empty() {
            let plan = format!("{plan:?}; {injected:?}");
            return Err(Box::new(Failure { seed: options.seed, opening: (cuts, opening), plan, wrong: said.wrong }));
        }
        if looks || judgement.refused {
            break;
        }
    }
    summary.refused += u64::from(judgement.refused);
    summary.looks += judgement.looks;
    summary.acknowledged += judgement.acknowledged;
    Ok(())
}

impl Summary {
    /// What a long run should have met, and this one has not.
    pub fn missing(&self) -> Vec<String> {
        let unhurt = all_faults().filter(|(step, effect)| !self.hurt.contains_key(&(*step, effect.name())));
        let mut missing: Vec<_> = unhurt.map(|(step, effect)| format!("{} {step:?}", effect.name())).collect();
        let others = [
            ("a kill", self.kills),
            ("a power cut", self.power_cuts),
            ("a stray write", self.stray),
            ("no room", self.no_space),
            ("a lost name", self.lost[0]),
            ("a lost length", self.lost[1]),
        ];
        missing.extend(others.into_iter().filter(|(_, count)| *count == 0).map(|(name, _)| name.to_owned()));
        missing
    }

    /// One of the faults that struck least so far. It comes next, so that a long run meets them all.
    fn rarest_fault(&self, random: &mut Random) -> (Step, Effect) {
        let count = |(step, effect): &(Step, Effect)| self.hurt.get(&(*step, effect.name())).copied().unwrap_or(0);
        let least = all_faults().map(|fault| count(&fault)).min();
        let rarest: Vec<_> = all_faults().filter(|fault| Some(count(fault)) == least).collect();
        *random.choose(&rarest).expect("there is something")
    }

    fn note(&mut self, plan: &Plan, said: &Said, injected: &Injected, looks: bool) {
        match plan.end {
            _ if looks => {}
            End::Kill | End::Stray(_) => self.kills += 1,
            End::PowerCut => self.power_cuts += 1,
        }
        self.before_open += u64::from(!said.opened);
        self.requests += injected.requests;
        self.under_way += injected.under_way;
        self.stray += injected.stray;
        self.no_space += injected.no_space;
        for (lost, more) in self.lost.iter_mut().zip(injected.lost) {
            *lost += more;
        }
        for ((step, _, effect), count) in &injected.hurt {
            *self.hurt.entry((*step, effect.name())).or_default() += count;
        }
        self.errors.extend(said.errors.iter().cloned());
    }
}

struct Orders<'a> {
    options: &'a Options,
    volume: &'a Mounted,
    name: &'a str,
    seed: u64,
    opening: u64,
    existing: bool,
    looks: bool,
}

/// Has a process live under the plan. Gives what it said, what it should not have done, and what was done to it.
fn live(orders: &Orders<'_>, plan: &Plan) -> (Vec<String>, Option<String>, Injected) {
    let over = orders.volume.begin(plan.clone());
    let mut process = Process::start(orders);
    let mut wait = process.wait(&over, 0, if orders.looks { LOOK_MAX } else { OPENING_TIME_MAX });
    // What strikes before there are clients ends a process's work.
    let is_at_work = plan.rules.is_empty() || process.acknowledged.load(Ordering::Relaxed) > 0;
    let hangs = wait == Wait::Vain && is_at_work && plan.is_survived() && !orders.looks && {
        // A process that nothing keeps from it must make progress: it commits once more.
        let more = process.acknowledged.load(Ordering::Relaxed) + 1;
        wait = process.wait(&over, more, LOOK_MAX);
        wait == Wait::Vain
    };
    orders.volume.halt();
    // SIGKILL: no destructor runs, nothing is flushed. It dies once its requests are answered.
    let _ = process.child.kill();
    let injected = orders.volume.end(plan.end);
    let (lines, error) = process.finish();
    let ended = lines.iter().any(|line| line.starts_with("unopened") || line == "closed");
    let died = (wait == Wait::Ended && !ended).then(|| format!("it ended by itself: {error}"));
    let panicked = error.contains("panicked at").then(|| error.clone());
    let hangs = hangs.then(|| format!("nothing keeps it from it, and it does not go on in {LOOK_MAX:?}"));
    (lines, died.or(panicked).or(hangs), injected)
}

impl Process {
    #[allow(clippy::disallowed_methods, reason = "what a process says is read beside it")]
    fn start(orders: &Orders<'_>) -> Process {
        let Orders { options, volume, name, seed, opening, existing, looks } = orders;
        let mut child = Command::new(&options.program)
            .args(["process", options.backend.name(), &volume.path().display().to_string(), name])
            .args([seed.to_string(), opening.to_string(), existing.to_string(), looks.to_string()])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program is there");
        let out = BufReader::new(child.stdout.take().expect("piped"));
        let mut err = child.stderr.take().expect("piped");
        let acknowledged = Arc::default();
        let counted = Arc::clone(&acknowledged);
        let out = std::thread::spawn(move || whole_lines(out, &counted));
        let err = std::thread::spawn(move || {
            let mut text = String::new();
            let _ = err.read_to_string(&mut text);
            text
        });
        Process { child, acknowledged, out, err }
    }

    /// Waits until the time is over, or until the process has acknowledged this number of transactions, if it is not zero.
    fn wait(&mut self, over: &Receiver<()>, transactions: u64, most: Duration) -> Wait {
        const LOOK: Duration = Duration::from_millis(10);
        for _ in 0..most.as_millis() / LOOK.as_millis() {
            if !matches!(over.recv_timeout(LOOK), Err(RecvTimeoutError::Timeout)) {
                return Wait::Over;
            }
            if self.child.try_wait().expect("it is our child").is_some() {
                return Wait::Ended;
            }
            if transactions > 0 && self.acknowledged.load(Ordering::Relaxed) >= transactions {
                return Wait::Over;
            }
        }
        Wait::Vain
    }

    fn finish(mut self) -> (Vec<String>, String) {
        self.child.wait().expect("it is our child");
        (self.out.join().expect("reads to the end"), self.err.join().expect("reads to the end"))
    }
}

/// The lines that came whole: a number that lost its end would be another's.
fn whole_lines(mut out: impl BufRead, acknowledged: &AtomicU64) -> Vec<String> {
    let mut lines = Vec::new();
    loop {
        let mut line = String::new();
        match out.read_line(&mut line) {
            Ok(_) if line.ends_with('\n') => {
                acknowledged.fetch_add(u64::from(line.starts_with("done ")), Ordering::Relaxed);
                lines.push(line.trim_end().to_owned());
            }
            _ => return lines,
        }
    }
}
