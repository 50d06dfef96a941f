//! Losses against placements.

use super::{changed, read};
use crate::losses::{NotSurvived, survives};
use crate::{Candidate, Loss};

/// The only candidate of the example with this configuration on an instance with drives.
fn candidate(configuration: &str) -> Candidate {
    let text = changed("survives = [\"crash\", \"instance-stop\"]", "");
    let end = text.find("# What may vary").unwrap();
    let text = text[..end].replace("log.size = \"2 GiB\"", configuration);
    let plan = read(&text).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!((plan.candidates.len(), plan.refused.len()), (1, 0), "{:?}", plan.refused);
    plan.candidates.into_iter().next().unwrap()
}

fn judged(configuration: &str, loss: Loss) -> Result<(), NotSurvived> {
    let candidate = candidate(configuration);
    survives(&candidate.whole, &candidate.machine, loss)
}

#[test]
fn placements_survive_what_they_should() {
    let [disk, nvme] = ["disk", "nvme"].map(str::to_owned);
    let both = "log = { device = \"nvme\", second_device = \"disk\" }";
    let first = "log = { device = \"nvme\", second_device = \"disk\", acknowledged = \"first\" }";
    let cases = [
        ("", Loss::Crash, Ok(())),
        ("log.durable = false", Loss::Crash, Err(NotSurvived::NotDurable)),
        ("", Loss::InstanceStop, Ok(())),
        ("log.device = \"nvme\"", Loss::Crash, Ok(())),
        ("log.device = \"nvme\"", Loss::InstanceStop, Err(NotSurvived::Log(nvme.clone()))),
        (both, Loss::InstanceStop, Ok(())),
        (first, Loss::InstanceStop, Err(NotSurvived::Log(nvme.clone()))),
        ("partition.orders.device = \"nvme\"", Loss::InstanceStop, Err(NotSurvived::Pages(nvme.clone()))),
        ("cache = { device = \"nvme\", size = \"1 GiB\", design = \"lazy-cleaning\" }", Loss::InstanceStop, Ok(())),
        (
            "write_buffer = { device = \"nvme\", size = \"1 GiB\" }",
            Loss::InstanceStop,
            Err(NotSurvived::WriteBuffer(nvme)),
        ),
        ("undo.device = \"nvme\"\ntemp.device = \"nvme\"", Loss::InstanceStop, Ok(())),
        ("", Loss::LogDevice, Err(NotSurvived::OneLogDevice(disk.clone()))),
        (both, Loss::LogDevice, Err(NotSurvived::Pages(disk))),
    ];
    for (configuration, loss, wanted) in cases {
        assert_eq!(judged(configuration, loss), wanted, "{configuration} {loss:?}");
    }
}
