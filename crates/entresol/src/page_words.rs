//! What is said of page writes: which devices may tear a page, and what keeps it whole then.

use base::units::format_size;
use engine::{Database, Internals};
use executor::WholeExecutor;
use std::collections::BTreeMap;

/// Each device that holds pages, and whether its pages are written twice.
pub fn describe(database: &Database) -> String {
    let page_size = database.settings().buffer.page_size as u64;
    let executor = database.executor().whole();
    let spaces = database.buffer().spaces();
    let devices: BTreeMap<_, _> = database
        .partitions()
        .iter()
        .filter_map(|partition| {
            let space = spaces.iter().find(|space| space.partition() == partition.id())?;
            let device = executor.device(&partition.device)?;
            Some((partition.device.clone(), (space.may_tear(), executor.traits(device).atomic_write)))
        })
        .collect();
    let describe = |(device, (may_tear, whole)): (String, (bool, u32))| {
        let pages = format!("pages of {} on device '{device}'", format_size(page_size));
        match may_tear {
            true => format!("{pages}: written twice (double-write), since its writes are whole by {}", {
                format_size(u64::from(whole))
            }),
            false => format!("{pages}: written once, its writes are never torn"),
        }
    };
    devices.into_iter().map(describe).collect::<Vec<_>>().join("; ")
}
