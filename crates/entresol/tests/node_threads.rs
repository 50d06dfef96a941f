//! A database with several engines on threads of this process.
#![allow(clippy::disallowed_methods, reason = "clients are threads, as a program has")]

use base::Random;
use entresol::configuration::Configuration;
use entresol::{
    DatabaseThread, Error, FieldType, KeyRanges, NodeHandle, NodeThreads, NodeTransaction, OpenError, Opening,
    PartitionId, PartitionSpec, RecordType,
};
use std::ops::Bound;
use std::path::Path;

const ACCOUNTS: u64 = 64;
const BALANCE: u64 = 1_000;

fn opening(directory: &Path, nodes: u32, algorithm: &str) -> Opening {
    let text = format!(
        "[nodes]\ncount = {nodes}\nbuffer = \"1 MiB\"\nalgorithm = \"{algorithm}\"\n[log]\nsize = \"8 MiB\"\n\
         [buffer]\nsize = \"4 MiB\"\n[driver]\nbackend = \"thread-pool\""
    );
    Opening::new(directory, Configuration::parse(&text).expect("it is right"))
}

fn number(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes[..8].try_into().expect("eight bytes"))
}

async fn balance(tx: &mut NodeTransaction, accounts: PartitionId, account: u64) -> Result<u64, Error> {
    Ok(number(&tx.get(accounts, &account.to_be_bytes()).await?.expect("there is this account")))
}

async fn sum(tx: &mut NodeTransaction, accounts: PartitionId) -> Result<(u64, u64), Error> {
    let (mut count, mut sum) = (0, 0);
    tx.scan(accounts, Bound::Unbounded, |_, value| {
        (count, sum) = (count + 1, sum + number(value));
        true
    })
    .await?;
    Ok((count, sum))
}

fn open_accounts(handle: &NodeHandle) -> PartitionId {
    let accounts = handle.ensure_partition(PartitionSpec::b_tree("accounts")).wait().expect("there is room");
    let opened = handle.transaction(async move |tx| {
        for account in 0..ACCOUNTS {
            // Long enough that the accounts take several pages.
            let mut record = vec![0; 500];
            record[..8].copy_from_slice(&BALANCE.to_le_bytes());
            tx.put(accounts, &account.to_be_bytes(), &record).await?;
        }
        Ok::<_, Error>(())
    });
    opened.wait().expect("it commits");
    accounts
}

/// Moves money between accounts, and looks now and then whether there is as much as ever. Returns what it has added to its own counter.
fn transfer(handle: &NodeHandle, accounts: PartitionId, client: u64, transfers: u64) -> u64 {
    let mut random = Random::stream(client, "transfers");
    let own = [b"client ".to_vec(), client.to_be_bytes().to_vec()].concat();
    let counters = handle.partition("counters").wait().expect("it is there");
    for turn in 1..=transfers {
        let (from, to, amount) = (random.below(ACCOUNTS), random.below(ACCOUNTS), random.below(10));
        let counter = own.clone();
        let transfer = handle.transaction_near(&from.to_be_bytes(), async move |tx| {
            let before = balance(tx, accounts, from).await?;
            if from != to && before >= amount {
                tx.modify(accounts, &from.to_be_bytes(), |record| {
                    record[..8].copy_from_slice(&(before - amount).to_le_bytes());
                })
                .await?;
                let other = balance(tx, accounts, to).await?;
                tx.modify(accounts, &to.to_be_bytes(), |record| {
                    record[..8].copy_from_slice(&(other + amount).to_le_bytes());
                })
                .await?;
            }
            tx.put(counters, &counter, &turn.to_le_bytes()).await
        });
        transfer.wait().expect("it commits in the end");
        // Whichever node is asked, it knows of what was acknowledged.
        if turn % 16 == 0 {
            let read = handle.transaction(async move |tx| {
                let found = tx.get(counters, &[b"client ".to_vec(), client.to_be_bytes().to_vec()].concat()).await?;
                Ok::<_, Error>((sum(tx, accounts).await?, found.map(|bytes| number(&bytes))))
            });
            let read = read.wait().expect("it commits");
            assert_eq!(read, ((ACCOUNTS, ACCOUNTS * BALANCE), Some(turn)), "client {client}");
            let snapshot = handle.snapshot(async move |snapshot| {
                let (mut count, mut sum) = (0, 0);
                let look = |_: &[u8], value: &[u8]| {
                    (count, sum) = (count + 1, sum + number(value));
                    true
                };
                snapshot.scan(accounts, Bound::Unbounded, look).await?;
                Ok::<_, Error>((count, sum))
            });
            assert_eq!(snapshot.wait(), Ok((ACCOUNTS, ACCOUNTS * BALANCE)), "client {client}");
        }
    }
    transfers
}

#[test]
fn money_is_neither_made_nor_lost_between_nodes_and_survives_a_restart() {
    for algorithm in ["cbl", "fwd-hs"] {
        let directory = tempfile::tempdir().expect("a directory");
        let threads = NodeThreads::start(opening(directory.path(), 2, algorithm)).expect("it starts");
        let handle = threads.handle().with_ranges(KeyRanges::of_numbers(0..ACCOUNTS, 2));
        let accounts = open_accounts(&handle);
        handle.ensure_partition(PartitionSpec::b_tree("counters")).wait().expect("there is room");
        std::thread::scope(|scope| {
            for client in 0..4 {
                let handle = &handle;
                scope.spawn(move || transfer(handle, accounts, client, 40));
            }
        });
        let survey = handle.survey().wait().expect("it is open");
        assert_eq!(survey.nodes.len(), 2);
        assert!(survey.nodes.iter().all(|node| node.lease_left_ns.is_none()), "{survey:?}");
        let commits = survey.received.iter().find(|kind| kind.kind == "commit").expect("there were some");
        // Some were sent together.
        assert!((1..=1 + 4 * 40 * 2).contains(&commits.amount.messages), "{survey:?}");
        assert!(survey.held.iter().all(|held| held.copies > 0 && held.locks <= held.copies), "{survey:?}");
        threads.close().expect("it closes");
        assert!(matches!(handle.get(accounts, b"").wait(), Err(Error::NodeEnded { .. })), "it is closed");
        assert_eq!(handle.partition("accounts").wait(), Err(Error::Closed));
        // Another start finds it, and so does one engine alone, whatever the configuration says of nodes.
        let threads = NodeThreads::start(opening(directory.path(), 3, algorithm)).expect("it starts again");
        let handle = threads.handle();
        assert_eq!(handle.nodes(), 3);
        for node in 0..3 {
            let found = handle.transaction_at(node, async move |tx| sum(tx, accounts).await);
            assert_eq!(found.wait(), Ok((ACCOUNTS, ACCOUNTS * BALANCE)), "node {node}");
        }
        drop(threads);
        let store = opening(directory.path(), 1, algorithm).open_existing().expect("it was closed");
        assert_eq!(store.database().recovery().records, 0, "there is nothing to redo");
        let last = store.run(async |database| {
            let counters = database.partition("counters")?;
            let key = [b"client ".to_vec(), 3_u64.to_be_bytes().to_vec()].concat();
            database.transaction(async |tx| tx.get(counters, &key).await).await
        });
        assert_eq!(last.expect("it reads").map(|bytes| number(&bytes)), Some(40));
    }
}

#[test]
fn requests_go_where_their_keys_are_and_else_to_each_in_turn() {
    let directory = tempfile::tempdir().expect("a directory");
    let threads = NodeThreads::start(opening(directory.path(), 2, "cbl")).expect("it starts");
    let handle = threads.handle().with_ranges(KeyRanges::split_at(["h", "p"]));
    let notes = handle.ensure_partition(PartitionSpec::b_tree("notes")).wait().expect("there is room");
    assert_eq!([&b"a"[..], b"h", b"p"].map(|key| handle.node_of(key)), [Some(0), Some(1), Some(0)]);
    let thread = |key: &[u8]| {
        let named = handle.transaction_near(key, async move |tx| {
            tx.get(notes, b"nothing").await?;
            Ok::<_, Error>(std::thread::current().name().map(str::to_owned))
        });
        named.wait().expect("it commits").expect("its thread has a name")
    };
    assert_eq!(
        ["apple", "ink", "pear", "kiwi"].map(|key| thread(key.as_bytes())),
        [0, 1, 0, 1].map(|n| format!("entresol {n}"))
    );
    let plain = threads.handle();
    let in_turn: Vec<String> = (0..4)
        .map(|_| {
            let named = plain.transaction(async |_| Ok::<_, Error>(std::thread::current().name().map(str::to_owned)));
            named.wait().expect("it commits").expect("its thread has a name")
        })
        .collect();
    assert_ne!(in_turn[0], in_turn[1]);
    assert_eq!(in_turn[..2], in_turn[2..]);
    threads.close().expect("it closes");
}

#[test]
fn what_nodes_cannot_do_is_refused_by_name() {
    let directory = tempfile::tempdir().expect("a directory");
    let threads = NodeThreads::start(opening(directory.path(), 2, "cbl")).expect("it starts");
    let handle = threads.handle();
    let stock = handle.ensure_partition(PartitionSpec::set("stock")).wait().expect("there is memory");
    handle.put(stock, b"pens", &[1]).wait().expect("it commits");
    assert_eq!(handle.get(stock, b"pens").wait(), Ok(Some(vec![1])));
    let scanned = handle.transaction(async move |tx| tx.scan(stock, Bound::Unbounded, |_, _| true).await).wait();
    assert!(matches!(&scanned, Err(Error::WrongOrganization { partition, .. }) if partition == "stock"), "{scanned:?}");
    let notes = handle.ensure_partition(PartitionSpec::b_tree("notes")).wait().expect("there is room");
    let refused = handle.put(notes, b"long", &vec![7; 17 << 20]).wait();
    assert!(matches!(&refused, Err(Error::TooLarge { partition, .. }) if partition == "notes"), "{refused:?}");
    handle.put(notes, b"long", &[7; 100_000]).wait().expect("it commits");
    assert_eq!(handle.get(notes, b"long").wait(), Ok(Some(vec![7; 100_000])));
    // What nodes know of a partition stays.
    let people = RecordType::new([("name", FieldType::Text)]).expect("sound");
    let people = PartitionSpec::b_tree("people").record(people);
    let found = handle.ensure_partition(people.clone()).wait().expect("there is room");
    assert_eq!(handle.ensure_partition(people.clone()).wait(), Ok(found));
    let refused = handle.ensure_partition(people.secondary("by_name", &["name"])).wait();
    assert!(matches!(&refused, Err(Error::Setting(words)) if words.contains("by_name")), "{refused:?}");
    // Nor does one that is just being created.
    for number in 0..8 {
        let record = RecordType::new([("name", FieldType::Text)]).expect("sound");
        let spec = PartitionSpec::b_tree(&format!("people-{number}")).record(record);
        let first = handle.ensure_partition(spec.clone());
        let second = handle.ensure_partition(spec.secondary("by_name", &["name"]));
        first.wait().expect("there is room");
        let refused = second.wait();
        assert!(matches!(&refused, Err(Error::Setting(words)) if words.contains("by_name")), "{refused:?}");
    }
    let missing = handle.get(PartitionId(900), b"").wait();
    assert!(matches!(missing, Err(Error::NoPartition(_))), "{missing:?}");
    let panics = handle.transaction(async move |tx| {
        tx.put(notes, b"milk", b"spilt").await?;
        assert!(tx.get(notes, b"milk").await?.is_none(), "a mistake of the program's");
        Ok::<_, Error>(())
    });
    assert!(matches!(panics.wait(), Err(Error::Panicked { .. })));
    for _ in 0..2 {
        assert_eq!(handle.get(notes, b"milk").wait(), Ok(None), "it was rolled back, and its node goes on");
    }
    threads.close().expect("it closes");

    // Several nodes have a start of their own, and are no described machine's.
    let Err(error) = DatabaseThread::start(opening(directory.path(), 2, "cbl")) else { panic!("it is for one") };
    assert!(
        matches!(error, OpenError::SeveralNodes { count: 2 }) && error.to_string().contains("start_nodes"),
        "{error}"
    );
    let Err(error) = opening(directory.path(), 2, "cbl").open() else { panic!("a store is one engine") };
    assert!(matches!(error, OpenError::SeveralNodes { count: 2 }), "{error}");
    for count in [0, 65] {
        let Err(error) = NodeThreads::start(opening(directory.path(), 1, "cbl").nodes(count)) else {
            panic!("{count}")
        };
        assert!(matches!(&error, OpenError::Engine(Error::Setting(words)) if words.contains("1 to 64")), "{error}");
    }
    let described = Configuration::parse("hardware = \"nvme-2026\"\n[nodes]\ncount = 2").expect("it is right");
    let Err(error) = NodeThreads::start(Opening::new("described", described)) else { panic!("it has no threads") };
    assert!(matches!(error, OpenError::Engine(Error::Setting(_))), "{error}");
    // One node is what it was, and may be asked for either way.
    let thread = DatabaseThread::start(opening(directory.path(), 1, "cbl")).expect("it starts");
    assert_eq!(thread.handle().get(notes, b"milk").wait(), Ok(None));
    thread.close().expect("it closes");
    let threads = NodeThreads::start(opening(directory.path(), 1, "cbl")).expect("it starts");
    threads.handle().put(notes, b"milk", b"bought").wait().expect("it commits");
    threads.close().expect("it closes");
}

/// What cannot be done however often it is tried is tried once.
#[test]
fn what_fails_halfway_is_not_run_again() {
    let directory = tempfile::tempdir().expect("a directory");
    let threads = NodeThreads::start(opening(directory.path(), 1, "cbl")).expect("it starts");
    let handle = threads.handle();
    let notes = handle.ensure_partition(PartitionSpec::b_tree("notes")).wait().expect("there is room");
    let put = handle.put(notes, b"long", &vec![0; 8 << 20]).wait_at_most(std::time::Duration::from_secs(60));
    let Ok(put) = put else { panic!("it is tried over and over") };
    assert!(matches!(put, Err(Error::BufferExhausted { .. })), "{put:?}");
    handle.put(notes, b"long", &vec![0; 100_000]).wait().expect("it goes on");
    threads.close().expect("it closes");
}

#[test]
fn nodes_that_are_closed_on_the_thread_of_one_of_them_let_the_database_go() {
    let directory = tempfile::tempdir().expect("a directory");
    let threads = NodeThreads::start(opening(directory.path(), 2, "cbl")).expect("it starts");
    let handle = threads.handle();
    let notes = handle.ensure_partition(PartitionSpec::b_tree("notes")).wait().expect("there is room");
    handle.put(notes, b"milk", b"bought").wait().expect("it commits");
    let (tell, told) = std::sync::mpsc::channel();
    let mut threads = Some(threads);
    let asked = handle.transaction(async move |_| {
        if let Some(threads) = threads.take() {
            tell.send(threads.close()).expect("it is waited for");
        }
        Ok::<_, Error>(())
    });
    let closed = told.recv().expect("it is told");
    assert!(matches!(closed, Err(OpenError::Engine(Error::OwnThread))), "{closed:?}");
    // Whatever it asks for, its server has gone.
    let _ = asked.wait();
    let threads = NodeThreads::start(opening(directory.path(), 2, "cbl")).expect("the database is free");
    assert_eq!(threads.handle().get(notes, b"milk").wait(), Ok(Some(b"bought".to_vec())));
    threads.close().expect("it closes");
}

/// They would wait for each other.
#[test]
fn the_code_of_a_node_does_not_block_its_thread_for_another_one() {
    let directory = tempfile::tempdir().expect("a directory");
    let threads = NodeThreads::start(opening(directory.path(), 2, "cbl")).expect("it starts");
    let handle = threads.handle();
    let limit = std::time::Duration::from_secs(10);
    let inner = handle.clone();
    let told = handle.with_node(0, async move |_| {
        let outer = inner.clone();
        let waited = inner.with_node(1, async move |_| outer.with_node(0, async |_| Ok::<(), Error>(())).wait());
        let waited = waited.wait();
        let for_a_while = inner.with_node(1, async |_| Ok::<(), Error>(())).wait_at_most(limit);
        let awaited = inner.with_node(1, async |_| Ok::<(), Error>(())).await;
        Ok::<_, Error>((waited, for_a_while.unwrap_or_else(|_| panic!("it waits")), awaited))
    });
    let told = told.wait_at_most(limit).unwrap_or_else(|_| panic!("they wait on"));
    assert_eq!(told, Ok((Err(Error::OwnThread), Err(Error::OwnThread), Ok(()))));
    let beside = tempfile::tempdir().expect("a directory");
    let other = NodeThreads::start(opening(beside.path(), 1, "cbl")).expect("it starts");
    let elsewhere = other.handle();
    let told = handle.with_node(0, async move |_| elsewhere.with_node(0, async |_| Ok::<(), Error>(())).wait());
    assert_eq!(told.wait(), Ok(()), "that one does not wait for this");
    other.close().expect("it closes");
    threads.close().expect("it closes");
}

#[test]
fn keys_of_a_partition_that_is_not_there_are_refused_by_their_key() {
    let directory = tempfile::tempdir().expect("a directory");
    let start = |name: &str| {
        let nodes = format!("[nodes]\nbuffer = \"1 MiB\"\nsplit_keys = {{ {name} = [500] }}\n");
        let settings = format!("{nodes}[log]\nsize = \"8 MiB\"\n[buffer]\nsize = \"4 MiB\"");
        std::fs::write(directory.path().join("entresol.toml"), settings).expect("there is room");
        NodeThreads::start(Opening::in_directory(directory.path()).expect("it is right").nodes(2))
    };
    let threads = start("account").expect("a new database has no partitions yet");
    threads.handle().ensure_partition(PartitionSpec::b_tree("account")).wait().expect("there is room");
    threads.close().expect("it closes");
    let refused = start("acount").err().expect("there is no such partition").to_string();
    assert!(refused.contains("[nodes] split_keys") && refused.contains("'acount'"), "{refused}");
    start("account").expect("it is there").close().expect("it closes");
}

/// Several threads, whose keys go to nodes as the configuration says, or the program.
#[test]
fn keys_have_nodes_of_their_own_and_all_is_found_by_one_engine() {
    let directory = tempfile::tempdir().expect("a directory");
    let settings = "[nodes]\nbuffer = \"1 MiB\"\nsplit_keys = { counters = [500] }\n[log]\nsize = \"8 MiB\"\n[buffer]\nsize = \"4 MiB\"";
    std::fs::write(directory.path().join("entresol.toml"), settings).expect("there is room");
    let opening = || Opening::in_directory(directory.path()).expect("it is right");
    let threads = NodeThreads::start(opening().nodes(2)).expect("it starts");
    let handle = threads.handle();
    let notes = handle.ensure_partition(PartitionSpec::b_tree("notes")).wait().expect("there is room");
    let counters = handle.ensure_partition(PartitionSpec::b_tree("counters")).wait().expect("there is room");
    let key = |number: u64| number.to_be_bytes();
    assert_eq!([0, 499, 500, 999].map(|number| handle.node_at(counters, &key(number))), [0, 0, 1, 1].map(Some));
    assert_eq!(handle.node_at(notes, &key(0)), None, "nothing is said of it");
    let by_last_byte = handle.clone().with_affinity(|_, key| usize::from(*key.last().unwrap_or(&0)));
    assert_eq!([0, 1, 2, 3].map(|number| by_last_byte.node_at(notes, &key(number))), [0, 1, 0, 1].map(Some));
    assert_eq!(by_last_byte.node_at(counters, &key(0)), Some(0), "the program comes before the configuration");

    std::thread::scope(|scope| {
        for thread in 0..4 {
            let handle = if thread % 2 == 0 { handle.clone() } else { by_last_byte.clone() };
            scope.spawn(move || {
                for turn in 0..100 {
                    let number = (thread * 250 + turn) % 1_000;
                    let count = handle.transaction_about(counters, &key(number), async move |tx| {
                        let count = tx.get(counters, &key(7)).await?.map_or(0, |bytes| bytes[0]);
                        tx.put(counters, &key(7), &[count.wrapping_add(1)]).await?;
                        tx.put(counters, &key(number + 1_000), &[1]).await
                    });
                    count.wait().expect("it commits in the end");
                }
            });
        }
    });
    let thread = |handle: &NodeHandle, number: u64| {
        let named = handle.transaction_about(counters, &key(number), async |_| {
            Ok::<_, Error>(std::thread::current().name().map(str::to_owned))
        });
        named.wait().expect("it commits").expect("its thread has a name")
    };
    assert_eq!(
        [0, 999, 1, 500].map(|number| thread(&handle, number)),
        [0, 1, 0, 1].map(|node| format!("entresol {node}"))
    );
    assert_eq!(
        [0, 999, 1, 500].map(|number| thread(&by_last_byte, number)),
        [0, 1, 1, 0].map(|node| format!("entresol {node}"))
    );
    threads.close().expect("it closes");
    // It knows the partition from the beginning.
    let threads = NodeThreads::start(opening().nodes(2)).expect("it starts again");
    assert_eq!(threads.handle().node_at(counters, &key(500)), Some(1));
    threads.close().expect("it closes");

    let store = opening().nodes(1).open_existing().expect("one engine has it as well");
    let found = store.run(async |database| {
        database
            .transaction(async |tx| {
                let mut found = 0;
                for number in 1_000..2_000 {
                    found += u64::from(tx.get(counters, &key(number)).await?.is_some());
                }
                Ok::<_, Error>((tx.get(counters, &key(7)).await?, found))
            })
            .await
    });
    assert_eq!(found.expect("it reads"), (Some(vec![(400 % 256) as u8]), 400));
    store.close().expect("it closes");
}
