//! Random histories of transactions, sweeps and crashes.

use super::*;
use std::collections::BTreeMap;

type Key = (PartitionId, Vec<u8>);
/// New values, and records that are gone.
type Changed = BTreeMap<Key, Option<Vec<u8>>>;
type Records = BTreeMap<Key, Vec<u8>>;

const OWNERS: u64 = 3;
const PARTITIONS: [PartitionId; 2] = [KEYED, ARRIVAL];

/// What a transaction sees of its own changes, and where it could go back to.
#[derive(Default)]
struct Open {
    changed: Changed,
    savepoints: Vec<(Position, Changed)>,
}

/// The backup: two copies of each set's images, the position in the log where the sweep of each began, and which is whole.
#[derive(Default)]
struct Backup {
    copies: [BTreeMap<(PartitionId, u32), Vec<u8>>; 2],
    counts: [[u32; 2]; 2],
    begins: [usize; 2],
    current: Option<usize>,
    /// The segments still to be passed by the sweep that runs.
    sweep: Option<Vec<(PartitionId, u32)>>,
}

impl Backup {
    fn target(&self) -> usize {
        self.current.map_or(0, |current| 1 - current)
    }
}

struct World {
    random: Random,
    sets: Sets,
    committed: Records,
    open: Vec<Open>,
    holders: BTreeMap<Key, usize>,
    log: Vec<Vec<u8>>,
    backup: Backup,
    key_count: u64,
    length_max: u64,
}

impl World {
    fn new(seed: u64) -> World {
        let mut random = Random::stream(seed, "sets");
        let key_count = [4, 60, 400][random.below(3) as usize];
        let length_max = [8, 150, 3000][random.below(3) as usize];
        World {
            random,
            sets: two_sets(),
            committed: BTreeMap::new(),
            open: (0..OWNERS).map(|_| Open::default()).collect(),
            holders: BTreeMap::new(),
            log: Vec::new(),
            backup: Backup::default(),
            key_count,
            length_max,
        }
    }

    fn seen(&self, owner: usize, key: &Key) -> Option<&Vec<u8>> {
        self.open[owner].changed.get(key).map_or_else(|| self.committed.get(key), Option::as_ref)
    }

    /// A key that nobody else has changed; one of an arrival exists or has existed.
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
        if self.random.chance(0.15) {
            let value = self.value();
            let append = |sets: &mut Sets| sets.append(Owner(owner as u32), ARRIVAL, &value);
            let number = with_room(&mut self.sets, ARRIVAL, append).expect("room");
            self.note(owner, (ARRIVAL, number.to_be_bytes().to_vec()), Some(value));
            return;
        }
        let Some(key) = self.choose(owner) else { return };
        let (partition, name) = key.clone();
        let (id, digest) = (Owner(owner as u32), hash(&name));
        let old = self.seen(owner, &key).cloned();
        assert_eq!(self.sets.get(id, partition, &name, digest), Ok(old.as_deref()));
        match (old, self.random.below(4)) {
            (None, 0) => assert_eq!(self.sets.delete(id, partition, &name, digest), Ok(false)),
            (None, _) if partition == ARRIVAL => {
                assert_eq!(self.sets.modify(id, partition, &name, digest, |_| ()), Err(Refusal::Missing));
            }
            (None, _) => {
                let value = self.value();
                let insert = |sets: &mut Sets| sets.insert(id, partition, &name, digest, &value);
                assert_eq!(with_room(&mut self.sets, partition, insert), Ok(()));
                self.note(owner, key, Some(value));
            }
            (Some(_), 0) => {
                assert_eq!(self.sets.delete(id, partition, &name, digest), Ok(true));
                self.note(owner, key, None);
            }
            (Some(_), 1) => {
                let value = self.value();
                let replace = |sets: &mut Sets| sets.replace(id, partition, &name, digest, &value);
                assert_eq!(with_room(&mut self.sets, partition, replace), Ok(()));
                self.note(owner, key, Some(value));
            }
            (Some(mut value), _) => {
                let from = self.random.below(value.len() as u64 + 1) as usize;
                let to = self.random.between(from as u64, value.len() as u64) as usize;
                let new = bytes(&mut self.random, (to - from) as u64);
                let patch = |value: &mut [u8]| value[from..to].copy_from_slice(&new);
                assert_eq!(self.sets.modify(id, partition, &name, digest, patch), Ok(()));
                value[from..to].copy_from_slice(&new);
                self.note(owner, key, Some(value));
            }
        }
    }

    fn end(&mut self, owner: usize, is_committed: bool) {
        let id = Owner(owner as u32);
        let Open { changed, .. } = std::mem::take(&mut self.open[owner]);
        if is_committed {
            self.log.push(self.sets.redo(id).to_vec());
            self.sets.commit(id);
            for (key, value) in changed {
                match value {
                    Some(value) => self.committed.insert(key, value),
                    None => self.committed.remove(&key),
                };
            }
        } else {
            self.sets.roll_back(id);
        }
        self.holders.retain(|_, holder| *holder != owner);
        assert_eq!(self.sets.position(id), Position::default());
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

    /// Takes the sweep one segment further, or begins one.
    fn sweep(&mut self) {
        let copy = self.backup.target();
        let Some(mut left) = self.backup.sweep.take() else {
            self.backup.begins[copy] = self.log.len();
            self.backup.counts[copy] = PARTITIONS.map(|partition| self.sets.segments(partition));
            let every = PARTITIONS
                .iter()
                .flat_map(|partition| (0..self.sets.segments(*partition)).map(|segment| (*partition, segment)));
            self.backup.sweep = Some(every.collect());
            return;
        };
        if left.is_empty() {
            self.backup.current = Some(copy);
            return;
        }
        let at = self.random.below(left.len() as u64) as usize;
        let (partition, segment) = left.swap_remove(at);
        self.backup.sweep = Some(left);
        if !self.sets.is_dirty(partition, segment, copy) {
            return;
        }
        self.sets.clear_dirty(partition, segment, copy);
        let mut image = vec![0xee; self.sets.segment_size(partition)];
        match self.sets.lend(partition, segment) {
            Some(frame) if self.random.chance(0.3) => {
                image.copy_from_slice(&frame);
                self.sets.take_back(partition, segment, frame);
            }
            lent => {
                if let Some(frame) = lent {
                    self.sets.take_back(partition, segment, frame);
                }
                self.sets.image(partition, segment, &mut image);
            }
        }
        self.backup.copies[copy].insert((partition, segment), image);
    }

    /// Loses the memory, and comes back from the whole copy of the backup and the log.
    fn crash(&mut self) {
        let mut sets = two_sets();
        let mut begin = 0;
        if let Some(copy) = self.backup.current {
            begin = self.backup.begins[copy];
            for (partition, count) in PARTITIONS.into_iter().zip(self.backup.counts[copy]) {
                for segment in 0..count {
                    let mut image = frame(sets.segment_size(partition));
                    image.copy_from_slice(&self.backup.copies[copy][&(partition, segment)]);
                    sets.load(partition, segment, copy, image).expect("a sound image");
                }
            }
        }
        sets.finish_load();
        sets.check().expect("sound after loading");
        for redo in &self.log[begin..] {
            while let Err(error) = sets.apply(redo) {
                let ApplyError::NoSegment(partition) = error else { panic!("{error:?}") };
                sets.add_segment(partition, frame(16 << 10));
            }
        }
        self.sets = sets;
        self.backup.sweep = None;
        self.open = (0..OWNERS).map(|_| Open::default()).collect();
        self.holders.clear();
        self.compare();
    }

    /// The records that are seen, by all, are those of the model.
    fn compare(&self) {
        self.sets.check().expect("sound");
        let mut expected = self.committed.clone();
        for (key, value) in self.open.iter().flat_map(|open| &open.changed) {
            match value {
                Some(value) => expected.insert(key.clone(), value.clone()),
                None => expected.remove(key),
            };
        }
        let found: Records = PARTITIONS
            .iter()
            .flat_map(|partition| {
                self.sets.iterate(*partition).map(|(key, value)| ((*partition, key.to_vec()), value.to_vec()))
            })
            .collect();
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

#[test]
fn every_history_ends_as_the_model_does() {
    for seed in 0..60 {
        let mut world = World::new(seed);
        for _ in 0..2500 {
            world.step();
        }
        world.crash();
    }
}
