//! Closings that are not waited for to their end.

#[path = "ground/machine.rs"]
mod machine;

use base::time::MICROSECOND_NS;
use entresol_engine::second_level::{self, CacheSettings};
use entresol_engine::{Database, PartitionSpec, Settings};
use machine::run;
use virtual_driver::Media;

fn settings() -> Settings {
    let hierarchy = second_level::Settings { cache: Some(CacheSettings::new("flash", 100)), ..Default::default() };
    Settings { hierarchy, ..Settings::default() }
}

/// Whatever it was doing, another one does the rest.
#[test]
fn a_closing_that_was_given_up_is_ended_by_the_next_one() {
    let mut given_up = 0;
    for step in 1..200 {
        let media = Media::new();
        let is_given_up = run(&media, async |executor| {
            let database = Database::create(executor, settings()).await.expect("creates");
            let notes = database.create_partition(PartitionSpec::b_tree("notes")).await.expect("creates");
            database.transaction(async |tx| tx.put(notes, b"milk", b"two litres").await).await.expect("commits");
            let first = executor.within(step * MICROSECOND_NS, database.clone().close()).await;
            database.close().await.expect("closes");
            first.is_none()
        });
        given_up += u32::from(is_given_up);
        run(&media, async |executor| {
            let database = Database::open(executor, settings(), "notes").await.expect("opens");
            let notes = database.partition("notes").expect("is there");
            let milk = database.transaction(async |tx| tx.get(notes, b"milk").await).await.expect("reads");
            assert!(milk.is_some());
            database.close().await.expect("closes");
        });
        if !is_given_up {
            break;
        }
    }
    assert!(given_up > 5, "{given_up}");
}
