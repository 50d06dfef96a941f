//! Why the latest reads of pages have failed, for the tasks that wait for them.
//!
//! A read that no task waits for any more leaves nothing here: a task that wants the page has it read again.

use crate::Error;
use base::PageId;
use std::cell::{Cell, RefCell};

#[derive(Default)]
pub(super) struct Failures {
    latest: RefCell<Vec<(PageId, Error)>>,
    /// The page whose read is being started: the task that does so waits for it next.
    starting: Cell<Option<PageId>>,
}

impl Failures {
    /// Why the latest read of a page has failed.
    pub fn of(&self, id: PageId) -> Option<Error> {
        self.latest.borrow().iter().find(|(page, _)| *page == id).map(|(_, error)| error.clone())
    }

    /// Starts to read a page. What its reads before have come to is past.
    pub fn start(&self, id: PageId, read: impl FnOnce()) {
        self.forget(|page| page == id);
        self.starting.set(Some(id));
        read();
        self.starting.set(None);
    }

    /// A read has failed, which tasks may wait for.
    pub fn note(&self, id: PageId, error: Error) {
        self.latest.borrow_mut().push((id, error));
    }

    /// The same of a read of which it is known whether tasks wait for it, but for the one that starts it.
    pub fn note_if(&self, is_awaited: bool, id: PageId, error: Error) {
        if is_awaited || self.starting.get() == Some(id) {
            self.note(id, error);
        }
    }

    /// Forgets what is known of these pages.
    pub fn forget(&self, is_meant: impl Fn(PageId) -> bool) {
        self.latest.borrow_mut().retain(|(page, _)| !is_meant(*page));
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Buffer, PageSpace, Pins, Settings};
    use crate::page_store::{Future, PageStore, Then, Transfer};
    use crate::second_level::design::Pattern;
    use crate::{Error, Need, Result};
    use base::{PageId, PartitionId};
    use driver::{Access, Completion, Fault, FaultKind, Token};
    use executor::{Executor, Order};
    use std::cell::RefCell;
    use std::rc::Rc;
    use structures::page::PageKind;
    use virtual_driver::{Hardware, Media, Options, VirtualDriver};

    const PARTITION: PartitionId = PartitionId(1);
    const PAGE_SIZE: usize = 512;

    /// A store whose pages do not come: at once, or when it is told so.
    struct Failing {
        at_once: bool,
        under_way: RefCell<Vec<(Transfer, Then)>>,
    }

    fn fail((transfer, then): (Transfer, Then)) {
        let fault = Fault::new(FaultKind::Device, "it does not come");
        then(Completion { token: Token(0), result: Err(fault), buffer: Some(transfer.buffer) });
    }

    impl Failing {
        fn fail_all(&self) {
            let under_way = self.under_way.take();
            under_way.into_iter().for_each(fail);
        }
    }

    impl PageStore for Failing {
        fn name(&self) -> &str {
            "failing"
        }

        fn page_size(&self) -> usize {
            PAGE_SIZE
        }

        fn capacity(&self) -> u32 {
            u32::MAX
        }

        fn may_tear(&self) -> bool {
            false
        }

        fn access<'a>(&'a self, _: &'a Executor) -> Future<'a, Access> {
            Box::pin(std::future::ready(Access::Asynchronous))
        }

        fn read(&self, _: &Executor, transfer: Transfer, then: Then) {
            self.under_way.borrow_mut().push((transfer, then));
            if self.at_once {
                self.fail_all();
            }
        }

        fn write(&self, _: &Executor, transfer: Transfer, _: bool, then: Then) {
            fail((transfer, then));
        }

        fn reserve<'a>(&'a self, _: &'a Executor, _: u32) -> Future<'a, Result<()>> {
            Box::pin(std::future::ready(Ok(())))
        }

        fn sync<'a>(&'a self, _: &'a Executor) -> Future<'a, Result<()>> {
            Box::pin(std::future::ready(Ok(())))
        }

        fn failure(&self) -> Option<Error> {
            None
        }
    }

    /// A buffer above such a store.
    fn with_store(at_once: bool, work: impl AsyncFnOnce(&Executor, &Rc<Buffer>, &Failing)) {
        let driver = VirtualDriver::new(Hardware::ideal(), Options::default(), Media::new());
        let executor = Executor::new(Box::new(driver), Order::FirstInFirstOut);
        let settings = Settings { frames: 8, page_size: PAGE_SIZE, cleaner: false, ..Settings::default() };
        let buffer = Buffer::new(&executor, None, settings).expect("memory");
        let store = Rc::new(Failing { at_once, under_way: RefCell::default() });
        let own: Rc<dyn PageStore> = Rc::<Failing>::clone(&store);
        buffer.attach(PARTITION, PageSpace::new(own, PARTITION, false, PageKind::Direct));
        executor.run(work(&executor, &buffer, &store)).expect("the machine goes on");
        executor.stop();
    }

    async fn resolve(buffer: &Rc<Buffer>, number: u32) -> Result<()> {
        let mut pins = Pins::new(buffer);
        let need = Need::Page(PageId::new(PARTITION, number));
        buffer.resolve(need, Pattern::Random, &mut pins).await.map(drop)
    }

    #[test]
    fn a_read_that_no_task_waits_for_any_more_leaves_no_failure() {
        with_store(false, async |executor, buffer, store| {
            for number in 0..100 {
                assert_eq!(executor.within(1_000, resolve(buffer, number)).await, None);
                assert_eq!(store.under_way.borrow().len(), 1);
                store.fail_all();
            }
            assert_eq!(buffer.failures.latest.borrow().len(), 0);
        });
    }

    #[test]
    fn every_task_that_waits_for_a_read_is_told_why_it_fails() {
        with_store(false, async |executor, buffer, store| {
            let waiting = [(); 3].map(|()| {
                let buffer = Rc::clone(buffer);
                executor.spawn(async move { resolve(&buffer, 7).await })
            });
            executor.sleep_ns(1_000).await;
            store.fail_all();
            for task in waiting {
                assert!(matches!(task.join().await, Err(Error::Input(_))));
            }
        });
        with_store(true, async |_, buffer, _| {
            assert!(
                matches!(resolve(buffer, 7).await, Err(Error::Input(_))),
                "it failed before it could be waited for"
            );
        });
    }
}
