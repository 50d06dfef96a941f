//! What was known when the log had come to a position: a database that ends there is compared with it.
//!
//! A change that is asked for when the log ends at a position stands behind that, and one that is acknowledged when the log ends at
//! another one stands before it. Between these two it is in doubt.

use crate::ledger::TransferOutcome;
use crate::lost_end::LogEnd;
use crate::oracle::Oracle;
use crate::partitions::Known;
use crate::records::Owner;
use base::Lsn;
use std::collections::BTreeMap;

/// What was known of one thing, in the order of time.
#[derive(Clone, Debug)]
struct Timeline<T>(Vec<KnownThen<T>>);

#[derive(Clone, Debug)]
struct KnownThen<T> {
    /// Where the log ended.
    position: Lsn,
    /// Whether nothing is in doubt.
    is_certain: bool,
    known: T,
}

impl<T> Default for Timeline<T> {
    fn default() -> Self {
        Timeline(Vec::new())
    }
}

impl<T> Timeline<T> {
    /// What is known of a database whose log ends at `end`. What was asked for there or behind it is not in it.
    fn at(&self, end: Lsn) -> Option<&T> {
        let counts = |moment: &&KnownThen<T>| moment.position < end || moment.is_certain && moment.position == end;
        self.0.iter().rev().find(counts).map(|moment| &moment.known)
    }

    /// The same of what positions do not order, as the superblock file has it beside the log: what was noted there may be before the end
    /// or behind it.
    fn around(&self, end: Lsn) -> impl Iterator<Item = &T> {
        let before = self.0.iter().rev().find(|moment| moment.position < end);
        let beside = self.0.iter().filter(move |moment| moment.position == end);
        before.into_iter().chain(beside).map(|moment| &moment.known)
    }

    fn end_at(&mut self, end: Lsn) {
        self.0.retain(|moment| moment.position <= end);
    }

    fn note(&mut self, position: Lsn, is_certain: bool, known: T) {
        self.0.push(KnownThen { position, is_certain, known });
    }
}

/// A transfer's place in the log.
#[derive(Clone, Copy, Debug)]
struct Bracket {
    /// It stands behind this.
    from: Lsn,
    /// And before this, if it was acknowledged.
    to: Option<Lsn>,
}

/// All that was known, by position.
#[derive(Clone, Debug, Default)]
pub struct Past {
    transfers: BTreeMap<u64, Bracket>,
    owners: BTreeMap<usize, Timeline<Owner>>,
    own: BTreeMap<String, Timeline<Known>>,
    /// Where the log ended when bulk loads were asked for,
    loads: Vec<Lsn>,
    /// and when partitions or indexes were to be dropped, renamed, truncated or made.
    changes: Vec<Lsn>,
}

impl Past {
    /// Forgets what was noted behind `end`, where the log ends now and goes on.
    pub fn end_at(&mut self, end: Lsn) {
        self.transfers.retain(|_, bracket| bracket.from < end);
        self.transfers.values_mut().for_each(|bracket| bracket.to = bracket.to.filter(|to| *to <= end));
        self.owners.values_mut().for_each(|owner| owner.end_at(end));
        self.own.values_mut().for_each(|partition| partition.end_at(end));
        self.loads.retain(|begun| *begun <= end);
        self.changes.retain(|begun| *begun <= end);
    }

    /// Notes that a partition is about to be bulk-loaded.
    pub fn note_load(&mut self, position: Lsn) {
        self.loads.push(position);
    }

    /// Whether a load may have ended at `position`.
    pub fn may_have_loaded(&self, position: Lsn) -> bool {
        self.loads.iter().any(|begun| *begun <= position)
    }

    /// Notes that a partition or an index is about to be dropped, renamed, truncated or made.
    pub fn note_change(&mut self, position: Lsn) {
        self.changes.push(position);
    }

    /// Whether one of those may have been done at `position`.
    pub fn may_have_changed(&self, position: Lsn) -> bool {
        self.changes.iter().any(|begun| *begun <= position)
    }

    /// Notes what a client knows of a transfer now.
    pub fn note_transfer(&mut self, id: u64, outcome: TransferOutcome, position: Lsn) {
        let bracket = self.transfers.entry(id).or_insert(Bracket { from: position, to: None });
        if outcome == TransferOutcome::Acknowledged {
            bracket.to = bracket.to.or(Some(position));
        }
    }

    /// Notes what a client knows of its records now.
    pub fn note_owner(&mut self, number: usize, owner: &Owner, position: Lsn) {
        self.owners.entry(number).or_default().note(position, owner.doubt.is_none(), owner.clone());
    }

    /// Notes what is known of a partition now, unless that is what was known.
    pub fn note_partition(&mut self, name: &str, known: &Known, position: Lsn) {
        let timeline = self.own.entry(name.to_owned()).or_default();
        if timeline.0.last().is_none_or(|last| !last.known.is_same(known)) {
            timeline.note(position, known.state().is_some(), known.clone());
        }
    }

    /// What is known of a database whose log ends at `end`, if `present` is what is known of the one that it is of.
    pub fn at(&self, present: &Oracle, end: Lsn) -> Oracle {
        let outcome = |id: u64, outcome: TransferOutcome| match self.transfers.get(&id) {
            _ if outcome == TransferOutcome::Undone => outcome,
            Some(bracket) if bracket.to.is_some_and(|to| to <= end) => TransferOutcome::Acknowledged,
            Some(bracket) if bracket.from < end => TransferOutcome::InDoubt,
            _ => TransferOutcome::Undone,
        };
        let owner = |number: usize| {
            let then = self.owners.get(&number).and_then(|owner| owner.at(end)).cloned().unwrap_or_default();
            // What a committed transaction has read since may stand behind the end.
            Owner { seen: 0, ..then }
        };
        let partition = |name: &String| {
            let mut around = self.own.get(name).into_iter().flat_map(|partition| partition.around(end));
            let is_new = self.own.get(name).is_none_or(|partition| partition.0.iter().all(|it| it.position >= end));
            let first = if is_new { None } else { around.next() }.cloned().unwrap_or_default();
            (name.clone(), around.fold(first, Known::or))
        };
        Oracle {
            created: true,
            log_copy_lost: false,
            loaded: true,
            partitions: present.partitions.clone(),
            ledger: present.ledger.with(outcome),
            owners: (0..present.owners.len()).map(owner).collect(),
            own: present.own.keys().map(partition).collect(),
            renames: Vec::new(),
            unlocked: present.unlocked.clone(),
            history: present.history.clone(),
            moments: present.moments.iter().filter(|(moment, _)| *moment <= end).copied().collect(),
            acknowledged: present.acknowledged,
            past: None,
            log_end: LogEnd::default(),
            backups: Vec::new(),
            is_list_in_doubt: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_for_at_an_end_is_behind_it_and_what_is_told_there_is_before_it() {
        let mut timeline = Timeline::default();
        timeline.note(Lsn(10), true, "old");
        timeline.note(Lsn(20), false, "old or new");
        timeline.note(Lsn(30), true, "new");
        let known = [9, 10, 20, 21, 29, 30, 99].map(|end| timeline.at(Lsn(end)).copied());
        let (old, doubt, new) = (Some("old"), Some("old or new"), Some("new"));
        assert_eq!(known, [None, old, old, doubt, doubt, new, new]);
    }

    #[test]
    fn a_transfer_is_in_doubt_between_its_request_and_its_answer() {
        let mut past = Past::default();
        past.note_transfer(1, TransferOutcome::InDoubt, Lsn(20));
        past.note_transfer(1, TransferOutcome::Acknowledged, Lsn(30));
        let transfer = crate::ledger::Transfer { account: 0, teller: 0, branch: 0, delta: 1 };
        let mut present = Oracle::default();
        present.ledger.enter(1, transfer, TransferOutcome::Acknowledged);
        let at = |end| past.at(&present, Lsn(end)).ledger.outcomes().next().map(|(_, outcome)| outcome);
        let (undone, doubt) = (Some(TransferOutcome::Undone), Some(TransferOutcome::InDoubt));
        assert_eq!([at(20), at(21), at(29), at(30)], [undone, doubt, doubt, Some(TransferOutcome::Acknowledged)]);
    }
}
