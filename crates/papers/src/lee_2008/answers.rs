//! The paper's questions, answered from the runs.

use super::{DEVICES, commit, tpc_b};
use crate::{Answer, Results};

pub(super) fn answers(results: &Results) -> Vec<Answer> {
    Answer::all([
        ("Are the latencies of table 1 those of table 2?", latencies(results)),
        ("Is the bottleneck I/O or the CPU?", bottleneck(results)),
        ("What would releasing locks before the commit is durable have brought?", early(results)),
    ])
}

fn latencies(results: &Results) -> Option<String> {
    let trial = results.trial(commit::TRIAL)?;
    let ms = |line: &str| Some(4.0 / trial.figure(line, 4.0, "throughput_per_s")?.mean * 1e3);
    let (mut parts, mut alike) = (Vec::new(), true);
    for device in DEVICES {
        let (measured, stated) = (ms(device)?, ms(&format!("{device}, by table 1 alone"))?);
        alike &= (measured / stated - 1.0).abs() < 0.1;
        let each = (measured - stated) / 2.0;
        parts.push(format!(
            "on {device} {stated:.2} ms by table 1 and {measured:.2} ms as table 2 has it, {each:.2} ms more for each write"
        ));
    }
    let verdict = if alike { "Yes" } else { "No" };
    let parts = parts.join("; ");
    Some(format!(
        "{verdict}. Four threads take per transaction, which waits for two writes, another's and its own: {parts}."
    ))
}

fn bottleneck(results: &Results) -> Option<String> {
    let trial = results.trial(tpc_b::FIGURE_3)?;
    let users = trial.places().fold(0.0, f64::max);
    let mut parts = Vec::new();
    for device in DEVICES {
        let line = format!("{device}, two cores");
        let percent = |station: &str| {
            Some(trial.figure(&line, users, &format!("utilization.{station}.utilization"))?.mean * 100.0)
        };
        let (cpu, medium) = (percent("cpu")?, percent(&format!("{device}.medium"))?);
        parts.push(format!("the log on {device}: processors {cpu:.0} %, device {medium:.0} %"));
    }
    Some(format!("Busy with {users} users of TPC-B, {}.", parts.join("; ")))
}

fn early(results: &Results) -> Option<String> {
    let mut parts = Vec::new();
    for (number, device) in DEVICES.into_iter().enumerate() {
        parts.push(format!("{} on {device}", tpc_b::early_tps(results, number)?.with_unit("tps")));
    }
    Some(format!(
        "TPC-B with 20 users does {} then: a transaction that waits for a branch waits for a processor and not for a device.",
        parts.join(" and ")
    ))
}
