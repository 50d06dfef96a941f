//! Random histories of transactions, sweeps and crashes.

use super::*;
use std::collections::BTreeMap;

type Key = (PartitionId, Vec<u8>);
/// New values, and records that are gone.
type Changed = BTreeMap<Key, Option<Vec<u8>>>;
type Records = BTreeMap<Key, Vec<u8>>;

const OWNERS: u64 = 3;
const PARTITIONS: [PartitionId; 2] = [KEYED, ARRIVAL];

/// A commit record: redo, and which of the changes the sweep that ran then had in its backup.
struct Commit {
    redo: Vec<u8>,
    included: Vec<bool>,
    sweep: Option<usize>,
}

/// What a transaction sees of its own changes, and where it could go back to.
#[derive(Default)]
struct Open {
    changed: Changed,
    savepoints: Vec<(ChangePosition, Changed)>,
}

/// The backup: two copies of each set's images, the position in the log where the sweep of each began, and which is whole.
#[derive(Default)]
struct Backup {
    copies: [BTreeMap<(PartitionId, u32), Vec<u8>>; 2],
    counts: [[u32; 2]; 2],
    begins: [usize; 2],
    current: Option<usize>,
    /// The number of the sweep that wrote each copy, and how many there have been.
    writers: [usize; 2],
    sweeps: usize,
    /// The sweep that runs.
    sweep: Option<Sweep>,
}

/// A sweep: what is still to be passed, how a consistent backup is taken, and, if it is one of transactions, what it is to
/// hold in the end.
struct Sweep {
    number: usize,
    left: Vec<(PartitionId, u32)>,
    capture: Option<Capture>,
    expected: Records,
}

impl Backup {
    fn target(&self) -> usize {
        self.current.map_or(0, |current| 1 - current)
    }
}

fn apply(records: &mut Records, changed: &Changed) {
    for (key, value) in changed {
        match value {
            Some(value) => records.insert(key.clone(), value.clone()),
            None => records.remove(key),
        };
    }
}

fn records(sets: &Sets) -> Records {
    let of_set = |partition: PartitionId| {
        sets.iterate(partition).map(move |(key, value)| ((partition, key.to_vec()), value.to_vec()))
    };
    PARTITIONS.into_iter().flat_map(of_set).collect()
}

struct World {
    random: Random,
    sets: Sets,
    committed: Records,
    open: Vec<Open>,
    holders: BTreeMap<Key, usize>,
    log: Vec<Commit>,
    logging: Logging,
    whole_fields: bool,
    backup: Backup,
    key_count: u64,
    length_max: u64,
    /// How often a black/white sweep refused a change, how many sweeps of transactions came to their end, and how many
    /// segments were taken of which a sweep had saved records.
    refused: u64,
    consistent: u64,
    restored: u64,
    /// How many segments were emptied, and how many records moved to that end.
    gone: u64,
    moved: u64,
}

impl World {
    fn new(seed: u64, logging: Logging, whole_fields: bool) -> World {
        let mut random = Random::stream(seed, "sets");
        let key_count = [4, 60, 400][random.below(3) as usize];
        let length_max = [8, 150, 3000][random.below(3) as usize];
        let mut sets = two_sets();
        sets.set_logging(logging, whole_fields);
        World {
            random,
            sets,
            logging,
            whole_fields,
            committed: BTreeMap::new(),
            open: (0..OWNERS).map(|_| Open::default()).collect(),
            holders: BTreeMap::new(),
            log: Vec::new(),
            backup: Backup::default(),
            key_count,
            length_max,
            refused: 0,
            consistent: 0,
            restored: 0,
            gone: 0,
            moved: 0,
        }
    }

    fn seen(&self, owner: usize, key: &Key) -> Option<&Vec<u8>> {
        self.open[owner].changed.get(key).map_or_else(|| self.committed.get(key), Option::as_ref)
    }

    /// A key that no other transaction has changed; one of an arrival exists or has existed.
    fn choose(&mut self, owner: usize) -> Option<Key> {
        let key = if self.random.chance(0.7) {
            let number = self.random.below(self.key_count);
            (KEYED, vec![number as u8; 1 + number as usize / 40])
        } else {
            let arrivals = self.sets.set(ARRIVAL).arrival;
            let latest = self.random.below(self.key_count).min(arrivals);
            (ARRIVAL, (arrivals - latest).to_be_bytes().to_vec())
        };
        let is_free = self.holders.get(&key).is_none_or(|holder| *holder == owner);
        is_free.then_some(key)
    }

    fn note(&mut self, owner: usize, key: Key, value: Option<Vec<u8>>) {
        self.holders.insert(key.clone(), owner);
        self.open[owner].changed.insert(key, value);
    }

    fn value(&mut self) -> Vec<u8> {
        let length = self.random.below(self.length_max);
        bytes(&mut self.random, length)
    }

    fn change(&mut self, owner: usize) {
        if let Err(refusal) = self.try_change(owner) {
            let capture = self.backup.sweep.as_ref().and_then(|sweep| sweep.capture);
            assert!(
                matches!((refusal, capture), (Refusal::MixedColours(_), Some(Capture::BlackWhite(_)))),
                "{refusal:?}"
            );
            self.refused += 1;
            self.end(owner, false);
        }
    }

    fn try_change(&mut self, owner: usize) -> Result<(), Refusal> {
        if self.random.chance(0.15) {
            let value = self.value();
            let append = |sets: &mut Sets| sets.append(Owner(owner as u32), ARRIVAL, &value);
            let number = with_room(&mut self.sets, ARRIVAL, append)?;
            self.note(owner, (ARRIVAL, number.to_be_bytes().to_vec()), Some(value));
            return Ok(());
        }
        let Some(key) = self.choose(owner) else { return Ok(()) };
        let (partition, name) = key.clone();
        let (id, digest) = (Owner(owner as u32), hash(&name));
        let old = self.seen(owner, &key).cloned();
        assert_eq!(self.sets.get(id, partition, &name, digest)?, old.as_deref());
        match (old, self.random.below(4)) {
            (None, 0) => assert_eq!(self.sets.delete(id, partition, &name, digest), Ok(false)),
            (None, _) if partition == ARRIVAL => {
                assert_eq!(self.sets.modify(id, partition, &name, digest, |_| ()), Err(Refusal::Missing));
            }
            (None, _) => {
                let value = self.value();
                let insert = |sets: &mut Sets| sets.insert(id, partition, &name, digest, &value);
                with_room(&mut self.sets, partition, insert)?;
                self.note(owner, key, Some(value));
            }
            (Some(_), 0) => {
                assert!(self.sets.delete(id, partition, &name, digest)?);
                self.note(owner, key, None);
            }
            (Some(_), 1) => {
                let value = self.value();
                let replace = |sets: &mut Sets| sets.replace(id, partition, &name, digest, &value);
                with_room(&mut self.sets, partition, replace)?;
                self.note(owner, key, Some(value));
            }
            (Some(mut value), 2) if value.len() >= 4 => {
                let at = self.random.below(value.len() as u64 - 3) as usize;
                let amount = self.random.between(0, 600) as i64 - 300;
                let old = u32::from_le_bytes(value[at..at + 4].try_into().expect("four bytes"));
                let sum = self.sets.add(id, partition, &name, digest, at..at + 4, amount)?;
                let new = old.wrapping_add_signed(amount as i32);
                assert_eq!(sum, u64::from(new));
                value[at..at + 4].copy_from_slice(&new.to_le_bytes());
                self.note(owner, key, Some(value));
            }
            (Some(mut value), _) => {
                let from = self.random.below(value.len() as u64 + 1) as usize;
                let to = self.random.between(from as u64, value.len() as u64) as usize;
                let new = bytes(&mut self.random, (to - from) as u64);
                if self.random.chance(0.5) {
                    let patch = |value: &mut [u8]| value[from..to].copy_from_slice(&new);
                    self.sets.modify(id, partition, &name, digest, patch)?;
                } else {
                    let patch = |part: &mut [u8]| part.copy_from_slice(&new);
                    self.sets.modify_part(id, partition, &name, digest, from..to, patch)?;
                }
                value[from..to].copy_from_slice(&new);
                self.note(owner, key, Some(value));
            }
        }
        Ok(())
    }

    fn end(&mut self, owner: usize, is_committed: bool) {
        let id = Owner(owner as u32);
        let Open { changed, .. } = std::mem::take(&mut self.open[owner]);
        if is_committed {
            let included = self.sets.included(id).collect();
            let sweep = self.backup.sweep.as_ref().map(|sweep| sweep.number);
            self.log.push(Commit { redo: self.sets.redo(id).to_vec(), included, sweep });
            let is_white = self.sets.watch.allowed(id) == segment::WHITE;
            self.sets.commit(id);
            if let Some(sweep) = &mut self.backup.sweep
                && sweep.capture == Some(Capture::BlackWhite(SweepUnit::Transaction))
                && is_white
            {
                apply(&mut sweep.expected, &changed);
            }
            apply(&mut self.committed, &changed);
        } else {
            self.sets.roll_back(id);
        }
        self.holders.retain(|_, holder| *holder != owner);
        assert_eq!(self.sets.position(id), ChangePosition::default());
    }

    fn savepoint(&mut self, owner: usize) {
        let id = Owner(owner as u32);
        let open = &mut self.open[owner];
        if self.random.chance(0.5) {
            open.savepoints.push((self.sets.position(id), open.changed.clone()));
        } else if let Some((position, changed)) = open.savepoints.pop() {
            self.sets.roll_back_to(id, position);
            open.changed = changed;
        }
    }

    fn begin_sweep(&mut self) {
        let copy = self.backup.target();
        self.backup.begins[copy] = self.log.len();
        self.backup.sweeps += 1;
        let capture = match self.random.below(if self.logging == Logging::Values { 5 } else { 4 }) {
            0 => Some(Capture::BlackWhite(SweepUnit::Action)),
            1 => Some(Capture::BlackWhite(SweepUnit::Transaction)),
            2 => Some(Capture::CopyOnUpdate),
            3 => Some(Capture::StableVersions),
            _ => None,
        };
        if let Some(capture) = capture {
            self.sets.begin_capture(capture);
        }
        self.backup.counts[copy] = PARTITIONS.map(|partition| self.sets.segments(partition));
        self.backup.sweep = Some(Sweep {
            number: self.backup.sweeps,
            left: self.segments(),
            capture,
            expected: self.committed.clone(),
        });
    }

    fn segments(&self) -> Vec<(PartitionId, u32)> {
        let of_set = |partition| (0..self.sets.segments(partition)).map(move |segment| (partition, segment));
        PARTITIONS.into_iter().flat_map(of_set).collect()
    }

    /// Takes the sweep one segment further, or begins one.
    fn sweep(&mut self) {
        let copy = self.backup.target();
        let Some(sweep) = &mut self.backup.sweep else {
            return if self.random.chance(0.5) { self.vacate() } else { self.begin_sweep() };
        };
        if self.random.chance(0.002) {
            return self.give_up_sweep();
        }
        if sweep.left.is_empty() {
            return self.end_sweep();
        }
        let at = self.random.below(sweep.left.len() as u64) as usize;
        let (partition, segment) = sweep.left[at];
        if sweep.capture.is_some() && !self.sets.may_take(partition, segment) {
            return;
        }
        sweep.left.swap_remove(at);
        let is_captured = sweep.capture.is_some();
        let preserved = self.sets.set(partition).segments[segment as usize].preserved.as_ref();
        let state = preserved.map(|preserved| &preserved.state);
        self.restored += u64::from(matches!(state, Some(capture::PreservedState::Records(_))));
        if self.sets.is_dirty(partition, segment, copy) {
            self.sets.clear_dirty(partition, segment, copy);
            let image = self.take(partition, segment);
            self.backup.copies[copy].insert((partition, segment), image);
        }
        if is_captured {
            self.sets.mark_taken(partition, segment);
        }
    }

    /// Empties last segments, some way.
    fn vacate(&mut self) {
        for partition in PARTITIONS {
            for _ in 0..self.random.below(30) {
                let (segments, records_max) = (self.sets.segments(partition), self.random.between(1, 40));
                let (gone, moved) = match self.sets.vacate(partition, records_max) {
                    Vacated::Full => break,
                    Vacated::Moved(moved) => (0, moved),
                    Vacated::Gone(moved) => (1, moved),
                };
                assert!(moved <= records_max && self.sets.segments(partition) == segments - gone);
                (self.gone, self.moved) = (self.gone + u64::from(gone), self.moved + moved);
            }
            if self.random.chance(0.5) {
                self.sets.end_vacating(partition);
            }
        }
        self.compare();
    }

    /// What the sweep writes of a segment, by one of the ways to get it.
    fn take(&mut self, partition: PartitionId, segment: u32) -> Vec<u8> {
        let mut image = vec![0xee; self.sets.segment_size(partition)];
        self.sets.image(partition, segment, &mut image);
        if let Some(frame) = self.sets.take_snapshot(partition, segment) {
            assert!(image == *frame);
            self.sets.reuse(frame);
        } else if self.random.chance(0.3)
            && let Some(frame) = self.sets.lend(partition, segment)
        {
            image.copy_from_slice(&frame);
            self.sets.take_back(partition, segment, frame);
        }
        image
    }

    /// As after a write that failed: the copy stays incomplete, and the next sweep goes on with it.
    fn give_up_sweep(&mut self) {
        self.backup.sweep = None;
        self.sets.end_capture();
        self.sets.check().expect("sound");
    }

    fn end_sweep(&mut self) {
        let copy = self.backup.target();
        let Sweep { number, capture, expected, .. } = self.backup.sweep.take().expect("a sweep runs");
        self.backup.writers[copy] = number;
        self.backup.current = Some(copy);
        if capture.is_some() {
            self.sets.end_capture();
            self.sets.check().expect("sound");
        }
        if self.random.chance(0.3) {
            self.compare_restarted();
        }
        if capture.is_some_and(|capture| capture != Capture::BlackWhite(SweepUnit::Action)) {
            let restored = records(&self.restore(copy));
            assert!(restored == expected, "{capture:?}: {} records, not {}", restored.len(), expected.len());
            self.consistent += 1;
        }
    }

    /// The sets that a copy of the backup holds.
    fn restore(&self, copy: usize) -> Sets {
        let mut sets = two_sets();
        for (partition, count) in PARTITIONS.into_iter().zip(self.backup.counts[copy]) {
            for segment in 0..count {
                let mut image = frame(sets.segment_size(partition));
                match self.backup.copies[copy].get(&(partition, segment)) {
                    Some(stored) => image.copy_from_slice(stored),
                    None => panic!("segment {segment} of {partition:?} was never written"),
                }
                sets.load(partition, segment, copy, image).expect("a sound image");
                // Parts of the index are away at different times.
                let shares: Vec<Share> =
                    std::iter::from_fn(|| sets.share(partition, 1 + segment as usize % 9)).collect();
                shares.into_iter().for_each(|share| sets.put_back(share.build()));
            }
        }
        sets.finish_load();
        sets.check().expect("sound after loading");
        sets
    }

    /// What a restart would find now is what was committed.
    fn compare_restarted(&self) {
        let found = records(&self.restarted());
        assert!(found == self.committed, "a restart finds {} records, not {}", found.len(), self.committed.len());
    }

    /// The sets as they come back from the whole copy of the backup and the log.
    fn restarted(&self) -> Sets {
        let (mut sets, begin) = match self.backup.current {
            Some(copy) => (self.restore(copy), self.backup.begins[copy]),
            None => (two_sets(), 0),
        };
        let writer = self.backup.current.map(|copy| self.backup.writers[copy]);
        // Every set goes through its changes of a piece of the log by itself, whatever the others do.
        let length = 1 + self.log.len() % 17;
        for (number, piece) in self.log[begin..].chunks(length).enumerate() {
            let (mut bytes, mut sorted) = (Vec::new(), SortedChanges::default());
            for Commit { redo, included, sweep } in piece {
                let is_there = |position: usize| sweep.is_some() && *sweep == writer && included[position];
                let skip = |position| self.logging == Logging::Actions && is_there(position);
                let from = bytes.len();
                bytes.extend_from_slice(redo);
                sorted.add(&bytes, (from, bytes.len()), skip).expect("sound redo");
            }
            let mut by_set: Vec<_> = sorted.by_set().collect();
            if number % 2 == 1 {
                by_set.reverse();
            }
            for (partition, changes) in by_set {
                let mut detached = sets.detach_for_replay(partition).expect("it is here");
                assert!(sets.detach_for_replay(partition).is_none());
                let mut from = 0;
                while let Some(ReplayStop::NoRoom(number)) = detached.replay(&bytes, &changes, from) {
                    from = number;
                    detached.grow(Frame::allocate(1 + number % 2, 16 << 10));
                }
                sets.reattach(detached);
            }
        }
        sets.set_logging(self.logging, self.whole_fields);
        sets
    }

    /// Loses the memory, and comes back.
    fn crash(&mut self) {
        self.sets = self.restarted();
        self.backup.sweep = None;
        self.open = (0..OWNERS).map(|_| Open::default()).collect();
        self.holders.clear();
        self.compare();
    }

    /// The records that are seen, by all, are those of the model.
    fn compare(&self) {
        self.sets.check().expect("sound");
        let mut expected = self.committed.clone();
        self.open.iter().for_each(|open| apply(&mut expected, &open.changed));
        let found = records(&self.sets);
        assert!(found == expected, "the sets hold {} records, the model {}", found.len(), expected.len());
        let in_set = |partition| expected.keys().filter(|key| key.0 == partition).count() as u64;
        assert!(PARTITIONS.iter().all(|partition| self.sets.records(*partition) == in_set(*partition)));
        let mut ordered: Vec<(&[u8], &[u8])> = expected
            .iter()
            .filter(|((partition, _), value)| *partition == KEYED && value.len() >= 3)
            .map(|((_, key), value)| (&value[1..3], &key[..]))
            .collect();
        ordered.sort_unstable();
        let (from, to) = ([1, 0], [2, 3]);
        ordered.retain(|(secondary, _)| (&from[..]..=&to[..]).contains(secondary));
        assert!(self.sets.range(KEYED, 0, Bound::Included(&from), Bound::Included(&to)).eq(ordered));
    }

    fn step(&mut self) {
        let owner = self.random.below(OWNERS) as usize;
        match self.random.below(100) {
            0..60 => self.change(owner),
            60..68 => self.end(owner, true),
            68..71 => self.end(owner, false),
            71..75 => self.savepoint(owner),
            75..99 => self.sweep(),
            _ if self.random.chance(0.2) => self.crash(),
            _ => self.compare(),
        }
    }
}

/// Runs histories that log so.
fn run(seeds: std::ops::Range<u64>, logging: Logging, whole_fields: bool) {
    let (mut refused, mut consistent, mut restored, mut gone, mut moved) = (0, 0, 0, 0, 0);
    for seed in seeds {
        let mut world = World::new(seed, logging, whole_fields);
        for _ in 0..2500 {
            world.step();
        }
        world.crash();
        refused += world.refused;
        consistent += world.consistent;
        restored += world.restored;
        (gone, moved) = (gone + world.gone, moved + world.moved);
    }
    assert!(gone > 50 && moved > 200, "{gone} segments were emptied of {moved} records");
    assert!(refused > 50 && consistent > 50, "{refused} refusals, {consistent} consistent sweeps");
    assert!(restored > 500, "{restored} segments with saved records");
}

#[test]
fn every_history_of_values_ends_as_the_model_does() {
    run(0..40, Logging::Values, false);
}

#[test]
fn every_history_of_actions_ends_as_the_model_does() {
    run(100..140, Logging::Actions, false);
}

#[test]
fn every_history_of_whole_fields_ends_as_the_model_does() {
    run(200..240, Logging::Values, true);
    run(300..340, Logging::Actions, true);
}
