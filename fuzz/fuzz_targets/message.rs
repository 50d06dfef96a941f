//! A message between nodes of any bytes is decoded, and then encoded and decoded to the same again, or refused.
#![no_main]

use libfuzzer_sys::fuzz_target;
use node::message::{Answer, HEAD_SIZE, SIZE_MAX, ToPeer, ToServer, VERSION, decode, encode, frame_size};

macro_rules! survives {
    ($kind:ty, $frame:expr) => {
        if let Ok(message) = decode::<$kind>($frame) {
            let mut again = Vec::new();
            encode(&message, 0, &mut again);
            assert_eq!(frame_size(&again, SIZE_MAX), Ok(Some(again.len())));
            assert!(decode::<$kind>(&again) == Ok(message), "what is encoded is decoded");
        }
    };
}

fuzz_target!(|bytes: &[u8]| {
    let _ = frame_size(bytes, SIZE_MAX);
    let mut frame = vec![0; HEAD_SIZE];
    frame.extend_from_slice(bytes);
    frame[..4].copy_from_slice(&(bytes.len() as u32).to_le_bytes());
    frame[4] = VERSION;
    assert_eq!(frame_size(&frame, SIZE_MAX), Ok(Some(frame.len())));
    survives!(ToServer, &frame);
    survives!(Answer, &frame);
    survives!(ToPeer, &frame);
});
