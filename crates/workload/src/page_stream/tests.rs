use super::draw::{Input, Step};
use super::*;
use crate::ground;
use crate::run::{self, Length, Load, Plan, Unwatched};
use crate::trace::record::{Recorded, Recorder};
use crate::trace::replay::{self, Replay};
use crate::trace::{Reference, Trace};
use engine::catalog::Locking;
use engine::second_level::{self, CacheSettings, Design};
use std::rc::Rc;

const NUMBER: u64 = 20_480;

fn drawn(stream: Stream, count: u64) -> Vec<Input> {
    let mut random = Random::stream(5, "draw");
    (0..count).map(|before| stream.draw(NUMBER, before, &mut random)).collect()
}

/// Reads and writes of each page.
fn accesses(inputs: &[Input]) -> Vec<[u64; 2]> {
    let mut accesses = vec![[0; 2]; NUMBER as usize];
    for step in inputs.iter().flat_map(|input| &input.steps) {
        match step {
            Step::Read(page) => accesses[*page as usize][0] += 1,
            Step::Update(page) => accesses[*page as usize].iter_mut().for_each(|count| *count += 1),
            Step::Scan(pages) => pages.clone().for_each(|page| accesses[page as usize][0] += 1),
        }
    }
    accesses
}

fn totals(accesses: &[[u64; 2]]) -> [f64; 2] {
    [0, 1].map(|kind| accesses.iter().map(|page| page[kind]).sum::<u64>() as f64)
}

/// What share of the accesses the most popular `share` of the pages have.
fn share_of_hottest(accesses: &[[u64; 2]], share: f64) -> f64 {
    let mut counts: Vec<u64> = accesses.iter().map(|page| page[0] + page[1]).collect();
    counts.sort_unstable_by_key(|count| std::cmp::Reverse(*count));
    let hottest: u64 = counts[..(counts.len() as f64 * share) as usize].iter().sum();
    hottest as f64 / counts.iter().sum::<u64>() as f64
}

#[test]
fn tpc_c_sends_three_quarters_of_its_accesses_to_a_fifth_of_the_pages() {
    let accesses = accesses(&drawn(Stream::TpcC, 800_000));
    let share = share_of_hottest(&accesses, 0.2);
    assert!((0.74..0.77).contains(&share), "{share}");
    let [reads, writes] = totals(&accesses);
    assert_eq!(reads, 2.0 * writes);
}

#[test]
fn tpc_e_reads_nine_point_seven_times_as_often_as_it_writes_and_in_its_working_set_only() {
    let accesses = accesses(&drawn(Stream::TpcE, 200_000));
    let [reads, writes] = totals(&accesses);
    assert!((reads / writes - 9.7).abs() < 0.15, "{}", reads / writes);
    let used = accesses.iter().filter(|page| page[0] > 0).count() as f64 / NUMBER as f64;
    assert!((0.66..0.67).contains(&used), "{used}");
}

#[test]
fn tpc_h_scans_and_looks_up_and_changes_nothing() {
    let inputs = drawn(Stream::TpcH, 4_000);
    let [_, writes] = totals(&accesses(&inputs));
    assert_eq!(writes, 0.0);
    let look_ups = inputs.iter().filter(|input| input.kind == 1).count();
    assert!((900..1_100).contains(&look_ups), "{look_ups}");
    for input in &inputs {
        match &input.steps[..] {
            [Step::Scan(pages)] => assert!(pages.end - pages.start == NUMBER / 8 && pages.end <= NUMBER),
            reads => assert!(input.kind == 1 && reads.iter().all(|step| matches!(step, Step::Read(_)))),
        }
    }
}

#[test]
fn a_scan_takes_every_page_in_turn() {
    let inputs = drawn(Stream::Scan, NUMBER / 256);
    assert!(accesses(&inputs).iter().all(|page| *page == [1, 0]));
}

#[test]
fn uniform_streams_prefer_no_page() {
    for stream in [Stream::Uniform, Stream::WriteOnly] {
        let accesses = accesses(&drawn(stream, 400_000));
        assert!(share_of_hottest(&accesses, 0.2) < 0.24, "{stream:?}");
        assert_eq!(totals(&accesses)[1] > 0.0, stream == Stream::WriteOnly);
    }
}

#[test]
fn the_hot_set_moves_over_all_pages() {
    let inputs = drawn(Stream::MovingHotSet, 10 * 4 * NUMBER / 10);
    let of_tenth = |inputs: &[Input]| share_of_hottest(&accesses(inputs), 0.1);
    let parts: Vec<f64> = inputs.chunks(4 * NUMBER as usize / 10).map(of_tenth).collect();
    assert!(parts.len() == 10 && parts.iter().all(|share| *share > 0.9), "{parts:?}");
    assert!(of_tenth(&inputs) < 0.2, "in the long run none is hotter");
}

#[test]
fn streams_are_found_by_their_names_and_any_number_of_pages_will_do() {
    let mut random = Random::stream(6, "few");
    for name in Stream::names() {
        let stream = Stream::named(name).expect("listed");
        assert_eq!(stream.name(), name);
        for pages in [1, 2, 7, 513] {
            for step in (0..200).flat_map(|before| stream.draw(pages, before, &mut random).steps) {
                let last = match step {
                    Step::Read(page) | Step::Update(page) => page,
                    Step::Scan(pages) => pages.end - 1,
                };
                assert!(last < pages, "{name} of {pages}: {last}");
            }
        }
    }
    assert_eq!(Stream::named("tpc-x"), None);
}

fn plan(transactions: u64) -> Plan {
    let warm_up = Length::Transactions(0);
    Plan { load: Load::Closed { clients: 1 }, warm_up, measure: Length::Transactions(transactions), seed: 3 }
}

/// Runs a stream on 600 pages with 40 of them in memory, and hands over what was recorded and what entered a cache of 100.
fn recorded(stream: Stream, transactions: u64) -> (Trace, u64) {
    let admission = second_level::Parameters { fill_threshold_percent: 0, ..second_level::Parameters::default() };
    let design = Design::named("clean-write").expect("it has this name");
    let cache = CacheSettings { design, parameters: admission, ..CacheSettings::new("flash", 100) };
    let hierarchy = second_level::Settings { cache: Some(cache), ..second_level::Settings::default() };
    let settings = engine::Settings { hierarchy, ..ground::settings(80) };
    ground::with(devices::Hardware::ideal(), settings, async move |database| {
        let spec = PartitionSpec { assumed: true, ..PartitionSpec::new(PAGES, organization(600), Locking::None) };
        let workload = PageStream::prepare(&database, stream, 600, || Ok(spec)).await?;
        let other = PageStream::prepare(&database, stream, 601, || unreachable!("it is there")).await;
        assert!(matches!(other, Err(Error::Unsuitable(_))));
        let recorder = Recorder::new();
        let workload = Recorded::new(&database, workload, Some(Rc::clone(&recorder)));
        run::run(&database, workload, &plan(transactions), &mut Unwatched, |_| ()).await?;
        let entered = database.tiers()[0].writes;
        Ok((recorder.trace(&database).expect("it has names"), entered))
    })
}

#[test]
fn pages_of_scans_do_not_enter_the_cache_and_others_do() {
    assert_eq!(recorded(Stream::Scan, 10).1, 0);
    assert!(recorded(Stream::Uniform, 40).1 > 100);
}

#[test]
fn a_stream_is_a_trace_that_can_be_replayed_with_its_scans() {
    let (trace, _) = recorded(Stream::TpcH, 40);
    assert_eq!(trace.len(), 40);
    assert!(trace.references().windows(2).filter(|pair| pair[1].object == pair[0].object + 1).count() > 1_000);
    let again = trace.clone();
    let settings = ground::settings(80);
    let replayed = ground::with(devices::Hardware::ideal(), settings, async move |database| {
        let count = again.len() as u64;
        let replay = Replay::prepare(&database, Rc::new(again), |partition| {
            let organization = replay::organization(partition, 1_024);
            Ok(PartitionSpec { assumed: true, ..PartitionSpec::new(&partition.name, organization, partition.locks) })
        });
        let recorder = Recorder::new();
        let replay = replay.await?.with_read_ahead();
        let workload = Recorded::new(&database, replay, Some(Rc::clone(&recorder)));
        run::run(&database, workload, &plan(count), &mut Unwatched, |_| ()).await?;
        Ok(recorder.trace(&database).expect("it has names"))
    });
    let references = |trace: &Trace| -> Vec<Reference> { trace.references().to_vec() };
    assert_eq!(references(&replayed), references(&trace));
    let (updates, _) = recorded(Stream::TpcC, 100);
    let writes = updates.references().iter().filter(|reference| reference.write).count();
    assert_eq!((writes, updates.references().len()), (500, 1_500));
}
