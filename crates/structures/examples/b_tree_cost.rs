//! What a seek costs in a b-tree of five million records of 8-byte keys and 100-byte values, all pages in memory.
//!
//! `cargo run --release -p entresol-structures --example b_tree_cost [records]`

use base::{Lsn, PageId, PartitionId, Random};
use driver::Frame;
use entresol_structures as structures;
use std::hint::black_box;
use structures::Need;
use structures::organization::b_tree::{self, BulkLoader};
use structures::page::{Pages, header, slotted};

const ROUNDS: usize = 5;
const PARTITION: PartitionId = PartitionId(1);

struct Memory {
    frames: Vec<Frame>,
    page_size: usize,
}

impl Pages for Memory {
    #[inline]
    fn page(&self, id: PageId) -> Result<&[u8], Need> {
        self.frames.get(id.number as usize).map(|frame| &**frame).ok_or(Need::Page(id))
    }

    fn capacity(&self, _: PartitionId) -> u32 {
        self.frames.len() as u32
    }

    fn page_size(&self, _: PartitionId) -> usize {
        self.page_size
    }
}

/// The processor time that the work takes, which other load on the machine stretches less than wall time.
#[allow(clippy::disallowed_methods, reason = "a measurement needs a clock")]
fn time_ns<T>(work: impl FnOnce() -> T) -> (f64, T) {
    let start = std::time::Instant::now();
    let processor_ns = || -> Option<f64> {
        let statistics = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
        statistics.split(' ').next()?.parse().ok()
    };
    let before = processor_ns();
    let result = work();
    let wall_ns = start.elapsed().as_nanos() as f64;
    (before.zip(processor_ns()).map_or(wall_ns, |(before, after)| after - before), result)
}

/// The fastest of a few rounds: the one that other work disturbed least.
fn fastest_ns(round: impl Fn()) -> f64 {
    (0..ROUNDS).map(|_| time_ns(&round).0).min_by(f64::total_cmp).expect("a round")
}

fn load(records: u64, page_size: usize, key_of: &impl Fn(u64) -> u64) -> Memory {
    let frames = Frame::allocate((records as usize * 130 + 100 * page_size) / page_size, page_size);
    let mut memory = Memory { frames, page_size };
    let mut loader = BulkLoader::new(PARTITION, page_size, 1.0);
    let mut done = Vec::new();
    let mut write = |done: &mut Vec<structures::page::OwnedEdit>| {
        for edit in done.drain(..) {
            let frame = &mut memory.frames[edit.page.number as usize];
            header::format(frame, edit.page);
            edit.change.as_change().apply(frame, Lsn::ZERO);
        }
    };
    for index in 0..records {
        loader.push(&key_of(index).to_be_bytes(), &[index as u8; 100], &mut done);
        write(&mut done);
    }
    loader.finish(&mut done);
    write(&mut done);
    memory
}

fn measure(records: u64, page_size: usize, kind: &str, key_of: impl Fn(u64) -> u64) {
    let (load_ns, memory) = time_ns(|| load(records, page_size, &key_of));
    let mut random = Random::stream(1, "seek");
    let keys: Vec<[u8; 8]> = (0..1_000_000).map(|_| key_of(random.below(records)).to_be_bytes()).collect();
    let seek = |key: &[u8; 8]| {
        let found = b_tree::seek(&memory, PARTITION, key).expect("all pages are in memory");
        assert!(found.exact, "every key is there");
        found
    };
    let seeks = || keys.iter().for_each(|key| _ = black_box(seek(key)));
    // Each key depends on the value read before, so no two lookups overlap.
    let zero = black_box(0);
    let reads = || {
        let last = keys.iter().fold(0, |last: u8, key| {
            let mut key = *key;
            key[7] ^= last & zero;
            let found = seek(&key);
            slotted::value(memory.page(found.page).expect("in memory"), found.slot)[0]
        });
        black_box(last);
    };
    let seek_ns = fastest_ns(seeks) / keys.len() as f64;
    let read_ns = fastest_ns(reads) / keys.len() as f64;
    println!(
        "{:2} KiB, {kind:10} keys: {:4.0} ns per record loaded, {:4.0} ns per seek, {:4.0} ns per dependent read",
        page_size / 1024,
        load_ns / records as f64,
        seek_ns,
        read_ns,
    );
}

fn main() {
    let records = std::env::args().nth(1).map_or(5_000_000, |text| text.parse().expect("a number of records"));
    let mut random = Random::stream(2, "sparse");
    let mut sparse: Vec<u64> = (0..records).map(|_| random.word()).collect();
    sparse.sort_unstable();
    sparse.dedup();
    for page_size in [4096, 8192, 16_384] {
        measure(records, page_size, "dense", |index| index);
        measure(sparse.len() as u64, page_size, "random", |index| sparse[index as usize]);
    }
}
