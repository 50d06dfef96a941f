//! A partition whose pages are not in a file here: memory that answers after a while stands for another machine.

use base::time::MICROSECOND_NS;
use base::{PageId, PartitionId};
use driver::{Access, Completion, Output, Token};
use entresol_engine::buffer::{self, PageSpace};
use entresol_engine::page::PageKind;
use entresol_engine::page_store::{Future, PageStore, Then, Transfer};
use entresol_engine::{Database, Error, Internals, PartitionSpec, Result, Settings};
use executor::{Executor, Order};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use virtual_driver::{Hardware, Media, Options, VirtualDriver};

const PAGE_SIZE: usize = 1024;
const RECORDS: u32 = 600;

/// How long it takes to reach the pages, in nanoseconds.
const AWAY_NS: u64 = 20 * MICROSECOND_NS;

#[derive(Default)]
struct Remote {
    bytes: Rc<RefCell<Vec<u8>>>,
    reads: Cell<u64>,
    writes: Rc<Cell<u64>>,
    syncs: Cell<u64>,
}

impl Remote {
    fn place(&self, transfer: &Transfer) -> usize {
        let start = transfer.first.number as usize * PAGE_SIZE;
        assert!(start + transfer.length <= self.bytes.borrow().len(), "room was made for it before");
        start
    }
}

/// Ends a transfer after a while, having done `work` with its buffer.
fn end_later(executor: &Executor, transfer: Transfer, then: Then, work: impl FnOnce(&mut [u8]) + 'static) {
    let other = executor.clone();
    executor.spawn(async move {
        other.sleep_ns(AWAY_NS).await;
        let Transfer { mut buffer, length, .. } = transfer;
        work(&mut buffer[..length]);
        then(Completion { token: Token(0), result: Ok(Output::Done), buffer: Some(buffer) });
    });
}

impl PageStore for Remote {
    fn name(&self) -> &str {
        "notes on another machine"
    }

    fn page_size(&self) -> usize {
        PAGE_SIZE
    }

    fn capacity(&self) -> u32 {
        (self.bytes.borrow().len() / PAGE_SIZE) as u32
    }

    fn may_tear(&self) -> bool {
        false
    }

    fn access<'a>(&'a self, _: &'a Executor) -> Future<'a, Access> {
        Box::pin(async { Access::Asynchronous })
    }

    fn read(&self, executor: &Executor, transfer: Transfer, then: Then) {
        self.reads.set(self.reads.get() + 1);
        let (start, bytes) = (self.place(&transfer), Rc::clone(&self.bytes));
        end_later(executor, transfer, then, move |target| {
            target.copy_from_slice(&bytes.borrow()[start..start + target.len()]);
        });
    }

    fn write(&self, executor: &Executor, transfer: Transfer, _: bool, then: Then) {
        let (start, bytes, writes) = (self.place(&transfer), Rc::clone(&self.bytes), Rc::clone(&self.writes));
        end_later(executor, transfer, then, move |source| {
            writes.set(writes.get() + 1);
            bytes.borrow_mut()[start..start + source.len()].copy_from_slice(source);
        });
    }

    fn reserve<'a>(&'a self, executor: &'a Executor, pages: u32) -> Future<'a, Result<()>> {
        Box::pin(async move {
            executor.sleep_ns(AWAY_NS).await;
            self.bytes.borrow_mut().resize(pages as usize * PAGE_SIZE, 0);
            Ok(())
        })
    }

    fn sync<'a>(&'a self, executor: &'a Executor) -> Future<'a, Result<()>> {
        Box::pin(async move {
            executor.sleep_ns(AWAY_NS).await;
            self.syncs.set(self.syncs.get() + 1);
            Ok(())
        })
    }

    fn failure(&self) -> Option<Error> {
        None
    }
}

/// Has the partition's pages elsewhere from now on.
async fn send_away(executor: &Executor, database: &Database, partition: PartitionId) -> Result<Rc<Remote>> {
    database.checkpoint().await?;
    let buffer = database.buffer();
    let (here, remote) = (buffer.space(partition), Rc::new(Remote::default()));
    remote.reserve(executor, here.capacity()).await?;
    for number in 0..here.capacity().min(here.written()) {
        let page = PageId::new(partition, number);
        let (bytes, fault) = here.salvage(executor, page).await?;
        assert_eq!(fault, None);
        let transfer = Transfer { first: page, buffer: bytes, length: PAGE_SIZE, access: Access::Asynchronous };
        (&*remote as &dyn PageStore).write_now(executor, transfer, true).await.result?;
    }
    buffer.detach(partition).await;
    let store: Rc<dyn PageStore> = Rc::<Remote>::clone(&remote);
    buffer.attach(partition, PageSpace::new(store, partition, false, PageKind::Empty));
    Ok(remote)
}

#[test]
fn a_partition_lives_on_pages_that_are_elsewhere() {
    let driver = VirtualDriver::new(Hardware::ideal(), Options::default(), Media::new());
    let executor = Executor::new(Box::new(driver), Order::FirstInFirstOut);
    let done = executor.run(async {
        let buffer = buffer::Settings { frames: 16, page_size: PAGE_SIZE, ..buffer::Settings::default() };
        let database = Database::create(&executor, Settings { buffer, ..Settings::default() }).await?;
        let notes = database.create_partition(PartitionSpec::b_tree("notes")).await?;
        let remote = send_away(&executor, &database, notes).await?;
        for number in 0..RECORDS {
            let key = number.reverse_bits().to_be_bytes();
            database.transaction(async |tx| tx.put(notes, &key, &[number as u8; 100]).await).await?;
        }
        database.checkpoint().await?;
        for number in 0..RECORDS {
            let key = number.reverse_bits().to_be_bytes();
            let found = database.transaction(async |tx| tx.get(notes, &key).await).await?;
            assert_eq!(found.as_deref(), Some(&[number as u8; 100][..]));
        }
        assert!(remote.capacity() > 16, "it has grown beyond the buffer");
        assert!(remote.reads.get() > 16 && remote.writes.get() > 16, "misses and write-backs go there");
        assert!(remote.syncs.get() > 0, "checkpoints make it durable");
        Ok::<(), Error>(())
    });
    executor.stop();
    assert_eq!(done.expect("the machine goes on"), Ok(()));
}
