//! What the paper asks, answered by what came out.

use super::*;

pub(super) fn answers(results: &Results) -> Vec<Answer> {
    Answer::all([
        ("What does forwarding gain?", forwarding(results)),
        ("Where do messages cost more than the disk reads that they save?", messages(results)),
        ("What do writes change?", writes(results)),
    ])
}

/// The throughput of one curve over another's.
fn gain(trial: &Trial, [line, other]: [&str; 2], clients: f64) -> Option<f64> {
    Some(trial.figure(line, clients, TPS)?.mean / trial.figure(other, clients, TPS)?.mean)
}

fn forwarding(results: &Results) -> Option<String> {
    let trials = [small_buffers::SLOW, small_buffers::FAST, large_buffers::TRIAL];
    let gains: Option<Vec<f64>> = trials.iter().map(|name| gain(results.trial(name)?, ["FWD", "CBL"], 25.0)).collect();
    let [slow, fast, large] = gains?[..] else { return None };
    Some(format!(
        "With 25 clients that only read, FWD is {slow:.2} times as fast as CBL on the slow network, {fast:.2} times on the fast one, and \
         {large:.2} times with large buffers on the slow one."
    ))
}

fn messages(results: &Results) -> Option<String> {
    let [slow, fast] = [small_buffers::SLOW, small_buffers::FAST].map(|name| results.trial(name));
    let pair = ["FWD-HS", "FWD-H"];
    let (slow, fast) = (gain(slow?, pair, 25.0)?, gain(fast?, pair, 25.0)?);
    Some(format!(
        "Sending dropped pages beside hate hints gives {slow:.2} of the throughput on the slow network, {fast:.2} on the fast one."
    ))
}

fn writes(results: &Results) -> Option<String> {
    let trial = results.trial(writes::SMALL)?;
    let per_commit = |line, figure: &str| Some(trial.figure(line, 2.0, &of(figure))?.mean);
    let [plain, hints] = ["FWD", "FWD-H"].map(|line| per_commit(line, "disk_writes_per_commit"));
    Some(format!(
        "With 2 clients FWD writes {:.2} pages to disk per transaction and FWD-H {:.2}: a hated page leaves before it is changed again.",
        plain?, hints?
    ))
}
