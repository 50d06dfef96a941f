//! What a subscriber of the `tracing` crate is told of a database.

use base::time::{MILLISECOND_NS, SECOND_NS};
use engine::statistics::{Event, Listener};
use entresol::configuration::Configuration;
use entresol::{OpenError, Opening, PartitionSpec, Store};
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Dispatch, Level, Metadata, Subscriber};
use virtual_driver::Media;

/// An event or a span with the names of the spans around it.
#[derive(Clone, Debug, Default)]
struct Told {
    level: Option<Level>,
    within: Vec<String>,
    fields: BTreeMap<String, String>,
}

impl Visit for Told {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.fields.insert(field.name().to_owned(), format!("{value:?}"));
    }
}

impl Told {
    fn number(&self, field: &str) -> u64 {
        self.fields[field].parse().unwrap_or_else(|_| panic!("{field} of {self:?}"))
    }
}

/// Collects everything.
#[derive(Default)]
struct Collected {
    /// Each span with its way from the outermost one.
    spans: Vec<Vec<String>>,
    entered: Vec<u64>,
    events: Vec<Told>,
    /// What has begun, was told and has ended, in this order.
    course: Vec<String>,
}

#[derive(Clone, Default)]
struct Collector(Arc<Mutex<Collected>>);

impl Collector {
    /// The events with this message, or one that begins so.
    fn events(&self, message: &str) -> Vec<Told> {
        let collected = self.0.lock().expect("no test has panicked in it");
        let is_it = |told: &&Told| told.fields["message"].starts_with(message);
        collected.events.iter().filter(is_it).cloned().collect()
    }

    fn collect<T>(&self, work: impl FnOnce() -> T) -> T {
        tracing::dispatcher::with_default(&Dispatch::new(self.clone()), work)
    }
}

impl Collected {
    fn around(&self, explicit: Option<&Id>, is_contextual: bool) -> Vec<String> {
        let current = self.entered.last().copied().filter(|_| is_contextual);
        let place = explicit.map(Id::into_u64).or(current);
        place.map_or_else(Vec::new, |place| self.spans[place as usize - 1].clone())
    }
}

impl Subscriber for Collector {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "entresol"
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        let mut collected = self.0.lock().expect("no test has panicked in it");
        let mut way = collected.around(span.parent(), span.is_contextual());
        way.push(span.metadata().name().to_owned());
        collected.course.push(format!("begin {}", way.join(" ")));
        collected.spans.push(way);
        Id::from_u64(collected.spans.len() as u64)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        let mut collected = self.0.lock().expect("no test has panicked in it");
        let within = collected.around(event.parent(), event.is_contextual());
        let mut told = Told { level: Some(*event.metadata().level()), within, ..Told::default() };
        event.record(&mut told);
        collected.course.push(told.fields["message"].clone());
        collected.events.push(told);
    }

    fn clone_span(&self, _: &Id) -> Id {
        panic!("a span ends with its only owner")
    }

    fn try_close(&self, span: Id) -> bool {
        let mut collected = self.0.lock().expect("no test has panicked in it");
        let way = collected.spans[span.into_u64() as usize - 1].join(" ");
        collected.course.push(format!("end {way}"));
        true
    }

    fn enter(&self, span: &Id) {
        self.0.lock().expect("no test has panicked in it").entered.push(span.into_u64());
    }

    fn exit(&self, _: &Id) {
        self.0.lock().expect("no test has panicked in it").entered.pop();
    }
}

fn described() -> Opening {
    let configuration = Configuration::parse("hardware = \"ideal\"\n[log]\nsize = \"4 MiB\"").expect("sound");
    Opening::new("described", configuration)
}

/// A partition with two records.
fn with_notes(store: &Store) -> Result<entresol::PartitionId, OpenError> {
    store.run(async |database| {
        let notes = database.create_partition(PartitionSpec::b_tree("notes")).await?;
        let put = async |tx: &mut entresol::Transaction| {
            tx.put(notes, b"a", b"1").await?;
            tx.put(notes, b"b", b"1").await
        };
        database.transaction(put).await.map(|()| notes)
    })
}

#[test]
fn openings_recoveries_checkpoints_and_closings_are_told() {
    let (collector, media) = (Collector::default(), Media::new());
    collector
        .collect(|| {
            let store = described().open_on(&media)?;
            with_notes(&store)?;
            // As a program that is killed leaves it.
            drop(store);
            let store = described().open_on(&media)?;
            store.run(async |database| database.checkpoint().await)?;
            store.close()
        })
        .expect("works");
    let opened = collector.events("opened");
    let are_new: Vec<&str> = opened.iter().map(|told| &told.fields["is_new"][..]).collect();
    assert_eq!(are_new, ["true", "false"]);
    assert_eq!(opened[0].within, ["database", "opening"]);
    let recovered = collector.events("recovered");
    assert_eq!(recovered.len(), 1, "{recovered:?}");
    assert!(recovered[0].number("records") > 2 && recovered[0].number("log_bytes") > 0, "{recovered:?}");
    assert_eq!(
        (recovered[0].number("unfinished"), recovered[0].within.join(" ")),
        (0, "database opening recovery".into())
    );
    let checkpoints = collector.events("checkpoint");
    let of_pages = checkpoints.iter().filter(|told| told.fields["of"] == "\"pages\"");
    assert!(of_pages.count() >= 2, "one on request, one to close: {checkpoints:?}");
    assert!(checkpoints.iter().all(|told| told.within == ["database", "checkpoint"]));
    assert!(checkpoints.iter().all(|told| told.level == Some(Level::INFO)));
    let spans = &collector.0.lock().expect("sound").spans;
    assert!(spans.iter().any(|way| way[..] == ["database", "closing"]), "{spans:?}");
}

#[test]
fn recoveries_and_checkpoints_begin_and_end() {
    let (collector, media) = (Collector::default(), Media::new());
    let opened = collector.collect(|| {
        let store = described().open_on(&media)?;
        with_notes(&store)?;
        drop(store);
        collector.0.lock().expect("sound").course.clear();
        described().open_on(&media)?.close()
    });
    opened.expect("works");
    let course = collector.0.lock().expect("sound").course.clone();
    let of_pages = ["begin database checkpoint", "checkpoint", "end database checkpoint"];
    let recovery: Vec<&str> = ["begin database", "begin database opening", "begin database opening recovery"]
        .into_iter()
        .chain(of_pages)
        .chain(["recovered", "end database opening recovery", "opened", "end database opening"])
        .collect();
    assert_eq!(course[..recovery.len()], recovery);
    let closing = course[recovery.len()..].to_vec();
    let expected: Vec<&str> =
        ["begin database closing"].into_iter().chain(of_pages).chain(["end database closing"]).collect();
    let told: Vec<&str> = closing.iter().map(String::as_str).filter(|line| expected.contains(line)).collect();
    assert_eq!(told, expected, "{closing:?}");
    assert_eq!(closing.last().map(String::as_str), Some("end database"));
}

#[test]
fn a_recovery_that_fails_ends() {
    let (collector, media) = (Collector::default(), Media::new());
    let failed = collector.collect(|| {
        let store = described().open_on(&media)?;
        with_notes(&store)?;
        store.close()?;
        media.remove("disk", "notes.pages");
        described().open_on(&media).map(drop)
    });
    let error = failed.expect_err("a file is missing").to_string();
    let course = collector.0.lock().expect("sound").course.clone();
    let end = ["end database opening recovery", &error, "end database opening", "end database"];
    assert!(course.ends_with(&end.map(str::to_owned)) && !course.contains(&"recovered".to_owned()), "{course:?}");
}

#[test]
fn a_slow_transaction_is_told_with_what_it_waited_for() {
    let collector = Collector::default();
    let times = collector.collect(|| {
        let store = described().slow_after(Duration::from_millis(500)).open()?;
        let notes = with_notes(&store)?;
        store.run(async |database| {
            let holder = {
                let database = database.clone();
                database.executor().clone().spawn(async move {
                    let mut tx = database.begin().await?;
                    tx.put(notes, b"a", b"2").await?;
                    database.executor().sleep_ns(3 * SECOND_NS).await;
                    tx.rollback().await
                })
            };
            database.executor().sleep_ns(SECOND_NS).await;
            // It waits for two seconds, then for one of its own.
            let mut tx = database.begin().await?;
            tx.put(notes, b"a", b"3").await?;
            database.executor().sleep_ns(SECOND_NS).await;
            tx.commit().await?;
            holder.join().await?;
            database.transaction(async |tx| tx.put(notes, b"a", b"4").await).await
        })
    });
    times.expect("works");
    let slow = collector.events("slow transaction");
    assert_eq!(slow.len(), 2, "the last one is fast: {slow:?}");
    let about = |told: &Told, field: &str, seconds: u64| {
        let us = told.number(field);
        assert!((seconds * 1_000_000..seconds * 1_000_000 + 50_000).contains(&us), "{field} of {told:?}");
    };
    about(&slow[0], "took_us", 3);
    assert_eq!((&slow[0].fields["committed"][..], slow[0].number("locks_us")), ("false", 0));
    about(&slow[1], "took_us", 3);
    about(&slow[1], "locks_us", 2);
    assert_eq!((&slow[1].fields["committed"][..], slow[1].level), ("true", Some(Level::WARN)));
}

#[test]
fn retries_are_told_with_their_causes() {
    let collector = Collector::default();
    collector
        .collect(|| {
            let store = described().open()?;
            let notes = with_notes(&store)?;
            store.run(async |database| {
                let swap = async |first: &'static [u8], second: &'static [u8]| {
                    database
                        .transaction(async |tx| {
                            tx.put(notes, first, b"2").await?;
                            tx.executor().clone().sleep_ns(MILLISECOND_NS).await;
                            tx.put(notes, second, b"2").await
                        })
                        .await
                };
                let other = {
                    let database = database.clone();
                    database.executor().clone().spawn(async move {
                        let work = async |tx: &mut entresol::Transaction| {
                            tx.put(notes, b"b", b"3").await?;
                            tx.executor().clone().sleep_ns(MILLISECOND_NS).await;
                            tx.put(notes, b"a", b"3").await
                        };
                        database.transaction(work).await
                    })
                };
                swap(b"a", b"b").await?;
                other.join().await
            })
        })
        .expect("works");
    let retries = collector.events("retry");
    assert_eq!(retries.len(), 1, "{retries:?}");
    assert_eq!((retries[0].number("tries"), retries[0].level), (1, Some(Level::DEBUG)));
    assert!(retries[0].fields["cause"].contains("deadlock"), "{retries:?}");
}

#[test]
fn a_device_that_fails_is_told_and_so_is_an_opening() {
    let directory = tempfile::tempdir().expect("a directory");
    let machine = directory.path().join("small.toml");
    let text = "[device.disk]\nmedium.service = \"20 us\"\ncapacity = \"3 MiB\"\n";
    #[expect(clippy::disallowed_methods, reason = "the test makes the file that is read")]
    std::fs::write(&machine, text).expect("writes");
    let text = format!("hardware = \"{}\"\n[log]\nsize = \"64 MiB\"", machine.display());
    let configuration = Configuration::parse(&text).expect("sound");
    let collector = Collector::default();
    let failed =
        collector.collect(|| Opening::new("small", configuration).open().map(drop)).expect_err("there is no room");
    let faults = collector.events("a device failed");
    assert!(!faults.is_empty() && faults.iter().all(|told| told.fields["kind"] == "NoSpace"), "{faults:?}");
    assert_eq!(faults[0].within, ["database"]);
    let told = collector.events(&failed.to_string());
    assert_eq!(told[0].within, ["database", "opening"]);
    assert_eq!(told[0].level, Some(Level::ERROR));
}

/// A device that takes a quarter of an hour for each of its requests is told once, after five seconds.
#[test]
fn a_silent_device_is_told_once() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    let slow = directory.path().join("slow.toml");
    #[expect(clippy::disallowed_methods, reason = "the test makes the file that is read")]
    std::fs::write(&slow, "[device.slow]\nmedium.service = \"15 min\"\nsync = \"0 us\"\n").expect("writes");
    let text = format!(
        "[buffer]\nsize = \"1 MiB\"\n[log]\nsize = \"4 MiB\"\n[driver]\nanswer_at_most = \"9 s\"\n\
         [device.slow]\ndescribed = \"{}\"\npath = \"{}\"\n",
        slow.display(),
        directory.path().join("slow").display()
    );
    let (tell, heard) = std::sync::mpsc::channel();
    let opening = Opening::new(directory.path().join("data"), Configuration::parse(&text).expect("right"))
        .on_silence(move |late| tell.send((late.device.clone(), late.since, late.waited_ns)).expect("it is heard"));
    let collector = Collector::default();
    let ended = collector.collect(|| {
        let store = opening.open()?;
        let spec = PartitionSpec { device: "slow".into(), ..PartitionSpec::b_tree("late") };
        let late = store.run(async |database| database.create_partition(spec).await)?;
        store.run(async |database| database.transaction(async |tx| tx.put(late, b"bread", b"one").await).await)?;
        store.run(async |database| database.checkpoint().await)
    });
    assert!(matches!(ended, Err(OpenError::Machine(_))), "{ended:?}");
    let heard: Vec<_> = heard.try_iter().collect();
    let is_right = |(device, _, waited_ns): &(String, _, u64)| {
        device == "slow" && (5 * SECOND_NS..7 * SECOND_NS).contains(waited_ns)
    };
    assert!(!heard.is_empty() && heard.iter().all(is_right), "{heard:?}");
    let told = collector.events("device 'slow' has left ");
    assert_eq!(told.len(), heard.len(), "{told:?}");
    assert!(told.iter().all(|told| told.level == Some(Level::WARN) && told.within == ["database"]), "{told:?}");
    assert!(told.iter().all(|told| (5_000..7_000).contains(&told.number("waited_ms"))), "{told:?}");
}

#[derive(Debug)]
struct Deaf;

impl Listener for Deaf {
    fn slow_ns(&self) -> u64 {
        u64::MAX
    }

    fn hear(&self, _: &Event<'_>) {}
}

#[test]
fn a_database_that_other_programs_cannot_reach_is_opened_with_a_warning() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    std::fs::create_dir(directory.path().join("entresol.socket")).expect("creates");
    let configuration = Configuration::parse("[buffer]\nsize = \"1 MiB\"\n[log]\nsize = \"4 MiB\"").expect("sound");
    let collector = Collector::default();
    collector.collect(|| Opening::new(directory.path(), configuration).open().and_then(Store::close)).expect("opens");
    let told = collector.events("other programs cannot have the open database backed up");
    assert_eq!(told.len(), 1);
    assert_eq!(told[0].level, Some(Level::WARN));
    assert!(told[0].fields["message"].contains("is no socket"), "{told:?}");
}

#[test]
fn without_a_subscriber_nothing_is_listened_to() {
    let nothing = Dispatch::new(tracing::subscriber::NoSubscriber::default());
    let store = tracing::dispatcher::with_default(&nothing, || described().open()).expect("opens");
    // There is room for one listener.
    store.database().statistics().listen(Rc::new(Deaf)).expect("none is told yet");
    let second = store.database().statistics().listen(Rc::new(Deaf)).unwrap_err().to_string();
    assert!(second.contains("one listener"), "{second}");
    store.run(async |database| database.checkpoint().await).expect("works");
}
