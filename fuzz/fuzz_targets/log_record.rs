//! A log record of any bytes is decoded, and then encoded and decoded to the same again, or refused.
#![no_main]

use engine::log::record::{Record, encode};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let mut bytes = bytes.to_vec();
    if bytes.len() >= 4 {
        let length = bytes.len() as u32;
        bytes[..4].copy_from_slice(&length.to_le_bytes());
    }
    let Some(record) = Record::decode(&bytes) else { return };
    let edits: Vec<_> = record.edits().collect();
    let mut again = Vec::new();
    encode(record.transaction, &record.body, edits.iter().map(|(sequence, edit)| (*sequence, edit)), &mut again);
    let decoded = Record::decode(&again).expect("what is encoded is decoded");
    assert!(decoded.body == record.body && decoded.edits().eq(record.edits()));
});
