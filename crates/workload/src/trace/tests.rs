use super::rahm_1991;
use super::record::{Recorded, Recorder};
use super::replay::{self, Replay};
use super::*;
use crate::Unwatched;
use crate::ground;
use crate::run::{self, Length, Load, Plan};
use crate::synthetic::{Model, Synthetic};
use engine::PartitionSpec;
use proptest::prelude::*;
use std::rc::Rc;

const TEXT: &str = "entresol-trace 1\n\
    # a remark\n\
    partition account objects 1000 blocking-factor 10 locks page\n\
    partition history objects 50 blocking-factor 1 locks none\n\
    \n\
    type transfer\n\
    type audit rate 2.5\n\
    begin transfer\n\
    w account 17\n\
    w history 49\n\
    begin audit\n\
    r account 999\n\
    end transactions 2 references 3\n";

fn sample() -> Trace {
    Trace::read("a.trace", TEXT.as_bytes()).unwrap()
}

#[test]
fn both_formats_say_the_same() {
    let trace = sample();
    assert_eq!(trace.partitions()[0].locks, Locking::Page);
    assert_eq!(trace.types()[1], Type { name: "audit".to_owned(), rate_per_s: Some(2.5) });
    let references = trace.transaction(0).references;
    assert_eq!(references[1], Reference { partition: 1, write: true, object: 49 });
    assert_eq!(trace.page_of(references[0]), 1);
    assert_eq!(Trace::read("t", trace.to_text().as_bytes()).unwrap(), trace);
    assert_eq!(Trace::read("b", &trace.to_binary()).unwrap(), trace);
    let empty = Trace::new();
    assert_eq!(Trace::read("t", empty.to_text().as_bytes()).unwrap(), empty);
    assert_eq!(Trace::read("b", &empty.to_binary()).unwrap(), empty);
}

#[test]
fn what_is_wrong_in_a_text_is_named_with_its_line() {
    let cases = [
        ("entresol-trace 1", "entresol-trace 2", 1, "version 2; allowed: version 1"),
        ("entresol-trace 1", "MZ", 1, "no trace"),
        ("objects 1000", "objects 0", 3, "allowed: 1 to"),
        ("objects 1000", "objects many", 3, "'many' is no number of objects"),
        ("objects 1000", "pages 1000", 3, "'pages' is out of place"),
        ("blocking-factor 10", "blocking-factor 70000", 3, "1 to 65,535"),
        ("locks page", "locks row", 3, "page|object|none"),
        ("partition account", "partition a/b", 3, "a-z"),
        ("partition history", "partition account", 4, "a partition 'account' already"),
        ("type audit rate 2.5", "type audit rate -1", 7, "above zero"),
        ("type audit rate 2.5", "type audit each 2.5", 7, "type NAME rate"),
        ("begin transfer", "begin transfers", 8, "allowed: transfer, audit"),
        ("begin transfer", "start transfer", 8, "allowed: partition, type, begin, r, w, end"),
        ("begin transfer\n", "", 8, "before any transaction"),
        ("w account 17", "w accounts 17", 9, "no partition 'accounts'; allowed: account, history"),
        ("w account 17", "w account 1000", 9, "0 to 999 in partition 'account'"),
        ("w account 17", "w account -1", 9, "'-1' is no number of an object"),
        ("w account 17", "w account", 9, "2 of 3 words"),
        ("w account 17", "w account 17 18", 9, "'18' is one word too many"),
        ("references 3", "references 4", 13, "counts 4 references, but 3 were read"),
        ("references 3\n", "references 3\nbegin audit\n", 14, "follows the end"),
        ("end transactions 2 references 3\n", "", 12, "cut off"),
        ("r account 999\nend transactions 2 references 3\n", "r acc", 12, "2 of 3 words"),
    ];
    for (from, to, line, what) in cases {
        assert!(TEXT.contains(from), "{from}");
        let error = Trace::read("a.trace", TEXT.replacen(from, to, 1).as_bytes()).expect_err(to);
        assert_eq!(error.place, Place::Line(line), "{to}: {error}");
        assert!(error.to_string().contains(what), "{to}: {error}");
        assert!(error.to_string().starts_with(&format!("a.trace: line {line}: ")), "{error}");
    }
    assert_eq!(Trace::read("a", b"").unwrap_err().problem, Problem::NotATrace);
    assert!(Trace::read("a", b"entresol-trace 1\nw \xff 1\n").unwrap_err().to_string().contains("line 2"));
}

/// A part of a binary trace: its kind and its bytes.
type Part = (u8, &'static [u8]);

/// A binary trace whose parts have right checksums and any bytes.
fn binary_of(parts: &[(u8, &[u8])]) -> Vec<u8> {
    let mut file = binary::MAGIC.to_vec();
    file.extend(binary::VERSION.to_le_bytes());
    for (kind, bytes) in parts {
        binary::put_part(&mut file, *kind, bytes);
    }
    file
}

#[test]
fn what_is_wrong_in_a_binary_is_named_with_its_byte_and_record() {
    let good = sample().to_binary();
    for length in 0..good.len() {
        let error = Trace::read("b", &good[..length]).expect_err("a part of a trace is none");
        let cut = matches!(error.problem, Problem::CutOff(_) | Problem::NotATrace);
        assert!(cut, "{length}: {error}");
    }
    for at in 0..good.len() {
        let mut damaged = good.clone();
        damaged[at] ^= 0x40;
        let error = Trace::read("b", &damaged).expect_err("damage shows");
        let Place::Byte { offset, .. } = error.place else { continue };
        assert!(offset as usize <= good.len(), "{error}");
    }
    let longer = [&good[..], &[0]].concat();
    assert_eq!(Trace::read("b", &longer).unwrap_err().problem, Problem::TrailingBytes);
    let tables: &[u8] = &[1, 1, b'p', 10, 1, 0, 1, 1, b't', 0, 0, 0, 0, 0, 0, 0, 0];
    let cases: [(&[Part], &str); 9] = [
        (&[(2, &[])], "byte 10 (part 1): the kind of the part is 2; allowed: 1 (tables)"),
        (&[(1, &[1, 1, b'1', 10, 1, 0])], "byte 16 (partition 1): '1' is no name"),
        (&[(1, &[1, 1, b'p', 10, 1, 3])], "byte 21 (partition 1): the lock is 3; allowed: 0 to 2"),
        (&[(1, tables), (2, &[1, 7, 0])], "byte 42 (transaction 1): there is no type number 7; allowed: 0 to 0"),
        (&[(1, tables), (2, &[1, 0, 1, 2, 0])], "byte 44 (transaction 1): there is no partition number 1"),
        (&[(1, tables), (2, &[1, 0, 1, 1, 20])], "(transaction 1): the object is 10; allowed: 0 to 9 in partition 'p'"),
        (&[(1, tables), (2, &[1, 0, 1, 1, 2, 0])], "another number of bytes"),
        (&[(1, tables), (3, &[0, 1])], "the end counts 1 references, but 0 were read"),
        (&[(1, tables), (3, &[0xff; 12])], "at most 64 bits"),
    ];
    for (parts, what) in cases {
        let error = Trace::read("b", &binary_of(parts)).expect_err(what).to_string();
        assert!(error.contains(what), "{error} is not {what}");
    }
}

/// Any trace with a few partitions, types and transactions.
fn any_trace() -> impl Strategy<Value = Trace> {
    let partitions = prop::collection::vec((1..1_u64 << 40, 1..65_535_u32, 0..3_usize), 1..6);
    let types = prop::collection::vec(prop::option::of(1e-3..1e6_f64), 1..5);
    let references = prop::collection::vec((any::<u16>(), any::<bool>(), any::<u64>()), 0..30);
    let transactions = prop::collection::vec((any::<u16>(), references), 0..20);
    (partitions, types, transactions).prop_map(|(partitions, types, transactions)| {
        let mut trace = Trace::new();
        for (number, (objects, blocking_factor, locks)) in partitions.into_iter().enumerate() {
            let locks = [Locking::Page, Locking::Record, Locking::None][locks];
            let objects = objects.min(u64::from(blocking_factor) << 31);
            let name = format!("p{number}");
            trace.add_partition(Partition { name, objects, blocking_factor, locks }).unwrap();
        }
        for (number, rate_per_s) in types.into_iter().enumerate() {
            trace.add_type(Type { name: format!("t-{number}"), rate_per_s }).unwrap();
        }
        for (kind, references) in transactions {
            trace.begin(kind % trace.types().len() as u16);
            for (partition, write, object) in references {
                let partition = partition % trace.partitions().len() as u16;
                let object = object % trace.partitions()[usize::from(partition)].objects;
                trace.refer(Reference { partition, write, object }).unwrap();
            }
        }
        trace
    })
}

proptest! {
    #[test]
    fn traces_survive_both_formats(trace in any_trace()) {
        prop_assert_eq!(&Trace::read("t", trace.to_text().as_bytes()).unwrap(), &trace);
        prop_assert_eq!(&Trace::read("b", &trace.to_binary()).unwrap(), &trace);
    }

    #[test]
    fn any_bytes_are_a_trace_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..300), kind in 1..4_u8) {
        let _ = Trace::read("b", &bytes);
        let _ = Trace::read("b", &binary_of(&[(kind, &bytes)]));
        let tables: &[u8] = &[1, 1, b'p', 10, 1, 0, 1, 1, b't', 0, 0, 0, 0, 0, 0, 0, 0];
        let _ = Trace::read("b", &binary_of(&[(1, tables), (2, &bytes)]));
        let _ = msr::import("m", &bytes, 4096);
    }

    #[test]
    fn altered_texts_are_a_trace_or_an_error(at in 0..TEXT.len(), byte in any::<u8>()) {
        let mut text = TEXT.as_bytes().to_vec();
        text[at] = byte;
        let _ = Trace::read("t", &text);
    }
}

fn plan(clients: u32, transactions: u64) -> Plan {
    let measure = Length::Transactions(transactions);
    Plan { load: Load::Closed { clients }, warm_up: Length::Transactions(0), measure, seed: 1 }
}

fn spec_of(partition: &Partition) -> engine::Result<PartitionSpec> {
    let organization = replay::organization(partition, 1024);
    Ok(PartitionSpec { assumed: true, ..PartitionSpec::new(&partition.name, organization, partition.locks) })
}

/// What the engine references when it replays `trace`; by these rates per type, if they are given.
fn replayed(trace: &Trace, rates: Option<&[f64]>, plan: Plan) -> Trace {
    let trace = Rc::new(trace.clone());
    ground::on(devices::Hardware::ideal(), 64, async move |database| {
        let prepared = Replay::prepare(&database, Rc::clone(&trace), spec_of).await?;
        let replay = match rates {
            Some(rates) => prepared.by_type(rates).unwrap(),
            None => prepared,
        };
        let recorder = Recorder::new();
        let workload = Recorded::new(&database, replay, Some(Rc::clone(&recorder)));
        run::run(&database, workload, &plan, &mut Unwatched, |_| ()).await?;
        Ok(recorder.trace(&database).unwrap())
    })
}

/// The engine's references when it runs the contention workload with `clients` clients.
fn recorded(clients: u32, transactions: u64) -> Trace {
    let mut model = Model::parse(Model::RAHM_1991_CONTENTION, "contention").unwrap();
    for partition in &mut model.partitions {
        partition.objects = 400;
    }
    ground::on(devices::Hardware::ideal(), 64, async move |database| {
        let spec = |partition: &crate::synthetic::Partition| {
            let spec = PartitionSpec::new(&partition.name, partition.organization(1024), Locking::Page);
            Ok(PartitionSpec { assumed: true, ..spec })
        };
        let workload = Synthetic::prepare(&database, model, spec).await?;
        let recorder = Recorder::new();
        let workload = Recorded::new(&database, workload, Some(Rc::clone(&recorder)));
        run::run(&database, workload, &plan(clients, transactions), &mut Unwatched, |_| ()).await?;
        assert!(clients == 1 || database.statistics().rollbacks.get() > 0, "deadlocks are part of this test");
        Ok(recorder.trace(&database).unwrap())
    })
}

/// The transactions' types and references.
fn events(trace: &Trace) -> Vec<(u16, Vec<Reference>)> {
    trace.transactions().map(|transaction| (transaction.kind, transaction.references.to_vec())).collect()
}

#[test]
fn a_replay_references_what_was_recorded_in_order() {
    let first = recorded(1, 300);
    assert!(first.len() == 300 && first.references().len() > 2_000);
    let again = replayed(&first, None, plan(1, first.len() as u64));
    assert_eq!(events(&again), events(&first));
    assert_eq!((again.partitions(), again.types()), (first.partitions(), first.types()));
}

#[test]
fn concurrent_transactions_are_recorded_whole_and_victims_left_out() {
    let trace = recorded(16, 400);
    assert_eq!(trace.len(), 400);
    // Every reference of this workload writes; a transaction's references are its own, however others come in between.
    let mean = trace.references().len() as f64 / trace.len() as f64;
    assert!((7.0..13.0).contains(&mean), "{mean}");
    assert!(trace.references().iter().all(|reference| reference.write));
}

#[test]
fn rates_by_type_keep_each_types_order() {
    let mut trace = sample();
    for object in 0..20 {
        trace.begin(u16::from(object % 3 == 0));
        trace.refer(Reference { partition: 0, write: false, object }).unwrap();
    }
    let rates = [30.0, 10.0];
    let load = Load::Open { rate_per_s: 40.0 };
    let again = replayed(&trace, Some(&rates), Plan { load, ..plan(1, 2_000) });
    for kind in [0, 1] {
        let of_type = |events: Vec<(u16, Vec<Reference>)>| -> Vec<Vec<Reference>> {
            events.into_iter().filter(|(found, _)| *found == kind).map(|(_, references)| references).collect()
        };
        let (original, replayed) = (of_type(events(&trace)), of_type(events(&again)));
        for (replayed, original) in replayed.iter().zip(original.iter().cycle()) {
            assert_eq!(replayed, original);
        }
        let share = replayed.len() as f64 / again.len() as f64;
        assert!((share - [0.75, 0.25][usize::from(kind)]).abs() < 0.04, "{share}");
    }
    let none = ground::on(devices::Hardware::ideal(), 64, async |database| {
        Ok(Replay::prepare(&database, Rc::new(sample()), spec_of).await?.by_type(&[0.0, 0.0]).err())
    });
    assert!(matches!(none, Some(Problem::Fields(_))));
}

#[test]
fn a_generated_trace_is_small_in_binary() {
    let mut trace = rahm_1991::tests::trace().clone();
    trace.truncate(2_000);
    let (text, binary) = (trace.to_text().len(), trace.to_binary().len());
    assert!(binary < 4 * trace.references().len() + 10_000 && 3 * binary < text, "{binary} {text}");
    assert_eq!(Trace::read("b", &trace.to_binary()).unwrap(), trace);
}
