//! The cache is changed by the library's names while its database runs, on this machine's files.

#![allow(clippy::disallowed_methods, reason = "the test damages a file of the cache")]

use entresol::configuration::Configuration;
use entresol::{CacheSettings, Database, Design, Error, Figures, Opening, PartitionSpec, Store};
use std::path::Path;

const RECORDS: u64 = 3_000;

/// A buffer of half a megabyte, and this of a cache beside it.
fn open(directory: &Path, cache: &str) -> Store {
    let text = format!(
        "[buffer]\nsize = \"64 pages\"\npage_size = \"4 KiB\"\n[log]\nsize = \"16 MiB\"\n[driver]\nbackend = \"thread-pool\"\n{cache}"
    );
    Opening::new(directory, Configuration::parse(&text).expect("right")).open().expect("opens")
}

const LAZY: &str =
    "[cache]\ndevice = \"disk\"\nsize = \"2,000 pages\"\ndesign = \"lazy-cleaning\"\ndirty_max = \"100%\"\n";

/// Gives every record this value.
async fn write(database: &Database, value: u8) -> entresol::Result<()> {
    let notes = database.partition("notes")?;
    for first in (0..RECORDS).step_by(100) {
        let put = database.transaction(async |tx| {
            for key in first..first + 100 {
                tx.put(notes, &key.to_be_bytes(), &[value; 400]).await?;
            }
            Ok::<_, Error>(())
        });
        put.await?;
    }
    Ok(())
}

async fn assert_all(database: &Database, value: u8) -> entresol::Result<()> {
    let notes = database.partition("notes")?;
    for key in 0..RECORDS {
        let found = database.transaction(async |tx| tx.get(notes, &key.to_be_bytes()).await).await?;
        assert_eq!(found.as_deref(), Some(&[value; 400][..]), "record {key}");
    }
    Ok(())
}

fn cache_hits(figures: &Figures) -> u64 {
    figures.tiers.iter().filter(|tier| tier.name == "cache").map(|tier| tier.reads).sum()
}

#[test]
fn a_cache_is_enabled_resized_redesigned_and_disabled_while_it_is_used() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    let store = open(directory.path(), "");
    store
        .run(async |database| {
            let notes = database.create_partition(PartitionSpec::b_tree("notes")).await?;
            assert_eq!(database.cache(), None);
            let wanted = |design: &str, pages| CacheSettings {
                design: Design::named(design).expect("it has this name"),
                ..CacheSettings::new("disk", pages)
            };
            let mut value = 0;
            for cache in [wanted("dual-write", 500), wanted("face", 500), wanted("face", 1_000), wanted("tac", 80)] {
                let writing = database.clone();
                value += 1;
                let writer = database.executor().spawn(async move { write(&writing, value).await });
                database.set_cache(Some(cache.clone())).await?;
                assert_eq!(database.cache(), Some(cache));
                writer.join().await?;
                assert_all(database, value).await?;
            }
            let before = cache_hits(&database.figures());
            assert_all(database, value).await?;
            assert!(cache_hits(&database.figures()) > before, "{:?}", database.figures().tiers);
            // What is not admitted does not enter a new cache.
            database.set_cache(None).await?;
            assert_eq!((database.cache(), database.figures().tiers.len()), (None, 0));
            database.admit_to_cache(notes, false)?;
            database.set_cache(Some(wanted("dual-write", 500))).await?;
            write(database, 9).await?;
            let figures = database.figures();
            let writes: Vec<u64> = figures.tiers.iter().map(|tier| tier.writes).collect();
            assert_eq!(writes, [0], "{:?}", figures.tiers);
            database.set_cache(None).await?;
            assert_all(database, 9).await
        })
        .expect("works");
    store.close().expect("closes");
}

#[test]
fn a_design_that_is_changed_while_the_device_fails_stays_as_it_was_and_costs_nothing() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    let store = open(directory.path(), LAZY);
    store
        .run(async |database| {
            database.create_partition(PartitionSpec::b_tree("notes")).await?;
            write(database, 1).await?;
            database.checkpoint().await?;
            write(database, 2).await?;
            // All that only the cache has is gone.
            let slots = std::fs::OpenOptions::new().write(true).open(directory.path().join("cache.tier"));
            slots.and_then(|slots| slots.set_len(0)).expect("the file becomes shorter");
            let present = database.cache().expect("there is one");
            let other = CacheSettings { design: Design::named("clean-write").expect("it is one"), ..present.clone() };
            let changed = database.set_cache(Some(other)).await;
            assert!(matches!(changed, Err(Error::DamagedPage { .. } | Error::Input(_))), "{changed:?}");
            assert_eq!(database.cache(), Some(present));
            let turned_off = database.set_cache(None).await;
            assert!(turned_off.is_err() && database.cache().is_some(), "{turned_off:?}");
            Ok(())
        })
        .expect("works");
    // It cannot be closed: the log makes anew what is gone.
    drop(store);
    let store = open(directory.path(), LAZY);
    store.run(async |database| assert_all(database, 2).await).expect("everything is there");
    store.close().expect("closes");
}

#[test]
fn a_cache_that_is_given_up_with_what_only_it_has_is_found() {
    use engine::canary::{Canary, plant};
    plant(Some(Canary::UndrainedCache));
    let found =
        std::panic::catch_unwind(a_design_that_is_changed_while_the_device_fails_stays_as_it_was_and_costs_nothing);
    plant(None);
    assert!(found.is_err(), "nothing notices it");
}
