//! Pages that leave main memory for the cache while many tasks look for frames.

use base::{Instant, Random};
use entresol_engine::catalog::{Locking, Organization};
use entresol_engine::second_level::{self, CacheSettings, Design};
use entresol_engine::{Database, PartitionSpec, Settings, buffer, checkpoint, log};
use executor::{Executor, Order};
use virtual_driver::{FaultPlan, Hardware, Media, Options, Slow, VirtualDriver};

const PAGES: u64 = 1_200;
const CLIENTS: u64 = 120;

/// A page that waits for a slot is not chosen by others that look for a frame: each would take a slot for it, and in a queue of
/// slots those that are given back are lost until it has gone round.
#[test]
fn a_page_that_leaves_takes_one_slot_however_many_look_for_frames() {
    let (from, until) = (Instant::START, Instant::NEVER);
    let slow = vec![Slow { device: "disk".to_owned(), from, until, factor: 1_000.0 }];
    let faults = Some(FaultPlan { slow, ..FaultPlan::default() });
    let driver = VirtualDriver::new(Hardware::ideal(), Options { faults, ..Options::default() }, Media::new());
    let executor = Executor::new(Box::new(driver), Order::FirstInFirstOut);
    let cache = executor.run(async {
        let cache = CacheSettings {
            design: Design::named("face").expect("it has this name"),
            volatile: Some(false),
            ..CacheSettings::new("flash", 800)
        };
        let settings = Settings {
            buffer: buffer::Settings { frames: 240, page_size: 1024, cleaner: true, ..buffer::Settings::default() },
            log: log::Settings { capacity: 16 << 20, ..log::Settings::default() },
            hierarchy: second_level::Settings { cache: Some(cache), ..second_level::Settings::default() },
            checkpoint: checkpoint::Policy::OFF,
            ..Settings::default()
        };
        let database = Database::create(&executor, settings).await.expect("creates");
        let organization = Organization::Direct { objects: PAGES, blocking_factor: 1, record_size: 100 };
        let spec = PartitionSpec::new("objects", organization, Locking::None);
        let partition = database.create_partition(spec).await.expect("creates");
        let clients: Vec<_> = (0..CLIENTS)
            .map(|client| {
                let database = database.clone();
                executor.spawn(async move {
                    let mut random = Random::stream(client, "pages");
                    for _ in 0..100 {
                        let visited = database.transaction(async |tx| {
                            tx.read_object(partition, random.below(PAGES), |_| ()).await?;
                            tx.modify_object(partition, random.below(PAGES), |bytes| bytes[0] ^= 1).await
                        });
                        visited.await.expect("works");
                    }
                })
            })
            .collect();
        for client in clients {
            client.join().await;
        }
        database.tiers().remove(0)
    });
    executor.stop();
    let cache = cache.expect("the machine goes on");
    assert!(20 * cache.fallbacks < cache.writes, "hardly a page goes past the cache for lack of a slot: {cache:?}");
}
