use super::ground::{List, give_up, machine, rows, settings, with_space};
use crate::temp::sort::{SortReport, sort};
use crate::temp::{FILE, Iterated, Rows, Space, TempSettings};
use crate::{Error, Result};
use base::Random;
use driver::OpKind;
use virtual_driver::{BitFlip, ErrorAt, FaultPlan};

async fn sorted(space: &Space, rows: &List, memory: u64) -> Result<(List, SortReport)> {
    let mut sorted = sort(space, Iterated::new(rows.iter().map(|(key, value)| (key, value))), memory).await?;
    let mut found = List::new();
    while let Some(row) = sorted.next().await? {
        found.push((row.key.to_vec(), row.value.to_vec()));
    }
    assert_eq!(sorted.next().await?, None, "the end stays the end");
    Ok((found, sorted.report()))
}

/// The same rows, and in order.
fn check(found: &List, rows: &List) {
    assert!(found.is_sorted_by_key(|(key, _)| key), "in order");
    let ordered = |rows: &List| {
        let mut rows = rows.clone();
        rows.sort();
        rows
    };
    assert!(ordered(found) == ordered(rows), "the same rows");
}

#[test]
fn sorts_as_vectors_do() {
    let (mut spilled, mut passes, mut in_memory) = (0, 0, 0);
    for seed in 0..40 {
        let mut random = Random::stream(seed, "sorts");
        let cluster = 512_usize << random.below(3);
        let memory = cluster as u64 * random.between(16, 60);
        let most = memory / 4 - 30;
        let longest = if random.chance(0.3) { most } else { random.below(300) };
        let count = if random.chance(0.1) { random.below(3) } else { random.below(2_500.min(600_000 / (longest + 1))) };
        let keys = 1 + random.below(count + 1);
        let rows = rows(&mut random, count, keys, longest);
        let found =
            with_space(&machine(None, seed), &settings(cluster), async |space| sorted(space, &rows, memory).await);
        let (found, report) = found.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        check(&found, &rows);
        assert_eq!(report.rows, count);
        assert_eq!(report.runs > 0, report.passes > 0);
        spilled += u32::from(report.runs > 0);
        in_memory += u32::from(report.runs == 0);
        passes = passes.max(report.passes);
    }
    assert!(spilled > 15 && in_memory > 2 && passes > 1, "{spilled} {in_memory} {passes}");
}

#[test]
fn few_runs_are_merged_at_once_and_many_in_passes() {
    let rows: List = (0..6_000_u32).map(|n| (n.reverse_bits().to_be_bytes().to_vec(), vec![0; 60])).collect();
    let reports = [64, 16].map(|clusters| {
        let executor = machine(None, 1);
        with_space(&executor, &settings(1024), async |space| {
            sorted(space, &rows, clusters * 1024).await.expect("sorts").1
        })
    });
    assert_eq!(reports[0].passes, 1, "{reports:?}");
    assert!(reports[1].passes > 1 && reports[1].spilled_bytes > reports[0].spilled_bytes, "{reports:?}");
    let data = rows.len() as u64 * 66;
    assert!((data..data * 11 / 10).contains(&reports[0].spilled_bytes), "written once: {reports:?}");
}

#[test]
fn a_failed_transfer_is_told_and_leaves_nothing_lent() {
    let rows = rows(&mut Random::stream(1, "rows"), 3_000, 1_000, 50);
    for kind in [OpKind::Write, OpKind::Read] {
        for nth in [1, 2, 40] {
            let errors = vec![ErrorAt { kind, device: None, nth }];
            let executor = machine(Some(FaultPlan { errors, ..FaultPlan::default() }), nth);
            let result = with_space(&executor, &settings(512), async |space| {
                let failed = sorted(space, &rows, 9_000).await;
                let again = sorted(space, &rows, 9_000).await.expect("the device works again");
                check(&again.0, &rows);
                failed
            });
            assert!(matches!(result, Err(Error::Input(_))), "{kind:?} {nth}: {:?}", result.map(|found| found.1));
        }
    }
}

#[test]
fn a_flipped_bit_is_found_and_its_place_named() {
    let rows = rows(&mut Random::stream(2, "rows"), 1_500, 1_000, 50);
    let mut found = 0;
    for nth_write in (1..60).step_by(2) {
        let flips = vec![BitFlip { device: None, nth_write }];
        let executor = machine(Some(FaultPlan { flips, ..FaultPlan::default() }), nth_write);
        let result = with_space(&executor, &settings(512), async |space| sorted(space, &rows, 9_000).await);
        match result {
            Err(Error::DamagedTemp { file, offset, .. }) => {
                assert!(file == crate::temp::FILE && offset.is_multiple_of(512));
                found += 1;
            }
            // Bytes behind the last row mean nothing.
            Ok((sorted, _)) => check(&sorted, &rows),
            Err(other) => panic!("{other}"),
        }
    }
    assert!(found > 20, "{found}");
}

#[test]
fn full_space_says_what_to_do_and_is_empty_again() {
    let rows = rows(&mut Random::stream(3, "rows"), 3_000, 1_000, 50);
    let executor = machine(None, 1);
    let small = TempSettings { size: 20_000, ..settings(512) };
    let error = with_space(&executor, &small, async |space| {
        let error = sorted(space, &rows, 9_000).await.expect_err("there is not enough");
        // What does fit is sorted.
        let few = rows[..300].to_vec();
        check(&sorted(space, &few, 9_000).await.expect("fits").0, &few);
        error
    });
    assert_eq!(
        error.to_string(),
        "temporary space on device 'disk' is full with 16 KiB: that is all [temp] allows; raise its size, or give the \
         operation more memory, or run fewer at once"
    );
}

#[test]
fn rows_and_memory_have_their_limits() {
    with_space(&machine(None, 1), &settings(512), async |space| {
        let long = vec![(vec![1; 20], vec![2; 3_000])];
        let limit = 9_000 / 4 - 10;
        assert_eq!(sorted(space, &long, 9_000).await, Err(Error::RowTooLong { found: 3_020, limit }));
        assert!(matches!(sorted(space, &long, 8_000).await, Err(Error::Setting(_))));
        let fits = vec![(vec![1; 20], vec![2; limit - 20]); 40];
        check(&sorted(space, &fits, 9_000).await.expect("sorts").0, &fits);
    });
}

#[test]
fn a_sort_can_be_given_up_at_any_moment() {
    let rows = rows(&mut Random::stream(4, "rows"), 2_000, 1_000, 50);
    let executor = machine(None, 1);
    let mut ended = false;
    with_space(&executor, &settings(512), async |space| {
        let mut polls = 1;
        while !ended {
            ended = give_up(sorted(space, &rows, 9_000), polls).await.is_some();
            polls += 1 + polls / 3;
        }
        // The space is as good as new.
        let (found, _) = sorted(space, &rows, 9_000).await.expect("sorts");
        check(&found, &rows);
    });
}

#[test]
fn a_step_that_is_given_up_can_be_asked_for_again() {
    let rows = rows(&mut Random::stream(5, "rows"), 2_000, 1_000, 50);
    with_space(&machine(None, 1), &settings(512), async |space| {
        let source = Iterated::new(rows.iter().map(|(key, value)| (key, value)));
        let mut sorted = sort(space, source, 9_000).await.expect("sorts");
        let mut found = List::new();
        loop {
            let next = async { sorted.next().await.map(|row| row.map(|row| (row.key.to_vec(), row.value.to_vec()))) };
            match give_up(next, 1).await {
                None => space.executor().yield_now().await,
                Some(row) => match row.expect("nothing fails") {
                    Some(row) => found.push(row),
                    None => break,
                },
            }
        }
        check(&found, &rows);
    });
}

#[test]
fn a_virtual_cpu_pays_for_sorting() {
    let rows = rows(&mut Random::stream(6, "rows"), 5_000, 1_000, 50);
    let times = [false, true].map(|described| {
        let mut hardware = virtual_driver::Hardware::named("nvme-2026").expect("embedded");
        if !described {
            hardware.cpu = None;
        }
        let driver = virtual_driver::VirtualDriver::new(hardware, Default::default(), virtual_driver::Media::new());
        let executor = executor::Executor::new(Box::new(driver), executor::Order::FirstInFirstOut);
        let space = Space::new(&executor, FILE, ("nvme", &settings(4096)));
        let ended = executor.run(async {
            sorted(&space, &rows, 80_000).await.expect("sorts");
            executor.now().ns()
        });
        executor.stop();
        ended.expect("the machine goes on")
    });
    // 5,000 rows, each copied three times and compared some 15 times, partly while the device works: at 3 instructions a
    // nanosecond 1.1 ms of CPU.
    let cpu_ns = times[1] - times[0];
    assert!((300_000..1_200_000).contains(&cpu_ns), "{cpu_ns} ns");
}

/// How long the last merge takes whose every row a consumer works on for as long as the merge itself, in nanoseconds.
fn merge_and_consumer_ns(rows: &List, cpus: u32) -> u64 {
    let text = format!(
        "[cpu]\ncount = {cpus}\nmips = 1_000\ndiscipline = \"run-until-wait\"\n[cpu.instructions]\nbegin_transaction = 0\n\
         object_reference = 0\nend_transaction = 0\ninput_output = 0\nnvem_access = 0\nkey_comparison = 100\nrow_copy = 100\n\
         [device.disk]\n"
    );
    let hardware = virtual_driver::Hardware::parse(&text, "test").unwrap_or_else(|error| panic!("{error}"));
    let driver = virtual_driver::VirtualDriver::new(hardware, Default::default(), virtual_driver::Media::new());
    let executor = executor::Executor::new(Box::new(driver), executor::Order::FirstInFirstOut);
    let space = Space::new(&executor, FILE, ("disk", &settings(4096)));
    let ended = executor.run(async {
        let source = Iterated::new(rows.iter().map(|(key, value)| (key, value)));
        let mut sorted = sort(&space, source, 80_000).await.expect("sorts");
        let began = executor.now();
        while sorted.next().await.expect("sorts").is_some() {
            executor.charge_instructions(500);
            executor.pay_debt().await;
        }
        assert_eq!(sorted.report().passes, 1, "{:?}", sorted.report());
        executor.now().since_ns(began)
    });
    executor.stop();
    ended.expect("the machine goes on")
}

#[test]
fn a_merge_runs_beside_the_thread_that_takes_its_rows() {
    let rows = rows(&mut Random::stream(6, "rows"), 5_000, 1_000, 50);
    let [one, two] = [1, 2].map(|cpus| merge_and_consumer_ns(&rows, cpus));
    assert!(one >= 2 * 5_000 * 400, "both work on every row: {one} ns");
    assert!(two < one * 3 / 4, "{two} ns on two CPUs, {one} on one");
}
