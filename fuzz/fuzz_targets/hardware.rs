//! A description of hardware is refused, or a machine of it can be built and used.
#![no_main]

use devices::{Direction, Hardware, Machine, Transfer};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let Ok(hardware) = Hardware::parse(text, "fuzz.toml") else { return };
    let mut machine = Machine::new(&hardware, 1, true);
    for device in 0..hardware.devices.len().min(4) as u16 {
        for direction in [Direction::Read, Direction::Write { durable: true }, Direction::Sync] {
            for fresh in [false, true] {
                machine.transfer(device, Transfer { direction, file: 1, offset: 4096, length: 4096, fresh });
            }
        }
    }
    for _ in 0..100 {
        if machine.next().is_none() {
            break;
        }
        machine.step();
    }
});
