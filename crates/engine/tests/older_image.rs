//! A write of a backup's segment that was acknowledged and never happened.

use crate::ground::cut_machine::run_up_to;
use crate::ground::machine::run;
use driver::{Access, Op};
use entresol_engine::catalog::{Locking, Organization};
use entresol_engine::{BackupSettings, Database, Error, PartitionSpec, Settings, checkpoint, log};
use executor::Executor;
use virtual_driver::{Hardware, Media};

const SEGMENT: usize = 16 << 10;
const RECORDS: u64 = 400;

fn settings() -> Settings {
    Settings {
        log: log::Settings { capacity: 1 << 20, ..log::Settings::default() },
        checkpoint: checkpoint::Policy::OFF,
        ..Settings::default()
    }
}

/// Changes every record of a set to this value and sweeps over it.
async fn sweep(database: &Database, value: u8) {
    let stock = database.partition("stock").expect("it exists");
    let changed = database.transaction(async |tx| {
        for number in 0..RECORDS {
            tx.put(stock, &number.to_be_bytes(), &[value; 100]).await?;
        }
        Ok::<_, Error>(())
    });
    changed.await.expect("commits");
    database.checkpoint().await.expect("sweeps");
}

fn second_segment(media: &Media, name: &str) -> Vec<u8> {
    let mut image = vec![0; SEGMENT];
    media.read("disk", name, SEGMENT as u64, &mut image).expect("it was written");
    image
}

/// The second segment of a copy becomes what it was.
async fn put_back(executor: &Executor, name: &str, older: &[u8]) {
    let device = executor.device("disk").expect("it exists");
    let (file, _) = executor.open(device, name, false).await.expect("it is there");
    let mut buffer = executor.frame(SEGMENT).expect("memory");
    buffer.copy_from_slice(older);
    let (offset, length, access) = (SEGMENT as u64, SEGMENT as u32, Access::Asynchronous);
    let write = Op::Write { file, offset, length, buffer, durable: true, access };
    executor.perform(write).await.result.expect("writes");
}

/// What an opening says after that.
fn opened_with(media: &Media, name: &str, older: &[u8]) -> Result<(), Error> {
    let altered = media.copy();
    run(&altered, async |executor| {
        put_back(executor, name, older).await;
        Database::open(executor, settings(), "here").await.map(|_| ())
    })
}

async fn create(executor: &Executor, settings: Settings) -> Database {
    let database = Database::create(executor, settings).await.expect("creates");
    let organization = Organization::Set { arrivals: false, segment_size: SEGMENT as u32, reserve_percent: 10 };
    database.create_partition(PartitionSpec::new("stock", organization, Locking::Record)).await.expect("creates");
    database
}

#[test]
fn an_older_image_of_a_segment_is_found() {
    let media = Media::new();
    let names = ["stock.backup-1", "stock.backup-0"];
    let mut older = Vec::new();
    run(&media, async |executor| {
        let database = create(executor, settings()).await;
        sweep(&database, 1).await;
        older = second_segment(&media, names[0]);
        sweep(&database, 2).await;
        sweep(&database, 3).await;
    });
    // The first and the third sweep have written the same copy. The fourth follows a restart and writes the other one.
    for value in [3, 4] {
        if value == 4 {
            run(&media, async |executor| {
                let database = Database::open(executor, settings(), "here").await.expect("nothing was lost");
                older = second_segment(&media, names[1]);
                sweep(&database, 4).await;
            });
        }
        let (latest, other) = if value == 3 { (names[0], names[1]) } else { (names[1], names[0]) };
        assert_ne!(older, second_segment(&media, latest), "it has changed since");
        let expected = Err(Error::OlderBackup { file: latest.into() });
        assert_eq!(opened_with(&media, latest, &older), expected, "after sweep {value}");
        assert_eq!(opened_with(&media, other, &older), Ok(()), "the other copy is not needed");
    }
}

/// Nothing changes the segment any more, and memory has what is right.
#[test]
fn a_segment_that_a_backup_found_older_is_written_by_the_next_sweeps() {
    let (media, name) = (Media::new(), "stock.backup-1");
    let backup = BackupSettings { target: "flash".into(), base: None, bytes_per_second: None };
    let lived = run_up_to(&media, Hardware::ideal(), None, async |executor| {
        let database = create(executor, settings()).await;
        sweep(&database, 1).await;
        let older = second_segment(&media, name);
        sweep(&database, 2).await;
        sweep(&database, 3).await;
        // The next one would write this copy, and has nothing to write.
        database.checkpoint().await.expect("sweeps");
        put_back(executor, name, &older).await;
        let refused = database.backup(&backup, |_| {}).await;
        assert_eq!(refused.err(), Some(Error::OlderBackup { file: name.into() }));
        for _ in 0..2 {
            database.checkpoint().await.expect("sweeps");
        }
    });
    lived.expect("the machine goes on");
    run(&media, async |executor| {
        let database = Database::open(executor, settings(), "here").await.expect("opens");
        let stock = database.partition("stock").expect("it exists");
        let found = database.transaction(async |tx| tx.get(stock, &(RECORDS - 1).to_be_bytes()).await).await;
        assert_eq!(found, Ok(Some(vec![3; 100])));
    });
}

/// A transaction holds the log, and it is full: sweeps rest while nothing is logged. Not if what the last one wrote is lost.
#[test]
fn a_segment_that_a_backup_found_older_is_written_when_the_log_is_full() {
    let media = Media::new();
    let small = log::Settings { capacity: 256 << 10, ..settings().log };
    let settings = Settings { log: small, ..settings() };
    let backup = BackupSettings { target: "flash".into(), base: None, bytes_per_second: None };
    let lived = run_up_to(&media, Hardware::ideal(), None, async |executor| {
        let database = create(executor, settings.clone()).await;
        let notes = database.create_partition(PartitionSpec::b_tree("notes")).await.expect("creates");
        let names = ["stock.backup-0", "stock.backup-1"];
        sweep(&database, 1).await;
        sweep(&database, 2).await;
        let older = names.map(|name| second_segment(&media, name));
        sweep(&database, 3).await;
        sweep(&database, 4).await;
        let swept = database.statistics().sweeps.get();
        let latest = names.map(|name| second_segment(&media, name).windows(100).any(|bytes| bytes == [4; 100]));
        let mut held = database.begin().await.expect("begins");
        held.put(notes, b"held", &[1; 400]).await.expect("puts");
        let (mut before, count) = (None, || database.statistics().sweeps.get());
        while before.replace(count()) != Some(count()) {
            database.checkpoint().await.expect("sweeps");
        }
        let sweeps = count();
        let current = usize::from(latest[usize::from((sweeps - swept) % 2 == 0)]);
        let name = names[current];
        put_back(executor, name, &older[current]).await;
        let refused = database.backup(&backup, |_| {}).await;
        assert_eq!(refused.err(), Some(Error::OlderBackup { file: name.into() }));
        for _ in 0..100 {
            database.checkpoint().await.expect("sweeps");
        }
        assert_eq!(count(), sweeps + 1, "one is needed, and all others rest");
        drop(held);
    });
    lived.expect("the machine goes on");
    run(&media, async |executor| {
        let database = Database::open(executor, settings.clone(), "here").await.expect("opens");
        let stock = database.partition("stock").expect("it exists");
        let found = database.transaction(async |tx| tx.get(stock, &(RECORDS - 1).to_be_bytes()).await).await;
        assert_eq!(found, Ok(Some(vec![4; 100])));
    });
}
