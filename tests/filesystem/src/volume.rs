use crate::directory::Directory;
use base::Random;
use driver::{Access, DeviceId, Driver, Fault, FaultKind, FileId, Frame, Op, Output, Token};
use fuser::Errno;
use std::collections::BTreeMap;
use virtual_driver::{FaultPlan, Hardware, Injury, Media, Options, PowerCut, VirtualDriver};

/// Directories and files on the virtual driver's media, and what a power cut does to each: of a file that was not synced,
/// writes are lost, kept or torn and its growth is lost or kept; of a directory that was not synced, names are lost or kept.
/// Syncing a file does not sync the directory that names it.
pub struct Volume {
    media: Media,
    driver: VirtualDriver,
    device: DeviceId,
    random: Random,
    inodes: BTreeMap<u64, Inode>,
    next: u64,
    /// How many power cuts there were.
    cuts: u64,
    /// The room for files' bytes, if it is limited.
    capacity: Option<u64>,
    /// Whether syncs of files do what they say.
    honest: bool,
}

pub(crate) type Result<T> = std::result::Result<T, Errno>;

struct Inode {
    /// The name it was created under, for messages and for rules of faults.
    name: String,
    node: Node,
    /// Open handles: they keep a file that nothing names.
    handles: u64,
}

enum Node {
    Directory(Directory),
    File { file: FileId, unsynced: Lengths },
}

/// Lengths that were set and not synced.
#[derive(Default)]
struct Lengths {
    cut_off: Option<CutOff>,
    /// From which length to which the file has grown, apart from writes.
    grown: Option<(u64, u64)>,
}

/// The end of a file that was made shorter, until that is durable.
struct CutOff {
    length: u64,
    bytes: Vec<u8>,
}

/// The unit that is never torn, and of which every offset and length is a multiple, in bytes.
pub(crate) const SECTOR: u64 = 512;
const DEVICE: &str = "disk";

fn stored(number: u64) -> String {
    format!("inode-{number}")
}

fn errno(fault: &Fault) -> Errno {
    match fault.kind {
        FaultKind::NotFound => Errno::ENOENT,
        FaultKind::NoSpace => Errno::ENOSPC,
        FaultKind::Unsupported | FaultKind::EndOfFile => Errno::EINVAL,
        _ => Errno::EIO,
    }
}

fn machine(media: &Media, seed: u64) -> (VirtualDriver, DeviceId) {
    let mut hardware = Hardware::ideal();
    hardware.device_mut(DEVICE).atomic_write = SECTOR as u32;
    let options = Options { seed, faults: Some(FaultPlan::default()), ..Options::default() };
    let driver = VirtualDriver::new(hardware, options, media.clone());
    let device = driver.device(DEVICE).expect("the ideal machine has a disk");
    (driver, device)
}

impl Volume {
    /// The root directory's number.
    pub const ROOT: u64 = 1;

    /// An empty volume. All that is random about it comes from `seed`.
    pub fn new(seed: u64) -> Volume {
        let media = Media::new();
        let (driver, device) = machine(&media, seed);
        let root = Inode { name: "/".into(), node: Node::Directory(Directory::default()), handles: 1 };
        let (inodes, random) = (BTreeMap::from([(Volume::ROOT, root)]), Random::stream(seed, "volume"));
        Volume { media, driver, device, random, inodes, next: Volume::ROOT + 1, cuts: 0, capacity: None, honest: true }
    }

    /// A device that says that bytes are durable when they are not.
    pub fn lying(self) -> Volume {
        Volume { honest: false, ..self }
    }

    /// Limits the room for files' bytes to this many more than are used now, or to none.
    pub fn limit(&mut self, more: Option<u64>) {
        self.capacity = more.map(|more| self.used() + more);
    }

    /// Bytes that files take together.
    pub fn used(&self) -> u64 {
        self.inodes
            .iter()
            .filter(|(_, inode)| !inode.is_directory())
            .map(|(number, _)| self.stored_length(*number))
            .sum()
    }

    /// Bytes that are left, if the room is limited.
    pub fn free(&self) -> Option<u64> {
        self.capacity.map(|capacity| capacity.saturating_sub(self.used()))
    }

    /// How many power cuts there were.
    pub fn cuts(&self) -> u64 {
        self.cuts
    }

    /// The name that an inode was created under.
    pub fn name(&self, number: u64) -> &str {
        self.inodes.get(&number).map_or("", |inode| inode.name.as_str())
    }

    /// Whether it is a directory, and its length in bytes.
    ///
    /// # Errors
    /// `ESTALE` if there is no such inode.
    pub fn attributes(&self, number: u64) -> Result<(bool, u64)> {
        let inode = self.inodes.get(&number).ok_or(stale())?;
        Ok(if inode.is_directory() { (true, 0) } else { (false, self.stored_length(number)) })
    }

    /// The inode of this name.
    ///
    /// # Errors
    /// `ENOENT` if there is none.
    pub fn lookup(&self, parent: u64, name: &str) -> Result<u64> {
        self.directory(parent)?.find(name).ok_or(Errno::ENOENT)
    }

    /// Names, inodes and whether these are directories.
    ///
    /// # Errors
    /// `ENOTDIR`.
    pub fn list(&self, number: u64) -> Result<Vec<(String, u64, bool)>> {
        let entries = self.directory(number)?.entries().iter();
        Ok(entries.map(|(name, number)| (name.clone(), *number, self.inodes[number].is_directory())).collect())
    }

    /// Creates an empty file or directory; its name is durable once `parent` is synced.
    ///
    /// # Errors
    /// `EEXIST`, `ENOTDIR`.
    pub fn create(&mut self, parent: u64, name: &str, directory: bool) -> Result<u64> {
        if self.directory(parent)?.find(name).is_some() {
            return Err(Errno::EEXIST);
        }
        let number = self.next;
        let node = match directory {
            true => Node::Directory(Directory::default()),
            false => Node::File { file: self.open_stored(number, true)?, unsynced: Lengths::default() },
        };
        self.next += 1;
        self.inodes.insert(number, Inode { name: name.to_owned(), node, handles: 0 });
        self.directory_mut(parent)?.change(None, Some((name, number)));
        Ok(number)
    }

    /// Removes a name; that is durable once `parent` is synced.
    ///
    /// # Errors
    /// `ENOENT`, `ENOTEMPTY`.
    pub fn remove(&mut self, parent: u64, name: &str) -> Result<()> {
        let number = self.lookup(parent, name)?;
        if let Node::Directory(directory) = &self.inode(number)?.node
            && !directory.entries().is_empty()
        {
            return Err(Errno::ENOTEMPTY);
        }
        self.directory_mut(parent)?.change(Some(name), None);
        Ok(())
    }

    /// Renames within a directory, over another file if there is one.
    ///
    /// # Errors
    /// `ENOENT`.
    pub fn rename(&mut self, parent: u64, name: &str, new: &str) -> Result<()> {
        let number = self.lookup(parent, name)?;
        self.directory_mut(parent)?.change(Some(name), Some((new, number)));
        Ok(())
    }

    /// Counts an open handle.
    pub fn opened(&mut self, number: u64) {
        if let Some(inode) = self.inodes.get_mut(&number) {
            inode.handles += 1;
        }
    }

    /// Counts a closed handle.
    pub fn closed(&mut self, number: u64) {
        if let Some(inode) = self.inodes.get_mut(&number) {
            inode.handles = inode.handles.saturating_sub(1);
        }
        self.forget_nameless();
    }

    /// Reads; short at the end of the file. An injury may strike it.
    ///
    /// # Errors
    /// `EIO`.
    pub fn read(&mut self, number: u64, offset: u64, size: u64, injury: Option<Injury>) -> Result<Vec<u8>> {
        let file = self.file(number)?;
        let end = (offset + size).min(self.stored_length(number));
        let first = offset / SECTOR * SECTOR;
        if offset >= end {
            return Ok(Vec::new());
        }
        let length = (end.next_multiple_of(SECTOR) - first) as usize;
        let buffer = Frame::allocate(1, length).remove(0);
        let op = Op::Read { file, offset: first, length: length as u32, buffer, access: Access::Asynchronous };
        let (_, buffer) = self.perform(op, injury)?;
        let buffer = buffer.expect("a read brings its buffer back");
        Ok(buffer[(offset - first) as usize..(end - first) as usize].to_vec())
    }

    /// Writes; durable at once if so asked, else once the file is synced. An injury may strike it.
    ///
    /// # Errors
    /// `EIO`, `ENOSPC`, `EINVAL` if the extent is not aligned to sectors.
    pub fn write(
        &mut self,
        number: u64,
        offset: u64,
        data: &[u8],
        durable: bool,
        injury: Option<Injury>,
    ) -> Result<()> {
        aligned(offset, data.len() as u64)?;
        self.admit(number, offset + data.len() as u64)?;
        let op = self.write_op(number, offset, data, durable && self.honest)?;
        self.perform(op, injury).map(drop)
    }

    /// Sets a file's length; durable once it is synced.
    ///
    /// # Errors
    /// `ENOSPC`, `EINVAL` if the length is not a multiple of a sector.
    pub fn resize(&mut self, number: u64, length: u64) -> Result<()> {
        aligned(0, length)?;
        let (file, present) = (self.file(number)?, self.stored_length(number));
        if length > present {
            self.admit(number, length)?;
            // Its last sector stands for the growth: lost or kept with it, durable with it.
            let op = self.write_op(number, length - SECTOR, &[0; SECTOR as usize], false)?;
            self.perform(op, None)?;
            let grown = &mut self.unsynced_mut(number)?.grown;
            *grown = Some((grown.map_or(present, |(from, _)| from), length));
        }
        if length < present {
            let bytes = self.read(number, length, present - length, None)?;
            self.perform(Op::Resize { file, length, prewrite: false }, None)?;
            *self.unsynced_mut(number)? = Lengths { cut_off: Some(CutOff { length, bytes }), grown: None };
        }
        Ok(())
    }

    /// Makes a file's bytes and length durable. An injury may strike it.
    ///
    /// # Errors
    /// `EIO`.
    pub fn sync(&mut self, number: u64, injury: Option<Injury>) -> Result<()> {
        let file = self.file(number)?;
        if self.honest {
            self.perform(Op::Sync { file }, injury)?;
        }
        *self.unsynced_mut(number)? = Lengths::default();
        Ok(())
    }

    /// Makes a directory's names durable.
    ///
    /// # Errors
    /// `ENOTDIR`.
    pub fn sync_directory(&mut self, number: u64) -> Result<()> {
        self.directory_mut(number)?.sync();
        self.forget_nameless();
        Ok(())
    }

    /// The power goes while these writes (inode, offset, bytes) are under way; then it comes back. Returns how many changes of names
    /// and of lengths were lost.
    pub fn power_cut(&mut self, under_way: Vec<(u64, u64, Vec<u8>)>) -> [u64; 2] {
        for (number, offset, data) in under_way {
            if self.admit(number, offset + data.len() as u64).is_ok()
                && let Ok(op) = self.write_op(number, offset, &data, false)
            {
                self.driver.submit(Token(0), op);
            }
        }
        self.driver.cut_power_after(0);
        // With nothing under way there is no event in whose place the power could go.
        let _ = self.driver.park(None, &mut Vec::new());
        self.media.power_cut(&mut self.random, &PowerCut::default());
        self.cuts += 1;
        (self.driver, self.device) = machine(&self.media, self.random.below(u64::MAX));
        let (mut lengths, mut lost) = (Vec::new(), [0; 2]);
        for (number, inode) in &mut self.inodes {
            inode.handles = u64::from(*number == Volume::ROOT);
            match &mut inode.node {
                Node::Directory(directory) => lost[0] += directory.power_cut(&mut self.random),
                Node::File { unsynced, .. } => lengths.push((*number, std::mem::take(unsynced))),
            }
        }
        self.forget_nameless();
        self.reopen_stored();
        lengths.retain(|(number, _)| self.inodes.contains_key(number));
        for (number, lengths) in lengths {
            lost[1] += u64::from(self.keep_length(number, lengths));
        }
        lost
    }

    /// What a power cut leaves of lengths that were set: all or nothing, and all if a later write is there. Whether one was lost.
    fn keep_length(&mut self, number: u64, Lengths { cut_off, grown }: Lengths) -> bool {
        let present = self.stored_length(number);
        let is_growth_lost = grown.is_some_and(|(from, _)| present <= from);
        if let Some((from, to)) = grown
            && from < present
            && present < to
        {
            let sector = [0; SECTOR as usize];
            self.write(number, to - SECTOR, &sector, true, None).expect("it had this length before");
        }
        if let Some(CutOff { length, bytes }) = cut_off
            && length == present
            && self.random.chance(0.5)
        {
            self.write(number, length, &bytes, true, None).expect("it had this length before");
            return true;
        }
        is_growth_lost
    }

    fn reopen_stored(&mut self) {
        let files: Vec<u64> =
            self.inodes.iter().filter(|(_, inode)| !inode.is_directory()).map(|(number, _)| *number).collect();
        for number in files {
            let opened = self.open_stored(number, false).expect("the media have every file that a directory names");
            self.inodes.get_mut(&number).expect("listed").node =
                Node::File { file: opened, unsynced: Lengths::default() };
        }
    }

    /// Drops what nothing names, may name after a power cut, or has open.
    fn forget_nameless(&mut self) {
        loop {
            let mut named = vec![Volume::ROOT];
            for inode in self.inodes.values() {
                if let Node::Directory(directory) = &inode.node {
                    named.extend(directory.mentions());
                }
            }
            let is_nameless = |(number, inode): (&u64, &Inode)| {
                (inode.handles == 0 && !named.contains(number)).then_some((*number, inode.is_directory()))
            };
            let nameless: Vec<(u64, bool)> = self.inodes.iter().filter_map(is_nameless).collect();
            if nameless.is_empty() {
                return;
            }
            for (number, directory) in nameless {
                self.inodes.remove(&number);
                if !directory {
                    let op = Op::Remove { device: self.device, name: stored(number) };
                    self.perform(op, None).expect("what is not open can be removed");
                }
            }
        }
    }

    fn open_stored(&mut self, number: u64, create: bool) -> Result<FileId> {
        match self.perform(Op::Open { device: self.device, name: stored(number), create }, None)? {
            (Output::Opened { file, .. }, _) => Ok(file),
            _ => unreachable!("an open answers with the file"),
        }
    }

    fn stored_length(&self, number: u64) -> u64 {
        self.media.length(DEVICE, &stored(number)).unwrap_or(0)
    }

    fn write_op(&self, number: u64, offset: u64, data: &[u8], durable: bool) -> Result<Op> {
        let mut buffer = Frame::allocate(1, data.len().max(1)).remove(0);
        buffer[..data.len()].copy_from_slice(data);
        let (file, length) = (self.file(number)?, data.len() as u32);
        Ok(Op::Write { file, offset, length, buffer, durable, access: Access::Asynchronous })
    }

    /// Makes sure that there is room for a file of this length.
    fn admit(&self, number: u64, length: u64) -> Result<()> {
        let growth = length.saturating_sub(self.stored_length(number));
        if growth > 0 && self.free().is_some_and(|free| growth > free) { Err(Errno::ENOSPC) } else { Ok(()) }
    }

    fn perform(&mut self, op: Op, injury: Option<Injury>) -> Result<(Output, Option<Frame>)> {
        let mut done = Vec::new();
        self.driver.submit(Token(0), op);
        if let Some(injury) = injury {
            self.driver.inject(Token(0), injury);
        }
        while done.is_empty() {
            self.driver.park(None, &mut done).expect("the power is there");
        }
        let completion = done.remove(0);
        completion.result.map(|output| (output, completion.buffer)).map_err(|fault| errno(&fault))
    }

    fn inode(&self, number: u64) -> Result<&Inode> {
        self.inodes.get(&number).ok_or(stale())
    }

    fn inode_mut(&mut self, number: u64) -> Result<&mut Inode> {
        self.inodes.get_mut(&number).ok_or(stale())
    }

    fn unsynced_mut(&mut self, number: u64) -> Result<&mut Lengths> {
        match &mut self.inode_mut(number)?.node {
            Node::File { unsynced, .. } => Ok(unsynced),
            Node::Directory(_) => Err(Errno::EISDIR),
        }
    }

    fn file(&self, number: u64) -> Result<FileId> {
        match &self.inode(number)?.node {
            Node::File { file, .. } => Ok(*file),
            Node::Directory(_) => Err(Errno::EISDIR),
        }
    }

    fn directory(&self, number: u64) -> Result<&Directory> {
        match &self.inode(number)?.node {
            Node::Directory(directory) => Ok(directory),
            Node::File { .. } => Err(Errno::ENOTDIR),
        }
    }

    fn directory_mut(&mut self, number: u64) -> Result<&mut Directory> {
        match &mut self.inode_mut(number)?.node {
            Node::Directory(directory) => Ok(directory),
            Node::File { .. } => Err(Errno::ENOTDIR),
        }
    }
}

impl Inode {
    fn is_directory(&self) -> bool {
        matches!(self.node, Node::Directory(_))
    }
}

fn stale() -> Errno {
    Errno::ESTALE
}

fn aligned(offset: u64, length: u64) -> Result<()> {
    if offset.is_multiple_of(SECTOR) && length.is_multiple_of(SECTOR) { Ok(()) } else { Err(Errno::EINVAL) }
}
