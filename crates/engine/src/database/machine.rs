use super::Database;
use crate::log::Log;
use base::time::SECOND_NS;
use driver::OpKind;
use executor::{Executor, Unanswered};
use std::cell::OnceCell;
use std::rc::{Rc, Weak};
use structures::canary::{self, Canary};

/// The executor that a database runs on. It stops when this is dropped: what the driver has under way on the files ends, and only
/// then do the locks of its directories go, even if others still have the executor or the database.
pub struct Machine(pub Executor);

impl Drop for Machine {
    fn drop(&mut self) {
        if !canary::is_planted(Canary::RunningMachine) {
            self.0.stop();
        }
    }
}

impl Machine {
    /// From now on everything ends that runs on it ([`driver::Halt::Unanswered`]) once something has waited for a device for longer than this, in
    /// nanoseconds: unless it can do without that device, as with a cache, or with one of two logs once the database is [open](SilenceLimit::opened).
    pub fn limit_answers(&self, limit_ns: u64) -> SilenceLimit {
        let log: Rc<OnceCell<Weak<Log>>> = Rc::default();
        let opened = Rc::clone(&log);
        let is_spare = move |file: &str| opened.get().and_then(Weak::upgrade).is_some_and(|log| log.can_lose(file));
        self.0.limit_answers(limit_ns, move |late| is_overdue(late, limit_ns, &is_spare));
        SilenceLimit { log }
    }
}

/// For how long devices may leave something unanswered ([`Machine::limit_answers`]).
pub struct SilenceLimit {
    log: Rc<OnceCell<Weak<Log>>>,
}

impl SilenceLimit {
    /// This database is open, and may have lost one of its logs; an opening reads both of two, and does without none.
    pub fn opened(&self, database: &Database) {
        let _first = self.log.set(Rc::downgrade(database.log()));
    }
}

/// How much longer than other requests those may take that give a file room or take it away, in nanoseconds: room may be written.
const ROOM_NS: u64 = 60 * SECOND_NS;

/// Whether a database is given up that a device has left with this. A cache is done without once it is silent, and so is a file that is one of the
/// log's and `is_spare`.
fn is_overdue(late: &Unanswered, limit_ns: u64, is_spare: impl Fn(&str) -> bool) -> bool {
    if canary::is_planted(Canary::EndlessSilence) {
        return false;
    }
    const CACHES: [&str; 3] = ["cache.tier", "cache-table.tier", "upper-cache.tier"];
    let is_done_without = |file: &String| CACHES.contains(&file.as_str()) || is_spare(file);
    let room_ns = if matches!(late.kind, OpKind::Open | OpKind::Resize | OpKind::Remove) { ROOM_NS } else { 0 };
    late.waited_ns > limit_ns.saturating_add(room_ns) && !late.file.as_ref().is_some_and(is_done_without)
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Instant;

    #[test]
    fn what_is_done_without_gives_no_database_up() {
        let is_given_up = |kind, file: &str, waited_ns, spare: &[&str]| {
            let file = Some(file.to_owned());
            let late =
                Unanswered { kind, device: "disk".to_owned(), file, since: Instant::START, waited_ns, others: 0 };
            is_overdue(&late, 5 * SECOND_NS, |file| spare.contains(&file))
        };
        let late_ns = 6 * SECOND_NS;
        assert!(is_given_up(OpKind::Read, "notes.pages", late_ns, &[]));
        assert!(!is_given_up(OpKind::Read, "notes.pages", 4 * SECOND_NS, &[]));
        assert!(is_given_up(OpKind::Write, "log", late_ns, &[]));
        assert!(!is_given_up(OpKind::Write, "log", late_ns, &["log", "log-2"]));
        assert!(is_given_up(OpKind::Write, "log", late_ns, &["log-2"]), "the other one was lost");
        assert!(!is_given_up(OpKind::Write, "cache-table.tier", late_ns, &[]));
        assert!(!is_given_up(OpKind::Read, "upper-cache.tier", late_ns, &[]));
        assert!(is_given_up(OpKind::Read, "write-buffer.tier", late_ns, &[]));
        assert!(!is_given_up(OpKind::Resize, "log", late_ns, &[]));
        assert!(is_given_up(OpKind::Resize, "log", 66 * SECOND_NS, &[]));
    }
}
