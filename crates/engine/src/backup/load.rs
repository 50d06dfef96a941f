//! Restart: a copy of the backup comes back into memory. The engine's thread hands out work and collects it; images are verified
//! and the parts of an index built beside it, on every core, while the next images are read.

use super::{Backup, CopyFile, VERIFY_INSTRUCTIONS};
use crate::io::memory::touched_frames;
use crate::superblock::CurrentBackup;
use crate::{Error, Result};
use base::PartitionId;
use driver::{Access, Fault, FaultKind, Frame, Op, Work};
use executor::{Executor, JoinHandle};
use std::cell::RefCell;
use std::collections::VecDeque;
use structures::canary::{self, Canary};
use structures::set::{Sets, Share, Verified, Verifier};

/// How many segments are read or verified at once.
const DEPTH: usize = 16;
/// Memory is allocated in regions of this size, enough for huge pages, and several at once: the system fills new pages with
/// zeros, which takes a large part of a restart, so that the pages are touched on every core.
const REGION_SIZE: usize = 4 << 20;
const REGIONS: usize = 4;
/// As many records make it worth while to have a part of an index built.
const SHARE_MIN: usize = 1 << 14;
/// About what it costs on described hardware to add a record to an index, in instructions.
const ADD_INSTRUCTIONS: u64 = 100;

/// One set's way back into memory.
struct Load<'a> {
    executor: &'a Executor,
    sets: &'a RefCell<Sets>,
    partition: PartitionId,
    images: VecDeque<JoinHandle<Result<Verified>>>,
    shares: VecDeque<JoinHandle<Result<Share>>>,
}

impl Backup {
    /// Loads the segments of a set from the complete copy.
    ///
    /// # Errors
    /// [`Error::DamagedBackup`], [`Error::OlderBackup`], or the driver's.
    pub async fn load(
        &self,
        executor: &Executor,
        sets: &RefCell<Sets>,
        partition: PartitionId,
        current: &CurrentBackup,
    ) -> Result<()> {
        let (copy, count) = (usize::from(current.copy), current.segments_of(partition));
        let files = self.files(partition);
        let size = sets.borrow().segment_size(partition);
        sets.borrow_mut().expect_segments(partition, count);
        let (images, shares) = (VecDeque::new(), VecDeque::new());
        let mut load = Load { executor, sets, partition, images, shares };
        let mut memory =
            MemoryRegions { executor, size, left: count as usize, regions: VecDeque::new(), frames: Vec::new() };
        let mut next = 0;
        while next < count || !load.images.is_empty() {
            while next < count && load.images.len() < DEPTH {
                let frame = memory.frame().await?;
                let verifier = sets.borrow().verifier(partition, next, copy);
                let (files, driver, segment) = (files.clone(), executor.clone(), next);
                let image = async move { read_image(&driver, &files[copy], (segment, frame), verifier).await };
                load.images.push_back(executor.spawn(image));
                next += 1;
            }
            let verified = load.images.pop_front().expect("some are under way").join().await?;
            sets.borrow_mut().take_in(partition, verified);
            load.collect().await?;
            load.hand_out(SHARE_MIN);
        }
        let expected = current.images_of(partition).filter(|_| !canary::is_planted(Canary::OlderImage));
        if expected.is_some_and(|expected| expected != files[copy].images(count)) {
            return Err(Error::OlderBackup { file: files[copy].name.clone() });
        }
        loop {
            load.hand_out(1);
            let Some(share) = load.shares.pop_front() else { return Ok(()) };
            let share = share.join().await?;
            sets.borrow_mut().put_back(share);
        }
    }
}

/// Memory for segments, touched ahead.
struct MemoryRegions<'a> {
    executor: &'a Executor,
    size: usize,
    /// Frames that are not asked for yet.
    left: usize,
    regions: VecDeque<JoinHandle<Result<Vec<Frame>, Fault>>>,
    frames: Vec<Frame>,
}

impl MemoryRegions<'_> {
    async fn frame(&mut self) -> Result<Frame> {
        while self.left > 0 && self.regions.len() < REGIONS {
            let count = (REGION_SIZE / self.size).clamp(1, self.left);
            self.left -= count;
            self.regions.push_back(touched_frames(self.executor, count, self.size)?);
        }
        if self.frames.is_empty()
            && let Some(region) = self.regions.pop_front()
        {
            self.frames = region.join().await?;
        }
        Ok(self.frames.pop().expect("as many as there are segments"))
    }
}

impl Load<'_> {
    /// Starts to build every part of the index that is here and has at least `records_min` records to add.
    fn hand_out(&mut self, records_min: usize) {
        while let Some(share) = self.sets.borrow_mut().share(self.partition, records_min) {
            let executor = self.executor.clone();
            let building = async move {
                let instructions = share.records() as u64 * ADD_INSTRUCTIONS;
                Ok(executor.compute(instructions, move || share.build()).await?)
            };
            self.shares.push_back(self.executor.spawn(building));
        }
    }

    /// Takes back the parts that have been built.
    async fn collect(&mut self) -> Result<()> {
        while let Some(share) = self.shares.pop_front_if(|share| share.is_finished()) {
            let share = share.join().await?;
            self.sets.borrow_mut().put_back(share);
        }
        Ok(())
    }
}

/// Reads a segment's image and verifies it.
async fn read_image(
    executor: &Executor,
    own: &CopyFile,
    (segment, buffer): (u32, Frame),
    verifier: Verifier,
) -> Result<Verified> {
    let (offset, length) = (u64::from(segment) * buffer.len() as u64, buffer.len() as u32);
    executor.charge(Work::InputOutput);
    executor.pay_debt().await;
    let op = Op::Read { file: own.file, offset, length, buffer, access: Access::Asynchronous };
    let completion = executor.perform(op).await;
    let damaged = |detail| Error::DamagedBackup { file: own.name.clone(), segment, detail };
    match completion.result {
        Err(fault) if matches!(fault.kind, FaultKind::Device | FaultKind::EndOfFile) => {
            return Err(damaged(fault.message));
        }
        result => result?,
    };
    let frame = completion.buffer.expect("a read gives its buffer back");
    own.note_image(segment, &frame);
    let instructions = u64::from(length) / 64 * VERIFY_INSTRUCTIONS;
    let verified = executor.compute(instructions, move || verifier.verify(frame)).await?;
    verified.map_err(|damage| damaged(damage.0))
}
