//! Writes to places that nothing was written to before, and files that get room.

use super::super::next_completion;
use super::{DURABLE, WRITE, close};
use crate::{Direction, Hardware, Machine, Transfer};

const PLAIN: &str = "[device.d.transmission]\nservers = 1\nbandwidth = \"4 GB/s\"\n\
                     [device.d.medium]\nservers = 8\nservice = \"40 us\"\n";
const FRESH: &str = "[device.d.fresh]\nservers = 2\nbandwidth = \"1 GB/s\"\n\
                     service = { read = \"0 us\", write = \"60 us\" }\n";

fn described(text: &str) -> Hardware {
    Hardware::parse(text, "test").unwrap_or_else(|error| panic!("{error}"))
}

fn cluster(direction: Direction, number: u64) -> Transfer {
    Transfer { direction, file: 0, offset: number << 18, length: 1 << 18 }
}

/// Transfers per second with a number under way.
fn rate(text: &str, depth: u64, direction: Direction, is_fresh: bool) -> f64 {
    const REQUESTS: u64 = 4_000;
    let mut machine = Machine::new(&described(text), 11, false);
    let begin = |machine: &mut Machine, number| match is_fresh {
        true => machine.transfer_to_fresh(0, cluster(direction, number)),
        false => machine.transfer(0, cluster(direction, number)),
    };
    (0..depth).for_each(|number| _ = begin(&mut machine, number));
    for number in depth..REQUESTS + depth {
        next_completion(&mut machine);
        begin(&mut machine, number);
    }
    for station in machine.stations().iter().filter(|station| station.completed > 0) {
        assert!(station.little_error < 1e-9, "{station:?}");
    }
    REQUESTS as f64 / machine.now().seconds()
}

#[test]
fn fresh_places_take_what_is_stated_for_them() {
    let text = format!("{PLAIN}{FRESH}");
    let (transmission_us, medium_us, fresh_us) = (262_144.0 / 4e3, 40.0, 60.0 + 262_144.0 / 1e3);
    let alone = 1e6 / (transmission_us + medium_us + fresh_us);
    for (depth, direction, is_fresh, per_second) in [
        (1, WRITE, true, alone),
        (1, DURABLE, true, alone),
        // Two at once are the most that the stage serves.
        (16, WRITE, true, 2e6 / fresh_us),
        (1, WRITE, false, 1e6 / (transmission_us + medium_us)),
        (16, WRITE, false, 1e6 / transmission_us),
        (16, Direction::Read, false, 1e6 / transmission_us),
    ] {
        close(rate(&text, depth, direction, is_fresh), per_second, 0.01);
    }
}

#[test]
fn where_no_stage_is_described_fresh_places_are_like_others() {
    for depth in [1, 16] {
        assert_eq!(rate(PLAIN, depth, WRITE, true), rate(PLAIN, depth, WRITE, false));
    }
}

#[test]
fn what_comes_later_is_asked_for_then() {
    let mut machine = Machine::new(&described("[device.d]\nsync = \"5 us\"\nmedium = { servers = 1 }"), 11, false);
    let sync = Transfer { direction: Direction::Sync, file: 0, offset: 0, length: 0 };
    let later = machine.transfer_later(100_000, 0, sync);
    let soon = machine.transfer(0, sync);
    assert_eq!((next_completion(&mut machine), machine.now().ns()), (soon, 5_000));
    assert_eq!((next_completion(&mut machine), machine.now().ns()), (later, 105_000));
}

#[test]
fn a_stage_that_contradicts_itself_is_named() {
    let text = "[device.d.fresh]\nservers = 2\ndiscipline = \"processor-sharing\"\nassignment = \"uniform\"\n";
    let error = Hardware::parse(text, "test").expect_err("shared servers have no queues").to_string();
    assert!(error.contains("device 'd', fresh"), "{error}");
}
