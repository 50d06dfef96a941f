//! Section 4.2.1: nothing is written, client buffers of 5 %.

use super::*;

pub(super) const SLOW: &str = "ro-5-slow";
pub(super) const FAST: &str = "ro-5-fast";

pub(super) fn claims(results: &Results) -> Vec<Claim> {
    let claims = [
        client_hits(results),
        client_hot_hits(results),
        server_hits_fall(results),
        server_hits_by_region(results),
        server_hits_with_hints(results),
        lowest_in_memory(results),
        forwarding_in_memory(results),
        hints_in_memory(results),
        sending_in_memory(results),
        highest_in_memory(results),
        curves_cross(results),
        one_read(results),
        pages_bounce(results),
        most_io(results),
        most_io_of_few(results),
        least_io(results),
        messages(results),
        best_on_slow_network(results),
        best_of_five(results),
        senders_fall_behind(results),
        lowest_throughput(results),
        network_bound(results),
        no_gain_for_few(results),
    ];
    let mut claims: Vec<Claim> = claims.into_iter().map(|claim| claim.seen_in(SLOW)).collect();
    claims.push(order_on_fast_network(results).seen_in(FAST));
    claims
}

fn near(ours: Estimate, paper: f64) -> Verdict {
    ours.within(paper - POINTS..=paper + POINTS)
}

fn client_hits(results: &Results) -> Claim {
    let what = "Clients find slightly over 65 % of their references in their own buffers, whatever the algorithm.";
    Claim::new("F-1 clients", what, "over 65 %").judge(|claim| {
        let trial = results.trial(SLOW)?;
        let places = places(trial, 1.0, 25.0)?;
        let near = |line: &&str, place| Some(near(percent(trial, line, place, "client_hit_ratio")?, 65.0));
        let judge = |place| Some(Verdict::all(ALL.iter().map(|line| near(line, place)).collect::<Option<Vec<_>>>()?));
        let (verdict, where_) = at_each(&places, judge)?;
        let ours = percent(trial, "CBL", 10.0, "client_hit_ratio")?;
        Some(
            claim.judged(ours.with_unit("%"), verdict, format!("Within {POINTS} points. {where_}")).with_interval(ours),
        )
    })
}

fn client_hot_hits(results: &Results) -> Claim {
    let what = "Clients find about 81 % of the references to their hot regions in their own buffers.";
    Claim::new("F-1 hot", what, "81 %").judge(|claim| {
        let ours = percent(results.trial(SLOW)?, "CBL", 10.0, "client_hot_hit_ratio")?;
        let reason = format!("Within {POINTS} points, with CBL and 10 clients.");
        Some(claim.judged(ours.with_unit("%"), near(ours, 81.0), reason).with_interval(ours))
    })
}

fn server_hits_fall(results: &Results) -> Claim {
    let what = "CBL's hit rate at the server falls from 58 % to 24 % from 1 to 25 clients.";
    Claim::new("F-2 fall", what, "58 and 24 %").judge(|claim| {
        let trial = results.trial(SLOW)?;
        let [one, many] = [1.0, 25.0].map(|clients| percent(trial, "CBL", clients, "server_hit_ratio"));
        let (one, many) = (one?, many?);
        let verdict = Verdict::all([near(one, 58.0), near(many, 24.0)]);
        let ours = format!("{} and {}", one.with_unit("%"), many.with_unit("%"));
        Some(claim.judged(ours, verdict, format!("Each within {POINTS} points.")))
    })
}

fn server_hits_by_region(results: &Results) -> Claim {
    let what = "CBL, 15 clients and more: at the server below 18 % for hot regions, above 28 % for cold ones.";
    Claim::new("F-2 regions", what, "below 18, above 28 %").judge(|claim| {
        let trial = results.trial(SLOW)?;
        let at = |clients, figure| percent(trial, "CBL", clients, figure);
        let judge = |clients| {
            let [hot, cold] = [at(clients, "server_hot_hit_ratio")?, at(clients, "server_cold_hit_ratio")?];
            Some(Verdict::all([hot.at_most(18.0), cold.at_least(28.0)]))
        };
        let (verdict, reason) = at_each(&places(trial, 15.0, 25.0)?, judge)?;
        let [hot, cold] = [at(25.0, "server_hot_hit_ratio")?, at(25.0, "server_cold_hit_ratio")?];
        let reason =
            format!("{reason} The paper's own figure for hot regions is 18 % (note 4), so this lies at the limit.");
        Some(claim.judged(format!("{:.1} and {:.1} % at 25", hot.mean, cold.mean), verdict, reason))
    })
}

fn server_hits_with_hints(results: &Results) -> Claim {
    let what = "FWD-H's hit rate at the server remains around 30 %.";
    Claim::new("F-2 hints", what, "30 %").judge(|claim| {
        let trial = results.trial(SLOW)?;
        let judge = |clients| Some(near(percent(trial, "FWD-H", clients, "server_hit_ratio")?, 30.0));
        let (verdict, reason) = at_each(&places(trial, 1.0, 25.0)?, judge)?;
        let ours = percent(trial, "FWD-H", 25.0, "server_hit_ratio")?;
        Some(
            claim
                .judged(ours.with_unit("% at 25"), verdict, format!("Within {POINTS} points. {reason}"))
                .with_interval(ours),
        )
    })
}

fn in_memory(trial: &Trial, line: &str) -> Option<Estimate> {
    percent(trial, line, 25.0, "in_memory_ratio")
}

fn lowest_in_memory(results: &Results) -> Claim {
    let what = "25 clients: CBL has the smallest portion of the database in memory, 30 % and somewhat more.";
    Claim::new("F-3 CBL", what, "30 %").judge(|claim| {
        let trial = results.trial(SLOW)?;
        let ours = in_memory(trial, "CBL")?;
        let lowest = is_lowest(trial, "CBL", &ALL, 25.0, &of("in_memory_ratio"))?;
        let verdict = Verdict::all([lowest, ours.within(30.0..=40.0)]);
        Some(claim.judged(ours.with_unit("%"), verdict, "The lowest, and 30 to 40 %.").with_interval(ours))
    })
}

fn forwarding_in_memory(results: &Results) -> Claim {
    let what = "25 clients: FWD has almost 90 % of the database in memory.";
    Claim::new("F-3 FWD", what, "almost 90 %").judge(|claim| {
        let ours = in_memory(results.trial(SLOW)?, "FWD")?;
        let reason = "From 85 to 90 %.";
        Some(claim.judged(ours.with_unit("%"), ours.within(85.0..=90.0), reason).with_interval(ours))
    })
}

fn hints_in_memory(results: &Results) -> Claim {
    let what = "25 clients: FWD-H has slightly more of the database in memory than FWD.";
    Claim::new("F-3 FWD-H", what, "slightly more").judge(|claim| {
        let ours = above(results.trial(SLOW)?, ["FWD-H", "FWD"], 25.0, &of("in_memory_ratio"))? * 100.0;
        let reason = "By 0 to 5 points.";
        Some(claim.judged(ours.with_unit("points"), ours.within(0.0..=5.0), reason).with_interval(ours))
    })
}

fn sending_in_memory(results: &Results) -> Claim {
    let what = "25 clients: FWD-S has close to the entire database in memory.";
    Claim::new("F-3 FWD-S", what, "close to 100 %").judge(|claim| {
        let ours = in_memory(results.trial(SLOW)?, "FWD-S")?;
        Some(claim.judged(ours.with_unit("%"), ours.at_least(95.0), "At least 95 %.").with_interval(ours))
    })
}

fn highest_in_memory(results: &Results) -> Claim {
    let what = "FWD-HS has the largest portion of the database in memory from 1 to 25 clients, almost 100 % at 25.";
    Claim::new("F-3 FWD-HS", what, "almost 100 %").judge(|claim| {
        let trial = results.trial(SLOW)?;
        let judge = |clients| is_highest(trial, "FWD-HS", &ALL, clients, &of("in_memory_ratio"));
        let (highest, reason) = at_each(&places(trial, 1.0, 25.0)?, judge)?;
        let ours = in_memory(trial, "FWD-HS")?;
        let verdict = Verdict::all([highest, ours.at_least(98.0)]);
        Some(
            claim
                .judged(ours.with_unit("%"), verdict, format!("The highest, and 98 % at 25. {reason}"))
                .with_interval(ours),
        )
    })
}

fn curves_cross(results: &Results) -> Claim {
    let what = "FWD-H has more of the database in memory than FWD-S with few clients, and less with 25.";
    Claim::new("F-3 crossing", what, "they cross").judge(|claim| {
        let trial = results.trial(SLOW)?;
        let path = of("in_memory_ratio");
        let few = above(trial, ["FWD-H", "FWD-S"], 2.0, &path)? * 100.0;
        let many = above(trial, ["FWD-S", "FWD-H"], 25.0, &path)? * 100.0;
        let verdict = Verdict::all([few.at_least(0.0), many.at_least(0.0)]);
        let ours = format!("{:+.1} points at 2, {:+.1} at 25", few.mean, -many.mean);
        Some(claim.judged(ours, verdict, "By how much FWD-H is above FWD-S."))
    })
}

fn one_read(results: &Results) -> Claim {
    let what = "FWD-HS, 20 clients and more: a page is read from disk only once.";
    Claim::new("F-4 once", what, "no reads").judge(|claim| {
        let trial = results.trial(SLOW)?;
        let reads = |clients| trial.figure("FWD-HS", clients, &of("disk_reads_per_commit"));
        let (verdict, reason) = at_each(&places(trial, 20.0, 25.0)?, |clients| Some(reads(clients)?.at_most(0.05)))?;
        let ours = reads(25.0)?;
        let reason = format!("At most 0.05 reads per transaction behind the warm-up. {reason}");
        Some(claim.judged(ours.with_unit("per transaction at 25"), verdict, reason).with_interval(ours))
    })
}

fn pages_bounce(results: &Results) -> Claim {
    let what = "FWD-HS, 2 clients: over 95 % of the pages dropped by clients are sent back to the server.";
    Claim::new("F-4 bounce", what, "over 95 %").judge(|claim| {
        let ours = percent(results.trial(SLOW)?, "FWD-HS", 2.0, "dropped_sent_ratio")?;
        Some(claim.judged(ours.with_unit("%"), ours.at_least(95.0), "At least 95 %.").with_interval(ours))
    })
}

fn most_io(results: &Results) -> Claim {
    let what = "CBL has the most disk operations per transaction at 10 clients and more.";
    Claim::new("F-5 CBL", what, "the most").judge(|claim| {
        let trial = results.trial(SLOW)?;
        let path = of("disk_io_per_commit");
        let (verdict, reason) =
            at_each(&places(trial, 10.0, 25.0)?, |clients| is_highest(trial, "CBL", &ALL, clients, &path))?;
        Some(claim.judged(listed(trial, 10.0, &path, 1.0)?, verdict, reason))
    })
}

fn most_io_of_few(results: &Results) -> Claim {
    let what = "FWD-H has the most disk operations per transaction up to 5 clients.";
    Claim::new("F-5 FWD-H", what, "the most").judge(|claim| {
        let trial = results.trial(SLOW)?;
        let path = of("disk_io_per_commit");
        let (verdict, reason) =
            at_each(&places(trial, 1.0, 5.0)?, |clients| is_highest(trial, "FWD-H", &ALL, clients, &path))?;
        let crossing = listed(trial, 5.0, &path, 1.0)?;
        let reason = format!("{reason} The curves of FWD-H and CBL cross near 5: {crossing}.");
        Some(claim.judged(listed(trial, 2.0, &path, 1.0)?, verdict, reason))
    })
}

fn least_io(results: &Results) -> Claim {
    let what = "FWD-HS has the fewest disk operations per transaction.";
    Claim::new("F-5 FWD-HS", what, "the fewest").judge(|claim| {
        let trial = results.trial(SLOW)?;
        let path = of("disk_io_per_commit");
        let (verdict, reason) =
            at_each(&places(trial, 1.0, 25.0)?, |clients| is_lowest(trial, "FWD-HS", &ALL, clients, &path))?;
        Some(claim.judged(listed(trial, 5.0, &path, 1.0)?, verdict, reason))
    })
}

fn messages(results: &Results) -> Claim {
    let what = "CBL sends the fewest messages per transaction, FWD-HS the most.";
    Claim::new("F-5 messages", what, "CBL, FWD-HS").judge(|claim| {
        let trial = results.trial(SLOW)?;
        let path = of("messages_per_commit");
        // With one client there is nothing to forward.
        let (verdict, reason) = at_each(&places(trial, 2.0, 25.0)?, |clients| {
            let fewest = is_lowest(trial, "CBL", &ALL, clients, &path)?;
            Some(Verdict::all([fewest, is_highest(trial, "FWD-HS", &ALL, clients, &path)?]))
        })?;
        let reason = format!("{reason}{}{}", messages_of_two(trial), messages_of_senders(trial).unwrap_or_default());
        Some(claim.judged(listed(trial, 10.0, &path, 1.0)?, verdict, reason))
    })
}

/// What can be told of CBL and FWD with few clients.
fn messages_of_two(trial: &Trial) -> String {
    let forwards = trial.figure("FWD", 2.0, &of("messages.forward"));
    forwards.map_or_else(String::new, |forwards| {
        format!(
            " At 2 FWD has all that clients have in the server's memory, too, and forwards {:.3} requests: by so much it differs from CBL.",
            forwards.mean
        )
    })
}

/// Why FWD-S sends more than FWD-HS in the end, where it does.
fn messages_of_senders(trial: &Trial) -> Option<String> {
    let lines = ["FWD-S", "FWD-HS"];
    let difference = above(trial, lines, 25.0, &of("messages_per_commit"))?;
    if difference.at_least(0.0) != Verdict::Holds {
        return None;
    }
    let of_both = |figure: &str| -> Option<[f64; 2]> {
        let [sending, both] = lines.map(|line| Some(trial.figure(line, 25.0, &of(figure))?.mean));
        Some([sending?, both?])
    };
    let [reads, forwards, returned] = ["disk_reads_per_commit", "messages.forward", "messages.returned"].map(of_both);
    let ([reads, no_reads], [forwards, more], [returned, fewer]) = (reads?, forwards?, returned?);
    Some(format!(
        " At 25 FWD-S sends {:.2} ({:.2}) more than FWD-HS: it forwards {forwards:.2} requests to FWD-HS's {more:.2}, and {returned:.2} \
         dropped pages come back to {fewer:.2}. With FWD-HS {no_reads:.2} pages are still read from disk, so no more requests can be \
         forwarded; with each client more, fewer pages come back. FWD-S still reads {reads:.2}, and forwards in their place as clients are \
         added. A model of the rules without time sends as many of each kind, and there the curves cross at 22 clients. The paper has no \
         figure here; it says that FWD-HS's count falls and FWD-S's does not, and that beyond 15 clients FWD-HS sends fewer bytes.",
        difference.mean,
        difference.half_width.unwrap_or(0.0),
    ))
}

fn best_on_slow_network(results: &Results) -> Claim {
    let what = "Slow network: FWD-H has the highest throughput from 10 to 20 clients, and FWD equals it at 25.";
    Claim::new("F-6 best", what, "FWD-H").judge(|claim| {
        let trial = results.trial(SLOW)?;
        let (highest, reason) =
            at_each(&places(trial, 10.0, 20.0)?, |clients| is_highest(trial, "FWD-H", &ALL, clients, TPS))?;
        let (equal, ratio) = is_equal(trial, &["FWD", "FWD-H"], 25.0, TPS, EQUAL)?;
        let reason = format!("{reason} At 25 they are {:.3} apart.", ratio.mean);
        Some(claim.judged(listed(trial, 10.0, TPS, 1.0)?, Verdict::all([highest, equal]), reason))
    })
}

fn best_of_five(results: &Results) -> Claim {
    let what = "Slow network, 5 clients: FWD-S has the highest throughput.";
    Claim::new("F-6 five", what, "FWD-S").judge(|claim| {
        let trial = results.trial(SLOW)?;
        let verdict = is_highest(trial, "FWD-S", &ALL, 5.0, TPS)?;
        Some(claim.judged(listed(trial, 5.0, TPS, 1.0)?, verdict, "Beyond chance."))
    })
}

fn senders_fall_behind(results: &Results) -> Claim {
    let what = "Slow network, beyond 10 clients: FWD-S and FWD-HS are below FWD and FWD-H.";
    Claim::new("F-6 senders", what, "below").judge(|claim| {
        let trial = results.trial(SLOW)?;
        let (verdict, reason) = at_each(&places(trial, 15.0, 25.0)?, |clients| {
            let others = ["FWD", "FWD-H"];
            let of = |sender| is_lowest(trial, sender, &others, clients, TPS);
            Some(Verdict::all([of("FWD-S")?, of("FWD-HS")?]))
        })?;
        Some(claim.judged(listed(trial, 25.0, TPS, 1.0)?, verdict, reason))
    })
}

fn lowest_throughput(results: &Results) -> Claim {
    let what = "Slow network: CBL has the lowest throughput in the end.";
    Claim::new("F-6 CBL", what, "the lowest").judge(|claim| {
        let trial = results.trial(SLOW)?;
        let verdict = is_lowest(trial, "CBL", &ALL, 25.0, TPS)?;
        Some(claim.judged(listed(trial, 25.0, TPS, 1.0)?, verdict, "At 25 clients, beyond chance."))
    })
}

fn network_bound(results: &Results) -> Claim {
    let what = "Slow network: FWD-HS is limited by the network at 5 clients, FWD-S at 10.";
    Claim::new("F-6 network", what, "5 and 10 clients").judge(|claim| {
        let trial = results.trial(SLOW)?;
        let [first, second] = [network(trial, "FWD-HS", 5.0)?, network(trial, "FWD-S", 10.0)?];
        let verdict = Verdict::all([first.at_least(BUSY), second.at_least(BUSY)]);
        let ours = format!("{:.0} and {:.0} % busy", first.mean * 100.0, second.mean * 100.0);
        Some(claim.judged(ours, verdict, "The network is busy for 90 % at least."))
    })
}

fn no_gain_for_few(results: &Results) -> Claim {
    let what = "Slow network, up to 5 clients: FWD-H and FWD-HS are slightly below CBL.";
    Claim::new("F-6 few", what, "slightly below").judge(|claim| {
        let trial = results.trial(SLOW)?;
        let (verdict, reason) = at_each(&places(trial, 2.0, 5.0)?, |clients| {
            let slightly = |line| {
                let ratio = over(trial, [line, "CBL"], clients, TPS)?;
                Some(ratio.within(0.8..=1.0))
            };
            Some(Verdict::all([slightly("FWD-H")?, slightly("FWD-HS")?]))
        })?;
        Some(claim.judged(listed(trial, 2.0, TPS, 1.0)?, verdict, format!("0.8 to 1.0 of it. {reason}")))
    })
}

fn order_on_fast_network(results: &Results) -> Claim {
    let what = "Fast network: FWD-HS has the highest throughput, followed by FWD-S, FWD-H, FWD and CBL.";
    Claim::new("F-7", what, "FWD-HS, FWD-S, FWD-H, FWD, CBL").judge(|claim| {
        let trial = results.trial(FAST)?;
        let order = ["FWD-HS", "FWD-S", "FWD-H", "FWD", "CBL"];
        let (verdict, reason) = at_each(&places(trial, 10.0, 25.0)?, |clients| {
            let pairs =
                order.windows(2).map(|pair| Some(above(trial, [pair[0], pair[1]], clients, TPS)?.at_least(0.0)));
            Some(Verdict::all(pairs.collect::<Option<Vec<_>>>()?))
        })?;
        Some(claim.judged(
            listed(trial, 10.0, TPS, 1.0)?,
            verdict,
            format!("Each above the next beyond chance. {reason}"),
        ))
    })
}
