//! Prints what records of memory-resident sets cost: nanoseconds per operation, on sets of several sizes.
//!
//! `cargo run --release -p entresol-structures --example set_cost -- [MILLIONS OF RECORDS]...`

use base::{PartitionId, Random};
use driver::Frame;
use entresol_structures::lock::Owner;
use entresol_structures::set::{Capture, Keys, RESERVE, Refusal, SEGMENT_SIZE, SetSettings, Sets};
use std::hint::black_box;

const SET: PartitionId = PartitionId(1);
const OWNER: Owner = Owner(0);
const VALUE: [u8; 100] = [7; 100];
/// Operations in a round, and rounds; the fastest round is printed.
const OPERATIONS: u64 = 400_000;
const ROUNDS: usize = 7;
const FRAMES: usize = 64;

fn empty() -> Sets {
    let mut sets = Sets::new();
    let (segment_size, keys) = (SEGMENT_SIZE, Keys::Keyed);
    sets.attach(SetSettings { partition: SET, segment_size, reserve: RESERVE, keys, secondaries: Vec::new() });
    sets
}

/// Records with their frames, cut from larger regions as a database does it.
struct Store {
    sets: Sets,
    frames: Vec<Frame>,
}

impl Store {
    fn frame(&mut self) -> Frame {
        if self.frames.is_empty() {
            self.frames = Frame::allocate(FRAMES, SEGMENT_SIZE);
        }
        self.frames.pop().expect("frames were allocated")
    }

    fn insert(&mut self, number: u64) {
        let key = number.to_le_bytes();
        while let Err(refusal) = self.sets.insert(OWNER, SET, &key, Sets::hash(&key), &VALUE) {
            assert_eq!(refusal, Refusal::NoSegment);
            let frame = self.frame();
            self.sets.add_segment(SET, frame);
        }
    }

    /// Images of all segments, loaded into a new set.
    fn reload(&self) -> Sets {
        let mut sets = empty();
        for segment in 0..self.sets.segments(SET) {
            let mut frame = Frame::allocate(1, SEGMENT_SIZE).pop().expect("one frame");
            self.sets.image(SET, segment, &mut frame);
            sets.load(SET, segment, 0, frame).expect("a sound image");
        }
        sets.finish_load();
        sets
    }
}

#[allow(clippy::disallowed_methods, reason = "a measurement on the machine's own clock")]
fn ns(count: u64, run: impl FnOnce()) -> f64 {
    let start = std::time::Instant::now();
    run();
    start.elapsed().as_nanos() as f64 / count as f64
}

fn measure(what: &str, count: u64, run: impl FnOnce()) {
    println!("  {what:<44} {:7.1} ns", ns(count, run));
}

/// Operations on random records, one after the other.
fn on_random_records(what: &str, records: u64, mut operation: impl FnMut(&[u8], u64)) {
    let mut random = Random::stream(1, "records");
    let mut round = || {
        for _ in 0..OPERATIONS {
            let key = random.below(records).to_le_bytes();
            operation(black_box(&key), Sets::hash(&key));
        }
    };
    let fastest = (0..ROUNDS).map(|_| ns(OPERATIONS, &mut round)).min_by(f64::total_cmp).expect("a round");
    println!("  {what:<44} {fastest:7.1} ns");
}

fn measure_set(records: u64) {
    let mut store = Store { sets: empty(), frames: Frame::allocate(FRAMES, SEGMENT_SIZE) };
    println!("{records} records of 8 + {} bytes", VALUE.len());
    measure("insert, commit", records, || {
        for number in 0..records {
            store.insert(number);
            store.sets.commit(OWNER);
        }
    });
    let sets = &mut store.sets;
    let taken = sets.bytes(SET) as f64 / records as f64;
    println!("  {taken:.0} bytes per record in {} segments", sets.segments(SET));
    on_random_records("random key and its hash", records, |_, hash| {
        black_box(hash);
    });
    on_random_records("get", records, |key, hash| {
        black_box(sets.get(OWNER, SET, key, hash).expect("not lent").map(|value| value[40]));
    });
    on_random_records("get of no record", records, |key, _| {
        let key = [key, &[1]].concat();
        black_box(sets.get(OWNER, SET, &key, Sets::hash(&key)).expect("not lent").is_some());
    });
    on_random_records("modify, commit", records, |key, hash| {
        let change = |value: &mut [u8]| value[40] = value[40].wrapping_add(1);
        sets.modify(OWNER, SET, key, hash, change).expect("it is there");
        sets.commit(OWNER);
    });
    on_random_records("modify a part, commit", records, |key, hash| {
        let change = |part: &mut [u8]| part[0] = part[0].wrapping_add(1);
        sets.modify_part(OWNER, SET, key, hash, 40..48, change).expect("it is there");
        sets.commit(OWNER);
    });
    on_random_records("modify, roll back", records, |key, hash| {
        let change = |value: &mut [u8]| value[40] = value[40].wrapping_add(1);
        sets.modify(OWNER, SET, key, hash, change).expect("it is there");
        sets.roll_back(OWNER);
    });
    on_random_records("delete, insert again, commit", records, |key, hash| {
        sets.delete(OWNER, SET, key, hash).expect("not lent");
        sets.commit(OWNER);
        sets.insert(OWNER, SET, key, hash, &VALUE).expect("there is room");
        sets.commit(OWNER);
    });
    let mut count = 0;
    on_random_records("replace by 92 or 108 bytes, commit", records, |key, hash| {
        count += 1;
        let length = if count % 2 == 0 { 92 } else { 108 };
        while sets.replace(OWNER, SET, key, hash, &[8; 108][..length]) == Err(Refusal::NoSegment) {
            sets.add_segment(SET, Frame::allocate(1, SEGMENT_SIZE).pop().expect("one frame"));
        }
        sets.commit(OWNER);
    });
    let mut redo = Vec::new();
    on_random_records("modify a part, roll back, apply its redo", records, |key, hash| {
        let change = |part: &mut [u8]| part[0] = part[0].wrapping_add(1);
        sets.modify_part(OWNER, SET, key, hash, 40..48, change).expect("it is there");
        redo.clear();
        redo.extend_from_slice(sets.redo(OWNER));
        sets.roll_back(OWNER);
        sets.apply(&redo, |_| false, Frame::allocate).expect("sound redo");
    });
    println!(
        "  in sweeps, the fastest of {ROUNDS}: first change and commit of every third record, the next, a segment"
    );
    for (what, capture) in
        [("fuzzy", None), ("CALC", Some(Capture::StableVersions)), ("copy on update", Some(Capture::CopyOnUpdate))]
    {
        let sweeps = (0..ROUNDS).map(|_| sweep(sets, records, capture));
        let least = sweeps.reduce(|least, next| [0, 1, 2].map(|figure| least[figure].min(next[figure])));
        let [first, next, segment] = least.expect("a round");
        println!("    {what:<42} {first:7.1} ns {next:7.1} ns {segment:9.0} ns");
    }
    if records <= 10_000_000 {
        measure("image and load, per record", records, || drop(black_box(store.reload())));
    }
}

/// What a sweep costs: the first change of a record that it has still to take, the next one, and taking a segment.
fn sweep(sets: &mut Sets, records: u64, capture: Option<Capture>) -> [f64; 3] {
    // A prime factor spreads them, as random keys are spread.
    let changed: Vec<[u8; 8]> =
        (0..records / 3).map(|number| (number.wrapping_mul(611_953) % records).to_le_bytes()).collect();
    let change_all = |sets: &mut Sets| {
        for key in &changed {
            let change = |part: &mut [u8]| part[0] = part[0].wrapping_add(1);
            sets.modify_part(OWNER, SET, key, Sets::hash(key), 40..48, change).expect("it is there");
            sets.commit(OWNER);
        }
    };
    if let Some(capture) = capture {
        sets.begin_capture(capture);
    }
    let count = changed.len() as u64;
    let (first, next) = (ns(count, || change_all(sets)), ns(count, || change_all(sets)));
    let segments = sets.segments(SET);
    let mut image = Frame::allocate(1, SEGMENT_SIZE).pop().expect("one frame");
    let taken = ns(u64::from(segments), || {
        for segment in 0..segments {
            match sets.take_snapshot(SET, segment) {
                Some(snapshot) => sets.reuse(snapshot),
                None => sets.image(SET, segment, &mut image),
            }
            if capture.is_some() {
                sets.mark_taken(SET, segment);
            }
        }
    });
    sets.end_capture();
    [first, next, taken]
}

fn main() {
    let mut sizes: Vec<f64> = std::env::args().skip(1).filter_map(|millions| millions.parse().ok()).collect();
    if sizes.is_empty() {
        sizes = vec![0.01, 1.0];
    }
    for millions in sizes {
        measure_set((millions * 1e6) as u64);
    }
}
