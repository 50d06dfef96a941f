//! A segment of any bytes, with the checksum that belongs to them, is loaded or refused, and redo of any bytes is applied or
//! refused; the sets are sound whatever came, and can be used.
#![no_main]

use base::PartitionId;
use crc_fast::{CrcAlgorithm, checksum};
use driver::Frame;
use engine::lock::Owner;
use engine::set::{Keys, RESERVE, Refusal, Secondary, SetSettings, Sets};
use libfuzzer_sys::fuzz_target;

const SIZE: usize = 16 << 10;

fn frame() -> Frame {
    Frame::allocate(1, SIZE).pop().expect("one frame")
}

fuzz_target!(|parts: (bool, bool, &[u8], &[u8])| {
    let (keyed, is_whole, segment, redo) = parts;
    let (keys, partition) = (if keyed { Keys::Keyed } else { Keys::Arrival }, PartitionId(1));
    let secondaries = vec![Some(Secondary::Bytes { offset: 1, length: 2 })];
    let mut sets = Sets::new();
    sets.attach(SetSettings { partition, segment_size: SIZE, reserve: RESERVE, keys, secondaries });
    let mut image = frame();
    sets.add_segment(partition, frame());
    sets.image(partition, 0, &mut image);
    sets = Sets::new();
    let secondaries = vec![Some(Secondary::Bytes { offset: 1, length: 2 })];
    sets.attach(SetSettings { partition, segment_size: SIZE, reserve: RESERVE, keys, secondaries });
    let from = if is_whole { 4 } else { 16 };
    let length = segment.len().min(SIZE - from);
    image[from..from + length].copy_from_slice(&segment[..length]);
    let sum = checksum(CrcAlgorithm::Crc32Iscsi, &image[4..]) as u32;
    image[..4].copy_from_slice(&sum.to_le_bytes());
    let _ = sets.load(partition, 0, 0, image);
    sets.finish_load();
    sets.check().expect("sound after loading");
    let _ = sets.apply(redo, |_| false, Frame::allocate);
    sets.check().expect("sound after redo");
    let keys: Vec<Vec<u8>> = sets.iterate(partition).map(|(key, _)| key.to_vec()).collect();
    let owner = Owner(0);
    for (number, key) in keys.iter().enumerate() {
        let hash = Sets::hash(key);
        let grown = vec![7; number * 40 % 2000];
        while sets.replace(owner, partition, key, hash, &grown) == Err(Refusal::NoSegment) {
            sets.add_segment(partition, frame());
        }
        assert!(number % 3 > 0 || sets.delete(owner, partition, key, hash) == Ok(true));
    }
    sets.check().expect("sound after changes");
    sets.roll_back(owner);
    sets.check().expect("sound after a rollback");
    assert_eq!(sets.records(partition), keys.len() as u64);
});
