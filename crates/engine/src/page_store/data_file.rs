//! A file of pages on some device.

use super::syncs::Syncs;
use super::{Future, PageStore, Then, Transfer};
use crate::{Error, Result};
use base::PageId;
use driver::{Access, DeviceId, DeviceTraits, FileId, Op};
use executor::Executor;
use std::cell::Cell;
use std::rc::Rc;
use structures::canary::{self, Canary};

/// An open file of pages. Page `n` lies at byte `n * page size`.
pub struct DataFile {
    name: String,
    file: FileId,
    traits: DeviceTraits,
    page_size: usize,
    capacity: Cell<u32>,
    syncs: Rc<Syncs>,
}

impl DataFile {
    /// Opens or creates the file.
    ///
    /// # Errors
    /// The driver's.
    pub async fn open(
        executor: &Executor,
        device: DeviceId,
        name: &str,
        page_size: usize,
        create: bool,
    ) -> Result<DataFile> {
        let (file, length) = executor.open(device, name, create).await?;
        let pages = u32::try_from(length / page_size as u64).unwrap_or(u32::MAX);
        Ok(DataFile {
            name: name.to_owned(),
            file,
            traits: executor.traits(device),
            page_size,
            capacity: Cell::new(pages),
            // A program that was killed may have left pages that can be read and are not durable.
            syncs: Syncs::after(u64::from(pages > 0)),
        })
    }

    fn offset(&self, page: PageId) -> u64 {
        u64::from(page.number) * self.page_size as u64
    }
}

impl PageStore for DataFile {
    fn name(&self) -> &str {
        &self.name
    }

    fn page_size(&self) -> usize {
        self.page_size
    }

    fn capacity(&self) -> u32 {
        self.capacity.get()
    }

    fn may_tear(&self) -> bool {
        let DeviceTraits { atomic_write, untorn_on_request, .. } = self.traits;
        let is_believed = canary::is_planted(Canary::BelievedOffer);
        let whole = if is_believed { atomic_write.max(untorn_on_request) } else { atomic_write };
        (whole as usize) < self.page_size
    }

    fn is_synchronous(&self) -> bool {
        self.traits.synchronous
    }

    fn access_at_once(&self, executor: &Executor) -> Option<Access> {
        crate::io::access_at_once(executor, &self.traits)
    }

    fn access<'a>(&'a self, executor: &'a Executor) -> Future<'a, Access> {
        Box::pin(crate::io::access(executor, &self.traits))
    }

    fn read(&self, executor: &Executor, transfer: Transfer, then: Then) {
        let Transfer { first, buffer, length, access } = transfer;
        let (offset, length) = (self.offset(first), length as u32);
        executor.submit_boxed(Op::Read { file: self.file, offset, length, buffer, access }, then);
    }

    fn write(&self, executor: &Executor, transfer: Transfer, durable: bool, then: Then) {
        let Transfer { first, buffer, length, access } = transfer;
        let (offset, length, syncs) = (self.offset(first), length as u32, Rc::clone(&self.syncs));
        let failures = syncs.note_begun(durable);
        executor.submit(
            Op::Write { file: self.file, offset, length, buffer, durable, access },
            move |mut completion| {
                syncs.note_written((durable, failures), &mut completion.result);
                then(completion);
            },
        );
    }

    fn reserve<'a>(&'a self, executor: &'a Executor, pages: u32) -> Future<'a, Result<()>> {
        Box::pin(async move {
            if pages > self.capacity.get() {
                let length = u64::from(pages) * self.page_size as u64;
                executor.perform(Op::Resize { file: self.file, length, prewrite: true }).await.result?;
                self.capacity.set(pages);
            }
            Ok(())
        })
    }

    fn limit(&self, pages: u32) {
        self.capacity.set(self.capacity.get().min(pages));
    }

    fn shorten<'a>(&'a self, executor: &'a Executor) -> Future<'a, Result<()>> {
        Box::pin(async move {
            let length = u64::from(self.capacity.get()) * self.page_size as u64;
            executor.perform(Op::Resize { file: self.file, length, prewrite: false }).await.result?;
            Ok(())
        })
    }

    fn sync<'a>(&'a self, executor: &'a Executor) -> Future<'a, Result<()>> {
        Box::pin(self.syncs.sync(executor, self.file))
    }

    fn is_unsynced(&self) -> bool {
        self.syncs.is_unsynced()
    }

    fn failure(&self) -> Option<Error> {
        self.syncs.failure()
    }
}
