//! Fronts, rounds and pruning.

use super::{changed, read};
use crate::EXAMPLE;
use crate::front::{front, layers};
use crate::halving::{Score, rungs, survivors};
use proptest::prelude::*;
use workload::trace::miss_ratio::Shards;

proptest! {
    #[test]
    fn a_front_has_what_nothing_is_better_than(points in prop::collection::vec((0_u8..20, 0_u8..20), 0..40)) {
        let points: Vec<(f64, f64)> = points.into_iter().map(|(x, y)| (f64::from(x), f64::from(y))).collect();
        let found = front(&points);
        let beats = |a: (f64, f64), b: (f64, f64)| a.0 <= b.0 && a.1 <= b.1 && a != b;
        for (at, point) in points.iter().enumerate() {
            let is_beaten = points.iter().any(|other| beats(*other, *point));
            let has_equal = found.iter().any(|member| points[*member] == *point);
            prop_assert_eq!(!is_beaten, has_equal, "{} of {:?}", at, points);
        }
        prop_assert!(found.windows(2).all(|pair| points[pair[0]].0 < points[pair[1]].0));
        let mut all: Vec<usize> = layers(&points).into_iter().flatten().collect();
        all.sort_unstable();
        prop_assert_eq!(all, (0..points.len()).collect::<Vec<_>>());
    }

    #[test]
    fn rounds_end_in_full_runs(count in 1_usize..400, rounds in 1_u32..6, factor in 2_u64..6, least in 1_usize..40) {
        let rungs = rungs(count, rounds, factor, least);
        prop_assert_eq!(rungs[0].candidates, count);
        prop_assert_eq!(rungs[rungs.len() - 1].divisor, 1);
        prop_assert!(rungs.windows(2).all(|pair| pair[0].divisor >= pair[1].divisor * factor));
        prop_assert!(rungs.windows(2).all(|pair| pair[0].candidates > pair[1].candidates));
        prop_assert!(rungs.iter().all(|rung| rung.candidates >= least.min(count)));
    }

    #[test]
    fn the_front_survives_every_round(
        scores in prop::collection::vec((0.1_f64..2.0, 0_u8..50, 0_u8..50), 1..60),
        count in 1_usize..30,
    ) {
        let scores: Vec<Score> = scores
            .into_iter()
            .map(|(used, cost, time)| Score { used, cost: f64::from(cost), time: f64::from(time) })
            .collect();
        let chosen = survivors(&scores, count);
        prop_assert!(chosen.len() >= count.min(scores.len()));
        let is_better = |a: &Score, b: &Score| a.used <= 1.0 && a.cost <= b.cost && a.time <= b.time && (a.cost < b.cost || a.time < b.time);
        for (at, score) in scores.iter().enumerate() {
            let on_front = score.used <= 1.0 && !scores.iter().any(|other| is_better(other, score));
            let has_equal = chosen.iter().any(|other| scores[*other].cost == score.cost && scores[*other].time == score.time);
            prop_assert!(!on_front || has_equal, "{} of {:?}", at, scores);
        }
        // Of those that break a limit the nearest ones stay.
        let broken = |at: &&usize| scores[**at].used > 1.0;
        let worst = chosen.iter().filter(broken).map(|at| scores[*at].used).fold(0.0, f64::max);
        let left_out = (0..scores.len()).filter(|at| !chosen.contains(at) && scores[*at].used > 1.0);
        prop_assert!(worst == 0.0 || left_out.map(|at| scores[at].used).all(|used| used >= worst));
    }
}

#[test]
fn what_reads_more_than_its_volume_does_is_pruned_by_the_curve() {
    let plan = read(EXAMPLE).unwrap();
    let candidate = &plan.candidates[0];
    let buffer = &candidate.setting.configuration.buffer;
    let frames = buffer.size / u64::from(buffer.page_size);
    // A loop over twice as many pages as there are frames misses always, one over half of them never.
    for (pages, misses) in [(2 * frames, true), (frames / 2, false)] {
        let mut shards = Shards::new(1 << 12);
        (0..3 * pages).for_each(|page| shards.reference(page % pages));
        let unfit = candidate.find_unread(&shards.curve(), 20.0, &plan.limits);
        assert_eq!(unfit.map(|unfit| unfit.limit()), misses.then_some("throughput"), "{pages} pages");
    }
    // Without a rate and a limit nothing is asked for, so nothing is pruned.
    let text = changed("throughput = 390", "").replace("rate = 400", "clients = 8");
    let plan = read(&text).unwrap();
    let mut shards = Shards::new(1 << 12);
    (0..6 * frames).for_each(|page| shards.reference(page % (2 * frames)));
    assert_eq!(plan.candidates[0].find_unread(&shards.curve(), 20.0, &plan.limits), None);
}

#[test]
fn what_is_on_other_devices_is_read_there_and_takes_its_room_there() {
    let elsewhere = "log.size = \"2 GiB\"\npartition.orders.device = \"other\"";
    let other = "[machine.volume.other]\ntype = \"gp3\"\nsize = \"30 GB\"\n\n# What all candidates share";
    let text = changed("log.size = \"2 GiB\"", elsewhere).replace("# What all candidates share", other);
    let plan = read(&text).unwrap();
    let candidate = &plan.candidates[0];
    let frames =
        candidate.setting.configuration.buffer.size / u64::from(candidate.setting.configuration.buffer.page_size);
    let mut shards = Shards::new(1 << 12);
    (0..6 * frames).for_each(|page| shards.reference(page % (2 * frames)));
    assert_eq!(candidate.find_unread(&shards.curve(), 20.0, &plan.limits), None);
    // 40 GB and the log do not fit on 5 GB and 30 GB, and do on 15 GB and 30 GB.
    for (size, fits) in [("5 GB", false), ("15 GB", true)] {
        let plan = read(&text.replace("size = \"80 GB\"", &format!("size = \"{size}\""))).unwrap();
        let crowded = plan.refused.iter().filter(|refused| refused.unfit.limit() == "capacity").count();
        assert_eq!((crowded == 0, plan.candidates.is_empty()), (fits, !fits), "{size}");
    }
}

#[test]
fn a_short_run_is_long_enough_for_some_arrivals() {
    let text = changed("transactions = 10_000", "seconds = 100").replace("rate = 400", "rate = 5");
    let plan = read(&text).unwrap();
    let candidate = &plan.candidates[0];
    let seconds = |divisor: u64| match candidate.part(divisor).plan.measure {
        workload::Length::Time(ns) => ns as f64 / 1e9,
        workload::Length::Transactions(_) => panic!("it is measured by time"),
    };
    assert_eq!([1, 2, 16].map(seconds), [100.0, 50.0, 40.0]);
    let brief = read(&text.replace("seconds = 100", "seconds = 10")).unwrap();
    let measured = |divisor: u64| brief.candidates[0].part(divisor).plan.measure;
    assert_eq!(measured(16), measured(1), "the whole is no longer");
}
