//! Checkpoints that fail for good: tasks waiting for the room in the log that they were to make are told so, and the next
//! opening finds everything that was acknowledged.

use base::Random;
use base::time::{MILLISECOND_NS, SECOND_NS};
use devices::Hardware;
use driver::OpKind;
use entresol_engine::catalog::{Locking, Organization};
use entresol_engine::checkpoint::Policy;
use entresol_engine::{Database, Error, Internals, PartitionSpec, Settings, buffer, log};
use executor::{Executor, Order};
use std::cell::Cell;
use std::rc::Rc;
use virtual_driver::{ErrorAt, FaultPlan, Media, Options, PowerCut, VirtualDriver};

const CLIENTS: u64 = 4;

fn settings(checkpoint: Policy) -> Settings {
    Settings {
        buffer: buffer::Settings { frames: 200, page_size: 1024, ..buffer::Settings::default() },
        log: log::Settings { capacity: 256 << 10, ..log::Settings::default() },
        log_device: "log".into(),
        checkpoint,
        ..Settings::default()
    }
}

/// A machine whose device `data` fails at every operation of this kind, beginning with the `first`th.
fn machine(media: &Media, failing: Option<(OpKind, u64)>) -> Executor {
    let device = |name: &str| format!("[device.{name}]\nmedium.service = \"20 us\"\n");
    let text: String = ["disk", "log", "data"].into_iter().map(device).collect();
    let errors = |(kind, first): (OpKind, u64)| {
        (first..first + 10_000).map(move |nth| ErrorAt { kind, device: Some("data".into()), nth })
    };
    let faults = Some(FaultPlan { errors: failing.into_iter().flat_map(errors).collect(), ..FaultPlan::default() });
    let hardware = Hardware::parse(&text, "test").expect("a description");
    let driver = VirtualDriver::new(hardware, Options { faults, ..Options::default() }, media.clone());
    Executor::new(Box::new(driver), Order::FirstInFirstOut)
}

/// Stops a machine and takes its power away.
fn stop(executor: &Executor, media: &Media) {
    executor.stop();
    media.power_cut(&mut Random::stream(1, "cut"), &PowerCut { lost: 1.0, torn: 0.0 });
}

/// Writes a counter under a key of its own again and again, until that fails.
async fn client(database: Database, name: &str, key: u64, acknowledged: Rc<Cell<u64>>) -> Error {
    let rows = database.partition(name).expect("it exists");
    loop {
        let next = acknowledged.get() + 1;
        let value = [next.to_le_bytes(); 20].concat();
        match database.transaction(async |tx| tx.put(rows, &key.to_be_bytes(), &value).await).await {
            Ok(()) => acknowledged.set(next),
            Err(error) => return error,
        }
    }
}

fn clients_are_told(organization: Organization, checkpoint: Policy, kind: OpKind) {
    let (media, settings) = (Media::new(), settings(checkpoint));
    let counts: Vec<Rc<Cell<u64>>> = (0..CLIENTS).map(|_| Rc::default()).collect();
    // What belongs to the creation of the partition succeeds.
    let executor = machine(&media, Some((kind, 3)));
    let told = executor.run(async {
        let database = Database::create(&executor, settings.clone()).await.expect("creates");
        let spec = PartitionSpec { device: "data".into(), ..PartitionSpec::new("rows", organization, Locking::Record) };
        database.create_partition(spec).await.expect("creates a partition");
        let employ = |(key, count): (usize, &Rc<Cell<u64>>)| {
            let (database, count) = (database.clone(), Rc::clone(count));
            executor.spawn(async move { client(database, "rows", key as u64, count).await })
        };
        let clients: Vec<_> = counts.iter().enumerate().map(employ).collect();
        let told = executor.spawn(async move {
            let mut told = Vec::new();
            for client in clients {
                told.push(client.join().await);
            }
            told
        });
        let deadline = executor.now().plus_ns(20 * SECOND_NS);
        while !told.is_finished() {
            assert!(executor.now() < deadline, "clients wait for ever: {organization:?}, {checkpoint:?}, {kind:?}");
            executor.sleep_ns(MILLISECOND_NS).await;
        }
        let told = told.join().await;
        assert!(database.log().used() > settings.log.capacity / 2, "the log is full");
        told
    });
    stop(&executor, &media);
    for error in told.expect("the machine goes on") {
        let text = error.to_string();
        assert!(matches!(error, Error::LogNotRelieved { .. }), "{text}");
        assert!(text.contains("file 'rows") && text.contains("open the database again"), "{text}");
    }
    let executor = machine(&media, None);
    let found = executor.run(async {
        let database = Database::open(&executor, settings.clone(), "test").await.expect("opens again");
        let rows = database.partition("rows").expect("it exists");
        for (key, count) in counts.iter().enumerate() {
            let found = database.transaction(async |tx| tx.get(rows, &(key as u64).to_be_bytes()).await).await;
            let found = found.expect("reads").expect("it was acknowledged");
            let found = u64::from_le_bytes(*found.first_chunk().expect("a counter"));
            // One more may be there that was not acknowledged.
            assert!(count.get() > 40 && (count.get()..=count.get() + 1).contains(&found), "{found}, not {count:?}");
        }
        for number in 0..2_500_u64 {
            database
                .transaction(async |tx| tx.put(rows, &number.to_be_bytes(), &[7; 100]).await)
                .await
                .expect("goes on");
        }
    });
    stop(&executor, &media);
    found.expect("the machine goes on");
}

#[test]
fn transactions_that_wait_for_room_in_the_log_learn_that_checkpoints_fail() {
    let set = Organization::Set { arrivals: false, segment_size: 16 << 10, reserve_percent: 10 };
    let by_size = Policy { log_bytes: Some(32 << 10), interval_ns: None };
    for organization in [Organization::BTree, set] {
        for checkpoint in [Policy::OFF, by_size] {
            for kind in [OpKind::Write, OpKind::Sync] {
                clients_are_told(organization, checkpoint, kind);
            }
        }
    }
}
