//! The models that measured devices need, each saturated against what its description states.

use super::{DURABLE, WRITE, close, load, scattered};
use crate::tests::{next_completion, page};
use crate::{Direction, Hardware, HardwareError, JobId, Law, Machine, Transfer};
use base::statistics::Histogram;
use base::{Instant, Random};
use std::collections::BTreeMap;

fn described(text: &str) -> Hardware {
    Hardware::parse(text, "test").unwrap_or_else(|error| panic!("{error}"))
}

/// Reads and writes that stand beside each other: 1 and 8 of each are tabled.
const TABLES: &str = "[device.d.medium.concurrency]\nreads = [0, 1, 8]\nwrites = [0, 1, 8]\n\
    read = [[\"50 us\", \"70 us\", \"200 us\"], [\"50 us\", \"70 us\", \"200 us\"], [\"100 us\", \"150 us\", \"400 us\"]]\n\
    write = [[\"40 us\", \"40 us\", \"120 us\"], [\"60 us\", \"60 us\", \"160 us\"], [\"200 us\", \"200 us\", \"500 us\"]]\n";

/// What each of several closed loops on one device does: its rate per second and its times.
fn beside(hardware: &Hardware, loops: &[(Direction, usize)], requests: u64) -> Vec<(f64, Histogram)> {
    let mut machine = Machine::new(hardware, 17, false);
    let mut random = Random::stream(19, "pages");
    let mut under_way: BTreeMap<JobId, (usize, Instant)> = BTreeMap::new();
    let mut times: Vec<Histogram> = loops.iter().map(|_| Histogram::new()).collect();
    let mut begin = |machine: &mut Machine, under_way: &mut BTreeMap<_, _>, number: usize| {
        let length = if loops[number].0 == Direction::Sync { 0 } else { 4096 };
        let job = machine.transfer(0, Transfer { length, ..page(loops[number].0, random.below(1 << 30)) });
        under_way.insert(job, (number, machine.now()));
    };
    for (number, (_, depth)) in loops.iter().enumerate() {
        (0..*depth).for_each(|_| begin(&mut machine, &mut under_way, number));
    }
    for _ in 0..requests {
        let job = next_completion(&mut machine);
        let (number, entered) = under_way.remove(&job).expect("it is under way");
        times[number].record(machine.now().since_ns(entered));
        begin(&mut machine, &mut under_way, number);
    }
    for station in machine.stations().iter().filter(|station| station.completed > 0) {
        assert!(station.little_error < 1e-9, "{station:?}");
    }
    let seconds = machine.now().seconds();
    times.into_iter().map(|times| (times.count() as f64 / seconds, times)).collect()
}

/// A device that flushes for 400 us and reads in 100 us with eight reads under way: what it has begun goes on beside a flush, and what
/// comes meanwhile waits. So of each loop one read goes with each flush.
#[test]
fn a_flush_holds_what_comes_meanwhile() {
    let text = |holds: bool| {
        let tables = TABLES.replacen("concurrency]\n", &format!("concurrency]\nflush_holds = {holds}\n"), 1);
        described(&format!("{tables}[device.d]\nsync = \"400 us\"\n[device.d.medium]\nservice = \"fixed 1 us\""))
    };
    for (reads, free, held) in [(1, 20_000.0, 2_500.0), (8, 80_000.0, 20_000.0)] {
        let loops = [(Direction::Read, reads), (Direction::Sync, 1)];
        let [free_seen, held_seen] = [false, true].map(|holds| beside(&text(holds), &loops, 40_000));
        close(free_seen[0].0, free, 0.01);
        close(held_seen[0].0, held, 0.01);
        close(held_seen[1].0, 2_500.0, 0.01);
    }
}

#[test]
fn tables_are_met_where_they_stand_and_between() {
    for law in ["fixed 1 us", "exponential 1 us", "quantiles 0% 1 us, 50% 2 us, 99% 9 us, 100% 40 us"] {
        let hardware = described(&format!("{TABLES}[device.d.medium]\nservice = \"{law}\""));
        for (reads, writes, read_us, write_us) in [
            (1, 0, 50.0, f64::NAN),
            (8, 0, 100.0, f64::NAN),
            (0, 1, f64::NAN, 40.0),
            (1, 1, 70.0, 60.0),
            (8, 8, 400.0, 500.0),
            (8, 1, 150.0, 200.0),
            // Half way between 1 and 8 is 4.5; beyond the tables the line goes on.
            (4, 0, 50.0 + 50.0 * 3.0 / 7.0, f64::NAN),
            (15, 0, 150.0, f64::NAN),
            (4, 8, 200.0 + 200.0 * 3.0 / 7.0, 160.0 + 340.0 * 3.0 / 7.0),
        ] {
            let done = beside(&hardware, &[(Direction::Read, reads), (WRITE, writes)], 100_000);
            for ((rate, times), depth, us) in [(&done[0], reads, read_us), (&done[1], writes, write_us)] {
                if depth > 0 {
                    // Four standard deviations of the mean of this number of random times.
                    close(*rate, depth as f64 * 1e6 / us, 0.002 + 4.0 / (times.count() as f64).sqrt());
                }
            }
        }
    }
}

#[test]
fn the_law_stands_about_the_tabled_mean() {
    let law = "quantiles 0% 80 us, 50% 90 us, 90% 110 us, 99% 200 us, 100% 1 ms";
    let hardware = described(&format!("{TABLES}[device.d.medium]\nservice = \"{law}\""));
    let mean_ns = law.parse::<Law>().expect("a law").mean_ns();
    let times = &beside(&hardware, &[(Direction::Read, 8)], 200_000)[0].1;
    for (share, ns) in [(0.5, 90e3), (0.9, 110e3), (0.99, 200e3)] {
        close(times.quantile_ns(share) as f64, ns / mean_ns * 100e3, 0.03);
    }
}

#[test]
fn laws_by_what_is_under_way_keep_the_means_and_have_their_own_tails() {
    let row = |first: &str, last: &str| format!("[\"{first}\", \"{first}\", \"{last}\"]");
    let (even, tailed) = ("fixed 1 us", "quantiles 0% 50 us, 90% 90 us, 98% 100 us, 100% 4 ms");
    let laws = format!("[{0}, {0}, {1}]", row(tailed, even), row(even, even));
    let text = format!(
        "{TABLES}read_law = {laws}\nwrite_law = {laws}\nsync_law = {laws}\ndurable_write_law = {laws}\n\
         sync = [[\"70 us\", \"70 us\", \"70 us\"], [\"70 us\", \"70 us\", \"70 us\"], [\"70 us\", \"70 us\", \"70 us\"]]\n\
         [device.d.medium]\nservice = \"exponential 1 us\""
    );
    let hardware = described(&text);
    let mean_ns = tailed.parse::<Law>().expect("a law").mean_ns();
    let alone = &beside(&hardware, &[(Direction::Read, 1)], 400_000)[0];
    close(alone.0, 1e6 / 50.0, 0.03);
    close(alone.1.quantile_ns(0.98) as f64, 100e3 / mean_ns * 50e3, 0.03);
    // With eight under way all are alike; the first eight began alone.
    let busy = &beside(&hardware, &[(Direction::Read, 8)], 400_000)[0];
    close(busy.0, 8e6 / 100.0, 0.01);
    close(busy.1.quantile_ns(0.99) as f64, 100e3, 0.01);
    // Between one and eight, four sevenths have the tail of one that is alone, about a mean of 50 + 3/7 * 50 us.
    let between = &beside(&hardware, &[(Direction::Read, 4)], 1_000_000)[0];
    let (mean_us, far_us) = (50.0 + 50.0 * 3.0 / 7.0, 2_050e3 / mean_ns);
    close(between.0, 4e6 / mean_us, 0.02);
    close(between.1.quantile_ns(1.0 - 0.01 * 4.0 / 7.0) as f64, far_us * mean_us * 1e3, 0.05);
    let syncs = &beside(&hardware, &[(Direction::Sync, 1), (WRITE, 8)], 100_000)[0];
    close(syncs.0, 1e6 / 70.0, 0.01);
    let short = format!("{TABLES}read_law = [[\"1 us\"]]\n");
    let refused = Hardware::parse(&short, "test").expect_err("a row is missing");
    assert!(refused.to_string().contains("'read_law' has 3 rows of 3 laws"), "{refused}");
}

#[test]
fn durable_writes_and_syncs_have_laws_or_tables_of_their_own() {
    let laws = described(&format!("{TABLES}[device.d]\ndurable_write = \"46 us\"\nsync = \"73 us\""));
    close(beside(&laws, &[(DURABLE, 1)], 1_000)[0].0, 1e6 / 86.0, 0.001);
    close(beside(&laws, &[(Direction::Sync, 1), (WRITE, 8)], 20_000)[0].0, 1e6 / 73.0, 0.01);
    let tables = "durable_write = [[\"50 us\", \"50 us\", \"90 us\"], [\"50 us\", \"50 us\", \"90 us\"], \
                  [\"50 us\", \"50 us\", \"90 us\"]]\n\
                  sync = [[\"70 us\", \"70 us\", \"300 us\"], [\"70 us\", \"70 us\", \"300 us\"], \
                  [\"70 us\", \"70 us\", \"300 us\"]]\n";
    let tabled = described(&format!("{TABLES}{tables}[device.d]\ndurable_write = \"46 us\"\nsync = \"73 us\""));
    close(beside(&tabled, &[(DURABLE, 8)], 20_000)[0].0, 8e6 / 210.0, 0.001);
    close(beside(&tabled, &[(Direction::Sync, 1), (WRITE, 8)], 20_000)[0].0, 1e6 / 300.0, 0.01);
}

#[test]
fn a_sync_waits_for_the_writes_under_way_and_for_no_later_one() {
    let tables = format!("{TABLES}[device.d]\nsync = \"5 us\"\nsync_waits = true");
    let servers = "[device.d]\nmedium = { servers = 8, service = \"40 us\" }\nsync = \"5 us\"\nsync_waits = true";
    for text in [tables.as_str(), servers] {
        let mut machine = Machine::new(&described(text), 1, false);
        let mut ends = BTreeMap::new();
        let first = machine.transfer(0, page(WRITE, 1));
        let sync = machine.transfer(0, Transfer { length: 0, ..page(Direction::Sync, 0) });
        let second = machine.transfer(0, page(WRITE, 9));
        for _ in 0..3 {
            let job = next_completion(&mut machine);
            ends.insert(job, machine.now().ns());
        }
        assert_eq!(ends[&sync], ends[&first] + 5_000, "{text}");
        assert!(ends[&second] < ends[&sync] + 40_000, "{text}");
        let alone = machine.now();
        machine.transfer(0, Transfer { length: 0, ..page(Direction::Sync, 0) });
        next_completion(&mut machine);
        assert_eq!(machine.now().since_ns(alone), 5_000, "{text}");
    }
}

#[test]
fn pauses_take_their_share() {
    let tables = "[device.d.medium.concurrency]\nreads = [0, 1]\nwrites = [0, 1]\n\
                  read = [[\"40 us\", \"40 us\"], [\"40 us\", \"40 us\"]]\n\
                  write = [[\"40 us\", \"40 us\"], [\"40 us\", \"40 us\"]]\n";
    for medium in [tables, "[device.d]\nmedium = { servers = 1, service = \"40 us\" }\n"] {
        let text = format!("{medium}[device.d.pauses]\nevery = \"4 MiB\"\ntime = \"10 ms\"");
        let hardware = described(&text);
        // 1,024 writes of 40 us bring 10 ms.
        close(beside(&hardware, &[(WRITE, 1)], 400_000)[0].0, 1e6 / (40.0 + 1e4 / 1024.0), 0.01);
        close(beside(&hardware, &[(Direction::Read, 1)], 1_000)[0].0, 25_000.0, 0.001);
        let reads = &beside(&hardware, &[(WRITE, 1), (Direction::Read, 1)], 100_000)[1].1;
        assert!(reads.max_ns() > 9_900_000 && reads.quantile_ns(0.99) < 100_000, "reads meet the pauses");
    }
}

#[test]
fn a_shared_link_gives_each_transfer_its_share() {
    let text = "[device.d.transmission]\nservers = 1\ndiscipline = \"processor-sharing\"\nbandwidth = \"100 MB/s\"";
    let hardware = described(text);
    let long =
        |direction| move |number| Transfer { direction, file: 0, offset: number << 20, length: 1 << 20, fresh: false };
    for depth in [1, 4, 32] {
        close(load(&hardware, "d", depth, long(Direction::Read)).bytes_per_second, 100e6, 0.001);
    }
    let mut machine = Machine::new(&hardware, 1, false);
    machine.transfer(0, long(WRITE)(0));
    let short = machine.transfer(0, page(Direction::Read, 0));
    assert_eq!(next_completion(&mut machine), short, "a short transfer does not wait for a long one");
    assert_eq!(machine.now().ns(), 2 * 40_960);
}

#[test]
fn limits_are_reached_and_not_passed() {
    let limited = |limit: &str| described(&format!("[device.d]\nlimits = [{{ {limit} }}]"));
    close(load(&limited("operations = 500"), "d", 16, scattered(Direction::Read)).per_second, 500.0, 0.01);
    close(load(&limited("operations = 500"), "d", 1, scattered(WRITE)).per_second, 500.0, 0.01);
    let large = |number: u64| Transfer { length: 1 << 20, ..page(Direction::Read, number << 8) };
    let counted = limited("operations = 3_000, operation_size = \"256 KiB\"");
    close(load(&counted, "d", 4, large).per_second, 750.0, 0.01);
    let bandwidth = load(&limited("bandwidth = \"125 MB/s\""), "d", 4, large);
    close(bandwidth.bytes_per_second, 125e6, 0.01);
    assert!(bandwidth.stations[0].utilization > 0.99 && bandwidth.stations[0].name == "d.limit");
    let of_reads = limited("operations = 500, of = \"reads\"");
    assert!(load(&of_reads, "d", 4, scattered(WRITE)).per_second.is_infinite(), "writes are free");
    close(load(&of_reads, "d", 4, scattered(Direction::Read)).per_second, 500.0, 0.01);
    let flushed = limited("operations = 500, of = \"writes\", flushes = true");
    close(load(&flushed, "d", 4, scattered(WRITE)).per_second, 500.0, 0.01);
    close(load(&flushed, "d", 4, scattered(Direction::Write { durable: true })).per_second, 250.0, 0.01);
    close(load(&flushed, "d", 4, scattered(Direction::Sync)).per_second, 500.0, 0.01);
}

#[test]
fn credit_is_saved_and_spent() {
    // 100 per second, 10 s of credit; with it at most 1,000.
    let text = "[device.d]\nlimits = [{ operations = 1_000 }, { operations = 100, burst = \"10 s\" }]";
    let mut machine = Machine::new(&described(text), 1, false);
    let spend = |machine: &mut Machine, until_s: f64| {
        let mut count = 0;
        machine.transfer(0, page(Direction::Read, 0));
        while machine.now().seconds() < until_s {
            next_completion(machine);
            count += 1;
            machine.transfer(0, page(Direction::Read, count));
        }
        next_completion(machine);
        count
    };
    // 1,000 operations of credit and 100 a second that come meanwhile last 10 / 9 s.
    close(spend(&mut machine, 1.0) as f64, 1_000.0, 0.01);
    close(spend(&mut machine, 11.0) as f64, 1_000.0 + 1_100.0 - 1_000.0, 0.02);
    let rest = machine.delay(5_000_000_000);
    assert_eq!(next_completion(&mut machine), rest);
    let now = machine.now().seconds();
    close(spend(&mut machine, now + 0.4) as f64, 400.0, 0.02);
}

#[test]
fn slices_give_their_credit_at_once() {
    let hardware = described("[device.d]\nlimits = [{ operations = 500, slice = \"100 ms\" }]");
    close(load(&hardware, "d", 16, scattered(Direction::Read)).per_second, 500.0, 0.01);
    let mut machine = Machine::new(&hardware, 1, false);
    let mut ends = Vec::new();
    for number in 0..120 {
        machine.transfer(0, page(Direction::Read, number));
    }
    for _ in 0..120 {
        next_completion(&mut machine);
        ends.push(machine.now().ns() / 1_000_000);
    }
    assert!(ends[..50].iter().all(|ms| *ms == 0) && ends[50..100].iter().all(|ms| *ms == 100), "{ends:?}");
    assert!(ends[100..].iter().all(|ms| *ms == 200), "{ends:?}");
}

/// How many of these reads, given every 100 ms, end within 30 ms, by bursts.
fn served_soon(machine: &mut Machine, bursts: &[u64]) -> Vec<usize> {
    let mut under_way = BTreeMap::new();
    let mut soon = vec![0; bursts.len()];
    for (number, burst) in bursts.iter().enumerate() {
        for _ in 0..*burst {
            under_way.insert(machine.transfer(0, page(Direction::Read, 0)), (number, machine.now()));
        }
        let next = machine.delay(100_000_000);
        loop {
            let job = next_completion(machine);
            if job == next {
                break;
            }
            let (of, begun) = under_way.remove(&job).expect("it is under way");
            soon[of] += usize::from(machine.now().since_ns(begun) < 30_000_000);
        }
    }
    soon
}

/// Measured on a loop device of Linux 6.18 with 1,000 reads a second: 201 of the burst of 250 ended within 30 ms (two slices' credit, and
/// one that is forgotten with what lapses), 91 of the first 150 behind idleness, all others as here.
#[test]
fn what_a_slice_leaves_is_for_the_next_one() {
    let hardware = described("[device.d]\nlimits = [{ operations = 1_000, slice = \"100 ms\" }]");
    let served = |bursts: &[u64]| served_soon(&mut Machine::new(&hardware, 1, false), bursts);
    let bursts = [50, 50, 50, 150, 50, 150, 50, 150, 100, 100, 20, 20, 250, 50];
    let mut soon = bursts.map(|burst| burst as usize);
    soon[12] = 201;
    assert_eq!(served(&bursts), soon);
    assert_eq!(served(&[150, 50, 150, 50, 50, 150]), [100, 50, 100, 50, 50, 150]);
    assert_eq!(served(&[50, 0, 0, 250]), [50, 0, 0, 100], "what is left lapses where nothing is asked for");
}

#[test]
fn devices_share_what_is_named_alike() {
    let limit = "limits = [{ bandwidth = \"100 MB/s\", shared = \"instance\" }]\n";
    let hardware = described(&format!("[device.a]\n{limit}[device.b]\n{limit}"));
    let mut machine = Machine::new(&hardware, 1, false);
    let transfer = |number: u64| Transfer { length: 1 << 20, ..page(WRITE, number << 8) };
    for number in 0..8 {
        machine.transfer(number as u16 % 2, transfer(number));
    }
    for number in 8..2_000 {
        next_completion(&mut machine);
        machine.transfer(number as u16 % 2, transfer(number));
    }
    close(2_000.0 * f64::from(1 << 20) / machine.now().seconds(), 100e6, 0.01);
}

#[test]
fn what_contradicts_itself_is_refused() {
    let limit = |rate: u32| format!("limits = [{{ operations = {rate}, shared = \"x\" }}]\n");
    for (text, words) in [
        (format!("[device.a]\n{}[device.b]\n{}", limit(1), limit(2)), "differs from that of another device"),
        (format!("{TABLES}[device.d.medium]\nservers = 2"), "the tables say everything"),
        (TABLES.replace("reads = [0, 1, 8]", "reads = [1, 8]"), "ascend from 0"),
        (TABLES.replace("writes = [0, 1, 8]", "writes = [0, 8]"), "3 rows of 2 times"),
        (TABLES.replace("\"50 us\"", "\"0 us\""), "above zero"),
        ("[device.d]\nlimits = [{ burst = \"1 s\" }]".to_owned(), "a limit has operations"),
        ("[device.d]\nlimits = [{ bandwidth = \"1 MB/s\", flushes = true }]".to_owned(), "flushes belong"),
        ("[device.d]\nlimits = [{ operations = 0 }]".to_owned(), "above zero"),
        ("[device.d]\nlimits = [{ operations = 1, burst = \"1 s\", slice = \"1 s\" }]".to_owned(), "burst or slice"),
        ("[device.d]\nsync = \"quantiles 0% 2 us, 100% 1 us\"".to_owned(), "ascend"),
        ("[device.d]\nsync = \"mixture 50% 2 us; 40% 1 us\"".to_owned(), "add up to 100%"),
        ("[device.d]\nsync = \"mixture 50% 2 us; 50% mixture 100% 1 us\"".to_owned(), "no mixture"),
        ("[device.d]\npauses = { every = \"0 B\", time = \"1 ms\" }".to_owned(), "above zero"),
    ] {
        match Hardware::parse(&text, "test") {
            Err(error @ HardwareError::Text { .. }) => assert!(error.to_string().contains(words), "{error}"),
            other => panic!("{text} is {other:?}"),
        }
    }
}

#[test]
fn measured_laws_are_drawn_as_written() {
    let mut random = Random::stream(5, "laws");
    for text in [
        "quantiles 0% 40.00 us, 50% 58.00 us, 99% 400.00 us, 100% 2.00 ms",
        "mixture 98% fixed 58.00 us; 2% exponential 1.00 ms",
        "mixture 10% uniform 1.00 ms to 3.00 ms; 90% quantiles 0% 1.00 us, 100% 2.00 us",
    ] {
        let law: Law = text.parse().expect("a law");
        assert_eq!(law.to_string(), text);
        let draws: Vec<u64> = (0..200_000).map(|_| law.draw(&mut random)).collect();
        close(draws.iter().sum::<u64>() as f64 / draws.len() as f64, law.mean_ns(), 0.02);
        if let Law::Quantiles(points) = &law {
            for (share, ns) in points.iter() {
                let below = draws.iter().filter(|draw| *draw <= ns).count() as f64 / draws.len() as f64;
                assert!((below - share).abs() < 0.005, "{share} of {text}");
            }
        }
    }
}

#[test]
fn fresh_places_cost_what_is_stated_whatever_else_is_under_way() {
    let text = "[device.d]\nfresh_write = \"900 us\"\ndurable_write = \"40 us\"\n[device.d.medium]\nservers = 2\nservice = \"60 us\"\n";
    let hardware = Hardware::parse(text, "test").unwrap_or_else(|error| panic!("{error}"));
    let without = Hardware::parse(&text.replace("fresh_write = \"900 us\"\n", ""), "test").expect("right");
    let of = |direction, fresh| move |number| Transfer { fresh, ..page(direction, number) };
    for (direction, fresh, ns) in
        [(DURABLE, true, 1_000e3), (DURABLE, false, 100e3), (WRITE, true, 960e3), (Direction::Read, false, 60e3)]
    {
        close(load(&hardware, "d", 1, of(direction, fresh)).response_ns, ns, 0.001);
        let unstated = if direction == DURABLE { 100e3 } else { 60e3 };
        close(load(&without, "d", 1, of(direction, fresh)).response_ns, unstated, 0.001);
    }
    // Ten wait for the file system at the same time, as fast as the medium takes one after the other.
    close(load(&hardware, "d", 10, of(DURABLE, true)).per_second, 10_000.0, 0.01);
    close(load(&hardware, "d", 40, of(DURABLE, true)).per_second, 20_000.0, 0.01);
    // Where they are in each other's way, each takes longer the more there are: with ten 4.5 times 900 us and 60 us.
    let stated = text
        .replace("[device.d.medium]", "fresh_together = { count = [1, 19], times = [1.0, 8.0] }\n[device.d.medium]");
    let hardware = Hardware::parse(&stated, "test").unwrap_or_else(|error| panic!("{error}"));
    close(load(&hardware, "d", 1, of(WRITE, true)).response_ns, 960e3, 0.001);
    close(load(&hardware, "d", 10, of(WRITE, true)).per_second, 10.0 / 4.110e-3, 0.01);
    close(load(&hardware, "d", 10, of(WRITE, false)).response_ns, 300e3, 0.01);
    let unsound = stated.replace("[1, 19]", "[2, 19]");
    let error = Hardware::parse(&unsound, "test").expect_err("the first is one").to_string();
    assert!(error.contains("fresh_together = {"), "{error}");
}
