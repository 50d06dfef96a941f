//! The backup of the memory-resident sets: two complete copies, written by sweeps in turn (Garcia-Molina and Salem, System M,
//! 1988, section 2.5: ping-pong). The copy that is not being written is whole at any moment; the superblock file says which one it
//! is, and from where the log goes on from it.
//!
//! Each set has two files on its partition's device. Segment `n` lies at byte `n * segment size`; a segment that is written is
//! whole or belongs to a sweep that did not end, so nothing has to be written twice.
//!
//! A write that was acknowledged and never happened leaves an older image, as sound as the right one. So the superblock file has a
//! checksum over the checksums of each set's images: a sweep knows the checksums of the images that it writes, and of those before.
//!
//! A stamp in each image, or a table beside the images, could be lost with the same write; a table would also be one
//! more write for each set in each sweep.

mod load;

use crate::catalog::Partition;
use crate::{Error, Result};
use base::PartitionId;
use driver::{Access, DeviceId, FileId, Frame, Op};
use executor::Executor;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use structures::canary::{self, Canary};
use structures::checksum::{block_checksum, checksum, stored_checksum};

/// How many segments are written at once.
pub const DEPTH: usize = 8;
/// About what it costs on described hardware to verify 64 bytes of an image, in instructions.
const VERIFY_INSTRUCTIONS: u64 = 40;

/// One set's part of one copy.
struct CopyFile {
    name: String,
    file: FileId,
    /// Its length in bytes.
    length: Cell<u64>,
    /// Whether the next sweep over this copy is to cut off what is behind its segments.
    is_to_end: Cell<bool>,
    /// Segments written since the start.
    writes: Cell<u64>,
    /// The checksum of each segment's image, as far as it was written or read since the start.
    images: RefCell<Vec<u32>>,
}

impl CopyFile {
    /// Notes that this is a segment's image.
    fn note_image(&self, segment: u32, image: &[u8]) {
        let mut images = self.images.borrow_mut();
        let index = segment as usize;
        if images.len() <= index {
            images.resize(index + 1, 0);
        }
        images[index] = stored_checksum(image);
    }

    /// Whether this is not the image of a segment that was written or loaded last, as far as that is known.
    fn is_older(&self, segment: u32, image: &[u8]) -> bool {
        let noted = self.images.borrow().get(segment as usize).copied().unwrap_or(0);
        noted != 0 && noted != stored_checksum(image)
    }

    /// The checksum over those of the first `count` images, all of which are known.
    fn images(&self, count: u32) -> u32 {
        let images = self.images.borrow();
        let bytes: Vec<u8> = images[..count as usize].iter().flat_map(|sum| sum.to_le_bytes()).collect();
        checksum(&bytes)
    }
}

/// The files of both copies, by partition.
#[derive(Default)]
pub struct Backup {
    files: RefCell<Vec<Option<Rc<[CopyFile; 2]>>>>,
}

async fn open(executor: &Executor, device: DeviceId, name: String, create: bool) -> Result<CopyFile> {
    if create {
        executor.perform(Op::Remove { device, name: name.clone() }).await.result?;
    }
    let (file, length) = executor.open(device, &name, create).await?;
    let (length, is_to_end, writes) = (Cell::new(length), Cell::new(false), Cell::new(0));
    Ok(CopyFile { name, file, length, is_to_end, writes, images: RefCell::default() })
}

impl Backup {
    /// Opens a set's files, or creates them in place of what a creation that was cut off has left.
    ///
    /// # Errors
    /// The driver's, or [`Error::NoDevice`].
    pub async fn attach(&self, executor: &Executor, partition: &Partition, create: bool) -> Result<()> {
        let device = crate::io::device(executor, &partition.device)?;
        let first = open(executor, device, partition.backup_file_name(0), create).await?;
        let second = open(executor, device, partition.backup_file_name(1), create).await?;
        let mut files = self.files.borrow_mut();
        let number = usize::from(partition.id);
        if files.len() <= number {
            files.resize(number + 1, None);
        }
        files[number] = Some(Rc::new([first, second]));
        Ok(())
    }

    /// Takes a set's files out.
    pub fn detach(&self, partition: PartitionId) {
        if let Some(files) = self.files.borrow_mut().get_mut(usize::from(partition.0)) {
            *files = None;
        }
    }

    /// The length of both files of a set, in bytes.
    pub fn file_bytes(&self, partition: PartitionId) -> u64 {
        self.files(partition).iter().map(|file| file.length.get()).sum()
    }

    /// Whether there is any set.
    pub fn has_files(&self) -> bool {
        self.files.borrow().iter().any(Option::is_some)
    }

    fn files(&self, partition: PartitionId) -> Rc<[CopyFile; 2]> {
        let files = self.files.borrow();
        Rc::clone(files[usize::from(partition.0)].as_ref().expect("the files of a set are attached"))
    }

    /// The next sweep over each copy of a set cuts off what is behind the segments that it takes: a copy that a restart would load, or
    /// that a backup reads, has all of them.
    pub fn cut_at_next_sweep(&self, partition: PartitionId) {
        self.files(partition).iter().for_each(|own| own.is_to_end.set(true));
    }

    /// Makes the room of a copy that of `count` segments of `size` bytes, or more: before they are written, because of resizes that
    /// overtake each other the last one would cut off what the first has made room for.
    ///
    /// # Errors
    /// The driver's.
    pub async fn reserve(
        &self,
        executor: &Executor,
        (partition, copy): (PartitionId, usize),
        (count, size): (u32, usize),
    ) -> Result<()> {
        let own = &self.files(partition)[copy];
        let needed = u64::from(count) * size as u64;
        let resize = async |length| {
            // Zeros would be a burst of writes as long as what has grown, before the writes of the same segments.
            executor.perform(Op::Resize { file: own.file, length, prewrite: false }).await.result?;
            own.length.set(length);
            Ok(())
        };
        if needed > own.length.get() {
            // In large steps: files that grow by little are scattered over the device.
            let quarters = (own.length.get() / 4).next_multiple_of(size as u64);
            return resize(needed.max(own.length.get() + quarters)).await;
        }
        if own.is_to_end.get() {
            // If this fails the file may be as short or not; the next sweep tries again.
            own.length.set(needed);
            resize(needed).await?;
            own.is_to_end.set(false);
        }
        Ok(())
    }

    /// Writes a segment's image; gives the frame back.
    pub async fn write(
        &self,
        executor: &Executor,
        (partition, copy): (PartitionId, usize),
        segment: u32,
        buffer: Frame,
    ) -> (Option<Frame>, Result<()>) {
        let own = &self.files(partition)[copy];
        let (file, offset, length) = (own.file, u64::from(segment) * buffer.len() as u64, buffer.len() as u32);
        debug_assert!(offset + u64::from(length) <= own.length.get(), "a sweep reserves what it writes");
        own.note_image(segment, &buffer);
        executor.charge(driver::Work::InputOutput);
        executor.pay_debt().await;
        let op = Op::Write { file, offset, length, buffer, durable: false, access: Access::Asynchronous };
        let completion = executor.perform(op).await;
        own.writes.set(own.writes.get() + 1);
        (completion.buffer, completion.result.map(|_| ()).map_err(Error::Input))
    }

    /// The checksum over those of a set's first `count` images in a copy. A restart has taken note of those that it loaded, and
    /// the first sweep after it writes all of the other copy.
    pub fn images(&self, (partition, copy): (PartitionId, usize), count: u32) -> u32 {
        self.files(partition)[copy].images(count)
    }

    /// Whether a set's files are open.
    pub fn is_attached(&self, partition: PartitionId) -> bool {
        self.files.borrow().get(usize::from(partition.0)).is_some_and(Option::is_some)
    }

    /// Reads a segment's image, of `size` bytes, and verifies it.
    ///
    /// # Errors
    /// [`Error::DamagedBackup`], [`Error::OlderBackup`], or the driver's.
    pub async fn read(
        &self,
        executor: &Executor,
        (partition, copy): (PartitionId, usize),
        segment: u32,
        size: usize,
    ) -> Result<Frame> {
        let files = self.files(partition);
        let own = &files[copy];
        let (offset, length) = (u64::from(segment) * size as u64, size as u32);
        let buffer = executor.frame(size)?;
        executor.charge(driver::Work::InputOutput);
        executor.pay_debt().await;
        let op = Op::Read { file: own.file, offset, length, buffer, access: Access::Asynchronous };
        let completion = executor.perform(op).await;
        completion.result?;
        let frame = completion.buffer.expect("a read gives its buffer back");
        let verify = move || {
            let is_sound = block_checksum(&frame) == stored_checksum(&frame);
            (frame, is_sound)
        };
        let (frame, is_sound) = executor.compute(size as u64 / 64 * VERIFY_INSTRUCTIONS, verify).await?;
        if !is_sound {
            let (file, detail) = (own.name.clone(), "its checksum is another".to_owned());
            return Err(Error::DamagedBackup { file, segment, detail });
        }
        if own.is_older(segment, &frame) && !canary::is_planted(Canary::OlderImage) {
            return Err(Error::OlderBackup { file: own.name.clone() });
        }
        Ok(frame)
    }

    /// How many segments of a set were written.
    pub fn writes(&self, partition: PartitionId) -> u64 {
        self.files(partition).iter().map(|file| file.writes.get()).sum()
    }

    /// Makes a copy durable, as far as it was written, of these sets. Others, which are being created or were since the sweep
    /// began, have nothing in it yet, and a creation that fails removes its files beside a sweep.
    ///
    /// # Errors
    /// The driver's.
    pub async fn sync(
        &self,
        executor: &Executor,
        copy: usize,
        sets: impl IntoIterator<Item = PartitionId>,
    ) -> Result<()> {
        for set in sets {
            let file = self.files(set)[copy].file;
            executor.perform(Op::Sync { file }).await.result?;
        }
        Ok(())
    }
}
