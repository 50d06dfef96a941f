//! What is done to the room and the partitions of a server while nodes use them: its data device is full for a while, and partitions are made
//! and are to be dropped.

use super::course::Course;
use super::schedule::{Act, Planned};
use super::{ClusterEvent, ClusterShape};
use base::Random;
use base::time::MILLISECOND_NS;
use driver::FaultKind;
use engine::catalog::{Locking, Organization};
use engine::{Database, Error, PartitionSpec};
use std::rc::Rc;

/// Whether a seed has this.
pub(super) fn is_of(seed: u64) -> bool {
    seed % 16 == 8
}

/// What is done, and when.
pub(super) fn draw(seed: u64, shape: &ClusterShape) -> Vec<Planned> {
    let random = &mut Random::stream(seed, "cluster space");
    if !shape.fills {
        return Vec::new();
    }
    let mut planned = Vec::new();
    for _ in 0..random.between(1, 6) {
        let (at_ns, ns) = (random.below(shape.trouble_ns), random.between(50, 4_000) * MILLISECOND_NS);
        planned.push(Planned { at_ns, at_step: None, act: Act::FillDevice { ns } });
    }
    for number in 0..random.between(1, 5) {
        let (at_ns, kind) = (random.below(shape.trouble_ns), random.below(4));
        planned.push(Planned { at_ns, at_step: None, act: Act::ChangePartitions { number, kind } });
    }
    planned
}

fn spec(number: u64, kind: u64) -> PartitionSpec {
    let name = &format!("other-{number}");
    let direct = Organization::Direct { objects: 100, blocking_factor: 4, record_size: 8 };
    match kind {
        0 => PartitionSpec::b_tree(name),
        1 => PartitionSpec::append(name),
        2 => PartitionSpec::new(name, direct, Locking::None),
        _ => {
            let set = Organization::Set { arrivals: false, segment_size: 16 << 10, reserve_percent: 10 };
            PartitionSpec::new(name, set, Locking::Record)
        }
    }
}

/// Makes a partition beside nodes, and tries to drop it, which is refused while they use the database.
pub(super) async fn change_partitions(course: Rc<Course>, database: Database, (number, kind): (u64, u64)) {
    let closings = course.closings();
    let made = match database.create_partition(spec(number, kind)).await {
        Ok(made) => made,
        Err(error) => return judge(&course, &error, "making a partition"),
    };
    course.event(ClusterEvent::PartitionMade);
    match database.drop_partition(made).await {
        Err(Error::Setting(why)) if why.contains("while nodes use it") => course.event(ClusterEvent::DropRefused),
        Ok(()) if course.closings() > closings => {}
        Ok(()) => course.wrong(format!("partition other-{number} is dropped while nodes use the database")),
        Err(error) => judge(&course, &error, "dropping a partition"),
    }
}

fn judge(course: &Course, error: &Error, doing: &str) {
    match error {
        Error::Closed => {}
        Error::Input(fault) if fault.kind == FaultKind::NoSpace && course.mended.get().is_none() => {
            course.event(ClusterEvent::DeviceFull);
        }
        error if course.is_of_failed_device(&error.to_string()) => {}
        error => course.wrong(format!("{doing} beside nodes: {error}")),
    }
}
