//! A write of a backup's segment that was acknowledged and never happened.

use crate::ground::machine::run;
use driver::{Access, Op};
use entresol_engine::catalog::{Locking, Organization};
use entresol_engine::{Database, Error, PartitionSpec, Settings, checkpoint, log};
use virtual_driver::Media;

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

/// What an opening says after the second segment of a copy has become what it was.
fn opened_with(media: &Media, name: &str, older: &[u8]) -> Result<(), Error> {
    let altered = media.copy();
    run(&altered, async |executor| {
        let device = executor.device("disk").expect("it exists");
        let (file, _) = executor.open(device, name, false).await.expect("it is there");
        let mut buffer = executor.frame(SEGMENT).expect("memory");
        buffer.copy_from_slice(older);
        let (offset, length, access) = (SEGMENT as u64, SEGMENT as u32, Access::Asynchronous);
        let write = Op::Write { file, offset, length, buffer, durable: true, access };
        executor.perform(write).await.result.expect("writes");
        Database::open(executor, settings(), "here").await.map(|_| ())
    })
}

#[test]
fn an_older_image_of_a_segment_is_found() {
    let media = Media::new();
    let names = ["stock.backup-1", "stock.backup-0"];
    let mut older = Vec::new();
    run(&media, async |executor| {
        let database = Database::create(executor, settings()).await.expect("creates");
        let organization = Organization::Set { arrivals: false, segment_size: SEGMENT as u32, reserve_percent: 10 };
        database.create_partition(PartitionSpec::new("stock", organization, Locking::Record)).await.expect("creates");
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
