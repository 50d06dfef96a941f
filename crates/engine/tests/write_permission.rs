//! A page whose write permission is elsewhere is read as any other. What plans to change it waits, having changed nothing, and
//! goes on when the permission is back.

use base::time::MILLISECOND_NS;
use base::{PageId, PartitionId};
use devices::Hardware;
use entresol_engine::catalog::{Locking, Organization};
use entresol_engine::page::header;
use entresol_engine::{Database, Error, Internals, PartitionSpec, Result, Settings, Transaction, buffer};
use executor::{Executor, Order};
use virtual_driver::{Media, Options, VirtualDriver};

/// More pages than any partition has here.
const PAGES: u32 = 200;

fn on_a_machine(frames: usize, work: impl AsyncFnOnce(&Executor, &Database) -> Result<()>) {
    let driver = VirtualDriver::new(Hardware::ideal(), Options::default(), Media::new());
    let executor = Executor::new(Box::new(driver), Order::FirstInFirstOut);
    let done = executor.run(async {
        let buffer = buffer::Settings { frames, page_size: 1024, ..buffer::Settings::default() };
        let database = Database::create(&executor, Settings { buffer, ..Settings::default() }).await?;
        work(&executor, &database).await?;
        assert_eq!(database.buffer().pool().borrow().check(), Ok(()));
        Ok::<(), Error>(())
    });
    executor.stop();
    assert_eq!(done.expect("the machine goes on"), Ok(()));
}

fn key(number: u32) -> [u8; 4] {
    number.to_be_bytes()
}

fn pages(partition: PartitionId) -> impl Iterator<Item = PageId> {
    (0..PAGES).map(move |number| PageId::new(partition, number))
}

/// How often each of these pages was changed.
fn changes(database: &Database, pages: &[PageId]) -> Vec<u64> {
    let pool = database.buffer().pool().borrow();
    pages.iter().map(|page| header::sequence(pool.peek(*page).expect("it is in the buffer"))).collect()
}

/// Lets a transaction prepare itself, sends the permissions to write the partition's pages elsewhere, and has it end: it must
/// wait for each permission that it needs, and change nothing before.
async fn waits<E>(
    (executor, database): (&Executor, &Database),
    partition: PartitionId,
    prepare: impl AsyncFnOnce(&mut Transaction) -> Result<()>,
    end: E,
) -> Result<()>
where
    E: AsyncFnOnce(Transaction) -> Result<()> + 'static,
{
    let mut tx = database.begin().await?;
    prepare(&mut tx).await?;
    let withheld: Vec<PageId> =
        pages(partition).filter(|page| database.buffer().pool().borrow_mut().withhold_write(*page)).collect();
    assert!(!withheld.is_empty(), "its pages are in the buffer");
    let before = changes(database, &withheld);
    let ending = executor.spawn(async move { end(tx).await });
    executor.sleep_ns(MILLISECOND_NS).await;
    assert!(!ending.is_finished(), "it waits");
    assert_eq!(changes(database, &withheld), before, "nothing was changed without permission");
    for page in withheld {
        assert!(!database.buffer().pool().borrow().may_write(page));
        database.buffer().grant_write(page);
        executor.sleep_ns(MILLISECOND_NS).await;
    }
    assert!(ending.is_finished(), "it goes on when the permissions are back");
    ending.join().await
}

async fn nothing(_: &mut Transaction) -> Result<()> {
    Ok(())
}

#[test]
fn changes_of_a_tree_wait_for_the_permission_to_write_its_pages() {
    on_a_machine(256, async |executor, database| {
        let on = (executor, database);
        let rows = database.create_partition(PartitionSpec::b_tree("rows")).await?;
        let load = async |tx: &mut Transaction| {
            for number in 0..100 {
                tx.put(rows, &key(2 * number), &[7; 60]).await?;
            }
            tx.put(rows, b"long", &[1; 5_000]).await
        };
        database.transaction(load).await?;
        let modify = async move |mut tx: Transaction| {
            tx.modify(rows, &key(6), |bytes| bytes[0] += 1).await?;
            tx.commit().await
        };
        waits(on, rows, nothing, modify).await?;
        let replace = async move |mut tx: Transaction| {
            tx.put(rows, &key(8), &[9; 60]).await?;
            tx.commit().await
        };
        waits(on, rows, nothing, replace).await?;
        let split = async move |mut tx: Transaction| {
            for number in 0..20 {
                tx.insert(rows, &key(2 * number + 1), &[9; 60]).await?;
            }
            tx.commit().await
        };
        waits(on, rows, nothing, split).await?;
        let merge = async move |mut tx: Transaction| {
            for number in 0..30 {
                assert!(tx.delete(rows, &key(number)).await?);
            }
            tx.commit().await
        };
        waits(on, rows, nothing, merge).await?;
        let build = async move |mut tx: Transaction| {
            tx.insert(rows, b"longer", &[2; 5_000]).await?;
            tx.commit().await
        };
        waits(on, rows, nothing, build).await?;
        let delete = async |tx: &mut Transaction| tx.delete(rows, b"long").await.map(|_| ());
        waits(on, rows, delete, Transaction::commit).await?;
        let change = async |tx: &mut Transaction| {
            tx.put(rows, &key(40), &[3; 60]).await?;
            tx.delete(rows, &key(42)).await?;
            tx.put(rows, &key(41), &[3; 60]).await
        };
        waits(on, rows, change, Transaction::rollback).await?;
        let mut tx = database.begin().await?;
        assert_eq!(tx.get(rows, &key(40)).await?, Some(vec![7; 60]));
        assert_eq!(tx.get(rows, b"longer").await?, Some(vec![2; 5_000]));
        assert_eq!(tx.get(rows, b"long").await?, None);
        tx.commit().await
    });
}

#[test]
fn changes_of_objects_and_appended_records_wait_for_it_too() {
    on_a_machine(256, async |executor, database| {
        let on = (executor, database);
        let organization = Organization::Direct { objects: 100, blocking_factor: 10, record_size: 8 };
        let objects = database.create_partition(PartitionSpec::new("objects", organization, Locking::Record)).await?;
        let change = async |tx: &mut Transaction| tx.modify_object(objects, 7, |bytes| bytes[0] += 1).await;
        waits(on, objects, change, Transaction::rollback).await?;
        let modify = async move |mut tx: Transaction| {
            tx.modify_object(objects, 7, |bytes| bytes[0] += 1).await?;
            tx.commit().await
        };
        waits(on, objects, async |tx| tx.read_object(objects, 7, |_| ()).await, modify).await?;
        let organization = Organization::Append { blocking_factor: 0 };
        let history = database.create_partition(PartitionSpec::new("history", organization, Locking::Record)).await?;
        database.transaction(async |tx| tx.append(history, &[1; 100]).await).await?;
        let append = async move |mut tx: Transaction| {
            for _ in 0..20 {
                tx.append(history, &[2; 100]).await?;
            }
            tx.commit().await
        };
        waits(on, history, nothing, append).await?;
        waits(on, history, async |tx| tx.append(history, &[3; 100]).await.map(|_| ()), Transaction::rollback).await
    });
}

#[test]
fn a_page_without_permission_is_read_and_leaves_unless_its_permission_is_waited_for() {
    on_a_machine(16, async |executor, database| {
        let rows = database.create_partition(PartitionSpec::b_tree("rows")).await?;
        let load = async |tx: &mut Transaction| {
            for number in 0..300 {
                tx.put(rows, &key(number), &[7; 60]).await?;
            }
            Ok::<_, Error>(())
        };
        database.transaction(load).await?;
        let read_all = async |tx: &mut Transaction| {
            for number in 20..300 {
                tx.get(rows, &key(number)).await?;
            }
            Ok::<(), Error>(())
        };
        let mut tx = database.begin().await?;
        tx.get(rows, &key(3)).await?;
        let withheld: Vec<PageId> =
            pages(rows).filter(|page| database.buffer().pool().borrow_mut().withhold_write(*page)).collect();
        assert_eq!(tx.get(rows, &key(3)).await?, Some(vec![7; 60]), "it is read");
        let waiting = {
            let database = database.clone();
            executor.spawn(async move { database.transaction(async |tx| tx.put(rows, &key(9), b"new").await).await })
        };
        executor.sleep_ns(MILLISECOND_NS).await;
        read_all(&mut tx).await?;
        let remaining: Vec<PageId> = {
            let pool = database.buffer().pool().borrow();
            withheld.into_iter().filter(|page| !pool.may_write(*page)).collect()
        };
        let leaf_is_waited_for = !waiting.is_finished();
        assert!(leaf_is_waited_for, "its page has stayed without permission");
        assert!(remaining.len() < 16, "others have left, and what comes again may be written");
        remaining.into_iter().for_each(|page| database.buffer().grant_write(page));
        executor.sleep_ns(MILLISECOND_NS).await;
        tx.commit().await?;
        waiting.join().await?;
        assert_eq!(database.transaction(async |tx| tx.get(rows, &key(9)).await).await?, Some(b"new".to_vec()));
        Ok(())
    });
}
