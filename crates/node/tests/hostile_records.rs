//! A client that locks records of pages, as a server that is played by a script answers it: among what comes of several transactions at once
//! some has to come in one step.

use crate::hostile::{Ground, Line, PAGE, admit, join_with, sound};
use base::PageId;
use base::time::{MILLISECOND_NS, SECOND_NS};
use engine::catalog::Organization;
use engine::organization::b_tree::ROOT;
use engine::{Error, Result};
use entresol_node::lease::LEASE_NS;
use entresol_node::message::{Answer, Copy, Described, LeavingFate, RecordLock, Request};
use std::cell::Cell;
use std::rc::Rc;

const ON_PAGE: u32 = 12;
const FRAMES: usize = 80;
/// The first object of the page.
const FIRST: u64 = PAGE.number as u64 * ON_PAGE as u64;

impl Line {
    async fn tell_catalog(&mut self) {
        self.tell_organization(Organization::Direct { objects: 1000, blocking_factor: ON_PAGE, record_size: 8 }).await;
    }

    async fn tell_organization(&mut self, organization: Organization) {
        let asked = self.hear().await;
        assert_eq!(asked, Some(Request::Catalog));
        let described =
            Described { id: PAGE.partition.0, name: "table".to_owned(), organization, schema: None, index_of: None };
        self.say(&Answer::Catalog { partitions: vec![described] }).await;
    }

    /// The client asks for the page, and is told that others have locks of its records.
    async fn have_fall(&mut self) {
        let copy = self.hear_read().await;
        self.say(&Answer::ByRecords { copy }).await;
        assert_eq!(self.hear().await, Some(Request::CalledBack { copy }));
    }

    /// The same of the root of a tree, which is its only leaf. Returns the record that the client asks for then.
    async fn have_root_fall(&mut self) -> (PageId, RecordLock) {
        // Until it hears of that, it takes pages to be locked whole.
        let gone = Copy { page: PAGE, number: 99 };
        self.say(&Answer::Fall { copy: gone }).await;
        assert_eq!(self.hear().await, Some(Request::CalledBack { copy: gone }));
        self.tell_organization(Organization::BTree).await;
        self.have_fall().await;
        (PageId::new(PAGE.partition, ROOT), self.hear_record().await)
    }

    async fn hear_record(&mut self) -> RecordLock {
        loop {
            match self.hear().await {
                Some(Request::Record { lock, .. }) => return lock,
                Some(Request::Abort { .. }) => {}
                other => panic!("the client says {other:?}"),
            }
        }
    }

    async fn give_record(&mut self, is_alone: bool) {
        let lock = self.hear_record().await;
        self.say(&Answer::Record { page: PAGE, lock, is_alone, bytes: vec![0; 8] }).await;
    }
}

#[test]
fn an_object_that_could_not_be_had_is_asked_for_again() {
    let mut ground = Ground::new();
    ground.play(async move |acceptor, executor| {
        let mut line = admit(&*acceptor, &executor, 0, false, LEASE_NS).await;
        line.tell_catalog().await;
        line.have_fall().await;
        let lock = line.hear_record().await;
        let reason = "the disk does not answer".to_owned();
        line.say(&Answer::NoRecord { page: PAGE, lock, is_denied: false, reason }).await;
        line.give_record(true).await;
        while line.hear().await.is_some() {}
    });
    let found = ground.run(async move |executor, at, own| {
        let client = join_with(FRAMES, &executor, at, own).await?;
        let mut transaction = client.begin().await;
        let refused = transaction.read_object(PAGE.partition, FIRST, <[u8]>::len).await;
        assert!(matches!(refused, Err(Error::Input(_))), "{refused:?}");
        transaction.read_object(PAGE.partition, FIRST, <[u8]>::len).await
    });
    assert_eq!(found, Ok(8));
}

/// A transaction waits for a page, which is called back in the step in which it comes; meanwhile another one has found that its records are to
/// be come to by locks of their own if that `is_known`. Whether the copy falls.
fn falls_when_it_comes(writes: bool, is_known: bool) -> bool {
    let mut ground = Ground::new();
    let has_fallen = Rc::new(Cell::new(false));
    let fallen = Rc::clone(&has_fallen);
    ground.play(async move |acceptor, executor| {
        let mut line = admit(&*acceptor, &executor, 0, false, LEASE_NS).await;
        line.tell_catalog().await;
        line.have_fall().await;
        line.give_record(false).await;
        // Alone so often that the next one asks for the page.
        for _ in 0..4 {
            line.give_record(true).await;
        }
        let copy = line.hear_read().await;
        if is_known {
            line.give_record(false).await;
        }
        let page = Answer::Page { copy, bytes: sound(PAGE), fate: LeavingFate::Dropped };
        line.say_all(&[page, Answer::Fall { copy }]).await;
        let is_it =
            |said: &Request| matches!(said, Request::Fell { copy: Copy { number, .. }, .. } if *number == copy.number);
        let falling = async {
            while let Some(said) = line.hear().await {
                if is_it(&said) {
                    return true;
                }
            }
            false
        };
        fallen.set(executor.within(SECOND_NS, falling).await == Some(true));
        while line.hear().await.is_some() {}
    });
    let done: Result<()> = ground.run(async move |executor, at, own| {
        let client = join_with(FRAMES, &executor, at, own).await?;
        client.begin().await.read_object(PAGE.partition, FIRST, |_| ()).await?;
        let mut first = client.begin().await;
        for number in 0..4 {
            first.read_object(PAGE.partition, FIRST + number, <[u8]>::len).await?;
        }
        let mut second = client.begin().await;
        let reading = executor.spawn(async move {
            if writes {
                second.modify_object(PAGE.partition, FIRST + 7, |object| object[0] = 1).await
            } else {
                second.read_object(PAGE.partition, FIRST + 7, |_| ()).await
            }
        });
        executor.sleep_ns(MILLISECOND_NS).await;
        if is_known {
            first.read_object(PAGE.partition, FIRST + 5, <[u8]>::len).await?;
        }
        executor.sleep_ns(2 * SECOND_NS).await;
        drop((reading, first));
        Ok(())
    });
    assert_eq!(done, Ok(()));
    has_fallen.get()
}

#[test]
fn a_copy_that_is_called_back_as_it_comes_falls_when_it_is_waited_for_no_more() {
    for (writes, is_known) in [(false, true), (true, true), (true, false)] {
        assert!(falls_when_it_comes(writes, is_known), "writes: {writes}, known: {is_known}");
    }
}

/// A tree whose root was its only leaf when the client has heard of locks of its records.
#[test]
fn records_of_what_is_no_leaf_any_more_are_come_to_by_page() {
    let mut ground = Ground::new();
    let asked = Rc::new(Cell::new(None));
    let heard = Rc::clone(&asked);
    ground.play(async move |acceptor, executor| {
        let mut line = admit(&*acceptor, &executor, 0, false, LEASE_NS).await;
        let (page, lock) = line.have_root_fall().await;
        line.say(&Answer::Record { page, lock, is_alone: false, bytes: vec![7; 9] }).await;
        let lock = line.hear_record().await;
        line.say(&Answer::NoLeaf { page, lock }).await;
        assert!(matches!(line.hear().await, Some(Request::Abort { .. })));
        heard.set(Some(line.hear_read().await.page));
        while line.hear().await.is_some() {}
    });
    let [damaged, moved] = ground.run(async move |executor, at, own| {
        let client = join_with(FRAMES, &executor, at, own).await.expect("it is admitted");
        let tree = PAGE.partition;
        executor.sleep_ns(SECOND_NS).await;
        let damaged = client.begin().await.get(tree, b"key").await;
        let moved = client.begin().await.get(tree, b"key").await;
        let mut next = client.begin().await;
        let _silent = executor.within(SECOND_NS, next.get(tree, b"key")).await;
        [damaged, moved]
    });
    assert!(matches!(damaged, Err(Error::Input(_))), "{damaged:?}");
    assert_eq!(moved, Err(Error::Deadlock));
    assert_eq!(asked.get(), Some(PageId::new(PAGE.partition, ROOT)));
}

/// Its lock may have been granted before that was found: the server does not wait for who asks, so it would wait for itself.
#[test]
fn who_could_not_have_a_record_does_not_wait_for_the_page_behind_its_own_lock() {
    for writes in [false, true] {
        let mut ground = Ground::new();
        let asked = Rc::new(Cell::new(None));
        let heard = Rc::clone(&asked);
        ground.play(async move |acceptor, executor| {
            let mut line = admit(&*acceptor, &executor, 0, false, LEASE_NS).await;
            let (page, lock) = line.have_root_fall().await;
            let reason = "all frames are in use".to_owned();
            line.say(&Answer::NoRecord { page, lock, is_denied: false, reason }).await;
            heard.set(line.hear().await.map(|said| matches!(said, Request::Abort { .. })));
            while line.hear().await.is_some() {}
        });
        let [refused, whole] = ground.run(async move |executor, at, own| {
            let client = join_with(FRAMES, &executor, at, own).await.expect("it is admitted");
            let tree = PAGE.partition;
            executor.sleep_ns(SECOND_NS).await;
            let mut transaction = client.begin().await;
            let refused = if writes {
                transaction.modify(tree, b"key", |_| ()).await
            } else {
                transaction.get(tree, b"key").await.map(drop)
            };
            let whole = executor.within(SECOND_NS, transaction.insert(tree, b"key", b"value")).await;
            drop(transaction);
            executor.sleep_ns(MILLISECOND_NS).await;
            [Some(refused), whole]
        });
        assert!(matches!(refused, Some(Err(Error::Input(_)))), "{refused:?}");
        assert_eq!(whole, Some(Err(Error::Deadlock)), "it is run again, and comes to its records by way of the page");
        assert_eq!(asked.get(), Some(true), "it is rolled back before it asks for anything else");
    }
}

/// It is asked for again with a greater lock, and what the transaction has of it is as before.
#[test]
fn a_record_whose_greater_lock_could_not_be_had_is_still_there() {
    let mut ground = Ground::new();
    ground.play(async move |acceptor, executor| {
        let mut line = admit(&*acceptor, &executor, 0, false, LEASE_NS).await;
        line.tell_catalog().await;
        line.have_fall().await;
        line.give_record(false).await;
        let lock = line.hear_record().await;
        assert!(lock.writes);
        let reason = "all frames are in use".to_owned();
        line.say(&Answer::NoRecord { page: PAGE, lock, is_denied: false, reason }).await;
        while line.hear().await.is_some() {}
    });
    let [read, changed, again] = ground.run(async move |executor, at, own| {
        let client = join_with(FRAMES, &executor, at, own).await.expect("it is admitted");
        let mut transaction = client.begin().await;
        let read = transaction.read_object(PAGE.partition, FIRST, <[u8]>::len).await;
        let changed = transaction.modify_object(PAGE.partition, FIRST, |object| object.len()).await;
        [read, changed, transaction.read_object(PAGE.partition, FIRST, <[u8]>::len).await]
    });
    assert_eq!(read, Ok(8));
    assert!(matches!(&changed, Err(Error::Input(fault)) if fault.message.contains("frames")), "{changed:?}");
    assert_eq!(again, Ok(8));
}
