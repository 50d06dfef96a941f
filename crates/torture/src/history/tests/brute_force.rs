//! Small random histories against models that try everything: all serial orders; all orders of beginnings and commits.

use super::super::outcomes::Outcomes;
use super::super::transaction::{Moment, Operation};
use super::super::{History, Key, Level, Span, Version};
use base::Random;
use std::collections::BTreeMap;

const KEYS: u64 = 3;

fn key(number: u64) -> Key {
    Key { store: "tree", number }
}

/// What each key holds: a version and whether it is a record.
type State = BTreeMap<Key, (Version, bool)>;

fn shown(state: &State, key: Key) -> Option<Version> {
    state.get(&key).and_then(|(version, is_there)| is_there.then_some(*version))
}

/// What random histories are like.
#[derive(Clone, Copy)]
struct Kind {
    /// What is read: at a snapshot what was committed at the beginning, else what is committed.
    level: Level,
    transactions: usize,
    /// How many transactions are under way at once.
    at_once: usize,
    deletes: bool,
    /// How often something that was committed at some other time is read.
    error: f64,
}

/// A random history.
fn random_history(random: &mut Random, kind: Kind) -> History {
    let Kind { level, transactions, at_once, deletes, error } = kind;
    let mut history = History::default();
    let (mut committed, mut past) = (State::new(), Vec::new());
    // Each client's transaction: number, the state of its beginning, its writes, how many acts are left.
    let mut running: Vec<Option<(usize, State, State, u64)>> = vec![None; at_once];
    let (mut begun, mut ended) = (0, 0);
    while ended < transactions {
        let place = random.below(running.len() as u64) as usize;
        let Some((number, snapshot, own, left)) = &mut running[place] else {
            if begun < transactions {
                let number = history.begin(level);
                history.started(number);
                running[place] = Some((number, committed.clone(), State::new(), random.between(1, 3)));
                begun += 1;
            }
            continue;
        };
        if *left == 0 {
            history.asks(*number);
            history.committed(*number);
            committed.extend(std::mem::take(own));
            past.push(committed.clone());
            ended += 1;
            running[place] = None;
            continue;
        }
        *left -= 1;
        let view = match level {
            _ if random.chance(error) && !past.is_empty() => random.choose(&past).expect("some").clone(),
            Level::Snapshot => snapshot.clone(),
            _ => committed.clone(),
        };
        let look = |key| if own.contains_key(&key) { shown(own, key) } else { shown(&view, key) };
        let chosen = key(random.below(KEYS));
        match random.below(6) {
            0 | 1 => history.read(*number, chosen, look(chosen)),
            2 => {
                let found = (0..KEYS).filter_map(|number| Some((key(number), look(key(number))?))).collect();
                history.scanned(*number, "tree", Span::ALL, found);
            }
            _ => {
                // Writers of a key wait for each other in any engine, so a client that would have to wait does not write.
                let is_taken = running.iter().enumerate().any(|(other, transaction)| {
                    let has = transaction.as_ref().is_some_and(|(.., own, _)| own.contains_key(&chosen));
                    other != place && has
                });
                let Some((number, _, own, _)) = &mut running[place] else { unreachable!("it runs") };
                if !is_taken {
                    let version = history.new_version(*number, chosen);
                    let is_record = !(deletes && random.chance(0.3));
                    history.wrote(*number, version, is_record.then_some(chosen.number));
                    own.insert(chosen, (version, is_record));
                }
            }
        }
    }
    history
}

/// Whether a transaction would have been shown the same in this state; then its writes are in it.
fn replays(history: &History, number: usize, view: &State, committed: &mut State) -> bool {
    let mut own = State::new();
    for (_, operation) in &history.transactions[number].operations {
        let look = |key| if own.contains_key(&key) { shown(&own, key) } else { shown(view, key) };
        let same = match operation {
            Operation::Read { key, found } => look(*key) == *found,
            Operation::Scanned { found, .. } => {
                let expected: Vec<_> = (0..KEYS).filter_map(|number| Some((key(number), look(key(number))?))).collect();
                expected == *found
            }
            Operation::Wrote { key, version, place } => {
                own.insert(*key, (*version, place.is_some()));
                true
            }
            Operation::RolledBackTo { .. } | Operation::LeftOut => unreachable!("neither is here"),
        };
        if !same {
            return false;
        }
    }
    committed.extend(own);
    true
}

/// Whether a key's versions come in the order of the writes, as far as `committed` shows: each newer than the last.
fn is_in_order(history: &History, before: &State, after: &State) -> bool {
    let outcomes = Outcomes::of(history);
    let position = |key: &Key, version: Version| {
        outcomes.order(*key).iter().position(|installed| installed.version == version).expect("it is installed")
    };
    after.iter().all(|(key, (version, _))| {
        let old = before.get(key).map_or(Version::INITIAL, |(version, _)| *version);
        old == *version || position(key, old) < position(key, *version)
    })
}

/// Whether some serial order, in accordance with real time, shows every transaction what it was shown.
fn is_serializable(history: &History, done: &[usize], state: &State) -> bool {
    let all = &history.transactions;
    if done.len() == all.len() {
        return true;
    }
    (0..all.len()).filter(|number| !done.contains(number)).any(|number| {
        let is_late = |other: usize| {
            let acknowledged = all[other].acknowledged().expect("all are committed");
            !done.contains(&other) && other != number && acknowledged < all[number].begun
        };
        let mut next = state.clone();
        if (0..all.len()).any(is_late) || !replays(history, number, state, &mut next) {
            return false;
        }
        let done = [done, &[number]].concat();
        is_in_order(history, state, &next) && is_serializable(history, &done, &next)
    })
}

/// A point of a transaction: its beginning or its commit, and when it must have been.
fn interval(history: &History, number: usize, commits: bool) -> (Moment, Moment) {
    let transaction = &history.transactions[number];
    let (from, to) = if commits {
        (transaction.asked, transaction.acknowledged())
    } else {
        (Some(transaction.begun), transaction.started)
    };
    (from.expect("known"), to.expect("known"))
}

/// Whether some order of beginnings and commits, in accordance with real time, shows every transaction the state at its
/// beginning, and no transaction overwrites what was committed after its beginning.
fn is_snapshot_isolated(history: &History, done: &[(usize, bool)], states: &[State]) -> bool {
    let count = history.transactions.len();
    if done.len() == 2 * count {
        return true;
    }
    let points: Vec<(usize, bool)> = (0..count).flat_map(|number| [(number, false), (number, true)]).collect();
    points.iter().filter(|point| !done.contains(point)).any(|point| {
        let (number, commits) = *point;
        let is_late = |other: &(usize, bool)| {
            let must_precede = interval(history, other.0, other.1).1 < interval(history, number, commits).0;
            other != point && !done.contains(other) && (must_precede || commits && *other == (number, false))
        };
        if points.iter().any(is_late) {
            return false;
        }
        let now = states.last().expect("there is a first");
        let mut next = now.clone();
        if commits {
            let began = done.iter().position(|point| *point == (number, false)).expect("it has begun");
            let snapshot = &states[began];
            let mut written = State::new();
            if !replays(history, number, snapshot, &mut written) {
                return false;
            }
            if written.keys().any(|key| snapshot.get(key) != now.get(key)) {
                return false;
            }
            next.extend(written);
            if !is_in_order(history, now, &next) {
                return false;
            }
        }
        let done = [done, &[*point]].concat();
        is_snapshot_isolated(history, &done, &[states, &[next]].concat())
    })
}

/// How many of the histories were found sound, of how many.
fn compare(level: Level, transactions: u64, deletes: bool, is_sound: impl Fn(&History) -> bool) -> (u32, u32) {
    let mut random = Random::stream(transactions, "brute force");
    let (mut sound, mut all) = (0, 0);
    for _ in 0..1_500 {
        // Histories of one kind of engine, held against the promise of another.
        let kind = Kind {
            level: if random.chance(0.5) { Level::ReadCommitted } else { Level::Snapshot },
            transactions: random.between(2, transactions) as usize,
            at_once: 2,
            deletes,
            error: if random.chance(0.5) { 0.0 } else { 0.1 },
        };
        let mut history = random_history(&mut random, kind);
        history.transactions.iter_mut().for_each(|transaction| transaction.level = level);
        let (expected, anomalies) = (is_sound(&history), history.anomalies());
        // With deletions it may be unknown which absence was met; then only what is certainly wrong is found.
        let agrees = anomalies.is_empty() == expected || deletes && anomalies.is_empty();
        assert!(agrees, "sound: {expected}, {anomalies:?}\n{history:?}");
        sound += u32::from(expected);
        all += 1;
    }
    (sound, all)
}

#[test]
fn what_is_serializable_is_what_some_serial_order_gives() {
    for deletes in [false, true] {
        let (sound, all) =
            compare(Level::Serializable, 6, deletes, |history| is_serializable(history, &[], &State::new()));
        assert!(sound > all / 10 && sound < all * 9 / 10, "{sound} of {all}");
    }
}

#[test]
fn what_is_snapshot_isolated_is_what_some_snapshots_give() {
    for deletes in [false, true] {
        let (sound, all) =
            compare(Level::Snapshot, 4, deletes, |history| is_snapshot_isolated(history, &[], &[State::new()]));
        assert!(sound > all / 10 && sound < all * 9 / 10, "{sound} of {all}");
    }
}

#[test]
fn what_a_serial_executor_does_is_serializable() {
    let mut random = Random::stream(1, "serial");
    for transactions in 1..60 {
        let kind = Kind { level: Level::Serializable, transactions, at_once: 1, deletes: true, error: 0.0 };
        let history = random_history(&mut random, kind);
        assert_eq!(history.anomalies(), []);
        assert_eq!(history.len(), transactions);
    }
}

#[test]
fn reads_of_what_is_committed_are_reads_of_what_is_committed() {
    let mut random = Random::stream(2, "read committed");
    let mut skewed = 0;
    for transactions in 1..60 {
        let kind = Kind { level: Level::ReadCommitted, transactions, at_once: 4, deletes: true, error: 0.0 };
        let mut history = random_history(&mut random, kind);
        assert_eq!(history.anomalies(), []);
        history.transactions.iter_mut().for_each(|transaction| transaction.level = Level::Serializable);
        skewed += u32::from(!history.anomalies().is_empty());
    }
    assert!(skewed > 30, "{skewed}: more was not promised");
}
