mod caches;
mod calendar;
mod descriptions;
mod queueing;
mod saturation;

use crate::{Direction, Hardware, JobId, Machine, Transfer};

/// A transfer of 4 KiB at a page of file 0.
fn page(direction: Direction, number: u64) -> Transfer {
    Transfer { direction, file: 0, offset: number * 4096, length: 4096, fresh: false }
}

/// Events happen until a request completes.
fn next_completion(machine: &mut Machine) -> JobId {
    loop {
        assert!(machine.next().is_some(), "a request is under way");
        if let Some(job) = machine.step() {
            return job;
        }
    }
}

fn embedded(name: &str) -> Hardware {
    Hardware::named(name).expect("the description is embedded")
}
