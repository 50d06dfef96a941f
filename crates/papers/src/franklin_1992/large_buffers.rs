//! Section 4.2.2: nothing is written, client buffers of 15 %, the slow network.

use super::*;

pub(super) const TRIAL: &str = "ro-15-slow";

pub(super) fn claims(results: &Results) -> Vec<Claim> {
    let claims = [
        converged(results),
        no_io(results),
        server_hits(results),
        network_bound(results),
        callback_locking(results),
        hints_ahead(results),
    ];
    claims.into_iter().map(|claim| claim.seen_in(TRIAL)).collect()
}

fn converged(results: &Results) -> Claim {
    let what =
        "Large buffers, slow network: the forwarding algorithms have the same throughput at 20 clients and more.";
    Claim::new("F-8 converge", what, "the same").judge(|claim| {
        let trial = results.trial(TRIAL)?;
        let judge = |clients| is_equal(trial, &FORWARDERS, clients, TPS, EQUAL).map(|(verdict, _)| verdict);
        let (verdict, reason) = at_each(&places(trial, 20.0, 25.0)?, judge)?;
        let reason = format!("The highest is 1.05 times the lowest at most. {reason}");
        Some(claim.judged(listed(trial, 25.0, TPS, 1.0)?, verdict, reason))
    })
}

fn no_io(results: &Results) -> Claim {
    let what = "Large buffers: at 20 clients and more the forwarding algorithms have the whole database in memory, and read no disk.";
    Claim::new("F-8 disk", what, "no reads").judge(|claim| {
        let trial = results.trial(TRIAL)?;
        let path = of("disk_io_per_commit");
        let (verdict, reason) = at_each(&places(trial, 20.0, 25.0)?, |clients| {
            let few = |line: &&str| Some(trial.figure(line, clients, &path)?.at_most(0.05));
            Some(Verdict::all(FORWARDERS.iter().map(few).collect::<Option<Vec<_>>>()?))
        })?;
        let reason = format!("At most 0.05 operations per transaction behind the warm-up. {reason}");
        Some(claim.judged(listed(trial, 25.0, &path, 1.0)?, verdict, reason))
    })
}

fn server_hits(results: &Results) -> Claim {
    let what =
        "Large buffers: at 20 clients and more all forwarding algorithms have a hit rate of about 30 % at the server.";
    Claim::new("F-8 hits", what, "30 %").judge(|claim| {
        let trial = results.trial(TRIAL)?;
        let (verdict, reason) = at_each(&places(trial, 20.0, 25.0)?, |clients| {
            let near = |line: &&str| {
                let ours = percent(trial, line, clients, "server_hit_ratio")?;
                Some(ours.within(30.0 - POINTS..=30.0 + POINTS))
            };
            Some(Verdict::all(FORWARDERS.iter().map(near).collect::<Option<Vec<_>>>()?))
        })?;
        let ours = listed(trial, 25.0, &of("server_hit_ratio"), 100.0)?;
        Some(claim.judged(ours, verdict, format!("Each within {POINTS} points. {reason}")))
    })
}

fn network_bound(results: &Results) -> Claim {
    let what =
        "Large buffers, slow network: the forwarding algorithms are limited by the network at 15 clients and more.";
    Claim::new("F-8 network", what, "from 15 on").judge(|claim| {
        let trial = results.trial(TRIAL)?;
        let (verdict, reason) = at_each(&places(trial, 15.0, 25.0)?, |clients| {
            let busy = |line: &&str| Some(network(trial, line, clients)?.at_least(BUSY));
            Some(Verdict::all(FORWARDERS.iter().map(busy).collect::<Option<Vec<_>>>()?))
        })?;
        let ours = listed(trial, 25.0, "utilization.network.slow.utilization", 100.0)?;
        Some(claim.judged(ours, verdict, format!("The network is busy for 90 % at least. {reason}")))
    })
}

fn callback_locking(results: &Results) -> Claim {
    let what = "Large buffers, slow network: CBL is below the forwarding algorithms at 5 clients and more.";
    Claim::new("F-8 CBL", what, "below").judge(|claim| {
        let trial = results.trial(TRIAL)?;
        let (verdict, reason) =
            at_each(&places(trial, 5.0, 25.0)?, |clients| is_lowest(trial, "CBL", &ALL, clients, TPS))?;
        Some(claim.judged(listed(trial, 10.0, TPS, 1.0)?, verdict, reason))
    })
}

fn hints_ahead(results: &Results) -> Claim {
    let what = "Large buffers, slow network: FWD-H is slightly ahead up to 10 clients.";
    Claim::new("F-8 FWD-H", what, "ahead").judge(|claim| {
        let trial = results.trial(TRIAL)?;
        let (verdict, reason) =
            at_each(&places(trial, 2.0, 10.0)?, |clients| is_highest(trial, "FWD-H", &ALL, clients, TPS))?;
        Some(claim.judged(listed(trial, 10.0, TPS, 1.0)?, verdict, reason))
    })
}
