//! Events and spans for programs that have a subscriber of the [`tracing`] crate: made here from what the engine and the executor
//! tell, so that neither knows that crate. Where there is no subscriber when a database is opened, nothing is listened to and
//! nothing is measured.
//!
//! All have the target `entresol`. The span `database` has the directory's path and is around everything else; `opening`, `recovery` within
//! that, `checkpoint` and `closing` begin and end with what they are named after.

use base::time::SECOND_NS;
use driver::{Fault, FaultKind};
use engine::Error;
use engine::statistics::{Event, Listener, RecoveryReport, TransactionTime};
use executor::{Executor, Unanswered};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::Arc;
use tracing::{Level, Span, debug, enabled, error, info, info_span, warn};

/// What is told of a request that a device leaves unanswered.
pub(crate) type Silence = Arc<dyn Fn(&Unanswered) + Send + Sync>;

/// How long a device may leave a request unanswered before that is told, and how often it is looked for, in nanoseconds.
const SILENCE_NS: u64 = 5 * SECOND_NS;
const LOOK_NS: u64 = SECOND_NS;
/// From which time on a transaction is slow, unless the program says so, in nanoseconds.
pub(crate) const SLOW_NS: u64 = SECOND_NS;

/// What makes events of one database.
#[derive(Debug)]
pub(crate) struct Events {
    span: Span,
    slow_ns: u64,
    /// Around what goes on: a recovery, checkpoints of pages, those of sets.
    recovery: RefCell<Option<Span>>,
    checkpoints: [RefCell<Option<Span>>; 2],
}

impl Events {
    /// Of the database in this directory; nothing if no subscriber wants to hear of its errors.
    pub fn of(path: &str, slow_ns: u64) -> Option<Rc<Events>> {
        let span = || info_span!(target: "entresol", "database", path);
        let events = || Events { span: span(), slow_ns, recovery: RefCell::default(), checkpoints: Default::default() };
        enabled!(target: "entresol", Level::ERROR).then(|| Rc::new(events()))
    }

    /// A span around the opening.
    pub fn opening(&self) -> Span {
        info_span!(target: "entresol", parent: &self.span, "opening")
    }

    /// A span around the closing.
    pub fn closing(&self) -> Span {
        info_span!(target: "entresol", parent: &self.span, "closing")
    }

    /// From now on devices that fail or are silent are told.
    pub fn hear_devices(self: &Rc<Events>, executor: &Executor, are_real: bool) {
        let this = Rc::clone(self);
        executor.on_fault(move |fault| this.tell_fault(fault));
        // A described device answers when its description says so.
        if !are_real {
            return;
        }
        let this = Rc::clone(self);
        executor.spawn(watch(executor.clone(), move |late| {
            warn!(target: "entresol", parent: &this.span, waited_ms = late.waited_ns / 1_000_000, "{late}");
        }));
    }

    /// Those that are not of an operation which may fail.
    fn tell_fault(&self, fault: &Fault) {
        match fault.kind {
            FaultKind::NotFound | FaultKind::Exists | FaultKind::Cancelled | FaultKind::Closed => {}
            kind => warn!(target: "entresol", parent: &self.span, ?kind, "a device failed: {fault}"),
        }
    }

    /// Other programs cannot ask anything of the database.
    pub fn tell_unheard(&self, fault: &Fault) {
        warn!(target: "entresol", parent: &self.span, "other programs cannot have the open database backed up: {fault}");
    }

    /// The database is open.
    pub fn tell_opened(&self, is_new: bool) {
        info!(target: "entresol", is_new, "opened");
    }

    /// The end of a recovery.
    fn tell_recovered(&self, recovery: &RecoveryReport) {
        let span = self.recovery.take().unwrap_or_else(Span::none);
        let RecoveryReport {
            records,
            log_bytes,
            pages_left,
            unfinished,
            undos_left,
            backup_bytes,
            load_ns,
            redo_ns,
            undo_ns,
            moments_ns,
            ..
        } = *recovery;
        if records == 0 && backup_bytes == 0 {
            return;
        }
        info!(
            target: "entresol",
            parent: &span,
            records,
            log_bytes,
            pages_left,
            unfinished,
            undos_left,
            backup_bytes,
            load_us = load_ns / 1_000,
            redo_us = redo_ns / 1_000,
            undo_us = undo_ns / 1_000,
            moments_us = moments_ns / 1_000,
            "recovered"
        );
    }

    /// The end of a checkpoint.
    fn tell_checkpoint(&self, of_sets: bool, took_ns: u64, error: Option<&Error>) {
        let own = self.checkpoints[usize::from(of_sets)].take();
        let span = own.as_ref().unwrap_or(&self.span);
        let (of, took_us) = (kind(of_sets), took_ns / 1_000);
        match error {
            None => info!(target: "entresol", parent: span, of, took_us, "checkpoint"),
            Some(error) => warn!(target: "entresol", parent: span, of, took_us, "a checkpoint failed: {error}"),
        }
    }

    /// It could not be opened or closed.
    pub fn tell_failure(&self, error: &impl Display) {
        self.recovery.take();
        error!(target: "entresol", "{error}");
    }
}

impl Listener for Events {
    fn slow_ns(&self) -> u64 {
        self.slow_ns
    }

    fn hear(&self, event: &Event<'_>) {
        let span = &self.span;
        match event {
            Event::RecoveryBegun => drop(self.recovery.replace(Some(info_span!(target: "entresol", "recovery")))),
            Event::Recovered(report) => self.tell_recovered(report),
            Event::CacheNotOpened { is_upper, device, error } => warn!(
                target: "entresol",
                parent: span,
                is_upper,
                device,
                "opened without a cache, whose device is bad: {error}"
            ),
            Event::Undone { transaction, changes, took_ns } => info!(
                target: "entresol",
                parent: span,
                transaction = transaction.0,
                changes,
                took_us = took_ns / 1_000,
                "undone behind the opening"
            ),
            Event::CheckpointBegun { of_sets } => {
                let around = info_span!(target: "entresol", parent: span, "checkpoint", of = kind(*of_sets));
                self.checkpoints[usize::from(*of_sets)].replace(Some(around));
            }
            Event::Checkpoint { of_sets, took_ns, error } => self.tell_checkpoint(*of_sets, *took_ns, *error),
            Event::Retry { began, tries, cause } => match cause {
                Some(cause) => debug!(target: "entresol", parent: span, transaction = began, tries, %cause, "retry"),
                None => debug!(target: "entresol", parent: span, transaction = began, tries, "retry"),
            },
            Event::SlowTransaction(TransactionTime { transaction, committed, took_ns, waits }) => warn!(
                target: "entresol",
                parent: span,
                transaction = transaction.0,
                committed,
                took_us = took_ns / 1_000,
                locks_us = waits.locks_ns / 1_000,
                reads_us = waits.reads_ns / 1_000,
                log_us = waits.log_ns / 1_000,
                writes_us = waits.writes_ns / 1_000,
                "slow transaction"
            ),
            Event::Archiving { end, error } => match error {
                None => info!(target: "entresol", parent: span, end = end.0, "the log is archived again"),
                Some(error) => {
                    error!(target: "entresol", parent: span, end = end.0, "the log cannot be archived: {error}");
                }
            },
            Event::ArchiveGap { from, to } => warn!(
                target: "entresol",
                parent: span,
                from = from.0,
                to = to.0,
                "the archive of the log has a gap: take a backup, from which a restore can go on behind that"
            ),
        }
    }
}

/// What a checkpoint is one of.
fn kind(of_sets: bool) -> &'static str {
    if of_sets { "sets" } else { "pages" }
}

/// Tells of devices that leave requests unanswered for long: of the oldest request, with the number of the others, once for as long as
/// the device has any that are unanswered for that long. What `tell` panics with, as code of the program's may, keeps none from being told.
pub(crate) async fn watch(executor: Executor, tell: impl Fn(&Unanswered)) {
    let mut told: BTreeSet<String> = BTreeSet::new();
    loop {
        executor.sleep_ns(LOOK_NS).await;
        let mut silent: BTreeMap<String, Unanswered> = BTreeMap::new();
        for late in executor.unanswered(SILENCE_NS) {
            silent.entry(late.device.clone()).and_modify(|first| first.others += 1).or_insert(late);
        }
        for late in silent.values().filter(|late| !told.contains(&late.device)) {
            let _told = catch_unwind(AssertUnwindSafe(|| tell(late)));
        }
        told = silent.into_keys().collect();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Instant;
    use devices::Hardware;
    use executor::Order;
    use virtual_driver::{FaultPlan, Media, Options, Slow, VirtualDriver};

    #[test]
    fn a_silent_device_is_told_of_once_and_the_next_one_though_telling_panics() {
        let (from, factor) = (Instant::START, Slow::HUNG);
        let slow = |device: &str| Slow { device: device.into(), from, until: from.plus_ns(3_600 * SECOND_NS), factor };
        let faults = Some(FaultPlan { slow: vec![slow("data"), slow("flash")], ..FaultPlan::default() });
        let text = ["data", "flash"]
            .map(|name| format!("[device.{name}]\nmedium.service = \"20 us\"\nsync = \"20 us\"\n"))
            .concat();
        let hardware = Hardware::parse(&text, "test").expect("a description");
        let driver = VirtualDriver::new(hardware, Options { faults, ..Options::default() }, Media::new());
        let executor = Executor::new(Box::new(driver), Order::FirstInFirstOut);
        executor.contain_panics(|panic| panic);
        let told = Rc::new(RefCell::new(Vec::new()));
        let heard = Rc::clone(&told);
        executor.spawn(watch(executor.clone(), move |late| {
            heard.borrow_mut().push((late.device.clone(), late.others));
            assert!(heard.borrow().len() > 1, "the first");
        }));
        let asked = executor.run(async {
            for (device, names) in [("data", ["one", "other"]), ("flash", ["a third", "a fourth"])] {
                executor.sleep_ns(10 * SECOND_NS).await;
                let device = executor.device(device).expect("described");
                for name in names {
                    let own = executor.clone();
                    executor.spawn(async move { own.open(device, name, true).await });
                }
            }
            executor.sleep_ns(10 * SECOND_NS).await;
        });
        asked.expect("the machine goes on");
        executor.stop();
        let told = told.borrow();
        assert_eq!(*told, [("data".to_owned(), 1), ("flash".to_owned(), 1)]);
    }
}
