//! Changes of whole pages in a log of few: one is made only if the log has room for it and for taking it back.

use crate::ground::machine::run;
use entresol_engine::catalog::{Locking, Organization};
use entresol_engine::checkpoint::Policy;
use entresol_engine::{Database, Error, Internals, PartitionSpec, Settings, Transaction, buffer, log};
use virtual_driver::Media;

const LOG: u64 = 256 << 10;

#[test]
fn a_change_leaves_the_log_the_room_to_take_it_back() {
    for (page_size, commits) in [(8 << 10, false), (8 << 10, true), (16 << 10, false)] {
        let size = page_size - 200;
        let mut made = 0;
        for records in 150..240_u32 {
            run(&Media::new(), async |executor| {
                let settings = Settings {
                    buffer: buffer::Settings { frames: 64, page_size, ..buffer::Settings::default() },
                    log: log::Settings { capacity: LOG, ..log::Settings::default() },
                    checkpoint: Policy::OFF,
                    ..Settings::default()
                };
                let database = Database::create(executor, settings).await.expect("creates");
                let organization = Organization::Direct { objects: 8, blocking_factor: 1, record_size: size as u32 };
                let spec = PartitionSpec::new("objects", organization, Locking::Record);
                let objects = database.create_partition(spec).await.expect("creates");
                let notes = database.create_partition(PartitionSpec::b_tree("notes")).await.expect("creates");
                let stock = database.create_partition(PartitionSpec::set("stock")).await.expect("creates");
                // All have begun before the log is full, and what the first one holds of it stays.
                let mut holding = database.begin().await.expect("begins");
                holding.put(notes, b"first", b"1").await.expect("puts");
                let mut changing = database.begin().await.expect("begins");
                let mut filling = database.begin().await.expect("begins");
                for number in 0..records {
                    filling.put(stock, &number.to_be_bytes(), &[7; 1_000]).await.expect("puts");
                }
                let filled = filling.commit().await;
                assert!(matches!(filled, Ok(()) | Err(Error::LogCrowded { .. } | Error::LogFull { .. })), "{filled:?}");
                if changing.modify_object(objects, 1, |bytes| bytes.fill(9)).await.is_ok() {
                    made += usize::from(filled.is_ok());
                }
                if commits {
                    let _refused = changing.commit().await;
                } else {
                    changing.rollback().await.expect("takes it back");
                }
                holding.rollback().await.expect("takes it back");
                assert_eq!(database.log().failure(), None, "{page_size} {records}");
                let put = async |tx: &mut Transaction| tx.put(notes, b"after", b"1").await;
                database.transaction(put).await.expect("commits");
            });
        }
        assert!(made > 0, "no change was made in a log that was filled");
    }
}
