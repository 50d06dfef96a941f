//! Section 4.3: one reference in five writes.

use super::*;

pub(super) const SMALL: &str = "rw-5-slow";
pub(super) const LARGE: &str = "rw-15-fast";
/// Curves that the paper calls similar are as near as this.
const SIMILAR: f64 = 1.10;

pub(super) fn claims(results: &Results) -> Vec<Claim> {
    let claims = [
        above_callback_locking(results),
        similar(results),
        hints_best(results),
        hints_poor(results),
        hints_at_server(results),
        network_bound(results),
    ];
    let mut claims: Vec<Claim> = claims.into_iter().map(|claim| claim.seen_in(SMALL)).collect();
    claims.push(two_classes(results).seen_in(LARGE));
    claims
}

fn above_callback_locking(results: &Results) -> Claim {
    let what =
        "With writes, small buffers, slow network: all forwarding algorithms are above CBL at 10 clients and more.";
    Claim::new("F-9 above CBL", what, "above").judge(|claim| {
        let trial = results.trial(SMALL)?;
        let (verdict, reason) =
            at_each(&places(trial, 10.0, 25.0)?, |clients| is_lowest(trial, "CBL", &ALL, clients, TPS))?;
        Some(claim.judged(listed(trial, 10.0, TPS, 1.0)?, verdict, reason))
    })
}

fn similar(results: &Results) -> Claim {
    let what =
        "With writes, small buffers, slow network: the forwarding algorithms have similar throughput at 25 clients.";
    Claim::new("F-9 similar", what, "similar").judge(|claim| {
        let (verdict, ratio) = is_equal(results.trial(SMALL)?, &FORWARDERS, 25.0, TPS, SIMILAR)?;
        let reason = "The highest is 1.1 times the lowest at most.";
        Some(claim.judged(ratio.with_unit("times"), verdict, reason).with_interval(ratio))
    })
}

fn hints_best(results: &Results) -> Claim {
    let what = "With writes, small buffers, slow network: FWD-H has the highest throughput at 10 clients and more.";
    Claim::new("F-9 FWD-H", what, "the highest").judge(|claim| {
        let trial = results.trial(SMALL)?;
        let (verdict, reason) =
            at_each(&places(trial, 10.0, 25.0)?, |clients| is_highest(trial, "FWD-H", &ALL, clients, TPS))?;
        Some(claim.judged(listed(trial, 15.0, TPS, 1.0).or_else(|| listed(trial, 10.0, TPS, 1.0))?, verdict, reason))
    })
}

fn hints_poor(results: &Results) -> Claim {
    let what = "With writes, small buffers, slow network: FWD-H has poor throughput with few clients.";
    Claim::new("F-9 few", what, "poor").judge(|claim| {
        let trial = results.trial(SMALL)?;
        let others = ["CBL", "FWD", "FWD-S"];
        let verdict = is_lowest(trial, "FWD-H", &others, 2.0, TPS)?;
        Some(claim.judged(listed(trial, 2.0, TPS, 1.0)?, verdict, "At 2 clients below CBL, FWD and FWD-S."))
    })
}

fn hints_at_server(results: &Results) -> Claim {
    let what = "With writes, small buffers, 2 clients: FWD-H's hit rate at the server is 43 %.";
    Claim::new("F-9 hits", what, "43 %").judge(|claim| {
        let ours = percent(results.trial(SMALL)?, "FWD-H", 2.0, "server_hit_ratio")?;
        let verdict = ours.within(43.0 - POINTS..=43.0 + POINTS);
        Some(claim.judged(ours.with_unit("%"), verdict, format!("Within {POINTS} points.")).with_interval(ours))
    })
}

fn network_bound(results: &Results) -> Claim {
    let what = "With writes, small buffers, slow network: FWD-S and FWD-HS are limited by the network at 20 clients.";
    Claim::new("F-9 network", what, "at 20").judge(|claim| {
        let trial = results.trial(SMALL)?;
        let [one, other] = [network(trial, "FWD-S", 20.0)?, network(trial, "FWD-HS", 20.0)?];
        let verdict = Verdict::all([one.at_least(BUSY), other.at_least(BUSY)]);
        let ours = format!("{:.0} and {:.0} % busy", one.mean * 100.0, other.mean * 100.0);
        Some(claim.judged(ours, verdict, "The network is busy for 90 % at least."))
    })
}

fn two_classes(results: &Results) -> Claim {
    let what =
        "With writes, large buffers, fast network, 10 clients and more: FWD and FWD-S are above FWD-H and FWD-HS.";
    Claim::new("F-10", what, "above").judge(|claim| {
        let trial = results.trial(LARGE)?;
        let (verdict, reason) = at_each(&places(trial, 10.0, 25.0)?, |clients| {
            let with_hints = ["FWD-H", "FWD-HS"];
            let above = |line| is_highest(trial, line, &with_hints, clients, TPS);
            Some(Verdict::all([above("FWD")?, above("FWD-S")?]))
        })?;
        let writes = listed(trial, 25.0, &of("disk_writes_per_commit"), 1.0)?;
        Some(claim.judged(
            listed(trial, 25.0, TPS, 1.0)?,
            verdict,
            format!("{reason} Disk writes per transaction {writes}."),
        ))
    })
}
